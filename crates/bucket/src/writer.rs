//! Sending what was sealed: several PUTs under way, each looked at again when it fails, and
//! acknowledged in order (I2, I3, I6, I9, I10).

use crate::fence::who;
use crate::object::{Decoded, Epoch, Head, Kind, Serial, name};
use crate::steady::{Again, PATIENCE};
use crate::store::Inner;
use env::{Bucket, BucketError, BucketErrorKind, DiskError, DiskErrorKind, Env, Nanos};
use std::rc::Rc;
use std::sync::Arc;

/// PUTs under way at once.
pub(crate) const PUTS_MAX: usize = 8;
/// While PUTs are under way, the next one waits for this part of the time that one takes, so that
/// more can join it: longer costs latency, shorter costs more PUTs.
const GAPS: usize = 2 * PUTS_MAX;
/// Blocks that have gathered from which on they go out, whoever waits.
pub(crate) const SEALED_BLOCKS: usize = 1024;
/// How a conditional PUT has ended.
pub(crate) enum Put {
    /// The object is there.
    Ours,
    /// Another one is: its bytes.
    Theirs(Vec<u8>),
}

/// Puts an object of which nobody else can have the same head, and makes sure whose object is there
/// (I9). Errors: the bucket could not be reached for long, or refuses.
pub(crate) async fn put_own(
    env: &Env,
    bucket: &Rc<dyn Bucket>,
    name: &str,
    (bytes, head_bytes): (Arc<[u8]>, usize),
    plant: Option<&'static str>,
) -> Result<Put, BucketError> {
    let len = bytes.len();
    assert!(head_bytes <= len, "I9: {name} is told by {head_bytes} bytes of {len}");
    let mut again = Again::new(env);
    loop {
        let put = match plant {
            Some("put-without-condition") => bucket.put(name, bytes.clone()).await,
            _ => bucket.put_absent(name, bytes.clone()).await,
        };
        let error = match put {
            Ok(()) => return Ok(Put::Ours),
            Err(e) if plant == Some("lost-reply-is-failure") => match e.kind {
                BucketErrorKind::Exists => return Ok(Put::Theirs(Vec::new())),
                _ => e,
            },
            Err(e) if e.kind == BucketErrorKind::Exists => {
                match bucket.get(name, Some((0, head_bytes as u64))).await {
                    Ok(there) if there == bytes[..head_bytes] => return Ok(Put::Ours),
                    Ok(there) => return Ok(Put::Theirs(there)),
                    Err(e) => e,
                }
            }
            Err(e) => e,
        };
        let hopeless = error.kind == BucketErrorKind::Refused;
        if hopeless || !again.wait(&error, PATIENCE).await {
            return Err(error);
        }
    }
}

impl Inner {
    /// Sends what is sealed, as far as the window and the number under way allow.
    pub(crate) fn send_ready(self: &Rc<Self>) {
        loop {
            let mut s = self.state.borrow_mut();
            let Some(&serial) = s.ready.front() else { return };
            let (acknowledged, flight) = (s.acknowledged, &s.flights[&serial]);
            // A checkpoint goes alone (I6).
            let alone = flight.kind != Kind::Checkpoint || acknowledged.next() == serial;
            let inside = serial <= acknowledged.plus(self.shape.window);
            if !alone || !inside || s.under_way >= PUTS_MAX || s.failed.is_some() {
                return;
            }
            assert!(serial > acknowledged, "I3: what is sent is not acknowledged yet");
            let own = s.epoch == Epoch::FIRST || serial >= s.epoch.0.plus(self.shape.window);
            assert!(own, "I5: serial {serial} is void in epoch {}", s.epoch);
            let (bytes, head_bytes) = (flight.bytes.clone(), flight.head_bytes);
            let (object, put) = ((serial, flight.sum), flight.put);
            s.ready.pop_front();
            s.under_way += 1;
            drop(s);
            let store = self.clone();
            self.env.spawn("object", async move {
                if let Some(near) = &store.near
                    && let Err(e) = near.mark(object, put).await
                {
                    store.fail(e); // N2: nobody may see what the near log does not know
                    store.state.borrow_mut().put_ended();
                    return;
                }
                store.send(serial, (bytes, head_bytes)).await;
            });
        }
    }

    async fn send(self: Rc<Self>, serial: Serial, (bytes, head_bytes): (Arc<[u8]>, usize)) {
        let (began, is_small) = (self.env.now(), bytes.len() < 1 << 20);
        let name = name(serial);
        let put = put_own(&self.env, &self.bucket, &name, (bytes, head_bytes), self.plant).await;
        match put {
            Ok(Put::Theirs(there)) if self.plant != Some("stale-writer-answers") => {
                let writer = match Head::decode(&self.shape.uuid, &there) {
                    Decoded::Head(head, ..) => head.writer,
                    _ => String::new(),
                };
                self.taken_over(&name, &writer);
            }
            Ok(_) => {
                let gap = self.plant == Some("gap-acknowledged");
                let mut s = self.state.borrow_mut();
                s.ended(serial, gap);
                // Else a fence may lie in the gap before it.
                let is_acknowledged = s.acknowledged >= serial;
                if is_small {
                    let took = self.env.now().since(began).0;
                    s.put_nanos =
                        if s.put_nanos == 0 { took } else { (s.put_nanos * 7 + took) / 8 };
                }
                drop(s);
                if is_acknowledged {
                    self.confirm(began);
                }
            }
            Err(e) => self.fail(e.into()),
        }
        self.state.borrow_mut().put_ended();
        self.trim_near();
        self.send_ready();
        self.wake();
        self.checkpoint_if_due();
    }

    /// Somebody else has put an object where this one's log would go on.
    pub(crate) fn taken_over(&self, name: &str, writer: &str) {
        self.lost.set(true);
        let by = who(writer);
        let left = self.left_near();
        let detail =
            format!("the volume was taken over by {by} ({name}): nothing is written here{left}");
        let (kind, during) = (DiskErrorKind::ReadOnly, "write");
        self.fail(DiskError { kind, during, at: 0, detail });
    }

    /// Nothing is acknowledged from now on (I10).
    pub(crate) fn fail(&self, e: DiskError) {
        {
            let mut s = self.state.borrow_mut();
            if s.failed.is_none() {
                tracing::error!("the store stops: {e}");
                s.failed = Some(e);
            }
        }
        self.changed.wake_all();
        self.sure.wake_all();
        self.waits.wake_all();
    }

    /// Something has ended: wakes whom that concerns.
    fn wake(&self) {
        self.changed.wake_all();
        let durable = self.state.borrow().durable_put;
        self.waits.wake_to(durable);
    }

    pub(crate) fn check_failed(&self) -> Result<(), DiskError> {
        self.state.borrow().failed.clone().map_or(Ok(()), Err)
    }

    /// Makes groups up to this one durable: in the near log, if there is one, else in the bucket.
    pub(crate) async fn flush_to(self: &Rc<Self>, put: u64) -> Result<(), DiskError> {
        match &self.near {
            Some(near) => self.flush_near(near, put).await,
            None => self.upload_to(put).await,
        }
    }

    /// The same, in the bucket. Whoever asks meanwhile shares the next object: it is sealed when
    /// there is room for a PUT and, where others are under way, a part of the time that one takes
    /// has gone by since, so that they do not go out in one bunch.
    pub(crate) async fn upload_to(self: &Rc<Self>, put: u64) -> Result<(), DiskError> {
        loop {
            self.check_failed()?;
            {
                let mut s = self.state.borrow_mut();
                let last = s.put;
                assert!(put <= last, "I12: group {put} is waited for, and {last} is the last");
                if s.durable_put >= put {
                    return Ok(());
                }
                s.wanted_put = s.wanted_put.max(put);
            }
            self.seal_what_is_wanted();
            self.waits.wait(put).await;
        }
    }

    /// Seals what somebody waits for, as a task that ends when that is sealed.
    fn seal_what_is_wanted(self: &Rc<Self>) {
        {
            let mut s = self.state.borrow_mut();
            if s.sealing || s.sealed_put >= s.wanted_put {
                return;
            }
            s.sealing = true;
        }
        let store = self.clone();
        self.env.spawn("seals", async move {
            loop {
                let sealed = store.seal_in_time().await;
                store.send_ready();
                let mut s = store.state.borrow_mut();
                s.sealing = sealed.is_ok() && s.sealed_put < s.wanted_put;
                let goes_on = s.sealing;
                drop(s);
                store.wake();
                if !goes_on {
                    return; // a failure is sticky
                }
            }
        });
    }

    async fn seal_in_time(self: &Rc<Self>) -> Result<(), DiskError> {
        let gap = {
            let s = self.state.borrow();
            if s.flights.is_empty() { 0 } else { s.put_nanos / GAPS as u64 }
        };
        if gap > 0 {
            self.env.sleep(Nanos(gap)).await;
        }
        while self.state.borrow().under_way >= PUTS_MAX || !self.state.borrow().ready.is_empty() {
            self.check_failed()?;
            self.changed.wait().await;
        }
        self.check_failed()?;
        self.state.borrow_mut().seal(&self.shape, self.env.random());
        Ok(())
    }

    /// What has gathered goes out if it is enough for an object.
    pub(crate) fn seal_if_full(self: &Rc<Self>) {
        {
            let mut s = self.state.borrow_mut();
            if s.gathered() < SEALED_BLOCKS {
                return;
            }
            s.seal(&self.shape, self.env.random());
        }
        self.send_ready();
    }

    /// Waits until not too much is under way to take more.
    pub(crate) async fn wait_for_room(self: &Rc<Self>) -> Result<(), DiskError> {
        while !self.has_room() {
            self.check_failed()?;
            self.changed.wait().await;
        }
        self.check_failed()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.state.borrow().ready.len() < PUTS_MAX
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use env::{Local, ObjectDone, ObjectOp};
    use std::cell::Cell;

    /// A bucket whose first request fails after an hour, as one does that was under way when its
    /// machine was suspended.
    struct Suspended(Env, Cell<bool>);

    impl Bucket for Suspended {
        fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
            Box::pin(async move {
                if self.1.replace(true) {
                    return Ok(ObjectDone::Done);
                }
                self.0.sleep(Nanos::from_secs(3600)).await;
                let (kind, during) = (BucketErrorKind::Unknown, op.verb());
                Err(BucketError { kind, during, name: "log/1".into(), detail: String::new() })
            })
        }
    }

    #[test]
    fn who_was_asleep_tries_again() {
        let mut world = sim::World::new(sim::Image::new(4096));
        sim::block_on(&mut world, |env, _| async move {
            let bucket: Rc<dyn Bucket> = Rc::new(Suspended(env.clone(), Cell::new(false)));
            let put = put_own(&env, &bucket, "log/1", (vec![1].into(), 1), None).await;
            assert!(matches!(put, Ok(Put::Ours)));
        });
    }
}

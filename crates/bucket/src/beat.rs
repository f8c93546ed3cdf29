//! Heartbeats: who writes, and that it is alive. They are advice for who thinks of taking over, and
//! no safety hangs on them. Each epoch has an object of its own, so that a writer that was taken
//! over touches nobody else's.

use crate::chain::{Trouble, heads_of};
use crate::object::{Epoch, Serial, name};
use crate::steady::{PATIENCE, PAUSE};
use crate::store::{Inner, Store};
use env::{Bucket, BucketError, BucketErrorKind, DiskError, DiskErrorKind, Nanos};
use std::rc::Rc;

/// What their names begin with.
pub(crate) const BEATS: &str = "beats/";

/// What a heartbeat says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Writer {
    /// Who writes, for a person.
    pub name: String,
    /// Raised with each beat.
    pub count: u64,
    /// It has ended, and lets go.
    pub closed: bool,
    /// Its log is acknowledged up to this serial.
    pub end: Serial,
}

impl Writer {
    fn encode(&self) -> Vec<u8> {
        let state = if self.closed { "closed" } else { "open" };
        // A line of its own: who could not read it would hear of nobody.
        let name: String =
            self.name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let raw = format!("{state}\n{}\n{name}\n{}\n", self.count, self.end).into_bytes();
        let again = Writer::decode(&raw);
        let same = again.as_ref() == Some(&Writer { name, ..self.clone() });
        assert!(same, "I13: a heartbeat is read as {again:?}");
        raw
    }

    fn decode(raw: &[u8]) -> Option<Writer> {
        let text = std::str::from_utf8(raw).ok()?;
        let mut lines = text.lines();
        let closed = match lines.next()? {
            "closed" => true,
            "open" => false,
            _ => return None,
        };
        let count = lines.next()?.parse().ok()?;
        let name = lines.next()?.to_owned();
        let end = Serial(lines.next()?.parse().ok()?);
        Some(Writer { name, count, closed, end })
    }

    /// What the writer of an epoch has said last; None: nothing that can be read.
    pub(crate) async fn of(bucket: &Rc<dyn Bucket>, epoch: Epoch) -> Option<Writer> {
        Writer::look(bucket, epoch).await.ok()?
    }

    /// What the object of this name says; None: nothing that can be read.
    pub(crate) async fn said(bucket: &Rc<dyn Bucket>, name: &str) -> Option<Writer> {
        Writer::decode(&bucket.get(name, None).await.ok()?)
    }

    /// What the writer of an epoch has said last. Errors: the bucket could not be asked.
    pub(crate) async fn look(
        bucket: &Rc<dyn Bucket>,
        epoch: Epoch,
    ) -> Result<Option<Writer>, BucketError> {
        match bucket.get(&beat_name(epoch), None).await {
            Ok(raw) => Ok(Writer::decode(&raw)),
            Err(e) if e.kind == BucketErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Says that the writer of an epoch has ended before it began: its fence is there, and it could not
/// go on. Who comes next need not wait until it is silent. That it cannot be said is no failure.
pub(crate) async fn never_began(bucket: &Rc<dyn Bucket>, epoch: Epoch, name: &str) {
    let writer = Writer { name: name.to_owned(), count: 0, closed: true, end: Serial::NONE };
    if let Err(e) = bucket.put(&beat_name(epoch), writer.encode().into()).await {
        tracing::warn!("that nobody writes in epoch {epoch} could not be said: {e}");
    }
}

fn beat_name(Epoch(Serial(fence)): Epoch) -> String {
    format!("{BEATS}{fence:016x}")
}

impl Inner {
    /// Beats until the store has said that it is closed, and looks whether somebody has taken over:
    /// a writer with nothing to write would else not learn of it. What is sent while it closes may
    /// take long, and one that is silent meanwhile would be taken over in the middle of it.
    pub(crate) fn start_beating(self: &Rc<Self>, every: Nanos) {
        let (store, env) = (Rc::downgrade(self), self.env.clone());
        self.env.spawn("heartbeat", async move {
            for count in 1.. {
                let Some(store) = store.upgrade() else { return };
                let stop = {
                    let s = store.state.borrow();
                    s.closed || s.failed.is_some()
                };
                if stop {
                    return;
                }
                store.beating.set(true);
                store.beat(count, false).await;
                store.look_for_a_fence().await;
                store.beating.set(false);
                store.changed.wake_all();
                drop(store);
                env.sleep(every).await;
            }
        });
    }

    /// Says that this writer has ended, when no beat is on its way: one would be put over it, or
    /// take the fence of who follows for that of one who has taken over.
    pub(crate) async fn beat_last(&self) {
        self.state.borrow_mut().closed = true;
        while self.beating.get() {
            self.changed.wait().await;
        }
        self.beat(0, true).await;
    }

    /// Says so; that it cannot be said is no failure.
    pub(crate) async fn beat(&self, count: u64, closed: bool) {
        let (epoch, end) = {
            let s = self.state.borrow();
            (s.epoch, s.acknowledged)
        };
        let name = self.options.writer.clone();
        let raw = Writer { name, count, closed, end }.encode();
        if let Err(e) = self.bucket.put(&beat_name(epoch), raw.into()).await {
            tracing::warn!("a heartbeat could not be written: {e}");
        }
    }

    /// Looks whether somebody has put a fence where this one's log goes on: at any serial from the
    /// first that is not acknowledged up to the first that was never sent. One that is absent tells
    /// nothing of those behind it: it may be on its way, and whoever has taken over may have found
    /// this one's object there, and deleted it since.
    pub(crate) async fn look_for_a_fence(&self) {
        let began = self.env.now();
        let (epoch, serials) = {
            let s = self.state.borrow();
            let unsent = s.ready.front().copied().unwrap_or(s.next);
            let (first, window) = (s.acknowledged.next(), self.shape.window);
            let inside = first <= unsent && unsent <= first.plus(window);
            assert!(inside, "I3: from {first} on all is sent up to {unsent}, and {window} may be");
            (s.epoch, (first.0..=unsent.0).map(Serial).collect::<Vec<_>>())
        };
        let heads = heads_of(&self.bucket, &self.shape, &serials).await;
        for (serial, found) in serials.into_iter().zip(heads) {
            match found {
                Ok((head, ..)) if head.epoch != epoch => {
                    return self.taken_over(&name(serial), &head.writer);
                }
                Ok(_) | Err(Trouble::Again) => (),
                Err(Trouble::Wrong(why) | Trouble::Unknown(why)) => {
                    return tracing::warn!("is this still the writer? {why}");
                }
            }
        }
        self.confirm(began);
    }

    /// A request that began then has shown that this is still the writer.
    pub(crate) fn confirm(&self, began: Nanos) {
        self.confirmed.set(self.confirmed.get().max(began));
        self.near.iter().for_each(|n| n.confirm(began));
        self.sure.wake_all();
    }

    /// Has it looked lately? Who stood still, or cannot reach the bucket, may have been taken over.
    fn is_sure(&self) -> bool {
        let late = self.env.now().since(self.confirmed.get()).0 > self.options.after.0 / 2;
        self.options.read_only || !self.lost.get() && !late
    }

    /// One look at a time: who asks meanwhile waits for that one.
    async fn look_again(self: &Rc<Self>) {
        if self.looking.replace(true) {
            return self.sure.wait().await;
        }
        let _looking = Looking(self);
        self.look_for_a_fence().await;
    }
}

/// Somebody looks, until this is dropped: also where whoever asked is not there any more.
struct Looking<'a>(&'a Inner);
impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.looking.set(false);
        self.0.sure.wake_all();
    }
}

impl Store {
    /// Returns when it is known that this is the volume's writer still (I11): at once, if a look at
    /// the bucket has shown that lately. An answer that was reckoned before may be given then.
    /// Errors: it was taken over, or the bucket cannot be reached for long.
    pub async fn sure(&self) -> Result<(), DiskError> {
        let inner = &self.inner;
        let began = inner.env.now();
        while !inner.is_sure() {
            if inner.lost.get() {
                inner.check_failed()?;
            }
            if inner.env.now().since(began) > PATIENCE {
                let detail = "nobody can tell whether this is still the writer".into();
                return Err(DiskError { kind: DiskErrorKind::Io, during: "look", at: 0, detail });
            }
            let looked = inner.confirmed.get();
            inner.look_again().await;
            if inner.confirmed.get() == looked && !inner.lost.get() {
                inner.env.sleep(PAUSE).await;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::at_rest::AtRest;
    use crate::{FormatOptions, OpenOptions};
    use env::{Local, ObjectDone, ObjectOp, unless};
    use sim::{Image, SimBucket, Trouble, Way, World, block_on};
    use std::cell::Cell;

    /// A way to the bucket that answers nothing while it is told so.
    struct Hangs(Rc<dyn Bucket>, env::Env, Rc<Cell<bool>>);

    impl Bucket for Hangs {
        fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
            Box::pin(async move {
                if self.2.get() {
                    self.1.sleep(Nanos::from_secs(100_000)).await;
                }
                self.0.ask(op).await
            })
        }
    }

    /// Who asks whether this is still the writer may go away while he looks: the next one looks
    /// himself.
    #[test]
    fn a_look_that_was_given_up_is_no_look() {
        block_on(&mut World::new(Image::new(4096)), |env, _| async move {
            let all = SimBucket::new(env.clone(), 3, Trouble::NONE);
            let way: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
            let (uuid, size_bytes) = ([7; 16], 512 * 4096);
            let at_rest = AtRest::default();
            let format = FormatOptions { uuid, size_bytes, force: false, at_rest };
            let making = crate::format(env.clone(), way.clone(), &format).await.unwrap();
            making.finish().await.unwrap();
            let hangs = Rc::new(Cell::new(false));
            let way: Rc<dyn Bucket> = Rc::new(Hangs(way, env.clone(), hangs.clone()));
            let store = Store::open(env.clone(), way, OpenOptions::default()).await.unwrap();
            hangs.set(true);
            env.sleep(Nanos::from_secs(10)).await;
            let given_up = unless(store.sure(), env.sleep(Nanos::from_secs(1))).await;
            assert!(given_up.is_none());
            hangs.set(false);
            let sure = unless(store.sure(), env.sleep(Nanos::from_secs(5))).await;
            assert_eq!(sure, Some(Ok(())), "I11: nobody looks any more");
        });
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let (name, end) = ("host a, process 7".into(), Serial(77));
        let w = Writer { name, count: 9, closed: false, end };
        assert_eq!(Writer::decode(&w.encode()), Some(w.clone()));
        let w = Writer { closed: true, ..w };
        assert_eq!(Writer::decode(&w.encode()), Some(w.clone()));
        // As /proc/sys/kernel/hostname takes them.
        for name in ["two\nlines", "open\n7\n", "\r\n", "", "a\u{85}b", "tab\tand \u{1b}[2J"] {
            let w = Writer { name: name.into(), ..w.clone() };
            let said = Writer::decode(&w.encode()).unwrap();
            assert_eq!((said.count, said.end, said.closed), (9, Serial(77), true), "{name:?}");
        }
        assert_eq!(Writer::decode(b"nonsense"), None);
    }
}

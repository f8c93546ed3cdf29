//! Writes that find the medium under an image full: the file system of the host, if the image is
//! sparse, or a thin volume.
//!
//! Rule: such a write waits for room and is tried again, for [`PATIENCE`]; once the server is to
//! stop, for [`PATIENCE_AT_END`]. Everybody who waits for what it makes durable waits with it;
//! nothing is lost, and nobody is told anything that is not so. Only then it fails, and the volume
//! stops writing, as after any write that fails. (As dm-thin with its `no_space_timeout`, which is
//! a minute too.)
//!
//! Invariants:
//! * R1. A write is either with the kernel or here, until it has ended. Writes that nobody has
//!   waited for the end of have no order among them, and a flush is asked for when those it is for
//!   have ended: so what waits here is overtaken by nothing that must come later.
//! * R2. What waits, or is tried again, is counted as a write of its volume that waits, once.
//! * R3. Nothing but writes is tried again.
//!
//! A flush that fails is not tried again: what it was to write the kernel has given up.

use env::{DiskErrorKind, IoDone, IoOp, IoRequest, Nanos};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How long a write waits for room.
const PATIENCE: Nanos = Nanos(60_000_000_000);
/// The same from when the server is to stop: whoever stops it waits for that.
const PATIENCE_AT_END: Nanos = Nanos(5_000_000_000);
/// How long until it is tried again.
const PAUSE: Nanos = Nanos(500_000_000);

/// What the workers know together: which volumes have writes that wait, and whether it is the end.
pub(crate) struct SpaceWaits {
    volumes: Vec<Mutex<Waiting>>,
    /// When the server was told to stop, on the monotonic clock; 0: it was not.
    stopping: AtomicU64,
}

/// A volume's writes that wait, of all workers.
#[derive(Default)]
struct Waiting {
    writes: usize,
    /// When the first of them began to.
    since: Nanos,
}

impl SpaceWaits {
    /// For so many volumes.
    pub(crate) fn new(volumes: usize) -> SpaceWaits {
        let volumes = (0..volumes).map(|_| Mutex::default()).collect();
        SpaceWaits { volumes, stopping: AtomicU64::new(0) }
    }

    /// From now on writes have less patience.
    pub(crate) fn stop(&self, now: Nanos) {
        self.stopping.store(now.0.max(1), Ordering::Relaxed);
    }

    /// Since when this volume's writes wait for room; None: they do not.
    pub(crate) fn waits_since(&self, volume: usize) -> Option<Nanos> {
        let waiting = self.volumes[volume].lock().unwrap_or_else(PoisonError::into_inner);
        (waiting.writes > 0).then_some(waiting.since)
    }

    /// When a write that has waited since then fails.
    fn until(&self, since: Nanos) -> Nanos {
        let (most, stopping) = (since.plus(PATIENCE), self.stopping.load(Ordering::Relaxed));
        match stopping {
            0 => most,
            at => most.min(since.max(Nanos(at)).plus(PATIENCE_AT_END)),
        }
    }

    /// One more of this volume's writes waits. Is it the only one?
    fn begins(&self, volume: usize, now: Nanos) -> bool {
        let mut waiting = self.volumes[volume].lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.writes == 0 {
            waiting.since = now;
        }
        waiting.writes += 1;
        waiting.writes == 1
    }

    /// One of them has ended. Was it the last one?
    fn ends(&self, volume: usize) -> bool {
        let mut waiting = self.volumes[volume].lock().unwrap_or_else(PoisonError::into_inner);
        assert!(waiting.writes > 0, "R2: more writes of {volume} have ended than waited");
        waiting.writes -= 1;
        waiting.writes == 0
    }
}

/// Those of one worker.
pub(crate) struct Retries {
    room: Arc<SpaceWaits>,
    /// To be tried again, by volume.
    waiting: Vec<(usize, IoRequest)>,
    /// When that is.
    next: Option<Nanos>,
    /// Since when each of them, and of those that the kernel has again, has waited.
    since: BTreeMap<(usize, u64), Nanos>,
}

/// A write, to be kept until it is known how it ended.
pub(crate) fn copy_of(request: &IoRequest) -> Option<IoRequest> {
    let &IoRequest { id, disk, op, at, .. } = request;
    let blocks = request.blocks.clone();
    matches!(op, IoOp::Write(_)).then_some(IoRequest { id, disk, op, at, blocks, object: None })
}

impl Retries {
    pub(crate) fn new(room: Arc<SpaceWaits>) -> Retries {
        Retries { room, waiting: Vec::new(), next: None, since: BTreeMap::new() }
    }

    /// A request has ended so, at the disk of this path; `again` is its copy. Does it wait, so that
    /// it has not ended?
    pub(crate) fn keeps(
        &mut self,
        (volume, path): (usize, &Path),
        done: &IoDone,
        again: Option<IoRequest>,
        now: Nanos,
    ) -> bool {
        let key = (volume, done.id);
        let full = matches!(&done.result, Err(e) if e.kind == DiskErrorKind::NoSpace);
        let Some(again) = again.filter(|_| full) else {
            let last = self.since.remove(&key).is_some() && self.room.ends(volume);
            if last && done.result.is_ok() {
                let path = path.display();
                tracing::warn!("{path}: the medium under it has room again; all writes go on");
            }
            return false;
        };
        assert_eq!(again.id, done.id, "R1: the copy of another request");
        assert!(matches!(again.op, IoOp::Write(_)), "R3: {:?} would be tried again", again.op);
        let is_here = || self.waiting.iter().any(|(v, r)| (*v, r.id) == key);
        // There may be thousands.
        debug_assert!(!is_here(), "R1: request {} has ended, and waits here", done.id);
        let since = *self.since.entry(key).or_insert_with(|| {
            if self.room.begins(volume, now) {
                let secs = self.room.until(now).since(now).0 / 1_000_000_000;
                tracing::warn!(
                    "{}: no space left on the medium under the image: writes wait until it has \
                     room, for {secs} s; then the volume stops writing",
                    path.display()
                );
            }
            now
        });
        if now >= self.room.until(since) {
            self.since.remove(&key);
            self.room.ends(volume);
            return false;
        }
        self.waiting.push((volume, again));
        self.next.get_or_insert(now.plus(PAUSE));
        let (waiting, counted) = (self.waiting.len(), self.since.len());
        assert!(waiting <= counted, "R2: {waiting} writes wait, and {counted} are counted");
        true
    }

    /// A request has ended well.
    pub(crate) fn ended(&mut self, of: (usize, &Path), done: &IoDone, now: Nanos) {
        if !self.since.is_empty() {
            let kept = self.keeps(of, done, None, now);
            assert!(!kept, "R1: what has ended waits");
        }
    }

    /// When there is something to be tried again.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.next
    }

    /// What is to be tried now.
    pub(crate) fn due(&mut self, now: Nanos) -> Vec<(usize, IoRequest)> {
        if self.next.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.next = None;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Block, DiskError, DiskId, Durability};

    fn write(id: u64) -> IoRequest {
        let (op, blocks) = (IoOp::Write(Durability::Fua), vec![Block::zeroed(4096)]);
        IoRequest { id, disk: DiskId(0), op, at: 0, blocks, object: None }
    }
    fn end(id: u64, kind: Option<DiskErrorKind>) -> IoDone {
        let failed = |kind| DiskError { kind, during: "write", at: 0, detail: String::new() };
        IoDone::of_disk(id, Vec::new(), kind.map_or(Ok(()), |k| Err(failed(k))))
    }
    const FULL: Option<DiskErrorKind> = Some(DiskErrorKind::NoSpace);

    #[test]
    fn a_write_without_room_is_tried_until_there_is_some_and_for_a_minute_at_most() {
        let all = Arc::new(SpaceWaits::new(2));
        let mut room = Retries::new(all.clone());
        let (a, b) = ((0, Path::new("a")), (1, Path::new("b")));
        let at = |ms: u64| Nanos(ms * 1_000_000);
        assert!(room.keeps(a, &end(1, FULL), copy_of(&write(1)), at(0)));
        assert!(room.keeps(b, &end(1, FULL), copy_of(&write(1)), at(100)));
        assert!(room.due(at(499)).is_empty() && room.next() == Some(at(500)));
        let again = room.due(at(500));
        assert!(again.len() == 2 && again[1].0 == 1 && again[1].1.blocks[0].len() == 4096);
        assert!(room.due(at(501)).is_empty() && room.next().is_none());
        // One is written; the other waits on, and not for ever.
        room.ended(a, &end(1, None), at(510));
        assert_eq!((all.waits_since(0), all.waits_since(1)), (None, Some(at(100))));
        assert!(room.keeps(b, &end(1, FULL), copy_of(&write(1)), at(60_099)));
        room.due(at(70_000));
        assert!(!room.keeps(b, &end(1, FULL), copy_of(&write(1)), at(60_100)));
        assert_eq!(all.waits_since(1), None);
        // The next has a minute of its own, and other errors are none of ours.
        assert!(room.keeps(a, &end(1, FULL), copy_of(&write(1)), at(60_200)));
        let io = Some(DiskErrorKind::Io);
        assert!(!room.keeps(a, &end(2, io), copy_of(&write(2)), at(60_200)));
        let flush = IoRequest { op: IoOp::Flush, ..write(3) };
        assert!(!room.keeps(a, &end(3, FULL), copy_of(&flush), at(60_200)));
    }

    #[test]
    fn at_the_end_nobody_waits_for_a_minute() {
        let all = Arc::new(SpaceWaits::new(1));
        let mut room = Retries::new(all.clone());
        let a = (0, Path::new("a"));
        let at = |ms: u64| Nanos(ms * 1_000_000);
        // What waits is tried again before it ends again.
        let mut keeps = |id, ms| {
            room.due(at(100_000));
            room.keeps(a, &end(id, FULL), copy_of(&write(id)), at(ms))
        };
        assert!(keeps(1, 10));
        all.stop(at(2_000));
        assert!(keeps(1, 6_999));
        assert!(!keeps(1, 7_000));
        // What comes later has as long; what has waited almost a minute, no longer than that.
        assert!(keeps(2, 8_000));
        assert!(!keeps(2, 13_000));
        assert_eq!(all.until(at(0)), at(7_000));
        all.stop(at(59_000));
        assert_eq!(all.until(at(0)), at(60_000));
    }
}

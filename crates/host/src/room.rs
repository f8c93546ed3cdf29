//! Writes that find the medium under an image full: the file system of the host, if the image is
//! sparse, or a thin volume.
//!
//! Rule: such a write waits for room and is tried again, for [`PATIENCE`]. Everybody who waits for
//! what it makes durable waits with it; nothing is lost, and nobody is told anything that is not
//! so. Only then it fails, and the volume stops writing, as after any write that fails. (As dm-thin
//! with its `no_space_timeout`, which is a minute too.)
//!
//! Invariant: a request is either with the kernel or here, until it has ended. Writes that nobody
//! has waited for the end of have no order among them, and a flush is asked for when those it is
//! for have ended: so what waits here is overtaken by nothing that must come later.
//!
//! A flush that fails is not tried again: what it was to write the kernel has given up.

use env::{DiskErrorKind, IoDone, IoOp, IoRequest, Nanos};
use std::collections::BTreeMap;

/// How long a write waits for room.
const PATIENCE: Nanos = Nanos(60_000_000_000);
/// How long until it is tried again.
const PAUSE: Nanos = Nanos(500_000_000);

/// Those of one worker.
#[derive(Default)]
pub(crate) struct Retries {
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
    /// A request has ended so; `again` is its copy. Does it wait, so that it has not ended?
    pub(crate) fn keeps(
        &mut self,
        volume: usize,
        done: &IoDone,
        again: Option<IoRequest>,
        now: Nanos,
    ) -> bool {
        let key = (volume, done.id);
        let full = matches!(&done.result, Err(e) if e.kind == DiskErrorKind::NoSpace);
        let Some(again) = again.filter(|_| full) else {
            if self.since.remove(&key).is_some() && done.result.is_ok() && self.since.is_empty() {
                tracing::warn!("the medium under the image has room again; all writes go on");
            }
            return false;
        };
        assert_eq!(again.id, done.id, "the copy of another request");
        if self.since.is_empty() {
            tracing::warn!(
                "no space left on the medium under the image: writes wait until it has room, for \
                 {} s; then the volume stops writing",
                PATIENCE.0 / 1_000_000_000
            );
        }
        let since = *self.since.entry(key).or_insert(now);
        if now.since(since) >= PATIENCE {
            self.since.remove(&key);
            return false;
        }
        self.waiting.push((volume, again));
        self.next.get_or_insert(now.plus(PAUSE));
        true
    }

    /// A request has ended well.
    pub(crate) fn ended(&mut self, volume: usize, done: &IoDone, now: Nanos) {
        if !self.since.is_empty() {
            let kept = self.keeps(volume, done, None, now);
            assert!(!kept, "what has ended waits");
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
        let mut room = Retries::default();
        let at = |ms: u64| Nanos(ms * 1_000_000);
        assert!(room.keeps(0, &end(1, FULL), copy_of(&write(1)), at(0)));
        assert!(room.keeps(1, &end(1, FULL), copy_of(&write(1)), at(100)));
        assert!(room.due(at(499)).is_empty() && room.next() == Some(at(500)));
        let again = room.due(at(500));
        assert!(again.len() == 2 && again[1].0 == 1 && again[1].1.blocks[0].len() == 4096);
        assert!(room.due(at(501)).is_empty() && room.next().is_none());
        // One is written; the other waits on, and not for ever.
        room.ended(0, &end(1, None), at(510));
        assert!(room.keeps(1, &end(1, FULL), copy_of(&write(1)), at(60_099)));
        room.due(at(70_000));
        assert!(!room.keeps(1, &end(1, FULL), copy_of(&write(1)), at(60_100)));
        // The next has a minute of its own, and other errors are none of ours.
        assert!(room.keeps(0, &end(1, FULL), copy_of(&write(1)), at(60_200)));
        let io = Some(DiskErrorKind::Io);
        assert!(!room.keeps(0, &end(2, io), copy_of(&write(2)), at(60_200)));
        let flush = IoRequest { op: IoOp::Flush, ..write(3) };
        assert!(!room.keeps(0, &end(3, FULL), copy_of(&flush), at(60_200)));
    }
}

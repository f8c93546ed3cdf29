//! Contents that lengths and pointers wait for. They are the plain part of the graph: they are
//! always due, nothing of them is ever taken back, they lie over nothing, and nobody asks for one
//! of them alone. So they are no nodes; of each block it is known which operations wait for it, and
//! how far it has come for each.

use super::super::order::CONTENTS;
use super::Graph;
use crate::unflushed::Progress;
use cache::Buf;
use env::{Few, IdMap};
use format::{BlockNo, Extent};
use integrity::TxnId;
use smallvec::SmallVec;

/// A block of contents, and who waits for it.
struct Awaited {
    buf: Buf,
    by: Few<(TxnId, Progress)>,
}

/// Blocks of contents that are not durable.
#[derive(Default)]
pub(super) struct Contents {
    by_block: IdMap<BlockNo, Awaited>,
    /// How often somebody waits for one.
    len: usize,
}

impl Contents {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// From now on the operation, which knows no such block yet, waits for this one.
    pub(super) fn add(&mut self, buf: &Buf, txn: TxnId) {
        let new = || Awaited { buf: buf.clone(), by: Few::new() };
        let all = self.by_block.entry(buf.block()).or_insert_with(new);
        if !all.buf.same(buf) {
            all.buf = buf.clone(); // a damaged volume: another file, which was cut, has it too
        }
        let again = all.by.iter().any(|(t, _)| *t == txn);
        assert!(!again, "I2: operation {txn} waits for contents of {buf:?} twice");
        all.by.push((txn, Progress::Pending));
        self.len += 1;
    }

    /// The block, if somebody waits for it who has it in no image yet.
    pub(super) fn pending_of(&self, block: BlockNo) -> Option<&Buf> {
        let all = self.by_block.get(&block)?;
        all.by.iter().any(|(_, state)| *state == Progress::Pending).then_some(&all.buf)
    }

    /// The block, if it is to be written, or is on its way, for somebody.
    pub(super) fn unwritten_of(&self, block: BlockNo) -> Option<&Buf> {
        let all = self.by_block.get(&block)?;
        let waits = |state: &Progress| !matches!(state, Progress::Written(_));
        all.by.iter().any(|(_, state)| waits(state)).then_some(&all.buf)
    }

    /// How many operations up to `last` have it in no image yet.
    pub(super) fn waiting_for(&self, block: BlockNo, last: TxnId) -> usize {
        let by = self.by_block.get(&block).into_iter().flat_map(|all| &all.by);
        by.filter(|(txn, state)| *txn <= last && *state == Progress::Pending).count()
    }

    /// Does the operation have it in no image yet?
    pub(super) fn is_pending(&self, block: BlockNo, txn: TxnId) -> bool {
        let by = self.by_block.get(&block).into_iter().flat_map(|all| &all.by);
        by.into_iter().any(|(t, state)| *t == txn && *state == Progress::Pending)
    }

    /// The block goes into an image. Returns for how many that is the first one.
    pub(super) fn capture(&mut self, block: BlockNo) -> usize {
        let Some(all) = self.by_block.get_mut(&block) else { return 0 };
        let mut n = 0;
        for (_, state) in all.by.iter_mut() {
            assert!(*state != Progress::Captured, "I2: {:?} is on its way already", all.buf);
            if *state == Progress::Pending {
                *state = Progress::Captured;
                n += 1;
            }
        }
        n
    }

    /// The image's write has ended. True: somebody waits for a flush now.
    pub(super) fn written(&mut self, block: BlockNo, to: Progress) -> bool {
        assert!(to != Progress::Captured, "I2: the write of {block} has ended, and is on its way");
        let Some(all) = self.by_block.get_mut(&block) else { return false };
        let mut any = false;
        for (_, state) in all.by.iter_mut().filter(|(_, s)| *s == Progress::Captured) {
            *state = to;
            any = true;
        }
        any
    }

    /// Those who wait for the block no longer, because of this.
    pub(super) fn finish(
        &mut self,
        block: BlockNo,
        done: impl Fn(TxnId, Progress) -> bool,
    ) -> SmallVec<[TxnId; 2]> {
        let mut gone = SmallVec::new();
        let Some(all) = self.by_block.get_mut(&block) else { return gone };
        all.by.retain(|(txn, state)| {
            let is_done = done(*txn, *state);
            if is_done {
                gone.push(*txn);
            }
            !is_done
        });
        if all.by.is_empty() {
            self.by_block.remove(&block);
        }
        assert!(self.len >= gone.len(), "I2: {block} was waited for more often than is counted");
        self.len -= gone.len();
        let (none, known) = (self.len == 0, self.by_block.len());
        assert_eq!(none, known == 0, "I2: of {known} blocks {} are waited for", self.len);
        gone
    }

    /// Is the block waited for?
    pub(super) fn has(&self, block: BlockNo) -> bool {
        self.by_block.contains_key(&block)
    }

    /// Blocks that are waited for, in no order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockNo> + '_ {
        self.by_block.keys().copied()
    }

    /// By how many, of each operation.
    pub(super) fn by_operation(&self) -> IdMap<TxnId, u32> {
        let mut all: IdMap<TxnId, u32> = IdMap::default();
        let by = self.by_block.values().flat_map(|a| &a.by);
        by.for_each(|(txn, _)| *all.entry(*txn).or_default() += 1);
        all
    }
}

impl Graph {
    /// The operation, which has not ended, waits for these contents.
    pub(in super::super) fn add_contents(&mut self, txn: TxnId, bufs: &[&Buf]) {
        let op = self.operations.get_or_insert_with(txn, Default::default);
        assert!(!op.ended, "contents of an operation that has ended");
        for buf in bufs {
            assert!(buf.is_dirty(), "I7: {buf:?} has changed, and would not be written");
            self.contents.add(buf, txn);
            add_block(&mut op.contents, buf.block());
        }
        op.left[CONTENTS] += bufs.len() as u32;
        self.counts.nodes += bufs.len() as u64;
    }

    /// Are all contents that the operation waits for in no image yet?
    pub(in super::super) fn has_unwritten(&self, txn: TxnId) -> bool {
        let op = self.operations.get(txn);
        let mut all = op.into_iter().flat_map(|op| blocks_of(&op.contents));
        all.all(|b| self.contents.is_pending(b, txn))
    }

    /// Nobody of these waits for the block any more.
    pub(super) fn finish_contents(
        &mut self,
        block: BlockNo,
        done: impl Fn(TxnId, Progress) -> bool,
    ) {
        for txn in self.contents.finish(block, done) {
            let ended = self.has_ended(txn);
            assert!(ended, "I1: contents of {txn} at {block} are durable, and it has not ended");
            self.step_done(txn, CONTENTS);
        }
    }
}

/// One more block of an operation's, into the runs that it has.
pub(super) fn add_block(runs: &mut Few<Extent>, block: BlockNo) {
    match runs.last_mut() {
        Some(last) if last.start.plus(last.len) == block => last.len += 1,
        _ => runs.push(Extent { start: block, len: 1 }),
    }
}

/// The blocks of runs.
pub(super) fn blocks_of(runs: &Few<Extent>) -> impl Iterator<Item = BlockNo> + '_ {
    runs.iter().flat_map(|e| (0..e.len).map(|n| e.start.plus(n)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cache::{BufKind, FlushEpoch};
    use format::Ino;

    fn data(n: u64) -> Buf {
        let buf = crate::testing::cache().get_new(BlockNo(n), BufKind::Data, Ino(9));
        buf.mark_dirty();
        buf
    }

    #[test]
    fn what_was_written_again_is_durable_for_each_by_its_own_image() {
        let (buf, mut all) = (data(5), Contents::default());
        let epoch = |n| Progress::Written(FlushEpoch(n));
        let durable = |n| move |_: TxnId, state: Progress| state.is_durable_by(FlushEpoch(n));
        all.add(&buf, TxnId(1));
        assert_eq!((all.capture(BlockNo(5)), all.len()), (1, 1));
        all.add(&buf, TxnId(2)); // while the first image is on its way
        assert!(all.is_pending(BlockNo(5), TxnId(2)) && !all.is_pending(BlockNo(5), TxnId(1)));
        assert!(all.written(BlockNo(5), epoch(3)));
        assert_eq!(all.waiting_for(BlockNo(5), TxnId(1)), 0, "it is only to be flushed");
        assert_eq!(all.waiting_for(BlockNo(5), TxnId(2)), 1);
        assert!(all.finish(BlockNo(5), durable(3)).is_empty(), "the flush was issued before");
        assert_eq!(all.finish(BlockNo(5), durable(4))[..], [TxnId(1)]);
        assert_eq!(all.capture(BlockNo(5)), 1);
        assert!(all.unwritten_of(BlockNo(5)).is_some() && all.pending_of(BlockNo(5)).is_none());
        assert!(all.written(BlockNo(5), Progress::Pending), "the write failed: once more");
        assert!(all.is_pending(BlockNo(5), TxnId(2)));
        assert_eq!(all.finish(BlockNo(5), |_, _| true)[..], [TxnId(2)], "the block was freed");
        assert!(!all.has(BlockNo(5)) && all.len() == 0);
    }

    #[test]
    fn runs_are_the_blocks_they_are_made_of() {
        let (mut runs, blocks) = (Few::new(), [4, 5, 6, 9, 3, 10, 11].map(BlockNo));
        blocks.into_iter().for_each(|b| add_block(&mut runs, b));
        assert_eq!(runs.len(), 4);
        assert!(blocks_of(&runs).eq(blocks));
    }
}

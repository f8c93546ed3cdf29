//! What has been freed and may not be used again yet (I4): held for the transaction that freed it,
//! until that is durable.

use crate::audit::Audit;
use cache::Buf;
use format::{BlockNo, Extent, Ino};
use integrity::{Change, Freed, TxnId};
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};

/// `K` names the transactions: those of the seam, or those of a journal, of many operations each.
pub(crate) struct BusyExtents<K = TxnId> {
    by_txn: BTreeMap<K, (Vec<Extent>, Vec<Ino>)>,
    /// Held extents by their first block; they do not overlap.
    blocks: BTreeMap<u64, u64>,
    inodes: BTreeMap<u32, K>,
    audit: Audit,
}

impl<K> Default for BusyExtents<K> {
    fn default() -> BusyExtents<K> {
        let (by_txn, blocks, inodes) = Default::default();
        BusyExtents { by_txn, blocks, inodes, audit: Audit::default() }
    }
}

impl<K: Copy + Ord + Debug + Display> BusyExtents<K> {
    pub(crate) fn add_blocks(&mut self, txn: K, extent: Extent) {
        let (held, e) = (!self.may_reuse(Freed::Blocks(extent)), extent);
        assert!(!held, "{} blocks at {} are freed, and some of them were", e.len, e.start);
        self.by_txn.entry(txn).or_default().0.push(extent);
        self.blocks.insert(extent.start.0, extent.len);
    }

    /// An allocator asks before it takes; does what it was told still hold as it takes it?
    pub(crate) fn allows(&self, change: &Change) -> bool {
        match *change {
            Change::AllocBlocks(e) => self.may_reuse(Freed::Blocks(e)),
            Change::AllocInode(ino) => self.may_reuse(Freed::Inode(ino)),
            _ => true,
        }
    }

    pub(crate) fn add_inode(&mut self, txn: K, ino: Ino) {
        self.by_txn.entry(txn).or_default().1.push(ino);
        let old = self.inodes.insert(ino.0, txn);
        assert!(old.is_none(), "inode {ino} is freed twice, by {old:?} and {txn}");
    }

    /// The blocks the transaction has freed.
    pub(crate) fn blocks_of(&self, txn: K) -> impl Iterator<Item = Extent> + '_ {
        self.by_txn.get(&txn).into_iter().flat_map(|t| &t.0).copied()
    }

    /// The transaction is durable: what it freed may be reused. Returns the freed blocks.
    pub(crate) fn release(&mut self, txn: K) -> Vec<Extent> {
        let Some((extents, inodes)) = self.by_txn.remove(&txn) else { return Vec::new() };
        for ino in inodes {
            let by = self.inodes.remove(&ino.0);
            assert_eq!(by, Some(txn), "inode {ino} was freed by the transaction that releases it");
        }
        for e in &extents {
            let len = self.blocks.remove(&e.start.0);
            assert_eq!(len, Some(e.len), "blocks at {} are released as they were freed", e.start);
            let alone = self.may_reuse(Freed::Blocks(*e));
            assert!(alone, "blocks at {} are released, and another holds some of them", e.start);
        }
        let none = self.blocks.is_empty() && self.inodes.is_empty();
        assert!(none || !self.by_txn.is_empty(), "something is held for no transaction");
        if self.audit.is_due(self.blocks.len() + self.inodes.len()) {
            self.check();
        }
        extents
    }

    /// What is held and for whom agree: every block and every inode is held by one transaction.
    fn check(&self) {
        let held: usize = self.by_txn.values().map(|(extents, _)| extents.len()).sum();
        let known = self.blocks.len();
        assert_eq!(held, known, "{held} runs of blocks were freed, {known} are held");
        let held: usize = self.by_txn.values().map(|(_, inodes)| inodes.len()).sum();
        let known = self.inodes.len();
        assert_eq!(held, known, "{held} inodes were freed, {known} are held");
        let apart = |(a, b): ((&u64, &u64), (&u64, &u64))| a.0 + a.1 <= *b.0;
        let apart = self.blocks.iter().zip(self.blocks.iter().skip(1)).all(apart);
        assert!(apart, "two transactions hold the same block");
    }

    /// Those of the blocks that were freed while they were on their way, and are clean by that:
    /// dirty again, for until the freeing is durable, what is durable points at them.
    pub(crate) fn take_back_dropped(&self, bufs: &[Buf]) -> Vec<Buf> {
        let held = |b: &Buf| !self.may_reuse(Freed::block(b.block()));
        let dropped: Vec<Buf> = bufs.iter().filter(|b| !b.is_dirty() && held(b)).cloned().collect();
        dropped.iter().for_each(Buf::mark_dirty);
        dropped
    }

    /// Is the block held for one of these transactions?
    pub(crate) fn is_held_for(&self, block: BlockNo, is_one: impl Fn(K) -> bool) -> bool {
        let has = |e: &Extent| e.start <= block && block < e.start.plus(e.len);
        let keeps = |(txn, t): (&K, &(Vec<Extent>, Vec<Ino>))| is_one(*txn) && t.0.iter().any(has);
        !self.may_reuse(Freed::block(block)) && self.by_txn.iter().any(keeps)
    }

    /// The transactions for which something is held, oldest first.
    pub(crate) fn holders(&self) -> impl Iterator<Item = K> + '_ {
        self.by_txn.keys().copied()
    }

    /// How many inodes and runs of blocks are held.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len() + self.inodes.len()
    }

    /// Is nothing held?
    pub(crate) fn is_empty(&self) -> bool {
        self.by_txn.is_empty()
    }

    pub(crate) fn may_reuse(&self, what: Freed) -> bool {
        match what {
            Freed::Inode(ino) => !self.inodes.contains_key(&ino.0),
            Freed::Blocks(e) => {
                // The last held extent that begins before the end of `e` is the only one that can
                // reach in.
                let before = self.blocks.range(..e.start.0 + e.len).next_back();
                before.is_none_or(|(start, len)| start + len <= e.start.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::BlockNo;

    #[test]
    fn held_extents_and_their_neighbours() {
        let mut r = BusyExtents::default();
        let e = |start, len| Extent { start: BlockNo(start), len };
        r.add_blocks(TxnId(1), e(10, 5));
        r.add_blocks(TxnId(2), e(20, 1));
        for (extent, free) in [
            (e(0, 10), true),
            (e(9, 2), false),
            (e(14, 1), false),
            (e(15, 5), true),
            (e(15, 9), false),
        ] {
            assert_eq!(r.may_reuse(Freed::Blocks(extent)), free, "{extent:?}");
        }
        assert_eq!(r.release(TxnId(1)), [e(10, 5)]);
        assert!(r.may_reuse(Freed::Blocks(e(9, 9))));
    }

    /// The twin is a list of single blocks, each with the transaction that freed it.
    #[test]
    fn what_is_free_is_what_no_transaction_has_freed() {
        for seed in 0..50 {
            let mut rng = env::Rng::new(seed);
            let (mut busy, mut twin) = (BusyExtents::default(), BTreeMap::new());
            for _ in 0..400 {
                let (start, len) = (rng.below(60), 1 + rng.below(8));
                let e = Extent { start: BlockNo(start), len };
                let blocks = || start..start + len;
                let free = blocks().all(|b| !twin.contains_key(&b));
                assert_eq!(busy.may_reuse(Freed::Blocks(e)), free, "seed {seed}, {e:?}");
                assert_eq!(busy.allows(&Change::AllocBlocks(e)), free, "seed {seed}, {e:?}");
                let txn = TxnId(rng.below(6));
                if rng.one_in(3) {
                    busy.release(txn);
                    twin.retain(|_, by| *by != txn);
                } else if free {
                    busy.add_blocks(txn, e);
                    twin.extend(blocks().map(|b| (b, txn)));
                }
                assert_eq!(busy.is_empty(), twin.is_empty());
            }
        }
    }
}

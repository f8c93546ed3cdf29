//! The seal: the checksums of what a transaction has changed, as the last edits of that
//! transaction. Whoever renders, journals or replays the transaction's bytes thereby has sums that
//! are right, and no mechanism knows of them.
//!
//! 1. Whenever no transaction is open, every block in memory has its right sum. One that shares a
//!    bitmap or a descriptor with an open one may be sealed over bytes of that; the other seals
//!    over all of it when it ends.
//! 2. A sum is the last thing that is changed, so that nothing that it covers changes after it.
//! 3. Where two transactions may change what one sum covers, the edit that sets the sum covers it
//!    all, so that a mechanism that keeps transactions apart by their bytes sees that these two
//!    cannot be: whoever changes a bitmap changes its group's descriptor too, and the sums of both
//!    lie in that. (An inode's slot is changed by its owner's operations, one at a time; who links
//!    it into the list of orphans edits all of it, too. What lies between two slots that an
//!    operation has changed is not sealed by it.)

use crate::Ext;
use cache::{Buf, Role};
use format::ext::csum::{SumAt, Sums};
use format::ext::superblock::SUPERBLOCK_BYTES;
use format::ext::{Superblock, bitmap};
use format::ufs::inode::InodeRef;
use format::{GroupNo, Ino};
use integrity::{Change, Txn, invariant};
use std::cell::Ref;
use std::ops::Range;

/// Puts a sum into what begins at byte `from` of the block, unless it is there.
fn put_sum(txn: &mut Txn, buf: &Buf, from: usize, sum: Option<SumAt>) {
    let Some(sum) = sum.filter(|s| !s.is_in(&buf.bytes()[from..])) else { return };
    let own = from + sum.at..from + sum.at + size_of_val(&sum.sum);
    txn.edit_sealed(buf, own, Change::Counts, |b| SumAt { at: 0, ..sum }.put(b));
    assert!(sum.is_in(&buf.bytes()[from..]), "1: the sum of {buf:?} is not where it is looked for");
}

/// A block that a transaction has changed, and which of its bytes.
type Touched = (Buf, Range<usize>);

impl Ext {
    /// Says what a block is, where that matters: on a volume with checksums.
    pub(crate) fn mark(&self, buf: &Buf, role: Role) {
        if self.geo.sums != Sums::None {
            buf.set_role(role);
        }
    }

    /// Seals what the transaction has changed so far.
    pub(crate) fn seal(&self, txn: &mut Txn) {
        if self.geo.sums == Sums::None {
            return;
        }
        let touched = self.touched(txn);
        for (buf, range) in &touched {
            self.seal_block(txn, buf, range, &touched);
        }
        // 1, read once more. Not in release: it would be each sum's whole cost again.
        debug_assert!(
            touched.iter().all(|(buf, r)| self.has_right_sum(buf, r)),
            "1: a sum is wrong"
        );
    }

    fn seal_block(&self, txn: &mut Txn, buf: &Buf, range: &Range<usize>, touched: &[Touched]) {
        let sums = self.geo.sums;
        let of = |generation| sums.of_inode(buf.owner(), generation);
        match buf.role() {
            Role::Descriptors(first) => self.seal_descs(txn, buf, (first, range), touched),
            Role::Inodes(first) => self.seal_inodes(txn, buf, first, range),
            // Its sum lies in its group's descriptor, which is changed by whoever changes it.
            Role::BlockMap(g) | Role::InodeMap(g) => {
                let has_desc = touched.iter().any(|t| self.is_desc_of(g, t));
                invariant!(self.plant, has_desc, "3: a bitmap of group {g} changes without it");
            }
            Role::Dir(g) => {
                let sum = of(g).and_then(|seed| seed.dir_sum(&buf.bytes()));
                put_sum(txn, buf, 0, sum);
            }
            Role::Extents(g) => {
                let sum = of(g).map(|seed| seed.extents_sum(&buf.bytes()));
                put_sum(txn, buf, 0, sum);
            }
            Role::Attributes => {
                let sum = sums.xattr_sum(buf.block(), &buf.bytes());
                put_sum(txn, buf, 0, sum);
            }
            Role::Superblock if matches!(sums, Sums::All(_)) => {
                let at = self.sb_buf.1;
                let sum = Superblock::sum_of(&buf.bytes()[at..at + SUPERBLOCK_BYTES]);
                put_sum(txn, buf, at, Some(sum));
            }
            Role::Superblock | Role::Plain => (),
        }
    }

    /// Is the descriptor of this group among those that were changed?
    fn is_desc_of(&self, g: u32, (buf, range): &Touched) -> bool {
        let Role::Descriptors(first) = buf.role() else { return false };
        let bytes = self.geo.desc_bytes;
        let groups = first + (range.start / bytes) as u32..first + range.end.div_ceil(bytes) as u32;
        groups.contains(&g)
    }

    fn seal_descs(
        &self,
        txn: &mut Txn,
        buf: &Buf,
        (first, range): (u32, &Range<usize>),
        touched: &[Touched],
    ) {
        let (sums, bytes) = (self.geo.sums, self.geo.desc_bytes);
        let (blocks, inodes) = (self.geo.blocks_per_group, self.geo.inodes_per_group);
        for n in range.start / bytes..range.end.div_ceil(bytes) {
            let g = GroupNo(first + n as u32);
            if g.0 >= self.geo.groups {
                continue;
            }
            txn.edit_sealed(buf, n * bytes..(n + 1) * bytes, Change::Counts, |d| {
                for (map, _) in touched {
                    let bits = |bits: u32| Ref::map(map.bytes(), |b| &b[..bits as usize / 8]);
                    match map.role() {
                        Role::BlockMap(m) if m == g.0 => sums.seal_block_map(d, &bits(blocks)),
                        Role::InodeMap(m) if m == g.0 => sums.seal_inode_map(d, &bits(inodes)),
                        _ => (),
                    }
                }
                sums.seal_desc(g, d);
            });
        }
    }

    fn seal_inodes(&self, txn: &mut Txn, buf: &Buf, first: u32, range: &Range<usize>) {
        let len = self.geo.inode_bytes;
        for n in range.start / len..range.end.div_ceil(len) {
            let sum = {
                let (block, ino) = (buf.bytes(), Ino(first + n as u32));
                let raw = &block[n * len..(n + 1) * len];
                let is_used = InodeRef(raw).mode() != 0;
                is_used.then(|| self.geo.sums.inode_sum(ino, raw)).flatten()
            };
            if let Some(sum) = sum {
                let own = n * len + sum.range().start..n * len + sum.range().end;
                txn.edit_sealed(buf, own, Change::Counts, |part| sum.put(part));
            }
        }
    }

    /// Have the parts of a block that were sealed their right sums? Of those whose sum has a place
    /// whatever is in the block.
    fn has_right_sum(&self, buf: &Buf, range: &Range<usize>) -> bool {
        let (sums, block) = (self.geo.sums, buf.bytes());
        match buf.role() {
            Role::Descriptors(first) => {
                let len = self.geo.desc_bytes;
                (range.start / len..range.end.div_ceil(len)).all(|n| {
                    let g = GroupNo(first + n as u32);
                    g.0 >= self.geo.groups || sums.check_desc(g, &block[n * len..][..len]).is_ok()
                })
            }
            Role::Inodes(first) => {
                let len = self.geo.inode_bytes;
                (range.start / len..range.end.div_ceil(len)).all(|n| {
                    let raw = &block[n * len..][..len];
                    let ino = Ino(first + n as u32);
                    InodeRef(raw).mode() == 0 || sums.check_inode(ino, raw).is_ok()
                })
            }
            Role::Attributes => sums.check_xattr(buf.block(), &block).is_ok(),
            _ => true,
        }
    }

    /// A bitmap that is not on disk yet: `set` are its bits in use, and all behind the `bits`-th.
    pub(crate) fn fill_map(
        &self,
        map: &mut [u8],
        set: impl Iterator<Item = Range<usize>>,
        bits: usize,
    ) {
        map.fill(0);
        set.flatten().for_each(|b| bitmap::set(map, b));
        let whole = bits.next_multiple_of(8);
        (bits..whole.min(8 * map.len())).for_each(|b| bitmap::set(map, b));
        map[whole / 8..].fill(0xff);
    }
}

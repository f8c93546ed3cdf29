//! Moving what an extent tree maps to other places of the file, by a number of blocks: what
//! collapsing and inserting ranges is. The blocks on the disk stay where they are; a leaf's
//! extents change their file blocks, and the keys above them. Each leaf is one step: towards the
//! beginning the first leaf goes first, towards the end the last, so that the tree is in order
//! between any two steps (E1). So many leaves are one transaction; a file with more pieces than
//! that takes several, and a crash between them leaves a hole where it had come to, as in Linux.
//!
//! Invariants:
//! * H1. What is moved finds a hole: nothing is mapped twice, and nothing is lost.
//! * H2. A leaf maps as many blocks after a step as before it.

use super::cut::RENEWED;
use super::extents::Spot;
use super::list::{List, blocks_of, joined};
use super::tree::is_between;
use crate::Ext;
use crate::plants::SHIFTED_IN_TWO;
use format::ext::extents::{BLOCKS_MAX, Mapped};
use format::{FileBlock, FormatError};
use integrity::Txn;
use ufs::InodeHandle;
use ufs::store::Transactions;
use vfs::FsError;

/// Leaves that one transaction moves. Each is a block, and the nodes above it are few.
const LEAVES: usize = 16;

/// The list with all that begins at `from` or behind it moved to where `to` is for `from`.
/// Neighbours that come to be are joined.
fn moved(list: &[Mapped], from: u64, to: u64) -> List {
    let place = |m: &Mapped| match u64::from(m.first) {
        first if first < from => first,
        first => first - from + to,
    };
    joined(list.iter().map(|m| Mapped { first: place(m) as u32, ..*m }).collect())
}

impl Ext {
    /// See `Contents::check_shift`: reads every leaf that will be changed.
    pub(crate) async fn check_tree_shift(
        &self,
        h: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError> {
        let mut at = from.0;
        while let Some(m) = self.mapped_from(h, at).await? {
            at = m.end();
        }
        if at > from.0 && at - from.0 + to.0 > BLOCKS_MAX {
            return Err(FsError::FileTooBig);
        }
        Ok(())
    }

    /// The first extent, or the rest of one, at `at` or behind it.
    async fn mapped_from(&self, h: &InodeHandle, mut at: u64) -> Result<Option<Mapped>, FsError> {
        while at < BLOCKS_MAX {
            match self.spot(h, FileBlock(at)).await? {
                Spot::Mapped(m) => return Ok(Some(m)),
                Spot::Hole(len) => at += len,
            }
        }
        Ok(None)
    }

    /// See `Contents::shift`.
    pub(crate) async fn shift_tree(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError> {
        if to < from {
            return self.shift_down(txn, h, from.0, to.0).await;
        }
        self.split_extent(txn, h, from.0).await?;
        self.shift_up(txn, h, from.0, to.0).await
    }

    /// Towards the beginning of the file, from the first leaf on.
    async fn shift_down(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: u64,
        to: u64,
    ) -> Result<(), FsError> {
        let (mut at, mut leaves) = (from, 0);
        while let Some(m) = self.mapped_from(h, at).await? {
            self.pause_shift(txn, &mut leaves).await?;
            // What lies before `at` was moved already.
            at = self.shift_leaf(txn, h, (u64::from(m.first), at), at - from + to).await?.1;
        }
        Ok(())
    }

    /// Towards its end, from the last leaf on.
    async fn shift_up(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: u64,
        to: u64,
    ) -> Result<(), FsError> {
        let (mut before, mut leaves) = (BLOCKS_MAX, 0);
        while before > from {
            self.pause_shift(txn, &mut leaves).await?;
            let (first, _) = self.shift_leaf(txn, h, (before - 1, from), to).await?;
            before = first.min(before - 1);
        }
        Ok(())
    }

    /// Before another leaf: another transaction, if this one has moved enough.
    async fn pause_shift(&self, txn: &mut Txn, leaves: &mut usize) -> Result<(), FsError> {
        let two = self.plant.is(SHIFTED_IN_TWO) && *leaves == 1;
        if two {
            self.in_two(txn).await?;
        }
        if *leaves == LEAVES && self.mechanism.atomic() {
            *leaves = 0;
            // Half done, and not to be tried again from the beginning.
            let renewed = self.renew(txn, RENEWED).await;
            renewed.map_err(|e| if e == FsError::NoSpace { FsError::Io } else { e })?;
        }
        *leaves += 1;
        Ok(())
    }

    /// Moves what the leaf of file block `within` maps from `from` on to `to` and on. Where it
    /// began before, and where it ended; 0 and the end of all, if there is no leaf that begins so
    /// early: the first one was moved already.
    async fn shift_leaf(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        (within, from): (u64, u64),
        to: u64,
    ) -> Result<(u64, u64), FsError> {
        let mut way = self.way_to(h, within).await?;
        let list = way.last().expect("the root is there").list();
        let (Some(first), Some(last)) = (list.first(), list.last()) else {
            if way.len() == 1 {
                return Ok((0, BLOCKS_MAX));
            }
            // What comes before it would stay where it is.
            let e = FormatError::corrupt("a leaf without extents", format!("inode {}", h.ino));
            return Err(self.damage(&e));
        };
        if u64::from(first.first) > within {
            return Ok((0, BLOCKS_MAX));
        }
        let new = moved(&list, from, to);
        let apart = new.is_sorted_by(|a, b| a.end() <= u64::from(b.first));
        assert!(apart, "H1: extents of inode {} moved over others: {new:?}", h.ino);
        let (had, has) = (blocks_of(&list), blocks_of(&new));
        assert_eq!(had, has, "H2: blocks of a leaf of inode {}, before and after", h.ino);
        let span = (u64::from(first.first), last.end());
        if !is_between(&way, &new) {
            return Err(self.changed_meanwhile(h, FileBlock(within)));
        }
        self.put_leaf(txn, h, &mut way, &new, &mut Default::default());
        Ok(span)
    }

    /// An extent that goes on over `at` becomes two, which meet there.
    async fn split_extent(&self, txn: &mut Txn, h: &InodeHandle, at: u64) -> Result<(), FsError> {
        let crosses = |m: &Mapped| u64::from(m.first) < at && at < m.end();
        let way = self.way_to(h, at).await?;
        if !way.last().expect("the root is there").list().iter().any(crosses) {
            return Ok(());
        }
        let mut way = self.way_with_room(txn, h, at, 1).await?;
        let mut list = way.last().expect("the root is there").list();
        let i = list.iter().position(crosses).expect("H1: an extent goes away by itself");
        let whole = list[i];
        let left = (at - u64::from(whole.first)) as u32;
        let (first, start) = (whole.first + left, whole.start.plus(u64::from(left)));
        list[i].len = left;
        list.insert(i + 1, Mapped { first, len: whole.len - left, start, ..whole });
        self.put_leaf(txn, h, &mut way, &list, &mut Default::default());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::BlockNo;

    fn m(first: u32, len: u32, start: u64) -> Mapped {
        Mapped { first, len, start: BlockNo(start), unwritten: false }
    }

    #[test]
    fn what_lies_behind_moves_and_what_meets_is_joined() {
        let list = [m(0, 10, 100), m(20, 10, 110), m(40, 5, 300)];
        assert_eq!(moved(&list, 20, 10).as_slice(), [m(0, 20, 100), m(30, 5, 300)]);
        assert_eq!(moved(&list, 20, 25).as_slice(), [list[0], m(25, 10, 110), m(45, 5, 300)]);
        assert_eq!(moved(&list, 50, 60).as_slice(), list);
    }
}

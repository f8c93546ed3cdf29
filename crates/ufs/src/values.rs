//! Values of attributes that are other inodes' contents: which are, and that each counts who has it
//! when an inode's attributes are stored anew. How such an inode looks is the store's business.
//!
//! Rule: attributes lie in the inode, as many as have room there, the others in one block. Where
//! that has no room for all, and the volume allows it, the longest value gets an inode of its own,
//! then the next. What lies elsewhere stays there as long as it is not set anew.

use crate::Ufs;
use crate::store::{InodeHandle, Store};
use crate::xattrs::ACL_ACCESS;
use format::ufs::inline;
use format::ufs::inode::{FAST_SYMLINK_MAX, InodeRef};
use format::ufs::xattr::{self, Attribute, Elsewhere, VALUE_MAX};
use format::{FormatError, Ino};
use integrity::Credits;
use std::collections::BTreeMap;
use vfs::FsError;

/// Shorter values stay: one that goes takes a block and an inode.
const VALUE_MIN: usize = 64;
/// So many values one operation moves at most.
const MOVED_MAX: usize = 6;
/// Blocks that a value takes of a transaction beside its own: bitmaps and descriptors of a few
/// groups, its inode, its map.
const PER_VALUE: u64 = 16;
/// What a transaction may need to free one.
const TO_FREE: Credits = Credits { frees: 80, runs: 32, ..Credits::to_free(40) };

/// The values that an inode's attributes name.
struct Named {
    /// Those by entries in the inode.
    inside: Vec<Elsewhere>,
    /// Those by entries in the block.
    outside: Vec<Elsewhere>,
    /// The blocks of all.
    blocks: u64,
}

impl<S: Store> Ufs<S> {
    /// The attributes in the order in which they are given room, and how many lie in the inode.
    pub(crate) fn arranged(&self, h: &InodeHandle, list: &[Attribute]) -> (Vec<Attribute>, usize) {
        let space = h.with(|raw| InodeRef(raw).xattr_space().len());
        let mut sorted: Vec<Attribute> = list.to_vec();
        // Contents have no other place.
        sorted.sort_by_key(|a| (!inline::is_data(a), a.value.len()));
        let fits = |l: &[Attribute]| space > 4 && xattr::room_needed(l) <= space - 4;
        let is_apart = self.may_be_torn(h, &sorted) || self.is_taken_for_long(h);
        let most = if is_apart { 0 } else { sorted.len() };
        let n = (0..=most).rev().find(|&n| n == 0 || fits(&sorted[..n])).unwrap_or(0);
        if most == 0 || self.fits_in_block(&sorted[n..]) {
            return (sorted, n);
        }
        // Another system may have packed them so that they have just room: with the longest first
        // less is left for the block.
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        let data = |a: &&Attribute| inline::is_data(a);
        let others = |a: &&Attribute| !inline::is_data(a);
        for a in sorted.iter().filter(data).chain(sorted.iter().rev().filter(others)) {
            inside.push(a.clone());
            if !fits(&inside) {
                outside.extend(inside.pop());
            }
        }
        if self.fits_in_block(&outside) {
            let n = inside.len();
            return ([inside, outside].concat(), n);
        }
        (sorted, n)
    }

    fn fits_in_block(&self, list: &[Attribute]) -> bool {
        xattr::room_needed(list) + xattr::BLOCK_HEAD <= self.store.limits().block_bytes
    }

    /// Is it a symlink whose text lies in the inode, on a volume whose values may have inodes? With
    /// the blocks of a value counted, and no attribute block, e2fsck (1.47) takes the text for the
    /// numbers of blocks, and would mend that.
    fn is_taken_for_long(&self, h: &InodeHandle) -> bool {
        let is_short = |i: InodeRef<'_>| {
            i.is_symlink() && !i.is_inline() && i.size() <= FAST_SYMLINK_MAX as u64
        };
        self.store.limits().value_inodes && h.with(|raw| is_short(InodeRef(raw)))
    }

    /// Could a write be torn between the pointer to the block and what lies inside, where that is
    /// promised to be in one of the two, and can all of it lie in the block?
    fn may_be_torn(&self, h: &InodeHandle, list: &[Attribute]) -> bool {
        let (limits, guarantees) = (self.store.limits(), self.store.guarantees());
        let is_ordered = !guarantees.atomic && guarantees.new_blocks_first;
        let may_leave = xattr::room_needed(list) + xattr::BLOCK_HEAD <= limits.block_bytes
            && !list.iter().any(inline::is_data);
        h.len > env::SECTOR_BYTES && is_ordered && may_leave
    }

    /// Which values have to go elsewhere so that there is room for all; None: not even then.
    fn to_move(&self, h: &InodeHandle, list: &[Attribute]) -> Option<Vec<usize>> {
        let limits = self.store.limits();
        let (mut rest, mut moved) = (list.to_vec(), Vec::new());
        loop {
            let (sorted, n) = self.arranged(h, &rest);
            if self.fits_in_block(&sorted[n..]) {
                return Some(moved);
            }
            let movable = |a: &Attribute| a.value.len() >= VALUE_MIN && !inline::is_data(a);
            let longest = (0..rest.len()).filter(|i| movable(&rest[*i]));
            let longest = longest.max_by_key(|i| rest[*i].value.len())?;
            if !limits.value_inodes || moved.len() == MOVED_MAX {
                return None;
            }
            rest[longest].value.clear();
            moved.push(longest);
        }
    }

    /// What a transaction may need that sets these attributes.
    pub(crate) fn credits_of(&self, h: &InodeHandle, list: &[Attribute]) -> Credits {
        let limits = self.store.limits();
        if !limits.value_inodes {
            return Credits::blocks(16);
        }
        let moved = self.to_move(h, list).unwrap_or_default();
        let made = moved.iter().map(|i| self.blocks_of_value(&list[*i])).sum::<u64>();
        Credits { blocks: 16 + TO_FREE.blocks + made, makes_room: false, ..TO_FREE }
    }

    /// What a value that goes elsewhere takes of a transaction.
    fn blocks_of_value(&self, a: &Attribute) -> u64 {
        PER_VALUE + a.value.len().div_ceil(self.store.limits().block_bytes) as u64
    }

    /// `need`, and what a new inode takes beside it that gets these attributes.
    pub(crate) fn credits_with(&self, need: Credits, new: &[Attribute]) -> Credits {
        if !self.store.limits().value_inodes || self.fits_in_block(new) {
            return need;
        }
        let made = new.iter().map(|a| self.blocks_of_value(a)).sum::<u64>();
        Credits { blocks: need.blocks + TO_FREE.blocks + made, ..TO_FREE }
    }

    /// `need`, and what a change of the inode's access list takes beside it.
    pub(crate) async fn credits_to_relist(
        &self,
        h: &InodeHandle,
        need: Credits,
    ) -> Result<Credits, FsError> {
        if !self.store.limits().value_inodes || !Self::has_attributes(h) {
            return Ok(need);
        }
        let mut list = self.attributes(h).await?;
        for a in &mut list {
            if let Some(at) = a.elsewhere.filter(|_| a.index == ACL_ACCESS) {
                (a.value, a.elsewhere) = (vec![0; (at.len as usize).min(VALUE_MAX)], None);
            }
        }
        let most = self.credits_of(h, &list);
        Ok(Credits { blocks: need.blocks + most.blocks, ..most })
    }

    /// The values that the attributes name as they are stored now.
    async fn named(&self, h: &InodeHandle) -> Result<Named, FsError> {
        let mut all = self.attributes(h).await?;
        let bs = self.store.limits().block_bytes;
        let blocks = xattr::blocks_elsewhere(&all, bs);
        let in_block = match self.store.xattr_block(h).await? {
            Some(buf) => xattr::decode_block(&buf.bytes()).map_or(0, |l| l.len()),
            None => 0,
        };
        // Those of the block come last.
        let outside = all.split_off(all.len().saturating_sub(in_block));
        let of = |list: Vec<Attribute>| list.iter().filter_map(|a| a.elsewhere).collect();
        Ok(Named { inside: of(all), outside: of(outside), blocks })
    }

    /// Stores these as the inode's attributes; values may go elsewhere for it, where they can.
    pub(crate) async fn put_or_move(
        &self,
        txn: &mut S::Txn,
        h: &InodeHandle,
        list: &[Attribute],
    ) -> Result<(), FsError> {
        match self.store.limits().value_inodes {
            true => self.put_values(txn, h, list, true).await,
            false => self.store_attributes(txn, h, list).await.map(drop),
        }
    }

    /// Stores these as the inode's attributes; with `moves`, values may go elsewhere for it.
    pub(crate) async fn put_values(
        &self,
        txn: &mut S::Txn,
        h: &InodeHandle,
        list: &[Attribute],
        moves: bool,
    ) -> Result<(), FsError> {
        let before = self.named(h).await?;
        let moved = self.to_move(h, list).filter(|m| moves || m.is_empty());
        let (mut list, mut made) = (list.to_vec(), Vec::new());
        let mut done = Ok(());
        for i in moved.ok_or(FsError::NoSpace)? {
            let a = &mut list[i];
            match self.store.make_value(txn, h, (&a.name, &a.value)).await {
                Ok(at) => {
                    (a.elsewhere, a.value) = (Some(at), Vec::new());
                    made.push(at);
                    let names = |a: &&Attribute| a.elsewhere.is_some_and(|e| e.ino == at.ino);
                    if list.iter().filter(names).count() > 1 {
                        let what = format!("inode {} was free, and holds an attribute", at.ino);
                        let e = FormatError::corrupt(what, format!("inode {}", h.ino));
                        done = Err(self.store.corrupt(&e));
                    }
                }
                Err(e) => done = Err(e),
            }
            if done.is_err() {
                break;
            }
        }
        let stored = match done {
            Ok(()) => self.store_attributes(txn, h, &list).await,
            Err(e) => Err(e),
        };
        match stored {
            Ok(gone) => self.count_named(txn, h, (before, gone), (&list, &made)).await,
            Err(e) => {
                self.store.unmake_values(txn, h, &made).await?;
                Err(e)
            }
        }
    }

    /// Each value counts the entries that name it now; those that were just made do. Are those of
    /// the block `gone`, or do others have them still?
    async fn count_named(
        &self,
        txn: &mut S::Txn,
        h: &InodeHandle,
        (before, gone): (Named, bool),
        (list, made): (&[Attribute], &[Elsewhere]),
    ) -> Result<(), FsError> {
        let named = |at: &&Elsewhere| list.iter().filter(|a| a.elsewhere == Some(**at)).count();
        assert!(made.iter().all(|at| named(&at) == 1), "U10: a value that no entry names alone");
        let mut users: BTreeMap<Ino, (Elsewhere, i32)> = BTreeMap::new();
        let outside = before.outside.into_iter().filter(|_| gone);
        for at in before.inside.into_iter().chain(outside) {
            users.entry(at.ino).or_insert((at, 0)).1 -= 1;
        }
        let kept = list.iter().filter_map(|a| a.elsewhere).filter(|at| !made.contains(at));
        for at in kept {
            users.entry(at.ino).or_insert((at, 0)).1 += 1;
        }
        let blocks = xattr::blocks_elsewhere(list, self.store.limits().block_bytes);
        if blocks != before.blocks {
            self.store.count_values(txn, h, blocks as i64 - before.blocks as i64);
        }
        // What goes may take further transactions.
        for more in [true, false] {
            for (at, n) in users.values().filter(|(_, n)| (*n > 0) == more) {
                for _ in 0..n.abs() {
                    self.store.use_value(txn, h, *at, more).await?;
                }
            }
        }
        Ok(())
    }

    /// Before an inode without names goes: the values that its attributes name, each in a
    /// transaction of its own. It is an orphan already.
    pub(crate) async fn drop_values(
        &self,
        txn: &mut S::Txn,
        h: &InodeHandle,
    ) -> Result<(), FsError> {
        if !self.store.limits().value_inodes {
            return Ok(());
        }
        let before = self.named(h).await?;
        if self.store.leave_xattr_block(txn, h).await? {
            // What it names others name still.
            let bs = self.store.limits().block_bytes as u64;
            let left = before.outside.iter().map(|e| u64::from(e.len).div_ceil(bs)).sum::<u64>();
            self.store.count_values(txn, h, -(left as i64));
        }
        loop {
            let mut list = self.attributes(h).await?;
            let at = list.iter().position(|a| a.elsewhere.is_some());
            let Some(at) = at else { return Ok(()) };
            self.store.renew(txn, TO_FREE).await?;
            list.remove(at);
            // Its other values go with the file, too. Laid out as we do it, what another system has
            // packed may have no room, and the file could never be freed.
            list.retain(|a| a.elsewhere.is_some() || inline::is_data(a));
            self.put_values(txn, h, &list, false).await?;
        }
    }
}

//! Where attributes are kept: in the inode as far as they fit, the rest in one block. And access
//! lists: their inheritance, and how they and the mode follow each other.

use crate::Ufs;
use crate::inode::Inode;
use crate::ops::NewMode;
use crate::store::{InodeHandle, Store};
use env::SECTOR_BYTES;
use format::BlockNo;
use format::ufs::acl::{self, AclEntry, tag};
use format::ufs::inline;
use format::ufs::inode::{CLASSIC_BYTES, InodeMut, InodeRef};
use format::ufs::xattr::{self, Attribute};
use integrity::Change;
use std::ops::Range;
use vfs::FsError;

/// The mode with the owner, the group, and the upper halves of both.
const OWNER_BYTES: [Range<usize>; 3] = [0..4, 24..26, 0x78..0x7c];

pub(crate) const ACL_ACCESS: u8 = 2;
pub(crate) const ACL_DEFAULT: u8 = 3;

/// What a new file gets from its directory.
#[derive(Default)]
pub(crate) struct Inherited {
    /// Permission bits after umask or default list.
    pub(crate) mode: u32,
    pub(crate) lists: Vec<Attribute>,
}

/// The group bits of a mode with an access list are the list's mask.
pub(crate) fn mode_of_list(list: &[AclEntry], mode: u16) -> u16 {
    let perm = |t| list.iter().find(|e| e.tag == t).map(|e| e.perm);
    let group = perm(tag::MASK).or(perm(tag::GROUP_OBJ)).unwrap_or(0);
    let bits = perm(tag::USER_OBJ).unwrap_or(0) << 6 | group << 3 | perm(tag::OTHER).unwrap_or(0);
    mode & !0o777 | bits
}

/// Makes a list follow a mode.
fn list_of_mode(list: &mut [AclEntry], mode: u32) {
    let has_mask = list.iter().any(|e| e.tag == tag::MASK);
    for e in list {
        match e.tag {
            tag::USER_OBJ => e.perm = (mode >> 6 & 7) as u16,
            tag::OTHER => e.perm = (mode & 7) as u16,
            tag::MASK => e.perm = (mode >> 3 & 7) as u16,
            tag::GROUP_OBJ if !has_mask => e.perm = (mode >> 3 & 7) as u16,
            _ => (),
        }
    }
}

fn for_access(list: &[AclEntry]) -> Vec<vfs::access::AclEntry> {
    use vfs::access::AclEntry as A;
    list.iter()
        .filter_map(|e| {
            let perm = u32::from(e.perm);
            Some(match e.tag {
                tag::USER_OBJ => A::Owner(perm),
                tag::USER => A::User(e.id, perm),
                tag::GROUP_OBJ => A::OwningGroup(perm),
                tag::GROUP => A::Group(e.id, perm),
                tag::MASK => A::Mask(perm),
                tag::OTHER => A::Other(perm),
                _ => return None,
            })
        })
        .collect()
}

/// What changes in an inode beside the pointer to its attributes, where that goes from one block to
/// another, is part of the same change.
fn beside_pointer(h: &InodeHandle, from: BlockNo, to: BlockNo, alone: Change) -> Change {
    match from == to {
        true => alone,
        false => Change::XattrPointer { ino: h.ino, old: from, new: to },
    }
}

impl<S: Store> Ufs<S> {
    /// All attributes of an inode.
    pub(crate) async fn attributes(&self, h: &InodeHandle) -> Result<Vec<Attribute>, FsError> {
        let inside = h.with(|raw| xattr::decode_inode(InodeRef(raw).xattr_space()));
        let mut list = inside.map_err(|e| self.attribute_damage(h, &e))?;
        if let Some(buf) = self.store.xattr_block(h).await? {
            let more = xattr::decode_block(&buf.bytes());
            let more = more.map_err(|e| self.attribute_damage(h, &e))?;
            if more.iter().any(inline::is_data) {
                let e = format::FormatError::corrupt("contents among attributes", "their block");
                return Err(self.attribute_damage(h, &e));
            }
            list.extend(more);
        }
        Ok(list)
    }

    /// The value, wherever it is.
    pub(crate) async fn attribute_value(
        &self,
        h: &InodeHandle,
        a: Attribute,
    ) -> Result<Vec<u8>, FsError> {
        match a.elsewhere {
            Some(at) => self.store.value_elsewhere(h, at).await,
            None => Ok(a.value),
        }
    }

    fn attribute_damage(&self, h: &InodeHandle, e: &format::FormatError) -> FsError {
        let what = e.to_string();
        self.store.corrupt(&format::FormatError::corrupt(what, format!("inode {}", h.ino)))
    }

    /// Has the inode any attributes at all? Without waiting.
    pub(crate) fn has_attributes(h: &InodeHandle) -> bool {
        h.with(|raw| {
            let i = InodeRef(raw);
            let space = i.xattr_space();
            i.xattr_block_wide().0 != 0
                || (space.len() > 4 && format::bytes::le32(space, 0) == xattr::MAGIC)
        })
    }

    /// Writes them into the inode and its block. False: others have the block that it had.
    pub(crate) async fn store_attributes(
        &self,
        txn: &mut S::Txn,
        h: &InodeHandle,
        list: &[Attribute],
    ) -> Result<bool, FsError> {
        let space = h.with(|raw| InodeRef(raw).xattr_space().len());
        let (sorted, n) = self.arranged(h, list);
        assert_eq!(sorted.len(), list.len(), "U10: attributes of {}, once arranged", h.ino);
        let (inside, outside) = sorted.split_at(n);
        assert!(
            !outside.iter().any(inline::is_data),
            "U10: contents of {} stay in the inode",
            h.ino
        );
        let bs = self.store.limits().block_bytes;
        let block = match outside {
            [] => None,
            rest => Some(xattr::encode_block(bs, rest).ok_or(FsError::NoSpace)?),
        };
        let whole = |b: &Vec<u8>| xattr::decode_block(b).is_ok_and(|l| l.len() == outside.len());
        assert!(block.iter().all(whole), "U10: a block of attributes of {} reads back", h.ino);
        let old = self.store.xattr_block(h).await?;
        let same = match (&old, &block) {
            (None, None) => true,
            (Some(o), Some(n)) => xattr::refcount(&o.bytes()) == 1 && *o.bytes() == **n,
            _ => false,
        };
        drop(old);
        let from = self.store.xattr_pointer(h);
        let gone = same || self.store.set_xattr_block(txn, h, block.as_deref()).await?;
        let to = self.store.xattr_pointer(h);
        if from != to {
            // A mode that waits for the block that was is seen with this one, which has its list.
            let mode = h.with(|raw| InodeRef(raw).mode());
            Self::put_mode(txn, h, mode, (from, to));
        }
        if space > 4 {
            Self::put_inside(txn, h, inside, (from, to));
            let back = h.with(|raw| xattr::decode_inode(InodeRef(raw).xattr_space()));
            let whole = back.is_ok_and(|l| l.len() == inside.len());
            assert!(whole, "U10: the attributes in inode {} read back", h.ino);
        }
        Ok(gone)
    }

    /// Sets the mode that goes with an access list: its group bits are the list's mask, and are not
    /// seen without it where the list lies in a block, which was `from` and is `to`.
    pub(crate) fn put_mode(
        txn: &mut S::Txn,
        h: &InodeHandle,
        mode: u16,
        (from, to): (BlockNo, BlockNo),
    ) {
        // What is told of the mode alone could be taken back without the owner that was set after
        // it, and a file of one owner be seen with the permissions of another's.
        Self::put_owner(txn, h, (mode, None, None), (from, to));
    }

    /// Sets owner and group, where they are given, with the mode: none of them is seen without the
    /// others. For the block of attributes see [`Ufs::put_mode`].
    pub(crate) fn put_owner(
        txn: &mut S::Txn,
        h: &InodeHandle,
        (mode, uid, gid): (u16, Option<u32>, Option<u32>),
        (from, to): (BlockNo, BlockNo),
    ) {
        let mut slot = h.with(<[u8]>::to_vec);
        let mut new = InodeMut(&mut slot);
        new.set_mode(mode);
        uid.into_iter().for_each(|u| new.set_uid(u));
        gid.into_iter().for_each(|g| new.set_gid(g));
        let change = beside_pointer(h, from, to, Change::Owner(h.ino));
        for at in OWNER_BYTES {
            h.edit_all(txn, at.clone(), change, |b| b.copy_from_slice(&slot[at]));
        }
        let set = Self::has_owner(h, mode, (uid, gid));
        assert!(set, "U14: mode and owner of inode {} are others than were set", h.ino);
    }

    /// Has the inode this owner and mode already, as far as they are given? Who unpacks an archive
    /// sets most of them twice, and nothing need be told of that: what an older operation has set
    /// and is not durable stays that one's. (Who waits until it is durable tells it again.)
    pub(crate) fn has_owner(
        h: &InodeHandle,
        mode: u16,
        (uid, gid): (Option<u32>, Option<u32>),
    ) -> bool {
        h.with(|raw| {
            let i = InodeRef(raw);
            let same = |new: Option<u32>, old: u32| new.is_none_or(|n| n == old);
            i.mode() == mode && same(uid, i.uid()) && same(gid, i.gid())
        })
    }

    /// Writes these into the inode, whose block of attributes was `from` and is `to`. An attribute
    /// that moves between the two is always in one: what lies inside is seen with the pointer.
    fn put_inside(
        txn: &mut S::Txn,
        h: &InodeHandle,
        inside: &[Attribute],
        (from, to): (BlockNo, BlockNo),
    ) {
        let is_long = h.len > SECTOR_BYTES;
        let put = |space: &mut [u8]| {
            if is_long && inside.is_empty() {
                // Values lie in another sector; what says that there are any is in the first: the
                // mark, and the first entry, which Linux follows without a look at the mark.
                return space[..8].fill(0);
            }
            let stored = xattr::encode_inode(space, inside);
            assert!(stored, "U10: room_needed was asked");
        };
        let at = h.with(|raw| CLASSIC_BYTES + InodeRef(raw).extra_isize().unwrap_or(0));
        let change = beside_pointer(h, from, to, Change::Attr(h.ino));
        if from == to {
            return h.edit(txn, change, |raw| put(&mut raw[at..]));
        }
        h.edit_all(txn, at..h.len, change, put);
    }

    async fn acl(&self, h: &InodeHandle, index: u8) -> Result<Option<Vec<AclEntry>>, FsError> {
        if !Self::has_attributes(h) {
            return Ok(None);
        }
        let list = self.attributes(h).await?;
        let Some(a) = list.into_iter().find(|a| a.index == index) else { return Ok(None) };
        let value = self.attribute_value(h, a).await?;
        acl::from_disk(&value).map(Some).ok_or(FsError::Io)
    }

    /// The access list by which permissions are decided; empty: by the mode alone.
    pub(crate) async fn access_list(
        &self,
        inode: &Inode,
    ) -> Result<Vec<vfs::access::AclEntry>, FsError> {
        Ok(self.acl(&inode.h, ACL_ACCESS).await?.map(|l| for_access(&l)).unwrap_or_default())
    }

    /// What a new file gets: the directory's default list in place of the umask.
    pub(crate) async fn inherited_lists(
        &self,
        dir: &Inode,
        new: &impl NewMode,
    ) -> Result<Inherited, FsError> {
        let mode = new.mode();
        if new.is_symlink() {
            return Ok(Inherited { mode: 0o777, lists: Vec::new() });
        }
        let Some(default) = self.acl(&dir.h, ACL_DEFAULT).await? else {
            return Ok(Inherited { mode: mode & !new.umask(), lists: Vec::new() });
        };
        let mut access = default.clone();
        for e in &mut access {
            // What the creator did not ask for is not given.
            match e.tag {
                tag::USER_OBJ => e.perm &= (mode >> 6 & 7) as u16,
                tag::OTHER => e.perm &= (mode & 7) as u16,
                _ => (),
            }
        }
        let limit =
            if access.iter().any(|e| e.tag == tag::MASK) { tag::MASK } else { tag::GROUP_OBJ };
        for e in access.iter_mut().filter(|e| e.tag == limit) {
            e.perm &= (mode >> 3 & 7) as u16;
        }
        let bits = mode_of_list(&access, (mode & 0o7777) as u16);
        let more = u32::from(bits) & !mode & 0o777;
        assert_eq!(more, 0, "U14: {bits:o} is given where {mode:o} was asked for");
        let mut lists = Vec::new();
        if access.len() > 3 {
            let value = acl::to_disk(&access);
            lists.push(Attribute { index: ACL_ACCESS, value, ..Attribute::default() });
        }
        if new.is_dir() {
            let value = acl::to_disk(&default);
            lists.push(Attribute { index: ACL_DEFAULT, value, ..Attribute::default() });
        }
        if !lists.is_empty() {
            self.store.announce_attributes().await?;
        }
        Ok(Inherited { mode: u32::from(bits), lists })
    }

    pub(crate) async fn set_lists(
        &self,
        txn: &mut S::Txn,
        h: &InodeHandle,
        from: &Inherited,
    ) -> Result<(), FsError> {
        if from.lists.is_empty() {
            return Ok(());
        }
        let mut all = self.attributes(h).await?; // a directory's contents may be one
        all.extend(from.lists.iter().cloned());
        self.put_or_move(txn, h, &all).await
    }

    /// A chmod: the access list follows the mode, and neither is seen without the other. First the
    /// list, for which there may be no room. Returns where the attributes lay, and where they lie.
    pub(crate) async fn set_mode_and_list(
        &self,
        txn: &mut S::Txn,
        inode: &Inode,
        mode: u32,
    ) -> Result<(BlockNo, BlockNo), FsError> {
        let from = self.store.xattr_pointer(&inode.h);
        if let Some(mut list) = self.acl(&inode.h, ACL_ACCESS).await? {
            list_of_mode(&mut list, mode);
            let has = |t| list.iter().any(|e| e.tag == t);
            let is_whole = has(tag::USER_OBJ) && has(tag::GROUP_OBJ) && has(tag::OTHER);
            let follows = !is_whole || mode_of_list(&list, mode as u16) == mode as u16;
            assert!(follows, "U14: the list of {} says other than {mode:o}", inode.ino());
            let mut all = self.attributes(&inode.h).await?;
            for a in all.iter_mut().filter(|a| a.index == ACL_ACCESS) {
                (a.value, a.elsewhere) = (acl::to_disk(&list), None);
            }
            self.put_or_move(txn, &inode.h, &all).await?;
        }
        let to = self.store.xattr_pointer(&inode.h);
        Self::put_mode(txn, &inode.h, mode as u16, (from, to));
        Ok((from, to))
    }
}

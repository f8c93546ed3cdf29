//! Values in inodes of their own (`ea_inode`): what has room neither beside its inode nor in the
//! block of attributes is the contents of an inode without a name, which entries of attributes
//! name.
//!
//! Terms: a *value*'s inode; its *users*, the entries that name it. An entry in a block that
//! several inodes share is one user; each of those inodes counts the value's blocks as its own.
//!
//! Invariants:
//! V1. At the end of every transaction a value's inode counts the entries that name it.
//! V2. A value never changes: another one gets another inode. Its blocks are metadata, and as
//!     durable as the entry that names it.
//! V3. A value without users is freed in the transaction that took the last, or is an orphan
//!     without links until it is, so that a crash in the middle leaves what is reclaimed.
//!
//! On disk: a regular file of mode 0600 with one link, its flag, and the value as contents; in its
//! access time the CRC-32C of the value, in its change time and its version the users. An entry
//! names it, and has a hash of the name and of that CRC. Linux looks for an equal value and has
//! both name one; we make a new one, and keep the count of those that we find.
//!
//! Recovery: there is none: it is needed only where operations are atomic.
//!
//! Cost: an inode and the value's blocks, which go through the log or journal.

use crate::Ext;
use crate::map::RENEWED;
use crate::plants::VALUE_IN_TWO;
use cache::Role;
use format::ext::csum::{self, Sums};
use format::ext::features::incompat;
use format::ufs::inode::{FLAG_VALUE, InodeMut, InodeRef, Which};
use format::ufs::xattr::{self, Elsewhere, VALUE_MAX};
use format::{FileBlock, FormatError};
use integrity::{Change, Txn};
use std::collections::BTreeSet;
use ufs::InodeHandle;
use ufs::store::{Contents, Directories, Transactions};
use vfs::{FsError, Kind};

/// A value's blocks lie in so many groups at most: what a transaction may edit has a bound.
const GROUPS_MAX: usize = 4;
/// The mode of a value's inode.
const MODE: u16 = 0o100_600;

impl Ext {
    /// The contents of an inode that holds an attribute's value.
    pub(crate) async fn value_of_inode(
        &self,
        of: &InodeHandle,
        at: Elsewhere,
    ) -> Result<Vec<u8>, FsError> {
        let bad = |what: &str| Err(self.bad_value(of, at, what));
        let h = self.value_inode(of, at).await?;
        let (size, hash) = h.with(|raw| (InodeRef(raw).size(), InodeRef(raw).value().0));
        if size != u64::from(at.len) || at.len as usize > VALUE_MAX {
            return bad("it is none of that length");
        }
        let mut value = Vec::with_capacity(at.len as usize);
        let blocks = size.div_ceil(self.block_bytes() as u64);
        for block in self.read_blocks(&h, FileBlock(0), blocks).await? {
            let Some(block) = block else { return bad("it has a hole") };
            value.extend_from_slice(&block.bytes());
        }
        value.truncate(at.len as usize);
        if csum::crc(self.value_seed(), &value) != hash && !self.is_lustres(of, &h) {
            return bad("its hash is wrong");
        }
        Ok(value)
    }

    /// What the hashes of values begin with, on volumes without checksums too.
    fn value_seed(&self) -> u32 {
        let sb = self.sb.borrow();
        match sb.sums() {
            Sums::All(seed) => seed,
            _ if sb.has_incompat(incompat::CSUM_SEED) => sb.checksum_seed(),
            _ => Sums::seed_of(&sb.uuid()),
        }
    }

    fn bad_value(&self, of: &InodeHandle, at: Elsewhere, what: &str) -> FsError {
        let what = format!("an attribute's value, inode {}: {what}", at.ino);
        self.damage(&FormatError::corrupt(what, format!("inode {}", of.ino)))
    }

    /// The inode that holds a value.
    async fn value_inode(&self, of: &InodeHandle, at: Elsewhere) -> Result<InodeHandle, FsError> {
        let h = match self.slot(at.ino).await {
            Ok(h) if at.ino != of.ino && self.check_any_inode(&h).is_ok() => h,
            Ok(_) | Err(FsError::Stale) => return Err(self.bad_value(of, at, "it holds none")),
            Err(e) => return Err(e),
        };
        match h.with(|raw| InodeRef(raw).flags() & FLAG_VALUE != 0 && InodeRef(raw).is_file()) {
            true => Ok(h),
            false => Err(self.bad_value(of, at, "it holds none")),
        }
    }

    /// Values of Lustre have neither hash nor users, but name the one whom they belong to.
    fn is_lustres(&self, of: &InodeHandle, value: &InodeHandle) -> bool {
        let parent = value.with(|raw| InodeRef(raw).time(Which::Modify).map(|t| t.0 as u32));
        parent == Some(of.ino.0) && self.generation(value) == self.generation(of)
    }

    /// Makes a value's inode; see [`ufs::store::Attributes::make_value`].
    pub(crate) async fn new_value(
        &self,
        txn: &mut Txn,
        of: &InodeHandle,
        (name, value): (&[u8], &[u8]),
    ) -> Result<Elsewhere, FsError> {
        assert!(value.len() <= VALUE_MAX, "a value of {} bytes", value.len());
        let h = self.new_inode(txn, of, Kind::File).await?;
        let hash = csum::crc(self.value_seed(), value);
        let (uid, gid) = of.with(|raw| (InodeRef(raw).uid(), InodeRef(raw).gid()));
        let wall = self.env.wall();
        let now = (wall.secs() as i64, 0);
        h.edit(txn, Change::InitInode(h.ino), |raw| {
            let flags = InodeRef(raw).flags() | FLAG_VALUE;
            let mut i = InodeMut(raw);
            i.set_mode(MODE);
            i.set_uid(uid);
            i.set_gid(gid);
            i.set_links(1);
            i.set_flags(flags);
            i.set_size(value.len() as u64);
            i.set_time(Which::Modify, now);
            i.set_time(Which::Create, now);
            i.set_value(hash, 1);
        });
        if let Err(e) = self.put_value(txn, &h, value).await {
            self.mark_unused(txn, &h);
            self.free_value(txn, &h).await?;
            return Err(e);
        }
        if self.plant.is(VALUE_IN_TWO) {
            self.in_two(txn).await?;
        }
        let said = h.with(|raw| (InodeRef(raw).value(), InodeRef(raw).size()));
        let (len, ino) = (value.len() as u32, h.ino);
        assert_eq!(said, ((hash, 1), u64::from(len)), "V1: what inode {ino} says of its value");
        Ok(Elsewhere { ino: h.ino, len, hash: xattr::elsewhere_hash(name, hash) })
    }

    /// V2: the contents, as blocks of metadata.
    async fn put_value(&self, txn: &mut Txn, h: &InodeHandle, value: &[u8]) -> Result<(), FsError> {
        let mut groups = BTreeSet::new();
        for (n, part) in (0..).zip(value.chunks(self.block_bytes())) {
            let mut block = part.to_vec();
            block.resize(self.block_bytes(), 0);
            let buf = self.dir_grow(txn, h, FileBlock(n), &block).await?;
            let is_plain = matches!(buf.role(), Role::Plain);
            assert!(is_plain, "V2: block {n} of value {} is marked as {:?}", h.ino, buf.role());
            groups.insert(self.geo.group_of(buf.block()).0);
            if groups.len() > GROUPS_MAX {
                return Err(FsError::NoSpace);
            }
        }
        Ok(())
    }

    /// Counts a user more or fewer; see [`ufs::store::Attributes::use_value`].
    pub(crate) async fn count_user(
        &self,
        txn: &mut Txn,
        of: &InodeHandle,
        at: Elsewhere,
        more: bool,
    ) -> Result<(), FsError> {
        let h = self.value_inode(of, at).await?;
        let (hash, counted) = h.with(|raw| InodeRef(raw).value());
        let users = if self.is_lustres(of, &h) { 1 } else { counted };
        match (users, more) {
            (0, _) => Err(self.bad_value(of, at, "it counts nobody who has it")),
            (1, false) => {
                self.mark_unused(txn, &h);
                self.free_value(txn, &h).await
            }
            (u64::MAX, true) => Err(self.bad_value(of, at, "it counts more than there can be")),
            _ => {
                let users = if more { users + 1 } else { users - 1 };
                h.edit(txn, Change::Attr(h.ino), |raw| InodeMut(raw).set_value(hash, users));
                let said = h.with(|raw| InodeRef(raw).value());
                assert_eq!(said, (hash, users), "V1: the users of value {}", h.ino);
                Ok(())
            }
        }
    }

    /// V3: what was made last goes first; until each has gone, it is an orphan.
    pub(crate) async fn free_made(
        &self,
        txn: &mut Txn,
        of: &InodeHandle,
        made: &[Elsewhere],
    ) -> Result<(), FsError> {
        if txn.is_over() {
            return Err(FsError::Io); // the disk has failed while another one went
        }
        let mut all = Vec::new();
        for at in made {
            let h = self.value_inode(of, *at).await?;
            if h.with(|raw| InodeRef(raw).value().1) != 1 {
                return Err(self.bad_value(of, *at, "others have it, and it was just made"));
            }
            all.push(h);
        }
        all.iter().for_each(|h| self.mark_unused(txn, h));
        for h in all.iter().rev() {
            self.renew(txn, RENEWED).await?;
            self.free_value(txn, h).await?;
        }
        Ok(())
    }

    /// V3: nobody has it any more.
    fn mark_unused(&self, txn: &mut Txn, h: &InodeHandle) {
        h.edit(txn, Change::LinkDown(h.ino), |raw| InodeMut(raw).set_links(0));
        self.orphan_push(txn, h);
    }

    /// Frees one that is an orphan.
    async fn free_value(&self, txn: &mut Txn, h: &InodeHandle) -> Result<(), FsError> {
        assert_eq!(h.with(|raw| InodeRef(raw).links()), 0, "V3: {} has no link", h.ino);
        // Not in release: the list may be thousands long.
        let is_listed = || !self.mechanism.atomic() || self.is_orphan(h.ino);
        debug_assert!(is_listed(), "V3: a crash would not find value {}, which is freed", h.ino);
        self.truncate(txn, h, FileBlock(0)).await?;
        h.edit(txn, Change::Shrink(h.ino), |raw| InodeMut(raw).set_size(0));
        self.orphan_drop(txn, h);
        self.release_inode(txn, h).await
    }

    /// The blocks that an inode counts for the values of its attributes.
    pub(crate) async fn value_blocks(&self, h: &InodeHandle) -> Result<u64, FsError> {
        if !self.sb.borrow().has_incompat(incompat::EA_INODE) {
            return Ok(0);
        }
        let bad = |e| self.damage(&e);
        let mut list =
            h.with(|raw| xattr::decode_inode(InodeRef(raw).xattr_space())).map_err(bad)?;
        if let Some(buf) = self.attributes(h).await? {
            list.extend(xattr::decode_block(&buf.bytes()).map_err(bad)?);
        }
        Ok(xattr::blocks_elsewhere(&list, self.block_bytes()))
    }
}

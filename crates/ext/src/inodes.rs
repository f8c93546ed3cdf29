//! Inode slots: finding and checking them. The slot's bytes stay in the cache's block, and a handle
//! keeps that block in memory.
//!
//! Invariants:
//! * I1. A slot lies whole in one block of its group's table.

use crate::Ext;
use crate::descs::Desc;
use cache::{Buf, BufKind, Role};
use format::ext::extents;
use format::ext::features::incompat;
use format::ufs::inode::{FAST_SYMLINK_MAX, FLAG_ENCRYPT, FLAG_VALUE, InodeRef};
use format::ufs::map::file_bytes_max;
use format::{BlockNo, FormatError, Ino, ROOT_INO};
use ufs::InodeHandle;
use vfs::{FsError, Kind};

/// Blocks of the inode table read at once.
const TABLE_READ: u64 = 16;

impl Ext {
    /// The block of an inode's slot, which block of its group's table that is, and the byte in it.
    fn place(&self, ino: Ino, desc: &Desc) -> (BlockNo, u32, usize) {
        let (n, offset) = self.geo.ino_place(ino);
        let (len, end) = (self.geo.inode_bytes, self.block_bytes());
        let inside = n < self.geo.inode_table_blocks() && offset + len <= end;
        assert!(inside, "I1: inode {ino} at byte {offset} of block {n} of its table");
        (BlockNo(desc.get().inode_table + u64::from(n)), n, offset)
    }

    fn handle(&self, ino: Ino, buf: Buf, offset: usize) -> InodeHandle {
        let first = ino.0 - (offset / self.geo.inode_bytes) as u32;
        self.mark(&buf, Role::Inodes(first));
        InodeHandle { ino, buf, offset, len: self.geo.inode_bytes }
    }

    /// The slot of any inode of the volume, in use or not.
    pub(crate) async fn slot(&self, ino: Ino) -> Result<InodeHandle, FsError> {
        if !self.geo.has_ino(ino) {
            return Err(FsError::Stale);
        }
        let desc = self.desc(self.geo.group_of_ino(ino)).await?;
        let (block, n, offset) = self.place(ino, &desc);
        if let Some(buf) = self.cache.get_cached(block) {
            return Ok(self.handle(ino, buf, offset));
        }
        // Its neighbours are wanted soon: a directory's inodes lie side by side.
        let first = u64::from(n) / TABLE_READ * TABLE_READ;
        let len = TABLE_READ.min(u64::from(self.geo.inode_table_blocks()) - first);
        let start = BlockNo(block.0 - (u64::from(n) - first));
        let run = self.cache.get_run(start, len, BufKind::Meta).await;
        let run = run.map_err(|e| self.unreadable(&e))?;
        let buf = run[(block.0 - start.0) as usize].clone();
        Ok(self.handle(ino, buf, offset))
    }

    pub(crate) fn slot_cached(&self, ino: Ino) -> Option<InodeHandle> {
        if !self.geo.has_ino(ino) {
            return None;
        }
        let desc = self.desc_cached(self.geo.group_of_ino(ino))?;
        let (block, _, offset) = self.place(ino, &desc);
        Some(self.handle(ino, self.cache.get_cached(block)?, offset))
    }

    /// May users see this inode? Checks what later arithmetic relies on.
    pub(crate) fn check_inode(&self, h: &InodeHandle) -> Result<(), FsError> {
        match h.with(|raw| InodeRef(raw).flags() & FLAG_VALUE != 0) {
            true => Err(FsError::Stale),
            false => self.check_any_inode(h),
        }
    }

    /// The same of an inode that may hold an attribute's value, which nobody sees by itself.
    pub(crate) fn check_any_inode(&self, h: &InodeHandle) -> Result<(), FsError> {
        let ino = h.ino;
        if ino != ROOT_INO && ino.0 < self.geo.first_ino {
            return Err(FsError::Stale);
        }
        let problem = h.with(|raw| {
            let i = InodeRef(raw);
            if i.mode() == 0 || i.links() == 0 {
                return Err(FsError::Stale);
            }
            Ok(self.problem_of(i))
        })?;
        self.check_sum(h)?;
        let encrypted = h.with(|raw| InodeRef(raw).flags() & FLAG_ENCRYPT != 0);
        match problem {
            None if encrypted => Err(FsError::Access),
            None => Ok(()),
            Some(what) => Err(self.damage(&FormatError::corrupt(what, format!("inode {ino}")))),
        }
    }

    /// Compares the slot with its checksum, once after it was read.
    fn check_sum(&self, h: &InodeHandle) -> Result<(), FsError> {
        let n = h.offset / h.len;
        if h.buf.is_checked(n) {
            return Ok(());
        }
        h.with(|raw| self.geo.sums.check_inode(h.ino, raw)).map_err(|e| self.damage(&e))?;
        h.buf.set_checked(n);
        Ok(())
    }

    /// The longest that the file may become, in bytes: what its map can name. One that is longer
    /// would be damage when it is read again.
    pub(crate) fn file_bytes_max(&self, h: &InodeHandle) -> u64 {
        let by_pointers = h.with(|raw| !InodeRef(raw).has_extents() && !InodeRef(raw).is_inline());
        let of_volume = self.limits.file_bytes_max;
        match by_pointers {
            true => of_volume.min(file_bytes_max(self.block_bytes(), self.geo.huge_files)),
            false => of_volume,
        }
    }

    /// Has the inode no blocks, nor contents in it?
    pub(crate) fn maps_nothing(&self, h: &InodeHandle) -> bool {
        let map = h.with(|raw| InodeRef(raw).map_bytes());
        let is_bare_root = || extents::head(&map, None).is_ok_and(|root| root.entries == 0);
        map.iter().all(|b| *b == 0) || self.has_extents(h) && is_bare_root()
    }

    /// The inode's attribute block.
    pub(crate) fn xattr_block_of(&self, i: InodeRef<'_>) -> BlockNo {
        if self.geo.wide { i.xattr_block_wide() } else { i.xattr_block() }
    }

    fn problem_of(&self, i: InodeRef<'_>) -> Option<String> {
        let bs = self.block_bytes() as u64;
        if Kind::from_mode(u32::from(i.mode())).is_none() {
            return Some(format!("no kind of file has the mode {:o}", i.mode()));
        }
        if i.has_extents() && !self.geo.extents {
            return Some("it is mapped by extents, and the volume has none".into());
        }
        if i.is_inline() && i.has_extents() {
            return Some("its contents are said to be in it and in extents".into());
        }
        let in_blocks = i.is_symlink() && i.size() > FAST_SYMLINK_MAX as u64 && !i.is_inline();
        if i.has_extents() && (i.is_file() || i.is_dir() || in_blocks) {
            let root = i.map_bytes();
            let head = match extents::head(&root, None) {
                Ok(head) => head,
                Err(what) => return Some(what),
            };
            if let Err(e) = extents::check_entries(&root, head) {
                return Some(e.to_string());
            }
        }
        if i.extra_isize().is_none() {
            return Some("its extra size reaches beyond its slot".into());
        }
        if i.is_dir() && !i.is_inline() && (i.size() == 0 || !i.size().is_multiple_of(bs)) {
            return Some(format!("a directory of {} bytes", i.size()));
        }
        let most = match i.has_extents() {
            true => extents::BLOCKS_MAX,
            false => format::ufs::map::blocks_max(bs / 4),
        };
        if i.size() > most.saturating_mul(bs) {
            return Some(format!("a length of {} bytes, which no map can hold", i.size()));
        }
        let large = self.sb.borrow().has_incompat(incompat::LARGE_DIR);
        if large && i.is_dir() && i.size_high() != 0 {
            return Some("a directory of 4 GiB and more".into());
        }
        let acl = self.xattr_block_of(i);
        if acl.0 != 0 && self.meets_system(acl, 1) {
            return Some(format!("its attributes are said to be in block {acl}"));
        }
        None
    }
}

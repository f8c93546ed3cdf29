//! Attribute blocks. Ours belong to one inode each; the kernel's may be shared, and then the count
//! of users goes down instead of the block. Values that are other inodes' contents are read.

use crate::Ext;
use crate::alloc::{Goal, Runs};
use cache::{Buf, BufKind, Role};
use format::bytes::le32;
use format::ext::csum::{self, Sums};
use format::ext::features::incompat;
use format::ext::inode::{FLAG_VALUE, InodeMut, InodeRef, Which};
use format::ext::xattr::{self, Elsewhere};
use format::{BlockNo, FileBlock, FormatError};
use integrity::{Change, InitKind, Txn};
use ufs::{InodeHandle, Store};
use vfs::FsError;

/// The longest value.
const VALUE_MAX: usize = 65_536;

impl Ext {
    pub(crate) async fn attributes(&self, h: &InodeHandle) -> Result<Option<Buf>, FsError> {
        let b = h.with(|raw| self.xattr_block_of(InodeRef(raw)));
        if b.0 == 0 {
            return Ok(None);
        }
        self.check_pointer(h.ino, b, "an attribute block")?;
        let read = self.cache.get(b, BufKind::Meta).await;
        let buf = read.map_err(|e| self.unreadable(&e))?;
        if le32(&buf.bytes(), 0) != xattr::MAGIC || xattr::refcount(&buf.bytes()) == 0 {
            let what = format!("block {b} is said to hold attributes, and does not");
            return Err(self.damage(&FormatError::corrupt(what, format!("inode {}", h.ino))));
        }
        self.mark(&buf, Role::Attributes);
        if !buf.is_checked(0) {
            let checked = self.geo.sums.check_xattr(b, &buf.bytes());
            checked.map_err(|e| self.damage(&e))?;
            buf.set_checked(0);
        }
        Ok(Some(buf))
    }

    /// The contents of an inode that holds an attribute's value.
    pub(crate) async fn value_of_inode(
        &self,
        of: &InodeHandle,
        at: Elsewhere,
    ) -> Result<Vec<u8>, FsError> {
        let bad = |what: &str| {
            let what = format!("an attribute's value, inode {}: {what}", at.ino);
            Err(self.damage(&FormatError::corrupt(what, format!("inode {}", of.ino))))
        };
        let h = match self.slot(at.ino).await {
            Ok(h) if at.ino != of.ino && self.check_inode(&h).is_ok() => h,
            Ok(_) | Err(FsError::Stale) => return bad("it holds none"),
            Err(e) => return Err(e),
        };
        let (is_value, size, hash, parent) = h.with(|raw| {
            let i = InodeRef(raw);
            let secs = |w| i.time(w).map_or(0, |t| t.0 as u32);
            let is_value = i.flags() & FLAG_VALUE != 0;
            (is_value, i.size(), secs(Which::Access), secs(Which::Modify))
        });
        if !is_value || size != u64::from(at.len) || at.len as usize > VALUE_MAX {
            return bad("it is none of that length");
        }
        let mut value = Vec::with_capacity(at.len as usize);
        let blocks = size.div_ceil(self.block_bytes() as u64);
        for block in self.read_blocks(&h, FileBlock(0), blocks).await? {
            let Some(block) = block else { return bad("it has a hole") };
            value.extend_from_slice(&block.bytes());
        }
        value.truncate(at.len as usize);
        // Those of Lustre have no hash, but name whom they belong to.
        let of_lustre = parent == of.ino.0 && self.generation(&h) == self.generation(of);
        if csum::crc(self.value_seed(), &value) != hash && !of_lustre {
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

    pub(crate) async fn set_attributes(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        contents: Option<&[u8]>,
    ) -> Result<(), FsError> {
        let old = self.attributes(h).await?;
        let old_block = old.as_ref().map_or(BlockNo(0), Buf::block);
        let mut new_block = BlockNo(0);
        if let Some(contents) = contents {
            let goal = Goal::In(self.geo.group_of_ino(h.ino));
            new_block = self.alloc_blocks(txn, goal, 1).await?.start;
            let buf = self.cache.get_new(new_block, BufKind::Meta, h.ino);
            self.mark(&buf, Role::Attributes);
            let init = Change::InitBlock { ino: h.ino, kind: InitKind::Xattr };
            txn.edit(&buf, 0..self.block_bytes(), init, |b| b.copy_from_slice(contents));
        }
        if old_block == new_block {
            return Ok(());
        }
        let change = Change::XattrPointer { ino: h.ino, old: old_block, new: new_block };
        let wide = self.geo.wide;
        h.edit(txn, change, |raw| {
            let mut i = InodeMut(raw);
            if wide { i.set_xattr_block_wide(new_block) } else { i.set_xattr_block(new_block) }
        });
        let delta = i64::from(new_block.0 != 0) - i64::from(old_block.0 != 0);
        if delta != 0 {
            self.count_sectors(txn, h, delta);
        }
        let Some(old) = old else { return Ok(()) };
        let users = xattr::refcount(&old.bytes());
        if users > 1 {
            self.watch.tell(|c| c.attributes_dropped(h.ino, old_block));
            txn.edit(&old, 4..8, Change::ShareDown(h.ino), |b| {
                b.copy_from_slice(&(users - 1).to_le_bytes());
            });
            return Ok(());
        }
        self.free_blocks(txn, Runs::one(old_block, 1)).await
    }
}

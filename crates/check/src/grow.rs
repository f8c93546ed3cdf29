//! Giving a file one more block: the pointer, and the indirect blocks on the way. Used for
//! directories that lack a block and for lost+found, when everything claimed is known.

use crate::CheckError;
use crate::run::Check;
use format::bytes::{le32, set32};
use format::ufs::inode::{InodeMut, InodeRef};
use format::ufs::map;
use format::{BlockNo, FileBlock, Ino};

impl Check<'_> {
    /// Maps a new block with these contents at `at`, which is a hole, and makes the file long
    /// enough for it. None, and a finding, if there is no room.
    pub(crate) fn map_new_block(
        &mut self,
        ino: Ino,
        at: FileBlock,
        bytes: Vec<u8>,
    ) -> Result<Option<BlockNo>, CheckError> {
        let bs = self.geo().block_bytes;
        if (at.0 + 1) * bs as u64 > u64::from(u32::MAX) {
            return Ok(None); // longer than a directory can be
        }
        let mut raw = self.raw_inode(ino)?;
        if InodeRef(&raw).has_extents() {
            return self.grow_tree(ino, &mut raw, at, bytes);
        }
        let Some(path) = map::path(at, bs as u64 / 4) else { return Ok(None) };
        let mut sectors = InodeRef(&raw).sectors();
        let mut holder: Option<BlockNo> = None;
        let mut block = BlockNo(0);
        for (n, index) in path.indexes[..path.depth].iter().map(|i| usize::from(*i)).enumerate() {
            let now = match holder {
                None => InodeRef(&raw).pointer(index),
                Some(h) => le32(&self.view.read(h)?, 4 * index),
            };
            block = BlockNo(u64::from(now));
            let last = n + 1 == path.depth;
            if last && now != 0 {
                return Ok(None); // it is mapped, and shared with others still
            }
            if now == 0 {
                let Some(new) = self.alloc_for_pointer() else { return Ok(None) };
                self.view.put_fresh(new, if last { bytes.clone() } else { vec![0; bs] });
                match holder {
                    None => InodeMut(&mut raw).set_pointer(index, new.0 as u32),
                    Some(h) => self.view.edit(h, |b| set32(b, 4 * index, new.0 as u32))?,
                }
                sectors = sectors.saturating_add(bs as u32 / 512);
                block = new;
            }
            holder = Some(block);
        }
        let end = (at.0 + 1) * bs as u64;
        if InodeRef(&raw).size() < end {
            InodeMut(&mut raw).set_size(end);
        }
        InodeMut(&mut raw).set_sectors(sectors);
        self.edit_inode(ino, |b| b.copy_from_slice(&raw))?;
        Ok(Some(block))
    }

    /// The same of an inode with an extent tree.
    fn grow_tree(
        &mut self,
        ino: Ino,
        raw: &mut [u8],
        at: FileBlock,
        bytes: Vec<u8>,
    ) -> Result<Option<BlockNo>, CheckError> {
        let bs = self.geo().block_bytes as u64;
        let Some(new) = self.alloc_block() else { return Ok(None) };
        self.view.put_fresh(new, bytes);
        let Some(more) = self.map_in_tree(ino, raw, (at, new))? else { return Ok(None) };
        let end = (at.0 + 1) * bs;
        if InodeRef(raw).size() < end {
            InodeMut(raw).set_size(end);
        }
        let sectors = self.sectors_of(raw).saturating_add_signed(more * (bs / 512) as i64);
        self.set_sectors_of(raw, sectors);
        self.edit_inode(ino, |b| b.copy_from_slice(raw))?;
        Ok(Some(new))
    }
}

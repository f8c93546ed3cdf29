//! Contents that lie in the inode: the 60 bytes of its map, and an attribute named `system.data`
//! that goes on where they end. They are shown as a block that lies nowhere; such a volume is only
//! read.

use crate::Ext;
use cache::Buf;
use env::Block;
use format::bytes::{le32, set16, set32};
use format::ext::dirent::{ENTRY_MIN, INO_BYTES};
use format::ext::inode::InodeRef;
use format::ext::{dirent, xattr};
use format::{FileBlock, FormatError, Ino};
use ufs::InodeHandle;
use vfs::FsError;

/// The number of the attributes' prefix `system.`.
const SYSTEM: u8 = 7;
/// What a directory's bytes in the map begin with: the parent's number, in place of the two dots.
const PARENT_BYTES: usize = INO_BYTES;
/// Bytes of the map.
const MAP_BYTES: usize = 60;

impl Ext {
    /// The contents, if they lie in the inode: as many bytes as there are, with what is beyond the
    /// file's end.
    fn inline_bytes(&self, h: &InodeHandle) -> Result<Option<Vec<u8>>, FsError> {
        let bytes = h.with(|raw| {
            let i = InodeRef(raw);
            if !i.is_inline() {
                return Ok(None);
            }
            let mut all = i.map_bytes().to_vec();
            let list = xattr::decode_inode(i.xattr_space())?;
            if let Some(a) = list.into_iter().find(|a| a.index == SYSTEM && a.name == b"data") {
                all.extend(a.value);
            }
            if all.len() > self.block_bytes() {
                let what = format!("contents of {} bytes in the inode", all.len());
                return Err(FormatError::corrupt(what, format!("inode {}", h.ino)));
            }
            Ok(Some(all))
        });
        bytes.map_err(|e| self.damage(&e))
    }

    /// The blocks of a file whose contents lie in the inode; None: they do not.
    pub(crate) fn inline_blocks(
        &self,
        h: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Result<Option<Vec<Option<Buf>>>, FsError> {
        let Some(mut bytes) = self.inline_bytes(h)? else { return Ok(None) };
        let size = h.with(|raw| InodeRef(raw).size());
        bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        let mut block = Block::zeroed(self.block_bytes());
        block.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
        let buf = self.cache.get_detached(block);
        let first = |n: u64| (at.0 + n == 0).then(|| buf.clone());
        Ok(Some((0..count).map(first).collect()))
    }

    /// A directory that lies in the inode, as a block of entries; None: it does not.
    pub(crate) fn inline_dir(&self, h: &InodeHandle) -> Result<Option<Buf>, FsError> {
        let Some(bytes) = self.inline_bytes(h)? else { return Ok(None) };
        let parent = Ino(le32(&bytes, 0));
        let mut block = Block::zeroed(self.block_bytes());
        let out = block.bytes_mut();
        dirent::init_dots(out, h.ino, parent, true);
        // Two chains of entries, one in the map and one in the attribute, behind the two dots.
        let mut at = 2 * ENTRY_MIN;
        set16(out, ENTRY_MIN + 4, ENTRY_MIN as u16);
        let (inside, rest) = bytes.split_at(MAP_BYTES);
        for chain in [&inside[PARENT_BYTES..], rest] {
            out[at..at + chain.len()].copy_from_slice(chain);
            at += chain.len();
        }
        if out.len() - at >= ENTRY_MIN {
            let left = out.len() - at;
            out[at..].fill(0);
            set32(out, at, 0);
            set16(out, at + 4, left as u16);
        }
        Ok(Some(self.cache.get_detached(block)))
    }
}

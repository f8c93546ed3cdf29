//! Finding a file's blocks: from a file block through the inode's pointers and indirect blocks to the disk.
//! Every block number that comes from the disk is checked before it is used.

use crate::Ext;
use cache::{Buf, BufKind};
use format::bytes::le32;
use format::ext::inode::BLOCK_AT;
use format::ext::map::{POINTERS, Path, path};
use format::{BlockNo, FileBlock, FormatError, Ino};
use ufs::InodeHandle;
use ufs::store::Run;
use vfs::FsError;

/// An array of pointers and the place of one in it: the inode's, or an indirect block's.
pub(crate) struct Leaf {
    pub(crate) buf: Buf,
    /// Byte of the first pointer in the block.
    pub(crate) base: usize,
    /// Index of the wanted one.
    pub(crate) index: usize,
    /// How many follow it that map the next file blocks, itself included.
    pub(crate) len: usize,
}

impl Leaf {
    pub(crate) fn pointer(&self, i: usize) -> BlockNo {
        let at = self.base + 4 * (self.index + i);
        BlockNo(u64::from(le32(&self.buf.bytes(), at)))
    }
}

/// What a walk meets.
pub(crate) enum Walk {
    /// The array with the pointer.
    Leaf(Leaf),
    /// A hole this many file blocks long at least: an indirect block is missing.
    Hole(u64),
}

impl Ext {
    pub(crate) fn path(&self, at: FileBlock) -> Result<Path, FsError> {
        path(at, self.per_block()).ok_or(FsError::FileTooBig)
    }

    pub(crate) fn inode_leaf(&self, h: &InodeHandle, index: usize) -> Leaf {
        let len = if index < 12 { 12 - index } else { 1 };
        Leaf { buf: h.buf.clone(), base: h.offset + BLOCK_AT, index, len }
    }

    pub(crate) fn block_leaf(&self, buf: Buf, index: usize) -> Leaf {
        let len = self.per_block() as usize - index;
        Leaf { buf, base: 0, index, len }
    }

    /// Checks a pointer that is not 0.
    pub(crate) fn check_pointer(&self, ino: Ino, b: BlockNo, what: &str) -> Result<(), FsError> {
        if !self.is_system_block(b) {
            return Ok(());
        }
        let what = format!("{what} is said to be block {b}, which no file can have");
        Err(self.damage(&FormatError::corrupt(what, format!("inode {ino}"))))
    }

    /// An indirect block.
    pub(crate) async fn indirect(&self, ino: Ino, b: BlockNo) -> Result<Buf, FsError> {
        self.check_pointer(ino, b, "an indirect block")?;
        let buf = match self.cache.get_cached(b) {
            Some(buf) => buf,
            None => {
                let read = self.cache.get(b, BufKind::Meta).await;
                read.map_err(|e| self.unreadable(&e))?
            }
        };
        buf.set_owner(ino);
        Ok(buf)
    }

    pub(crate) async fn walk(&self, h: &InodeHandle, at: FileBlock) -> Result<Walk, FsError> {
        let path = self.path(at)?;
        let mut leaf = self.inode_leaf(h, usize::from(path.indexes[0]));
        for level in 1..path.depth {
            let next = leaf.pointer(0);
            let index = usize::from(path.indexes[level]);
            if next.0 == 0 {
                return Ok(Walk::Hole(self.hole_len(&path, level)));
            }
            leaf = self.block_leaf(self.indirect(h.ino, next).await?, index);
        }
        Ok(Walk::Leaf(leaf))
    }

    /// As `walk`, if every indirect block is in memory.
    pub(crate) fn walk_cached(&self, h: &InodeHandle, at: FileBlock) -> Option<Walk> {
        let path = path(at, self.per_block())?;
        let mut leaf = self.inode_leaf(h, usize::from(path.indexes[0]));
        for level in 1..path.depth {
            let next = leaf.pointer(0);
            if next.0 == 0 {
                return Some(Walk::Hole(self.hole_len(&path, level)));
            }
            if self.is_system_block(next) {
                return None; // the slow way reports it
            }
            let buf = self.cache.get_cached(next)?;
            leaf = self.block_leaf(buf, usize::from(path.indexes[level]));
        }
        Some(Walk::Leaf(leaf))
    }

    /// How many file blocks are missing from here on when the block at `level` of the path is.
    fn hole_len(&self, path: &Path, level: usize) -> u64 {
        let p = self.per_block();
        let inside = path.indexes[level..path.depth].iter();
        let offset = inside.fold(0, |n, &i| n * p + u64::from(i));
        p.pow((path.depth - level) as u32) - offset
    }

    pub(crate) fn run_of(&self, ino: Ino, walk: &Walk, max: u64) -> Result<Run, FsError> {
        let leaf = match walk {
            Walk::Hole(len) => return Ok(Run { start: None, len: (*len).clamp(1, max) }),
            Walk::Leaf(leaf) => leaf,
        };
        let first = leaf.pointer(0);
        let max = (leaf.len as u64).min(max);
        let bytes = leaf.buf.bytes();
        let pointer = |i: u64| {
            let at = leaf.base + 4 * (leaf.index + i as usize);
            u64::from(le32(&bytes, at))
        };
        let want = |i: u64| if first.0 == 0 { 0 } else { first.0 + i };
        let len = (1..max).find(|&i| pointer(i) != want(i)).unwrap_or(max);
        drop(bytes);
        if first.0 == 0 {
            return Ok(Run { start: None, len });
        }
        self.check_pointer(ino, first, "a block")?;
        let last = first.plus(len - 1);
        self.check_pointer(ino, last, "a block")?;
        // Runs that span a group's border are rare: give the part before it, so that every block is checked.
        let g = self.geo.group_of(first);
        let len = if self.geo.group_of(last) == g {
            len
        } else {
            self.geo.group_start(g).0 + u64::from(self.geo.group_blocks(g)) - first.0
        };
        Ok(Run { start: Some(first), len })
    }

    /// The last mapped file block plus one, at most; 0 if nothing is mapped.
    pub(crate) fn mapped_end(&self, h: &InodeHandle) -> FileBlock {
        let p = self.per_block();
        let last = (0..POINTERS).rev().find(|&i| self.inode_leaf(h, i).pointer(0).0 != 0);
        match last {
            None => FileBlock(0),
            Some(i) if i < 12 => FileBlock(i as u64 + 1),
            Some(i) => {
                let first = format::ext::map::first_of(i, p);
                first.plus(p.pow(i as u32 - 11))
            }
        }
    }
}

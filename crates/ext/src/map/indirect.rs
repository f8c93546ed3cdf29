//! Finding a file's blocks: from a file block through the inode's pointers and indirect blocks to
//! the disk. Every block number that comes from the disk is checked before it is used; nothing is
//! changed.

use crate::Ext;
use cache::{Buf, BufKind};
use format::ufs::inode::BLOCK_AT;
use format::ufs::map::{self, Path, path};
use format::{BlockNo, FileBlock, FormatError, Ino};
use integrity::{LeadsTo, PointerAt};
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
    /// What they lead to.
    pub(crate) leads_to: LeadsTo,
}

/// What a pointer leads to that has so many levels of indirect blocks below it.
pub(crate) fn leads_to(levels: usize) -> LeadsTo {
    levels.checked_sub(1).map_or(LeadsTo::Contents, |l| LeadsTo::Map(l as u8))
}

impl Leaf {
    /// Where pointer `i` after the leaf's own lies.
    pub(crate) fn place(&self, i: usize) -> PointerAt {
        let at = (self.index + i) as u16;
        if self.base == 0 { PointerAt::Block(at) } else { PointerAt::Inode(at) }
    }

    /// The bytes of `len` pointers from the `i`-th after its own on.
    pub(crate) fn bytes(&self, i: usize, len: u64) -> std::ops::Range<usize> {
        let of = map::bytes_of(self.index + i, len as usize);
        self.base + of.start..self.base + of.end
    }

    pub(crate) fn pointer(&self, i: usize) -> BlockNo {
        map::pointer(&self.buf.bytes()[self.base..], self.index + i)
    }

    /// How many pointers from the leaf's own on, at most `max`, go on from `first`, which it holds.
    fn run_len(&self, first: BlockNo, max: usize) -> usize {
        let bytes = self.buf.bytes();
        let own = map::bytes_of(self.index, max);
        let pointers = map::pointers(&bytes[self.base + own.start..self.base + own.end]);
        let step = u64::from(first.0 != 0);
        let mut want = first.0;
        let goes_on = |p: &BlockNo| {
            let same = p.0 == want;
            want += step;
            same
        };
        pointers.take_while(goes_on).count()
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
        let leads_to = leads_to(index.saturating_sub(11));
        Leaf { buf: h.buf.clone(), base: h.offset + BLOCK_AT, index, len, leads_to }
    }

    /// Of an indirect block, whose pointers have so many levels of such blocks below them.
    pub(crate) fn block_leaf(&self, buf: Buf, index: usize, levels: usize) -> Leaf {
        let len = self.per_block() as usize - index;
        Leaf { buf, base: 0, index, len, leads_to: leads_to(levels) }
    }

    /// Checks a pointer that is not 0.
    pub(crate) fn check_pointer(&self, ino: Ino, b: BlockNo, what: &str) -> Result<(), FsError> {
        if !self.may_not_have(ino, b, 1) {
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

    /// The way to the pointer of file block `at`.
    pub(crate) async fn walk(&self, h: &InodeHandle, at: FileBlock) -> Result<Walk, FsError> {
        let path = self.path(at)?;
        let mut leaf = self.inode_leaf(h, usize::from(path.indexes[0]));
        for level in 1..path.depth {
            let next = leaf.pointer(0);
            let index = usize::from(path.indexes[level]);
            if next.0 == 0 {
                return Ok(Walk::Hole(self.hole_len(&path, level)));
            }
            let buf = self.indirect(h.ino, next).await?;
            leaf = self.block_leaf(buf, index, path.depth - 1 - level);
        }
        let is_last = leaf.leads_to == LeadsTo::Contents;
        assert!(is_last, "M4: the walk to {at} of inode {} ends too early", h.ino);
        Ok(Walk::Leaf(leaf))
    }

    /// As [`Ext::walk`], if every indirect block is in memory.
    pub(crate) fn walk_cached(&self, h: &InodeHandle, at: FileBlock) -> Option<Walk> {
        let path = path(at, self.per_block())?;
        let mut leaf = self.inode_leaf(h, usize::from(path.indexes[0]));
        for level in 1..path.depth {
            let next = leaf.pointer(0);
            if next.0 == 0 {
                return Some(Walk::Hole(self.hole_len(&path, level)));
            }
            if self.meets_system(next, 1) {
                return None; // the slow way reports it
            }
            let buf = self.cache.get_cached(next)?;
            let index = usize::from(path.indexes[level]);
            leaf = self.block_leaf(buf, index, path.depth - 1 - level);
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

    /// The run that begins where the walk ended, at most `max` blocks long.
    pub(crate) fn run_of(&self, ino: Ino, walk: &Walk, max: u64) -> Result<Run, FsError> {
        let leaf = match walk {
            Walk::Hole(len) => return Ok(Run { start: None, len: (*len).clamp(1, max) }),
            Walk::Leaf(leaf) => leaf,
        };
        let first = leaf.pointer(0);
        let max = (leaf.len as u64).min(max);
        let len = leaf.run_len(first, max as usize) as u64;
        if first.0 == 0 {
            return Ok(Run { start: None, len });
        }
        self.check_pointer(ino, first, "a block")?;
        // Runs that span a group's border are rare: the part before it is enough.
        let g = self.geo.group_of(first);
        let end = self.geo.group_start(g).0 + u64::from(self.geo.group_blocks(g));
        let len = len.min(end - first.0);
        if self.meets_system(first, len) {
            let bad = (1..len).map(|i| first.plus(i)).find(|b| self.meets_system(*b, 1));
            self.check_pointer(ino, bad.unwrap_or(first), "a block")?;
        }
        let is_run = (1..=max).contains(&len) && self.geo.group_of(first.plus(len - 1)) == g;
        assert!(is_run, "M6: {len} blocks from {first} on, of {max}, of inode {ino}");
        Ok(Run { start: Some(first), len })
    }
}

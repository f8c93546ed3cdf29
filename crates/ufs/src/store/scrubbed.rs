//! What a layout can be asked besides if it can be checked while it is in use. When a pass runs,
//! and what it makes of the answers, is crate::scrub's.

use super::{InodeHandle, Store};
use check::live::Candidates;
use format::{BlockNo, Extent, Ino};
use vfs::FsError;

/// What an inode holds on the disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Holding {
    /// Blocks of its map: contents and the map's own.
    pub runs: Vec<Extent>,
    /// Its attribute block.
    pub attributes: Option<BlockNo>,
    /// How many blocks more it holds than it counts.
    pub uncounted: i64,
    /// One more than the last block of the file that is mapped, and not only allocated ahead.
    pub end: u64,
}

impl Holding {
    /// Adds blocks.
    pub fn add(&mut self, start: BlockNo, len: u64) {
        match self.runs.last_mut() {
            Some(r) if r.start.plus(r.len) == start => r.len += len,
            _ => self.runs.push(Extent { start, len }),
        }
    }
}

/// A layout that can be checked while it is in use.
#[expect(async_fn_in_trait, reason = "a volume is one thread's; its futures need not be Send")]
pub trait Scrubbed: Store {
    /// Block groups.
    fn group_count(&self) -> u32;
    /// Begins a pass of its watch, with the volume's own blocks set aside.
    async fn scrub_begins(&self);
    /// The same of a pass that looks at these only.
    async fn scrub_begins_with(&self, candidates: Candidates);
    /// The group that a block is in; None: it is outside the volume.
    fn group_of_block(&self, b: BlockNo) -> Option<u32>;
    /// The inodes of a group that are marked as used.
    async fn inodes_in_use(&self, group: u32) -> Result<Vec<Ino>, FsError>;
    /// Is the inode marked as used?
    async fn is_in_use(&self, ino: Ino) -> Result<bool, FsError>;
    /// The slot of an inode, whatever is in it.
    async fn raw_inode(&self, ino: Ino) -> Result<InodeHandle, FsError>;
    /// Is it one of the volume's own inodes, which have no names?
    fn is_own(&self, ino: Ino) -> bool;
    /// What the inode holds; its lock is held.
    async fn holding(&self, inode: &InodeHandle) -> Result<Holding, FsError>;
    /// The inode counts so many blocks more (or less); its lock is held exclusively.
    async fn count_held(&self, inode: &InodeHandle, blocks: i64) -> Result<(), FsError>;
    /// An attribute block that counts more users than the census has counts as many from now on.
    /// True: it did. Errors: it counted fewer.
    async fn mend_users(&self, block: BlockNo) -> Result<bool, FsError>;
    /// Frees the blocks of a group that nothing points at, and sets its counts right; returns how
    /// many. Errors: something points at a free one.
    async fn give_back(&self, group: u32) -> Result<u64, FsError>;
}

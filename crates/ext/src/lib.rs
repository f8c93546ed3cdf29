//! Where it lives: the ext2, ext3 and ext4 layout, updated in place, as a [`ufs::Store`]. It
//! decides block numbers, maps, bitmaps and counts by FFS's policies; which mechanism makes its
//! changes safe it does not know, nor any name.

mod alloc;
mod descs;
mod group;
mod inline;
mod inodes;
mod load;
mod map;
mod orphans;
mod plants;
mod scrub;
mod seal;
mod store;
mod superblock;
mod survey;
mod values;
mod xattr;

use cache::{Buf, Cache};
use check::live::Watch;
use env::{DiskError, Env};
use format::ext::{Geometry, Superblock};
use format::{BlockNo, Extent, FormatError};
use group::Groups;
use integrity::{IntegrityError, Mechanism, Plant, Standstill};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use ufs::{InodeHandle, Limits};
use vfs::FsError;

pub use descs::scan_descriptors;
pub use load::{LoadError, Loaded};
pub use plants::{
    PLANTS, PLANTS_ANYWHERE, PLANTS_EVERYWHERE, PLANTS_IN_PLACE, PLANTS_OF_CONTENTS,
    PLANTS_UNORDERED,
};
pub use superblock::marked_open;

/// An opened volume of this layout.
pub struct Ext {
    /// For what goes on behind its calls.
    me: Weak<Ext>,
    env: Env,
    cache: Rc<Cache>,
    mechanism: Mechanism,
    geo: Geometry,
    limits: Limits,
    sb: RefCell<Superblock>,
    /// The block that holds the primary superblock, and where it begins there.
    sb_buf: (Buf, usize),
    announced: superblock::Announced,
    groups: RefCell<Groups>,
    free_blocks: Cell<u64>,
    free_inodes: Cell<u64>,
    /// Free blocks that are kept for root.
    reserved: Cell<u64>,
    /// The volume's own blocks, and whether all groups are known.
    survey: survey::Survey,
    /// The journal's blocks, in order, which are no file's either: a log of ours lies in them.
    journal: Vec<Extent>,
    read_only: Cell<bool>,
    damaged: Cell<bool>,
    orphans: RefCell<Vec<InodeHandle>>,
    plant: Plant,
    /// Where transactions enter, and are kept off while a copy is taken.
    still: Rc<Standstill>,
    /// Where changes are told to the checker beside service.
    watch: Watch,
    /// Planted bug: nodes of trees whose freeing nobody is told of.
    untold: RefCell<Vec<BlockNo>>,
    syncing: plants::Syncing,
    trimming: alloc::Trimming,
}

impl Ext {
    /// The layout's numbers.
    pub fn geometry(&self) -> &Geometry {
        &self.geo
    }
    /// The superblock as it is in memory.
    pub fn superblock(&self) -> Superblock {
        self.sb.borrow().clone()
    }
    /// The blocks.
    pub fn cache(&self) -> &Rc<Cache> {
        &self.cache
    }
    /// The mechanism in force.
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }
    /// Where transactions enter.
    pub fn standstill(&self) -> &Rc<Standstill> {
        &self.still
    }
    /// Was damage seen since it was opened?
    pub fn is_damaged(&self) -> bool {
        self.damaged.get()
    }

    /// Nothing is changed from now on: somebody else may be doing that.
    pub fn stop_writing(&self) {
        self.read_only.set(true);
    }

    /// Damage: said once with its place, and nothing is changed from now on.
    pub(crate) fn damage(&self, e: &FormatError) -> FsError {
        if self.damaged.replace(true) {
            tracing::warn!("further damage: {e}");
        } else {
            tracing::error!("the volume is damaged and turns read-only: {e}; run cairn fsck");
        }
        FsError::Corrupt
    }
    /// A read of metadata failed: as damage.
    pub(crate) fn unreadable(&self, e: &DiskError) -> FsError {
        if self.damaged.replace(true) {
            tracing::warn!("more metadata cannot be read: {e}");
        } else {
            tracing::error!("metadata cannot be read, the volume turns read-only: {e}");
        }
        FsError::Io
    }
    pub(crate) fn failed(&self, e: &IntegrityError) -> FsError {
        match e {
            IntegrityError::Format(e) => self.damage(e),
            IntegrityError::Disk(e) if e.kind == env::DiskErrorKind::NoSpace => FsError::NoSpace,
            IntegrityError::LogHeld { .. } => {
                tracing::warn!("{e}");
                FsError::NoSpace
            }
            _ => {
                tracing::error!("{e}");
                FsError::Io
            }
        }
    }
    pub(crate) fn block_bytes(&self) -> usize {
        self.geo.block_bytes
    }
    /// Pointers in one indirect block.
    pub(crate) fn per_block(&self) -> u64 {
        self.geo.block_bytes as u64 / 4
    }
    /// 512-byte units in a block, in which inodes count.
    pub(crate) fn sectors_per_block(&self) -> u32 {
        self.geo.block_bytes as u32 / 512
    }
}

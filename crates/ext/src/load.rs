//! Loading an opened volume: group descriptors read and checked, counts summed. The superblock has
//! been found and checked by whoever opens (`volume`), and nothing is written here.

use crate::Ext;
use crate::descs::{Surveyed, survey};
use crate::group::Counts;
use cache::{BufKind, Cache, Role};
use check::live::Watch;
use env::{DiskError, Env};
use format::ext::csum::Sums;
use format::ext::superblock::SUPERBLOCK_AT;
use format::ext::{Geometry, Superblock};
use format::{BlockNo, FormatError};
use integrity::{Mechanism, Plant};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

/// What was found before loading.
pub struct Loaded {
    /// The superblock, checked.
    pub superblock: Superblock,
    /// Nothing may be changed.
    pub read_only: bool,
    /// A planted bug.
    pub plant: Plant,
}

/// Why it cannot be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The device.
    Disk(DiskError),
    /// What is on it.
    Format(FormatError),
}

impl From<DiskError> for LoadError {
    fn from(e: DiskError) -> LoadError {
        LoadError::Disk(e)
    }
}
impl From<FormatError> for LoadError {
    fn from(e: FormatError) -> LoadError {
        LoadError::Format(e)
    }
}
impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Disk(e) => e.fmt(f),
            LoadError::Format(e) => e.fmt(f),
        }
    }
}

impl Ext {
    /// Loads the volume.
    pub async fn load(
        env: Env,
        cache: Rc<Cache>,
        mechanism: Mechanism,
        found: Loaded,
    ) -> Result<Ext, LoadError> {
        let geo = Geometry::of(&found.superblock);
        let bs = geo.block_bytes as u64;
        let sb_block = cache.get(BlockNo(SUPERBLOCK_AT / bs), BufKind::Meta).await?;
        if geo.sums != Sums::None {
            sb_block.set_role(Role::Superblock);
        }
        let Surveyed { groups, own } = survey(&cache, &geo, found.read_only).await?;
        let sum = |f: fn(&Counts) -> u32| groups.counts.iter().map(|c| u64::from(f(c))).sum();
        let reserved = found.superblock.reserved_blocks();
        let rules = found.superblock.index_rules();
        let rules = rules.filter(|_| mechanism.guarantees().atomic || found.read_only);
        Ok(Ext {
            env,
            cache,
            mechanism,
            geo,
            rules,
            sb: RefCell::new(found.superblock),
            sb_buf: (sb_block, (SUPERBLOCK_AT % bs) as usize),
            free_blocks: Cell::new(sum(|c| c.free_blocks) * u64::from(geo.cluster_blocks)),
            free_inodes: Cell::new(sum(|c| c.free_inodes)),
            reserved: Cell::new(reserved),
            overhead: own.iter().map(|z| z.len).sum(),
            own,
            groups: RefCell::new(groups),
            read_only: Cell::new(found.read_only),
            damaged: Cell::new(false),
            plant: found.plant,
            still: Rc::default(),
            watch: Watch::new(found.plant.0),
            untold: RefCell::default(),
            trimming: Default::default(),
            moving: RefCell::default(),
            orphans: RefCell::default(),
        })
    }
}

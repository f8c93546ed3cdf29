//! Loading an opened volume: the groups are surveyed, or that is begun. The superblock has been
//! found and checked by whoever opens (`volume`), and nothing is written here.

use crate::Ext;
use crate::group::Groups;
use crate::superblock::Announced;
use crate::survey::{Survey, Surveyed, goes_on_behind, survey};
use cache::{BufKind, Cache, Role};
use check::live::Watch;
use env::{DiskError, Env};
use format::ext::csum::Sums;
use format::ext::extents::BLOCKS_MAX;
use format::ext::features::{incompat, ro_compat};
use format::ext::superblock::SUPERBLOCK_AT;
use format::ext::{Geometry, Superblock};
use format::ufs::dirhash::IndexRules;
use format::ufs::map::{countable_bytes_max, file_bytes_max};
use format::{BlockNo, Extent, FormatError};
use integrity::{Mechanism, Plant};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use ufs::Limits;

/// ext2 counts links in 16 bits and keeps some distance; so do we, for its sake.
const LINKS_MAX: u32 = 32_000;
/// So many ext4 counts, and of directories on volumes that allow it, no more.
const EXT4_LINKS_MAX: u32 = 65_000;

/// What was found before loading.
pub struct Loaded {
    /// The superblock, checked.
    pub superblock: Superblock,
    /// The blocks of its journal, if that lies inside, and of the journal's map; as runs.
    pub journal: Vec<Extent>,
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

/// The layout's numbers; `rules`: how directories are indexed, where their indexes are kept.
fn limits(geo: &Geometry, sb: &Superblock, rules: Option<IndexRules>) -> Limits {
    let uncounted = sb.has_ro_compat(ro_compat::DIR_NLINK);
    Limits {
        block_bytes: geo.block_bytes,
        inode_bytes: geo.inode_bytes,
        first_ino: geo.first_ino,
        file_bytes_max: match (geo.extents, geo.huge_files) {
            (true, true) => BLOCKS_MAX * geo.block_bytes as u64,
            (true, false) => countable_bytes_max(geo.block_bytes),
            (false, huge) => file_bytes_max(geo.block_bytes, huge),
        },
        links_max: if uncounted { EXT4_LINKS_MAX } else { LINKS_MAX },
        uncounted_dirs: uncounted,
        dir_tail: geo.sums.dir_tail(),
        index_rules: rules,
        entry_kinds: sb.has_incompat(incompat::FILETYPE),
        inline_data: geo.inline_data,
        value_inodes: sb.has_incompat(incompat::EA_INODE),
    }
}

/// These runs in their order, those that meet as one.
fn in_order(mut runs: Vec<Extent>) -> Vec<Extent> {
    runs.sort_unstable_by_key(|e| e.start);
    runs.dedup_by(|next, e| {
        let end = e.start.0 + e.len;
        let meet = next.start.0 <= end;
        if meet {
            e.len = end.max(next.start.0 + next.len) - e.start.0;
        }
        meet
    });
    runs.shrink_to_fit();
    runs
}

impl Ext {
    /// Loads the volume.
    pub async fn load(
        env: Env,
        cache: Rc<Cache>,
        mechanism: Mechanism,
        found: Loaded,
    ) -> Result<Rc<Ext>, LoadError> {
        let geo = Geometry::of(&found.superblock);
        let bs = geo.block_bytes as u64;
        let sb_block = cache.get(BlockNo(SUPERBLOCK_AT / bs), BufKind::Meta).await?;
        if geo.sums != Sums::None {
            sb_block.set_role(Role::Superblock);
        }
        let behind = goes_on_behind(&geo);
        let (groups, survey) = if behind {
            (Groups::default(), Survey::default())
        } else {
            let Surveyed { groups, own } = survey(&cache, &geo, found.read_only).await?;
            (groups, Survey::of(own))
        };
        // Until the survey ends nobody is told these.
        let (free_blocks, free_inodes) = groups.sums();
        let reserved = found.superblock.reserved_blocks();
        let rules = found.superblock.index_rules();
        let rules = rules.filter(|_| mechanism.guarantees().atomic || found.read_only);
        Ok(Rc::new_cyclic(|me| Ext {
            me: me.clone(),
            env,
            cache,
            mechanism,
            limits: limits(&geo, &found.superblock, rules),
            geo,
            announced: Announced::of(&found.superblock),
            sb: RefCell::new(found.superblock),
            sb_buf: (sb_block, (SUPERBLOCK_AT % bs) as usize),
            free_blocks: Cell::new(free_blocks * u64::from(geo.cluster_blocks)),
            free_inodes: Cell::new(free_inodes),
            reserved: Cell::new(reserved),
            survey,
            journal: in_order(found.journal),
            groups: RefCell::new(groups),
            read_only: Cell::new(found.read_only),
            damaged: Cell::new(false),
            plant: found.plant,
            still: Rc::default(),
            watch: Watch::new(found.plant.0),
            untold: RefCell::default(),
            syncing: Default::default(),
            trimming: Default::default(),
            orphans: RefCell::default(),
        }))
    }
}

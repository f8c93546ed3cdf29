//! Loading an opened volume: group descriptors read and checked, counts summed. The superblock has
//! been found and checked by whoever opens (`volume`), and nothing is written here.

use crate::Ext;
use crate::group::Group;
use cache::{Buf, BufKind, Cache};
use env::{DiskError, Env};
use format::ext::geometry::GROUP_DESC_BYTES;
use format::ext::superblock::SUPERBLOCK_AT;
use format::ext::{Geometry, GroupDesc, Superblock};
use format::{BlockNo, FormatError, GroupNo};
use integrity::Mechanism;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

/// What was found before loading.
pub struct Loaded {
    /// The superblock, checked.
    pub superblock: Superblock,
    /// Nothing may be changed.
    pub read_only: bool,
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
        let first = geo.desc_block(0);
        let desc_bufs = cache.get_run(first, u64::from(geo.desc_blocks()), BufKind::Meta).await?;
        let groups = read_groups(&geo, &desc_bufs, found.read_only)?;
        let sum = |f: fn(&GroupDesc) -> u16| groups.iter().map(|g| u64::from(f(&g.desc))).sum();
        let reserved = u64::from(found.superblock.reserved_blocks());
        let table = geo.inode_table_blocks();
        Ok(Ext {
            env,
            cache,
            mechanism,
            geo,
            sb: RefCell::new(found.superblock),
            sb_buf: (sb_block, (SUPERBLOCK_AT % bs) as usize),
            free_blocks: Cell::new(sum(|d| d.free_blocks)),
            free_inodes: Cell::new(sum(|d| d.free_inodes)),
            reserved: Cell::new(reserved),
            overhead: groups.iter().map(|g| u64::from(g.overhead + 2 + table)).sum(),
            groups: RefCell::new(groups),
            desc_bufs,
            read_only: Cell::new(found.read_only),
            damaged: Cell::new(false),
            orphans: RefCell::default(),
        })
    }
}

/// The groups. Counts that cannot be, which a crash may leave, matter only to who allocates.
fn read_groups(geo: &Geometry, bufs: &[Buf], read_only: bool) -> Result<Vec<Group>, FormatError> {
    let mut groups = Vec::with_capacity(geo.groups as usize);
    for g in 0..geo.groups {
        let at = g as usize * GROUP_DESC_BYTES;
        let bytes = bufs[at / geo.block_bytes].bytes();
        let at = at % geo.block_bytes;
        let desc = GroupDesc::decode(&bytes[at..at + GROUP_DESC_BYTES]);
        geo.check_desc(GroupNo(g), &desc)?;
        let most = geo.group_blocks(GroupNo(g));
        let wrong = u32::from(desc.free_blocks) > most
            || u32::from(desc.free_inodes) > geo.inodes_per_group;
        if wrong && !read_only {
            let what = format!("group {g} counts more free than it has");
            return Err(FormatError::corrupt(what, format!("group descriptor {g}")));
        }
        groups.push(Group::new(desc, geo.overhead(GroupNo(g)), most));
    }
    Ok(groups)
}

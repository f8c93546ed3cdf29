//! Loading an opened volume: group descriptors read and checked, counts summed. The superblock has
//! been found and checked by whoever opens (`volume`), and nothing is written here.

use crate::Ext;
use crate::group::Group;
use cache::{Buf, BufKind, Cache, Role};
use check::live::Watch;
use env::{DiskError, Env};
use format::ext::csum::Sums;
use format::ext::superblock::SUPERBLOCK_AT;
use format::ext::{Geometry, GroupDesc, Superblock};
use format::{BlockNo, Extent, FormatError, GroupNo};
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
        let together = u64::from(geo.desc_blocks().min(geo.first_meta_bg));
        let mut desc_bufs = cache.get_run(geo.desc_block(0), together, BufKind::Meta).await?;
        for n in desc_bufs.len() as u32..geo.desc_blocks() {
            desc_bufs.push(cache.get(geo.desc_block(n), BufKind::Meta).await?);
        }
        if geo.sums != Sums::None {
            sb_block.set_role(Role::Superblock);
            for (n, buf) in (0..).zip(&desc_bufs) {
                buf.set_role(Role::Descriptors(n * geo.descs_per_block()));
            }
        }
        let groups = read_groups(&geo, &desc_bufs, found.read_only)?;
        let own = own_blocks(&geo, &groups)?;
        let sum = |f: fn(&GroupDesc) -> u32| groups.iter().map(|g| u64::from(f(&g.desc))).sum();
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
            free_blocks: Cell::new(sum(|d| d.free_blocks)),
            free_inodes: Cell::new(sum(|d| d.free_inodes)),
            reserved: Cell::new(reserved),
            overhead: own.iter().map(|z| z.len).sum(),
            own,
            groups: RefCell::new(groups),
            desc_bufs,
            read_only: Cell::new(found.read_only),
            damaged: Cell::new(false),
            plant: found.plant,
            still: Rc::default(),
            watch: Watch::new(found.plant.0),
            untold: RefCell::default(),
            trimming: Default::default(),
            orphans: RefCell::default(),
        })
    }
}

/// The groups. Counts that cannot be, which a crash may leave, matter only to who allocates.
fn read_groups(geo: &Geometry, bufs: &[Buf], read_only: bool) -> Result<Vec<Group>, FormatError> {
    let mut groups = Vec::with_capacity(geo.groups as usize);
    for g in (0..geo.groups).map(GroupNo) {
        let bytes = bufs[(g.0 / geo.descs_per_block()) as usize].bytes();
        let raw = &bytes[geo.desc_place(g).1..][..geo.desc_bytes];
        geo.sums.check_desc(g, raw)?;
        let desc = GroupDesc::decode(raw);
        geo.check_desc(g, &desc)?;
        let most = geo.group_blocks(g);
        let wrong = desc.free_blocks > most || desc.free_inodes > geo.inodes_per_group;
        if wrong && !read_only {
            let what = format!("group {g} counts more free than it has");
            return Err(FormatError::corrupt(what, format!("group descriptor {g}")));
        }
        groups.push(Group::new(desc, most));
    }
    Ok(groups)
}

/// The volume's own blocks (superblocks, descriptors, bitmaps, inode tables, mmp's) as runs, in
/// order.
/// Errors: `Corrupt` where two of them are said to be in one place.
fn own_blocks(geo: &Geometry, groups: &[Group]) -> Result<Vec<Extent>, FormatError> {
    let mut all = Vec::with_capacity(4 * groups.len());
    all.extend(geo.mmp.map(|start| Extent { start, len: 1 }));
    for (g, group) in (0..).map(GroupNo).zip(groups) {
        let (start, overhead) = (geo.group_start(g), u64::from(geo.overhead(g)));
        if overhead > 0 {
            let len = overhead.min(u64::from(geo.group_blocks(g)));
            all.push(Extent { start, len });
        }
        let (d, table) = (&group.desc, u64::from(geo.inode_table_blocks()));
        all.push(Extent { start: BlockNo(d.block_bitmap), len: 1 });
        all.push(Extent { start: BlockNo(d.inode_bitmap), len: 1 });
        all.push(Extent { start: BlockNo(d.inode_table), len: table });
    }
    all.sort_unstable();
    let mut own: Vec<Extent> = Vec::new();
    for e in all {
        match own.last_mut() {
            Some(last) if last.start.0 + last.len > e.start.0 => {
                let what = "two of the volume's own structures are said to be in one place";
                return Err(FormatError::corrupt(what, format!("block {}", e.start)));
            }
            Some(last) if last.start.0 + last.len == e.start.0 => last.len += e.len,
            _ => own.push(e),
        }
    }
    Ok(own)
}

//! Group descriptors. When the volume is opened all are read once, some at a time, checked and
//! summed up; of each its counts stay in memory, and the runs of the volume's own blocks. Later a
//! descriptor is a block of the cache like a bitmap, which comes when it is wanted and may go when
//! nobody holds it: a volume of half a million groups needs no more memory than its counts.

use crate::group::{Counts, Groups};
use crate::plants::DESC_BEHIND;
use crate::{Ext, LoadError};
use cache::{Buf, BufKind, Cache, Role};
use env::{Block, Disk, DiskError, all};
use format::ext::{Geometry, GroupDesc};
use format::{BlockNo, Extent, FormatError, GroupNo};
use integrity::{Change, Txn};
use std::ops::Range;
use std::rc::Rc;
use vfs::FsError;

/// Descriptors that are no more blocks than these, and no more than this part of the cache, are in
/// it when the volume is open.
const IN_CACHE: u32 = 256;
const PART_OF_CACHE: usize = 64;
/// Bytes of descriptors that lie together, read at once.
const READ_BYTES: usize = 1 << 20;
/// Reads of descriptors that lie apart (meta_bg), at one time.
const READS_AT_ONCE: u32 = 2048;
/// Runs of the volume's own blocks that grow at one time: bitmaps of both kinds, tables, and what
/// lies before them.
const GROWING: usize = 8;

/// A group's descriptor where it lies: in a block of the cache, which stays while this is held.
pub(crate) struct Desc {
    pub(crate) buf: Buf,
    at: usize,
    len: usize,
    /// Planted bug: is what changes in it not told?
    left_behind: bool,
}

impl Desc {
    /// What it says.
    pub(crate) fn get(&self) -> GroupDesc {
        GroupDesc::decode(&self.buf.bytes()[self.range()])
    }
    /// Its bytes in the block.
    pub(crate) fn range(&self) -> Range<usize> {
        self.at..self.at + self.len
    }
    /// Changes it.
    pub(crate) fn put(&self, txn: &mut Txn, desc: &GroupDesc) {
        if self.left_behind && !self.buf.is_dirty() {
            return self.buf.derive(|b| desc.encode(&mut b[self.range()]));
        }
        txn.edit_words(&self.buf, self.range(), Change::Counts, |b| desc.encode(b));
    }
}

impl Ext {
    fn desc_in(&self, buf: Buf, g: GroupNo) -> Desc {
        let left_behind = self.plant.is(DESC_BEHIND) && !are_kept(&self.cache, &self.geo);
        self.mark(&buf, Role::Descriptors(g.0 - g.0 % self.geo.descs_per_block()));
        Desc { buf, at: self.geo.desc_place(g).1, len: self.geo.desc_bytes, left_behind }
    }

    /// The group's descriptor, if its block is in memory.
    pub(crate) fn desc_cached(&self, g: GroupNo) -> Option<Desc> {
        let buf = self.cache.get_cached(self.geo.desc_place(g).0)?;
        buf.is_checked(0).then(|| self.desc_in(buf, g))
    }

    /// The group's descriptor; all in its block are checked when that is read.
    pub(crate) async fn desc(&self, g: GroupNo) -> Result<Desc, FsError> {
        if let Some(desc) = self.desc_cached(g) {
            return Ok(desc);
        }
        let read = self.cache.get(self.geo.desc_place(g).0, BufKind::Meta).await;
        let buf = read.map_err(|e| self.unreadable(&e))?;
        let first = GroupNo(g.0 - g.0 % self.geo.descs_per_block());
        let checked = decode(&self.geo, first, &buf.bytes(), |_, _| Ok(()));
        checked.map_err(|e| self.damage(&e))?;
        buf.set_checked(0);
        Ok(self.desc_in(buf, g))
    }
}

/// Are all of them in the cache when the volume is open?
fn are_kept(cache: &Cache, geo: &Geometry) -> bool {
    geo.desc_blocks() <= IN_CACHE.min((cache.capacity() / PART_OF_CACHE) as u32)
}

/// Calls `each` for the descriptors of a block, the first of which is group `first`'s.
/// Errors: `Corrupt`, also for those that point to where their group cannot have anything.
fn decode(
    geo: &Geometry,
    first: GroupNo,
    block: &[u8],
    mut each: impl FnMut(GroupNo, &GroupDesc) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    for (g, raw) in (first.0..geo.groups).map(GroupNo).zip(block.chunks_exact(geo.desc_bytes)) {
        geo.sums.check_desc(g, raw)?;
        let desc = GroupDesc::decode(raw);
        geo.check_desc(g, &desc)?;
        each(g, &desc)?;
    }
    Ok(())
}

/// Reads the blocks of the group descriptors, in their order and in as few requests as their
/// places allow, and calls `each` with the number of each and its bytes.
pub async fn scan_descriptors(
    disk: &Rc<dyn Disk>,
    geo: &Geometry,
    mut each: impl FnMut(u32, &[u8]),
) -> Result<(), DiskError> {
    let (blocks, bs) = (geo.desc_blocks(), geo.block_bytes);
    let together = blocks.min(geo.first_meta_bg);
    let mut next = 0;
    while next < blocks {
        let pieces: Vec<(u32, u32)> = if next < together {
            vec![(next, (together - next).min((READ_BYTES / bs) as u32))]
        } else {
            (next..blocks.min(next + READS_AT_ONCE)).map(|n| (n, 1)).collect()
        };
        let reads = pieces.iter().map(|&(n, len)| {
            let room = (0..len).map(|_| Block::zeroed(bs)).collect();
            disk.read(geo.desc_block(n).0 * bs as u64, room)
        });
        for read in all(reads.collect()).await {
            for block in read? {
                each(next, block.bytes());
                next += 1;
            }
        }
    }
    Ok(())
}

/// The same through the cache, where they stay.
async fn load_descriptors(
    cache: &Rc<Cache>,
    geo: &Geometry,
    mut each: impl FnMut(u32, &[u8]),
) -> Result<(), DiskError> {
    let together = u64::from(geo.desc_blocks().min(geo.first_meta_bg));
    let mut bufs = cache.get_run(geo.desc_block(0), together, BufKind::Meta).await?;
    for n in bufs.len() as u32..geo.desc_blocks() {
        bufs.push(cache.get(geo.desc_block(n), BufKind::Meta).await?);
    }
    for (n, buf) in (0..).zip(&bufs) {
        each(n, &buf.bytes());
        buf.set_checked(0);
    }
    Ok(())
}

/// What is found of the groups when a volume is opened.
pub(crate) struct Surveyed {
    pub(crate) groups: Groups,
    /// The volume's own blocks (superblocks, descriptors, bitmaps, inode tables, mmp's) as runs,
    /// in order.
    pub(crate) own: Vec<Extent>,
}

/// Looks at all descriptors. Counts that cannot be, which a crash may leave, matter only to who
/// allocates. Errors: `Corrupt`, also where two of the volume's own structures are said to be in
/// one place.
pub(crate) async fn survey(
    cache: &Rc<Cache>,
    geo: &Geometry,
    read_only: bool,
) -> Result<Surveyed, LoadError> {
    let mut counts = Vec::with_capacity(geo.groups as usize);
    let mut own = Own::default();
    own.all.extend(geo.mmp.map(|start| Extent { start, len: 1 }));
    let mut sound = Ok(());
    let each = |n: u32, block: &[u8]| {
        let first = GroupNo(n * geo.descs_per_block());
        let looked = decode(geo, first, block, |g, desc| {
            let (blocks, inodes) = (geo.group_blocks(g), geo.inodes_per_group);
            if (desc.free_blocks > blocks || desc.free_inodes > inodes) && !read_only {
                let what = format!("group {g} counts more free than it has");
                return Err(FormatError::corrupt(what, format!("group descriptor {g}")));
            }
            counts.push(Counts::of(desc));
            own.add_group(geo, g, desc);
            Ok(())
        });
        if sound.is_ok() {
            sound = looked;
        }
    };
    if are_kept(cache, geo) {
        load_descriptors(cache, geo, each).await?;
    } else {
        scan_descriptors(cache.disk(), geo, each).await?;
    }
    sound?;
    assert_eq!(counts.len(), geo.groups as usize, "each group has a descriptor");
    Ok(Surveyed { groups: Groups::new(counts), own: own.finish()? })
}

/// Runs in the making. Those of flexible groups grow at several places at once.
#[derive(Default)]
struct Own {
    all: Vec<Extent>,
    growing: Vec<Extent>,
}

impl Own {
    fn add_group(&mut self, geo: &Geometry, g: GroupNo, d: &GroupDesc) {
        let overhead = geo.overhead(g).min(geo.group_blocks(g));
        if overhead > 0 {
            self.add(geo.group_start(g).0, u64::from(overhead));
        }
        self.add(d.block_bitmap, 1);
        self.add(d.inode_bitmap, 1);
        self.add(d.inode_table, u64::from(geo.inode_table_blocks()));
    }

    fn add(&mut self, start: u64, len: u64) {
        let found = self.growing.iter().position(|e| e.start.0 + e.len == start);
        let run = match found {
            Some(n) => {
                let e = self.growing.remove(n);
                Extent { len: e.len + len, ..e }
            }
            None => Extent { start: BlockNo(start), len },
        };
        self.growing.push(run);
        if self.growing.len() > GROWING {
            self.all.push(self.growing.remove(0));
        }
    }

    fn finish(mut self) -> Result<Vec<Extent>, FormatError> {
        self.all.append(&mut self.growing);
        self.all.sort_unstable();
        let overlap = self.all.windows(2).find(|w| w[0].start.0 + w[0].len > w[1].start.0);
        if let Some(w) = overlap {
            let what = "two of the volume's own structures are said to be in one place";
            return Err(FormatError::corrupt(what, format!("block {}", w[1].start)));
        }
        self.all.dedup_by(|next, last| {
            let follows = last.start.0 + last.len == next.start.0;
            last.len += if follows { next.len } else { 0 };
            follows
        });
        self.all.shrink_to_fit();
        Ok(self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixteen groups at a time have their bitmaps and tables together, and few runs come of it.
    #[test]
    fn runs_of_flexible_groups_are_joined() {
        let mut own = Own::default();
        let mut naive = std::collections::BTreeSet::new();
        for flex in 0..50u64 {
            for i in 0..16 {
                let base = flex * 16 * 8192 + 1;
                let pieces = [
                    (base + i, 1),
                    (base + 16 + i, 1),
                    (base + 32 + i * 7, 7),
                    (base + i * 8192 + 8000, if i == 3 { 2 } else { 0 }),
                ];
                for (start, len) in pieces.into_iter().filter(|p| p.1 > 0) {
                    own.add(start, len);
                    naive.extend(start..start + len);
                }
            }
        }
        assert!(own.all.len() < 50 * 6, "{} runs in the making", own.all.len());
        let runs = own.finish().unwrap();
        assert_eq!(runs.len(), 100, "one of each sixteen groups, and one block apart");
        let joined: Vec<u64> = runs.iter().flat_map(|e| e.start.0..e.start.0 + e.len).collect();
        assert!(joined.iter().eq(naive.iter()));
    }

    #[test]
    fn two_in_one_place_are_seen() {
        for (a, b) in [((10, 4), (13, 1)), ((10, 1), (10, 1)), ((20, 9), (10, 11))] {
            let mut own = Own::default();
            own.add(a.0, a.1);
            own.add(100, 3);
            own.add(b.0, b.1);
            assert!(own.finish().is_err(), "{a:?} and {b:?}");
        }
    }
}

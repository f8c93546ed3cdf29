//! Group descriptors. A descriptor is a block of the cache like a bitmap, which comes when it is
//! wanted and may go when nobody holds it: a volume of half a million groups needs no more memory
//! than its counts, which survey.rs gathers from all of them once.
//!
//! Invariants:
//! * D1. A descriptor says what it was told, and where its group's bitmaps and table lie never
//!   changes.

use crate::Ext;
use crate::plants::DESC_BEHIND;
use cache::{Buf, BufKind, Cache, Role};
use env::{Block, Disk, DiskError, all};
use format::ext::{Geometry, GroupDesc};
use format::{FormatError, GroupNo};
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
/// Reads of descriptors that lie apart (meta_bg), at one time: enough to keep a disk busy, and few
/// enough for the reads of others between them.
const READS_AT_ONCE: u32 = 256;

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
        let places = |d: &GroupDesc| (d.block_bitmap, d.inode_bitmap, d.inode_table);
        let old = self.get();
        assert_eq!(places(&old), places(desc), "D1: a descriptor's bitmaps and table move");
        if self.left_behind && !self.buf.is_dirty() {
            return self.buf.derive(|b| desc.encode(&mut b[self.range()]));
        }
        txn.edit_words(&self.buf, self.range(), Change::Counts, |b| desc.encode(b));
        let said = |d: GroupDesc| (places(&d), d.free_blocks, d.free_inodes, d.flags);
        assert_eq!(said(self.get()), said(*desc), "D1: a descriptor, read once more");
    }
}

impl Ext {
    fn desc_in(&self, buf: Buf, g: GroupNo) -> Desc {
        let left_behind = self.plant.is(DESC_BEHIND) && !are_kept(&self.cache, &self.geo);
        self.mark(&buf, Role::Descriptors(g.0 - g.0 % self.geo.descs_per_block()));
        let place = self.geo.desc_place(g);
        let fits = place.0 == buf.block() && place.1 + self.geo.desc_bytes <= self.block_bytes();
        assert!(fits, "D1: group {g}'s descriptor is looked for at byte {} of {buf:?}", place.1);
        Desc { buf, at: place.1, len: self.geo.desc_bytes, left_behind }
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
pub(crate) fn are_kept(cache: &Cache, geo: &Geometry) -> bool {
    geo.desc_blocks() <= IN_CACHE.min((cache.capacity() / PART_OF_CACHE) as u32)
}

/// Calls `each` for the descriptors of a block, the first of which is group `first`'s.
/// Errors: `Corrupt`, also for those that point to where their group cannot have anything.
pub(crate) fn decode(
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
pub(crate) async fn load_descriptors(
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

//! Making an empty store: its shape by the disk's size, its first checkpoint, and the superblock
//! last. It opens nothing.

use crate::checkpoint::{self, CHUNKS_MAX};
use crate::geometry::{BLOCK, BLOCK_BYTES, FIRST, Geometry, Place, SLOTS, SegNo};
use crate::measure::Speed;
use crate::policy::Lifespans;
use crate::possible::are_chunks;
use crate::snapshot::Snapshots;
use crate::summary::{Epoch, Serial};
use crate::superblock::Superblock;
use crate::totals::Totals;
use env::{Block, Disk, DiskError, Durability};
use std::rc::Rc;

/// How to make a store.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// The store's name.
    pub uuid: [u8; 16],
    /// Bytes in a segment, a multiple of [`BLOCK_BYTES`]; None: by the disk's size.
    pub segment_bytes: Option<u64>,
    /// Bytes of the virtual disk; None: as many as the disk below can hold however they are
    /// written. More than those: it is thin ([`Geometry::is_thin`]).
    pub virtual_bytes: Option<u64>,
    /// Segments that are written at the same time, 2 to 8; None: by the disk's size.
    pub heads: Option<u8>,
    /// What the disk was measured to take (measure.rs): with it goes the size of segments, and what
    /// policies weigh one way against another by; None: not known.
    pub disk: Option<Speed>,
}

/// Virtual blocks at most.
const VIRTUAL_BLOCKS_MAX: u64 = 1 << 40;

/// Segments at most: each has a place in every checkpoint.
const SEGMENTS_MAX: u64 = 1 << 20;

/// A segment's size at most, if nobody asked for one: the cleaner holds a few in memory.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;

/// From so many segments on, each class of blocks has a head: two segments of each are taken.
const SEGMENTS_FOR_CLASSES: u32 = 512;

/// A segment's size if nobody asked for one: on a disk of this size a table of at most 2^14, and
/// where the disk takes long for an access, what that asks for (matthews-1997), as long as
/// each class of blocks has a head.
fn segment_bytes_for(disk_bytes: u64, speed: Option<Speed>) -> u64 {
    let by_size = match disk_bytes {
        0..=0x3ff_ffff => 64 << 10,
        0x400_0000..=0x3fff_ffff => 256 << 10,
        _ => (512 << 10).max((disk_bytes >> 20).next_power_of_two()),
    };
    let most = disk_bytes / u64::from(SEGMENTS_FOR_CLASSES) * 15 / 16;
    let most = (1 << most.max(1).ilog2()).clamp(by_size, SEGMENT_BYTES_MAX.max(by_size));
    speed.map_or(by_size, |s| s.segment_bytes().next_power_of_two().clamp(by_size, most))
}

/// The shape a store would have. Errors: the disk is too small.
pub fn shape(disk_bytes: u64, options: &FormatOptions) -> Result<Geometry, String> {
    let by_disk = || segment_bytes_for(disk_bytes, options.disk);
    let segment_bytes = options.segment_bytes.unwrap_or_else(by_disk);
    if !segment_bytes.is_multiple_of(BLOCK) || !(8 * BLOCK..=1 << 30).contains(&segment_bytes) {
        return Err(format!("a segment of {segment_bytes} bytes: whole blocks of 4096, 32K to 1G"));
    }
    let segment_blocks = (segment_bytes / BLOCK) as u32;
    let blocks = (disk_bytes / BLOCK).saturating_sub(FIRST + 1);
    let segments = blocks / u64::from(segment_blocks);
    if segments > SEGMENTS_MAX {
        let least = (disk_bytes / SEGMENTS_MAX).next_power_of_two().max(segment_bytes + BLOCK);
        return Err(format!(
            "{segments} segments of {segment_bytes} bytes: at most {SEGMENTS_MAX}, so at least \
             {least} bytes each (--segment-size)"
        ));
    }
    let segments = segments as u32;
    let by_size = if segments < SEGMENTS_FOR_CLASSES { 2 } else { Lifespans::CLASSES as u8 };
    let heads = options.heads.unwrap_or(by_size);
    if !(2..=8).contains(&heads) {
        return Err(format!("{heads} segments written at the same time: 2 to 8"));
    }
    let mut g = Geometry { segment_blocks, segments, virtual_blocks: blocks, heads };
    // In the worst case each segment with a part of a checkpoint is named by itself.
    if g.body_bytes_max().div_ceil(segment_bytes) + 1 > CHUNKS_MAX as u64 {
        return Err(format!(
            "{segments} segments of {segment_bytes} bytes: a checkpoint of so many would lie in \
             more of them than it can name; choose larger ones (--segment-size)"
        ));
    }
    let whole = g.capacity();
    if whole < 16 {
        return Err(format!(
            "a disk of {disk_bytes} bytes is too small for segments of \
                            {segment_bytes}"
        ));
    }
    g.virtual_blocks = options.virtual_bytes.map_or(whole, |b| b / BLOCK);
    if g.virtual_blocks > VIRTUAL_BLOCKS_MAX {
        let most = VIRTUAL_BLOCKS_MAX * BLOCK;
        return Err(format!("{} bytes: at most {most}", g.virtual_blocks * BLOCK));
    }
    Ok(g)
}

/// Makes an empty store. Errors: the disk is too small, or failed.
pub async fn format(disk: &Rc<dyn Disk>, options: &FormatOptions) -> Result<Geometry, String> {
    let bytes = disk.size_bytes();
    let geometry = shape(bytes, options)?;
    let superblock = Superblock { uuid: options.uuid, geometry, speed: options.disk };
    let seed = superblock.seed();
    let text = |e: DiskError| e.to_string();
    let heads: Vec<_> =
        (0..u32::from(geometry.heads)).map(|h| (SegNo(2 * h), 0, SegNo(2 * h + 1))).collect();
    let empty = |n: u32| checkpoint::SavedSegment {
        live: 0,
        youngest: 0,
        free: n > 2 * u32::from(geometry.heads),
        table: n == 2 * u32::from(geometry.heads),
    };
    let body = checkpoint::Body {
        generation: 1,
        serial: Serial::default(),
        epoch: Epoch::default(),
        stamp: 0,
        last_sum: 0,
        heads,
        segments: (0..geometry.segments).map(empty).collect(),
        runs: Vec::new(),
        ranges: Vec::new(),
        totals: Totals::default(),
        snapshots: Snapshots::default(),
    };
    assert_eq!(body.check(&geometry), Ok(()), "I7: what is made could not be opened");
    let raw = body.encode();
    let chunks = body_chunks(&geometry, raw.len());
    let sum = crc32c::crc32c_append(seed, &raw);
    let bytes_of_body = raw.len() as u32;
    let serial = body.serial;
    let slot = checkpoint::Slot {
        generation: 1,
        bytes: bytes_of_body,
        sum,
        chunks,
        serial,
        snapshots: false,
    };
    let lie = are_chunks(&slot.chunks, u64::from(bytes_of_body), &geometry);
    assert!(lie, "I7: {bytes_of_body} bytes of the first checkpoint in {:?}", slot.chunks);
    let zero = vec![Block::zeroed(BLOCK_BYTES); 4];
    disk.write(0, zero, Durability::Cached).await.map_err(text)?;
    let mut parts = raw.chunks(BLOCK_BYTES);
    for (place, n) in &slot.chunks {
        let block = |part: &[u8]| {
            let mut b = Block::zeroed(BLOCK_BYTES);
            b.bytes_mut()[..part.len()].copy_from_slice(part);
            b
        };
        let blocks = parts.by_ref().take(*n as usize).map(block).collect();
        disk.write(place.byte(), blocks, Durability::Cached).await.map_err(text)?;
    }
    disk.flush().await.map_err(text)?;
    for (place, raw) in [
        (SLOTS[1], slot.encode(seed)),
        (Geometry::last_copy(bytes), superblock.encode()),
        (Place(0), superblock.encode()),
    ] {
        disk.write(place.byte(), vec![Block::copy_of(&raw)], Durability::Fua)
            .await
            .map_err(text)?;
    }
    Ok(geometry)
}

/// Where the first checkpoint's body goes: into the segments behind the heads'.
fn body_chunks(g: &Geometry, bytes: usize) -> Vec<crate::run::Chunk> {
    let mut left = bytes.div_ceil(BLOCK_BYTES) as u32;
    let mut chunks = Vec::new();
    for n in 2 * u32::from(g.heads).. {
        if left == 0 {
            break;
        }
        let here = left.min(g.segment_blocks);
        chunks.push((g.start(SegNo(n)), here));
        left -= here;
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slot that names a checkpoint's body has room for as many parts as that may lie in.
    #[test]
    fn a_checkpoint_of_as_many_segments_as_can_be_has_a_slot() {
        let of = |segments: u64, segment_bytes| {
            let options =
                FormatOptions { segment_bytes: Some(segment_bytes), ..FormatOptions::default() };
            shape((segments + 1) * segment_bytes, &options)
        };
        let small = of(SEGMENTS_MAX, 32 << 10);
        assert!(small.is_err_and(|why| why.contains("--segment-size")));
        for (segments, bytes) in [(SEGMENTS_MAX / 2, 32 << 10), (SEGMENTS_MAX, 64 << 10)] {
            let g = of(segments, bytes).unwrap_or_else(|why| panic!("{segments}: {why}"));
            assert!(body_chunks(&g, g.body_bytes_max() as usize).len() <= CHUNKS_MAX);
        }
    }
}

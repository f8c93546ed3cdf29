//! Replaying a journal of the jbd2 family onto its volume: blocks in order, each read only if part
//! of it matters, one flush, and then the journal is an empty one. Until that is durable the
//! journal is as it was, so that a crash in the middle repeats it to the same end.

use crate::journal::Journal;
use crate::place::Place;
use crate::{OpenOptions, Recovered, VolumeError};
use check::ReadBlocks;
use env::{Block, Disk, DiskError, Durability};
use format::BlockNo;
use format::ext::features::incompat;
use format::ext::superblock::SUPERBLOCK_BYTES;
use format::ext::{Geometry, GroupDesc};
use format::ext::{Superblock, superblock::SUPERBLOCK_AT};
use format::jbd2::{JournalSuperblock, superblock as jsb};
use mechanisms::JournalReplay;
use std::rc::Rc;

/// Memory for what is to be written back; a journal that says more is read several times.
const PART_BYTES: usize = 64 << 20;

async fn part(
    at: &Place,
    journal: &Journal,
    sb: &Superblock,
    from: BlockNo,
) -> Result<JournalReplay, VolumeError> {
    let outside = if journal.outside { at.ground.log_reader().await? } else { None };
    let inside = at.reader().await?;
    // Not as many as the volume has by its superblock: one that Linux was enlarging may have blocks
    // in the journal that only the superblock in there counts.
    let blocks = inside.size_bytes() / sb.block_bytes() as u64;
    journal.load_part(outside.as_ref().unwrap_or(&inside), blocks, (from, PART_BYTES))
}

/// The first part of what it holds, all of which was read and is whole. Errors: damage in it.
pub(super) async fn first_part(
    at: &Place,
    journal: &Journal,
    sb: &Superblock,
) -> Result<JournalReplay, VolumeError> {
    part(at, journal, sb, BlockNo(0)).await
}

/// Replays it; the first part has been read. Errors: the device's.
pub(super) async fn replay(
    at: &Place,
    journal: &Journal,
    (sb, first): (&Superblock, JournalReplay),
    o: &OpenOptions,
) -> Result<Recovered, VolumeError> {
    let log = at.ground.log_disk().filter(|_| journal.outside);
    if let Some(log) = &log {
        log.flush().await?;
    }
    let (mut found, mut written) = (first, 0);
    loop {
        written += write_back(&at.disk, &found, sb.block_bytes(), o).await?;
        let Some(next) = found.rest() else { break };
        let last = found.blocks().last();
        assert!(last < Some(next), "V2: the next part begins at {next}, and {last:?} is written");
        found = part(at, journal, sb, next).await?;
    }
    at.disk.flush().await?;
    empty(log.as_ref().unwrap_or(&at.disk), journal, found.next_tid).await?;
    finish(&at.disk).await?;
    Ok(Recovered {
        transactions: found.transactions,
        blocks_scanned: found.blocks_scanned,
        blocks_written: written,
        ..Recovered::default()
    })
}

/// Writes back what a part of the journal says. Returns how many blocks that were.
async fn write_back(
    disk: &Rc<dyn Disk>,
    part: &JournalReplay,
    block_bytes: usize,
    o: &OpenOptions,
) -> Result<u64, DiskError> {
    let all: Vec<_> = part.blocks().collect();
    for (n, block) in all.iter().enumerate() {
        let at = block.0 * block_bytes as u64;
        let inside = at + block_bytes as u64 <= disk.size_bytes();
        assert!(inside, "V2: block {block} of the journal lies beyond the volume's disk");
        let mut bytes = vec![Block::zeroed(block_bytes)];
        if part.needs_current(*block) {
            bytes = disk.read(at, bytes).await?;
        }
        part.apply(*block, bytes[0].bytes_mut());
        disk.write(at, bytes, Durability::Cached).await?;
        let (done, of) = (n as u64 + 1, all.len() as u64);
        o.watch.iter().for_each(|w| w.step("replaying the journal", done, of));
    }
    Ok(all.len() as u64)
}

/// How many blocks and inodes are free, as the group descriptors count them.
pub(crate) async fn count_free(
    disk: &Rc<dyn Disk>,
    geo: &Geometry,
) -> Result<(u64, u32), DiskError> {
    let (mut left, mut free) = (geo.groups as usize, (0u64, 0u32));
    let count = |_: u32, block: &[u8]| {
        for d in block.chunks_exact(geo.desc_bytes).take(left).map(GroupDesc::decode) {
            left -= 1;
            free.0 += u64::from(d.free_blocks) * u64::from(geo.cluster_blocks);
            free.1 = free.1.saturating_add(d.free_inodes);
        }
    };
    ext::scan_descriptors(disk, geo, count).await?;
    Ok(free)
}

/// Sets the totals of what is free: no journal has them up to date.
pub(crate) fn set_free(sb: &mut Superblock, free: (u64, u32)) {
    sb.set_free_blocks(free.0);
    sb.set_free_inodes(free.1);
}

/// The journal is an empty one, durably. `disk` is the one where it lies.
async fn empty(disk: &Rc<dyn Disk>, journal: &Journal, next_tid: u32) -> Result<(), VolumeError> {
    let mut raw = journal.raw.clone();
    jsb::set_tail(&mut raw, 0, next_tid);
    let known = !format::jbd2::incompat::PACKED;
    jsb::set_incompat(&mut raw, journal.superblock.incompat & known);
    let is_empty = |s: JournalSuperblock| s.start == 0 && s.sequence == next_tid;
    let said = JournalSuperblock::decode(&raw).is_ok_and(is_empty);
    assert!(said, "V2: a journal that was replayed is not an empty one, with {next_tid} to come");
    let at = journal.byte_of(journal.superblock_at).expect("it was read there");
    disk.write(at, vec![Block::copy_of(&raw)], Durability::Cached).await?;
    Ok(disk.flush().await?)
}

/// When the journal is empty the volume says so, durably.
async fn finish(disk: &Rc<dyn Disk>) -> Result<(), VolumeError> {
    // As it is now: the replay may have changed it.
    let mut start = disk.read(0, vec![Block::zeroed(4096)]).await?;
    let place = SUPERBLOCK_AT as usize..SUPERBLOCK_AT as usize + SUPERBLOCK_BYTES;
    let decoded = Superblock::decode(&start[0].bytes()[place.clone()]);
    let mut sb = decoded.map_err(|e| VolumeError(e.to_string()))?;
    sb.set_incompat(sb.incompat() & !incompat::RECOVER);
    let geo = Geometry::of(&sb);
    set_free(&mut sb, count_free(disk, &geo).await?);
    start[0].bytes_mut()[place].copy_from_slice(&sb.bytes()[..]);
    disk.write(0, start, Durability::Cached).await?;
    Ok(disk.flush().await?)
}

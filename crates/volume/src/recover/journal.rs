//! Replaying a journal of the jbd2 family onto its volume: blocks in order, each read only if part
//! of it matters, one flush, and then the journal is an empty one. Until that is durable the
//! journal is as it was, so that a crash in the middle repeats it to the same end.

use super::Recovered;
use crate::journal::Journal;
use crate::{Device, VolumeError};
use check::Progress;
use format::BlockNo;
use format::ext::features::incompat;
use format::ext::superblock::SUPERBLOCK_BYTES;
use format::ext::{Geometry, GroupDesc};
use format::ext::{Superblock, superblock::SUPERBLOCK_AT};
use format::jbd2::superblock as jsb;

/// Memory for what is to be written back; a journal that says more is read several times.
const PART_BYTES: usize = 64 << 20;

/// Replays it; `log` is the device where it lies, if that is another. Errors: damage in what it
/// holds, and then nothing was written.
pub(super) fn replay(
    (device, mut log): (&mut dyn Device, Option<&mut dyn Device>),
    journal: &Journal,
    sb: &Superblock,
    progress: &mut dyn Progress,
) -> Result<Recovered, VolumeError> {
    let blocks = sb.blocks();
    let (mut from, mut written) = (BlockNo(0), 0);
    let found = loop {
        let at = match &log {
            Some(l) if journal.outside => l.reader(),
            _ => device.reader(),
        };
        let part = journal.load_part(at, blocks, (from, PART_BYTES))?;
        written += write_back(device, &part, sb.block_bytes(), progress)?;
        match part.rest() {
            Some(next) => from = next,
            None => break part,
        }
    };
    device.writer().flush()?;
    match &mut log {
        Some(l) if journal.outside => empty(*l, journal, found.next_tid)?,
        _ => empty(device, journal, found.next_tid)?,
    }
    finish(device)?;
    Ok(Recovered {
        mode: None,
        repaired: 0,
        transactions: found.transactions,
        blocks_scanned: found.blocks_scanned,
        blocks_written: written,
        at_opening: false,
    })
}

/// Writes back what a part of the journal says. Returns how many blocks that were.
fn write_back(
    device: &mut dyn Device,
    part: &mechanisms::JournalReplay,
    block_bytes: usize,
    progress: &mut dyn Progress,
) -> Result<u64, VolumeError> {
    let all: Vec<_> = part.blocks().collect();
    for (n, block) in all.iter().enumerate() {
        let at = block.0 * block_bytes as u64;
        let mut bytes = vec![0; block_bytes];
        if part.needs_current(*block) {
            device.reader().read_at(at, &mut bytes)?;
        }
        part.apply(*block, &mut bytes);
        device.writer().write_at(at, &bytes)?;
        progress.step("replaying the journal", n as u64 + 1, all.len() as u64);
    }
    Ok(all.len() as u64)
}

/// The totals of what is free, from the groups': no journal has them up to date.
fn count_free(device: &mut dyn Device, sb: &mut Superblock) -> Result<(), VolumeError> {
    let geo = Geometry::of(sb);
    let mut raw = vec![0; geo.desc_blocks() as usize * geo.block_bytes];
    for (n, block) in raw.chunks_exact_mut(geo.block_bytes).enumerate() {
        device.reader().read_at(geo.desc_block(n as u32).0 * geo.block_bytes as u64, block)?;
    }
    set_free(sb, &raw);
    Ok(())
}

/// Sets the totals of what is free from the group descriptors' blocks.
pub(crate) fn set_free(sb: &mut Superblock, descs: &[u8]) {
    let groups = descs.chunks_exact(sb.desc_bytes()).take(sb.groups() as usize);
    let free = groups.map(GroupDesc::decode).fold((0u64, 0u32), |(blocks, inodes), d| {
        (blocks + u64::from(d.free_blocks), inodes.saturating_add(d.free_inodes))
    });
    sb.set_free_blocks(free.0);
    sb.set_free_inodes(free.1);
}

/// The journal is an empty one, durably. `device` is the one where it lies.
fn empty(device: &mut dyn Device, journal: &Journal, next_tid: u32) -> Result<(), VolumeError> {
    let mut raw = journal.raw.clone();
    jsb::set_tail(&mut raw, 0, next_tid);
    let known = !format::jbd2::incompat::PACKED;
    jsb::set_incompat(&mut raw, journal.superblock.incompat & known);
    let at = journal.byte_of(journal.superblock_at).expect("it was read there");
    device.writer().write_at(at, &raw)?;
    Ok(device.writer().flush()?)
}

/// When the journal is empty the volume says so, durably.
fn finish(device: &mut dyn Device) -> Result<(), VolumeError> {
    // As it is now: the replay may have changed it.
    let mut start = [0; 4096];
    device.reader().read_at(0, &mut start)?;
    let place = SUPERBLOCK_AT as usize..SUPERBLOCK_AT as usize + SUPERBLOCK_BYTES;
    let decoded = Superblock::decode(&start[place.clone()]);
    let mut sb = decoded.map_err(|e| VolumeError(e.to_string()))?;
    sb.set_incompat(sb.incompat() & !incompat::RECOVER);
    count_free(device, &mut sb)?;
    start[place].copy_from_slice(&sb.bytes()[..]);
    device.writer().write_at(0, &start)?;
    device.writer().flush()?;
    Ok(())
}

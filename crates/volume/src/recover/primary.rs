//! A damaged primary superblock, or a damaged inode of the journal, where the journal or a log
//! holds something. A repair that makes them anew would throw away what was committed: they are
//! written first, from their copies, so that it can be replayed.

use crate::discard::change;
use crate::{Device, VolumeError, journal};
use check::{journal_inode_of, locate};
use format::ext::Geometry;
use format::ext::features::incompat;
use format::ext::superblock::{STATE_ERROR, STATE_VALID, SUPERBLOCK_AT};

/// Writes the primary superblock from a copy if it is damaged and there is something to replay;
/// says from which group's. The volume is then marked as damaged, and needs recovery. Errors: the
/// device's, or there is no superblock at all.
pub fn restore_primary(device: &mut dyn Device) -> Result<Option<u32>, VolumeError> {
    let found = locate(device.reader())?;
    let Some(group) = found.copy_of else { return Ok(None) };
    let mut sb = found.superblock;
    let journal = journal::find(device.reader(), &sb).ok().flatten();
    if journal.is_none_or(|j| j.is_empty()) {
        return Ok(None);
    }
    sb.set_incompat(sb.incompat() | incompat::RECOVER);
    sb.set_state(sb.state() & !STATE_VALID | STATE_ERROR);
    sb.set_last_orphan(0);
    device.writer().write_at(SUPERBLOCK_AT, &sb.bytes()[..])?;
    device.writer().flush()?;
    Ok(Some(group))
}

/// Writes the journal's inode from the superblock's copy of it, if it is damaged, the copy leads to
/// a journal, and that is to be replayed; says whether it has. The volume is then marked as
/// damaged. Errors: the device's, or there is no superblock at all.
pub fn restore_journal(device: &mut dyn Device, now_secs: u32) -> Result<bool, VolumeError> {
    let found = locate(device.reader())?;
    let (sb, geo) = (&found.superblock, Geometry::of(&found.superblock));
    let Some(ino) = sb.journal_ino() else { return Ok(false) };
    let waits = found.copy_of.is_none() && sb.has_incompat(incompat::RECOVER);
    if !waits || journal::find(device.reader(), sb).is_ok() {
        return Ok(false);
    }
    let Some(mut raw) = journal_inode_of(sb, geo.inode_bytes, now_secs) else { return Ok(false) };
    if journal::of_inode(device.reader(), &geo, &raw).is_err() {
        return Ok(false);
    }
    geo.sums.seal_inode(ino, &mut raw);
    let (block, offset) = journal::inode_place(device.reader(), &geo, ino)?;
    change(device, |sb| sb.set_state(sb.state() & !STATE_VALID | STATE_ERROR))?;
    let at = block.0 * geo.block_bytes as u64;
    let mut table = vec![0; geo.block_bytes];
    device.reader().read_at(at, &mut table)?;
    table[offset..offset + raw.len()].copy_from_slice(&raw);
    device.writer().write_at(at, &table)?;
    device.writer().flush()?;
    Ok(true)
}

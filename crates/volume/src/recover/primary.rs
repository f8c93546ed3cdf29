//! A damaged primary superblock whose journal or log holds something. The copies do not know of
//! that, and a repair from them alone would throw away what was committed: the primary is written
//! first, so that it can be replayed.

use crate::{Device, VolumeError, journal};
use check::locate;
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

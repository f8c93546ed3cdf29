//! Giving up what a journal or a log holds: knowingly, where it cannot be read. The volume is
//! marked as damaged before and after, so that nobody uses it before it was checked.

use crate::journal::Journal;
use crate::probe::{Probe, probe};
use crate::{Device, VolumeError};
use format::ext::features::incompat;
use format::ext::superblock::{STATE_ERROR, SUPERBLOCK_AT, SUPERBLOCK_BYTES, Superblock};
use format::jbd2::{superblock as jsb, unforeseen};

/// So much at the beginning of a log says which it is.
const LOG_HEAD_BYTES: usize = 8192;

/// Makes the volume's journal an empty one, whatever it or a log stands for holds. Returns what was
/// given up, as a sentence; None: there was nothing. One that cannot be found is left to the check.
/// Errors: the journal is not inside, or the device failed; then it can be run again.
pub fn discard_log(device: &mut dyn Device) -> Result<Option<String>, VolumeError> {
    let p = probe(device.reader())?;
    if let Some(why) = &p.read_only {
        return Err(VolumeError(why.clone()));
    }
    if !p.needs_recovery {
        return Ok(None);
    }
    let Some(journal) = &p.journal else {
        let Some(fault) = &p.journal_fault else {
            let why = "its journal is not inside: e2fsck empties one on another device";
            return Err(VolumeError(why.into()));
        };
        // A check makes it anew.
        change(device, |sb| {
            sb.set_state(sb.state() | STATE_ERROR);
            sb.set_incompat(sb.incompat() & !incompat::RECOVER);
        })?;
        return Ok(Some(format!(
            "given up: whatever its journal held, which cannot be found: {fault}"
        )));
    };
    let mut raw = journal.unguarded(number_behind(device, &p, journal)?);
    if !journal.is_redo() {
        jsb::set_incompat(&mut raw, journal.superblock.incompat & !format::jbd2::incompat::PACKED);
    }
    change(device, |sb| sb.set_state(sb.state() | STATE_ERROR))?;
    let at = journal.byte_of(0).ok_or_else(|| VolumeError("the journal has no blocks".into()))?;
    device.writer().write_at(at, &raw)?;
    device.writer().flush()?;
    change(device, |sb| sb.set_incompat(sb.incompat() & !incompat::RECOVER))?;
    let mode = p.last_mode().unwrap_or("of another program");
    let outside = p.state().is_some_and(|s| s.log_uuid != [0; 16]);
    let place = if outside { "the log on another device" } else { "its journal" };
    Ok(Some(format!(
        "given up: what {place} held of mode {mode}, which is everything that was done, fsynced or \
         not, and had not been written back yet"
    )))
}

/// The number of the next transaction: no number of one that may be in there comes again, and none
/// that users know who have bytes in there. It follows from what only who reads the disk knows: the
/// name of a log that lies there, if that is not just what is damaged, and the key of handles.
fn number_behind(device: &dyn Device, p: &Probe, journal: &Journal) -> Result<u32, VolumeError> {
    let (mut secret, bs) = (journal.raw.clone(), journal.raw.len());
    for n in 1..=(LOG_HEAD_BYTES.div_ceil(bs) as u32) {
        let at = journal.byte_of(n).ok_or_else(|| VolumeError("the journal is cut".into()))?;
        let mut block = vec![0; bs];
        // What cannot be read is no secret, and may be why all of this is given up.
        if device.reader().read_at(at, &mut block).is_ok() {
            secret.extend(block);
        }
    }
    let key = p.state().map_or([0; 16], |s| s.handle_key);
    let seed = p.superblock.hash_seed().map(u32::to_le_bytes).concat();
    Ok(unforeseen(&[&key, &seed, &secret]))
}

/// Changes the superblock, durably.
pub(crate) fn change(
    device: &mut dyn Device,
    f: impl FnOnce(&mut Superblock),
) -> Result<(), VolumeError> {
    let mut start = [0; 4096];
    device.reader().read_at(0, &mut start)?;
    let place = SUPERBLOCK_AT as usize..SUPERBLOCK_AT as usize + SUPERBLOCK_BYTES;
    let decoded = Superblock::decode(&start[place.clone()]);
    let mut sb = decoded.map_err(|e| VolumeError(e.to_string()))?;
    f(&mut sb);
    start[place].copy_from_slice(&sb.bytes()[..]);
    device.writer().write_at(0, &start)?;
    Ok(device.writer().flush()?)
}

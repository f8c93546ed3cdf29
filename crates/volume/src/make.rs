//! Making a volume: writes what `format::mkfs` plans, the primary superblock last.

use crate::{Device, VolumeError};
use format::jbd2::device::JournalDevice;
use format::mkfs::{MkfsOptions, Plan};

/// Zeros written at once.
const CHUNK: usize = 1 << 20;

/// Makes a volume on the device. `fresh`: the device reads as zeros already (a new sparse file).
/// Returns how many blocks it has.
pub fn make(
    device: &mut dyn Device,
    options: &MkfsOptions,
    fresh: bool,
) -> Result<u64, VolumeError> {
    let plan = Plan::new(options).map_err(|e| VolumeError(e.to_string()))?;
    let bs = plan.geometry().block_bytes as u64;
    if !fresh {
        // An old volume's superblock goes first, so that a half-made volume is none; then its
        // remains.
        let zeros = vec![0; CHUNK];
        let start = device.reader().size_bytes().min(64 * 1024) as usize;
        device.writer().write_at(0, &zeros[..start])?;
        device.writer().flush()?;
        for e in plan.zeros() {
            let (mut at, end) = (e.start.0 * bs, (e.start.0 + e.len) * bs);
            while at < end {
                let n = (end - at).min(CHUNK as u64);
                device.writer().write_at(at, &zeros[..n as usize])?;
                at += n;
            }
        }
    }
    let writer = device.writer();
    plan.each_block(|b, bytes| writer.write_at(b.0 * bs, bytes))?;
    writer.flush()?;
    Ok(plan.geometry().blocks)
}

/// Makes an empty journal on a device of its own, for the volume `user`. `fresh`: the device reads
/// as zeros already.
pub fn make_journal(
    device: &mut dyn Device,
    journal: &JournalDevice,
    user: &[u8; 16],
    (fresh, now_secs): (bool, u32),
) -> Result<(), VolumeError> {
    let bs = journal.block_bytes as u64;
    if !fresh {
        let zeros = vec![0; CHUNK];
        let (mut at, end) = (0, u64::from(journal.blocks) * bs);
        while at < end {
            let n = (end - at).min(CHUNK as u64);
            device.writer().write_at(at, &zeros[..n as usize])?;
            at += n;
        }
        device.writer().flush()?;
    }
    for (b, bytes) in journal.encode_new(user, now_secs) {
        device.writer().write_at(b.0 * bs, &bytes)?;
    }
    Ok(device.writer().flush()?)
}

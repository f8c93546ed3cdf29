//! Making a volume: writes what `format::mkfs` plans, the primary superblock last.

use crate::{Device, VolumeError};
use format::bytes::le16;
use format::ext::superblock::{MAGIC, SUPERBLOCK_BYTES};
use format::jbd2::device::JournalDevice;
use format::mkfs::{MkfsOptions, Plan};

/// Zeros written at once.
const CHUNK: usize = 1 << 20;
/// The largest blocks that any volume has are 1024 << this.
const BLOCK_LOG_MAX: u32 = 6;
/// Where a superblock has its magic number.
const MAGIC_AT: usize = 0x38;

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
        wipe_copies(device, plan.geometry().blocks * bs)?;
    }
    let (writer, blocks) = (device.writer(), plan.geometry().blocks);
    plan.each_block(|b, bytes| {
        let inside = b.0 * bs + bytes.len() as u64 <= blocks * bs;
        assert!(inside, "V4: block {b} of {blocks} is made, of {} bytes", bytes.len());
        writer.write_at(b.0 * bs, bytes)
    })?;
    writer.flush()?;
    Ok(plan.geometry().blocks)
}

/// Wipes the copies of superblocks that older volumes have left where a checker would look for
/// them, whatever their blocks' size: with the new primary lost they would be taken for its copies.
/// Only where there is one anything is written, so that a sparse file stays sparse.
fn wipe_copies(device: &mut dyn Device, bytes: u64) -> Result<(), VolumeError> {
    let len = SUPERBLOCK_BYTES as u64;
    let end = bytes.min(device.reader().size_bytes()).saturating_sub(len);
    let mut superblock = [0; SUPERBLOCK_BYTES];
    for block_bytes in (0..=BLOCK_LOG_MAX).map(|log| 1024u64 << log) {
        let first = u64::from(block_bytes == 1024);
        let place =
            |g: u64| (first + g.saturating_mul(8 * block_bytes)).saturating_mul(block_bytes);
        for base in [3u64, 5, 7] {
            let powers = std::iter::successors(Some(1u64), |p| p.checked_mul(base));
            for at in powers.map(place).take_while(|at| *at <= end) {
                if device.reader().known_zero(at, len) {
                    continue;
                }
                device.reader().read_at(at, &mut superblock)?;
                if le16(&superblock, MAGIC_AT) == MAGIC {
                    device.writer().write_at(at, &[0; SUPERBLOCK_BYTES])?;
                }
            }
        }
    }
    Ok(())
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
        assert!(b.0 < u64::from(journal.blocks), "V4: block {b} of a journal's device is made");
        device.writer().write_at(b.0 * bs, &bytes)?;
    }
    Ok(device.writer().flush()?)
}

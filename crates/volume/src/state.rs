//! Our private state in the boot area, read and written through the engine's disk: which mode was
//! last used, whether it ended cleanly, the key of file handles.

use env::{Block, Disk, DiskError, Durability};
use format::ext::boot::{self, BOOT_BYTES, BootState, encode};
use format::ext::superblock::SUPERBLOCK_AT;
use std::rc::Rc;

/// Writes the state, durably, into the slot that does not hold the present one. The slot's
/// neighbour in the same block of `unit` bytes is read and kept.
pub(crate) async fn store(disk: &Rc<dyn Disk>, state: &BootState) -> Result<(), DiskError> {
    let (at, bytes) = encode(state);
    let end = (at + bytes.len()) as u64;
    assert!(end <= SUPERBLOCK_AT, "V3: a state up to byte {end} lies over the superblock");
    let mut area = [0; BOOT_BYTES];
    area[at..end as usize].copy_from_slice(&bytes);
    let said = boot::says(&area, state);
    assert!(said, "V3: state {} of mode {} is not read as it is", state.serial, state.mode);
    let mut blocks = vec![Block::copy_of(&bytes)];
    let unit = 4096;
    if disk.size_bytes() >= unit {
        // In whole 4 KiB, as devices with large sectors want it. The superblock lies in here too:
        // it is rewritten as it is, and nobody else writes it at this moment.
        let read = disk.read(0, vec![Block::zeroed(unit as usize)]).await?;
        let mut block = read.into_iter().next().expect("one block was asked for");
        block.bytes_mut()[at..at + bytes.len()].copy_from_slice(&bytes);
        blocks = vec![block];
        return disk.write(0, blocks, Durability::Fua).await;
    }
    disk.write(at as u64, blocks, Durability::Fua).await
}

//! What a journal's blocks look like to a reader that looks for its heads: no copy of a block may
//! begin as a head does. Our own recovery would be saved by the checksums; a journal without them,
//! and whoever reads it, depends on the escape.

use crate::subject::SimDevice;
use check::ReadBlocks;
use format::jbd2::{Head, MAGIC};
use sim::Image;

/// The first block of the journal that begins as a head and is none.
pub(crate) fn false_head(disks: &[Image]) -> Option<String> {
    let device = SimDevice(disks[0].clone());
    let log = disks.get(1).map(|d| SimDevice(d.clone()));
    let mut found = volume::probe(&device).ok()?;
    log.as_ref().map_or(Ok(()), |l| found.attach(l)).ok()?;
    let journal = found.journal?;
    let device = log.filter(|_| journal.outside).unwrap_or(device);
    let mut block = vec![0; journal.superblock.block_bytes as usize];
    (journal.superblock.first..journal.superblock.blocks).find_map(|n| {
        device.read_at(journal.byte_of(n)?, &mut block).ok()?;
        let begins = block[..4] == MAGIC.to_be_bytes();
        let found = begins && Head::decode(&block).is_none();
        found.then(|| format!("journal block {n} begins as a head and is none"))
    })
}

//! What the log-structured stores, on a disk and in a bucket, are given: groups of changes as the
//! mechanism of their mode says them, and the blocks of a new volume. Where either ends up it does
//! not know.

use env::{Block, Disk, DiskError, Durability};
use format::BlockNo;
use format::mkfs::Plan;
use lfs::{Change, Group, Virt};
use mechanisms::GroupChange;

/// The group as the store knows it: a block of the volume is a virtual block.
pub(crate) fn group_of(group: Vec<GroupChange>) -> Group {
    let virt = |b: BlockNo| Virt(b.0);
    let change = |c| match c {
        GroupChange::Whole(b, block) => Change::Whole(virt(b), block),
        GroupChange::Bytes(b, ranges, image) => Change::Bytes { v: virt(b), ranges, image },
        GroupChange::Free(e) => Change::Free(virt(e.start), e.len),
        GroupChange::Note(note) => Change::Note(note),
    };
    Group { changes: group.into_iter().map(change).collect() }
}

/// Writes a new volume into its store. Errors: the store's.
pub(crate) async fn fill(store: &dyn Disk, plan: &Plan) -> Result<(), DiskError> {
    let mut blocks = Vec::new();
    plan.each_block(|b, bytes| {
        blocks.push((b, Block::copy_of(bytes)));
        Ok::<(), DiskError>(())
    })?;
    let bs = plan.geometry().block_bytes as u64;
    for (b, block) in blocks {
        let inside = (b.0 + 1) * bs <= store.size_bytes();
        assert!(inside, "V4: block {b} of a store of {} bytes is made", store.size_bytes());
        store.write(b.0 * bs, vec![block], Durability::Cached).await?;
    }
    Ok(())
}

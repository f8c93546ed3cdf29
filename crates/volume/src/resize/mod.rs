//! Growing a closed volume. What is added are whole structures of new groups, and the volume is at
//! every moment one of the old size or one of the new: a cut leaves it clean, or marked as to be
//! checked, and then a check finds everything that it held.
//!
//! It is written in five steps, each durable before the next begins:
//!
//! R1 What lies beyond the old end: bitmaps, inode tables, copies of the superblock and of the
//! descriptors in new groups. The volume of the old size knows nothing of it and stays clean.
//! R2 The mark, in the primary superblock, that it is to be checked. From here on nobody uses it
//! before that was done: the last group's bitmap is about to call blocks free that the old
//! superblock does not have.
//! R3 What changes inside: the descriptors, the last group's bitmap and what leads to the blocks
//! reserved for growth. The primary superblock still has the old size, for which new descriptors
//! are padding; what was reserved and is not any more a check makes anew.
//! R4 The backups inside. A check that finds two backups agreed believes them rather than the
//! primary, so they are written only after everything that they describe.
//! R5 The primary superblock, with the new size and without the mark: one sector says so.
//!
//! Invariants  Z1 each of these steps writes what is its own, and nothing else.
//!             Z2 what is in use of a new group lies in it or in the first of its neighbours, and
//!             behind the old end.
//!             Z3 of what was there the descriptors of the last group change, and of the group
//!             where inode 7 had a block; what becomes free was in use.
//!             Z4 the superblock that is written at the end is that of the geometry that all else
//!             was written for.

mod groups;
mod inside;
mod target;

use crate::{Device, VolumeError, probe};
use check::{Options, Progress};
use format::BlockNo;
use format::ext::Geometry;
use format::ext::superblock::{
    STATE_ERROR, STATE_VALID, SUPERBLOCK_AT, SUPERBLOCK_BYTES, Superblock,
};
use groups::NewGroups;
use inside::Inside;
use std::ops::Range;
use target::Target;

/// What a volume of another size would be.
pub enum Resize {
    /// It is larger than that.
    Smaller {
        /// How many bytes it has.
        bytes: u64,
        /// How many of these are in use.
        used: u64,
    },
    /// It is as large as that, or too little would be added for another group.
    Same,
    /// It can grow.
    Larger(Box<Growth>),
}

/// A growth that is possible, and not begun.
pub struct Growth {
    target: Target,
    now_secs: u32,
}

/// Looks at the volume as a whole and says what making it `size_bytes` long would be. Nothing is
/// written. Errors: it is not closed, not sound, or cannot grow that far; the sentence says what to
/// do.
pub fn resize(
    device: &dyn Device,
    size_bytes: u64,
    now_secs: u32,
    progress: &mut dyn Progress,
) -> Result<Resize, VolumeError> {
    let found = probe(device.reader())?;
    if let Some(why) = found.read_only {
        return Err(VolumeError(format!("it cannot be enlarged: {why}")));
    }
    if found.needs_recovery || found.superblock.state() & (STATE_VALID | STATE_ERROR) == 0 {
        return Err(VolumeError(format!(
            "it was not closed cleanly: {} finishes what was left, then it can be enlarged",
            found.recovering()
        )));
    }
    let unsound = "it is not sound: `cairn fsck --repair` mends it, then it can be enlarged";
    if !found.superblock.is_clean() {
        return Err(VolumeError(unsound.into()));
    }
    let have = found.superblock.blocks();
    let (blocks, bs) =
        (size_bytes / found.superblock.block_bytes() as u64, found.superblock.block_bytes() as u64);
    if blocks < have {
        let used = have.saturating_sub(found.superblock.free_blocks()) * bs;
        return Ok(Resize::Smaller { bytes: have * bs, used });
    }
    let Some(target) = Target::of(&found.superblock, blocks)? else { return Ok(Resize::Same) };
    let options = Options { now_secs, verify: false, mark_clean: false };
    if !check::check(device.reader(), &options, progress)?.is_sound() {
        return Err(VolumeError(unsound.into()));
    }
    Ok(Resize::Larger(Box::new(Growth { target, now_secs })))
}

impl Growth {
    /// How many bytes the device must have.
    pub fn bytes(&self) -> u64 {
        self.target.new.blocks * self.target.new.block_bytes as u64
    }
    /// Groups, before and after.
    pub fn groups(&self) -> (u32, u32) {
        (self.target.old.groups, self.target.new.groups)
    }
    /// Do descriptors of new groups lie in these from now on (meta_bg)?
    pub fn leaves_reserve(&self) -> bool {
        self.target.new.first_meta_bg != self.target.old.first_meta_bg
    }

    /// Does it, on the device that was looked at, which is long enough now. An error before R2
    /// leaves the volume as it was.
    pub fn apply(
        &self,
        device: &mut dyn Device,
        progress: &mut dyn Progress,
    ) -> Result<(), VolumeError> {
        let t = &self.target;
        assert!(t.before.is_clean(), "R2: it is marked before it was");
        let new = NewGroups::of(t, device.reader());
        let inside = Inside::of(t, &new, device.reader())?;
        let mut sb = t.superblock.clone();
        sb.set_wtime(self.now_secs);
        sb.set_free_blocks(inside.free_blocks);
        sb.set_free_inodes(t.before.free_inodes() + (t.new.inodes() - t.old.inodes()));
        let (free, inodes) = (sb.free_inodes(), sb.inodes());
        assert!(free < inodes, "Z4: {free} of {inodes} inodes are free");
        assert_eq!(Geometry::of(&sb), t.new, "Z4: the superblock is not that of the new volume");
        let beyond = t.old.blocks..t.new.blocks;
        let to = &mut To { device, block_bytes: t.new.block_bytes as u64, may: beyond, step: "R1" };
        new.write(to, progress)?;
        inside.write_copies(to, &sb, true)?;
        to.flush()?; // R1
        let (is, will) = (t.before.blocks(), sb.blocks());
        assert!(is < will, "R5: it grows from {is} to {will} blocks");
        let mut marked = t.before.clone();
        marked.set_state(marked.state() & !STATE_VALID | STATE_ERROR);
        assert!(!marked.is_clean() && sb.is_clean(), "R2: the mark is none, or stays");
        to.put_primary(&marked)?; // R2
        (to.may, to.step) = (0..t.old.blocks, "R3");
        inside.write(to)?;
        to.flush()?; // R3
        to.step = "R4";
        inside.write_copies(to, &sb, false)?;
        to.flush()?; // R4
        sb.forget_overhead();
        to.put_primary(&sb) // R5
    }
}

/// The device, by blocks.
pub(crate) struct To<'a> {
    device: &'a mut dyn Device,
    block_bytes: u64,
    /// The blocks that this step may write.
    may: Range<u64>,
    step: &'static str,
}

impl To<'_> {
    fn put(&mut self, b: BlockNo, bytes: &[u8]) -> Result<(), VolumeError> {
        let end = b.0 + bytes.len() as u64 / self.block_bytes;
        let may = self.may.contains(&b.0) && end <= self.may.end;
        assert!(may, "Z1: {} writes blocks {b} to {end}, and may {:?}", self.step, self.may);
        Ok(self.device.writer().write_at(b.0 * self.block_bytes, bytes)?)
    }
    fn flush(&mut self) -> Result<(), VolumeError> {
        Ok(self.device.writer().flush()?)
    }
    /// The primary superblock, durably, in its block.
    fn put_primary(&mut self, sb: &Superblock) -> Result<(), VolumeError> {
        put_primary(self.device, sb, self.block_bytes)
    }
}

/// Writes the primary superblock, durably, as a part of its block.
pub(crate) fn put_primary(
    device: &mut dyn Device,
    sb: &Superblock,
    block_bytes: u64,
) -> Result<(), VolumeError> {
    assert_eq!(sb.block_bytes() as u64, block_bytes, "Z1: the superblock's blocks are others");
    let start = SUPERBLOCK_AT - SUPERBLOCK_AT % block_bytes;
    let mut block = vec![0; block_bytes as usize];
    device.reader().read_at(start, &mut block)?;
    let at = (SUPERBLOCK_AT - start) as usize;
    block[at..at + SUPERBLOCK_BYTES].copy_from_slice(&sb.bytes()[..]);
    device.writer().write_at(start, &block)?;
    Ok(device.writer().flush()?)
}

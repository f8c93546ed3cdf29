//! The label and the UUID of a closed volume. The superblock's copies get them too, after it: where
//! they are old, nothing is wrong but that they are.
//!
//! Where metadata have checksums, these begin with the UUID. So that not all of them have to be
//! computed anew, what they begin with becomes a field of its own before the UUID changes
//! (metadata_csum_seed), as tune2fs has it: first the field, durably, which means nothing yet, then
//! the feature and the UUID, which lie in one sector.

use crate::resize::put_primary;
use crate::{Device, VolumeError, probe};
use format::GroupNo;
use format::ext::features::{compat, incompat};
use format::ext::superblock::{LABEL, STATE_ERROR, STATE_VALID, SUPERBLOCK_BYTES};
use format::ext::{Geometry, Superblock};

/// Room for a label in the superblock.
pub const LABEL_BYTES_MAX: usize = LABEL.end - LABEL.start;

/// Gives the volume another label, durably. Errors: it cannot be written now, or the device's.
pub fn set_label(device: &mut dyn Device, label: &str) -> Result<(), VolumeError> {
    let mut sb = closed(device)?;
    sb.set_label(label);
    put_primary(device, &sb, sb.block_bytes() as u64)?;
    put_copies(device, &sb)
}

/// Gives the volume another UUID, durably. Errors: something hangs on the one that it has, it
/// cannot be written now, or the device's.
pub fn set_uuid(device: &mut dyn Device, uuid: [u8; 16]) -> Result<(), VolumeError> {
    let mut sb = closed(device)?;
    let (bs, sums) = (sb.block_bytes() as u64, sb.sums());
    if sb.has_compat(compat::STABLE_INODES) {
        let why = "its UUID stays as it is (stable_inodes): what is encrypted on it depends on it";
        return Err(VolumeError(why.into()));
    }
    if sb.journal_is_outside() {
        let why = "its journal is on another device, where it is known by its UUID: `tune2fs -U` \
                   changes both";
        return Err(VolumeError(why.into()));
    }
    use format::ext::csum::Sums;
    let has_seed = sb.has_incompat(incompat::CSUM_SEED) || matches!(sb.sums(), Sums::All(_));
    if sb.has_incompat(incompat::EA_INODE) && !has_seed {
        let why = "values of attributes may be kept in inodes of their own (ea_inode), whose \
                   hashes begin with its UUID, and it has no metadata_csum with which that could \
                   be kept: every such value would be lost";
        return Err(VolumeError(why.into()));
    }
    match sb.sums() {
        Sums::Descriptors(_) => {
            let why = "the sums of its group descriptors begin with its UUID (uninit_bg): \
                       `tune2fs -U` computes them all anew";
            return Err(VolumeError(why.into()));
        }
        Sums::All(_) if !sb.has_incompat(incompat::CSUM_SEED) => {
            sb.keep_seed();
            put_primary(device, &sb, bs)?;
            sb.set_incompat(sb.incompat() | incompat::CSUM_SEED);
        }
        _ => (),
    }
    // A copy with another UUID is damage to a check, so that one comes if this is cut off.
    let copies = copies(&sb);
    sb.set_uuid(uuid);
    assert_eq!(sb.sums(), sums, "V5: the checksums of a renamed volume begin with something else");
    assert_eq!(sb.uuid(), uuid, "V5: a renamed volume has another name");
    if copies.is_empty() {
        return put_primary(device, &sb, bs);
    }
    let state = sb.state();
    sb.set_state(state & !STATE_VALID | STATE_ERROR);
    put_primary(device, &sb, bs)?;
    sb.set_state(state);
    put_copies(device, &sb)?;
    put_primary(device, &sb, bs)
}

/// The superblock of a volume that is closed and may be written.
fn closed(device: &mut dyn Device) -> Result<Superblock, VolumeError> {
    let found = probe(device.reader())?;
    if let Some(why) = &found.read_only {
        return Err(VolumeError(format!("it cannot be changed: {why}")));
    }
    if found.needs_recovery || !found.superblock.is_clean() {
        return Err(VolumeError(format!(
            "it was not closed cleanly: {}, or where that finds damage `cairn fsck --repair`, \
             comes first",
            found.recovering()
        )));
    }
    Ok(found.superblock)
}

fn copies(sb: &Superblock) -> Vec<GroupNo> {
    let geo = Geometry::of(sb);
    (1..geo.groups).map(GroupNo).filter(|g| geo.has_super(*g)).collect()
}

/// Writes the superblock's copies, durably.
fn put_copies(device: &mut dyn Device, sb: &Superblock) -> Result<(), VolumeError> {
    let geo = Geometry::of(sb);
    for g in copies(sb) {
        let mut copy = sb.clone();
        copy.set_group_number(g.0 as u16);
        let mut block = vec![0; geo.block_bytes];
        block[..SUPERBLOCK_BYTES].copy_from_slice(&copy.bytes()[..]);
        device.writer().write_at(geo.group_start(g).0 * geo.block_bytes as u64, &block)?;
    }
    Ok(device.writer().flush()?)
}

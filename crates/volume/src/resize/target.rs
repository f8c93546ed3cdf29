//! What a volume of more blocks is: its superblock and its geometry, or why there is none. Where
//! descriptors need more blocks, these are the ones kept for them; where those do not suffice, a
//! volume of ext4 goes on with descriptors in the groups that they describe (meta_bg), as Linux
//! does.

use crate::VolumeError;
use format::GroupNo;
use format::ext::features::{compat, incompat};
use format::ext::{Geometry, Superblock};

/// Blocks that a last group has at least beside its own metadata, as e2fsprogs wants it.
const LAST_GROUP_MIN: u64 = 50;

/// Before and after.
pub(super) struct Target {
    pub(super) old: Geometry,
    pub(super) new: Geometry,
    pub(super) before: Superblock,
    /// As it will be, but for what is free.
    pub(super) superblock: Superblock,
}

impl Target {
    /// Of a volume with so many blocks, or as many fewer as a last group would be too small. None:
    /// nothing is added.
    pub(super) fn of(before: &Superblock, blocks: u64) -> Result<Option<Target>, VolumeError> {
        let old = Geometry::of(before);
        let (mut sb, mut new) = with(before, blocks)?;
        let last = GroupNo(new.groups - 1);
        if last.0 >= old.groups {
            let own = u64::from(new.overhead(last) + 2 + new.inode_table_blocks());
            if u64::from(new.group_blocks(last)) < own + LAST_GROUP_MIN {
                (sb, new) = with(before, new.group_start(last).0)?;
            }
        }
        if new.blocks <= old.blocks {
            return Ok(None);
        }
        let same = (0..old.groups).map(GroupNo).all(|g| new.overhead(g) == old.overhead(g));
        assert!(same, "Z3: a group that is there has to make room");
        if let Some(g) = (old.groups..new.groups).map(GroupNo).find(|g| !has_room(&new, *g)) {
            let why = format!("group {} would have no room for its own bitmaps and inodes", g.0);
            return Err(VolumeError(format!("it cannot be enlarged so far: {why}")));
        }
        Ok(Some(Target { old, new, before: before.clone(), superblock: sb }))
    }
}

/// Has the group room for what is its own?
fn has_room(geo: &Geometry, g: GroupNo) -> bool {
    geo.overhead(g) + 2 + geo.inode_table_blocks() <= geo.group_blocks(g)
}

/// The superblock of so many blocks.
fn with(before: &Superblock, blocks: u64) -> Result<(Superblock, Geometry), VolumeError> {
    let old = Geometry::of(before);
    let no = |why: String| Err(VolumeError(why));
    if blocks > u64::from(u32::MAX) {
        return no("it cannot get 2^32 blocks or more here: resize2fs makes it that large".into());
    }
    let mut sb = before.clone();
    let share = before.reserved_blocks() as f64 / before.blocks() as f64;
    sb.set_blocks(blocks);
    sb.set_reserved_blocks((share * blocks as f64) as u64);
    let Some(inodes) = sb.groups().checked_mul(old.inodes_per_group) else {
        let most = u32::MAX / old.inodes_per_group;
        let bytes = u64::from(most) * u64::from(old.blocks_per_group) * old.block_bytes as u64;
        return no(format!(
            "it would have more than 2^32 inodes: it can get {bytes} bytes at most"
        ));
    };
    sb.set_inodes(inodes);
    if let Err(most) = make_room(&mut sb, &old) {
        return no(format!(
            "its descriptors have no room for that: it can get {most} bytes at most; `e2fsck -f`, \
             then `resize2fs` moves what is in the way"
        ));
    }
    let geometry = Geometry::of(&sb);
    Ok((sb, geometry))
}

/// Finds room for the descriptors of all groups. Error: there is none; how many bytes the volume
/// can have with what there is.
fn make_room(sb: &mut Superblock, old: &Geometry) -> Result<(), u64> {
    // Of the descriptors' blocks those that lie together behind the superblock.
    let together = |blocks: u32| blocks.min(old.first_meta_bg);
    let has = together(old.desc_blocks());
    let needs = together(sb.groups().div_ceil(old.descs_per_block()));
    let (more, kept) = (needs - has, old.reserved_gdt_blocks);
    if more <= kept {
        if more > 0 {
            sb.set_reserved_gdt_blocks((kept - more) as u16);
        }
        return Ok(());
    }
    if !sb.has_incompat(incompat::EXTENTS) {
        let groups = u64::from(has + kept) * u64::from(old.descs_per_block());
        return Err(groups * u64::from(old.blocks_per_group) * old.block_bytes as u64);
    }
    sb.set_compat(sb.compat() & !compat::RESIZE_INODE);
    sb.set_reserved_gdt_blocks(0);
    sb.set_incompat(sb.incompat() | incompat::META_BG);
    sb.set_first_meta_bg(has + kept);
    Ok(())
}

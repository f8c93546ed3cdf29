//! What the superblock says of the volume's layout, doubted by what lies there. One wrong bit of
//! it, or one number, and all bitmaps and inode tables seem to lie where something else does, or
//! all maps seem to be other than they are: a repair by such a superblock would take the volume
//! apart. Where the descriptors contradict it, and do not contradict what a copy says or the same
//! without that bit, the superblock is what is wrong. It knows nothing of inodes but that they show
//! features.

use crate::CheckError;
use crate::descs::overlapping;
use crate::io::ReadBlocks;
use crate::locate::{COPIES, fixed_numbers, read};
use crate::places::Part;
use format::ext::features::{compat, incompat, ro_compat};
use format::ext::superblock::MAGIC;
use format::ext::{Geometry, GroupDesc, Superblock};
use format::{GroupNo, Ino};
use std::collections::BTreeSet;

/// The features that say where descriptors, bitmaps and inode tables lie.
const COMPAT: u32 = compat::RESIZE_INODE | compat::SPARSE_SUPER2;
const INCOMPAT: u32 = incompat::META_BG | incompat::FLEX_BG | incompat::WIDE;
const RO_COMPAT: u32 = ro_compat::SPARSE_SUPER;
/// So many copies of the superblock are asked.
const COPIES_ASKED: usize = 3;

/// So many are looked for.
const COPIES_LOOKED_FOR: usize = 64;
/// Where a superblock has its mark.
const MAGIC_AT: u64 = 0x38;

/// A superblock with another layout, and what was wrong with the one that was found.
pub(crate) type Settled = (Superblock, String);

/// The superblock with the layout that the descriptors have; None: it says that itself, or nothing
/// says more than it does.
pub(crate) fn settled(
    image: &dyn ReadBlocks,
    found: &Superblock,
) -> Result<Option<Settled>, CheckError> {
    let geo = Geometry::of(found);
    let wrong = wrong_parts(image, &geo)?;
    if wrong == 0 {
        return Ok(None);
    }
    let mut best: Option<(usize, Settled)> = None;
    let mut offer = |other: Superblock, enough: usize, text: String| {
        let is_one = Superblock::decode(other.bytes()).is_ok() && other != *found;
        let left = if is_one { wrong_parts(image, &Geometry::of(&other))? } else { wrong };
        if left <= enough && left < wrong && best.as_ref().is_none_or(|b| left < b.0) {
            best = Some((left, (other, text)));
        }
        Ok::<_, CheckError>(())
    };
    for (g, copy) in copies(image, found)? {
        let text = format!("by its layout {wrong} of the volume's own parts lie where they cannot");
        let text = format!("{text}; set as in the copy in group {g}");
        offer(with_layout_of(found, &copy), wrong / 2, text)?;
    }
    // Without a copy all has to fit, and more than one descriptor to be wrong else.
    if wrong > geo.groups as usize {
        for (other, what) in guesses(found) {
            offer(other, 0, format!("{wrong} of the volume's own parts contradict it; {what}"))?;
        }
    }
    Ok(best.map(|b| b.1))
}

/// So many bitmaps and inode tables lie where they cannot, by the primary descriptors, and so many
/// copies of the superblock are missing.
fn wrong_parts(image: &dyn ReadBlocks, geo: &Geometry) -> Result<usize, CheckError> {
    let (mut descs, mut wrong) = (Vec::new(), BTreeSet::new());
    for n in 0..geo.desc_blocks() {
        let mut bytes = vec![0; geo.block_bytes];
        image.read_at(geo.desc_block(n).0 * geo.block_bytes as u64, &mut bytes)?;
        let left = (geo.groups - n * geo.descs_per_block()).min(geo.descs_per_block());
        let all = bytes.chunks_exact(geo.desc_bytes).take(left as usize);
        descs.extend(all.map(GroupDesc::decode));
    }
    let blocks = u64::from(geo.inode_table_blocks());
    for (g, d) in (0..).map(GroupNo).zip(&mut descs) {
        let may = geo.places_of(g);
        let parts = [
            (Part::Blocks, &mut d.block_bitmap, 1),
            (Part::Inodes, &mut d.inode_bitmap, 1),
            (Part::Table, &mut d.inode_table, blocks),
        ];
        for (part, at, len) in parts {
            if !may.contains(at) || may.end - *at < len {
                wrong.insert((g, part));
            }
            *at = (*at).min(geo.blocks); // with what is added to it no number is too large
        }
    }
    wrong.extend(overlapping(geo, &descs));
    Ok(wrong.len() + missing_copies(image, geo)?)
}

/// So many groups, of the first that should have a copy of the superblock, have none. Where parts
/// may be anywhere, that alone shows that such a group begins with something else.
fn missing_copies(image: &dyn ReadBlocks, geo: &Geometry) -> Result<usize, CheckError> {
    let groups = (1..geo.groups).map(GroupNo).filter(|g| geo.has_super(*g));
    let (mut missing, mut magic) = (0, [0; 2]);
    for g in groups.take(COPIES_LOOKED_FOR) {
        let at = geo.group_start(g).0 * geo.block_bytes as u64;
        image.read_at(at + MAGIC_AT, &mut magic)?;
        missing += usize::from(magic != MAGIC.to_le_bytes());
    }
    Ok(missing)
}

/// The first copies of the superblock that are this volume's, with their groups.
fn copies(image: &dyn ReadBlocks, of: &Superblock) -> Result<Vec<(u32, Superblock)>, CheckError> {
    let (geo, mut all) = (Geometry::of(of), Vec::new());
    let last = geo.groups - 1;
    for g in COPIES.into_iter().chain([last]).filter(|g| *g > 0 && *g <= last) {
        let copy = match read(image, geo.group_start(GroupNo(g)).0 * geo.block_bytes as u64) {
            Ok(s) => s,
            Err(CheckError::Io(e)) => return Err(CheckError::Io(e)),
            Err(_) => continue,
        };
        let same = copy.uuid() == of.uuid() && fixed_numbers(&copy) == fixed_numbers(of);
        if same && u32::from(copy.group_number()) == g && all.iter().all(|(a, _)| *a != g) {
            all.push((g, copy));
        }
        if all.len() == COPIES_ASKED {
            break;
        }
    }
    Ok(all)
}

fn with_layout_of(of: &Superblock, copy: &Superblock) -> Superblock {
    let mixed = |own: u32, its: u32, bits: u32| own & !bits | its & bits;
    let mut s = of.clone();
    s.set_compat(mixed(s.compat(), copy.compat(), COMPAT));
    s.set_incompat(mixed(s.incompat(), copy.incompat(), INCOMPAT));
    s.set_ro_compat(mixed(s.ro_compat(), copy.ro_compat(), RO_COMPAT));
    s.set_reserved_gdt_blocks(copy.reserved_gdt_blocks());
    s.set_first_meta_bg(copy.first_meta_bg());
    s.set_desc_size(copy.desc_size());
    if copy.has_compat(compat::SPARSE_SUPER2) && s.backup_groups() != copy.backup_groups() {
        s.set_backup_groups(copy.backup_groups());
    }
    s
}

/// Other layouts, each by one word of the superblock.
fn guesses(of: &Superblock) -> Vec<(Superblock, &'static str)> {
    let changed = |f: &dyn Fn(&mut Superblock)| {
        let mut s = of.clone();
        f(&mut s);
        s
    };
    let mut all = Vec::new();
    if of.has_compat(compat::RESIZE_INODE) {
        let none = changed(&|s| {
            s.set_compat(s.compat() & !compat::RESIZE_INODE);
            s.set_reserved_gdt_blocks(0);
        });
        all.push((none, "blocks kept for growth were too many, and are none now"));
    }
    if !of.has_ro_compat(ro_compat::SPARSE_SUPER) {
        let set = changed(&|s| s.set_ro_compat(s.ro_compat() | ro_compat::SPARSE_SUPER));
        all.push((set, "sparse_super was missing; set"));
    }
    if !of.has_incompat(incompat::FLEX_BG) {
        let set = changed(&|s| s.set_incompat(s.incompat() | incompat::FLEX_BG));
        all.push((set, "flex_bg was missing; set"));
    }
    all
}

/// The superblock with features that an inode has shown the volume to have.
pub(crate) fn with_features(mut s: Superblock, (ino, bits): (Ino, u32)) -> Settled {
    s.allow_features();
    s.set_incompat(s.incompat() | bits);
    let name = if bits == incompat::EXTENTS { "extent" } else { "inline_data" };
    (s, format!("inode {ino} shows that it has the feature {name}, which was missing; set"))
}

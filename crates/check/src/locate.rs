//! Finding a superblock: the primary one if it can be used, else the best of its copies. It asks
//! only whether the numbers fit together and the device; what they describe is checked later.

use crate::CheckError;
use crate::backups;
use crate::io::ReadBlocks;
use format::ext::csum::Sums;
use format::ext::features::compat::RESIZE_INODE;
use format::ext::features::incompat::META_BG;
use format::ext::superblock::{FIRST_INO, STATE_ERROR, SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use format::ext::{Geometry, GroupDesc, Superblock};
use format::foreign::UNFINISHED;
use format::{FormatError, GroupNo};

/// A superblock that can be used.
#[derive(Clone, Debug)]
pub struct Located {
    /// The superblock; a copy's group number is set back to 0.
    pub superblock: Superblock,
    /// The group whose copy this is; None: the primary.
    pub copy_of: Option<u32>,
    /// What is wrong with the primary, if a copy stands in for it.
    pub fault: String,
}

/// The groups that have a copy on every volume, sparse or not, and how many of them are tried.
pub(crate) const COPIES: [u32; 8] = [1, 3, 5, 7, 9, 25, 27, 49];

/// Finds the volume's superblock: the primary one, or a copy where that is damaged. Where all
/// copies agree on numbers that never change after mkfs, and not with the primary, it is the
/// primary that is wrong, unless its size was changed and the copies are old. Errors:
/// `Incompatible` features, a device that is cut short, or no superblock at all.
pub fn locate(image: &dyn ReadBlocks) -> Result<Located, CheckError> {
    let fault = match primary(image) {
        Ok(superblock) => return voted(image, superblock),
        // A feature is no damage: a copy without its bit is only older.
        Err(e @ (CheckError::Io(_) | CheckError::Format(FormatError::Incompatible { .. }))) => {
            return Err(e);
        }
        Err(e) if is_unfinished(image) => return Err(e),
        Err(e) => e,
    };
    match backups::best(image)? {
        Some((superblock, group)) => {
            Ok(Located { superblock, copy_of: Some(group), fault: fault.to_string() })
        }
        None => Err(fault),
    }
}

/// Is this an unfinished copy of a volume? Its copies of the superblock stand for nothing.
fn is_unfinished(image: &dyn ReadBlocks) -> bool {
    let mut mark = [0; UNFINISHED.len()];
    let long = image.size_bytes() >= mark.len() as u64;
    long && image.read_at(0, &mut mark).is_ok() && &mark == UNFINISHED
}

/// The primary, unless the copies outvote it.
fn voted(image: &dyn ReadBlocks, primary: Superblock) -> Result<Located, CheckError> {
    let geo = Geometry::of(&primary);
    let mut seen: Vec<(Superblock, u32)> = Vec::new();
    for g in COPIES.into_iter().filter(|g| *g < geo.groups && geo.has_super(GroupNo(*g))) {
        let at = geo.group_start(GroupNo(g)).0 * geo.block_bytes as u64;
        match read(image, at) {
            Ok(s) if u32::from(s.group_number()) == g && fits(&s, image).is_ok() => {
                // What an older volume has left there says nothing of this one.
                let same = s.uuid() == primary.uuid() || s.mkfs_time() == primary.mkfs_time();
                seen.extend(same.then_some((s, g)));
            }
            Err(CheckError::Io(e)) => return Err(CheckError::Io(e)),
            _ => {}
        }
        if seen.len() == 2 {
            break;
        }
    }
    let against = |s: &Superblock| fixed_numbers(s) != fixed_numbers(&primary);
    let one_voice = match seen.as_slice() {
        [(a, _), (b, _)] => fixed_numbers(a) == fixed_numbers(b),
        // One against one: every mkfs has made 11 the first ordinary inode.
        [(a, _)] => a.first_ino() == FIRST_INO && primary.first_ino() != FIRST_INO,
        _ => false,
    };
    match seen.into_iter().next() {
        Some((mut s, g)) if one_voice && against(&s) && !was_resized(image, &primary, &s)? => {
            // The copy's marks are as old as the copy; the primary's may still be good.
            s.set_group_number(0);
            s.set_state(primary.state());
            // Where descriptors lie goes with the sizes: a volume that was being enlarged.
            let mixed = |of_primary: u32, of_copy: u32, bit: u32| of_primary & !bit | of_copy & bit;
            s.set_incompat(mixed(primary.incompat(), s.incompat(), META_BG));
            s.set_ro_compat(primary.ro_compat());
            s.set_compat(mixed(primary.compat(), s.compat(), RESIZE_INODE));
            let fault = "the primary superblock's sizes are not those of its copies".to_owned();
            Ok(Located { superblock: s, copy_of: Some(g), fault })
        }
        _ => Ok(Located { superblock: primary, copy_of: None, fault: String::new() }),
    }
}

/// Does the primary differ from its copies as one whose size has changed and whose copies are old?
/// They speak of another size only, and what the primary says has something to show for it: a
/// right checksum, or descriptors of the groups that only it has. A volume marked as having errors
/// may have been left between two sizes, with copies that are newer.
fn was_resized(
    image: &dyn ReadBlocks,
    primary: &Superblock,
    copy: &Superblock,
) -> Result<bool, CheckError> {
    let resized = |s: &Superblock| {
        let mut numbers = fixed_numbers(s);
        numbers[..2].fill(0);
        numbers
    };
    if primary.state() & STATE_ERROR != 0 || resized(primary) != resized(copy) {
        return Ok(false);
    }
    let has_sum = matches!(primary.sums(), Sums::All(_));
    if primary.blocks() <= copy.blocks() {
        return Ok(has_sum);
    }
    let geo = Geometry::of(primary);
    let (mut good, mut bytes) = (0, vec![0; geo.block_bytes]);
    for g in (copy.groups()..geo.groups).map(GroupNo) {
        let (block, at) = geo.desc_place(g);
        if block.0 >= geo.blocks {
            return Ok(false);
        }
        image.read_at(block.0 * geo.block_bytes as u64, &mut bytes)?;
        let raw = &bytes[at..at + geo.desc_bytes];
        let sound = geo.sums.check_desc(g, raw).is_ok();
        good += u32::from(sound && geo.check_desc(g, &GroupDesc::decode(raw)).is_ok());
    }
    // Some of them may be damaged themselves.
    Ok(2 * good >= geo.groups - copy.groups())
}

/// What never changes after mkfs, or only together with all copies. Sizes come first.
pub(crate) fn fixed_numbers(s: &Superblock) -> [u64; 8] {
    [
        s.blocks(),
        u64::from(s.inodes()),
        u64::from(s.first_data_block()),
        s.block_bytes() as u64,
        u64::from(s.blocks_per_group()),
        u64::from(s.inodes_per_group()),
        s.inode_bytes() as u64,
        u64::from(s.first_ino()),
    ]
}

fn primary(image: &dyn ReadBlocks) -> Result<Superblock, CheckError> {
    let s = read(image, SUPERBLOCK_AT)?;
    fits(&s, image)?;
    Ok(s)
}

pub(crate) fn read(image: &dyn ReadBlocks, at: u64) -> Result<Superblock, CheckError> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if image.size_bytes() < at + SUPERBLOCK_BYTES as u64 {
        let what = "it is too short for a superblock: not a volume, or only its beginning";
        return Err(FormatError::corrupt(what, format!("byte {at}")).into());
    }
    image.read_at(at, &mut bytes)?;
    Ok(Superblock::decode(&bytes)?)
}

pub(crate) fn fits(s: &Superblock, image: &dyn ReadBlocks) -> Result<(), CheckError> {
    let need = s.blocks().saturating_mul(s.block_bytes() as u64);
    let have = image.size_bytes();
    if have < need { Err(CheckError::CutShort { have, need }) } else { Ok(()) }
}

/// Is it the copy of this group? In revision 0 copies do not say whose they are.
pub(crate) fn is_copy_in(s: &Superblock, group: u32) -> bool {
    u32::from(s.group_number()) == group || s.revision() == 0 && s.group_number() == 0
}

//! Which copy stands in for a primary superblock that is lost. A disk may have copies that older
//! volumes have left behind: the right ones lead to a root directory, were made last, and agree
//! with one another.

use crate::CheckError;
use crate::io::ReadBlocks;
use crate::locate::{COPIES, fits, fixed_numbers, is_copy_in, read};
use crate::places::leads_to_root;
use format::ext::{Geometry, GroupDesc, Superblock};
use format::{BlockNo, FormatError, GroupNo};

/// A volume of which copies were found: the first of them, its group, and how many there are.
struct Candidate {
    superblock: Superblock,
    group: u32,
    copies: u32,
}

/// The best copy, and its group; None: there is none. Errors: the device's, or the only copies that
/// lead to something are of a volume with features that nobody here knows.
pub(crate) fn best(image: &dyn ReadBlocks) -> Result<Option<(Superblock, u32)>, CheckError> {
    let (all, unknown) = candidates(image)?;
    let mut best: Option<((bool, u32, u32), Candidate)> = None;
    for c in all {
        let score = (has_root(image, &c.superblock)?, c.superblock.mkfs_time(), c.copies);
        if best.as_ref().is_none_or(|b| b.0 < score) {
            best = Some((score, c));
        }
    }
    match (best, unknown) {
        (Some((score, c)), unknown) if score.0 || unknown.is_none() => {
            Ok(Some((c.superblock, c.group)))
        }
        (_, Some(e)) => Err(e),
        _ => Ok(None),
    }
}

/// The volumes of which there are copies, and what was said of one that cannot be used here.
fn candidates(image: &dyn ReadBlocks) -> Result<(Vec<Candidate>, Option<CheckError>), CheckError> {
    let (mut all, mut unknown): (Vec<Candidate>, Option<CheckError>) = (Vec::new(), None);
    for block_bytes in [1024u64, 2048, 4096] {
        let first = u64::from(block_bytes == 1024);
        for group in COPIES {
            let block = first + u64::from(group) * 8 * block_bytes;
            let mut s = match read(image, block * block_bytes) {
                Ok(s) => s,
                Err(e @ CheckError::Io(_)) => return Err(e),
                Err(e @ CheckError::Format(FormatError::Incompatible { .. })) => {
                    unknown = unknown.or(Some(e));
                    continue;
                }
                Err(_) => continue,
            };
            let here = s.block_bytes() as u64 == block_bytes
                && is_copy_in(&s, group)
                && u64::from(s.blocks_per_group()) == 8 * block_bytes
                && fits(&s, image).is_ok();
            if !here {
                continue;
            }
            s.set_group_number(0);
            let of = |s: &Superblock| (s.uuid(), s.mkfs_time(), fixed_numbers(s));
            match all.iter_mut().find(|c| of(&c.superblock) == of(&s)) {
                Some(c) => c.copies += 1,
                None => all.push(Candidate { superblock: s, group, copies: 1 }),
            }
        }
    }
    Ok((all, unknown))
}

/// Is there a root directory where this superblock, and descriptors that fit it, say?
fn has_root(image: &dyn ReadBlocks, s: &Superblock) -> Result<bool, CheckError> {
    let (geo, g) = (Geometry::of(s), GroupNo(0));
    let block = |b: BlockNo| -> Result<Vec<u8>, CheckError> {
        let mut bytes = vec![0; geo.block_bytes];
        image.read_at(b.0 * geo.block_bytes as u64, &mut bytes)?;
        Ok(bytes)
    };
    let (primary, at) = geo.desc_place(g);
    let places = std::iter::once(primary).chain(geo.desc_copies(0)).take(3);
    for place in places.filter(|b| b.0 < geo.blocks) {
        let bytes = block(place)?;
        let raw = &bytes[at..at + geo.desc_bytes];
        let d = GroupDesc::decode(raw);
        let sound = geo.sums.check_desc(g, raw).is_ok() && geo.check_desc(g, &d).is_ok();
        if sound && leads_to_root(&geo, d.inode_table, &block)? {
            return Ok(true);
        }
    }
    Ok(false)
}

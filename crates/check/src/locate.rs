//! Finding a superblock: the primary one if it can be used, else the first copy that can. It asks only
//! whether the numbers fit together and the device; what they describe is checked later.

use crate::CheckError;
use crate::io::ReadBlocks;
use format::FormatError;
use format::ext::Superblock;
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES};

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
const COPIES: [u32; 8] = [1, 3, 5, 7, 9, 25, 27, 49];

/// Finds the volume's superblock: the primary one, or a copy where that is damaged. Errors: `Incompatible`
/// features, a device that is cut short, or no superblock at all.
pub fn locate(image: &dyn ReadBlocks) -> Result<Located, CheckError> {
    let fault = match primary(image) {
        Ok(superblock) => {
            return Ok(Located { superblock, copy_of: None, fault: String::new() });
        }
        // A feature is no damage: a copy without its bit is only older.
        Err(e @ (CheckError::Io(_) | CheckError::Format(FormatError::Incompatible { .. }))) => {
            return Err(e);
        }
        Err(e) => e,
    };
    match copies(image)? {
        Some((superblock, group)) => {
            Ok(Located { superblock, copy_of: Some(group), fault: fault.to_string() })
        }
        None => Err(fault),
    }
}

fn primary(image: &dyn ReadBlocks) -> Result<Superblock, CheckError> {
    let s = read(image, SUPERBLOCK_AT)?;
    fits(&s, image)?;
    Ok(s)
}

fn read(image: &dyn ReadBlocks, at: u64) -> Result<Superblock, CheckError> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if image.size_bytes() < at + SUPERBLOCK_BYTES as u64 {
        let what = "the volume is too short for a superblock";
        return Err(FormatError::corrupt(what, format!("byte {at}")).into());
    }
    image.read_at(at, &mut bytes)?;
    Ok(Superblock::decode(&bytes)?)
}

fn fits(s: &Superblock, image: &dyn ReadBlocks) -> Result<(), CheckError> {
    let need = u64::from(s.blocks()) * s.block_bytes() as u64;
    let have = image.size_bytes();
    if have < need { Err(CheckError::CutShort { have, need }) } else { Ok(()) }
}

/// The first copy that can be used.
fn copies(image: &dyn ReadBlocks) -> Result<Option<(Superblock, u32)>, CheckError> {
    for block_bytes in [1024u64, 2048, 4096] {
        let first = u64::from(block_bytes == 1024);
        for group in COPIES {
            let block = first + u64::from(group) * 8 * block_bytes;
            let at = block * block_bytes;
            let mut s = match read(image, at) {
                Ok(s) => s,
                Err(CheckError::Io(e)) => return Err(CheckError::Io(e)),
                Err(_) => continue,
            };
            let here = s.block_bytes() as u64 == block_bytes
                && u32::from(s.group_number()) == group
                && u64::from(s.blocks_per_group()) == 8 * block_bytes
                && fits(&s, image).is_ok();
            if here {
                s.set_group_number(0);
                return Ok(Some((s, group)));
            }
        }
    }
    Ok(None)
}

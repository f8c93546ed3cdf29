//! Walking a block map: every pointer from the inode down, with the chance to clear it on the way.
//! It judges only whether a pointer may be followed at all; who owns a block is the visitor's
//! question.

use crate::CheckError;
use crate::tables::Frame;
use crate::view::View;
use format::bytes::{le32, set32};
use format::ufs::map;
use format::{BlockNo, FileBlock};

/// The map of an inode.
pub(crate) type Map = [u32; map::POINTERS];

/// A pointer met on the walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    /// 0: a block of the file; 1 to 3: an indirect block of that level.
    pub(crate) level: u8,
    /// The first block of the file that hangs below it.
    pub(crate) file_block: FileBlock,
    /// Where it leads.
    pub(crate) block: BlockNo,
    /// Which indirect block holds it; None: the inode.
    pub(crate) holder: Option<BlockNo>,
    /// Which pointer of the holder it is.
    pub(crate) index: usize,
    /// Why it must not be followed, if so.
    pub(crate) fault: Option<Fault>,
}

/// Why a pointer must not be followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It leads out of the volume or into its metadata.
    Illegal,
    /// It leads to a block that should hold pointers and mostly does not.
    Garbage,
}

/// What the visitor wants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Go on, and below the pointer if there is a below.
    Follow,
    /// Leave it, and what hangs below it.
    Skip,
    /// Clear it, and do not follow it.
    Clear,
}

pub(crate) type Visitor<'v> = dyn FnMut(&Pointer) -> Then + 'v;

/// Visits every pointer that is not zero, a holder before what hangs below it. Cleared pointers are
/// zeroed in the view's indirect blocks and in `map`. A faulty pointer is never followed.
pub(crate) fn walk(
    view: &mut View<'_>,
    frame: &Frame,
    map: &mut Map,
    visit: &mut Visitor<'_>,
) -> Result<(), CheckError> {
    let per_block = view.block_bytes() as u64 / 4;
    for index in 0..map::POINTERS {
        let level = index.saturating_sub(11).min(3) as u8;
        let at = Pointer {
            level,
            file_block: map::first_of(index, per_block),
            block: BlockNo(u64::from(map[index])),
            holder: None,
            index,
            fault: None,
        };
        if map[index] != 0 && !step(view, frame, at, visit)? {
            map[index] = 0;
        }
    }
    Ok(())
}

/// Visits one pointer and what hangs below; false: it shall be cleared.
fn step(
    view: &mut View<'_>,
    frame: &Frame,
    mut at: Pointer,
    visit: &mut Visitor<'_>,
) -> Result<bool, CheckError> {
    if !frame.may_hold(at.block) {
        at.fault = Some(Fault::Illegal);
        return Ok(visit(&at) != Then::Clear);
    }
    if at.level == 0 {
        return Ok(visit(&at) != Then::Clear);
    }
    let bytes = view.read(at.block)?;
    if is_garbage(&bytes, frame) {
        at.fault = Some(Fault::Garbage);
        return Ok(visit(&at) != Then::Clear);
    }
    match visit(&at) {
        Then::Clear => return Ok(false),
        Then::Skip => return Ok(true),
        Then::Follow => {}
    }
    let span = (bytes.len() as u64 / 4).pow(u32::from(at.level) - 1);
    let mut cleared = Vec::new();
    for index in 0..bytes.len() / 4 {
        let block = le32(&bytes, 4 * index);
        if block == 0 {
            continue;
        }
        let below = Pointer {
            level: at.level - 1,
            file_block: at.file_block.plus(span * index as u64),
            block: BlockNo(u64::from(block)),
            holder: Some(at.block),
            index,
            fault: None,
        };
        if !step(view, frame, below, visit)? {
            cleared.push(index);
        }
    }
    if !cleared.is_empty() {
        view.edit(at.block, |b| cleared.iter().for_each(|i| set32(b, 4 * i, 0)))?;
    }
    Ok(true)
}

/// Does a block that should hold pointers mostly hold something else?
fn is_garbage(bytes: &[u8], frame: &Frame) -> bool {
    let (mut bad, mut all) = (0, 0);
    for block in bytes.chunks_exact(4).map(|c| le32(c, 0)).filter(|b| *b != 0) {
        all += 1;
        bad += usize::from(!frame.is_legal(block));
    }
    bad > 8 && 2 * bad > all
}

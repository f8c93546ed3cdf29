//! The header of an extent tree's root, which lies in the inode, where one of its fields is wrong.
//! What its entries lead to says what it must have been: nodes with their mark, which begin where
//! the entries do, or blocks of the file. What neither proves is left as it is.

use crate::CheckError;
use crate::tables::Frame;
use crate::view::View;
use format::BlockNo;
use format::bytes::le16;
use format::ext::extents::{
    BLOCKS_MAX, DEPTH_MAX, Head, MAGIC, child, first_of, head, mapped, max_entries, set_head,
};

/// Levels of nodes below these entries, by what they lead to and not by what anybody says: some
/// entry leads to a node of the same first block, whose entries do so in turn. A damaged child
/// counts for nothing where another one is sound.
fn levels_below(
    view: &View<'_>,
    frame: &Frame,
    node: &[u8],
    (entries, most): (usize, u16),
) -> Result<u16, CheckError> {
    if most == 0 {
        return Ok(0);
    }
    for i in 0..entries {
        let b = child(node, i);
        if !frame.may_hold(b) {
            continue;
        }
        let bytes = view.read(b)?;
        let fits = le16(&bytes, 0) == MAGIC && first_of(&bytes, 0) == first_of(node, i);
        let inside = usize::from(le16(&bytes, 2)).min(max_entries(bytes.len()));
        if fits && inside > 0 {
            return Ok(1 + levels_below(view, frame, &bytes, (inside, most - 1))?);
        }
    }
    Ok(0)
}

/// How many of these entries, one behind another, map blocks of a file.
fn mapping(frame: &Frame, root: &[u8], most: usize) -> usize {
    let mut from = 0;
    for i in 0..most {
        let m = mapped(root, i);
        let last = m.start.0.saturating_add(u64::from(m.len).max(1) - 1);
        let inside = frame.may_hold(m.start) && frame.may_hold(BlockNo(last));
        let fits = m.len > 0 && u64::from(m.first) >= from && m.end() <= BLOCKS_MAX;
        if !fits || !inside {
            return i;
        }
        from = m.end();
    }
    most
}

/// The root as it must have been, with a right header; None: it is right as far as can be told, or
/// nothing says that it is the root of a tree.
pub(crate) fn mended(
    view: &View<'_>,
    frame: &Frame,
    root: &[u8],
) -> Result<Option<(Vec<u8>, Head)>, CheckError> {
    let max = max_entries(root.len());
    let says = head(root, None).ok();
    if says.is_some_and(|h| h.entries == 0) {
        return Ok(None);
    }
    // Two of the header's fields say that it is one: none that is wrong takes more than one away.
    let marks = [le16(root, 0) == MAGIC, usize::from(le16(root, 4)) == max];
    if marks == [false, false] {
        return Ok(None);
    }
    let said = usize::from(le16(root, 2));
    let entries = if said == 0 || said > max { max } else { said };
    let depth = levels_below(view, frame, root, (entries, DEPTH_MAX))?;
    if says.is_some_and(|h| h.depth == depth) {
        return Ok(None);
    }
    let kept = match depth {
        0 => mapping(frame, root, entries),
        _ => entries,
    };
    // Without entries there is nothing below: an empty file's.
    if kept == 0 && said == 0 && marks == [true, true] {
        let h = Head { entries: 0, max, depth: 0 };
        let mut out = root.to_vec();
        set_head(&mut out, h);
        return Ok(Some((out, h)));
    }
    // A tree whose nodes are all lost is not taken for a leaf.
    if kept == 0 || depth == 0 && says.is_some() && kept < entries {
        return Ok(None);
    }
    let mut out = root.to_vec();
    let h = Head { entries: kept, max, depth };
    set_head(&mut out, h);
    let again = head(&out, None);
    assert_eq!(again, Ok(h), "K9: a root of a tree that was mended is none");
    Ok(Some((out, h)))
}

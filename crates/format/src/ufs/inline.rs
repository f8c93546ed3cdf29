//! Contents that lie in the inode (`inline_data`): of files, directories and symbolic links. It
//! knows bytes; who moves contents out into blocks, and when, is `ufs`'s and `ext`'s question.
//!
//! On disk: the first 60 bytes lie where the map would be, what follows is the value of an
//! attribute `system.data`, which is always in the inode itself and always there, if only with no
//! bytes. Of a directory the first four bytes are the parent's number; entries follow, in two
//! chains, one to the end of the 60 bytes and one in the value. There is no entry for the directory
//! itself, and no checksum but the inode's.
//!
//! 1. An inode has the flag of contents in it or that of extents, never both.
//! 2. A directory's length is that of its contents, 60 bytes and the value's.
//! 3. Each of the two chains of a directory is whole by itself: no entry crosses from one into the
//!    other, so that nothing moves when the directory gets a block (`dir_image`).

use super::dirent::{self, ENTRY_MIN, HEAD, INO_BYTES, needed};
use super::inode::{BLOCK_AT, CLASSIC_BYTES, FLAG_EXTENTS, FLAG_INLINE, InodeMut, InodeRef};
use super::xattr::{self, Attribute, INODE_HEAD};
use crate::bytes::{le32, set16, set32};
use crate::{FormatError, Ino};

/// Bytes of contents where the map would be.
pub const MAP_BYTES: usize = 60;
/// What a directory's contents begin with: the parent's number.
pub const PARENT_BYTES: usize = INO_BYTES;
/// Where the first chain begins in a directory's image: behind the two dots.
const CHAIN_AT: usize = 2 * ENTRY_MIN;
/// By so much an entry lies further behind in the image than in the contents.
const SHIFT: usize = CHAIN_AT - PARENT_BYTES;
/// The number of the prefix `system.`.
const SYSTEM: u8 = 7;
const DATA: &[u8] = b"data";

/// Is it the attribute that holds contents?
pub fn is_data(a: &Attribute) -> bool {
    a.index == SYSTEM && a.name == DATA
}

fn data(value: &[u8]) -> Attribute {
    Attribute { index: SYSTEM, name: DATA.to_vec(), value: value.to_vec(), elsewhere: None }
}

fn bad(what: &str) -> FormatError {
    FormatError::corrupt(what.to_owned(), "its contents in the inode")
}

/// The contents, all that there is room for at present; None: they do not lie in the inode.
/// Errors: `Corrupt` where the attributes do not parse or that of the contents is not among them.
pub fn contents(raw: &[u8]) -> Result<Option<Vec<u8>>, FormatError> {
    let i = InodeRef(raw);
    if !i.is_inline() {
        return Ok(None);
    }
    let mut all = i.map_bytes().to_vec();
    let list = xattr::decode_inode(i.xattr_space())?;
    let value = list.into_iter().find(is_data).ok_or_else(|| bad("system.data is missing"))?;
    if value.elsewhere.is_some() {
        return Err(bad("system.data is another inode's contents"));
    }
    all.extend(value.value);
    Ok(Some(all))
}

/// How many bytes of contents the inode has room for beside its other attributes; 0: for none.
pub fn room(raw: &[u8]) -> usize {
    let space = InodeRef(raw).xattr_space();
    let Ok(mut list) = xattr::decode_inode(space) else { return 0 };
    list.retain(|a| !is_data(a));
    list.push(data(&[]));
    let free = space.len().checked_sub(INODE_HEAD + xattr::room_needed(&list));
    free.map_or(0, |f| MAP_BYTES + f / 4 * 4)
}

/// Could contents begin to lie in this file's inode? It has none yet, and no blocks.
pub fn may_begin(raw: &[u8]) -> bool {
    let i = InodeRef(raw);
    let map = i.map_bytes();
    let is_empty = match i.has_extents() {
        true => crate::ext::extents::head(&map, None).is_ok_and(|h| h.entries == 0 && h.depth == 0),
        false => map.iter().all(|b| *b == 0),
    };
    i.is_file() && !i.is_inline() && i.size() == 0 && is_empty
}

/// Puts contents into the inode and says so by its flag; false: there is no room, and nothing has
/// changed. The length is the caller's.
pub fn store(raw: &mut [u8], contents: &[u8]) -> bool {
    let (head, value) = contents.split_at(contents.len().min(MAP_BYTES));
    if contents.len() > room(raw) || room(raw) == 0 {
        return false;
    }
    let extra = InodeRef(raw).extra_isize().unwrap_or(0);
    let list = xattr::decode_inode(InodeRef(raw).xattr_space());
    let mut list = list.expect("room has read them");
    list.retain(|a| !is_data(a));
    list.push(data(value));
    let stored = xattr::encode_inode(&mut raw[CLASSIC_BYTES + extra..], &list);
    assert!(stored, "F1: {} bytes do not fit where there was room for them", contents.len());
    raw[BLOCK_AT..BLOCK_AT + MAP_BYTES].fill(0);
    raw[BLOCK_AT..BLOCK_AT + head.len()].copy_from_slice(head);
    let flags = InodeRef(raw).flags();
    InodeMut(raw).set_flags(flags & !FLAG_EXTENTS | FLAG_INLINE); // 1
    // Each write of a small file comes here.
    debug_assert!(
        self::contents(raw).is_ok_and(|c| c.is_some_and(|c| c.starts_with(contents))),
        "F1: {} bytes in an inode are read as others",
        contents.len()
    );
    true
}

/// Takes the contents out of the inode, which then has a map of nothing: an extent tree if `tree`.
/// The length is the caller's.
pub fn clear(raw: &mut [u8], tree: bool) {
    let extra = InodeRef(raw).extra_isize().unwrap_or(0);
    let mut list = xattr::decode_inode(InodeRef(raw).xattr_space()).unwrap_or_default();
    list.retain(|a| !is_data(a));
    let stored = xattr::encode_inode(&mut raw[CLASSIC_BYTES + extra..], &list);
    assert!(stored, "F1: {} attributes do not fit where more have been", list.len());
    raw[BLOCK_AT..BLOCK_AT + MAP_BYTES].fill(0);
    let flags = InodeRef(raw).flags() & !FLAG_INLINE;
    InodeMut(raw).set_flags(if tree { flags | FLAG_EXTENTS } else { flags });
    if tree {
        InodeMut(raw).set_empty_tree();
    }
}

/// The contents of a directory without names.
pub fn empty_dir(parent: Ino) -> Vec<u8> {
    let mut all = vec![0; MAP_BYTES];
    set32(&mut all, 0, parent.0);
    set16(&mut all, PARENT_BYTES + 4, (MAP_BYTES - PARENT_BYTES) as u16);
    all
}

/// The two chains of a directory's contents, each with its first byte there.
fn chains(contents: &[u8]) -> [(usize, &[u8]); 2] {
    let (inside, rest) = contents.split_at(MAP_BYTES);
    [(PARENT_BYTES, &inside[PARENT_BYTES..]), (MAP_BYTES, rest)]
}

/// Errors: `Corrupt` unless both chains of a directory are whole (3).
pub fn check_dir(contents: &[u8]) -> Result<(), FormatError> {
    if contents.len() < MAP_BYTES {
        return Err(bad("a directory of less than 60 bytes"));
    }
    for (_, chain) in chains(contents) {
        for e in dirent::entries(chain) {
            e?;
        }
    }
    Ok(())
}

/// The directory as a block: the two dots, the two chains, and one unused entry to the end of what
/// entries may cover. It is what the directory becomes when it gets a block.
pub fn dir_image(contents: &[u8], dir: Ino, block: &mut [u8], tail: usize, with_kinds: bool) {
    let end = block.len() - tail;
    let len = contents.len();
    assert!(SHIFT + len + ENTRY_MIN <= end, "F2: {len} bytes of an inode in a block of {end}");
    dirent::init_empty_before(block, tail);
    block[..end].fill(0);
    let kind = if with_kinds { 2 } else { 0 };
    dirent::put(block, 0, ENTRY_MIN, dir, kind, b".");
    dirent::put(block, ENTRY_MIN, ENTRY_MIN, Ino(le32(contents, 0)), kind, b"..");
    block[CHAIN_AT..SHIFT + contents.len()].copy_from_slice(&contents[PARENT_BYTES..]);
    let at = SHIFT + contents.len();
    set16(block, at + 4, (end - at) as u16);
}

/// The contents of which an image was made, of `len` bytes, after changes of entries that have kept
/// every chain whole.
pub fn contents_of_image(image: &[u8], len: usize) -> Vec<u8> {
    let mut all = image[SHIFT..SHIFT + len].to_vec();
    all[..PARENT_BYTES].copy_from_slice(&image[ENTRY_MIN..ENTRY_MIN + PARENT_BYTES]);
    all
}

/// The entry with room for a name, and how much of it is used; both in the contents.
fn slack(contents: &[u8], name_len: usize) -> Result<Option<(usize, usize, usize)>, FormatError> {
    for (start, chain) in chains(contents) {
        for e in dirent::entries(chain) {
            let e = e?;
            let used = if e.ino.0 == 0 { 0 } else { needed(e.name.len()) };
            if e.rec_len - used >= needed(name_len) {
                return Ok(Some((start + e.at, used, e.rec_len)));
            }
        }
    }
    Ok(None)
}

/// Is there room for a name?
pub fn has_slack(contents: &[u8], name_len: usize) -> Result<bool, FormatError> {
    Ok(slack(contents, name_len)?.is_some())
}

/// The same contents with room for one name more, if `room` bytes are enough: a further unused
/// entry, or more of the last.
pub fn with_slack(contents: &[u8], name_len: usize, room: usize) -> Option<Vec<u8>> {
    // As much as there is: the next name would ask again.
    let more = room.checked_sub(contents.len()).map(|n| n / 4 * 4)?;
    if more < needed(name_len).max(ENTRY_MIN) || !contents.len().is_multiple_of(4) {
        return None;
    }
    let (mut all, at) = (contents.to_vec(), contents.len());
    all.resize(at + more, 0);
    set16(&mut all, at + 4, more as u16);
    Some(all)
}

/// Adds a name where there is room; returns where its entry lies in the image, None: there is none.
pub fn add(
    contents: &mut [u8],
    name: &[u8],
    ino: Ino,
    kind: u8,
) -> Result<Option<usize>, FormatError> {
    let Some((at, used, rec_len)) = slack(contents, name.len())? else { return Ok(None) };
    if used > 0 {
        set16(contents, at + 4, used as u16);
    }
    dirent::put(contents, at + used, rec_len - used, ino, kind, name);
    Ok(Some(at + used + SHIFT))
}

/// Where an entry of the image lies in the contents; None: it is one of the two dots.
pub fn place_of(at: usize) -> Option<usize> {
    (at >= CHAIN_AT).then(|| at - SHIFT)
}

/// Removes the entry at `at`: its room goes to the one before it in its chain, or stays its own.
pub fn remove(contents: &mut [u8], at: usize) -> Result<(), FormatError> {
    let (mut before, mut len) = (None, None);
    for (start, chain) in chains(contents) {
        let mut last = None;
        for e in dirent::entries(chain) {
            let e = e?;
            if start + e.at == at {
                (before, len) = (last, Some(e.rec_len));
            }
            last = Some((start + e.at, e.rec_len));
        }
    }
    let len = len.ok_or_else(|| bad("a name where no entry begins"))?;
    if let Some((into, long)) = before {
        set16(contents, into + 4, (long + len) as u16);
    }
    contents[at..at + 4].fill(0);
    contents[at + 6..at + HEAD].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode() -> Vec<u8> {
        let mut raw = vec![0; 256];
        let mut i = InodeMut(&mut raw);
        i.set_mode(0o100_644);
        i.set_extra_isize();
        i.set_flags(FLAG_EXTENTS);
        i.set_empty_tree();
        raw
    }

    #[test]
    fn a_damaged_directorys_parent_may_be_no_inode() {
        let (contents, mut block) = (vec![0; 60], vec![0; 1024]);
        dir_image(&contents, Ino(12), &mut block, 0, true);
        assert_eq!(contents_of_image(&block, contents.len())[..PARENT_BYTES], [0; PARENT_BYTES]);
    }

    #[test]
    fn contents_of_every_length_come_back() {
        let mut raw = inode();
        assert!(may_begin(&raw));
        let most = room(&raw);
        assert_eq!(most, 60 + 68, "96 bytes, less two heads, a name and an end");
        for n in 0..=most {
            let text: Vec<u8> = (0..n).map(|k| k as u8 | 1).collect();
            assert!(store(&mut raw, &text));
            assert_eq!(room(&raw), most, "what is there counts as room");
            let back = contents(&raw).unwrap().unwrap();
            assert_eq!(back[..n], text);
            assert_eq!(back.len(), n.max(MAP_BYTES));
        }
        assert!(!store(&mut raw, &vec![1; most + 1]));
        clear(&mut raw, true);
        assert_eq!(raw, inode());
    }

    #[test]
    fn other_attributes_stay() {
        let mut raw = inode();
        let other = Attribute { index: 1, name: b"a".to_vec(), value: vec![7; 9], elsewhere: None };
        let extra = InodeRef(&raw).extra_isize().unwrap();
        assert!(xattr::encode_inode(
            &mut raw[CLASSIC_BYTES + extra..],
            std::slice::from_ref(&other)
        ));
        let most = room(&raw);
        assert!(store(&mut raw, &vec![3; most]));
        let list = xattr::decode_inode(InodeRef(&raw).xattr_space()).unwrap();
        assert!(list.contains(&other) && list.len() == 2);
        clear(&mut raw, false);
        assert_eq!(xattr::decode_inode(InodeRef(&raw).xattr_space()).unwrap(), [other]);
        assert!(!InodeRef(&raw).has_extents());
    }

    #[test]
    fn names_come_and_go_in_both_chains() {
        let mut all = empty_dir(Ino(2));
        let names: Vec<Vec<u8>> = (0..8u8).map(|n| vec![b'a' + n; 3 + usize::from(n)]).collect();
        let mut added = 0;
        for (n, name) in names.iter().enumerate() {
            if !has_slack(&all, name.len()).unwrap() {
                let Some(longer) = with_slack(&all, name.len(), 128) else { break };
                all = longer;
            }
            let at = add(&mut all, name, Ino(11 + n as u32), 1).unwrap().unwrap();
            check_dir(&all).unwrap();
            assert!(place_of(at).unwrap() + needed(name.len()) <= all.len());
            added += 1;
        }
        assert_eq!(added, 7, "a chain of 56 bytes, and one of 68");
        let mut block = vec![0; 1024];
        dir_image(&all, Ino(12), &mut block, 12, true);
        let of_image: Vec<_> = dirent::entries(&block[..1012]).map(Result::unwrap).collect();
        assert_eq!((of_image[0].name, of_image[1].name), (&b"."[..], &b".."[..]));
        assert_eq!((of_image[0].ino, of_image[1].ino), (Ino(12), Ino(2)));
        assert_eq!(contents_of_image(&block, all.len()), all);
        for e in of_image.iter().skip(2).filter(|e| e.ino.0 != 0) {
            remove(&mut all, place_of(e.at).unwrap()).unwrap();
            check_dir(&all).unwrap();
        }
        assert!(has_slack(&all, 48).unwrap());
        assert!(remove(&mut all, 8).is_err());
    }
}

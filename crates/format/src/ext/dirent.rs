//! Directory blocks: a chain of entries, each `{ino, rec_len, name_len, kind, name}`, that covers
//! the block.
//!
//! In blocks we write, no entry crosses a 512-byte line and free space is merged only inside a
//! line, so that a write torn between sectors never breaks the chain. Blocks of the kernel's making
//! need not be so; they are rewritten (`confine`) before they are changed. An unused entry has
//! inode 0.

use crate::bytes::{le16, le32, set16, set32};
use crate::{FormatError, Ino};

/// The line no entry crosses.
pub const LINE: usize = 512;
/// Bytes before the name.
pub const HEAD: usize = 8;
/// The smallest entry: a head and a name of up to four bytes. The kernel takes a shorter one for
/// damage.
pub const ENTRY_MIN: usize = 12;
/// Longest name.
pub const NAME_MAX: usize = 255;

/// The kind byte of each kind of file, in `st_mode`'s order of types; 0 where entries have no
/// kinds.
pub fn kind_byte(mode: u16) -> u8 {
    match mode & 0xf000 {
        0x8000 => 1,
        0x4000 => 2,
        0x2000 => 3,
        0x6000 => 4,
        0x1000 => 5,
        0xc000 => 6,
        0xa000 => 7,
        _ => 0,
    }
}
/// The type bits of `st_mode` for a kind byte; None for an unknown one.
pub fn mode_of_kind(kind: u8) -> Option<u32> {
    Some(match kind {
        1 => 0x8000,
        2 => 0x4000,
        3 => 0x2000,
        4 => 0x6000,
        5 => 0x1000,
        6 => 0xc000,
        7 => 0xa000,
        _ => return None,
    })
}

/// Room an entry with such a name needs.
pub fn needed(name_len: usize) -> usize {
    (HEAD + name_len).next_multiple_of(4)
}

/// One entry, as it lies in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Where it begins in the block.
    pub at: usize,
    /// How far it reaches.
    pub rec_len: usize,
    /// The inode; 0: unused.
    pub ino: Ino,
    /// The kind byte.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
}

/// `rec_len` as it is stored: 65536 does not fit in 16 bits, but our blocks are smaller.
fn rec_len(block: &[u8], at: usize) -> usize {
    usize::from(le16(block, at + 4))
}

/// Walks a block's entries, used and unused, checking each.
pub struct Entries<'a> {
    block: &'a [u8],
    at: usize,
}

/// The entries of a block.
pub fn entries(block: &[u8]) -> Entries<'_> {
    Entries { block, at: 0 }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, FormatError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.block.len() {
            return None;
        }
        let entry = entry_at(self.block, self.at);
        match &entry {
            Ok(e) => self.at += e.rec_len,
            Err(_) => self.at = usize::MAX, // nothing after it can be trusted
        }
        Some(entry)
    }
}

/// The entry that begins at byte `at`, checked.
pub fn entry_at(b: &[u8], at: usize) -> Result<Entry<'_>, FormatError> {
    let bad =
        |what: String| Err(FormatError::corrupt(what, format!("byte {at} of the directory block")));
    let left = b.len() - at;
    if left < ENTRY_MIN {
        return bad(format!("{left} bytes are left for a directory entry"));
    }
    let (len, name_len) = (rec_len(b, at), usize::from(b[at + 6]));
    if len < ENTRY_MIN || !len.is_multiple_of(4) || len > left {
        return bad(format!("a directory entry is {len} bytes long, of {left} that are left"));
    }
    let ino = Ino(le32(b, at));
    if ino.0 != 0 && (name_len == 0 || HEAD + name_len > len) {
        return bad(format!("a name of {name_len} bytes in an entry of {len}"));
    }
    let name_len = if ino.0 == 0 { 0 } else { name_len };
    let name = &b[at + HEAD..at + HEAD + name_len];
    if name.iter().any(|&c| c == b'/' || c == 0) {
        return bad("a name with a slash or a zero byte".into());
    }
    Ok(Entry { at, rec_len: len, ino, kind: b[at + 7], name })
}

/// Does an entry of the block cross a 512-byte line? (Then `confine` it before it is changed.)
pub fn crosses_line(block: &[u8]) -> Result<bool, FormatError> {
    for e in entries(block) {
        let e = e?;
        if e.at / LINE != (e.at + e.rec_len - 1) / LINE {
            return Ok(true);
        }
    }
    Ok(false)
}

fn put(block: &mut [u8], at: usize, len: usize, ino: Ino, kind: u8, name: &[u8]) {
    set32(block, at, ino.0);
    set16(block, at + 4, len as u16);
    block[at + 6] = name.len() as u8;
    block[at + 7] = kind;
    block[at + HEAD..at + HEAD + name.len()].copy_from_slice(name);
}

/// A block of unused entries, one a line.
pub fn init_empty(block: &mut [u8]) {
    block.fill(0);
    for at in (0..block.len()).step_by(LINE) {
        put(block, at, LINE, Ino(0), 0, &[]);
    }
}

/// A new directory's first block: "." and "..".
pub fn init_dots(block: &mut [u8], dir: Ino, parent: Ino, with_kinds: bool) {
    init_empty(block);
    let kind = if with_kinds { 2 } else { 0 };
    put(block, 0, 12, dir, kind, b".");
    put(block, 12, LINE - 12, parent, kind, b"..");
}

/// Where a name of `name_len` bytes fits: the entry whose space it takes, and the bytes of that
/// entry. Only in a block without crossing entries.
pub fn find_room(block: &[u8], name_len: usize) -> Result<Option<usize>, FormatError> {
    find_room_in(block, 0, name_len)
}

/// As `find_room`, from the line at or after byte `from` on.
pub fn find_room_in(
    block: &[u8],
    from: usize,
    name_len: usize,
) -> Result<Option<usize>, FormatError> {
    let need = needed(name_len);
    for e in entries(block) {
        let e = e?;
        if e.at >= from && free_in(&e) >= need {
            return Ok(Some(e.at));
        }
    }
    Ok(None)
}

/// The free bytes at an entry's end.
pub fn free_in(e: &Entry<'_>) -> usize {
    if e.ino.0 == 0 { e.rec_len } else { e.rec_len - needed(e.name.len()) }
}

/// Puts a name into the free space of the entry at `room`. Returns where the new entry begins. The
/// bytes that change lie in one line: `line_of(room)`.
pub fn insert(block: &mut [u8], room: usize, ino: Ino, kind: u8, name: &[u8]) -> usize {
    let len = rec_len(block, room);
    let used = if le32(block, room) == 0 { 0 } else { needed(usize::from(block[room + 6])) };
    assert!(len - used >= needed(name.len()), "find_room has found the room");
    assert_eq!(room / LINE, (room + len - 1) / LINE, "the block is confined to lines");
    if used > 0 {
        set16(block, room + 4, used as u16);
    }
    put(block, room + used, len - used, ino, kind, name);
    room + used
}

/// Removes the entry at `at`: merged into its predecessor in the same line, or made unused.
pub fn remove(block: &mut [u8], at: usize) {
    let line = at / LINE * LINE;
    let mut before = None;
    let mut p = line;
    while p < at {
        before = Some(p);
        p += rec_len(block, p);
    }
    assert_eq!(p, at, "an entry begins there");
    match before {
        Some(b) => {
            let merged = rec_len(block, b) + rec_len(block, at);
            set16(block, b + 4, merged as u16);
            set32(block, at, 0); // so that the old entry cannot be taken for one by a salvager
        }
        None => set32(block, at, 0),
    }
}

/// Makes the entry at `at` name another inode, in place.
pub fn set_ino(block: &mut [u8], at: usize, ino: Ino, kind: u8) {
    set32(block, at, ino.0);
    block[at + 7] = kind;
}

/// The line a byte lies in, as a range of the block.
pub fn line_of(at: usize) -> std::ops::Range<usize> {
    let start = at / LINE * LINE;
    start..start + LINE
}

/// An entry that did not fit: inode, kind, name.
pub type Leftover = (Ino, u8, Vec<u8>);

/// The same entries in a block where none crosses a line, in the same order ("." and ".." stay
/// first), and those that no longer fit.
pub fn confine(old: &[u8]) -> Result<(Vec<u8>, Vec<Leftover>), FormatError> {
    let mut new = vec![0; old.len()];
    init_empty(&mut new);
    let mut left = Vec::new();
    let mut line = 0;
    for e in entries(old) {
        let e = e?;
        if e.ino.0 == 0 {
            continue;
        }
        let mut room = None;
        while line < new.len() && room.is_none() {
            room = find_room_in(&new, line, e.name.len())?.filter(|at| *at < line + LINE);
            if room.is_none() {
                line += LINE;
            }
        }
        match room {
            Some(at) => {
                insert(&mut new, at, e.ino, e.kind, e.name);
            }
            None => left.push((e.ino, e.kind, e.name.to_vec())),
        }
    }
    Ok((new, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(block: &[u8]) -> Vec<String> {
        entries(block)
            .map(|e| e.unwrap())
            .filter(|e| e.ino.0 != 0)
            .map(|e| String::from_utf8_lossy(e.name).into_owned())
            .collect()
    }

    #[test]
    fn insert_and_remove_stay_in_their_lines() {
        let mut b = vec![0; 1024];
        init_dots(&mut b, Ino(5), Ino(2), true);
        let mut n = 0;
        while let Some(room) = find_room(&b, 100).unwrap() {
            insert(&mut b, room, Ino(20 + n), 1, &[b'a' + n as u8; 100]);
            n += 1;
        }
        assert_eq!(n, 8);
        assert!(!crosses_line(&b).unwrap());
        let third = entries(&b).nth(4).unwrap().unwrap().at;
        remove(&mut b, third);
        assert_eq!(names(&b).len(), 2 + 7);
        assert!(find_room(&b, 100).unwrap().is_some());
        remove(&mut b, 512); // first of its line
        assert_eq!(names(&b).len(), 2 + 6);
        assert!(!crosses_line(&b).unwrap());
    }

    #[test]
    fn a_kernels_block_is_confined() {
        let mut b = vec![0; 1024];
        put(&mut b, 0, 12, Ino(5), 2, b".");
        put(&mut b, 12, 12, Ino(2), 2, b"..");
        let mut at = 24;
        for i in 0..7u8 {
            let len = if i == 6 { 1024 - at } else { needed(130) };
            put(&mut b, at, len, Ino(30 + u32::from(i)), 1, &[b'a' + i; 130]);
            at += len;
        }
        assert!(crosses_line(&b).unwrap());
        let (new, left) = confine(&b).unwrap();
        assert!(!crosses_line(&new).unwrap());
        assert_eq!(names(&new).len() + left.len(), 9);
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn damage_is_reported_with_its_place() {
        let mut b = vec![0; 1024];
        init_empty(&mut b);
        set16(&mut b, 512 + 4, 7);
        let e = entries(&b).find_map(Result::err).unwrap();
        assert!(e.to_string().contains("byte 512"));
        set16(&mut b, 4, 0);
        assert_eq!(entries(&b).count(), 1);
    }
}

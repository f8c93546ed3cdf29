//! Directory blocks: a chain of entries, each `{ino, rec_len, name_len, kind, name}`, that covers
//! the block.
//!
//! In blocks we write, no entry crosses a 512-byte sector and free space is merged only inside a
//! sector, so that a write torn between sectors never breaks the chain. In blocks of the kernel's
//! making entries do cross; they stay where they are, and a change keeps to one sector there too: a
//! name is taken away by its inode number alone if its predecessor begins in another sector, and
//! free space that crosses a sector is left alone. An unused entry has inode 0.

use crate::bytes::{le16, le32, set16, set32};
use crate::{FormatError, Ino};

/// The sector no entry crosses.
pub const SECTOR: usize = 512;
/// Bytes before the name.
pub const HEAD: usize = 8;
/// The inode's number, first in the head.
pub const INO_BYTES: usize = 4;
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

/// Space an entry with such a name needs.
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

/// What an entry says of itself, but for its name's bytes. Whoever walks a block for one name, or
/// for room, looks at no more of the others.
struct Shape {
    at: usize,
    rec_len: usize,
    ino: Ino,
    /// 0 if it is unused.
    name_len: usize,
}

/// The shape of the entry that begins at byte `at`, checked. In the loops of those who walk it is
/// a few instructions, not a call with a result in memory.
#[inline(always)]
fn shape_at(b: &[u8], at: usize) -> Result<Shape, FormatError> {
    let rest = b.get(at..).unwrap_or_default();
    let Some(&[i0, i1, i2, i3, r0, r1, name_len, ..]) = rest.first_chunk::<ENTRY_MIN>() else {
        return Err(bad_shape(at, rest));
    };
    let ino = Ino(u32::from_le_bytes([i0, i1, i2, i3]));
    let rec_len = usize::from(u16::from_le_bytes([r0, r1]));
    let name_len = usize::from(name_len);
    let is_used = ino.0 != 0;
    let is_long = rec_len >= ENTRY_MIN && rec_len.is_multiple_of(4) && rec_len <= rest.len();
    let has_name = !is_used || name_len > 0 && HEAD + name_len <= rec_len;
    if !is_long || !has_name {
        return Err(bad_shape(at, rest));
    }
    Ok(Shape { at, rec_len, ino, name_len: if is_used { name_len } else { 0 } })
}

/// What is wrong with the entry at the beginning of `rest`, byte `at` of its block.
#[cold]
fn bad_shape(at: usize, rest: &[u8]) -> FormatError {
    let left = rest.len();
    if left < ENTRY_MIN {
        return bad_at(at, format!("{left} bytes are left for a directory entry"));
    }
    let (rec_len, name_len) = (rec_len(rest, 0), rest[6]);
    if rec_len < ENTRY_MIN || !rec_len.is_multiple_of(4) || rec_len > left {
        let what = format!("a directory entry is {rec_len} bytes long, of {left} that are left");
        return bad_at(at, what);
    }
    bad_at(at, format!("a name of {name_len} bytes in an entry of {rec_len}"))
}

#[cold]
fn bad_at(at: usize, what: String) -> FormatError {
    FormatError::corrupt(what, format!("byte {at} of the directory block"))
}

/// The entry that begins at byte `at`, checked.
pub fn entry_at(b: &[u8], at: usize) -> Result<Entry<'_>, FormatError> {
    let Shape { rec_len, ino, name_len, .. } = shape_at(b, at)?;
    let name = &b[at + HEAD..at + HEAD + name_len];
    // Without a way out in the middle, so that many bytes are looked at together.
    if name.iter().fold(false, |bad, &c| bad | (c == b'/') | (c == 0)) {
        return Err(bad_at(at, "a name with a slash or a zero byte".into()));
    }
    Ok(Entry { at, rec_len, ino, kind: b[at + 7], name })
}

/// The first entry that is what is looked for, by its shape.
#[inline]
fn first(
    block: &[u8],
    mut is_it: impl FnMut(&Shape) -> bool,
) -> Result<Option<Shape>, FormatError> {
    let mut at = 0;
    while at < block.len() {
        let shape = shape_at(block, at)?;
        if is_it(&shape) {
            return Ok(Some(shape));
        }
        at += shape.rec_len;
    }
    Ok(None)
}

/// What a block's entries say to who looks for a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Search {
    /// Where the entry of this name begins, and its inode.
    pub found: Option<(usize, Ino)>,
    /// Where the name fits, of the entries before that one: see [`find_slack`].
    pub slack: Option<usize>,
}

/// Looks for a name, and on the way for room for it: who does not find it often makes it next.
pub fn search(block: &[u8], name: &[u8]) -> Result<Search, FormatError> {
    let (need, mut slack) = (needed(name.len()), None);
    let last = name.last();
    let is_it = |s: &Shape| {
        // Most entries are too short for another one, whatever they hold.
        let may_fit = s.rec_len >= need + ENTRY_MIN || s.ino.0 == 0;
        if may_fit && slack.is_none() && s.free() >= need {
            slack = Some(s.at);
        }
        // Names that are made one after the other differ at their end.
        let end = s.at + HEAD + s.name_len;
        s.name_len == name.len()
            && s.ino.0 != 0
            && block.get(end - 1) == last
            && block[s.at + HEAD..end] == *name
    };
    let found = first(block, is_it)?.map(|s| (s.at, s.ino));
    Ok(Search { found, slack })
}

impl Entry<'_> {
    /// Does it begin in one 512-byte sector and end in another?
    pub fn crosses_sector(&self) -> bool {
        self.at / SECTOR != (self.at + self.rec_len - 1) / SECTOR
    }
}

/// Does an entry of the block cross a 512-byte sector?
pub fn crosses_sector(block: &[u8]) -> Result<bool, FormatError> {
    for e in entries(block) {
        if e?.crosses_sector() {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn put(block: &mut [u8], at: usize, len: usize, ino: Ino, kind: u8, name: &[u8]) {
    let fits = name.len() <= 255 && HEAD + name.len() <= len && at + len <= block.len();
    assert!(fits, "F2: a name of {} bytes in {len} at byte {at}", name.len());
    let in_fours = at.is_multiple_of(4) && len.is_multiple_of(4) && len >= ENTRY_MIN;
    assert!(in_fours, "F2: an entry of {len} bytes at byte {at}");
    // A disk may say that ".." is inode 0: that is put as an entry that is not used.
    let is_one = ino.0 == 0 || !name.is_empty();
    assert!(is_one, "F1: inode {ino} without a name: no entry says that");
    let read_as = if ino.0 == 0 { 0 } else { name.len() };
    set32(block, at, ino.0);
    set16(block, at + 4, len as u16);
    block[at + 6] = name.len() as u8;
    block[at + 7] = kind;
    block[at + HEAD..at + HEAD + name.len()].copy_from_slice(name);
    // Each name that is made comes here. What a repair moves may have a slash in it still.
    debug_assert!(
        shape_at(block, at).is_ok_and(|s| (s.ino, s.name_len, s.rec_len) == (ino, read_as, len)),
        "F1: the entry at byte {at} is read as another one"
    );
}

/// One unused entry, as long as all of it.
pub fn put_unused(part: &mut [u8]) {
    part.fill(0);
    put(part, 0, part.len(), Ino(0), 0, &[]);
}

/// A block of unused entries, one a sector.
pub fn init_empty(block: &mut [u8]) {
    block.fill(0);
    for at in (0..block.len()).step_by(SECTOR) {
        put(block, at, SECTOR, Ino(0), 0, &[]);
    }
}

/// The same where the last `tail` bytes are not for entries (see `csum`).
pub fn init_empty_before(block: &mut [u8], tail: usize) {
    init_empty(block);
    if tail > 0 {
        let (end, last) = (block.len() - tail, block.len() - SECTOR);
        set16(block, last + 4, (end - last) as u16);
        crate::ext::csum::put_tail(block);
    }
}

/// A new directory's first block: "." and "..".
pub fn init_dots(block: &mut [u8], dir: Ino, parent: Ino, with_kinds: bool) {
    init_empty(block);
    put_dots(block, dir, parent, with_kinds);
}

/// Puts "." and ".." into an empty block's first sector, which is not its last.
pub fn put_dots(block: &mut [u8], dir: Ino, parent: Ino, with_kinds: bool) {
    let kind = if with_kinds { 2 } else { 0 };
    put(block, 0, 12, dir, kind, b".");
    put(block, 12, SECTOR - 12, parent, kind, b"..");
}

/// Where a name of `name_len` bytes fits: the entry whose space it takes, one that crosses no
/// sector.
pub fn find_slack(block: &[u8], name_len: usize) -> Result<Option<usize>, FormatError> {
    find_slack_in(block, 0, name_len)
}

/// As `find_slack`, from the sector at or after byte `from` on.
pub fn find_slack_in(
    block: &[u8],
    from: usize,
    name_len: usize,
) -> Result<Option<usize>, FormatError> {
    let need = needed(name_len);
    Ok(first(block, |s| s.at >= from && s.free() >= need)?.map(|s| s.at))
}

/// The free bytes at an entry's end that a name may take: none if they are not all in one sector.
pub fn free_in(e: &Entry<'_>) -> usize {
    Shape { at: e.at, rec_len: e.rec_len, ino: e.ino, name_len: e.name.len() }.free()
}

impl Shape {
    fn free(&self) -> usize {
        match self.ino.0 {
            _ if self.at / SECTOR != (self.at + self.rec_len - 1) / SECTOR => 0,
            0 => self.rec_len,
            _ => self.rec_len - needed(self.name_len),
        }
    }
}

/// Has the block two names or places for them, however long, whichever of its names go, if each
/// joins what is before it?
pub(crate) fn keeps_two_places(block: &[u8]) -> Result<bool, FormatError> {
    // From one unused entry to the next all may become one gap. A name that stays in it costs the
    // place of two: its own, and that of another that fits neither before nor behind it.
    let longest = needed(255);
    let (mut places, mut most, mut bytes) = (0, 0, 0);
    let found = first(block, |s| {
        if s.ino.0 == 0 {
            places += bytes / longest;
            bytes = 0;
        }
        bytes += s.rec_len;
        most = most.max(bytes / longest);
        places + bytes / longest >= 2 + usize::from(most >= 2)
    })?;
    Ok(found.is_some())
}

/// Has the entry at `at` slack for a name of `name_len` bytes?
pub fn has_slack(block: &[u8], at: usize, name_len: usize) -> Result<bool, FormatError> {
    Ok(shape_at(block, at)?.free() >= needed(name_len))
}

/// Where a name begins that is put into the free space of the entry at `slack`.
pub fn place_of_new(block: &[u8], slack: usize) -> usize {
    let used = if le32(block, slack) == 0 { 0 } else { needed(usize::from(block[slack + 6])) };
    slack + used
}

/// Puts a name into the free space of the entry at `slack`. Returns where the new entry begins. The
/// bytes that change lie in one sector: `sector_of(slack)`.
pub fn insert(block: &mut [u8], slack: usize, ino: Ino, kind: u8, name: &[u8]) -> usize {
    let len = rec_len(block, slack);
    let used = place_of_new(block, slack) - slack;
    let (free, need) = (len - used, needed(name.len()));
    assert!(free >= need, "F2: a name needs {need} bytes, and {free} are free");
    let (first, last) = (slack / SECTOR, (slack + len - 1) / SECTOR);
    assert_eq!(first, last, "F2: a name is put into an entry of two sectors");
    assert!(!name.is_empty() && ino.0 > 0, "F1: inode {ino} gets a name, of {} bytes", name.len());
    if used > 0 {
        set16(block, slack + 4, used as u16);
    }
    put(block, slack + used, len - used, ino, kind, name);
    slack + used
}

/// How an entry's space goes to the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merge {
    /// Where the one before begins; in the same sector.
    pub into: usize,
    /// How long it gets.
    pub rec_len: usize,
}

/// What becomes of the space of the entry at `at`: it is merged into its predecessor's if both lie
/// in one sector, and else stays an entry of its own (None). `from`: where an entry begins at or
/// before `at`'s sector, and the walk with it.
pub fn merge_of(block: &[u8], from: usize, at: usize) -> Result<Option<Merge>, FormatError> {
    assert!(from <= at / SECTOR * SECTOR, "F2: from byte {from} on there is no way to {at}");
    let mut p = from;
    let mut before = None;
    while p < at {
        let e = shape_at(block, p)?;
        before = Some((p, e.rec_len));
        p += e.rec_len;
    }
    if p != at {
        let place = format!("byte {at} of the directory block");
        return Err(FormatError::corrupt("a name where no entry begins", place));
    }
    let entry = entry_at(block, at)?;
    let before = before.filter(|(b, _)| b / SECTOR == at / SECTOR && !entry.crosses_sector());
    Ok(before.map(|(into, len)| Merge { into, rec_len: len + entry.rec_len }))
}

/// Removes the entry at `at`, as `merge_of` has said. The bytes that change lie in `sector_of(at)`,
/// and `sector` may be just these, with places counted from its start.
pub fn remove(sector: &mut [u8], at: usize, merge: Option<Merge>) {
    if let Some(m) = merge {
        let covers = m.into < at && at < m.into + m.rec_len && m.into + m.rec_len <= sector.len();
        assert!(covers, "F2: the entry at byte {at} goes into {m:?}");
        set16(sector, m.into + 4, m.rec_len as u16);
    }
    set32(sector, at, 0); // also merged: or the old entry could be taken for one by a salvager
}

/// Makes the entry at `at` name another inode, in place: `INO_BYTES` change, which lie in one
/// sector wherever the entry begins.
pub fn set_ino(block: &mut [u8], at: usize, ino: Ino) {
    let in_fours = at.is_multiple_of(4);
    assert!(in_fours, "F2: an entry at byte {at}, which names inode {ino} now, begins nowhere");
    set32(block, at, ino.0);
}
/// The kind byte of the entry at `at`.
pub fn kind_at(block: &[u8], at: usize) -> u8 {
    block[at + 7]
}
/// Makes the entry at `at` of another kind.
pub fn set_kind(block: &mut [u8], at: usize, kind: u8) {
    block[at + 7] = kind;
}
/// Do the inode's number and the kind lie in different sectors? Only in a kernel's block.
pub fn head_crosses_sector(at: usize) -> bool {
    at / SECTOR != (at + HEAD - 1) / SECTOR
}

/// The sector a byte lies in, as a range of the block.
pub fn sector_of(at: usize) -> std::ops::Range<usize> {
    let start = at / SECTOR * SECTOR;
    start..start + SECTOR
}

/// Names in a block. Errors: `Corrupt`, where the entries are not a chain.
fn names_in(block: &[u8]) -> Result<usize, FormatError> {
    let mut n = 0;
    for e in entries(block) {
        n += usize::from(e?.ino != Ino(0));
    }
    Ok(n)
}

/// An entry that did not fit: inode, kind, name.
pub type Leftover = (Ino, u8, Vec<u8>);

/// The same entries in a block where none crosses a sector, in the same order ("." and ".." stay
/// first), and those that no longer fit.
pub fn confine(old: &[u8]) -> Result<(Vec<u8>, Vec<Leftover>), FormatError> {
    let mut new = vec![0; old.len()];
    init_empty(&mut new);
    let mut left = Vec::new();
    let mut sector = 0;
    for e in entries(old) {
        let e = e?;
        if e.ino.0 == 0 {
            continue;
        }
        let mut slack = None;
        while sector < new.len() && slack.is_none() {
            slack = find_slack_in(&new, sector, e.name.len())?.filter(|at| *at < sector + SECTOR);
            if slack.is_none() {
                sector += SECTOR;
            }
        }
        match slack {
            Some(at) => {
                insert(&mut new, at, e.ino, e.kind, e.name);
            }
            None => left.push((e.ino, e.kind, e.name.to_vec())),
        }
    }
    let (has, crosses) = (names_in(&new)? + left.len(), crosses_sector(&new)?);
    let had = names_in(old)?;
    assert!(has == had && !crosses, "F2: of {had} names {has} are left, across sectors: {crosses}");
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
        while let Some(slack) = find_slack(&b, 100).unwrap() {
            insert(&mut b, slack, Ino(20 + n), 1, &[b'a' + n as u8; 100]);
            n += 1;
        }
        assert_eq!(n, 8);
        assert!(!crosses_sector(&b).unwrap());
        let third = entries(&b).nth(4).unwrap().unwrap().at;
        let merge = merge_of(&b, third / SECTOR * SECTOR, third).unwrap();
        assert!(merge.is_some());
        remove(&mut b, third, merge);
        assert_eq!(names(&b).len(), 2 + 7);
        assert!(find_slack(&b, 100).unwrap().is_some());
        assert_eq!(merge_of(&b, 0, 512).unwrap(), None);
        remove(&mut b, 512, None); // first of its sector
        assert_eq!(names(&b).len(), 2 + 6);
        assert!(!crosses_sector(&b).unwrap());
    }

    /// Beside a search for the name and one for room, each from the block's beginning.
    #[test]
    fn one_search_finds_a_name_and_room() {
        let mut state = 1u64;
        let mut next = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        let mut b = vec![0; 1024];
        init_dots(&mut b, Ino(5), Ino(2), true);
        for n in 0..2000u32 {
            let name = format!("{}{}", "x".repeat(next(30)), next(40)).into_bytes();
            let all: Vec<Entry<'_>> = entries(&b).map(Result::unwrap).collect();
            let found = all.iter().find(|e| e.ino.0 != 0 && e.name == name);
            let found = found.map(|e| (e.at, e.ino));
            let slack = find_slack(&b, name.len()).unwrap();
            let seen = slack.filter(|at| found.is_none_or(|f| *at <= f.0));
            assert_eq!(search(&b, &name), Ok(Search { found, slack: seen }), "step {n}");
            match (found, slack) {
                (Some((at, _)), _) => {
                    let merge = merge_of(&b, 0, at).unwrap();
                    let merge = merge.map(|m| Merge { into: m.into % SECTOR, ..m });
                    remove(&mut b[sector_of(at)], at % SECTOR, merge);
                }
                (None, Some(at)) => {
                    insert(&mut b, at, Ino(100 + n), 1, &name);
                }
                (None, None) => (),
            }
        }
    }

    /// Names of 130 bytes one behind the other.
    fn kernels_block() -> Vec<u8> {
        let mut b = vec![0; 1024];
        put(&mut b, 0, 12, Ino(5), 2, b".");
        put(&mut b, 12, 12, Ino(2), 2, b"..");
        let mut at = 24;
        for i in 0..7u8 {
            let len = if i == 6 { 1024 - at } else { needed(130) };
            put(&mut b, at, len, Ino(30 + u32::from(i)), 1, &[b'a' + i; 130]);
            at += len;
        }
        b
    }

    /// Each name goes by a change in one sector, whatever went before it, and no other moves.
    #[test]
    fn names_leave_a_kernels_block_within_a_sector() {
        let places = |b: &[u8]| -> Vec<(usize, Vec<u8>)> {
            let used = entries(b).map(Result::unwrap).filter(|e| e.ino.0 != 0);
            used.map(|e| (e.at, e.name.to_vec())).collect()
        };
        for order in 0..7usize {
            let mut b = kernels_block();
            for n in 0..7 {
                let before = (b.clone(), places(&b));
                let at = before.1[2 + (order * 5 + n * 3) % (7 - n)].0;
                let merge = merge_of(&b, 0, at).unwrap();
                remove(&mut b, at, merge);
                let mut left = before.1.clone();
                left.retain(|(a, _)| *a != at);
                assert_eq!(places(&b), left);
                let sector = sector_of(at);
                assert!(b[..sector.start] == before.0[..sector.start]);
                assert!(b[sector.end..] == before.0[sector.end..]);
            }
        }
    }

    #[test]
    fn space_across_lines_takes_no_name() {
        let mut b = kernels_block();
        let named = |b: &[u8], n: usize| entries(b).nth(2 + n).unwrap().unwrap().at;
        let crossing = named(&b, 3);
        let merge = merge_of(&b, 0, crossing).unwrap();
        assert_eq!(merge, None, "the space before it stays in its sector");
        remove(&mut b, crossing, merge);
        assert_eq!(find_slack(&b, 130).unwrap(), None);
        let second = named(&b, 1);
        let merge = merge_of(&b, 0, second).unwrap();
        remove(&mut b, second, merge);
        let slack = find_slack(&b, 130).unwrap().unwrap();
        insert(&mut b, slack, Ino(99), 1, &[b'x'; 130]);
        assert_eq!(entries(&b).map(Result::unwrap).filter(|e| e.ino.0 != 0).count(), 8);
    }

    #[test]
    fn a_place_where_no_entry_begins_is_damage() {
        let mut b = kernels_block();
        assert!(merge_of(&b, 0, 28).unwrap_err().to_string().contains("no entry begins"));
        set16(&mut b, 12 + 4, 0); // a chain that would go on for ever
        assert!(merge_of(&b, 0, 24).is_err());
    }

    #[test]
    fn a_kernels_block_is_confined() {
        let b = kernels_block();
        assert!(crosses_sector(&b).unwrap());
        let (new, left) = confine(&b).unwrap();
        assert!(!crosses_sector(&new).unwrap());
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

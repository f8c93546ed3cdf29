//! A directory's block by itself: is its chain of entries whole, and what can be saved of a broken
//! one? It judges bytes only; whether a named inode exists is the caller's question.

use format::bytes::{le16, le32, set16, set32};
use format::ext::csum::{DIR_TAIL, put_tail};
use format::ufs::dirent::{self, HEAD, SECTOR};
use format::{Ino, ROOT_INO};

/// The smallest entry: a head and a name of up to four bytes.
const ENTRY_MIN: usize = 12;

/// An entry as it lies in a block, its name not judged.
#[derive(Clone, Copy)]
pub(crate) struct Raw {
    pub(crate) at: usize,
    pub(crate) rec_len: usize,
    pub(crate) ino: u32,
    pub(crate) name_len: usize,
    pub(crate) kind: u8,
}

impl Raw {
    pub(crate) fn name<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.at + HEAD..self.at + HEAD + self.name_len]
    }
}

/// The entry at `at`, if it fits the block.
pub(crate) fn entry(block: &[u8], at: usize) -> Option<Raw> {
    if at + ENTRY_MIN > block.len() {
        return None;
    }
    let (rec_len, name_len) = (usize::from(le16(block, at + 4)), usize::from(block[at + 6]));
    let fits = rec_len >= ENTRY_MIN
        && rec_len.is_multiple_of(4)
        && at + rec_len <= block.len()
        && HEAD + name_len <= rec_len;
    let kind = block[at + 7];
    fits.then(|| Raw { at, rec_len, ino: le32(block, at), name_len, kind })
}

/// The entries of a block whose chain is whole.
pub(crate) fn chain(block: &[u8]) -> Option<Vec<Raw>> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < block.len() {
        let e = entry(block, at)?;
        at += e.rec_len;
        all.push(e);
    }
    Some(all)
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.iter().any(|c| *c == 0 || *c == b'/')
}

/// Could this be the beginning of an entry in use?
fn is_likely(block: &[u8], at: usize, alive: &dyn Fn(u32) -> bool) -> bool {
    entry(block, at).is_some_and(|e| e.ino != 0 && alive(e.ino) && is_name(e.name(block)))
}

/// Does a whole chain begin at `at`?
fn chain_from(block: &[u8], mut at: usize) -> bool {
    while at < block.len() {
        match entry(block, at) {
            Some(e) => at += e.rec_len,
            None => return false,
        }
    }
    true
}

/// Makes the chain whole again, keeping what entries can be recognised. `alive` says which inode
/// numbers could be named. Returns the bytes that were given up.
pub(crate) fn salvage(block: &mut [u8], alive: &dyn Fn(u32) -> bool) -> usize {
    let (mut at, mut before, mut given_up) = (0, None, 0);
    while at < block.len() {
        if let Some(e) = entry(block, at) {
            before = Some(at);
            at += e.rec_len;
            continue;
        }
        let next = resume(block, at, alive);
        let slack = next - at;
        let name_len = if at + HEAD <= block.len() { usize::from(block[at + 6]) } else { 0 };
        let keeps = slack >= ENTRY_MIN
            && HEAD + name_len <= slack
            && alive(le32(block, at))
            && is_name(&block[at + HEAD..at + HEAD + name_len]);
        if slack >= ENTRY_MIN {
            set16(block, at + 4, slack as u16);
            if !keeps {
                set32(block, at, 0);
                block[at + 6] = 0;
                block[at + 7] = 0;
                given_up += slack;
            }
            before = Some(at);
        } else if let Some(b) = before {
            let longer = usize::from(le16(block, b + 4)) + slack;
            set16(block, b + 4, longer as u16);
        }
        at = next;
    }
    let whole = block.len() < ENTRY_MIN || chain(block).is_some();
    assert!(whole, "K5: {} bytes of entries were made a chain, and are none", block.len());
    given_up
}

/// Where to go on after a broken entry: at the first place from which on the chain is whole and
/// which looks like an entry in use, or at the next sector from which it is whole, or at the end.
fn resume(block: &[u8], at: usize, alive: &dyn Fn(u32) -> bool) -> usize {
    let mut c = at + ENTRY_MIN;
    while c < block.len() {
        let starts = c.is_multiple_of(SECTOR) || is_likely(block, c, alive);
        if starts && chain_from(block, c) {
            return c;
        }
        c += 4;
    }
    block.len()
}

/// Ends a block that has no place for its checksum with one. True: a name had to give way, or could
/// not be told.
pub(crate) fn make_room_for_tail(block: &mut [u8]) -> bool {
    let end = block.len() - DIR_TAIL;
    let all = chain(block);
    let last = all.as_deref().and_then(<[Raw]>::last).copied();
    let used = |e: &Raw| e.at + if e.ino == 0 { 0 } else { dirent::needed(e.name_len) };
    let whole_before = chain(&block[..end]).is_some();
    let lost = match last {
        // The place is there, and only its mark is damaged.
        _ if whole_before => false,
        Some(e) if used(&e) <= end && end - e.at >= ENTRY_MIN => {
            set16(block, e.at + 4, (end - e.at) as u16);
            false
        }
        _ => true,
    };
    put_tail(block);
    lost
}

/// What is wrong with the dots at the start of a directory's first block.
pub(crate) enum DotsFault {
    /// Only fields are wrong; they have been set.
    Fields,
    /// The two entries are not there.
    Missing,
}

/// Judges "." and "..", setting what is only a field. The chain is whole. None: all is well.
pub(crate) fn check_dots(block: &mut [u8], dir: Ino, with_kinds: bool) -> Option<DotsFault> {
    let all = chain(block).expect("the chain has been made whole");
    let [first, second, ..] = all.as_slice() else { return Some(DotsFault::Missing) };
    let is_dot = first.name(block) == b"." && first.rec_len == ENTRY_MIN;
    if !is_dot || second.name(block) != b".." {
        return Some(DotsFault::Missing);
    }
    let kind = if with_kinds { 2 } else { 0 };
    let ends = block[HEAD + 1] == 0 && block[ENTRY_MIN + HEAD + 2] == 0;
    let good = first.ino == dir.0 && first.kind == kind && second.kind == kind && ends;
    if good && second.ino != 0 {
        return None;
    }
    set32(block, 0, dir.0);
    block[7] = kind;
    block[ENTRY_MIN + 7] = kind;
    block[HEAD + 1] = 0;
    block[ENTRY_MIN + HEAD + 2] = 0;
    if second.ino == 0 {
        set32(block, ENTRY_MIN, ROOT_INO.0); // pass 3 sets the parent
    }
    Some(DotsFault::Fields)
}

/// The first block anew, with dots and as many of the old one's entries as fit; also how many did
/// not.
pub(crate) fn with_dots(block: &[u8], dir: Ino, with_kinds: bool) -> (Vec<u8>, usize) {
    let old = chain(block).expect("the chain has been made whole");
    let live = || old.iter().filter(|e| e.ino != 0 && e.name_len > 0);
    let parent = live().find(|e| e.name(block) == b"..").map_or(ROOT_INO, |e| Ino(e.ino));
    // What is missing to a whole sector is the place of a checksum, which is not ours.
    let whole = block.len().next_multiple_of(SECTOR);
    let mut new = vec![0; whole];
    dirent::init_empty_before(&mut new, whole - block.len());
    dirent::put_dots(&mut new, dir, parent, with_kinds);
    new.truncate(block.len());
    let mut lost = 0;
    for e in live().filter(|e| !matches!(e.name(block), b"." | b"..")) {
        match dirent::find_slack(&new, e.name_len) {
            Ok(Some(slack)) => {
                dirent::insert(&mut new, slack, Ino(e.ino), e.kind, e.name(block));
            }
            _ => lost += 1,
        }
    }
    let (had, has) = (named(block), named(&new));
    assert_eq!(has + lost, had, "K5: of {had} names {has} are left, and {lost} lost");
    (new, lost)
}

/// How many names a block has whose chain is whole, beside the two dots.
fn named(block: &[u8]) -> usize {
    let all = chain(block).unwrap_or_default();
    let is_name = |e: &&Raw| e.ino != 0 && e.name_len > 0;
    let names = all.iter().filter(is_name);
    names.filter(|e| !matches!(e.name(block), b"." | b"..")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_length_loses_no_neighbour() {
        let mut b = vec![0; 1024];
        dirent::init_dots(&mut b, Ino(12), Ino(2), true);
        for n in 0..20u32 {
            let name = format!("file{n}");
            let slack = dirent::find_slack(&b, name.len()).unwrap().unwrap();
            dirent::insert(&mut b, slack, Ino(20 + n), 1, name.as_bytes());
        }
        let whole = b.clone();
        let victim = chain(&b).unwrap()[5].at;
        for bad in [0u16, 3, 8, 4000] {
            b.copy_from_slice(&whole);
            set16(&mut b, victim + 4, bad);
            assert!(chain(&b).is_none());
            salvage(&mut b, &|ino| (2..100).contains(&ino));
            assert_eq!(b, whole, "rec_len {bad}");
        }
    }

    #[test]
    fn any_bytes_become_a_chain() {
        let mut seed = 1u32;
        for _ in 0..500 {
            let mut b: Vec<u8> = (0..1024)
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (seed >> 24) as u8 & 0x1c
                })
                .collect();
            salvage(&mut b, &|ino| ino < 0x1000);
            assert!(chain(&b).is_some());
        }
    }
}

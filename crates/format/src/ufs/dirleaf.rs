//! The leaves of a directory's hash index: blocks of entries, each with the names of a range of
//! hashes, in any order. A full one is split into two, laid out anew: no entry crosses a sector.

use crate::bytes::set16;
use crate::ufs::dirent::{self, SECTOR, entries, init_empty_before, needed};
use crate::ufs::dirhash::NameHash;
use crate::{FormatError, Ino};

/// A name of a leaf; its bytes are its own, or lie in the block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name<B = Vec<u8>> {
    /// Its hash.
    pub hash: u32,
    /// The inode.
    pub ino: Ino,
    /// The kind byte.
    pub kind: u8,
    /// Its bytes.
    pub name: B,
}

impl Name<&[u8]> {
    /// The same apart from its block.
    pub fn into_owned(self) -> Name {
        Name { hash: self.hash, ino: self.ino, kind: self.kind, name: self.name.to_vec() }
    }
}

/// The names of a block's entries in the order of their hashes, without the two dots.
/// Errors: `Corrupt`, where the entries are not a chain.
pub fn names<'a>(part: &'a [u8], hash: &NameHash) -> Result<Vec<Name<&'a [u8]>>, FormatError> {
    let mut all = Vec::new();
    for e in entries(part) {
        let e = e?;
        if e.ino != Ino(0) && e.name != b"." && e.name != b".." {
            let hash = hash.of(e.name);
            all.push(Name { hash, ino: e.ino, kind: e.kind, name: e.name });
        }
    }
    all.sort_by_key(|n| n.hash);
    Ok(all)
}

/// So many names there are among a block's entries, without the two dots.
/// Errors: `Corrupt`, where the entries are not a chain.
pub fn count(part: &[u8]) -> Result<usize, FormatError> {
    let mut n = 0;
    for e in entries(part) {
        let e = e?;
        n += usize::from(e.ino != Ino(0) && e.name != b"." && e.name != b"..");
    }
    Ok(n)
}

/// A block with these names, none across a sector, before `tail` bytes; None: they do not fit.
pub fn pack<B: AsRef<[u8]>>(names: &[Name<B>], block_bytes: usize, tail: usize) -> Option<Vec<u8>> {
    let mut block = vec![0; block_bytes];
    init_empty_before(&mut block, tail);
    let sectors = block_bytes / SECTOR;
    let end = |s: usize| if s + 1 == sectors { block_bytes - tail } else { (s + 1) * SECTOR };
    // Of each sector its last entry, which has all the free space, and where that begins: what is
    // free is no entry of its own that nobody would join with its neighbour.
    let mut last: Vec<(usize, usize)> = (0..sectors).map(|s| (s * SECTOR, s * SECTOR)).collect();
    for n in names {
        let name = n.name.as_ref();
        let need = needed(name.len());
        let s = (0..sectors).find(|s| last[*s].1 + need <= end(*s))?;
        let at = dirent::insert(&mut block, last[s].0, n.ino, n.kind, name);
        last[s] = (at, at + need);
    }
    let all: Result<Vec<_>, _> = entries(&block[..block_bytes - tail]).collect();
    let whole = all.is_ok_and(|all| {
        let used = all.iter().filter(|e| e.ino != Ino(0));
        used.count() == names.len() && !all.iter().any(dirent::Entry::crosses_sector)
    });
    assert!(whole, "F2: {} names are packed, and not found again", names.len());
    Some(block)
}

/// A leaf laid out anew, unless whatever Linux takes away from it, it has or takes two names,
/// however long. Linux takes that for given: it splits a leaf that has no gap for a name, and where
/// there are no two names to part, it calls the directory damaged (`do_split` in its
/// fs/ext4/namei.c). Each name that Linux takes away joins what is before it; ours keep to sectors,
/// and leave unused entries, which only the block's first may be in Linux's own.
/// Errors: `Corrupt`, where the entries are not a chain.
pub fn with_gaps(part: &[u8], tail: usize) -> Result<Option<Vec<u8>>, FormatError> {
    if dirent::keeps_two_places(part)? {
        return Ok(None);
    }
    let mut names = Vec::new();
    for e in entries(part) {
        let e = e?;
        if e.ino != Ino(0) {
            names.push(Name { hash: 0, ino: e.ino, kind: e.kind, name: e.name });
        }
    }
    Ok(pack(&names, part.len() + tail, tail))
}

/// The only block of a directory without an index, each unused entry joined to what is before it
/// and no name moved, unless it has or takes two names: Linux makes a leaf of it as it is.
/// Errors: `Corrupt`, where the entries are not a chain.
pub fn joined(part: &[u8]) -> Result<Option<Vec<u8>>, FormatError> {
    let mut places = 0;
    for e in entries(part) {
        let e = e?;
        let used = if e.ino == Ino(0) { 0 } else { needed(e.name.len()) };
        let is_name = used > 0 && e.name != b"." && e.name != b"..";
        places += usize::from(is_name) + (e.rec_len - used) / needed(255);
        if places >= 2 {
            return Ok(None);
        }
    }
    let mut all = part.to_vec();
    let (mut into, mut len) = (0, 0);
    for e in entries(part) {
        let e = e?;
        let joins = e.ino == Ino(0) && e.at > 0;
        (into, len) = if joins { (into, len + e.rec_len) } else { (e.at, e.rec_len) };
        set16(&mut all, into + 4, len as u16);
    }
    let (had, has) = (count(part)?, count(&all)?);
    assert_eq!(has, had, "F2: {had} names are joined to what is free before them");
    Ok((all != part).then_some(all))
}

/// What a leaf that is full becomes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    /// The names with the lower hashes.
    pub lower: Vec<u8>,
    /// The others.
    pub upper: Vec<u8>,
    /// The hash of the pointer to these: the lowest bit says that the lower ones end with it.
    pub hash: u32,
}

/// Splits two names or more, in the order of their hashes, where each half has about as many bytes.
/// None: no place does, which names that were in one block cannot come to.
pub fn split<B: AsRef<[u8]>>(names: &[Name<B>], block_bytes: usize, tail: usize) -> Option<Split> {
    let in_order = names.is_sorted_by_key(|n| n.hash);
    assert!(in_order, "F3: {} names are split, and not in the order of hashes", names.len());
    let need = |n: &Name<B>| needed(n.name.as_ref().len());
    let total: usize = names.iter().map(need).sum();
    let mut below = 0;
    let mut places = Vec::new();
    for n in 1..names.len() {
        below += need(&names[n - 1]);
        places.push((below.abs_diff(total - below), n));
    }
    places.sort_unstable();
    places.into_iter().find_map(|(_, n)| {
        let lower = pack(&names[..n], block_bytes, tail)?;
        let upper = pack(&names[n..], block_bytes, tail)?;
        let goes_on = names[n - 1].hash == names[n].hash;
        let hash = names[n].hash | u32::from(goes_on);
        let parts = names[n - 1].hash < hash && hash & !1 <= names[n].hash;
        assert!(parts, "F3: {hash:#x} does not part the names before {n} from the others");
        Some(Split { lower, upper, hash })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext::csum::{entries_part, has_tail};
    use crate::ufs::dirent::crosses_sector;
    use std::collections::BTreeSet;

    /// A full block of names as Linux packs them: one behind the other, across sectors.
    fn full(rng: &mut Lcg, room: usize) -> Vec<Name> {
        let (mut all, mut used) = (Vec::new(), 0);
        loop {
            let most = [20, 255][rng.below(2)];
            let len = 1 + rng.below(most);
            if used + needed(len) > room {
                break;
            }
            used += needed(len);
            let name = (0..len).map(|_| b'a' + rng.below(26) as u8).collect();
            let most = if rng.below(4) == 0 { 3 } else { 1 << 30 };
            let hash = 2 * rng.below(most) as u32;
            all.push(Name { hash, ino: Ino(12 + all.len() as u32), kind: 1, name });
        }
        all.sort_by_key(|n| n.hash);
        all
    }

    /// Whoever laid the leaf out, and in whatever order its names go, some by us and the others by
    /// Linux: it has or takes two names.
    #[test]
    fn a_leaf_that_loses_its_names_keeps_gaps_for_linux() {
        let mut laid_out_anew = 0;
        for seed in 1..1000u64 {
            let mut rng = Lcg(seed);
            let (bytes, tail) = ([1024, 2048, 4096][rng.below(3)], 12 * rng.below(2));
            let mut names: Vec<Name> = full(&mut rng, bytes - tail);
            for n in names.iter_mut().filter(|_| seed % 2 == 0) {
                n.name.resize(230 + rng.below(26), b'x');
            }
            let mut used = 0;
            names.retain(|n| {
                used += needed(n.name.len());
                used <= bytes - tail
            });
            let packed = pack(&names, bytes, tail);
            let mut leaf = packed.unwrap_or_else(|| one_behind_the_other(&names, bytes, tail));
            while !names.is_empty() {
                let gone = names.swap_remove(rng.below(names.len()));
                let part = &mut leaf[..bytes - tail];
                let at = place_of(part, gone.ino);
                let merge = dirent::merge_of(part, 0, at).unwrap();
                dirent::remove(part, at, merge);
                if let Some(anew) = with_gaps(part, tail).unwrap() {
                    (leaf, laid_out_anew) = (anew, laid_out_anew + 1);
                }
                assert_eq!(count(&leaf[..bytes - tail]), Ok(names.len()), "seed {seed}");
                assert!(tail == 0 || has_tail(&leaf));
                let (mut part, mut left) = (leaf[..bytes - tail].to_vec(), names.clone());
                let kept = rng.below(2);
                while left.len() > kept {
                    let gone = left.swap_remove(rng.below(left.len()));
                    remove_as_linux(&mut part, gone.ino);
                }
                let places = left.len() + longest_that_fit(&part);
                assert!(places >= 2, "seed {seed}: {places} of {} names", left.len());
            }
        }
        assert!(laid_out_anew > 20, "{laid_out_anew} leaves were laid out anew");
    }

    #[test]
    fn the_only_block_of_a_directory_keeps_gaps_and_its_names_their_places() {
        let mut block = vec![0; 1024];
        let entries_of = [(12, 1), (12, 2), (220, 0), (264, 7), (260, 0), (244, 0), (12, 0)];
        let mut at = 0;
        for (len, ino) in entries_of {
            let name: &[u8] = match ino {
                0 => b"",
                1 => b".",
                2 => b"..",
                _ => &[b'x'; 255],
            };
            dirent::put(&mut block, at, len, Ino(ino), 0, name);
            at += len;
        }
        let anew = joined(&block[..1012]).unwrap().expect("no gap is long enough");
        assert_eq!(place_of(&anew, Ino(7)), place_of(&block, Ino(7)));
        let lens: Vec<usize> = entries(&anew).map(|e| e.unwrap().rec_len).collect();
        assert_eq!(lens, [12, 12 + 220, 264 + 260 + 244]);
        assert_eq!(joined(&anew), Ok(None));
        assert_eq!(1 + longest_that_fit(&anew), 2);
    }

    fn place_of(part: &[u8], ino: Ino) -> usize {
        entries(part).map(Result::unwrap).find(|e| e.ino == ino).unwrap().at
    }

    /// What goes joins what is before it, wherever that lies.
    fn remove_as_linux(part: &mut [u8], ino: Ino) {
        let at = place_of(part, ino);
        let before = entries(part).map(Result::unwrap).take_while(|e| e.at < at).last();
        let before = before.map(|e| e.at);
        let len = dirent::entry_at(part, at).unwrap().rec_len;
        match before {
            None => dirent::set_ino(part, at, Ino(0)),
            Some(b) => {
                let all = dirent::entry_at(part, b).unwrap().rec_len + len;
                set16(part, b + 4, all as u16);
            }
        }
    }

    /// So many of the longest names Linux puts there, each into the first entry with the space.
    fn longest_that_fit(part: &[u8]) -> usize {
        let used = |e: &dirent::Entry<'_>| if e.ino.0 == 0 { 0 } else { needed(e.name.len()) };
        let gaps = entries(part).map(Result::unwrap).map(|e| e.rec_len - used(&e));
        gaps.map(|gap| gap / needed(255)).sum()
    }

    /// As Linux does.
    fn one_behind_the_other(names: &[Name], bytes: usize, tail: usize) -> Vec<u8> {
        let mut block = vec![0; bytes];
        init_empty_before(&mut block, tail);
        let mut at = 0;
        for (i, n) in names.iter().enumerate() {
            let need = needed(n.name.len());
            let len = if i + 1 == names.len() { bytes - tail - at } else { need };
            dirent::put(&mut block, at, len, n.ino, n.kind, &n.name);
            at += len;
        }
        block
    }

    struct Lcg(u64);
    impl Lcg {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) as usize % n
        }
    }

    #[test]
    fn whatever_fills_a_block_can_be_split() {
        let mut rng = Lcg(7);
        for (n, bs) in (0..3000).map(|n| (n, [1024, 2048, 4096][n % 3])) {
            let tail = [0, 12][n / 3 % 2];
            let names = full(&mut rng, bs - tail);
            if names.len() < 2 {
                continue;
            }
            let s = split(&names, bs, tail).unwrap();
            let mut seen = BTreeSet::new();
            for (half, is_upper) in [(&s.lower, false), (&s.upper, true)] {
                assert!(!crosses_sector(half).unwrap());
                assert_eq!(has_tail(half), tail > 0);
                let mut count = 0;
                for e in entries(entries_part(half, tail)).map(Result::unwrap) {
                    let Some(n) = names.iter().find(|n| n.ino == e.ino) else { continue };
                    assert_eq!((e.name, e.kind), (&n.name[..], n.kind));
                    assert!(seen.insert(e.ino.0));
                    let right = if is_upper { n.hash >= s.hash & !1 } else { n.hash <= s.hash };
                    assert!(right && (is_upper || s.hash & 1 == 1 || n.hash < s.hash));
                    count += 1;
                }
                assert!(count > 0);
            }
            assert_eq!(seen.len(), names.len());
        }
    }
}

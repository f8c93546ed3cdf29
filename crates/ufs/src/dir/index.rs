//! The index of one directory: where the name with a given hash lies, and how much slack each
//! sector has. It holds no names: a hit is verified against the block, so two names with one hash
//! cost a look, not a mistake. The hash has a key that nobody outside knows, so that nobody can
//! choose names that all have one.

use super::vacated::Vacated;
use env::IdMap;
use format::ufs::dirent::{SECTOR, crosses_sector, entries, free_in};
use format::{FormatError, Ino};
use integrity::TxnId;
use siphasher::sip::SipHasher13;

/// Slack is counted in units of 4 bytes; a sector has 128.
const CLASSES: usize = SECTOR / 4 + 1;

/// What is known of a directory's blocks.
pub(crate) struct DirIndex {
    hasher: SipHasher13,
    /// Hash of a name to its entry's byte.
    first: IdMap<u64, u32>,
    /// Further entries whose name has a hash that is there already.
    more: Vec<(u64, u32)>,
    /// The most free slack in one entry of each sector, in units of 4 bytes.
    slacks: Vec<u8>,
    /// Blocks of the kernel's making: with entries that cross sectors.
    crossing: Vec<bool>,
    /// No sector before this one has so much slack, but for those that names have left lately.
    hints: [u32; CLASSES],
    vacated: Vacated,
    block_bytes: usize,
    len: usize,
}

impl DirIndex {
    /// An empty index; `hasher` has the volume's key.
    pub(crate) fn new(block_bytes: usize, hasher: SipHasher13) -> DirIndex {
        DirIndex {
            hasher,
            first: IdMap::default(),
            more: Vec::new(),
            slacks: Vec::new(),
            crossing: Vec::new(),
            hints: [0; CLASSES],
            vacated: Vacated::default(),
            block_bytes,
            len: 0,
        }
    }

    /// Names, without "." and "..".
    pub(crate) fn len(&self) -> usize {
        self.len
    }
    /// So many blocks it has taken in.
    pub(crate) fn blocks(&self) -> u64 {
        self.crossing.len() as u64
    }
    pub(crate) fn is_crossing(&self, block: u64) -> bool {
        self.crossing[block as usize]
    }

    /// Takes in the next block.
    pub(crate) fn add_block(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        let n = self.crossing.len();
        self.crossing.push(crosses_sector(bytes)?);
        let sectors = self.block_bytes / SECTOR;
        self.slacks.resize((n + 1) * sectors, 0);
        for e in entries(bytes) {
            let e = e?;
            if e.ino != Ino(0) && e.name != b"." && e.name != b".." {
                self.add(e.name, (n * self.block_bytes + e.at) as u64);
            }
        }
        for sector in 0..sectors {
            self.refresh_sector(n as u64, sector, bytes)?;
        }
        Ok(())
    }

    /// Looks at a sector's slack again after a change in it.
    pub(crate) fn refresh_sector(
        &mut self,
        block: u64,
        sector: usize,
        bytes: &[u8],
    ) -> Result<(), FormatError> {
        // No entry need begin where a sector of the kernel's does.
        let (from, to) = (sector * SECTOR, (sector + 1) * SECTOR);
        let (walked, from) = match self.is_crossing(block) {
            true => (bytes, from..to),
            false => (&bytes[from..to.min(bytes.len())], 0..SECTOR),
        };
        let mut most = 0;
        for e in entries(walked) {
            let e = e?;
            if e.at >= from.end {
                break;
            }
            if e.at >= from.start {
                most = most.max(free_in(&e));
            }
        }
        assert!(most <= SECTOR, "U4: {most} bytes are free in one sector");
        let at = self.sector_at(block, sector);
        self.slacks[at as usize] = (most / 4) as u8;
        self.offer(at);
        Ok(())
    }

    fn sector_at(&self, block: u64, sector: usize) -> u32 {
        (block as usize * (self.block_bytes / SECTOR) + sector) as u32
    }

    /// The sector's slack is there for new names.
    fn offer(&mut self, at: u32) {
        let slack = self.slacks[at as usize];
        for class in &mut self.hints[..=usize::from(slack)] {
            *class = (*class).min(at);
        }
    }

    /// A name has left this sector by an operation, and the file has another one.
    pub(crate) fn vacate(&mut self, block: u64, sector: usize, by: TxnId) {
        self.vacated.add(self.sector_at(block, sector), by);
    }

    /// Sectors that names have left are kept from new ones as long as somebody `waits` there; all
    /// operations on the directory have ended.
    pub(crate) fn recheck(&mut self, waits: impl Fn(TxnId) -> bool) {
        self.vacated.hold(&waits);
        while let Some(free) = self.vacated.pop(&waits) {
            free.into_iter().for_each(|at| self.offer(at));
        }
    }

    /// Are few sectors kept from new names, so that the directory may grow instead?
    pub(crate) fn few_are_vacated(&self) -> bool {
        self.vacated.len() * 2 <= self.slacks.len()
    }

    /// Slack in those, if there is enough in one.
    pub(crate) fn take_vacated(&mut self, name_len: usize) -> Option<(u64, usize)> {
        while let Some(free) = self.vacated.pop(|_| false) {
            let Some(at) = free else { continue };
            self.offer(at);
            if let Some(found) = self.find_slack(name_len) {
                return Some(found);
            }
        }
        None
    }

    /// A sector with slack for a name of `name_len` bytes: (block, sector).
    pub(crate) fn find_slack(&mut self, name_len: usize) -> Option<(u64, usize)> {
        let need = format::ufs::dirent::needed(name_len) / 4;
        let from = self.hints[need] as usize;
        let fits = |&i: &usize| usize::from(self.slacks[i]) >= need && !self.vacated.has(i as u32);
        let found = (from..self.slacks.len()).find(fits);
        let at = found.unwrap_or(self.slacks.len());
        for class in &mut self.hints[need..] {
            *class = (*class).max(at as u32);
        }
        let sectors = self.block_bytes / SECTOR;
        let place = found.map(|i| ((i / sectors) as u64, i % sectors));
        let is_known = place.is_none_or(|(block, _)| block < self.blocks());
        assert!(is_known, "U4: room at {place:?}, of {} blocks", self.blocks());
        place
    }

    pub(crate) fn add(&mut self, name: &[u8], at: u64) {
        let at = u32::try_from(at).expect("a directory is shorter than 4 GiB");
        self.len += 1;
        match self.first.entry(self.hasher.hash(name)) {
            std::collections::hash_map::Entry::Vacant(v) => {
                v.insert(at);
            }
            std::collections::hash_map::Entry::Occupied(o) => self.more.push((*o.key(), at)),
        }
        self.check();
    }

    /// Is each name there once, and counted?
    fn check(&self) {
        let (first, more) = (self.first.len(), self.more.len());
        assert_eq!(self.len, first + more, "U4: a directory's names by hash, and their number");
    }

    pub(crate) fn remove(&mut self, name: &[u8], at: u64) {
        let (h, at) = (self.hasher.hash(name), at as u32);
        assert!(self.len > 0, "U4: a name is removed from a directory without names");
        self.len -= 1;
        if let Some(i) = self.more.iter().position(|m| *m == (h, at)) {
            self.more.swap_remove(i);
            return self.check();
        }
        let old = self.first.remove(&h);
        assert_eq!(old, Some(at), "U4: a name that is removed is in the index");
        if let Some(i) = self.more.iter().position(|m| m.0 == h) {
            let (_, other) = self.more.swap_remove(i);
            self.first.insert(h, other);
        }
        self.check();
    }

    /// Where entries with this name's hash lie.
    pub(crate) fn candidates(&self, name: &[u8]) -> Vec<u64> {
        let h = self.hasher.hash(name);
        let Some(first) = self.first.get(&h) else { return Vec::new() };
        let more = self.more.iter().filter(|m| m.0 == h).map(|m| u64::from(m.1));
        std::iter::once(u64::from(*first)).chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::ufs::dirent::{find_slack_in, init_empty, insert, merge_of, remove};

    #[test]
    fn rooms_and_names() {
        let mut block = vec![0; 1024];
        init_empty(&mut block);
        let hasher = SipHasher13::new_with_key(&[7; 16]);
        let mut index = DirIndex::new(1024, hasher);
        index.add_block(&block).unwrap();
        for i in 0..20u32 {
            let name = format!("name-of-some-length-{i:04}");
            let (b, sector) = index.find_slack(name.len()).unwrap();
            assert_eq!(b, 0);
            let slack = find_slack_in(&block, sector * SECTOR, name.len()).unwrap().unwrap();
            assert_eq!(slack / SECTOR, sector);
            let at = insert(&mut block, slack, Ino(100 + i), 1, name.as_bytes());
            index.add(name.as_bytes(), at as u64);
            index.refresh_sector(0, sector, &block).unwrap();
        }
        assert_eq!(index.len(), 20);
        assert_eq!(index.candidates(b"name-of-some-length-0007").len(), 1);
        assert!(index.candidates(b"nobody").is_empty());
        let mut again = DirIndex::new(1024, hasher);
        again.add_block(&block).unwrap();
        assert_eq!(again.slacks, index.slacks);
        assert_eq!(again.len(), 20);
        assert_eq!(index.find_slack(255), Some((0, 1)));
    }

    /// The twin is the block itself, looked through from the beginning.
    #[test]
    fn the_index_says_what_the_block_says() {
        for seed in 0..20 {
            let mut rng = env::Rng::new(seed);
            let mut block = vec![0; 1024];
            init_empty(&mut block);
            let mut index = DirIndex::new(1024, SipHasher13::new_with_key(&[7; 16]));
            index.add_block(&block).unwrap();
            let mut names: Vec<(Vec<u8>, usize)> = Vec::new();
            for n in 0..300u32 {
                let len = 8 + rng.below(60) as usize;
                let name = format!("{n:08}{}", "x".repeat(len)).into_bytes();
                let fits = |s: usize| find_slack_in(&block, s * SECTOR, name.len()).unwrap();
                let free = (0..2).find(|s| fits(*s).is_some_and(|at| at / SECTOR == *s));
                let slack = free.and_then(fits);
                let found = index.find_slack(name.len());
                assert_eq!(found.map(|(_, s)| s), free, "seed {seed}, step {n}");
                if let (Some(slack), false) = (slack, rng.one_in(3)) {
                    let at = insert(&mut block, slack, Ino(100 + n), 1, &name);
                    index.add(&name, at as u64);
                    index.refresh_sector(0, slack / SECTOR, &block).unwrap();
                    names.push((name, at));
                } else if !names.is_empty() {
                    let (name, at) = names.swap_remove(rng.below(names.len() as u64) as usize);
                    let from = at / SECTOR * SECTOR;
                    let merge = merge_of(&block, from, at).unwrap();
                    remove(&mut block, at, merge);
                    index.remove(&name, at as u64);
                    index.refresh_sector(0, at / SECTOR, &block).unwrap();
                    assert!(index.candidates(&name).is_empty());
                }
                assert_eq!(index.len(), names.len());
                let known =
                    |(name, at): &(Vec<u8>, usize)| index.candidates(name).contains(&(*at as u64));
                assert!(names.iter().all(known), "seed {seed}, step {n}");
            }
        }
    }

    /// Names that all have one hash in FNV-1a, 64 bits: after each pair of pieces the state is the
    /// same whichever of the two was taken. The differences of a pair's bytes, as they go into the
    /// state, come from a short vector of the lattice of those whose sum times powers of the prime
    /// is 0.
    fn names_with_one_hash(pairs: usize) -> Vec<Vec<u8>> {
        const DIFFERENCES: [i64; 14] = [2, -1, -5, -12, 13, 4, 12, 2, -6, -3, 5, 8, 0, 3];
        let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        let mut rng = env::Rng::new(1);
        let mut piece = |from: u64| {
            let (mut one, mut two, mut h, mut g) = (Vec::new(), Vec::new(), from, from);
            for d in DIFFERENCES {
                let fits = (0..1000).find_map(|_| {
                    let a = b'!' + rng.below(90) as u8;
                    let added = (h & 255 ^ u64::from(a)) as i64 - (h & 255) as i64 + d;
                    let low = u8::try_from((g & 255) as i64 + added).ok()?;
                    let b = low ^ (g & 255) as u8;
                    (a != b'/' && b != b'/' && b != 0).then_some((a, b))
                })?;
                (h, g) = (step(h, fits.0), step(g, fits.1));
                one.push(fits.0);
                two.push(fits.1);
            }
            assert_eq!(h, g);
            Some((one, two, h))
        };
        let (mut names, mut h) = (vec![Vec::new()], 0xcbf2_9ce4_8422_2325);
        for _ in 0..pairs {
            let (one, two, next) = (0..100).find_map(|_| piece(h)).unwrap();
            let with = |p: Vec<u8>| names.iter().map(move |n| [n.as_slice(), &p].concat());
            names = with(one).chain(with(two)).collect();
            h = next;
        }
        names
    }

    #[test]
    fn nobody_can_choose_names_that_have_one_hash() {
        let names = names_with_one_hash(13);
        assert_eq!(names.len(), 8192);
        let mut index = DirIndex::new(1024, SipHasher13::new_with_key(&[7; 16]));
        names.iter().enumerate().for_each(|(i, n)| index.add(n, i as u64));
        for (i, n) in names.iter().enumerate() {
            assert_eq!(index.candidates(n), [i as u64]);
        }
        // With another key they fall otherwise.
        let other = SipHasher13::new_with_key(&[8; 16]);
        assert!(names.iter().all(|n| other.hash(n) != index.hasher.hash(n)));
    }
}

//! PostMark's workload, version 1.5: a pool of small files as a mail server has them, and
//! transactions that each read or append to one file and create or delete another. It draws what is
//! to be done from a seed; it asks nobody to do it.
//!
//! Invariants:
//! * N1. A file is no shorter than the least and no longer than the most.

use env::Rng;

/// What PostMark is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    /// Files at the start.
    pub(crate) files: u64,
    /// The least and the most bytes of a file.
    pub(crate) bytes: (u64, u64),
    /// Of ten transactions, so many read (the others append).
    pub(crate) reads: u64,
    /// Of ten transactions, so many create (the others delete).
    pub(crate) creates: u64,
}

/// One thing to do to a file, which is named by a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Make it and write so many bytes.
    Create(u64, u64),
    /// Read all of it.
    Read(u64, u64),
    /// At this offset, so many bytes.
    Append(u64, u64, u64),
    /// Remove it.
    Delete(u64),
}

/// The pool, as the generator knows it.
pub(crate) struct PostMark {
    rng: Rng,
    told: Parameters,
    /// The files there are, and their lengths.
    files: Vec<(u64, u64)>,
    next: u64,
}

impl PostMark {
    /// No file yet.
    pub(crate) fn new(told: Parameters, seed: u64) -> PostMark {
        let (least, most) = told.bytes;
        let tenths = told.reads <= 10 && told.creates <= 10;
        assert!(least < most && tenths, "N1: {told:?} is no mail server's");
        PostMark { rng: Rng::new(seed), told, files: Vec::new(), next: 0 }
    }

    /// The files at the start.
    pub(crate) fn pool(&mut self) -> Vec<Step> {
        (0..self.told.files).map(|_| self.create()).collect()
    }

    /// One transaction: two steps, fewer where there is no file to take or no room in it.
    pub(crate) fn transaction(&mut self) -> Vec<Step> {
        let first = if self.rng.below(10) < self.told.reads { self.read() } else { self.append() };
        let create = self.rng.below(10) < self.told.creates;
        let second = if create { Some(self.create()) } else { self.delete() };
        first.into_iter().chain(second).collect()
    }

    fn create(&mut self) -> Step {
        let (least, most) = self.told.bytes;
        let (name, len) = (self.next, least + self.rng.below(most - least));
        self.next += 1;
        self.files.push((name, len));
        Step::Create(name, len)
    }

    fn any(&mut self) -> Option<usize> {
        let n = self.files.len() as u64;
        (n > 0).then(|| self.rng.below(n) as usize)
    }

    fn read(&mut self) -> Option<Step> {
        let i = self.any()?;
        let (name, len) = self.files[i];
        Some(Step::Read(name, len))
    }

    fn append(&mut self) -> Option<Step> {
        let i = self.any()?;
        let (name, at) = self.files[i];
        let room = self.told.bytes.1.saturating_sub(at);
        if room == 0 {
            return None;
        }
        let len = 1 + self.rng.below(room);
        self.files[i].1 += len;
        let ((least, most), now) = (self.told.bytes, self.files[i].1);
        assert!((least..=most).contains(&now), "N1: file {name} has {now} bytes");
        Some(Step::Append(name, at, len))
    }

    fn delete(&mut self) -> Option<Step> {
        let i = self.any()?;
        Some(Step::Delete(self.files.swap_remove(i).0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: Parameters = Parameters { files: 50, bytes: (500, 10_000), reads: 5, creates: 9 };

    #[test]
    fn transactions_are_drawn_as_the_biases_say() {
        let mut p = PostMark::new(MAIL, 42);
        assert_eq!(p.pool().len(), 50);
        let all: Vec<Step> = (0..4000).flat_map(|_| p.transaction()).collect();
        let count = |f: fn(&Step) -> bool| all.iter().filter(|s| f(s)).count();
        let (creates, reads) =
            (count(|s| matches!(s, Step::Create(..))), count(|s| matches!(s, Step::Read(..))));
        assert!((3500..3700).contains(&creates), "{creates}");
        assert!((1880..2120).contains(&reads), "{reads}");
        let long = all.iter().any(|s| matches!(s, Step::Append(_, at, len) if at + len > 10_000));
        assert!(!long, "no file grows beyond the most");
    }

    #[test]
    fn what_is_done_to_a_file_fits_what_was_done_to_it_before() {
        let mut p = PostMark::new(Parameters { creates: 4, ..MAIL }, 1);
        let mut lens = std::collections::BTreeMap::new();
        for step in p.pool().into_iter().chain((0..300).flat_map(|_| p.transaction())) {
            match step {
                Step::Create(f, len) => assert_eq!(lens.insert(f, len), None),
                Step::Read(f, len) => assert_eq!(lens[&f], len),
                Step::Append(f, at, len) => assert_eq!(lens.insert(f, at + len), Some(at)),
                Step::Delete(f) => assert!(lens.remove(&f).is_some()),
            }
        }
    }
}

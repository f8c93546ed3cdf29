//! A disk's contents: pages of 4 KiB that clones share until one changes them.
//!
//! Invariants:
//! * M1. What lies behind the end is neither written nor read: as zeros it would look like
//!   contents.
//! * M2. Images with the same bytes have the same digest, however they have come to be: what a page
//!   comes to is that of its bytes, and zeros are as good as no page.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

const PAGE: usize = 4096;

/// Contents of a disk; what was never written reads as zeros.
#[derive(Clone, Default)]
pub struct Image {
    size: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

/// One page, and what its contents come to once somebody has asked.
#[derive(Clone)]
struct Page {
    bytes: [u8; PAGE],
    digest: OnceLock<u64>,
}

impl Page {
    fn zeroed() -> Page {
        Page { bytes: [0; PAGE], digest: OnceLock::new() }
    }

    /// 0 for zeros, so that a page of them is as good as none.
    fn digest(&self) -> u64 {
        *self.digest.get_or_init(|| {
            let words = self.bytes.chunks_exact(8);
            let words = words.map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes")));
            if self.bytes == [0; PAGE] { 0 } else { words.fold(SEED, mixed).max(1) }
        })
    }
}

const SEED: u64 = 0xcbf2_9ce4_8422_2325;

fn mixed(all: u64, v: u64) -> u64 {
    (all ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Image {
    /// A disk of `size` bytes, all zero.
    pub fn new(size: u64) -> Image {
        Image { size, pages: BTreeMap::new() }
    }
    /// M1.
    fn check(&self, what: &str, at: u64, len: usize) {
        let fits = at.checked_add(len as u64).is_some_and(|end| end <= self.size);
        assert!(fits, "M1: a {what} of {len} bytes at {at} of a disk of {}", self.size);
    }
    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
    /// Reads from byte `at` on.
    pub fn read(&self, at: u64, into: &mut [u8]) {
        self.check("read", at, into.len());
        let mut done = 0;
        while done < into.len() {
            let pos = at + done as u64;
            let (page, offset) = (pos / PAGE as u64, (pos % PAGE as u64) as usize);
            let n = (PAGE - offset).min(into.len() - done);
            match self.pages.get(&page) {
                Some(p) => into[done..done + n].copy_from_slice(&p.bytes[offset..offset + n]),
                None => into[done..done + n].fill(0),
            }
            done += n;
        }
    }
    /// Writes from byte `at` on.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.check("write", at, bytes.len());
        let mut done = 0;
        while done < bytes.len() {
            let pos = at + done as u64;
            let (page, offset) = (pos / PAGE as u64, (pos % PAGE as u64) as usize);
            let n = (PAGE - offset).min(bytes.len() - done);
            let p = self.pages.entry(page).or_insert_with(|| Arc::new(Page::zeroed()));
            let p = Arc::make_mut(p);
            p.bytes[offset..offset + n].copy_from_slice(&bytes[done..done + n]);
            p.digest = OnceLock::new();
            done += n;
        }
    }
    /// Is the range known to be zero because it was never written?
    pub fn is_hole(&self, at: u64, len: u64) -> bool {
        let first = at / PAGE as u64;
        let last = at.saturating_add(len).div_ceil(PAGE as u64);
        self.pages.range(first..last.max(first)).next().is_none()
    }
    /// A number that two images with different contents hardly share.
    pub fn digest(&self) -> u64 {
        let pages = self.pages.iter().map(|(n, page)| (*n, page.digest()));
        pages.filter(|(_, d)| *d != 0).fold(SEED, |all, (n, d)| mixed(mixed(all, n), d))
    }
    /// All bytes, for a tool that wants a file.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.size as usize];
        self.read(0, &mut all);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Rng;

    const BYTES: u64 = 5 * PAGE as u64 + 512;

    /// Against a plain vector, with clones that live on; and a digest is of the bytes alone.
    #[test]
    fn it_is_what_a_vector_is() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let (mut image, mut twin) = (Image::new(BYTES), vec![0; BYTES as usize]);
            let mut old = (image.clone(), twin.clone());
            for _ in 0..60 {
                let at = rng.below(BYTES);
                let len = rng.below((BYTES - at).min(6000) + 1) as usize;
                let range = at as usize..at as usize + len;
                match rng.below(4) {
                    0 => old = (image.clone(), twin.clone()),
                    1 => assert_ne!(image.digest(), 0, "asked before the next write"),
                    _ => {
                        let bytes = vec![rng.below(3) as u8; len];
                        image.write(at, &bytes);
                        twin[range.clone()].copy_from_slice(&bytes);
                    }
                }
                let mut part = vec![9; len];
                image.read(at, &mut part);
                assert_eq!(part, twin[range.clone()], "seed {seed}");
                assert!(!image.is_hole(at, len as u64) || twin[range].iter().all(|b| *b == 0));
                assert!(image.to_vec() == twin && old.0.to_vec() == old.1, "seed {seed}");
                for (image, twin) in [(&image, &twin), (&old.0, &old.1)] {
                    let mut fresh = Image::new(BYTES);
                    fresh.write(0, twin);
                    assert_eq!(image.digest(), fresh.digest(), "M2: seed {seed}");
                }
                assert_eq!(image.digest() == old.0.digest(), twin == old.1, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_range_up_to_the_last_byte_of_all_is_a_hole_or_none() {
        let mut image = Image::new(BYTES);
        image.write(BYTES - 1, &[1]);
        assert!(image.is_hole(u64::MAX, u64::MAX) && image.is_hole(BYTES + PAGE as u64, u64::MAX));
        assert!(!image.is_hole(0, u64::MAX) && image.is_hole(0, 0));
    }

    #[test]
    #[should_panic(expected = "M1: a read")]
    fn behind_the_end_there_are_no_zeros() {
        Image::new(BYTES).read(BYTES - 1, &mut [0; 2]);
    }

    #[test]
    #[should_panic(expected = "M1: a write")]
    fn nor_is_there_anything_to_write() {
        Image::new(BYTES).write(u64::MAX, &[0; 2]);
    }
}

//! A disk's contents: pages of 4 KiB that clones share until one changes them.

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
    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
    /// Reads from byte `at` on.
    pub fn read(&self, at: u64, into: &mut [u8]) {
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
        let (end, size) = (at + bytes.len() as u64, self.size);
        assert!(end <= size, "a write up to byte {end} of a disk of {size}");
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
        let last = (at + len).div_ceil(PAGE as u64);
        self.pages.range(first..last).next().is_none()
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

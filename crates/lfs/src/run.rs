//! A run: a part of the translation table as it lies on the disk, sorted extents in pages that
//! never change, with an index of the pages' first blocks. It knows how its bytes look, and not
//! when runs are written, merged or read.
//!
//! ```text
//!  page   0 sum of the rest | 4 extents | 8 extents, one behind the other
//!  extent 0 virtual block | 8 place, all ones: free | 16 blocks
//!  index  for each page: 0 its first virtual block | 8 its place
//! ```

use crate::codec::{Reader, Writer};
use crate::extents::Extent;
use crate::geometry::{BLOCK_BYTES, Place, Virt};

/// An extent's bytes in a page.
pub(crate) const EXTENT_BYTES: usize = 20;
/// Extents in a page.
pub(crate) const PAGE_EXTENTS: usize = (BLOCK_BYTES - 8) / EXTENT_BYTES;
const FREE: u64 = u64::MAX;

/// Blocks that lie one behind the other.
pub(crate) type Chunk = (Place, u32);

/// A run, with its index in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Run {
    /// Each page's first virtual block, and where it lies.
    pub(crate) pages: Vec<(Virt, Place)>,
    /// Extents in all pages.
    pub(crate) extents: u64,
    /// Where the index lies.
    pub(crate) index: Vec<Chunk>,
    /// The index's checksum.
    pub(crate) index_sum: u32,
}

impl Run {
    /// The pages in which extents of `from..to` may lie.
    pub(crate) fn pages_of(&self, from: u64, to: u64) -> std::ops::Range<usize> {
        let first = self.pages.partition_point(|p| p.0.0 <= from).saturating_sub(1);
        first..self.pages.partition_point(|p| p.0.0 < to)
    }

    /// The index's bytes.
    pub(crate) fn encode_index(&self) -> Vec<u8> {
        let mut w = Writer::default();
        for (v, place) in &self.pages {
            w.u64(v.0).u64(place.0);
        }
        w.0
    }

    /// Does the page of this number hold what the index says: from its first block on, up to where
    /// the next page begins?
    pub(crate) fn has_page(&self, number: usize, page: &[Extent]) -> bool {
        let first = page.first().is_some_and(|e| e.v == self.pages[number].0);
        let next = self.pages.get(number + 1).map_or(u64::MAX, |p| p.0.0);
        first && page.last().is_some_and(|e| e.end() <= next)
    }

    /// Takes the index in; false: its sum is wrong.
    pub(crate) fn load_index(&mut self, seed: u32, raw: &[u8]) -> bool {
        let known = self.pages.len();
        assert_eq!(known, 0, "I8: the index of a run is taken in behind {known} pages");
        let mut r = Reader(raw);
        while let (Some(v), Some(place)) = (r.u64(), r.u64()) {
            self.pages.push((Virt(v), Place(place)));
        }
        crc32c::crc32c_append(seed, raw) == self.index_sum
    }

    /// Every block that belongs to it.
    pub(crate) fn places(&self) -> impl Iterator<Item = Chunk> {
        self.pages.iter().map(|p| (p.1, 1)).chain(self.index.iter().copied())
    }

    /// What the checkpoint says of it.
    pub(crate) fn encode_reference(&self, w: &mut Writer) {
        w.u64(self.extents).u32(self.pages.len() as u32).u32(self.index_sum);
        encode_chunks(w, &self.index);
    }

    /// The reverse: the run without its index, and how many pages that has.
    pub(crate) fn decode_reference(r: &mut Reader<'_>) -> Option<(Run, usize)> {
        let (extents, pages, index_sum) = (r.u64()?, r.u32()?, r.u32()?);
        let index = decode_chunks(r)?;
        Some((Run { pages: Vec::new(), extents, index, index_sum }, pages as usize))
    }
}

pub(crate) fn encode_chunks(w: &mut Writer, chunks: &[Chunk]) {
    w.u32(chunks.len() as u32);
    for (place, n) in chunks {
        w.u64(place.0).u32(*n);
    }
}

pub(crate) fn decode_chunks(r: &mut Reader<'_>) -> Option<Vec<Chunk>> {
    let n = r.u32()?;
    (0..n).map(|_| Some((Place(r.u64()?), r.u32()?))).collect()
}

/// A page's bytes.
pub(crate) fn encode_page(seed: u32, extents: &[Extent]) -> Vec<u8> {
    let n = extents.len();
    assert!((1..=PAGE_EXTENTS).contains(&n), "I8: {n} extents in a page of the table");
    let mut w = Writer::default();
    w.u32(0).u32(extents.len() as u32);
    for e in extents {
        w.u64(e.v.0).u64(e.place.map_or(FREE, |p| p.0)).u32(e.n);
    }
    w.0.resize(BLOCK_BYTES, 0);
    let sum = crc32c::crc32c_append(seed, &w.0[4..]);
    w.0[..4].copy_from_slice(&sum.to_le_bytes());
    // A merge writes all of a large table.
    debug_assert!(
        decode_page(seed, &w.0).is_some_and(|all| all == extents),
        "I17: a page of {n} extents is read as another one"
    );
    w.0
}

/// A page's extents; None: it is damaged.
pub(crate) fn decode_page(seed: u32, raw: &[u8]) -> Option<Vec<Extent>> {
    let mut r = Reader(raw.get(..BLOCK_BYTES)?);
    if r.u32()? != crc32c::crc32c_append(seed, r.0) {
        return None;
    }
    let n = r.u32()?;
    (0..n)
        .map(|_| {
            let (v, place, n) = (Virt(r.u64()?), r.u64()?, r.u32()?);
            Some(Extent { v, n, place: (place != FREE).then_some(Place(place)) })
        })
        .collect()
}

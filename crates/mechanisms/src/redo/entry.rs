//! An entry's bytes: what one or several operations changed, as byte ranges with their places, and
//! the blocks they freed. It knows the layout of an entry and nothing of when one is written.
//!
//! All little-endian. Items are applied in their order; a later one wins.
//!
//! ```text
//!  entry   0 version (1, 2) | 1..4 zero | 4 items
//!  item    0 block | 4 offset in the block, kind in the upper 3 bits | 6 length
//!          in version 2: 8 upper 16 bits of the block, on disks of more than 2^32 blocks
//!          kind 0 write: `length` bytes follow    kind 1 zero: that many bytes are 0
//!          kind 2 revoke: no item before this one applies to `length` blocks from this one on
//! ```

use format::{BlockNo, Extent, FormatError};

const VERSION: u8 = 1;
const WIDE_VERSION: u8 = 2;
pub(crate) const ENTRY_HEADER: usize = 8;
const NARROW_ITEM_HEADER: usize = 8;
/// The longest that an item's header is.
pub(crate) const ITEM_HEADER: usize = 10;
const WRITE: u16 = 0;
const ZERO: u16 = 1;
const REVOKE: u16 = 2;
/// Blocks are at most 4 KiB, so 13 bits are enough for an offset.
const OFFSET_BITS: u32 = 13;
/// What most entries are not longer than.
const USUAL_BYTES: usize = 1024;
/// A run of zeros this long is cheaper as an item of its own.
const ZERO_RUN: usize = 3 * ITEM_HEADER;

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Item<'a> {
    /// These bytes go to this place.
    Write(BlockNo, usize, &'a [u8]),
    /// So many bytes at this place are zero.
    Zero(BlockNo, usize, usize),
    /// Nothing before this applies to these blocks.
    Revoke(Extent),
}

/// An entry in the making.
#[derive(Clone, Debug)]
pub(crate) struct EntryBuf {
    bytes: Vec<u8>,
    items: u32,
    wide: bool,
}

impl EntryBuf {
    /// `wide`: block numbers may have more than 32 bits.
    pub(crate) fn new(wide: bool) -> EntryBuf {
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        let version = if wide { WIDE_VERSION } else { VERSION };
        bytes.extend_from_slice(&[version, 0, 0, 0, 0, 0, 0, 0]);
        EntryBuf { bytes, items: 0, wide }
    }

    fn item(&mut self, block: BlockNo, kind: u16, offset: usize, len: usize) {
        let high = u16::try_from(block.0 >> 32).expect("block numbers have 48 bits");
        assert!(self.wide || high == 0, "block {block} in an entry for numbers of 32 bits");
        assert!(len > 0, "an item of no bytes of block {block}");
        assert!(offset < 1 << OFFSET_BITS && len <= usize::from(u16::MAX));
        let inside = kind == REVOKE || offset + len <= 1 << OFFSET_BITS;
        assert!(inside, "an item of {len} bytes at {offset} of block {block}");
        let place = kind << OFFSET_BITS | offset as u16;
        let mut header = [0; ITEM_HEADER];
        header[..4].copy_from_slice(&(block.0 as u32).to_le_bytes());
        header[4..6].copy_from_slice(&place.to_le_bytes());
        header[6..8].copy_from_slice(&(len as u16).to_le_bytes());
        header[8..].copy_from_slice(&high.to_le_bytes());
        let header_len = if self.wide { ITEM_HEADER } else { NARROW_ITEM_HEADER };
        self.bytes.extend_from_slice(&header[..header_len]);
        self.items += 1;
    }

    /// Bytes of a block. Long runs of zeros in them cost one small item.
    pub(crate) fn write(&mut self, block: BlockNo, offset: usize, bytes: &[u8]) {
        let mut from = 0;
        while from < bytes.len() {
            let (zeros, zero_len) = next_zero_run(&bytes[from..]);
            if zeros > 0 {
                self.item(block, WRITE, offset + from, zeros);
                self.bytes.extend_from_slice(&bytes[from..from + zeros]);
            }
            if zero_len > 0 {
                self.item(block, ZERO, offset + from + zeros, zero_len);
            }
            from += zeros + zero_len;
        }
        assert_eq!(from, bytes.len(), "an entry leaves bytes of block {block} out");
    }

    /// Zero bytes in a block.
    pub(crate) fn zero(&mut self, block: BlockNo, offset: usize, len: usize) {
        self.item(block, ZERO, offset, len);
    }

    /// What came before no longer applies to these blocks.
    pub(crate) fn revoke(&mut self, extent: Extent) {
        assert!(extent.len > 0, "I6: no block at {} is revoked", extent.start);
        let mut done = 0;
        while done < extent.len {
            let n = (extent.len - done).min(u64::from(u16::MAX));
            self.item(extent.start.plus(done), REVOKE, 0, n as usize);
            done += n;
        }
    }

    /// Appends another entry's items: both are one entry from now on.
    pub(crate) fn join(&mut self, other: &EntryBuf) {
        assert_eq!(self.wide, other.wide, "entries of one disk are alike");
        let header = &other.bytes[..ENTRY_HEADER];
        assert_eq!(self.bytes[..ENTRY_HEADER], *header, "an entry is joined that is finished");
        self.bytes.extend_from_slice(&other.bytes[ENTRY_HEADER..]);
        self.items += other.items;
    }

    /// How long it is.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The entry as it is logged.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let least = self.items as usize * NARROW_ITEM_HEADER;
        let there = self.bytes.len() - ENTRY_HEADER;
        assert!(least <= there, "an entry of {} items in {there} bytes", self.items);
        self.bytes[4..8].copy_from_slice(&self.items.to_le_bytes());
        let read = || decode(&self.bytes, 1 << OFFSET_BITS, |_| ());
        debug_assert_eq!(read(), Ok(()), "an entry that nobody can read goes into the log");
        self.bytes
    }
}

/// Where the first run of zeros that is worth an item begins, and its length; else the end and 0.
/// Bytes are read from the far end of where a run may lie, as in a search for a word: one that is
/// not zero rules out all before it.
fn next_zero_run(bytes: &[u8]) -> (usize, usize) {
    let mut start = 0;
    while let Some(window) = bytes.get(start..start + ZERO_RUN) {
        if let Some(last) = window.iter().rposition(|&b| b != 0) {
            start += last + 1;
            continue;
        }
        let more = bytes[start + ZERO_RUN..].iter().take_while(|&&b| b == 0).count();
        return (start, ZERO_RUN + more);
    }
    (bytes.len(), 0)
}

/// Calls `each` for every item of a logged entry of a volume with blocks of `block_bytes`.
pub(crate) fn decode<'a>(
    bytes: &'a [u8],
    block_bytes: usize,
    mut each: impl FnMut(Item<'a>),
) -> Result<(), FormatError> {
    let bad = |what: &str| FormatError::corrupt(what, "log entry");
    let header = match bytes.first() {
        Some(&VERSION) if bytes.len() >= ENTRY_HEADER => NARROW_ITEM_HEADER,
        Some(&WIDE_VERSION) if bytes.len() >= ENTRY_HEADER => ITEM_HEADER,
        _ => return Err(bad("an entry of an unknown kind")),
    };
    let le = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let items = le(&bytes[4..]);
    let mut rest = &bytes[ENTRY_HEADER..];
    for _ in 0..items {
        let (h, after) =
            rest.split_at_checked(header).ok_or_else(|| bad("an entry ends in an item"))?;
        let high = h.get(8..10).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
        let block = BlockNo(u64::from(high) << 32 | u64::from(le(h)));
        let place = u16::from_le_bytes([h[4], h[5]]);
        let len = usize::from(u16::from_le_bytes([h[6], h[7]]));
        let (kind, offset) = (place >> OFFSET_BITS, usize::from(place & ((1 << OFFSET_BITS) - 1)));
        if kind != REVOKE && offset + len > block_bytes {
            return Err(bad("an item reaches beyond its block"));
        }
        rest = after;
        match kind {
            WRITE => {
                let (data, after) =
                    rest.split_at_checked(len).ok_or_else(|| bad("an item's bytes are missing"))?;
                each(Item::Write(block, offset, data));
                rest = after;
            }
            ZERO => each(Item::Zero(block, offset, len)),
            REVOKE => each(Item::Revoke(Extent { start: block, len: len as u64 })),
            _ => return Err(bad("an item of an unknown kind")),
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(bad("bytes behind an entry's last item")) }
}

/// Planted bug: cuts an entry in two, each with some of its items.
pub(crate) fn halves(bytes: &[u8], block_bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let wide = bytes.first() == Some(&WIDE_VERSION);
    let (mut first, mut second) = (EntryBuf::new(wide), EntryBuf::new(wide));
    let mut n = 0;
    let copied = decode(bytes, block_bytes, |item| {
        n += 1;
        let half = if n % 2 == 1 { &mut first } else { &mut second };
        match item {
            Item::Write(b, at, data) => half.write(b, at, data),
            Item::Zero(b, at, len) => half.zero(b, at, len),
            Item::Revoke(e) => half.revoke(e),
        }
    });
    copied.expect("an entry of our own is well formed");
    (first.finish(), second.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        comes_out(false, 0);
        comes_out(true, 0);
        comes_out(true, 0xffff << 32 | 0xffff_0000);
    }

    fn comes_out(wide: bool, base: u64) {
        let at = |n: u64| BlockNo(base + n);
        let mut e = EntryBuf::new(wide);
        let mut bytes = vec![7; 300];
        bytes[100..180].fill(0);
        bytes[200] = 0;
        e.write(at(5), 40, &bytes);
        e.revoke(Extent { start: at(9), len: 65_000 });
        let mut second = EntryBuf::new(wide);
        second.zero(at(6), 0, 4096);
        e.join(&second);
        let logged = e.finish();
        assert!(logged.len() < 300 + 10 * 7);
        let mut image = vec![1; 4096];
        let mut revoked = 0;
        let mut zeroed = 0;
        let apply = |i: Item<'_>| match i {
            Item::Write(b, offset, data) => {
                assert_eq!(b, at(5));
                image[offset..offset + data.len()].copy_from_slice(data);
            }
            Item::Zero(b, offset, n) if b == at(5) => image[offset..offset + n].fill(0),
            Item::Zero(b, _, n) => {
                assert_eq!(b, at(6));
                zeroed += n;
            }
            Item::Revoke(x) => {
                assert_eq!(x.start, at(9));
                revoked += x.len;
            }
        };
        decode(&logged, 4096, apply).unwrap();
        assert_eq!((&image[40..340], image[39], image[340]), (&bytes[..], 1, 1));
        assert_eq!((revoked, zeroed), (65_000, 4096));
    }

    #[test]
    fn the_first_run_of_zeros_that_is_long_enough_is_found() {
        let naive = |b: &[u8]| {
            let long = |at: &usize| b[*at..].iter().take_while(|&&x| x == 0).count() >= ZERO_RUN;
            let Some(at) = (0..b.len()).find(long) else { return (b.len(), 0) };
            (at, b[at..].iter().take_while(|&&x| x == 0).count())
        };
        let mut rng = env::Rng::new(1);
        for _ in 0..2000 {
            let len = rng.below(200) as usize;
            let mut bytes = vec![0; len];
            let zeros = 1 + rng.below(60);
            bytes.iter_mut().for_each(|b| *b = u8::from(rng.one_in(zeros)));
            assert_eq!(next_zero_run(&bytes), naive(&bytes), "{bytes:?}");
        }
    }

    #[test]
    fn damaged_entries_are_refused() {
        for wide in [false, true] {
            let mut e = EntryBuf::new(wide);
            e.write(BlockNo(1), 4090, &[1; 6]);
            let good = e.finish();
            assert!(decode(&good, 4096, |_| ()).is_ok());
            assert!(decode(&good, 1024, |_| ()).is_err());
            for cut in 0..good.len() {
                assert!(decode(&good[..cut], 4096, |_| ()).is_err());
            }
            let mut long = good.clone();
            long.push(0);
            assert!(decode(&long, 4096, |_| ()).is_err());
        }
    }

    #[test]
    #[should_panic(expected = "in an entry for numbers of 32 bits")]
    fn a_number_is_never_cut_off() {
        EntryBuf::new(false).zero(BlockNo(1 << 32), 0, 8);
    }
}

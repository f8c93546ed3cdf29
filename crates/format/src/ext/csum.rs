//! Checksums of metadata: `metadata_csum`'s CRC-32C over every structure, and `uninit_bg`'s CRC-16
//! over group descriptors alone. Each structure's sum is computed here and nowhere else; when one
//! is computed and when it is compared is `ext`'s business.
//!
//! Every sum begins with the volume's seed; those of blocks that belong to one inode go on with the
//! inode's number and generation, so that a block that lies in the wrong place is found out.

use crate::bytes::{le16, le32, set16, set32};
use crate::ufs::inode::CLASSIC_BYTES;
use crate::{BlockNo, FormatError, GroupNo, Ino};
use std::ops::Range;

/// Which checksums a volume's metadata carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sums {
    /// None.
    None,
    /// Group descriptors only, by a CRC-16 that begins with this (`uninit_bg`).
    Descriptors(u16),
    /// All metadata, by CRC-32C with this seed (`metadata_csum`).
    All(u32),
}

/// Bytes at the end of a directory's block that hold its checksum, as an unused entry.
pub const DIR_TAIL: usize = 12;
/// The kind byte of that entry.
const DIR_TAIL_KIND: u8 = 0xde;
/// Where an inode has the two halves of its checksum.
const INODE_LOW: usize = 0x7c;
const INODE_HIGH: usize = 0x82;
/// Where an inode has its generation.
const GENERATION: usize = 0x64;
/// So many bytes of an inode's slot are summed in one step: all of it, at the usual size.
const FRONT: usize = 256;
/// Where a group descriptor has its own checksum.
const DESC: usize = 0x1e;
/// Where a group descriptor has the low and the high half of its bitmaps' checksums.
const BLOCK_MAP: (usize, usize) = (0x18, 0x38);
const INODE_MAP: (usize, usize) = (0x1a, 0x3a);
/// Bytes from which on a descriptor has high halves.
const WIDE_DESC: usize = 64;
/// Where an attribute block has its checksum.
const XATTR: usize = 16;
/// Where the superblock has its checksum, of all that is before it.
pub(super) const SUPER: usize = 0x3fc;

/// CRC-32C as the kernel has it: with a seed, and not inverted at the end.
pub fn crc(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// What CRC-32C does to a byte, and by its highest byte which byte that was.
const STEPS: ([u32; 256], [u8; 256]) = steps();

const fn steps() -> ([u32; 256], [u8; 256]) {
    let (mut table, mut back) = ([0; 256], [0; 256]);
    let mut i = 0;
    while i < 256 {
        let (mut c, mut bit) = (i as u32, 0);
        while bit < 8 {
            c = (c >> 1) ^ (0x82f6_3b78 * (c & 1));
            bit += 1;
        }
        table[i] = c;
        back[(c >> 24) as usize] = i as u8;
        i += 1;
    }
    (table, back)
}

/// The state of the sum before a zero made it `after`.
const fn before(after: u32) -> u32 {
    let step = STEPS.1[(after >> 24) as usize];
    ((after ^ STEPS.0[step as usize]) << 8) | step as u32
}

/// The state of the sum after a zero.
const fn after(before: u32) -> u32 {
    (before >> 8) ^ STEPS.0[(before & 0xff) as usize]
}

/// The sum's state after a number of zero bytes, for each value of each of its four bytes: the
/// exclusive or of the four is the state after them.
struct Shift([[u32; 256]; 4]);

impl Shift {
    /// Forwards by this number of zero bytes, or back.
    const fn new(zeros: usize, back: bool) -> Shift {
        let mut table = [[0; 256]; 4];
        let mut bit = 0;
        while bit < 32 {
            let (mut state, mut n) = (1 << bit, 0);
            while n < zeros {
                state = if back { before(state) } else { after(state) };
                n += 1;
            }
            let mut byte = 0;
            while byte < 256 {
                table[bit / 8][byte] ^= state * (byte as u32 >> (bit % 8) & 1);
                byte += 1;
            }
            bit += 1;
        }
        Shift(table)
    }
    fn of(&self, state: u32) -> u32 {
        let parts = state.to_le_bytes().into_iter().zip(&self.0);
        parts.fold(0, |all, (byte, table)| all ^ table[usize::from(byte)])
    }
}

/// So many bytes are from the superblock's unused ones to its end.
const FAR: usize = SUPER - super::superblock::UNUSED;
/// Each transaction that unlinks or frees sets the list of orphans, and these.
static FAR_BACK: Shift = Shift::new(FAR, true);
static FROM_ORPHAN: Shift =
    Shift::new(super::superblock::UNUSED - super::superblock::LAST_ORPHAN, false);

/// By what the superblock's unused four bytes change when the head of the list of orphans changes
/// by this and the sum stays: it is linear, so that nothing else needs to be looked at.
pub(super) fn balance_of_orphan(change: u32) -> u32 {
    FROM_ORPHAN.of(change)
}

/// What the four bytes at `at` have to be so that all have this sum: a CRC takes every value once
/// for the values of four bytes. It is linear, so that what changes there makes, with nothing but
/// zeros behind it, the difference between the sum that is wanted and the one that is there.
pub(super) fn word_for_sum(seed: u32, bytes: &[u8], at: usize, sum: u32) -> u32 {
    assert!(at + 4 <= bytes.len(), "F4: a word at byte {at} makes no sum of {}", bytes.len());
    let differs = crc(seed, bytes) ^ sum;
    let changes = match bytes.len() - at {
        FAR => FAR_BACK.of(differs),
        far => (0..far).fold(differs, |s, _| before(s)),
    };
    le32(bytes, at) ^ changes
}

/// Makes them so.
pub(super) fn make_sum(seed: u32, bytes: &mut [u8], at: usize, sum: u32) {
    let word = word_for_sum(seed, bytes, at, sum);
    set32(bytes, at, word);
    debug_assert_eq!(crc(seed, bytes), sum, "F4: the word at byte {at} does not make the sum");
}

/// CRC-16 with the polynomial 0x8005, its lowest bit first.
fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes
        .iter()
        .fold(seed, |sum, b| (0..8).fold(sum ^ u16::from(*b), |s, _| (s >> 1) ^ (0xa001 * (s & 1))))
}

fn wrong(what: &str, has: u32, should: u32, at: String) -> FormatError {
    FormatError::corrupt(format!("{what}'s checksum is {has:#x}, and should be {should:#x}"), at)
}

impl Sums {
    /// Of a volume without its own seed: that of the UUID.
    pub fn seed_of(uuid: &[u8; 16]) -> u32 {
        crc(!0, uuid)
    }
    /// The start of `uninit_bg`'s sums.
    pub(crate) fn start_of(uuid: &[u8; 16]) -> u16 {
        crc16(!0, uuid)
    }
    /// Bytes at the end of each of a directory's blocks that hold no entries.
    pub fn dir_tail(self) -> usize {
        if matches!(self, Sums::All(_)) { DIR_TAIL } else { 0 }
    }
    /// May descriptors say that a group's bitmaps and inode table are not there yet?
    pub fn lazy(self) -> bool {
        self != Sums::None
    }
    /// What the sums of an inode's blocks begin with; None: there are none.
    pub fn of_inode(self, ino: Ino, generation: u32) -> Option<InodeSeed> {
        let Sums::All(seed) = self else { return None };
        let mut head = [0; 8];
        set32(&mut head, 0, ino.0);
        set32(&mut head, 4, generation);
        Some(InodeSeed { ino, seed: crc(seed, &head) })
    }

    fn desc(self, g: GroupNo, desc: &[u8]) -> Option<u16> {
        let number = g.0.to_le_bytes();
        match self {
            Sums::None => None,
            Sums::Descriptors(start) => {
                let front = crc16(crc16(start, &number), &desc[..DESC]);
                Some(crc16(front, &desc[DESC + 2..]))
            }
            Sums::All(seed) => {
                let mut all = [0; 4 + WIDE_DESC];
                let (front, rest) = desc.split_at(desc.len().min(WIDE_DESC));
                all[..4].copy_from_slice(&number);
                all[4..4 + front.len()].copy_from_slice(front);
                all[4 + DESC..4 + DESC + 2].fill(0); // its own
                let sum = crc(seed, &all[..4 + front.len()]);
                Some(if rest.is_empty() { sum } else { crc(sum, rest) } as u16)
            }
        }
    }
    /// Checks a group's descriptor.
    pub fn check_desc(self, g: GroupNo, desc: &[u8]) -> Result<(), FormatError> {
        match (self.desc(g, desc), le16(desc, DESC)) {
            (Some(should), has) if has != should => {
                let at = format!("group descriptor {g}");
                Err(wrong("the descriptor", u32::from(has), u32::from(should), at))
            }
            _ => Ok(()),
        }
    }
    /// Seals a group's descriptor.
    pub fn seal_desc(self, g: GroupNo, desc: &mut [u8]) {
        if let Some(sum) = self.desc(g, desc) {
            set16(desc, DESC, sum);
        }
        // As costly as the sum itself, here and below.
        debug_assert_eq!(self.check_desc(g, desc), Ok(()), "F4: descriptor {g} is sealed");
    }

    fn map_sum(self, desc: &[u8], (low, high): (usize, usize), map: &[u8]) -> Option<(u32, u32)> {
        let Sums::All(seed) = self else { return None };
        let should = crc(seed, map);
        if desc.len() < WIDE_DESC {
            return Some((u32::from(le16(desc, low)), should & 0xffff));
        }
        Some((u32::from(le16(desc, low)) | u32::from(le16(desc, high)) << 16, should))
    }
    fn check_map(
        self,
        (g, desc): (GroupNo, &[u8]),
        at: (usize, usize),
        map: &[u8],
        what: &str,
    ) -> Result<(), FormatError> {
        match self.map_sum(desc, at, map) {
            Some((has, should)) if has != should => {
                Err(wrong(what, has, should, format!("group {g}")))
            }
            _ => Ok(()),
        }
    }
    fn seal_map(self, desc: &mut [u8], at: (usize, usize), map: &[u8]) {
        if let Some((_, sum)) = self.map_sum(desc, at, map) {
            set16(desc, at.0, sum as u16);
            if desc.len() >= WIDE_DESC {
                set16(desc, at.1, (sum >> 16) as u16);
            }
            let kept = self.map_sum(desc, at, &[]).map_or(sum, |(has, _)| has);
            assert_eq!(kept, sum, "F4: the sum of a bitmap, at {at:?}, is read as another one");
        }
    }
    /// Checks a group's block bitmap, just its bits, by the group's descriptor.
    pub fn check_block_map(self, group: (GroupNo, &[u8]), map: &[u8]) -> Result<(), FormatError> {
        self.check_map(group, BLOCK_MAP, map, "the block bitmap")
    }
    /// Puts a block bitmap's sum into its group's descriptor, which is to be sealed then.
    pub fn seal_block_map(self, desc: &mut [u8], map: &[u8]) {
        self.seal_map(desc, BLOCK_MAP, map);
    }
    /// Checks a group's inode bitmap, just its bits, by the group's descriptor.
    pub fn check_inode_map(self, group: (GroupNo, &[u8]), map: &[u8]) -> Result<(), FormatError> {
        self.check_map(group, INODE_MAP, map, "the inode bitmap")
    }
    /// Puts an inode bitmap's sum into its group's descriptor, which is to be sealed then.
    pub fn seal_inode_map(self, desc: &mut [u8], map: &[u8]) {
        self.seal_map(desc, INODE_MAP, map);
    }

    /// The sum that an inode's slot should have; None: none.
    pub fn inode_sum(self, ino: Ino, raw: &[u8]) -> Option<InodeSum> {
        let Sums::All(seed) = self else { return None };
        // One piece, because each costs a call: number, generation, and the slot's front, in which
        // the sum's own halves are zeros.
        let mut all = [0; 8 + FRONT];
        let (front, rest) = raw.split_at(raw.len().min(FRONT));
        all[..4].copy_from_slice(&ino.0.to_le_bytes());
        all[4..8].copy_from_slice(&raw[GENERATION..GENERATION + 4]);
        all[8..8 + front.len()].copy_from_slice(front);
        all[8 + INODE_LOW..8 + INODE_LOW + 2].fill(0);
        let has_high = raw.len() > CLASSIC_BYTES && has_high(raw);
        if has_high {
            all[8 + INODE_HIGH..8 + INODE_HIGH + 2].fill(0);
        }
        let sum = crc(seed, &all[..8 + front.len()]);
        let sum = if rest.is_empty() { sum } else { crc(sum, rest) };
        Some(InodeSum { sum: if has_high { sum } else { sum & 0xffff }, has_high })
    }
    /// Checks an inode that is in use.
    pub fn check_inode(self, ino: Ino, raw: &[u8]) -> Result<(), FormatError> {
        let Some(InodeSum { sum, has_high }) = self.inode_sum(ino, raw) else { return Ok(()) };
        let high = if has_high { u32::from(le16(raw, INODE_HIGH)) << 16 } else { 0 };
        let has = u32::from(le16(raw, INODE_LOW)) | high;
        if has == sum {
            return Ok(());
        }
        Err(wrong("the inode", has, sum, format!("inode {ino}")))
    }
    /// Seals an inode's slot.
    pub fn seal_inode(self, ino: Ino, raw: &mut [u8]) {
        if let Some(sum) = self.inode_sum(ino, raw) {
            sum.put(&mut raw[sum.range()]);
        }
        debug_assert_eq!(self.check_inode(ino, raw), Ok(()), "F4: inode {ino} is sealed");
    }

    /// The sum that an attribute block should have; None: none.
    pub fn xattr_sum(self, at: BlockNo, block: &[u8]) -> Option<SumAt> {
        let Sums::All(seed) = self else { return None };
        let front = crc(crc(seed, &at.0.to_le_bytes()), &block[..XATTR]);
        let sum = crc(crc(front, &[0; 4]), &block[XATTR + 4..]);
        Some(SumAt { at: XATTR, sum })
    }
    /// Checks an attribute block.
    pub fn check_xattr(self, at: BlockNo, block: &[u8]) -> Result<(), FormatError> {
        match self.xattr_sum(at, block) {
            Some(should) => should.check(block, "the attribute block", || format!("block {at}")),
            None => Ok(()),
        }
    }
    /// Seals an attribute block.
    pub fn seal_xattr(self, at: BlockNo, block: &mut [u8]) {
        if let Some(sum) = self.xattr_sum(at, block) {
            sum.put(block);
        }
        debug_assert_eq!(self.check_xattr(at, block), Ok(()), "F4: block {at} is sealed");
    }
}

/// The sum that an inode's slot should have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeSum {
    sum: u32,
    has_high: bool,
}

impl InodeSum {
    /// The slot's bytes with its halves.
    pub fn range(self) -> Range<usize> {
        INODE_LOW..if self.has_high { INODE_HIGH + 2 } else { INODE_LOW + 4 }
    }
    /// Puts it into these bytes of the slot.
    pub fn put(self, part: &mut [u8]) {
        set16(part, 0, self.sum as u16);
        if self.has_high {
            set16(part, INODE_HIGH - INODE_LOW, (self.sum >> 16) as u16);
        }
    }
}

/// The sum of 32 bits that a block should have, and where in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SumAt {
    /// Four bytes from this one on.
    pub at: usize,
    /// It.
    pub sum: u32,
}

impl SumAt {
    /// Has the block it already?
    pub fn is_in(self, block: &[u8]) -> bool {
        le32(block, self.at) == self.sum
    }
    /// Puts it there.
    pub fn put(self, block: &mut [u8]) {
        set32(block, self.at, self.sum);
    }
    fn check(
        self,
        block: &[u8],
        what: &str,
        place: impl FnOnce() -> String,
    ) -> Result<(), FormatError> {
        if self.is_in(block) {
            return Ok(());
        }
        Err(wrong(what, le32(block, self.at), self.sum, place()))
    }
}

/// Has the slot, longer than 128 bytes, room for the high half of its sum?
fn has_high(raw: &[u8]) -> bool {
    CLASSIC_BYTES + usize::from(le16(raw, CLASSIC_BYTES)) >= INODE_HIGH + 2
}

/// What the sums of one inode's own blocks begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeSeed {
    ino: Ino,
    seed: u32,
}

impl InodeSeed {
    /// The sum that a node of an extent tree should have that is a block, with a sound header.
    pub fn extents_sum(self, node: &[u8]) -> SumAt {
        let at = crate::ext::extents::tail_at(node);
        SumAt { at, sum: crc(self.seed, &node[..at]) }
    }
    /// Checks such a node.
    pub fn check_extents(self, at: BlockNo, node: &[u8]) -> Result<(), FormatError> {
        self.extents_sum(node).check(node, "the extent block", || self.place(at))
    }
    /// Seals it.
    pub fn seal_extents(self, node: &mut [u8]) {
        self.extents_sum(node).put(node);
        debug_assert!(self.extents_sum(node).is_in(node), "F4: a node of {} is sealed", self.ino);
    }

    /// The sum of a block of the orphan file: of the numbers in it.
    pub fn orphans(self, at: BlockNo, numbers: &[u8]) -> u32 {
        crc(crc(self.seed, &at.0.to_le_bytes()), numbers)
    }

    /// The sum that a directory's block should have, a node of its index or entries with a tail;
    /// None: it has no place for one. What looks like a node is one: in a node, the reserved word
    /// before the sum may still be a tail's.
    pub fn dir_sum(self, block: &[u8]) -> Option<SumAt> {
        if let Some(node) = index_node(block) {
            return Some(SumAt { at: node.tail + 4, sum: self.index_sum(block, &node) });
        }
        let end = block.len() - DIR_TAIL;
        has_tail(block).then(|| SumAt { at: end + 8, sum: crc(self.seed, &block[..end]) })
    }
    /// Checks a directory's block.
    pub fn check_dir(self, at: BlockNo, block: &[u8]) -> Result<(), FormatError> {
        let Some(should) = self.dir_sum(block) else {
            let what = "a directory block has no place for its checksum";
            return Err(FormatError::corrupt(what, self.place(at)));
        };
        let is_node = index_node(block).is_some();
        let what = if is_node { "the directory's index node" } else { "the directory block" };
        should.check(block, what, || self.place(at))
    }
    /// Seals a directory's block.
    pub fn seal_dir(self, block: &mut [u8]) {
        if let Some(sum) = self.dir_sum(block) {
            sum.put(block);
            debug_assert_eq!(self.dir_sum(block), Some(sum), "F4: a block of {}", self.ino);
        }
    }
    fn index_sum(self, block: &[u8], node: &IndexNode) -> u32 {
        let used = crc(self.seed, &block[..node.end]);
        crc(crc(used, &block[node.tail..node.tail + 4]), &[0; 4])
    }
    fn place(self, at: BlockNo) -> String {
        format!("block {at}, of inode {}", self.ino)
    }
}

/// Ends the block's entries with a tail for the checksum.
pub fn put_tail(block: &mut [u8]) {
    let at = block.len() - DIR_TAIL;
    let tail = &mut block[at..];
    tail.fill(0);
    set16(tail, 4, DIR_TAIL as u16);
    tail[7] = DIR_TAIL_KIND;
}

/// Does the block of entries end with a tail?
pub fn has_tail(block: &[u8]) -> bool {
    let tail = &block[block.len() - DIR_TAIL..];
    le32(tail, 0) == 0
        && le16(tail, 4) == DIR_TAIL as u16
        && tail[6] == 0
        && tail[7] == DIR_TAIL_KIND
}

/// The part of a directory's block that its entries cover, where blocks end with `tail` bytes for
/// their checksum. The entries of an index's node cover all of it.
pub fn entries_part(block: &[u8], tail: usize) -> &[u8] {
    if tail == 0 || index_node(block).is_some() { block } else { &block[..block.len() - tail] }
}

/// Where a node of a directory's index has what its sum needs.
struct IndexNode {
    /// Its entries end here.
    end: usize,
    /// The checksum's own structure: a reserved word, and the sum.
    tail: usize,
}

fn index_node(block: &[u8]) -> Option<IndexNode> {
    // A node below the root is one unused entry as long as the block; the root has "." and "..".
    let first = usize::from(le16(block, 4));
    let at = match first {
        12 if usize::from(le16(block, 12 + 4)) == block.len() - 12 => 32,
        n if n == block.len() => 8,
        _ => return None,
    };
    let (limit, count) = (usize::from(le16(block, at)), usize::from(le16(block, at + 2)));
    let tail = at + 8 * limit;
    (count <= limit && tail + 8 <= block.len()).then_some(IndexNode { end: at + 8 * count, tail })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_check_values() {
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
        assert_eq!(!crc(!0, b"123456789"), 0xe306_9283);
    }

    /// Sums as they are defined, byte by byte, with zeros in the place of their own.
    #[test]
    fn sums_of_slots_and_descriptors() {
        let sums = Sums::All(0x1234_5678);
        let plain = |parts: &[&[u8]]| crc(0x1234_5678, &parts.concat());
        for len in [128, 160, 256, 512, 1024] {
            let mut raw: Vec<u8> = (0..len).map(|n| (n * 31 + 7) as u8).collect();
            let mut zeroed = raw.clone();
            zeroed[INODE_LOW..INODE_LOW + 2].fill(0);
            for extra in [0, 32] {
                if len > 128 {
                    set16(&mut raw, 128, extra);
                    set16(&mut zeroed, 128, extra);
                }
                let has_high = len > 128 && extra == 32;
                if has_high {
                    zeroed[INODE_HIGH..INODE_HIGH + 2].fill(0);
                }
                let all = plain(&[&77u32.to_le_bytes(), &raw[0x64..0x68], &zeroed]);
                let sum = if has_high { all } else { all & 0xffff };
                assert_eq!(sums.inode_sum(Ino(77), &raw), Some(InodeSum { sum, has_high }));
            }
        }
        for len in [32, 64, 128] {
            let raw: Vec<u8> = (0..len).map(|n| (n * 31 + 7) as u8).collect();
            let mut zeroed = raw.clone();
            zeroed[DESC..DESC + 2].fill(0);
            let sum = plain(&[&9u32.to_le_bytes(), &zeroed]) as u16;
            assert_eq!(sums.desc(GroupNo(9), &raw), Some(sum), "a descriptor of {len} bytes");
        }
    }

    #[test]
    fn zeros_there_and_back() {
        let (there, back) = (Shift::new(77, false), Shift::new(77, true));
        for state in [1, 0x8000_0000, 0xdead_beef] {
            assert_eq!(there.of(state), crc(state, &[0; 77]));
            assert_eq!(back.of(there.of(state)), state);
        }
    }

    #[test]
    fn a_list_of_orphans_leaves_the_sum_as_it_is() {
        use crate::ext::Superblock;
        use crate::ext::features::ro_compat::METADATA_CSUM;
        for has_sum in [false, true] {
            let mut sb = Superblock::blank();
            sb.set_ro_compat(if has_sum { METADATA_CSUM } else { 0 });
            sb.set_inodes(77_777);
            let whole = |sb: &Superblock| crc(!0, &sb.bytes()[..SUPER]);
            let before = whole(&sb);
            for ino in [12, 0x0123_4567, 0] {
                let words: Vec<_> =
                    Superblock::words_of_orphan(&sb.bytes()[..], ino, has_sum).collect();
                sb.set_last_orphan(ino);
                assert_eq!(sb.last_orphan(), ino);
                assert_eq!(whole(&sb) == before, has_sum || ino == 0, "{ino}");
                assert!(words.iter().all(|(at, word)| le32(&sb.bytes()[..], *at) == *word));
            }
        }
    }

    #[test]
    fn four_bytes_make_any_sum() {
        for len in [100, FAR + 7] {
            let mut bytes: Vec<u8> = (0..len).map(|n| (n * 37) as u8).collect();
            for (at, sum) in [(0, 0), (40, 0xdead_beef), (7, 0x1234_5678), (96, u32::MAX)] {
                make_sum(!0, &mut bytes, at, sum);
                assert_eq!(crc(!0, &bytes), sum);
            }
        }
    }
}

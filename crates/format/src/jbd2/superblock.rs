//! The journal's superblock, in its first block. `start` 0 means that the journal holds nothing. A
//! journal in use changes `start` and `sequence` in place ([`set_tail`]), and its features when it
//! is empty.

use super::{Head, Kind, be32, crc, incompat, put32};
use crate::FormatError;

/// Begins every block of a journal's own.
pub const MAGIC: u32 = 0xc03b_3998;
/// The fewest blocks a journal may have.
pub const BLOCKS_MIN: u32 = 1024;
/// Bytes of the superblock; its block may be longer.
pub const SUPERBLOCK_BYTES: usize = 1024;

const BLOCKS: usize = 0x10;
const FIRST: usize = 0x14;
const SEQUENCE: usize = 0x18;
const START: usize = 0x1c;
const ERRNO: usize = 0x20;
const COMPAT: usize = 0x24;
const INCOMPAT: usize = 0x28;
const RO_COMPAT: usize = 0x2c;
const SUM_TYPE: usize = 0x50;
const SUM: usize = 0xfc;
/// Bit of `COMPAT`: sums in commits only, the way before `CSUM_V2`.
const OLD_SUMS: u32 = 1;
/// `SUM_TYPE` for CRC-32C.
const CRC32C: u8 = 4;

/// What we use of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalSuperblock {
    /// Bytes in a block; must be the volume's.
    pub block_bytes: u32,
    /// Blocks of the journal.
    pub blocks: u32,
    /// Where the log begins after the superblock.
    pub first: u32,
    /// The first transaction expected in the log.
    pub sequence: u32,
    /// Where that begins; 0: the log is empty.
    pub start: u32,
    /// Features a reader must know: bits of [`super::incompat`].
    pub incompat: u32,
    /// Have its commits sums of the first kind ([`super::OldSum`])? Never written here.
    pub old_sums: bool,
    /// Whose journal.
    pub uuid: [u8; 16],
}

impl JournalSuperblock {
    /// From a journal's first block.
    pub fn decode(b: &[u8]) -> Result<JournalSuperblock, FormatError> {
        let bad = |what: String| Err(FormatError::corrupt(what, "journal superblock"));
        if b.len() < SUPERBLOCK_BYTES {
            return bad("it is cut short".into());
        }
        let v1 = match Head::decode(b) {
            Some(Head { kind: Kind::SuperV1, .. }) => true,
            Some(Head { kind: Kind::SuperV2, .. }) => false,
            Some(head) => return bad(format!("a {:?} in its place", head.kind)),
            None => return bad("no journal's magic number".into()),
        };
        let mut sb = JournalSuperblock {
            block_bytes: be32(b, 0x0c),
            blocks: be32(b, BLOCKS),
            first: be32(b, FIRST),
            sequence: be32(b, SEQUENCE),
            start: be32(b, START),
            incompat: if v1 { 0 } else { be32(b, INCOMPAT) },
            old_sums: false,
            uuid: if v1 { [0; 16] } else { b[0x30..0x40].try_into().expect("16 bytes") },
        };
        sb.old_sums = !v1 && !sb.has_sum() && be32(b, COMPAT) & OLD_SUMS != 0;
        let unknown = if v1 { 0 } else { be32(b, RO_COMPAT) };
        if unknown != 0 {
            return bad(format!("unknown features {unknown:#x}"));
        }
        if sb.has_sum() && be32(b, SUM) != sum_of(b) {
            return bad("its checksum is wrong".into());
        }
        Ok(sb)
    }

    /// Has it a checksum of its own?
    fn has_sum(&self) -> bool {
        self.incompat & (incompat::CSUM_V2 | incompat::CSUM_V3) != 0
    }

    /// Do the numbers fit together and a journal of `blocks` blocks of `block_bytes`?
    pub fn check(&self, blocks: u64, block_bytes: usize) -> Result<(), FormatError> {
        let what = if self.block_bytes as usize != block_bytes {
            format!("blocks of {} bytes, the volume's have {block_bytes}", self.block_bytes)
        } else if self.blocks < BLOCKS_MIN || u64::from(self.blocks) > blocks {
            format!("{} blocks, its file has {blocks}", self.blocks)
        } else if self.first == 0 || self.first >= self.blocks {
            format!("its log begins at block {} of {}", self.first, self.blocks)
        } else if self.start != 0 && (self.start < self.first || self.start >= self.blocks) {
            format!("its first transaction is at block {} of {}", self.start, self.blocks)
        } else {
            return Ok(());
        };
        Err(FormatError::corrupt(what, "journal superblock"))
    }

    /// A new journal's first block.
    pub fn encode_new(&self) -> Vec<u8> {
        let mut b = vec![0; self.block_bytes as usize];
        Head { kind: Kind::SuperV2, tid: 0 }.encode(&mut b);
        put32(&mut b, 0x0c, self.block_bytes);
        put32(&mut b, BLOCKS, self.blocks);
        put32(&mut b, FIRST, self.first);
        put32(&mut b, SEQUENCE, self.sequence);
        put32(&mut b, START, self.start);
        put32(&mut b, 0x40, 1); // one user
        b[0x30..0x40].copy_from_slice(&self.uuid);
        set_incompat(&mut b, self.incompat);
        let again = JournalSuperblock::decode(&b);
        assert_eq!(again.as_ref(), Ok(self), "F1: a journal's superblock is read as another one");
        b
    }
}

/// Where replay begins: the block (0: nowhere, the log is empty) and the transaction expected
/// there.
pub fn set_tail(block: &mut [u8], start: u32, sequence: u32) {
    let (first, blocks) = (be32(block, FIRST), be32(block, BLOCKS));
    let inside = start == 0 || (first..blocks).contains(&start);
    assert!(inside, "F7: a journal of blocks {first} to {blocks} is replayed from {start} on");
    put32(block, START, start);
    put32(block, SEQUENCE, sequence);
    seal(block);
    check_sealed(block);
}

/// Sets the features. Only while the log is empty: they say how to read it. A superblock of
/// version 1 has no such words, so it becomes one of version 2.
pub fn set_incompat(block: &mut [u8], bits: u32) {
    if let Some(Head { kind: Kind::SuperV1, tid }) = Head::decode(block) {
        Head { kind: Kind::SuperV2, tid }.encode(block);
        block[COMPAT..SUPERBLOCK_BYTES].fill(0);
        put32(block, 0x40, 1); // one user
    }
    put32(block, INCOMPAT, bits);
    let sums = bits & (incompat::CSUM_V2 | incompat::CSUM_V3) != 0;
    block[SUM_TYPE] = if sums { CRC32C } else { 0 };
    if sums {
        // With both, e2fsck calls the superblock corrupt and replays nothing.
        let compat = be32(block, COMPAT) & !OLD_SUMS;
        put32(block, COMPAT, compat);
    }
    seal(block);
    check_sealed(block);
}

/// The error that ended the journal's last use, as a negative errno; 0: none.
pub fn errno(block: &[u8]) -> u32 {
    be32(block, ERRNO)
}

/// Sets the error.
pub fn set_errno(block: &mut [u8], errno: u32) {
    put32(block, ERRNO, errno);
    seal(block);
    check_sealed(block);
}

/// What was written of a superblock can be read again.
fn check_sealed(block: &[u8]) {
    let has_sum = be32(block, INCOMPAT) & (incompat::CSUM_V2 | incompat::CSUM_V3) != 0;
    let right = !has_sum || be32(block, SUM) == sum_of(block);
    assert!(right, "F4: a journal's superblock is sealed");
}

fn seal(block: &mut [u8]) {
    let sums = be32(block, INCOMPAT) & (incompat::CSUM_V2 | incompat::CSUM_V3) != 0;
    let sum = if sums { sum_of(block) } else { 0 };
    put32(block, SUM, sum);
}

/// The checksum as it should be: of the 1024 bytes, with its own field as zero.
fn sum_of(block: &[u8]) -> u32 {
    let front = crc(!0, &block[..SUM]);
    crc(crc(front, &[0; 4]), &block[SUM + 4..SUPERBLOCK_BYTES])
}

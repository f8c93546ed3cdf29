//! The jbd2 journal's blocks, all big-endian: the one place with that order of bytes. The
//! superblock says how the other blocks are laid out ([`Shape`]); descriptors, revocations and
//! commits are made and read by it. What a transaction is for, and when one may be written, is the
//! journaling modes' question.
//!
//! Every block of the journal's own begins with twelve bytes: the magic number, the kind of block,
//! the transaction's number. A transaction is descriptors, each followed by the blocks it lists,
//! revocations, and one commit.

mod descriptor;
pub mod device;
mod number;
mod old_sum;
mod packed;
mod shape;
pub mod superblock;

pub use descriptor::{Tag, escape, unescape};
pub use number::unforeseen;
pub use old_sum::OldSum;
pub use packed::{MULTIWRITE_HEAD, Piece, What};
pub use shape::{Shape, Sums};
pub use superblock::{JournalSuperblock, MAGIC};

/// Bytes at the start of each block of the journal's own.
pub const HEAD: usize = 12;

/// Bits of the journal superblock's INCOMPAT word.
pub mod incompat {
    /// There may be revocations.
    pub const REVOKE: u32 = 0x1;
    /// Block numbers have 64 bits.
    pub const WIDE: u32 = 0x2;
    /// Commits may overtake what they commit. Never written here.
    pub const ASYNC_COMMIT: u32 = 0x4;
    /// Checksums, with 16 bits a block. Never written here.
    pub const CSUM_V2: u32 = 0x8;
    /// Checksums, with 32 bits a block.
    pub const CSUM_V3: u32 = 0x10;
    /// Fast commits. Never written here.
    pub const FAST_COMMIT: u32 = 0x20;
    /// Ours: parts of blocks (modes `wasteless` and `selective`). Set only while the journal holds
    /// something of that kind.
    pub const PACKED: u32 = 0x1_0000;
    /// Ours: the journal's blocks hold, or the journal stands for, a log of byte ranges (modes
    /// `redo` and `unified`). Set only while that log may hold something.
    pub const REDO: u32 = 0x2_0000;
}

/// The kinds of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Lists the blocks that follow it.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// Of the journal's superblock: version 1.
    SuperV1,
    /// Of the journal's superblock: version 2.
    SuperV2,
    /// Lists blocks whose older copies must not be replayed.
    Revoke,
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Kind::Descriptor => 1,
            Kind::Commit => 2,
            Kind::SuperV1 => 3,
            Kind::SuperV2 => 4,
            Kind::Revoke => 5,
        }
    }
}

/// The first twelve bytes of a block of the journal's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// What block it is.
    pub kind: Kind,
    /// The transaction it belongs to. The numbers wrap around.
    pub tid: u32,
}

impl Head {
    /// Reads the head of a block; None: it is no block of the journal's own.
    pub fn decode(block: &[u8]) -> Option<Head> {
        if block.len() < HEAD || be32(block, 0) != MAGIC {
            return None;
        }
        let all = [Kind::Descriptor, Kind::Commit, Kind::SuperV1, Kind::SuperV2, Kind::Revoke];
        let kind = all.into_iter().find(|k| k.number() == be32(block, 4))?;
        Some(Head { kind, tid: be32(block, 8) })
    }
    fn encode(self, block: &mut [u8]) {
        put32(block, 0, MAGIC);
        put32(block, 4, self.kind.number());
        put32(block, 8, self.tid);
    }
}

/// The CRC-32C that jbd2 uses: with a seed, and not inverted at the end.
fn crc(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}
fn be64(b: &[u8], at: usize) -> u64 {
    u64::from(be32(b, at)) << 32 | u64::from(be32(b, at + 4))
}
fn put32(b: &mut [u8], at: usize, v: u32) {
    b[at..at + 4].copy_from_slice(&v.to_be_bytes());
}
fn put64(b: &mut [u8], at: usize, v: u64) {
    b[at..at + 8].copy_from_slice(&v.to_be_bytes());
}

//! How a journal's blocks are laid out and summed, as its superblock says: widths of block numbers,
//! sizes of tags, checksums. Commits and revocations are made and read here, descriptors in a file
//! beside it.

use super::{HEAD, Head, JournalSuperblock, Kind, be32, be64, crc, incompat, put32, put64};
use crate::{BlockNo, FormatError};

/// Bytes of the checksum at the end of a descriptor or a revocation.
const TAIL: usize = 4;
/// Where a revocation's list begins.
const REVOKES: usize = 16;
/// Where a commit has its checksum, its seconds and its nanoseconds.
const COMMIT_SUM: usize = 0x10;
const COMMIT_SEC: usize = 0x30;
const COMMIT_NSEC: usize = 0x38;

/// Which checksums the blocks have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sums {
    /// None (ext3's own journals, and those with the first kind, [`super::OldSum`]).
    None,
    /// CRC-32C, cut to 16 bits for a block's.
    V2,
    /// CRC-32C.
    V3,
}

/// The layout of a journal's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes in a block.
    pub block_bytes: usize,
    /// Have block numbers 64 bits?
    pub wide: bool,
    /// The checksums.
    pub sums: Sums,
    /// Do descriptors list parts of blocks, too?
    pub packed: bool,
    /// What every checksum starts from: that of the journal's UUID.
    pub(super) seed: u32,
}

impl Shape {
    /// As a journal's superblock says. Errors: `Incompatible` for features nobody here knows, fast
    /// commits among them; `Corrupt` for two kinds of checksums at once.
    pub fn of(sb: &JournalSuperblock) -> Result<Shape, FormatError> {
        use incompat::{ASYNC_COMMIT, CSUM_V2, CSUM_V3, PACKED, REVOKE, WIDE};
        let unknown = sb.incompat & !(REVOKE | WIDE | ASYNC_COMMIT | CSUM_V2 | CSUM_V3 | PACKED);
        if unknown != 0 {
            return Err(FormatError::Incompatible {
                feature: format!("journal features {unknown:#x}"),
                advice: "let the program that wrote the journal replay it, or e2fsck".into(),
            });
        }
        let sums = match (sb.incompat & CSUM_V2 != 0, sb.incompat & CSUM_V3 != 0) {
            (false, false) => Sums::None,
            (true, false) => Sums::V2,
            (false, true) => Sums::V3,
            (true, true) => {
                let what = "two kinds of checksums at once";
                return Err(FormatError::corrupt(what, "journal superblock"));
            }
        };
        let wide = sb.incompat & WIDE != 0;
        let block_bytes = sb.block_bytes as usize;
        let packed = sb.incompat & PACKED != 0;
        Ok(Shape { block_bytes, wide, sums, packed, seed: crc(!0, &sb.uuid) })
    }

    /// Bytes of a tag without the UUID behind it.
    pub(super) fn tag_bytes(&self) -> usize {
        match self.sums {
            Sums::V3 => 16,
            Sums::V2 => 10 + if self.wide { 4 } else { 0 },
            Sums::None => 8 + if self.wide { 4 } else { 0 },
        }
    }
    /// Where the lists in descriptors and revocations end.
    pub(super) fn list_end(&self) -> usize {
        self.block_bytes - if self.sums == Sums::None { 0 } else { TAIL }
    }
    /// Puts the checksum at the end of a descriptor or revocation.
    pub(super) fn seal(&self, block: &mut [u8]) {
        if self.sums != Sums::None {
            let at = self.list_end();
            put32(block, at, 0);
            let sum = crc(self.seed, block);
            put32(block, at, sum);
        }
        debug_assert!(self.is_sealed(block), "F4: a list in the journal is sealed");
    }
    /// Is the checksum at the end of a descriptor or revocation right?
    pub(crate) fn is_sealed(&self, block: &[u8]) -> bool {
        assert_eq!(block.len(), self.block_bytes, "F3: a part of a journal's block");
        if self.sums == Sums::None {
            return true;
        }
        let at = self.list_end();
        let whole = crc(crc(self.seed, &block[..at]), &[0; TAIL]);
        whole == be32(block, at)
    }
    /// The sum of a block as it lies in the journal (after [`super::escape`]), for its tag.
    pub fn block_sum(&self, tid: u32, block: &[u8]) -> u32 {
        let sum = crc(crc(self.seed, &tid.to_be_bytes()), block);
        match self.sums {
            Sums::None => 0,
            Sums::V2 => sum & 0xffff,
            Sums::V3 => sum,
        }
    }

    /// How many blocks one revocation can list.
    pub fn revokes_per_block(&self) -> usize {
        (self.list_end() - REVOKES) / if self.wide { 8 } else { 4 }
    }
    /// A revocation of these blocks, at most [`Shape::revokes_per_block`].
    pub fn revoke(&self, tid: u32, blocks: &[BlockNo]) -> Vec<u8> {
        let (count, most) = (blocks.len(), self.revokes_per_block());
        assert!(count <= most, "F3: {count} blocks in a revocation, of {most}");
        let width = if self.wide { 8 } else { 4 };
        let mut out = vec![0; self.block_bytes];
        Head { kind: Kind::Revoke, tid }.encode(&mut out);
        put32(&mut out, HEAD, (REVOKES + width * blocks.len()) as u32);
        for (n, b) in blocks.iter().enumerate() {
            let at = REVOKES + width * n;
            if self.wide {
                put64(&mut out, at, b.0);
            } else {
                put32(&mut out, at, u32::try_from(b.0).expect("32 bits unless wide"));
            }
        }
        self.seal(&mut out);
        let same = self.revoked(&out).is_ok_and(|all| all == blocks);
        assert!(same, "F1: {count} revoked blocks are read as others");
        out
    }
    /// The blocks that a revocation lists. Errors: `Corrupt` if its length or its checksum is
    /// wrong.
    pub fn revoked(&self, block: &[u8]) -> Result<Vec<BlockNo>, FormatError> {
        let bad = |what: String| Err(FormatError::corrupt(what, "a revocation in the journal"));
        if !self.is_sealed(block) {
            return bad("its checksum is wrong".into());
        }
        let used = be32(block, HEAD) as usize;
        if used < REVOKES || used > self.list_end() {
            return bad(format!("it says that it has {used} bytes"));
        }
        let list = &block[REVOKES..used];
        Ok(match self.wide {
            true => list.chunks_exact(8).map(|c| BlockNo(be64(c, 0))).collect(),
            false => list.chunks_exact(4).map(|c| BlockNo(u64::from(be32(c, 0)))).collect(),
        })
    }

    /// A commit of transaction `tid` at a time; the time must never go back from one commit to the
    /// next.
    pub fn commit(&self, tid: u32, sec: u64, nsec: u32) -> Vec<u8> {
        let mut out = vec![0; self.block_bytes];
        Head { kind: Kind::Commit, tid }.encode(&mut out);
        put64(&mut out, COMMIT_SEC, sec);
        put32(&mut out, COMMIT_NSEC, nsec);
        if self.sums != Sums::None {
            let sum = crc(self.seed, &out);
            put32(&mut out, COMMIT_SUM, sum);
        }
        let again = self.committed(&out);
        assert_eq!(again, Some((sec, nsec)), "F1: the time of commit {tid} is read as another one");
        out
    }
    /// The time of a commit in seconds and nanoseconds; None: its checksum is wrong (it was torn).
    pub fn committed(&self, block: &[u8]) -> Option<(u64, u32)> {
        assert_eq!(block.len(), self.block_bytes, "F3: a part of a journal's block");
        if self.sums != Sums::None {
            let head = crc(self.seed, &block[..COMMIT_SUM]);
            let whole = crc(crc(head, &[0; 4]), &block[COMMIT_SUM + 4..]);
            if whole != be32(block, COMMIT_SUM) {
                return None;
            }
        }
        Some((be64(block, COMMIT_SEC), be32(block, COMMIT_NSEC)))
    }
}

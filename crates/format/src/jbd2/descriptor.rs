//! Descriptors: the lists of the blocks that follow them in the journal, and the escaping of blocks
//! that happen to begin like one of the journal's own.

use super::{HEAD, Head, Kind, MAGIC, Shape, Sums, be32, put32};
use crate::{BlockNo, FormatError};

/// The block's first four bytes were the magic number and are zero in the journal.
const ESCAPED: u32 = 1;
/// The UUID is that of the tag before; else sixteen bytes with one follow.
const SAME_UUID: u32 = 2;
/// The last tag of the descriptor.
const LAST: u32 = 8;
const UUID: usize = 16;

/// One block that follows a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// Where the block belongs on the volume.
    pub block: BlockNo,
    /// Was it escaped?
    pub escaped: bool,
    /// Its sum, by [`Shape::block_sum`].
    pub sum: u32,
}

/// Makes a block fit for the journal; true: it was changed, which its tag must say.
pub fn escape(block: &mut [u8]) -> bool {
    let is_magic = be32(block, 0) == MAGIC;
    if is_magic {
        put32(block, 0, 0);
    }
    is_magic
}

/// Makes an escaped block what it was.
pub fn unescape(block: &mut [u8]) {
    put32(block, 0, MAGIC);
}

impl Shape {
    /// How many blocks one descriptor can list.
    pub fn tags_per_block(&self) -> usize {
        (self.list_end() - HEAD - UUID) / self.tag_bytes()
    }

    /// A descriptor of transaction `tid`, for at least one block and at most
    /// [`Shape::tags_per_block`].
    pub fn descriptor(&self, tid: u32, uuid: &[u8; 16], tags: &[Tag]) -> Vec<u8> {
        let (count, most) = (tags.len(), self.tags_per_block());
        assert!((1..=most).contains(&count), "F3: {count} tags in a descriptor, of {most}");
        let mut out = vec![0; self.block_bytes];
        Head { kind: Kind::Descriptor, tid }.encode(&mut out);
        let mut at = HEAD;
        for (n, tag) in tags.iter().enumerate() {
            let mut flags = if n > 0 { SAME_UUID } else { 0 };
            flags |= if tag.escaped { ESCAPED } else { 0 };
            flags |= if n + 1 == tags.len() { LAST } else { 0 };
            self.put_tag(&mut out[at..], tag, flags);
            at += self.tag_bytes();
            if n == 0 {
                out[at..at + UUID].copy_from_slice(uuid);
                at += UUID;
            }
        }
        self.seal(&mut out);
        assert!(
            self.tags(&out).is_ok_and(|all| all == tags),
            "F1: {count} tags are read as others"
        );
        out
    }

    fn put_tag(&self, out: &mut [u8], tag: &Tag, flags: u32) {
        put32(out, 0, tag.block.0 as u32);
        let high = (tag.block.0 >> 32) as u32;
        assert!(high == 0 || self.wide, "F1: block {} has no number of 32 bits", tag.block);
        if self.sums == Sums::V3 {
            put32(out, 4, flags);
            put32(out, 8, high);
            put32(out, 12, tag.sum);
            return;
        }
        out[4..6].copy_from_slice(&(tag.sum as u16).to_be_bytes());
        out[6..8].copy_from_slice(&(flags as u16).to_be_bytes());
        if self.wide {
            put32(out, 8, high);
        }
    }

    /// The blocks that follow a descriptor. Errors: `Corrupt` if its checksum is wrong or its list
    /// has no end.
    pub fn tags(&self, block: &[u8]) -> Result<Vec<Tag>, FormatError> {
        let bad = |what: &str| Err(FormatError::corrupt(what, "a descriptor in the journal"));
        if !self.is_sealed(block) {
            return bad("its checksum is wrong");
        }
        let mut all = Vec::new();
        let mut at = HEAD;
        while at + self.tag_bytes() <= self.list_end() {
            let (tag, flags) = self.get_tag(&block[at..]);
            all.push(tag);
            at += self.tag_bytes() + if flags & SAME_UUID == 0 { UUID } else { 0 };
            if flags & LAST != 0 {
                return Ok(all);
            }
        }
        bad("its list has no end")
    }

    fn get_tag(&self, raw: &[u8]) -> (Tag, u32) {
        let half = |at: usize| u32::from(u16::from_be_bytes([raw[at], raw[at + 1]]));
        // Version 3 has 32 bits of flags, of which only those where the others have theirs are
        // used.
        let flags = half(6);
        let high = if self.wide { be32(raw, 8) } else { 0 };
        let sum = match self.sums {
            Sums::V3 => be32(raw, 12),
            Sums::V2 => half(4),
            Sums::None => 0,
        };
        let block = BlockNo(u64::from(high) << 32 | u64::from(be32(raw, 0)));
        (Tag { block, escaped: flags & ESCAPED != 0, sum }, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{JournalSuperblock, incompat};
    use super::*;

    fn shapes() -> Vec<Shape> {
        let bits = [0, incompat::WIDE, incompat::CSUM_V2, incompat::CSUM_V3];
        let all = bits.iter().flat_map(|b| [*b, b | incompat::WIDE, b | incompat::REVOKE]);
        all.map(|incompat| {
            let sb = JournalSuperblock {
                block_bytes: 1024,
                blocks: 1024,
                first: 1,
                sequence: 1,
                start: 0,
                incompat,
                old_sums: false,
                uuid: *b"0123456789abcdef",
            };
            Shape::of(&sb).unwrap()
        })
        .collect()
    }

    #[test]
    fn lists_come_back() {
        for s in shapes() {
            for count in [1, 2, s.tags_per_block()] {
                let tags: Vec<Tag> = (0..count as u64)
                    .map(|n| Tag {
                        block: BlockNo(if s.wide { n << 31 } else { n * 77 }),
                        escaped: n % 3 == 0,
                        sum: s.block_sum(9, &[n as u8; 1024]),
                    })
                    .collect();
                let block = s.descriptor(9, b"0123456789abcdef", &tags);
                assert_eq!(s.tags(&block).unwrap(), tags);
                assert_eq!(Head::decode(&block), Some(Head { kind: Kind::Descriptor, tid: 9 }));
            }
            let blocks: Vec<BlockNo> = (0..s.revokes_per_block() as u64).map(BlockNo).collect();
            assert_eq!(s.revoked(&s.revoke(7, &blocks)).unwrap(), blocks);
            assert_eq!(s.committed(&s.commit(7, 5_000_000_000, 3)), Some((5_000_000_000, 3)));
        }
    }

    #[test]
    fn damage_is_seen() {
        for s in shapes().into_iter().filter(|s| s.sums != Sums::None) {
            let tags = [Tag { block: BlockNo(5), escaped: false, sum: 1 }];
            let blocks =
                [s.descriptor(1, &[0; 16], &tags), s.revoke(1, &[BlockNo(5)]), s.commit(1, 2, 3)];
            for (n, block) in blocks.into_iter().enumerate() {
                for at in [0, 20, 100, 1023] {
                    let mut torn = block.clone();
                    torn[at] ^= 4;
                    match n {
                        0 => assert!(s.tags(&torn).is_err()),
                        1 => assert!(s.revoked(&torn).is_err()),
                        _ => assert!(s.committed(&torn).is_none()),
                    }
                }
            }
        }
        let plain = shapes()[0];
        for fill in [0u8, 1, 0x7f, 0xff] {
            let _ = plain.tags(&[fill; 1024]);
            let _ = plain.revoked(&[fill; 1024]);
        }
    }

    #[test]
    fn escaping_comes_back() {
        let mut b = MAGIC.to_be_bytes().to_vec();
        b.extend([7; 60]);
        let was = b.clone();
        assert!(escape(&mut b) && !escape(&mut b));
        unescape(&mut b);
        assert_eq!(b, was);
    }
}

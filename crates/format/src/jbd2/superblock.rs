//! The journal's superblock, in its first block. `start` 0 means that the journal holds nothing.

use crate::FormatError;

/// Begins every block of a journal's own.
pub const MAGIC: u32 = 0xc03b_3998;
const TYPE_SUPER_V2: u32 = 4;
/// The fewest blocks a journal may have.
pub const BLOCKS_MIN: u32 = 1024;

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
    /// Features a reader must know.
    pub incompat: u32,
    /// Whose journal.
    pub uuid: [u8; 16],
}

fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

impl JournalSuperblock {
    /// From a journal's first block.
    pub fn decode(b: &[u8]) -> Result<JournalSuperblock, FormatError> {
        let bad = |what: String| Err(FormatError::corrupt(what, "journal superblock"));
        if b.len() < 1024 || be32(b, 0) != MAGIC {
            return bad("no journal's magic number".into());
        }
        if !matches!(be32(b, 4), 3 | 4) {
            return bad(format!("a journal block of type {}", be32(b, 4)));
        }
        Ok(JournalSuperblock {
            block_bytes: be32(b, 0x0c),
            blocks: be32(b, 0x10),
            first: be32(b, 0x14),
            sequence: be32(b, 0x18),
            start: be32(b, 0x1c),
            incompat: be32(b, 0x28),
            uuid: b[0x30..0x40].try_into().expect("16 bytes"),
        })
    }

    /// A new, idle journal's first block.
    pub fn encode_new(&self) -> Vec<u8> {
        let mut b = vec![0; self.block_bytes as usize];
        let mut put = |at: usize, v: u32| b[at..at + 4].copy_from_slice(&v.to_be_bytes());
        put(0, MAGIC);
        put(4, TYPE_SUPER_V2);
        put(0x0c, self.block_bytes);
        put(0x10, self.blocks);
        put(0x14, self.first);
        put(0x18, self.sequence);
        put(0x1c, self.start);
        put(0x28, self.incompat);
        put(0x40, 1); // one user
        b[0x30..0x40].copy_from_slice(&self.uuid);
        b
    }
}

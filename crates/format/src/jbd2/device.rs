//! A journal on a device of its own, as `mke2fs -O journal_dev` makes it: an ext superblock that
//! says so at byte 1024, the journal's superblock in the block behind it, and then the log. Blocks
//! of the journal have the numbers that they have on the device.

use super::{JournalSuperblock, be32, put32};
use crate::bytes::{le16, le32, set16, set32};
use crate::ext::superblock::{MAGIC, SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use crate::{BlockNo, FormatError};

/// `INCOMPAT` bit of the superblock: this is a journal and no volume.
const JOURNAL_DEV: u32 = 0x8;
/// Where the journal's superblock counts the volumes it is used by, and lists their UUIDs.
const USERS: usize = 0x40;
const USER_LIST: usize = 0x100;
/// So many it can list.
const USERS_MAX: u32 = 48;

/// What the superblock of a journal's device says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalDevice {
    /// Bytes in a block: 1024, 2048 or 4096.
    pub block_bytes: usize,
    /// Blocks of the device.
    pub blocks: u32,
    /// The journal's UUID, which the volume names.
    pub uuid: [u8; 16],
}

impl JournalDevice {
    /// From the first 2048 bytes of the device. Errors: something else lies there.
    pub fn decode(start: &[u8]) -> Result<JournalDevice, FormatError> {
        let bad = |what: &str| Err(FormatError::corrupt(what, "journal device"));
        let at = SUPERBLOCK_AT as usize;
        let Some(sb) = start.get(at..at + SUPERBLOCK_BYTES) else {
            return bad("it is too short for a journal");
        };
        if le16(sb, 0x38) != MAGIC || le32(sb, 0x60) & JOURNAL_DEV == 0 {
            return bad("there is no journal on it (mke2fs -O journal_dev, or cairn mkfs --log)");
        }
        if le32(sb, 0x18) > 2 {
            return bad("its blocks are larger than 4096 bytes");
        }
        Ok(JournalDevice {
            block_bytes: 1024 << le32(sb, 0x18),
            blocks: le32(sb, 0x04),
            uuid: sb[0x68..0x78].try_into().expect("16 bytes"),
        })
    }

    /// The block with the journal's superblock.
    pub fn superblock_at(&self) -> BlockNo {
        BlockNo(if self.block_bytes == 1024 { 2 } else { 1 })
    }

    /// The blocks of a new, empty journal for the volume `user`: block numbers and contents, the
    /// superblock that makes it one last. Everything behind them must read as no journal's.
    pub fn encode_new(&self, user: &[u8; 16], now_secs: u32) -> Vec<(BlockNo, Vec<u8>)> {
        let at = self.superblock_at();
        let journal = JournalSuperblock {
            block_bytes: self.block_bytes as u32,
            blocks: self.blocks,
            first: at.0 as u32 + 1,
            sequence: 1,
            start: 0,
            incompat: 0,
            old_sums: false,
            uuid: self.uuid,
        };
        let mut raw = journal.encode_new();
        raw[USER_LIST..USER_LIST + 16].copy_from_slice(user);
        let mut first = vec![0; SUPERBLOCK_AT as usize + SUPERBLOCK_BYTES];
        self.superblock(&mut first[SUPERBLOCK_AT as usize..], now_secs);
        first.resize(first.len().next_multiple_of(self.block_bytes), 0);
        let again = JournalDevice::decode(&first);
        assert_eq!(again.as_ref(), Ok(self), "F1: a journal's device is read as another one");
        assert!(has_user(&raw, user), "F1: a new journal serves somebody else");
        let head = first.chunks(self.block_bytes).map(<[u8]>::to_vec);
        let head = (0..).map(BlockNo).zip(head);
        [(at, raw)].into_iter().chain(head).collect()
    }

    fn superblock(&self, sb: &mut [u8], now_secs: u32) {
        let log = (self.block_bytes / 1024).trailing_zeros();
        let per_group = 8 * self.block_bytes as u32;
        set32(sb, 0x04, self.blocks);
        set32(sb, 0x14, u32::from(self.block_bytes == 1024)); // the first block
        set32(sb, 0x18, log);
        set32(sb, 0x1c, log);
        set32(sb, 0x20, per_group);
        set32(sb, 0x24, per_group);
        set32(sb, 0x30, now_secs);
        set16(sb, 0x36, 0xffff); // never check
        set16(sb, 0x38, MAGIC);
        set16(sb, 0x3a, 1); // clean
        set16(sb, 0x3c, 1);
        set32(sb, 0x40, now_secs);
        set32(sb, 0x4c, 1); // revision
        set32(sb, 0x54, 11);
        set16(sb, 0x58, 256);
        set32(sb, 0x60, JOURNAL_DEV);
        sb[0x68..0x78].copy_from_slice(&self.uuid);
    }
}

/// Does the journal with this superblock serve the volume with this UUID?
pub fn has_user(journal_superblock: &[u8], volume: &[u8; 16]) -> bool {
    let count = be32(journal_superblock, USERS).min(USERS_MAX) as usize;
    let list = &journal_superblock[USER_LIST..USER_LIST + 16 * count];
    list.chunks_exact(16).any(|u| u == volume)
}

/// How many volumes the journal serves.
pub fn users(journal_superblock: &[u8]) -> u32 {
    be32(journal_superblock, USERS)
}

/// Gives a journal that serves nobody to a volume.
pub fn set_user(journal_superblock: &mut [u8], volume: &[u8; 16]) {
    put32(journal_superblock, USERS, 1);
    journal_superblock[USER_LIST..USER_LIST + 16].copy_from_slice(volume);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_journal_device_reads_as_what_it_was_made() {
        for block_bytes in [1024, 2048, 4096] {
            let d = JournalDevice { block_bytes, blocks: 2048, uuid: [7; 16] };
            let mut disk = vec![0; 8 * 4096];
            for (b, bytes) in d.encode_new(&[9; 16], 5) {
                let at = b.0 as usize * block_bytes;
                disk[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            assert_eq!(JournalDevice::decode(&disk), Ok(d));
            let raw = &disk[d.superblock_at().0 as usize * block_bytes..][..block_bytes];
            let sb = JournalSuperblock::decode(raw).unwrap();
            assert_eq!((sb.first, sb.uuid), (d.superblock_at().0 as u32 + 1, [7; 16]));
            assert!(sb.check(2048, block_bytes).is_ok());
            assert!(has_user(raw, &[9; 16]) && !has_user(raw, &[8; 16]));
            assert!(JournalDevice::decode(&disk[..1500]).is_err());
            assert!(JournalDevice::decode(&vec![0; 4096]).is_err());
        }
    }
}

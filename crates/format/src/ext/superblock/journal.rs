//! What the superblock says of its journal: where it is, and the copy of its inode's map. The
//! journal itself is `jbd2`'s.

use super::{Superblock, features};
use crate::Ino;
use crate::bytes::set32;

impl Superblock {
    /// The journal's inode, if it has one inside.
    pub fn journal_ino(&self) -> Option<Ino> {
        let has = self.has_compat(features::compat::HAS_JOURNAL) && self.journal_inum() != 0;
        has.then(|| Ino(self.journal_inum()))
    }
    /// Does it name a journal on another device?
    pub fn has_external_journal(&self) -> bool {
        self.0[0xd0..0xe0].iter().chain(&self.0[0xe4..0xe8]).any(|b| *b != 0)
    }
    /// Is its journal on another device, and nowhere else?
    pub fn journal_is_outside(&self) -> bool {
        self.has_compat(features::compat::HAS_JOURNAL) && self.journal_inum() == 0
    }
    /// The UUID of the journal on another device.
    pub fn journal_uuid(&self) -> [u8; 16] {
        self.0[0xd0..0xe0].try_into().expect("16 bytes")
    }
    /// Names a journal on another device.
    pub(crate) fn set_journal_uuid(&mut self, uuid: &[u8; 16]) {
        self.0[0xd0..0xe0].copy_from_slice(uuid);
        self.seal();
    }
    /// Forgets a journal on another device.
    pub fn clear_external_journal(&mut self) {
        self.0[0xd0..0xe0].fill(0);
        self.0[0xe4..0xe8].fill(0);
        self.seal();
    }
    /// Keeps a copy of the journal inode's map and size, as e2fsck wants it.
    pub fn set_journal_backup(&mut self, map: &[u8; 60], size: u64) {
        self.0[0xfd] = 1; // s_jnl_backup_type
        self.0[0x10c..0x148].copy_from_slice(map);
        set32(&mut self.0[..], 0x148, (size >> 32) as u32);
        set32(&mut self.0[..], 0x14c, size as u32);
        self.seal();
    }
}

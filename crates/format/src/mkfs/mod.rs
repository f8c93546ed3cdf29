//! Planning a new volume: every block that must be written, computed from the options and nothing
//! else. Who writes them, and where the time and the random bytes come from, is the caller's.

mod build;
mod tree;

use crate::ext::superblock::FIRST_INO;
use crate::ext::{Geometry, Superblock};
use crate::{BlockNo, Extent, GroupNo};
use build::Builder;
use std::collections::BTreeSet;
use std::fmt;

/// What kind of volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// Without a journal.
    Ext2,
    /// With a journal, idle.
    Ext3,
    /// With a journal, extents, wide block numbers, and what else `mke2fs -t ext4` gives a volume.
    Ext4 {
        /// Do its metadata carry checksums (`metadata_csum`)?
        checksums: bool,
    },
}

impl Profile {
    /// Has such a volume a journal?
    pub fn has_journal(self) -> bool {
        self != Profile::Ext2
    }
    /// Is it one of ext4's?
    pub(crate) fn is_ext4(self) -> bool {
        matches!(self, Profile::Ext4 { .. })
    }
}

/// What to make.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// The volume's size in bytes; rounded down to whole blocks.
    pub size_bytes: u64,
    /// 1024, 2048 or 4096.
    pub block_bytes: usize,
    /// 128 or 256.
    pub inode_bytes: usize,
    /// How many inodes at least; None: one for each 16 KiB (8 KiB below 512 MiB).
    pub inodes: Option<u32>,
    /// Blocks of a group; None: as many as its bitmap has bits.
    pub group_blocks: Option<u32>,
    /// With a journal or without.
    pub profile: Profile,
    /// Bytes of the journal; None: by the volume's size.
    pub journal_bytes: Option<u64>,
    /// The UUID of a journal on another device, instead of one inside.
    pub journal_device: Option<[u8; 16]>,
    /// Up to 16 bytes.
    pub label: String,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Seeds directory hashes of kernels that index directories here later.
    pub hash_seed: [u8; 16],
    /// The root directory's owner and group.
    pub owner: (u32, u32),
    /// INCOMPAT features beyond the profile's: `mmp` gets its block, others are just said.
    pub incompat: u32,
    /// Seconds since 1970.
    pub now_secs: u32,
}

impl MkfsOptions {
    /// A volume like any other, always the same: blocks of 4 KiB, inodes of 256 bytes, the sizes
    /// that follow from its own, root's, of a fixed time and with fixed UUIDs. For tests and
    /// models, which change what they are about.
    pub fn plain(size_bytes: u64, profile: Profile) -> MkfsOptions {
        MkfsOptions {
            size_bytes,
            block_bytes: 4096,
            inode_bytes: 256,
            inodes: None,
            group_blocks: None,
            profile,
            journal_bytes: None,
            journal_device: None,
            label: String::new(),
            uuid: *b"0123456789abcdef",
            hash_seed: *b"fedcba9876543210",
            owner: (0, 0),
            incompat: 0,
            now_secs: 1_700_000_000,
        }
    }
}

/// Why such a volume cannot be made; a sentence for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MkfsError(pub String);

impl fmt::Display for MkfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for MkfsError {}

/// A planned volume.
pub struct Plan {
    builder: Builder,
}

impl Plan {
    /// Plans the volume.
    pub fn new(options: &MkfsOptions) -> Result<Plan, MkfsError> {
        let mut builder = Builder::new(options)?;
        tree::make(&mut builder)?;
        let (decoded, geo) = (Superblock::decode(builder.sb.bytes()), builder.geometry);
        let reads = decoded.as_ref().map(Geometry::of);
        assert_eq!(reads, Ok(geo), "F6: the volume is opened as another one, or not at all");
        Ok(Plan { builder })
    }
    /// The volume's numbers.
    pub fn geometry(&self) -> &Geometry {
        &self.builder.geometry
    }
    /// The ranges that must read as zeros: inode tables and an old journal's remains. On a fresh
    /// sparse file they do already.
    pub fn zeros(&self) -> Vec<Extent> {
        self.builder.zeros()
    }
    /// Every block that is not zero, in the order in which they may be written: the primary
    /// superblock comes last, so that a volume half made is no volume.
    pub fn each_block<E>(
        &self,
        mut write: impl FnMut(BlockNo, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let geo = self.geometry();
        let (mut written, mut last) = (BTreeSet::new(), BlockNo(0));
        self.builder.each_block(&mut |b, bytes| {
            // Not in release: of a large volume millions would have to be remembered.
            let new = b.0 < geo.blocks && (!cfg!(debug_assertions) || written.insert(b));
            assert!(new, "F6: block {b} of {} is written, or once more", geo.blocks);
            last = b;
            write(b, bytes)
        })?;
        let primary = geo.group_start(GroupNo(0));
        assert_eq!(last, primary, "F6: something is written behind the primary superblock");
        Ok(())
    }
}

/// Blocks of a journal by default, by the volume's blocks.
pub fn default_journal_blocks(blocks: u64) -> u64 {
    const K: u64 = 1024;
    match blocks {
        0..2048 => 0,
        2048..32_768 => 1024,
        32_768..262_144 => 4096,
        262_144..524_288 => 8192,
        // Larger than mke2fs makes them: where contents are journaled, a small journal means that
        // everything is written back while somebody waits.
        524_288..16_777_216 => 64 * K,
        16_777_216..33_554_432 => 128 * K,
        _ => 256 * K,
    }
}

/// The first inode that a user's file can get, after lost+found.
pub const LOST_FOUND_INO: u32 = FIRST_INO;

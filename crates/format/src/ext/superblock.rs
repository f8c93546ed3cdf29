//! The superblock: 1024 bytes at byte 1024 of the volume, with copies in some groups. Fields we do
//! not use are kept as they are. The journal's fields are here too; the journal itself is `jbd2`'s.

use crate::bytes::{le16, le32, set16, set32};
use crate::ext::Geometry;
use crate::ext::csum::{self, SumAt, Sums};
use crate::ext::features::{self, Features};
use crate::ufs::dirhash::IndexRules;
use crate::{BlockNo, FormatError};
use std::ops::Range;

mod journal;

/// Flags: hashes of names take bytes as signed.
const HASH_SIGNED: u32 = 1;
/// They take them as unsigned.
const HASH_UNSIGNED: u32 = 2;

/// Where the primary superblock begins on the volume, in bytes.
pub const SUPERBLOCK_AT: u64 = 1024;
/// Its length in bytes.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xef53;
/// `s_state`: cleanly closed.
pub const STATE_VALID: u16 = 1;
/// `s_state`: errors were seen.
pub const STATE_ERROR: u16 = 2;
/// The first inode that is not reserved.
pub const FIRST_INO: u32 = 11;
/// The one kind of checksums that there is (`s_checksum_type`).
pub const CRC32C: u8 = 1;

/// Where the label is.
pub const LABEL: Range<usize> = 0x78..0x88;

/// A superblock as bytes, with names for its fields. `decode` has checked it.
#[derive(Clone, PartialEq, Eq)]
pub struct Superblock(Box<[u8; SUPERBLOCK_BYTES]>);

/// `s_snapshot_id`, of snapshots that no kernel has.
pub(super) const UNUSED: usize = 0x184;
/// `s_last_orphan`.
pub(super) const LAST_ORPHAN: usize = 0xe8;
/// The largest cluster is a block << this.
const CLUSTER_LOG_MAX: u32 = 20;
/// Where the second of the superblock's two sectors begins.
const SECOND_HALF: usize = 512;
/// `s_mmp_block`.
const MMP_BLOCK: usize = 0x168;
/// `s_overhead_clusters`.
const OVERHEAD: usize = 0x248;
/// `s_usr_quota_inum`, `s_grp_quota_inum` and `s_prj_quota_inum`.
const QUOTA_FILES: [usize; 3] = [0x240, 0x244, 0x26c];
/// `s_backup_bgs`, two of them.
const BACKUP_GROUPS: usize = 0x24c;
/// `s_checksum_seed`.
const SEED: usize = 0x270;
/// `s_orphan_file_inum`.
const ORPHAN_FILE: usize = 0x280;
/// The end of what is reserved, before the checksum.
const UNUSED_TOO: usize = 0x3f8;

fn le8(b: &[u8], at: usize) -> u8 {
    b[at]
}
fn set8(b: &mut [u8], at: usize, v: u8) {
    b[at] = v;
}

macro_rules! fields {
    ($(
        $(#[$doc:meta])*
        $get:ident $set:ident $at:literal $ty:ident $read:ident $write:ident;
    )*) => {
        impl Superblock {$(
            $(#[$doc])*
            pub fn $get(&self) -> $ty { $read(&self.0[..], $at) }
            #[doc = concat!("Sets [`Superblock::", stringify!($get), "`].")]
            pub fn $set(&mut self, v: $ty) {
                $write(&mut self.0[..], $at, v);
                self.seal();
            }
        )*}
    };
}
fields! {
    /// `s_inodes_count`.
    inodes set_inodes 0x00 u32 le32 set32;
    /// `s_free_inodes_count`: a hint.
    free_inodes set_free_inodes 0x10 u32 le32 set32;
    /// `s_first_data_block`: 1 with 1 KiB blocks, else 0.
    first_data_block set_first_data_block 0x14 u32 le32 set32;
    /// `s_log_block_size`: block size is 1024 << this.
    log_block_size set_log_block_size 0x18 u32 le32 set32;
    /// `s_log_frag_size`; with bigalloc `s_log_cluster_size`: a cluster is 1024 << this.
    log_frag_size set_log_frag_size 0x1c u32 le32 set32;
    /// `s_blocks_per_group`.
    blocks_per_group set_blocks_per_group 0x20 u32 le32 set32;
    /// `s_frags_per_group`.
    frags_per_group set_frags_per_group 0x24 u32 le32 set32;
    /// `s_inodes_per_group`.
    inodes_per_group set_inodes_per_group 0x28 u32 le32 set32;
    /// `s_mtime`: last mounted, seconds since 1970.
    mtime set_mtime 0x2c u32 le32 set32;
    /// `s_wtime`: last written, seconds since 1970.
    wtime set_wtime 0x30 u32 le32 set32;
    /// `s_mnt_count`.
    mount_count set_mount_count 0x34 u16 le16 set16;
    /// `s_max_mnt_count`: 0xffff means never check.
    max_mount_count set_max_mount_count 0x36 u16 le16 set16;
    /// `s_magic`.
    magic set_magic 0x38 u16 le16 set16;
    /// `s_state`.
    state set_state 0x3a u16 le16 set16;
    /// `s_errors`: what a kernel does on errors.
    errors set_errors 0x3c u16 le16 set16;
    /// `s_lastcheck`: seconds since 1970.
    last_check set_last_check 0x40 u32 le32 set32;
    /// `s_rev_level`: 0 or 1.
    revision set_revision 0x4c u32 le32 set32;
    /// `s_first_ino`.
    first_ino_raw set_first_ino 0x54 u32 le32 set32;
    /// `s_inode_size`.
    inode_size_raw set_inode_size 0x58 u16 le16 set16;
    /// `s_block_group_nr`: which group this copy lies in.
    group_number set_group_number 0x5a u16 le16 set16;
    /// `s_feature_compat`.
    compat set_compat 0x5c u32 le32 set32;
    /// `s_feature_incompat`.
    incompat set_incompat 0x60 u32 le32 set32;
    /// `s_feature_ro_compat`.
    ro_compat set_ro_compat 0x64 u32 le32 set32;
    /// `s_reserved_gdt_blocks`: blocks after the descriptors kept for growth (resize_inode).
    reserved_gdt_blocks set_reserved_gdt_blocks 0xce u16 le16 set16;
    /// `s_journal_inum`.
    journal_inum set_journal_inum 0xe0 u32 le32 set32;
    /// `s_desc_size`: bytes of a group descriptor with 64bit; 0 without.
    desc_size set_desc_size 0xfe u16 le16 set16;
    /// `s_first_meta_bg`: the first block of descriptors that lies in its own groups (meta_bg).
    first_meta_bg set_first_meta_bg 0x104 u32 le32 set32;
    /// `s_default_mount_opts`.
    default_mount_options set_default_mount_options 0x100 u32 le32 set32;
    /// `s_mkfs_time`.
    mkfs_time set_mkfs_time 0x108 u32 le32 set32;
    /// `s_min_extra_isize`.
    min_extra_isize set_min_extra_isize 0x15c u16 le16 set16;
    /// `s_want_extra_isize`.
    want_extra_isize set_want_extra_isize 0x15e u16 le16 set16;
    /// `s_flags`.
    flags set_flags 0x160 u32 le32 set32;
    /// `s_mmp_interval`: seconds between two writes to the block of mmp.
    mmp_interval set_mmp_interval 0x166 u16 le16 set16;
    /// `s_log_groups_per_flex`: groups whose metadata lie together, as a power of two.
    groups_per_flex_log set_groups_per_flex_log 0x174 u8 le8 set8;
    /// `s_checksum_type`: 1 is CRC-32C.
    checksum_kind set_checksum_kind 0x175 u8 le8 set8;
}

/// Where a count of blocks has its low and its high half, which only 64bit volumes use.
const BLOCKS: (usize, usize) = (0x04, 0x150);
const RESERVED: (usize, usize) = (0x08, 0x154);
const FREE: (usize, usize) = (0x0c, 0x158);

impl Superblock {
    fn count(&self, (low, high): (usize, usize)) -> u64 {
        let wide = self.has_incompat(features::incompat::WIDE);
        let high = if wide { le32(&self.0[..], high) } else { 0 };
        u64::from(le32(&self.0[..], low)) | u64::from(high) << 32
    }
    fn set_count(&mut self, (low, high): (usize, usize), v: u64) {
        let wide = self.has_incompat(features::incompat::WIDE);
        let stored = if wide { v } else { v.min(u64::from(u32::MAX)) };
        set32(&mut self.0[..], low, stored as u32);
        if wide {
            set32(&mut self.0[..], high, (stored >> 32) as u32);
        }
        self.seal();
    }
    /// `s_blocks_count`.
    pub fn blocks(&self) -> u64 {
        self.count(BLOCKS)
    }
    /// Sets [`Superblock::blocks`].
    pub fn set_blocks(&mut self, v: u64) {
        self.set_count(BLOCKS, v);
        // What is free may be said to be less; how many there are may not.
        let has = self.blocks();
        assert_eq!(has, v, "F1: how many blocks the volume has is read as another number");
    }
    /// `s_mmp_block`: the block by which machines keep off one another; None: there is none, or it
    /// cannot be there.
    pub fn mmp_block(&self) -> Option<BlockNo> {
        let at = u64::from(le32(&self.0[..], MMP_BLOCK))
            | u64::from(le32(&self.0[..], MMP_BLOCK + 4)) << 32;
        let may = at > u64::from(self.first_data_block()) && at < self.blocks();
        (may && self.has_incompat(features::incompat::MMP)).then_some(BlockNo(at))
    }
    /// Sets [`Superblock::mmp_block`].
    pub fn set_mmp_block(&mut self, v: BlockNo) {
        set32(&mut self.0[..], MMP_BLOCK, v.0 as u32);
        set32(&mut self.0[..], MMP_BLOCK + 4, (v.0 >> 32) as u32);
        self.seal();
        let has = self.mmp_block();
        assert_eq!(has, Some(v), "F1: mmp's block is read as another one");
    }
    /// `s_r_blocks_count`: blocks kept for root.
    pub fn reserved_blocks(&self) -> u64 {
        self.count(RESERVED)
    }
    /// Sets [`Superblock::reserved_blocks`].
    pub fn set_reserved_blocks(&mut self, v: u64) {
        self.set_count(RESERVED, v);
    }
    /// `s_free_blocks_count`: a hint.
    pub fn free_blocks(&self) -> u64 {
        self.count(FREE)
    }
    /// Sets [`Superblock::free_blocks`].
    pub fn set_free_blocks(&mut self, v: u64) {
        self.set_count(FREE, v);
    }
    /// Which checksums the volume's metadata carry.
    pub fn sums(&self) -> Sums {
        use features::ro_compat::{GDT_CSUM, METADATA_CSUM};
        if self.has_ro_compat(METADATA_CSUM) {
            let own = self.has_incompat(features::incompat::CSUM_SEED);
            Sums::All(if own { self.checksum_seed() } else { Sums::seed_of(&self.uuid()) })
        } else if self.has_ro_compat(GDT_CSUM) {
            Sums::Descriptors(Sums::start_of(&self.uuid()))
        } else {
            Sums::None
        }
    }
    /// Makes the checksum right of a volume whose metadata carry such. Every setter does it.
    fn seal(&mut self) {
        if self.has_ro_compat(features::ro_compat::METADATA_CSUM) {
            Superblock::seal_bytes(&mut self.0[..]);
        }
    }
    /// Makes the checksum right in a superblock's bytes, which are those of a volume that has such:
    /// not by changing it, but four bytes that nobody uses. It lies in the superblock's second
    /// sector, where none of the fields lies that are ever set here, so that a write that a power
    /// cut tears between the two leaves the superblock from before it or the one after it. (Who
    /// opens a volume has to read it before anything can be replayed.)
    pub fn seal_bytes(bytes: &mut [u8]) {
        Superblock::sum_of(bytes).put(bytes);
        // As costly as the sum itself.
        debug_assert_eq!(
            le32(bytes, csum::SUPER),
            csum::crc(!0, &bytes[..csum::SUPER]),
            "F4: the superblock is sealed"
        );
    }
    /// `s_last_orphan`: head of the list of orphans.
    pub fn last_orphan(&self) -> u32 {
        le32(&self.0[..], LAST_ORPHAN)
    }
    /// Sets [`Superblock::last_orphan`].
    pub fn set_last_orphan(&mut self, ino: u32) {
        let has_sum = self.has_ro_compat(features::ro_compat::METADATA_CSUM);
        let sum = |s: &Superblock| if has_sum { csum::crc(!0, &s.0[..csum::SUPER]) } else { 0 };
        let before = if cfg!(debug_assertions) { sum(self) } else { 0 };
        for (at, word) in Superblock::words_of_orphan(&self.0[..], ino, has_sum) {
            set32(&mut self.0[..], at, word);
        }
        // It is what sparing the sum is for.
        debug_assert_eq!(sum(self), before, "F4: the chain of orphans changes the sum");
    }
    /// The head of that list, of a superblock's bytes.
    pub fn head_of_orphans(bytes: &[u8]) -> u32 {
        le32(bytes, LAST_ORPHAN)
    }
    /// The words of a superblock's bytes that change with the head of that list, each with its
    /// place: it, and the one that keeps the sum as it is. Every file that goes changes it, so that
    /// the sum is not computed for it.
    pub fn words_of_orphan(
        bytes: &[u8],
        ino: u32,
        has_sum: bool,
    ) -> impl Iterator<Item = (usize, u32)> + use<> {
        let change = le32(bytes, LAST_ORPHAN) ^ ino;
        let kept = le32(bytes, UNUSED) ^ csum::balance_of_orphan(change);
        std::iter::once((LAST_ORPHAN, ino)).chain(has_sum.then_some((UNUSED, kept)))
    }
    /// What makes it right in them.
    pub fn sum_of(bytes: &[u8]) -> SumAt {
        let sum = le32(bytes, csum::SUPER);
        SumAt { at: UNUSED, sum: csum::word_for_sum(!0, &bytes[..csum::SUPER], UNUSED, sum) }
    }
    /// Makes `s_overhead_clusters` say nothing, for who counts then by himself: a sum of before a
    /// volume grew would be too small.
    pub fn forget_overhead(&mut self) {
        self.edit_second_half(|half| set32(half, OVERHEAD - SECOND_HALF, 0));
    }
    /// Keeps the seed of the checksums where `metadata_csum_seed` has it, which is not set yet: the
    /// UUID may change then.
    pub fn keep_seed(&mut self) {
        if let Sums::All(seed) = self.sums() {
            self.edit_second_half(|half| set32(half, SEED - SECOND_HALF, seed));
        }
    }
    /// Forgets the orphan file.
    pub fn forget_orphan_file(&mut self) {
        self.edit_second_half(|half| set32(half, ORPHAN_FILE - SECOND_HALF, 0));
    }
    /// Forgets the file with the counts of quotas of this kind.
    pub fn forget_quota_file(&mut self, kind: usize) {
        self.edit_second_half(|half| set32(half, QUOTA_FILES[kind] - SECOND_HALF, 0));
    }
    /// Sets which groups have copies of the superblock, beside the first (sparse_super2).
    pub fn set_backup_groups(&mut self, groups: [u32; 2]) {
        self.edit_second_half(|half| {
            for (n, g) in groups.into_iter().enumerate() {
                set32(half, BACKUP_GROUPS - SECOND_HALF + 4 * n, g);
            }
        });
    }
    /// Changes the second of the two sectors. Its part in the checksum is kept as it was by four
    /// bytes that nobody uses, so that the sector may reach the disk alone.
    fn edit_second_half(&mut self, edit: impl FnOnce(&mut [u8])) {
        let half = &mut self.0[SECOND_HALF..csum::SUPER];
        let sum = csum::crc(0, half);
        edit(half);
        if self.has_ro_compat(features::ro_compat::METADATA_CSUM) {
            let half = &mut self.0[SECOND_HALF..csum::SUPER];
            csum::make_sum(0, half, UNUSED_TOO - SECOND_HALF, sum);
            let again = csum::crc(0, half);
            assert_eq!(again, sum, "F4: the second sector may not reach the disk alone");
        }
    }
    fn check_sum(&self) -> Result<(), FormatError> {
        if !self.has_ro_compat(features::ro_compat::METADATA_CSUM) {
            return Ok(());
        }
        let (has, should) = (le32(&self.0[..], csum::SUPER), csum::crc(!0, &self.0[..csum::SUPER]));
        let what = if has != should {
            format!("its checksum is {has:#x}, and should be {should:#x}")
        } else if self.checksum_kind() != CRC32C {
            format!("checksums of kind {}, and there is only {CRC32C}", self.checksum_kind())
        } else {
            return Ok(());
        };
        Err(FormatError::corrupt(what, "superblock"))
    }
    /// The three words of features.
    pub fn features(&self) -> Features {
        let (compat, incompat) = (self.compat(), self.incompat());
        Features { compat, incompat, ro_compat: self.ro_compat() }
    }

    /// Does it say that its orphan file, which it has, may list something?
    pub fn lists_orphans(&self) -> bool {
        self.has_compat(features::compat::ORPHAN_FILE)
            && self.has_ro_compat(features::ro_compat::ORPHAN_PRESENT)
    }

    /// All zeros, for mkfs to fill.
    pub fn blank() -> Superblock {
        Superblock(Box::new([0; SUPERBLOCK_BYTES]))
    }

    /// From the 1024 bytes on disk. Checks every field that arithmetic relies on; the caller checks
    /// the device's size and the features
    /// ([`Superblock::check_features`]).
    pub fn decode(bytes: &[u8]) -> Result<Superblock, FormatError> {
        let bad = |what: String| Err(FormatError::corrupt(what, "superblock"));
        let Some(raw) = bytes.first_chunk::<SUPERBLOCK_BYTES>() else {
            return bad("the superblock is cut short".into());
        };
        let s = Superblock(Box::new(*raw));
        if s.magic() != MAGIC {
            return bad("this is no volume: it has no mark of ext2, ext3 or ext4".into());
        }
        if s.revision() > 1 {
            return bad(format!("revision {}", s.revision()));
        }
        if s.log_block_size() > 6 {
            return bad(format!("a block size of 1024 << {}", s.log_block_size()));
        }
        // Large files alone change nothing for a reader, and earlier versions set just that.
        let large = features::ro_compat::LARGE_FILE;
        if s.revision() == 0 && s.compat() | s.incompat() | s.ro_compat() & !large != 0 {
            return bad("features in a volume of revision 0".into());
        }
        s.check_sum()?;
        s.features().check()?;
        if s.log_block_size() > 2 {
            return Err(FormatError::Incompatible {
                feature: format!("a block size of {}", s.block_bytes()),
                advice: "blocks of 1024, 2048 and 4096 bytes can be opened".into(),
            });
        }
        let inode = s.inode_bytes();
        if !(128..=s.block_bytes()).contains(&inode) || !inode.is_power_of_two() {
            return bad(format!("an inode size of {inode}"));
        }
        s.check_numbers()?;
        s.check_descriptors()?;
        Ok(s)
    }

    /// Do all blocks of descriptors lie inside? A last group of one block may have the superblock's
    /// copy in it, and no room for the block that is to be behind that.
    fn check_descriptors(&self) -> Result<(), FormatError> {
        let geo = Geometry::of(self);
        let last = geo.desc_blocks() - 1;
        let together = last.min(geo.first_meta_bg.saturating_sub(1));
        let beyond = [last, together].into_iter().find(|n| geo.desc_block(*n).0 >= geo.blocks);
        match beyond {
            None => Ok(()),
            Some(n) => {
                let what = format!("block {n} of its group descriptors lies behind its end");
                Err(FormatError::corrupt(what, "superblock"))
            }
        }
    }

    fn check_numbers(&self) -> Result<(), FormatError> {
        let bits = 8 * self.block_bytes() as u32;
        let per_block = (self.block_bytes() / self.inode_bytes()) as u32;
        let first = u32::from(self.block_bytes() == 1024);
        let (bpg, ipg) = (self.blocks_per_group(), self.inodes_per_group());
        let clusters = self.has_ro_compat(features::ro_compat::BIGALLOC);
        let more = self.log_frag_size().checked_sub(self.log_block_size());
        let bad = if clusters && more.is_none_or(|more| more > CLUSTER_LOG_MAX) {
            format!("clusters of 1024 << {} bytes", self.log_frag_size())
        } else if bpg < 64 || bpg.div_ceil(self.cluster_blocks()) > bits || !bpg.is_multiple_of(8) {
            format!("{bpg} blocks a group")
        } else if ipg == 0 || ipg > bits || !ipg.is_multiple_of(per_block) {
            format!("{ipg} inodes a group")
        } else if self.first_data_block() != first && !(clusters && self.first_data_block() == 0) {
            format!("the first data block is {}", self.first_data_block())
        } else if self.blocks() <= u64::from(first + 8)
            || self.blocks().div_ceil(u64::from(bpg)) > u64::from(u32::MAX)
        {
            format!("{} blocks in all", self.blocks())
        } else if u64::from(self.inodes()) != u64::from(ipg) * u64::from(self.groups()) {
            format!("{} inodes in {} groups of {ipg}", self.inodes(), self.groups())
        } else if self.first_ino() < FIRST_INO || self.first_ino() > self.inodes() {
            format!("the first ordinary inode is {}", self.first_ino())
        } else if !matches!(self.desc_bytes(), 32..=1024) || !self.desc_bytes().is_power_of_two() {
            format!("group descriptors of {} bytes", self.desc_bytes())
        } else if u64::from(self.reserved_gdt_blocks()) > self.block_bytes() as u64 / 4 {
            format!("{} blocks reserved for group descriptors", self.reserved_gdt_blocks())
        } else {
            return Ok(());
        };
        Err(FormatError::corrupt(bad, "superblock"))
    }

    /// The 1024 bytes.
    pub fn bytes(&self) -> &[u8; SUPERBLOCK_BYTES] {
        &self.0
    }
    /// Block size in bytes.
    pub fn block_bytes(&self) -> usize {
        1024 << self.log_block_size()
    }
    /// Inode size in bytes.
    pub fn inode_bytes(&self) -> usize {
        if self.revision() == 0 { 128 } else { usize::from(self.inode_size_raw()) }
    }
    /// The first ordinary inode.
    pub fn first_ino(&self) -> u32 {
        if self.revision() == 0 { FIRST_INO } else { self.first_ino_raw() }
    }
    /// Makes a volume of revision 0 one of revision 1, which may have features, as Linux does
    /// before it sets one (ext2_update_dynamic_rev).
    pub fn allow_features(&mut self) {
        if self.revision() == 0 {
            self.set_revision(1);
            self.set_first_ino(FIRST_INO);
            self.set_inode_size(128);
        }
    }
    /// How many block groups.
    pub fn groups(&self) -> u32 {
        let blocks = self.blocks() - u64::from(self.first_data_block());
        blocks.div_ceil(u64::from(self.blocks_per_group())) as u32
    }
    /// Blocks that a bit of a block bitmap, and one of a group's count of what is free, stands for.
    pub fn cluster_blocks(&self) -> u32 {
        let clusters = self.has_ro_compat(features::ro_compat::BIGALLOC);
        let more = || self.log_frag_size().saturating_sub(self.log_block_size());
        if clusters { 1 << more().min(CLUSTER_LOG_MAX) } else { 1 }
    }
    /// Bytes of a group descriptor.
    pub fn desc_bytes(&self) -> usize {
        let wide = self.has_incompat(features::incompat::WIDE);
        if wide { usize::from(self.desc_size()) } else { 32 }
    }
    /// The groups with copies of the superblock, beside the first (sparse_super2); 0: none.
    pub fn backup_groups(&self) -> [u32; 2] {
        std::array::from_fn(|n| le32(&self.0[..], BACKUP_GROUPS + 4 * n))
    }
    /// The inodes with counts of quotas: of users, groups, projects (`s_usr_quota_inum`, ...).
    pub fn quota_files(&self) -> [u32; 3] {
        QUOTA_FILES.map(|at| le32(&self.0[..], at))
    }
    /// `s_orphan_file_inum` (orphan_file).
    pub fn orphan_file(&self) -> u32 {
        le32(&self.0[..], ORPHAN_FILE)
    }
    /// `s_checksum_seed` (metadata_csum_seed).
    pub fn checksum_seed(&self) -> u32 {
        le32(&self.0[..], SEED)
    }
    /// Has it this COMPAT bit?
    pub fn has_compat(&self, bit: u32) -> bool {
        self.compat() & bit != 0
    }
    /// Has it this INCOMPAT bit?
    pub fn has_incompat(&self, bit: u32) -> bool {
        self.incompat() & bit != 0
    }
    /// Has it this RO_COMPAT bit?
    pub fn has_ro_compat(&self, bit: u32) -> bool {
        self.ro_compat() & bit != 0
    }
    /// Was it closed cleanly?
    pub fn is_clean(&self) -> bool {
        self.state() & STATE_VALID != 0 && self.state() & STATE_ERROR == 0
    }
    /// The volume's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.0[0x68..0x78].try_into().expect("16 bytes")
    }
    /// Sets the UUID.
    pub fn set_uuid(&mut self, uuid: [u8; 16]) {
        self.0[0x68..0x78].copy_from_slice(&uuid);
        self.seal();
    }
    /// The label, without its padding.
    pub fn label(&self) -> String {
        let raw = &self.0[LABEL];
        let end = raw.iter().position(|&b| b == 0).unwrap_or(raw.len());
        String::from_utf8_lossy(&raw[..end]).into_owned()
    }
    /// Sets the label, of which 16 bytes fit.
    pub fn set_label(&mut self, label: &str) {
        let raw = &mut self.0[LABEL];
        raw.fill(0);
        let n = label.len().min(raw.len());
        raw[..n].copy_from_slice(&label.as_bytes()[..n]);
        self.seal();
    }
    /// The seed of directory hashes.
    pub fn hash_seed(&self) -> [u32; 4] {
        std::array::from_fn(|n| le32(&self.0[..], 0xec + 4 * n))
    }
    /// Sets the seed of directory hashes and the hash version, for kernels that index directories
    /// later.
    pub fn set_hash(&mut self, seed: [u8; 16], version: u8) {
        self.0[0xec..0xfc].copy_from_slice(&seed);
        self.0[0xfc] = version;
        self.seal();
    }
    /// Do directories' hashes take bytes as unsigned? Where nothing is said, Linux since its 6.2
    /// does so.
    pub fn hashes_unsigned(&self) -> bool {
        self.flags() & (HASH_SIGNED | HASH_UNSIGNED) != HASH_SIGNED
    }
    /// How directories are indexed by hash; None: they are not.
    pub fn index_rules(&self) -> Option<IndexRules> {
        let rules = IndexRules {
            version: self.0[0xfc],
            unsigned: self.hashes_unsigned(),
            seed: self.hash_seed(),
            levels_max: if self.has_incompat(features::incompat::LARGE_DIR) { 2 } else { 1 },
        };
        let is_known = rules.hash(rules.version).is_some();
        (self.has_compat(features::compat::DIR_INDEX) && is_known).then_some(rules)
    }
    /// Says whether directories' hashes take bytes as signed, where nothing does: who changes a
    /// directory next, Linux or an old one, must not take names of ours by another hash.
    pub fn settle_hash_sign(&mut self) {
        let is_said = self.flags() & (HASH_SIGNED | HASH_UNSIGNED) != 0;
        if self.has_compat(features::compat::DIR_INDEX) && !is_said {
            let flags = self.flags() | HASH_UNSIGNED;
            self.set_flags(flags);
        }
    }
}

impl std::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Superblock({} blocks of {})", self.blocks(), self.block_bytes())
    }
}

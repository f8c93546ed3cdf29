//! The superblock's own fields: those that a check can judge by themselves or against a copy, the
//! marks that it sets at the end, and the copies. Counts of what is free are the last pass's.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::pass1::{BAD_BLOCKS_INO, BOOT_LOADER_INO, RESIZE_INO};
use crate::run::Check;
use crate::tables::Frame;
use format::ext::features::{compat, incompat, ro_compat};
use format::ext::geometry::GROUP_DESC_BYTES;
use format::ext::mmp::{MMP_BYTES, Mmp};
use format::ext::superblock::{STATE_ERROR, STATE_VALID, SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use format::ext::{Geometry, Superblock};
use format::ufs::inode::InodeRef;
use format::{BlockNo, GroupNo, Ino};

/// Stands for a block of mmp that cannot be where it is said to be.
const NOWHERE: BlockNo = BlockNo(0);
/// Reserved inodes that count the quotas of users and of groups.
const QUOTA_INOS: [u32; 2] = [3, 4];
/// More than so many, as a power of two, e2fsprogs takes for no volume's.
const FLEX_LOG_MAX: u8 = 31;

/// Where the primary superblock begins in its block.
pub(crate) fn offset_in_block(block_bytes: usize) -> usize {
    SUPERBLOCK_AT as usize % block_bytes
}

impl Check<'_> {
    pub(crate) fn super_block_no(&self) -> BlockNo {
        BlockNo(SUPERBLOCK_AT / self.view.block_bytes() as u64)
    }

    /// Judges the superblock's fields and its copies.
    pub(crate) fn check_superblock(&mut self) -> Result<(), CheckError> {
        self.chain = self.chain_in_use()?;
        if self.sb.last_orphan() != 0 && self.chain.is_empty() {
            let text = format!("the chain of orphans begins at inode {}", self.sb.last_orphan());
            self.found(Kind::OrphanList, Place::Volume, text);
            self.sb.set_last_orphan(0);
            // Who is in it may be about to become shorter.
            self.crashed = true;
        }
        let limit = self.sb.blocks() / 2;
        if self.sb.reserved_blocks() > limit {
            let text = format!("{} blocks reserved for root; set to 0", self.sb.reserved_blocks());
            self.found(Kind::SuperField, Place::Volume, text);
            self.sb.set_reserved_blocks(0);
        }
        if self.sb.log_frag_size() != self.sb.log_block_size() {
            self.found(Kind::SuperField, Place::Volume, "the fragment size is not the block size");
            self.sb.set_log_frag_size(self.sb.log_block_size());
        }
        if self.sb.frags_per_group() != self.sb.blocks_per_group() {
            self.found(Kind::SuperField, Place::Volume, "fragments per group are not blocks");
            self.sb.set_frags_per_group(self.sb.blocks_per_group());
        }
        if self.sb.revision() == 0 && self.sb.ro_compat() != 0 {
            self.found(Kind::SuperField, Place::Volume, "a feature in revision 0; revision 1 now");
            self.sb.allow_features();
        }
        if !self.sb.has_compat(compat::RESIZE_INODE) && self.sb.reserved_gdt_blocks() != 0 {
            self.found(Kind::SuperField, Place::Volume, "blocks for growth without resize_inode");
            self.sb.set_reserved_gdt_blocks(0);
        }
        let blocks = self.geo().desc_blocks();
        if self.sb.has_incompat(incompat::META_BG) && self.sb.first_meta_bg() > blocks {
            // Where they lie is the same.
            let text = "meta_bg begins behind all descriptors; set to their end";
            self.found(Kind::SuperField, Place::Volume, text);
            self.sb.set_first_meta_bg(blocks);
        }
        let narrow = !self.sb.has_incompat(incompat::WIDE);
        if narrow && !matches!(usize::from(self.sb.desc_size()), 0 | GROUP_DESC_BYTES) {
            self.found(
                Kind::SuperField,
                Place::Volume,
                "a size of descriptors without 64bit; cleared",
            );
            self.sb.set_desc_size(0);
        }
        if self.sb.groups_per_flex_log() > FLEX_LOG_MAX {
            let text = "a number of groups whose metadata lie together that cannot be; cleared";
            self.found(Kind::SuperField, Place::Volume, text);
            self.sb.set_groups_per_flex_log(0);
        }
        self.check_quota_files();
        self.check_sum_features();
        self.check_times();
        self.check_mmp()?;
        self.check_super_copies()
    }

    /// The block by which machines keep off one another. Who repairs has it, so that it is not in
    /// use but where it keeps nobody off.
    fn check_mmp(&mut self) -> Result<(), CheckError> {
        if !self.sb.has_incompat(incompat::MMP) {
            return Ok(());
        }
        let geo = Geometry { mmp: None, ..self.geo() };
        let others = Frame::new(geo, self.frame.descs.to_vec());
        let Some(at) = self.geo().mmp.filter(|at| !others.is_meta(*at)) else {
            let text = "mmp's block cannot be where the superblock says".to_owned();
            self.mmp_in_doubt = Some((NOWHERE, text));
            self.frame = others;
            return Ok(());
        };
        let (bytes, sums) = (self.view.read(at)?, self.geo().sums);
        match Mmp::decode(&bytes, at) {
            Ok(found) => match found.check_sum(sums, at) {
                Ok(()) => Ok(()),
                Err(e) => self.renew_mmp(at, &e.to_string()),
            },
            Err(e) => {
                // Not the block may be wrong but its number: it is nobody's until it is known
                // whether a file has it.
                self.mmp_in_doubt = Some((at, e.to_string()));
                self.frame = others;
                Ok(())
            }
        }
    }

    fn renew_mmp(&mut self, at: BlockNo, fault: &str) -> Result<(), CheckError> {
        self.found(Kind::Mmp, Place::Volume, format!("{fault}; made anew, as of nobody"));
        let new = Mmp::new(self.geo().sums);
        self.view.edit(at, |b| b[..MMP_BYTES].copy_from_slice(new.bytes()))
    }

    /// What is said to be mmp's block, and is none, is made one, unless a file has it: then another
    /// one is. All that files hold is claimed.
    pub(crate) fn settle_mmp(&mut self) -> Result<(), CheckError> {
        let Some((at, fault)) = self.mmp_in_doubt.take() else { return Ok(()) };
        let geo = self.geo();
        let mut is = at;
        if at == NOWHERE || self.claims.is_claimed(&geo, at) {
            let fault = if at == NOWHERE { fault } else { format!("{fault}; it is a file's") };
            let Some(new) = self.alloc_block() else {
                self.found(Kind::Mmp, Place::Volume, format!("{fault}, and no block is free"));
                return Ok(());
            };
            let text = format!("{fault}; block {new} is mmp's now");
            self.found(Kind::Mmp, Place::Volume, text);
            let mut bytes = vec![0; geo.block_bytes];
            bytes[..MMP_BYTES].copy_from_slice(Mmp::new(geo.sums).bytes());
            self.view.put_fresh(new, bytes);
            self.claims.release(&geo, new); // as the volume's own
            self.sb.set_mmp_block(new);
            is = new;
        } else {
            self.renew_mmp(at, &fault)?;
        }
        let reads = Mmp::decode(&self.view.read(is)?, is).is_ok();
        assert!(reads, "K8: block {is}, which was made mmp's, is none");
        self.frame = Frame::new(Geometry { mmp: Some(is), ..geo }, self.frame.descs.to_vec());
        Ok(())
    }

    /// Files with counts of quotas, on a volume that does not count them (one that does is not
    /// checked here): e2fsck would empty what the superblock names.
    fn check_quota_files(&mut self) {
        for (kind, ino) in self.sb.quota_files().into_iter().enumerate() {
            if ino != 0 && !QUOTA_INOS.contains(&ino) {
                let text = format!("inode {ino} is named as a file of quotas; cleared");
                self.found(Kind::SuperField, Place::Volume, text);
                self.sb.forget_quota_file(kind);
            }
        }
    }

    /// Features of checksums that contradict one another.
    fn check_sum_features(&mut self) {
        let all = self.sb.has_ro_compat(ro_compat::METADATA_CSUM);
        if all && self.sb.has_ro_compat(ro_compat::GDT_CSUM) {
            let text = "uninit_bg beside metadata_csum, which includes it; cleared";
            self.found(Kind::SuperField, Place::Volume, text);
            self.sb.set_ro_compat(self.sb.ro_compat() & !ro_compat::GDT_CSUM);
        }
        if !all && self.sb.has_incompat(incompat::CSUM_SEED) {
            let text = "metadata_csum_seed without metadata_csum; cleared";
            self.found(Kind::SuperField, Place::Volume, text);
            self.sb.set_incompat(self.sb.incompat() & !incompat::CSUM_SEED);
        }
    }

    /// Times of the superblock that lie in the future.
    fn check_times(&mut self) {
        // A clock may be a day off; e2fsck grants as much.
        let limit = self.options.now_secs.saturating_add(86_400);
        if self.sb.mtime() > limit {
            self.found(Kind::SuperTime, Place::Volume, "the last mount lies in the future");
            self.sb.set_mtime(self.options.now_secs);
        }
        if self.sb.wtime() > limit {
            self.found(Kind::SuperTime, Place::Volume, "the last write lies in the future");
            self.sb.set_wtime(self.options.now_secs);
        }
        if self.sb.last_check() > limit {
            self.found(Kind::SuperTime, Place::Volume, "the last check lies in the future");
            self.sb.set_last_check(self.options.now_secs);
        }
    }

    fn check_super_copies(&mut self) -> Result<(), CheckError> {
        let geo = self.geo();
        let groups: Vec<GroupNo> =
            (1..geo.groups).map(GroupNo).filter(|g| geo.has_super(*g)).collect();
        for g in groups {
            let block = geo.group_start(g);
            let bytes = self.view.read(block)?;
            let fault = match Superblock::decode(&bytes) {
                Ok(copy) if same_volume(&copy, &self.sb) => continue,
                Ok(_) => "says something else than the primary".to_owned(),
                Err(e) => format!("cannot be used: {e}"),
            };
            let text = format!("its copy of the superblock {fault}; written anew");
            self.found(Kind::BackupDamaged, Place::Group(g), text);
            let mut copy = self.sb.clone();
            copy.set_group_number(g.0 as u16);
            let reads = Superblock::decode(copy.bytes()).is_ok_and(|c| same_volume(&c, &self.sb));
            assert!(reads, "K8: group {g}'s new copy of the superblock is none of this volume");
            self.view.edit(block, |b| b[..SUPERBLOCK_BYTES].copy_from_slice(copy.bytes()))?;
        }
        Ok(())
    }

    /// Features that must be set because of what was found in inodes.
    pub(crate) fn check_features(&mut self) {
        let lacks = !self.sb.has_ro_compat(ro_compat::LARGE_FILE);
        // The inode of the reserved descriptors is as long as its map could be.
        let grows = self.sb.has_compat(compat::RESIZE_INODE) && self.resize_size() >= 1 << 31;
        if (self.large_file || grows) && lacks {
            self.found(
                Kind::SuperField,
                Place::Volume,
                "files beyond 2 GiB without large_file; set",
            );
            self.sb.allow_features();
            self.sb.set_ro_compat(self.sb.ro_compat() | ro_compat::LARGE_FILE);
        }
        let attributes = self.xattr_users.values().any(Option::is_some);
        if attributes && !self.sb.has_compat(compat::EXT_ATTR) {
            self.found(Kind::SuperField, Place::Volume, "attributes without ext_attr; set");
            self.sb.allow_features();
            self.sb.set_compat(self.sb.compat() | compat::EXT_ATTR);
        }
    }

    /// Puts the superblock into the view, with the marks of a finished check.
    pub(crate) fn write_superblock(&mut self) -> Result<(), CheckError> {
        let (block, at) = (self.super_block_no(), offset_in_block(self.view.block_bytes()));
        if self.options.mark_clean {
            self.sb.set_state(self.sb.state() & !STATE_ERROR | STATE_VALID);
        }
        let bytes = *self.sb.bytes();
        self.view.edit(block, |b| b[at..at + SUPERBLOCK_BYTES].copy_from_slice(&bytes))
    }

    /// Is it a reserved inode whose duty no volume of this kind has? (The boot loader's may be a
    /// file.)
    pub(crate) fn is_kept_empty(&self, ino: Ino, raw: &[u8]) -> bool {
        let inode = InodeRef(raw);
        match ino {
            BAD_BLOCKS_INO => false,
            RESIZE_INO => !self.sb.has_compat(compat::RESIZE_INODE),
            BOOT_LOADER_INO => !inode.is_file() || inode.links() == 0,
            _ => {
                let in_use = self.is_journal(ino) || self.orphan_file() == Some(ino);
                self.is_reserved(ino) && !in_use
            }
        }
    }

    /// Is it an inode with a duty of its own, which no directory names?
    pub(crate) fn is_reserved(&self, ino: Ino) -> bool {
        ino.0 < self.geo().first_ino && ino != format::ROOT_INO || self.orphan_file() == Some(ino)
    }
}

/// Do two superblocks describe one volume, as to what never changes after mkfs?
fn same_volume(a: &Superblock, b: &Superblock) -> bool {
    let numbers = |s: &Superblock| {
        let sizes = (s.blocks(), s.inodes(), s.log_block_size(), s.inode_bytes(), s.first_ino());
        (sizes, s.blocks_per_group(), s.inodes_per_group(), s.reserved_gdt_blocks(), s.uuid())
    };
    numbers(a) == numbers(b)
}

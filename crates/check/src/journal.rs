//! The journal as far as a check goes: is there one where the superblock says, can it be a journal,
//! and is it empty? What transactions in it mean is for those who replay it.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::run::Check;
use format::bytes::le32;
use format::ext::Superblock;
use format::ext::boot::{self, BootArea};
use format::ext::features::{compat, incompat};
use format::jbd2::{JournalSuperblock, superblock as jsb, unforeseen};
use format::ufs::inode::{FLAG_EXTENTS, InodeMut, InodeRef, RawTime, Which};
use format::ufs::map::POINTERS;
use format::{BlockNo, FileBlock, Ino, JOURNAL_INO};

/// Where the journal's superblock has its three words of features, and the number of its users.
const COMPAT: usize = 0x24;
const USERS: usize = 0x40;
/// Where the volume's superblock has a copy of the journal's map and size, and says that it has.
const COPY_AT: usize = 0x10c;
const COPY_KIND: usize = 0xfd;
/// So much behind the journal's superblock says of a log that lay there which it was.
const LOG_HEAD_BYTES: usize = 8192;

/// The journal's inode, of so many bytes and without a checksum, by the copy of its map that the
/// superblock has. None: it has none.
pub fn journal_inode_of(sb: &Superblock, bytes: usize, now_secs: u32) -> Option<Vec<u8>> {
    let copy = sb.bytes();
    if copy[COPY_KIND] != 1 {
        return None;
    }
    let word = |n: usize| le32(&copy[..], COPY_AT + 4 * n);
    let mut raw = vec![0; bytes];
    let now: RawTime = (i64::from(now_secs), 0);
    let mut i = InodeMut(&mut raw);
    i.set_extra_isize();
    i.set_mode(0o100_600);
    i.set_links(1);
    i.set_size(u64::from(word(POINTERS)) << 32 | u64::from(word(POINTERS + 1)));
    for w in [Which::Access, Which::Modify, Which::Change] {
        i.set_time(w, now);
    }
    (0..POINTERS).for_each(|n| i.set_pointer(n, word(n)));
    if sb.has_incompat(incompat::EXTENTS) && crate::extents::is_root(i.0) {
        i.set_flags(FLAG_EXTENTS);
    }
    Some(raw)
}

impl Check<'_> {
    /// Judges the journal. Runs before the inodes are looked at, so that its inode can be restored
    /// first.
    pub(crate) fn check_journal(&mut self) -> Result<(), CheckError> {
        let recover = self.sb.has_incompat(incompat::RECOVER);
        if !self.sb.has_compat(compat::HAS_JOURNAL) {
            if recover || self.sb.journal_inum() != 0 || self.sb.has_external_journal() {
                let text = "marks of a journal without one; cleared";
                self.found(Kind::Journal, Place::Volume, text);
                self.sb.set_incompat(self.sb.incompat() & !incompat::RECOVER);
                self.sb.set_journal_inum(0);
                self.sb.clear_external_journal();
            }
            return Ok(());
        }
        if self.sb.journal_inum() == 0 && self.sb.has_external_journal() {
            return if recover { Err(CheckError::NeedsRecovery) } else { Ok(()) };
        }
        if self.sb.has_external_journal() {
            let text = "the journal is said to be inside and outside; it is inside";
            self.found(Kind::Journal, Place::Volume, text);
            self.sb.clear_external_journal();
        }
        if self.sb.journal_inum() != JOURNAL_INO.0 {
            let text = format!("the journal's inode is said to be {}", self.sb.journal_inum());
            self.found(Kind::Journal, Place::Volume, text);
            self.sb.set_journal_inum(JOURNAL_INO.0);
        }
        match self.journal_blocks(recover)? {
            Some(blocks) => self.check_journal_super(&blocks, recover),
            None => self.restore_journal_inode(recover),
        }
    }

    /// The journal's blocks, if its inode is a sound file without holes of 1024 blocks or more. One
    /// that is to be replayed (`strict`) is so only where who replays it can read it, who mends
    /// nothing: else nobody would replay it, and the check would wait for that.
    fn journal_blocks(&mut self, strict: bool) -> Result<Option<Vec<BlockNo>>, CheckError> {
        let raw = self.raw_inode(JOURNAL_INO)?;
        let inode = InodeRef(&raw);
        let bs = self.geo().block_bytes as u64;
        let (count, rest) = (inode.size() / bs, inode.size() % bs);
        if !inode.is_file() || rest != 0 || count < u64::from(jsb::BLOCKS_MIN) {
            return Ok(None);
        }
        let mut found = self.blocks_of(JOURNAL_INO, &raw)?;
        // What lies behind its end is no part of it.
        found.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        if inode.has_extents() && !self.mend_journal_tree(&raw, strict)? {
            return Ok(None);
        }
        let whole = found.iter().zip(0..).all(|((at, _), n)| *at == FileBlock(n));
        if !whole || (found.len() as u64) < count {
            return Ok(None);
        }
        let blocks: Vec<BlockNo> = found.into_iter().map(|(_, b)| b).collect();
        let mut sorted = blocks.clone();
        sorted.sort_unstable();
        sorted.dedup();
        Ok((sorted.len() == blocks.len()).then_some(blocks))
    }

    /// Can the journal's extent tree be read by who replays it? What no kernel takes for a
    /// journal's, unwritten extents, is mended where nothing is to be replayed; the rest of what is
    /// wrong is mended with those of other files.
    fn mend_journal_tree(&mut self, raw: &[u8], strict: bool) -> Result<bool, CheckError> {
        let mut tree = crate::extents::read(&self.view, &self.frame, raw, JOURNAL_INO)?;
        let unwritten = tree.extents.iter().any(|m| m.unwritten);
        if strict {
            return Ok(tree.is_sound() && !unwritten);
        }
        if !unwritten {
            return Ok(true);
        }
        tree.extents.iter_mut().for_each(|m| m.unwritten = false);
        let mut raw = raw.to_vec();
        if !crate::tree::put_root(&mut raw, &crate::tree::joined(&tree.extents)) {
            return Ok(false);
        }
        let text = "the journal has unwritten extents; taken as written";
        self.found(Kind::Journal, Place::Inode(JOURNAL_INO), text);
        self.edit_inode(JOURNAL_INO, |b| b.copy_from_slice(&raw))?;
        Ok(true)
    }

    fn check_journal_super(&mut self, blocks: &[BlockNo], recover: bool) -> Result<(), CheckError> {
        let bytes = self.view.read(blocks[0])?;
        let (bs, count) = (self.geo().block_bytes, blocks.len() as u64);
        let good = JournalSuperblock::decode(&bytes).ok().filter(|j| j.check(count, bs).is_ok());
        match good {
            Some(j) if j.start != 0 && recover => Err(CheckError::NeedsRecovery),
            Some(j) if j.start != 0 => {
                let text = "the journal says it holds something, the superblock that it does not; \
                            emptied";
                self.found(Kind::Journal, Place::Inode(JOURNAL_INO), text);
                let next = self.number_behind(blocks, &bytes)?;
                self.view.edit(blocks[0], |b| jsb::set_tail(b, 0, next))
            }
            Some(_) => {
                if recover {
                    let text = "needs_recovery is set, but the journal is empty; cleared";
                    self.found(Kind::Journal, Place::Volume, text);
                    self.sb.set_incompat(self.sb.incompat() & !incompat::RECOVER);
                }
                self.check_journal_features(blocks[0], &bytes)
            }
            None => {
                let text = "the journal's superblock is damaged; a new, empty one";
                self.found(Kind::Journal, Place::Inode(JOURNAL_INO), text);
                let next = self.number_behind(blocks, &bytes)?;
                self.new_journal_super(blocks, next)
            }
        }
    }

    /// An empty journal may have no features nobody knows: they would keep others off for nothing.
    /// Nor may it have features that contradict one another, or an old error.
    fn check_journal_features(&mut self, first: BlockNo, bytes: &[u8]) -> Result<(), CheckError> {
        if jsb::errno(bytes) != 0 {
            let text = "the journal keeps the error of its last use; cleared";
            self.found(Kind::Journal, Place::Inode(JOURNAL_INO), text);
            self.view.edit(first, |b| jsb::set_errno(b, 0))?;
        }
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let (v1, known) = (word(4) == 3, 0x1f);
        let (compat, incompat, ro_compat) = (word(COMPAT), word(COMPAT + 4), word(COMPAT + 8));
        let sums = (compat & 1) + (incompat >> 3 & 1) + (incompat >> 4 & 1);
        let unknown = compat & !1 | incompat & !known | ro_compat;
        if v1 || unknown == 0 && sums <= 1 && word(USERS) <= 1 {
            return Ok(());
        }
        let text = "an empty journal with features that are unknown or at odds; cleared";
        self.found(Kind::Journal, Place::Inode(JOURNAL_INO), text);
        self.view.edit(first, |b| {
            b[COMPAT..COMPAT + 12].fill(0);
            b[USERS..USERS + 4].copy_from_slice(&1u32.to_be_bytes());
            jsb::set_incompat(b, 0);
        })
    }

    /// The number of the next transaction of a journal that is emptied. Old transactions lie in its
    /// blocks, and perhaps bytes of users that look like some: none that has this number, which
    /// nobody knows who cannot read the disk, so that none is replayed behind a newer one.
    fn number_behind(&self, blocks: &[BlockNo], first: &[u8]) -> Result<u32, CheckError> {
        let start = self.view.read(BlockNo(0))?;
        let key = match boot::decode(&start[..boot::BOOT_BYTES]) {
            BootArea::Ours(state) => state.handle_key,
            BootArea::Empty | BootArea::Foreign => [0; 16],
        };
        let seed = self.sb.hash_seed().map(u32::to_le_bytes).concat();
        let mut lies_there = first.to_vec();
        let head = LOG_HEAD_BYTES.div_ceil(first.len());
        for block in blocks.iter().skip(1).take(head) {
            lies_there.extend(self.view.read(*block)?);
        }
        Ok(unforeseen(&[&key, &seed, &lies_there]))
    }

    fn new_journal_super(&mut self, blocks: &[BlockNo], next: u32) -> Result<(), CheckError> {
        let j = JournalSuperblock {
            block_bytes: self.geo().block_bytes as u32,
            blocks: blocks.len() as u32,
            first: 1,
            sequence: next,
            start: 0,
            incompat: 0,
            old_sums: false,
            uuid: [0; 16],
        };
        let raw = j.encode_new();
        let (bs, count) = (self.geo().block_bytes, blocks.len() as u64);
        let usable = JournalSuperblock::decode(&raw).is_ok_and(|j| j.check(count, bs).is_ok());
        assert!(usable, "K8: the new superblock of a journal of {count} blocks is none");
        self.view.put(blocks[0], raw);
        self.sb.set_incompat(self.sb.incompat() & !incompat::RECOVER);
        Ok(())
    }

    /// The journal's inode is unusable: the superblock's copy of its map, or no journal at all.
    fn restore_journal_inode(&mut self, recover: bool) -> Result<(), CheckError> {
        let bytes = self.geo().inode_bytes;
        let copy = journal_inode_of(&self.sb, bytes, self.options.now_secs);
        let blocks = match copy {
            Some(raw) => {
                self.edit_inode(JOURNAL_INO, |b| b.copy_from_slice(&raw))?;
                self.journal_blocks(recover)?
            }
            None => None,
        };
        if let Some(blocks) = blocks {
            let text = "the journal's inode is damaged; restored from the superblock";
            self.found(Kind::Journal, Place::Inode(JOURNAL_INO), text);
            return self.check_journal_super(&blocks, recover);
        }
        let text = "the journal's inode is damaged beyond repair; the volume has no journal now";
        self.found(Kind::Journal, Place::Inode(JOURNAL_INO), text);
        self.edit_inode(JOURNAL_INO, |b| b.fill(0))?;
        self.sb.set_compat(self.sb.compat() & !compat::HAS_JOURNAL);
        self.sb.set_incompat(self.sb.incompat() & !incompat::RECOVER);
        self.sb.set_journal_inum(0);
        self.sb.set_journal_backup(&[0; 60], 0);
        Ok(())
    }

    /// A journal's inode that was restored or is sound has its copy in the superblock.
    pub(crate) fn check_journal_copy(&mut self, ino: Ino, raw: &[u8]) {
        if !self.is_journal(ino) {
            return;
        }
        let inode = InodeRef(raw);
        let mut with = self.sb.clone();
        with.set_journal_backup(&inode.map_bytes(), inode.size());
        if with.bytes() != self.sb.bytes() {
            let text = "the superblock's copy of the journal's inode is out of date; set";
            self.found(Kind::JournalCopy, Place::Volume, text);
            self.sb = with;
        }
    }
}

//! One inode by itself: is it in use, is it a kind of file at all, can its fields be? It decides
//! without following any pointer and without knowing any name.

use crate::CheckError;
use crate::extents;
use crate::finding::{Kind, Place};
use crate::pass1::{BAD_BLOCKS_INO, RESIZE_INO};
use crate::run::Check;
use format::bytes::{le16, le32, set16, set32};
use format::ext::features::{compat, incompat};
use format::ufs::dirent::kind_byte;
use format::ufs::inline;
use format::ufs::inode::{
    BLOCK_AT, CLASSIC_BYTES, EXTRA_ISIZE, FAST_SYMLINK_MAX, FLAG_APPEND, FLAG_EXTENTS, FLAG_HUGE,
    FLAG_IMMUTABLE, FLAG_INDEX, FLAG_INLINE, FLAG_VALUE, InodeMut, InodeRef,
};
use format::ufs::map::POINTERS;
use format::ufs::xattr::MAGIC;
use format::{BlockNo, Ino, ROOT_INO};

/// What is to become of an inode.
pub(crate) enum Verdict {
    /// It is not in use.
    Free,
    /// It cannot be kept, for this reason.
    Clear(String),
    /// It is in use; its map has blocks if `mapped`.
    Used {
        /// Does its map hold pointers (and not a device number or a text)?
        mapped: bool,
    },
}

/// Flags of features that these volumes do not have: AFS, encryption, verity, case folding.
const FOREIGN_FLAGS: u32 = 0x2000 | 0x800 | 0x10_0000 | 0x4000_0000;

/// The kind of a directory in a mode.
const S_IFDIR: u16 = 0o040_000;
const SIZE_HIGH: usize = 0x6c;
const FADDR: usize = 0x70;
const BLOCKS_HIGH: usize = 0x74;
const XATTR_HIGH: usize = 0x76;

impl Check<'_> {
    /// Judges an inode and mends its fields in `raw`.
    pub(crate) fn judge(&mut self, ino: Ino, raw: &mut [u8]) -> Result<Verdict, CheckError> {
        if ino == BAD_BLOCKS_INO {
            return Ok(self.judge_bad_blocks(raw));
        }
        if ino == RESIZE_INO && self.sb.has_compat(compat::RESIZE_INODE) {
            return Ok(Verdict::Free); // judged on its own
        }
        if InodeRef(raw).links() == 0 && !self.revive(ino, raw) {
            return Ok(self.judge_dead(ino, raw));
        }
        self.mend_extra_isize(ino, raw);
        let mut kind = kind_byte(InodeRef(raw).mode());
        if !matches!(kind, 1 | 2 | 7) && self.holds_directory(ino, raw)? {
            let text = format!("mode {:#o}, but it holds a directory; set", InodeRef(raw).mode());
            self.found(Kind::InodeField, Place::Inode(ino), text);
            let permissions = InodeRef(raw).mode() & 0o7777;
            InodeMut(raw).set_mode(S_IFDIR | permissions);
            kind = 2;
        }
        if matches!(kind, 1 | 2 | 7) {
            self.note_features(ino, raw);
        }
        self.mend_both_places(ino, raw);
        if matches!(kind, 1 | 2) {
            self.mend_map_kind(ino, raw);
        }
        if kind == 0 {
            return Ok(Verdict::Clear(format!("mode {:#o} is no kind", InodeRef(raw).mode())));
        }
        if self.is_reserved(ino) && kind != 1 {
            return Ok(Verdict::Clear("a reserved inode that is no regular file".into()));
        }
        self.mend_fields(ino, raw);
        Ok(match kind {
            1 | 2 => Verdict::Used { mapped: true },
            7 => return Ok(self.judge_symlink(ino, raw)),
            _ => self.judge_special(ino, raw),
        })
    }

    /// Does it have what only a volume with another feature has, flag and contents? Then the
    /// superblock has lost that: without it the maps of all files would seem damaged.
    fn note_features(&mut self, ino: Ino, raw: &[u8]) {
        let (geo, i) = (self.geo(), InodeRef(raw));
        let shown = if !geo.extents && i.has_extents() && extents::is_root(raw) {
            incompat::EXTENTS
        } else if !geo.inline_data && i.is_inline() && matches!(inline::contents(raw), Ok(Some(_)))
        {
            incompat::INLINE_DATA
        } else {
            return;
        };
        self.shown = self.shown.or(Some((ino, shown)));
    }

    /// A map that begins as the root of an extent tree is one, whatever the flag says.
    fn mend_map_kind(&mut self, ino: Ino, raw: &mut [u8]) {
        let flags = InodeRef(raw).flags();
        if flags & FLAG_INLINE != 0 && self.may_be_inline(ino, raw) {
            return;
        }
        if self.geo().extents && flags & FLAG_EXTENTS == 0 && extents::is_root(raw) {
            let text = "its map is an extent tree, and it does not say so; set";
            self.found(Kind::InodeField, Place::Inode(ino), text);
            InodeMut(raw).set_flags(flags | FLAG_EXTENTS);
        }
    }

    /// Which flags cannot be on an inode of this kind, on this volume.
    fn flags_to_drop(&self, ino: Ino, raw: &[u8]) -> u32 {
        let (geo, i) = (self.geo(), InodeRef(raw));
        let index = i.is_dir() && self.sb.has_compat(compat::DIR_INDEX);
        let tree = geo.extents && (i.is_file() || i.is_dir() || i.is_symlink());
        let unless = |may: bool, flag: u32| if may { 0 } else { flag };
        let huge = unless(geo.huge_files, FLAG_HUGE);
        let inline = unless(self.may_be_inline(ino, raw), FLAG_INLINE);
        let index = unless(index, FLAG_INDEX);
        let value = unless(self.has_values() && i.is_file(), FLAG_VALUE);
        FOREIGN_FLAGS | value | inline | huge | index | unless(tree, FLAG_EXTENTS)
    }

    /// Does the first block of what is no directory begin as one's, with entries for itself and its
    /// parent? Then its mode is wrong (e2fsck's check_is_really_dir).
    fn holds_directory(&self, ino: Ino, raw: &[u8]) -> Result<bool, CheckError> {
        let i = InodeRef(raw);
        if i.flags() & FLAG_INLINE != 0 && self.geo().inline_data {
            return Ok(!self.is_reserved(ino) && self.holds_inline_directory(raw));
        }
        if self.geo().extents && (i.has_extents() || extents::is_root(raw)) {
            return self.tree_holds_directory(ino, raw);
        }
        let used = (0..POINTERS).filter(|n| i.pointer(*n) != 0);
        let all_legal = used.clone().all(|n| self.frame.is_legal(i.pointer(n)));
        if i.pointer(0) == 0 || !all_legal || self.is_reserved(ino) {
            return Ok(false);
        }
        let device = matches!(kind_byte(i.mode()), 3 | 4);
        if device && i.links() == 1 && used.clone().all(|n| n < 4) {
            return Ok(false);
        }
        let block = self.view.read(BlockNo(u64::from(i.pointer(0))))?;
        Ok(begins_as_directory(&block, ino))
    }

    /// The same of an inode that says that its contents are in it: they begin with the parent's
    /// number, and the chains of names are whole. Those of anything else, of zeros, are not.
    fn holds_inline_directory(&self, raw: &[u8]) -> bool {
        let Ok(Some(contents)) = inline::contents(raw) else { return false };
        let parent = le32(&contents, 0);
        let may_be = parent == ROOT_INO.0 || parent >= self.geo().first_ino;
        may_be && parent <= self.geo().inodes() && inline::check_dir(&contents).is_ok()
    }

    /// The same of an inode with an extent tree.
    fn tree_holds_directory(&self, ino: Ino, raw: &[u8]) -> Result<bool, CheckError> {
        if self.is_reserved(ino) {
            return Ok(false);
        }
        let tree = extents::read(&self.view, &self.frame, raw, ino)?;
        let first = tree.extents.first().filter(|m| m.first == 0 && tree.is_sound());
        let Some(m) = first else { return Ok(false) };
        Ok(begins_as_directory(&self.view.read(m.start)?, ino))
    }

    /// The root and the journal are in use whatever their link count says.
    fn revive(&mut self, ino: Ino, raw: &mut [u8]) -> bool {
        let wanted = ino == ROOT_INO && InodeRef(raw).is_dir()
            || self.is_journal(ino) && InodeRef(raw).is_file();
        if wanted && ino != ROOT_INO {
            self.found(Kind::LinksLow, Place::Inode(ino), "the journal has no links; set to 1");
            InodeMut(raw).set_links(1);
        }
        wanted
    }

    /// No links: it was deleted, or is about to be.
    fn judge_dead(&mut self, ino: Ino, raw: &mut [u8]) -> Verdict {
        let dtime = InodeRef(raw).dtime();
        if dtime < self.geo().inodes() {
            let text = "it has no links and no time of deletion; freed";
            self.found(Kind::DeletedInode, Place::Inode(ino), text);
            InodeMut(raw).set_dtime(self.options.now_secs.max(self.geo().inodes()));
        }
        Verdict::Free
    }

    /// Inode 1 lists bad blocks in its map and has nothing else.
    fn judge_bad_blocks(&mut self, raw: &mut [u8]) -> Verdict {
        let i = InodeRef(raw);
        let alien = i.mode() != 0 || i.uid() != 0 || i.gid() != 0 || i.links() != 0;
        if alien || i.xattr_block().0 != 0 || i.flags() & FLAG_EXTENTS != 0 {
            let text = "the inode of bad blocks has fields of a file; cleared";
            self.found(Kind::InodeField, Place::Inode(BAD_BLOCKS_INO), text);
            raw.fill(0);
        }
        if InodeRef(raw).dtime() != 0 {
            let text = "the inode of bad blocks has a time of deletion; cleared";
            self.found(Kind::InodeField, Place::Inode(BAD_BLOCKS_INO), text);
            InodeMut(raw).set_dtime(0);
        }
        let any = (0..POINTERS).any(|n| InodeRef(raw).pointer(n) != 0);
        if any { Verdict::Used { mapped: true } } else { Verdict::Free }
    }

    /// How long the fields behind the classic ones are says where the attributes begin, and with
    /// them contents in the inode; so it comes before anything that asks for these. Attributes that
    /// are where everybody puts them are kept.
    fn mend_extra_isize(&mut self, ino: Ino, raw: &mut [u8]) {
        if raw.len() <= CLASSIC_BYTES {
            return;
        }
        let extra = le16(raw, CLASSIC_BYTES);
        if InodeRef(raw).extra_isize().is_some() && (extra == 0 || extra >= 4) {
            return;
        }
        let text = "its extra fields do not fit; mended";
        self.found(Kind::InodeField, Place::Inode(ino), text);
        set16(raw, CLASSIC_BYTES, EXTRA_ISIZE);
        if le32(raw, CLASSIC_BYTES + usize::from(EXTRA_ISIZE)) != MAGIC {
            raw[CLASSIC_BYTES + 2..].fill(0);
        }
    }

    /// Fields that any kind of file must have right.
    fn mend_fields(&mut self, ino: Ino, raw: &mut [u8]) {
        let mut wrong: Vec<&str> = Vec::new();
        let dtime = InodeRef(raw).dtime();
        if self.crashed && (1..=self.geo().inodes()).contains(&dtime) {
            let text = format!("the chain of orphans went on to inode {dtime} from here");
            self.found(Kind::OrphanList, Place::Inode(ino), text);
            InodeMut(raw).set_dtime(0);
        } else if dtime != 0 {
            wrong.push("it is in use but has a time of deletion");
            InodeMut(raw).set_dtime(0);
        }
        let flags = InodeRef(raw).flags();
        let drop = self.flags_to_drop(ino, raw);
        if flags & drop != 0 {
            wrong.push("it has flags of features that are off");
            InodeMut(raw).set_flags(flags & !drop);
        }
        if !InodeRef(raw).is_file() && le32(raw, SIZE_HIGH) != 0 {
            wrong.push("its size has a high half");
            set32(raw, SIZE_HIGH, 0);
        }
        if le32(raw, FADDR) != 0 {
            wrong.push("it has a fragment");
            set32(raw, FADDR, 0);
        }
        let counts_high = le16(raw, BLOCKS_HIGH) != 0 && !self.geo().huge_files;
        // On a volume of more than 2^32 blocks the attributes may lie beyond those.
        let xattr_high = le16(raw, XATTR_HIGH) != 0 && !self.geo().wide;
        if counts_high || xattr_high {
            wrong.push("it has high halves of block numbers");
            if counts_high {
                set16(raw, BLOCKS_HIGH, 0);
            }
            if xattr_high {
                set16(raw, XATTR_HIGH, 0);
            }
        }
        for text in wrong {
            self.found(Kind::InodeField, Place::Inode(ino), format!("{text}; mended"));
        }
    }

    /// Devices, fifos and sockets have no size and no blocks; a device's numbers are where others
    /// have their first pointers.
    fn judge_special(&mut self, ino: Ino, raw: &mut [u8]) -> Verdict {
        self.mend_special_flags(ino, raw);
        let numbers = if matches!(kind_byte(InodeRef(raw).mode()), 3 | 4) { 2 } else { 0 };
        if (numbers.max(1)..POINTERS).any(|n| InodeRef(raw).pointer(n) != 0) {
            let text = "a device, fifo or socket with blocks; its pointers are cleared";
            self.found(Kind::InodeField, Place::Inode(ino), text);
            (numbers..POINTERS).for_each(|n| InodeMut(raw).set_pointer(n, 0));
        }
        if InodeRef(raw).size() != 0 {
            self.found(Kind::InodeField, Place::Inode(ino), "a special file with a size; set to 0");
            InodeMut(raw).set_size(0);
        }
        Verdict::Used { mapped: false }
    }

    fn mend_special_flags(&mut self, ino: Ino, raw: &mut [u8]) {
        let flags = InodeRef(raw).flags();
        if flags & (FLAG_IMMUTABLE | FLAG_APPEND) != 0 {
            let text = "a special file that is immutable or append-only; flags cleared";
            self.found(Kind::InodeField, Place::Inode(ino), text);
            InodeMut(raw).set_flags(flags & !(FLAG_IMMUTABLE | FLAG_APPEND));
        }
    }

    /// A symbolic link: a text of less than 60 bytes is in the inode, a longer one in one block.
    fn judge_symlink(&mut self, ino: Ino, raw: &mut [u8]) -> Verdict {
        self.mend_special_flags(ino, raw);
        if InodeRef(raw).is_inline() {
            let why = "a symbolic link whose text in the inode has another length";
            return match self.is_inline_symlink(raw) {
                true => Verdict::Used { mapped: false },
                false => Verdict::Clear(why.into()),
            };
        }
        let size = InodeRef(raw).size();
        let text = &raw[BLOCK_AT..BLOCK_AT + FAST_SYMLINK_MAX + 1];
        let len = text.iter().position(|b| *b == 0).unwrap_or(text.len()) as u64;
        let in_block = self.frame.is_legal(InodeRef(raw).pointer(0))
            && (1..POINTERS).all(|n| InodeRef(raw).pointer(n) == 0);
        let flags = InodeRef(raw).flags();
        let text_fits = is_fast(raw) && len == size && size > 0;
        if flags & FLAG_EXTENTS != 0 && !text_fits && extents::is_root(raw) {
            InodeMut(raw).set_size(size.max(FAST_SYMLINK_MAX as u64 + 1));
            return Verdict::Used { mapped: true };
        }
        if flags & FLAG_EXTENTS != 0 {
            let text = "a symbolic link with its text in the inode, said to have extents; mended";
            self.found(Kind::InodeField, Place::Inode(ino), text);
            InodeMut(raw).set_flags(flags & !FLAG_EXTENTS);
        }
        if text_fits {
            return Verdict::Used { mapped: false };
        }
        if in_block {
            // If the size was wrong, the text will say what it is.
            InodeMut(raw).set_size(size.max(FAST_SYMLINK_MAX as u64 + 1));
            return Verdict::Used { mapped: true };
        }
        if len == 0 || len as usize > FAST_SYMLINK_MAX {
            return Verdict::Clear("a symbolic link without a text".into());
        }
        let text = format!("a symbolic link of {size} bytes with a text of {len}; set");
        self.found(Kind::Size, Place::Inode(ino), text);
        InodeMut(raw).set_size(len);
        Verdict::Used { mapped: false }
    }

    /// A symbolic link whose text is in a block: exactly one, with as many bytes as `said` before.
    /// False: it cannot be kept.
    pub(crate) fn check_slow_symlink(
        &mut self,
        ino: Ino,
        raw: &mut [u8],
        said: u64,
    ) -> Result<bool, CheckError> {
        if !InodeRef(raw).is_symlink() || is_fast(raw) || InodeRef(raw).is_inline() {
            return Ok(true);
        }
        let blocks = self.blocks_of(ino, raw)?;
        let first = blocks.first().filter(|(at, _)| at.0 == 0);
        let bytes = match first {
            Some((_, b)) if blocks.len() == 1 => self.view.read(*b)?,
            _ => Vec::new(),
        };
        let len = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        if len <= FAST_SYMLINK_MAX || len >= self.geo().block_bytes {
            let text = "a symbolic link without a text; cleared";
            self.found_losing(Kind::BadInode, Place::Inode(ino), text);
            return Ok(false);
        }
        if len as u64 != said {
            let text = format!("a symbolic link of {said} bytes, its text has {len}; set");
            self.found(Kind::Size, Place::Inode(ino), text);
        }
        InodeMut(raw).set_size(len as u64);
        Ok(true)
    }

    /// Makes an inode a deleted one; a reserved one as if it had never been used.
    pub(crate) fn clear_slot(&self, ino: Ino, raw: &mut [u8]) {
        let generation = InodeRef(raw).generation();
        raw.fill(0);
        if ino.0 >= self.geo().first_ino {
            InodeMut(raw).set_generation(generation);
            InodeMut(raw).set_dtime(self.options.now_secs.max(self.geo().inodes()));
        }
    }
}

/// Are the first entries of a block those of a directory, for itself and its parent?
pub(crate) fn begins_as_directory(block: &[u8], ino: Ino) -> bool {
    let len = |at: usize| usize::from(le16(block, at + 4));
    let own = len(0);
    let fits = |len: usize| len >= 12 && len.is_multiple_of(4);
    let first = le32(block, 0) == ino.0 && block[6] == 1 && block[8] == b'.';
    if !first || !fits(own) || own + 12 >= block.len() {
        return false;
    }
    fits(len(own)) && block[own + 6] == 2 && block[own + 8..own + 10] == *b".."
}

/// Is it a symbolic link whose text is in the inode? The length alone decides: i_blocks is a hint.
pub(crate) fn is_fast(raw: &[u8]) -> bool {
    InodeRef(raw).is_symlink() && InodeRef(raw).size() <= FAST_SYMLINK_MAX as u64
}

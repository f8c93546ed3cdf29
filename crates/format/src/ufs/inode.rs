//! Inodes: 128 bytes, and with larger slots extra fields for nanoseconds and the creation time.
//! Views over the bytes in place: what is on disk is the one truth, and fields we do not use stay
//! as they are.

use crate::BlockNo;
use crate::bytes::{le16, le32, set16, set32};
use std::ops::Range;

/// `i_flags`: the directory has a hash index.
pub const FLAG_INDEX: u32 = 0x1000;
/// `i_flags`: mapped by extents.
pub const FLAG_EXTENTS: u32 = 0x8_0000;
/// `i_flags`: `i_blocks` counts blocks, not sectors.
pub const FLAG_HUGE: u32 = 0x4_0000;
/// `i_flags`: its contents are the value of other inodes' attributes.
pub const FLAG_VALUE: u32 = 0x20_0000;
/// `i_flags`: contents and names are encrypted.
pub const FLAG_ENCRYPT: u32 = 0x800;
/// `i_flags`: the contents lie in the inode.
pub const FLAG_INLINE: u32 = 0x1000_0000;
/// `i_flags`: immutable.
pub const FLAG_IMMUTABLE: u32 = 0x10;
/// `i_flags`: append only.
pub const FLAG_APPEND: u32 = 0x20;
/// `i_flags` that what is made in a directory has from it: erased when removed, may be undeleted,
/// compressed, synchronous, not dumped, no access times, not compressed, its contents journaled, no
/// tails, synchronous as a directory. (Linux's `EXT4_FL_INHERITED` has some more, of features that
/// are not written here.)
const FLAGS_INHERITED: u32 =
    0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x400 | 0x4000 | 0x8000 | FLAG_DIRSYNC;
const FLAG_DIRSYNC: u32 = 0x1_0000;
/// Those of them that mean something where there are no contents.
const FLAGS_WITHOUT_CONTENTS: u32 = 0x40 | 0x80;

/// The flags that a new inode of this mode has from its directory's.
pub fn inherited_flags(of_dir: u32, mode: u16) -> u32 {
    let flags = of_dir & FLAGS_INHERITED;
    match mode & S_IFMT {
        S_IFDIR => flags,
        S_IFREG => flags & !FLAG_DIRSYNC,
        _ => flags & FLAGS_WITHOUT_CONTENTS,
    }
}

/// The classic part of an inode.
pub const CLASSIC_BYTES: usize = 128;
/// `i_extra_isize` that we write: up to and with the creation time's nanoseconds.
pub const EXTRA_ISIZE: u16 = 32;
/// Longest text of a symbolic link kept in the inode, in bytes.
pub const FAST_SYMLINK_MAX: usize = 59;
/// Where the two halves of a regular file's length begin, the lower one first.
pub const SIZE_AT: [usize; 2] = [4, 0x6c];
/// Where the map begins in an inode.
pub const BLOCK_AT: usize = 40;

/// `i_version`, its lower half.
const VERSION_AT: usize = 0x24;
const S_IFMT: u16 = 0xf000;
const S_IFREG: u16 = 0x8000;
const S_IFDIR: u16 = 0x4000;
const S_IFLNK: u16 = 0xa000;

/// The most that an inode's 48 bits of `i_blocks` can count.
pub const SECTORS_MAX: u64 = (1 << 48) - 1;

/// A time: seconds since 1970 (34 bits signed with an extra field, 32 without) and nanoseconds.
pub type RawTime = (i64, u32);

/// An inode's bytes, to read.
#[derive(Clone, Copy)]
pub struct InodeRef<'a>(pub &'a [u8]);
/// An inode's bytes, to change.
pub struct InodeMut<'a>(pub &'a mut [u8]);

/// Which of an inode's times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Last read.
    Access,
    /// Last change of the contents.
    Modify,
    /// Last change of the inode.
    Change,
    /// Creation.
    Create,
}

impl Which {
    /// (offset of the seconds, offset of the extra word)
    const fn at(self) -> (usize, usize) {
        match self {
            Which::Access => (8, 0x8c),
            Which::Change => (12, 0x84),
            Which::Modify => (16, 0x88),
            Which::Create => (0x90, 0x94),
        }
    }
}

impl<'a> InodeRef<'a> {
    /// `i_mode`.
    pub fn mode(&self) -> u16 {
        le16(self.0, 0)
    }
    /// Is it a regular file?
    pub fn is_file(&self) -> bool {
        self.mode() & S_IFMT == S_IFREG
    }
    /// Is it a directory?
    pub fn is_dir(&self) -> bool {
        self.mode() & S_IFMT == S_IFDIR
    }
    /// Is it a symbolic link?
    pub fn is_symlink(&self) -> bool {
        self.mode() & S_IFMT == S_IFLNK
    }
    /// Owner.
    pub fn uid(&self) -> u32 {
        u32::from(le16(self.0, 2)) | u32::from(le16(self.0, 0x78)) << 16
    }
    /// Group.
    pub fn gid(&self) -> u32 {
        u32::from(le16(self.0, 24)) | u32::from(le16(self.0, 0x7a)) << 16
    }
    /// Length in bytes. The high half counts for regular files only; elsewhere it means other
    /// things.
    pub fn size(&self) -> u64 {
        let high = if self.is_file() { le32(self.0, 0x6c) } else { 0 };
        u64::from(le32(self.0, 4)) | u64::from(high) << 32
    }
    /// The high half of the length, whatever it means.
    pub fn size_high(&self) -> u32 {
        le32(self.0, 0x6c)
    }
    /// `i_links_count`.
    pub fn links(&self) -> u16 {
        le16(self.0, 26)
    }
    /// `i_blocks`: 512-byte units.
    pub fn sectors(&self) -> u32 {
        le32(self.0, 28)
    }
    /// All of `i_blocks`, in 512-byte units: 48 bits, of blocks where a flag says so.
    pub fn sectors_wide(&self, block_bytes: usize) -> u64 {
        let raw = u64::from(self.sectors()) | u64::from(le16(self.0, 0x74)) << 32;
        if self.flags() & FLAG_HUGE != 0 { raw * (block_bytes as u64 / 512) } else { raw }
    }
    /// Is the map an extent tree?
    pub fn has_extents(&self) -> bool {
        self.flags() & FLAG_EXTENTS != 0
    }
    /// Do the contents lie in the inode?
    pub fn is_inline(&self) -> bool {
        self.flags() & FLAG_INLINE != 0
    }
    /// `i_flags`.
    pub fn flags(&self) -> u32 {
        le32(self.0, 32)
    }
    /// `i_dtime`: deletion time, or the next orphan.
    pub fn dtime(&self) -> u32 {
        le32(self.0, 20)
    }
    /// `i_generation`.
    pub fn generation(&self) -> u32 {
        le32(self.0, 0x64)
    }
    /// `i_file_acl`: the attribute block.
    pub fn xattr_block(&self) -> BlockNo {
        BlockNo(u64::from(le32(self.0, 0x68)))
    }
    /// The attribute block where block numbers have 48 bits.
    pub fn xattr_block_wide(&self) -> BlockNo {
        BlockNo(self.xattr_block().0 | u64::from(le16(self.0, 0x76)) << 32)
    }
    /// The map's pointer `i` (0..15).
    pub fn pointer(&self, i: usize) -> u32 {
        assert!(i < crate::ufs::map::POINTERS, "F5: pointer {i} of an inode");
        le32(self.0, BLOCK_AT + 4 * i)
    }
    /// The 60 bytes of the map.
    pub fn map_bytes(&self) -> [u8; 60] {
        self.0[BLOCK_AT..BLOCK_AT + 60].try_into().expect("60 bytes")
    }
    /// Is a symbolic link's text kept in the inode? The length alone decides, as e2fsck has it:
    /// `i_blocks` is a hint, which a crash may leave wrong.
    pub fn is_fast_symlink(&self) -> bool {
        self.is_symlink() && self.size() <= FAST_SYMLINK_MAX as u64 && !self.is_inline()
    }
    /// `i_extra_isize`, 0 in a small inode; None if it cannot be (beyond the slot, or not in
    /// fours).
    pub fn extra_isize(&self) -> Option<usize> {
        if self.0.len() <= CLASSIC_BYTES {
            return Some(0);
        }
        let extra = usize::from(le16(self.0, CLASSIC_BYTES));
        (extra + CLASSIC_BYTES <= self.0.len() && extra.is_multiple_of(4)).then_some(extra)
    }
    fn has_extra(&self, end: usize) -> bool {
        CLASSIC_BYTES + self.extra_isize().unwrap_or(0) >= end
    }
    /// A time; the creation time is None where there is no room for it.
    pub fn time(&self, which: Which) -> Option<RawTime> {
        let (at, extra_at) = which.at();
        if which == Which::Create && !self.has_extra(at + 4) {
            return None;
        }
        let low = le32(self.0, at).cast_signed();
        if !self.has_extra(extra_at + 4) {
            return Some((i64::from(low), 0));
        }
        let extra = le32(self.0, extra_at);
        let sec = i64::from(low) + (i64::from(extra & 3) << 32);
        Some((sec, (extra >> 2).min(999_999_999)))
    }
    /// Major and minor number of a device.
    pub fn device(&self) -> (u32, u32) {
        let old = self.pointer(0);
        if old != 0 {
            return ((old >> 8) & 0xff, old & 0xff);
        }
        let new = self.pointer(1);
        ((new & 0xf_ff00) >> 8, (new & 0xff) | ((new >> 12) & 0xf_ff00))
    }
    /// Of an inode that holds an attribute's value: the value's hash, and how many attributes have
    /// it. They lie in the fields of times and in the version.
    pub fn value(&self) -> (u32, u64) {
        let (change, version) = (Which::Change.at().0, VERSION_AT);
        let users = u64::from(le32(self.0, change)) << 32 | u64::from(le32(self.0, version));
        (le32(self.0, Which::Access.at().0), users)
    }
    /// The bytes for attributes after the extra fields; empty in a small inode.
    pub fn xattr_space(&self) -> &'a [u8] {
        match self.extra_isize() {
            Some(extra) if extra > 0 => &self.0[CLASSIC_BYTES + extra..],
            _ => &[],
        }
    }
}

impl InodeMut<'_> {
    /// The same bytes, to read.
    pub fn as_ref(&self) -> InodeRef<'_> {
        InodeRef(self.0)
    }
    /// Sets `i_mode`.
    pub fn set_mode(&mut self, v: u16) {
        set16(self.0, 0, v);
    }
    /// Sets the owner.
    pub fn set_uid(&mut self, v: u32) {
        set16(self.0, 2, v as u16);
        set16(self.0, 0x78, (v >> 16) as u16);
    }
    /// Sets the group.
    pub fn set_gid(&mut self, v: u32) {
        set16(self.0, 24, v as u16);
        set16(self.0, 0x7a, (v >> 16) as u16);
    }
    /// Sets the length; set the mode first.
    pub fn set_size(&mut self, v: u64) {
        set32(self.0, 4, v as u32);
        if self.as_ref().is_file() {
            set32(self.0, 0x6c, (v >> 32) as u32);
        } else {
            assert!(v >> 32 == 0, "F1: no regular file, and {v} bytes long");
        }
    }
    /// Sets `i_links_count`.
    pub fn set_links(&mut self, v: u16) {
        set16(self.0, 26, v);
    }
    /// Sets the attribute block where block numbers have 48 bits.
    pub fn set_xattr_block_wide(&mut self, b: BlockNo) {
        set32(self.0, 0x68, b.0 as u32);
        set16(self.0, 0x76, u16::try_from(b.0 >> 32).expect("block numbers have 48 bits"));
    }
    /// Makes the map an extent tree that maps nothing.
    pub fn set_empty_tree(&mut self) {
        use crate::ext::extents::{Head, max_entries, set_head};
        let root = &mut self.0[BLOCK_AT..BLOCK_AT + 60];
        root.fill(0);
        set_head(root, Head { entries: 0, max: max_entries(60), depth: 0 });
    }
    /// Sets all 48 bits of `i_blocks`, in 512-byte units; of an inode that counts in these.
    pub fn set_sectors_wide(&mut self, v: u64) {
        assert!(v <= SECTORS_MAX, "F1: {v} sectors are more than an inode can count");
        set32(self.0, 28, v as u32);
        set16(self.0, 0x74, (v >> 32) as u16);
    }
    /// Sets `i_blocks`, in 512-byte units.
    pub fn set_sectors(&mut self, v: u32) {
        set32(self.0, 28, v);
    }
    /// Sets `i_flags`.
    pub fn set_flags(&mut self, v: u32) {
        set32(self.0, 32, v);
    }
    /// Sets `i_dtime`.
    pub fn set_dtime(&mut self, v: u32) {
        set32(self.0, 20, v);
    }
    /// Sets `i_generation`.
    pub fn set_generation(&mut self, v: u32) {
        set32(self.0, 0x64, v);
    }
    /// Sets `i_file_acl`.
    pub fn set_xattr_block(&mut self, b: BlockNo) {
        set32(self.0, 0x68, u32::try_from(b.0).expect("blocks of this layout have 32 bits"));
    }
    /// Sets the map's pointer `i`.
    pub fn set_pointer(&mut self, i: usize, v: u32) {
        assert!(i < crate::ufs::map::POINTERS, "F5: pointer {i} of an inode");
        set32(self.0, BLOCK_AT + 4 * i, v);
    }
    /// Gives a large slot its extra fields; nothing in a small one.
    pub fn set_extra_isize(&mut self) {
        if self.0.len() > CLASSIC_BYTES {
            set16(self.0, CLASSIC_BYTES, EXTRA_ISIZE);
            let len = self.0.len();
            assert!(
                self.as_ref().extra_isize().is_some(),
                "F1: a slot of {len} bytes is too small"
            );
        }
    }
    /// Sets the hash of the value that the inode holds, and how many attributes have it.
    pub fn set_value(&mut self, hash: u32, users: u64) {
        self.set_time(Which::Access, (i64::from(hash), 0));
        self.set_time(Which::Change, (users.cast_signed() >> 32, 0));
        set32(self.0, Which::Access.at().0, hash);
        set32(self.0, VERSION_AT, users as u32);
        let again = self.as_ref().value();
        assert_eq!(again, (hash, users), "F1: the users of a value are read as others");
    }
    /// Sets a time, as exactly as the slot can hold it: without the extra word, whole seconds until
    /// 2038.
    pub fn set_time(&mut self, which: Which, (sec, nsec): RawTime) {
        let (at, extra_at) = which.at();
        assert!(nsec < 1_000_000_000, "F1: {nsec} nanoseconds of a second");
        if which == Which::Create && !self.as_ref().has_extra(at + 4) {
            return;
        }
        if self.as_ref().has_extra(extra_at + 4) {
            let sec = sec.clamp(i64::from(i32::MIN), i64::from(i32::MAX) + (3 << 32));
            let low = sec as i32;
            let epoch = ((sec - i64::from(low)) >> 32) as u32 & 3;
            set32(self.0, at, low.cast_unsigned());
            set32(self.0, extra_at, epoch | nsec << 2);
        } else {
            let low = sec.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
            set32(self.0, at, low.cast_unsigned());
        }
    }
    /// Sets a device's numbers.
    pub fn set_device(&mut self, (major, minor): (u32, u32)) {
        if major < 256 && minor < 256 {
            self.set_pointer(0, major << 8 | minor);
            self.set_pointer(1, 0);
        } else {
            self.set_pointer(0, 0);
            self.set_pointer(1, (minor & 0xff) | major << 8 | (minor & !0xff) << 12);
        }
        let again = self.as_ref().device();
        assert_eq!(again, (major, minor), "F1: a device's numbers are read as others");
    }
    /// Puts a symbolic link's text in the map; at most [`FAST_SYMLINK_MAX`] bytes.
    pub fn set_fast_symlink(&mut self, text: &[u8]) {
        assert!(text.len() <= FAST_SYMLINK_MAX, "F1: a text of {} bytes in an inode", text.len());
        self.0[BLOCK_AT..BLOCK_AT + 60].fill(0);
        self.0[BLOCK_AT..BLOCK_AT + text.len()].copy_from_slice(text);
    }
}

/// Where the fields lie that change when an inode is freed, with the group between them.
pub const FREED: Range<usize> = 20..28;

/// What becomes of the fields in [`FREED`]: links 0 and a deletion time. The inode's kind is kept
/// for forensics.
pub fn free(fields: &mut [u8], now_secs: u32) {
    assert_eq!(fields.len(), FREED.len(), "F7: other fields than those that change");
    set32(fields, 0, now_secs.max(1));
    set16(fields, 6, 0);
}

/// Is the slot in use, as far as its own bytes say?
pub fn in_use(raw: &[u8]) -> bool {
    let i = InodeRef(raw);
    i.mode() != 0 && i.links() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        for len in [128, 256] {
            let mut raw = vec![0; len];
            let mut i = InodeMut(&mut raw);
            i.set_mode(0o100_644);
            i.set_extra_isize();
            i.set_uid(0x12345);
            i.set_gid(0x54321);
            i.set_size(5 << 32 | 7);
            i.set_device((300, 70_000));
            i.set_time(Which::Modify, (5_000_000_000, 999_999_999));
            let r = i.as_ref();
            assert_eq!((r.uid(), r.gid(), r.size()), (0x12345, 0x54321, 5 << 32 | 7));
            assert_eq!(r.device(), (300, 70_000));
            let want =
                if len == 256 { (5_000_000_000, 999_999_999) } else { (i64::from(i32::MAX), 0) };
            assert_eq!(r.time(Which::Modify), Some(want));
            assert_eq!(r.time(Which::Create).is_some(), len == 256);
        }
    }

    #[test]
    fn times_before_1970() {
        let mut raw = vec![0; 256];
        let mut i = InodeMut(&mut raw);
        i.set_extra_isize();
        for t in [(-1, 5), (-2_000_000_000, 0), (3_000_000_000, 1), (15_032_385_535, 0)] {
            i.set_time(Which::Access, t);
            assert_eq!(i.as_ref().time(Which::Access), Some(t));
        }
    }
}

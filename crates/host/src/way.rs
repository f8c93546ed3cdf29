//! Which way a disk request takes: through the host's page cache, past it (O_DIRECT), or, for a run
//! of new blocks, as a word to the host that they are zeros.
//!
//! Past the page cache go
//! * on a device, writes of whole pages: they are under way at once, where fdatasync would first
//!   have to send what the page cache has gathered;
//! * where those who ask keep contents themselves, as a mount's kernel does
//!   ([`HostFile::all_past_cache`]), every write to a file, and long reads: a second copy of a
//!   stream would cost its memory and the time to fill it, and be read by nobody;
//! * where it is allowed ([`HostFile::write_past_cache`]), writes with FUA: through the page cache
//!   they wait for others to the same page, and a part of a page is read first, which costs a log
//!   twice what the device takes.
//!
//! What the page cache holds must not get older than the disk:
//!
//! * W1. A block is never read while it is written. The cache above sees to that.
//! * W2. On a device the kernel drops pages before a write past them, not after it. So nothing may
//!   be read there that was not asked for ([`open_direct`]), and what shares a page with another
//!   block goes through the page cache. (O_EXCL keeps other users away, but not one who only
//!   reads the device: what he reads of blocks in flight may stay old until all have closed it.)
//! * W3. On a file it drops them after the write too, and fails if they are dirty then: a large
//!   folio may hold what one write put through the page cache and another past it. So either all
//!   of a file's writes go past it, or only those with FUA: a folio made by a write holds no more
//!   than that write, and a log's neighbours are not read ahead.
//!
//! * W4. A copy that is written past it is as long as its blocks, and lies as the device wants it,
//!   in memory and on the disk.
//!
//! Long writes that do go through a file's page cache are started early (`worker`).

use crate::HostFile;
use crate::claim::opened_again;
use crate::file::file_system;
use env::{Block, Durability, IoOp, SECTOR_BYTES};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// The alignment of memory for single sectors.
pub(crate) const ALIGN_BYTES: usize = 4096;
/// A long transfer.
const LONG_BYTES: usize = 256 << 10;
/// A run of zeros that is told rather than written.
const TOLD_BYTES: usize = 64 << 10;

/// One request's way.
#[derive(Debug)]
pub(crate) enum Way {
    /// From and to the blocks' own memory, through this descriptor.
    Plain(RawFd),
    /// The same with a copy in aligned memory, from an offset on.
    Copied(RawFd, Vec<u8>, usize),
    /// The host is told that the range is zeros.
    Told(RawFd),
}

impl HostFile {
    /// From now on writes with FUA go past the page cache, if the device can do that for single
    /// sectors. Only for disks whose writers never have a write with FUA and another one in flight
    /// in the same 4096 bytes: the kernel would take that for a failure.
    pub fn write_past_cache(&self) {
        if page_bytes() == 4096 && self.direct.as_ref().is_some_and(takes_sectors) {
            let _ = self.fua_past_cache.set(()); // once is enough
        }
    }

    /// From now on all writes and long reads go past the page cache, if the device can do that for
    /// single sectors: for a disk whose contents are kept by those who ask for them. To be called
    /// before the workers start.
    pub fn all_past_cache(&self) {
        // Btrfs takes such requests, and copies them through its page cache one by one.
        let emulated = file_system(&self.file) == Some(libc::BTRFS_SUPER_MAGIC);
        if !emulated && self.direct.as_ref().is_some_and(takes_sectors) {
            let _ = self.all_past_cache.set(());
        }
    }

    /// The way of a request.
    pub(crate) fn way(&self, op: &IoOp, at: u64, blocks: &[Block]) -> Way {
        let len: usize = blocks.iter().map(Block::len).sum();
        if self.tells(op, at, blocks) {
            return Way::Told(self.fd());
        }
        let Some(direct) = self.past_cache(op, at, len) else { return Way::Plain(self.fd()) };
        let shares = self.is_device && !(at | len as u64).is_multiple_of(page_bytes());
        let cached = *op == IoOp::Write(Durability::Cached);
        assert!(!(shares && cached), "W2: {len} bytes at {at} share a page with others");
        match op {
            IoOp::Write(Durability::Fua) => {
                let whole = (at | len as u64).is_multiple_of(SECTOR_BYTES as u64);
                assert!(whole, "W4: {len} bytes at {at} are no whole sectors");
                let (bytes, start) = aligned(blocks, len);
                Way::Copied(direct.as_raw_fd(), bytes, start)
            }
            _ => Way::Plain(direct.as_raw_fd()),
        }
    }

    /// The file past the page cache, if a request of so many bytes goes there.
    pub(crate) fn past_cache(&self, op: &IoOp, at: u64, len: usize) -> Option<&File> {
        let all = self.all_past_cache.get().is_some();
        let whole = (at | len as u64).is_multiple_of(page_bytes());
        let past = match op {
            IoOp::Read => all && len >= LONG_BYTES && (whole || !self.is_device),
            // The page cache may hold what another machine has written over meanwhile.
            IoOp::ReadFresh => whole,
            IoOp::Write(Durability::Fua) if self.fua_past_cache.get().is_some() => true,
            IoOp::Write(_) if !self.is_device => all,
            IoOp::Write(how) => *how == Durability::Cached && whole,
            IoOp::Flush | IoOp::Discard { .. } | IoOp::Lend | IoOp::Object => false,
        };
        self.direct.as_ref().filter(|_| past)
    }

    /// New blocks share the memory of one: a file of them (fallocate) need not be sent as zeros.
    /// On a device whole pages only (W2).
    fn tells(&self, op: &IoOp, at: u64, blocks: &[Block]) -> bool {
        let len: usize = blocks.iter().map(Block::len).sum();
        let may = *op == IoOp::Write(Durability::Cached)
            && !self.in_memory
            && !self.refuses_zeros.load(Ordering::Relaxed)
            && (!self.is_device || (at | len as u64).is_multiple_of(page_bytes()));
        may && len >= TOLD_BYTES
            && blocks.iter().all(|b| b.is_same(&blocks[0]))
            && blocks[0].bytes().iter().all(|&b| b == 0)
    }

    /// The host cannot be told of zeros: from now on they are written.
    pub(crate) fn refused_zeros(&self) {
        self.refuses_zeros.store(true, Ordering::Relaxed);
    }

    /// Is it worth while to start the write-back of a write that went this way now, before a flush
    /// asks for it?
    pub(crate) fn starts_early(&self, way: &Way, len: usize) -> bool {
        let through = matches!(way, Way::Plain(fd) if *fd == self.fd());
        through && !self.is_device && !self.in_memory && len >= LONG_BYTES
    }
}

/// The page cache counts in these.
pub(crate) fn page_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    // SAFETY: sysconf takes a number and gives one.
    #[expect(unsafe_code, reason = "std does not tell the size of a page")]
    *BYTES.get_or_init(|| u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1))
}

fn aligned(blocks: &[Block], len: usize) -> (Vec<u8>, usize) {
    let mut bytes: Vec<u8> = Vec::with_capacity(len + ALIGN_BYTES);
    let start = bytes.as_ptr().align_offset(ALIGN_BYTES);
    bytes.resize(start, 0);
    blocks.iter().for_each(|b| bytes.extend_from_slice(b.bytes()));
    let (at, copied) = (bytes[start..].as_ptr().addr(), bytes.len() - start);
    assert_eq!((at % ALIGN_BYTES, copied), (0, len), "W4: a copy of {len} bytes");
    (bytes, start)
}

/// Can single sectors be had past the page cache?
fn takes_sectors(direct: &File) -> bool {
    let mut probe = vec![0; ALIGN_BYTES + SECTOR_BYTES];
    let start = probe.as_ptr().align_offset(ALIGN_BYTES);
    direct.read_exact_at(&mut probe[start..start + SECTOR_BYTES], SECTOR_BYTES as u64).is_ok()
}

/// The file once more, past the page cache, if a page can be read into memory that is aligned as
/// blocks are. From then on the kernel reads no page of a device that was not asked for (W2); the
/// cache above reads ahead by itself.
pub(crate) fn open_direct(file: &File, read_only: bool) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only).custom_flags(libc::O_DIRECT);
    let again = opened_again(file, &mut options).ok()?;
    let mut probe = vec![0; 3 * ALIGN_BYTES];
    let start = probe.as_ptr().align_offset(ALIGN_BYTES) + SECTOR_BYTES;
    again.read_exact_at(&mut probe[start..start + ALIGN_BYTES], 0).ok()?;
    if !read_only && file.metadata().ok()?.file_type().is_block_device() {
        expect_no_order(file).ok()?;
    }
    Some(again)
}

/// The kernel reads nothing of a device that is not asked for through this open file (W2).
pub(crate) fn expect_no_order(file: &File) -> std::io::Result<()> {
    // SAFETY: takes numbers only; the descriptor is ours.
    #[expect(unsafe_code, reason = "std has no posix_fadvise")]
    let rc = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    if rc == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(rc)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::beside_the_build;

    fn past(f: &HostFile, op: IoOp, blocks: &[Block]) -> bool {
        matches!(f.way(&op, 0, blocks), Way::Plain(fd) | Way::Copied(fd, ..) if fd != f.fd())
    }

    /// Where the disk of the tests takes single sectors past the page cache; else there is one way.
    #[test]
    fn each_request_takes_its_way() {
        let path = beside_the_build("way");
        let f = HostFile::create(&path, 1 << 20).expect("the build's folder may be written");
        std::fs::remove_file(&path).expect("it was made");
        let can = f.direct.as_ref().is_some_and(takes_sectors);
        let one = [Block::copy_of(&[1; ALIGN_BYTES])];
        let long: Vec<Block> = (0..64).map(|n| Block::copy_of(&[n; ALIGN_BYTES])).collect();
        let zeros = vec![Block::zeroed(ALIGN_BYTES); 64];
        let (cached, fua) = (IoOp::Write(Durability::Cached), IoOp::Write(Durability::Fua));
        for op in [IoOp::Read, cached, fua] {
            assert!(!past(&f, op, &one) && !past(&f, op, &long));
        }
        assert_eq!(past(&f, IoOp::ReadFresh, &one), f.direct.is_some());
        f.write_past_cache();
        assert!(!past(&f, cached, &long));
        assert_eq!(past(&f, fua, &one), can);
        f.all_past_cache();
        assert!(!past(&f, IoOp::Read, &one));
        assert_eq!(past(&f, IoOp::Read, &long), can);
        assert_eq!(past(&f, cached, &one), can);
        assert_eq!(past(&f, fua, &one), can);
        let told = f.way(&cached, 0, &zeros);
        assert_eq!(matches!(told, Way::Told(_)), !f.in_memory);
        f.refused_zeros();
        assert_eq!(past(&f, cached, &zeros), can);
    }
}

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
//!   block goes through the page cache.
//! * W3. On a file it drops them after the write too, and fails if they are dirty then: a large
//!   folio may hold what one write put through the page cache and another past it. So either all of
//!   a file's writes go past it, or only those with FUA, which share no page with others.
//!
//! Long writes that do go through a file's page cache are started early (`worker`).

use crate::HostFile;
use env::{Block, Durability, IoOp, SECTOR_BYTES};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::sync::atomic::Ordering;

/// Pages, in which the page cache counts, and the alignment of the memory of single sectors.
const PAGE_BYTES: usize = 4096;
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
        if self.direct.as_ref().is_some_and(takes_sectors) {
            let _ = self.fua_past_cache.set(()); // once is enough
        }
    }

    /// From now on all writes and long reads go past the page cache, if the device can do that for
    /// single sectors: for a disk whose contents are kept by those who ask for them.
    pub fn all_past_cache(&self) {
        if self.direct.as_ref().is_some_and(takes_sectors) {
            let _ = self.all_past_cache.set(());
        }
    }

    /// The way of a request.
    pub(crate) fn way(&self, op: &IoOp, at: u64, blocks: &[Block]) -> Way {
        let through = self.fd();
        let direct = self.direct.as_ref().filter(|_| !self.refuses_past.load(Ordering::Relaxed));
        let past = direct.map_or(through, File::as_raw_fd);
        let len: usize = blocks.iter().map(Block::len).sum();
        let whole = (at | len as u64).is_multiple_of(PAGE_BYTES as u64);
        let all = self.all_past_cache.get().is_some();
        match op {
            IoOp::Read if all && len >= LONG_BYTES && (whole || !self.is_device) => {
                Way::Plain(past)
            }
            IoOp::Write(Durability::Fua) if self.fua_past_cache.get().is_some() => {
                let (bytes, start) = aligned(blocks, len);
                Way::Copied(past, bytes, start)
            }
            IoOp::Write(Durability::Cached) if len >= TOLD_BYTES && self.tells(blocks) => {
                Way::Told(through)
            }
            IoOp::Write(_) if all && !self.is_device => Way::Plain(past),
            IoOp::Write(Durability::Cached) if self.is_device && whole => Way::Plain(past),
            _ => Way::Plain(through),
        }
    }

    /// New blocks share the memory of one: a file of them (fallocate) need not be sent as zeros.
    fn tells(&self, blocks: &[Block]) -> bool {
        !self.in_memory
            && !self.refuses_zeros.load(Ordering::Relaxed)
            && blocks.iter().all(|b| b.is_same(&blocks[0]))
            && blocks[0].bytes().iter().all(|&b| b == 0)
    }

    /// A request could not be had this way: the next ones take another.
    pub(crate) fn refused(&self, way: &Way) {
        match way {
            Way::Told(_) => self.refuses_zeros.store(true, Ordering::Relaxed),
            Way::Plain(fd) | Way::Copied(fd, ..) if *fd != self.fd() => {
                self.refuses_past.store(true, Ordering::Relaxed);
            }
            _ => (),
        }
    }

    /// Is it worth while to start the write-back of a write that went this way now, before a flush
    /// asks for it?
    pub(crate) fn starts_early(&self, way: &Way, len: usize) -> bool {
        let through = matches!(way, Way::Plain(fd) if *fd == self.fd());
        through && !self.is_device && !self.in_memory && len >= LONG_BYTES
    }
}

fn aligned(blocks: &[Block], len: usize) -> (Vec<u8>, usize) {
    let mut bytes: Vec<u8> = Vec::with_capacity(len + PAGE_BYTES);
    let start = bytes.as_ptr().align_offset(PAGE_BYTES);
    bytes.resize(start, 0);
    blocks.iter().for_each(|b| bytes.extend_from_slice(b.bytes()));
    (bytes, start)
}

/// Can single sectors be had past the page cache?
fn takes_sectors(direct: &File) -> bool {
    let mut probe = vec![0; PAGE_BYTES + SECTOR_BYTES];
    let start = probe.as_ptr().align_offset(PAGE_BYTES);
    direct.read_exact_at(&mut probe[start..start + SECTOR_BYTES], SECTOR_BYTES as u64).is_ok()
}

/// The file once more, past the page cache, if a page can be read into memory that is aligned as
/// blocks are. From then on the kernel reads no page of a device that was not asked for (W2); the
/// cache above reads ahead by itself.
pub(crate) fn open_direct(file: &File, read_only: bool) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only).custom_flags(libc::O_DIRECT);
    let again = options.open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let mut probe = vec![0; 3 * PAGE_BYTES];
    let start = probe.as_ptr().align_offset(PAGE_BYTES) + SECTOR_BYTES;
    again.read_exact_at(&mut probe[start..start + PAGE_BYTES], 0).ok()?;
    if !read_only && file.metadata().ok()?.file_type().is_block_device() {
        // SAFETY: takes numbers only; the descriptor is ours.
        #[expect(unsafe_code, reason = "std has no posix_fadvise")]
        let rc = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
        if rc != 0 {
            return None;
        }
    }
    Some(again)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn past(f: &HostFile, op: IoOp, blocks: &[Block]) -> bool {
        matches!(f.way(&op, 0, blocks), Way::Plain(fd) | Way::Copied(fd, ..) if fd != f.fd())
    }

    /// Where the disk of the tests takes single sectors past the page cache; else there is one way.
    #[test]
    fn each_request_takes_its_way() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        let path = dir.join(format!("way-{}", std::process::id()));
        let f = HostFile::create(&path, 1 << 20).expect("the folder of the build is there");
        std::fs::remove_file(&path).expect("it was made");
        let can = f.direct.as_ref().is_some_and(takes_sectors);
        let one = [Block::copy_of(&[1; PAGE_BYTES])];
        let long: Vec<Block> = (0..64).map(|n| Block::copy_of(&[n; PAGE_BYTES])).collect();
        let zeros = vec![Block::zeroed(PAGE_BYTES); 64];
        let (cached, fua) = (IoOp::Write(Durability::Cached), IoOp::Write(Durability::Fua));
        for op in [IoOp::Read, cached, fua] {
            assert!(!past(&f, op, &one) && !past(&f, op, &long));
        }
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
        f.refused(&told);
        assert_eq!(past(&f, cached, &zeros), can);
        f.refused(&f.way(&cached, 0, &one));
        assert!(!past(&f, cached, &zeros) && !past(&f, IoOp::Read, &long));
    }
}

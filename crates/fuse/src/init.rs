//! The first exchange: what the kernel offers, and what of it we take.

use crate::cache_policy::CachePolicy;
use crate::slot::PAGE;
use crate::wire::{Writer, u32_at};

/// The longest read or write, in bytes.
pub(crate) const PAYLOAD: usize = 1 << 20;
/// Told in pages, a number of 16 bits.
const _: () = assert!(PAYLOAD.is_multiple_of(4096) && PAYLOAD / 4096 <= u16::MAX as usize);

mod flag {
    pub(super) const ASYNC_READ: u32 = 1;
    pub(super) const EXPORT_SUPPORT: u32 = 1 << 4;
    pub(super) const BIG_WRITES: u32 = 1 << 5;
    pub(super) const DONT_MASK: u32 = 1 << 6;
    pub(super) const AUTO_INVAL_DATA: u32 = 1 << 12;
    pub(super) const DO_READDIRPLUS: u32 = 1 << 13;
    pub(super) const READDIRPLUS_AUTO: u32 = 1 << 14;
    pub(super) const WRITEBACK_CACHE: u32 = 1 << 16;
    pub(super) const NO_OPEN_SUPPORT: u32 = 1 << 17;
    pub(super) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(super) const POSIX_ACL: u32 = 1 << 20;
    pub(super) const MAX_PAGES: u32 = 1 << 22;
    pub(super) const CACHE_SYMLINKS: u32 = 1 << 23;
    pub(super) const NO_OPENDIR_SUPPORT: u32 = 1 << 24;
    pub(super) const HANDLE_KILLPRIV_V2: u32 = 1 << 28;
    pub(super) const SETXATTR_EXT: u32 = 1 << 29;
    pub(super) const INIT_EXT: u32 = 1 << 30;
}
/// Bytes of the kernel's `fuse_init_out`.
const INIT_OUT: usize = 64;
/// In `flags2`: FUSE over io_uring is on offer.
const OVER_IO_URING: u32 = 1 << 9;

/// What the kernel says in INIT.
pub(crate) struct Offer {
    minor: u32,
    flags: u32,
    flags2: u32,
    readahead: u32,
}

/// What was agreed on: all that is on offer is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    /// SETXATTR comes in its longer form.
    pub(crate) setxattr_ext: bool,
    /// To OPENDIR "not implemented" means that it is not needed (since Linux 5.1). Before, whoever
    /// opened the directory was told so; of OPEN all kernels understand it that are new enough for
    /// the rest.
    pub(crate) no_opendir: bool,
}

impl Offer {
    pub(crate) fn decode(b: &[u8]) -> Offer {
        let flags = u32_at(b, 12);
        let flags2 = if flags & flag::INIT_EXT != 0 { u32_at(b, 16) } else { 0 };
        Offer { minor: u32_at(b, 4), flags, flags2, readahead: u32_at(b, 8) }
    }

    pub(crate) fn has_uring(&self) -> bool {
        self.flags2 & OVER_IO_URING != 0
    }

    /// What of it changes the requests that come, and the answers that are understood.
    pub(crate) fn dialect(&self) -> Dialect {
        Dialect {
            setxattr_ext: self.flags & flag::SETXATTR_EXT != 0,
            no_opendir: self.flags & flag::NO_OPENDIR_SUPPORT != 0,
        }
    }

    /// Our answer. `uring`: take that offer. Where others change the volume too, pages are dropped
    /// when a file's time or size is another than the kernel knew.
    ///
    /// Not taken is ASYNC_DIO: the kernel drops pages before an asynchronous direct write, but not
    /// after it, so that pages which were read meanwhile would stay, and be old.
    pub(crate) fn accept(&self, (uring, policy): (bool, CachePolicy), out: &mut [u8]) -> usize {
        let alone = !policy.is_shared();
        assert!(alone || !policy.writeback, "F7: writes are held back from others");
        assert!(alone || !policy.returned_is_durable, "F7: others' changes count as durable");
        let shared = if alone { 0 } else { flag::AUTO_INVAL_DATA };
        let writeback = if policy.writeback { flag::WRITEBACK_CACHE } else { 0 };
        let want = shared | writeback;
        let want = want
            | flag::ASYNC_READ
            | flag::EXPORT_SUPPORT
            | flag::BIG_WRITES
            | flag::DONT_MASK
            | flag::DO_READDIRPLUS
            | flag::READDIRPLUS_AUTO
            | flag::NO_OPEN_SUPPORT
            | flag::PARALLEL_DIROPS
            | flag::POSIX_ACL
            | flag::MAX_PAGES
            | flag::CACHE_SYMLINKS
            | flag::NO_OPENDIR_SUPPORT
            | flag::HANDLE_KILLPRIV_V2
            | flag::SETXATTR_EXT
            | flag::INIT_EXT;
        let mut w = Writer::new(out);
        w.u32(7);
        w.u32(self.minor.min(40));
        w.u32(self.readahead.max(PAYLOAD as u32));
        w.u32(self.flags & want);
        w.u16(64); // max_background
        w.u16(48); // congestion_threshold
        w.u32(PAYLOAD as u32); // max_write
        w.u32(if policy.whole_seconds { 1_000_000_000 } else { 1 }); // time_gran
        w.u16((PAYLOAD / PAGE) as u16); // max_pages
        w.u16(0);
        w.u32(if uring { OVER_IO_URING } else { 0 });
        assert!(w.len <= INIT_OUT, "F3: the answer to INIT has {} bytes", w.len);
        w.zeros(INIT_OUT - w.len);
        w.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: CachePolicy = CachePolicy {
        secs: 3600,
        returned_is_durable: false,
        writeback: false,
        whole_seconds: false,
    };

    #[test]
    fn pages_are_dropped_with_a_files_time_only_where_others_change_it() {
        let offer = Offer { minor: 45, flags: !0, flags2: !0, readahead: 0 };
        for shared in [false, true] {
            let mut out = [0; 64];
            let policy = if shared { CachePolicy { secs: 1, ..ALONE } } else { ALONE };
            assert_eq!(offer.accept((false, policy), &mut out), 64);
            assert_eq!(u32_at(&out, 12) & flag::AUTO_INVAL_DATA != 0, shared);
            assert_eq!(u32_at(&out, 12) & flag::WRITEBACK_CACHE, 0);
        }
        let mut out = [0; 64];
        offer.accept((false, CachePolicy { writeback: true, ..ALONE }), &mut out);
        assert_eq!(u32_at(&out, 12) & flag::WRITEBACK_CACHE, flag::WRITEBACK_CACHE);
        // Nothing is taken that is not on offer.
        let mut out = [0; 64];
        Offer { flags: 0, ..offer }
            .accept((false, CachePolicy { writeback: true, ..ALONE }), &mut out);
        assert_eq!(u32_at(&out, 12), 0);
    }
}

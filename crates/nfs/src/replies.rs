//! The pieces that replies are made of: attributes, attributes around a change, the table of
//! errors.

use crate::xdr::Writer;
use vfs::{Attr, FsError, Kind, Time, Wcc};

/// The one table from our errors to nfsstat3.
pub(crate) const fn status(e: FsError) -> u32 {
    match e {
        FsError::Perm => 1,
        FsError::NotFound => 2,
        FsError::Io | FsError::Corrupt => 5,
        FsError::NoSuchOffset => 6,
        FsError::Access => 13,
        FsError::Exists => 17,
        FsError::NotDir => 20,
        FsError::IsDir => 21,
        FsError::Invalid | FsError::NoData | FsError::Range | FsError::TooBig => 22,
        FsError::FileTooBig => 27,
        FsError::NoSpace => 28,
        FsError::ReadOnly => 30,
        FsError::TooManyLinks => 31,
        FsError::NameTooLong => 63,
        FsError::NotEmpty => 66,
        FsError::Stale => 70,
        FsError::NotSync => 10_002,
        FsError::BadCookie => 10_003,
        FsError::NotSupported => 10_004,
        FsError::Busy => 10_008,
    }
}

fn time(w: &mut Writer, t: Time) {
    w.u32(t.sec as u32);
    w.u32(t.nsec);
}

/// `fattr3`.
pub(crate) fn fattr(w: &mut Writer, a: &Attr, fsid: u64) {
    let before = w.0.len();
    w.u32(match a.kind() {
        Kind::File => 1,
        Kind::Dir => 2,
        Kind::Block => 3,
        Kind::Char => 4,
        Kind::Symlink => 5,
        Kind::Socket => 6,
        Kind::Fifo => 7,
    });
    w.u32(a.mode & 0o7777);
    w.u32(a.nlink);
    w.u32(a.uid);
    w.u32(a.gid);
    w.u64(a.size);
    w.u64(a.blocks * 512);
    w.u32(a.rdev.0);
    w.u32(a.rdev.1);
    w.u64(fsid);
    w.u64(u64::from(a.ino));
    time(w, a.atime);
    time(w, a.mtime);
    time(w, a.ctime);
    let len = w.0.len() - before;
    assert_eq!(len, FATTR_BYTES, "A4: attributes of {len} bytes");
}

/// How long `fattr3` is.
const FATTR_BYTES: usize = 84;

/// `post_op_attr`.
pub(crate) fn post(w: &mut Writer, a: Option<&Attr>, fsid: u64) {
    w.bool(a.is_some());
    if let Some(a) = a {
        fattr(w, a, fsid);
    }
}

/// `wcc_data`.
pub(crate) fn wcc(w: &mut Writer, around: &Wcc, fsid: u64) {
    w.bool(around.before.is_some());
    if let Some(b) = &around.before {
        w.u64(b.size);
        time(w, b.mtime);
        time(w, b.ctime);
    }
    post(w, around.after.as_ref(), fsid);
}

//! What a user can be told, and the one table to errno. The front ends translate from here; nfs has
//! the one table to nfsstat3. What happened below (which block, which device) is logged where it is
//! found.

use std::fmt;

/// Why a request was refused or failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
pub enum FsError {
    /// No such name.
    NotFound,
    /// The name is taken.
    Exists,
    /// A directory was needed.
    NotDir,
    /// A directory cannot be used here.
    IsDir,
    /// The directory is not empty.
    NotEmpty,
    /// Permission denied by mode bits or an access list.
    Access,
    /// Not the owner, or not root.
    Perm,
    /// No free blocks or inodes.
    NoSpace,
    /// A name longer than 255 bytes.
    NameTooLong,
    /// The inode has as many links as the format can count.
    TooManyLinks,
    /// Beyond the largest file of this layout.
    FileTooBig,
    /// Arguments that make no sense.
    Invalid,
    /// The volume is read-only.
    ReadOnly,
    /// The device failed.
    Io,
    /// The volume's own data are damaged.
    Corrupt,
    /// The inode is gone, or has become another one.
    Stale,
    /// Not in this mode, layout or version.
    NotSupported,
    /// No such extended attribute.
    NoData,
    /// The buffer is too small for the attribute.
    Range,
    /// The attribute is too large.
    TooBig,
    /// A directory cookie that was never given.
    BadCookie,
    /// The guard's time does not match (NFS SETATTR).
    NotSync,
    /// Beyond the end of data (SEEK_DATA).
    NoSuchOffset,
    /// It cannot be done while it is in use.
    Busy,
}

impl FsError {
    /// The Linux errno, as a positive number.
    pub const fn errno(self) -> i32 {
        match self {
            FsError::NotFound => 2,
            FsError::Io => 5,
            FsError::NoSuchOffset => 6,
            FsError::TooBig => 7,
            FsError::Access => 13,
            FsError::Busy => 16,
            FsError::Exists => 17,
            FsError::NotDir => 20,
            FsError::IsDir => 21,
            FsError::Invalid | FsError::BadCookie | FsError::NotSync => 22,
            FsError::FileTooBig => 27,
            FsError::NoSpace => 28,
            FsError::ReadOnly => 30,
            FsError::TooManyLinks => 31,
            FsError::Range => 34,
            FsError::NameTooLong => 36,
            FsError::NotEmpty => 39,
            FsError::NoData => 61,
            FsError::NotSupported => 95,
            FsError::Perm => 1,
            FsError::Stale => 116,
            FsError::Corrupt => 117,
        }
    }

    /// What it means, in words for a person.
    pub const fn text(self) -> &'static str {
        match self {
            FsError::NotFound => "no such file or directory",
            FsError::Exists => "the name exists already",
            FsError::NotDir => "not a directory",
            FsError::IsDir => "is a directory",
            FsError::NotEmpty => "the directory is not empty",
            FsError::Access => "permission denied",
            FsError::Perm => "operation not permitted",
            FsError::NoSpace => "no space left on the volume",
            FsError::NameTooLong => "the name is longer than 255 bytes",
            FsError::TooManyLinks => "too many links",
            FsError::FileTooBig => "beyond the largest file this layout can hold",
            FsError::Invalid => "invalid argument",
            FsError::ReadOnly => "the volume is read-only",
            FsError::Io => "input/output error",
            FsError::Corrupt => "the volume is damaged there; run cairn fsck",
            FsError::Stale => "the file is gone",
            FsError::NotSupported => "not supported here",
            FsError::NoData => "no such attribute",
            FsError::Range => "the result does not fit",
            FsError::TooBig => "the attribute is too large",
            FsError::BadCookie => "not a position in this directory",
            FsError::NotSync => "the file was changed meanwhile",
            FsError::NoSuchOffset => "no data beyond this offset",
            FsError::Busy => "in use",
        }
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
impl std::error::Error for FsError {}

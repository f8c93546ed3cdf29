//! What every request talks about: attributes, kinds of file, times. Numbers are those of Linux's
//! stat.

/// A file's time: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub sec: i64,
    /// Nanoseconds, below 10^9.
    pub nsec: u32,
}

impl Time {
    /// From a wall clock.
    pub fn from_wall(wall: env::Nanos) -> Time {
        Time { sec: i64::try_from(wall.secs()).unwrap_or(i64::MAX), nsec: wall.subsec() }
    }
}

/// What kind of file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A block device.
    Block,
    /// A character device.
    Char,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// The bits of `st_mode` that say the kind.
pub const S_IFMT: u32 = 0o170_000;

impl Kind {
    /// From `st_mode`; None for a kind that does not exist.
    pub const fn from_mode(mode: u32) -> Option<Kind> {
        Some(match mode & S_IFMT {
            0o100_000 => Kind::File,
            0o040_000 => Kind::Dir,
            0o120_000 => Kind::Symlink,
            0o060_000 => Kind::Block,
            0o020_000 => Kind::Char,
            0o010_000 => Kind::Fifo,
            0o140_000 => Kind::Socket,
            _ => return None,
        })
    }
    /// The bits of `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Kind::File => 0o100_000,
            Kind::Dir => 0o040_000,
            Kind::Symlink => 0o120_000,
            Kind::Block => 0o060_000,
            Kind::Char => 0o020_000,
            Kind::Fifo => 0o010_000,
            Kind::Socket => 0o140_000,
        }
    }
}

/// What stat tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// The inode number.
    pub ino: u32,
    /// Tells one use of the inode number from the next.
    pub generation: u32,
    /// Kind and permission bits, as `st_mode`.
    pub mode: u32,
    /// How many names.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation, if the layout keeps it.
    pub crtime: Option<Time>,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    /// The volume's block size, in bytes.
    pub blksize: u32,
}

impl Attr {
    /// The kind. The layout has checked that it exists.
    pub fn kind(&self) -> Kind {
        Kind::from_mode(self.mode).expect("an inode of an unknown kind is not handed out")
    }
}

//! Numbers with a meaning. Index, count and size never share a type; the only arithmetic allowed is
//! what is defined here, so that a file block can never be handed to a disk.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A block of the disk, counted from 0 in units of the volume's block size.
    BlockNo(u64)
);
id!(
    /// A block of a file, counted from 0 in units of the volume's block size.
    FileBlock(u64)
);
id!(
    /// An inode number; the first is 1, the root directory is 2.
    Ino(u32)
);
id!(
    /// A block group, counted from 0.
    GroupNo(u32)
);

/// The root directory.
pub const ROOT_INO: Ino = Ino(2);
/// The journal's inode.
pub const JOURNAL_INO: Ino = Ino(8);

impl BlockNo {
    /// The block `n` after this one.
    pub fn plus(self, n: u64) -> BlockNo {
        BlockNo(self.0 + n)
    }
}
impl FileBlock {
    /// The block `n` after this one.
    pub fn plus(self, n: u64) -> FileBlock {
        FileBlock(self.0 + n)
    }
}

/// `len` blocks of the disk, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Extent {
    /// The first block.
    pub start: BlockNo,
    /// How many blocks.
    pub len: u64,
}

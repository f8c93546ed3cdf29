//! Directories: linear on disk, with an index in memory. Every change of a directory's block is
//! made here, in one 512-byte sector, so that a torn write cannot break it; also in blocks of the
//! kernel's making, whose entries cross sectors. No entry ever moves, so a listing can go on while
//! the directory changes, and taking a name away needs no space.

mod change;
mod index;
mod scan;

pub(crate) use index::DirIndex;

use format::Ino;

/// A name that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Byte of the entry, from the directory's start.
    pub(crate) at: u64,
    pub(crate) ino: Ino,
}

//! fsck: finds what is wrong with a volume and plans its repair. It reads through [`ReadBlocks`],
//! mends in memory, and hands back a [`Report`] with everything it found and a [`Plan`] of the
//! blocks to write; it writes nothing itself and does not know who serves the volume, or how.
//!
//! The passes are those of any ext2 checker: superblock and descriptors, inodes and their maps,
//! directories, connectivity, link counts, bitmaps and counts. Each sees what those before it have
//! mended, so the plan is whole; with [`Options::verify`] the mended volume is checked again until
//! nothing is left to find.
//!
//! Invariants  K1 a plan writes each block once, as a whole, between a mark that the volume is not
//!             clean and a superblock that is one.
//!             K2 what a copy is made of is read before it is written over, and nothing is made a
//!             copy of a copy.
//!             K3 what is claimed is a block of the volume, and what is given back was counted.
//!             K4 the directories are in the order of their inodes, each once, and the place that
//!             is remembered of a name holds that name.
//!             K5 what was mended of a directory's block is whole: a chain, dots, a name.
//!             K6 a tree that is made anew maps what it was given, in order, and nothing else.
//!             K7 what a hand has learned is of the groups, or directories, that it was given.
//!             K8 what is sealed has a right checksum, and can be read again.
//!             K9 what is known of a tree of extents is in order and apart, all of it where a
//!             file's blocks can be.
//!             K10 a report counts what it lists, and bitmaps agree with the counts beside them.
//!             K11 where nothing is found nothing is mended.

mod alloc;
mod backups;
mod contents;
mod copies;
mod descs;
mod dirblock;
mod dups;
mod extents;
mod finding;
mod freeing;
mod grow;
mod index;
mod inline;
mod inode;
mod io;
mod journal;
mod layout;
pub mod live;
mod locate;
mod lost_found;
mod orphan;
mod owners;
mod pass1;
mod pass2;
mod pass3;
mod pass4;
mod pass5;
mod places;
mod plan;
mod resize;
mod root;
mod run;
mod seal;
mod superblock;
mod tables;
mod together;
mod tree;
mod values;
mod view;
mod walk;
mod xattr;

pub use contents::{Contents, Unreadable, read_contents};
pub use finding::{Class, Finding, Kind, Place};
pub use io::{Hands, IoError, Progress, ReadBlocks, WriteBlocks};
pub use journal::journal_inode_of;
pub use locate::{Located, locate};
pub use plan::{Plan, Report};
pub use run::{check, check_left, check_together, check_whole};

use format::FormatError;
use std::fmt;

/// What the caller wants.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seconds since 1970, for deletion times and the time of the check.
    pub now_secs: u32,
    /// Check the mended volume again until nothing more is found: for plans that will be applied.
    pub verify: bool,
    /// Mark the volume as cleanly closed in the plan.
    pub mark_clean: bool,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckError {
    /// The device failed.
    Io(IoError),
    /// No superblock, or features this version does not have.
    Format(FormatError),
    /// The journal holds transactions that must be replayed first.
    NeedsRecovery,
    /// The device is smaller than the volume says.
    CutShort {
        /// Bytes of the device.
        have: u64,
        /// Bytes of the volume.
        need: u64,
    },
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckError::Io(e) => write!(f, "{e}"),
            CheckError::Format(e) => write!(f, "{e}"),
            CheckError::NeedsRecovery => {
                write!(
                    f,
                    "the journal holds something: replay it first, with `cairn recover`, or with \
                     `cairn fsck --repair`, which restores a damaged journal's inode for that; \
                     `--discard-log` gives up what it holds"
                )
            }
            CheckError::CutShort { have, need } => {
                write!(
                    f,
                    "the device has {have} bytes, the volume needs {need}: it is cut short, fetch \
                     the whole of it again"
                )
            }
        }
    }
}
impl std::error::Error for CheckError {}

impl From<IoError> for CheckError {
    fn from(e: IoError) -> CheckError {
        CheckError::Io(e)
    }
}
impl From<FormatError> for CheckError {
    fn from(e: FormatError) -> CheckError {
        CheckError::Format(e)
    }
}

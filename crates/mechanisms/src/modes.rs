//! The table of modes: the one place where a mode's name, promise and planted bugs are said.

use std::fmt;

/// How changes are made safe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// FFS: ordered synchronous metadata writes.
    Sync,
    /// FFS-async: no order, no log.
    Async,
    /// A write-ahead log of the byte ranges of metadata (LFFS, Calaveras).
    Redo,
    /// One log for metadata and small contents.
    Unified,
}

/// What is said of a mode.
#[derive(Clone, Copy, Debug)]
pub struct ModeInfo {
    /// The mode.
    pub mode: Mode,
    /// Its name on the command line.
    pub name: &'static str,
    /// What it promises, for a person.
    pub promise: &'static str,
    /// The bugs that can be planted in it.
    pub plants: &'static [&'static str],
}

/// All modes of this version.
pub const MODES: &[ModeInfo] = &[
    ModeInfo {
        mode: Mode::Sync,
        name: "sync",
        promise: "every returned create, mkdir, symlink, mknod, link, unlink, rmdir, rename and \
                  truncate survives a crash; file data is safe after fsync; the volume repairs \
                  itself when it is opened again",
        plants: crate::ffs::PLANTS,
    },
    ModeInfo {
        mode: Mode::Async,
        name: "async",
        promise: "after a crash nothing is promised but that, after cairn fsck --repair, every \
                  fsynced file not touched since is whole under its name",
        plants: &[],
    },
    ModeInfo {
        mode: Mode::Redo,
        name: "redo",
        promise: "after a crash the metadata is that of a prefix of the operations, with --commit sync \
                  of all that returned; file data is safe after fsync; with --ordered-data no file \
                  shows blocks of another",
        plants: crate::redo::PLANTS,
    },
    ModeInfo {
        mode: Mode::Unified,
        name: "unified",
        promise: "after a crash metadata and small writes (up to --threshold) are those of a prefix of \
                  the operations, with --commit sync of all that returned; of larger writes newly \
                  allocated blocks are never seen half done, overwrites may be",
        plants: crate::redo::UNIFIED_PLANTS,
    },
];

impl Mode {
    /// What is said of it.
    pub fn info(self) -> &'static ModeInfo {
        MODES.iter().find(|m| m.mode == self).expect("every mode is in the table")
    }
    /// By its name.
    pub fn by_name(name: &str) -> Option<Mode> {
        MODES.iter().find(|m| m.name == name).map(|m| m.mode)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

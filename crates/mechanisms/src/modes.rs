//! The table of modes: the one place where a mode's name, promise and planted bugs are said.

use std::fmt;

/// How changes are made safe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// FFS: ordered synchronous metadata writes.
    Sync,
    /// FFS-async: no order, no log.
    Async,
    /// A journal of metadata blocks, contents first (ext3).
    Ordered,
    /// A journal of metadata blocks, contents at any time.
    Writeback,
    /// A journal of metadata and contents, in whole blocks.
    Data,
    /// A journal of metadata and of the bytes of contents that were written.
    Wasteless,
    /// As wasteless for small writes, as ordered for the others.
    Selective,
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
        mode: Mode::Ordered,
        name: "ordered",
        promise: "after a crash the metadata is as of the last commit (at most --commit-interval \
                  ago), file data is safe after fsync, and no file shows blocks of another",
        plants: crate::jbd2::ORDERED_PLANTS,
    },
    ModeInfo {
        mode: Mode::Writeback,
        name: "writeback",
        promise: "after a crash the metadata is as of the last commit (at most --commit-interval \
                  ago), file data is safe after fsync; files written since may show old blocks",
        plants: crate::jbd2::PLANTS,
    },
    ModeInfo {
        mode: Mode::Data,
        name: "data",
        promise: "after a crash data and metadata are of the same version, as of the last commit \
                  (at most --commit-interval ago) or a later fsync",
        plants: crate::jbd2::DATA_PLANTS,
    },
    ModeInfo {
        mode: Mode::Wasteless,
        name: "wasteless",
        promise: "after a crash data and metadata are of the same version, as of the last commit \
                  (at most --commit-interval ago) or a later fsync",
        plants: crate::jbd2::WASTELESS_PLANTS,
    },
    ModeInfo {
        mode: Mode::Selective,
        name: "selective",
        promise: "after a crash small writes (pieces of a block of up to --threshold) and \
                  metadata are of the same version, as of the last commit; of larger ones new \
                  blocks are never seen half done, overwrites may be",
        plants: crate::jbd2::SELECTIVE_PLANTS,
    },
    ModeInfo {
        mode: Mode::Redo,
        name: "redo",
        promise: "after a crash the metadata is that of a prefix of the operations: of all that \
                  returned, with --commit sync or over NFS, else of all but the last few \
                  milliseconds' as a rule and --commit-interval's at most; file data is safe after \
                  fsync; with --ordered-data no file shows blocks of another",
        plants: crate::redo::PLANTS,
    },
    ModeInfo {
        mode: Mode::Unified,
        name: "unified",
        promise: "after a crash metadata and small writes (up to --threshold) are of a prefix \
                  of the operations: of all that returned, with --commit sync or over NFS, else of \
                  all but the last few milliseconds' as a rule and --commit-interval's at most, \
                  and what was fsynced is there; of larger writes newly allocated blocks are never \
                  seen half done, overwrites may be",
        plants: crate::redo::UNIFIED_PLANTS,
    },
];

impl Mode {
    /// Does it need a journal of the jbd2 family?
    pub fn is_journal(self) -> bool {
        use Mode::{Data, Ordered, Selective, Wasteless, Writeback};
        matches!(self, Ordered | Writeback | Data | Wasteless | Selective)
    }
    /// Does it have a log of ours?
    pub fn is_redo(self) -> bool {
        matches!(self, Mode::Redo | Mode::Unified)
    }
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

//! The table of modes: the one place where it is said what a mode is called, what it promises, what
//! it needs and takes, what a crash of it leaves, and which mechanism it is. Whoever opens,
//! describes or judges a volume asks the row; nobody else tells one mode from another.

use crate::{Commit, Recipe, ffs, jbd2, lfs, redo, soft_updates};
use integrity::{Integrity, IntegrityError, Mechanism};
use std::fmt;

/// How changes are made safe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// FFS: ordered synchronous metadata writes.
    Sync,
    /// FFS-async: no order, no log.
    Async,
    /// Dependencies between blocks are kept; what waits for others is left out of what is written.
    SoftUpdates,
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
    /// Each operation is an atomic group in the log of the log-structured store below.
    Lfs,
}

/// What a mode keeps beside the volume's own blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// Nothing.
    Nothing,
    /// A journal of the jbd2 family.
    Journal,
    /// A log of ours.
    Log,
    /// The volume itself is one: it lies in a log-structured store.
    Segments,
}

/// What a crash leaves of a volume, and so what its recovery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterCrash {
    /// What the journal or the log holds is replayed.
    Replay,
    /// Only what the operations under way had done in part is undone: no other name goes.
    RepairUnfinished,
    /// Space that is not given back yet, and counts that are too high: it can be used at once.
    GiveBack,
    /// Anything; it is repaired unless something that has a name would be taken away.
    RepairUnlessNamesGo,
}

/// What is promised of contents that were written but not fsynced, when their file is found after a
/// crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Nothing.
    Any,
    /// They are those of the moment of the metadata.
    Exact,
    /// The same, of pieces of a block up to the threshold.
    ExactPieces,
    /// The same, of writes up to the threshold; longer ones may show later bytes, no others'.
    ExactWrites,
    /// They may be later ones, but never another file's.
    Ordered,
    /// The same where it is asked for (`--ordered-data`), else nothing.
    OrderedIfAsked,
}

/// An option that has a meaning in some modes only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModeOption {
    /// Where the journal or log is.
    Log,
    /// When a returned call counts as done.
    Commit,
    /// Up to how many bytes a write is logged.
    Threshold,
    /// Contents are durable before what points at them.
    OrderedData,
    /// What operations may leave half done is written down.
    JournalIntents,
}

impl ModeOption {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ModeOption::Log => "--log",
            ModeOption::Commit => "--commit",
            ModeOption::Threshold => "--threshold",
            ModeOption::OrderedData => "--ordered-data",
            ModeOption::JournalIntents => "--journal-intents",
        }
    }
}

/// What the short form of a promise depends on.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Seconds that may be lost.
    pub interval_secs: f64,
    /// When a returned call counts as done.
    pub commit: Commit,
    /// Are contents durable before what points at them?
    pub ordered_data: bool,
}

impl Terms {
    fn behind(&self) -> String {
        format!("at most {} s are lost, durable after fsync", self.interval_secs)
    }
    fn logged(&self, contents: &str) -> String {
        let clean = if self.ordered_data { ", no file shows blocks of another" } else { "" };
        match self.commit {
            Commit::Sync => format!("what has returned survives a crash{contents}{clean}"),
            Commit::Async => format!("in order after a crash, {}{clean}", self.behind()),
        }
    }
}

/// What is said of a mode.
#[derive(Clone, Copy, Debug)]
pub struct ModeInfo {
    /// The mode.
    pub mode: Mode,
    /// Its name on the command line.
    pub name: &'static str,
    /// Has it been shown to keep its promise? One that has not is for the crash explorer and the
    /// lab, and no volume is opened in it.
    pub proven: bool,
    /// What it promises, for a person.
    pub promise: &'static str,
    /// The same in a line, for the options in force.
    pub line: fn(&Terms) -> String,
    /// What it keeps beside the volume's own blocks.
    pub keeps: Keeps,
    /// What a crash leaves.
    pub after_crash: AfterCrash,
    /// What is promised of contents.
    pub contents: Contents,
    /// May somebody above hold back what was written? Only where nothing at all is promised of
    /// contents that were not fsynced, neither when they are durable nor what comes before or after
    /// them. A journal's modes promise that a file is as long as it was at a commit, those with
    /// contents in the log the order of writes too: a file that is renamed over another while its
    /// contents are still held back would be found empty.
    pub contents_may_wait: bool,
    /// With `--commit sync`: is what a returned call wrote durable too, so that fsync has nothing
    /// left to do?
    pub returned_contents: bool,
    /// Does the cache write back on its own, every commit interval? The others do it themselves.
    pub cache_writes_back: bool,
    /// The options that have a meaning in it.
    pub options: &'static [ModeOption],
    /// The threshold if none is named, for blocks of so many bytes.
    pub threshold: fn(u64) -> u64,
    /// The bugs that can be planted in it.
    pub plants: &'static [&'static str],
    /// Its mechanism over the recipe's cache, whose gate it becomes.
    pub(crate) build: fn(&Recipe) -> Result<Mechanism, IntegrityError>,
}

const IN_JOURNAL: &[ModeOption] = &[ModeOption::Log];

/// A whole block gains nothing by being journaled.
fn a_block(block_bytes: u64) -> u64 {
    block_bytes
}
/// Less than a block spares a read, or a transfer.
fn less_than_a_block(block_bytes: u64) -> u64 {
    block_bytes - 1
}

fn journaled(recipe: &Recipe, policy: jbd2::Policy) -> Result<Mechanism, IntegrityError> {
    let journal = recipe.journal.as_ref();
    let journal = journal.expect("whoever opens a volume in this mode has found its journal");
    Ok(jbd2::Jbd2::new(recipe, journal, policy)?)
}

fn selective(recipe: &Recipe) -> Result<Mechanism, IntegrityError> {
    let threshold = recipe.journal.as_ref().map_or(0, |j| j.threshold);
    journaled(recipe, jbd2::Policy::Selective { threshold })
}

/// With all contents up to the threshold in the log, or those only that somebody waits for.
fn logged(recipe: &Recipe, all: bool) -> Result<Mechanism, IntegrityError> {
    let log = recipe.log.as_ref();
    let log = log.expect("whoever opens a volume in this mode has opened its log");
    let most = log.threshold;
    let (ordered, log_up_to) = if all { (true, most) } else { (log.ordered_data, 0) };
    let data = redo::Policy { ordered, log_up_to, log_stable_up_to: most, adaptive: all };
    Ok(redo::Redo::new(recipe, log, data)?)
}

/// All modes that a volume on a plain disk may be in.
pub const MODES: &[ModeInfo] = &[
    ModeInfo {
        mode: Mode::Sync,
        name: "sync",
        proven: true,
        promise: "every returned create, mkdir, symlink, mknod, link, unlink, rmdir, rename and \
                  truncate survives a crash; file data and times are safe after fsync; the \
                  volume repairs itself when it is opened again",
        line: |_| {
            "returned changes of names and sizes survive a crash; contents after fsync".into()
        },
        keeps: Keeps::Nothing,
        after_crash: AfterCrash::RepairUnfinished,
        contents: Contents::Any,
        contents_may_wait: true,
        returned_contents: false,
        cache_writes_back: true,
        options: &[],
        threshold: a_block,
        plants: ffs::PLANTS,
        build: |r| Ok(ffs::Ffs::new(r, ffs::Policy::Sync)),
    },
    ModeInfo {
        mode: Mode::Async,
        name: "async",
        proven: true,
        promise: "after a crash nothing is promised but that, after cairn fsck --repair, every \
                  fsynced file not touched since is whole, with its times, under its name",
        line: |_| {
            "a crash may take anything but fsynced files, which cairn fsck --repair brings back"
                .into()
        },
        keeps: Keeps::Nothing,
        after_crash: AfterCrash::RepairUnlessNamesGo,
        contents: Contents::Any,
        contents_may_wait: true,
        returned_contents: false,
        cache_writes_back: false,
        options: &[],
        threshold: a_block,
        plants: &[],
        build: |r| Ok(ffs::Ffs::new(r, ffs::Policy::Async)),
    },
    ModeInfo {
        mode: Mode::SoftUpdates,
        name: "soft-updates",
        proven: true,
        promise: "after a crash the volume is sound but for space that is not given back yet and \
                  link counts that are too high; no file shows blocks of another, no name is \
                  lost by a rename; what was fsynced is there, with its times; the last seconds of \
                  other work may be gone, not always the latest of it",
        line: |t| format!("{}; sound at once, no file shows blocks of another", t.behind()),
        keeps: Keeps::Nothing,
        after_crash: AfterCrash::GiveBack,
        contents: Contents::Ordered,
        contents_may_wait: false,
        returned_contents: false,
        cache_writes_back: true,
        options: &[ModeOption::JournalIntents],
        threshold: a_block,
        plants: soft_updates::PLANTS,
        build: |r| Ok(soft_updates::SoftUpdates::new(r)),
    },
    ModeInfo {
        mode: Mode::Ordered,
        name: "ordered",
        proven: true,
        promise: "after a crash the metadata is as of the last commit (at most --commit-interval \
                  ago), file data and times are safe after fsync, and no file shows blocks of \
                  another",
        line: |t| format!("{}; no file shows blocks of another", t.behind()),
        keeps: Keeps::Journal,
        after_crash: AfterCrash::Replay,
        contents: Contents::Ordered,
        contents_may_wait: false,
        returned_contents: false,
        cache_writes_back: false,
        options: IN_JOURNAL,
        threshold: a_block,
        plants: jbd2::ORDERED_PLANTS,
        build: |r| journaled(r, jbd2::Policy::Ordered),
    },
    ModeInfo {
        mode: Mode::Writeback,
        name: "writeback",
        proven: true,
        promise: "after a crash the metadata is as of the last commit (at most --commit-interval \
                  ago), file data and times are safe after fsync; files written since may show \
                  old blocks",
        line: |t| format!("{}; new files may show old blocks", t.behind()),
        keeps: Keeps::Journal,
        after_crash: AfterCrash::Replay,
        contents: Contents::Any,
        contents_may_wait: false,
        returned_contents: false,
        cache_writes_back: false,
        options: IN_JOURNAL,
        threshold: a_block,
        plants: jbd2::PLANTS,
        build: |r| journaled(r, jbd2::Policy::Writeback),
    },
    ModeInfo {
        mode: Mode::Data,
        name: "data",
        proven: true,
        promise: "after a crash data and metadata are of the same version, as of the last commit \
                  (at most --commit-interval ago) or a later fsync",
        line: |t| format!("{}; metadata and contents of one moment", t.behind()),
        keeps: Keeps::Journal,
        after_crash: AfterCrash::Replay,
        contents: Contents::Exact,
        contents_may_wait: false,
        returned_contents: false,
        cache_writes_back: false,
        options: IN_JOURNAL,
        threshold: a_block,
        plants: jbd2::DATA_PLANTS,
        build: |r| journaled(r, jbd2::Policy::Data),
    },
    ModeInfo {
        mode: Mode::Wasteless,
        name: "wasteless",
        proven: true,
        promise: "after a crash data and metadata are of the same version, as of the last commit \
                  (at most --commit-interval ago) or a later fsync",
        line: |t| format!("{}; metadata and contents of one moment", t.behind()),
        keeps: Keeps::Journal,
        after_crash: AfterCrash::Replay,
        contents: Contents::Exact,
        contents_may_wait: false,
        returned_contents: false,
        cache_writes_back: false,
        options: IN_JOURNAL,
        threshold: a_block,
        plants: jbd2::WASTELESS_PLANTS,
        build: |r| journaled(r, jbd2::Policy::Wasteless),
    },
    ModeInfo {
        mode: Mode::Selective,
        name: "selective",
        proven: true,
        promise: "after a crash small writes (pieces of a block of up to --threshold) and \
                  metadata are of the same version, as of the last commit or a later fsync; of \
                  larger ones new blocks are never seen half done, overwrites may be",
        line: |t| format!("{}; metadata and small writes of one moment", t.behind()),
        keeps: Keeps::Journal,
        after_crash: AfterCrash::Replay,
        contents: Contents::ExactPieces,
        contents_may_wait: false,
        returned_contents: false,
        cache_writes_back: false,
        options: &[ModeOption::Log, ModeOption::Threshold],
        threshold: less_than_a_block,
        plants: jbd2::SELECTIVE_PLANTS,
        build: selective,
    },
    ModeInfo {
        mode: Mode::Redo,
        name: "redo",
        proven: true,
        promise: "after a crash the metadata is that of a prefix of the operations: of all that \
                  returned, with --commit sync or over NFS, else of all but the last few \
                  milliseconds' as a rule and --commit-interval's at most; file data and times are \
                  safe after fsync; with --ordered-data no file shows blocks of another",
        line: |t| t.logged(", contents after fsync"),
        keeps: Keeps::Log,
        after_crash: AfterCrash::Replay,
        contents: Contents::OrderedIfAsked,
        contents_may_wait: false,
        returned_contents: false,
        cache_writes_back: false,
        options: &[ModeOption::Log, ModeOption::Commit, ModeOption::OrderedData],
        threshold: a_block,
        plants: redo::PLANTS,
        build: |r| logged(r, false),
    },
    ModeInfo {
        mode: Mode::Unified,
        name: "unified",
        proven: true,
        promise: "after a crash metadata and small writes (up to --threshold) are of a prefix \
                  of the operations: of all that returned, with --commit sync or over NFS, else of \
                  all but the last few milliseconds' as a rule and --commit-interval's at most, \
                  and what was fsynced is there, with its times; of larger writes newly \
                  allocated blocks are never seen half done, overwrites may be",
        line: |t| t.logged(""),
        keeps: Keeps::Log,
        after_crash: AfterCrash::Replay,
        contents: Contents::ExactWrites,
        contents_may_wait: false,
        returned_contents: true,
        cache_writes_back: false,
        options: &[ModeOption::Log, ModeOption::Commit, ModeOption::Threshold],
        threshold: a_block,
        plants: redo::UNIFIED_PLANTS,
        build: |r| logged(r, true),
    },
];

/// The modes that only a volume in a log-structured store may be in.
pub const IN_SEGMENTS: &[ModeInfo] = &[ModeInfo {
    mode: Mode::Lfs,
    name: "lfs",
    proven: true,
    promise: "after a crash the volume is that of a prefix of the operations, contents included: \
              of all that returned, with --commit sync or over NFS, else of all but the last few \
              milliseconds' as a rule and --commit-interval's at most, and what was fsynced is \
              there, with its times; for volumes in a log-structured store",
    line: |t| t.logged(""),
    keeps: Keeps::Segments,
    after_crash: AfterCrash::Replay,
    contents: Contents::Exact,
    contents_may_wait: false,
    returned_contents: true,
    cache_writes_back: false,
    options: &[ModeOption::Commit],
    threshold: a_block,
    plants: lfs::PLANTS,
    build: |r| {
        let groups = r.groups.as_ref();
        let groups = groups.expect("whoever opens a volume in this mode has its store");
        Ok(lfs::Lfs::new(r, groups))
    },
}];

impl ModeInfo {
    /// Does the row agree with itself, and with the mechanism that was made of it? Whoever opens,
    /// describes or judges a volume goes by the row alone.
    pub(crate) fn check(&self, made: &dyn Integrity) {
        let (name, takes) = (self.name, |option| self.options.contains(&option));
        let replays = self.after_crash == AfterCrash::Replay;
        assert_eq!(replays, made.atomic(), "{name}: is an operation all or nothing in a crash?");
        assert_eq!(replays, self.keeps != Keeps::Nothing, "{name}: what would be replayed?");
        let any = self.contents == Contents::Any;
        assert!(!any || !made.contents_first(), "{name}: more is done for contents than is said");
        assert!(any || !self.contents_may_wait, "{name}: contents may wait, of which it promises");
        let logs = matches!(self.keeps, Keeps::Log | Keeps::Segments);
        assert_eq!(logs, takes(ModeOption::Commit), "{name}: when is a returned call durable?");
        assert!(logs || !self.returned_contents, "{name}: contents of a returned call are where?");
        let some = matches!(self.contents, Contents::ExactPieces | Contents::ExactWrites);
        assert_eq!(some, takes(ModeOption::Threshold), "{name}: up to where are contents exact?");
        let asked = self.contents == Contents::OrderedIfAsked;
        assert_eq!(
            asked,
            takes(ModeOption::OrderedData),
            "{name}: how are ordered data asked for?"
        );
        let alone = self.keeps == Keeps::Nothing;
        assert!(alone || !self.cache_writes_back, "{name}: two write back, by the clock");
    }
}

impl Mode {
    /// The fastest of those that lose nothing, for a volume whose journal's space a log can take.
    pub const DEFAULT: Mode = Mode::Unified;
    /// What is used where there is no journal.
    pub const WITHOUT_JOURNAL: Mode = Mode::Sync;
    /// What another system does with a journal, and so goes on with it.
    pub const AS_ELSEWHERE: Mode = Mode::Ordered;
    /// What is used in a log-structured store, which is the log.
    pub const IN_SEGMENTS: Mode = Mode::Lfs;
    /// What changes nothing, if nobody changes anything.
    pub const TO_READ: Mode = Mode::Async;

    /// Does it need a journal of the jbd2 family?
    pub fn is_journal(self) -> bool {
        self.info().keeps == Keeps::Journal
    }
    /// Does it have a log of ours?
    pub fn is_redo(self) -> bool {
        self.info().keeps == Keeps::Log
    }
    /// Is each operation all or nothing, because its blocks are written once they are in a journal
    /// or log?
    pub fn is_atomic(self) -> bool {
        self.is_journal() || self.is_redo()
    }
    /// Does it write volumes of ext4, whose blocks carry checksums and whose files lie in trees? A
    /// write in place that the power cuts short leaves a wrong checksum, or half a tree. So it does
    /// where blocks are written once they are in a journal or log, and where a crash may leave
    /// anything, until a check has mended it.
    pub fn writes_ext4(self) -> bool {
        self.is_atomic() || self.may_leave_anything()
    }
    /// May a crash take what has been answered, unless it was fsynced?
    pub fn may_leave_anything(self) -> bool {
        self.info().after_crash == AfterCrash::RepairUnlessNamesGo
    }
    /// Has this option a meaning in it?
    pub fn takes(self, option: ModeOption) -> bool {
        self.info().options.contains(&option)
    }
    /// The first of the options that were given and have no meaning in it.
    pub fn refuses(self, given: &[(ModeOption, bool)]) -> Option<ModeOption> {
        given.iter().find(|(o, is_given)| *is_given && !self.takes(*o)).map(|(o, _)| *o)
    }
    /// What is said of it.
    pub fn info(self) -> &'static ModeInfo {
        Mode::all().find(|m| m.mode == self).expect("every mode is in a table")
    }
    /// Every mode there is.
    pub fn all() -> impl Iterator<Item = &'static ModeInfo> + Clone {
        MODES.iter().chain(IN_SEGMENTS)
    }
    /// Those in which volumes are opened.
    pub fn proven() -> impl Iterator<Item = &'static ModeInfo> {
        Mode::all().filter(|m| m.proven)
    }
    /// Does what it does go into a log of ours, the volume itself or one beside it, so that what
    /// was done is found up to some operation, and goes out by itself?
    pub fn is_logging(self) -> bool {
        matches!(self.info().keeps, Keeps::Log | Keeps::Segments)
    }
    /// By its name.
    pub fn by_name(name: &str) -> Option<Mode> {
        Mode::all().find(|m| m.name == name).map(|m| m.mode)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

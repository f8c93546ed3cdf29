//! How a volume is opened: the options, and what follows from them. It opens nothing.

use crate::decision::Watch;
use crate::mmp::User;
use crate::objects::BucketOptions;
use env::Nanos;
use integrity::Plant;
use mechanisms::{Commit, Mode};
use std::sync::Arc;

/// How to open.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// How changes are made safe.
    pub mode: Mode,
    /// Change nothing.
    pub read_only: bool,
    /// Memory for blocks, in bytes.
    pub cache_bytes: usize,
    /// How much of it clean contents may have; None: all.
    pub contents_bytes: Option<usize>,
    /// Dirty data is written back at least this often.
    pub commit_interval: Nanos,
    /// The log or the journal is kept so short that its replay takes no longer than this, about.
    pub recovery_within: Nanos,
    /// Random bytes, for the key of file handles if the volume has none yet, for a new log's
    /// name, and for the keys of the directories' indices.
    pub entropy: [u8; 16],
    /// A planted bug, for the crash explorer.
    pub plant: Plant,
    /// When does a returned operation count as done (modes with a log of ours)?
    pub commit: Commit,
    /// Up to how many bytes a write is logged (`unified`), or its piece in a block (`selective`);
    /// None: a block, and for a piece, less than one.
    pub threshold: Option<u64>,
    /// Are contents durable before what points at them (`redo`)?
    pub ordered_data: bool,
    /// Bytes of the disk with the log, which is `DiskId(1)`; None: the log is inside.
    pub log_disk_bytes: Option<u64>,
    /// Is told how far recovery is, and what it has done.
    pub watch: Option<Arc<dyn Watch>>,
    /// How often the checker runs beside service; None: only after a crash that leaves it work.
    pub scrub_every: Option<Nanos>,
    /// Is the disk told of what is freed, a while after?
    pub discards: bool,
    /// Is it written down what operations may leave half done (soft updates)?
    pub journal_intents: bool,
    /// Each entry of a log of ours is written alone: what batching is compared with in the lab.
    pub log_alone: bool,
    /// Which segments the cleaner takes, of a volume in a log-structured store on a disk; None: the
    /// store's default.
    pub cleaner: Option<lfs::Policy>,
    /// When it does; None: in idle time too.
    pub cleaning: Option<lfs::Cleaning>,
    /// From when to when under pressure, and how much at a time; None: as the store does by
    /// default.
    pub thresholds: Option<lfs::Thresholds>,
    /// Does it lay together what is read together, in idle time? None: on a disk whose access takes
    /// long.
    pub reorganise: Option<bool>,
    /// Who opens it, as other machines are told that share the disk (`mmp`).
    pub user: User,
    /// For a volume in a bucket.
    pub bucket: BucketOptions,
    /// The snapshot that is opened instead of the volume, for reading.
    pub snapshot: Option<String>,
}

impl OpenOptions {
    /// Is every call that has returned durable as a whole, what it wrote too, so that fsync has
    /// nothing left to do?
    pub fn returned_is_durable(&self) -> bool {
        self.mode.info().returned_contents && self.commit == Commit::Sync
    }

    /// May somebody above hold back what was written (see [`crate::ModeInfo::contents_may_wait`])?
    pub fn contents_may_wait(&self) -> bool {
        self.mode.info().contents_may_wait
    }

    /// As a user gets them who names nothing but the mode.
    pub fn plain(mode: Mode, cache_bytes: usize, entropy: [u8; 16]) -> OpenOptions {
        OpenOptions {
            mode,
            read_only: false,
            cache_bytes,
            contents_bytes: None,
            commit_interval: Nanos::from_secs(5),
            recovery_within: Nanos::from_secs(10),
            entropy,
            plant: Plant::NONE,
            commit: Commit::Sync,
            threshold: None,
            ordered_data: false,
            log_disk_bytes: None,
            watch: None,
            scrub_every: None,
            discards: false,
            journal_intents: false,
            log_alone: false,
            cleaner: None,
            cleaning: None,
            thresholds: None,
            reorganise: None,
            user: User::default(),
            bucket: BucketOptions::default(),
            snapshot: None,
        }
    }
}

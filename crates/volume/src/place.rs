//! Where a volume lies: the world's disks under it ([`Ground`]), and what the layout sees of them
//! ([`Place`]), which is the disk that the store made of them. Reading without waiting is here too.
//! Nothing here knows what the bytes mean.

use crate::log::SharedLog;
use crate::mmp::{Claim, Fenced};
use crate::objects::BucketOptions;
use crate::store::Store;
use check::{IoError, ReadBlocks};
use env::{Blocking, Disk, DiskError, DiskId, Env};
use integrity::Plant;
use std::rc::Rc;

/// The world's disks under one volume.
#[derive(Clone)]
pub struct Ground {
    /// The engine.
    pub env: Env,
    /// The disk it lies on.
    pub own: DiskId,
    /// Its bytes.
    pub own_bytes: u64,
    /// The other disk that was named for its log or journal, and its bytes.
    pub log: Option<(DiskId, u64)>,
    /// A planted bug, for the crash explorer: some are those of a store.
    pub plant: Plant,
    /// Which segments its store's cleaner takes; None: the store's default.
    pub cleaner: Option<lfs::Policy>,
    /// When it does; None: in idle time too.
    pub cleaning: Option<lfs::Cleaning>,
    /// From when to when under pressure, and how much at a time; None: the store's default.
    pub thresholds: Option<lfs::Thresholds>,
    /// Is what is read together laid together in idle time? None: where an access takes long.
    pub reorganise: Option<bool>,
    /// Segments that its store empties are given back to the disk; those of a thin volume are
    /// always.
    pub discards: bool,
    /// How it is opened if it is in a bucket.
    pub bucket: BucketOptions,
    /// What has to hold before something is written to the log, if several machines can reach it.
    pub claim: Option<Rc<Claim>>,
    /// Of its snapshots this one is meant, for reading; None: the volume as it is.
    pub snapshot: Option<String>,
}

impl Ground {
    /// One volume alone in its engine: on `DiskId(0)` with `own_bytes`, its log, if one is named,
    /// on `DiskId(1)` with `log_bytes`.
    pub fn alone(env: Env, own_bytes: u64, log_bytes: Option<u64>) -> Ground {
        Ground {
            env,
            own: DiskId(0),
            own_bytes,
            log: log_bytes.map(|b| (DiskId(1), b)),
            plant: Plant::NONE,
            cleaner: None,
            cleaning: None,
            thresholds: None,
            reorganise: None,
            discards: false,
            bucket: BucketOptions::default(),
            snapshot: None,
            claim: None,
        }
    }

    /// Is it no disk but a bucket?
    pub(crate) fn is_bucket(&self) -> bool {
        self.own_bytes == env::BUCKET_BYTES
    }

    /// The disk it lies on.
    pub fn disk(&self) -> Rc<dyn Disk> {
        self.env.port().disk(self.own, self.own_bytes)
    }

    /// The disk that was named for its log.
    pub(crate) fn log_disk(&self) -> Option<Rc<dyn Disk>> {
        let below = self.log.map(|(id, bytes)| self.env.port().disk(id, bytes))?;
        Some(match &self.claim {
            Some(claim) => Rc::new(Fenced { below, claim: claim.clone() }),
            None => below,
        })
    }

    /// The same, read without waiting.
    pub(crate) async fn log_reader(&self) -> Result<Option<Reader>, DiskError> {
        match self.log {
            Some((id, bytes)) => Ok(Some(Reader(Blocking::own(&self.env, id, bytes).await?))),
            None => Ok(None),
        }
    }
}

/// Where a layout lies.
#[derive(Clone)]
pub struct Place {
    /// The world's disks.
    pub(crate) ground: Ground,
    /// What the layout sees of its own.
    pub(crate) disk: Rc<dyn Disk>,
    /// Who made that of them.
    pub(crate) store: Rc<dyn Store>,
    /// The log, if several volumes of this engine use one.
    pub(crate) shared: Option<Rc<SharedLog>>,
    /// What keeps other machines off, if they can reach it.
    pub(crate) claim: Option<Rc<Claim>>,
}

impl Place {
    /// What the layout lies on as it is now, for who reads without waiting. Errors: the device's.
    pub(crate) async fn reader(&self) -> Result<Reader, DiskError> {
        self.store.reader(&self.ground).await
    }
}

/// A disk that code reads that cannot wait, such as the checker.
pub struct Reader(pub(crate) Blocking);

impl ReadBlocks for Reader {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.0.read(at, into).map_err(|e| IoError { what: e.to_string(), at })
    }
    fn known_zero(&self, at: u64, len: u64) -> bool {
        self.0.known_zero(at, len)
    }
}

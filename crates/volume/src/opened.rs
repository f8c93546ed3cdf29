//! An opened volume, and taking it down: calls are refused, everything is written back, and only
//! when all of it is durable is the volume marked as clean.

use crate::log::PrivateLog;
use crate::scrub::Scrubber;
use crate::state;
use crate::trimmer::Trimmer;
use env::{DiskError, DiskErrorKind, Local};
use ext::Ext;
use format::ext::boot::BootState;
use format::ext::features::incompat;
use integrity::Hold;
use mechanisms::GroupStore;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use ufs::Ufs;
use ufs::store::StoreInfo;
use vfs::{Answer, Call, FsError, Reply, Request, Volume};

pub(crate) struct Opened {
    pub(crate) ufs: Rc<Ufs<Ext>>,
    pub(crate) ext: Rc<Ext>,
    pub(crate) boot: RefCell<Option<BootState>>,
    pub(crate) read_only: bool,
    /// The checker beside service.
    pub(crate) scrub: Rc<Scrubber>,
    /// Tells the disk of what is freed.
    pub(crate) trimmer: Rc<Trimmer>,
    /// By what it stands still, if it does; see `freeze`.
    pub(crate) frozen: Cell<Option<Hold>>,
    /// The counts of free blocks and inodes on the disk lag behind, and are written at the end.
    pub(crate) counts_lag: bool,
    /// The log, in modes that have one of ours.
    pub(crate) private: Option<PrivateLog>,
    /// The store of segments, in the mode of such.
    pub(crate) groups: Option<Rc<dyn GroupStore>>,
}

/// The volume's state was to be written, at its opening or closing; false: there was no room.
/// Snapshots may hold all of a store of segments: it does without, as nothing is lost by it.
pub(crate) fn is_written(
    result: Result<(), DiskError>,
    groups: Option<&Rc<dyn GroupStore>>,
) -> Result<bool, DiskError> {
    match result {
        Err(e) if groups.is_some() && e.kind == DiskErrorKind::NoSpace => {
            tracing::warn!("the state of the volume is not written: {}", e.detail);
            Ok(false)
        }
        result => result.map(|()| true),
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.ext.cache().set_gate(Rc::new(cache::ShutGate));
    }
}

impl Volume for Opened {
    fn call(self: Rc<Self>, call: Call) -> Local<'static, Answer> {
        match call.request {
            Request::Scrub => {
                let done = if self.read_only { Err(FsError::ReadOnly) } else { Ok(Reply::Done) };
                if done.is_ok() {
                    self.scrub.start();
                }
                Box::pin(async move { Answer::from(done) })
            }
            Request::Freeze { most } => {
                Box::pin(async move { Answer::from(self.freeze(most).await) })
            }
            Request::Thaw => Box::pin(async move { Answer::from(self.thaw()) }),
            _ => self.ufs.clone().call(call),
        }
    }
    fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>> {
        Box::pin(async move { self.shut().await })
    }
}

impl Opened {
    async fn shut(&self) -> Result<(), FsError> {
        self.ufs.refuse_calls();
        self.ext.standstill().release_anyhow();
        if self.read_only {
            return Ok(());
        }
        self.scrub.stop().await;
        self.trimmer.stop().await;
        // Damage that is found at the last moment keeps the volume from being called clean.
        self.ext.surveyed().await;
        let cache = self.ext.cache();
        if self.ext.writable().is_err() {
            cache.stop();
            tracing::error!("the volume is not marked clean: it was damaged or its device failed");
            return Err(FsError::Io);
        }
        self.ufs.shut().await?;
        let io = |e: integrity::IntegrityError| {
            tracing::error!("closing: {e}");
            FsError::Io
        };
        self.ext.mechanism().close().await.map_err(io)?;
        cache.stop();
        let dirty = cache.counts().1;
        if dirty > 0 {
            tracing::error!("closing: {dirty} blocks could not be written");
            return Err(FsError::Io); // V3
        }
        for (name, n) in self.ext.mechanism().counters() {
            tracing::info!("{name} {n}");
        }
        let disk = |e: DiskError| io(e.into());
        let log = self.private.as_ref();
        if let Some(log) = log.filter(|l| !l.is_given_up_last()) {
            let flagged = self.ext.superblock().has_incompat(incompat::RECOVER);
            assert!(flagged, "G2: the flag of the volume goes before the guard of its log");
            log.give_up().await.map_err(disk)?;
        }
        if self.scrub.leaks() {
            tracing::info!("space that a crash has left is not given back yet: not marked clean");
            return Ok(());
        }
        let groups = self.groups.as_ref();
        let marked = self.ext.mark_clean(groups.is_some()).await;
        let marked = is_written(marked, groups).map_err(disk)?;
        if let Some(log) = log.filter(|l| l.is_given_up_last()) {
            log.give_up().await.map_err(disk)?;
        }
        let boot = self.boot.borrow().clone();
        if let Some(mut b) = boot.filter(|_| marked) {
            let (before, mode) = (b.serial, &b.mode);
            assert!(!b.clean, "V3: state {before} of mode {mode} says that nobody uses the volume");
            b.serial += 1;
            b.clean = true;
            let flagged = self.ext.superblock().has_incompat(incompat::RECOVER);
            assert!(!flagged, "V3: nobody uses a volume that says that it needs recovery");
            is_written(state::store(cache.disk(), &b).await, groups).map_err(disk)?;
        }
        Ok(())
    }
}

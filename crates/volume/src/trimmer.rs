//! Telling the disk of what is freed, a while after it was, for as long as the volume is open
//! (`--discard`). Which blocks those are and when they may be told of, the layout knows (alloc/
//! trim.rs in `ext`); who pays for a disk that is slow at it, this does: nobody waits for it, and
//! one that cannot is not asked again.

use env::sync::Notify;
use env::{Nanos, unless};
use ext::Ext;
use std::cell::Cell;
use std::rc::Rc;
use ufs::Ufs;
use ufs::store::{Space, StoreInfo};
use vfs::FsError;

/// How long what is freed gathers: what is freed in pieces is told of as a whole.
const EVERY: Nanos = Nanos::from_secs(20);
/// Shorter runs are left for `fstrim`.
const BYTES_MIN: u64 = 64 << 10;

/// Discards now and then.
pub(crate) struct Trimmer {
    ufs: Rc<Ufs<Ext>>,
    stopped: Cell<bool>,
    running: Cell<bool>,
    changed: Notify,
}

impl Trimmer {
    pub(crate) fn new(ufs: &Rc<Ufs<Ext>>) -> Rc<Trimmer> {
        let (stopped, running) = (Cell::new(false), Cell::new(false));
        Rc::new(Trimmer { ufs: ufs.clone(), stopped, running, changed: Notify::new() })
    }

    /// Begins, if that is wanted.
    pub(crate) fn run(self: &Rc<Self>, wanted: bool) {
        if !wanted {
            return;
        }
        assert!(!self.running.replace(true), "two tasks tell the disk of what is freed");
        let me = self.clone();
        self.ufs.store().env().spawn("trimmer", async move {
            let env = me.ufs.store().env().clone();
            while !me.stopped.get() {
                let late = env.sleep_until(env.now().plus(EVERY));
                if unless(me.changed.wait(), late).await.is_none() && !me.trim().await {
                    break;
                }
            }
            assert!(me.running.replace(false), "the trimmer ends, and was not begun");
            me.changed.wake_all();
        });
    }

    /// Ends after the run that is being discarded.
    pub(crate) async fn stop(&self) {
        self.stopped.set(true);
        self.changed.wake_all();
        while self.running.get() {
            self.changed.wait().await;
        }
    }

    /// Discards what was freed since it did so last. False: it is not to be tried again.
    async fn trim(&self) -> bool {
        let store = self.ufs.store();
        let least = BYTES_MIN.div_ceil(store.limits().block_bytes as u64);
        match store.trim_freed(least, &|| self.stopped.get()).await {
            Ok(_) => true,
            Err(FsError::NotSupported) => {
                tracing::warn!("the disk cannot discard: --discard has no effect");
                false
            }
            Err(e) => {
                tracing::warn!("--discard has ended: {e}");
                false
            }
        }
    }
}

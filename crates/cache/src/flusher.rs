//! Flushes of the device, shared: who asks while one is running waits for the next, and all who
//! wait share it. A flush covers only writes that completed before it was issued, hence the epochs.

use env::sync::Notify;
use env::{Disk, DiskError};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Counts flushes by their start. A write that completed in epoch `e` (after the `e`-th flush was
/// issued, before the next) is durable once a flush later than the `e`-th has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct FlushEpoch(pub u64);

impl FlushEpoch {
    /// From the next flush on.
    pub const fn next(self) -> FlushEpoch {
        FlushEpoch(self.0 + 1)
    }
}

pub(crate) struct Flusher {
    disk: Rc<dyn Disk>,
    started: Cell<FlushEpoch>,
    ended: Cell<FlushEpoch>,
    running: Cell<bool>,
    failed: RefCell<Option<DiskError>>,
    changed: Notify,
}

impl Flusher {
    pub(crate) fn new(disk: Rc<dyn Disk>) -> Flusher {
        Flusher {
            disk,
            started: Cell::default(),
            ended: Cell::default(),
            running: Cell::new(false),
            failed: RefCell::default(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn epoch(&self) -> FlushEpoch {
        self.started.get()
    }

    /// Returns once a flush that was issued after this call has ended, and whether it was issued
    /// here; calls `flushed` once for each that is. The first failure is for ever: what was in the
    /// device's cache may be gone.
    pub(crate) async fn flush(&self, flushed: impl Fn(FlushEpoch)) -> Result<bool, DiskError> {
        let mine = self.started.get().next();
        let mut issued = false;
        while self.ended.get() < mine {
            if let Some(e) = self.failed.borrow().clone() {
                return Err(e);
            }
            if self.running.get() {
                self.changed.wait().await;
                continue;
            }
            self.running.set(true);
            let (started, ended) = (self.started.get(), self.ended.get());
            assert_eq!(started, ended, "C5: a flush begins while another is on its way");
            let epoch = started.next();
            self.started.set(epoch);
            let result = self.disk.flush().await;
            assert!(self.running.replace(false), "C5: flush {} ends twice", epoch.0);
            issued = true;
            match result {
                Ok(()) => {
                    let one = self.ended.get() < epoch && self.started.get() == epoch;
                    assert!(one, "C5: flush {} ends out of turn", epoch.0);
                    self.ended.set(epoch);
                    flushed(epoch);
                }
                Err(e) => {
                    let before = self.failed.borrow_mut().replace(e);
                    assert!(before.is_none(), "C5: a flush was sent after {before:?}");
                }
            }
            self.changed.wake_all();
        }
        Ok(issued)
    }
}

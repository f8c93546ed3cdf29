//! The mounts of one server, and what becomes of a mount of a device when it is unmounted: `umount`
//! waits until the kernel's DESTROY is answered. If the server ends with it, the end of its process
//! is the answer, so that the volume is closed when `umount` returns.

use crate::shared::Shared;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// The mounts of a server that ends when all of them are gone.
#[derive(Default)]
pub struct Fellows {
    all: Mutex<Vec<Weak<Shared>>>,
    complete: AtomicBool,
}

impl Fellows {
    /// There are no more to come: from now on the server ends when they are gone.
    pub fn are_complete(&self) {
        self.complete.store(true, Ordering::SeqCst);
    }

    pub(crate) fn add(&self, shared: &Arc<Shared>) {
        let mut all = self.all.lock().expect("nobody panics while holding it");
        all.push(Arc::downgrade(shared));
    }

    /// Does the server end now, as one of them does?
    fn are_gone(&self, ends: &Arc<Shared>) -> bool {
        let all = self.all.lock().expect("nobody panics while holding it");
        let one = all.iter().filter(|s| s.as_ptr() == Arc::as_ptr(ends)).count();
        assert_eq!(one, 1, "F8: how often a mount that ends is one of {}", all.len());
        let gone = |s: &Weak<Shared>| s.upgrade().is_none_or(|s| s.has_ended());
        self.complete.load(Ordering::SeqCst) && all.iter().all(gone)
    }
}

impl Shared {
    /// DESTROY has come. True: it is to be answered. If two are unmounted at once, each says that
    /// it has ended before it looks for the other, so at least one of them is not answered.
    pub(crate) fn is_destroyed(self: &Arc<Shared>) -> bool {
        if self.ended.swap(true, Ordering::SeqCst) {
            return true; // we unmount it ourselves, and wait for the answer
        }
        if self.fellows.are_gone(self) {
            return false;
        }
        let shared = self.clone();
        let later = move || shared.take_back();
        let thread = std::thread::Builder::new().name("claim".into()).spawn(later);
        if let Err(e) = thread {
            tracing::warn!("the device is not claimed again: {e}");
        }
        true
    }

    /// The mount is gone, or will be at once: its device is claimed by the server itself again.
    pub(crate) fn take_back(&self) {
        let Some(device) = self.device.as_ref() else { return };
        if let Err(e) = device.take_back_soon() {
            tracing::warn!("{}: another program has it by now: {e}", device.path().display());
        }
    }
}

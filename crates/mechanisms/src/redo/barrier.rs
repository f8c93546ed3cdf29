//! The barrier: keeps operations from beginning, for whoever waits until none is open. It decides
//! about nobody who has begun.

use super::Redo;

/// Keeps operations from beginning while others are open, until dropped; `shut`: then too.
pub(super) struct Barrier<'a> {
    redo: &'a Redo,
    shut: bool,
}

impl<'a> Barrier<'a> {
    pub(super) fn new(redo: &'a Redo, shut: bool) -> Barrier<'a> {
        redo.barrier.set(redo.barrier.get() + 1);
        redo.shut.set(redo.shut.get() + u32::from(shut));
        let (shut_by, barred_by) = (redo.shut.get(), redo.barrier.get());
        assert!(shut_by <= barred_by, "I11: {shut_by} shut all out, and {barred_by} bar them");
        Barrier { redo, shut }
    }
}

impl Drop for Barrier<'_> {
    fn drop(&mut self) {
        let redo = self.redo;
        assert!(redo.barrier.get() > 0, "a barrier that stands is taken away once");
        assert!(redo.shut.get() >= u32::from(self.shut), "a shut barrier is taken away once");
        redo.barrier.set(redo.barrier.get() - 1);
        redo.shut.set(redo.shut.get() - u32::from(self.shut));
        assert!(redo.shut.get() <= redo.barrier.get(), "who shuts is one of those who bar");
        if redo.barrier.get() == 0 || redo.shut.get() == 0 {
            redo.unbarred.wake_all();
        }
    }
}

impl Redo {
    /// May nobody begin now?
    pub(super) fn is_barred(&self) -> bool {
        let open = !self.state.borrow().open.is_empty();
        self.shut.get() > 0 || (self.barrier.get() > 0 && open)
    }
}

//! What is remembered of operations goes when they are durable, and nothing is left when all are;
//! what they have freed is kept until then. It knows no order.

use super::SoftUpdates;
use integrity::{Change, TxnId, invariant};

impl SoftUpdates {
    /// What is taken is not held for an operation that freed it: the allocator has asked.
    pub(super) fn check_free(&self, change: &Change) {
        let free = self.busy.borrow().allows(change);
        invariant!(self.plant, free, "I4: {change:?} before nothing points at what was there");
    }

    /// What the operation has freed is about to be used again.
    pub(super) fn check_release(&self, txn: TxnId) {
        let waits = self.graph.borrow().first_before_release(txn);
        invariant!(self.plant, waits.is_none(), "I4: {txn} is released before {waits:?}");
    }

    /// Forgets what is remembered of operations that are durable.
    pub(super) fn sweep(&self) {
        let gone = self.graph.borrow_mut().take_gone();
        let graph = self.graph.borrow();
        if let Some(intents) = &self.intents {
            intents.expire(|txn| graph.operation(txn).is_some());
        }
        self.directories.borrow_mut().sweep(&graph);
        self.lives.borrow_mut().sweep(gone);
        self.latest.borrow_mut().sweep(&graph, self.plant);
    }

    /// Everything is durable: nothing may be remembered of any operation.
    pub(super) fn check_quiet(&self) {
        self.sweep();
        self.graph.borrow().check_empty();
        let open = self.open.borrow().first().map(|(txn, _)| *txn);
        assert!(open.is_none(), "operation {open:?} of a closed volume has not ended");
        assert!(self.busy.borrow().is_empty(), "I4: a closed volume keeps what was freed");
        assert!(self.directories.borrow().is_empty(), "I5: a name waits for what is durable");
        assert!(self.lives.borrow().is_empty(), "I10: a file that is durable could be forgotten");
        self.latest.borrow().check_empty();
    }
}

#[cfg(test)]
mod tests {
    use crate::{Mode, Recipe, build, testing};
    use env::{DiskError, DiskErrorKind};
    use integrity::{Credits, Plant};
    use std::task::{Context, Poll, Waker};

    /// I8 here, I6 of ordered synchronous writes.
    #[test]
    fn nothing_begins_after_a_failure() {
        for mode in [Mode::SoftUpdates, Mode::Sync, Mode::Async] {
            let cache = testing::cache();
            let (log, journal, groups, intents) = (None, None, None, None);
            let plant = Plant::NONE;
            let recipe = Recipe { cache: cache.clone(), plant, log, journal, groups, intents };
            let made = build(mode, &recipe).expect("it needs nothing else");
            let begins = || {
                let mut begin = made.begin(Credits::blocks(1));
                match begin.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(begun) => begun.is_ok(),
                    Poll::Pending => panic!("nobody is to be waited for"),
                }
            };
            assert!(begins());
            let (kind, detail) = (DiskErrorKind::Io, String::new());
            cache.fail(&DiskError { kind, during: "a test", at: 0, detail });
            assert!(!begins(), "I8: an operation of mode {mode} begins");
        }
    }
}

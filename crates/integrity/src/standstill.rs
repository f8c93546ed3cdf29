//! Standing still: nobody is in the middle of a change, and who wants to begin one waits. So that
//! what is on the disk, once all of it is written, is the volume of one moment (for a copy of a
//! volume in use). It knows no mechanism: whoever begins transactions enters here first.
//!
//! Invariants  H1 while it is held, nobody enters; who was inside before is waited for.
//!             H2 it is held by one at a time, and only he lets go of it, or everybody at the end.

use env::sync::Notify;
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

/// Names one holding of it, to let go with.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hold(u64);

/// Who is inside, and whether anybody may enter.
#[derive(Default)]
pub struct Standstill {
    held: Cell<Option<Hold>>,
    last: Cell<Hold>,
    inside: Cell<u64>,
    changed: Notify,
}

/// A transaction that has entered, until this is dropped.
pub struct Inside(Rc<Standstill>);

impl Standstill {
    /// Waits while it is held.
    pub async fn enter(self: &Rc<Standstill>) -> Inside {
        while self.is_held() {
            self.changed.wait().await;
        }
        assert!(!self.is_held(), "H1: entered while it is held");
        self.inside.set(self.inside.get() + 1);
        Inside(self.clone())
    }

    /// Would who enters wait?
    pub fn is_held(&self) -> bool {
        self.held.get().is_some()
    }

    /// From now on nobody enters. What to let go with; None: another one holds it (H2).
    pub fn hold(&self) -> Option<Hold> {
        if self.is_held() {
            return None;
        }
        self.last.set(Hold(self.last.get().0 + 1));
        self.held.set(Some(self.last.get()));
        self.held.get()
    }

    /// Waits until nobody is inside.
    pub async fn empty(&self) {
        while self.inside.get() > 0 {
            self.changed.wait().await;
        }
    }

    /// Is it held by this one still, and nobody inside?
    pub fn is_still(&self, hold: Hold) -> bool {
        self.held.get() == Some(hold) && self.inside.get() == 0
    }

    /// Lets those in who wait. False: this one holds it no more, so others have entered (H2).
    pub fn release(&self, hold: Hold) -> bool {
        let held = self.held.get() == Some(hold);
        if held {
            self.release_anyhow();
        }
        held
    }

    /// Lets go, whoever holds it: the volume is closed.
    pub fn release_anyhow(&self) {
        self.held.set(None);
        self.changed.wake_all();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        assert!(self.0.inside.get() > 0, "H1: who leaves has entered");
        let left = self.0.inside.get() - 1;
        self.0.inside.set(left);
        if left == 0 && self.0.is_held() {
            self.0.changed.wake_all();
        }
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inside")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn poll<T>(f: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        f.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn who_is_inside_is_waited_for_and_nobody_enters_meanwhile() {
        let still = Rc::new(Standstill::default());
        let Poll::Ready(first) = poll(pin!(still.enter())) else { panic!("nobody holds it") };
        let hold = still.hold().expect("nobody holds it");
        assert!(still.hold().is_none(), "H2: two hold it");
        let mut empty = pin!(still.empty());
        assert!(poll(empty.as_mut()).is_pending() && !still.is_still(hold));
        let mut second = pin!(still.enter());
        assert!(poll(second.as_mut()).is_pending(), "H1: entered while it is held");
        drop(first);
        assert!(poll(empty).is_ready() && still.is_still(hold));
        assert!(poll(second.as_mut()).is_pending(), "H1: entered while it is held");
        assert!(still.release(hold) && !still.release(hold), "H2: let go of once");
        assert!(poll(second).is_ready());
    }

    #[test]
    fn who_was_late_does_not_let_go_of_what_another_holds() {
        let still = Rc::new(Standstill::default());
        let late = still.hold().expect("nobody holds it");
        still.release_anyhow();
        let next = still.hold().expect("nobody holds it");
        assert!(!still.release(late), "H2: that is another's");
        assert!(still.is_still(next));
    }
}

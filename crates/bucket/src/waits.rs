//! Who waits until a group is durable: each is woken when his is, and not whenever something ends.
//! With hundreds who wait for every object that is most of what waiting costs.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// All who wait, by the group's number and a number of their own.
#[derive(Default)]
pub(crate) struct Waits {
    all: RefCell<BTreeMap<(u64, u64), Waker>>,
    count: Cell<u64>,
}

/// A place among them; a task that is dropped while it waits gives it up.
struct Place<'a>(&'a Waits, (u64, u64));
impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.all.borrow_mut().remove(&self.1);
    }
}

impl Waits {
    /// Waits for the next [`Waits::wake_to`] that reaches this group.
    pub(crate) async fn wait(&self, group: u64) {
        self.count.set(self.count.get() + 1);
        let place = Place(self, (group, self.count.get()));
        let mut waited = false;
        poll_fn(|cx| {
            let mut all = self.all.borrow_mut();
            if waited && !all.contains_key(&place.1) {
                return Poll::Ready(());
            }
            waited = true;
            all.insert(place.1, cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Wakes those who wait for this group, or for one before it.
    pub(crate) fn wake_to(&self, group: u64) {
        let woken = {
            let mut all = self.all.borrow_mut();
            let later = all.split_off(&(group + 1, 0));
            std::mem::replace(&mut *all, later)
        };
        woken.into_values().for_each(Waker::wake);
    }

    /// Wakes all.
    pub(crate) fn wake_all(&self) {
        let woken = std::mem::take(&mut *self.all.borrow_mut());
        woken.into_values().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn each_is_woken_when_his_group_is_reached_and_leaves_nothing() {
        let waits = Waits::default();
        let cx = &mut Context::from_waker(Waker::noop());
        let (mut first, mut second) = (pin!(waits.wait(3)), pin!(waits.wait(5)));
        assert!(first.as_mut().poll(cx).is_pending() && second.as_mut().poll(cx).is_pending());
        waits.wake_to(4);
        assert!(first.poll(cx).is_ready() && second.as_mut().poll(cx).is_pending());
        {
            let mut third = pin!(waits.wait(9));
            assert!(third.as_mut().poll(cx).is_pending());
        }
        assert_eq!(waits.all.borrow().len(), 1, "who was dropped waits no more");
        waits.wake_all();
        assert!(second.poll(cx).is_ready() && waits.all.borrow().is_empty());
    }
}

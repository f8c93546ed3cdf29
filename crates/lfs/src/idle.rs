//! Cleaning in idle time: when nothing was asked for a while and few segments are free, a few
//! victims are emptied at a time, until something is asked again; and where emptied segments are
//! given back to the disk below, the checkpoints are taken that this waits for. It knows no policy,
//! and nothing of who asks.
//!
//! Rule        It begins when nothing was asked for [`QUIET`] and fewer segments are free than
//!             `begin`, and goes on until `enough` are, or no segment is left of which a quarter is
//!             dead. It ends at once when something is asked: at most one request of its own is
//!             under way then. What has been emptied by then is free after the next checkpoints:
//!             where it is given back, two of them at most are taken when cleaning has ended.
//! Cost        Nothing where nothing was changed since it last looked: no timer runs then. A disk
//!             that takes much longer than it should is busy with something else, and left alone.
//!             What is given back costs two checkpoints each time that changes come to rest.

use crate::clean::Pass;
use crate::policy::{Candidate, Policy};
use crate::state::State;
use crate::store::{Inner, Store};
use env::{DiskError, Nanos};
use std::rc::Rc;

/// When segments are cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cleaning {
    /// When nothing else is asked for, and when free segments get few.
    #[default]
    Idle,
    /// When free segments get few.
    Pressure,
    /// Never: only what is empty is used again.
    Off,
}

impl Cleaning {
    /// Each with its name.
    pub const ALL: [(&'static str, Cleaning); 3] =
        [("idle", Cleaning::Idle), ("pressure", Cleaning::Pressure), ("off", Cleaning::Off)];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Cleaning> {
        Cleaning::ALL.iter().find(|c| c.0 == name).map(|c| c.1)
    }
}

/// Nothing was asked for so long.
const QUIET: Nanos = Nanos::from_secs(2);
/// Victims that are read before what lives in them is moved.
pub(crate) const VICTIMS: u32 = 8;
/// A disk that takes so many times as long as it should is busy.
const SLOW: f64 = 8.0;
/// After so many checkpoints all that was empty before them is free (I2).
const CHECKPOINTS: u32 = 2;

/// Fewer free segments than these, and it begins.
pub(crate) fn begin(s: &State) -> u32 {
    s.reserve() + s.geometry.segments / 8
}
/// So many are enough.
fn enough(s: &State) -> u32 {
    s.reserve() + s.geometry.segments / 4
}

/// Is a quarter of it dead? Others are left: to move what lives would cost more than it gives.
pub(crate) fn is_worth_it(c: &Candidate) -> bool {
    u64::from(c.live) * 4 <= u64::from(c.blocks) * 3
}

/// What is known of idle time.
#[derive(Default)]
pub(crate) struct Idle {
    /// Requests so far, those under way, and when the last ended.
    pub(crate) asked: u64,
    under_way: u32,
    last: Nanos,
    /// A task waits for idle time, or uses it.
    watching: bool,
    /// It uses it.
    working: bool,
    /// The store is being closed: nothing is begun any more.
    pub(crate) closing: bool,
    /// Nothing is done by itself before.
    pub(crate) still: Nanos,
}

/// A request that is under way.
pub(crate) struct Asking<'a>(&'a Inner);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let idle = &mut self.0.state.borrow_mut().idle;
        idle.under_way -= 1;
        idle.last = idle.last.max(self.0.env.now());
    }
}

/// How cleaning in idle time ended.
pub(crate) enum Ended {
    /// Something was asked, or the disk is busy.
    Disturbed,
    /// Enough segments are free, or nothing is to be gained.
    Done,
}

impl Inner {
    /// Something is asked of the store, until what is returned is dropped.
    pub(crate) fn asked(&self) -> Asking<'_> {
        let s = &mut *self.state.borrow_mut();
        s.idle.asked += 1;
        s.idle.under_way += 1;
        Asking(self)
    }

    /// Has something been asked since there were `asked` requests? None: it does not matter.
    pub(crate) fn is_disturbed(&self, asked: Option<u64>) -> bool {
        let s = self.state.borrow();
        asked.is_some_and(|n| s.idle.asked != n || s.idle.closing || s.cleaning)
    }

    /// Something was changed: idle time may be of use afterwards.
    pub(crate) fn watch_for_idle_time(self: &Rc<Self>) {
        {
            let s = &mut *self.state.borrow_mut();
            let wanted = self.options.cleaning == Cleaning::Idle && !self.options.read_only;
            if !wanted || s.idle.watching || s.idle.closing {
                return;
            }
            s.idle.watching = true;
        }
        let store = self.clone();
        self.env.spawn("idle time", async move { store.use_idle_time().await });
    }

    /// The task.
    async fn use_idle_time(self: Rc<Self>) {
        loop {
            let quiet = {
                let s = self.state.borrow();
                let last = if s.idle.under_way > 0 { self.env.now() } else { s.idle.last };
                last.plus(QUIET)
            };
            if self.env.now() < quiet {
                self.env.sleep_until(quiet).await;
                continue;
            }
            if self.state.borrow().idle.closing {
                break;
            }
            self.state.borrow_mut().idle.working = true;
            let asked = self.state.borrow().idle.asked;
            let ended = match self.clean_while_idle(asked).await {
                Ok(Ended::Done) => match self.reorganise_while_idle(asked).await {
                    Ok(Ended::Done) => self.give_back_while_idle(asked).await,
                    other => other,
                },
                other => other,
            };
            self.state.borrow_mut().idle.working = false;
            self.changed.wake_all();
            match ended {
                Ok(Ended::Disturbed) => {
                    let later = self.env.now().plus(QUIET);
                    self.env.sleep_until(later).await;
                }
                Ok(_) => break,
                Err(e) => {
                    self.cleaning_failed(e);
                    break;
                }
            }
        }
        let was = std::mem::replace(&mut self.state.borrow_mut().idle.watching, false);
        assert!(was, "two tasks have waited for idle time");
        self.changed.wake_all();
    }

    /// Is anything done that nobody has asked for just now?
    fn is_at_work(&self) -> bool {
        let s = self.state.borrow();
        s.failed.is_none() && (s.cleaning || s.reclaiming || s.folding || s.checkpoint_wanted)
    }

    /// Waits until nothing is done in idle time any more.
    async fn leave_idle_time(&self) {
        while self.state.borrow().idle.working {
            self.changed.wait().await;
        }
    }

    async fn clean_while_idle(self: &Rc<Self>, asked: u64) -> Result<Ended, DiskError> {
        self.check_failed()?;
        let asked = Some(asked);
        if self.state.borrow().spare() >= begin(&self.state.borrow()) {
            return Ok(Ended::Done);
        }
        loop {
            if self.is_disturbed(asked) {
                return Ok(Ended::Disturbed);
            }
            let (wanted, waiting) = {
                let s = self.state.borrow();
                (enough(&s).saturating_sub(s.spare()), s.usage.waiting_count())
            };
            if wanted == 0 {
                return Ok(Ended::Done);
            }
            let policy = self.options.policy;
            let policy = if policy.plugs() { Policy::default() } else { policy };
            let pass = Pass { policy, wanted: wanted.min(VICTIMS), idle: asked };
            let (begun, before) = (self.env.now(), self.state.borrow().stats);
            let emptied = if waiting < wanted { self.clean_pass(pass).await? } else { 0 };
            self.state.borrow_mut().stats.cleaned_idle += u64::from(emptied);
            if emptied == 0 && waiting == 0 {
                let disturbed = self.is_disturbed(asked);
                return Ok(if disturbed { Ended::Disturbed } else { Ended::Done });
            }
            let slow = self.is_slow(begun, before.read_to_clean, before.moved);
            if slow || self.is_disturbed(asked) {
                return Ok(Ended::Disturbed);
            }
            let before = self.state.borrow().spare();
            self.checkpoint().await?;
            self.checkpoint().await?;
            if self.state.borrow().spare() <= before {
                return Ok(Ended::Done);
            }
        }
    }

    /// Are there emptied segments that are to be given back, after checkpoints to come?
    fn has_to_give_back(&self) -> bool {
        self.options.discard && self.state.borrow().usage.waiting_count() > 0
    }

    /// Takes the checkpoints after which what is empty now is given back.
    async fn give_back_while_idle(self: &Rc<Self>, asked: u64) -> Result<Ended, DiskError> {
        for _ in 0..CHECKPOINTS {
            if !self.has_to_give_back() {
                break;
            }
            if self.is_disturbed(Some(asked)) {
                return Ok(Ended::Disturbed);
            }
            self.checkpoint().await?;
        }
        // What was changed meanwhile may have emptied more.
        let disturbed = self.is_disturbed(Some(asked));
        Ok(if disturbed { Ended::Disturbed } else { Ended::Done })
    }

    /// A store was opened: is there anything to be given back?
    pub(crate) fn watch_what_is_empty(self: &Rc<Self>) {
        if self.has_to_give_back() {
            self.watch_for_idle_time();
        }
    }

    /// Did the disk take much longer for what was read and moved since `begun` than it should?
    fn is_slow(&self, begun: Nanos, read: u64, moved: u64) -> bool {
        let s = self.state.borrow();
        let blocks = s.stats.read_to_clean - read + s.stats.moved - moved;
        let segments = blocks as f64 / f64::from(self.geometry.segment_blocks);
        let took = self.env.now().since(begun).0 as f64;
        took > SLOW * (segments + 2.0) * s.planner.costs().segment
    }
}

impl Store {
    /// Idle time is not used before `until`, nor is what deleted snapshots had freed: somebody else
    /// reads the disk. Nothing is done in idle time any more when this returns.
    pub async fn be_still(&self, until: Nanos) {
        {
            let s = &mut *self.inner.state.borrow_mut();
            s.idle.still = until;
            s.idle.asked += 1;
            s.idle.last = s.idle.last.max(until);
        }
        self.inner.changed.wake_all();
        self.inner.leave_idle_time().await;
    }

    /// Ends what is done in the background, and writes a checkpoint, or two where something empty
    /// is to be given back: nothing is written after it by itself, and the next opening follows no
    /// log. What deleted snapshots still have is freed when the store is opened next.
    pub async fn close(&self) -> Result<(), DiskError> {
        self.inner.state.borrow_mut().idle.closing = true;
        self.inner.changed.wake_all();
        self.inner.leave_idle_time().await;
        while self.inner.is_at_work() {
            self.inner.changed.wait().await;
        }
        self.inner.checkpoint().await?;
        if self.inner.has_to_give_back() {
            self.inner.checkpoint().await?;
        }
        assert!(!self.inner.is_at_work(), "a closed store does nothing by itself");
        Ok(())
    }
}

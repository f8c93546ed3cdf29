//! Waiting for durability. Whoever waits shares a partial segment and a flush with all who wait at
//! the same time; what nobody waits for goes out by itself soon.

use super::{GroupId, Lfs};
use crate::redo::serials::Serial;
use env::Nanos;
use integrity::{IntegrityError, Scope, invariant};
use std::rc::Rc;

/// What nobody waits for is made durable so long after it has ended.
pub(super) const SEND_AFTER: Nanos = Nanos::from_millis(10);

/// Keeps operations from beginning while others are open, until dropped.
struct Barrier<'a>(&'a Lfs);

impl<'a> Barrier<'a> {
    fn new(lfs: &'a Lfs) -> Barrier<'a> {
        lfs.barrier.set(lfs.barrier.get() + 1);
        Barrier(lfs)
    }
}

impl Drop for Barrier<'_> {
    fn drop(&mut self) {
        assert!(self.0.barrier.get() > 0, "a barrier that stands is taken away once");
        self.0.barrier.set(self.0.barrier.get() - 1);
        self.0.unbarred.wake_all();
    }
}

impl Lfs {
    /// Waits until everything up to this serial is durable (I5).
    pub(super) async fn wait(&self, serial: Serial) -> Result<(), IntegrityError> {
        let given = self.state.borrow().given;
        assert!(serial <= given, "I5: {serial:?} would be waited for in vain, {given:?} has ended");
        loop {
            self.check()?;
            let group = {
                let s = self.state.borrow();
                if s.durable >= serial {
                    return Ok(());
                }
                s.groups.iter().find(|(last, _)| *last >= serial).map(|(_, group)| *group)
            };
            match group {
                Some(group) => self.flush(group).await?,
                None => self.push_out().await?,
            }
        }
    }

    async fn flush(&self, group: GroupId) -> Result<(), IntegrityError> {
        self.store.flush(group).await.map_err(|e| {
            self.cache.fail(&e);
            IntegrityError::from(e)
        })?;
        let s = &mut *self.state.borrow_mut();
        while let Some((last, _)) = s.groups.front().filter(|(_, g)| *g <= group) {
            let before = s.durable;
            assert!(before < *last, "I5: {last:?} becomes durable after {before:?}");
            s.durable = *last;
            s.groups.pop_front();
        }
        assert!(s.durable <= s.put, "I5: what is durable was put");
        Ok(())
    }

    /// Brings the queue a step further.
    async fn push_out(&self) -> Result<(), IntegrityError> {
        self.put_ready().await?;
        let (empty, waits) = {
            let s = self.state.borrow();
            (s.queue.is_empty() && !self.putting.get(), s.queue.waits(&s.open))
        };
        if waits {
            // Nobody begins until those who are mixed with it have ended.
            let _barrier = Barrier::new(self);
            self.changed.wait().await;
        } else if !empty {
            self.changed.wait().await; // somebody else is putting it
        }
        Ok(())
    }

    pub(super) async fn sync_scope(&self, scope: Scope) -> Result<(), IntegrityError> {
        let serial = {
            let s = self.state.borrow();
            match scope {
                Scope::Txn(ended) => ended.into(),
                // Of what has ended since, only what concerns these files is waited for.
                Scope::Files { files, .. } => {
                    let newest = |f: &integrity::FileScope| s.files.get(&u64::from(f.ino.0));
                    files.iter().filter_map(newest).copied().max().unwrap_or(Serial::NONE)
                }
                Scope::All => s.given,
            }
        };
        self.wait(serial).await?;
        let durable = self.state.borrow().durable;
        invariant!(self.plant, serial <= durable, "I5: {serial:?} is promised of {durable:?}");
        Ok(())
    }

    /// Makes durable what has ended and nobody waits for, soon, by a task that lives as long as
    /// there is some. Between two rounds lies at least as much time as the last one took.
    pub(super) fn send_soon(&self) {
        if self.sending.replace(true) {
            return;
        }
        let (lfs, env) = (self.me.clone(), self.cache.env().clone());
        let mut pause = self.send_after;
        self.cache.env().spawn("groups sent", async move {
            loop {
                env.sleep(pause).await;
                let Some(lfs) = lfs.upgrade() else { return };
                let began = env.now();
                let put = lfs.state.borrow().put;
                // A failure is sticky and known to the cache.
                let failed = lfs.wait(put).await.is_err();
                let all = {
                    let s = lfs.state.borrow();
                    s.durable >= s.given
                };
                if failed || all || lfs.stopping.get() {
                    assert!(lfs.sending.replace(false), "two tasks send out what has ended");
                    return;
                }
                pause = lfs.send_after.max(env.now().since(began));
            }
        });
    }

    /// Makes durable what has ended, as a task that does so within every interval.
    pub(super) fn start_clock(self: &Rc<Self>, interval: Nanos) {
        let (lfs, env) = (Rc::downgrade(self), self.cache.env().clone());
        self.cache.env().spawn("groups by time", async move {
            loop {
                env.sleep(Nanos((interval.0 / 2).max(1))).await;
                let Some(lfs) = lfs.upgrade() else { return };
                if lfs.stopping.get() || lfs.check().is_err() {
                    return;
                }
                let given = lfs.state.borrow().given;
                // A failure is sticky and known to the cache.
                let _ = lfs.wait(given).await;
            }
        });
    }

    /// Everything durable.
    pub(super) async fn shut(&self) -> Result<(), IntegrityError> {
        let open = self.state.borrow().open.has_edits();
        assert!(!open, "operations end before the volume is closed");
        self.stopping.set(true);
        let given = self.state.borrow().given;
        self.wait(given).await?;
        self.cache.write_all().await?;
        let s = self.state.borrow();
        assert!(s.queue.is_empty(), "I1: a closed volume has put all groups");
        let (put, durable) = (s.put, s.durable);
        let all = put == given && durable == given;
        invariant!(self.plant, all, "I5: {put:?} of {given:?} is put, {durable:?} durable");
        let groups = s.groups.len();
        assert_eq!(groups, 0, "I5: of a closed volume {groups} groups may not be durable");
        let waits = s.waiting.len();
        assert_eq!(waits, 0, "I3: {waits} blocks of a closed volume wait for groups");
        assert!(s.busy.is_empty(), "I4: a closed volume keeps what was freed");
        Ok(())
    }
}

//! The checker beside service, as a task of the volume's engine: when a pass begins, and what its
//! end means for the volume. What a pass does is `ufs`'s and `ext`'s business.

use check::live::Candidates;
use env::sync::Notify;
use env::{Nanos, unless};
use ext::Ext;
use std::cell::Cell;
use std::rc::Rc;
use ufs::store::StoreInfo;
use ufs::{Pace, Pass, Ufs};

/// Passes of one volume.
pub(crate) struct Scrubber {
    ufs: Rc<Ufs<Ext>>,
    pace: Pace,
    /// Has a crash left space that is not given back yet? Then the volume is not marked as clean.
    leaks: Cell<bool>,
    running: Cell<bool>,
    /// A pass has ended, or all are to end.
    changed: Notify,
}

impl Scrubber {
    /// Nothing runs yet. `leaks`: a crash has left space to be given back.
    pub(crate) fn new(ufs: &Rc<Ufs<Ext>>, leaks: bool) -> Rc<Scrubber> {
        StoreInfo::watch(&**ufs.store()).into_iter().for_each(|w| w.set_doubtful(leaks));
        Rc::new(Scrubber {
            ufs: ufs.clone(),
            pace: Pace::default(),
            leaks: Cell::new(leaks),
            running: Cell::new(false),
            changed: Notify::new(),
        })
    }

    /// Is there space that a crash has left?
    pub(crate) fn leaks(&self) -> bool {
        self.leaks.get()
    }

    /// Looks at what a journal of intents names, before anybody uses the volume. If that does not
    /// come to a good end, the whole volume is looked at while it is in use. Errors: the device's.
    pub(crate) async fn look_at(&self, candidates: Candidates) -> Result<(), String> {
        let store = self.ufs.store();
        assert!(!self.running.get(), "V6: what intents name is looked at beside a pass");
        let (named, began) = (candidates.len(), store.env().now());
        let pace = Pace::default();
        pace.frees_nameless.set(true);
        let done = self.ufs.scrub_candidates(&pace, candidates).await;
        let whole = matches!(done, Ok(Pass::Done(0)));
        store.mechanism().looked_at(whole).await.map_err(|e| format!("intents: {e}"))?;
        if let Err(e) = &done {
            tracing::warn!("what the journal of intents names could not be looked at: {e}");
        }
        if whole {
            let (blocks, inodes, mended) = self.given();
            let took = store.env().now().since(began);
            tracing::info!(
                "what a crash has left was found by the journal of intents: {named} places looked \
                 at in {} ms, {blocks} blocks and {inodes} inodes given back, {mended} counts and \
                 names mended",
                took.0 / 1_000_000
            );
            self.leaks.set(false);
            StoreInfo::watch(&**store).into_iter().for_each(|w| w.set_doubtful(false));
        }
        Ok(())
    }

    /// Begins a pass now if a crash has left something, and others whenever `every` has passed.
    pub(crate) fn run(self: &Rc<Self>, every: Option<Nanos>) {
        if self.leaks() {
            self.start();
        }
        let Some(every) = every else { return };
        let me = self.clone();
        self.ufs.store().env().spawn("scrub timer", async move {
            let env = me.ufs.store().env().clone();
            let mut next = env.now().plus(every);
            while !me.pace.stop.get() {
                // A pass that ends wakes this too.
                if unless(me.changed.wait(), env.sleep_until(next)).await.is_none() {
                    me.start();
                    next = env.now().plus(every);
                }
            }
        });
    }

    /// Begins a pass, unless one is under way or all are to end.
    pub(crate) fn start(self: &Rc<Self>) {
        if self.running.get() || self.pace.stop.get() {
            return;
        }
        self.running.set(true);
        let me = self.clone();
        self.ufs.store().env().spawn("scrub", async move {
            me.pass().await;
            assert!(me.running.replace(false), "V6: two passes look at one volume");
            me.changed.wake_all();
        });
    }

    /// Ends what is under way, and begins no more.
    pub(crate) async fn stop(&self) {
        self.pace.stop.set(true);
        self.changed.wake_all();
        while self.running.get() {
            self.changed.wait().await;
        }
    }

    async fn pass(&self) {
        self.pace.frees_nameless.set(self.leaks());
        self.pace.rests.set(true);
        if self.leaks() {
            tracing::info!("checking what a crash has left, while the volume is in use");
        }
        let before = self.given();
        match self.ufs.scrub(&self.pace).await {
            Ok(Pass::Done(left)) => {
                let (blocks, inodes, mended) = self.given();
                let more = blocks >= before.0 && inodes >= before.1 && mended >= before.2;
                assert!(more, "V6: a pass takes back what others gave: {before:?}, now {blocks}");
                tracing::info!(
                    "checked while in use: {} blocks and {} inodes given back, {} counts and names \
                     mended, {left} things left to cairn fsck --repair",
                    blocks - before.0,
                    inodes - before.1,
                    mended - before.2,
                );
                self.leaks.set(self.leaks() && left > 0);
                let watch = StoreInfo::watch(&**self.ufs.store());
                watch.into_iter().for_each(|w| w.set_doubtful(self.leaks()));
            }
            Ok(Pass::Stopped) => tracing::info!("the check beside service was stopped"),
            Err(e) => tracing::error!("the check beside service has ended: {e}"),
        }
    }

    fn given(&self) -> (u64, u64, u64) {
        let Some(watch) = StoreInfo::watch(&**self.ufs.store()) else { return (0, 0, 0) };
        let t = &watch.tally;
        (t.blocks.get(), t.inodes.get(), t.mended.get())
    }
}

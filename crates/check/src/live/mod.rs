//! The checker beside service: what a pass over a volume in use has to know, without any I/O. The
//! pass (crates/ufs/src/scrub) reads inode after inode under its lock and tells the *census* what
//! each holds and names; operations that go on meanwhile tell it what they change, by the *watch*.
//! (The background fsck of mckusick-2002, without its snapshot.)
//!
//! Rule        Nothing is judged that may have changed since the pass began.
//! Invariants  L1 a block that was taken or freed since the pass began is no leak, and has no two
//!             owners: it is *fresh*, as is an inode; neither is judged.
//!             L2 names that are counted are those of the directories read so far, as they are now:
//!             a directory is read whole under its lock, and every change of it afterwards is
//!             followed.
//!             L3 the pass begins when every transaction that was open at its beginning has ended.
//!             L5 what is changed is judged once more under the locks of those it is about: a
//!             directory may be on its way, or have lost its name and be held.

mod candidates;
mod census;
mod partial;
mod sets;

pub use candidates::{Candidates, Named, Was};
pub use census::{Census, Mend, Names};
use env::sync::Notify;
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::BTreeSet;

/// The bugs that can be planted in the checker, in every mode that has it run after a crash.
pub const PLANTS: &[&str] = &[
    "checker-judges-new-blocks",
    "checker-trusts-stale-pass",
    "reclaims-before-durable",
    "checker-forgets-attributes",
];

/// What a pass has done and found, for whoever watches it.
#[derive(Default, Debug)]
pub struct Tally {
    /// Passes that have come to their end.
    pub passes: Cell<u64>,
    /// Block groups whose inodes have been read in this pass, or in the last one.
    pub groups_done: Cell<u64>,
    /// Block groups there are.
    pub groups: Cell<u64>,
    /// Blocks given back.
    pub blocks: Cell<u64>,
    /// Inodes given back.
    pub inodes: Cell<u64>,
    /// Counts of links, users and blocks set right, and directories' names and parents mended.
    pub mended: Cell<u64>,
    /// Inodes and runs of blocks that intents have named, and that were looked at.
    pub candidates: Cell<u64>,
    /// What a pass has found and left to `cairn fsck --repair`.
    pub left: Cell<u64>,
}

impl Tally {
    /// Adds to one of its counters.
    pub fn add(counter: &Cell<u64>, n: u64) {
        counter.set(counter.get() + n);
    }
}

/// Where operations tell what they change, while a pass is under way.
#[derive(Default)]
pub struct Watch {
    plant: Option<&'static str>,
    census: RefCell<Option<Census>>,
    /// Open transactions, by the number each got at its beginning.
    open: RefCell<BTreeSet<u64>>,
    last: Cell<u64>,
    /// May a crash have left directories with two names, which no pass has looked for yet?
    doubtful: Cell<bool>,
    ended: Notify,
    /// What passes have done.
    pub tally: Tally,
}

impl Watch {
    /// Nothing is under way. `plant`: a bug, for the crash explorer.
    pub fn new(plant: Option<&'static str>) -> Watch {
        Watch { plant, ..Watch::default() }
    }

    /// Is this bug planted?
    pub fn is_planted(&self, name: &str) -> bool {
        self.plant == Some(name)
    }

    /// Whether a crash may have left directories with two names.
    pub fn set_doubtful(&self, doubtful: bool) {
        self.doubtful.set(doubtful);
    }
    /// May it?
    pub fn is_doubtful(&self) -> bool {
        self.doubtful.get()
    }

    /// A transaction begins; returns its number.
    pub fn begins(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.open.borrow_mut().insert(self.last.get());
        self.last.get()
    }

    /// It has ended.
    pub fn ends(&self, number: u64) {
        let is_open = self.open.borrow_mut().remove(&number);
        assert!(is_open, "L3: transaction {number} ends, and is not open");
        if self.census.borrow().is_some() {
            self.ended.wake_all();
        }
    }

    /// A pass begins over a volume whose blocks have numbers below `blocks`.
    /// Returns when what was open has ended (L3).
    pub async fn start(&self, blocks: u64) {
        self.start_with(Census::new(blocks, self.plant)).await;
    }

    /// The same over what the candidates name, all else being as it should be.
    pub async fn start_partial(&self, blocks: u64, candidates: Candidates) {
        self.start_with(Census::partial(blocks, self.plant, candidates)).await;
    }

    async fn start_with(&self, census: Census) {
        let other = self.census.replace(Some(census));
        assert!(other.is_none(), "L3: a pass begins while another is under way");
        let before = self.last.get();
        while self.open.borrow().first().is_some_and(|n| *n <= before) {
            self.ended.wait().await;
        }
    }

    /// The pass has ended, however.
    pub fn stop(&self) {
        *self.census.borrow_mut() = None;
    }

    /// Tells the census of a change, if a pass is under way.
    pub fn tell(&self, what: impl FnOnce(&mut Census)) {
        if let Some(census) = self.census.borrow_mut().as_mut() {
            what(census);
        }
    }

    /// What passes have done, by the metrics' names.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let t = &self.tally;
        vec![
            ("cairn_scrub_running", u64::from(self.census.borrow().is_some())),
            ("cairn_scrub_passes_total", t.passes.get()),
            ("cairn_scrub_groups", t.groups.get()),
            ("cairn_scrub_groups_done", t.groups_done.get()),
            ("cairn_scrub_blocks_freed_total", t.blocks.get()),
            ("cairn_scrub_inodes_freed_total", t.inodes.get()),
            ("cairn_scrub_mended_total", t.mended.get()),
            ("cairn_scrub_candidates_total", t.candidates.get()),
            ("cairn_scrub_left", t.left.get()),
        ]
    }

    /// The census of the pass under way; for that pass.
    pub fn census(&self) -> Option<Ref<'_, Census>> {
        Ref::filter_map(self.census.borrow(), Option::as_ref).ok()
    }

    /// The same, to tell it what was read.
    pub fn census_mut(&self) -> Option<RefMut<'_, Census>> {
        RefMut::filter_map(self.census.borrow_mut(), Option::as_mut).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn a_pass_begins_when_what_was_open_has_ended() {
        let watch = Watch::new(None);
        let (first, second) = (watch.begins(), watch.begins());
        let mut started = pin!(watch.start(100));
        let mut context = Context::from_waker(Waker::noop());
        let mut is_ready = || started.as_mut().poll(&mut context).is_ready();
        assert!(!is_ready(), "L3: two are open");
        let third = watch.begins();
        watch.ends(second);
        assert!(!is_ready(), "L3: the first is open");
        watch.ends(first);
        assert!(is_ready(), "one that began afterwards is not waited for");
        watch.ends(third);
    }
}

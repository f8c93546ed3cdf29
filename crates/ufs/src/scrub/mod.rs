//! A pass of the checker beside service: every inode is read under its lock while operations go on
//! (survey.rs), then what nothing names or points at is given back, and counts that are too high
//! are lowered, by ordinary transactions (mend.rs). Nothing is ever added: where that would be
//! needed, the volume is damaged, and turns read-only.
//!
//! What one stage takes away is durable before the next stage relies on it: names, then inodes,
//! then counts. Within a stage nothing depends on anything else.

mod mend;
mod partial;
mod survey;

use crate::Ufs;
use crate::store::Scrubbed;
use check::live::{Candidates, Tally, Watch};
use env::{Env, Nanos};
use format::{FormatError, Ino};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use vfs::FsError;

/// How a pass goes about it.
#[derive(Default, Debug)]
pub struct Pace {
    /// Set when the pass is to end as soon as it can.
    pub stop: Cell<bool>,
    /// Are inodes without names a crash's, to be given back? Else they are left to be looked at.
    pub frees_nameless: Cell<bool>,
    /// Does it rest as long as it works?
    pub rests: Cell<bool>,
}

/// How a pass has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// Everything was looked at; so many things are left for a repair by hand.
    Done(u64),
    /// It was stopped.
    Stopped,
}

/// The longest rest.
const REST_MAX: Nanos = Nanos::from_millis(20);

/// A pass under way.
struct Scrub<'a, S: Scrubbed> {
    ufs: &'a Rc<Ufs<S>>,
    watch: &'a Watch,
    pace: &'a Pace,
    /// When it last rested.
    rested: Cell<Nanos>,
    /// What is left to a repair by hand.
    left: RefCell<BTreeSet<Ino>>,
    /// Directories with blocks beyond their ends.
    overlong: RefCell<Vec<Ino>>,
    /// Files with contents beyond their ends, as a cut leaves that has met a read error.
    uncut: RefCell<Vec<Ino>>,
    /// Inodes that do not count the blocks they hold.
    miscounted: RefCell<Vec<Ino>>,
}

/// Why it goes no further.
enum Halt {
    Stopped,
    Failed(FsError),
}
impl From<FsError> for Halt {
    fn from(e: FsError) -> Halt {
        Halt::Failed(e)
    }
}
type Step<T> = Result<T, Halt>;

impl<S: Scrubbed> Ufs<S> {
    /// One pass over the volume. Errors: the device's, or damage, which has turned the volume
    /// read-only; what was found is logged.
    pub async fn scrub(self: &Rc<Self>, pace: &Pace) -> Result<Pass, FsError> {
        self.scrub_what(pace, None).await
    }

    /// The same over what these candidates name; all else is taken to be as it should be.
    pub async fn scrub_candidates(
        self: &Rc<Self>,
        pace: &Pace,
        candidates: Candidates,
    ) -> Result<Pass, FsError> {
        self.scrub_what(pace, Some(candidates)).await
    }

    async fn scrub_what(
        self: &Rc<Self>,
        pace: &Pace,
        candidates: Option<Candidates>,
    ) -> Result<Pass, FsError> {
        let Some(watch) = self.store.watch() else { return Err(FsError::NotSupported) };
        let (rested, left) = (Cell::new(self.store.env().now()), RefCell::default());
        let (overlong, uncut, miscounted) = Default::default();
        let pass = Scrub { ufs: self, watch, pace, rested, left, overlong, uncut, miscounted };
        let ended = match candidates {
            None => pass.run().await,
            Some(c) => pass.run_over(c).await,
        };
        watch.stop();
        match ended {
            Ok(()) => Ok(Pass::Done(pass.left.borrow().len() as u64)),
            Err(Halt::Stopped) => Ok(Pass::Stopped),
            Err(Halt::Failed(e)) => Err(e),
        }
    }
}

impl<S: Scrubbed> Scrub<'_, S> {
    async fn run(&self) -> Step<()> {
        let (store, tally) = (&self.ufs.store, &self.watch.tally);
        let groups = store.group_count();
        tally.groups.set(u64::from(groups));
        tally.groups_done.set(0);
        store.scrub_begins().await;
        for g in 0..groups {
            for ino in store.inodes_in_use(g).await? {
                self.survey(ino).await?;
                self.pause().await?;
            }
            tally.groups_done.set(u64::from(g) + 1);
        }
        self.mend(0..groups).await?;
        self.durable().await?;
        tally.left.set(self.left.borrow().len() as u64);
        Tally::add(&tally.passes, 1);
        Ok(())
    }

    /// The second part of a pass, with the groups whose bitmaps are compared with the census.
    async fn mend(&self, groups: impl IntoIterator<Item = u32>) -> Step<()> {
        if self.mend_names().await? {
            self.durable().await?;
        }
        while self.mend_inodes().await? {
            self.durable().await?;
        }
        self.mend_counts().await?;
        // What has lost its last name while its count was still too high.
        while self.mend_inodes().await? {
            self.durable().await?;
        }
        self.disown_attributes().await?;
        for g in groups {
            Tally::add(&self.watch.tally.blocks, self.ufs.store.give_back(g).await?);
            self.pause().await?;
        }
        Ok(())
    }

    fn env(&self) -> &Env {
        self.ufs.store.env()
    }

    /// Lets others in, and rests as long as it has worked.
    async fn pause(&self) -> Step<()> {
        self.env().yield_now().await;
        if self.pace.stop.get() {
            return Err(Halt::Stopped);
        }
        self.ufs.store.writable()?;
        let worked = self.env().now().since(self.rested.get());
        if self.pace.rests.get() && worked.0 > 0 {
            self.env().sleep(worked.min(REST_MAX)).await;
        }
        self.rested.set(self.env().now());
        Ok(())
    }

    /// What was taken away so far is durable.
    async fn durable(&self) -> Step<()> {
        Ok(self.ufs.store.sync_all().await?)
    }

    /// What no crash leaves: the volume turns read-only.
    fn damage(&self, what: String, at: String) -> Halt {
        Halt::Failed(self.ufs.store.corrupt(&FormatError::corrupt(what, at)))
    }
}

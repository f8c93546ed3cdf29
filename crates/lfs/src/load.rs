//! Loading: the checkpoint with which a store begins, in memory. How the log is followed from there
//! is not here, nor how checkpoints are written.
//!
//! Rule        One checkpoint is enough. A segment is written again, or given back, only behind two
//!             that know it to be empty (I2), and holes are plugged only where neither knows
//!             anything (I12): so what the newer one covers is reached from the older one too, by
//!             the log from there, which is whole. Without a slot nobody knows whether the
//!             checkpoint in it was the newer, the older, or was being written when the power
//!             failed; it does not matter.
//! Refused     Where the slot is whole and its checkpoint is not, it is known how far the log was
//!             durable: one that ends before is damaged too, and what it had is not given up in
//!             silence. A slot that cannot be read even when it was written again: the next
//!             checkpoint but one would be written over the only one there is. Without a slot, a
//!             log that is damaged in its middle looks like one that ends there, as it does behind
//!             the newest checkpoint.
//! Epochs      A lost checkpoint may have begun an epoch, of which partials of a group that was
//!             never whole lie where the next ones may begin: so one is left out (I6).

use crate::checkpoint::{Body, Slot};
use crate::geometry::{Place, SLOTS, SegNo};
use crate::heads::Head;
use crate::run::Run;
use crate::store::{At, Inner};
use crate::summary::{Epoch, Serial};
use crate::table::damaged;
use crate::usage::Use;
use env::{Block, DiskError};
use std::collections::BTreeSet;
use std::rc::Rc;

/// What was begun with.
pub(crate) struct Loaded {
    pub(crate) generation: u64,
    /// A checkpoint that is not to be had covers the log up to here.
    least: Serial,
    /// Of the two one was not to be had, or none was there.
    fell_back: bool,
    /// The slot that the disk could not read.
    unreadable: Option<Place>,
}

impl Loaded {
    /// The epoch of what is written from now on, where the log ends with this one.
    pub(crate) fn next_epoch(&self, last: Epoch) -> Epoch {
        if self.fell_back { last.next().next() } else { last.next() }
    }
}

/// Both slots.
#[derive(Default)]
struct Slots {
    /// Those that are whole, the newest first.
    whole: Vec<Slot>,
    /// Those that the disk could not read.
    unreadable: Vec<(Place, DiskError)>,
}

impl Slots {
    /// Those that may be begun with, the best first. Errors: the one that was asked for is not
    /// there, or it is not known which one that is.
    fn wanted(&self, at: At) -> Result<&[Slot], String> {
        let found = match at {
            At::Log => return Ok(&self.whole),
            At::Newer if self.unreadable.is_empty() => self.whole.get(..1),
            At::Newer => None,
            At::Older => self.whole.get(1..2),
            At::Checkpoint(n) => {
                let i = self.whole.iter().position(|s| s.generation == n);
                i.map(|i| &self.whole[i..=i])
            }
        };
        let all: Vec<String> = self.whole.iter().map(|s| s.generation.to_string()).collect();
        let (all, wrong) = (all.join(" and "), self.why());
        found.ok_or_else(|| {
            format!("there is no such checkpoint: the store has checkpoint {all}{wrong}")
        })
    }

    /// What was wrong with those that could not be read.
    fn why(&self) -> String {
        self.unreadable.iter().map(|(_, e)| format!("; a checkpoint slot: {e}")).collect()
    }
}

/// What a checkpoint has.
type Found = (Body, Vec<Rc<Run>>, BTreeSet<SegNo>);

impl Inner {
    /// Loads the newest checkpoint that is whole.
    pub(crate) async fn load(&self) -> Result<Loaded, String> {
        let slots = self.slots().await;
        let (mut wrong, mut least) = (slots.why(), Serial::default());
        for slot in slots.wanted(self.options.at)? {
            match self.checkpoint_in(slot).await {
                Ok((body, runs, named)) => {
                    self.take_in(&body, runs, named);
                    if !wrong.is_empty() {
                        tracing::warn!(
                            "the store begins with checkpoint {}{wrong}",
                            body.generation
                        );
                    }
                    return Ok(Loaded {
                        generation: body.generation,
                        least,
                        fell_back: slots.whole.len() < SLOTS.len() || !wrong.is_empty(),
                        unreadable: slots.unreadable.first().map(|s| s.0),
                    });
                }
                Err(e) => {
                    least = least.max(slot.serial);
                    wrong += &format!("; checkpoint {}: {e}", slot.generation);
                }
            }
        }
        Err(format!(
            "neither checkpoint of the store can be read: its device is damaged{wrong}. Copy what \
             can be read of it to another device, in case that is more at another try, or go back \
             to a backup"
        ))
    }

    async fn slots(&self) -> Slots {
        let mut slots = Slots::default();
        for place in SLOTS {
            match self.read_blocks(place, 1).await {
                Ok(raw) => slots.whole.extend(Slot::decode(self.seed, raw.bytes())),
                Err(e) => slots.unreadable.push((place, e)),
            }
        }
        slots.whole.sort_by_key(|s| std::cmp::Reverse(s.generation));
        slots
    }

    async fn checkpoint_in(&self, slot: &Slot) -> Result<Found, DiskError> {
        let body = self.read_body(slot).await?;
        let runs = self.read_runs(&body).await?;
        let named = self.segments_named(&runs, &slot.chunks);
        self.check_named(&body, &named)?;
        Ok((body, runs, named))
    }

    /// Errors: the log ends before one of the checkpoints does that could not be loaded.
    pub(crate) fn check_reached(&self, loaded: &Loaded) -> Result<(), String> {
        let reached = self.state.borrow().serial;
        if reached >= loaded.least {
            return Ok(());
        }
        let (least, reached, begun) = (loaded.least.0, reached.0, loaded.generation);
        Err(format!(
            "the newest checkpoint of the store is damaged, and so is the log that it covers: that \
             goes up to partial segment {least}, and from checkpoint {begun} it can be followed up \
             to {reached}. What was written in between is lost. Go back to a backup; or copy what \
             checkpoint {begun} has: cairn lfs export --checkpoint {begun}"
        ))
    }

    /// The slot that the disk could not read has been written again. Errors: it still cannot.
    pub(crate) async fn check_rewritten(&self, loaded: &Loaded) -> Result<(), String> {
        let Some(place) = loaded.unreadable else { return Ok(()) };
        let memory = vec![Block::zeroed(crate::BLOCK_BYTES)];
        let read = self.disk.read_fresh(place.byte(), memory).await;
        let durable = self.state.borrow().usage.durable;
        let is_right = |raw: &Block| {
            Slot::decode(self.seed, raw.bytes()).is_some_and(|s| s.generation == durable)
        };
        let why = match read {
            Ok(blocks) if blocks.iter().all(is_right) => return Ok(()),
            Ok(_) => "it does not hold what was written".to_owned(),
            Err(e) => e.to_string(),
        };
        Err(format!(
            "the checkpoint slot at byte {} of the store's device is lost ({why}), also when it is \
             written again. The checkpoint behind the next one would go over the only one that is \
             left, so nothing is written any more: copy the device to a sound one, or open the \
             store for reading only, in which everything is",
            place.byte()
        ))
    }

    /// What the table and a checkpoint's body lie in is nobody else's.
    fn check_named(&self, body: &Body, named: &BTreeSet<SegNo>) -> Result<(), DiskError> {
        // What was free when it was begun may have been taken for itself.
        let is_own = |n: &SegNo| {
            let saved = body.segments.get(n.0 as usize);
            saved.is_some_and(|s| s.live == 0 && (s.free || s.table))
        };
        match named.iter().find(|n| !is_own(n)) {
            Some(n) => Err(damaged(self.geometry.start(*n), "a segment of the table and contents")),
            None => Ok(()),
        }
    }

    fn take_in(&self, body: &Body, runs: Vec<Rc<Run>>, named: BTreeSet<SegNo>) {
        let mut s = self.state.borrow_mut();
        let s = &mut *s;
        let is_new = s.heads.is_empty() && s.table.runs.is_empty() && s.patches.len() == 0;
        assert!(is_new, "I8: checkpoint {} is taken in over another", body.generation);
        (s.serial, s.last_sum, s.epoch) = (body.serial, body.last_sum, body.epoch);
        (s.stamp, s.completed, s.durable) = (body.stamp, body.serial, body.serial);
        (s.usage.begun, s.usage.durable) = (body.generation, body.generation);
        s.before = body.totals;
        s.snapshots = body.snapshots.clone();
        if self.options.policy.plugs() {
            // What died between this checkpoint and the one before is not known.
            s.deaths.remember(body.generation.saturating_sub(1));
        }
        for (n, saved) in (0..).map(SegNo).zip(&body.segments) {
            if saved.table {
                s.usage.claim(n, Use::Table);
                s.named[0].insert(n);
            } else {
                s.usage.load(n, (saved.live, saved.youngest), saved.free);
            }
        }
        for n in &named {
            s.usage.claim(*n, Use::Table);
        }
        s.named[1] = named;
        body.ranges.iter().for_each(|(v, r)| s.patches.add(*v, r, None));
        for head in &body.heads {
            s.usage.claim(head.0, Use::Open);
            s.usage.claim(head.2, Use::Open);
            s.heads.push(Head::at(*head));
        }
        s.table.runs = runs;
    }
}

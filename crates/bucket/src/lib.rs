//! The store in a bucket: a disk of virtual blocks whose log is a chain of objects, written by one
//! machine at a time and taken over by another. It is a disk for whatever layout and mechanism lie
//! above, and knows neither.
//!
//! Rule        What has gathered goes out as one object, which is there whole or not at all, under
//!             the next serial and only if there is none of that name. A table says in which
//!             object each virtual block lies. No clock decides what is safe.
//! Terms       *serial*: an object's number in the log, and its name. *Acknowledged*: it is there,
//!             and so are all before it. *Window*: so many serials may be under way beyond what is
//!             acknowledged. *Fence*: an object that ends one writer's log and begins the next
//!             one's. *Epoch*: the serial of the fence that a writer began with; 0 in mkfs.
//!             *Void*: an object behind a fence and within its window, by the writer before.
//!             *Checkpoint*: an object of the log with the whole table. Snapshots have a header of
//!             their own (snapshot.rs).
//!
//! Invariants  I1 a serial is used once: every object of the log is put only if absent.
//!             I2 objects are acknowledged in the order of their serials, without gaps.
//!             I3 no object is sent whose serial lies beyond the acknowledged one by more than the
//!             window.
//!             I4 each object names the serial and the sum of the valid one before it, and its
//!             epoch.
//!             I5 who opens for writing puts a fence at the first absent serial k; its log goes on
//!             at k + window, and k+1 up to there is void whenever it appears. The writer before
//!             cannot put k, so it acknowledges nothing from k on.
//!             I6 a checkpoint is sent when all before it is acknowledged; so one that is there is
//!             part of the log.
//!             I7 deleted is only what a checkpoint that is acknowledged does not need, and never
//!             a fence; so behind every deleted name there is a checkpoint.
//!             I8 a fence counts when nothing behind it shows that its name had been deleted: no
//!             checkpoint, and no object at k + window or beyond.
//!             I9 a PUT that failed, or found its name taken, is looked at before anything is
//!             concluded: the object there may be its own.
//!             I10 after a failure nothing is acknowledged.
//!             I11 a request is answered only if this machine has confirmed, within half of the
//!             time after which a silent writer is taken over, that it is still the writer. One
//!             that has not, because it was stopped or cannot reach the bucket, looks first.
//!             I12 what is sealed and not acknowledged is to be sent, under way, or there behind
//!             a gap; and groups become durable in the order in which they were put.
//!             I13 what is encoded is read again as it was: no field is too large for its place.
//!
//! In the bucket, below the volume's prefix, little-endian:
//!
//! ```text
//!  volume                    size, window and name of the volume: put last by mkfs   volume.rs
//!  log/SERIAL                changes, a checkpoint, or a fence                       object.rs
//!  beats/EPOCH               who writes, and that it is alive: advice, no safety     beat.rs
//!  ask, answers/NUMBER       what others want the writer to do                       asks.rs
//!  clones/SNAPSHOT/…         which clones share a snapshot's blocks                  clone.rs
//!  origin                    of a clone: which volume's snapshot it began as         clone.rs
//! ```
//!
//! All but `volume` may lie compressed and encrypted (at_rest.rs, sealed.rs); the rest of this
//! crate sees them as they were put.
//!
//! States      block: open (memory) -State::seal-> sealed -Inner::send-> acknowledged
//!             object: holds live blocks -the last one dies-> dead -a checkpoint without it is
//!             acknowledged-> deleted
//! Recovery    the newest checkpoint, which one of the newest objects is or names; then object
//!             after object along the chain, up to the first serial that is absent.
//! Cost        a PUT for all that gathered while others were under way; a PUT for a checkpoint each
//!             512 MiB or 256 objects; a DELETE for each object in the end. In memory: some 40
//!             bytes for an extent of the table and 40 for an object, what is under way, and what
//!             was read lately, up to a bound.

mod all;
mod asks;
mod at_rest;
mod beat;
mod block_cache;
mod chain;
mod checkpoint;
mod clean;
mod clone;
mod disk;
mod fence;
mod group;
mod kept;
#[cfg(test)]
mod large;
mod make;
mod near;
mod near_open;
mod near_record;
mod newer;
mod notes;
mod object;
mod possible;
mod prices;
mod read;
mod sealed;
mod snapshot;
mod snapshot_disk;
mod state;
mod steady;
mod store;
mod stream;
mod tail;
mod volume;
mod waits;
mod writer;

pub use asks::{Asked, Wish, ask_writer};
pub use at_rest::{AtRest, KEY_BYTES, Key};
pub use beat::Writer;
pub use clone::{CLONE_PLANTS, CloneOptions, clone_snapshot};
pub use fence::{TakeOver, writers};
pub use make::{FormatOptions, Making, format};
pub use near::{NEAR_PLANTS, NearOptions};
pub use near_open::NEAR_BYTES_MIN;
pub use object::{Epoch, Serial};
pub use prices::{Prices, TABLES as PRICE_TABLES};
pub use snapshot_disk::SnapshotDisk;
pub use state::Stats;
pub use store::{OpenOptions, Opened, Pace, Store};
pub use volume::Shape;

/// Bytes of a virtual block.
pub const BLOCK_BYTES: usize = lfs::BLOCK_BYTES;

/// Bugs that can be planted, each of which the crash tests must find.
pub const PLANTS: &[&str] = &[
    "put-without-condition",
    "gap-acknowledged",
    "lost-reply-is-failure",
    "fence-not-looked-at-again",
    "void-accepted",
    "stale-writer-answers",
    "delete-before-checkpoint",
    "fence-deleted",
    "notes-forgotten",
];

/// One that shows where more than a window of objects follows a checkpoint (tests/standby.rs).
pub const STANDBY_PLANT: &str = "newer-checkpoint-missed";

/// Bugs of snapshots, which show where there are some.
pub const SNAPSHOT_PLANTS: &[&str] =
    &["snapshot-not-respected", "holes-dropped", "handed-over-to-nobody"];

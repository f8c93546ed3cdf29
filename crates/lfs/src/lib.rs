//! The log-structured store: a disk of virtual blocks, which lie in segments of the disk below. It
//! is a disk for whatever layout and mechanism lie above, and knows neither.
//!
//! Rule        Everything is written one behind the other, into segments; a table says where each
//!             virtual block lies now. Nothing that a crash could fall back to is overwritten.
//! Terms       *place*: a block's number on the disk below. *Partial segment*: what is written at
//!             once: a summary and blocks. *Head*: a segment being written; users' writes and the
//!             cleaner's go to heads of their own, several where what lives long is kept apart
//!             (heads.rs). *Serial*: a partial's number, over all heads.
//!             *Stamp*: how many blocks users had written when a block was; a move keeps it.
//!             *Group*: what survives a crash whole or not at all; here, each write.
//!             *Checkpoint*: a moment of the store, found without following the log.
//!
//! Invariants  I1 partials have consecutive serials, and one counts as durable only when all
//!             before it are.
//!             I2 a segment is written again only when nothing in it lives and both checkpoints
//!             say so; nor is it given back to the disk below before.
//!             I3 a partial begins where its head stands, or at the start of the segment that the
//!             head's last summary announced; it ends in the same segment.
//!             I4 a block is moved only if it still lies where it was found, now and when the log
//!             is followed.
//!             I5 a group's partials count together: the last says that it ends there; none does
//!             while an open one has a part of what users put before.
//!             I6 after a recovery a checkpoint with a new epoch is durable before the first
//!             partial, and each partial names the sum of the one before: no stale one ever joins.
//!             I7 slots are written in turn, each after everything it names is durable.
//!             I8 the usage table is what the translation table says.
//!             I9 after a failed write or flush nothing is acknowledged.
//!             I10 users never take the last segments: the table, the checkpoints and the cleaner
//!             always find one.
//!             I11 ranges in summaries are part of their block until newer contents of the whole
//!             block come or it is freed; a move changes nothing about them, and a checkpoint
//!             has them.
//!             I12 a hole is plugged only where no checkpoint knows a block and no log that is
//!             ever followed has a sum, and its block is there only by a record behind a flush.
//!             I13 a victim is not given away while blocks that were read of it are to be moved:
//!             what lies there is still what was read.
//!             I14 of a block, the users' open partials have entries at one head only: what is
//!             put later has the higher serial.
//!             I15 of a thin volume no more blocks live than there is room for with the cleaner at
//!             work: who would have more is refused before, and who frees some never is.
//!             I16 a block is moved with what lies where it is moved from: from memory only if that
//!             holds the same.
//!             I17 what is encoded is read again as it was: summaries, slots, pages of the table.
//!
//! On disk, little-endian, CRC32C seeded with the store's name, all in blocks of 4096:
//!
//! ```text
//!  block 0           superblock                   superblock.rs
//!  blocks 2, 3       checkpoint slots, in turn    checkpoint.rs
//!  block 16          segment 0 | segment 1 | ...
//!  the last block    copy of the superblock
//!
//!  a segment of contents:   summary, blocks | summary, blocks | ...       summary.rs
//!  a segment of the table:  pages of runs, their indices, bodies of checkpoints    run.rs
//! ```
//!
//! Snapshots   Moments of the log that stay readable: snapshot.rs, with invariants of its own.
//! Ranges      What operations change in blocks is in the summaries themselves, as ranges of bytes:
//!             a change of a few bytes costs a few bytes (patches.rs, group.rs). Blocks of which
//!             too much is pending are written as a whole.
//! States      segment: free -Usage::take-> open -Usage::close-> closed -the last block dies->
//!             empty -two checkpoints, Usage::release-> free
//!             block: put (memory) -State::close, Inner::issue-> in flight -ended-> on the disk
//! Recovery    the newest checkpoint; then partial after partial by serial, at every head, up to
//!             the last whole group; then a checkpoint with the next epoch.
//! Cost        a summary for each partial (up to 252 blocks); the table: 20 bytes for an extent,
//!             written when new and again at merges, as often as the logarithm of its size; a
//!             checkpoint: 12 bytes for a segment. In memory: new mappings and pages up to a
//!             bound, 16 bytes for 204 extents of the table, 48 bytes for a segment.

mod beyond;
mod checkpoint;
mod choice;
mod clean;
pub mod codec;
mod disk;
mod extents;
mod geometry;
mod graph;
mod group;
mod heads;
mod idle;
mod load;
mod log;
mod make;
mod measure;
mod memory;
mod merge;
mod owners;
mod pace;
mod patches;
mod plug;
mod policy;
mod possible;
mod reorganise;
mod roll;
mod run;
mod snapshot;
mod snapshot_disk;
mod state;
mod store;
mod summary;
mod superblock;
mod survivors;
mod table;
mod totals;
mod usage;
mod verify;

pub use clean::Thresholds;
pub use disk::copy_parts;
pub use extents::{Extent, Extents};
pub use geometry::{BLOCK_BYTES, Geometry, Place, SegNo, Virt};
pub use group::{Change, Group};
pub use idle::Cleaning;
pub use make::{FormatOptions, format, shape};
pub use measure::{Speed, measure};
pub use memory::Memory;
pub use owners::Owners;
pub use policy::{Candidate, Costs, Lifespans, Limits, Plan, Planner, Policy, Way};
pub use snapshot::{NAME_BYTES_MAX, Snapshot, Snapshots, check_name};
pub use snapshot_disk::{SnapshotDisk, none_of_that_name};
pub use state::Stats;
pub use store::{At, OpenOptions, Opened, Store};
pub use superblock::{MAGIC, Superblock, UNFINISHED, superblock};
pub use totals::Totals;
pub use usage::Filled;
pub use verify::Report;

/// Bugs that can be planted, each of which the crash tests must find.
pub const PLANTS: &[&str] = &[
    "victim-freed-before-checkpoint",
    "checkpoint-before-segments",
    "one-slot",
    "sum-of-first-words",
    "group-end-ignored",
    "roll-forward-allocates-visited",
    "free-record-lost",
    "reuse-after-one-checkpoint",
    "serial-reset",
    "stale-tail-joined",
    "gc-mixes-dirty",
    "memory-mixes-dirty",
    "budget-without-metadata",
    "moves-not-counted",
    "thin-without-bound",
    "thin-given-back-early",
    "move-drops-ranges",
    "ranges-not-checkpointed",
    "plug-into-checkpointed-slot",
    "plug-under-live-sum",
    "plug-unflushed",
    "one-head-ends-group",
    "heads-out-of-order",
    "heads-not-followed",
];

/// Those of them that hardly ever show below a volume, or not in one as small as the explorer's,
/// whose segments are too few for several heads: who looks at the store alone finds them.
pub const PLANTS_ALONE: &[&str] = &[
    "reuse-after-one-checkpoint",
    "gc-mixes-dirty",
    "memory-mixes-dirty",
    "budget-without-metadata",
    "moves-not-counted",
    "thin-without-bound",
    "move-drops-ranges",
    "plug-into-checkpointed-slot",
    "one-head-ends-group",
    "heads-out-of-order",
    "heads-not-followed",
];

/// Bugs of snapshots, which show where there are some.
pub const SNAPSHOT_PLANTS: &[&str] = &[
    "snapshot-not-respected",
    "snapshot-not-followed",
    "snapshot-with-ranges",
    "holes-dropped",
    "handed-over-to-nobody",
];

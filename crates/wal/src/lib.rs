//! The stand-alone log (WAFS): append an entry and get its LSN, flush up to an LSN, read by LSN,
//! scan from one, trim below one. Several clients share a log, each with its own position; a file
//! system is one of them, and the log knows nothing of what its entries mean.
//!
//! Rule        An entry is acknowledged when it and everything before it is durable; space is used
//!             again when no client needs it and the superblock that says so is durable.
//! Terms       *LSN*: a position in the endless log, in bytes; the place on the disk is that modulo
//!             the capacity. *group*: the entries of one write, with a header, padded to the unit
//!             (a sector). *segment*: a fixed share of the capacity; no group crosses into the
//!             next, so each one that is in use begins with a group. *durable prefix*: the LSN
//!             below which every group is durable. *epoch*: counts the openings for writing; every
//!             group carries the one it was written in.
//! Invariants  I1 `flush(lsn)` returns after the durable prefix has passed the entry (writer.rs).
//!             I2 no group reaches beyond the durable head plus the capacity (space.rs).
//!             I3 the head moves in memory only after the superblock with it is durable
//!             (superblock.rs).
//!             I4 a group at or beyond the epoch's start is valid only with the superblock's epoch;
//!             one before it only with an older one, never lower than its predecessor's (walk.rs).
//!             I5 before the first group of an opening, the superblock with the raised epoch and
//!             the tail is durable; before a client's first entry, the one that says it is active
//!             (log.rs, writer.rs).
//!             I6 each group names the end of its predecessor, so a group that was skipped or lost
//!             is a gap; a whole group behind a gap that names a durable prefix beyond it is a
//!             sign of damage (walk.rs), as is a superblock that no power cut can have left
//!             (slots.rs).
//!             I7 after a failed write nothing is acknowledged any more.
//!
//! On disk, all little-endian, CRC32C everywhere, seeded with the log's UUID:
//!
//! ```text
//!  byte 0        superblock, slot 0 (4096 bytes)      the slot of the higher generation holds;
//!  byte 4096     superblock, slot 1                   slot = generation modulo 2
//!  byte 8192     segment 0 | segment 1 | ...          LSN l lies at 8192 + l mod capacity
//!
//!  superblock    0 "CairnLog" | 8 crc of 12..4096 | 12 version | 16 uuid | 32 generation
//!                40 epoch | 48 epoch's start | 56 head | 64 bytes a segment | 68 segments
//!                72 unit | 76 clients | 80 end: entries of clients that hold nothing lie below it
//!                128 + 40 i: id (16) | label (16) | trim LSN (8), all ones while it holds nothing
//!  group         0 "CWLG" | 4 crc of 8..48 | 8 LSN | 16 epoch | 24 end of the group before
//!                32 durable prefix when it was written | 40 bytes without padding | 44 entries
//!                then the entries
//!  entry         0 crc of its LSN, 4..20 and the bytes | 4 length
//!                8 offset of this part in the entry | 12 epoch | 16 client
//!                18 flags: 1 first part, 2 last part | 20 the bytes
//! ```
//!
//! States      entry: appended -issue-> in flight -all before it done-> durable -trim-> dead
//!             client: idle -append-> active (durably so before its entry is) -trim-> idle
//! Recovery    binary search for the last segment that begins with a group of this epoch; that
//!             group's durable prefix is where a forward scan starts; the first gap is the tail.
//!             The superblock with the next epoch and this tail is made durable, so that nothing
//!             beyond the tail ever becomes valid. Until then nothing on the disk has changed, so a
//!             crash in recovery repeats it.
//! Cost        one FUA write a group, entries padded together to one unit; a superblock write when
//!             a client becomes active and when trimmed space is needed.
//!
//! Groups are written as `window.rs` decides: at once when the device is idle; what arrives
//! meanwhile goes out in the next; several in flight, their number found by measuring.

/// Asserts an invariant of the log, whose number in the header above begins the message. It rests
/// while a bug is planted: the crash tests are to find that from outside.
macro_rules! invariant {
    ($plant:expr, $holds:expr, $($message:tt)+) => {
        assert!($plant.is_some() || $holds, $($message)+)
    };
}

mod area;
mod client;
mod error;
mod layout;
mod log;
mod scan;
mod slots;
mod space;
mod state;
mod stats;
mod superblock;
mod walk;
mod window;
mod writer;

pub use area::{LogArea, LogExtent};
pub use client::{Client, Reservation};
pub use error::LogError;
pub use layout::{ClientId, Epoch, Lsn};
pub use log::{FormatOptions, Log, LogInfo, OpenOptions, PLANTS, inspect};
pub use scan::{Entry, Scan};
pub use stats::LogStats;

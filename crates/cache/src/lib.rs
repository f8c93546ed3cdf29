//! Blocks in memory: one copy of each, bounded in number, written back in large transfers. It knows
//! when a block is dirty, and nobody but the [`WriteGate`] knows when it may be written; it knows
//! no files.
//!
//! ```text
//!  absent --get--> loading --> clean --modify--> dirty --before_write--> writing --> clean
//!                                ^                 ^------ Instead, or modified meanwhile --'
//!                                '-- evicted, if nobody holds it
//! ```
//! Invariants  C1 never two writes in flight to one block, nor a read and a write.
//!             C2 a block that is dirty or on its way is in the list of those that must be written,
//!             under its owner, so that who makes a file durable finds it.
//!             C3 a block that leaves memory is clean, idle, and held by nobody.
//!             C4 an image in flight is a clone that no later edit changes; a block that was
//!             changed meanwhile is dirty again.
//!             C5 a write is durable by the first flush that was issued after it ended, and by no
//!             earlier one.

mod buf;
mod by_time;
mod cache;
mod clock;
mod flusher;
mod gate;
#[cfg(test)]
mod model;
mod pressure;
mod readahead;
mod stats;
#[cfg(test)]
mod testing;
mod writeback;
mod writebehind;

pub use buf::{Buf, BufKind, Role};
pub use cache::{Cache, CacheOptions};
pub use flusher::FlushEpoch;
pub use gate::{Begun, Image, OpenGate, ShutGate, Watch, WriteGate};
pub use readahead::ReadAhead;
pub use stats::CacheStats;
pub use writebehind::WriteBehind;

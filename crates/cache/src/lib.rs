//! Blocks in memory: one copy of each, bounded in number, written back in large transfers. It knows
//! when a block is dirty, and nobody but the [`WriteGate`] knows when it may be written; it knows
//! no files.
//!
//! ```text
//!  absent --get--> loading --> clean --modify--> dirty --before_write--> writing --> clean
//!                                ^                 ^------ Instead, or modified meanwhile --'
//!                                '-- evicted, if nobody holds it
//! ```
//! Never two writes in flight to one block; an image in flight is a clone that no later edit
//! changes.

mod buf;
mod cache;
mod clock;
mod flusher;
mod gate;
mod readahead;
mod stats;
mod writeback;
mod writebehind;

pub use buf::{Buf, BufKind};
pub use cache::{Cache, CacheOptions};
pub use flusher::FlushEpoch;
pub use gate::{Image, OpenGate, ShutGate, WriteGate};
pub use readahead::ReadAhead;
pub use stats::CacheStats;
pub use writebehind::WriteBehind;

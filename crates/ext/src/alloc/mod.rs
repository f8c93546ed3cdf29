//! What is free, and which of it a file gets: FFS's policies over ext2's bitmaps. `policy` chooses
//! where to look, `search` looks in one bitmap, `blocks` and `inodes` edit it. None of it knows
//! when an edit reaches the disk; what must not be reused yet it asks of the mechanism.
//!
//! Invariants:
//! * A1. What is given away was free, and is none of the volume's own blocks and inodes.
//! * A2. A run lies in one group, and is no longer than what was asked for.
//! * A3. What is given up is given back: block for block, in whatever order.
//! * A4. An inode that is freed has nothing any more.
//! * A5. A goal is a place of the volume.

mod blocks;
mod inodes;
#[cfg(test)]
mod model;
mod policy;
mod runs;
mod search;
mod trim;

pub(crate) use policy::Goal;
pub(crate) use runs::Runs;
pub(crate) use search::{Ask, Seen};
pub(crate) use trim::{DISCARDED_EARLY, Trimming};

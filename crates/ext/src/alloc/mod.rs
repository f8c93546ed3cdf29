//! What is free, and which of it a file gets: FFS's policies over ext2's bitmaps. `policy` chooses
//! where to look, `search` looks in one bitmap, `blocks` and `inodes` edit it. None of it knows
//! when an edit reaches the disk; what must not be reused yet it asks of the mechanism.

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

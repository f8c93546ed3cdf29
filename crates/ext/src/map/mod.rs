//! The maps from file blocks to disk blocks: `indirect` follows them, `write` grows them, `cut` and
//! `punch` shrink them. What a block holds, beyond being a map's or a file's, is not known here.

mod cut;
mod extents;
mod find;
mod grow;
mod indirect;
mod list;
mod punch;
mod shift;
mod shrink;
mod tree;
mod write;

pub(crate) use cut::RENEWED;
pub(crate) use extents::{Below, Spot};
pub(crate) use indirect::{Leaf, Walk};
pub(crate) use write::data_error;

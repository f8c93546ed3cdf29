//! The tests of the ext layout: one program, as each one would be linked
//! with all of what it tests. A file of tests that is not named here does not run; tidy sees it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod blocks;
mod common;
mod credits;
mod damage;
mod ext4;
mod features;
mod files;
mod hostile;
mod hostile_shared;
mod huge;
mod inline;
mod limits;
mod lists;
mod open_waits;
mod policy;
mod renames;
mod trees;
mod trim;
mod uncut;
mod unseen;
mod values;

//! The tests of fsck: one program, as each one would be linked
//! with all of what it tests. A file of tests that is not named here does not run; tidy sees it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod as_e2fsck;
mod backups;
mod common;
mod contents;
mod cut;
mod ext4;
mod fields;
mod hashes;
mod kept;
mod large;
mod layouts;
mod leftovers;
mod memory;
mod mutations;
mod owners;
mod wrecks;
mod wrong_places;

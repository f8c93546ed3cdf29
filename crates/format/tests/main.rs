//! The tests of what lies on the disk: one program, as each one would be linked
//! with all of what it tests. A file of tests that is not named here does not run; tidy sees it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod dirhash;
mod features;
mod jbd2;
mod mkfs;
mod torn;

//! The tests of the lab and the crash explorer: one program, as each one would be linked
//! with all of what it tests. A file of tests that is not named here does not run; tidy sees it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod judged;
mod legal;
mod lfs;
mod made;
mod score;
mod unclean;

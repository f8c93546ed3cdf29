//! The tests of the stand-alone log: one program, as each one would be linked
//! with all of what it tests. A file of tests that is not named here does not run; tidy sees it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod behaviour;
mod crash;
mod damage;
mod world;

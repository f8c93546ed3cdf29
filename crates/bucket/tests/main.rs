//! The tests of the store in a bucket: one program, as each one would be linked
//! with all of what it tests. A file of tests that is not named here does not run; tidy sees it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod asks;
mod at_rest;
mod clones;
mod half_done;
mod hostile_fields;
mod huge;
mod kept;
mod line;
mod machines;
mod near;
mod newer;
mod standby;

//! The tests of the log-structured store: one program, as each one would be linked
//! with all of what it tests. A file of tests that is not named here does not run; tidy sees it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod beyond;
mod common;
mod crash;
mod hostile;
mod hostile_fields;
mod idle;
mod model;
mod policy;
mod reader;
mod reorganise;
mod resumed;
mod room;
mod slots;
mod snapshots;
mod thin;
mod totals;
mod unreadable;
mod wide_tables;

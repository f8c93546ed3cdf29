//! The tests of opening, closing and recovery: one program, as each one would be linked
//! with all of what it tests. A file of tests that is not named here does not run; tidy sees it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod forged_transactions;
mod hostile_journal;
mod hostile_places;
mod huge;
mod in_bucket;
mod journaled;
mod old_journals;
mod orphan_file;
mod resize;
mod segments;

//! The jbd2 journal's blocks, all big-endian: the one place with that order of bytes. Here is the superblock,
//! which an idle journal needs; what a journal in use holds comes with the journaling modes.

pub mod superblock;

pub use superblock::{JournalSuperblock, MAGIC};

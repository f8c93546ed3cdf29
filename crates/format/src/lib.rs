//! Every on-disk byte: structs to bytes and back. No I/O, no allocation policy, no clock, and no
//! knowledge of who uses it. ext2/ext3 is little-endian; jbd2 alone is big-endian.
//!
//! What is read is looked at, and is an error if it cannot be; what is made here is asserted:
//!
//! Invariants  F1 what is encoded is read again as it was: each number fits into its field.
//!             F2 an entry of a directory lies in multiples of four inside its block, and one that
//!             is put here inside one sector; no name is lost where a block is laid out anew.
//!             F3 a node of a tree has as many entries as it has room for at most, each of them
//!             one that can be stored, in their order.
//!             F4 a checksum that was put is right: it covers nothing that putting it changes.
//!             F5 the way to a block of a file is that block's and no other one's.
//!             F6 a new volume's blocks are its own, given out and written once each, the primary
//!             superblock last; and what is made is a volume that can be opened.
//!             F7 a place is reckoned of what the volume has: a block, a group, an inode, a
//!             descriptor, a byte inside its block.

pub mod bytes;
mod error;
pub mod ext;
pub mod foreign;
mod ids;
pub mod intent;
pub mod jbd2;
pub mod mkfs;
pub mod partitions;
mod shown;
pub mod ufs;

pub use error::FormatError;
pub use ids::{BlockNo, Extent, FileBlock, GroupNo, Ino, JOURNAL_INO, ROOT_INO};
pub use shown::shown;

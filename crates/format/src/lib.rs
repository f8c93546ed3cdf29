//! Every on-disk byte: structs to bytes and back. No I/O, no allocation policy, no clock, and no
//! knowledge of who uses it. ext2/ext3 is little-endian; jbd2 alone is big-endian.

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

pub use error::FormatError;
pub use ids::{BlockNo, Extent, FileBlock, GroupNo, Ino, JOURNAL_INO, Lsn, ROOT_INO};
pub use shown::shown;

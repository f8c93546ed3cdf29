//! The ext2, ext3 and ext4 layout: superblock, groups, bitmaps, extent trees, checksums, and the
//! private state that lives in the boot area. Bytes only; what they are used for is `ext`'s. What
//! its files and directories are made of is in [`crate::ufs`].

pub mod bitmap;
pub mod boot;
pub mod csum;
pub mod extents;
pub mod features;
pub mod geometry;
pub mod growth;
pub mod mmp;
pub mod superblock;

pub use geometry::{Geometry, GroupDesc};
pub use superblock::Superblock;

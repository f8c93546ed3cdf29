//! The ext2, ext3 and ext4 layout: superblock, groups, inodes, maps, directories, attributes, and
//! the private state that lives in the boot area. Bytes only; what they are used for is `ext`'s and
//! `ufs`'s.

pub mod acl;
pub mod bitmap;
pub mod boot;
pub mod csum;
pub mod dirent;
pub mod dirgrow;
pub mod dirhash;
pub mod dirindex;
pub mod dirleaf;
pub mod extents;
pub mod features;
pub mod geometry;
pub mod growth;
pub mod inline;
pub mod inode;
pub mod map;
pub mod mmp;
pub mod superblock;
pub mod xattr;

pub use geometry::{Geometry, GroupDesc};
pub use superblock::Superblock;

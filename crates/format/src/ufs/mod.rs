//! What files and directories are made of, whatever layout they lie in: inodes, maps of pointers,
//! names and the index over them, attributes and access lists. Bytes only; what they mean is
//! `ufs`'s. What a volume has around them is a layout's: [`crate::ext`].

pub mod acl;
pub mod dirent;
pub mod dirgrow;
pub mod dirhash;
pub mod dirindex;
pub mod dirleaf;
pub mod inline;
pub mod inode;
pub mod map;
pub mod xattr;

//! Who may do what: mode bits and POSIX access lists, decided in one place for every way in that is not
//! checked by a kernel. It knows no disk; `ufs` supplies the attributes and the list.

use crate::{Attr, Cred};

/// Permission to read.
pub const READ: u32 = 4;
/// Permission to write.
pub const WRITE: u32 = 2;
/// Permission to execute, or to search a directory.
pub const EXECUTE: u32 = 1;

/// Is `gid` one of the caller's groups?
pub fn in_group(cred: &Cred, gid: u32) -> bool {
    cred.gid == gid || cred.groups.contains(&gid)
}

/// Is the caller root or the owner?
pub fn is_owner(attr: &Attr, cred: &Cred) -> bool {
    cred.uid == 0 || cred.uid == attr.uid
}

//! The procedures of NFSv3 by name (RFC 1813, section 3.3), and which of them change something. It
//! knows no arguments.

pub(crate) const NULL: u32 = 0;
pub(crate) const GETATTR: u32 = 1;
pub(crate) const SETATTR: u32 = 2;
pub(crate) const LOOKUP: u32 = 3;
pub(crate) const ACCESS: u32 = 4;
pub(crate) const READLINK: u32 = 5;
pub(crate) const READ: u32 = 6;
pub(crate) const WRITE: u32 = 7;
pub(crate) const CREATE: u32 = 8;
pub(crate) const MKDIR: u32 = 9;
pub(crate) const SYMLINK: u32 = 10;
pub(crate) const MKNOD: u32 = 11;
pub(crate) const REMOVE: u32 = 12;
pub(crate) const RMDIR: u32 = 13;
pub(crate) const RENAME: u32 = 14;
pub(crate) const LINK: u32 = 15;
pub(crate) const READDIR: u32 = 16;
pub(crate) const READDIRPLUS: u32 = 17;
pub(crate) const FSSTAT: u32 = 18;
pub(crate) const FSINFO: u32 = 19;
pub(crate) const PATHCONF: u32 = 20;
pub(crate) const COMMIT: u32 = 21;

/// What ACCESS asks for (RFC 1813, section 3.3.4), and what of `vfs` that is.
pub(crate) mod access {
    use vfs::access::{DELETE, EXECUTE as RUN, READ as OPEN, WRITE};

    const READ: u32 = 0x01;
    const LOOKUP: u32 = 0x02;
    const MODIFY: u32 = 0x04;
    const EXTEND: u32 = 0x08;
    const REMOVE: u32 = 0x10;
    const EXECUTE: u32 = 0x20;
    /// What means something for a directory.
    pub(crate) const OF_DIR: u32 = READ | LOOKUP | MODIFY | EXTEND | REMOVE;
    /// And for anything else.
    pub(crate) const OF_FILE: u32 = READ | MODIFY | EXTEND | EXECUTE;

    const BOTH: [(u32, u32); 4] =
        [(OPEN, READ), (RUN, LOOKUP | EXECUTE), (WRITE, MODIFY | EXTEND), (DELETE, REMOVE)];

    /// What is permitted, in NFS's bits.
    pub(crate) fn of_ours(bits: u32) -> u32 {
        BOTH.iter().filter(|(ours, _)| bits & ours != 0).fold(0, |all, (_, nfs)| all | nfs)
    }

    /// What is asked for, in ours.
    pub(crate) fn to_ours(bits: u32) -> u32 {
        BOTH.iter().filter(|(_, nfs)| bits & nfs != 0).fold(0, |all, (ours, _)| all | ours)
    }
}

/// Does the procedure change one file or one directory? Its result has the attributes of that one
/// from before and after it.
pub(crate) fn changes_one(procedure: u32) -> bool {
    matches!(procedure, SETATTR | WRITE | CREATE | MKDIR | SYMLINK | MKNOD | REMOVE | RMDIR)
}

/// Does the procedure change something? COMMIT does not: it makes durable what was changed.
pub(crate) fn modifies(procedure: u32) -> bool {
    changes_one(procedure) || matches!(procedure, RENAME | LINK)
}

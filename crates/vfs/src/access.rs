//! Who may do what: mode bits and POSIX access lists, decided in one place for every way in that is
//! not checked by a kernel. It knows no disk; `ufs` supplies the attributes and the list. Whose a
//! file becomes, and which set-id bits it keeps, is [`owners`]' business.
//!
//! Invariants:
//! * A1. Whoever has several permissions together has each of them alone.

pub mod owners;

use crate::{Attr, Cred};

/// Permission to read.
pub const READ: u32 = 4;
/// Permission to write.
pub const WRITE: u32 = 2;
/// Permission to execute, or to search a directory.
pub const EXECUTE: u32 = 1;
/// Permission to delete names in a directory: no mode bit, but what writing and searching give.
pub const DELETE: u32 = 8;

/// One entry of an access list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclEntry {
    /// The owner: its permissions are the mode's.
    Owner(u32),
    /// A user and what it may.
    User(u32, u32),
    /// The owning group.
    OwningGroup(u32),
    /// A group and what it may.
    Group(u32, u32),
    /// The most that named users and all groups get.
    Mask(u32),
    /// Everybody else.
    Other(u32),
}

/// Is `gid` one of the caller's groups?
pub fn in_group(cred: &Cred, gid: u32) -> bool {
    cred.gid == gid || cred.groups.contains(&gid)
}

/// Is the caller root or the owner?
pub fn is_owner(attr: &Attr, cred: &Cred) -> bool {
    cred.uid == 0 || cred.uid == attr.uid
}

/// The permission bits the caller has on the file, each asked for alone. Root may read and write
/// everything, search every directory and execute what anybody may execute.
pub fn granted(attr: &Attr, acl: &[AclEntry], cred: &Cred) -> u32 {
    [READ, WRITE, EXECUTE].into_iter().filter(|bit| allows(attr, acl, cred, *bit)).sum()
}

/// Has the caller all of these permissions on the file? That is more than to have each of them:
/// where several groups of an access list are his, one of them has to give all.
pub fn allows(attr: &Attr, acl: &[AclEntry], cred: &Cred, want: u32) -> bool {
    let has = |bits: u32| bits & want == want;
    if cred.uid == 0 {
        let anybody = attr.mode & 0o111 != 0 || attr.mode & crate::S_IFMT == 0o040_000;
        return has(READ | WRITE | if anybody { EXECUTE } else { 0 });
    }
    if cred.uid == attr.uid {
        return has(attr.mode >> 6 & 7);
    }
    if acl.is_empty() {
        let bits = if in_group(cred, attr.gid) { attr.mode >> 3 } else { attr.mode };
        return has(bits & 7);
    }
    let may = by_list(attr, acl, cred, want);
    // The list is gone through once more for each bit.
    let each = || [READ, WRITE, EXECUTE].iter().all(|b| by_list(attr, acl, cred, b & want));
    debug_assert!(!may || each(), "A1: {} has {want:o}, and not each bit of it", cred.uid);
    may
}

/// POSIX's algorithm: a named user's entry decides; else one of the matching groups' that gives all
/// that is wanted; else, unless a group matched, the others'.
fn by_list(attr: &Attr, acl: &[AclEntry], cred: &Cred, want: u32) -> bool {
    let mask = acl.iter().find_map(|e| if let AclEntry::Mask(m) = e { Some(*m) } else { None });
    let mask = mask.unwrap_or(7);
    let has = |bits: u32| bits & want == want;
    let (mut by_group, mut other) = (None, attr.mode & 7);
    for e in acl {
        match *e {
            AclEntry::User(uid, perm) if uid == cred.uid => return has(perm & mask),
            AclEntry::OwningGroup(perm) if in_group(cred, attr.gid) => {
                by_group = Some(by_group == Some(true) || has(perm & mask));
            }
            AclEntry::Group(gid, perm) if in_group(cred, gid) => {
                by_group = Some(by_group == Some(true) || has(perm & mask));
            }
            AclEntry::Other(perm) => other = perm,
            _ => (),
        }
    }
    by_group.unwrap_or(has(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    fn attr(mode: u32) -> Attr {
        Attr {
            ino: 12,
            generation: 0,
            mode: 0o100_000 | mode,
            nlink: 1,
            uid: 10,
            gid: 20,
            size: 0,
            blocks: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            crtime: None,
            rdev: (0, 0),
            blksize: 4096,
        }
    }
    fn who(uid: u32, gid: u32, more: &[u32]) -> Cred {
        Cred { uid, gid, groups: more.into(), check: true }
    }

    #[test]
    fn mode_bits() {
        let a = attr(0o640);
        assert_eq!(granted(&a, &[], &who(10, 1, &[])), READ | WRITE);
        assert_eq!(granted(&a, &[], &who(11, 1, &[20])), READ);
        assert_eq!(granted(&a, &[], &who(11, 1, &[])), 0);
        assert_eq!(granted(&a, &[], &who(0, 0, &[])), READ | WRITE);
        // The owner has the owner's bits even where others have more.
        assert_eq!(granted(&attr(0o077), &[], &who(10, 20, &[])), 0);
    }

    #[test]
    fn lists() {
        let a = attr(0o670);
        let acl = [
            AclEntry::Owner(6),
            AclEntry::User(30, 7),
            AclEntry::OwningGroup(4),
            AclEntry::Group(40, 2),
            AclEntry::Mask(6),
            AclEntry::Other(0),
        ];
        assert_eq!(granted(&a, &acl, &who(30, 1, &[])), 6);
        assert_eq!(granted(&a, &acl, &who(31, 20, &[40])), 6);
        // No one group gives both.
        assert!(allows(&a, &acl, &who(31, 20, &[40]), READ));
        assert!(allows(&a, &acl, &who(31, 20, &[40]), WRITE));
        assert!(!allows(&a, &acl, &who(31, 20, &[40]), READ | WRITE));
        assert!(allows(&a, &acl, &who(30, 1, &[]), READ | WRITE));
        assert_eq!(granted(&a, &acl, &who(31, 40, &[])), 2);
        assert_eq!(granted(&a, &acl, &who(31, 1, &[])), 0);
    }
}

//! Whose a file is and which set-id bits it has, when it is made and when it is changed: the rules
//! of the Linux kernel and of its NFS server, for every way in. The functions know no disk and
//! change nothing; `ufs` asks them before it edits an inode.
//!
//! Callers whom a kernel has checked already (`Cred::check` is false: FUSE, the volume's own
//! commands) may do here what they ask for; what the kernel leaves to the file system, the group
//! that a setgid directory gives, holds for them too.
//!
//! Invariants:
//! * O1. A file has the kind that it was made as, whatever mode somebody asks for.
//! * O2. Nobody but root makes a file that is another's, or of a group that is not his and not the
//!   directory's.
//! * O3. Writing and cutting give no set-id bits that were not there.

use super::in_group;
use crate::{Attr, Cred, FsError, Kind, MakeKind, S_IFMT, SetAttr, SetTime};

/// Set-user-id.
const SET_UID: u32 = 0o4000;
/// Set-group-id.
const SET_GID: u32 = 0o2000;
/// Execution by the group: without it set-group-id is no privilege.
const GROUP_EXECUTE: u32 = 0o010;
/// The largest major number of a device, as Linux counts (12 bits).
pub const DEVICE_MAJOR_MAX: u32 = 0xfff;
/// The largest minor number of a device (20 bits).
pub const DEVICE_MINOR_MAX: u32 = 0xf_ffff;

/// What a new file gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owned {
    /// Kind and permission bits, as `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// May the caller do what is root's, as far as we have to ask?
pub(crate) fn is_privileged(cred: &Cred) -> bool {
    !cred.check || cred.uid == 0
}

/// May the caller make such a file at all? Devices are root's, since whoever opens one reads the
/// machine's memory or disks. Errors: `Invalid`, a device number that the format cannot hold;
/// `Perm`.
pub fn may_make(kind: &MakeKind, cred: &Cred) -> Result<(), FsError> {
    let MakeKind::Special(Kind::Block | Kind::Char, (major, minor)) = kind else { return Ok(()) };
    if *major > DEVICE_MAJOR_MAX || *minor > DEVICE_MINOR_MAX {
        return Err(FsError::Invalid);
    }
    if is_privileged(cred) { Ok(()) } else { Err(FsError::Perm) }
}

/// Owner, group and mode of a new file of this kind with the permission bits `bits`.
///
/// Root chooses owner and group. Anybody else owns what he makes: another owner that he asks for is
/// passed over, as Linux's server does, because some clients always send one. The group is the
/// directory's where that is setgid, else the one asked for if the caller belongs to it, else his
/// own.
pub fn of_new(dir: &Attr, kind: Kind, bits: u32, set: &SetAttr, cred: &Cred) -> Owned {
    let privileged = is_privileged(cred);
    let uid = set.uid.filter(|_| privileged).unwrap_or(cred.uid);
    let inherits = dir.mode & SET_GID != 0;
    let allowed = |g: &u32| privileged || (!inherits && in_group(cred, *g));
    let gid = set.gid.filter(allowed).unwrap_or(if inherits { dir.gid } else { cred.gid });
    let mut mode = kind.mode_bits() | bits & 0o7777;
    if inherits && kind == Kind::Dir {
        mode |= SET_GID;
    } else if !privileged && !in_group(cred, gid) {
        mode &= !SET_GID;
    }
    assert_eq!(Kind::from_mode(mode), Some(kind), "O1: {bits:o} was asked for, and {mode:o} made");
    let own = uid == cred.uid && (in_group(cred, gid) || inherits && gid == dir.gid);
    assert!(privileged || own, "O2: {} makes a file of {uid} and {gid}", cred.uid);
    Owned { mode, uid, gid }
}

/// May the caller set these attributes? Ok(true): only if he may write the file, which is not
/// decided here. Errors: `Perm`.
pub fn may_set(attr: &Attr, set: &SetAttr, cred: &Cred) -> Result<bool, FsError> {
    if is_privileged(cred) {
        return Ok(false);
    }
    let times = [set.atime, set.mtime];
    let chosen = times.iter().any(|t| matches!(t, Some(SetTime::To(_))));
    let is_owner = cred.uid == attr.uid;
    // Owner and group even if they stay the same: naming them takes set-id bits away.
    let owners = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || chosen;
    if owners && !is_owner {
        return Err(FsError::Perm);
    }
    let gives_away = set.uid.is_some_and(|u| u != attr.uid);
    if gives_away || set.gid.is_some_and(|g| g != attr.gid && !in_group(cred, g)) {
        return Err(FsError::Perm);
    }
    // An owner over NFS may write a file he has made read-only after opening it.
    Ok(!is_owner && (set.size.is_some() || times.iter().any(Option::is_some)))
}

/// The mode after the attributes were set, which the caller may.
///
/// Naming an owner or group takes set-id bits away from all but directories, a new length from a
/// file that somebody but root cuts, and a chmod by somebody outside the group gives no
/// set-group-id.
pub fn mode_after(attr: &Attr, set: &SetAttr, cred: &Cred) -> u32 {
    let kind = attr.mode & S_IFMT;
    let mut mode = set.mode.map_or(attr.mode, |m| kind | m & 0o7777);
    let is_member = |gid| is_privileged(cred) || in_group(cred, gid);
    if set.mode.is_some() && !is_member(set.gid.unwrap_or(attr.gid)) {
        mode &= !SET_GID;
    }
    // The volume's own commands copy a file with its mode as it is. Over FUSE the kernel asks for
    // it.
    let local = !cred.check && (cred.uid == 0 || set.mode.is_some());
    let chown = (set.uid.is_some() || set.gid.is_some()) && kind != Kind::Dir.mode_bits() && !local;
    let cut = set.size.is_some() && !is_privileged(cred);
    if chown || cut || set.kill_suid {
        mode = without_set_ids(mode, is_member(attr.gid));
    }
    assert_eq!(mode & S_IFMT, kind, "O1: mode {:o} becomes {mode:o}", attr.mode);
    mode
}

/// The mode of a regular file that this caller has written to (`asked`: its front end wants set-id
/// bits taken away, as FUSE's kernel says for each write and NFS always).
pub fn mode_after_write(attr: &Attr, cred: &Cred, asked: bool) -> u32 {
    if !asked || (cred.check && cred.uid == 0) {
        return attr.mode;
    }
    let mode = without_set_ids(attr.mode, is_privileged(cred) || in_group(cred, attr.gid));
    let more = mode & !attr.mode;
    assert_eq!(more, 0, "O3: a write to a file of mode {:o} gives it {more:o}", attr.mode);
    mode
}

/// Set-group-id stays where it means no privilege, for a member of the group.
fn without_set_ids(mode: u32, is_member: bool) -> u32 {
    let group = if mode & GROUP_EXECUTE != 0 || !is_member { SET_GID } else { 0 };
    mode & !SET_UID & !group
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    fn file(mode: u32, uid: u32, gid: u32) -> Attr {
        let t = Time::default();
        let (atime, mtime, ctime, crtime) = (t, t, t, None);
        let (ino, generation, nlink, size, blocks) = (12, 0, 1, 0, 0);
        let (rdev, blksize) = ((0, 0), 4096);
        Attr {
            ino,
            generation,
            mode,
            nlink,
            uid,
            gid,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            crtime,
            rdev,
            blksize,
        }
    }
    fn who(uid: u32, gid: u32, check: bool) -> Cred {
        Cred { uid, gid, groups: [77].into(), check }
    }

    #[test]
    fn whoever_a_kernel_has_checked_gets_what_he_asks_for() {
        let dir = file(0o042_777, 0, 50);
        let set = SetAttr { uid: Some(5), gid: Some(6), ..SetAttr::default() };
        let put = of_new(&dir, Kind::File, 0o6755, &set, &who(0, 0, false));
        assert_eq!(put, Owned { mode: 0o106_755, uid: 5, gid: 6 });
        let fuse = of_new(&dir, Kind::File, 0o644, &SetAttr::default(), &who(9, 9, false));
        assert_eq!(fuse, Owned { mode: 0o100_644, uid: 9, gid: 50 });
        let block = MakeKind::Special(Kind::Block, (DEVICE_MAJOR_MAX, DEVICE_MINOR_MAX));
        assert_eq!(may_make(&block, &who(9, 9, false)), Ok(()));
        let both = SetAttr { mode: Some(0o4711), ..set };
        let copied = mode_after(&file(0o100_644, 0, 0), &both, &who(0, 0, false));
        assert_eq!(copied, 0o104_711);
    }

    #[test]
    fn a_write_strips_as_the_kernel_does() {
        let after = |mode: u32, uid, gid| {
            mode_after_write(&file(0o100_000 | mode, 1, 50), &who(uid, gid, true), true) & 0o7777
        };
        assert_eq!(after(0o6755, 1, 50), 0o755);
        assert_eq!(after(0o755, 1, 50), 0o755, "O3: it had none");
        assert_eq!(after(0o2666, 2, 50), 0o2666);
        assert_eq!(after(0o2666, 2, 3), 0o666);
        assert_eq!(after(0o6755, 0, 0), 0o6755);
    }
}

//! What a scenario does: operations on paths, and how each is asked of a volume.
//!
//! Invariants:
//! * A1. A request is made with an inode for each path that it needs.
//! * A2. What was written is told by who wrote it, and is no more than was given.
//! * A3. What stands for a number is told from what stands for none: owners from 1 on, attributes
//!   of a byte and more, masks of three bits.
//! * A4. What an act changes, it is about: a file or directory that no path of it leads to is
//!   judged as if nobody had touched it.

use env::{Nanos, Rope};
use vfs::{
    MakeKind, RenameMode, Reply, Request, SetAttr, SetTime, Shift, SpaceOp, Stability, Time,
    XattrMode,
};

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Act {
    Create(String),
    Mkdir(String),
    Symlink(String, String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String),
    /// A rename that leaves a whiteout in the old place.
    Whiteout(String, String),
    /// Two names change their inodes.
    Exchange(String, String),
    /// A file that is made without a name, gets so many bytes of one value, and then this name.
    Emerge(String, usize, u8),
    /// A file that somebody has open loses its last name, is cut to so many bytes, and closed.
    Vanish(String, u64),
    /// One that somebody has open loses its last name, gets so many bytes of one value behind its
    /// end and an attribute, is made durable, and closed.
    Linger(String, usize, u8),
    Truncate(String, u64),
    /// Bytes of one value at an offset.
    Write(String, u64, usize, u8),
    /// The same, answered when it is durable.
    WriteSync(String, u64, usize, u8),
    /// A hole of so many bytes at an offset.
    Punch(String, u64, u64),
    /// Space for so many bytes at an offset; true: the file's length stays.
    Allocate(String, u64, u64, bool),
    /// Zeros in the place of so many bytes at an offset; true: the file's length stays.
    Zero(String, u64, u64, bool),
    /// So many bytes at an offset taken out, whole blocks of a file with extents.
    Collapse(String, u64, u64),
    /// So many bytes of a hole put in at an offset, the same.
    Insert(String, u64, u64),
    /// An attribute of so many bytes of one value.
    Attribute(String, usize, u8),
    /// That attribute goes.
    Strip(String),
    /// An access list whose mask is this, which the group's permissions then are too.
    Grant(String, u8),
    /// Owner, group and permissions that stand for this number.
    Own(String, u8),
    /// Times of modification and access that stand for this number, as who copies a file sets.
    Date(String, u8),
    Fsync(String),
    Fdatasync(String),
    Sync,
    /// Tells the disk what is free.
    Trim,
    /// All of a file.
    Read(String),
    /// So many seconds, in which the volume does what it does by itself.
    Pause(u64),
    /// So many seconds in which the volume stands still, as for a copy of it: all that was answered
    /// before is durable then.
    Still(u64),
}

/// The directory and the name of a path.
pub(crate) fn split(path: &str) -> (&str, Vec<u8>) {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    (dir, name.as_bytes().to_vec())
}

impl Act {
    /// The paths whose inodes the request needs: the directory or the file, then the other
    /// directory.
    pub(crate) fn needs(&self) -> Vec<&str> {
        match self {
            Act::Create(p)
            | Act::Mkdir(p)
            | Act::Symlink(p, _)
            | Act::Unlink(p)
            | Act::Emerge(p, ..)
            | Act::Vanish(p, _)
            | Act::Linger(p, ..)
            | Act::Rmdir(p) => {
                vec![split(p).0]
            }
            Act::Link(a, b) => vec![a, split(b).0],
            Act::Rename(a, b) | Act::Whiteout(a, b) | Act::Exchange(a, b) => {
                vec![split(a).0, split(b).0]
            }
            _ => self.paths(),
        }
    }

    /// The directories in which names change.
    pub(crate) fn dirs(&self) -> Vec<&str> {
        match self {
            Act::Create(p)
            | Act::Mkdir(p)
            | Act::Symlink(p, _)
            | Act::Unlink(p)
            | Act::Rmdir(p)
            | Act::Emerge(p, ..)
            | Act::Vanish(p, _)
            | Act::Linger(p, ..)
            | Act::Link(_, p) => vec![split(p).0],
            Act::Rename(a, b) | Act::Whiteout(a, b) | Act::Exchange(a, b) => {
                vec![split(a).0, split(b).0]
            }
            _ => vec![],
        }
    }

    /// The names it may take away, which a kernel looks up first.
    pub(crate) fn takes(&self) -> Vec<&str> {
        match self {
            Act::Unlink(p) | Act::Rmdir(p) | Act::Vanish(p, _) | Act::Linger(p, ..) => vec![p],
            Act::Rename(a, b) | Act::Whiteout(a, b) => vec![a, b],
            _ => vec![],
        }
    }

    /// Does its answer tell of a new inode?
    pub(crate) fn makes(&self) -> bool {
        matches!(self, Act::Create(_) | Act::Mkdir(_) | Act::Symlink(..))
    }

    /// What it writes: the path, the offset, how much, and which value.
    pub(crate) fn written(&self) -> Option<(&str, u64, usize, u8)> {
        match self {
            Act::Write(p, at, len, value) | Act::WriteSync(p, at, len, value) => {
                Some((p, *at, *len, *value))
            }
            _ => None,
        }
    }

    /// The act as the answer says that it was done: of a write that was cut short, as many bytes
    /// as were taken.
    pub(crate) fn answered_by(mut self, reply: &Reply) -> Act {
        let is_write = self.written().is_some();
        let told = matches!(reply, Reply::Written { .. });
        assert!(told || !is_write, "A2: {self:?} is answered, and not how much of it was written");
        let asked = match &mut self {
            Act::Write(_, _, len, _) | Act::WriteSync(_, _, len, _) | Act::Emerge(_, len, _) => len,
            _ => return self,
        };
        if let Reply::Written { len, .. } = reply {
            assert!(*len as usize <= *asked, "A2: {len} bytes were written, {asked} were given");
            *asked = *len as usize;
        }
        self
    }

    /// The file whose contents change.
    pub(crate) fn changed_file(&self) -> Option<&str> {
        match self {
            Act::Truncate(p, _) | Act::Vanish(p, _) | Act::Linger(p, ..) => Some(p),
            Act::Punch(p, ..) | Act::Allocate(p, ..) | Act::Zero(p, ..) => Some(p),
            Act::Collapse(p, ..) | Act::Insert(p, ..) => Some(p),
            _ => self.written().map(|w| w.0),
        }
    }

    /// The file whose contents are durable when it has been answered.
    pub(crate) fn synced_file(&self) -> Option<&str> {
        match self {
            Act::Fsync(p) | Act::Fdatasync(p) | Act::WriteSync(p, ..) => Some(p),
            _ => None,
        }
    }

    /// Is all that was answered before it began durable when it has been answered?
    pub(crate) fn syncs_all(&self) -> bool {
        matches!(self, Act::Sync | Act::Still(_))
    }

    /// The paths it is about.
    pub(crate) fn paths(&self) -> Vec<&str> {
        match self {
            Act::Create(p)
            | Act::Mkdir(p)
            | Act::Symlink(p, _)
            | Act::Unlink(p)
            | Act::Rmdir(p)
            | Act::Truncate(p, _)
            | Act::Write(p, ..)
            | Act::WriteSync(p, ..)
            | Act::Punch(p, ..)
            | Act::Allocate(p, ..)
            | Act::Zero(p, ..)
            | Act::Collapse(p, ..)
            | Act::Insert(p, ..)
            | Act::Emerge(p, ..)
            | Act::Vanish(p, _)
            | Act::Linger(p, ..)
            | Act::Attribute(p, ..)
            | Act::Strip(p)
            | Act::Grant(p, _)
            | Act::Own(p, _)
            | Act::Date(p, _)
            | Act::Fsync(p)
            | Act::Fdatasync(p)
            | Act::Read(p) => vec![p],
            Act::Link(a, b) | Act::Rename(a, b) | Act::Whiteout(a, b) | Act::Exchange(a, b) => {
                vec![a, b]
            }
            Act::Sync | Act::Trim | Act::Pause(_) | Act::Still(_) => vec![],
        }
    }

    /// The same act on other paths.
    pub(crate) fn renamed(mut self, to: impl Fn(&str) -> String) -> Act {
        match &mut self {
            Act::Create(p)
            | Act::Mkdir(p)
            | Act::Symlink(p, _)
            | Act::Unlink(p)
            | Act::Rmdir(p)
            | Act::Truncate(p, _)
            | Act::Write(p, ..)
            | Act::WriteSync(p, ..)
            | Act::Punch(p, ..)
            | Act::Allocate(p, ..)
            | Act::Zero(p, ..)
            | Act::Collapse(p, ..)
            | Act::Insert(p, ..)
            | Act::Emerge(p, ..)
            | Act::Vanish(p, _)
            | Act::Linger(p, ..)
            | Act::Attribute(p, ..)
            | Act::Strip(p)
            | Act::Grant(p, _)
            | Act::Own(p, _)
            | Act::Date(p, _)
            | Act::Fsync(p)
            | Act::Fdatasync(p)
            | Act::Read(p) => *p = to(p),
            Act::Link(a, b) | Act::Rename(a, b) | Act::Whiteout(a, b) | Act::Exchange(a, b) => {
                (*a, *b) = (to(a), to(b))
            }
            Act::Sync | Act::Trim | Act::Pause(_) | Act::Still(_) => (),
        }
        self
    }

    /// The request, with the inodes of `needs` in its order.
    pub(crate) fn request(&self, inos: &[u32]) -> Request {
        assert_eq!(inos.len(), self.needs().len(), "A1: so many inodes for {self:?}");
        let make = |dir: u32, path: &str, kind: MakeKind| Request::Make {
            dir,
            name: split(path).1,
            kind,
            attr: SetAttr { mode: Some(0o755), ..SetAttr::default() },
            umask: 0,
            fail_if_exists: true,
        };
        match self {
            Act::Create(p) => make(inos[0], p, MakeKind::File { exclusive: None }),
            Act::Mkdir(p) => make(inos[0], p, MakeKind::Dir),
            Act::Symlink(p, to) => make(inos[0], p, MakeKind::Symlink(to.clone().into_bytes())),
            Act::Link(_, b) => Request::Link { ino: inos[0], dir: inos[1], name: split(b).1 },
            // Of the second one step; `perform` has the others.
            Act::Unlink(p) | Act::Vanish(p, _) | Act::Linger(p, ..) => {
                Request::Unlink { dir: inos[0], name: split(p).1 }
            }
            Act::Rmdir(p) => Request::Rmdir { dir: inos[0], name: split(p).1 },
            Act::Rename(a, b) | Act::Whiteout(a, b) | Act::Exchange(a, b) => Request::Rename {
                dir: inos[0],
                name: split(a).1,
                to_dir: inos[1],
                to_name: split(b).1,
                mode: match self {
                    Act::Whiteout(..) => RenameMode::Whiteout { replace: true },
                    Act::Exchange(..) => RenameMode::Exchange,
                    _ => RenameMode::Replace,
                },
            },
            // The first step; the others are `perform`'s.
            Act::Emerge(..) => {
                let attr = SetAttr { mode: Some(0o644), ..SetAttr::default() };
                Request::MakeUnnamed { dir: inos[0], attr, umask: 0 }
            }
            Act::Truncate(_, size) => {
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                Request::SetAttr { ino: inos[0], set }
            }
            Act::Write(_, offset, len, byte) | Act::WriteSync(_, offset, len, byte) => {
                let stability = match self {
                    Act::Write(..) => Stability::Unstable,
                    _ => Stability::DataSync,
                };
                write_of(inos[0], *offset, &payload(*byte, *offset, *len), stability)
            }
            Act::Punch(_, at, len) => space(inos[0], SpaceOp::PunchHole, *at, *len),
            Act::Zero(_, at, len, keep_size) => {
                space(inos[0], SpaceOp::ZeroRange { keep_size: *keep_size }, *at, *len)
            }
            Act::Collapse(_, at, len) => shift(inos[0], Shift::Collapse, *at, *len),
            Act::Insert(_, at, len) => shift(inos[0], Shift::Insert, *at, *len),
            Act::Allocate(_, at, len, keep_size) => {
                space(inos[0], SpaceOp::Allocate { keep_size: *keep_size }, *at, *len)
            }
            Act::Attribute(_, len, value) => set_attribute(inos[0], vec![*value; *len]),
            Act::Strip(_) => Request::RemoveXattr { ino: inos[0], name: ATTRIBUTE.to_vec() },
            Act::Grant(_, mask) => grant(inos[0], *mask),
            Act::Own(_, n) => Request::SetAttr { ino: inos[0], set: owned(*n) },
            Act::Date(_, n) => Request::SetAttr { ino: inos[0], set: dated(*n) },
            Act::Fsync(_) | Act::Fdatasync(_) => fsync(inos[0], matches!(self, Act::Fdatasync(_))),
            Act::Read(_) => Request::Read { ino: inos[0], offset: 0, len: 1 << 20 },
            Act::Sync => Request::SyncAll,
            Act::Trim => Request::Trim { from: 0, bytes: u64::MAX, min_bytes: 0 },
            Act::Pause(_) => Request::StatFs,
            // The first step; the others are `perform`'s.
            Act::Still(secs) => Request::Freeze { most: Nanos::from_secs(secs + 1) },
        }
    }
}

fn write_of(ino: u32, offset: u64, bytes: &[u8], stability: Stability) -> Request {
    let data = Rope::cut(bytes, (offset % 1024) as usize, 1024);
    Request::write(ino, offset, data, stability)
}

fn fsync(ino: u32, data_only: bool) -> Request {
    Request::Fsync { ino, data_only }
}

fn space(ino: u32, op: SpaceOp, offset: u64, len: u64) -> Request {
    Request::Space { ino, op, offset, len }
}

fn shift(ino: u32, way: Shift, offset: u64, len: u64) -> Request {
    Request::Shift { ino, way, offset, len }
}

fn grant(ino: u32, mask: u8) -> Request {
    assert!(mask <= 7, "A3: {mask:o} is no mask");
    let (name, value) = (ACCESS_LIST.to_vec(), list_with(mask));
    Request::SetXattr { ino, name, value, mode: XattrMode::Either, kill_sgid: false }
}

/// The attribute that an access list is.
pub(crate) const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// The tag of its mask.
const MASK: u16 = 0x10;

/// An access list with this mask: of the owner, a user, the group, the mask and others.
fn list_with(mask: u8) -> Vec<u8> {
    let none = u32::MAX;
    let all =
        [(1, 7, none), (2, 7, 1), (4, 7, none), (MASK, u16::from(mask), none), (0x20, 0, none)];
    let entry = |(tag, perm, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    2u32.to_le_bytes().into_iter().chain(all.into_iter().flat_map(entry)).collect()
}

/// The mask of an access list, as it is asked for.
pub(crate) fn mask_of(list: &[u8]) -> Option<u32> {
    let mut entries = list.get(4..)?.chunks_exact(8);
    let mask = entries.find(|e| e[..2] == MASK.to_le_bytes())?;
    Some(u32::from(mask[2]))
}

/// What stands for a number: the permissions, the owner and the group.
fn owned(n: u8) -> SetAttr {
    assert!(n > 0, "A3: 0 stands for owners and permissions of two changes");
    let n = u32::from(n);
    let (mode, uid, gid) = (Some(0o700 | n & 0o77), Some(UID + n), Some(GID + n));
    SetAttr { mode, uid, gid, ..SetAttr::default() }
}

/// The number that these stand for; Some(0): they are not all of one. None: nobody has set any, and
/// the permissions are some that a file is made with or an access list gives.
pub(crate) fn owner_of(mode: u32, uid: u32, gid: u32) -> Option<u8> {
    if uid == 0 && gid == 0 {
        let granted = mode & 0o7707 == 0o700;
        let as_made = granted || [0o755, 0o644, 0o600, 0o777, 0].contains(&(mode & 0o7777));
        return if as_made { None } else { Some(0) };
    }
    let n = uid.checked_sub(UID).and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
    let whole = gid == GID + u32::from(n) && mode & 0o777 == 0o700 | u32::from(n) & 0o77;
    Some(if whole { n } else { 0 })
}

/// What the times that stand for a number are, in nanoseconds since 1970: none that a clock shows
/// while something is done.
pub fn date_of(n: u8) -> u64 {
    const FIRST_SECS: u64 = 1_500_000_000;
    (FIRST_SECS + u64::from(n) * 86_400) * 1_000_000_000 + 123_456_789
}

fn dated(n: u8) -> SetAttr {
    let at = Some(SetTime::To(Time::from_wall(Nanos(date_of(n)))));
    SetAttr { mtime: at, atime: at, ..SetAttr::default() }
}

const UID: u32 = 1000;
const GID: u32 = 2000;

/// The attribute that acts set.
pub(crate) const ATTRIBUTE: &[u8] = b"user.attribute";

fn set_attribute(ino: u32, value: Vec<u8>) -> Request {
    assert!(!value.is_empty(), "A3: an empty attribute is told from none, and from no other");
    let (name, mode) = (ATTRIBUTE.to_vec(), XattrMode::Either);
    Request::SetXattr { ino, name, value, mode, kill_sgid: false }
}

/// What a write of this value puts at a place: the value, but for one value words that look like a
/// journal's own blocks.
pub(crate) fn byte_at(value: u8, at: u64) -> u8 {
    if !is_same_everywhere(value) {
        format::jbd2::MAGIC.to_be_bytes()[(at % 4) as usize]
    } else {
        value
    }
}

/// Is each byte of such a write the value itself? One value stands for a journal's magic number.
pub(crate) fn is_same_everywhere(value: u8) -> bool {
    value != 0xc0
}

/// The bytes of a write.
pub fn payload(value: u8, offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| byte_at(value, at)).collect()
}

/// What follows when a file that is to emerge was made: its contents, and its name in `dir`.
pub(crate) fn emerging(act: &Act, dir: u32, ino: u32) -> Vec<Request> {
    let Act::Emerge(path, len, value) = act else { return Vec::new() };
    let write = Act::Write(path.clone(), 0, *len, *value).request(&[ino]);
    let link = Request::Link { ino, dir, name: split(path).1 };
    vec![write, link]
}

/// What follows when a file that is open has lost its last name: it grows, gets an attribute, and
/// is made durable. Nobody will see it again.
pub(crate) fn lingering(act: &Act, ino: u32) -> Vec<Request> {
    let Act::Linger(path, len, value) = act else { return Vec::new() };
    let of = |act: Act| act.request(&[ino]);
    vec![
        of(Act::Write(path.clone(), LINGERS_AT, *len, *value)),
        of(Act::Attribute(path.clone(), LINGERS_WITH, *value)),
        of(Act::Fsync(path.clone())),
    ]
}

/// Where what has no name any more is written: behind most ends.
pub(crate) const LINGERS_AT: u64 = 9000;
/// Bytes of the attribute that it gets.
pub(crate) const LINGERS_WITH: usize = 300;

/// The inode in a reply.
pub(crate) fn ino_of(reply: &Reply) -> Option<u32> {
    match reply {
        Reply::Entry { attr, .. } | Reply::Attr(attr) => Some(attr.ino),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of act, by all scenarios: what it changes is among what it is about.
    #[test]
    fn an_act_is_about_what_it_changes() {
        for (name, _) in crate::scenarios() {
            for seed in 0..6 {
                let Some(script) = crate::scenario::script_on(name, seed, 1) else { continue };
                for act in script.setup.iter().chain(&script.acts) {
                    let about = act.paths();
                    let files = act.changed_file().into_iter().chain(act.synced_file());
                    assert!(files.clone().all(|p| about.contains(&p)), "A4: {act:?}");
                    let parent = |p: &&str| split(p).0.to_owned();
                    let parents: Vec<String> = about.iter().map(parent).collect();
                    assert!(
                        act.dirs().iter().all(|d| parents.contains(&(*d).to_owned())),
                        "A4: {act:?}"
                    );
                    assert!(act.takes().iter().all(|p| about.contains(p)), "A4: {act:?}");
                    let renamed = act.clone().renamed(|p| format!("/x{p}"));
                    let wanted: Vec<String> = about.iter().map(|p| format!("/x{p}")).collect();
                    assert_eq!(renamed.paths(), wanted, "A4: {act:?}");
                }
            }
        }
    }

    #[test]
    fn owner_and_permissions_of_two_changes_are_told_apart() {
        let of = |n: u8| {
            let set = owned(n);
            (set.mode.unwrap(), set.uid.unwrap(), set.gid.unwrap())
        };
        let ((mode, uid, gid), (other, ..)) = (of(0o17), of(0o25));
        assert_eq!(owner_of(0o100_000 | mode, uid, gid), Some(0o17));
        assert_eq!(owner_of(0o100_755, 0, 0), None);
        // One of the three is another's, or nobody's.
        for (mode, uid, gid) in
            [(other, uid, gid), (mode, uid + 1, gid), (mode, uid, 0), (mode, 0, gid), (mode, 0, 0)]
        {
            assert_eq!(owner_of(0o100_000 | mode, uid, gid), Some(0), "{mode:o} {uid} {gid}");
        }
    }
}

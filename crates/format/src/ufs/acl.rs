//! POSIX access lists: the compact form on disk (version 1) and the kernel's form in extended
//! attributes (version 2). Who may do what by them is decided in `vfs::access`.

use crate::bytes::{le16, le32, set16, set32};

const DISK_VERSION: u32 = 1;
const KERNEL_VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;

/// Entry tags: owner, a user, the owning group, a group, the mask, others.
pub mod tag {
    /// The owner.
    pub const USER_OBJ: u16 = 0x01;
    /// A named user.
    pub const USER: u16 = 0x02;
    /// The owning group.
    pub const GROUP_OBJ: u16 = 0x04;
    /// A named group.
    pub const GROUP: u16 = 0x08;
    /// The most that named users and groups get.
    pub const MASK: u16 = 0x10;
    /// Everybody else.
    pub const OTHER: u16 = 0x20;
}

/// One entry: tag, permissions (4 read, 2 write, 1 execute), id (for named users and groups).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclEntry {
    /// See [`tag`].
    pub tag: u16,
    /// rwx bits.
    pub perm: u16,
    /// Whom, with a named tag.
    pub id: u32,
}

fn named(t: u16) -> bool {
    t == tag::USER || t == tag::GROUP
}

/// From the kernel's representation; None if it is no valid list.
pub fn from_kernel(v: &[u8]) -> Option<Vec<AclEntry>> {
    if v.len() < 4 || le32(v, 0) != KERNEL_VERSION || !(v.len() - 4).is_multiple_of(8) {
        return None;
    }
    let list: Vec<AclEntry> = v[4..]
        .chunks(8)
        .map(|e| AclEntry { tag: le16(e, 0), perm: le16(e, 2), id: le32(e, 4) })
        .collect();
    is_valid(&list).then_some(list)
}

/// Is it a list POSIX allows: sorted by tag, the three base entries once, a mask if anybody is
/// named?
pub(crate) fn is_valid(list: &[AclEntry]) -> bool {
    let count = |t| list.iter().filter(|e| e.tag == t).count();
    let any_named = list.iter().any(|e| named(e.tag));
    list.iter().all(|e| e.perm <= 7 && matches!(e.tag, 1 | 2 | 4 | 8 | 16 | 32))
        && list.is_sorted_by_key(|e| e.tag)
        && [tag::USER_OBJ, tag::GROUP_OBJ, tag::OTHER].iter().all(|&t| count(t) == 1)
        && count(tag::MASK) <= 1
        && (!any_named || count(tag::MASK) == 1)
}

/// Into the kernel's representation.
pub fn to_kernel(list: &[AclEntry]) -> Vec<u8> {
    let mut v = vec![0; 4 + 8 * list.len()];
    set32(&mut v, 0, KERNEL_VERSION);
    for (e, out) in list.iter().zip(v[4..].chunks_mut(8)) {
        set16(out, 0, e.tag);
        set16(out, 2, e.perm);
        set32(out, 4, if named(e.tag) { e.id } else { NO_ID });
    }
    v
}

/// From the disk; None if it is damaged.
pub fn from_disk(v: &[u8]) -> Option<Vec<AclEntry>> {
    if v.len() < 4 || le32(v, 0) != DISK_VERSION {
        return None;
    }
    let mut list = Vec::new();
    let mut at = 4;
    while at < v.len() {
        if v.len() - at < 4 {
            return None;
        }
        let (t, perm) = (le16(v, at), le16(v, at + 2));
        let id = if !named(t) {
            NO_ID
        } else if v.len() - at >= 8 {
            le32(v, at + 4)
        } else {
            return None;
        };
        at += if named(t) { 8 } else { 4 };
        list.push(AclEntry { tag: t, perm, id });
    }
    Some(list)
}

/// Onto the disk. Only who is named has an id there.
pub fn to_disk(list: &[AclEntry]) -> Vec<u8> {
    let mut v = DISK_VERSION.to_le_bytes().to_vec();
    for e in list {
        v.extend(e.tag.to_le_bytes());
        v.extend(e.perm.to_le_bytes());
        if named(e.tag) {
            v.extend(e.id.to_le_bytes());
        }
    }
    let again = from_disk(&v).map(|again| to_kernel(&again));
    let same = again.as_ref() == Some(&to_kernel(list));
    assert!(same, "F1: {} entries of an access list are read as others", list.len());
    v
}

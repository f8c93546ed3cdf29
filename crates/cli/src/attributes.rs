//! Extended attributes of files outside a volume, as `put` and `get` carry them over: the user's
//! own, access lists, and what root's programs keep (capabilities, `trusted.*`), as `cp -a` does. A
//! file that loses its access list would let its group do what the list's
//! mask says. What a name means is the volume's business, and the host's.

use rustix::fs::{XattrFlags, fsetxattr, lgetxattr, llistxattr};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A file's access list.
pub const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// What a program may do whoever runs it.
const CAPABILITY: &[u8] = b"security.capability";
/// Of those that only root sees.
const TRUSTED: &[u8] = b"trusted.";
/// What a directory's new files get.
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";
/// The longest value that Linux knows.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a list's head, of an entry, and the entry of the file's group.
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const GROUP_TAG: u16 = 4;

/// Is it carried over?
pub fn is_carried(name: &[u8]) -> bool {
    name == ACCESS_LIST || name == DEFAULT_LIST || name.starts_with(b"user.") || is_roots(name)
}

/// Is it root's to give? From others the host takes none, and they lose nothing by that.
pub fn is_roots(name: &[u8]) -> bool {
    name == CAPABILITY || name.starts_with(TRUSTED)
}

/// The names in a list of them, each followed by a 0 byte, that are carried over.
pub fn names_in(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| *b == 0).filter(|name| is_carried(name))
}

/// Those of a file or directory: names with values, of which most have none.
pub fn of(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    // No name fits in a byte: without one there is no memory to be had for them.
    if llistxattr(path, &mut [0; 1][..]) != Err(Errno::RANGE) {
        return Vec::new();
    }
    let mut list = vec![0; VALUE_BYTES_MAX];
    let listed = llistxattr(path, &mut list[..]).unwrap_or(0);
    let mut all = Vec::new();
    for name in names_in(&list[..listed]) {
        let mut value = vec![0; VALUE_BYTES_MAX];
        if let Ok(len) = lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value[..]) {
            value.truncate(len);
            all.push((name.to_vec(), value));
        }
    }
    all
}

/// Gives a file this attribute. Errors: the host does not keep it.
pub fn set(file: &File, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    fsetxattr(file, std::ffi::OsStr::from_bytes(name), value, XattrFlags::empty())
}

/// The mode that a file has without this access list of its: its group may do what the list says
/// of the group, and not what the mask allows others.
pub fn mode_without(list: &[u8], mode: u32) -> u32 {
    let entries = list.get(HEAD_BYTES..).unwrap_or_default().chunks_exact(ENTRY_BYTES);
    let of_group = |e: &[u8]| u16::from_le_bytes([e[0], e[1]]) == GROUP_TAG;
    let may = entries.into_iter().find(|e| of_group(e)).map_or(0, |e| u32::from(e[2] & 7));
    mode & !0o070 | (mode & may << 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_gets_no_rights_by_the_loss_of_a_list() {
        // user::rw, user:9:rw, group::---, mask::rw, other::---
        let entries = [(1u16, 6u16), (2, 6), (4, 0), (16, 6), (32, 0)];
        let one = |(tag, perm): (u16, u16)| {
            [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &u32::MAX.to_le_bytes()].concat()
        };
        let list: Vec<u8> =
            2u32.to_le_bytes().into_iter().chain(entries.into_iter().flat_map(one)).collect();
        assert_eq!(mode_without(&list, 0o660), 0o600);
        assert_eq!(mode_without(&[2, 0, 0, 0, 4, 0, 5, 0, 0, 0, 0, 0], 0o775), 0o755);
        assert_eq!(mode_without(b"", 0o664), 0o604, "a list that cannot be read gives nothing");
        assert!(is_carried(b"user.x") && is_carried(ACCESS_LIST) && !is_carried(b"security.x"));
        assert!(is_carried(b"trusted.x") && is_carried(CAPABILITY) && !is_roots(b"user.x"));
    }
}

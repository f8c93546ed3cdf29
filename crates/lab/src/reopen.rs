//! A state of a mode whose operations are atomic, opened, read and closed: what its volumes show
//! then, with attributes where these are known, and whether the disks show the same afterwards. It
//! knows nothing of what should be there.
//!
//! Invariants:
//! * O1. Each volume is looked at, whether it is opened with the others or alone.

use crate::acts::{ACCESS_LIST, ATTRIBUTE, mask_of};
use crate::prefix::in_recovery;
use crate::seen::both_same;
use crate::setting::Setting;
use crate::soft::HAVE_ATTRIBUTES;
use crate::subject::{Seen, Subject};
use integrity::Plant;
use sim::Image;
use std::collections::BTreeMap;
use vfs::{FsError, Reply, Request};

/// The volumes' trees after recovery, and the disks after all were opened for writing and closed
/// again.
pub(crate) type Reopened = (Vec<BTreeMap<String, Seen>>, Vec<Image>);

pub(crate) fn reopened(
    disks: Vec<Image>,
    setting: Setting,
    (plant, attributes): (Plant, bool),
) -> Result<Reopened, String> {
    let opened = Subject::open(disks, setting, false, (in_recovery(plant), 1));
    let mut s = opened.map_err(|why| format!("recovery or opening: {why}"))?;
    let trees = read(&mut s, setting, attributes);
    let trees = trees.map_err(|why| format!("reading after recovery: {why}"))?;
    let closed = s.close().map_err(|why| format!("closing after recovery: {why}"))?;
    Ok((trees, closed))
}

/// The volumes' trees; `with`: with attributes.
fn read(
    s: &mut Subject,
    setting: Setting,
    with: bool,
) -> Result<Vec<BTreeMap<String, Seen>>, FsError> {
    let one = |n| {
        s.turn_to(n);
        let mut tree = s.tree(true)?;
        if with {
            attributes(s, &mut tree)?;
        }
        Ok(tree)
    };
    (0..setting.volumes).map(one).collect()
}

/// What was read is on the disks when it is closed, and not in memory alone. Some: it is not.
pub(crate) fn other_when_closed(
    closed: &[Image],
    setting: Setting,
    (trees, attributes): (&[BTreeMap<String, Seen>], bool),
) -> Option<String> {
    let again = Subject::open(closed.to_vec(), setting, true, (Plant::NONE, 1))
        .and_then(|mut s| read(&mut s, setting, attributes).map_err(|e| e.to_string()));
    let again = match again {
        Ok(again) => again,
        Err(why) => return Some(format!("opened again when it was closed: {why}")),
    };
    assert_eq!(trees.len(), again.len(), "O1: so many volumes are opened again");
    let other = trees.iter().zip(&again).find_map(|(old, new)| {
        let differs = |p: &&String| !both_same(old.get(*p), new.get(*p));
        old.keys().chain(new.keys()).find(differs)
    });
    other.map(|p| format!("{p} is another when the volume was closed and is opened again"))
}

/// Reads the attributes of files.
pub(crate) fn attributes(
    s: &mut Subject,
    tree: &mut BTreeMap<String, Seen>,
) -> Result<(), FsError> {
    for seen in tree.values_mut().filter(|f| HAVE_ATTRIBUTES.contains(&f.kind)) {
        let request = Request::GetXattr { ino: seen.ino, name: ATTRIBUTE.to_vec() };
        match s.ask(u64::MAX / 4, request) {
            Err(FsError::NoData) => (),
            Err(e) => return Err(e),
            Ok(Reply::Bytes(value)) => {
                let first = *value.first().ok_or(FsError::Io)?;
                let is_one = value.iter().all(|b| *b == first);
                seen.attribute = Some(if is_one { (value.len(), first) } else { (0, 0) });
            }
            Ok(_) => return Err(FsError::Io),
        }
        // The group's permissions are the mask of an access list.
        let request = Request::GetXattr { ino: seen.ino, name: ACCESS_LIST.to_vec() };
        match s.ask(u64::MAX / 4, request) {
            Ok(Reply::Bytes(list)) if mask_of(&list) != Some(seen.mode >> 3 & 7) => {
                seen.owner = Some(0);
            }
            Ok(_) | Err(FsError::NoData) => (),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The same with each volume alone, one after the other; the log goes from one to the next.
pub(crate) fn reopened_apart(
    mut disks: Vec<Image>,
    setting: Setting,
    what: (Plant, bool),
) -> Result<Reopened, String> {
    let alone = Setting { volumes: 1, ..setting };
    let log = disks.len() - 1;
    let mut trees = Vec::new();
    for n in 0..usize::from(setting.volumes) {
        let two = vec![disks[n].clone(), disks[log].clone()];
        let (tree, closed) = reopened(two, alone, what)?;
        trees.extend(tree);
        assert_eq!(closed.len(), 2, "O1: a volume and its log");
        (disks[n], disks[log]) = (closed[0].clone(), closed[1].clone());
    }
    assert_eq!(trees.len(), log, "O1: a tree of each volume");
    Ok((trees, disks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acts::Act;
    use crate::setting::new_disks;
    use volume::Mode;

    /// A close that leaves contents in memory, and the judge that has read them there.
    #[test]
    fn what_was_in_memory_alone_is_missed_when_it_was_closed() {
        let setting = Setting::plain(Mode::Ordered);
        let disks = new_disks(2 << 20, setting);
        let mut v = Subject::open(disks, setting, false, (Plant::NONE, 1)).unwrap();
        v.act(1, &Act::Create("/f".into())).unwrap();
        v.act(2, &Act::Write("/f".into(), 0, 3000, 0xa7)).unwrap();
        v.act(3, &Act::Attribute("/f".into(), 40, 3)).unwrap();
        let (trees, mut closed) =
            reopened(v.close().unwrap(), setting, (Plant::NONE, true)).unwrap();
        assert_eq!(trees[0]["/f"].attribute, Some((40, 3)));
        assert_eq!(other_when_closed(&closed, setting, (&trees, true)), None);
        let bytes = closed[0].to_vec();
        let at = bytes.chunks(1024).position(|block| *block == [0xa7; 1024]).unwrap();
        closed[0].write(at as u64 * 1024, &[0; 1024]);
        let other = other_when_closed(&closed, setting, (&trees, true)).unwrap_or_default();
        assert!(other.contains("/f is another"), "{other}");
    }
}

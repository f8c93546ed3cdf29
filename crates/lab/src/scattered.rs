//! Volumes in whose groups hardly anything is free, so that each piece of a write lies in another
//! one. No operation changes more blocks than it has said before it began.

use crate::acts::Act;
use crate::judge::e2fsck;
use crate::setting::new_disks;
use crate::subject::{Setting, Subject, VolumeKind};
use integrity::Plant;
use vfs::FsError;
use volume::Mode;

/// Bytes of a volume of 48 groups.
const VOLUME_BYTES: u64 = 12 << 20;

/// Writes as much as there is room for, so many bytes at a time, and has each write committed
/// alone: how much, and in how many writes.
fn fill(v: &mut Subject, path: &str, bytes: usize) -> (u64, u32) {
    v.act(1, &Act::Create(path.into())).unwrap();
    let (mut end, mut writes) = (0, 0);
    loop {
        v.act(1, &Act::Sync).unwrap();
        match v.act_as_done(1, &Act::Write(path.into(), end, bytes, 1)) {
            Ok(Act::Write(_, _, len, _)) => (end, writes) = (end + len as u64, writes + 1),
            other => {
                assert_eq!(other, Err(FsError::NoSpace));
                return (end, writes);
            }
        }
    }
}

#[test]
fn a_write_to_many_groups_changes_no_more_than_it_has_said() {
    // With extents, two of a hundred free blocks are kept for their nodes.
    let kinds = [(VolumeKind::Ext3, 120), (VolumeKind::Ext4 { checksums: true }, 24)];
    for (kind, every) in kinds {
        for mode in [Mode::Ordered, Mode::Data, Mode::Unified] {
            let setting = Setting { kind, small_groups: true, ..Setting::plain(mode) };
            let disks = new_disks(VOLUME_BYTES, setting);
            let mut v = Subject::open(disks, setting, false, (Plant::NONE, 0)).unwrap();
            let (end, _) = fill(&mut v, "/full", 256 << 10);
            for at in (0..end).step_by(every << 10) {
                v.act(1, &Act::Punch("/full".into(), at, 1 << 10)).unwrap();
            }
            let (new, writes) = fill(&mut v, "/new", 1 << 20);
            assert!(new >= 64 << 10 && writes > 1, "{mode} {kind:?}: {new} bytes in {writes}");
            assert_eq!(v.tree(false).unwrap()["/new"].size, new);
            let disks = v.close().unwrap();
            e2fsck(&disks).unwrap_or_else(|text| panic!("{mode} {kind:?}: {text}"));
        }
    }
}

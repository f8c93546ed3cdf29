//! A list of orphans, as a kernel with a journal leaves it, taken over by a mode whose operations
//! are not atomic: the power fails at each write of opening, and the next opening must find a list
//! that leads to orphans.

use crate::acts::Act;
use crate::judge::e2fsck;
use crate::kernel::inode_at;
use crate::setting::JUDGED_SECS;
use crate::soft::beyond_harmless;
use crate::subject::{Setting, SimDevice, Subject, fresh, recover};
use format::Ino;
use format::ext::superblock::{STATE_VALID, SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use format::ext::{Geometry, Superblock};
use format::ufs::inode::{CLASSIC_BYTES, InodeMut};
use integrity::Plant;
use sim::{CrashImages, Image};
use std::collections::BTreeSet;
use vfs::{Call, Request};
use volume::{Mode, probe};

const NO_ACT: u64 = u64::MAX / 4;
const CUT_BYTES: u64 = 2000;

fn superblock(disk: &Image) -> Superblock {
    let mut raw = [0; SUPERBLOCK_BYTES];
    disk.read(SUPERBLOCK_AT, &mut raw);
    Superblock::decode(&raw).unwrap()
}

fn edit(disk: &mut Image, ino: u32, f: impl Fn(&mut InodeMut<'_>)) {
    let at = inode_at(disk, &Geometry::of(&superblock(disk)), Ino(ino));
    let mut raw = vec![0; CLASSIC_BYTES];
    disk.read(at, &mut raw);
    f(&mut InodeMut(&mut raw));
    disk.write(at, &raw);
}

/// A volume whose list of orphans leads to files without names, and, between two of them, to one
/// that is to be cut to its size.
fn with_orphans() -> Image {
    let setting = Setting::plain(Mode::Sync);
    let mut v =
        Subject::open(vec![fresh(2 << 20, false)], setting, false, (Plant::NONE, 3)).unwrap();
    let mut inos = Vec::new();
    for (n, name) in ["a", "b", "cut", "c", "d"].into_iter().enumerate() {
        let path = format!("/{name}");
        v.act(NO_ACT, &Act::Create(path.clone())).unwrap();
        v.act(NO_ACT, &Act::Write(path.clone(), 0, 15_000, n as u8)).unwrap();
        inos.push(v.walk(&path).unwrap());
        let look = Request::Lookup { dir: 2, name: name.as_bytes().to_vec() };
        v.call(NO_ACT, Call { hold: true, ..Call::local(look) }).result.unwrap();
    }
    v.act(NO_ACT, &Act::Sync).unwrap();
    for name in ["a", "b", "c", "d"] {
        v.act(NO_ACT, &Act::Unlink(format!("/{name}"))).unwrap();
    }
    v.act(NO_ACT, &Act::Sync).unwrap();
    let mut disk = v.disks().remove(0);
    for pair in inos.windows(2) {
        edit(&mut disk, pair[0], |i| i.set_dtime(pair[1]));
    }
    edit(&mut disk, inos[2], |i| i.set_size(CUT_BYTES));
    let mut sb = superblock(&disk);
    sb.set_last_orphan(inos[0]);
    sb.set_state(sb.state() | STATE_VALID); // as ext3 has it when its journal is replayed
    disk.write(SUPERBLOCK_AT, sb.bytes());
    disk
}

fn judge(disk: &Image, setting: Setting) -> Result<(), String> {
    let disks = vec![disk.clone()];
    if superblock(disk).last_orphan() == 0
        && let Some(lines) = crate::judge::e2fsck_lines(&disks)?
        && let Some(line) = beyond_harmless(&lines, false)
    {
        return Err(format!("e2fsck of what the crash has left: {line}"));
    }
    let mut v = Subject::open(disks, setting, false, (Plant::NONE, 1))?;
    let tree = v.tree(true).map_err(|e| format!("reading: {e}"))?;
    let files: Vec<(&str, u64)> = tree.iter().map(|(p, s)| (&**p, s.size)).collect();
    let expected = [("/cut", CUT_BYTES)];
    let found: Vec<_> = files.into_iter().filter(|(p, _)| *p != "/lost+found").collect();
    if found != expected {
        return Err(format!("there are {found:?}"));
    }
    let mut after = v.close().map_err(|e| format!("closing: {e}"))?;
    if superblock(&after[0]).last_orphan() != 0 {
        return Err("a closed volume has orphans".into());
    }
    recover(&mut after, JUDGED_SECS)?;
    e2fsck(&after)
}

#[test]
fn a_list_of_orphans_is_taken_over_in_order() {
    let disk = with_orphans();
    for mode in [Mode::SoftUpdates, Mode::Sync] {
        let setting = Setting::plain(mode);
        for seed in 0..4 {
            let opened = Subject::open(vec![disk.clone()], setting, false, (Plant::NONE, seed));
            let mut v = opened.unwrap();
            v.act(NO_ACT, &Act::Sync).unwrap();
            let trace = std::mem::take(&mut v.world.trace);
            let mut images = CrashImages::of_disks(&trace, vec![disk.clone()]);
            let (mut seen, mut cut) = (BTreeSet::new(), 0);
            loop {
                for variant in 0..images.variants(3) {
                    let state = images.images(variant).remove(0);
                    if seen.insert(state.digest()) {
                        let judged = judge(&state, setting);
                        assert_eq!(judged, Ok(()), "mode {mode}, seed {seed}: {cut}:{variant}");
                    }
                }
                cut += 1;
                if images.step().is_none() {
                    break;
                }
            }
            assert!(seen.len() > 10, "mode {mode}: {} states", seen.len());
            assert!(probe(&SimDevice(v.disks().remove(0))).is_ok());
        }
    }
}

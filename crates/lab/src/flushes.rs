//! What fsync costs in soft updates: a flush for each level of what the file waits for, and no more
//! (ganger-1994 and mckusick-1999: bits and contents, inodes, names). What operations
//! cost in mode sync: a flush for each level up to the names.

use crate::acts::Act;
use crate::setting::{JUDGED_SECS, Setting, SimDevice, recover};
use crate::subject::{Subject, new_disks};
use check::{Options, check};
use integrity::Plant;
use volume::Mode;

fn s(path: &str) -> String {
    path.to_owned()
}

/// Does all of it, and says how often the last act alone has flushed.
fn flushes_of_last(mode: Mode, acts: &[Act]) -> usize {
    let setting = Setting::plain(mode);
    let disks = new_disks(4 << 20, setting);
    let mut v = Subject::open(disks, setting, false, (Plant::NONE, 1)).unwrap();
    let mut before = 0;
    for (n, act) in (0..).zip(acts) {
        before = v.world.trace.flushes.len();
        v.act(n, act).unwrap_or_else(|e| panic!("{act:?}: {e}"));
    }
    let flushes = v.world.trace.flushes.len() - before;
    v.leave();
    flushes
}

#[test]
fn an_fsync_flushes_once_for_each_level_that_it_waits_for() {
    let old = [Act::Create(s("/f")), Act::Write(s("/f"), 0, 4000, 1), Act::Sync];
    let with = |acts: &[Act]| [&old[..], acts].concat();
    let fsync = |p: &str| Act::Fsync(s(p));
    let new = |p: &str| [Act::Create(s(p)), Act::Write(s(p), 0, 9000, 2)];

    let cases = [
        ("contents in place", with(&[Act::Write(s("/f"), 0, 900, 3), fsync("/f")]), 1),
        (
            "a block more: its bit and contents, the inode",
            { with(&[Act::Write(s("/f"), 4000, 9000, 3), fsync("/f")]) },
            2,
        ),
        (
            "a new file: bits and contents, the inode, the name",
            { with(&[&new("/g")[..], &[fsync("/g")]].concat()) },
            3,
        ),
        (
            "a new name of an old file: its count, the name",
            { with(&[Act::Link(s("/f"), s("/l")), fsync("/f")]) },
            2,
        ),
        (
            "two new files, the second is taken along",
            { with(&[&new("/g")[..], &new("/h"), &[fsync("/g"), fsync("/h")]].concat()) },
            3,
        ),
        (
            "below a new directory: as many levels, and its name",
            {
                let below = [Act::Mkdir(s("/d")), Act::Create(s("/d/f")), fsync("/d/f")];
                with(&below)
            },
            4,
        ),
        ("nothing has changed", with(&[fsync("/f")]), 1),
    ];
    for (what, acts, most) in cases {
        let flushes = flushes_of_last(Mode::SoftUpdates, &acts);
        assert!(flushes <= most, "{what}: {flushes} flushes, {most} suffice");
        assert!(flushes > 0 || what == "nothing has changed", "{what}: no flush at all");
    }
}

/// Does all of it by one caller, pauses too, and says how often a sync flushes after it.
fn flushes_of_sync_after(acts: &[Act]) -> usize {
    let setting = Setting::plain(Mode::SoftUpdates);
    let disks = new_disks(4 << 20, setting);
    let mut v = Subject::open(disks, setting, false, (Plant::NONE, 1)).unwrap();
    for (act, did) in acts.iter().zip(v.act_in_lanes(acts, 1, (1, false, false), 600)) {
        did.expect("it is answered").unwrap_or_else(|e| panic!("{act:?}: {e}"));
    }
    let before = v.world.trace.flushes.len();
    v.act(0, &Act::Sync).unwrap();
    let flushes = v.world.trace.flushes.len() - before;
    v.leave();
    flushes
}

/// Files of one name that come and go, each with the inode of the one before.
#[test]
fn a_file_made_and_removed_again_and_again_costs_no_wave() {
    let pair = [Act::Create(s("/t")), Act::Write(s("/t"), 0, 700, 1), Act::Unlink(s("/t"))];
    let acts = [&[Act::Create(s("/f")), Act::Sync][..], &vec![pair; 20].concat()].concat();
    let flushes = flushes_of_sync_after(&acts);
    assert!(flushes <= 2, "{flushes} flushes for nothing but the directory's times");
}

/// Each move's new name lies where the name before has gone, and waits for that.
#[test]
fn a_name_moved_to_and_fro_is_durable_after_the_interval() {
    let there = Act::Rename(s("/a"), s("/b"));
    let back = Act::Rename(s("/b"), s("/a"));
    let moves = vec![[there, back]; 60].concat();
    let begun = [Act::Create(s("/a")), Act::Sync];
    let at_once = flushes_of_sync_after(&[&begun[..], &moves].concat());
    assert!(at_once > 60, "a wave for each move, and not {at_once}");
    let later = flushes_of_sync_after(&[&begun[..], &moves, &[Act::Pause(6)]].concat());
    assert!(later <= 2, "{later} flushes are left after the interval");
}

#[test]
fn in_mode_sync_what_a_removed_file_held_is_given_back_behind() {
    let old = [
        Act::Mkdir(s("/d")),
        Act::Create(s("/f")),
        Act::Write(s("/f"), 0, 4000, 1),
        Act::Create(s("/g")),
        Act::Sync,
    ];
    let last = |act: Act| flushes_of_last(Mode::Sync, &[&old[..], &[act]].concat());
    assert_eq!(last(Act::Create(s("/new"))), 2, "the inode, the name");
    assert_eq!(last(Act::Unlink(s("/f"))), 1, "the name");
    assert_eq!(last(Act::Rename(s("/f"), s("/g"))), 3, "the count, the new name, the old one");
    assert_eq!(last(Act::Truncate(s("/f"), 100)), 1, "the length, which is promised");
    assert_eq!(last(Act::Rmdir(s("/d"))), 3, "the name, the directory, its parent's count");
}

/// A file with contents that was removed a moment before a power cut has left neither an inode nor
/// a name in lost+found when the volume was recovered.
#[test]
fn a_removed_file_does_not_come_back() {
    let setting = Setting::plain(Mode::Sync);
    let used = |disks: &[sim::Image]| {
        let options = Options { now_secs: JUDGED_SECS, verify: false, mark_clean: false };
        let report = check(&SimDevice(disks[0].clone()), &options, &mut ()).unwrap();
        (report.is_sound(), report.inodes_used)
    };
    let new = new_disks(4 << 20, setting);
    let mut v = Subject::open(new.clone(), setting, false, (Plant::NONE, 1)).unwrap();
    let acts = [Act::Create(s("/f")), Act::Write(s("/f"), 0, 4000, 1), Act::Sync];
    for (n, act) in (0..).zip([&acts[..], &[Act::Unlink(s("/f"))]].concat()) {
        v.act(n, &act).unwrap();
    }
    let mut disks = v.disks();
    v.leave();
    assert!(!used(&disks).0, "what it held is not given back yet");
    recover(&mut disks, JUDGED_SECS).unwrap();
    assert_eq!(used(&disks), used(&new));
}

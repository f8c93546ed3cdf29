//! Opening a volume that was not closed in mode `sync` repairs what a crash of that mode may leave.
//! Here something else is wrong with it too: then either nothing is lost, or nothing is touched.
#![allow(clippy::unwrap_used, reason = "a test may")]

use format::ext::geometry::GROUP_DESC_BYTES;
use format::ufs::inode::InodeMut;
use integrity::Plant;
use lab::{Act, Setting, Subject, fresh, recover};
use sim::{CrashImages, Image};
use std::collections::BTreeMap;
use volume::Mode;

const NOW_SECS: u32 = 1_700_000_100;

fn s(p: &str) -> String {
    p.to_owned()
}

/// A volume of two groups with a few files, cut off in this mode when all of it was durable.
fn unclean(mode: Mode) -> Image {
    let setting = Setting::plain(mode);
    let disk = fresh(10 << 20, false);
    let mut v = Subject::open(vec![disk], setting, false, (Plant::NONE, 2)).unwrap();
    let acts = [
        Act::Mkdir(s("/d")),
        Act::Create(s("/d/f")),
        Act::Write(s("/d/f"), 0, 5000, 1),
        Act::Mkdir(s("/e")),
        Act::Create(s("/e/g")),
        Act::Symlink(s("/e/s"), "x".repeat(100)),
        Act::Sync,
    ];
    acts.iter().enumerate().for_each(|(n, a)| v.act(n as u64, a).unwrap());
    v.disks().remove(0)
}

fn tree(disk: &Image) -> BTreeMap<String, lab::Contents> {
    let setting = Setting::plain(Mode::Sync);
    let mut v = Subject::open(vec![disk.clone()], setting, true, (Plant::NONE, 2)).unwrap();
    v.tree(true).unwrap().into_iter().map(|(p, seen)| (p, seen.bytes)).collect()
}

/// Recovers a copy: the disk, or why it was refused. What was refused was not written.
fn recovered(disk: &Image) -> Result<Image, String> {
    let mut disks = [disk.clone()];
    let done = recover(&mut disks, NOW_SECS);
    let [after] = disks;
    if done.is_err() {
        assert_eq!(after.digest(), disk.digest(), "refused, and written all the same");
    }
    done.map(|_| after)
}

#[test]
fn a_descriptor_that_leads_elsewhere_costs_no_file() {
    for mode in [Mode::Sync, Mode::Async] {
        let disk = unclean(mode);
        let whole = tree(&disk);
        let after = recovered(&disk).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(tree(&after), whole);
        let mut refused = 0;
        for bit in (0..2 * GROUP_DESC_BYTES * 8).filter(|b| b / 8 % GROUP_DESC_BYTES < 12) {
            let at = 2048 + (bit / 8) as u64;
            let mut byte = [0];
            disk.read(at, &mut byte);
            let mut broken = disk.clone();
            broken.write(at, &[byte[0] ^ 1 << (bit % 8)]);
            match recovered(&broken) {
                Ok(after) => assert_eq!(tree(&after), whole, "{mode}: bit {bit}"),
                Err(why) => {
                    assert!(why.contains("cairn fsck --repair"), "{mode}: bit {bit}: {why}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 100, "{mode}: only {refused}");
    }
}

#[test]
fn a_clock_that_was_wrong_is_no_damage() {
    let mut disks = [unclean(Mode::Sync)];
    let whole = tree(&disks[0]);
    recover(&mut disks, 1000).unwrap();
    assert_eq!(tree(&disks[0]), whole);
}

#[test]
fn a_root_that_is_no_directory_is_left_alone() {
    let disk = unclean(Mode::Sync);
    // The root is the second slot of the first table, which follows the bitmaps.
    let mut place = [0; 4];
    disk.read(2048 + 8, &mut place);
    let at = u64::from(u32::from_le_bytes(place)) * 1024 + 256;
    let mut raw = vec![0; 256];
    disk.read(at, &mut raw);
    InodeMut(&mut raw).set_mode(0o140_755);
    let mut broken = disk.clone();
    broken.write(at, &raw);
    assert!(recovered(&broken).is_err_and(|why| why.contains("cairn fsck --repair")));
}

#[test]
fn counts_that_cannot_be_keep_nobody_from_reading() {
    let disk = unclean(Mode::Sync);
    let whole = tree(&disk);
    let mut broken = disk.clone();
    // Free blocks and inodes of the first group.
    broken.write(2048 + 12, &[0xff; 4]);
    assert_eq!(tree(&broken), whole);
}

#[test]
fn a_truncate_to_the_present_length_survives() {
    let setting = Setting::plain(Mode::Sync);
    let base = recovered(&unclean(Mode::Sync)).unwrap_or_else(|why| panic!("{why}"));
    // The length that a write has given it, which is delayed; longer and shorter ones.
    for size in [9000, 9001, 8999, 40_000, 100] {
        let mut v = Subject::open(vec![base.clone()], setting, false, (Plant::NONE, 2)).unwrap();
        v.act(1, &Act::Write(s("/d/f"), 4000, 5000, 2)).unwrap();
        v.act(2, &Act::Truncate(s("/d/f"), size)).unwrap();
        let mut images = CrashImages::new(&v.world.trace, &base);
        while images.step().is_some() {}
        let after = recovered(&images.image(0)).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(tree(&after)["/d/f"].len() as u64, size);
    }
}

/// Linux mounts an ext2 that a crash has left. If it writes and crashes too, what it wrote may lie
/// in blocks that the bitmap calls free, which no crash of soft updates leaves.
#[test]
fn what_another_system_wrote_before_it_crashed_is_given_to_nobody() {
    let disk = unclean(Mode::SoftUpdates);
    let whole = tree(&disk);
    let number = |at: u64| {
        let mut bytes = [0; 4];
        disk.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    };
    // It was mounted once more, and nothing else has come of it.
    let mut mounted = disk.clone();
    mounted.write(1024 + 0x34, &(number(1024 + 0x34) + 1).to_le_bytes()[..2]);
    let mut written = mounted.clone();
    // Of both groups all behind the table of inodes is marked as free.
    for (desc, begins) in [(2048, 1), (2048 + GROUP_DESC_BYTES as u64, 8193)] {
        let (map, table) = (u64::from(number(desc)) * 1024, number(desc + 8));
        let table_ends = table + number(1024 + 0x28) * 256 / 1024 - begins;
        written.write(map + u64::from(table_ends).div_ceil(8), &[0; 100]);
    }
    let setting = Setting::plain(Mode::SoftUpdates);
    let open = |disk| Subject::open(vec![disk], setting, false, (Plant::NONE, 2));
    let why = open(written).err().expect("blocks in use would be given out");
    assert!(why.contains("in use are marked as free") && why.contains("fsck --repair"), "{why}");
    let mut v = open(mounted).unwrap();
    v.act(1, &Act::Create(s("/new"))).unwrap();
    let mut after = tree(&v.close().unwrap()[0]);
    assert!(after.remove("/new").is_some());
    assert_eq!(after, whole);
}

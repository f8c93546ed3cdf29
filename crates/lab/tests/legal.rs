//! Volumes that cairn mkfs does not make and that are legal all the same: with a UUID of zeros, of
//! revision 0. They are used, cut off, recovered and used again in every mode that they can have.
#![allow(clippy::unwrap_used, reason = "a test may")]

use check::{Options, check};
use format::mkfs::{MkfsOptions, Profile};
use integrity::Plant;
use lab::{Act, Setting, SimDevice, Subject, recover};
use sim::Image;
use std::process::Command;
use vfs::{Request, SetAttr};
use volume::{MODES, Mode};

const NOW_SECS: u32 = 1_700_000_100;

fn s(p: &str) -> String {
    p.to_owned()
}

/// Uses the volume and cuts it off, recovers it, and finds what was made durable.
fn live(mut disks: Vec<Image>, setting: Setting, name: &str) -> Vec<Image> {
    let open = |disks: &[Image], read_only| {
        let opened = Subject::open(disks.to_vec(), setting, read_only, (Plant::NONE, 2));
        opened.unwrap_or_else(|why| panic!("{}: {why}", setting.mode))
    };
    let mut v = open(&disks, false);
    let acts =
        [Act::Create(s(name)), Act::Write(s(name), 0, 3000, 1), Act::Sync, Act::Mkdir(s("/d"))];
    acts.iter().take(3).for_each(|a| v.act(1, a).unwrap());
    let _ = v.act(1, &acts[3]); // is there already, the second time
    disks = v.disks();
    // Who only reads sees it before it is recovered.
    if setting.mode != Mode::Async {
        assert!(open(&disks, true).tree(true).unwrap().contains_key(name), "{}", setting.mode);
    }
    recover(&mut disks, NOW_SECS).unwrap();
    let mut v = open(&disks, false);
    assert_eq!(v.tree(true).unwrap()[name].size, 3000, "{}", setting.mode);
    v.close().unwrap()
}

#[test]
fn a_uuid_of_zeros() {
    let options = MkfsOptions {
        inodes: Some(512),
        journal_bytes: Some(1 << 20),
        uuid: [0; 16],
        block_bytes: 1024,
        ..MkfsOptions::plain(4 << 20, Profile::Ext3)
    };
    let mut device = SimDevice(Image::new(4 << 20));
    volume::make(&mut device, &options, true).unwrap();
    let mut disks = vec![device.0.clone()];
    for (n, mode) in MODES.iter().enumerate() {
        disks = live(disks, Setting::plain(mode.mode), &format!("/f{n}"));
    }
    let setting = Setting { outside: true, ..Setting::plain(Mode::Redo) };
    live(vec![device.0, Image::new(1 << 20)], setting, "/f");
}

/// A volume of revision 0 as mke2fs makes it.
fn revision_0() -> Image {
    let path = std::env::temp_dir().join(format!("cairn-lab-revision-0-{}", std::process::id()));
    std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let mke2fs =
        ["/usr/sbin/mke2fs", "/sbin/mke2fs"].into_iter().find(|p| std::path::Path::new(p).exists());
    let mut command = Command::new(mke2fs.unwrap_or("mke2fs"));
    let made = command.args(["-q", "-F", "-r", "0", "-b", "1024"]).arg(&path).status().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(made.success());
    let mut image = Image::new(bytes.len() as u64);
    image.write(0, &bytes);
    image
}

#[test]
fn revision_0_with_large_files() {
    for mode in [Mode::Sync, Mode::Async] {
        let setting = Setting::plain(mode);
        let disks = live(vec![revision_0()], setting, "/small");
        let mut v = Subject::open(disks, setting, false, (Plant::NONE, 2)).unwrap();
        v.act(1, &Act::Create(s("/large"))).unwrap();
        let ino = v.walk("/large").unwrap();
        let set = SetAttr { size: Some(3 << 30), ..SetAttr::default() };
        v.ask(2, Request::SetAttr { ino, set }).unwrap();
        let disks = v.close().unwrap();
        let options = Options { now_secs: NOW_SECS, verify: false, mark_clean: false };
        let report = check(&SimDevice(disks[0].clone()), &options, &mut ()).unwrap();
        assert!(report.is_sound(), "{mode}: {:?}", report.findings);
        let mut v = Subject::open(disks, setting, true, (Plant::NONE, 2)).unwrap();
        assert_eq!(v.tree(false).unwrap()["/large"].size, 3 << 30);
    }
}

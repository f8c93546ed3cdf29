//! What a crash may leave in mode `sync` and what it may not: states made with debugfs, the kind
//! and class of what we find in them, and e2fsck's verdict after our repair.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Scratch, check_both, e2fsck, made, tool};
use check::{Class, Kind, Options, Report};

const OPTIONS: Options = Options { now_secs: 1_900_000_000, verify: true, mark_clean: true };

fn image() -> Vec<u8> {
    made(&["-t", "ext2", "-I", "256"], 1024, 12 << 20)
}

/// The image after these debugfs commands.
fn edited(s: &Scratch, image: &[u8], commands: &str) -> Vec<u8> {
    let path = s.path("edited.img");
    std::fs::write(&path, image).unwrap();
    let script = s.path("script");
    std::fs::write(&script, commands).unwrap();
    let out = tool("debugfs").arg("-w").arg("-f").arg(&script).arg(&path).output().unwrap();
    assert!(out.status.success());
    std::fs::read(&path).unwrap()
}

fn examine(s: &Scratch, image: &[u8], commands: &str) -> (Report, Vec<u8>) {
    let broken = edited(s, image, commands);
    assert_ne!(e2fsck(s, &broken).0, 0, "e2fsck sees nothing wrong after {commands}");
    let report = check_both(&broken, &OPTIONS).unwrap();
    let mut after = broken;
    report.plan.apply(&mut after, &mut ()).unwrap();
    let (code, text) = e2fsck(s, &after);
    assert_eq!(code, 0, "after {commands}: {text}");
    assert!(report.left.is_empty());
    (report, after)
}

/// Where a block of a file lies.
fn block_of(s: &Scratch, image: &[u8], name: &str, at: u32) -> u32 {
    let path = s.path("asked.img");
    std::fs::write(&path, image).unwrap();
    let out =
        tool("debugfs").arg("-R").arg(format!("bmap {name} {at}")).arg(&path).output().unwrap();
    String::from_utf8_lossy(&out.stdout).trim().parse().unwrap()
}

/// Does debugfs find something under this name?
fn has(s: &Scratch, image: &[u8], name: &str) -> bool {
    stat(s, image, name).contains("Inode:")
}

/// What debugfs says of a name.
fn stat(s: &Scratch, image: &[u8], name: &str) -> String {
    let path = s.path("asked.img");
    std::fs::write(&path, image).unwrap();
    let out = tool("debugfs").arg("-R").arg(format!("stat {name}")).arg(&path).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Names in lost+found that others have made do not keep what is to go there from a name, and no
/// name is longer than one can be.
#[test]
fn what_goes_to_lost_and_found_finds_a_name() {
    let s = Scratch::new("taken");
    let image = edited(&s, &image(), "mknod x p\n");
    let ino = stat(&s, &image, "x").split_whitespace().nth(1).unwrap().to_owned();
    let mut script =
        "unlink x\n".to_owned() + &"expand lost+found\n".repeat(40) + "cd lost+found\n";
    let first = format!("#{ino}");
    for n in 0..=255 - first.len() {
        let name = first.clone() + &"~".repeat(n);
        script += &format!("mknod {name} p\n");
    }
    let image = edited(&s, &image, &script);
    let report = check_both(&image, &OPTIONS).unwrap();
    assert!(report.counts.contains_key(&Kind::Unattached), "{:#?}", report.findings);
    let mut after = image;
    report.plan.apply(&mut after, &mut ()).unwrap();
    let (code, text) = e2fsck(&s, &after);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn leftovers_are_told_from_damage() {
    let s = Scratch::new("leftovers");
    let image = image();
    let used = block_of(&s, &image, "/double", 30);
    let (free, double) =
        (format!("freeb {used} 3\n"), format!("sif /dir0/file4 block[0] {used}\n"));
    let cases: &[(&str, Kind, Class)] = &[
        (&free, Kind::BlockBitmap, Class::Leftover),
        ("setb 9000 5\n", Kind::BlockBitmap, Class::Leftover),
        ("seti <900>\n", Kind::InodeBitmap, Class::Leftover),
        ("freei <20>\n", Kind::InodeBitmap, Class::Leftover),
        ("set_bg 0 free_inodes_count 5\n", Kind::Counts, Class::Leftover),
        ("sif /dir0/file3 blocks 999\n", Kind::Sectors, Class::Leftover),
        ("sif /dir0/file3 links_count 3\n", Kind::LinksHigh, Class::Leftover),
        ("unlink /dir0/file3\n", Kind::Unattached, Class::Leftover),
        ("unlink /dir0/file0\n", Kind::Unattached, Class::Leftover),
        (
            "sif /dir0/file5 links_count 0\nunlink /dir0/file5\n",
            Kind::DeletedInode,
            Class::Leftover,
        ),
        ("sif /double size 9000\nssv state 0\n", Kind::BeyondEnd, Class::Leftover),
        // Without a crash it is the size that is wrong, and nothing may be cut off.
        ("sif /double size 9000\n", Kind::Size, Class::Damage),
        ("ln /dir0 /dir1/second\n", Kind::TwoNames, Class::InFlight),
        ("unlink /dir0\n", Kind::Unconnected, Class::InFlight),
        // A rename counts the new parent's link first.
        (
            "ln /dir0/inner /dir1/moved\nunlink /dir0/inner\nsif /dir1 links_count 4\n",
            Kind::StaleDotDot,
            Class::InFlight,
        ),
        ("clri /dir0/file3\n", Kind::NameOfFree, Class::Damage),
        ("sif /dir0/file1 links_count 1\n", Kind::LinksLow, Class::Damage),
        (&double, Kind::BlockTwice, Class::Damage),
        ("sif /dir0/file4 block[0] 99999999\n", Kind::BadPointer, Class::Damage),
    ];
    for (commands, kind, class) in cases {
        let (report, _) = examine(&s, &image, commands);
        assert!(report.counts.contains_key(kind), "{commands}: {:?}", report.findings);
        assert_eq!(report.worst(), Some(*class), "{commands}: {:#?}", report.findings);
        assert_eq!(report.is_sync_leftover(1), *class != Class::Damage);
        // Nothing with a name may go but in the case of damage.
        assert!(!report.loses_names() || *class == Class::Damage, "{commands}");
    }
}

#[test]
fn what_lost_its_name_gets_one_and_what_was_empty_goes() {
    let s = Scratch::new("names");
    let image = image();
    let path = s.path("ino.img");
    std::fs::write(&path, &image).unwrap();
    let ino = |name: &str| {
        let out =
            tool("debugfs").arg("-R").arg(format!("stat {name}")).arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
    };
    let (file, dir) = (ino("/dir0/file3"), ino("/dir1"));
    let (_, after) = examine(&s, &image, "unlink /dir0/file3\nunlink /dir0/file0\nunlink /dir1\n");
    assert!(has(&s, &after, &format!("/lost+found/#{file}")));
    assert!(has(&s, &after, &format!("/lost+found/#{dir}/inner/deeper/leaf")));
    assert!(!has(&s, &after, &format!("/lost+found/#{}", ino("/dir0/file0"))));
}

#[test]
fn a_rename_over_a_directory_keeps_the_new_name() {
    let s = Scratch::new("over");
    let image = edited(&s, &image(), "mkdir /dir0/source\nmkdir /dir1/target\n");
    let commands = "unlink /dir1/target\nln /dir0/source /dir1/target\n";
    let (report, after) = examine(&s, &image, commands);
    assert!(report.is_sync_leftover(1), "{:#?}", report.findings);
    assert!(has(&s, &after, "/dir1/target"));
    assert!(!has(&s, &after, "/dir0/source"));
}

#[test]
fn lost_found_is_made_anew_and_grows() {
    let s = Scratch::new("grows");
    let mut commands = String::from("rmdir /lost+found\n");
    for n in 0..180 {
        commands += &format!("unlink /many/a-rather-long-name-to-fill-blocks-{n:04}\n");
    }
    let (report, after) = examine(&s, &image(), &commands);
    assert!(report.counts.contains_key(&Kind::NoLostFound));
    assert!(has(&s, &after, "/lost+found"));
    assert_eq!(report.counts[&Kind::Unattached], 180);
}

/// A device that stops after so many writes.
struct Stops {
    image: Vec<u8>,
    left: usize,
}

impl check::WriteBlocks for Stops {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), check::IoError> {
        if self.left == 0 {
            return Err(check::IoError { what: "stopped".into(), at });
        }
        self.left -= 1;
        self.image[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), check::IoError> {
        Ok(())
    }
    fn read_back(&self, at: u64, into: &mut [u8]) -> Result<(), check::IoError> {
        check::ReadBlocks::read_at(&self.image, at, into)
    }
}

#[test]
fn a_repair_may_be_cut_off_anywhere() {
    for state in ["", "ssv state 0\n"] {
        cut_off_everywhere(state);
    }
}

fn cut_off_everywhere(state: &str) {
    let s = Scratch::new("cut");
    let image = image();
    let used = block_of(&s, &image, "/double", 30);
    let commands = format!(
        "unlink /dir0/file3\nunlink /dir1\nsif /dir2/file4 block[0] {used}\nclri /dir3/file2\n\
         sif /double block[12] 99999999\nln /dir2 /dir3/second\nunlink /dir3/inner/short\n\
         freeb {used} 90\nsif /many size 1024\nsif /dir0/inner/deeper/leaf size 3000\n{state}"
    );
    let broken = edited(&s, &image, &commands);
    let report = check_both(&broken, &OPTIONS).unwrap();
    let writes = report.plan.blocks() + 1;
    // After a crash what is beyond the end is cut off, else the end is set behind it.
    let size = if state.is_empty() { "Size: 20480" } else { "Size: 3000" };
    for left in 0..=writes {
        let mut device = Stops { image: broken.clone(), left };
        let whole = report.plan.apply(&mut device, &mut ()).is_ok();
        let again = check_both(&device.image, &OPTIONS).unwrap();
        assert!(
            whole || left == 0 || !again.marked_clean,
            "cut after {left} writes, but marked as clean"
        );
        let mut after = device.image;
        again.plan.apply(&mut after, &mut ()).unwrap();
        let (code, text) = e2fsck(&s, &after);
        assert_eq!(code, 0, "cut after {left} of {writes} writes: {text}");
        for kept in ["/dir0/file1", "/dir2/file4", "/dir3/inner/long", "/sparse"] {
            assert!(has(&s, &after, kept), "cut after {left} writes: {kept} is gone");
        }
        let leaf = stat(&s, &after, "/dir0/inner/deeper/leaf");
        assert!(leaf.contains(size), "{state}cut after {left} writes: {leaf}");
    }
}

/// A removed file that was in use is on the chain of orphans: of a volume that is whole at every
/// moment, that is as it should be. Damage beside it is found.
#[test]
fn a_removed_file_in_use_is_no_finding_where_each_moment_is_whole() {
    let (s, image) = (Scratch::new("removed"), image());
    let said = stat(&s, &image, "/dir0/file3");
    let ino = said.split("Inode: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let removed = format!(
        "sif /dir0/file3 links_count 0\nset_super_value last_orphan {ino}\nunlink /dir0/file3\n"
    );
    let image = edited(&s, &image, &removed);
    assert!(check_both(&image, &OPTIONS).unwrap().counts.contains_key(&Kind::OrphanList));
    let whole = |image: &Vec<u8>| check::check_whole(image, &OPTIONS, &mut ()).unwrap();
    assert_eq!(whole(&image).findings, Vec::new());
    let damaged = edited(&s, &image, "clri <11>\n");
    assert!(!whole(&damaged).is_sound());
    let astray = edited(&s, &image, &format!("sif <{ino}> dtime {ino}\n"));
    assert!(whole(&astray).counts.contains_key(&Kind::OrphanList), "the chain goes in a circle");
}

//! What a user does wrong, as the command line takes it: one line that says what to do, the right
//! exit code, and nothing changed by it. And what commands say of the volumes they recover.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::*;
use rustix::process::{Pid, Signal, kill_process};
use served::{ANY, CAIRN, Folder, Server, cairn, ok, s};
use std::path::{Path, PathBuf};

/// It ends with this code and one line, which has the text.
fn fails(args: &[&str], want: i32, with: &str) {
    let (code, out, err) = cairn(args);
    assert!(code == want && err.contains(with), "{args:?}: {code} {out}{err}");
    assert!(err.starts_with("cairn: ") && err.lines().count() == 1, "{args:?}: {err}");
}

fn info(image: &Path) -> serde_json::Value {
    serde_json::from_str(&ok(&["info", "--json", s(image)])).unwrap()
}

/// A volume that was served in this mode when its server was killed, with ten files in it.
fn killed(folder: &Folder, mode: &str) -> PathBuf {
    let image = folder.volume_for(mode, &format!("{mode}.img"), "32M");
    fill_and_kill(&image, mode);
    image
}

/// Serves it in this mode, makes ten files, and kills the server.
fn fill_and_kill(image: &Path, mode: &str) {
    let server = Server::trusting(&[image], ANY, &["--mode", mode]);
    let mut on = server.client("/");
    let root = on.root.clone();
    for n in 0..10 {
        let file = on.create_new(&root, &format!("f{n}")).unwrap();
        on.write(&file, 0, b"some text", stable_how::FILE_SYNC).unwrap();
    }
    server.kill();
}

#[test]
fn mkfs_overwrites_nothing_without_force() {
    let folder = Folder::new();
    const SIZE: usize = 8 << 20;
    // Swap; Btrfs; something of a volume whose superblocks are gone; GPT's copy.
    for at in [4086, 65_600, 700_000, SIZE - 512] {
        let image = folder.0.join(format!("at-{at}"));
        let mut bytes = vec![0; SIZE];
        bytes[at] = 0x77;
        std::fs::write(&image, &bytes).unwrap();
        fails(&["mkfs", s(&image)], 1, "--force");
        assert!(std::fs::read(&image).unwrap() == bytes, "{at}");
        ok(&["mkfs", s(&image), "--force"]);
        fails(&["mkfs", s(&image)], 1, "there is a volume already");
    }
    let blank = folder.0.join("blank");
    std::fs::write(&blank, vec![0; SIZE]).unwrap();
    ok(&["mkfs", s(&blank)]);
    ok(&["mkfs", s(&blank), "--force", "--size", "16M"]);
    // A partition is of a disk that is there, and no name for a new file.
    let part = folder.0.join("none.img@p1");
    fails(&["mkfs", s(&part), "--size", "16M"], 1, "there is no");
    assert!(!part.exists());
    assert_eq!(info(&blank)["size_bytes"], 16 << 20);
}

/// Does this process ignore the signal, and so whatever it starts?
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap().trim();
    u64::from_str_radix(ignored, 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

/// Ended by a signal in the middle of its work, it takes away what it has made.
#[test]
fn a_journal_on_a_device_has_blocks_of_a_volumes_sizes() {
    let folder = Folder::new();
    let (image, log) = (folder.0.join("v.img"), folder.0.join("log"));
    for bytes in ["0", "1", "255", "511", "8192", "4294967296"] {
        let more = ["--log", s(&log), "--block-size", bytes];
        let line = [&["mkfs", s(&image), "--size", "16M"][..], &more].concat();
        fails(&line, 1, "choose 1024, 2048 or 4096");
        assert!(!image.exists() && !log.exists(), "{bytes}");
    }
}

/// All threads of a benchmark begin, or none.
#[test]
fn bench_without_threads_is_refused() {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};
    if !served::is_root() {
        return;
    }
    let folder = Folder::new();
    let dir = folder.0.join("dir");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    for workload in ["smallfiles", "soak"] {
        let mut bench = std::process::Command::new("prlimit");
        bench.args(["--nproc=3", CAIRN, "bench", workload]).arg(&dir);
        bench.args(["--threads", "6", "--count", "1", "--seconds", "18446744073709551615"]);
        let user = 57_000 + std::process::id() % 3000; // of whom there is nothing else
        let Ok(out) = bench.uid(user).gid(user).output() else { return println!("skipped") };
        let why = String::from_utf8_lossy(&out.stderr);
        if why.contains("failed to execute") || why.contains("Permission denied") {
            return println!("skipped: others may not come here");
        }
        assert!(out.status.code() == Some(1), "{workload}: {} {why}", out.status);
        assert!(why.contains("6 threads cannot be had"), "{workload}: {why}");
    }
}

#[test]
fn mkfs_that_is_interrupted_leaves_no_image() {
    use std::os::unix::process::ExitStatusExt;
    use std::time::Instant;
    let folder = Folder::new();
    let (image, log) = (folder.0.join("new.img"), folder.0.join("log"));
    let begin = || {
        let mut mkfs = std::process::Command::new(CAIRN);
        mkfs.args(["mkfs", s(&image), "--size", "512G", "--log", s(&log)]);
        mkfs.spawn().unwrap()
    };
    let remove = || [&image, &log].map(|made| std::fs::remove_file(made).unwrap());
    let begun = Instant::now();
    assert!(begin().wait().unwrap().success());
    let mut whole = begun.elapsed();
    remove();
    for signal in [Signal::INT, Signal::TERM] {
        if is_ignored(signal) {
            eprintln!(
                "skipped: {signal:?} is ignored here, as a shell's background jobs ignore it"
            );
            continue;
        }
        let mut hit = 0;
        // As soon as the image is there, and in the middle of what then follows. How long that is
        // differs from time to time on a busy machine.
        for tenths in [0, 5, 0, 3, 0, 1, 0, 7] {
            let begun = Instant::now();
            let mut child = begin();
            while !image.exists() && child.try_wait().unwrap().is_none() {
                std::hint::spin_loop();
            }
            std::thread::sleep(whole * tenths / 10);
            if child.try_wait().unwrap().is_none() {
                kill_process(Pid::from_child(&child), signal).unwrap();
            }
            let ended = child.wait().unwrap();
            if ended.success() {
                whole = whole.min(begun.elapsed());
                remove();
                continue;
            }
            assert_eq!(ended.signal(), Some(signal.as_raw()));
            assert!(!image.exists() && !log.exists(), "{signal:?}: something is left");
            hit += 1;
        }
        assert!(hit > 0, "{signal:?} has always come too late");
    }
}

#[test]
fn what_is_no_volume_is_named_and_kept() {
    let folder = Folder::new();
    for (at, mark, name) in [
        (0, &b"XFSB"[..], "an XFS file system"),
        (0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
        (0, b"QFI\xfb", "a qcow2 image"),
        (0, b"LUKS\xba\xbe", "a LUKS container"),
        (0, b"\x1f\x8b\x08", "a file compressed by gzip"),
    ] {
        let image = folder.0.join(format!("{name}.img"));
        let mut bytes = vec![0; 1 << 20];
        bytes[at..at + mark.len()].copy_from_slice(mark);
        std::fs::write(&image, &bytes).unwrap();
        for command in ["info", "fsck", "recover"] {
            fails(&[command, s(&image)], 1, &format!("this is {name}, and no volume"));
        }
        fails(&["fsck", "--repair", s(&image)], 1, name);
        fails(&["mkfs", s(&image)], 1, &format!("there is {name} already"));
        assert!(std::fs::read(&image).unwrap() == bytes, "{name}");
    }
}

#[test]
fn fsck_says_what_a_repair_would_do_and_ls_shows_what_it_can() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    ok(&["mkdir", s(&image), "/d", "/e"]);
    let listed = ok(&["ls", s(&image), "/"]);
    let line = listed.lines().find(|l| l.ends_with(" d")).unwrap();
    let time = line.split_whitespace().rev().nth(1).unwrap();
    assert!(time.contains(':') && time.len() == 5, "{line}");
    // One directory's inode is spoilt.
    let ino = ok(&["stat", s(&image), "/d"]);
    let ino: u64 = ino.split("inode ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    spoil_inode(&image, ino);
    let (code, out, _) = cairn(&["fsck", s(&image)]);
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("; with --repair: ") && out.contains("nothing was changed"), "{out}");
    let (code, out, err) = cairn(&["ls", s(&image), "/"]);
    assert!(code == 1 && err.contains("v.img: d: the volume is damaged"), "{err}");
    assert!(out.contains(" e\n") && out.contains("lost+found"), "{out}");
    let (code, out, _) = cairn(&["fsck", "--repair", s(&image)]);
    assert!(code == 4 && !out.contains("with --repair"), "{out}");
}

/// Writes a mode of no kind into an inode of the first group.
fn spoil_inode(image: &Path, ino: u64) {
    let mut bytes = std::fs::read(image).unwrap();
    let le32 = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (table, size) = (le32(4096 + 8) * 4096, 256);
    let at = table + (ino as usize - 1) * size;
    bytes[at..at + 2].copy_from_slice(&0xf000_u16.to_le_bytes());
    std::fs::write(image, bytes).unwrap();
}

#[test]
fn wrong_arguments_are_told_in_one_line() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let i = s(&image);
    for (args, with) in [
        (&["mount", i][..], "<DIR>"),
        (&["mount", i, "/", "--forse"], "--forse"),
        (&["frobnicate"], "frobnicate"),
        (&["mount", i, "/mnt", "--mode", "sync", "--journal-intents"], "no meaning in mode sync"),
        (&["mkfs", "x", "--size", "16M", "--profile", "ext5"], "ext5"),
        (&["mkfs", "x", "--size", "16M", "--profile", "lfs", "--log", "y"], "no --log"),
        (&["mkfs", "x", "--size", "lots"], "lots"),
        (&["mkfs", "x", "--size", "16M", "--label", "seventeen letters"], "16 bytes"),
        (&["cat", i, "/f", "--json"], "--json"),
        (&["mkdir", i, "/f", "--json"], "--json"),
        (&["serve", i, "--export", "bogus"], "bogus"),
        (&["serve", i, "--export", "w=127.0.0.1"], "no such volume is served, but /v"),
        (&["serve", i, "--mode", "bogus"], "bogus"),
        (&["serve", i, "--cleaner", "bogus"], "not one of greedy"),
        (&["serve", i, "--cleaning", "bogus"], "not one of idle"),
        (&["serve", i, "--reorganise", "bogus"], "on or off"),
        (&["serve", i, "--cleaner-thresholds", "4,2"], "begins below where it stops"),
        (&["serve", i, "--cleaner-thresholds", "4"], "two or three numbers"),
        (
            &["mkfs", i, "--size", "64M", "--profile", "lfs", "--segment-size", "32K"],
            "at least 64K",
        ),
        (&["mkfs", i, "--size", "64M", "--segment-size", "64K"], "--segment-size is for"),
    ] {
        fails(args, 2, with);
    }
    assert!(!Path::new("x").exists());
    assert!(info(&image)["mode"].is_null(), "it was opened");
    // Who asks for help gets all of it.
    assert!(ok(&["mount", "--help"]).lines().count() > 10);
}

#[test]
fn wrong_requests_are_told_in_one_line() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let nowhere = folder.0.join("nowhere.img");
    fails(&["ls", s(&nowhere), "/"], 1, "check the path");
    fails(&["fsck", s(&nowhere)], 1, "check the path");
    fails(&["rm", s(&image), "/lost+found"], 1, "-r");
    assert!(ok(&["ls", s(&image), "/"]).contains("lost+found"));
    fails(&["rm", "-r", s(&image), "/"], 1, "root");
    ok(&["mkdir", s(&image), "/d", "/d/e"]);
    ok(&["rm", "-r", s(&image), "/d"]);
    let short = folder.0.join("short.img");
    std::fs::write(&short, [1; 500]).unwrap();
    fails(&["info", s(&short)], 1, "not a volume");
    let all = std::fs::read(&image).unwrap();
    std::fs::write(&short, &all[..all.len() / 2]).unwrap();
    fails(&["info", s(&short)], 1, "fetch the whole of it");
}

#[test]
fn logs_in_a_pipe_are_plain() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let (code, _, err) = cairn(&["mkdir", s(&image), "/d", "-vv"]);
    assert!(code == 0 && !err.is_empty(), "{code} {err}");
    assert!(!err.contains('\x1b'), "{err:?}");
}

#[test]
fn a_usage_error_recovers_nothing() {
    let folder = Folder::new();
    let image = killed(&folder, "unified");
    assert_eq!(info(&image)["needs_recovery"], true);
    fails(&["serve", s(&image), "--export", "bogus"], 2, "bogus");
    assert_eq!(info(&image)["needs_recovery"], true);
}

#[test]
fn the_default_mode_is_unified_and_ordered_where_the_journal_needs_recovery() {
    let folder = Folder::new();
    let image = killed(&folder, "data");
    for mode in ["ordered", "unified"] {
        Server::trusting(&[&image], ANY, &[]).stop();
        assert_eq!(info(&image)["mode"], mode);
    }
    assert_eq!(ok(&["cat", s(&image), "/f7"]), "some text");
    let image = killed(&folder, "redo");
    Server::trusting(&[&image], ANY, &[]).stop();
    assert_eq!(info(&image)["mode"], "unified");
    assert_eq!(ok(&["cat", s(&image), "/f7"]), "some text");
    let plain = folder.0.join("plain.img");
    ok(&["mkfs", s(&plain), "--size", "16M", "--profile", "ext2"]);
    Server::trusting(&[&plain], ANY, &[]).stop();
    assert_eq!(info(&plain)["mode"], "sync", "it has no journal");
}

#[test]
fn recover_tells_what_it_finished() {
    let folder = Folder::new();
    for mode in ["sync", "ordered", "unified"] {
        let image = killed(&folder, mode);
        let did: serde_json::Value =
            serde_json::from_str(&ok(&["recover", "--json", s(&image)])).unwrap();
        assert_eq!(did["mode"], mode, "{did}");
        assert_eq!(did["transactions"].as_u64().unwrap() > 0, mode != "sync", "{did}");
        assert_eq!(info(&image)["clean"], true);
    }
}

#[test]
fn fsck_replays_before_it_repairs() {
    let folder = Folder::new();
    for mode in ["ordered", "unified"] {
        let image = killed(&folder, mode);
        assert_eq!(cairn(&["fsck", s(&image)]).0, 1, "{mode}: it must say what to do");
        let (code, out, err) = cairn(&["fsck", "--repair", s(&image)]);
        assert_eq!(code, 0, "{mode}: {out}{err}");
        assert!(out.contains("the journal was replayed"), "{mode}: {out}");
        assert_eq!(ok(&["cat", s(&image), "/f7"]), "some text", "{mode}");
    }
}

#[test]
fn fsck_tells_that_it_repaired() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[4096 + 12] ^= 1; // the first group's count of free blocks
    std::fs::write(&image, &bytes).unwrap();
    let (code, out, err) = cairn(&["fsck", "--repair", s(&image)]);
    assert_eq!(code, 4, "{out}{err}");
    assert!(out.lines().last().unwrap().contains("repaired"), "{out}");
    assert!(ok(&["fsck", s(&image)]).contains(": sound, closed cleanly"));
}

#[test]
fn the_boot_area_is_saved_over_nothing() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[..1024].fill(0x55);
    std::fs::write(&image, &bytes).unwrap();
    let (victim, saved) = (folder.0.join("victim"), folder.0.join("v.boot-area"));
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, &saved).unwrap();
    let serve = ["serve", s(&image), "--nfs", ANY, "--use-boot-area"];
    fails(&serve, 1, "move it away");
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    assert!(std::fs::read(&image).unwrap()[..1024] == [0x55; 1024]);
    std::fs::remove_file(&saved).unwrap();
    Server::trusting(&[&image], ANY, &["--use-boot-area"]).stop();
    assert!(std::fs::read(&saved).unwrap() == [0x55; 1024]);
}

#[test]
fn nothing_is_cleared_on_a_volume_that_another_machine_uses() {
    let folder = Folder::new();
    let image = folder.0.join("mmp.img");
    let kind = ["-q", "-F", "-t", "ext3", "-O", "mmp", s(&image), "24M"];
    let made = std::process::Command::new("/usr/sbin/mke2fs").args(kind).output().unwrap();
    assert!(made.status.success());
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[..1024].fill(0x55);
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    // s_mmp_block, and in that block the number that says that a checker is at work.
    let mmp = number(1024 + 0x168) * (1024 << number(1024 + 0x18));
    bytes[mmp + 4..mmp + 8].copy_from_slice(&0xe24d_4d50_u32.to_le_bytes());
    std::fs::write(&image, &bytes).unwrap();
    fails(&["serve", s(&image), "--nfs", ANY, "--use-boot-area"], 1, "is checking it");
    assert!(std::fs::read(&image).unwrap() == bytes, "it was written");
    assert!(!folder.0.join("mmp.boot-area").exists(), "nothing was cleared, so nothing is saved");
}

#[test]
fn a_damaged_primary_superblock_costs_nothing_that_a_journal_holds() {
    let folder = Folder::new();
    for mode in ["ordered", "unified"] {
        let image = folder.0.join(mode);
        // Small blocks: a volume of several groups has copies.
        ok(&["mkfs", s(&image), "--size", "32M", "--block-size", "1024"]);
        fill_and_kill(&image, mode);
        let mut bytes = std::fs::read(&image).unwrap();
        bytes[1024..2048].fill(0x5a);
        std::fs::write(&image, &bytes).unwrap();
        let names = |listed: String| listed.lines().filter(|l| l.contains('f')).count();
        let before = names(ok(&["ls", s(&image), "/"]));
        let (code, out, err) = cairn(&["fsck", "--repair", s(&image)]);
        assert!(code == 4 && out.contains("restored from group 1"), "{mode}: {code} {out}{err}");
        let after = ok(&["ls", s(&image), "/"]);
        assert!(before >= 10 && names(after.clone()) == before, "{mode}: {before} {after}");
        let e2fsck =
            ["/usr/sbin/e2fsck", "/sbin/e2fsck"].into_iter().find(|p| Path::new(p).exists());
        let verdict = std::process::Command::new(e2fsck.unwrap_or("e2fsck"))
            .arg("-fn")
            .arg(&image)
            .output()
            .unwrap();
        assert!(verdict.status.success(), "{mode}: {}", String::from_utf8_lossy(&verdict.stdout));
    }
}

#[test]
fn the_log_may_be_json() {
    let folder = Folder::new();
    let image = killed(&folder, "unified");
    let (code, _, err) = cairn(&["recover", s(&image), "-vv", "--log-format", "json"]);
    assert_eq!(code, 0, "{err}");
    let objects = err.lines().filter(|l| l.starts_with('{'));
    let parsed: Vec<serde_json::Value> =
        objects.map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"))).collect();
    assert!(parsed.iter().any(|o| o["level"].is_string() && o["message"].is_string()), "{err}");
}

#[test]
fn the_log_may_be_systemds_if_there_is_one() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let there = std::path::Path::new("/run/systemd/journal/socket").exists();
    let (code, _, err) = cairn(&["info", s(&image), "--log-format", "journald"]);
    assert_eq!(code, i32::from(!there), "{err}");
    assert!(there || err.contains("systemd's journal cannot be reached"), "{err}");
}

#[test]
fn the_help_of_serve_has_groups_and_examples() {
    let help = ok(&["serve", "--help"]);
    let at = |what: &str| help.find(what).unwrap_or_else(|| panic!("{what}: {help}"));
    let heads = ["How changes are made safe:", "Mounted here:", "Over NFS:"].map(at);
    assert!(heads.iter().any(|h| *h < at("--commit-interval")));
    assert!(at("Over NFS:") < at("--no-nfs") && at("Examples:") > at("Over NFS:"));
}

#[test]
fn a_cleaner_is_for_stores_that_have_one() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let thresholds = ["--cleaner-thresholds", "5,10"];
    let others = [["--cleaner", "greedy"], ["--cleaning", "off"], ["--reorganise", "on"]];
    for option in others.into_iter().chain([thresholds]) {
        let serve = ["serve", s(&image), "--nfs", ANY, option[0], option[1]];
        fails(&serve, 1, "this one's store is a plain disk");
    }
}

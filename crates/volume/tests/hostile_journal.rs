//! A journal whose map was made by somebody who means harm: who looks at the volume has an answer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use env::Rope;
use format::ext::extents::{Head, max_entries, set_head, set_index};
use format::ext::{Geometry, GroupDesc, Superblock};
use format::ufs::inode::BLOCK_AT;
use format::{BlockNo, GroupNo, JOURNAL_INO};
use sim::{Image, World, block_on};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vfs::{Call, FsError, Reply, Request, Stability};
use volume::{Ground, Mode, OpenOptions};

const BLOCK: usize = 1024;
const BYTES: usize = 20 << 20;

fn made() -> Vec<u8> {
    of_journal("size=1")
}

/// The same with a journal of 2048 blocks.
fn longer() -> Vec<u8> {
    of_journal("size=2")
}

fn of_journal(size: &str) -> Vec<u8> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let name = format!("cairn-hostile-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    std::fs::File::create(&path).unwrap().set_len(BYTES as u64).unwrap();
    let args = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O", "^metadata_csum", "-J", size];
    let mke2fs = Command::new("/usr/sbin/mke2fs").args(args).arg(&path).status().unwrap();
    let image = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(mke2fs.success());
    image
}

/// A node whose entries all lead to one block.
fn fill(node: &mut [u8], depth: u16, below: u64) {
    let max = max_entries(node.len());
    let entries = if depth == 0 { 0 } else { max };
    set_head(node, Head { entries, max, depth });
    (0..entries).for_each(|i| set_index(node, i, i as u32, BlockNo(below)));
}

/// All ways from the root, some 200 million of them, lead to one leaf, which maps nothing.
#[test]
fn a_journal_of_nodes_without_extents_is_damage() {
    let mut image = made();
    let geo = Geometry::of(&Superblock::decode(&image[1024..2048]).unwrap());
    let desc = GroupDesc::decode(&image[geo.desc_at(GroupNo(0)) as usize..][..geo.desc_bytes]);
    let (block, byte) = geo.ino_place(JOURNAL_INO);
    let root = (desc.inode_table as usize + block as usize) * BLOCK + byte + BLOCK_AT;
    let leaf = (BYTES / BLOCK - 1) as u64; // where nothing is
    fill(&mut image[root..root + 60], 5, leaf - 4);
    for depth in 0..5u64 {
        let at = (leaf - depth) as usize * BLOCK;
        fill(&mut image[at..at + BLOCK], depth as u16, leaf + 1 - depth);
    }
    let fault = volume::probe(&image).unwrap().journal_fault.unwrap();
    assert!(fault.contains("a node of extents"), "{fault}");
}

/// What debugfs does to an image.
fn edited(image: &[u8], requests: &str) -> Vec<u8> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let name = format!("cairn-agree-{}-{}", std::process::id(), RUNS.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    let (script, block) = (path.with_extension("txt"), path.with_extension("block"));
    std::fs::write(&path, image).unwrap();
    std::fs::write(&block, [0x77; BLOCK]).unwrap();
    std::fs::write(&script, requests.replace("BLOCK", &block.to_string_lossy())).unwrap();
    let mut debugfs = Command::new("/usr/sbin/debugfs");
    let out = debugfs.arg("-w").arg("-f").arg(&script).arg(&path).output().unwrap();
    assert!(out.status.success());
    let image = std::fs::read(&path).unwrap();
    [path, script, block].iter().for_each(|p| std::fs::remove_file(p).unwrap());
    image
}

/// A journal that is to be replayed: a check that waits for that finds that it can be, once its
/// inode was restored if need be. Where it cannot be, the check makes it anew.
#[test]
fn a_check_waits_for_no_journal_that_cannot_be_replayed() {
    let replays = "jo\njw -b 5000 BLOCK\njc\n";
    let image = edited(&longer(), replays);
    let bitmap = "set_bg 0 block_bitmap 9000000\n";
    let no_copy = |mut image: Vec<u8>| {
        image[1024 + 0x10c..1024 + 0x10c + 68].fill(0);
        image
    };
    let unwritten = "sif <8> block[4] 0x00008800\n"; // 2048 blocks, unwritten
    let broken = [
        ("as it was", image.clone(), true),
        ("bitmap", edited(&image, bitmap), true),
        ("table", edited(&image, "set_bg 0 inode_table 0\n"), true),
        ("end", edited(&image, "sif <8> size 1048576\n"), true),
        ("unwritten", edited(&image, unwritten), true),
        ("end, no copy", no_copy(edited(&image, "sif <8> size 1048576\n")), false),
        ("unwritten, no copy", no_copy(edited(&image, unwritten)), false),
    ];
    let options = check::Options { now_secs: 1_900_000_000, verify: true, mark_clean: true };
    for (what, mut image, replayed) in broken {
        volume::restore_journal(&mut image, 1_900_000_000).unwrap();
        let fault = volume::probe(&image).unwrap().journal_fault;
        assert_eq!(fault.is_none(), replayed, "{what}: {fault:?}");
        match check::check(&image, &options, &mut ()) {
            Err(check::CheckError::NeedsRecovery) => assert!(replayed, "{what}: it waits"),
            Err(e) => panic!("{what}: {e}"),
            Ok(report) => {
                assert!(!replayed && report.left.is_empty(), "{what}: {:#?}", report.left);
                report.plan.apply(&mut image, &mut ()).unwrap();
                let after = volume::probe(&image).unwrap();
                assert!(after.journal_fault.is_none() && !after.needs_recovery, "{what}");
            }
        }
    }
}

/// A file whose only extent lies in the journal, behind so many of its blocks.
fn in_journal(image: &[u8], behind: u32) -> (Vec<u8>, usize) {
    let journal = volume::probe(&image.to_vec()).unwrap().journal.unwrap();
    let at = journal.byte_of(behind).unwrap() as usize;
    let text = std::env::temp_dir().join(format!("cairn-claims-{}", std::process::id()));
    std::fs::write(&text, [0x41; 4 * BLOCK]).unwrap();
    // Behind the tree's head come the extent's first block, its length, and its place.
    let (shown, place) = (text.to_string_lossy().into_owned(), at / BLOCK);
    let image = edited(image, &format!("write {shown} f\nsif f block[5] {place}\n"));
    std::fs::remove_file(&text).unwrap();
    (image, at)
}

/// What a file that claims blocks of the journal may do to them, in modes whose log or transactions
/// lie there: nothing. It is damage, as where a file claims a bitmap.
#[test]
fn a_file_that_claims_blocks_of_the_journal_does_not_write_them() {
    let (image, at) = in_journal(&made(), 900);
    let before = image[at..at + 4 * BLOCK].to_vec();
    for mode in [Mode::Unified, Mode::Redo, Mode::Writeback, Mode::Ordered, Mode::Data] {
        for cut in [false, true] {
            let mut disk = Image::new(BYTES as u64);
            disk.write(0, &image);
            let mut world = World::new(disk);
            let done = block_on(&mut world, move |env, _| async move {
                let ground = Ground::alone(env, BYTES as u64, None);
                let options = OpenOptions::plain(mode, 4 << 20, [3; 16]);
                let volume = volume::open_on(ground, options).await.unwrap();
                let ask = |r| {
                    let volume = volume.clone();
                    async move { volume.call(Call::local(r)).await.result }
                };
                let lookup = Request::Lookup { dir: 2, name: b"f".to_vec() };
                let Reply::Entry { attr, .. } = ask(lookup).await.unwrap() else { panic!("none") };
                let ino = attr.ino;
                let done = if cut {
                    let set = vfs::SetAttr { size: Some(0), ..vfs::SetAttr::default() };
                    ask(Request::SetAttr { ino, set }).await
                } else {
                    let data = Rope::cut(&[0x66; 2 * BLOCK], 0, BLOCK);
                    let (offset, stability) = (0, Stability::FileSync);
                    let (append, kill_suid, upto) = (false, false, vfs::WriteUpTo::All);
                    let write =
                        Request::Write { ino, offset, data, stability, append, kill_suid, upto };
                    ask(write).await
                };
                let _ = volume.close().await;
                done.map(drop)
            });
            assert_eq!(done, Err(FsError::Corrupt), "{mode}, cut: {cut}");
            let after = world.disk.to_vec();
            assert!(after[at..at + 4 * BLOCK] == before, "{mode}, cut: {cut}: it was written");
        }
    }
}

/// A client who writes a file, and the end: what became of each.
async fn used(env: env::Env, mode: Mode) -> Vec<String> {
    let ground = Ground::alone(env, BYTES as u64, None);
    let options = OpenOptions::plain(mode, 4 << 20, [3; 16]);
    let volume = match volume::open_on(ground, options).await {
        Ok(volume) => volume,
        Err(why) => return vec![why],
    };
    let ask = |r| {
        let volume = volume.clone();
        async move { volume.call(Call::local(r)).await.result }
    };
    let (kind, name) = (vfs::MakeKind::File { exclusive: None }, b"new".to_vec());
    let attr = vfs::SetAttr { mode: Some(0o644), ..vfs::SetAttr::default() };
    let make = Request::Make { dir: 2, name, kind, attr, fail_if_exists: true, umask: 0 };
    let made = ask(make).await;
    let mut all = vec![format!("{made:?}")];
    if let Ok(Reply::Entry { attr, .. }) = made {
        let (ino, offset, stability) = (attr.ino, 0, Stability::Unstable);
        let (append, kill_suid, upto) = (false, false, vfs::WriteUpTo::OneOperation);
        let data = Rope::cut(&[0x66; 100 * BLOCK], 0, BLOCK);
        let w = Request::Write { ino, offset, data, stability, append, kill_suid, upto };
        all.push(format!("{:?}", ask(w).await));
        all.push(format!("{:?}", ask(Request::Fsync { ino, data_only: false }).await));
        let set = vfs::SetAttr { size: Some(0), ..vfs::SetAttr::default() };
        all.push(format!("{:?}", ask(Request::SetAttr { ino, set }).await));
    }
    all.push(format!("{:?}", volume.close().await));
    all
}

/// The journal's superblock leaves hardly a block for transactions.
#[test]
fn a_journal_in_which_nothing_fits_is_an_error() {
    let image = made();
    let at = volume::probe(&image).unwrap().journal.unwrap().byte_of(0).unwrap() as usize;
    let modes = [Mode::Ordered, Mode::Writeback, Mode::Data, Mode::Wasteless, Mode::Selective];
    for mode in modes {
        for fit in [1u32, 2, 3, 8, 12, 20, 24, 27, 30, 33, 36, 40, 80, 200] {
            let mut image = image.clone();
            image[at + 0x14..at + 0x18].copy_from_slice(&(1024 - fit).to_be_bytes());
            let mut disk = Image::new(BYTES as u64);
            disk.write(0, &image);
            let said = block_on(&mut World::new(disk), move |env, _| used(env, mode));
            // Up to there no operation fits, and the volume says so at the first and closes.
            let refused = fit > 12 || said == ["Err(Io)", "Ok(())"];
            assert!(refused, "{mode}, {fit} blocks: {said:?}");
        }
    }
}

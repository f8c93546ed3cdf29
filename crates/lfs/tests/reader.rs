//! Is docs/lfs.md true? The reader in Python, written from that page, must see what the store
//! shows, after a clean end and after a crash. Without python3 there is nothing to compare.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_macros, reason = "a test that is skipped says so")]

use crate::common::{
    APART, Op, PLUGGING, Twin, contents, made, made_for, opened, perform, plugging, script, tags_of,
};
use env::Disk;
use sim::{CrashImages, Image, World, block_on};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the reader writes of an image.
fn python(image: &Image, args: &[&str]) -> Option<Vec<u8>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(format!("cairn-lfs-{}-{}.img", name.0, name.1));
    std::fs::write(&path, image.to_vec()).unwrap();
    let reader = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/lfs-reader.py");
    let out = Command::new("python3").arg(reader).arg(&path).args(args).output();
    let _ = std::fs::remove_file(&path);
    let Ok(out) = out else {
        println!("skipped: no python3");
        return None;
    };
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(out.stdout)
}

/// The totals of the newest checkpoint.
fn totals(image: Image) -> String {
    let t = block_on(&mut World::new(image), |env, disk| async move {
        let at = lfs::At::Newer;
        let options = lfs::OpenOptions { read_only: true, at, ..lfs::OpenOptions::default() };
        lfs::Store::open(env, disk, options).await.unwrap().totals()
    });
    let all = [t.user_bytes, t.written, t.cleaner, t.tables, t.cleaner_reads, t.cleaned];
    all.map(|n| n.to_string()).join(" ")
}

#[test]
fn a_reader_written_from_the_page_sees_the_same() {
    let (_, blocks) = made();
    compare(script(11, blocks, 160), None);
    compare(plugging(2, blocks, 160), PLUGGING);
    compare(script(5, made_for(APART).1, 200), APART);
}

/// The same with snapshots, of which one is deleted, and another while it is the newest.
#[test]
fn it_sees_the_same_snapshots() {
    for (seed, plant) in [(3, None), (4, None), (3, APART), (4, APART)] {
        let (base, blocks) = made_for(plant);
        let mut world = World::new(base.clone());
        block_on(&mut world, move |env, disk| async move {
            let store = opened(env, disk, plant).await.unwrap();
            let small = |op: &Op| !matches!(op, Op::Clean | Op::Checkpoint) || seed == 4;
            let ops = script(seed, blocks / 8, 200).into_iter().filter(small);
            for (i, op) in ops.enumerate() {
                perform(&store, op).await.unwrap();
                match i {
                    20 | 60 | 100 | 140 => store.snapshot(&format!("s{i}"), 1).await.unwrap(),
                    80 => store.delete_snapshot("s20").await.unwrap(),
                    120 => store.delete_snapshot("s60").await.unwrap(),
                    160 => store.delete_snapshot("s140").await.unwrap(),
                    _ => (),
                }
            }
            store.flush().await.unwrap();
        });
        let mut cuts = CrashImages::new(&world.trace, &base);
        while cuts.step().is_some() {}
        let image = cuts.image(1);
        let Some(theirs) = python(&image, &["--snapshot", "s100"]) else { return };
        let theirs: Twin = theirs.chunks(4096).map(|b| tags_of(b).unwrap()).collect();
        let ours = block_on(&mut World::new(image), move |env, disk| async move {
            let store = opened(env, disk, None).await.unwrap();
            let names: Vec<String> = store.snapshots().into_iter().map(|s| s.name).collect();
            assert_eq!(names, ["s100"]);
            let shown = store.snapshot_disk("s100").unwrap();
            let memory = (0..blocks).map(|_| env::Block::zeroed(4096)).collect();
            let read = Disk::read(&shown, 0, memory).await.unwrap();
            let tags: Twin = read.iter().map(|b| tags_of(b.bytes()).unwrap()).collect();
            assert_ne!(tags, contents(&store, blocks).await.unwrap(), "it has gone on");
            tags
        });
        assert_eq!(ours, theirs, "seed {seed}");
    }
}

fn compare(ops: Vec<Op>, plant: Option<&'static str>) {
    let (base, blocks) = made_for(plant);
    let mut world = World::new(base.clone());
    block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, plant).await.unwrap();
        for op in ops {
            perform(&store, op).await.unwrap();
        }
        store.flush().await.unwrap();
    });
    let mut cuts = CrashImages::new(&world.trace, &base);
    let all = std::iter::from_fn(|| cuts.step()).count();
    for at in [all / 2, all] {
        let mut cuts = CrashImages::new(&world.trace, &base);
        (0..at).for_each(|_| assert!(cuts.step().is_some()));
        let image = cuts.image(1);
        let Some(told) = python(&image, &["--totals"]) else { return };
        assert_eq!(String::from_utf8(told).unwrap().trim(), totals(image.clone()));
        let theirs = python(&image, &[]).unwrap();
        assert_eq!(theirs.len() as u64, blocks * 4096);
        let theirs: Twin = theirs.chunks(4096).map(|b| tags_of(b).unwrap()).collect();
        let ours = block_on(&mut World::new(image), move |env, disk| async move {
            let store = opened(env, disk, None).await.unwrap();
            contents(&store, blocks).await.unwrap()
        });
        assert_eq!(ours, theirs);
        assert!(ours.iter().any(|t| *t != (0, 0)));
    }
}

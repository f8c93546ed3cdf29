//! Volumes in a log-structured store, opened again after the power was cut: while what a deleted
//! snapshot has had is being freed. The store's own tests cut it elsewhere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use env::{Block, Disk, Durability, Env, Rope};
use format::mkfs::{MkfsOptions, Profile};
use lfs::BLOCK_BYTES;
use sim::{Image, World, block_on};
use std::collections::BTreeSet;
use std::rc::Rc;
use vfs::{Call, MakeKind, Reply, Request, SetAttr, SnapshotOp, Stability, Volume};
use volume::{Ground, Mode, OpenOptions};

const DISK: u64 = 128 << 20;

/// An empty volume in a store.
fn made() -> Image {
    let mut world = World::new(Image::new(DISK));
    block_on(&mut world, |env, disk| async move {
        let store = lfs::FormatOptions {
            uuid: [7; 16],
            segment_bytes: None,
            virtual_bytes: None,
            heads: None,
            disk: None,
        };
        let volume = MkfsOptions::plain(0, Profile::Ext2);
        volume::make_on_segments(env, disk, &store, &volume).await.unwrap();
    });
    world.disk
}

/// Writes every other block that the volume does not use, as far as there is room.
async fn write_every_other(store: &lfs::Store, byte: u8) {
    let blocks = store.size_bytes() / BLOCK_BYTES as u64;
    for v in (blocks / 8..blocks).step_by(2) {
        let mut block = Block::zeroed(BLOCK_BYTES);
        block.bytes_mut().fill(byte);
        let at = v * BLOCK_BYTES as u64;
        if store.write(at, vec![block], Durability::Cached).await.is_err() {
            break; // what the snapshot holds fills it
        }
    }
    store.flush().await.unwrap();
}

async fn opened(env: Env) -> Rc<dyn Volume> {
    let options = OpenOptions::plain(Mode::Lfs, 16 << 20, [3; 16]);
    volume::open_on(Ground::alone(env, DISK, None), options).await.unwrap()
}

async fn asked(volume: &Rc<dyn Volume>, request: Request) -> Reply {
    volume.clone().call(Call::local(request)).await.result.unwrap()
}

async fn make_files(volume: &Rc<dyn Volume>) {
    for n in 0..200 {
        let (dir, kind) = (2, MakeKind::File { exclusive: None });
        let attr = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let name = format!("file{n}").into_bytes();
        let make = Request::Make { dir, name, kind, attr, fail_if_exists: true, umask: 0 };
        let Reply::Entry { attr, .. } = asked(volume, make).await else { panic!("no entry") };
        let data = Rope::cut(&[n as u8; 9000], 0, BLOCK_BYTES);
        let stability = Stability::FileSync;
        let (ino, offset) = (attr.ino, 0);
        asked(volume, Request::write(ino, offset, data, stability)).await;
    }
}

/// The epoch of a partial segment, if that is what was written.
fn epoch_of(written: &[u8]) -> Option<u64> {
    let raw = written.get(16..24).filter(|_| written.starts_with(b"CLFS"))?;
    raw.try_into().ok().map(u64::from_le_bytes)
}

/// What is wrong with the store on an image, its summaries too.
fn wrong_with(image: Image) -> Vec<String> {
    block_on(&mut World::new(image), |env, disk| async move {
        let store = lfs::Store::open(env, disk, lfs::OpenOptions::default()).await.unwrap();
        store.verify(true).await.unwrap().wrong
    })
}

#[test]
fn one_store_at_a_time_frees_what_a_deleted_snapshot_has_had() {
    let mut world = World::new(made());
    block_on(&mut world, |env, disk| async move {
        let store = lfs::Store::open(env, disk, lfs::OpenOptions::default()).await.unwrap();
        write_every_other(&store, 1).await;
        store.snapshot("old", 1).await.unwrap();
        write_every_other(&store, 2).await;
        store.checkpoint().await.unwrap();
        store.delete_snapshot("old").await.unwrap();
    });
    let mut world = World::new(world.disk);
    block_on(&mut world, |env, _| async move {
        let volume = opened(env).await;
        make_files(&volume).await;
        volume.close().await.unwrap();
    });
    let epochs: BTreeSet<u64> =
        world.trace.writes.iter().filter_map(|w| epoch_of(&w.bytes)).collect();
    assert_eq!(epochs.len(), 1, "the store that recovery opened writes no log: {epochs:?}");
    assert_eq!(wrong_with(world.disk), Vec::<String>::new());
}

/// A store whose first block is lost is known, and used, by the copy of its superblock; where
/// something else has been made in its place, it is not.
#[test]
fn a_lost_first_block_leaves_the_copy() {
    let mut disk = made();
    disk.write(0, &[0; BLOCK_BYTES]);
    let mut world = World::new(disk);
    let is_store = |world: &mut World| {
        block_on(world, |_, disk| async move { volume::is_store(&disk).await.unwrap() })
    };
    assert!(is_store(&mut world));
    block_on(&mut world, |env, _| async move {
        let volume = opened(env).await;
        make_files(&volume).await;
        volume.close().await.unwrap();
    });
    assert!(is_store(&mut world));
    world.disk.write(1024 + 56, &[0x53, 0xef]);
    assert!(!is_store(&mut world));
}

/// A volume that a snapshot fills is closed and opened as any other, and files are removed from it.
#[test]
fn one_that_a_snapshot_fills_is_opened_and_closed() {
    let mut world = World::new(made());
    block_on(&mut world, |env, _| async move {
        let volume = opened(env).await;
        let big = make(&volume, "big").await;
        for n in 0..80 {
            write(&volume, big, n).await.unwrap();
        }
        make_files(&volume).await;
        asked(&volume, Request::Snapshot(SnapshotOp::Make("a".into()))).await;
        let mut n = 0;
        while write(&volume, big, n % 80).await.is_ok() {
            n += 1;
            assert!(n < 1000, "the snapshot holds too little");
        }
        remove(&volume, 0).await;
        volume.close().await.unwrap();
    });
    for n in 1..4 {
        world = World::new(world.disk);
        block_on(&mut world, |env, _| async move {
            let volume = opened(env).await;
            remove(&volume, n).await;
            volume.close().await.unwrap();
        });
    }
    assert_eq!(wrong_with(world.disk), Vec::<String>::new());
}

async fn make(volume: &Rc<dyn Volume>, name: &str) -> u32 {
    let (dir, kind) = (2, MakeKind::File { exclusive: None });
    let (attr, name) = (SetAttr::default(), name.as_bytes().to_vec());
    let make = Request::Make { dir, name, kind, attr, fail_if_exists: true, umask: 0 };
    let Reply::Entry { attr, .. } = asked(volume, make).await else { panic!("no entry") };
    attr.ino
}

/// A MiB of a file.
async fn write(volume: &Rc<dyn Volume>, ino: u32, n: u64) -> Result<Reply, vfs::FsError> {
    let data = Rope::cut(&vec![n as u8; 1 << 20], 0, BLOCK_BYTES);
    let request = Request::write(ino, n << 20, data, Stability::FileSync);
    volume.clone().call(Call::local(request)).await.result
}

async fn remove(volume: &Rc<dyn Volume>, n: u64) {
    let name = format!("file{n}").into_bytes();
    asked(volume, Request::Unlink { dir: 2, name }).await;
}

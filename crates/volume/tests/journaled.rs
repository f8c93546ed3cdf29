//! What the modes with a journal promise where it is easily broken: of contents that an operation
//! announces twice, beside another client's truncation, and after the disk has said no.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use env::{Env, Nanos, Rope};
use format::ext::features::incompat;
use format::mkfs::{MkfsOptions, Profile};
use sim::timing::{Access, Kind, Timing};
use sim::{CrashImages, Fault, Image, World, block_on};
use std::rc::Rc;
use vfs::{Call, FsError, MakeKind, Reply, Request, SetAttr, Stability, Volume, WriteUpTo};
use volume::{Ground, Mode, OpenOptions};

const BS: usize = 1024;
const BYTES: u64 = 8 << 20;

/// What [`check::WriteBlocks`] asks of a disk at rest.
struct Made(Image);

impl check::ReadBlocks for Made {
    fn size_bytes(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), check::IoError> {
        self.0.read(at, into);
        Ok(())
    }
}
impl check::WriteBlocks for Made {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), check::IoError> {
        self.0.write(at, bytes);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), check::IoError> {
        Ok(())
    }
    fn read_back(&self, at: u64, into: &mut [u8]) -> Result<(), check::IoError> {
        check::ReadBlocks::read_at(self, at, into)
    }
}

fn made(incompat: u32) -> Image {
    let o = MkfsOptions {
        block_bytes: BS,
        incompat,
        journal_bytes: Some(1 << 20),
        ..MkfsOptions::plain(BYTES, Profile::Ext3)
    };
    let mut disk = Made(Image::new(BYTES));
    volume::make(&mut disk, &o, true).unwrap();
    disk.0
}

/// No clock of the volume ticks: what is written is written because somebody asks.
fn options(mode: Mode) -> OpenOptions {
    let commit_interval = Nanos::from_secs(7200);
    OpenOptions { commit_interval, ..OpenOptions::plain(mode, 4 << 20, [3; 16]) }
}

/// A client of a volume that is open.
#[derive(Clone)]
struct Client(Rc<dyn Volume>);

impl Client {
    async fn of(env: Env, options: OpenOptions) -> Client {
        Client(volume::open_on(Ground::alone(env, BYTES, None), options).await.unwrap())
    }
    async fn ask(&self, request: Request) -> Result<Reply, FsError> {
        self.0.clone().call(Call::local(request)).await.result
    }
    async fn make(&self, name: &str) -> Result<u32, FsError> {
        let (kind, name) = (MakeKind::File { exclusive: None }, name.into());
        let attr = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let make = Request::Make { dir: 2, name, kind, attr, fail_if_exists: true, umask: 0 };
        let Reply::Entry { attr, .. } = self.ask(make).await? else { panic!("no entry") };
        Ok(attr.ino)
    }
    async fn write(&self, ino: u32, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        let data = Rope::cut(bytes, (offset % BS as u64) as usize, BS);
        let stability = Stability::Unstable;
        let write = Request::write(ino, offset, data, stability);
        self.ask(write).await.map(drop)
    }
    async fn fsync(&self, ino: u32, data_only: bool) -> Result<(), FsError> {
        self.ask(Request::Fsync { ino, data_only }).await.map(drop)
    }
    async fn cut(&self, ino: u32) -> Result<(), FsError> {
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        self.ask(Request::SetAttr { ino, set }).await.map(drop)
    }
}

/// What a power cut now leaves of what was not durable: nothing.
fn durable(world: &World, base: &Image) -> Image {
    let mut images = CrashImages::new(&world.trace, base);
    while images.step().is_some() {}
    images.image(0)
}

/// A file of the root directory, as the next opening finds it.
fn found(image: Image, mode: Mode, name: &'static [u8]) -> Vec<u8> {
    block_on(&mut World::new(image), move |env, _| async move {
        let c = Client::of(env, options(mode)).await;
        let lookup = Request::Lookup { dir: 2, name: name.to_vec() };
        let Reply::Entry { attr, .. } = c.ask(lookup).await.unwrap() else { panic!("no entry") };
        let read = Request::Read { ino: attr.ino, offset: 0, len: attr.size as u32 };
        let Reply::Data { data, .. } = c.ask(read).await.unwrap() else { panic!("no data") };
        data.to_vec()
    })
}

#[test]
fn contents_announced_for_their_place_and_then_in_part_are_journaled_as_a_whole() {
    let base = made(incompat::INLINE_DATA);
    let mut world = World::new(base.clone());
    block_on(&mut world, |env, _| async move {
        let o = OpenOptions { threshold: Some(64), ..options(Mode::Selective) };
        let c = Client::of(env, o).await;
        let f = c.make("f").await.unwrap();
        c.write(f, 0, &[1; 100]).await.unwrap();
        c.fsync(f, false).await.unwrap();
        // It outgrows its inode: the old bytes go to the new block's place, the new ones to the
        // journal.
        c.write(f, 100, &[2; 60]).await.unwrap();
        c.fsync(f, false).await.unwrap();
    });
    let bytes = found(durable(&world, &base), Mode::Selective, b"f");
    assert_eq!(bytes, [vec![1; 100], vec![2; 60]].concat());
}

/// What is longer than a transaction is cut short, and whoever cannot ask again has it all written,
/// or hears that it is not.
#[test]
fn who_asks_for_a_whole_write_gets_it_or_is_refused() {
    block_on(&mut World::new(made(0)), |env, _| async move {
        let c = Client::of(env, options(Mode::Data)).await;
        let bytes: Vec<u8> = (0..500_000u32).map(|n| (n / 700) as u8).collect();
        for (name, upto, offset) in [
            ("a", WriteUpTo::OneOperation, 0),
            ("b", WriteUpTo::All, 0),
            ("c", WriteUpTo::All, 300),
            ("d", WriteUpTo::Space, 300),
        ] {
            let (append, kill_suid, whole) = (false, false, upto != WriteUpTo::OneOperation);
            let ino = c.make(name).await.unwrap();
            let data = Rope::cut(&bytes, offset as usize % BS, BS);
            let stability = Stability::Unstable;
            let write = Request::Write { ino, offset, data, stability, append, kill_suid, upto };
            let Reply::Written { len, .. } = c.ask(write).await.unwrap() else { panic!("{name}") };
            assert_eq!(len as usize == bytes.len(), whole, "{name}: {len}");
            let read = Request::Read { ino, offset, len: 1 << 20 };
            let Reply::Data { data, .. } = c.ask(read).await.unwrap() else { panic!("no data") };
            assert!(data.to_vec() == bytes[..len as usize], "{name}");
        }
        let ino = c.make("full").await.unwrap();
        for n in 0.. {
            let data = Rope::cut(&bytes, 0, BS);
            let (offset, stability) = (n * bytes.len() as u64, Stability::Unstable);
            let (append, kill_suid, upto) = (false, false, WriteUpTo::All);
            let write = Request::Write { ino, offset, data, stability, append, kill_suid, upto };
            match c.ask(write).await {
                Ok(Reply::Written { len, .. }) => assert_eq!(len as usize, bytes.len()),
                done => return assert!(matches!(done, Err(FsError::NoSpace)), "{done:?}"),
            }
        }
    });
}

#[test]
fn a_checkpoint_in_the_background_that_fails_is_the_last_that_anybody_was_promised() {
    let base = made(0);
    let journal = volume::probe(&Made(base.clone())).unwrap().journal.unwrap();
    let from = journal.byte_of(0).unwrap();
    let mut world = World::new(base);
    // The write of its superblock that begins it succeeds; the next is the first checkpoint's.
    world.set_fault(Fault::Area { from, to: from + BS as u64, after: 1, once: true });
    let done = block_on(&mut world, |env, _| async move {
        let c = Client::of(env.clone(), options(Mode::Data)).await;
        let f = c.make("f").await.unwrap();
        for n in 0..400 {
            let done = async {
                c.write(f, n * BS as u64, &[1; 3 * BS]).await?;
                c.fsync(f, false).await
            };
            if done.await.is_err() {
                return n;
            }
            env.sleep(Nanos::from_millis(50)).await; // what began in the background ends
        }
        400
    });
    assert!(world.has_failed(), "the journal was never trimmed");
    assert!(done > 10 && done < 400, "{done} were promised");
}

#[test]
fn contents_that_a_truncation_takes_away_from_fdatasync_are_its_business_all_the_same() {
    for mode in [Mode::Ordered, Mode::Selective] {
        let base = made(0);
        let mut world = World::new(base.clone());
        block_on(&mut world, move |env, _| async move {
            let c = Client::of(env.clone(), options(mode)).await;
            let f = c.make("f").await.unwrap();
            c.write(f, 0, &[1; 4 * BS]).await.unwrap();
            c.ask(Request::Quiesce).await.unwrap();
            // The first block is on its way when the second caller comes, and the third cuts what
            // he has not sent yet.
            c.write(f, 0, &[2; BS]).await.unwrap();
            let (first, third) = (c.clone(), c.clone());
            env.spawn("first", async move { first.fsync(f, true).await.unwrap() });
            env.sleep(Nanos(100)).await;
            c.write(f, 2 * BS as u64, &[2; BS]).await.unwrap();
            let clock = env.clone();
            env.spawn("third", async move {
                clock.sleep(Nanos(100)).await;
                third.cut(f).await.unwrap();
            });
            c.fsync(f, true).await.unwrap();
        });
        let bytes = found(durable(&world, &base), mode, b"f");
        let written = [vec![2; BS], vec![1; BS], vec![2; BS], vec![1; BS]].concat();
        assert!(bytes.is_empty() || bytes == written, "{mode}: neither is durable");
    }
}

/// A disk on which long writes take much longer than short ones, and than a flush.
struct SlowWhenLong;

impl Timing for SlowWhenLong {
    fn ends_at(&mut self, now: Nanos, access: Access) -> Nanos {
        let long = matches!(access.kind, Kind::Write { .. }) && access.len > 100_000;
        Nanos(now.0 + if long { 10_000_000 } else { 100_000 })
    }
}

#[test]
fn contents_that_a_truncation_takes_away_from_sync_are_its_business_all_the_same() {
    let base = made(0);
    let mut world = World::new(base.clone());
    world.set_timings(vec![Box::new(SlowWhenLong)]);
    block_on(&mut world, |env, _| async move {
        let c = Client::of(env.clone(), options(Mode::Writeback)).await;
        let (large, f) = (c.make("large").await.unwrap(), c.make("f").await.unwrap());
        c.write(large, 0, &[1; 2000 * BS]).await.unwrap();
        c.write(f, 0, &[1; BS]).await.unwrap();
        c.ask(Request::Quiesce).await.unwrap();
        // The first caller's contents take longer than the second's commit. What the third cuts
        // then is in the next transaction.
        c.write(large, 0, &[2; 1000 * BS]).await.unwrap();
        let (first, other) = (c.clone(), c.clone());
        env.spawn("first", async move {
            first.fsync(large, true).await.unwrap();
        });
        env.sleep(Nanos(100)).await;
        c.write(f, 0, &[2; BS]).await.unwrap();
        let clock = env.clone();
        env.spawn("second and third", async move {
            clock.sleep(Nanos(100)).await;
            let small = other.make("small").await.unwrap();
            other.fsync(small, false).await.unwrap();
            other.cut(f).await.unwrap();
        });
        c.ask(Request::SyncAll).await.unwrap();
    });
    let bytes = found(durable(&world, &base), Mode::Writeback, b"f");
    assert!(bytes.is_empty() || bytes == [2; BS], "neither is durable: {:?}", bytes.first());
}

/// A file's contents are on their way; meanwhile it is cut, durably, and what is free is discarded.
async fn trim_what_is_on_its_way(env: Env) -> Result<Reply, FsError> {
    let c = Client::of(env.clone(), options(Mode::Ordered)).await;
    let f = c.make("f").await.unwrap();
    c.write(f, 0, &[1; 200 * BS]).await.unwrap();
    c.fsync(f, false).await.unwrap();
    c.write(f, 0, &[2; 200 * BS]).await.unwrap();
    let first = c.clone();
    env.spawn("first", async move { first.fsync(f, true).await.map_or((), drop) });
    env.sleep(Nanos(100)).await;
    c.cut(f).await.unwrap();
    c.fsync(f, false).await.unwrap();
    c.ask(Request::Trim { from: 0, bytes: u64::MAX, min_bytes: 0 }).await
}

#[test]
fn what_is_on_its_way_to_where_it_fails_is_not_discarded() {
    let base = made(0);
    let long = |w: &sim::Write| w.bytes.len() > 100_000 && w.bytes[0] == 2;
    let mut at = None;
    for with in [Ok(()), Err(FsError::ReadOnly)] {
        let mut world = World::new(base.clone());
        world.set_timings(vec![Box::new(SlowWhenLong)]);
        if let Some(from) = at {
            world.set_fault(Fault::Area { from, to: from + 1, after: 1, once: true });
        }
        let done = block_on(&mut world, |env, _| trim_what_is_on_its_way(env));
        assert_eq!(done.map(drop), with);
        at = world.trace.writes.iter().find(|w| long(w)).map(|w| w.at);
    }
}

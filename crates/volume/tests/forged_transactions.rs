//! A user writes into a file what looks like a transaction of a journal. In modes with a log of
//! ours it comes to lie in the journal's blocks, and whoever replays the journal later must never
//! take it for one: the number of the next transaction is none that he could know.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use env::{Nanos, Rope};
use format::bytes::{le32, set32};
use format::ext::features::incompat::RECOVER;
use format::jbd2::{JournalSuperblock, Shape, Tag, superblock};
use format::mkfs::{MkfsOptions, Profile};
use format::{BlockNo, FormatError};
use sim::{CrashImages, Image, World, block_on};
use std::process::Command;
use vfs::{Call, MakeKind, Reply, Request, SetAttr, Stability};
use volume::{Ground, Mode, OpenOptions};

const BS: usize = 1024;
const BYTES: u64 = 24 << 20;
/// A block that no file owns, which the user wants to be written.
const TARGET: u64 = 24_000;
/// Where a volume's features begin that a writer must know.
const INCOMPAT_AT: usize = 1024 + 0x60;
/// What the log has in front of the bytes of each block.
const ITEM_HEADER: usize = 8;
/// Bytes of a descriptor of one block, and of a commit, that are looked at.
const DESCRIPTOR: usize = 36;
const COMMIT: usize = 12;

#[derive(Clone)]
struct Disk(Vec<u8>);

impl check::ReadBlocks for Disk {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), check::IoError> {
        into.copy_from_slice(&self.0[at as usize..][..into.len()]);
        Ok(())
    }
}
impl check::WriteBlocks for Disk {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), check::IoError> {
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), check::IoError> {
        Ok(())
    }
    fn read_back(&self, at: u64, into: &mut [u8]) -> Result<(), check::IoError> {
        check::ReadBlocks::read_at(self, at, into)
    }
}

impl Disk {
    fn new() -> Disk {
        let o = MkfsOptions {
            block_bytes: BS,
            journal_bytes: Some(8 << 20),
            ..MkfsOptions::plain(BYTES, Profile::Ext3)
        };
        let mut disk = Disk(vec![0; BYTES as usize]);
        volume::make(&mut disk, &o, true).unwrap();
        disk
    }
    fn image(&self) -> Image {
        let mut image = Image::new(BYTES);
        image.write(0, &self.0);
        image
    }
    /// A block of the journal.
    fn journal(&mut self, n: u32) -> &mut [u8] {
        let at = volume::probe(self).unwrap().journal.unwrap().byte_of(n).unwrap();
        &mut self.0[at as usize..][..BS]
    }
    fn journal_superblock(&mut self) -> Result<JournalSuperblock, FormatError> {
        JournalSuperblock::decode(self.journal(0))
    }
    fn target(&self) -> &[u8] {
        &self.0[TARGET as usize * BS..][..BS]
    }
}

/// A transaction that writes this to the target.
fn transaction(sb: &JournalSuperblock, tid: u32, fill: u8) -> Vec<u8> {
    let shape = Shape::of(&JournalSuperblock { incompat: 1, ..*sb }).unwrap();
    let tag = Tag { block: BlockNo(TARGET), escaped: false, sum: 0 };
    let descriptor = shape.descriptor(tid, &sb.uuid, &[tag]);
    let commit = shape.commit(tid, 1_700_000_100, 5);
    let full = |head: &[u8]| [head.to_vec(), vec![fill; BS - head.len()]].concat();
    [full(&descriptor[..DESCRIPTOR]), vec![fill; BS], full(&commit[..COMMIT])].concat()
}

fn options(mode: Mode, chance: u8) -> OpenOptions {
    let o = OpenOptions::plain(mode, 4 << 20, [chance; 16]);
    OpenOptions { commit_interval: Nanos::from_secs(7200), threshold: Some(64 << 10), ..o }
}

/// A file's contents that have this in the log, so many bytes behind their beginning. What it is
/// made of has no zeros in a row, which the log would leave out.
fn in_file(forged: &[u8], pad: usize) -> Vec<u8> {
    let place = |p: usize| (p + ITEM_HEADER * (p / BS)).checked_sub(pad);
    let byte = |p: usize| place(p).and_then(|at| forged.get(at)).copied();
    (0..5 * BS).map(|p| byte(p).unwrap_or(b' ')).collect()
}

/// Writes this into a file, behind so many bytes that it comes to lie at the beginning of some
/// block of the journal, and makes it durable. Returns the disk as it is after a clean end, and as
/// a power cut before that leaves it.
fn written(disk: &Disk, mode: Mode, forged: &[u8], chance: u8) -> (Disk, Disk) {
    let base = disk.image();
    let (forged, mut world) = (forged.to_vec(), World::new(base.clone()));
    let mut after = None;
    for cut in [false, true] {
        let forged = forged.clone();
        block_on(&mut world, move |env, _| async move {
            let o = options(mode, chance);
            let volume = volume::open_on(Ground::alone(env, BYTES, None), o).await.unwrap();
            let ask = |request| {
                let volume = volume.clone();
                async move { volume.call(Call::local(request)).await.result.unwrap() }
            };
            let kind = MakeKind::File { exclusive: None };
            let attr = SetAttr { mode: Some(0o644), ..SetAttr::default() };
            let name = b"f".to_vec();
            let make = Request::Make { dir: 2, name, kind, attr, fail_if_exists: false, umask: 0 };
            let Reply::Entry { attr, .. } = ask(make).await else { panic!("no entry") };
            let ino = attr.ino;
            for pad in 0..BS {
                let bytes = in_file(&forged, pad);
                let (offset, stability) = (0, Stability::FileSync);
                let (append, kill_suid, upto) = (false, false, vfs::WriteUpTo::All);
                let data = Rope::cut(&bytes, 0, BS);
                let w = Request::Write { ino, offset, data, stability, append, kill_suid, upto };
                ask(w).await;
            }
            ask(Request::Fsync { ino, data_only: false }).await;
            if !cut {
                volume.close().await.unwrap();
            }
        });
        if !cut {
            after = Some(Disk(world.disk.to_vec()));
            world = World::new(base.clone());
        }
    }
    let mut images = CrashImages::new(&world.trace, &base);
    while images.step().is_some() {}
    (after.unwrap(), Disk(images.image(0).to_vec()))
}

/// Somebody else's first transaction is in the journal, right before what the user wrote. Returns
/// false if that lies at no block's beginning.
fn use_journal(disk: &mut Disk, forged: &[u8]) -> bool {
    let sb = disk.journal_superblock().unwrap();
    let (first, last) = (&forged[..DESCRIPTOR], &forged[2 * BS..][..COMMIT]);
    let log = volume::probe(disk).unwrap().journal.unwrap();
    let begins = |n: u32, with: &[u8]| disk.0[log.byte_of(n).unwrap() as usize..].starts_with(with);
    let is_there = |n: &u32| begins(*n, first) && begins(n + 2, last);
    let Some(n) = (4..sb.blocks - 3).find(is_there) else { return false };
    for (at, block) in (n - 3..n).zip(transaction(&sb, sb.sequence, 0x11).chunks(BS)) {
        disk.journal(at).copy_from_slice(block);
    }
    superblock::set_incompat(disk.journal(0), 1);
    superblock::set_tail(disk.journal(0), n - 3, sb.sequence);
    let bits = le32(&disk.0, INCOMPAT_AT) | RECOVER;
    set32(&mut disk.0, INCOMPAT_AT, bits);
    true
}

/// The real e2fsck.
fn e2fsck(disk: &Disk, name: &str) -> Disk {
    let path = std::env::temp_dir().join(format!("cairn-forged-{name}-{}", std::process::id()));
    std::fs::write(&path, &disk.0).unwrap();
    let code = Command::new("/usr/sbin/e2fsck").arg("-fy").arg(&path).output().unwrap().status;
    let after = Disk(std::fs::read(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(code.code(), Some(0 | 1)), "{name}: {code}");
    after
}

fn recovered(disk: &Disk) -> Disk {
    let mut world = World::new(disk.image());
    block_on(&mut world, |env, _| async move {
        let o = options(Mode::Unified, 9);
        volume::recover(&Ground::alone(env, BYTES, None), &o).await.unwrap();
    });
    Disk(world.disk.to_vec())
}

fn given_up(disk: &Disk) -> Disk {
    let mut disk = disk.clone();
    volume::discard_log(&mut disk).unwrap().unwrap();
    disk
}

#[test]
fn what_a_user_wrote_is_never_the_next_transaction() {
    for mode in [Mode::Unified, Mode::Redo] {
        let mut disk = Disk::new();
        let sb = disk.journal_superblock().unwrap();
        // The transaction behind the first one of whoever uses the journal next.
        let forged = transaction(&sb, sb.sequence + 1, 0x66);
        let (clean, cut) = written(&disk, mode, &forged, 5);
        let mut numbers = vec![sb.sequence];
        let ends = [("clean", clean), ("recovered", recovered(&cut)), ("given up", given_up(&cut))];
        for (what, mut left) in ends {
            assert_ne!(left.target()[0], 0x66, "{mode}, {what}");
            assert!(use_journal(&mut left, &forged), "{mode}, {what}: it lies nowhere");
            numbers.push(left.journal_superblock().unwrap().sequence);
            let after = e2fsck(&left, &format!("{mode}"));
            assert!(after.target()[0] == 0x11, "G3: {mode}, {what}: the user's is replayed");
        }
        let (again, _) = written(&disk, mode, &forged, 6);
        numbers.push(again.clone().journal_superblock().unwrap().sequence);
        let far = numbers.windows(2).all(|w| w[0].abs_diff(w[1]) > 10_000 || w[0] == w[1]);
        assert!(far && numbers[0] != numbers[1], "G3: {mode}: {numbers:?}");
        assert_ne!(numbers[1], numbers[4], "{mode}: another log, the same number");
    }
}

/// A repair that empties a journal, or makes its superblock anew: the transactions that lie in its
/// blocks are not replayed behind those of whoever uses it next.
#[test]
fn what_lies_in_a_journal_that_a_repair_empties_is_never_the_next_transaction() {
    let old = |disk: &mut Disk| {
        let sb = disk.journal_superblock().unwrap();
        for n in 0..5 {
            let all = transaction(&sb, sb.sequence + n, 0x66);
            for (at, block) in (3 * n + 1..).zip(all.chunks(BS)) {
                disk.journal(at).copy_from_slice(block);
            }
        }
        superblock::set_incompat(disk.journal(0), 1);
        superblock::set_tail(disk.journal(0), 1, sb.sequence);
    };
    let o = check::Options { now_secs: 1_900_000_000, verify: true, mark_clean: true };
    for damaged in [false, true] {
        let mut disk = Disk::new();
        old(&mut disk);
        if damaged {
            let at = volume::probe(&disk).unwrap().journal.unwrap().byte_of(0).unwrap() as usize;
            disk.0[at..at + BS].fill(0x5a);
        }
        let report = check::check(&disk, &o, &mut ()).unwrap();
        assert!(report.left.is_empty() && !report.plan.is_empty(), "{damaged}");
        report.plan.apply(&mut disk, &mut ()).unwrap();
        let sb = disk.journal_superblock().unwrap();
        assert_eq!(sb.start, 0);
        for (at, block) in (1..).zip(transaction(&sb, sb.sequence, 0x11).chunks(BS)) {
            disk.journal(at).copy_from_slice(block);
        }
        superblock::set_incompat(disk.journal(0), 1);
        superblock::set_tail(disk.journal(0), 1, sb.sequence);
        let bits = le32(&disk.0, INCOMPAT_AT) | RECOVER;
        set32(&mut disk.0, INCOMPAT_AT, bits);
        let after = e2fsck(&disk, &format!("emptied-{damaged}"));
        assert_eq!(after.target()[0], 0x11, "damaged: {damaged}: an old transaction is replayed");
    }
}

//! Journals of other programs' older kinds: a superblock of version 1, and sums in commits only
//! (COMPAT_CHECKSUM). They are made here byte by byte and given to the real e2fsck too, which has
//! to find in them what we find.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use check::{IoError, ReadBlocks, WriteBlocks};
use format::bytes::{le32, set32};
use format::ext::features::incompat::RECOVER;
use format::jbd2::{JournalSuperblock, Shape, Tag, escape, incompat, superblock};
use format::mkfs::{MkfsOptions, Profile};
use format::{BlockNo, FormatError};
use sim::{Image, World};
use std::path::Path;
use std::process::Command;
use volume::{Ground, Mode, OpenOptions, Recovered, VolumeError};

const BS: usize = 1024;
/// Blocks that no file owns; whoever repairs lets their contents be.
const HOMES: std::ops::Range<u64> = 6000..6010;
/// Where a journal's superblock has its kind, its words of features, and the last of its bytes.
const KIND: usize = 4;
const COMPAT: usize = 0x24;
const END: usize = 0x400;
/// Bit of `COMPAT`: sums in commits only.
const OLD_SUMS: u32 = 1;

#[derive(Clone)]
struct Disk(Vec<u8>);

impl ReadBlocks for Disk {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        into.copy_from_slice(&self.0[at as usize..][..into.len()]);
        Ok(())
    }
}
impl WriteBlocks for Disk {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
    fn read_back(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.read_at(at, into)
    }
}

impl Disk {
    fn new() -> Disk {
        let o = MkfsOptions {
            block_bytes: BS,
            inodes: Some(64),
            ..MkfsOptions::plain(8 << 20, Profile::Ext3)
        };
        let mut disk = Disk(vec![0; 8 << 20]);
        volume::make(&mut disk, &o, true).unwrap();
        disk
    }
    /// A block of the journal.
    fn journal(&mut self, n: u32) -> &mut [u8] {
        let at = volume::probe(self).unwrap().journal.unwrap().byte_of(n).unwrap();
        &mut self.0[at as usize..][..BS]
    }
    fn journal_superblock(&mut self) -> Result<JournalSuperblock, FormatError> {
        JournalSuperblock::decode(self.journal(0))
    }
    /// A byte of each of the places.
    fn places(&self) -> Vec<u8> {
        HOMES.map(|b| self.0[b as usize * BS + 100]).collect()
    }
    fn recover(&mut self) -> Result<Recovered, VolumeError> {
        let mut image = Image::new(self.size_bytes());
        image.write(0, &self.0);
        let (size, mut world) = (image.size(), World::new(image));
        let did = sim::block_on(&mut world, move |env, _| async move {
            let options = OpenOptions::plain(Mode::Sync, 4 << 20, [9; 16]);
            volume::recover(&Ground::alone(env, size, None), &options).await
        });
        self.0 = world.disk.to_vec();
        did
    }
    /// The real e2fsck, with this option: its exit code, and the volume as it is afterwards.
    fn e2fsck(&self, how: &str, name: &str) -> (i32, Disk) {
        let path = std::env::temp_dir().join(format!("cairn-{name}-{}", std::process::id()));
        std::fs::write(&path, &self.0).unwrap();
        let place = "/usr/sbin/e2fsck";
        let tool = if Path::new(place).exists() { place } else { "e2fsck" };
        let out = Command::new(tool).arg(how).arg(&path).output().unwrap();
        let after = Disk(std::fs::read(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        (out.status.code().unwrap(), after)
    }
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

/// The CRC-32 of Ethernet with the highest bit first, not inverted at the end.
fn crc32(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte) << 24, |c, _| {
            c << 1 ^ if c & 1 << 31 == 0 { 0 } else { 0x04c1_1db7 }
        })
    })
}

/// What a journal is made of.
#[derive(Clone, Copy)]
struct Made {
    v1: bool,
    /// Features of version 2.
    compat: u32,
    incompat: u32,
    /// Have its commits sums of the old kind?
    sums: bool,
}

const V1: Made = Made { v1: true, compat: 0, incompat: 0, sums: false };
const SUMMED: Made = Made { v1: false, compat: OLD_SUMS, incompat: incompat::REVOKE, sums: true };
/// Blocks of the journal: those of the first transaction begin at 1, with ten copies.
const SECOND: u32 = 13;

/// A volume whose journal has two transactions: ten blocks, and then five of them again. Where
/// there can be revocations, the second one revokes the last.
fn made(m: Made) -> Disk {
    let mut disk = Disk::new();
    let first = disk.journal(0);
    superblock::set_incompat(first, m.incompat);
    superblock::set_tail(first, 1, 700);
    put(first, COMPAT, m.compat);
    if m.v1 {
        put(first, KIND, 3);
        // It ends here; a reader who takes what follows for features knows none of them.
        first[COMPAT..END].fill(0xee);
    }
    let sb = disk.journal_superblock().unwrap();
    assert_eq!(sb.incompat, m.incompat);
    let shape = Shape::of(&sb).unwrap();
    let mut at = 1;
    for (tid, fill, count) in [(700, 0x11u8, 10), (701, 0x22, 5)] {
        let mut blocks: Vec<Vec<u8>> = vec![vec![fill; BS]; count];
        put(&mut blocks[2], 0, superblock::MAGIC);
        let tag = |(place, b): (u64, &mut Vec<u8>)| {
            let escaped = escape(b);
            Tag { block: BlockNo(place), escaped, sum: 0 }
        };
        let tags: Vec<Tag> = HOMES.zip(&mut blocks).map(tag).collect();
        blocks.insert(0, shape.descriptor(tid, &sb.uuid, &tags));
        let sum = blocks.iter().fold(!0, |crc, b| crc32(crc, b));
        let mut commit = shape.commit(tid, 1_700_000_100, 5);
        if m.sums {
            // Kind 1 is CRC-32; the sum has four bytes.
            put(&mut commit, 0x0c, 0x0104_0000);
            put(&mut commit, 0x10, sum);
        }
        if tid == 701 && m.incompat & incompat::REVOKE != 0 {
            blocks.push(shape.revoke(tid, &[BlockNo(HOMES.end - 1)]));
        }
        blocks.push(commit);
        for block in blocks {
            disk.journal(at).copy_from_slice(&block);
            at += 1;
        }
    }
    let features = 1024 + 0x60;
    let bits = le32(&disk.0, features) | RECOVER;
    set32(&mut disk.0, features, bits);
    disk
}

/// What is in place when both are replayed.
fn both(m: Made) -> Vec<u8> {
    let last = if m.incompat & incompat::REVOKE == 0 { 0x11 } else { 0 };
    [&[0x22; 5][..], &[0x11; 4], &[last]].concat()
}

#[test]
fn they_are_replayed_as_e2fsck_replays_them_and_are_journals_of_ours_then() {
    let plain = Made { compat: 0, sums: false, ..SUMMED };
    let unsummed = Made { sums: false, ..SUMMED };
    for (name, m) in [("v1", V1), ("plain", plain), ("summed", SUMMED), ("unsummed", unsummed)] {
        let disk = made(m);
        let (code, theirs) = disk.e2fsck("-fy", name);
        assert!(matches!(code, 0 | 1), "{name}: {code}");
        assert_eq!(theirs.places(), both(m), "{name}: by e2fsck");
        let mut ours = disk.clone();
        let did = ours.recover().unwrap();
        assert_eq!(ours.places(), both(m), "{name}");
        assert_eq!(did.transactions, 2, "{name}");
        let escaped = &ours.0[(HOMES.start as usize + 2) * BS..][..4];
        assert_eq!(escaped, superblock::MAGIC.to_be_bytes(), "{name}");
        let sb = ours.journal_superblock().unwrap();
        assert_eq!((sb.start, sb.sequence), (0, 703), "{name}");
        let first = ours.journal(0);
        assert_eq!((be32(&first[KIND..]), be32(&first[COMPAT + 8..])), (4, 0), "{name}");
        assert_eq!(ours.e2fsck("-fn", name).0, 0, "{name}: e2fsck, of what we left");
    }
}

#[test]
fn features_beyond_version_1_that_nobody_knows_are_refused_by_name() {
    for (m, with) in [
        (Made { incompat: incompat::FAST_COMMIT, ..SUMMED }, "tune2fs -O ^fast_commit"),
        (Made { incompat: 1 << 12 | incompat::REVOKE, ..SUMMED }, "journal features 0x1000"),
    ] {
        let mut disk = made(Made { incompat: incompat::REVOKE, ..m });
        superblock::set_incompat(disk.journal(0), m.incompat);
        let before = disk.clone();
        let why = disk.recover().unwrap_err().to_string();
        assert!(why.contains(with), "{why}");
        assert!(disk.0 == before.0, "it was refused, and something was written");
    }
}

#[test]
fn a_superblock_of_version_1_that_fits_no_journal_is_refused_by_name() {
    for (at, word, with) in [
        (0x0c, 4096, "blocks of 4096 bytes"),
        (0x10, 1 << 20, "1048576 blocks, its file has"),
        (0x1c, 1 << 20, "its first transaction is at block 1048576"),
    ] {
        let mut disk = made(V1);
        put(disk.journal(0), at, word);
        let before = disk.clone();
        let why = disk.recover().unwrap_err().to_string();
        assert!(why.contains(with), "{why}");
        assert!(disk.0 == before.0, "it was refused, and something was written");
    }
}

/// Damages a journal; it is refused, with this, and nothing is written.
fn refused(m: Made, damage: impl Fn(&mut Disk), with: &str) {
    let mut disk = made(m);
    damage(&mut disk);
    let before = disk.clone();
    let why = disk.recover().unwrap_err().to_string();
    assert!(why.contains("nothing was replayed") && why.contains(with), "{why}");
    assert!(disk.0 == before.0, "it was refused, and something was written");
}

#[test]
fn blocks_that_their_commit_does_not_sum_are_not_replayed() {
    let damage_in = |block: u32| move |d: &mut Disk| d.journal(block)[100] ^= 1;
    let mut disk = made(SUMMED);
    damage_in(SECOND + 1)(&mut disk);
    let (_, theirs) = disk.e2fsck("-fy", "damaged");
    assert_eq!(theirs.places()[..5], [0x11; 5], "e2fsck replays what is before it");
    // A copy of the first transaction; the second one's; and its descriptor, behind its list.
    refused(SUMMED, damage_in(3), "transaction 700");
    refused(SUMMED, damage_in(SECOND + 1), "transaction 701");
    refused(SUMMED, |d| d.journal(SECOND)[1000] ^= 1, "transaction 701");
    // Where a commit may overtake what it commits, a crash leaves that of the last one, and only
    // of that one.
    let overtakes = Made { incompat: incompat::REVOKE | incompat::ASYNC_COMMIT, ..SUMMED };
    let mut disk = made(overtakes);
    assert_eq!(disk.clone().recover().unwrap().transactions, 2);
    refused(overtakes, damage_in(3), "transaction 700");
    damage_in(SECOND + 1)(&mut disk);
    assert_eq!(disk.recover().unwrap().transactions, 1);
    assert_eq!(disk.places(), [0x11; 10]);
    assert_eq!(disk.e2fsck("-fn", "overtaken").0, 0);
}

/// As Linux leaves it that was enlarging the volume: what is new lies behind the end of the volume
/// as its superblock in place counts it.
#[test]
fn copies_of_blocks_behind_the_volumes_end_are_replayed_if_the_disk_has_them() {
    let plain = Made { compat: 0, sums: false, ..SUMMED };
    let mut disk = made(plain);
    let (inside, end) = (disk.0.len(), disk.0.len() / BS);
    put(disk.journal(1), 12, end as u32); // the first that the first descriptor lists
    let why = disk.clone().recover().unwrap_err().to_string();
    assert!(why.contains("which the volume does not have"), "{why}");
    disk.0.resize(inside + BS, 0);
    assert_eq!(disk.recover().unwrap().transactions, 2);
    assert_eq!(disk.0[inside..], [0x11; BS]);
}

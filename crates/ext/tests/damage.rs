//! Damaged volumes: what is wrong is said with its place, the operation fails, the volume turns
//! read-only, and reads go on. Nothing panics.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Vol, World, options, pattern};
use ext::LoadError;
use format::ext::geometry::GROUP_DESC_BYTES;
use format::ext::{Geometry, GroupDesc, Superblock};
use format::mkfs::Profile;
use format::ufs::inode::{BLOCK_AT, InodeRef};
use format::{FileBlock, GroupNo, Ino};
use integrity::Credits;
use mechanisms::Mode;
use sim::Fault;
use ufs::store::{Directories, Inodes, StoreInfo, Transactions};
use vfs::FsError;

/// A closed volume with a file `f` of 400 blocks, and what one needs to find things in it.
struct Victim {
    w: World,
    geo: Geometry,
    ino: u32,
}

impl Victim {
    fn new() -> Victim {
        let mut w = World::mkfs(&options(40 << 20, 1024, 256, Profile::Ext2));
        let v = w.open(Mode::Sync);
        let ino = w.file(&v, ROOT, "f");
        for i in 0..4 {
            w.write(&v, ino, i * 102_400, &pattern(i, 102_400)).unwrap();
        }
        w.close(v);
        let geo = Geometry::of(&w.superblock());
        Victim { w, geo, ino }
    }
    fn desc_at(&self, g: u32) -> u64 {
        self.geo.desc_block(0).0 * 1024 + u64::from(g) * GROUP_DESC_BYTES as u64
    }
    fn desc(&self, g: u32) -> GroupDesc {
        GroupDesc::decode(&self.w.bytes(self.desc_at(g), GROUP_DESC_BYTES))
    }
    fn inode_at(&self, ino: u32) -> u64 {
        let (block, byte) = self.geo.ino_place(Ino(ino));
        let g = self.geo.group_of_ino(Ino(ino));
        (self.desc(g.0).inode_table + u64::from(block)) * 1024 + byte as u64
    }
    fn poke(&mut self, at: u64, bytes: &[u8]) {
        self.w.sim.disk.write(at, bytes);
    }
    fn poke32(&mut self, at: u64, v: u32) {
        self.poke(at, &v.to_le_bytes());
    }
    fn pointer(&self, i: usize) -> u32 {
        let raw = self.w.bytes(self.inode_at(self.ino), 256);
        InodeRef(&raw).pointer(i)
    }
    fn load_error(&mut self) -> String {
        match self.w.try_open(Mode::Sync) {
            Err(LoadError::Format(e)) => e.to_string(),
            Err(e) => panic!("{e}"),
            Ok(_) => panic!("it was opened"),
        }
    }
    /// Opens it, and expects that `what` fails as damage.
    fn turns_read_only(
        &mut self,
        mode: Mode,
        what: impl Fn(&mut World, &Vol, u32) -> Result<(), FsError>,
    ) {
        let v = self.w.open(mode);
        assert_eq!(what(&mut self.w, &v, self.ino), Err(FsError::Corrupt));
        assert!(v.ext.is_damaged());
        assert_eq!(v.ext.writable(), Err(FsError::ReadOnly));
        assert_eq!(self.w.make(&v, ROOT, "x", vfs::MakeKind::Dir), Err(FsError::ReadOnly));
        assert_eq!(self.w.attr(&v, ROOT).nlink, 3, "reads go on");
    }
}

#[test]
fn descriptors_that_cannot_be_are_refused_with_their_place() {
    for (field, value, words) in [
        (0, 5, "group 1's block bitmap is said to be block 5"),
        (4, 0xffff_ffff, "group 1's inode bitmap"),
        (8, 8193, "group 1's inode table"),
        (8, 0, "group 1's inode table"),
    ] {
        let mut v = Victim::new();
        v.poke32(v.desc_at(1) + field, value);
        let e = v.load_error();
        assert!(e.contains(words) && e.contains("group descriptor 1"), "{e}");
    }
    let mut v = Victim::new();
    v.poke(v.desc_at(2) + 12, &[0xff, 0xff]);
    let e = v.load_error();
    assert!(e.contains("group 2 counts more free than it has"), "{e}");
}

#[test]
fn bitmaps_that_call_the_volumes_own_blocks_free() {
    for byte in [0, 1, 2] {
        let mut v = Victim::new();
        let at = v.desc(0).block_bitmap * 1024;
        v.poke(at + byte, &[0]);
        v.turns_read_only(Mode::Async, |w, v, ino| w.write(v, ino, 1 << 20, b"x").map(drop));
    }
    let mut v = Victim::new();
    let at = v.desc(0).inode_bitmap * 1024;
    v.poke(at, &[0xf0]);
    v.turns_read_only(Mode::Sync, |w, v, _| {
        w.make(v, ROOT, "g", vfs::MakeKind::File { exclusive: None }).map(drop)
    });
}

#[test]
fn an_inode_in_use_that_the_bitmap_calls_free() {
    let mut v = Victim::new();
    let at = v.desc(0).inode_bitmap * 1024;
    let bit = v.ino - 1;
    let old = v.w.bytes(at + u64::from(bit / 8), 1)[0];
    v.poke(at + u64::from(bit / 8), &[old & !(1 << (bit % 8))]);
    v.turns_read_only(Mode::Sync, |w, v, _| {
        w.make(v, ROOT, "d", vfs::MakeKind::File { exclusive: None }).map(drop)
    });
}

#[test]
fn pointers_to_where_no_file_can_be() {
    let v = Victim::new();
    let table = v.desc(0).inode_table as u32;
    let beyond = v.geo.blocks as u32;
    for bad in [0xffff_ffff, beyond, 1, 3, table, v.desc(2).block_bitmap as u32] {
        // A direct pointer, the indirect block itself, the double indirect block, a pointer in it.
        for level in 0..4 {
            let mut v = Victim::new();
            let inode = v.inode_at(v.ino) + BLOCK_AT as u64;
            let (place, block) = match level {
                0 => (inode + 4 * 5, 5),
                1 => (inode + 4 * 12, 30),
                2 => (inode + 4 * 13, 300),
                _ => (u64::from(v.pointer(13)) * 1024, 300),
            };
            v.poke32(place, bad);
            let at = block * 1024;
            v.turns_read_only(Mode::Sync, |w, v, ino| w.read(v, ino, at, 10).map(drop));
            let mut v = Victim::new();
            v.poke32(place, bad);
            v.turns_read_only(Mode::Async, |w, v, ino| w.write(v, ino, at + 1, b"x").map(drop));
            let mut v = Victim::new();
            v.poke32(place, bad);
            v.turns_read_only(Mode::Sync, |w, v, _| w.unlink(v, ROOT, "f"));
        }
    }
}

#[test]
fn a_run_that_passes_through_the_volumes_own_blocks() {
    // Contiguous pointers whose ends are harmless; in their middle group 2 has its block bitmap.
    let mut v = Victim::new();
    let indirect = u64::from(v.pointer(12)) * 1024;
    let first = v.geo.group_start(GroupNo(2)).0 as u32 + 4000;
    v.poke32(v.desc_at(2), first + 100);
    for i in 0..256u32 {
        v.poke32(indirect + 4 * u64::from(i), first + i);
    }
    v.turns_read_only(Mode::Sync, |w, v, ino| w.read(v, ino, 12 * 1024, 250 * 1024).map(drop));
}

#[test]
fn blocks_that_are_claimed_twice_are_freed_once() {
    // Two pointers of one file to one block; then two files.
    let mut v = Victim::new();
    let inode = v.inode_at(v.ino) + BLOCK_AT as u64;
    v.poke32(inode + 4, v.pointer(0));
    v.turns_read_only(Mode::Sync, |w, v, _| w.unlink(v, ROOT, "f"));
    // An indirect block that is its own child.
    let mut v = Victim::new();
    let double = v.pointer(13);
    for i in 0..256 {
        v.poke32(u64::from(double) * 1024 + 4 * i, double);
    }
    v.turns_read_only(Mode::Sync, |w, v, _| w.unlink(v, ROOT, "f"));
    let mut v = Victim::new();
    for i in 0..256 {
        v.poke32(u64::from(double) * 1024 + 4 * i, double);
    }
    let triple = v.inode_at(v.ino) + BLOCK_AT as u64 + 4 * 14;
    v.poke32(triple, double);
    v.turns_read_only(Mode::Async, |w, v, _| w.unlink(v, ROOT, "f"));
}

#[test]
fn inodes_that_cannot_be() {
    // (byte, value, what): mode, flags, extra size, length of a directory, attribute block.
    let u32s = |at: u64, v: u32| vec![(at, v.to_le_bytes().to_vec())];
    let cases: Vec<Vec<(u64, Vec<u8>)>> = vec![
        vec![(0, vec![0xff, 0x0f])],
        u32s(32, 0x8_0000),
        vec![(128, vec![200, 0])],
        vec![(128, vec![3, 0])],
        [u32s(4, 700), vec![(0, vec![0xed, 0x41])]].concat(),
        [u32s(4, 0), vec![(0, vec![0xed, 0x41])]].concat(),
        u32s(0x6c, 0xffff),
        u32s(0x68, 2),
        u32s(0x68, 0xffff_fff0),
    ];
    for case in cases {
        let mut v = Victim::new();
        for (at, bytes) in &case {
            v.poke(v.inode_at(v.ino) + at, bytes);
        }
        v.turns_read_only(Mode::Sync, |w, v, ino| {
            let r = vfs::Request::GetAttr { ino };
            w.call(v, r).map(drop)
        });
    }
    // A free inode is no damage: its handle is stale.
    let mut v = Victim::new();
    v.poke(v.inode_at(v.ino) + 26, &[0, 0]);
    let vol = v.w.open(Mode::Sync);
    for ino in [v.ino, v.ino + 1, 1, 8, 0, u32::MAX] {
        let r = vfs::Request::GetAttr { ino };
        assert_eq!(v.w.call(&vol, r).map(drop), Err(FsError::Stale), "inode {ino}");
    }
    assert!(!vol.ext.is_damaged());
}

#[test]
fn a_block_that_is_no_attribute_block() {
    let mut v = Victim::new();
    let data = v.pointer(3);
    v.poke32(v.inode_at(v.ino) + 0x68, data);
    v.turns_read_only(Mode::Sync, |w, v, _| w.unlink(v, ROOT, "f"));
}

#[test]
fn counts_are_corrected_by_the_bitmaps() {
    let mut v = Victim::new();
    let true_count = v.desc(0).free_blocks;
    v.poke(v.desc_at(0) + 12, &((true_count - 300) as u16).to_le_bytes());
    v.poke(v.desc_at(0) + 14, &3u16.to_le_bytes());
    let vol = v.w.open(Mode::Sync);
    v.w.write(&vol, v.ino, 400 * 1024, &pattern(1, 1024)).unwrap();
    v.w.file(&vol, ROOT, "g");
    v.w.close_and_judge(vol, "wrong counts");
}

#[test]
fn a_read_error_is_that_calls_business_unless_it_is_metadata() {
    let mut v = Victim::new();
    let block = u64::from(v.pointer(3)) * 1024;
    let vol = v.w.open(Mode::Sync);
    v.w.sim.set_fault(Fault::Read(block));
    assert_eq!(v.w.read(&vol, v.ino, 3 * 1024, 100), Err(FsError::Io));
    // Overwriting a part of the block needs the rest of it; overwriting all does not.
    assert_eq!(v.w.write(&vol, v.ino, 3 * 1024 + 5, b"part"), Err(FsError::Io));
    assert_eq!(v.w.read(&vol, v.ino, 9 * 1024, 4).map(|d| d.len()), Ok(4));
    assert!(!vol.ext.is_damaged());
    assert_eq!(v.w.write(&vol, v.ino, 3 * 1024, &pattern(5, 1024)), Ok(1024));
    assert_eq!(v.w.read(&vol, v.ino, 3 * 1024, 1024), Ok(pattern(5, 1024)));
    let indirect = u64::from(v.pointer(12)) * 1024;
    let mut v = Victim::new();
    let vol = v.w.open(Mode::Sync);
    v.w.sim.set_fault(Fault::Read(indirect));
    assert_eq!(v.w.read(&vol, v.ino, 100 * 1024, 100), Err(FsError::Io));
    assert!(vol.ext.is_damaged());
    assert_eq!(v.w.make(&vol, ROOT, "x", vfs::MakeKind::Dir), Err(FsError::ReadOnly));
}

#[test]
fn the_first_failed_write_or_flush_is_for_ever() {
    for mode in [Mode::Sync, Mode::Async] {
        for flush in [false, true] {
            let mut v = Victim::new();
            let vol = v.w.open(mode);
            let counts = v.w.sim.counts;
            v.w.sim.set_fault(match flush {
                false => Fault::Write(counts[1]),
                true => Fault::Flush(counts[2]),
            });
            let wrote = v.w.write(&vol, v.ino, 0, b"new");
            assert_eq!(wrote, Ok(3));
            assert_eq!(v.w.sync(&vol), Err(FsError::Io));
            assert_eq!(v.w.sync(&vol), Err(FsError::Io), "{mode}: it is not forgotten");
            assert_eq!(vol.ext.writable(), Err(FsError::ReadOnly));
            assert_eq!(v.w.write(&vol, v.ino, 0, b"more"), Err(FsError::ReadOnly));
            assert_eq!(v.w.read(&vol, v.ino, 0, 3), Ok(b"new".to_vec()));
        }
    }
}

#[test]
fn geometry_of_the_last_group() {
    // The last group may be short, and its bitmap's padding is never taken for space.
    let mut w = World::mkfs(&options((16 << 20) + (700 << 10), 1024, 128, Profile::Ext2));
    let v = w.open(Mode::Async);
    let geo = *v.ext.geometry();
    let last = GroupNo(geo.groups - 1);
    assert!(geo.group_blocks(last) < geo.blocks_per_group);
    let f = w.file(&v, ROOT, "f");
    let mut at = 0;
    while let Ok(n) = w.write(&v, f, at, &pattern(at, 50_000)) {
        at += u64::from(n);
    }
    assert_eq!(w.statfs(&v).free, 0);
    w.close_and_judge(v, "filling the last group");
    let sb: Superblock = w.superblock();
    assert_eq!(sb.free_blocks(), 0);
}

/// A directory that counts too few of its subdirectories is not free when they have gone.
#[test]
fn a_directory_without_subdirectories_keeps_its_own_two_links() {
    let mut w = World::mkfs(&options(40 << 20, 1024, 256, Profile::Ext2));
    let v = w.open(Mode::Async);
    let d = w.dir(&v, ROOT, "d");
    w.dir(&v, d, "a");
    w.dir(&v, d, "b");
    w.close(v);
    w.debugfs(&["set_inode_field /d links_count 2"]);
    let v = w.open(Mode::Async);
    for name in ["a", "b"] {
        let name = name.as_bytes().to_vec();
        w.call(&v, vfs::Request::Rmdir { dir: d, name }).unwrap();
    }
    assert_eq!(w.attr(&v, d).nlink, 2);
    w.file(&v, d, "c");
    w.close_and_judge(v, "the last subdirectory has gone");
}

/// A name of an inode that is free: it cannot be looked up, and no second one is made beside it.
#[test]
fn a_name_of_a_free_inode_is_made_no_second_time() {
    let mut v = Victim::new();
    let at = v.inode_at(v.ino);
    v.poke(at, &[0; 256]);
    v.turns_read_only(Mode::Sync, |w, v, _| {
        w.make(v, ROOT, "f", vfs::MakeKind::File { exclusive: None }).map(drop)
    });
}

/// A file is cut from its end: what comes behind an indirect block that cannot be read has gone
/// from the map by then, and is free. What comes before it stays the file's.
#[test]
fn a_cut_that_meets_a_block_that_cannot_be_read_leaks_nothing() {
    for mode in [Mode::Sync, Mode::Async, Mode::SoftUpdates] {
        let mut v = Victim::new();
        let indirect = u64::from(v.pointer(12)) * 1024;
        let vol = v.w.open(mode);
        let free = v.w.free_blocks(&vol);
        v.w.sim.set_fault(Fault::Read(indirect));
        assert_eq!(v.w.resize(&vol, v.ino, 0), Err(FsError::Io), "{mode}");
        assert!(vol.ext.is_damaged());
        // 132 blocks, and the two that lead to them.
        assert_eq!(v.w.free_blocks(&vol), free + 134, "{mode}");
        assert!(v.w.blocks(&vol, v.ino, 12).iter().all(|b| *b != 0), "{mode}");
    }
}

/// The same where one of a double-indirect block's cannot be.
#[test]
fn a_cut_of_a_tree_that_cannot_be_read_leaks_nothing() {
    let mut w = World::mkfs(&options(40 << 20, 1024, 256, Profile::Ext2));
    let v = w.open(Mode::Sync);
    let ino = w.file(&v, ROOT, "f");
    for i in 0..9 {
        w.write(&v, ino, i * 102_400, &pattern(i, 102_400)).unwrap();
    }
    w.close(v);
    let geo = Geometry::of(&w.superblock());
    let mut v = Victim { w, geo, ino };
    let node = v.w.bytes(u64::from(v.pointer(13)) * 1024, 1024);
    let leaf = |i: usize| u64::from(format::bytes::le32(&node, 4 * i)) * 1024;
    assert!(leaf(2) != 0 && leaf(3) == 0);
    let vol = v.w.open(Mode::Async);
    let free = v.w.free_blocks(&vol);
    v.w.sim.set_fault(Fault::Read(leaf(1)));
    assert_eq!(v.w.resize(&vol, v.ino, 0), Err(FsError::Io));
    assert_eq!(v.w.free_blocks(&vol), free + 900 - 12 - 256 * 3 + 1);
    assert_eq!(v.w.blocks(&vol, v.ino, 1).len(), 1);
}

/// A directory's block that the bitmap calls free gets no other in its place: what is known of the
/// directory would be that of the old one.
#[test]
fn a_directorys_block_that_is_marked_as_free_stays() {
    let mut v = Victim::new();
    let inode = v.w.bytes(v.inode_at(ROOT), 256);
    let block = u64::from(InodeRef(&inode).pointer(0));
    let bit = block - 1;
    let at = v.desc(0).block_bitmap * 1024 + bit / 8;
    let byte = v.w.bytes(at, 1)[0] & !(1 << (bit % 8));
    v.poke(at, &[byte]);
    let vol = v.w.open(Mode::SoftUpdates);
    let ext = vol.ext.clone();
    let swapped = v.w.run(|_| async move {
        let h = ext.inode(Ino(ROOT)).await.unwrap();
        let mut txn = ext.begin(Credits::blocks(16)).await.unwrap();
        let swapped = ext.dir_swap(&mut txn, &h, FileBlock(0), &[0; 1024]).await;
        ext.end(txn).await.unwrap();
        swapped.map(drop)
    });
    assert_eq!(swapped, Err(FsError::Corrupt));
    assert_eq!(v.w.blocks(&vol, ROOT, 1), [block]);
    assert_ne!(v.w.lookup(&vol, ROOT, "f"), 0);
}

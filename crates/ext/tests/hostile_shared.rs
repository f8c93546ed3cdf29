//! Volumes that somebody has made who means harm, on which what one change relies on is not so: a
//! leaf without entries, a map that two files share, values that lie in one another, counts at
//! their end, an attribute whose value nobody has. Each is an error, and nothing panics.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Vol, World, pattern};
use env::Rope;
use format::Ino;
use format::bytes::{le32, set16, set32};
use format::ext::extents::{Head, child, head, set_head};
use format::ext::{Geometry, GroupDesc};
use format::ufs::inode::{BLOCK_AT, CLASSIC_BYTES, InodeRef};
use format::ufs::xattr::{self, Attribute, Elsewhere, INODE_HEAD};
use mechanisms::Mode;
use ufs::store::{Attributes, Inodes};
use vfs::{Call, FsError, RenameMode, Request, Stability, Volume, XattrMode};

const BLOCK: u64 = 1024;
const LINKS_AT: u64 = 0x1a;

/// Where an inode's slot lies.
fn slot(w: &World, ino: u32) -> u64 {
    let geo = Geometry::of(&w.superblock());
    let desc = w.bytes(geo.desc_at(geo.group_of_ino(Ino(ino))), geo.desc_bytes);
    let (block, byte) = geo.ino_place(Ino(ino));
    (GroupDesc::decode(&desc).inode_table + u64::from(block)) * BLOCK + byte as u64
}

fn plain(more: &str) -> World {
    let features = format!("^metadata_csum,^has_journal{more}");
    World::mke2fs(16 << 20, &["-t", "ext4", "-b", "1024", "-I", "256", "-O", &features])
}

fn set(w: &mut World, v: &Vol, ino: u32, name: &str, value: &[u8]) -> Result<(), FsError> {
    let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
    let mode = XattrMode::Either;
    w.call(v, Request::SetXattr { ino, name, value, mode, kill_sgid: false }).map(drop)
}

/// E2: the only leaf of a tree is empty, and what is left of its first entry is what comes.
#[test]
fn an_empty_leaf_begins_where_its_first_entry_comes() {
    let mut w = plain("");
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    for n in (0..20).step_by(2) {
        w.write(&v, f, n * BLOCK, &pattern(n, 1024)).unwrap();
    }
    w.close(v);
    let root = w.bytes(slot(&w, f) + BLOCK_AT as u64, 60);
    assert_eq!(head(&root, None).unwrap().depth, 1);
    let leaf = child(&root, 0).0 * BLOCK;
    let mut node = w.bytes(leaf, BLOCK as usize);
    let max = head(&node, Some(0)).unwrap().max;
    set_head(&mut node, Head { entries: 0, max, depth: 0 });
    set32(&mut node, 12, 7);
    w.sim.disk.write(leaf, &node);
    let v = w.open(Mode::Async);
    assert_eq!(w.write(&v, f, 7 * BLOCK, b"seven"), Ok(5));
    assert_eq!(w.read(&v, f, 7 * BLOCK, 5), Ok(b"seven".to_vec()));
}

/// M1: two files have one indirect block, and both fill the same hole at once.
#[test]
fn a_map_that_two_files_share_is_damage() {
    let mut w = World::mke2fs(64 << 20, &["-t", "ext2", "-b", "1024"]);
    let v = w.open(Mode::Async);
    let files = [w.file(&v, ROOT, "a"), w.file(&v, ROOT, "b")];
    for (f, n) in files.into_iter().zip([20, 21]) {
        w.write(&v, f, n * BLOCK, &pattern(n, 1024)).unwrap();
    }
    w.close(v);
    let at = |w: &World, f| slot(w, f) + BLOCK_AT as u64 + 48;
    let shared = w.bytes(at(&w, files[0]), 4);
    assert_ne!(le32(&shared, 0), 0);
    let to = at(&w, files[1]);
    w.sim.disk.write(to, &shared);
    let v = w.open(Mode::Async);
    let ufs = v.ufs.clone();
    let both = w.run(|env| async move {
        let mut waits = Vec::new();
        for ino in files {
            let data = Rope::cut(&[7; 1024], 0, BLOCK as usize);
            let (offset, stability) = (30 * BLOCK, Stability::Unstable);
            let r = Request::write(ino, offset, data, stability);
            let (ufs, done) = (ufs.clone(), std::rc::Rc::new(std::cell::RefCell::new(None)));
            waits.push(done.clone());
            env.spawn("write", async move {
                let result = ufs.call(Call::local(r)).await.result;
                *done.borrow_mut() = Some(result.map(drop));
            });
        }
        while waits.iter().any(|w| w.borrow().is_none()) {
            env.sleep(env::Nanos::from_millis(1)).await;
        }
        waits.iter().map(|w| w.borrow_mut().take().unwrap()).collect::<Vec<_>>()
    });
    assert!(both.contains(&Err(FsError::Corrupt)), "{both:?}");
}

/// Two attributes have the same bytes of the inode as their values: side by side there is no room
/// for them.
#[test]
fn values_that_lie_in_one_another_are_damage() {
    let mut w = plain(",inline_data");
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    w.write(&v, f, 0, &pattern(1, 50)).unwrap();
    set(&mut w, &v, f, "user.a", b"1").unwrap();
    w.close(v);
    let at = slot(&w, f);
    let raw = w.bytes(at, 256);
    let extra = InodeRef(&raw).extra_isize().unwrap();
    let mut raw = raw.clone();
    let space = &mut raw[CLASSIC_BYTES + extra..];
    let mut entry = INODE_HEAD;
    let mut count = 0;
    while le32(space, entry) != 0 {
        set16(space, entry + 2, 0); // from the first entry on
        set32(space, entry + 8, (space.len() - INODE_HEAD) as u32);
        entry += (16 + usize::from(space[entry])).next_multiple_of(4);
        count += 1;
    }
    assert_eq!(count, 2, "the contents', and the user's");
    w.sim.disk.write(at, &raw);
    let v = w.open(Mode::Async);
    assert_eq!(set(&mut w, &v, f, "user.b", b"2"), Err(FsError::Corrupt));
    assert!(w.write(&v, f, 0, &pattern(2, 1000)).is_err());
}

/// U10: contents are an attribute of the inode's, and here are in the block.
#[test]
fn contents_in_the_block_of_attributes_are_damage() {
    let mut w = plain(",inline_data");
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    w.write(&v, f, 0, &pattern(1, 50)).unwrap();
    set(&mut w, &v, f, "user.long", &pattern(2, 400)).unwrap();
    let ext = v.ext.clone();
    let block = w.run(|_| async move {
        let h = ext.inode(Ino(f)).await.unwrap();
        ext.xattr_block(&h).await.unwrap().unwrap().block()
    });
    w.close(v);
    let data = Attribute { index: 7, name: b"data".to_vec(), value: vec![9; 300], elsewhere: None };
    let bytes = xattr::encode_block(BLOCK as usize, &[data]).unwrap();
    w.sim.disk.write(block.0 * BLOCK, &bytes);
    let v = w.open(Mode::Async);
    assert_eq!(set(&mut w, &v, f, "user.b", b"2"), Err(FsError::Corrupt));
}

/// U5: a file counts as many names as can be counted, and for a moment has one more.
#[test]
fn a_file_with_too_many_names_is_not_renamed() {
    let mut w = plain("");
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    w.close(v);
    let at = slot(&w, f) + LINKS_AT;
    w.sim.disk.write(at, &[0xff; 2]);
    let v = w.open(Mode::Async);
    let (name, to_name, mode) = (b"f".to_vec(), b"g".to_vec(), RenameMode::Replace);
    let r = Request::Rename { dir: ROOT, name, to_dir: ROOT, to_name, mode };
    assert_eq!(w.call(&v, r).map(drop), Err(FsError::TooManyLinks));
    assert_eq!(w.attr(&v, f).nlink, 65_535);
}

/// U10: an attribute says that its value is an inode that nobody has; a value gets that inode.
#[test]
fn a_value_in_a_free_inode_is_damage() {
    let value = pattern(1, 3000);
    let make = || {
        let mut w = plain(",ea_inode");
        let v = w.open(Mode::Async);
        let f = w.file(&v, ROOT, "f");
        (w, v, f)
    };
    let (mut w, v, f) = make();
    set(&mut w, &v, f, "user.a", &value).unwrap();
    let ext = v.ext.clone();
    let named: Elsewhere = w.run(|_| async move {
        let h = ext.inode(Ino(f)).await.unwrap();
        let list = h.with(|raw| xattr::decode_inode(InodeRef(raw).xattr_space())).unwrap();
        list[0].elsewhere.unwrap()
    });
    let (mut w, v, f) = make();
    w.close(v);
    let at = slot(&w, f);
    let mut raw = w.bytes(at, 256);
    let extra = InodeRef(&raw).extra_isize().unwrap();
    let elsewhere = Some(named);
    let false_one = Attribute { index: 1, name: b"b".to_vec(), value: vec![], elsewhere };
    assert!(xattr::encode_inode(&mut raw[CLASSIC_BYTES + extra..], &[false_one]));
    w.sim.disk.write(at, &raw);
    let v = w.open(Mode::Async);
    assert_eq!(set(&mut w, &v, f, "user.a", &value), Err(FsError::Corrupt));
}

//! Features that a volume gets while it is open: it says so, durably, before anything is there that
//! needs it said.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Vol, World, pattern};
use env::{Nanos, Rope};
use format::GroupNo;
use format::ext::features::{compat, ro_compat};
use format::ext::geometry::INODE_UNINIT;
use format::ext::{Geometry, GroupDesc};
use mechanisms::Mode;
use std::cell::Cell;
use std::rc::Rc;
use ufs::store::{Attributes, Inodes};
use vfs::{Call, MakeKind, Request, Stability, Volume, XattrMode};

const MODES: [Mode; 3] = [Mode::Sync, Mode::Async, Mode::SoftUpdates];

fn set_attribute(w: &mut World, v: &Vol, ino: u32, bytes: usize) {
    let (name, mode) = (b"user.a".to_vec(), XattrMode::Either);
    let value = vec![7; bytes];
    w.call(v, Request::SetXattr { ino, name, value, mode, kill_sgid: false }).unwrap();
}

#[test]
fn the_first_attribute_is_announced() {
    for mode in MODES {
        for bytes in [10, 500] {
            let mut w = World::mke2fs(8 << 20, &["-t", "ext2", "-O", "^ext_attr"]);
            assert!(!w.superblock().has_compat(compat::EXT_ATTR));
            let v = w.open(mode);
            let f = w.file(&v, ROOT, "f");
            assert!(!w.superblock().has_compat(compat::EXT_ATTR), "{mode}: there is none yet");
            set_attribute(&mut w, &v, f, bytes);
            assert!(w.superblock().has_compat(compat::EXT_ATTR), "{mode}: {bytes} bytes");
            w.close_and_judge(v, &format!("mode {mode}, an attribute of {bytes} bytes"));
        }
    }
}

#[test]
fn a_volume_of_revision_0_gets_features_first() {
    let mut w = World::mke2fs(8 << 20, &["-t", "ext2", "-r", "0", "-O", "none"]);
    let v = w.open(Mode::Sync);
    let f = w.file(&v, ROOT, "f");
    set_attribute(&mut w, &v, f, 500);
    assert_eq!(w.superblock().revision(), 1);
    w.close_and_judge(v, "an attribute on a volume of revision 0");
}

/// Entries and values of a long inode's attributes lie in two sectors, and a write may be torn.
#[test]
fn attributes_of_long_inodes_lie_in_their_block() {
    for mode in [Mode::Sync, Mode::SoftUpdates] {
        let mut w = World::mke2fs(8 << 20, &["-t", "ext2", "-I", "1024", "-b", "4096"]);
        let v = w.open(mode);
        let f = w.file(&v, ROOT, "f");
        w.close(v);
        w.debugfs(&["ea_set /f user.b as-linux-puts-it"]);
        let v = w.open(mode);
        let pointer = |v: &Vol, w: &mut World| {
            let ext = v.ext.clone();
            w.run(|_| async move {
                let h = ext.inode(format::Ino(f)).await.unwrap();
                ext.xattr_pointer(&h).0
            })
        };
        assert_eq!(pointer(&v, &mut w), 0, "it lies in the inode");
        set_attribute(&mut w, &v, f, 40);
        assert_ne!(pointer(&v, &mut w), 0, "mode {mode}");
        for (name, value) in [("user.a", vec![7; 40]), ("user.b", b"as-linux-puts-it".to_vec())] {
            let got = w.call(&v, Request::GetXattr { ino: f, name: name.into() }).unwrap();
            assert!(matches!(got, vfs::Reply::Bytes(b) if b == value), "mode {mode}: {name}");
        }
        w.close_and_judge(v, &format!("mode {mode}, attributes of a long inode"));
    }
}

/// Linux follows the list of a long inode's attributes without a look at the mark before it: when
/// the last one has gone, there is no list to follow.
#[test]
fn what_was_removed_from_a_long_inode_does_not_come_back_in_linux() {
    for kind in ["ext2", "ext4"] {
        let mut w = World::mke2fs(16 << 20, &["-t", kind, "-I", "1024", "-b", "4096"]);
        let v = w.open(Mode::Async);
        let f = w.file(&v, ROOT, "f");
        set_attribute(&mut w, &v, f, 40);
        let remove = Request::RemoveXattr { ino: f, name: b"user.a".to_vec() };
        w.call(&v, remove).unwrap();
        let ext = v.ext.clone();
        let list = w.run(|_| async move {
            let h = ext.inode(format::Ino(f)).await.unwrap();
            h.with(|raw| {
                let at = 128 + usize::from(raw[128]) + 256 * usize::from(raw[129]);
                raw[at..at + 8].to_vec()
            })
        });
        assert_eq!(list, [0; 8], "{kind}: the mark, and the first entry's word");
        w.close_and_judge(v, &format!("{kind}, no attribute of a long inode is left"));
    }
}

/// Starts a write behind 2 GiB; counts it when it returns.
fn write_far(v: &Vol, ino: u32, done: &Rc<Cell<u32>>) -> impl Future<Output = ()> + 'static {
    let data = Rope::cut(&pattern(1, 1024), 0, v.block_bytes());
    let (offset, stability) = (2 << 30, Stability::Unstable);
    let r = Request::write(ino, offset, data, stability);
    let (ufs, done) = (v.ufs.clone(), done.clone());
    async move {
        ufs.call(Call::local(r)).await.result.unwrap();
        done.set(done.get() + 1);
    }
}

/// The second finds the first in the middle of announcing it.
#[test]
fn nobody_grows_beyond_2_gib_before_that_is_announced() {
    for mode in MODES {
        let mut w = World::mke2fs(8 << 20, &["-t", "ext2", "-O", "^large_file"]);
        let v = w.open(mode);
        let kind = || MakeKind::File { exclusive: None };
        let files = ["a", "b"].map(|n| w.make(&v, ROOT, n, kind()).unwrap());
        assert!(!w.superblock().has_ro_compat(ro_compat::LARGE_FILE));
        let done = Rc::new(Cell::new(0));
        let writes = files.map(|f| write_far(&v, f, &done));
        let flushes = |w: &World| {
            let ended = |e: &&sim::Event| matches!(e, sim::Event::FlushEnded(_));
            w.sim.trace.events.iter().filter(ended).count()
        };
        let (first, before) = (done.clone(), flushes(&w));
        w.run(|env| async move {
            writes.into_iter().for_each(|w| env.spawn("write", w));
            while first.get() == 0 {
                env.sleep(Nanos(1)).await;
            }
        });
        assert!(w.superblock().has_ro_compat(ro_compat::LARGE_FILE), "mode {mode}");
        assert!(flushes(&w) > before, "mode {mode}: it is said, and not durable");
        w.run(|env| async move {
            while done.get() < 2 {
                env.sleep(Nanos::from_micros(10)).await;
            }
        });
        w.close_and_judge(v, &format!("mode {mode}, two files beyond 2 GiB"));
    }
}

/// A volume that does not say whether hashes take bytes as signed says so before it has a name by
/// them: Linux, which opens it next, would take them as unsigned.
#[test]
fn the_sign_of_hashes_is_settled_at_opening() {
    for (flags, after) in [(0, 2), (1, 1), (2, 2)] {
        let mut w = World::mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"]);
        w.debugfs(&[&format!("set_super_value flags {flags}")]);
        let v = w.open(Mode::Async);
        assert_eq!(w.superblock().flags(), after, "while it is open");
        w.close_and_judge(v, "with a sign");
        assert_eq!(w.superblock().flags(), after);
    }
}

/// Of a group without a bitmap of inodes no part of the table is valid, whatever its descriptor
/// says of that.
#[test]
fn a_table_of_a_group_without_a_bitmap_is_zeroed() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"];
    let mut w = World::mke2fs(64 << 20, &args);
    let geo = Geometry::of(&w.superblock());
    let mut commands = Vec::new();
    for g in (0..geo.groups).map(GroupNo) {
        let desc = GroupDesc::decode(&w.bytes(geo.desc_at(g), geo.desc_bytes));
        if desc.has(INODE_UNINIT) {
            let garbage = vec![0xa5; 1024 * geo.inode_table_blocks() as usize];
            w.sim.disk.write(desc.inode_table * 1024, &garbage);
            commands.push(format!("set_bg {g} itable_unused 0"));
            commands.push(format!("set_bg {g} checksum calc"));
        }
    }
    assert!(!commands.is_empty());
    w.debugfs(&commands.iter().map(String::as_str).collect::<Vec<_>>());
    let v = w.open(Mode::Async);
    for n in 0..30 {
        let d = w.dir(&v, ROOT, &format!("d{n}"));
        w.file(&v, d, "f");
    }
    w.close_and_judge(v, "groups with their first inodes");
}

/// Also where no transaction begins for it, because operations are not atomic: who copies the
/// volume has been told that nothing is written any more.
#[test]
fn a_label_waits_while_the_volume_stands_still() {
    let mut w = World::small();
    let v = w.open(Mode::Async);
    w.sync(&v).unwrap();
    let (ufs, ext) = (v.ufs.clone(), v.ext.clone());
    let (held, after) = w.run(move |env| async move {
        let number = ext.standstill().hold().unwrap();
        let done = Rc::new(Cell::new(false));
        let told = done.clone();
        env.spawn("label", async move {
            let call = Call::local(Request::SetLabel { label: "new".into() });
            ufs.call(call).await.result.unwrap();
            told.set(true);
        });
        env.sleep(Nanos::from_secs(1)).await;
        let held = (done.get(), ext.superblock().label());
        assert!(ext.standstill().release(number));
        env.sleep(Nanos::from_secs(1)).await;
        (held, (done.get(), ext.superblock().label()))
    });
    assert_eq!((held.0, after.0), (false, true));
    assert_ne!(held.1, after.1);
    w.close_and_judge(v, "with another label");
}

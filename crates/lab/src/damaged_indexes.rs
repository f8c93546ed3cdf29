//! Directories whose index by hash is damaged, as only a hostile or an ailing disk has them: every
//! name is found and listed once, names go and come, and afterwards e2fsck finds nothing.

use crate::acts::Act;
use crate::judge::e2fsck;
use crate::model::Model;
use crate::random::compare;
use crate::setting::new_disks;
use crate::subject::{Setting, Subject, VolumeKind};
use format::bytes::{le16, le32, set16, set32};
use format::ext::csum::InodeSeed;
use format::ext::extents;
use format::ext::geometry::{Geometry, GroupDesc};
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES, Superblock};
use format::ufs::inode::{BLOCK_AT, FLAG_INDEX, InodeRef};
use format::{BlockNo, Ino};
use integrity::Plant;
use sim::Image;
use std::collections::BTreeMap;
use vfs::{Reply, Request};
use volume::Mode;

const BS: usize = 1024;
const NAMES: u32 = 500;

/// A volume with an indexed directory `/d` of two levels, closed, and what is in it.
struct Victim {
    setting: Setting,
    disk: Image,
    model: Model,
    dir: u32,
}

fn name(n: u32) -> String {
    format!("/d/{n:05}{}", "n".repeat(200))
}

fn victim(mode: Mode, checksums: bool) -> Victim {
    let setting = Setting { kind: VolumeKind::Ext4 { checksums }, ..Setting::plain(mode) };
    let mut v =
        Subject::open(new_disks(4 << 20, setting), setting, false, (Plant::NONE, 3)).unwrap();
    let mut model = Model::default();
    let first = ["/d", "/e"].map(|d| Act::Mkdir(d.into())).into_iter();
    let links = (0..NAMES).map(|n| Act::Link("/f".into(), name(n)));
    for act in first.chain([Act::Create("/f".into())]).chain(links) {
        v.act(1, &act).unwrap();
        model.apply(&act).unwrap();
    }
    let dir = v.walk("/d").unwrap();
    let disk = v.close().unwrap().remove(0);
    Victim { setting, disk, model, dir }
}

impl Victim {
    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.disk.read(at, &mut bytes);
        bytes
    }
    fn superblock(&self) -> Superblock {
        Superblock::decode(&self.read(SUPERBLOCK_AT, SUPERBLOCK_BYTES)).unwrap()
    }
    fn inode(&self) -> Vec<u8> {
        let geo = Geometry::of(&self.superblock());
        let desc = self.read(geo.desc_at(geo.group_of_ino(Ino(self.dir))), geo.desc_bytes);
        let (block, offset) = geo.ino_place(Ino(self.dir));
        let table = GroupDesc::decode(&desc).inode_table + u64::from(block);
        self.read(table * BS as u64 + offset as u64, geo.inode_bytes)
    }
    /// Where the directory's blocks lie.
    fn blocks(&self) -> Vec<BlockNo> {
        let root = self.inode()[BLOCK_AT..BLOCK_AT + 60].to_vec();
        let (mut all, mut nodes) = (BTreeMap::new(), vec![root]);
        while let Some(node) = nodes.pop() {
            let h = extents::head(&node, None).unwrap();
            for i in 0..h.entries {
                if h.depth > 0 {
                    nodes.push(self.read(extents::child(&node, i).0 * BS as u64, BS));
                    continue;
                }
                let m = extents::mapped(&node, i);
                all.extend((0..m.len).map(|n| (m.first + n, m.start.plus(u64::from(n)))));
            }
        }
        all.into_values().collect()
    }
    fn seed(&self) -> Option<InodeSeed> {
        let generation = InodeRef(&self.inode()).generation();
        self.superblock().sums().of_inode(Ino(self.dir), generation)
    }
    /// The disk with a block of the directory changed; with `sealed` its checksum is right.
    fn with(&self, n: usize, sealed: bool, change: fn(&mut [u8])) -> Image {
        let at = self.blocks()[n].0 * BS as u64;
        let mut block = self.read(at, BS);
        change(&mut block);
        if let Some(seed) = self.seed().filter(|_| sealed) {
            seed.seal_dir(&mut block);
        }
        let mut disk = self.disk.clone();
        disk.write(at, &block);
        disk
    }
    /// The first block of the directory that is a node below the root.
    fn node(&self) -> usize {
        let is_node = |b: &BlockNo| {
            let block = self.read(b.0 * BS as u64, 8);
            le32(&block, 0) == 0 && usize::from(le16(&block, 4)) == BS
        };
        self.blocks().iter().position(is_node).unwrap()
    }
    fn open(&self, disk: Image) -> Subject {
        Subject::open(vec![disk], self.setting, false, (Plant::NONE, 5)).unwrap()
    }
}

/// All names of `/d`, from a cookie on.
fn list(v: &mut Subject, dir: u32, from: u64) -> (Vec<String>, Vec<u64>) {
    let (mut names, mut cookies, mut cookie) = (Vec::new(), Vec::new(), from);
    loop {
        let ask = Request::ReadDir { dir, cookie, max_bytes: 6000, entry_bytes: 24, attrs: false };
        let Ok(Reply::Dir { entries, eof, .. }) = v.ask(6, ask) else { panic!("not listed") };
        for e in entries {
            names.push(format!("/d/{}", String::from_utf8(e.name).unwrap()));
            cookies.push(e.cookie);
            cookie = e.cookie;
        }
        if eof {
            return (names, cookies);
        }
    }
}

fn metric(v: &mut Subject) -> u64 {
    let Ok(Reply::Info(info)) = v.ask(1, Request::Info) else { panic!("no information") };
    let found = info.counters.iter().find(|c| c.0 == "cairn_damaged_indexes_total");
    found.unwrap().1
}

/// Names are found, listed, taken away, moved and added; then e2fsck judges.
fn serves(it: &Victim, disk: Image, what: &str) {
    let mut v = it.open(disk);
    let mut model = it.model.clone();
    for n in (0..NAMES).step_by(17) {
        assert!(v.walk(&name(n)).is_ok(), "{what}: name {n} is not found");
    }
    assert!(v.walk("/d/nobody").is_err(), "{what}");
    compare(&mut v, &model).unwrap_or_else(|e| panic!("{what}: {e}"));
    let (mut names, cookies) = list(&mut v, it.dir, 0);
    let rest = list(&mut v, it.dir, cookies[names.len() / 2]).0;
    assert_eq!(names[names.len() / 2 + 1..], rest, "{what}: a listing goes on");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len() as u32, NAMES + 2, "{what}");
    assert_eq!(metric(&mut v), 1, "{what}: nobody has noticed");
    let mut act = |v: &mut Subject, act: Act| {
        assert_eq!(v.act(7, &act), Ok(()), "{what}: {act:?}");
        model.apply(&act).unwrap();
    };
    act(&mut v, Act::Unlink(name(3)));
    act(&mut v, Act::Rename("/d".into(), "/e/d".into()));
    act(&mut v, Act::Rename("/e/d".into(), "/d".into()));
    act(&mut v, Act::Rename(name(4), name(9_000)));
    // A listing that has begun by hashes goes on without the index.
    let now = list(&mut v, it.dir, cookies[cookies.len() / 2]).0;
    assert!(now.iter().filter(|n| rest.contains(*n)).count() + 2 >= rest.len(), "{what}");
    for n in 0..40 {
        act(&mut v, Act::Link("/f".into(), name(10_000 + n)));
    }
    act(&mut v, Act::Unlink(name(10_005)));
    compare(&mut v, &model).unwrap_or_else(|e| panic!("{what}: {e}"));
    let disks = v.close().unwrap();
    e2fsck(&disks).unwrap_or_else(|e| panic!("{what}: {e}"));
    let now = Victim { disk: disks[0].clone(), model: model.clone(), ..*it };
    assert_eq!(InodeRef(&now.inode()).flags() & FLAG_INDEX, 0, "{what}: the flag stays");
    compare(&mut it.open(disks[0].clone()), &model).unwrap_or_else(|e| panic!("{what}: {e}"));
}

/// Whether it is the root that is damaged, how, and what is done to it.
type Damage = (bool, &'static str, fn(&mut [u8]));

const DAMAGES: &[Damage] = &[
    (true, "an unknown hash", |b| b[28] = 99),
    (true, "seven levels", |b| b[30] = 7),
    (true, "no level, though there is one", |b| b[30] = 0),
    (true, "a level more", |b| b[30] += 1),
    (true, "an unknown length of its own words", |b| b[29] = 20),
    (true, "a reserved word that is not 0", |b| set32(b, 24, 77)),
    (true, "more pointers than fit", |b| set16(b, 34, 500)),
    (true, "none of the pointers", |b| set16(b, 34, 0)),
    (true, "another limit", |b| set16(b, 32, 40)),
    (true, "a way back to the root", |b| set32(b, 36, 0)),
    (true, "a way out of the directory", |b| set32(b, 36, 0x00ff_ffff)),
    (true, "a leaf in place of a node", |b| set32(b, 36, 1)),
    (false, "more pointers than fit", |b| set16(b, 10, 900)),
    (false, "none of the pointers", |b| set16(b, 10, 0)),
    (false, "another limit", |b| set16(b, 8, 3)),
    (false, "hashes out of order", |b| {
        let (a, c) = (le32(b, 24), le32(b, 56));
        set32(b, 24, c);
        set32(b, 56, a);
    }),
    (false, "a way back to the root", |b| {
        (0..usize::from(le16(b, 10))).for_each(|n| set32(b, 12 + 8 * n, 0));
    }),
    (false, "ways out of the directory", |b| {
        (0..usize::from(le16(b, 10))).for_each(|n| set32(b, 12 + 8 * n, 1 << 20));
    }),
];

#[test]
fn a_directory_with_a_damaged_index_is_served_by_its_leaves() {
    for (mode, checksums) in [(Mode::Unified, true), (Mode::Ordered, false)] {
        let it = victim(mode, checksums);
        let node = it.node();
        for (of_root, what, change) in DAMAGES {
            let block = if *of_root { 0 } else { node };
            let disk = it.with(block, true, *change);
            serves(&it, disk, &format!("{mode}: block {block}: {what}"));
        }
    }
}

#[test]
fn a_wrong_checksum_in_an_index_is_damage_of_the_index_alone() {
    let it = victim(Mode::Redo, true);
    for block in [0, it.node()] {
        let disk = it.with(block, false, |b| b[1020] ^= 1);
        serves(&it, disk, &format!("the checksum of block {block}"));
    }
}

/// What is a list and only says that it has an index is one afterwards.
#[test]
fn a_flag_that_came_from_nowhere_goes() {
    let it = victim(Mode::Ordered, true);
    let disk = it.with(0, true, |b| {
        set16(b, 16, 12);
        b[24..].fill(0);
        set16(b, 28, (BS - 36) as u16);
        set16(b, BS - 12 + 4, 12);
        b[BS - 12 + 7] = 0xde;
    });
    serves(&it, disk, "a block of entries in place of the root");
}

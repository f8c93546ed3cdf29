//! Directories whose names lie by their hashes, in every mode that keeps such an index, by every
//! hash: names are found and listed once, also while leaves are split, the index stays, and e2fsck
//! finds nothing.

use crate::acts::Act;
use crate::judge::e2fsck;
use crate::model::Model;
use crate::random::compare;
use crate::setting::new_disks;
use crate::subject::{Setting, Subject, VolumeKind};
use env::Rng;
use format::ext::geometry::{Geometry, GroupDesc};
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES, Superblock};
use format::ufs::inode::{CLASSIC_BYTES, FLAG_INDEX, InodeRef};
use format::{FormatError, Ino};
use integrity::Plant;
use sim::Image;
use std::collections::BTreeMap;
use vfs::{FsError, Reply, Request};
use volume::Mode;

fn modes() -> impl Iterator<Item = Mode> {
    volume::MODES.iter().map(|m| m.mode).filter(|m| m.is_atomic())
}

fn superblock(disk: &Image) -> Result<Superblock, FormatError> {
    let mut raw = [0; SUPERBLOCK_BYTES];
    disk.read(SUPERBLOCK_AT, &mut raw);
    Superblock::decode(&raw)
}

/// A new volume of ext4 whose directories are indexed by this version of the hash, of bytes as
/// unsigned or signed.
fn fresh(setting: Setting, (version, unsigned): (u8, bool)) -> Vec<Image> {
    const FLAGS_AT: usize = 0x160;
    let mut disks = new_disks(3 << 20, setting);
    let mut sb = superblock(&disks[0]).unwrap();
    sb.set_hash([0; 16], version);
    let mut raw = *sb.bytes();
    raw[FLAGS_AT] = 1 + u8::from(unsigned);
    if setting.kind == (VolumeKind::Ext4 { checksums: true }) {
        Superblock::seal_bytes(&mut raw);
    }
    disks[0].write(SUPERBLOCK_AT, &raw);
    disks
}

fn setting(mode: Mode, checksums: bool) -> Setting {
    Setting { kind: VolumeKind::Ext4 { checksums }, ..Setting::plain(mode) }
}

fn open(disks: Vec<Image>, setting: Setting) -> Subject {
    Subject::open(disks, setting, false, (Plant::NONE, 3)).unwrap()
}

fn has_index(disk: &Image, ino: u32) -> bool {
    let geo = Geometry::of(&superblock(disk).unwrap());
    let mut desc = vec![0; geo.desc_bytes];
    disk.read(geo.desc_at(geo.group_of_ino(Ino(ino))), &mut desc);
    let (block, offset) = geo.ino_place(Ino(ino));
    let table = GroupDesc::decode(&desc).inode_table + u64::from(block);
    let mut raw = vec![0; CLASSIC_BYTES];
    disk.read(table * geo.block_bytes as u64 + offset as u64, &mut raw);
    InodeRef(&raw).flags() & FLAG_INDEX != 0
}

/// Some of a directory's names behind a cookie, and the next cookie; None: that was the end.
fn some(v: &mut Subject, dir: u32, cookie: u64) -> (Vec<String>, Option<u64>) {
    let (max_bytes, entry_bytes) = (700, 24);
    let list = Request::ReadDir { dir, cookie, max_bytes, entry_bytes, attrs: false };
    let Ok(Reply::Dir { entries, eof, .. }) = v.ask(6, list) else { panic!() };
    let next = entries.last().map(|e| e.cookie).filter(|_| !eof);
    let text = |n: Vec<u8>| String::from_utf8(n).unwrap();
    (entries.into_iter().map(|e| text(e.name)).collect(), next)
}

/// Names come and go at random, by the model; the directory is listed meanwhile, and what stays is
/// seen once.
fn churn(v: &mut Subject, model: &mut Model, rng: &mut Rng, rounds: u64) {
    let dir = v.walk("/d").unwrap();
    let mut act = |v: &mut Subject, act: Act| {
        assert_eq!(v.act(7, &act), Ok(()), "{act:?}");
        model.apply(&act).unwrap();
    };
    let (mut old, mut new): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        old.append(&mut new);
        let mut stay = old.clone();
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let mut at = Some(0);
        while let Some(cookie) = at {
            let (names, next) = some(v, dir, cookie);
            names.into_iter().for_each(|n| *seen.entry(format!("/d/{n}")).or_default() += 1);
            at = next;
            for _ in 0..if seen.len() < 200 { 8 } else { 1 } {
                let most = [9, 90, 230][rng.below(3) as usize];
                let fill = "x".repeat(rng.below(most) as usize);
                let path = format!("/d/{:08x}ß{fill}", rng.next_u64() as u32);
                act(v, Act::Link("/f".into(), path.clone()));
                new.push(path);
            }
            let gone = rng.below(old.len().max(1) as u64) as usize;
            if gone < old.len() {
                let name = old.swap_remove(gone);
                stay.retain(|n| *n != name);
                if rng.one_in(2) {
                    act(v, Act::Unlink(name));
                } else {
                    let to = format!("/d/moved{}{round}", rng.next_u64());
                    act(v, Act::Rename(name, to.clone()));
                    new.push(to);
                }
            }
        }
        let wrong: Vec<_> = stay.iter().filter(|p| seen.get(*p) != Some(&1)).collect();
        assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), stay.len(), wrong[0]);
        assert!(seen.values().all(|n| *n == 1), "a name is listed twice");
    }
}

#[test]
fn an_index_is_kept_while_names_come_and_go() {
    for (n, mode) in (0u8..).zip(modes()) {
        for checksums in [true, false] {
            let setting = setting(mode, checksums);
            let what = format!("{mode}, checksums: {checksums}");
            let mut v = open(fresh(setting, (n % 3, checksums != (n % 2 == 0))), setting);
            let (mut model, mut rng) = (Model::default(), Rng::new(u64::from(n)));
            for act in [Act::Mkdir("/d".into()), Act::Create("/f".into())] {
                v.act(1, &act).unwrap();
                model.apply(&act).unwrap();
            }
            for _ in 0..2 {
                churn(&mut v, &mut model, &mut rng, 3);
                compare(&mut v, &model).unwrap_or_else(|e| panic!("{what}: {e}"));
                let dir = v.walk("/d").unwrap();
                let disks = v.close().unwrap();
                e2fsck(&disks).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(has_index(&disks[0], dir), "{what}");
                v = open(disks, setting);
                compare(&mut v, &model).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            for name in model.tree().into_keys().filter(|p| p.starts_with("/d/")) {
                assert_eq!(v.act(8, &Act::Rmdir("/d".into())), Err(FsError::NotEmpty));
                v.act(8, &Act::Unlink(name)).unwrap();
            }
            v.act(9, &Act::Rmdir("/d".into())).unwrap();
            e2fsck(&v.close().unwrap()).unwrap_or_else(|e| panic!("{what}: all gone: {e}"));
        }
    }
}

/// Ends of names that have one hash in version 0 behind 240 times `c`: more than a leaf holds.
const ALIKE: [&str; 14] = [
    "aEXgK-", "fakVeM", "fSCPNR", "fUmI-e", "h6NHAj", "ksqc-Z", "k-8laa", "maoTDR", "ml_afU",
    "oHPZIt", "qTNPqB", "uXJBCI", "xv8yKw", "01wcjj",
];

#[test]
fn names_with_one_hash_fill_several_leaves() {
    for checksums in [true, false] {
        let setting = setting(Mode::Ordered, checksums);
        let mut v = open(fresh(setting, (0, checksums)), setting);
        let name = |end: &str| format!("/d/{}{end}", "c".repeat(240));
        let (mut model, mut rng) = (Model::default(), Rng::new(1));
        let mut act = |v: &mut Subject, act: Act| {
            assert_eq!(v.act(7, &act), Ok(()), "{act:?}");
            model.apply(&act).unwrap();
        };
        act(&mut v, Act::Mkdir("/d".into()));
        act(&mut v, Act::Create("/f".into()));
        for end in ALIKE {
            act(&mut v, Act::Link("/f".into(), name(end)));
            let other = format!("/d/{}", "o".repeat(1 + rng.below(200) as usize));
            let _ = v.act(7, &Act::Create(other.clone())).map(|()| {
                v.act(7, &Act::Unlink(other)).unwrap();
            });
        }
        act(&mut v, Act::Unlink(name(ALIKE[3])));
        act(&mut v, Act::Unlink(name(ALIKE[8])));
        act(&mut v, Act::Link("/f".into(), name(ALIKE[8])));
        let dir = v.walk("/d").unwrap();
        let (mut names, mut at) = (Vec::new(), Some(0));
        while let Some(cookie) = at {
            let (some, next) = some(&mut v, dir, cookie);
            names.extend(some);
            at = next;
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 2 + ALIKE.len() - 1);
        for (n, end) in ALIKE.iter().enumerate() {
            assert_eq!(v.walk(&name(end)).is_ok(), n != 3, "{end}");
        }
        compare(&mut v, &model).unwrap();
        let disks = v.close().unwrap();
        assert!(has_index(&disks[0], dir));
        e2fsck(&disks).unwrap();
    }
}

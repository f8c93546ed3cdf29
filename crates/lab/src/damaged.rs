//! What bytes chosen by a fuzzer do to a volume: they pick a kind of volume, closed or left with a
//! full journal or log of any mode, or with directories as Linux makes them, damage its image, and
//! the image is opened, walked, changed, closed and repaired. Nothing may panic. It does not know
//! what the right answers would be: of a damaged volume any error is one.

use crate::acts::Act;
use crate::kernel::{make_kernel_like, share_block};
use crate::model::Model;
use crate::random::random_act;
use crate::subject::{Setting, SimDevice, Subject, recover};
use env::Rng;
use format::mkfs::{MkfsOptions, Profile};
use integrity::Plant;
use sim::Image;
use std::cell::RefCell;
use std::collections::BTreeMap;
use vfs::{Kind, Reply, Request, SeekKind, SpaceOp, XattrMode};
use volume::Mode;

/// Bytes of a volume to be damaged.
const VOLUME_BYTES: u64 = 4 << 20;
/// Where nearly all metadata of such a volume are.
const METADATA_BYTES: u64 = 400 << 10;
/// A walk ends after so many names: a damaged tree may go round in circles.
const NAMES_MAX: usize = 200;
/// One damage: where (4 bytes), how (1), with what (3).
const DAMAGE_BYTES: usize = 8;
/// Where the superblock says whether the volume was closed.
const STATE_AT: u64 = 1024 + 0x3a;

thread_local! {
    static WHOLE: RefCell<BTreeMap<u8, (Image, Model)>> = const { RefCell::new(BTreeMap::new()) };
}

/// The kinds of volumes: block size, inode size, journal.
fn made(kind: u8) -> Image {
    let (journal, block_bytes) = (kind & 8 != 0, 1024 << (kind % 4 % 3));
    // The smallest journal has 1024 blocks, which is all of the volume in larger ones.
    let profile = if journal && block_bytes == 1024 { Profile::Ext3 } else { Profile::Ext2 };
    let options = MkfsOptions {
        block_bytes,
        inode_bytes: if kind & 4 != 0 { 128 } else { 256 },
        inodes: Some(256),
        journal_bytes: (profile == Profile::Ext3).then_some(1100 << 10),
        label: "damaged".into(),
        uuid: *b"cairn-lab-volume",
        ..MkfsOptions::plain(VOLUME_BYTES, profile)
    };
    let mut device = SimDevice(Image::new(VOLUME_BYTES));
    volume::make(&mut device, &options, true).expect("a small volume can be made");
    device.0
}

/// The mode whose journal or log still holds something: it was left without being closed. None: the
/// volume was closed, or has no room for a journal.
fn left_by(kind: u8) -> Option<Mode> {
    let with_journal = kind & 8 != 0 && 1024 << (kind % 4 % 3) == 1024;
    let modes = volume::MODES;
    let nth = usize::from(kind >> 4).checked_sub(1).filter(|_| !is_kernel_made(kind))?;
    with_journal.then(|| modes[nth % modes.len()].mode)
}

/// Are its directories rewritten as Linux makes them?
fn is_kernel_made(kind: u8) -> bool {
    kind >> 4 == 15
}

/// A volume of this kind with something in it, and what that is.
fn populated(kind: u8) -> (Image, Model) {
    let found = WHOLE.with_borrow(|all| all.get(&kind).cloned());
    found.unwrap_or_else(|| {
        let fresh = populate(kind);
        WHOLE.with_borrow_mut(|all| all.insert(kind, fresh.clone()));
        fresh
    })
}

fn populate(kind: u8) -> (Image, Model) {
    let mut rng = Rng::new(u64::from(kind));
    let mut model = Model::default();
    let left_by = left_by(kind);
    let setting = Setting::plain(left_by.unwrap_or(Mode::Async));
    let mut v = Subject::open(vec![made(kind)], setting, false, (Plant::NONE, 3))
        .expect("a fresh volume opens");
    let far = [Act::Create("/far".into()), Act::Write("/far".into(), 900_000, 5000, 7)];
    let random = (0..80).map(|_| None);
    for (n, act) in far.into_iter().map(Some).chain(random).enumerate() {
        let act = act.unwrap_or_else(|| random_act(&mut rng, &model));
        if let Ok(done) = v.act_as_done(n as u64, &act) {
            let _ = model.apply(&done); // what the volume takes, the model takes
        }
    }
    if let Ok(ino) = v.walk("/far") {
        let name = b"user.a".to_vec();
        let (value, mode) = (vec![1; 50], XattrMode::Either);
        let set = Request::SetXattr { ino, name, value, mode, kill_sgid: false };
        let _ = v.ask(200, set); // by now it may be something that takes none
    }
    let dirs = if is_kernel_made(kind) { fill_directory(&mut v, &mut model) } else { Vec::new() };
    let mut disks = match left_by {
        None => v.close().expect("a whole disk"),
        Some(_) => {
            v.ask(201, Request::SyncAll).expect("a whole disk");
            let more = random_act(&mut rng, &model);
            let _ = v.act_as_done(202, &more).and_then(|done| model.apply(&done));
            v.disks()
        }
    };
    for (n, ino) in dirs.into_iter().enumerate() {
        // With an index where there are blocks enough for one.
        let indexed = n % 2 == 0 && make_kernel_like(&mut disks[0], ino, true).is_ok();
        let _ = indexed || make_kernel_like(&mut disks[0], ino, false).is_ok();
    }
    (disks.remove(0), model)
}

/// Makes a directory of several blocks; all directories there are then.
fn fill_directory(v: &mut Subject, model: &mut Model) -> Vec<u32> {
    let name = |i: usize| format!("/k/{i:02}{}", "k".repeat([40, 120, 200][i % 3]));
    let links = (0..90).map(|i| Act::Link("/far".into(), name(i)));
    // What is gone again leaves room for an index.
    let unlinks = (60..90).map(|i| Act::Unlink(name(i)));
    for act in [Act::Mkdir("/k".into())].into_iter().chain(links).chain(unlinks) {
        if v.act(203, &act).is_ok() {
            let _ = model.apply(&act);
        }
    }
    let tree = v.tree(false).expect("a whole disk");
    tree.values().filter(|s| s.kind == Kind::Dir).map(|s| s.ino).chain([2]).collect()
}

/// One damage after the other.
fn damage(image: &mut Image, damages: &[u8]) {
    for d in damages.chunks_exact(DAMAGE_BYTES) {
        if d[4] >> 5 == 7 {
            // Most inodes in use have low numbers.
            let (a, b) = (u32::from(d[0]) % 64, u32::from(d[2]) % 64);
            share_block(image, (a, d[1] % 16), (b, d[3] % 16));
            continue;
        }
        let place = u64::from(u32::from_le_bytes([d[0], d[1], d[2], d[3]]));
        let at = match d[4] & 3 {
            0 => 1024 + place % 1024,
            1 => place % VOLUME_BYTES,
            _ => place % METADATA_BYTES,
        };
        let mut old = [0; 4];
        image.read(at.min(VOLUME_BYTES - 4), &mut old);
        let new = match d[4] >> 2 & 7 {
            0 => vec![d[5]],
            1 => vec![old[0] ^ 1 << (d[5] & 7)],
            2 => vec![d[5], d[6]],
            3 => vec![d[5], d[6], d[7], 0],
            4 => vec![0xff; 4],
            5 => vec![0; 1 + usize::from(d[5]) * 4],
            6 => old.iter().rev().copied().collect(),
            _ => vec![old[0].wrapping_add(1)],
        };
        if at + new.len() as u64 <= VOLUME_BYTES {
            image.write(at, &new);
        }
    }
}

/// Does to a volume what these bytes say. Panics are bugs.
pub fn use_damaged(input: &[u8]) {
    let [kind, how, damages @ ..] = input else { return };
    let (mut image, model) = populated(*kind);
    damage(&mut image, damages);
    if how & 1 != 0 {
        // Not closed: opening it for writing would repair it first.
        image.write(STATE_AT, &[0, 0]);
    }
    let modes = volume::MODES;
    let mode = match how & 2 {
        0 => Mode::Async,
        // On a volume without a journal most are refused.
        _ => modes[usize::from(how >> 3) % modes.len()].mode,
    };
    use_anyhow(image.clone(), mode, how & 4 != 0, u64::from(*how), &model);
    let mut disks = [image];
    if recover(&mut disks, 1_700_000_000).is_ok() {
        let [image] = disks;
        use_anyhow(image, mode, false, u64::from(*how), &model);
    }
}

/// Opens it if it opens, reads everything, tries to change it, and closes it.
fn use_anyhow(image: Image, mode: Mode, read_only: bool, seed: u64, model: &Model) {
    let setting = Setting::plain(mode);
    let opened = Subject::open(vec![image], setting, read_only, (Plant::NONE, seed));
    let Ok(mut v) = opened else { return };
    let inodes = walk_all(&mut v);
    let mut rng = Rng::new(seed);
    for n in 0..24 {
        let _ = v.act(n, &random_act(&mut rng, model));
    }
    for ino in inodes {
        change(&mut v, ino);
    }
    let _ = v.ask(100, Request::SyncAll);
    let _ = walk_all(&mut v);
    let _ = v.close();
}

/// Looks at every name, up to `NAMES_MAX` of them, and reads what is there; the inodes seen.
fn walk_all(v: &mut Subject) -> Vec<u32> {
    let mut inodes = vec![2];
    let mut next = 0;
    while next < inodes.len() && inodes.len() < NAMES_MAX {
        let ino = inodes[next];
        next += 1;
        look(v, ino);
        let mut cookie = 0;
        // A directory of a damaged length must not keep us here for ever either.
        for _ in 0..20 {
            let list = Request::ReadDir {
                dir: ino,
                cookie,
                max_bytes: 4096,
                entry_bytes: 24,
                attrs: true,
            };
            let Ok(Reply::Dir { entries, eof, .. }) = v.ask(101, list) else { break };
            for e in &entries {
                let _ = v.ask(102, Request::Lookup { dir: ino, name: e.name.clone() });
                if !inodes.contains(&e.ino) {
                    inodes.push(e.ino);
                }
            }
            cookie = entries.last().map_or(cookie, |e| e.cookie);
            if eof || entries.is_empty() {
                break;
            }
        }
    }
    inodes
}

fn look(v: &mut Subject, ino: u32) {
    let size = match v.ask(103, Request::GetAttr { ino }) {
        Ok(Reply::Attr(a)) => a.size,
        _ => 0,
    };
    let _ = v.ask(104, Request::ReadLink { ino });
    for offset in [0, size / 2, size.saturating_sub(5000)] {
        let _ = v.ask(105, Request::Read { ino, offset, len: 20_000 });
    }
    let _ = v.ask(106, Request::ListXattr { ino });
    let _ = v.ask(107, Request::GetXattr { ino, name: b"user.a".to_vec() });
    for kind in [SeekKind::Data, SeekKind::Hole] {
        let _ = v.ask(108, Request::Seek { ino, kind, offset: 3000 });
    }
}

fn change(v: &mut Subject, ino: u32) {
    let ops = [SpaceOp::Allocate { keep_size: false }, SpaceOp::PunchHole];
    for (op, offset) in ops.into_iter().zip([300_000, 2000]) {
        let _ = v.ask(109, Request::Space { ino, op, offset, len: 30_000 });
    }
    let name = b"user.b".to_vec();
    let (value, mode) = (vec![2; 300], XattrMode::Either);
    let _ = v.ask(110, Request::SetXattr { ino, name, value, mode, kill_sgid: false });
    let _ = v.ask(111, Request::RemoveXattr { ino, name: b"user.a".to_vec() });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_left_by_a_journal_need_recovery() {
        for (n, info) in (1..).zip(volume::MODES) {
            let kind = n << 4 | 8;
            let mut feature = [0];
            populated(kind).0.read(1024 + 0x60, &mut feature);
            let expected = info.mode.is_atomic();
            assert_eq!(feature[0] & 4 != 0, expected, "mode {:?}", info.mode);
        }
    }

    /// Found by the fuzzer: nothing is to be replayed, says the volume; its journal is not empty.
    #[test]
    fn a_journal_that_should_be_empty_is_not_written_beside() {
        let mut asked = 0;
        for (n, info) in (1..).zip(volume::MODES).filter(|(_, info)| info.mode.is_journal()) {
            let mut image = populated(n << 4 | 8).0;
            image.write(1024 + 0x60, &[2]); // filetype; without needs_recovery
            let whole = image.clone();
            for mode in [info.mode, Mode::Sync] {
                let device = SimDevice(image.clone());
                let why = volume::probe(&device).expect("a whole superblock").read_only;
                assert!(why.expect("for reading only").contains("e2fsck"));
                let setting = Setting::plain(mode);
                let opened = Subject::open(vec![image.clone()], setting, false, (Plant::NONE, 1));
                let Ok(mut v) = opened else { continue };
                let act = Act::Create("/new".into());
                assert!(v.act(1, &act).is_err(), "{mode}: it can be written");
                asked += 1;
            }
            let mut disks = [image];
            assert!(recover(&mut disks, 1_700_000_000).is_err());
            let bytes = |image: &Image| {
                let mut all = vec![0; VOLUME_BYTES as usize];
                image.read(0, &mut all);
                all
            };
            assert!(bytes(&disks[0]) == bytes(&whole), "something was written");
        }
        assert!(asked > 0);
    }

    #[test]
    fn kernel_made_volumes_are_whole_before_they_are_damaged() {
        for kind in 0..16 {
            let (image, model) = populated(15 << 4 | kind);
            crate::judge::e2fsck(std::slice::from_ref(&image)).unwrap();
            let setting = Setting::plain(Mode::Async);
            let mut v = Subject::open(vec![image], setting, true, (Plant::NONE, 1)).unwrap();
            crate::random::compare(&mut v, &model).unwrap();
        }
    }

    /// `BAD_SEEDS=N` for more than a few.
    #[test]
    fn damaged_volumes_of_every_kind_never_panic() {
        let seeds = std::env::var("BAD_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(160);
        for seed in 0..seeds {
            let mut rng = Rng::new(seed);
            let bytes = 2 + DAMAGE_BYTES * (1 + rng.below(16) as usize);
            let mut input: Vec<u8> = (0..bytes).map(|_| rng.next_u64() as u8).collect();
            input[0] = (seed as u8).rotate_left(4); // every mode soon, then every kind
            use_damaged(&input);
        }
    }
}

//! Directories as Linux makes them, in every mode: on a volume without a free block, while they are
//! listed, and with blocks that are used twice. What is done to them must not depend on who made
//! them, and nothing may be half done.

use crate::acts::Act;
use crate::judge::e2fsck;
use crate::kernel::{make_kernel_like, share_block};
use crate::model::Model;
use crate::random::compare;
use crate::subject::{Setting, SimDevice, Subject, fresh};
use check::{Options, check};
use env::Rng;
use integrity::Plant;
use sim::Image;
use std::collections::BTreeMap;
use vfs::{FsError, Kind, RenameMode, Reply, Request};
use volume::Mode;

fn modes() -> impl Iterator<Item = Mode> {
    volume::MODES.iter().map(|m| m.mode)
}

fn open(disk: Image, mode: Mode) -> Subject {
    Subject::open(vec![disk], Setting::plain(mode), false, (Plant::NONE, 3)).unwrap()
}

/// A volume on which this was done, whose directories were then rewritten: the root and every
/// second one without an index, the others with one.
fn made(mode: Mode, acts: &[Act]) -> (Subject, Model) {
    let journal = mode.is_atomic();
    let mut v = open(fresh(if journal { 3 << 20 } else { 2 << 20 }, journal), mode);
    let mut model = Model::default();
    for (n, act) in acts.iter().enumerate() {
        v.act(n as u64, act).unwrap();
        model.apply(act).unwrap();
    }
    let tree = v.tree(false).unwrap();
    let mut disk = v.close().unwrap().remove(0);
    make_kernel_like(&mut disk, 2, false).unwrap();
    let dirs = tree.values().filter(|s| s.kind == Kind::Dir && s.size > 1024);
    for (n, dir) in dirs.enumerate() {
        make_kernel_like(&mut disk, dir.ino, n % 2 == 1).unwrap();
    }
    e2fsck(std::slice::from_ref(&disk)).unwrap();
    (open(disk, mode), model)
}

/// `count` files in a directory, with room behind them for an index.
fn full_directory(dir: &str, count: usize) -> Vec<Act> {
    let file = |i: usize| format!("{dir}/{i:03}{}", "k".repeat([30, 90, 150][i % 3]));
    let mut acts = vec![Act::Mkdir(dir.into())];
    acts.extend((0..count + 25).map(|i| Act::Create(file(i))));
    acts.extend((count..count + 25).map(|i| Act::Unlink(file(i))));
    acts
}

/// Takes every block there is; then no directory gets another.
fn fill(v: &mut Subject, model: &mut Model) {
    const FILE_BYTES: u64 = 256 << 10;
    for n in 0.. {
        let path = format!("/all{n}");
        v.act(1, &Act::Create(path.clone())).unwrap();
        let (mut end, mut step, mut full) = (0, FILE_BYTES, false);
        while end < FILE_BYTES && !full {
            // A write may be cut short.
            let wrote = v.act(1, &Act::Write(path.clone(), end, step as usize, 5));
            full = wrote == Err(FsError::NoSpace) && step == 1024;
            step = if wrote.is_ok() { step } else { (step / 2).max(1024) };
            assert!(matches!(wrote, Ok(()) | Err(FsError::NoSpace)), "{wrote:?}");
            end = v.tree(false).unwrap()[&path].size;
            step = step.min(FILE_BYTES.saturating_sub(end)).max(1024);
        }
        model.apply(&Act::Create(path.clone())).unwrap();
        model.apply(&Act::Write(path, 0, end as usize, 5)).unwrap();
        if full {
            let Ok(Reply::StatFs(s)) = v.ask(1, Request::StatFs) else { panic!() };
            return assert_eq!(s.free, 0);
        }
    }
}

/// Closes it; both checkers find nothing.
fn close_sound(v: Subject, what: &str) {
    let disks = v.close().unwrap();
    let options = Options { now_secs: 1_700_000_100, verify: false, mark_clean: false };
    let report = check(&SimDevice(disks[0].clone()), &options, &mut ()).unwrap();
    assert!(report.findings.is_empty(), "{what}: {}", report.findings[0]);
    e2fsck(&disks[..1]).unwrap_or_else(|e| panic!("{what}: {e}"));
}

fn names(model: &Model, dir: &str) -> Vec<String> {
    let inside = |p: &String| p.strip_prefix(dir).is_some_and(|r| r.starts_with('/'));
    model.tree().into_keys().filter(inside).collect()
}

/// Taking a name away needs no space.
#[test]
fn a_full_volume_lets_go_of_names() {
    for mode in modes() {
        let acts = [full_directory("/d", 40), full_directory("/e", 40)].concat();
        let (mut v, mut model) = made(mode, &acts);
        fill(&mut v, &mut model);
        for dir in ["/d", "/e"] {
            for path in names(&model, dir) {
                let act = Act::Unlink(path);
                assert_eq!(v.act(2, &act), Ok(()), "{mode}: {act:?}");
                model.apply(&act).unwrap();
            }
            compare(&mut v, &model).unwrap_or_else(|e| panic!("{mode}: {e}"));
            let act = Act::Rmdir(dir.into());
            assert_eq!(v.act(3, &act), Ok(()), "{mode}: {act:?}");
            model.apply(&act).unwrap();
        }
        compare(&mut v, &model).unwrap_or_else(|e| panic!("{mode}: {e}"));
        close_sound(v, &mode.to_string());
    }
}

fn exchange(v: &mut Subject, a: &str, b: &str) -> Result<(), FsError> {
    let dir = |p: &str| p.rsplit_once('/').unwrap().0.to_owned();
    let name = |p: &str| p.rsplit_once('/').unwrap().1.as_bytes().to_vec();
    let (from, to) = (v.walk(&dir(a))?, v.walk(&dir(b))?);
    let mode = RenameMode::Exchange;
    let request = Request::Rename { dir: from, name: name(a), to_dir: to, to_name: name(b), mode };
    v.ask(5, request).map(drop)
}

/// On a full volume a rename is done or not done, and never by half.
#[test]
fn a_full_volume_renames_all_or_nothing() {
    let mut acts = [full_directory("/d", 24), full_directory("/e", 24)].concat();
    for n in 0..4 {
        acts.push(Act::Mkdir(format!("/d/sub{n}")));
        acts.push(Act::Symlink(format!("/e/{n}{}", "l".repeat(70)), "there".into()));
    }
    let (mut refused, mut done) = (0, 0);
    for mode in modes() {
        let (mut v, mut model) = made(mode, &acts);
        fill(&mut v, &mut model);
        let mut rng = Rng::new(11);
        for n in 0..160 {
            let paths: Vec<String> = model.tree().into_keys().collect();
            let mut pick = || paths[rng.below(paths.len() as u64) as usize].clone();
            let (a, b, c) = (pick(), pick(), pick());
            let new =
                format!("{}/new{n}{}", c.rsplit_once('/').unwrap().0, "n".repeat(100 + n % 130));
            let b = if n % 3 > 0 { new } else { b };
            let mut want = model.clone();
            let (expected, got) = if n % 4 == 3 {
                let got = exchange(&mut v, &a, &b);
                let steps = [(&*a, "/x"), (&b, &a), ("/x", &b)];
                let each = |(a, b): (&str, &str)| Act::Rename(a.into(), b.into());
                let mut all = || steps.into_iter().map(each).try_for_each(|s| want.apply(&s));
                (if got.is_ok() && a != b { all() } else { got }, got)
            } else {
                let act = Act::Rename(a.clone(), b.clone());
                (want.apply(&act), v.act(4, &act))
            };
            match got {
                Err(FsError::NoSpace) => refused += 1,
                _ => {
                    assert_eq!(expected, got, "{mode} {n}: {a} to {b}");
                    done += u64::from(got.is_ok());
                    model = if got.is_ok() { want } else { model };
                }
            }
            compare(&mut v, &model).unwrap_or_else(|e| panic!("{mode} {n}: {a} to {b}: {e}"));
        }
        close_sound(v, &mode.to_string());
    }
    assert!(refused > 20 && done > 200, "{refused} refused, {done} done");
}

/// What stays is listed once, whatever goes and comes meanwhile.
#[test]
fn a_listing_sees_what_stays_once() {
    for (seed, mode) in (0..3).flat_map(|s| modes().map(move |m| (s, m))) {
        let acts = [full_directory("/d", 90), full_directory("/e", 90)].concat();
        let (mut v, model) = made(mode, &acts);
        let mut rng = Rng::new(seed);
        for dir in ["/d", "/e"] {
            let ino = v.walk(dir).unwrap();
            let mut stay = names(&model, dir);
            let mut seen: BTreeMap<String, u32> = BTreeMap::new();
            let (mut cookie, mut eof) = (0, false);
            while !eof {
                let (max_bytes, entry_bytes) = (900, 24);
                let list =
                    Request::ReadDir { dir: ino, cookie, max_bytes, entry_bytes, attrs: false };
                let Ok(Reply::Dir { entries, eof: end, .. }) = v.ask(6, list) else { panic!() };
                eof = end;
                for e in entries {
                    cookie = e.cookie;
                    let path = format!("{dir}/{}", String::from_utf8(e.name).unwrap());
                    *seen.entry(path).or_default() += 1;
                }
                for n in 0..4 {
                    let gone = stay.swap_remove(rng.below(stay.len() as u64) as usize);
                    v.act(7, &Act::Unlink(gone)).unwrap();
                    let new = format!("{dir}/new{cookie}{n}{}", "n".repeat(100));
                    v.act(8, &Act::Create(new)).unwrap();
                }
            }
            let wrong: Vec<_> = stay.iter().filter(|p| seen.get(*p) != Some(&1)).collect();
            assert!(wrong.is_empty(), "{mode}, seed {seed}: {} of {}", wrong.len(), stay.len());
            let twice = seen.values().filter(|n| **n > 1).count();
            assert_eq!(twice, 0, "{mode}, seed {seed}");
        }
        close_sound(v, &mode.to_string());
    }
}

/// A block that belongs to a directory twice, to two directories, or to a file as well.
#[test]
fn blocks_used_twice_are_damage_and_no_panic() {
    let mut corrupt = 0;
    for mode in [Mode::Async, Mode::Sync, Mode::Ordered, Mode::Redo] {
        for case in 0..6u8 {
            let mut acts = [full_directory("/d", 60), full_directory("/e", 60)].concat();
            acts.push(Act::Create("/f".into()));
            acts.push(Act::Write("/f".into(), 0, 9000, 7));
            let journal = mode.is_atomic();
            let mut v = open(fresh(if journal { 3 << 20 } else { 2 << 20 }, journal), mode);
            for act in &acts {
                v.act(1, act).unwrap();
            }
            // Counted as `share_block` counts them.
            let inode = |v: &mut Subject, path: &str| v.walk(path).unwrap() - 1;
            let (d, e, f) = (inode(&mut v, "/d"), inode(&mut v, "/e"), inode(&mut v, "/f"));
            let mut disk = v.close().unwrap().remove(0);
            if case % 2 == 1 {
                make_kernel_like(&mut disk, d + 1, false).unwrap();
            }
            match case / 2 {
                0 => share_block(&mut disk, (d, 1), (d, 2)),
                1 => share_block(&mut disk, (d, 1), (e, 1)),
                _ => share_block(&mut disk, (f, 1), (d, 1)),
            }
            let mut v = open(disk, mode);
            let mut rng = Rng::new(u64::from(case));
            for n in 0..400u32 {
                let dir = if n % 2 == 0 { "/d" } else { "/e" };
                let long = format!("{dir}/{n}{}", "x".repeat(20 + (n % 40) as usize));
                let old = acts[1 + rng.below(acts.len() as u64 - 2) as usize].clone();
                let old = old.paths().first().map_or(String::new(), |p| (*p).to_owned());
                let ask = [
                    Act::Create(long.clone()),
                    Act::Unlink(old.clone()),
                    Act::Rename(old, format!("{long}r")),
                    Act::Write("/f".into(), 1024, 700, rng.next_u64() as u8),
                ];
                for act in ask {
                    corrupt += u32::from(v.act(2, &act) == Err(FsError::Corrupt));
                }
            }
            let _ = v.close();
        }
    }
    assert!(corrupt > 0, "nothing was noticed");
}

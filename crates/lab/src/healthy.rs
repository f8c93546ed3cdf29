//! The checker beside service on a volume in order: whatever is under way while it looks, it finds
//! nothing, changes nothing, and leaves nothing to a repair by hand.

use crate::acts::Act;
use crate::judge::e2fsck;
use crate::perform::{Holds, give_back, perform};
use crate::setting::new_disks;
use crate::subject::{Setting, SimDevice, Subject, Task};
use check::{Options, check};
use env::{Env, Nanos, Rng};
use sim::Image;
use std::cell::Cell;
use std::rc::Rc;
use vfs::{Call, FsError, Reply, Request, Volume};
use volume::Mode;

const CALLERS: u64 = 5;
/// Passes beside them; they work until the last has ended.
const PASSES: u64 = 8;
/// A pass over so small a volume has ended by then.
const PASS_MAX: Nanos = Nanos::from_secs(60);

/// Every mode, and soft updates with a journal of intents.
fn settings() -> impl Iterator<Item = Setting> {
    let plain = volume::MODES.iter().map(|m| Setting::plain(m.mode));
    plain.chain([Setting { intents: true, ..Setting::plain(Mode::SoftUpdates) }])
}

fn opened(setting: Setting, seed: u64) -> Subject {
    let options = setting.open_options(4 << 20);
    let disks = new_disks(4 << 20, setting);
    Subject::open_with((disks, setting.volumes), options, seed).unwrap()
}

/// One pass of the checker, to its end.
async fn checked(env: &Env, volume: &Rc<dyn Volume>) -> Result<(), FsError> {
    let before = of(volume, "cairn_scrub_passes_total").await?;
    volume.clone().call(Call::local(Request::Scrub)).await.result?;
    let begun = env.now();
    while of(volume, "cairn_scrub_passes_total").await? == before {
        env.sleep(Nanos::from_micros(300)).await;
        assert!(env.now().since(begun) < PASS_MAX, "a pass comes to no end");
    }
    Ok(())
}

async fn of(volume: &Rc<dyn Volume>, counter: &str) -> Result<u64, FsError> {
    let reply = volume.clone().call(Call::local(Request::Info)).await.result?;
    let Reply::Info(info) = reply else { return Err(FsError::Io) };
    if info.read_only {
        return Err(FsError::ReadOnly);
    }
    Ok(info.counters.iter().find(|c| c.0 == counter).map_or(0, |c| c.1))
}

/// What passes have changed, and what they have left to others; nothing, if all is well.
async fn found(volume: &Rc<dyn Volume>) -> Result<Vec<(&'static str, u64)>, FsError> {
    let mut all = Vec::new();
    for what in ["blocks_freed_total", "inodes_freed_total", "mended_total", "left"] {
        let n = of(volume, &format!("cairn_scrub_{what}")).await?;
        all.extend((n > 0).then_some((what, n)));
    }
    Ok(all)
}

/// The closed volume is in order.
fn assert_sound(name: &str, setting: Setting, disks: &[Image]) {
    if setting.in_segments() {
        return; // its own checks are elsewhere
    }
    let options = Options { now_secs: 4_000_000_000, verify: false, mark_clean: false };
    let report = check(&SimDevice(disks[0].clone()), &options, &mut ()).unwrap();
    assert!(report.findings.is_empty(), "{name}: {:?}", report.findings);
    e2fsck(disks).unwrap_or_else(|text| panic!("{name}: {text}"));
}

/// As a kernel takes a tree away: every directory is held when it loses its name, and given back
/// afterwards.
#[test]
fn a_directory_without_a_name_that_somebody_holds_is_counted() {
    for setting in settings() {
        let name = format!("{} {}", setting.mode, setting.options());
        let mut v = opened(setting, 1);
        let task: Task = Box::new(|env, volume| {
            Box::pin(async move {
                let none = &mut None;
                perform(&volume, &Act::Mkdir("/d".into()), false, none).await?;
                let lookup = Request::Lookup { dir: 2, name: b"d".to_vec() };
                let held = Call { hold: true, ..Call::local(lookup) };
                let reply = volume.clone().call(held).await.result?;
                let ino = crate::acts::ino_of(&reply).ok_or(FsError::Io)?;
                perform(&volume, &Act::Rmdir("/d".into()), false, none).await?;
                checked(&env, &volume).await?;
                assert_eq!(found(&volume).await?, [], "while it is held");
                give_back(&volume, vec![ino]).await;
                checked(&env, &volume).await?;
                assert_eq!(found(&volume).await?, [], "while it may wait to be freed");
                Ok(())
            })
        });
        v.together(vec![task]).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_sound(&name, setting, &v.close().unwrap());
    }
}

/// Somebody else's turn, now and then after a while.
async fn step(env: &Env, rng: &mut Rng) {
    match rng.below(4) {
        0 => env.sleep(Nanos::from_micros(rng.below(400))).await,
        n => {
            for _ in 0..n {
                env.yield_now().await;
            }
        }
    }
}

/// Trees that are made, moved about and taken away, as long as somebody checks.
fn caller(n: u64, seed: u64, passes: Rc<Cell<u64>>) -> Task {
    Box::new(move |env, volume| {
        Box::pin(async move {
            let mut rng = Rng::new(seed * 100 + n);
            let mut holds = (n > 0).then(|| Holds::new(seed + n));
            for round in 0.. {
                for act in tree(&format!("/c{n}"), &mut rng, round) {
                    perform(&volume, &act, false, &mut holds).await?;
                    step(&env, &mut rng).await;
                    if let Some(h) = &mut holds {
                        give_back(&volume, h.due()).await;
                    }
                }
                if passes.get() == PASSES {
                    break;
                }
            }
            if let Some(h) = holds {
                give_back(&volume, h.rest()).await;
            }
            Ok(())
        })
    })
}

fn tree(top: &str, rng: &mut Rng, round: u64) -> Vec<Act> {
    let mut acts = vec![Act::Mkdir(top.into())];
    let dirs: Vec<String> = (0..3 + rng.below(3)).map(|i| format!("{top}/d{i}")).collect();
    for d in &dirs {
        acts.push(Act::Mkdir(d.clone()));
        acts.push(Act::Mkdir(format!("{d}/sub")));
        for f in 0..3 {
            let (p, len) = (format!("{d}/sub/f{f}"), [300, 5000, 30_000][rng.below(3) as usize]);
            acts.push(Act::Create(p.clone()));
            acts.push(Act::Write(p.clone(), 0, len, f as u8));
            acts.push(Act::Attribute(p.clone(), 300, (round % 2) as u8));
            acts.push(Act::Link(p, format!("{d}/link{f}")));
        }
    }
    // Each "sub" goes to the next directory, and back under its old name.
    for i in 0..dirs.len() {
        let (here, next) = (&dirs[i], &dirs[(i + 1) % dirs.len()]);
        acts.push(Act::Rename(format!("{here}/sub"), format!("{next}/moved")));
        acts.push(Act::Rename(format!("{next}/moved"), format!("{next}/again")));
        acts.push(Act::Rename(format!("{next}/again"), format!("{here}/sub")));
    }
    // One is replaced by an empty one.
    acts.push(Act::Mkdir(format!("{top}/empty")));
    acts.push(Act::Mkdir(format!("{top}/other")));
    acts.push(Act::Rename(format!("{top}/other"), format!("{top}/empty")));
    acts.push(Act::Rmdir(format!("{top}/empty")));
    for d in &dirs {
        for f in 0..3 {
            acts.push(Act::Unlink(format!("{d}/sub/f{f}")));
            acts.push(Act::Unlink(format!("{d}/link{f}")));
        }
        acts.extend([Act::Rmdir(format!("{d}/sub")), Act::Rmdir(d.clone())]);
    }
    acts.push(Act::Rmdir(top.into()));
    acts
}

/// Passes, one after the other.
fn checker(passes: Rc<Cell<u64>>) -> Task {
    Box::new(move |env, volume| {
        Box::pin(async move {
            let mut done = Ok(Vec::new());
            while passes.get() < PASSES && done.as_ref().is_ok_and(Vec::is_empty) {
                done = match checked(&env, &volume).await {
                    Ok(()) => found(&volume).await,
                    Err(e) => Err(e),
                };
                passes.set(passes.get() + 1);
            }
            let pass = passes.replace(PASSES);
            assert_eq!(done?, [], "in pass {pass}");
            Ok(())
        })
    })
}

#[test]
fn nothing_is_found_while_trees_are_made_moved_and_taken_away() {
    for setting in settings() {
        for seed in 0..2 {
            let name = format!("{} {}, seed {seed}", setting.mode, setting.options());
            println!("{name}");
            let mut v = opened(setting, seed);
            let passes = Rc::new(Cell::new(0));
            let mut tasks: Vec<Task> =
                (0..CALLERS).map(|n| caller(n, seed, passes.clone())).collect();
            tasks.push(checker(passes.clone()));
            v.together(tasks).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_sound(&name, setting, &v.close().unwrap());
        }
    }
}

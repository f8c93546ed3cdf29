//! The checker beside service after a crash: a state is opened in its mode and worked on at once,
//! while the checker gives back what the crash has left. Then nothing may be left to find; and a
//! second power cut in the middle of it leaves nothing worse than the first one.

use crate::acts::Act;
use crate::judge::{E2FSCK_OF, Expected, Verdict, e2fsck, synced};
use crate::record::{Progress, did_nothing};
use crate::setting::JUDGED_SECS;
use crate::soft::still_there;
use crate::subject::{Seen, Setting, SimDevice, Subject};
use check::live::PLANTS;
use check::{Options, Report, check};
use env::Rng;
use integrity::Plant;
use sim::{CrashImages, Image, Trace};
use std::collections::BTreeMap;
use vfs::{FsError, Kind, Reply, Request};

/// Operations beside the checker.
const ACTS: usize = 24;
/// Where what is new lies: a directory of each caller.
const NEW: &str = "/beside";
/// Callers of these.
const CALLERS: usize = 2;
/// Virtual seconds in which a pass over a small volume has ended.
const SECS_MAX: u64 = 120;
/// Images judged of each second cut.
const CUTS: u64 = 3;

/// Works on the state beside the checker, and judges the end and a second cut.
pub(crate) fn judge(
    images: &[Image],
    setting: Setting,
    e: &Expected<'_>,
    (digest, v): (u64, &mut Verdict),
) {
    let plant = Plant(e.plant.0.filter(|p| PLANTS.contains(p)));
    let trace = match run(images, setting, (plant, digest), ACTS) {
        Ok(Ran { trace, end, acts }) => {
            whole("while in use", &end, digest, v);
            (trace, acts)
        }
        Err(why) => return v.wrong.push(format!("beside service: {why}")),
    };
    let (trace, acts) = trace;
    if plant == Plant::NONE && v.wrong.is_empty() {
        match run(images, setting, (Plant::NONE, digest), 0) {
            Ok(Ran { end, .. }) => {
                still_there("when the checker has been through", end, setting, e, v)
            }
            Err(why) => v.wrong.push(format!("beside nothing: {why}")),
        }
    }
    let cut_at = (digest >> 24) as usize % (trace.events.len() + 1);
    let mut states = CrashImages::of_disks(&trace, images.to_vec());
    let mut progress = Progress::default();
    for _ in 0..cut_at {
        states.step().into_iter().for_each(|e| progress.note(e, acts.len()));
    }
    for n in 0..CUTS {
        if !v.wrong.is_empty() {
            return;
        }
        let variant = (digest >> 12).wrapping_add(n * 5) % states.variants(6);
        v.again += 1;
        let left = states.images(variant);
        kept(&left, setting, (&acts, &progress), v);
        again(&left, setting, (digest, cut_at), v);
    }
}

/// What was made durable beside the checker, of what was new then, is there after the second cut.
fn kept(images: &[Image], setting: Setting, (acts, at): (&[Act], &Progress), v: &mut Verdict) {
    let is_new = |a: &&Act| !a.paths().is_empty() && a.paths().iter().all(|p| p.starts_with(NEW));
    let of = |all: &[usize]| all.iter().map(|n| &acts[*n]).filter(is_new).collect::<Vec<_>>();
    let done: Vec<Act> = of(&at.answered).into_iter().cloned().collect();
    let (in_flight, callers) = (of(&at.in_flight), CALLERS as u64);
    let e = Expected {
        done: &done,
        in_flight: &in_flight,
        began: &[],
        lasted: &[],
        setup: 0,
        callers,
        remote: callers,
        plant: Plant::NONE,
    };
    let tree = Subject::open(images.to_vec(), setting, true, (Plant::NONE, 1))
        .and_then(|mut s| s.tree_of(true, true).map_err(|e| e.to_string()));
    let before = v.wrong.len();
    match tree {
        Err(why) => v.wrong.push(format!("reading: {why}")),
        Ok(tree) => synced(&tree, &e, false, v),
    }
    v.wrong[before..].iter_mut().for_each(|w| *w = format!("made durable beside the checker: {w}"));
}

/// A state that a cut in the middle of the checker's work has left.
fn again(images: &[Image], setting: Setting, (digest, cut_at): (u64, usize), v: &mut Verdict) {
    let told = |w: String| format!("cut again at event {cut_at} of the check in use: {w}");
    match checked(&images[0]) {
        Err(why) => return v.wrong.push(told(why)),
        Ok(report) => v.wrong.extend(report.beyond_soft_updates().map(told)),
    }
    if !v.wrong.is_empty() {
        return;
    }
    match run(images, setting, (Plant::NONE, digest), 0) {
        Ok(Ran { end, .. }) => whole("after a second cut", &end, digest, v),
        Err(why) => v.wrong.push(told(why)),
    }
}

fn checked(disk: &Image) -> Result<Report, String> {
    let options = Options { now_secs: JUDGED_SECS, verify: false, mark_clean: false };
    check(&SimDevice(disk.clone()), &options, &mut ()).map_err(|e| e.to_string())
}

/// Nothing is left to find.
pub(crate) fn whole(when: &str, disks: &[Image], digest: u64, v: &mut Verdict) {
    match checked(&disks[0]) {
        Err(why) => v.wrong.push(format!("checked {when}: {why}")),
        Ok(report) => {
            v.wrong.extend(report.findings.first().map(|f| format!("checked {when}, and {f}")));
            if !report.marked_clean {
                v.wrong.push(format!("checked {when}, and not marked clean"));
            }
        }
    }
    if (digest >> 16).is_multiple_of(E2FSCK_OF / 8)
        && v.wrong.is_empty()
        && let Err(text) = e2fsck(disks)
    {
        v.wrong.push(format!("checked {when}; e2fsck: {text}"));
    }
}

/// What was done beside the checker.
struct Ran {
    /// What the disk was asked until it had come to its end.
    trace: Trace,
    /// The disks when the volume was closed.
    end: Vec<Image>,
    /// Those that were refused stand for nothing.
    acts: Vec<Act>,
}

/// Opens the volume, works on it, and closes it when the checker has come to its end.
fn run(
    images: &[Image],
    setting: Setting,
    (plant, seed): (Plant, u64),
    count: usize,
) -> Result<Ran, String> {
    let tree = {
        let mut s = Subject::open(images.to_vec(), setting, true, (Plant::NONE, 1))?;
        s.tree_of(false, true).map_err(|e| e.to_string())?
    };
    let mut acts = acts(&tree, seed, count);
    let mut s = Subject::open(images.to_vec(), setting, false, (plant, seed))?;
    let results = s.act_in_lanes(&acts, CALLERS, (CALLERS, false, false), SECS_MAX);
    for (act, result) in acts.iter_mut().zip(results) {
        match result {
            None => return Err(format!("{act:?} is never answered")),
            Some(Err(e @ (FsError::Io | FsError::ReadOnly | FsError::Corrupt))) => {
                return Err(format!("{act:?}: {e}"));
            }
            Some(Err(_)) => *act = did_nothing(),
            Some(Ok(done)) => *act = done,
        }
    }
    for _ in 0..SECS_MAX {
        let Ok(Reply::Info(info)) = s.ask(u64::MAX / 4, Request::Info) else {
            return Err("the volume does not say how it is".into());
        };
        if info.read_only {
            return Err("the volume has turned read-only".into());
        }
        let of = |name: &str| info.counters.iter().find(|c| c.0 == name).map_or(0, |c| c.1);
        if of("cairn_scrub_running") == 0 {
            let trace = s.world.trace.clone(); // writes may be on their way
            let end = s.close().map_err(|e| format!("closing: {e}"))?;
            return Ok(Ran { trace, end, acts });
        }
        s.pass(1_000_000_000);
    }
    s.leave();
    Err("the checker comes to no end".into())
}

/// Operations on what is there, by two callers who keep out of each other's way: each has every
/// other name of the root.
fn acts(tree: &BTreeMap<String, Seen>, seed: u64, count: usize) -> Vec<Act> {
    let mut rng = Rng::new(seed);
    let mut mine: Vec<Vec<(&String, Kind)>> = vec![Vec::new(); CALLERS];
    for (path, seen) in tree {
        let top = path.trim_start_matches('/').split('/').next().unwrap_or("");
        let lane = top.bytes().map(usize::from).sum::<usize>() % CALLERS;
        mine[lane].push((path, seen.kind));
    }
    let mut all = vec![Act::Mkdir(format!("{NEW}0")), Act::Mkdir(format!("{NEW}1"))];
    for n in 0..count {
        let lane = n % CALLERS;
        let new = format!("{NEW}{lane}/n{n}");
        let old = match mine[lane].is_empty() {
            true => None,
            false => Some(mine[lane][rng.below(mine[lane].len() as u64) as usize]),
        };
        all.push(match (rng.below(12), old) {
            (0 | 1, Some((path, _))) => Act::Rename(path.clone(), new),
            (2, Some((path, Kind::Dir))) => Act::Rmdir(path.clone()),
            (2, Some((path, _))) => Act::Unlink(path.clone()),
            (3, Some((path, Kind::File))) => Act::Link(path.clone(), new),
            (4, Some((path, Kind::File))) => Act::Write(path.clone(), 3000, 9000, n as u8),
            (4 | 8, Some((path, Kind::Dir))) => {
                Act::Create(format!("{path}/{}{n}", "m".repeat(230)))
            }
            (4, _) => Act::Mkdir(new),
            (5, Some((path, Kind::File))) => Act::Truncate(path.clone(), 700),
            (6, _) => Act::Unlink(format!("{NEW}{lane}/n{}", n - n.min(CALLERS))),
            (7, _) if rng.one_in(3) => Act::Sync,
            // What was made just now; it may not be there.
            (7 | 9 | 10, _) => Act::Fsync(format!("{NEW}{lane}/n{}", n - n.min(CALLERS))),
            _ => Act::Emerge(new, 5000, n as u8),
        });
    }
    if count == 0 {
        all.clear();
    }
    all
}

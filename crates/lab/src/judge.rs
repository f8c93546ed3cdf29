//! What a crash image must show: recovery succeeds, the volume is sound, everything that was
//! promised is there, and nothing that nobody made. The promises are those of the mode's row in the
//! table of modes.
//!
//! Invariants:
//! * J1. A state is judged by what is known of each of its volumes, and of no other: an expectation
//!   for each, and the disks that all of them have.
//! * J2. What is expected is of one run: its setup has been answered, and no caller has more under
//!   way than there can be.
//! * J3. What is promised of an object is promised while there is one.
//! * J4. A verdict says what is wrong in words.

use crate::acts::Act;
use crate::contents::Contents;
use crate::model::{Model, Node};
use crate::prefix::How;
use crate::record::Lasted;
use crate::seen::same_objects;
use crate::setting::JUDGED_SECS;
use crate::subject::{Seen, Setting, SimDevice, Subject, VolumeKind, recover};
use crate::times::Times;
use check::{Options, check};
use integrity::Plant;
use sim::Image;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Output;
use vfs::Kind;
use volume::AfterCrash;

/// What is known of a run at a cut, of one volume: everything answered, and what is under way.
pub(crate) struct Expected<'a> {
    /// The acts that were answered, the setup's included, in the order of their answers.
    pub(crate) done: &'a [Act],
    /// One of each caller at most.
    pub(crate) in_flight: &'a [&'a Act],
    /// How many of `done` had been answered when each of them began; none: that is not known.
    pub(crate) began: &'a [usize],
    /// When each of them, and then each under way, was done; none: that is not known.
    pub(crate) lasted: &'a [Lasted],
    /// How many of `done` are the setup's.
    pub(crate) setup: usize,
    /// How many callers there are.
    pub(crate) callers: u64,
    /// Those from this one on are NFS clients.
    pub(crate) remote: u64,
    /// The planted bug, for those that are in recovery.
    pub(crate) plant: Plant,
}

impl Expected<'_> {
    /// J2.
    fn check(&self) {
        let (setup, done, busy) = (self.setup, self.done.len(), self.in_flight.len() as u64);
        assert!(setup <= done, "J2: {setup} acts of the setup, and {done} were answered");
        // One that a failing disk has refused is under way for good.
        let most = 2 * self.callers;
        assert!(busy <= most, "J2: {busy} acts are under way, of {} callers", self.callers);
        let known = self.began.is_empty() || self.began.len() == done;
        let late = (0..).zip(self.began).find(|(n, began)| *began > n);
        assert!(known && late.is_none(), "J2: act {late:?} of {done} was answered, then begun");
    }

    /// When the n-th of the answered acts, and then of those under way, was done.
    pub(crate) fn lasted(&self, n: usize) -> Lasted {
        self.lasted.get(n).copied().flatten()
    }

    /// How many had been answered when this one began.
    pub(crate) fn before(&self, n: usize) -> usize {
        if self.callers <= 1 { n } else { self.began.get(n).copied().unwrap_or(0) }
    }
}

/// What was found wrong, and what was lost without a promise.
#[derive(Default, Debug)]
pub(crate) struct Verdict {
    pub(crate) wrong: Vec<String>,
    /// Kinds of things that are gone; nobody promised that they would not be.
    pub(crate) losses: BTreeSet<&'static str>,
    /// How many images of recoveries that were cut off were judged too.
    pub(crate) again: u64,
}

/// Of so many distinct states the real e2fsck judges one.
pub(crate) const E2FSCK_OF: u64 = 100;
/// Of so many on volumes of ext4.
const E2FSCK_EXT4_OF: u64 = 12;
/// Of so many, the recovery of one is cut off too, at each of its moments.
const AGAIN_OF: u64 = 96;
/// Of so many, the recovery from that is cut off too.
const THRICE_OF: u64 = 8 * AGAIN_OF;
/// Of so many, the journal's blocks are looked at as they lie.
const MARKS_OF: u64 = 8;
/// Of so many, the replay of one journal is.
const REPLAY_OF: u64 = 64;
/// Of so many, one is read once more when it was closed.
const CLOSED_OF: u64 = 4;

/// Judges a state, by what is expected of each volume. `digest`, of its images, decides how
/// thoroughly.
pub(crate) fn judge(
    images: &[Image],
    setting: Setting,
    all: &[Expected<'_>],
    digest: u64,
) -> Verdict {
    let by_e2fsck = match setting.kind {
        VolumeKind::Ext3 => digest.is_multiple_of(E2FSCK_OF),
        VolumeKind::Ext4 { .. } => digest.is_multiple_of(E2FSCK_EXT4_OF),
    };
    let e = &all[0];
    all.iter().for_each(Expected::check);
    let (volumes, disks) = (usize::from(setting.volumes), images.len());
    let logs = disks.checked_sub(volumes);
    assert!(all.len() == volumes && logs.is_some_and(|n| n <= 1), "J1: {volumes} on {disks} disks");
    let v = judge_by(images, setting, (all, e), (digest, by_e2fsck));
    assert!(v.wrong.iter().all(|w| !w.trim().is_empty()), "J4: {:?}", v.wrong);
    v
}

/// The same by the promises of the mode.
fn judge_by(
    images: &[Image],
    setting: Setting,
    (all, e): (&[Expected<'_>], &Expected<'_>),
    (digest, by_e2fsck): (u64, bool),
) -> Verdict {
    if setting.is_prefix() {
        let apart = setting.volumes > 1 && (digest >> 16).is_multiple_of(2);
        let how = How { by_e2fsck, apart, closed: (digest >> 18).is_multiple_of(CLOSED_OF) };
        let mut v = crate::prefix::judge(images, setting, all, how);
        if setting.in_segments() && v.wrong.is_empty() {
            crate::segments::judge(images, setting, (all, digest), &mut v);
        }
        if setting.mode.is_journal() && (digest >> 8).is_multiple_of(MARKS_OF) {
            v.wrong.extend(crate::marks::false_head(images));
        }
        if setting.mode.is_logging() && v.wrong.is_empty() && (digest >> 8).is_multiple_of(AGAIN_OF)
        {
            let cuts = if (digest >> 8).is_multiple_of(THRICE_OF) { 2 } else { 1 };
            crate::prefix::judge_again(images, setting, all, (cuts, &mut v));
        }
        if setting.mode.is_journal()
            && v.wrong.is_empty()
            && (digest >> 8).is_multiple_of(REPLAY_OF)
        {
            crate::again::judge_again(images, setting, e, &mut v);
        }
        return v;
    }
    let mode = setting.mode;
    let after_crash = mode.info().after_crash;
    let by_hand = after_crash == AfterCrash::RepairUnlessNamesGo;
    if after_crash == AfterCrash::GiveBack {
        return crate::soft::judge(images, setting, e, digest);
    }
    let mut v = Verdict::default();
    let mut disks = vec![images[0].clone()];
    if after_crash == AfterCrash::RepairUnfinished {
        before_repair(&SimDevice(disks[0].clone()), e.callers, &mut v);
    }
    if let Err(why) = recover(&mut disks, JUDGED_SECS) {
        if !by_hand {
            v.wrong.push(format!("recovery: {why}"));
            return v;
        }
        v.losses.insert("repair-by-hand");
        if !force_repair(&mut disks[0]) {
            v.losses.insert("volume");
            return v;
        }
    }
    if by_e2fsck && let Err(text) = e2fsck(&disks) {
        v.wrong.push(format!("e2fsck after the repair: {text}"));
    }
    match Subject::open(disks, setting, true, (Plant::NONE, 1)) {
        Err(why) => v.wrong.push(format!("opening after recovery: {why}")),
        Ok(mut s) => match s.tree(true) {
            Err(why) => v.wrong.push(format!("reading after recovery: {why}")),
            Ok(mut tree) => {
                if after_crash == AfterCrash::RepairUnfinished {
                    names(&tree, e, &mut v);
                    crate::soft::attributes(&mut s, &mut tree, e, &mut v);
                }
                synced(&tree, e, by_hand, &mut v);
            }
        },
    }
    v
}

fn before_repair(device: &SimDevice, callers: u64, v: &mut Verdict) {
    let options = Options { now_secs: JUDGED_SECS, verify: false, mark_clean: false };
    match check(device, &options, &mut ()) {
        Err(why) => v.wrong.push(format!("before the repair: {why}")),
        Ok(report) if !report.is_sync_leftover(callers) => {
            let worst = report.findings.iter().max_by_key(|f| f.kind.class());
            let text = worst.map_or_else(String::new, ToString::to_string);
            v.wrong.push(format!("before the repair: {text}"));
        }
        Ok(_) => (),
    }
}

/// Does what `cairn fsck --repair` does. False: the damage is beyond repair.
pub(crate) fn force_repair(disk: &mut Image) -> bool {
    let mut device = SimDevice(disk.clone());
    let options = Options { now_secs: JUDGED_SECS, verify: true, mark_clean: true };
    let Ok(report) = check(&device, &options, &mut ()) else { return false };
    let done = report.left.is_empty() && report.plan.apply(&mut device, &mut ()).is_ok();
    *disk = device.0;
    done
}

/// The model after the acts.
pub(crate) fn after(acts: &[Act]) -> Model {
    let mut m = Model::default();
    for a in acts {
        let _ = m.apply(a);
    }
    m
}

/// Every name that was promised, and none that nobody made. Of the act in flight, each name may be
/// or not be, but a rename never loses both.
fn names(tree: &BTreeMap<String, Seen>, e: &Expected<'_>, v: &mut Verdict) {
    let old = after(e.done);
    let mut new = old.clone();
    for a in e.in_flight {
        let _ = new.apply(a);
    }
    let (a, b) = (old.tree(), new.tree());
    let both: BTreeSet<&String> = a.keys().filter(|p| b.contains_key(*p)).collect();
    for path in &both {
        let (node, moved) = (old.node(a[*path]), a[*path] != b[*path]);
        let kind = match node {
            Node::Dir(_) => Kind::Dir,
            Node::File(_) => Kind::File,
            Node::Symlink(_) => Kind::Symlink,
            Node::Whiteout => Kind::Char,
        };
        match tree.get(*path) {
            // A rename of one directory over another, cut off with both names on it: the repair
            // takes one.
            None if moved && kind == Kind::Dir && half_renamed(e, path, tree) => (),
            None => v.wrong.push(format!("{path} is missing")),
            Some(s) if s.kind != kind && !moved => v.wrong.push(format!("{path} is {:?}", s.kind)),
            Some(s) => {
                if let Node::Symlink(text) = node
                    && !moved
                    && s.bytes != text[..]
                {
                    v.wrong.push(format!("{path} has another text"));
                }
            }
        }
    }
    let objects = both.iter().filter(|p| a[**p] == b[**p]).filter_map(|p| {
        let seen = tree.get(*p)?;
        Some((p.as_str(), seen.ino, a[*p]))
    });
    v.wrong.extend(same_objects(objects).err());
    for path in tree.keys() {
        if !a.contains_key(path) && !b.contains_key(path) {
            v.wrong.push(format!("{path} was never made, or its removal had returned"));
        }
    }
    for act in e.in_flight {
        if let Act::Rename(from, to) = act
            && a.contains_key(from)
            && !tree.contains_key(from)
            && !tree.contains_key(to)
        {
            v.wrong.push(format!("the rename of {from} to {to} has lost both names"));
        }
    }
    lengths(tree, e, (&old, &b), v);
}

/// Is `path` the target of a rename in flight, whose source is still there?
fn half_renamed(e: &Expected<'_>, path: &str, tree: &BTreeMap<String, Seen>) -> bool {
    let half =
        |act: &&Act| matches!(act, Act::Rename(from, to) if to == path && tree.contains_key(from));
    e.in_flight.iter().any(half)
}

/// A returned truncate survives, unless the file was written later.
fn lengths(
    tree: &BTreeMap<String, Seen>,
    e: &Expected<'_>,
    (old, next): (&Model, &BTreeMap<String, usize>),
    v: &mut Verdict,
) {
    for (path, id) in old.tree() {
        if next.get(&path) != Some(&id) {
            continue; // what is under way may have put another file there
        }
        let Node::File(bytes) = old.node(id) else { continue };
        let last = last_change(e, id);
        if let (Some(Act::Truncate(..)), Some(s)) = (last, tree.get(&path))
            && s.size != bytes.len()
        {
            let want = bytes.len();
            v.wrong.push(format!("{path} has {} bytes, truncated to {want}", s.size));
        }
    }
}

/// The last act that changed the contents of the object, if nothing under way may change it.
fn last_change<'a>(e: &Expected<'a>, id: usize) -> Option<&'a Act> {
    let mut m = Model::default();
    let mut last = None;
    for act in e.done.iter().chain(e.in_flight.iter().copied()) {
        if let Some(p) = act.changed_file()
            && m.find(p) == Ok(id)
        {
            last = Some(act);
        }
        let _ = m.apply(act);
    }
    let touched = e.in_flight.iter().any(|a| last == Some(*a));
    if touched { None } else { last }
}

/// A file that was fsynced and not touched since is whole, with its times, under a name it had then
/// or was given later.
pub(crate) fn synced(
    tree: &BTreeMap<String, Seen>,
    e: &Expected<'_>,
    names_go: bool,
    v: &mut Verdict,
) {
    let mut promised: BTreeMap<usize, Contents> = BTreeMap::new();
    // Whose times are durable, as the acts before this one have set them.
    let mut timed: BTreeMap<usize, usize> = BTreeMap::new();
    let (mut m, mut times) = (Model::default(), Times::default());
    for (i, act) in e.done.iter().chain(e.in_flight.iter().copied()).enumerate() {
        let answered = i < e.done.len();
        for id in touches(&m, act) {
            promised.remove(&id);
        }
        let was = Times::touched(act, &m);
        let _ = m.apply(act);
        times.note(act, (&was, &m), (e.lasted(i), answered));
        if !answered {
            continue;
        }
        let same = unchanged_since(e, i, &m, act);
        same.iter().for_each(|id| promise(&m, Some(*id), &mut promised));
        if matches!(act, Act::Fsync(_)) || act.syncs_all() {
            timed.extend(same.iter().map(|id| (*id, e.before(i))));
        }
    }
    let tree_of_all = m.tree();
    let there: BTreeSet<usize> = tree_of_all.values().copied().collect();
    let gone = promised.keys().find(|id| !there.contains(id));
    assert!(gone.is_none(), "J3: object {gone:?} is promised, and has no name");
    for (path, id) in tree_of_all {
        let Some(bytes) = promised.get(&id) else {
            if names_go && !tree.contains_key(&path) {
                v.losses.insert("names");
            }
            continue;
        };
        match tree.get(&path) {
            // A directory above it was renamed, and that was not made durable: it is there under
            // the old one.
            None if names_go && elsewhere(tree, &path, bytes) => (),
            None => v.wrong.push(format!("{path} was fsynced and is missing")),
            Some(s) if s.bytes != *bytes => {
                v.wrong.push(format!("{path} was fsynced and has other contents"));
            }
            Some(s) => {
                let wrong = timed.get(&id).and_then(|n| times.wrong(id, (*n, usize::MAX), s));
                v.wrong.extend(wrong.map(|which| format!("{path} was fsynced and has {which}")));
            }
        }
    }
}

/// The objects whose contents or names the act may change.
fn touches(m: &Model, act: &Act) -> Vec<usize> {
    match act {
        Act::Truncate(p, _)
        | Act::Write(p, ..)
        | Act::WriteSync(p, ..)
        | Act::Punch(p, ..)
        | Act::Allocate(p, ..)
        | Act::Zero(p, ..)
        | Act::Collapse(p, ..)
        | Act::Insert(p, ..)
        | Act::Vanish(p, _)
        | Act::Linger(p, ..)
        | Act::Unlink(p) => m.find(p).into_iter().collect(),
        Act::Link(a, _) => m.find(a).into_iter().collect(),
        Act::Rename(a, b) | Act::Whiteout(a, b) | Act::Exchange(a, b) => {
            let moved = m.find(a).into_iter().chain(m.find(b));
            moved.flat_map(|id| below(m, id)).collect()
        }
        _ => Vec::new(),
    }
}

/// The objects that the `i`-th act makes durable as they are, with their names: those that no act
/// has changed that was answered in its middle.
fn unchanged_since(e: &Expected<'_>, i: usize, now: &Model, act: &Act) -> Vec<usize> {
    let from = if matches!(act, Act::WriteSync(..)) { i } else { e.before(i) };
    let found = act.synced_file().and_then(|p| found_throughout(e.done, (from, i), p, now));
    let all: Vec<(String, usize)> = match act.syncs_all() {
        true => now.tree().into_iter().collect(),
        false => now.tree().into_iter().filter(|(_, id)| Some(*id) == found).collect(),
    };
    let ids = |all: &[(String, usize)]| all.iter().map(|(_, id)| *id).collect();
    if from == i || all.is_empty() {
        return ids(&all);
    }
    let then = after(&e.done[..from]);
    let had = then.tree();
    let changed =
        |(p, id): &(String, usize)| had.get(p) != Some(id) || then.node(*id) != now.node(*id);
    let others: BTreeSet<usize> = all.iter().filter(|o| changed(o)).map(|(_, id)| *id).collect();
    let mut same: Vec<usize> = ids(&all);
    same.retain(|id| !others.contains(id));
    same
}

/// The object at a path, if it was the same one from before the act `from` until the act `to` was
/// answered: what somebody has found there meanwhile. `now`: what there is after that.
pub(crate) fn found_throughout<A: std::borrow::Borrow<Act>>(
    done: &[A],
    (from, to): (usize, usize),
    path: &str,
    now: &Model,
) -> Option<usize> {
    if from == to {
        return now.find(path).ok();
    }
    let mut m = Model::default();
    let apply = |m: &mut Model, acts: &[A]| {
        acts.iter().for_each(|a| {
            let _ = m.apply(a.borrow());
        });
    };
    apply(&mut m, &done[..from]);
    let id = m.find(path).ok();
    let stays = done[from..to].chunks(1).all(|act| {
        apply(&mut m, act);
        m.find(path).ok() == id
    });
    id.filter(|_| stays)
}

/// Is a file of this name with these contents in some directory?
fn elsewhere(tree: &BTreeMap<String, Seen>, path: &str, bytes: &Contents) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    tree.iter().any(|(p, s)| p.rsplit('/').next() == Some(name) && s.bytes == *bytes)
}

fn promise(m: &Model, id: Option<usize>, promised: &mut BTreeMap<usize, Contents>) {
    if let Some(id) = id
        && let Node::File(bytes) = m.node(id)
    {
        promised.insert(id, bytes.clone());
    }
}

/// The object and everything below it.
fn below(m: &Model, id: usize) -> Vec<usize> {
    let mut all = vec![id];
    if let Node::Dir(names) = m.node(id) {
        names.values().for_each(|c| all.extend(below(m, *c)));
    }
    all
}

/// The real e2fsck's judgement; Ok where there is none.
pub(crate) fn e2fsck(disks: &[Image]) -> Result<(), String> {
    let Some((false, lines)) = run_e2fsck(disks, &std::env::temp_dir())? else { return Ok(()) };
    let line = lines.into_iter().find(|l| !l.starts_with("Pass") && !l.is_empty());
    Err(line.unwrap_or_else(|| "exit not 0".into()))
}

/// All that the real e2fsck says of the disks; None where there is none. Errors: it could not be
/// asked.
pub(crate) fn e2fsck_lines(disks: &[Image]) -> Result<Option<Vec<String>>, String> {
    Ok(run_e2fsck(disks, &std::env::temp_dir())?.map(|(_, lines)| lines))
}

/// Is it content (exit code 0), and what does it say? None: there is no e2fsck. Errors: it could
/// not be asked, which is no judgement: a full folder of temporary files must not look like one.
fn run_e2fsck(disks: &[Image], folder: &Path) -> Result<Option<(bool, Vec<String>)>, String> {
    let path = |n: usize| {
        let (process, thread) = (std::process::id(), std::thread::current().id());
        folder.join(format!("cairn-crash-{process}-{thread:?}.{n}"))
    };
    let paths: Vec<_> = (0..disks.len()).map(path).collect();
    let mut written = paths.iter().zip(disks).map(|(p, disk)| std::fs::write(p, disk.to_vec()));
    let run = match written.find_map(Result::err) {
        Some(e) => Err(format!("its image cannot be written: {e}")),
        None => match asked(disks, &paths) {
            Ok(output) => Ok(Some(output)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e.to_string()),
        },
    };
    paths.iter().for_each(|p| drop(std::fs::remove_file(p)));
    let output = run.map_err(|why| format!("e2fsck could not be asked: {why}"))?;
    Ok(output.map(|output| {
        let lines = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        (output.status.code() == Some(0), lines)
    }))
}

fn asked(disks: &[Image], paths: &[PathBuf]) -> std::io::Result<Output> {
    let tool = if Path::new("/sbin/e2fsck").exists() { "/sbin/e2fsck" } else { "e2fsck" };
    let mut command = std::process::Command::new(tool);
    command.arg("-fn").env("E2FSCK_TIME", JUDGED_SECS.to_string());
    let outside = volume::probe(&SimDevice(disks[0].clone()));
    if outside.is_ok_and(|p| p.superblock.journal_is_outside()) {
        command.arg("-j").arg(&paths[1]);
    }
    command.arg(&paths[0]).output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_e2fsck_that_cannot_be_asked_is_not_content() {
        let disks = [crate::subject::fresh(2 << 20, false)];
        let nowhere = std::env::temp_dir().join("cairn-no-such-folder");
        let asked = run_e2fsck(&disks, &nowhere);
        assert!(asked.is_err_and(|why| why.contains("could not be asked")));
    }
}

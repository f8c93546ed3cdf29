//! The judgement of modes whose operations are atomic: after recovery the volume is sound at once,
//! and its tree is the one that a prefix of the operations has made, a prefix that holds all that
//! was promised. File contents may differ from that as the mode's row in the table of modes says.
//!
//! Invariants:
//! * P1. No prefix ends within the setup, which was durable as a whole, and what is promised has
//!   been answered.
//! * P2. A caller who is alone has one act under way at the most.
//! * P3. There is a tree for each volume, and the disks are as many as before.
//! * P4. A prefix is one of the acts: there is a model of each moment, and no more of them are lost
//!   than were not promised.
//! * P5. What a later act may have written is a range of bytes that it was asked for.

use crate::acts::{Act, LINGERS_AT};
use crate::contents::Contents as Bytes;
use crate::holes::{borders, half_punched};
use crate::judge::{Expected, Verdict, e2fsck};
use crate::later::{Later, Shift, before, differ_by};
use crate::model::{Model, Node};
use crate::record::Lasted;
use crate::reopen::{other_when_closed, reopened, reopened_apart};
use crate::seen::same_objects;
use crate::setting::{JUDGED_SECS, exported};
use crate::soft::sets_attributes;
use crate::subject::{Seen, Setting, SimDevice, Subject};
use crate::times::{Times, fits};
use check::{Options, check};
use integrity::Plant;
use sim::{CrashImages, Image};
use std::collections::BTreeMap;
use vfs::Kind;
use volume::{Commit, Contents as Promise};

/// What contents may be, beside those of the prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// Nothing else.
    Exact,
    /// Bytes of later writes of at least so many bytes, which were being written back.
    OrLater(u64),
    /// The same of later writes' pieces, each in a block, of more than so many bytes.
    OrPieces(u64),
    /// Anything, unless the file was made durable.
    Any,
}

fn contents(s: Setting, block_bytes: u64) -> Contents {
    let up_to = s.threshold.unwrap_or((s.mode.info().threshold)(block_bytes));
    match s.mode.info().contents {
        Promise::Exact => Contents::Exact,
        Promise::ExactPieces => Contents::OrPieces(up_to),
        Promise::ExactWrites => Contents::OrLater(up_to + 1),
        Promise::Ordered => Contents::OrLater(0),
        Promise::OrderedIfAsked if s.ordered_data => Contents::OrLater(0),
        Promise::OrderedIfAsked | Promise::Any => Contents::Any,
    }
}

/// How a state is judged.
#[derive(Clone, Copy, Default)]
pub(crate) struct How {
    /// By the real e2fsck too.
    pub(crate) by_e2fsck: bool,
    /// Are volumes with one log opened one after the other, each while the others are away?
    pub(crate) apart: bool,
    /// Is it read once more when it was closed? Until then all may be in memory alone.
    pub(crate) closed: bool,
}

/// Judges a state, by what is expected of each volume.
pub(crate) fn judge(images: &[Image], setting: Setting, all: &[Expected<'_>], how: How) -> Verdict {
    let mut v = Verdict::default();
    let disks = images.to_vec();
    let plant = all[0].plant;
    let attributes = setting.has_values() || all.iter().any(sets_attributes);
    let opened = if how.apart {
        reopened_apart(disks, setting, (plant, attributes))
    } else {
        reopened(disks, setting, (plant, attributes))
    };
    let (trees, closed) = match opened {
        Ok(both) => both,
        Err(why) => {
            v.wrong.push(why);
            return v;
        }
    };
    let (found, volumes, disks) = (trees.len(), all.len(), closed.len());
    assert!(found == volumes && disks == images.len(), "P3: {found} of {volumes} on {disks} disks");
    if how.closed && !how.apart {
        let other = other_when_closed(&closed, setting, (&trees, attributes));
        v.wrong.extend(other);
    }
    for (n, (e, tree)) in all.iter().zip(&trees).enumerate() {
        let before = v.wrong.len();
        // With a journal outside, e2fsck wants that disk too.
        let (mine, logs) = (&closed[n], &closed[all.len()..]);
        let mine: Vec<Image> = std::iter::once(mine).chain(logs).cloned().collect();
        judge_one(&mine, tree, (setting, how.by_e2fsck, attributes), (e, &mut v));
        if n > 0 {
            v.wrong[before..].iter_mut().for_each(|w| *w = format!("volume {}: {w}", n + 1));
        }
    }
    v
}

/// Judges one volume that was recovered, read and closed.
fn judge_one(
    closed: &[Image],
    tree: &BTreeMap<String, Seen>,
    (setting, by_e2fsck, attributes): (Setting, bool, bool),
    (e, v): (&Expected<'_>, &mut Verdict),
) {
    let plain = match setting.in_segments() {
        true => exported(&closed[0], false).and_then(|(image, kept)| {
            match crate::segments::kept_for_nothing(&image, &kept)? {
                Some(b) => Err(format!("the store keeps block {b}, which is free")),
                None => Ok(vec![image]),
            }
        }),
        false => Ok(closed.to_vec()),
    };
    let closed = match plain {
        Ok(plain) => plain,
        Err(why) => {
            v.wrong.push(format!("exporting: {why}"));
            return;
        }
    };
    let options = Options { now_secs: JUDGED_SECS, verify: false, mark_clean: false };
    match check(&SimDevice(closed[0].clone()), &options, &mut ()) {
        Err(why) => v.wrong.push(format!("checking: {why}")),
        Ok(report) => {
            v.wrong.extend(report.findings.first().map(|f| format!("after recovery: {f}")));
        }
    }
    if by_e2fsck && let Err(text) = e2fsck(&closed) {
        v.wrong.push(format!("e2fsck after recovery: {text}"));
    }
    let alone = e.callers <= 1;
    for lane in 0..e.callers {
        let mine = |p: &str| alone || (0..e.callers).all(|l| l == lane || !is_of(p, l));
        let tree = tree.iter().filter(|(p, _)| mine(p)).collect();
        let caller = Caller {
            redo: setting.mode.is_logging(),
            remote: lane >= e.remote,
            // Whose pause it was, is not told; beside NFS clients only the first one rests.
            rests: alone || lane == 0 && e.remote == 1,
            alone,
            attributes,
        };
        match Lane::of(e, mine, caller).find(&tree, setting) {
            Ok(lost) if lost > 0 => drop(v.losses.insert("operations")),
            Ok(_) => (),
            Err(why) => v.wrong.push(why),
        }
    }
}

/// The planted bug, if it is one of recovery.
pub(crate) fn in_recovery(plant: Plant) -> Plant {
    let of_recovery = |p: &&str| {
        ["torn-tail-accepted", "emptied-before-home"].contains(p) || lfs::PLANTS.contains(p)
    };
    Plant(plant.0.filter(of_recovery))
}

/// Judges what a second power cut leaves, in the middle of recovery or of what opening does next.
pub(crate) fn judge_again(
    images: &[Image],
    setting: Setting,
    all: &[Expected<'_>],
    v: &mut Verdict,
) {
    let plant = in_recovery(all[0].plant);
    let opened = Subject::open(images.to_vec(), setting, false, (plant, 1));
    let Ok(s) = opened else { return }; // it has been judged
    let trace = &s.world.trace;
    let mut states = CrashImages::of_disks(trace, images.to_vec());
    let mut cut = 0;
    while states.step().is_some() {
        cut += 1;
        // Nothing volatile, all of it, and one mixture with torn sectors.
        for variant in [0, 2, 3 + 2 * states.volatile.len() as u64] {
            let after = judge(&states.images(variant), setting, all, How::default());
            v.again += 1;
            let told = |w: String| format!("cut again after event {cut} of recovery: {w}");
            v.wrong.extend(after.wrong.into_iter().map(told));
        }
        if !v.wrong.is_empty() {
            return;
        }
    }
}

/// Is the path one of this caller's own?
fn is_of(path: &str, lane: u64) -> bool {
    path.contains(&format!("/c{lane}n"))
}

/// How a caller asks.
#[derive(Clone, Copy)]
struct Caller {
    /// In a mode whose operations go into a log of ours.
    redo: bool,
    /// As NFS clients do.
    remote: bool,
    /// Are the pauses among the acts his?
    rests: bool,
    /// Is there nobody else?
    alone: bool,
    /// Is it known what attributes there are?
    attributes: bool,
}

/// The acts of one caller, in their order, and how many of them are promised.
struct Lane<'a> {
    acts: Vec<&'a Act>,
    /// When each was done.
    lasted: Vec<Lasted>,
    /// Is there nobody else? Of what several change at once the order is not known.
    alone: bool,
    promised_sync: usize,
    done: usize,
    /// So many of them were the setup's: they are durable, as a whole.
    setup: usize,
    /// Is it known what attributes there are?
    attributes: bool,
}

impl<'a> Lane<'a> {
    fn of(e: &Expected<'a>, mine: impl Fn(&str) -> bool, caller: Caller) -> Lane<'a> {
        let is_mine = |a: &&Act| a.paths().iter().all(|p| mine(p));
        let done: Vec<&Act> = e.done.iter().filter(is_mine).collect();
        let setup = e.done.iter().take(e.setup).filter(is_mine).count();
        let under_way = e.in_flight.iter().copied().filter(is_mine);
        // By their places among his own.
        let mut own = vec![0];
        e.done.iter().for_each(|a| own.push(own[own.len() - 1] + usize::from(is_mine(&a))));
        let is_own = |n: &usize| own[n + 1] > own[*n];
        let began = (0..e.done.len()).filter(is_own).map(|n| own[e.before(n)]);
        let began: Vec<usize> = began.collect();
        let (promised_sync, count) = (promised(&done, &began, setup, caller), done.len());
        let acts: Vec<&Act> = done.into_iter().chain(under_way).collect();
        let one = acts.len() - count <= 1;
        assert!(one || !caller.alone, "P2: one caller has several acts under way");
        let all = e.done.iter().chain(e.in_flight.iter().copied()).enumerate();
        let lasted = all.filter(|(_, a)| is_mine(a)).map(|(n, _)| e.lasted(n)).collect();
        let Caller { alone, attributes, .. } = caller;
        Lane { acts, lasted, alone, promised_sync, done: count, setup, attributes }
    }

    /// Finds the prefix; returns how many answered operations are not in it. Errors: there is none,
    /// and what the nearest of them differs in.
    fn find(&self, tree: &Tree<'_>, mode: Setting) -> Result<usize, String> {
        let returned = mode.mode.is_logging() && mode.commit == Commit::Sync;
        let least = if returned { self.done } else { self.promised_sync };
        let (setup, done) = (self.setup, self.done);
        assert!(setup <= least && least <= done, "P1: {least} of {done} acts, {setup} the setup's");
        let mut model = Model::default();
        let mut models = vec![model.clone()];
        for (i, a) in self.acts.iter().enumerate() {
            let _ = model.apply(a);
            // Nobody asks for a moment of the setup, which may have many.
            models.push(if i + 1 < self.setup { Model::default() } else { model.clone() });
        }
        let (has, acts) = (models.len(), self.acts.len());
        assert_eq!(has, acts + 1, "P4: a model of each moment");
        let mut nearest = String::new();
        for k in (least..=self.acts.len()).rev() {
            match self.compare(tree, k, &models, mode) {
                Ok(()) => {
                    let lost = self.done.saturating_sub(k);
                    assert!(lost <= done - least, "P4: {lost} of {done} are lost, not {least}");
                    return Ok(lost);
                }
                Err(why) => nearest = format!("{why}; {nearest}"),
            }
        }
        let (n, short) = (self.acts.len(), nearest.chars().take(300).collect::<String>());
        Err(format!("no prefix of {least} to {n} operations fits: {short}"))
    }

    /// Is the tree the one after `k` acts?
    fn compare(
        &self,
        tree: &Tree<'_>,
        k: usize,
        models: &[Model],
        mode: Setting,
    ) -> Result<(), String> {
        let model = &models[k];
        let names = model.tree();
        let mut objects = Vec::new();
        let times = self.times(k, models);
        if let Some(path) = tree.keys().find(|p| !names.contains_key(**p)) {
            return Err(format!("{path} is there"));
        }
        for (path, id) in &names {
            let Some(seen) = tree.get(path) else { return Err(format!("{path} is missing")) };
            objects.push((path.as_str(), seen.ino, *id));
            let named = !self.attributes || seen.attribute == model.attribute(*id);
            let right = match model.node(*id) {
                Node::Dir(_) => seen.kind == Kind::Dir && named,
                Node::Whiteout => seen.kind == Kind::Char,
                Node::Symlink(text) => seen.kind == Kind::Symlink && seen.bytes == text[..],
                Node::File(bytes) => {
                    let sized = seen.kind == Kind::File && seen.size == bytes.len();
                    sized && named && self.holds(&seen.bytes, (path, *id), k, (models, mode))
                }
            };
            if !right {
                return Err(format!("{path} is another (of {} bytes)", seen.size));
            }
            if times.of(*id).is_some_and(|spans| !fits(spans, seen)) {
                return Err(format!("{path} has the time of another change"));
            }
            if seen.owner != model.owner(*id) {
                return Err(format!("{path} is owned by another, or has other permissions"));
            }
        }
        same_objects(objects)
    }

    /// When the files were changed last, after `k` acts.
    fn times(&self, k: usize, models: &[Model]) -> Times {
        let mut times = Times::default();
        let acts = self.acts.iter().zip(&self.lasted).enumerate().take(k);
        for (i, (act, lasted)) in acts.skip(self.setup).filter(|_| self.alone) {
            let find = |m: &Model| Times::path(act).and_then(|p| m.find(p).ok());
            times.note(act, (find(&models[i]), find(&models[i + 1])), (*lasted, true));
        }
        times
    }

    /// May the file have these contents?
    fn holds(
        &self,
        bytes: &Bytes,
        (_, id): (&str, usize),
        k: usize,
        (models, mode): (&[Model], Setting),
    ) -> bool {
        // What was made durable is there, whichever operations are.
        let k = k.max(self.synced(id, models));
        let Node::File(want) = models[k].node(id) else { return false };
        if self.is_like(bytes, want, (id, k), (models, mode)) {
            return true;
        }
        // Of a hole that is long, its first steps may be there.
        let Some(Act::Punch(p, at, len) | Act::Zero(p, at, len, _)) = self.acts.get(k) else {
            return false;
        };
        let about = models[k].find(p).ok() == Some(id);
        let borders = if about { borders(mode, want, (*at, *len)) } else { Vec::new() };
        borders.iter().any(|b| {
            let half = half_punched(want, (*at, *len), *b);
            self.is_like(bytes, &half, (id, k), (models, mode))
        })
    }

    /// Are these the wanted contents, or as good?
    fn is_like(
        &self,
        bytes: &Bytes,
        want: &Bytes,
        (id, k): (usize, usize),
        (models, mode): (&[Model], Setting),
    ) -> bool {
        if bytes == want {
            return true;
        }
        let bs = mode.block_bytes;
        match contents(mode, bs) {
            Contents::Exact => false,
            Contents::Any => !self.is_durable(id, k, models),
            Contents::OrLater(least) => {
                differ_by(bytes, want, &self.later_writes((id, k), models, least, bs))
            }
            Contents::OrPieces(most) => {
                let later = self.later_writes((id, k), models, 0, bs);
                let pieces = later.iter().flat_map(|l| l.pieces(bs));
                let direct: Vec<Later> = pieces.filter(|p| p.to - p.from > most).collect();
                differ_by(bytes, want, &direct)
            }
        }
    }

    /// After how many acts the file's contents were last made durable, within what was answered.
    fn synced(&self, id: usize, models: &[Model]) -> usize {
        let done = self.acts[..self.done].iter().enumerate();
        let of = |(i, a): (usize, &&Act)| {
            let is_it = a.synced_file().is_some_and(|p| models[i].find(p).ok() == Some(id));
            is_it.then_some(i + 1)
        };
        done.filter_map(of).next_back().unwrap_or(0)
    }

    /// Was the file made durable after its last write, within what was answered?
    fn is_durable(&self, id: usize, k: usize, models: &[Model]) -> bool {
        let mut durable = self.setup > 0;
        for (i, act) in self.acts.iter().enumerate().skip(self.setup) {
            let about = |p: &str| models[i].find(p).ok() == Some(id);
            let emerges =
                matches!(act, Act::Emerge(p, ..) if models[i + 1].find(p).ok() == Some(id));
            if emerges || act.changed_file().is_some_and(about) {
                durable = false;
            }
            let synced = **act == Act::Sync || act.synced_file().is_some_and(about);
            if i < self.done && synced {
                durable = true;
            }
        }
        durable && k > 0
    }

    /// What acts after the first `k` may have put into the file's blocks.
    fn later_writes(
        &self,
        (id, k): (usize, usize),
        models: &[Model],
        least: u64,
        bs: u64,
    ) -> Vec<Later> {
        let (mut all, mut shifts) = (Vec::new(), Vec::new());
        for (i, act) in self.acts.iter().enumerate().skip(k) {
            let about = |p: &str| models[i].find(p).ok() == Some(id);
            if !act.changed_file().is_some_and(about) {
                continue;
            }
            let Node::File(old) = models[i].node(id) else { continue };
            if let Some(shift) = Shift::of(act) {
                shifts.push(shift);
                continue;
            }
            let first = all.len();
            // What lies behind a file's end is zeroed within its block.
            let zeros_from = |from: u64| {
                let (to, byte) = (from.next_multiple_of(bs), 0);
                Later { from, to, byte }
            };
            let end = old.len();
            let written = match act {
                Act::Linger(_, len, byte) => Some((LINGERS_AT, *len, *byte)),
                _ => act.written().map(|(_, at, len, byte)| (at, len, byte)),
            };
            if let Some((at, len, byte)) = written
                && len as u64 >= least
            {
                all.push(Later { from: at, to: at + len as u64, byte });
                all.push(zeros_from(end));
            }
            match act {
                Act::Allocate(.., false) | Act::Zero(.., false) if least == 0 => {
                    all.push(zeros_from(end));
                }
                _ => (),
            }
            match act {
                Act::Truncate(_, size) | Act::Vanish(_, size) if least == 0 => {
                    all.push(zeros_from(end.min(*size)))
                }
                Act::Punch(_, at, len) | Act::Zero(_, at, len, _) if least == 0 => {
                    let to = (at + len).min(end);
                    all.push(Later { from: *at, to: at.next_multiple_of(bs), byte: 0 });
                    all.push(Later { from: to - to % bs, to, byte: 0 });
                }
                _ => (),
            }
            // In which blocks that was before others were put in or taken out.
            let here = all.split_off(first);
            let turned = here.iter().find(|l| l.from > l.to);
            assert!(turned.is_none(), "P5: {act:?} may have written {:?}", turned.map(|l| l.from));
            all.extend(here.into_iter().flat_map(|l| before(&shifts, l)));
        }
        all
    }
}

/// One caller's part of the tree that was found.
type Tree<'a> = BTreeMap<&'a String, &'a Seen>;

/// Does it change nothing but bytes that the file has, so that its length tells nothing of it?
fn overwrites(act: &Act, model: &Model) -> bool {
    let (p, at, len) = match act {
        Act::Punch(..) | Act::Allocate(.., true) | Act::Zero(.., true) => return true,
        Act::Allocate(p, at, len, false) | Act::Zero(p, at, len, false) => {
            (p.as_str(), *at, *len as usize)
        }
        _ => match act.written() {
            Some((p, at, len, _)) => (p, at, len),
            None => return false,
        },
    };
    let Ok(Node::File(bytes)) = model.find(p).map(|id| model.node(id)) else { return false };
    at + len as u64 <= bytes.len()
}

/// Does it do nothing at all, so that nothing is promised of it? A rename of one of two names of an
/// object to the other; a hole behind the end.
fn is_idle(act: &Act, model: &Model) -> bool {
    match act {
        Act::Rename(a, b) | Act::Whiteout(a, b) | Act::Exchange(a, b) => {
            model.find(a).is_ok() && model.find(a) == model.find(b)
        }
        Act::Punch(p, at, _) => match model.find(p).map(|id| model.node(id)) {
            Ok(Node::File(bytes)) => *at >= bytes.len(),
            _ => false,
        },
        _ => false,
    }
}

/// Is all that returned before durable when the act is answered? To an NFS client every answer but
/// that to an unstable write says so, and the logs of ours go out by themselves in far less time
/// than a pause of a second.
fn makes_durable(act: &Act, Caller { redo, remote, rests, .. }: Caller) -> bool {
    match act {
        Act::Pause(secs) => *secs > 0 && redo && rests,
        Act::Create(_) | Act::Mkdir(_) | Act::Symlink(..) | Act::Link(..) => remote,
        Act::Unlink(_) | Act::Rmdir(_) | Act::Rename(..) | Act::Truncate(..) => remote,
        Act::Vanish(..) | Act::Linger(..) | Act::Exchange(..) => remote,
        _ => false,
    }
}

/// Is it durable when an NFS client is answered, with all that returned before?
pub(crate) fn answered_durably(act: &Act) -> bool {
    let client = Caller { redo: true, remote: true, rests: false, alone: false, attributes: false };
    makes_durable(act, client)
}

/// By object: the acts that concern it, each by how many there are up to it.
type Concerns = BTreeMap<usize, Vec<usize>>;

/// The last of the first `before` acts that concerns the object, and one; 0: none.
fn last_of(all: &Concerns, id: Option<usize>, before: usize) -> usize {
    let of = id.and_then(|id| all.get(&id)).map_or(&[][..], Vec::as_slice);
    of[..of.partition_point(|n| *n <= before)].last().copied().unwrap_or(0)
}

/// How many of the answered acts are promised: those of the setup, those before the last sync, and
/// of each fsync the last that made the file what it is, or gave it a name, or of a directory
/// changed a name in it. In a directory that several share, another's name may come between an
/// fsync and its answer, and is not promised: `began` says how many had been answered before it.
fn promised(done: &[&Act], began: &[usize], setup: usize, caller: Caller) -> usize {
    assert_eq!(done.len(), began.len(), "P1: it is not known when each act began");
    let mut least = setup;
    let mut model = Model::default();
    let mut all = Concerns::new();
    // The same without those that change nothing but contents and times: where contents are not of
    // one version with the rest, fdatasync promises no prefix for their sake.
    let mut essential = Concerns::new();
    for (i, act) in done.iter().enumerate() {
        let dirs = act.dirs();
        let about = || act.paths().into_iter().chain(dirs.iter().copied());
        let before: Vec<usize> = about().filter_map(|p| model.find(p).ok()).collect();
        if is_idle(act, &model) {
            continue;
        }
        let in_place = overwrites(act, &model);
        let _ = model.apply(act);
        if makes_durable(act, caller) || **act == Act::Sync {
            least = least.max(i + 1); // the setup may go on after it
        }
        match act {
            Act::Sync | Act::Read(_) | Act::Trim | Act::Pause(_) => (),
            Act::Fsync(p) | Act::Fdatasync(p) => {
                let of = if matches!(act, Act::Fsync(_)) { &all } else { &essential };
                least = least.max(last_of(of, model.find(p).ok(), began[i]));
            }
            _ => {
                let after = about().filter_map(|p| model.find(p).ok());
                before.into_iter().chain(after).for_each(|id| {
                    all.entry(id).or_default().push(i + 1);
                    if !in_place {
                        essential.entry(id).or_default().push(i + 1);
                    }
                });
            }
        }
        if let Act::WriteSync(p, ..) = act {
            least = least.max(last_of(&essential, model.find(p).ok(), i + 1));
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use volume::Mode;

    fn acts(all: &[Act]) -> Vec<Act> {
        all.to_vec()
    }

    fn create(p: &str) -> Act {
        Act::Create(p.into())
    }

    /// An empty file.
    fn file(ino: u32) -> Seen {
        let (kind, size, bytes, mode) = (Kind::File, 0, Bytes::default(), 0o755);
        let times = [vfs::Time::default(); 2];
        Seen { kind, ino, size, bytes, attribute: None, owner: None, mode, times }
    }

    fn dir(ino: u32) -> Seen {
        Seen { kind: Kind::Dir, ..file(ino) }
    }

    /// Is this what a prefix of the acts leaves, in a mode with a journal? One caller has done
    /// them, and so many were the setup's.
    fn found(done: &[Act], setup: usize, there: &[(&str, Seen)]) -> Result<usize, String> {
        let (in_flight, callers, remote, plant) = (&[][..], 1, u64::MAX, Plant::NONE);
        let e =
            Expected { done, in_flight, began: &[], lasted: &[], setup, callers, remote, plant };
        let (alone, attributes) = (true, sets_attributes(&e));
        let caller = Caller { redo: false, remote: false, rests: true, alone, attributes };
        let tree: BTreeMap<String, Seen> =
            there.iter().map(|(p, s)| ((*p).to_owned(), s.clone())).collect();
        Lane::of(&e, |_| true, caller).find(&tree.iter().collect(), Setting::plain(Mode::Ordered))
    }

    #[test]
    fn of_the_setup_nothing_is_lost() {
        // A sync in its middle is not all of what is durable.
        let done = acts(&[create("/a"), Act::Sync, create("/b"), create("/c")]);
        let (a, b) = (("/a", file(11)), ("/b", file(12)));
        assert_eq!(found(&done, 3, &[a.clone(), b]), Ok(1));
        assert!(found(&done, 3, &[a]).is_err());
        assert!(found(&done, 3, &[]).is_err());
    }

    #[test]
    fn two_files_are_two_inodes_and_two_names_are_one() {
        let done = acts(&[create("/a"), create("/b"), Act::Link("/a".into(), "/c".into())]);
        let names = |b, c| [("/a", file(11)), ("/b", file(b)), ("/c", file(c))];
        assert_eq!(found(&done, 3, &names(12, 11)), Ok(0));
        assert!(found(&done, 3, &names(11, 11)).is_err(), "one file in the place of two");
        assert!(found(&done, 3, &names(12, 13)).is_err(), "a link that is another file");
    }

    #[test]
    fn an_attribute_is_the_prefixs_too() {
        let set = |p: &str| Act::Attribute(p.into(), 40, 3);
        let done = acts(&[create("/a"), Act::Mkdir("/d".into()), set("/a"), set("/d"), Act::Sync]);
        let with = |of_a, of_d| {
            let a = Seen { attribute: of_a, ..file(11) };
            [("/a", a), ("/d", Seen { attribute: of_d, ..dir(12) })]
        };
        let value = Some((40, 3));
        assert_eq!(found(&done, 2, &with(value, value)), Ok(0));
        for (of_a, of_d) in [(None, value), (value, None), (Some((40, 4)), value)] {
            assert!(found(&done, 2, &with(of_a, of_d)).is_err(), "{of_a:?} {of_d:?}");
        }
        assert_eq!(found(&done[..4], 2, &with(value, None)), Ok(1), "not yet durable");
    }

    /// Two callers in one directory: one has it made durable while the other makes a file.
    #[test]
    fn what_was_answered_before_anothers_fsync_of_the_directory_is_promised() {
        let done = acts(&[Act::Mkdir("/d".into()), create("/d/c0na"), Act::Fsync("/d".into())]);
        let least = |began: &[usize]| {
            let (in_flight, callers, remote, plant) = (&[][..], 2, u64::MAX, Plant::NONE);
            let e = Expected {
                done: &done,
                in_flight,
                began,
                lasted: &[],
                setup: 1,
                callers,
                remote,
                plant,
            };
            let caller = Caller {
                redo: false,
                remote: false,
                rests: false,
                alone: false,
                attributes: false,
            };
            Lane::of(&e, |_| true, caller).promised_sync
        };
        assert_eq!(least(&[0, 1, 2]), 2, "the file was there when the fsync began");
        assert_eq!(least(&[0, 1, 1]), 1, "it was answered in the middle of it");
        assert_eq!(least(&[]), 1, "nobody knows");
    }

    #[test]
    fn an_fsync_of_a_directory_promises_its_names() {
        let (mkdir, sync) = (Act::Mkdir("/d".into()), |p: &str| Act::Fsync(p.into()));
        let done = acts(&[mkdir.clone(), create("/d/f"), create("/g"), sync("/d")]);
        let d = ("/d", dir(11));
        assert_eq!(found(&done, 1, &[d.clone(), ("/d/f", file(12))]), Ok(2));
        assert!(found(&done, 1, std::slice::from_ref(&d)).is_err(), "made durable, and gone");
        let gone = acts(&[mkdir, create("/d/f"), Act::Unlink("/d/f".into()), sync("/d")]);
        assert!(found(&gone, 2, &[d, ("/d/f", file(12))]).is_err(), "one whose end was");
    }
}

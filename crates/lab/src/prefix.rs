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
use crate::promised::promised;
use crate::record::Lasted;
use crate::reopen::{other_when_closed, reopened, reopened_apart};
use crate::seen::same_objects;
use crate::setting::{JUDGED_SECS, exported};
use crate::soft::sets_attributes;
use crate::subject::{Seen, Setting, SimDevice, Subject};
use crate::times::Times;
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
            lane,
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

/// Judges what a second power cut leaves, in the middle of recovery or of what opening does next;
/// of some of these states, what a third one leaves of the recovery from them. `cuts`: so many more
/// there are.
pub(crate) fn judge_again(
    images: &[Image],
    setting: Setting,
    all: &[Expected<'_>],
    (cuts, v): (u64, &mut Verdict),
) {
    /// Of so many moments, one is gone on from.
    const FURTHER_OF: u64 = 5;
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
        if cuts > 1 && v.wrong.is_empty() && cut % FURTHER_OF == 2 {
            judge_again(&states.images(2), setting, all, (cuts - 1, v));
        }
        if !v.wrong.is_empty() {
            return;
        }
    }
}

/// Is the path one of this caller's own?
fn is_of(path: &str, lane: u64) -> bool {
    path.contains(&mark_of(lane))
}

/// What a caller's own paths have in them.
fn mark_of(lane: u64) -> String {
    format!("/c{lane}n")
}

/// May its first steps be done, and not the others?
fn is_in_steps(act: &Act) -> bool {
    matches!(act, Act::Punch(..) | Act::Zero(..))
}

/// How a caller asks.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    /// Which of them he is.
    pub(crate) lane: u64,
    /// In a mode whose operations go into a log of ours.
    pub(crate) redo: bool,
    /// As NFS clients do.
    pub(crate) remote: bool,
    /// Are the pauses among the acts his?
    pub(crate) rests: bool,
    /// Is there nobody else?
    pub(crate) alone: bool,
    /// Is it known what attributes there are?
    pub(crate) attributes: bool,
}

/// The acts of one caller, in their order, and how many of them are promised.
struct Lane<'a> {
    acts: Vec<&'a Act>,
    /// When each was done.
    lasted: Vec<Lasted>,
    /// How many of them had been answered when each of those that were answered began.
    began: Vec<usize>,
    /// Is there nobody else? Of what several change at once the order is not known.
    alone: bool,
    promised_sync: usize,
    done: usize,
    /// So many of them were the setup's: they are durable, as a whole.
    setup: usize,
    /// Is it known what attributes there are?
    attributes: bool,
    /// What paths of his own have in them.
    mark: String,
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
        let mark = mark_of(caller.lane);
        let done = count;
        Lane { acts, lasted, began, alone, promised_sync, done, setup, attributes, mark }
    }

    /// How many of his acts had been answered when this one, which was answered, began. What makes
    /// durable what it writes itself begins, as it were, when it ends.
    fn began(&self, n: usize, act: &Act) -> usize {
        if matches!(act, Act::WriteSync(..)) { n + 1 } else { self.began[n] }
    }

    /// Finds the prefix; returns how many answered operations are not in it. Errors: there is none,
    /// and what the nearest of them differs in.
    fn find(&self, tree: &Tree<'_>, mode: Setting) -> Result<usize, String> {
        let returned = mode.mode.is_logging() && mode.commit == Commit::Sync;
        let least = if returned { self.done } else { self.promised_sync };
        let (setup, done) = (self.setup, self.done);
        assert!(setup <= least && least <= done, "P1: {least} of {done} acts, {setup} the setup's");
        let (mut model, mut times) = (Model::default(), Times::default());
        let mut models = vec![model.clone()];
        for (i, a) in self.acts.iter().enumerate() {
            let was = Times::touched(a, &model);
            let _ = model.apply(a);
            // One that is under way is done, where it is one of the prefix.
            times.note(a, (&was, &model), (self.lasted[i], true));
            // Nobody asks for a moment of the setup, which may have many.
            models.push(if i + 1 < self.setup { Model::default() } else { model.clone() });
        }
        let (has, acts) = (models.len(), self.acts.len());
        assert_eq!(has, acts + 1, "P4: a model of each moment");
        let mut nearest = String::new();
        for k in (least..=self.acts.len()).rev() {
            match self.compare(tree, k, (&models, &times), mode) {
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
        (models, times): (&[Model], &Times),
        mode: Setting,
    ) -> Result<(), String> {
        let model = &models[k];
        let names = model.tree();
        let mut objects = Vec::new();
        // Of an act in several steps, the first of them may be there.
        let begun = usize::from(self.acts.get(k).is_some_and(|act| is_in_steps(act)));
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
            let judged = self.alone || path.contains(&self.mark);
            let wrong = judged.then(|| times.wrong(*id, (k, k + begun), seen)).flatten();
            if let Some(which) = wrong {
                return Err(format!("{path} has {which}"));
            }
            if seen.owner != model.owner(*id) {
                return Err(format!("{path} is owned by another, or has other permissions"));
            }
        }
        same_objects(objects)
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
        let last = (0..self.done).rev().find(|i| self.syncs(*i, id, models));
        last.map_or(0, |i| self.began(i, self.acts[i]))
    }

    /// Has the n-th act, which was answered, made the file's contents durable? Another caller's may
    /// have found another file at its path, if names have changed in its middle.
    fn syncs(&self, n: usize, id: usize, models: &[Model]) -> bool {
        let Some(p) = self.acts[n].synced_file() else { return false };
        let then = self.began[n].max(self.setup.min(n));
        (then..=n).all(|i| models[i].find(p).ok() == Some(id))
    }

    /// Was the file made durable after its last write, within what was answered?
    fn is_durable(&self, id: usize, k: usize, models: &[Model]) -> bool {
        let (mut durable, mut changed) = (self.setup > 0, 0);
        for (i, act) in self.acts.iter().enumerate().skip(self.setup) {
            let about = |p: &str| models[i].find(p).ok() == Some(id);
            let emerges =
                matches!(act, Act::Emerge(p, ..) if models[i + 1].find(p).ok() == Some(id));
            if emerges || act.changed_file().is_some_and(about) {
                (durable, changed) = (false, i + 1);
            }
            if i < self.done && (act.syncs_all() || self.syncs(i, id, models)) {
                durable |= changed <= self.began(i, act);
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
        let times = [vfs::Time::default(); 3];
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
        let (redo, remote, rests) = (false, false, true);
        let caller = Caller { lane: 0, redo, remote, rests, alone, attributes };
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
                lane: 0,
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

    /// How many acts are promised of these, which have one setup act and several callers.
    fn least(done: &[Act], began: &[usize]) -> usize {
        let (in_flight, lasted, setup, callers) = (&[][..], &[][..], 1, 3);
        let (remote, plant) = (u64::MAX, Plant::NONE);
        let e = Expected { done, in_flight, began, lasted, setup, callers, remote, plant };
        let (redo, alone, attributes) = (false, false, false);
        let caller = Caller { lane: 0, redo, remote: false, rests: false, alone, attributes };
        Lane::of(&e, |_| true, caller).promised_sync
    }

    #[test]
    fn what_was_answered_in_the_middle_of_anothers_sync_is_not_promised() {
        let done = acts(&[Act::Mkdir("/d".into()), create("/d/a"), create("/d/b"), Act::Sync]);
        assert_eq!(least(&done, &[0, 1, 2, 3]), 3, "all were there when it began");
        assert_eq!(least(&done, &[0, 1, 2, 2]), 2, "the last was answered in its middle");
    }

    #[test]
    fn another_may_have_found_another_file_at_the_path_that_it_makes_durable() {
        let made = [create("/c0na"), create("/c0nb"), Act::Write("/c0nb".into(), 0, 10, 1)];
        let moved = [Act::Rename("/c0nb".into(), "/c0na".into()), Act::Fsync("/c0na".into())];
        let done = acts(&[&made[..], &moved].concat());
        assert_eq!(least(&done, &[0, 1, 2, 3, 4]), 4, "the file with its new name");
        assert_eq!(least(&done, &[0, 1, 2, 3, 3]), 1, "it may have been the one before");
    }

    #[test]
    fn fdatasync_promises_neither_owners_nor_times() {
        let own = [create("/a"), Act::Own("/a".into(), 3), Act::Date("/a".into(), 4)];
        let with = |sync: Act| acts(&[&own[..], &[sync]].concat());
        let fdatasync = with(Act::Fdatasync("/a".into()));
        assert_eq!(least(&fdatasync, &[0, 1, 2, 3]), 1);
        assert_eq!(least(&with(Act::Fsync("/a".into())), &[0, 1, 2, 3]), 3);
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

//! A volume's life between modes: used in one mode, closed or cut off, recovered, opened in
//! another, used and closed. The power fails at every write of recovering, opening and closing, and
//! then the volume is recovered as `cairn recover` does it, which must leave plain ext3, and goes
//! on in a third mode. The other scenarios open again in the mode that was cut off. It shows G1 and
//! G2 of crates/volume/src/log.rs, and finds each when it is broken (`guard-before-flag`,
//! `flag-before-guard`).

use crate::acts::Act;
use crate::again::recorded_recovery;
use crate::contents::Contents;
use crate::crash::{CrashOptions, Judged, StateId, in_order};
use crate::judge::{e2fsck, force_repair};
use crate::model::{Model, Node};
use crate::record::Progress;
use crate::setting::JUDGED_SECS;
use crate::subject::{Seen, Setting, SimDevice, Subject, VolumeKind, new_disks, recover};
use check::{Options, check};
use format::ext::features::incompat;
use format::jbd2::incompat as journal_incompat;
use integrity::Plant;
use sim::{CrashImages, Image, Trace};
use std::collections::{BTreeMap, BTreeSet};
use vfs::Kind;
use volume::{AfterCrash, MODES, Mode, Probe, probe};

/// The scenario's name.
pub(crate) const NAME: &str = "lifecycle";
const VOLUME_BYTES: u64 = 3 << 20;
/// The mark of acts that no state is judged by.
const NO_ACT: u64 = u64::MAX / 4;
/// Seeded variants of each cut.
const RANDOM_VARIANTS: u64 = 2;
/// Of so many states the real e2fsck judges one.
const E2FSCK_OF: u64 = 32;
/// Each mode before this one, closed or cut off, a few times over.
const TIMES: u64 = 4;

/// How many seeds there are.
pub(crate) fn seeds() -> u64 {
    2 * MODES.len() as u64 * TIMES
}

/// What is cut off: the disks before, and what they were asked.
struct Stage {
    base: Vec<Image>,
    trace: Trace,
}

/// What may be there after a cut, and what must be: files with their bytes, directories without.
struct Names {
    /// How many times as long as usual a block is.
    times: u64,
    kept: BTreeMap<String, Option<Contents>>,
    possible: BTreeSet<String>,
}

fn s(p: &str) -> String {
    p.to_owned()
}

fn scaled(acts: impl IntoIterator<Item = Act>, times: u64) -> Vec<Act> {
    acts.into_iter().map(|a| if times == 1 { a } else { a.scaled(times) }).collect()
}

/// Done in the first mode, and durable.
fn before(times: u64) -> Vec<Act> {
    let acts = [
        Act::Mkdir(s("/d")),
        Act::Create(s("/d/f")),
        Act::Write(s("/d/f"), 0, 3000, 1),
        Act::Create(s("/old")),
        Act::Write(s("/old"), 0, 9000, 2),
        Act::Sync,
    ];
    scaled(acts, times)
}

/// Done in the mode that is looked at; all of it is durable when the last has been answered.
fn during(times: u64) -> Vec<Act> {
    let acts = [
        Act::Create(s("/d/new")),
        Act::Write(s("/d/new"), 0, 5000, 3),
        Act::Unlink(s("/old")),
        Act::Mkdir(s("/d/e")),
        Act::Sync,
    ];
    scaled(acts, times)
}

/// Done in the mode after it.
fn after(times: u64) -> Vec<Act> {
    let acts = [Act::Create(s("/after")), Act::Write(s("/after"), 0, 2000, 4), Act::Sync];
    scaled(acts, times)
}

fn names_after(acts: &[Act]) -> BTreeMap<String, Option<Contents>> {
    let mut m = Model::default();
    for a in acts {
        let done = m.apply(a);
        assert_eq!(done, Ok(()), "{a:?} of the scripted life is not possible");
    }
    let bytes = |id: usize| match m.node(id) {
        Node::File(bytes) => Some(bytes.clone()),
        _ => None,
    };
    m.tree().into_iter().map(|(path, id)| (path, bytes(id))).collect()
}

impl Names {
    /// At a moment when so many of [`during`] have been answered.
    fn at(answered: usize, times: u64) -> Names {
        let old = names_after(&before(times));
        let new = names_after(&[before(times), during(times)].concat());
        let all = during(times).len();
        assert!(answered <= all, "{answered} acts of {all} were answered");
        if answered == during(times).len() {
            return Names { times, possible: new.keys().cloned().collect(), kept: new };
        }
        let possible = old.keys().chain(new.keys()).cloned().collect();
        Names {
            times,
            possible,
            kept: old.into_iter().filter(|(p, _)| new.contains_key(p)).collect(),
        }
    }

    fn and_after(mut self) -> Names {
        for (path, bytes) in names_after(&after(self.times)) {
            self.possible.insert(path.clone());
            self.kept.insert(path, bytes);
        }
        self
    }

    fn check(&self, tree: &BTreeMap<String, Seen>) -> Result<(), String> {
        for (path, bytes) in &self.kept {
            match (tree.get(path), bytes) {
                (None, _) => return Err(format!("{path} is missing")),
                (Some(s), Some(b)) if s.kind != Kind::File || s.bytes != *b => {
                    return Err(format!("{path} has other contents"));
                }
                (Some(s), None) if s.kind != Kind::Dir => {
                    return Err(format!("{path} is {:?}", s.kind));
                }
                _ => (),
            }
        }
        let strange = tree.keys().find(|p| !self.possible.contains(*p));
        strange.map_or(Ok(()), |p| Err(format!("{p} was never made, or was removed durably")))
    }
}

/// Another mode on the disks of `of`, with its log where these have it.
fn other(of: Setting, mode: Mode) -> Setting {
    let plain = Setting { kind: of.kind, ..Setting::plain(mode).with_blocks(of.block_bytes) };
    if of.kind != VolumeKind::Ext3 && !plain.has_journal() {
        return of; // it does not write such volumes
    }
    match of.outside {
        _ if mode == of.mode => of,
        false => plain,
        // A journal on a device of its own keeps out who has his log inside it.
        true if of.mode.is_journal() && mode.is_redo() => {
            let sync = Setting::plain(Mode::Sync).with_blocks(of.block_bytes);
            Setting { outside: true, ..sync }
        }
        true => Setting { outside: of.mode.is_journal() || mode.is_redo(), ..plain },
    }
}

/// The disks that a mode is opened with.
fn disks_of(all: &[Image], setting: Setting) -> Vec<Image> {
    all[..if setting.outside { all.len() } else { 1 }].to_vec()
}

fn put_back(all: &mut [Image], disks: Vec<Image>) {
    all.iter_mut().zip(disks).for_each(|(old, new)| *old = new);
}

fn open(all: &[Image], setting: Setting, plant: Plant, seed: u64) -> Result<Subject, String> {
    Subject::open(disks_of(all, setting), setting, false, (plant, seed))
}

fn do_all(v: &mut Subject, acts: &[Act]) -> Result<(), String> {
    let act = |a: &Act| v.act(NO_ACT, a).map_err(|e| format!("{a:?}: {e}"));
    acts.iter().try_for_each(act)
}

/// The life of a seed: recovery in the middle, then the mode itself.
fn live(o: &CrashOptions, seed: u64) -> Result<Vec<Stage>, String> {
    let count = MODES.len() as u64;
    let first = other(o.setting, MODES[(seed % count) as usize].mode);
    let made_for = match o.setting.has_journal() {
        true => o.setting,
        false => Setting::plain(Mode::Ordered).with_blocks(o.setting.block_bytes),
    };
    let times = o.setting.block_scale();
    let mut all = new_disks(VOLUME_BYTES * times, made_for);
    let mut v = open(&all, first, Plant::NONE, seed)?;
    do_all(&mut v, &before(times))?;
    // What a log elsewhere holds is for the mode that left it there.
    let cut_off = (seed / count) % 2 == 1 && first.outside == o.setting.outside;
    let left = if cut_off { v.disks() } else { v.close().map_err(|e| format!("closing: {e}"))? };
    put_back(&mut all, left);
    let (trace, recovered) = recorded_recovery(&all, true)?;
    let recovery = Stage { base: std::mem::replace(&mut all, recovered), trace };
    let mut v = open(&all, o.setting, o.plant, seed)?;
    let done = v.act_in_lanes(&during(times), 1, (1, false, false), 60);
    if let Some(act) = never_answered(&during(times), &done) {
        v.leave();
        return Err(format!("in mode {}: {act:?} is never answered", o.setting.mode));
    }
    let failed = done.into_iter().flatten().find_map(Result::err);
    let closed = failed.map_or_else(|| v.shut(), Err);
    if o.plant == Plant::NONE {
        closed.map_err(|e| format!("in mode {}: {e}", o.setting.mode))?;
    }
    let trace = std::mem::take(&mut v.world.trace);
    Ok(vec![recovery, Stage { base: all, trace }])
}

/// The first act that got no answer: whoever left it out would take it for one under way, of which
/// nothing is promised.
fn never_answered<'a, T>(acts: &'a [Act], answers: &[Option<T>]) -> Option<&'a Act> {
    acts.iter().zip(answers).find(|(_, answer)| answer.is_none()).map(|(act, _)| act)
}

/// The states of one seed, each judged once. `only`: one of them.
pub(crate) fn explore_life(
    o: &CrashOptions,
    seed: u64,
    only: Option<StateId>,
) -> Result<Vec<Judged>, String> {
    let mut all = Vec::new();
    if o.setting.volumes > 1 || o.setting.in_segments() {
        return Ok(all); // they would have to go from mode to mode together, or have no other
    }
    let (mut seen, mut cut, times) = (BTreeSet::new(), 0, o.setting.block_scale());
    for stage in live(o, seed)? {
        let mut images = CrashImages::of_disks(&stage.trace, stage.base.clone());
        let mut progress = Progress::default();
        loop {
            let wanted = only.is_none_or(|(c, _)| c == cut);
            for variant in (0..images.variants(RANDOM_VARIANTS)).filter(|_| wanted) {
                if only.is_some_and(|(_, v)| v != variant) {
                    continue;
                }
                let disks = images.images(variant);
                let digests = disks.iter().map(Image::digest);
                let digest = digests.reduce(|all, d| all.rotate_left(9) ^ d).unwrap_or(0);
                if seen.insert((digest, progress.answered.len())) {
                    let names = Names::at(progress.answered.len(), times);
                    let wrong = judge(&disks, o.setting, names, digest).err();
                    let wrong = wrong.into_iter().collect();
                    let losses = BTreeSet::new();
                    all.push(Judged { id: (cut, variant), digest, wrong, losses, again: 0 });
                }
            }
            let broken = all.last().is_some_and(|j: &Judged| !j.wrong.is_empty());
            if only.is_none() && ((o.first && broken) || seen.len() as u64 >= o.states) {
                return Ok(in_order(all));
            }
            let event = images.step();
            cut += 1;
            let Some(event) = event else { break };
            progress.note(event, during(times).len());
        }
    }
    Ok(in_order(all))
}

/// Judges a state: as it is, recovered, and used and cut off once more in another mode.
fn judge(disks: &[Image], setting: Setting, names: Names, digest: u64) -> Result<(), String> {
    said_to_need_recovery(&disks[0])?;
    seen_without_recovery(disks, setting, &names)?;
    let mut all = disks.to_vec();
    recover_or_repair(&mut all)?;
    plain_ext3(&all, digest)?;
    let next = other(setting, MODES[(digest >> 8) as usize % MODES.len()].mode);
    let told = |why: String| format!("then in mode {}: {why}", next.mode);
    // Straight from the cut, or after `recover`.
    let straight = digest & 1 == 0 && next.outside == setting.outside;
    if straight {
        all = disks.to_vec();
        if may_need_fsck(&look(&all[0])?) {
            recover_or_repair(&mut all).map_err(told)?;
        }
    }
    let mut v = open(&all, next, Plant::NONE, 1).map_err(told)?;
    let tree = v.tree(true).map_err(|e| told(format!("reading: {e}")))?;
    names.check(&tree).map_err(told)?;
    do_all(&mut v, &after(names.times)).map_err(told)?;
    put_back(&mut all, v.disks());
    recover_or_repair(&mut all).map_err(|why| told(format!("cut off there: {why}")))?;
    plain_ext3(&all, digest >> 16).map_err(|why| told(format!("cut off there: {why}")))?;
    let last = open(&all, setting, Plant::NONE, 1);
    let mut v = last.map_err(|why| told(format!("back in mode {}: {why}", setting.mode)))?;
    let tree = v.tree(true).map_err(|e| told(format!("reading at the end: {e}")))?;
    names.and_after().check(&tree).map_err(|why| told(format!("at the end {why}")))
}

/// Was it last used in a mode that may leave what only `cairn fsck --repair` mends?
fn may_need_fsck(found: &Probe) -> bool {
    let mode = found.last_mode().and_then(Mode::by_name);
    mode.is_some_and(|m| m.info().after_crash == AfterCrash::RepairUnlessNamesGo)
}

fn look(disk: &Image) -> Result<Probe, String> {
    probe(&SimDevice(disk.clone())).map_err(|e| e.to_string())
}

/// Who meets a journal that keeps others off must be told to recover the volume: without the flag,
/// everybody says that there is nothing to do, and then cannot use the journal.
fn said_to_need_recovery(disk: &Image) -> Result<(), String> {
    let found = look(disk)?;
    let private = journal_incompat::REDO | journal_incompat::PACKED;
    let guarded = found.journal.is_some_and(|j| j.superblock.incompat & private != 0);
    if guarded && !found.superblock.has_incompat(incompat::RECOVER) {
        return Err(
            "its journal keeps others off, but it does not say that it needs recovery".into()
        );
    }
    Ok(())
}

/// Who only reads sees what recovery would show him, and writes nothing. Only mode `async` may
/// leave what cannot be read.
fn seen_without_recovery(disks: &[Image], setting: Setting, names: &Names) -> Result<(), String> {
    let found = look(&disks[0])?;
    if may_need_fsck(&found) && !found.is_clean() {
        return Ok(());
    }
    let told = |why: String| format!("opened for reading only: {why}");
    let mut v =
        Subject::open(disks_of(disks, setting), setting, true, (Plant::NONE, 1)).map_err(told)?;
    let tree = v.tree(true).map_err(|e| told(e.to_string()))?;
    names.check(&tree).map_err(told)?;
    let after = v.close().map_err(|e| told(format!("closing: {e}")))?;
    let wrote = after.iter().zip(disks).any(|(a, b)| a.digest() != b.digest());
    if wrote { Err(told("something was written".into())) } else { Ok(()) }
}

/// All that `cairn recover` does; in mode `async`, where it must not, as `fsck --repair`.
fn recover_or_repair(all: &mut [Image]) -> Result<(), String> {
    let Err(why) = recover(all, JUDGED_SECS) else { return Ok(()) };
    let found = look(&all[0])?;
    if may_need_fsck(&found) && force_repair(&mut all[0]) {
        return Ok(());
    }
    Err(format!("recovery: {why}"))
}

/// Is it a sound volume that anybody can use?
fn plain_ext3(all: &[Image], digest: u64) -> Result<(), String> {
    said_to_need_recovery(&all[0])?;
    if !look(&all[0])?.is_clean() {
        return Err("after recovery it is not clean".into());
    }
    let options = Options { now_secs: JUDGED_SECS, verify: false, mark_clean: false };
    let report = check(&SimDevice(all[0].clone()), &options, &mut ());
    // Volumes of ext4 are e2fsck's alone.
    let is_ours = look(&all[0])?.superblock.features().not_checked_because().is_empty();
    let findings = match report {
        Ok(report) => report.findings,
        Err(e) if is_ours => return Err(format!("after recovery: {e}")),
        Err(_) => Vec::new(),
    };
    if let Some(f) = findings.first() {
        return Err(format!("after recovery: {f}"));
    }
    if digest.is_multiple_of(E2FSCK_OF) {
        e2fsck(all).map_err(|text| format!("e2fsck after recovery: {text}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::crash::{CrashOptions, explore};
    use crate::subject::Setting;
    use integrity::Plant;
    use volume::{MODES, Mode};

    fn found(setting: Setting, plant: Option<&'static str>, states: u64) -> Vec<String> {
        let (plant, first) = (Plant(plant), plant.is_some());
        let scenario = Some(super::NAME.to_owned());
        let o = CrashOptions { setting, scenario, seed: 0, states, plant, first };
        let runs = explore(&o).unwrap().runs;
        runs.into_iter()
            .flat_map(|r| r.violations)
            .map(|v| format!("{} {}", v.state, v.what))
            .collect()
    }

    #[test]
    fn every_cut_between_modes_leaves_what_any_mode_goes_on_with() {
        for mode in MODES {
            let none: Vec<String> = Vec::new();
            assert_eq!(found(Setting::plain(mode.mode), None, 60), none, "{}", mode.name);
        }
    }

    #[test]
    fn what_is_never_answered_is_told() {
        let acts = super::during(1);
        let mut answers = vec![Some(()); acts.len()];
        assert_eq!(super::never_answered(&acts, &answers), None);
        answers[3] = None;
        assert_eq!(super::never_answered(&acts, &answers), Some(&acts[3]));
    }

    #[test]
    fn on_larger_blocks_too() {
        let soft = Setting { intents: true, ..Setting::plain(Mode::SoftUpdates) };
        for setting in [soft, Setting::plain(Mode::Unified)] {
            assert_eq!(found(setting.with_blocks(4096), None, 60), Vec::<String>::new());
        }
    }

    #[test]
    fn a_guard_without_its_flag_is_found() {
        for plant in ["guard-before-flag", "flag-before-guard"] {
            let found = found(Setting::plain(Mode::Unified), Some(plant), 2000);
            assert!(found.first().is_some_and(|f| f.contains("keeps others off")), "{found:?}");
        }
    }

    #[test]
    fn logs_and_journals_on_other_disks_too() {
        for mode in [Mode::Ordered, Mode::Redo] {
            let setting = Setting { outside: true, ..Setting::plain(mode) };
            assert_eq!(found(setting, None, 100), Vec::<String>::new(), "{mode}");
        }
    }
}

//! Running a scenario once, with everything the disk was asked written down: what the crash states
//! are made from. It sets up a volume, makes that durable, and does the rest with one caller or
//! several at a time. It judges no state, only the answers: what a sound disk's volume says no to,
//! and what it says that it has done, is what the model says.
//!
//! Invariants:
//! * R1. Each act begins once, and is answered once, after it has begun: what is promised at a cut
//!   is counted by these marks.
//! * R2. A caller begins an act when he has been answered the one before.
//! * R3. A run can be judged: each volume has a disk, a setup and its share of the acts, and what
//!   is known of an act is known of one that there is.
//! * R4. What is to fail is counted as the disk counts it, from the moment when the acts begin.
//! * R5. A setup's disks are those that the run begins with, as long as they were made.

use crate::acts::Act;
use crate::judge::after;
use crate::kernel::{make_kernel_like, share_attributes};
use crate::model::Model;
use crate::scenario::{Breaks, JournalFault, Script, script_on};
use crate::subject::{Setting, SimDevice, Subject, VolumeKind, new_disks};
use env::DiskId;
use integrity::Plant;
use sim::{Event, Fault, Image, Trace, World};
use std::collections::{BTreeMap, BTreeSet};
use vfs::{FsError, Reply, Request};

/// A scenario's run, from the moment it was set up.
pub(crate) struct Recorded {
    /// The disks before the first event.
    pub(crate) base: Vec<Image>,
    pub(crate) trace: Trace,
    /// What was done before, by volume.
    pub(crate) setups: Vec<Vec<Act>>,
    /// Acts by their number in the marks; those that were refused do nothing. Of several volumes
    /// each act is for the next one.
    pub(crate) acts: Vec<Act>,
    /// Those that a failing disk has refused: they may be done, or not, from then on.
    pub(crate) failed: BTreeSet<usize>,
    /// How many are done at a time in each volume.
    pub(crate) callers: u64,
    /// When the setup was done; None: it is not known.
    pub(crate) set_up: Lasted,
    /// States before this act begins are those of another seed.
    pub(crate) from: usize,
    /// The callers from this one on are NFS clients.
    pub(crate) remote: usize,
}

/// What the wall clock showed when an act began, and when it was answered, in nanoseconds; None: it
/// is not known.
pub(crate) type Lasted = Option<(u64, u64)>;

/// What the clock shows when a run begins, in seconds: more than after any setup, or a time that is
/// lost could not be told from the one that was there before it.
pub(crate) const RUN_SECS: u64 = sim::EPOCH / 1_000_000_000 + 10_000;
/// Seconds of virtual time, pauses not counted, in which every scenario has ended.
const SECS_MAX: u64 = 60;
/// The mark of requests that are no act.
const NO_ACT: u64 = u64::MAX / 4;

/// Runs a scenario with a bug planted (not while it is set up). Errors: there is no such scenario,
/// or the volume cannot be opened.
pub(crate) fn record(
    setting: Setting,
    plant: Plant,
    name: &str,
    seed: u64,
) -> Result<Recorded, String> {
    let scale = setting.block_scale();
    let scripts = (0..u64::from(setting.volumes))
        .map(|v| script_on(name, seed.wrapping_add(v), scale))
        .map(|s| s.ok_or_else(|| format!("no scenario {name}")))
        .collect::<Result<Vec<Script>, String>>()?;
    let (callers, from) = (scripts[0].callers, scripts[0].from * scripts.len());
    let (remote, fault) = (scripts[0].remote, scripts[0].fault);
    let (holding, ticks) = (scripts[0].is_holding, scripts[0].ticks);
    let (base, setups) = set_up(setting, &scripts, seed)?;
    let acts = interleaved(scripts.into_iter().map(|s| s.acts).collect());
    let mut v = Subject::open_to_record(base.clone(), setting, (plant, seed))?;
    if let Some(fault) = fault {
        v.world.set_fault(fault_of(&v.world, &base[0], fault)?);
    }
    let limit = secs_max(&acts);
    let results = v.act_in_lanes(&acts, callers * setups.len(), (remote, holding, ticks), limit);
    assert_eq!(results.len(), acts.len(), "R3: answers to other acts than were asked");
    let told = troubles(&acts, &results, fault.is_some());
    // Of several callers' acts the order is known only when the run is taken apart.
    let told = match callers == 1 && fault.is_none() {
        true => told.and_then(|()| unlike_model(&setups, &acts, &results)),
        false => told,
    };
    if let Err(why) = told {
        v.leave();
        return Err(why);
    }
    let failed = failed_first(&results, callers * setups.len());
    let acts = (0..).zip(acts).zip(&results).map(|((n, act), answer)| match answer {
        Some(Ok(done)) => done.clone(),
        _ if failed.contains(&n) => act,
        _ => did_nothing(),
    });
    let acts = acts.collect();
    v.pass(6_000_000_000);
    if v.world.has_failed()
        && let Err(why) = after_failure(&mut v, &results)
    {
        v.leave();
        return Err(why);
    }
    let trace = std::mem::take(&mut v.world.trace);
    let (callers, set_up) = (callers as u64, Some((sim::EPOCH, RUN_SECS * 1_000_000_000)));
    let run = Recorded { base, trace, setups, acts, failed, callers, set_up, from, remote };
    run.check();
    Ok(run)
}

impl Recorded {
    /// When each of the acts was done; of one that is under way the end is open.
    pub(crate) fn lasted(&self) -> Vec<Lasted> {
        let mut all = vec![None; self.acts.len()];
        let marks = self.trace.events.iter().filter_map(|e| match e {
            Event::Mark(m) => Some(*m),
            _ => None,
        });
        for (m, at) in marks.zip(&self.trace.marked) {
            let Some(one) = all.get_mut((m / 2) as usize) else { continue };
            *one = match *one {
                Some((begun, _)) if m % 2 == 1 => Some((begun, *at)),
                _ => Some((*at, u64::MAX)),
            };
        }
        let turned = all.iter().flatten().find(|(begun, end)| begun > end);
        assert!(turned.is_none(), "R1: an act began and ended at {turned:?}");
        all
    }

    /// Whatever the trace does not tell is promised to nobody, and no judge would see that.
    pub(crate) fn check(&self) {
        let mut known = Progress::default();
        let lanes = self.callers as usize * self.setups.len();
        for event in &self.trace.events {
            known.note(event, self.acts.len());
            let mut busy: Vec<usize> = known.in_flight.iter().map(|n| n % lanes.max(1)).collect();
            busy.sort_unstable();
            let twice = busy.windows(2).find(|w| w[0] == w[1]);
            assert!(twice.is_none(), "R2: caller {twice:?} is in the middle of two acts");
        }
        let (volumes, count) = (self.setups.len(), self.acts.len());
        assert!(volumes <= self.base.len() || count == 0, "R3: {volumes} volumes without disks");
        let shared = volumes == 0 || count.is_multiple_of(volumes);
        assert!(shared && self.from <= count, "R3: {count} acts, from {} on", self.from);
        let last = self.failed.last();
        assert!(last.is_none_or(|n| *n < count), "R3: act {last:?} of {count} has failed");
        let (told, all) = (known.answered.len(), self.acts.len());
        assert!(
            told == all && known.in_flight.is_empty(),
            "R1: {told} of {all} acts were answered, and {:?} are under way at the end",
            known.in_flight
        );
    }
}

/// What was done, as a caller was told; None: nothing.
type Answer = Option<Result<Act, FsError>>;

/// No answer where the disk is sound, whatever was asked.
fn is_failure(e: FsError) -> bool {
    matches!(e, FsError::Io | FsError::ReadOnly | FsError::Corrupt | FsError::Stale)
}

fn has_failed(answer: &Answer) -> bool {
    matches!(answer, Some(Err(FsError::Io | FsError::ReadOnly)))
}

/// The first act of each caller that a failing disk has refused; the later ones did nothing.
fn failed_first(results: &[Answer], lanes: usize) -> BTreeSet<usize> {
    let first = |lane| (lane..results.len()).step_by(lanes).find(|n| has_failed(&results[*n]));
    (0..lanes).filter_map(first).collect()
}

/// The fault, counted from now on.
fn fault_of(world: &World, disk: &Image, fault: Breaks) -> Result<Fault, String> {
    let (writes, flushes) = (world.trace.writes.len() as u64, world.trace.flushes.len() as u64);
    let counted = [world.counts[1], world.counts[2]];
    assert_eq!(counted, [writes, flushes], "R4: the trace has other writes and flushes");
    Ok(match fault {
        Breaks::Journal(fault) => return of_journal(disk, fault),
        Breaks::Write(n) => Fault::Write(writes + n),
        Breaks::Flush(n) => Fault::Flush(flushes + n),
        Breaks::Disk(n) => Fault::Gone(DiskId(0), writes + flushes + n),
    })
}

/// The fault as the disk has it.
pub(crate) fn of_journal(disk: &Image, fault: JournalFault) -> Result<Fault, String> {
    let found = volume::probe(&SimDevice(disk.clone())).map_err(|e| e.to_string())?;
    let journal = found.journal.ok_or("there is no journal that could fail")?;
    let ends = |n| journal.byte_of(n).ok_or("the journal is shorter than it says");
    let (from, last) = (ends(0)?, ends(journal.superblock.blocks - 1)?);
    let to = last + u64::from(journal.superblock.block_bytes);
    Ok(Fault::Area { from, to, after: fault.after, once: fault.once })
}

/// The volume's disk has failed: it has to say so, to take no change any more, and to be read on.
/// Whatever began after somebody had heard of it has heard of it too.
fn after_failure(v: &mut Subject, results: &[Answer]) -> Result<(), String> {
    let (mut known, mut late) = (false, BTreeSet::new());
    for event in &v.world.trace.events {
        let Event::Mark(m) = event else { continue };
        let n = (*m / 2) as usize;
        let Some(result) = results.get(n) else { continue };
        if m % 2 == 0 && known {
            late.insert(n);
        }
        known |= m % 2 == 1 && has_failed(result);
        if m % 2 == 1 && late.contains(&n) && matches!(result, Some(Ok(_))) {
            return Err(format!("act {n} succeeds, and began after another had failed"));
        }
    }
    match v.ask(NO_ACT, Request::Info) {
        Ok(Reply::Info(info)) if info.read_only => (),
        Ok(_) => return Err("the disk has failed, and the volume says that it is written".into()),
        Err(e) => return Err(format!("the disk has failed, and the volume tells nothing: {e}")),
    }
    let change = v.act(NO_ACT, &Act::Create("/after".into()));
    if change != Err(FsError::ReadOnly) {
        return Err(format!("the disk has failed, and a change is answered {change:?}"));
    }
    v.tree(true).map(drop).map_err(|e| format!("reading after the disk has failed: {e}"))
}

/// How long they may take.
fn secs_max(acts: &[Act]) -> u64 {
    let pauses = acts.iter().map(|a| match a {
        Act::Pause(secs) | Act::Still(secs) => *secs,
        _ => 0,
    });
    SECS_MAX + pauses.sum::<u64>()
}

/// An operation may be refused; but where the disk is sound none fails, and none ever waits for
/// good.
fn troubles(acts: &[Act], results: &[Answer], may_fail: bool) -> Result<(), String> {
    for (act, result) in acts.iter().zip(results) {
        match result {
            None => return Err(format!("{act:?} is never answered, or never begun")),
            Some(Err(e)) if is_failure(*e) && !may_fail => {
                return Err(format!("{act:?} on a sound disk: {e}"));
            }
            Some(_) => (),
        }
    }
    Ok(())
}

/// A caller who is alone with a volume is answered as the model answers: what was done can be done,
/// and what was refused for the sake of names could not. Of room, features and lengths the model
/// knows too little.
fn unlike_model(setups: &[Vec<Act>], acts: &[Act], results: &[Answer]) -> Result<(), String> {
    let mut models: Vec<Model> = setups.iter().map(|setup| after(setup)).collect();
    for (n, (act, answer)) in acts.iter().zip(results).enumerate() {
        let model = &mut models[n % setups.len()];
        let wrong = match answer {
            Some(Ok(done)) => {
                model.apply(done).err().map(|e| format!("done, and by the model: {e}"))
            }
            Some(Err(e)) if is_of_names(*e) && model.clone().apply(act).is_ok() => {
                Some(format!("refused: {e}"))
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err(format!("act {n}, {act:?}, is {wrong}"));
        }
    }
    Ok(())
}

fn is_of_names(e: FsError) -> bool {
    use FsError::{Exists, IsDir, NoData, NotDir, NotEmpty, NotFound};
    matches!(e, NotFound | Exists | NotDir | IsDir | NotEmpty | NoData)
}

/// An act of which nothing is promised.
fn nothing() -> Act {
    Act::Fsync("/".into())
}

/// What stands for an act that was refused: it has done nothing, and nothing is durable by it.
pub(crate) fn did_nothing() -> Act {
    Act::Pause(0)
}

/// The volumes' acts in turn; those with fewer do nothing at the end.
pub(crate) fn interleaved(mut of: Vec<Vec<Act>>) -> Vec<Act> {
    let longest = of.iter().map(Vec::len).max().unwrap_or(0);
    of.iter_mut().for_each(|acts| acts.resize_with(longest, nothing));
    (0..longest).flat_map(|n| of.iter().map(move |acts| acts[n].clone())).collect()
}

/// The disks after each volume was set up and all are durable, and what was done by volume.
pub(crate) fn set_up(
    setting: Setting,
    scripts: &[Script],
    seed: u64,
) -> Result<(Vec<Image>, Vec<Vec<Act>>), String> {
    let journal = setting.has_journal();
    let volume_bytes = scripts.iter().map(|s| s.volume_bytes).max().unwrap_or(0);
    let bytes = if journal { volume_bytes + setting.journal_bytes() } else { volume_bytes };
    let thin = scripts.iter().any(|s| s.is_thin);
    let small_groups = scripts.iter().any(|s| s.has_small_groups);
    // What may lie in an inode needs room there.
    let small_inodes = setting.with == 0 && scripts.iter().any(|s| s.has_small_inodes);
    let disks = new_disks(bytes, Setting { thin, small_groups, small_inodes, ..setting });
    let made: Vec<u64> = disks.iter().map(Image::size).collect();
    let mut first = Subject::open(disks, setting, false, (Plant::NONE, seed))?;
    let (mut setups, mut kernel) = (Vec::new(), Vec::new());
    for (v, script) in (0..).zip(scripts) {
        first.turn_to(v);
        let mut done = Vec::new();
        for some in script.setup.chunk_by(|a, b| script.is_woven_with(a, b)) {
            if some.len() > 1 {
                weave(&mut first, some, setting.block_bytes)?;
                done.extend_from_slice(some);
                continue;
            }
            match first.act_as_done(NO_ACT, &some[0]) {
                Ok(act) => done.push(act),
                Err(e) if is_failure(e) => {
                    return Err(format!("{:?} in the setup, on a sound disk: {e}", some[0]));
                }
                Err(_) => (), // an answer too
            }
        }
        setups.push(done);
        // What lies in a store no Linux has made.
        let kernel_made = script.kernel.iter().filter(|_| !setting.in_segments());
        for (path, indexed) in kernel_made {
            let ino = first.walk(path).map_err(|e| format!("{path}: {e:?}"))?;
            kernel.push((usize::from(v), ino, *indexed));
        }
    }
    let sharing = sharing(&mut first, setting, scripts)?;
    // A mode that delays everything is closed: what it has returned is not all durable.
    let delayed = setting.mode.info().after_crash == volume::AfterCrash::GiveBack;
    let mut base = if setting.is_prefix() || delayed {
        first.close().map_err(|e| format!("closing after the setup: {e:?}"))?
    } else {
        let mut disks = first.disks();
        drop(first);
        crate::subject::recover(&mut disks, 1_700_000_050)?;
        disks
    };
    // Of extents and checksums it knows nothing.
    let kernel = kernel.into_iter().filter(|_| setting.kind == VolumeKind::Ext3);
    for (v, ino, indexed) in kernel {
        make_kernel_like(&mut base[v], ino, indexed)?;
    }
    for (v, inos) in sharing {
        share_attributes(&mut base[v], &inos)?;
        let shared = given_by_sharing(&scripts[v]);
        setups[v].extend(shared);
    }
    assert!(base.iter().map(Image::size).eq(made), "R5: other disks than were made are set up");
    assert_eq!(setups.len(), scripts.len(), "R3: a setup for each volume");
    Ok((base, setups))
}

/// By volume the inodes that are to share their attributes, where that can be had.
fn sharing(
    first: &mut Subject,
    setting: Setting,
    scripts: &[Script],
) -> Result<Vec<(usize, Vec<u32>)>, String> {
    let mut all = Vec::new();
    let plain = setting.kind == VolumeKind::Ext3 && !setting.in_segments();
    for (v, script) in (0..).zip(scripts).filter(|(_, s)| plain && !s.sharing.is_empty()) {
        first.turn_to(v);
        let inos: Result<Vec<u32>, _> = script.sharing.iter().map(|p| first.walk(p)).collect();
        all.push((usize::from(v), inos.map_err(|e| format!("{:?}: {e:?}", script.sharing))?));
    }
    Ok(all)
}

/// What the files that share the first one's attributes have got by that, as acts.
fn given_by_sharing(script: &Script) -> Vec<Act> {
    let of_first = |a: &&Act| matches!(a, Act::Attribute(p, ..) if *p == script.sharing[0]);
    let Some(Act::Attribute(_, len, value)) = script.setup.iter().find(of_first) else {
        return Vec::new();
    };
    script.sharing.iter().skip(1).map(|p| Act::Attribute(p.clone(), *len, *value)).collect()
}

/// Does writes a block at a time, one after the other, so that blocks of the files alternate.
fn weave(v: &mut Subject, writes: &[Act], block_bytes: u64) -> Result<(), String> {
    let all = || writes.iter().filter_map(Act::written);
    let longest = all().map(|(_, _, len, _)| len as u64).max().unwrap_or(0);
    for from in (0..longest).step_by(block_bytes as usize) {
        for (path, at, len, value) in all().filter(|(_, _, len, _)| from < *len as u64) {
            let some = block_bytes.min(len as u64 - from) as usize;
            let piece = Act::Write(path.to_owned(), at + from, some, value);
            let done = v.act_as_done(NO_ACT, &piece);
            let done = done.map_err(|e| format!("{piece:?} in the setup: {e}"))?;
            if done != piece {
                return Err(format!("{piece:?} in the setup: no room for all of it"));
            }
        }
    }
    Ok(())
}

/// What is known at a cut: the acts answered, in the order of their answers, and those under way.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    pub(crate) answered: Vec<usize>,
    pub(crate) in_flight: Vec<usize>,
    /// The highest act that has begun, and one.
    pub(crate) begun: usize,
    /// Acts that are under way for good: a failing disk has refused them.
    pub(crate) failed: BTreeSet<usize>,
    /// How many had been answered when each act began.
    pub(crate) since: BTreeMap<usize, usize>,
}

impl Progress {
    /// Takes in an event.
    pub(crate) fn note(&mut self, event: &Event, acts: usize) {
        let Event::Mark(m) = event else { return };
        let n = (*m / 2) as usize;
        if n >= acts {
            return;
        }
        let under_way = self.in_flight.iter().position(|i| *i == n);
        if m % 2 == 0 {
            let new = under_way.is_none() && !self.answered.contains(&n);
            assert!(new, "R1: act {n} begins twice");
            self.in_flight.push(n);
            self.since.insert(n, self.answered.len());
            self.begun = self.begun.max(n + 1);
        } else {
            let Some(at) = under_way else { panic!("R1: act {n} is answered, and has not begun") };
            if !self.failed.contains(&n) {
                self.in_flight.remove(at);
                self.answered.push(n);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::e2fsck;
    use crate::scenario::script_on;
    use volume::Mode;

    #[test]
    fn what_no_sound_disk_says_is_not_taken_for_a_refusal() {
        let acts = [Act::Create("/f".into()), Act::Fsync("/f".into())];
        let told = |e| troubles(&acts, &[Some(Ok(acts[0].clone())), Some(Err(e))], false);
        for e in [FsError::Corrupt, FsError::Io, FsError::Stale, FsError::ReadOnly] {
            assert!(told(e).is_err(), "{e:?}");
        }
        assert_eq!(told(FsError::NoSpace), Ok(()));
        assert!(troubles(&acts, &[Some(Ok(acts[0].clone())), None], true).is_err());
    }

    /// A scenario whose acts are refused shows nothing, whatever its states are.
    #[test]
    fn what_scenarios_do_is_done() {
        for mode in [Mode::Unified, Mode::Ordered, Mode::SoftUpdates] {
            let setting = Setting::plain(mode);
            let apt =
                |n: &&str| !crate::crash::left_out(setting, n) && *n != crate::lifecycle::NAME;
            for name in crate::scenarios().iter().map(|s| s.0).filter(apt) {
                let script = script_on(name, 1, 1).unwrap();
                if script.fault.is_some() {
                    continue; // behind it all is refused
                }
                let run = record(setting, Plant::NONE, name, 1).unwrap();
                let asked = script.acts.iter().filter(|a| **a != did_nothing()).count();
                let done = run.acts.iter().filter(|a| **a != did_nothing()).count();
                assert!(2 * done >= asked, "{mode}, {name}: {done} of {asked} acts are done");
                let (made, wanted) = (run.setups[0].len(), script.setup.len());
                assert!(2 * made >= wanted, "{mode}, {name}: {made} of {wanted} in the setup");
            }
        }
    }

    #[test]
    fn answers_are_the_models() {
        let (made, gone) = (Act::Create("/f".into()), Act::Unlink("/f".into()));
        let (setup, acts) = ([vec![made.clone()]], [gone.clone(), made]);
        let told = |first, second| unlike_model(&setup, &acts, &[Some(first), Some(second)]);
        let (refused, full) = (Err(FsError::NotFound), Err(FsError::NoSpace));
        assert_eq!(told(Ok(gone.clone()), Ok(acts[1].clone())), Ok(()));
        assert_eq!(told(full, Err(FsError::Exists)), Ok(()));
        // A file that is there is not found; one that was not removed is made again.
        assert!(told(refused, Err(FsError::NoSpace)).is_err());
        assert!(told(Err(FsError::NoSpace), Ok(acts[1].clone())).is_err());
    }

    #[test]
    #[should_panic(expected = "R1: 1 of 2 acts were answered")]
    fn a_run_whose_marks_are_lost_is_not_judged() {
        let events = vec![Event::Mark(0), Event::Mark(1), Event::Mark(2)];
        let acts = vec![Act::Sync, Act::Sync];
        let trace = Trace { events, ..Trace::default() };
        let (base, setups, failed) = (Vec::new(), Vec::new(), BTreeSet::new());
        let (callers, set_up, from, remote) = (1, None, 0, 1);
        Recorded { base, trace, setups, acts, failed, callers, set_up, from, remote }.check();
    }

    /// All that scenarios do to shared and moving attributes, and the volume closed: nothing is
    /// held any more, and the real checker finds nothing.
    #[test]
    fn what_shares_attributes_can_be_closed() {
        for mode in [Mode::Sync, Mode::Async, Mode::SoftUpdates, Mode::Ordered] {
            let runs = (0..8).flat_map(|seed| [("sharing", seed), ("attributes", seed)]);
            for (name, seed) in runs {
                let setting = Setting::plain(mode);
                let scripts = [script_on(name, seed, 1).unwrap()];
                let (base, _) = set_up(setting, &scripts, seed).unwrap();
                let mut v = Subject::open_to_record(base, setting, (Plant::NONE, seed)).unwrap();
                v.act_in_lanes(
                    &scripts[0].acts,
                    scripts[0].callers,
                    (usize::MAX, false, false),
                    60,
                );
                let disks = v.close().unwrap();
                e2fsck(&disks).unwrap_or_else(|e| panic!("{mode}, {name}:{seed}: {e}"));
            }
        }
    }
}

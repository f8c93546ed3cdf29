//! Recovery of an ext volume: decided first, then done, all of it through the disk of the engine
//! that the volume is opened in. What an unclean end left is finished in the mode that was in
//! force, which the boot area records. `sync` runs the own fsck's repair, but only of what a
//! crash of that mode may leave; `async` too, but only if nothing that has a name would be removed;
//! `soft-updates` too, unless it is asked for again: then it goes on at once.
//! What the orphan file of another system's volume lists is finished by that repair, too.
//! What else is found is damage, and is left to fsck, as is a volume that somebody else left
//! unclean.

mod journal;
mod primary;

pub(crate) use journal::{count_free, set_free};
pub use primary::{restore_journal, restore_primary};

use crate::decision::Tell;
use crate::place::Place;
use crate::probe::{Probe, probe_with};
use crate::{Decision, OpenOptions, Recovered, VolumeError, log};
use check::{Options, Report, check_left};
use env::{Block, Disk, DiskError, Durability};
use mechanisms::{AfterCrash, JournalReplay, Mode};
use std::rc::Rc;

/// What is to be done.
#[derive(Clone, Debug, Default)]
pub(crate) enum Plan {
    /// Nothing.
    #[default]
    Nothing,
    /// Who only reads looks through what the journal or the log holds.
    LookThrough,
    /// A log of ours is replayed.
    Log,
    /// A journal of the jbd2 family is replayed; so much of it has been read.
    Journal(Box<JournalReplay>),
    /// What the orphan file lists is finished.
    Orphans,
    /// The checker's repair, and the mode that makes it necessary.
    Repair(Box<Report>, Mode),
}

/// Decides what comes before loading; the plan stays in the probe.
pub(crate) async fn decide(
    p: &mut Probe,
    at: &Place,
    o: &OpenOptions,
) -> Result<Decision, VolumeError> {
    let (plan, decision) = plan(p, at, o).await?;
    let (acts, steps) = (!matches!(plan, Plan::Nothing), decision.steps.len());
    assert!(!acts || steps > 0, "V1: something is to be done, and nothing was decided: {plan:?}");
    let refused = decision.refused.is_some();
    assert!(!acts || !refused, "V1: what was refused is to be done: {decision:?}");
    let reads = o.read_only || p.read_only.is_some();
    let looks = matches!(plan, Plan::Nothing | Plan::LookThrough);
    assert!(!reads || looks, "V1: who only reads is to have something done: {plan:?}");
    p.plan = plan;
    Ok(decision)
}

async fn plan(p: &Probe, at: &Place, o: &OpenOptions) -> Result<(Plan, Decision), VolumeError> {
    if let Some(why) = p.not_replayed() {
        return Ok((Plan::Nothing, Decision::refused(why)));
    }
    if o.read_only || p.read_only.is_some() {
        p.check_attached()?;
        let holds = p.needs_recovery && p.journal.as_ref().is_some_and(|j| !j.is_empty());
        if !holds || p.is_guarded_for_nothing() {
            return Ok((Plan::Nothing, Decision::default()));
        }
        return Ok((Plan::LookThrough, Decision::step("what its journal holds is looked through")));
    }
    if p.has_private_log() {
        return Ok((Plan::Log, Decision::step("its log is replayed")));
    }
    if p.needs_recovery {
        return plan_journal(p, at).await;
    }
    if p.lists_orphans {
        let step = "what its orphan file lists is finished";
        return Ok((Plan::Orphans, Decision::step(step)));
    }
    if p.is_clean() || p.is_usable_at_once(o) {
        // Where each moment of the volume is whole, that is all that a crash leaves.
        let frees = p.in_segments && p.superblock.last_orphan() != 0;
        let step = || Decision::step("removed files that were still in use are freed");
        return Ok((Plan::Nothing, if frees { step() } else { Decision::default() }));
    }
    plan_repair(p, at, o).await
}

/// A volume with a journal that is, or may be, not empty.
async fn plan_journal(p: &Probe, at: &Place) -> Result<(Plan, Decision), VolumeError> {
    p.check_attached()?;
    let Some(found) = &p.journal else {
        let why = p.journal_fault.clone().unwrap_or_else(|| "it has no journal".into());
        let why = format!(
            "{why}: cairn fsck --repair --discard-log gives up what it held, and makes a new one"
        );
        return Ok((Plan::Nothing, Decision::refused(why)));
    };
    let first = journal::first_part(at, found, &p.superblock).await?;
    let step = format!("its journal is replayed, {} transactions", first.transactions);
    let mut decision = Decision::step(step);
    if p.lists_orphans {
        decision.steps.push("what its orphan file lists is finished".into());
    }
    Ok((Plan::Journal(Box::new(first)), decision))
}

/// A volume without a journal that was not closed.
async fn plan_repair(
    p: &Probe,
    at: &Place,
    o: &OpenOptions,
) -> Result<(Plan, Decision), VolumeError> {
    let refused = |why: String| Ok((Plan::Nothing, Decision::refused(why)));
    let mode = match last_mode(p) {
        Ok(mode) => mode,
        Err(why) => return refused(why.0),
    };
    let now_secs = at.ground.env.wall().secs() as u32;
    let after = mode.info().after_crash;
    let frees_nameless = matches!(after, AfterCrash::RepairUnfinished | AfterCrash::GiveBack);
    let options = Options { now_secs, verify: true, mark_clean: true };
    let reader = at.reader().await?;
    let report = check_left(&reader, &options, frees_nameless, &mut Tell(o.watch.clone()))?;
    let named = report.names_lost;
    if after == AfterCrash::RepairUnlessNamesGo && report.loses_names() {
        return refused(format!(
            "the volume was not closed cleanly in mode {mode}, and the repair would take away \
             {named} things that have names: cairn fsck shows them, cairn fsck --repair does it"
        ));
    }
    let strange = match after {
        AfterCrash::RepairUnfinished => report.beyond_sync(),
        AfterCrash::GiveBack => report.beyond_soft_updates(),
        AfterCrash::RepairUnlessNamesGo | AfterCrash::Replay => report.beyond_any_crash(),
    };
    if let Some(finding) = strange {
        return refused(format!(
            "the volume was not closed cleanly in mode {mode}, and it has damage that no crash of \
             this mode leaves, so that nothing was repaired: {finding}. cairn fsck shows all of \
             it, cairn fsck --repair mends it; copy the volume first"
        ));
    }
    if let Some(first) = report.left.first() {
        return refused(format!("the damage is beyond repair: {first}"));
    }
    let found: u64 = report.counts.values().sum();
    let blocks = report.plan.blocks();
    let step = format!(
        "what a crash of mode {mode} leaves is repaired, {found} findings in {blocks} blocks"
    );
    let lost = (named > 0).then(|| format!("{named} names that no returned call has made"));
    let decision = Decision { lost, ..Decision::step(step) };
    Ok((Plan::Repair(Box::new(report), mode), decision))
}

fn last_mode(p: &Probe) -> Result<Mode, VolumeError> {
    let ours = p.state().filter(|s| !s.clean).map(|s| s.mode.as_str());
    let Some(name) = ours else {
        let why = "the volume was not closed cleanly by whoever used it last: run cairn fsck \
                   --repair on it (or e2fsck), or open it with --read-only";
        return Err(VolumeError(why.into()));
    };
    Mode::by_name(name).ok_or_else(|| {
        VolumeError(format!(
            "the volume was last used in mode {name}, which this version does not have"
        ))
    })
}

/// Does what was decided. The probe is as new afterwards. Errors: the device's, and then it can be
/// done again.
pub(crate) async fn carry_out(
    p: &mut Probe,
    at: &Place,
    o: &OpenOptions,
) -> Result<Recovered, VolumeError> {
    let plan = std::mem::take(&mut p.plan);
    if let Plan::LookThrough = plan {
        p.plan = plan; // done in memory, as it is loaded
        return Ok(Recovered::default());
    }
    if o.read_only || p.read_only.is_some() {
        return Ok(Recovered::default());
    }
    // What a killed process has written may be in the device's cache only. A power cut must not
    // leave what follows from it and take it away.
    at.disk.flush().await?;
    let mut did = do_plan(plan, p, at, o).await?;
    if p.lists_orphans {
        let (findings, blocks) = finish_orphans(p, at, o).await?;
        did.mode = did.mode.or_else(|| Some("of another program".into()));
        did.repaired += findings;
        did.blocks_written += blocks;
    }
    if p.lists_orphans {
        return Err(VolumeError(not_kept("what its orphan file lists was finished")));
    }
    Ok(did)
}

/// The disk has taken a write, and does not have it, or another machine writes to it as well (V2).
fn not_kept(what: &str) -> String {
    format!(
        "{what}, and the disk does not say so: check the disk, and whether another machine uses it"
    )
}

async fn do_plan(
    plan: Plan,
    p: &mut Probe,
    at: &Place,
    o: &OpenOptions,
) -> Result<Recovered, VolumeError> {
    let mode = p.last_mode().map(str::to_owned);
    match plan {
        Plan::Nothing | Plan::LookThrough | Plan::Orphans => Ok(Recovered::default()),
        Plan::Log => {
            let did = log::replay(at, p, o).await.map_err(VolumeError)?;
            let (transactions, blocks_written) = (did.entries, did.blocks);
            Ok(Recovered { mode, transactions, blocks_written, log: true, ..Recovered::default() })
        }
        Plan::Journal(first) => {
            let found =
                p.journal.clone().ok_or_else(|| VolumeError("its journal is gone".into()))?;
            let mut did = journal::replay(at, &found, (&p.superblock, *first), o).await?;
            let mode = p.state().filter(|s| !s.clean).map(|s| s.mode.clone());
            look_again(p, at).await?;
            if !p.superblock.is_clean() {
                let why = "its journal was replayed, and it is marked as damaged: run cairn fsck \
                           --repair";
                return Err(VolumeError(why.into()));
            }
            did.mode = Some(mode.unwrap_or_else(|| "of another program".into()));
            Ok(did)
        }
        Plan::Repair(report, mode) => {
            repair(&at.disk, &report, o).await?;
            look_again(p, at).await?;
            if !p.superblock.is_clean() {
                return Err(VolumeError(not_kept("it was repaired")));
            }
            Ok(Recovered {
                mode: Some(mode.to_string()),
                repaired: report.counts.values().sum(),
                blocks_written: report.plan.blocks() as u64,
                ..Recovered::default()
            })
        }
    }
}

/// Finishes what the orphan file lists, and empties it, by the checker's repair: of what a crash
/// leaves, and nothing that has a name goes. How many findings, and blocks.
async fn finish_orphans(
    p: &mut Probe,
    at: &Place,
    o: &OpenOptions,
) -> Result<(u64, u64), VolumeError> {
    let now_secs = at.ground.env.wall().secs() as u32;
    let options = Options { now_secs, verify: true, mark_clean: true };
    let report = check_left(&at.reader().await?, &options, false, &mut Tell(o.watch.clone()))?;
    let strange = report.beyond_sync().or_else(|| report.left.first().map(ToString::to_string));
    let named = report.loses_names().then(|| "something that has a name would go".to_owned());
    if let Some(finding) = strange.or(named) {
        let why = format!(
            "its orphan file may list something (orphan_present), and it has damage beside that, \
             so that nothing was finished: {finding}. cairn fsck shows all of it, cairn fsck \
             --repair mends it"
        );
        return Err(VolumeError(why));
    }
    repair(&at.disk, &report, o).await?;
    look_again(p, at).await?;
    Ok((report.counts.values().sum(), report.plan.blocks() as u64))
}

/// Writes the checker's repair.
async fn repair(disk: &Rc<dyn Disk>, report: &Report, o: &OpenOptions) -> Result<(), DiskError> {
    let (mut done, total) = (0, report.plan.blocks() as u64);
    for (n, stage) in report.plan.stages().into_iter().enumerate() {
        for (at, bytes) in stage {
            disk.write(at, vec![Block::copy_of(bytes)], Durability::Cached).await?;
            done += 1;
            o.watch.iter().for_each(|w| w.step("repair", done.min(total), total));
        }
        disk.flush().await?;
        for (at, from) in report.plan.copies().filter(|_| n == 0) {
            let read = disk.read(from, vec![Block::zeroed(report.plan.block_bytes())]).await?;
            disk.write(at, read, Durability::Cached).await?;
            done += 1;
        }
        if n == 0 && report.plan.copies().next().is_some() {
            disk.flush().await?;
        }
    }
    assert!(done >= total, "V2: a repair of {total} blocks wrote {done}");
    Ok(())
}

/// The probe of what is there now. How it was found at first stays known.
async fn look_again(p: &mut Probe, at: &Place) -> Result<(), VolumeError> {
    let (was_clean, in_segments) = (p.was_clean, p.in_segments);
    let log = at.ground.log_reader().await?;
    *p = Probe {
        was_clean,
        in_segments,
        ..probe_with(&at.reader().await?, log.as_ref().map(|l| l as _))?
    };
    Ok(())
}

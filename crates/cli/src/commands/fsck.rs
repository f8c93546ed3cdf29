//! `cairn fsck`: the own checker, and its repair.

use crate::args::FsckArgs;
use crate::device::FileDevice;
use crate::hands::Threads;
use crate::image::about;
use crate::progress::Bar;
use crate::{Failure, Outcome};
use check::{Finding, Options, Report, check_together};
use host::now;
use std::sync::Arc;

/// Findings shown before "and so on".
const SHOWN: usize = 50;

/// What a checker advises, as a line to paste: who replays a journal that lies outside names it.
fn with_log(why: &str, outside: bool) -> String {
    let log = if outside { " --log PATH" } else { "" };
    why.replace("`cairn recover`", &format!("`cairn recover IMAGE{log}`"))
}

/// The command.
pub fn run(a: &FsckArgs) -> Result<Outcome, Failure> {
    if a.background {
        return super::scrub::run(&a.image, a.json);
    }
    at_rest(a).map_err(|e| match e {
        Failure::Failed(why) if super::scrub::server_of(&a.image).is_some() => {
            let image = a.image.display();
            Failure::Failed(format!("{why}; `cairn fsck --background {image}` checks it meanwhile"))
        }
        other => other,
    })
}

/// A volume that nobody uses.
fn at_rest(a: &FsckArgs) -> Result<Outcome, Failure> {
    let shown = a.image.display().to_string();
    let in_store = super::lfs::is_store(&a.image)?;
    if crate::disk::snapshot_of(&a.image).is_some() && !in_store {
        crate::image::look(&[Arc::new(crate::disk::open(&a.image, true)?)])?; // there are none
    }
    if a.unless_clean && closed_cleanly(a, in_store)? {
        if !a.json {
            tell!("{shown}: closed cleanly, not looked at");
        }
        return Ok(Outcome::Done);
    }
    // At boot it is only looked at: whoever opens it replays the store's log.
    let repair = a.repair && !(in_store && a.unless_clean);
    let a = &FsckArgs { repair, image: a.image.clone(), ..*a };
    if in_store && (a.repair || a.discard_log) {
        return Err(Failure::Failed(format!(
            "{shown}: repairing a volume in a log-structured store is not in this version; cairn \
             lfs export writes a plain image, which can be repaired"
        )));
    }
    let lossy = match (a.discard_log, a.repair) {
        (true, _) => discard(a)?,
        (false, repair) => repair && replay(a)?,
    };
    let mut device = FileDevice(Arc::new(crate::disk::open(&a.image, !a.repair)?));
    let _held = if a.repair { crate::hold::hold(&device.0, true)? } else { None };
    let now_secs = now().wall.secs() as u32;
    let options = Options { now_secs, verify: a.repair, mark_clean: a.repair };
    let mut bar = Bar::new();
    let (wrong, report) = if in_store {
        let (wrong, mut report) = super::lfs::check_inside(&a.image, options)?;
        report.leave_out_totals();
        (wrong, report)
    } else {
        let report = check_together(&device, &options, &mut bar, &Threads).map_err(|e| {
            // Looking at it as opening does may tell what it is instead.
            let why = match volume::probe(&device) {
                Ok(found) => found.not_replayed().map_or_else(
                    || with_log(&e.to_string(), found.superblock.journal_is_outside()),
                    str::to_owned,
                ),
                Err(why) => why.to_string(),
            };
            Failure::Failed(about(&a.image, &why))
        })?;
        (Vec::new(), report)
    };
    wrong.iter().for_each(|w| crate::say::err(&format!("{shown}: the store: {w}")));
    if !a.json {
        print(&shown, &report, (a.repair, in_store));
    }
    let sound = report.is_sound() && wrong.is_empty();
    let repairs = a.repair && !(sound && report.marked_clean);
    let beyond = report.left.first().filter(|_| repairs);
    if repairs && beyond.is_none() {
        let applied = report.plan.apply(&mut device, &mut bar);
        applied.map_err(|e| Failure::Failed(format!("{shown}: {e}")))?;
    }
    let repaired = repairs && beyond.is_none();
    if a.json {
        print_json(&report, a.repair, repaired);
    } else if repaired {
        let (found, blocks) = (report.counts.values().sum::<u64>(), report.plan.blocks());
        tell!(
            "{shown}: repaired: {found} findings, {blocks} blocks written; it is sound now, and \
             marked as closed cleanly"
        );
    }
    match beyond {
        Some(first) => Err(Failure::Failed(format!("{shown}: beyond repair: {first}"))),
        None if sound && !lossy => Ok(Outcome::Done),
        // What was lossy was done before it was looked at, and may have been all.
        None if repaired || sound => Ok(Outcome::Repaired),
        None => Ok(Outcome::Damaged),
    }
}

/// Was it closed cleanly, and never found to be damaged? What cannot be told is to be looked at.
fn closed_cleanly(a: &FsckArgs, in_store: bool) -> Result<bool, Failure> {
    let device = FileDevice(Arc::new(crate::disk::open(&a.image, true)?));
    if device.0.is_bucket() {
        return Ok(false); // that takes as long as looking
    }
    if in_store {
        // What is wrong with the store is told by whoever looks at it.
        let found = crate::image::look(&[device.0]).ok();
        let sound = found.is_some_and(|f| f.ext().is_ok_and(|p| p.read_only.is_none()));
        return Ok(sound && super::lfs::closed_cleanly(&a.image).unwrap_or(false));
    }
    let found = volume::probe(&device);
    Ok(found.is_ok_and(|p| p.is_clean() && p.read_only.is_none()))
}

/// Gives up what the journal or a log holds, and says so. False: it held nothing.
fn discard(a: &FsckArgs) -> Result<bool, Failure> {
    let mut device = FileDevice(Arc::new(crate::disk::open(&a.image, false)?));
    let shown = a.image.display();
    let _held = crate::hold::hold(&device.0, false)?;
    let lost = volume::discard_log(&mut device).map_err(|e| format!("{shown}: {e}"))?;
    if !a.json {
        tell!("{shown}: {}", lost.as_deref().unwrap_or("its log holds nothing"));
    }
    Ok(lost.is_some())
}

/// What the journal or a log holds belongs to the volume: it is replayed before anything is called
/// damage, as e2fsck does. Was the primary superblock, or the journal's inode, restored for that?
fn replay(a: &FsckArgs) -> Result<bool, Failure> {
    let shown = a.image.display();
    let (restored, inode) = {
        let mut device = FileDevice(Arc::new(crate::disk::open(&a.image, false)?));
        let _held = crate::hold::hold(&device.0, true)?;
        // Where they fail, the checker says why not.
        let restored = volume::restore_primary(&mut device).unwrap_or_default();
        let now_secs = now().wall.secs() as u32;
        (restored, volume::restore_journal(&mut device, now_secs).unwrap_or_default())
    };
    if let Some(group) = restored.filter(|_| !a.json) {
        tell!("{shown}: the primary superblock is damaged; restored from group {group}'s copy");
    }
    if inode && !a.json {
        tell!("{shown}: the journal's inode is damaged; restored from the superblock's copy");
    }
    let restored = restored.is_some() || inode;
    let look = || -> Result<Option<volume::Probe>, Failure> {
        Ok(volume::probe(&FileDevice(Arc::new(crate::disk::open(&a.image, true)?))).ok())
    };
    let holds = |p: &volume::Probe| {
        p.needs_recovery && p.read_only.is_none() && !p.superblock.journal_is_outside()
    };
    let Some(found) = look()?.filter(holds) else { return Ok(restored) };
    if let Some(fault) = found.journal_is_lost() {
        // The check makes it anew.
        if !a.json {
            tell!("{shown}: what its journal held is lost: {fault}");
        }
        return Ok(true);
    }
    match super::recover::recover(&a.image, None) {
        Ok(did) if !a.json => {
            tell!("{shown}: the journal was replayed: {} entries", did.transactions);
        }
        // Replayed, and not opened because it is marked as damaged: the check mends that.
        Err(why) if look()?.is_none_or(|p| holds(&p)) => return Err(why),
        _ => (),
    }
    Ok(restored)
}

/// A finding; where nothing is repaired, what a repair would do is no fact.
fn told(f: &Finding, repair: bool) -> String {
    match f.text.rsplit_once("; ") {
        Some((what, remedy)) if !repair => {
            let (place, kind) = (&f.place, f.kind.name());
            format!("{place}: {what}; with --repair: {remedy} [{kind}]")
        }
        _ => f.to_string(),
    }
}

/// Findings, and what they come to. A volume in a log-structured store has no mark of its own that
/// it was closed: what the store's log holds is part of it.
pub(super) fn print(shown: &str, r: &Report, (repair, in_store): (bool, bool)) {
    for f in r.findings.iter().take(SHOWN) {
        tell!("{}", told(f, repair));
    }
    let all: u64 = r.counts.values().sum();
    if all > SHOWN as u64 {
        tell!("… and {} more", all - SHOWN as u64);
    }
    let state = if r.is_sound() { "sound" } else { "not sound" };
    let clean = match (in_store, r.marked_clean) {
        (true, _) => "",
        (false, true) => ", closed cleanly",
        (false, false) => ", not closed cleanly",
    };
    tell!(
        "{shown}: {state}{clean}; {} inodes and {} blocks in use, {all} findings",
        r.inodes_used,
        r.blocks_used
    );
    match r.is_sound() || repair {
        true => (),
        false if in_store => tell!(
            "nothing was changed: `cairn lfs export` writes a plain image, which `cairn fsck \
             --repair` repairs"
        ),
        false => tell!("nothing was changed: `cairn fsck --repair {shown}` repairs it"),
    }
}

fn print_json(r: &Report, repair: bool, repaired: bool) {
    let findings: Vec<_> = r
        .findings
        .iter()
        .map(|f| serde_json::json!({ "kind": f.kind.name(), "text": f.to_string() }))
        .collect();
    let counts: serde_json::Map<String, serde_json::Value> =
        r.counts.iter().map(|(k, n)| (k.name().to_owned(), (*n).into())).collect();
    let all = serde_json::json!({
        "sound": r.is_sound(),
        "clean": r.marked_clean,
        "repair": repair,
        "repaired": repaired,
        "inodes_used": r.inodes_used,
        "blocks_used": r.blocks_used,
        "counts": counts,
        "findings": findings,
    });
    tell!("{all}");
}

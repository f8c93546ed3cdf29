//! Finishing what an unclean end left, before the volume is opened for writing: in the mode that
//! was in force, which the boot area records. `sync` runs the own fsck's repair, but only of what a
//! crash of that mode may leave; `async` too, but only if nothing that has a name would be removed.
//! What else is found is damage, and is left to fsck, as is a volume that somebody else left
//! unclean.

mod journal;
mod primary;

pub(crate) use journal::set_free;
pub use primary::restore_primary;

use crate::probe::{Probe, probe};
use crate::{Device, VolumeError};
use check::{Options, Progress, check};
use mechanisms::Mode;

/// What recovery did.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The mode that was finished, by its name; None: the volume was clean.
    pub mode: Option<String>,
    /// Findings that were repaired.
    pub repaired: u64,
    /// Blocks written.
    pub blocks_written: u64,
    /// Transactions that were replayed.
    pub transactions: u64,
    /// Blocks of the journal that were read for that.
    pub blocks_scanned: u64,
    /// The volume has a log of ours, which is replayed when it is opened.
    pub at_opening: bool,
}

/// Recovers the volume if it needs that. Errors say why it could not, and what to do; then nothing
/// was written unless the device failed in the middle, and then recovery can be run again. `log`:
/// the other device that was named, for a journal that lies there.
pub fn recover(
    device: &mut dyn Device,
    mut log: Option<&mut dyn Device>,
    now_secs: u32,
    progress: &mut dyn Progress,
) -> Result<Recovered, VolumeError> {
    let mut p = probe(device.reader())?;
    if let Some(log) = &log {
        p.attach(log.reader())?;
    }
    // What a killed process has written may be in the host's cache only. A power cut must not leave
    // what follows from it and take it away.
    device.writer().flush()?;
    if let Some(log) = &mut log {
        log.writer().flush()?;
    }
    if let Some(why) = &p.read_only {
        return Err(VolumeError(why.clone()));
    }
    if p.has_private_log() {
        return Ok(Recovered { at_opening: true, ..Recovered::default() });
    }
    if p.needs_recovery {
        return replay(device, log, &p, progress);
    }
    if p.is_clean() {
        return Ok(Recovered::default());
    }
    let mode = last_mode(&p)?;
    let options = Options { now_secs, verify: true, mark_clean: true };
    let report = check(device.reader(), &options, progress)?;
    if mode == Mode::Async && report.loses_names() {
        return Err(VolumeError(format!(
            "the volume was not closed cleanly in mode async, and the repair would take away {} \
             things that have names: cairn fsck shows them, cairn fsck --repair does it",
            report.names_lost
        )));
    }
    let strange = match mode {
        Mode::Sync => report.beyond_sync(),
        _ => report.beyond_any_crash(),
    };
    if let Some(finding) = strange {
        return Err(VolumeError(format!(
            "the volume was not closed cleanly in mode {mode}, and it has damage that no crash of \
             this mode leaves, so that nothing was repaired: {finding}. cairn fsck shows all of \
             it, cairn fsck --repair mends it; copy the volume first"
        )));
    }
    if !report.left.is_empty() {
        let first = &report.left[0];
        return Err(VolumeError(format!("the damage is beyond repair: {first}")));
    }
    report.plan.apply(device.writer(), progress)?;
    Ok(Recovered {
        mode: Some(mode.to_string()),
        repaired: report.counts.values().sum(),
        blocks_written: report.plan.blocks() as u64,
        ..Recovered::default()
    })
}

/// A volume with a journal that is, or may be, not empty.
fn replay(
    device: &mut dyn Device,
    log: Option<&mut dyn Device>,
    p: &Probe,
    progress: &mut dyn Progress,
) -> Result<Recovered, VolumeError> {
    p.check_attached()?;
    let Some(found) = &p.journal else {
        let why = p.journal_fault.clone().unwrap_or_else(|| "it has no journal".into());
        return Err(VolumeError(format!("{why}: cairn fsck --repair makes a new journal")));
    };
    let mut did = journal::replay((device, log), found, &p.superblock, progress)?;
    if !p.superblock.is_clean() {
        let why = "its journal was replayed, and it is marked as damaged: run cairn fsck --repair";
        return Err(VolumeError(why.into()));
    }
    let mode = p.state().filter(|s| !s.clean).map(|s| s.mode.clone());
    did.mode = Some(mode.unwrap_or_else(|| "of another program".into()));
    Ok(did)
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

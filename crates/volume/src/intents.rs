//! The journal of intents of soft updates: a log in the blocks of the volume's idle journal. Nobody
//! has to be kept off while it holds something: whoever else writes to the volume changes its times
//! or its count of mounts, and then the intents are worth nothing.
//!
//! Rule        The intents that a crash has left are believed only if the log is the one that the
//!             boot area names, and the superblock is as it was when that was written, or as it was
//!             to be marked as open then. The log is made, empty and durably, before the boot area
//!             names it.

use crate::OpenOptions;
use crate::journal::Journal;
use crate::log::id_in_log;
use crate::place::Place;
use crate::probe::Probe;
use check::live::Candidates;
use format::ext::Superblock;
use format::ext::boot::IntentsOf;
use format::intent::Intent;
use mechanisms::{IntentRecipe, Keeps, ModeOption};
use wal::{FormatOptions, Log, LogArea, LogError};

/// An opened journal of intents.
pub(crate) struct OpenIntents {
    pub(crate) recipe: IntentRecipe,
    /// What a crash has left, if it is to be believed.
    pub(crate) candidates: Option<Candidates>,
    /// What the boot area is to say.
    pub(crate) known_by: IntentsOf,
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// What others change who write to the volume.
pub(crate) fn stamp_of(sb: &Superblock) -> u64 {
    let (a, b) = (u64::from(sb.mtime()) << 32 | u64::from(sb.wtime()), u64::from(sb.mount_count()));
    a.rotate_left(17) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(sb.last_check()) << 7
}

/// The journal's blocks, for the log.
fn area_of(place: &Place, probe: &Probe) -> Result<LogArea, String> {
    let needs = "--journal-intents needs a journal inside the volume, whose blocks it takes while \
                 nobody uses them";
    let usable = |j: &&Journal| !j.outside && j.is_empty() && !j.is_redo();
    match probe.journal.as_ref().filter(usable) {
        Some(j) => Ok(LogArea::new(place.disk.clone(), j.log_extents())),
        None => Err(format!("{needs}: tune2fs -j adds one")),
    }
}

/// Opens the journal of intents, and reads what a crash has left in it; None: none is kept.
/// `now`: when it is marked as open, in seconds. Errors: a sentence for the user.
pub(crate) async fn open(
    place: &Place,
    probe: &Probe,
    o: &OpenOptions,
    (now, read_only): (u32, bool),
) -> Result<Option<OpenIntents>, String> {
    if !o.journal_intents || read_only {
        return Ok(None);
    }
    if !o.mode.takes(ModeOption::JournalIntents) || o.mode.info().keeps != Keeps::Nothing {
        return Err(format!("--journal-intents has no meaning in mode {}", o.mode));
    }
    let area = area_of(place, probe)?;
    let stamps = [stamp_of(&probe.superblock), stamp_of(&ext::marked_open(&probe.superblock, now))];
    let mut held = None;
    if !probe.is_clean() {
        match left(place, probe, &area, o).await? {
            Ok((log, intents)) => held = Some((log, intents)),
            Err(why) => tracing::warn!(
                "what a crash has left is looked for in the whole volume, while it is in use: {why}"
            ),
        }
        if held.is_none() {
            return Ok(None); // from the next opening on
        }
    }
    let (log, intents) = match held {
        Some((log, intents)) => (log, Some(intents)),
        None => (make(place, probe, &area, o).await?, None),
    };
    let client = log.client(id_in_log(&probe.superblock), &probe.superblock.label());
    let client = client.map_err(|e| format!("the journal of intents: {e}"))?;
    let known_by = IntentsOf { log: log.info().uuid, stamps };
    let recipe = IntentRecipe { client, area, held: intents.is_some() };
    Ok(Some(OpenIntents { recipe, candidates: intents.map(Candidates::of), known_by }))
}

fn wal_options(o: &OpenOptions) -> wal::OpenOptions {
    wal::OpenOptions {
        plant: o.plant.0.filter(|p| wal::PLANTS.contains(p)),
        ..wal::OpenOptions::default()
    }
}

/// A new log.
async fn make(
    place: &Place,
    probe: &Probe,
    area: &LogArea,
    o: &OpenOptions,
) -> Result<Log, String> {
    let serial = probe.state().map_or(0, |s| s.serial);
    let half: [u8; 8] = o.entropy[..8].try_into().expect("8 bytes");
    let chance = place.ground.env.random() ^ u64::from_le_bytes(half);
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&chance.to_le_bytes());
    uuid[8..].copy_from_slice(&serial.to_le_bytes());
    let options = FormatOptions { uuid, ..FormatOptions::default() };
    let made = Log::format(area, &options).await;
    made.map_err(|e| format!("the journal of intents: {e}; a longer journal has room for it"))?;
    let opened = Log::open(&place.ground.env, area.clone(), wal_options(o)).await;
    opened.map_err(|e| format!("the journal of intents: {e}"))
}

/// A log with what a crash has left in it, or why that is not to be believed.
type Left = Result<(Log, Vec<Intent>), String>;

/// What a crash has left in the log. The inner error says why that is not to be believed.
async fn left(
    place: &Place,
    probe: &Probe,
    area: &LogArea,
    o: &OpenOptions,
) -> Result<Left, String> {
    let Some(of) = probe.state().and_then(|s| s.intents) else {
        return Ok(Err("it was used without a journal of intents".into()));
    };
    let believes = o.plant.is("stale-intents-believed");
    if !of.stamps.contains(&stamp_of(&probe.superblock)) && !believes {
        return Ok(Err("somebody else has written to it since".into()));
    }
    match wal::inspect(area).await {
        Ok(uuid) if uuid == of.log => (),
        Ok(_) => return Ok(Err("its journal of intents was not complete".into())),
        Err(LogError::Disk(e)) => return Err(text(e)),
        Err(e) => return Ok(Err(format!("its journal of intents: {e}"))),
    }
    let read = async {
        let log = Log::open(&place.ground.env, area.clone(), wal_options(o)).await?;
        let client = log.client(id_in_log(&probe.superblock), "")?;
        Ok::<_, LogError>((log, client.read_all().await?))
    };
    let (log, entries) = match read.await {
        Ok(both) => both,
        Err(LogError::Disk(e)) => return Err(text(e)),
        Err(e) => return Ok(Err(format!("its journal of intents: {e}"))),
    };
    let mut all = Vec::new();
    for e in entries {
        match Intent::decode_all(&e.bytes) {
            Ok(some) => all.extend(some),
            Err(e) => return Ok(Err(format!("its journal of intents: {e}"))),
        }
    }
    Ok(Ok((log, all)))
}

//! The journal of intents of soft updates: a log in the blocks of the volume's idle journal. Nobody
//! has to be kept off while it holds something: where somebody else has written to the volume, it
//! is repaired before it is used ([`Probe::is_usable_at_once`]), and then there are no intents.
//!
//! Rule        The intents that a crash has left are believed only if the log is the one that the
//!             boot area names. The log is made, empty and durably, before the boot area names it.

use crate::OpenOptions;
use crate::journal::Journal;
use crate::log::id_in_log;
use crate::place::Place;
use crate::probe::Probe;
use check::live::Candidates;
use format::intent::Intent;
use mechanisms::{IntentRecipe, Keeps, ModeOption};
use wal::{FormatOptions, Log, LogArea, LogError};

/// An opened journal of intents.
pub(crate) struct OpenIntents {
    pub(crate) recipe: IntentRecipe,
    /// What a crash has left, if it is to be believed.
    pub(crate) candidates: Option<Candidates>,
    /// The log's UUID, by which the boot area is to name it.
    pub(crate) uuid: [u8; 16],
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
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
/// Errors: a sentence for the user.
pub(crate) async fn open(
    place: &Place,
    probe: &Probe,
    o: &OpenOptions,
    read_only: bool,
) -> Result<Option<OpenIntents>, String> {
    if !o.journal_intents || read_only {
        return Ok(None);
    }
    if !o.mode.takes(ModeOption::JournalIntents) || o.mode.info().keeps != Keeps::Nothing {
        return Err(format!("--journal-intents has no meaning in mode {}", o.mode));
    }
    let area = area_of(place, probe)?;
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
    let uuid = log.info().uuid;
    let recipe = IntentRecipe { client, area, held: intents.is_some() };
    Ok(Some(OpenIntents { recipe, candidates: intents.map(Candidates::of), uuid }))
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
    let Some(named) = probe.state().and_then(|s| s.intents) else {
        return Ok(Err("it was used without a journal of intents".into()));
    };
    match wal::inspect(area).await {
        Ok(uuid) if uuid == named => (),
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

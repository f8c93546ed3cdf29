//! `cairn recover`: what opening would do first, and nothing more.

use crate::args::RecoverArgs;
use crate::device::FileDevice;
use crate::image::Image;
use crate::progress::Bar;
use crate::{Failure, Outcome};
use host::{HostFile, now};
use std::path::Path;
use std::sync::Arc;
use volume::Recovered;

/// Recovers the volume, its log included, and closes it again.
pub fn recover(image: &Path, log: Option<&Path>) -> Result<Recovered, Failure> {
    let shown = image.display();
    let mut device = FileDevice(Arc::new(HostFile::open(image, false)?));
    let outside = match log {
        // A log of ours is opened with the volume, below.
        Some(path) if path.exists() => Some(HostFile::open_log(path, false)?),
        _ => None,
    };
    let mut outside = outside.map(|f| FileDevice(Arc::new(f)));
    let journal = outside.as_mut().map(|l| l as &mut dyn volume::Device);
    let now_secs = now().wall.secs() as u32;
    let did = volume::recover(&mut device, journal, now_secs, &mut Bar::new());
    let mut did = did.map_err(|e| Failure::Failed(format!("{shown}: {e}")))?;
    let found = volume::probe(&device).map_err(|e| format!("{shown}: {e}"))?;
    if did.at_opening {
        did.mode = found.last_mode().map(str::to_owned);
    }
    drop((device, outside));
    // Files that had no name any more but were open when it ended are removed by opening it, too.
    if did.at_opening || found.superblock.last_orphan() != 0 {
        let image = Image::open(image, false, log)?;
        if let Some(replay) = image.replay {
            (did.transactions, did.blocks_written) = (replay.entries, replay.blocks);
        }
        image.close()?;
    }
    Ok(did)
}

/// The command.
pub fn run(a: &RecoverArgs) -> Result<Outcome, Failure> {
    let shown = a.image.display();
    let did = recover(&a.image, a.log.as_deref())?;
    if a.json {
        let all = serde_json::json!({
            "mode": did.mode,
            "repaired": did.repaired,
            "transactions": did.transactions,
            "blocks_scanned": did.blocks_scanned,
            "blocks_written": did.blocks_written,
        });
        println!("{all}");
        return Ok(Outcome::Done);
    }
    match did.mode {
        _ if did.at_opening => println!(
            "{shown}: finished mode {}: its log was replayed, {} entries, {} blocks written",
            did.mode.as_deref().unwrap_or("redo"),
            did.transactions,
            did.blocks_written
        ),
        None => println!("{shown}: was closed cleanly; nothing to do"),
        Some(mode) => println!(
            "{shown}: finished mode {mode}: {} things repaired, {} transactions replayed, {} \
             blocks written",
            did.repaired, did.transactions, did.blocks_written
        ),
    }
    Ok(Outcome::Done)
}

//! `cairn recover`: what opening would do first, and nothing more.

use crate::args::RecoverArgs;
use crate::device::FileDevice;
use crate::progress::Bar;
use crate::{Failure, Outcome};
use host::{HostFile, now};
use std::sync::Arc;

/// The command.
pub fn run(a: &RecoverArgs) -> Result<Outcome, Failure> {
    if a.log.is_some() {
        return Err(Failure::Usage("--log: logs of their own are not in this version".into()));
    }
    let shown = a.image.display();
    let mut device = FileDevice(Arc::new(HostFile::open(&a.image, false)?));
    let now_secs = now().wall.secs() as u32;
    let did = volume::recover(&mut device, now_secs, &mut Bar::new());
    let did = did.map_err(|e| Failure::Failed(format!("{shown}: {e}")))?;
    if a.json {
        let all = serde_json::json!({
            "mode": did.mode,
            "repaired": did.repaired,
            "blocks_written": did.blocks_written,
        });
        println!("{all}");
        return Ok(Outcome::Done);
    }
    match did.mode {
        None => println!("{shown}: was closed cleanly; nothing to do"),
        Some(mode) => println!(
            "{shown}: finished mode {mode}: {} things repaired, {} blocks written",
            did.repaired, did.blocks_written
        ),
    }
    Ok(Outcome::Done)
}

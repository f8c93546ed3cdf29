//! `cairn recover`: what opening would do first, and nothing more.

use crate::args::RecoverArgs;
use crate::progress::RecoveryBar;
use crate::{Failure, Outcome};
use host::{HostFile, drive, entropy};
use std::path::Path;
use std::sync::Arc;
use volume::{Ground, Mode, OpenOptions, Recovered};

/// Recovers the volume, its log included, and nothing else.
pub fn recover(image: &Path, log: Option<&Path>) -> Result<Recovered, Failure> {
    let mut disks = vec![Arc::new(crate::disk::open(image, false)?)];
    if let Some(path) = log {
        disks.push(Arc::new(HostFile::open_log(path, false)?));
    }
    disks.extend(crate::buckets::near_log(&disks[0].clone(), false)?);
    let bar = Arc::new(RecoveryBar::new(None));
    let entropy = entropy().map_err(|e| format!("no random bytes: {e}"))?;
    let options = OpenOptions {
        watch: Some(bar),
        user: crate::hold::user(image),
        log_disk_bytes: disks.get(1).map(|l| l.size_bytes()),
        bucket: crate::image::bucket_options(&crate::args::OpenArgs::default()),
        ..OpenOptions::plain(Mode::Sync, 64 << 20, entropy)
    };
    let sizes = (disks[0].size_bytes(), options.log_disk_bytes);
    let seed = u64::from_le_bytes(*entropy.last_chunk().expect("there are 16"));
    let did = drive(&disks, seed, move |env| {
        Box::pin(
            async move { volume::recover(&Ground::alone(env, sizes.0, sizes.1), &options).await },
        )
    });
    did.map_err(|e| crate::image::not_opened(image, &e.to_string()).into())
}

/// The command.
pub fn run(a: &RecoverArgs) -> Result<Outcome, Failure> {
    let shown = a.image.display();
    if crate::buckets::has_near_log() && super::objects::is_bucket(&a.image)? {
        let groups = super::objects::upload(&a.image)?;
        match a.json {
            true => tell!("{}", serde_json::json!({ "uploaded": groups })),
            false => tell!("{shown}: {groups} groups were uploaded from its near log"),
        }
        return Ok(Outcome::Done);
    }
    let did = recover(&a.image, a.log.as_deref())?;
    if a.json {
        let all = serde_json::json!({
            "mode": did.mode,
            "repaired": did.repaired,
            "transactions": did.transactions,
            "blocks_scanned": did.blocks_scanned,
            "blocks_written": did.blocks_written,
        });
        tell!("{all}");
        return Ok(Outcome::Done);
    }
    match did.mode {
        _ if did.log => tell!(
            "{shown}: finished mode {}: its log was replayed, {} entries, {} blocks written",
            did.mode.as_deref().unwrap_or("redo"),
            did.transactions,
            did.blocks_written
        ),
        None if did.freed => tell!("{shown}: removed files that were still in use were freed"),
        None => tell!("{shown}: was closed cleanly; nothing to do"),
        Some(mode) => tell!(
            "{shown}: finished mode {mode}: {} things repaired, {} transactions replayed, {} \
             blocks written",
            did.repaired,
            did.transactions,
            did.blocks_written
        ),
    }
    Ok(Outcome::Done)
}

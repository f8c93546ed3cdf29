//! How the volumes were opened, this time and before: when, how long it took, what was recovered. A
//! service that systemd gives a state directory keeps the last openings of each volume there, a
//! line each; what cannot be kept is not, and nothing depends on it.

use super::report::Opening;
use crate::progress::RecoveryBar;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// So many are kept.
const KEPT: usize = 20;

/// One opening while it is under way.
pub struct OpeningWatch {
    begun: (SystemTime, Instant),
    bar: Arc<RecoveryBar>,
}

impl OpeningWatch {
    /// It begins now; the bar hears of what is recovered.
    pub fn new(bar: Arc<RecoveryBar>) -> OpeningWatch {
        OpeningWatch { begun: (SystemTime::now(), Instant::now()), bar }
    }

    /// The volume of this UUID is open. Returns its openings, the newest first, this one included.
    pub fn done(&self, uuid: &[u8; 16], mode: &str) -> Vec<Opening> {
        let at = self.begun.0.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let took_ms = self.begun.1.elapsed().as_millis() as u64;
        let this = Opening { at, took_ms, mode: mode.to_owned(), recovered: self.bar.told() };
        let Some(path) = kept_at(uuid) else { return vec![this] };
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let before = before.lines().filter_map(|l| serde_json::from_str(l).ok());
        let all: Vec<Opening> = std::iter::once(this).chain(before).take(KEPT).collect();
        let lines = all.iter().filter_map(|o| serde_json::to_string(o).ok());
        let text: String = lines.map(|l| l + "\n").collect();
        if let Err(e) = std::fs::write(&path, text) {
            tracing::debug!("{}: {e}", path.display());
        }
        all
    }
}

/// Where a volume's openings are kept, if they are.
fn kept_at(uuid: &[u8; 16]) -> Option<PathBuf> {
    // Of several directories the first is the service's own.
    let dirs = std::env::var("STATE_DIRECTORY").ok()?;
    let dir = dirs.split(':').next().filter(|d| !d.is_empty())?;
    let name: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    Some(PathBuf::from(dir).join(format!("{name}.openings")))
}

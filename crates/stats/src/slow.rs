//! The operations of late that took long, so that a complaint ("it hung at ten past three") finds
//! what it was about. There are only the newest ones; the log (`-v`) has all.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What takes this long is remembered.
pub const SLOW: Duration = Duration::from_secs(1);
/// So many are.
const KEPT: usize = 50;

/// An operation that took long.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Slow {
    /// When it was answered, in seconds since 1970.
    pub at: u64,
    /// By which way it came: "nfs" or "fuse".
    pub front: Cow<'static, str>,
    /// The volume's name.
    pub export: String,
    /// Who asked; empty for a mount.
    pub client: String,
    /// What was asked.
    pub operation: Cow<'static, str>,
    /// How long it took.
    pub took_ms: u64,
}

#[derive(Default)]
pub(crate) struct SlowList(Mutex<VecDeque<Slow>>);

impl SlowList {
    pub(crate) fn add(&self, took: Duration, what: impl FnOnce() -> Slow) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let took_ms = took.as_millis() as u64;
        let mut list = self.0.lock().expect("nobody panics while holding it");
        list.truncate(KEPT - 1);
        list.push_front(Slow { at: now.as_secs(), took_ms, ..what() });
    }

    /// The newest first.
    pub(crate) fn all(&self) -> Vec<Slow> {
        let list = self.0.lock().expect("nobody panics while holding it");
        list.iter().cloned().collect()
    }
}

//! The report: what `/status.json` and the control socket carry, and the page, `cairn stats` and
//! `cairn top` show. Fields are added, never renamed: scripts read them.

use serde::{Deserialize, Serialize};
use stats::{SeriesSummary, Slow};
use std::collections::BTreeMap;
use vfs::StatFs;

/// Of a volume that answers, and is as writable as it is meant to be.
pub const OK: &str = "ok";
/// Of a volume that whoever comes next will find closed.
pub const CLOSING: &str = "closing";
pub const CLOSED: &str = "closed";

/// A server at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub version: String,
    pub pid: u32,
    /// When this is from, in milliseconds since 1970.
    pub at_ms: u64,
    /// For how long it has been serving.
    pub up_secs: f64,
    pub volumes: Vec<VolumeReport>,
    /// NFS's connections and requests; None where it is not served.
    pub nfs: Option<TrafficReport>,
    pub clients: Vec<ClientReport>,
    /// Latencies by operation, of each front end, volume and client.
    pub series: Vec<SeriesSummary>,
    /// The operations of late that took longer than a second, the newest first.
    pub slow: Vec<Slow>,
}

impl VolumeReport {
    /// Does the server have it, and not let go of it?
    pub fn is_kept(&self) -> bool {
        self.state != CLOSING && self.state != CLOSED
    }
}

/// A volume at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeReport {
    pub name: String,
    pub image: String,
    /// "ok", or what is wrong.
    pub state: String,
    pub mode: String,
    /// What the mode promises with the options in force, in a line.
    pub promise: String,
    pub read_only: bool,
    /// Where it is mounted on this machine.
    pub mount: Option<String>,
    pub bytes: u64,
    pub bytes_free: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    /// Memory for blocks: filled, and how much it may be.
    pub cache: Fill,
    /// What changed in memory and is not in its place on disk yet.
    pub dirty_bytes: u64,
    /// The log or journal, where the mode has one.
    pub log: Option<Fill>,
    /// Operations for each write of the log, since the opening.
    pub operations_a_commit: Option<f64>,
    /// Its own counters, by Prometheus' names.
    pub counters: BTreeMap<String, u64>,
    /// Openings, the newest first; earlier ones where the service keeps a state directory.
    pub openings: Vec<Opening>,
}

/// How full something is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fill {
    pub used_bytes: u64,
    pub bytes: u64,
}

impl Fill {
    /// Between 0 and 1.
    pub fn share(self) -> f64 {
        if self.bytes == 0 { 0.0 } else { (self.used_bytes as f64 / self.bytes as f64).min(1.0) }
    }
}

/// How a volume was opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opening {
    /// In seconds since 1970.
    pub at: u64,
    pub took_ms: u64,
    pub mode: String,
    /// What was recovered; None: it had been closed cleanly.
    pub recovered: Option<String>,
}

/// What an NFS server has to do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TrafficReport {
    pub connections: u64,
    pub in_flight: u64,
    pub duplicates: u64,
    pub refused: u64,
    pub turned_away: u64,
}

/// What a client has sent and was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientReport {
    pub address: String,
    pub requests: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

impl VolumeReport {
    /// Takes over what a volume says of its space.
    pub fn with_space(self, s: &StatFs) -> VolumeReport {
        let block_bytes = u64::from(s.block_bytes);
        VolumeReport {
            bytes: s.blocks * block_bytes,
            bytes_free: s.free * block_bytes,
            inodes: s.inodes,
            inodes_free: s.inodes_free,
            ..self
        }
    }

    /// Takes over what a volume has counted; blocks are of so many bytes.
    pub fn with_counters(self, counters: &[(&'static str, u64)], block_bytes: u64) -> VolumeReport {
        let counters: BTreeMap<String, u64> =
            counters.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        let of = |name: &str| counters.get(name).copied();
        let blocks = |name: &str| of(name).unwrap_or(0) * block_bytes;
        let cache = Fill {
            used_bytes: blocks("cairn_cache_blocks"),
            bytes: blocks("cairn_cache_capacity_blocks"),
        };
        let log = of("cairn_log_capacity_bytes")
            .map(|bytes| Fill { used_bytes: of("cairn_log_used_bytes").unwrap_or(0), bytes });
        let commits = of("cairn_log_writes_total").or(of("cairn_commits_total"));
        let operations = of("cairn_operations_total");
        VolumeReport {
            cache,
            log,
            dirty_bytes: of("cairn_dirty_bytes").unwrap_or(0),
            operations_a_commit: operations
                .zip(commits.filter(|c| *c > 0))
                .map(|(o, c)| o as f64 / c as f64),
            counters,
            ..self
        }
    }
}

//! What is counted of requests, for Prometheus: their errors by procedure and export, bytes by
//! client, duplicates and refusals. How long they took is in the server's recorder (`stats`). It
//! knows no HTTP: whoever serves that asks for the text.

use crate::calls::MNT;
use crate::exports::plain;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use stats::{Recorder, Series};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// NFS's by number, and MOUNT's one that asks a volume.
const PROCEDURES: [&str; 23] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
    "mnt",
];

const _: () = assert!(PROCEDURES.len() == MNT as usize + 1, "each procedure has a name");

/// A procedure's name.
pub(crate) fn procedure(number: u32) -> &'static str {
    PROCEDURES.get(number as usize).copied().unwrap_or("unknown")
}

type Labels = Vec<(&'static str, String)>;

/// All of a server's metrics.
pub(crate) struct Metrics {
    registry: Registry,
    recorder: Arc<Recorder>,
    errors: Family<Labels, Counter>,
    received: Family<Labels, Counter>,
    sent: Family<Labels, Counter>,
    pub(crate) duplicates: Counter,
    pub(crate) refused: Counter,
    pub(crate) turned_away: Counter,
    pub(crate) connections: Gauge,
    pub(crate) in_flight: Gauge,
    durable: Family<Labels, Counter>,
}

impl Metrics {
    pub(crate) fn new(recorder: Arc<Recorder>) -> Metrics {
        let mut m = Metrics {
            registry: Registry::with_prefix("cairn_nfs"),
            recorder,
            errors: Family::default(),
            received: Family::default(),
            sent: Family::default(),
            duplicates: Counter::default(),
            refused: Counter::default(),
            turned_away: Counter::default(),
            connections: Gauge::default(),
            in_flight: Gauge::default(),
            durable: Family::default(),
        };
        let r = &mut m.registry;
        r.register("errors", "Replies with an error, by its nfsstat3", m.errors.clone());
        let help = "Bytes received, heads included";
        r.register_with_unit("received", help, Unit::Bytes, m.received.clone());
        let help = "Bytes sent, heads included";
        r.register_with_unit("sent", help, Unit::Bytes, m.sent.clone());
        let help = "Requests that came again, answered from memory or already under way";
        r.register("duplicate_requests", help, m.duplicates.clone());
        r.register("refused_requests", "Refused by the exports", m.refused.clone());
        let help = "Connections refused: of strangers, or there were too many";
        r.register("refused_connections", help, m.turned_away.clone());
        r.register("connections", "Open connections", m.connections.clone());
        r.register("requests_in_flight", "Requests not answered yet", m.in_flight.clone());
        let help = "Requests answered only when durable; flushes and commits are shared by them";
        r.register("durable_requests", help, m.durable.clone());
        m
    }

    pub(crate) fn error(&self, number: u32, export: &str, status: u32) {
        let labels = vec![
            ("procedure", procedure(number).to_owned()),
            ("export", export.to_owned()),
            ("status", status.to_string()),
        ];
        self.errors.get_or_create(&labels).inc();
    }

    /// Appends them to the text of a scrape.
    pub(crate) fn encode(&self, text: &mut String) -> std::fmt::Result {
        encode_registry(text, &self.registry)
    }

    /// Bytes that this client, as the recorder names it, has sent us and was sent.
    pub(crate) fn bytes(&self, client: &str) -> (u64, u64) {
        let labels = vec![("client", client.to_owned())];
        let of = |f: &Family<Labels, Counter>| f.get(&labels).map_or(0, |c| c.get());
        (of(&self.received), of(&self.sent))
    }
}

/// One connection's handles to the series it adds to, so that a request looks none up.
pub(crate) struct Meter {
    client: String,
    latency: Vec<Option<Arc<Series>>>,
    durable: Vec<Option<Counter>>,
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
}

impl Meter {
    pub(crate) fn new(metrics: &Metrics, peer: IpAddr) -> Meter {
        let client = metrics.recorder.client(&plain(peer).to_string());
        let labels = vec![("client", client.clone())];
        Meter {
            received: metrics.received.get_or_create(&labels).clone(),
            sent: metrics.sent.get_or_create(&labels).clone(),
            client,
            latency: Vec::new(),
            durable: Vec::new(),
        }
    }

    /// The series of a volume.
    pub(crate) fn series(&mut self, metrics: &Metrics, (volume, export): (usize, &str)) -> &Series {
        if self.latency.len() <= volume {
            self.latency.resize_with(volume + 1, || None);
            self.durable.resize_with(volume + 1, || None);
        }
        let new = || metrics.recorder.series(("nfs", &PROCEDURES), export, &self.client);
        self.latency[volume].get_or_insert_with(new)
    }

    /// A request of a volume that came at `arrived` is answered now. Returns how long it took.
    pub(crate) fn answered(
        &mut self,
        metrics: &Metrics,
        of: (usize, &str),
        number: u32,
        (arrived, failed): (Instant, bool),
    ) -> Duration {
        self.series(metrics, of).answered(number as usize, arrived, failed)
    }

    /// A request waited for durability.
    pub(crate) fn waited(&mut self, metrics: &Metrics, (volume, export): (usize, &str)) {
        let counter = self.durable[volume].get_or_insert_with(|| {
            metrics.durable.get_or_create(&vec![("export", export.to_owned())]).clone()
        });
        counter.inc();
    }
}

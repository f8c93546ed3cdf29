//! What is counted of requests, for Prometheus: how long they took by procedure, client and export,
//! their errors, bytes, duplicates and refusals. It knows no HTTP: whoever serves that asks for the
//! text.

use crate::exports::plain;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

/// Clients that get series of their own; the others share one, so that memory stays bounded.
const CLIENTS_MAX: usize = 64;
const OTHER: &str = "other";

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

/// A procedure's name.
pub(crate) fn procedure(number: u32) -> &'static str {
    PROCEDURES.get(number as usize).copied().unwrap_or("unknown")
}

type Labels = Vec<(&'static str, String)>;

fn latency() -> Histogram {
    Histogram::new(exponential_buckets(4e-6, 4.0, 11)) // 4 µs to 4 s
}

/// All of a server's metrics.
pub(crate) struct Metrics {
    registry: Registry,
    latency: Family<Labels, Histogram, fn() -> Histogram>,
    errors: Family<Labels, Counter>,
    received: Family<Labels, Counter>,
    sent: Family<Labels, Counter>,
    pub(crate) duplicates: Counter,
    pub(crate) refused: Counter,
    pub(crate) turned_away: Counter,
    pub(crate) connections: Gauge,
    pub(crate) in_flight: Gauge,
    durable: Family<Labels, Counter>,
    clients: Mutex<BTreeSet<IpAddr>>,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut m = Metrics {
            registry: Registry::with_prefix("cairn_nfs"),
            latency: Family::new_with_constructor(latency),
            errors: Family::default(),
            received: Family::default(),
            sent: Family::default(),
            duplicates: Counter::default(),
            refused: Counter::default(),
            turned_away: Counter::default(),
            connections: Gauge::default(),
            in_flight: Gauge::default(),
            durable: Family::default(),
            clients: Mutex::default(),
        };
        let r = &mut m.registry;
        let help = "From the arrival of a request to its reply";
        r.register_with_unit("request_duration", help, Unit::Seconds, m.latency.clone());
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

    /// The client's label.
    fn client(&self, ip: IpAddr) -> String {
        let mut known = self.clients.lock().expect("nobody panics while holding it");
        if known.len() < CLIENTS_MAX || known.contains(&ip) {
            known.insert(ip);
            return ip.to_string();
        }
        OTHER.to_owned()
    }

    pub(crate) fn error(&self, number: u32, export: &str, status: u32) {
        let labels = vec![
            ("procedure", procedure(number).to_owned()),
            ("export", export.to_owned()),
            ("status", status.to_string()),
        ];
        self.errors.get_or_create(&labels).inc();
    }

    /// The text of a scrape; `volumes` are each export's own counters.
    pub(crate) fn text(&self, volumes: Vec<(String, Vec<(&'static str, u64)>)>) -> String {
        let mut text = String::new();
        let mut of_volumes = Registry::default();
        of_volumes.register_collector(Box::new(OfVolumes(volumes)));
        let all = encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &of_volumes))
            .and_then(|()| encode_eof(&mut text));
        all.expect("a string takes what is written to it");
        text
    }
}

/// The metrics of volumes that are not served over NFS, by export.
pub fn volume_metrics(volumes: Vec<(String, Vec<(&'static str, u64)>)>) -> String {
    Metrics::new().text(volumes)
}

#[derive(Debug)]
struct OfVolumes(Vec<(String, Vec<(&'static str, u64)>)>);

impl Collector for OfVolumes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let mut by_name: BTreeMap<&str, Vec<(&String, u64)>> = BTreeMap::new();
        for (export, counters) in &self.0 {
            for (name, n) in counters {
                by_name.entry(name).or_default().push((export, *n));
            }
        }
        for (full, values) in by_name {
            let (name, counts) = match full.strip_suffix("_total") {
                Some(n) => (n, true),
                None => (full, false),
            };
            let help =
                format!("Of a volume: {}", name.trim_start_matches("cairn_")).replace('_', " ");
            let kind = if counts {
                ConstCounter::new(0u64).metric_type()
            } else {
                ConstGauge::new(0i64).metric_type()
            };
            let mut family = encoder.encode_descriptor(name, &help, None, kind)?;
            for (export, n) in values {
                let labels = [("export", export.as_str())];
                let one = family.encode_family(&labels)?;
                if counts {
                    ConstCounter::new(n).encode(one)?;
                } else {
                    ConstGauge::new(i64::try_from(n).unwrap_or(i64::MAX)).encode(one)?;
                }
            }
        }
        Ok(())
    }
}

/// One connection's handles to the series it adds to, so that a request looks none up.
pub(crate) struct Meter {
    client: String,
    latency: Vec<[Option<Histogram>; PROCEDURES.len()]>,
    durable: Vec<Option<Counter>>,
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
}

impl Meter {
    pub(crate) fn new(metrics: &Metrics, peer: IpAddr) -> Meter {
        let client = metrics.client(plain(peer));
        let labels = vec![("client", client.clone())];
        Meter {
            received: metrics.received.get_or_create(&labels).clone(),
            sent: metrics.sent.get_or_create(&labels).clone(),
            client,
            latency: Vec::new(),
            durable: Vec::new(),
        }
    }

    /// A request of a volume was answered after `took`.
    pub(crate) fn answered(
        &mut self,
        metrics: &Metrics,
        (volume, export): (usize, &str),
        number: u32,
        took: Duration,
    ) {
        if self.latency.len() <= volume {
            self.latency.resize_with(volume + 1, Default::default);
            self.durable.resize_with(volume + 1, || None);
        }
        let histogram = self.latency[volume][number as usize].get_or_insert_with(|| {
            let labels = vec![
                ("procedure", procedure(number).to_owned()),
                ("client", self.client.clone()),
                ("export", export.to_owned()),
            ];
            metrics.latency.get_or_create(&labels).clone()
        });
        histogram.observe(took.as_secs_f64());
    }

    /// A request waited for durability.
    pub(crate) fn waited(&mut self, metrics: &Metrics, (volume, export): (usize, &str)) {
        let counter = self.durable[volume].get_or_insert_with(|| {
            metrics.durable.get_or_create(&vec![("export", export.to_owned())]).clone()
        });
        counter.inc();
    }
}

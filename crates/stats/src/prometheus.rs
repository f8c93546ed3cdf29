//! What is recorded, in the words of Prometheus: a histogram of latencies for each series and
//! operation, and the volumes' own counters. The names are stable: dashboards and alert rules
//! (`contrib/`) rely on them.

use crate::{Recorder, Series};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What a volume tells.
#[derive(Debug)]
pub struct VolumeMetrics {
    /// Its export's name.
    pub export: String,
    /// The mode it is opened in; empty: it does not answer.
    pub mode: String,
    /// Its counters by name.
    pub counters: Vec<(&'static str, u64)>,
}

/// 4 µs to 4 s, and what is beyond.
const BOUNDS_SECS: [f64; 12] = [
    4e-6,
    16e-6,
    64e-6,
    256e-6,
    1.024e-3,
    4.096e-3,
    16.384e-3,
    65.536e-3,
    0.262_144,
    1.048_576,
    4.194_304,
    f64::INFINITY,
];

/// A front end's metric, and the label that its operations have there.
const FRONTS: [(&str, &str, &str); 2] = [
    ("nfs", "cairn_nfs_request_duration", "procedure"),
    ("fuse", "cairn_fuse_request_duration", "operation"),
];

/// Appends all series to the text of a scrape.
pub fn encode_series(recorder: &Arc<Recorder>, text: &mut String) -> fmt::Result {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(OfSeries(recorder.clone())));
    encode_registry(text, &registry)
}

/// Appends the volumes' own counters, by their exports' names, and what each is opened as by this
/// version.
pub fn encode_volumes(
    volumes: Vec<VolumeMetrics>,
    version: &'static str,
    text: &mut String,
) -> fmt::Result {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(OfVolumes(volumes, version)));
    encode_registry(text, &registry)
}

struct OfSeries(Arc<Recorder>);

impl fmt::Debug for OfSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfSeries")
    }
}

impl Collector for OfSeries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.all();
        let known = |s: &Arc<Series>| FRONTS.iter().any(|f| f.0 == s.front);
        assert!(all.iter().all(known), "a front end has no metric: its series would not be told");
        for (front, metric, label) in FRONTS {
            if !all.iter().any(|s| s.front == front) {
                continue;
            }
            let help = "From the arrival of a request to its reply";
            let kind = MetricType::Histogram;
            let mut family = encoder.encode_descriptor(metric, help, Some(&Unit::Seconds), kind)?;
            for s in all.iter().filter(|s| s.front == front) {
                for h in s.histograms(&BOUNDS_SECS) {
                    let mut labels = vec![(label, h.operation)];
                    if !s.client.is_empty() {
                        labels.push(("client", &s.client));
                    }
                    labels.push(("export", &s.export));
                    family
                        .encode_family(&labels)?
                        .encode_histogram::<NoLabelSet>(h.sum_secs, h.count, &h.buckets, None)?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct OfVolumes(Vec<VolumeMetrics>, &'static str);

impl Collector for OfVolumes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut by_name: BTreeMap<&str, Vec<(&String, u64)>> = BTreeMap::new();
        for v in &self.0 {
            for (name, n) in &v.counters {
                by_name.entry(name).or_default().push((&v.export, *n));
            }
        }
        for (full, values) in by_name {
            let (name, counts) = match full.strip_suffix("_total") {
                Some(n) => (n, true),
                None => (full, false),
            };
            let help =
                format!("Of a volume: {}", name.trim_start_matches("cairn_")).replace('_', " ");
            let kind = if counts { MetricType::Counter } else { MetricType::Gauge };
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
        let (help, kind) = ("How a volume is served; always 1", MetricType::Gauge);
        let mut family = encoder.encode_descriptor("cairn_volume_info", help, None, kind)?;
        for v in &self.0 {
            let labels = [("export", v.export.as_str()), ("mode", &v.mode), ("version", self.1)];
            ConstGauge::new(1).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_scrape_has_both_fronts_and_the_volumes() {
        let recorder = Arc::new(Recorder::default());
        let now = Instant::now();
        recorder.series(("fuse", &["lookup"]), "a", "").answered(0, now, false);
        recorder.series(("nfs", &["getattr"]), "a", "192.0.2.1").answered(0, now, false);
        let mut text = String::new();
        encode_series(&recorder, &mut text).expect("a string takes it");
        let counters = vec![("cairn_flushes_total", 3), ("cairn_free_blocks", 5)];
        let volume = VolumeMetrics { export: "a".into(), mode: "unified".into(), counters };
        encode_volumes(vec![volume], "1.2", &mut text).expect("a string takes it");
        for line in [
            "cairn_fuse_request_duration_seconds_count{operation=\"lookup\",export=\"a\"} 1",
            "cairn_nfs_request_duration_seconds_count{procedure=\"getattr\",\
             client=\"192.0.2.1\",export=\"a\"} 1",
            "cairn_flushes_total{export=\"a\"} 3",
            "cairn_free_blocks{export=\"a\"} 5",
            "cairn_volume_info{export=\"a\",mode=\"unified\",version=\"1.2\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "no {line} in\n{text}");
        }
        assert!(text.contains("le=\"+Inf\""), "no last bucket in\n{text}");
    }
}

//! What a volume in a log-structured store counts, made into what a person asks of it: how full
//! its segments are, what writing has cost, which policy its cleaner follows.

use super::report::VolumeReport;
use crate::size;
use serde_json::{Value, json};

/// A store of segments.
#[derive(Clone, PartialEq, Debug)]
pub struct Segments {
    pub policy: String,
    /// When its cleaner works.
    pub cleaning: String,
    /// Free, written into, of contents, of the table.
    pub segments: [u64; 4],
    /// Those of contents by how much of them lives, in tenths.
    pub tenths: [u64; 10],
    pub user_bytes: u64,
    pub written_bytes: u64,
    pub cleaner_bytes: u64,
    pub table_bytes: u64,
    /// Blocks laid together because they are read together, and what that took and has saved in
    /// nanoseconds; None: it is not done.
    pub reorganised: Option<[u64; 3]>,
}

impl Segments {
    /// From what the volume has counted; None: it is in no such store.
    pub fn of(v: &VolumeReport) -> Option<Segments> {
        let of = |name: &str| v.counters.get(&format!("cairn_lfs_{name}")).copied();
        let segments = |name: &str| of(&format!("segments_{name}")).unwrap_or(0);
        let named = |name: &String| name.strip_prefix("cairn_lfs_policy_").map(str::to_owned);
        let policy = v.counters.keys().find_map(named).unwrap_or_default();
        let when = |name: &String| name.strip_prefix("cairn_lfs_cleaning_").map(str::to_owned);
        Some(Segments {
            cleaning: v.counters.keys().find_map(when).unwrap_or_default(),
            policy: policy.replace('_', "-"),
            segments: ["free", "open", "contents", "table"].map(segments),
            tenths: std::array::from_fn(|n| segments(&format!("full_{n}"))),
            user_bytes: of("user_bytes_total")?,
            written_bytes: of("written_bytes_total")?,
            cleaner_bytes: of("cleaner_bytes_total")?,
            table_bytes: of("table_bytes_total")?,
            reorganised: of("reorganising").filter(|on| *on == 1).map(|_| {
                let names =
                    ["reorganised_blocks", "reorganise_spent_nanos", "reorganise_saved_nanos"];
                names.map(|name| of(&format!("{name}_total")).unwrap_or(0))
            }),
        })
    }

    fn amplification(&self) -> Option<f64> {
        (self.user_bytes > 0).then(|| self.written_bytes as f64 / self.user_bytes as f64)
    }

    fn cleaning_share(&self) -> Option<f64> {
        (self.written_bytes > 0).then(|| self.cleaner_bytes as f64 / self.written_bytes as f64)
    }

    /// For a program.
    pub fn told(&self) -> Value {
        json!({
            "policy": self.policy,
            "cleaning": self.cleaning,
            "segments": self.segments.iter().sum::<u64>(),
            "free_segments": self.segments[0],
            "by_tenths_full": self.tenths,
            "user_bytes": self.user_bytes,
            "written_bytes": self.written_bytes,
            "cleaner_bytes": self.cleaner_bytes,
            "table_bytes": self.table_bytes,
            "write_amplification": self.amplification(),
            "cleaning_share": self.cleaning_share(),
            "reorganised_blocks": self.reorganised.map(|r| r[0]),
            "reorganise_spent_seconds": self.reorganised.map(|r| r[1] as f64 / 1e9),
            "reorganise_saved_seconds": self.reorganised.map(|r| r[2] as f64 / 1e9),
        })
    }

    /// A few lines for a person.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.filled_and_written().to_vec();
        lines.extend(self.reorganised.map(|[blocks, spent, saved]| {
            format!(
                "laid as they are read: {blocks} blocks, in {:.1} s of the disk's time; {:.1} s \
                 of reading saved",
                spent as f64 / 1e9,
                saved as f64 / 1e9
            )
        }));
        lines
    }

    fn filled_and_written(&self) -> [String; 2] {
        let [free, open, contents, table] = self.segments;
        let tenths: Vec<String> = self.tenths.iter().map(u64::to_string).collect();
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        [
            format!(
                "segments: {free} free, {open} written into, {table} of the table, {contents} of \
                 contents, by tenths full {}",
                tenths.join(" ")
            ),
            format!(
                "write amplification {}, {} of it the cleaner ({}, {}), {} users' bytes",
                self.amplification().map_or("-".into(), |a| format!("{a:.2}")),
                self.cleaning_share().map_or("-".into(), percent),
                self.policy,
                self.cleaning,
                size::show(self.user_bytes)
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Report;

    #[test]
    fn a_volume_in_segments_is_told_and_others_are_not() {
        let report: Report = serde_json::from_str(include_str!("example.json")).unwrap();
        assert_eq!(Segments::of(&report.volumes[1]), None);
        let mut v = report.volumes[0].clone();
        for (name, n) in [
            ("user_bytes_total", 100),
            ("written_bytes_total", 250),
            ("cleaner_bytes_total", 50),
            ("table_bytes_total", 20),
            ("policy_cost_benefit", 1),
            ("segments_free", 7),
            ("segments_full_9", 3),
        ] {
            v.counters.insert(format!("cairn_lfs_{name}"), n);
        }
        let s = Segments::of(&v).unwrap();
        assert_eq!(s.policy, "cost-benefit");
        assert_eq!((s.segments[0], s.tenths[9]), (7, 3));
        let costs = &s.lines()[1];
        assert!(costs.contains("2.50") && costs.contains("20 %"), "{costs}");
        assert_eq!(s.told()["write_amplification"], 2.5);
        assert_eq!(s.lines().len(), 2, "nothing is laid together");
        for (name, n) in [("reorganising", 1), ("reorganise_saved_nanos_total", 2_500_000_000)] {
            v.counters.insert(format!("cairn_lfs_{name}"), n);
        }
        assert!(Segments::of(&v).unwrap().lines()[2].contains("2.5 s of reading saved"));
    }
}

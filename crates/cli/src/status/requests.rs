//! What a volume in a bucket counts, made into what a person asks of it: how many requests it has
//! made, what they have cost at the server's price list, how many operations share an object.

use super::report::VolumeReport;
use crate::size;
use serde_json::{Value, json};

/// Requests to a bucket since the volume was opened.
#[derive(Clone, PartialEq, Debug)]
pub struct Requests {
    /// PUT, GET, LIST, DELETE.
    pub requests: [u64; 4],
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// In millionths of the price list's unit.
    pub cost_micros: u64,
    /// The same, for keeping what is there for a month.
    pub month_micros: u64,
    /// Objects of the log, and the groups of operations in them.
    pub objects: u64,
    pub groups: u64,
}

/// A price as a person writes it.
pub fn money(micros: u64) -> String {
    format!("{}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100)
}

impl Requests {
    /// From what the volume has counted; None: it is in no bucket.
    pub fn of(v: &VolumeReport) -> Option<Requests> {
        let of = |name: &str| v.counters.get(&format!("cairn_bucket_{name}")).copied();
        let asked = |verb: &str| of(&format!("{verb}_requests_total")).unwrap_or(0);
        Some(Requests {
            requests: ["put", "get", "list", "delete"].map(asked),
            sent_bytes: of("sent_bytes_total")?,
            received_bytes: of("received_bytes_total")?,
            cost_micros: of("cost_micros_total")?,
            month_micros: of("month_micros")?,
            objects: of("log_objects_total")?,
            groups: of("groups_total")?,
        })
    }

    fn groups_an_object(&self) -> Option<f64> {
        (self.objects > 0).then(|| self.groups as f64 / self.objects as f64)
    }

    /// For a program.
    pub fn told(&self) -> Value {
        let [put, get, list, delete] = self.requests;
        json!({
            "put_requests": put,
            "get_requests": get,
            "list_requests": list,
            "delete_requests": delete,
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
            "cost": money(self.cost_micros),
            "cost_a_month_stored": money(self.month_micros),
            "groups_an_object": self.groups_an_object(),
        })
    }

    /// A line for a person.
    pub fn line(&self) -> String {
        let [put, get, list, delete] = self.requests;
        let shared = self.groups_an_object();
        format!(
            "bucket: {put} PUT, {get} GET, {list} LIST, {delete} DELETE, {} sent, {} received; \
             cost {}, and {} a month for what is stored; {} groups of operations an object",
            size::show(self.sent_bytes),
            size::show(self.received_bytes),
            money(self.cost_micros),
            money(self.month_micros),
            shared.map_or("-".into(), |n| format!("{n:.1}")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Report;

    #[test]
    fn a_volume_in_a_bucket_is_told_and_others_are_not() {
        let report: Report = serde_json::from_str(include_str!("example.json")).unwrap();
        let mut v = report.volumes[0].clone();
        assert_eq!(Requests::of(&v), None);
        for (name, n) in [
            ("put_requests_total", 40),
            ("get_requests_total", 7),
            ("sent_bytes_total", 100),
            ("received_bytes_total", 50),
            ("cost_micros_total", 1_234_567),
            ("month_micros", 23_000_000),
            ("log_objects_total", 20),
            ("groups_total", 50),
        ] {
            v.counters.insert(format!("cairn_bucket_{name}"), n);
        }
        let r = Requests::of(&v).unwrap();
        assert!(r.line().contains("cost 1.2345, and 23.0000 a month"), "{}", r.line());
        assert!(r.line().contains("2.5 groups"), "{}", r.line());
        assert_eq!(r.told()["put_requests"], 40);
    }
}

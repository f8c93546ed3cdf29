//! `cairn stats`: what the servers of this machine do, as tables or as JSON.

use crate::args::StatsArgs;
use crate::disk::real;
use crate::status::{
    ClientReport, Report, Requests, Segments, Server, VolumeReport, servers, silent,
};
use crate::{Failure, Outcome, say, size};
use comfy_table::{CellAlignment, Table, presets};
use jiff::{Timestamp, tz::TimeZone};
use stats::{Percentiles, SeriesSummary, Slow};
use std::path::Path;

/// `cairn stats`.
pub fn run(a: &StatsArgs) -> Result<Outcome, Failure> {
    let all = asked(a)?;
    if a.json {
        let reports: Vec<&Report> = all.iter().map(|s| &s.report).collect();
        let text = serde_json::to_string_pretty(&reports);
        tell!("{}", text.map_err(|e| Failure::Failed(e.to_string()))?);
        return Ok(Outcome::Done);
    }
    let texts: Vec<String> = all.iter().map(|s| text(&s.report)).collect();
    tell!("{}", texts.join("\n").trim_end());
    Ok(Outcome::Done)
}

/// The servers that are meant, each with the volumes that are. Errors: there are none.
pub(super) fn asked(a: &StatsArgs) -> Result<Vec<Server>, Failure> {
    let mut all = servers();
    let silent = silent();
    if let Some(why) = silent.as_ref().filter(|_| all.is_empty()) {
        return Err(Failure::Failed(format!("a server runs here, but {why}")));
    }
    if all.is_empty() {
        let why = "no server of this user runs on this machine (one that root has started is seen \
                   by root alone): cairn serve";
        return Err(Failure::Failed(why.into()));
    }
    let Some(name) = &a.volume else {
        silent.iter().for_each(|why| say::err(&format!("cairn: another server: {why}")));
        return Ok(all);
    };
    let mut known: Vec<String> =
        all.iter().flat_map(|s| &s.report.volumes).map(|v| format!("/{}", v.name)).collect();
    known.sort();
    known.dedup();
    all.iter_mut().for_each(|s| keep(&mut s.report, name));
    all.retain(|s| !s.report.volumes.is_empty());
    if all.is_empty() {
        let also = silent.map_or(String::new(), |why| format!(", and {why}"));
        let why = format!("no volume {name} is served: there are {}{also}", known.join(", "));
        return Err(Failure::Failed(why));
    }
    Ok(all)
}

/// Leaves what is about one volume, which is named by its export or its image.
pub(super) fn keep(report: &mut Report, name: &str) {
    let image = real(Path::new(name));
    let is = |v: &VolumeReport| v.image == name || real(Path::new(&v.image)) == image;
    report.volumes.retain(|v| v.name == name.trim_start_matches('/') || is(v));
    let names: Vec<String> = report.volumes.iter().map(|v| v.name.clone()).collect();
    report.series.retain(|s| names.contains(&s.export));
    report.slow.retain(|s| names.contains(&s.export));
}

fn text(r: &Report) -> String {
    let up = span(r.up_secs as u64);
    let mut text = format!("cairn {}, process {}, up for {up}\n", r.version, r.pid);
    r.volumes.iter().for_each(|v| text.push_str(&of_volume(v)));
    if let Some(t) = &r.nfs {
        text.push_str(&format!(
            "NFS: {} connections, {} requests under way, {} came again, {} refused; {} \
             connections turned away\n",
            t.connections, t.in_flight, t.duplicates, t.refused, t.turned_away
        ));
    }
    for s in r.series.iter().filter(|s| !s.operations.is_empty()) {
        text.push_str(&format!("\n{}\n{}\n", of_whom(s), operations(s)));
    }
    if !r.clients.is_empty() {
        text.push_str(&format!("\n{}\n", clients(&r.clients)));
    }
    if !r.slow.is_empty() {
        text.push_str(&format!("\nslow of late\n{}\n", slow(&r.slow)));
    }
    text
}

fn of_volume(v: &VolumeReport) -> String {
    let used = v.bytes - v.bytes_free.min(v.bytes);
    let percent = (used * 100).checked_div(v.bytes).unwrap_or(0);
    let read_only = if v.read_only { ", read-only" } else { "" };
    let mut text = format!(
        "\n/{}  {}{read_only}  {}\n  {} of {} used ({percent} %), {} of {} inodes free\n  mode {}: \
         {}\n",
        v.name,
        v.state,
        v.image,
        size::show(used),
        size::show(v.bytes),
        v.inodes_free,
        v.inodes,
        v.mode,
        v.promise
    );
    let of = |what: &str, used: u64, bytes: u64| {
        format!("{what} {} of {}", size::show(used), size::show(bytes))
    };
    let mut parts = vec![of("cache", v.cache.used_bytes, v.cache.bytes)];
    parts.push(format!("{} to be written back", size::show(v.dirty_bytes)));
    parts.extend(v.log.map(|l| of("log", l.used_bytes, l.bytes)));
    parts.extend(v.operations_a_commit.map(|n| format!("{n:.1} operations a commit")));
    parts.extend(v.mount.as_ref().map(|dir| format!("mounted on {dir}")));
    text.push_str(&format!("  {}\n", parts.join(", ")));
    for line in Segments::of(v).into_iter().flat_map(|s| s.lines()) {
        text.push_str(&format!("  {line}\n"));
    }
    if let Some(requests) = Requests::of(v) {
        text.push_str(&format!("  {}\n", requests.line()));
    }
    let scrubbed = super::scrub::Scrubbed::of(v);
    if scrubbed.running || scrubbed.passes > 0 {
        text.push_str(&format!("  {}\n", scrubbed.told()));
    }
    for o in v.openings.iter().take(3) {
        let recovered = o.recovered.as_deref().map_or("closed cleanly before", |r| r);
        text.push_str(&format!(
            "  opened {} in {} ms in mode {}: {recovered}\n",
            local(o.at),
            o.took_ms,
            o.mode
        ));
    }
    text
}

fn of_whom(s: &SeriesSummary) -> String {
    match s.client.is_empty() {
        true => format!("/{} by its mount", s.export),
        false => format!("/{} by {} ({})", s.export, s.client, s.front),
    }
}

fn table(head: &[&str]) -> Table {
    let mut t = Table::new();
    t.load_style(presets::NOTHING);
    t.set_header(head.to_vec());
    for column in t.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    t
}

/// By what they took altogether, the most first.
fn operations(s: &SeriesSummary) -> Table {
    let head =
        ["operation", "count", "errors", "half in", "99 % in", "all in", "of late", "99 % in"];
    let mut t = table(&head);
    let mut all: Vec<_> = s.operations.iter().collect();
    all.sort_by(|a, b| b.total_secs.total_cmp(&a.total_secs));
    for o in all {
        let late = if o.recent.count == 0 { String::new() } else { time(o.recent.p99_us) };
        let Percentiles { count, p50_us, p99_us, max_us, .. } = o.all;
        t.add_row([
            o.operation.to_string(),
            count.to_string(),
            o.errors.to_string(),
            time(p50_us),
            time(p99_us),
            time(max_us),
            o.recent.count.to_string(),
            late,
        ]);
    }
    t
}

fn clients(all: &[ClientReport]) -> Table {
    let mut t = table(&["client", "requests", "received", "sent"]);
    for c in all {
        let (received, sent) = (size::show(c.received_bytes), size::show(c.sent_bytes));
        t.add_row([c.address.clone(), c.requests.to_string(), received, sent]);
    }
    t
}

fn slow(all: &[Slow]) -> Table {
    let mut t = table(&["when", "operation", "volume", "by", "took"]);
    for s in all.iter().take(10) {
        let by = if s.client.is_empty() { "its mount" } else { &s.client };
        let took = format!("{:.1} s", s.took_ms as f64 / 1e3);
        let volume = format!("/{}", s.export);
        t.add_row([local(s.at), s.operation.to_string(), volume, by.to_owned(), took]);
    }
    t
}

/// Microseconds for people.
pub(super) fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// Seconds for people.
pub(super) fn span(secs: u64) -> String {
    match secs {
        0..60 => format!("{secs} s"),
        60..3600 => format!("{} min {} s", secs / 60, secs % 60),
        3600..86_400 => format!("{} h {} min", secs / 3600, secs / 60 % 60),
        _ => format!("{} d {} h", secs / 86_400, secs / 3600 % 24),
    }
}

fn local(secs: u64) -> String {
    let at = Timestamp::from_second(secs as i64).unwrap_or_default();
    at.to_zoned(TimeZone::system()).strftime("%F %T").to_string()
}

#[cfg(test)]
mod tests {
    use super::{span, time};

    #[test]
    fn times_for_people() {
        assert_eq!([time(7), time(1500), time(2_500_000)], ["7 µs", "1.5 ms", "2.5 s"]);
        assert_eq!([span(59), span(61), span(7_300)], ["59 s", "1 min 1 s", "2 h 1 min"]);
        assert_eq!(span(90_000), "1 d 1 h");
    }
}

//! `cairn info`: what a volume is, and how it is. Reads only.

use crate::args::InfoArgs;
use crate::image::about;
use crate::status::{Requests, Segments, Server};
use crate::{Failure, Outcome, size};
use format::ext::{Geometry, Superblock};
use format::shown;
use host::{HostFile, drive};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use volume::{Found, LogReport, Mode, OpenOptions, VolumeError};

/// The command.
pub fn run(a: &InfoArgs) -> Result<Outcome, Failure> {
    let shown = a.image.display().to_string();
    if let Some((server, name)) = super::scrub::server_of(&a.image) {
        return live(&server, &name, a.json);
    }
    let file = Arc::new(crate::disk::open(&a.image, true)?);
    let looked = looked(&file, a)?;
    let found = looked.found.ext().map_err(|e| format!("{shown}: {e}"))?;
    let sb = &found.superblock;
    let geo = Geometry::of(sb);
    let last = found.last_mode();
    let promise = last.and_then(Mode::by_name).map(|m| m.info().promise);
    let hex: String = sb.uuid().iter().map(|b| format!("{b:02x}")).collect();
    // Neighbours in a store are neighbours nowhere else.
    let plain = !super::lfs::is_store(&a.image)?;
    let layout = if plain { Some(crate::commands::files::layout(&a.image)?) } else { None };
    let extents = layout.and_then(|l| l.extents_a_file).map(|e| (e * 100.0).round() / 100.0);
    let log = log_state(&looked.found, looked.log.as_ref());
    let segments = match plain {
        true => Value::Null,
        false if super::objects::is_bucket(&a.image)? => super::objects::figures(&a.image)?,
        false => super::lfs::figures(&a.image)?,
    };
    let all = json!({
        "image": shown,
        "store": (!plain).then(|| looked.found.store.name()),
        "uuid": hex,
        "label": sb.label(),
        "block_bytes": geo.block_bytes,
        "inode_bytes": geo.inode_bytes,
        "blocks": geo.blocks,
        "size_bytes": geo.blocks * geo.block_bytes as u64,
        "free_bytes": looked.free.map(|f| f.0 * geo.block_bytes as u64),
        "groups": geo.groups,
        "inodes": geo.inodes(),
        "free_blocks": looked.free.map(|f| f.0),
        "free_inodes": looked.free.map(|f| f.1),
        "features": sb.features().names(),
        "clean": found.is_clean(),
        "needs_recovery": found.needs_recovery,
        "recovery": looked.decision,
        "read_only": found.read_only,
        "opened": found.state().map(|s| s.opened),
        "mode": last,
        "promise": promise,
        "layout_score": layout.and_then(|l| l.score),
        "extents_a_file": extents,
        "free_fragments": layout.map(|l| l.free_fragments),
        "free_fragment_bytes": layout.map(|l| l.free_fragment_bytes),
        "log": log.get("is"),
        "log_uuid": log.get("uuid"),
        "log_entries": log.get("entries"),
        "log_bytes": log.get("bytes"),
        "log_capacity": log.get("capacity"),
        "segments": segments,
    });
    if a.json {
        tell!("{all}");
    } else {
        print(&all);
    }
    Ok(Outcome::Done)
}

/// What the server says of a volume that it serves: nobody else may look at that just now.
fn live(server: &Server, name: &str, as_json: bool) -> Result<Outcome, Failure> {
    let volume = server.report.volumes.iter().find(|v| v.name == name);
    let v = volume.ok_or_else(|| format!("/{name} is not served any more"))?;
    let all = json!({
        "image": v.image,
        "served_by": server.report.pid,
        "state": v.state,
        "mount": v.mount,
        "mode": v.mode,
        "promise": v.promise,
        "read_only": v.read_only,
        "size_bytes": v.bytes,
        "free_bytes": v.bytes_free,
        "inodes": v.inodes,
        "free_inodes": v.inodes_free,
        "check": super::scrub::Scrubbed::of(v).told(),
        "segments": Segments::of(v).map(|s| s.told()),
        "bucket": Requests::of(v).map(|r| r.told()),
    });
    if as_json {
        tell!("{all}");
    } else {
        print(&all);
    }
    Ok(Outcome::Done)
}

/// The superblock of a volume, whatever it lies on.
pub fn superblock(image: &Path) -> Result<Superblock, Failure> {
    let file = Arc::new(crate::disk::open(image, true)?);
    let looked = looked(&file, &InfoArgs { image: image.to_owned(), log: None, json: false })?;
    let found = looked.found.ext().map_err(|e| format!("{}: {e}", image.display()))?;
    Ok(found.superblock.clone())
}

/// What a look at the disks has shown.
struct Looked {
    found: Found,
    /// What opening it would do first; None: nothing.
    decision: Option<String>,
    /// What it has in a log of ours.
    log: Option<LogReport>,
    /// Blocks and inodes that are free; None: damage keeps that from being told.
    free: Option<(u64, u32)>,
}

/// Looks at the volume, and at its log if that is named, reading only.
fn looked(file: &Arc<HostFile>, a: &InfoArgs) -> Result<Looked, Failure> {
    let mut disks = vec![file.clone()];
    if let Some(path) = &a.log {
        disks.push(Arc::new(HostFile::open_log(path, true)?));
    }
    let sizes = (file.size_bytes(), disks.get(1).map(|l| l.size_bytes()));
    let snapshot = file.snapshot();
    let looked = drive(&disks, 1, move |env| {
        Box::pin(async move {
            let ground = crate::buckets::ground(env, sizes, snapshot);
            let mut found = volume::look(&ground).await?;
            let away = sizes.1.is_none() && log_uuid(&found).is_some();
            let log = if away { None } else { volume::log_report(&found, &ground).await? };
            let free = volume::free(&found, &ground).await.ok();
            // As a command would open it that is told no mode: what is done depends on that.
            let mode =
                found.ext().map_or(Mode::WITHOUT_JOURNAL, |p| p.usual_mode(sizes.1.is_some()));
            let options = OpenOptions::plain(mode, 0, [0; 16]);
            let decided = volume::decide(&mut found, &ground, &options).await;
            let decision = match decided {
                Ok(d) if d.is_nothing() => None,
                Ok(d) => Some(d.to_string()),
                Err(e) => Some(format!("not opened for writing: {e}")),
            };
            Ok::<_, VolumeError>(Looked { found, decision, log, free })
        })
    });
    looked.map_err(|e| about(&a.image, &e.to_string()).into())
}

/// Which log on another device it has left things in.
fn log_uuid(found: &Found) -> Option<[u8; 16]> {
    let p = found.ext().ok().filter(|p| p.has_private_log())?;
    p.state().map(|s| s.log_uuid).filter(|u| *u != [0; 16])
}

/// What the volume has in a log of ours (modes `redo` and `unified`).
fn log_state(found: &Found, report: Option<&LogReport>) -> Value {
    let hex = |id: [u8; 16]| id.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let Some(r) = report else {
        let Some(uuid) = log_uuid(found) else { return Value::Null };
        return json!({ "is": "on another device: --log PATH names it", "uuid": hex(uuid) });
    };
    let is = if r.outside { "on another device" } else { "inside" };
    json!({
        "is": is, "uuid": hex(r.uuid), "entries": r.entries, "bytes": r.bytes,
        "capacity": r.capacity,
    })
}

/// What a person asks first; the rest stands behind it, by its name.
const FIRST: [&str; 14] = [
    "image",
    "served_by",
    "state",
    "mount",
    "label",
    "uuid",
    "size_bytes",
    "free_bytes",
    "mode",
    "promise",
    "clean",
    "needs_recovery",
    "recovery",
    "read_only",
];

fn print(all: &Value) {
    let Value::Object(map) = all else { return };
    let first = FIRST.iter().filter_map(|k| map.get_key_value(*k));
    let rest = map.iter().filter(|(k, _)| !FIRST.contains(&k.as_str()));
    for (key, value) in first.chain(rest) {
        let text = match value {
            Value::Null => continue,
            Value::String(s) if s.is_empty() => continue,
            Value::String(s) if key.ends_with("uuid") => hyphened(s),
            Value::String(s) => shown(s.as_bytes()),
            Value::Array(a) => a.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
            Value::Number(n) if is_amount(key) => size::show(n.as_u64().unwrap_or(0)),
            Value::Object(parts) => {
                print_parts(parts);
                continue;
            }
            other => other.to_string(),
        };
        tell!("{:16} {text}", name_of(key));
    }
}

/// Is it an amount of bytes, and no length that is a choice?
fn is_amount(key: &str) -> bool {
    (key.ends_with("_bytes") || key == "log_capacity")
        && !["block_bytes", "inode_bytes"].contains(&key)
}

fn name_of(key: &str) -> String {
    let short = if is_amount(key) { key.trim_end_matches("_bytes") } else { key };
    short.replace('_', " ")
}

/// A UUID's digits as others write them.
fn hyphened(hex: &str) -> String {
    let digits = u128::from_str_radix(hex, 16).map(u128::to_be_bytes);
    digits.map_or_else(|_| hex.to_owned(), |uuid| super::tune::hyphened(&uuid))
}

/// What a store of segments is and has cost, a line each.
fn print_parts(parts: &serde_json::Map<String, Value>) {
    for (key, value) in parts {
        let text = match value {
            Value::Null => continue,
            Value::Array(a) => a.iter().map(Value::to_string).collect::<Vec<_>>().join(" "),
            Value::Number(n) if key.ends_with("_bytes") => size::show(n.as_u64().unwrap_or(0)),
            Value::Number(n) if n.is_f64() => format!("{:.3}", n.as_f64().unwrap_or(0.0)),
            Value::String(s) => s.clone(),
            other => other.to_string(),
        };
        tell!("{:16} {text}", key.replace('_', " "));
    }
}

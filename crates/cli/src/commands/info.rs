//! `cairn info`: what a volume is, and how it is. Reads only.

use crate::args::InfoArgs;
use crate::device::FileDevice;
use crate::{Failure, Outcome, size};
use format::ext::Geometry;
use format::shown;
use host::{HostFile, drive};
use serde_json::{Value, json};
use std::sync::Arc;
use volume::{Mode, Probe};

/// The command.
pub fn run(a: &InfoArgs) -> Result<Outcome, Failure> {
    let shown = a.image.display().to_string();
    let file = Arc::new(HostFile::open(&a.image, true)?);
    let device = FileDevice(file.clone());
    let found = volume::probe(&device).map_err(|e| format!("{shown}: {e}"))?;
    let sb = &found.superblock;
    let geo = Geometry::of(sb);
    let last = found.last_mode();
    let promise = last.and_then(Mode::by_name).map(|m| m.info().promise);
    let hex: String = sb.uuid().iter().map(|b| format!("{b:02x}")).collect();
    let score = crate::commands::files::layout_score(&a.image)?;
    let log = log_state(&file, &found, a)?;
    let all = json!({
        "image": shown,
        "uuid": hex,
        "label": sb.label(),
        "block_bytes": geo.block_bytes,
        "inode_bytes": geo.inode_bytes,
        "blocks": geo.blocks,
        "size_bytes": geo.blocks * geo.block_bytes as u64,
        "groups": geo.groups,
        "inodes": geo.inodes(),
        "free_blocks": sb.free_blocks(),
        "free_inodes": sb.free_inodes(),
        "features": sb.features().names(),
        "clean": found.is_clean(),
        "needs_recovery": found.needs_recovery,
        "read_only": found.read_only,
        "opened": found.state().map(|s| s.opened),
        "mode": last,
        "promise": promise,
        "layout_score": score,
        "log": log.get("is"),
        "log_uuid": log.get("uuid"),
        "log_entries": log.get("entries"),
        "log_bytes": log.get("bytes"),
        "log_capacity": log.get("capacity"),
    });
    if a.json {
        println!("{all}");
    } else {
        print(&all);
    }
    Ok(Outcome::Done)
}

/// What the volume has in a log of ours (modes `redo` and `unified`).
fn log_state(file: &Arc<HostFile>, found: &Probe, a: &InfoArgs) -> Result<Value, Failure> {
    let shown = a.image.display();
    let hex = |id: [u8; 16]| id.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let away = found.state().map(|s| s.log_uuid).filter(|u| *u != [0; 16]);
    if !found.has_private_log() {
        return Ok(Value::Null);
    }
    if let (Some(uuid), None) = (away, &a.log) {
        return Ok(json!({ "is": "on another device: --log PATH names it", "uuid": hex(uuid) }));
    }
    let mut disks = vec![file.clone()];
    if let Some(path) = &a.log {
        disks.push(Arc::new(HostFile::open_log(path, true)?));
    }
    let (found, bytes) = (found.clone(), file.size_bytes());
    let log_bytes = disks.get(1).map(|l| l.size_bytes());
    let report = drive(&disks, 1, |env| Box::pin(volume::log_report(env, found, bytes, log_bytes)));
    let Some(r) = report.map_err(|e| format!("{shown}: {e}"))? else { return Ok(Value::Null) };
    let is = if r.outside { "on another device" } else { "inside" };
    Ok(json!({
        "is": is, "uuid": hex(r.uuid), "entries": r.entries, "bytes": r.bytes,
        "capacity": r.capacity,
    }))
}

fn print(all: &Value) {
    let Value::Object(map) = all else { return };
    for (key, value) in map {
        let text = match value {
            Value::Null => continue,
            Value::String(s) => shown(s.as_bytes()),
            Value::Array(a) => a.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
            Value::Number(n) if key == "size_bytes" => size::show(n.as_u64().unwrap_or(0)),
            other => other.to_string(),
        };
        println!("{:16} {text}", key.replace('_', " "));
    }
}

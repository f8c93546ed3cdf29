//! `cairn info`: what a volume is, and how it is. Reads only.

use crate::args::InfoArgs;
use crate::device::FileDevice;
use crate::{Failure, Outcome, size};
use format::ext::{Geometry, features};
use host::HostFile;
use serde_json::{Value, json};
use std::sync::Arc;
use volume::Mode;

/// The command.
pub fn run(a: &InfoArgs) -> Result<Outcome, Failure> {
    let shown = a.image.display().to_string();
    let device = FileDevice(Arc::new(HostFile::open(&a.image, true)?));
    let found = volume::probe(&device).map_err(|e| format!("{shown}: {e}"))?;
    let sb = &found.superblock;
    let geo = Geometry::of(sb);
    let last = found.last_mode();
    let promise = last.and_then(Mode::by_name).map(|m| m.info().promise);
    let hex: String = sb.uuid().iter().map(|b| format!("{b:02x}")).collect();
    let score = crate::commands::files::layout_score(&a.image)?;
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
        "features": features::names(sb.compat(), sb.incompat(), sb.ro_compat()),
        "clean": found.is_clean(),
        "needs_recovery": found.needs_recovery,
        "read_only": found.read_only,
        "opened": found.state().map(|s| s.opened),
        "mode": last,
        "promise": promise,
        "layout_score": score,
    });
    if a.json {
        println!("{all}");
    } else {
        print(&all);
    }
    Ok(Outcome::Done)
}

fn print(all: &Value) {
    let Value::Object(map) = all else { return };
    for (key, value) in map {
        let text = match value {
            Value::Null => continue,
            Value::String(s) => s.clone(),
            Value::Array(a) => a.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
            Value::Number(n) if key == "size_bytes" => size::show(n.as_u64().unwrap_or(0)),
            other => other.to_string(),
        };
        println!("{:16} {text}", key.replace('_', " "));
    }
}

//! `cairn pool`: what the servers of a pool say of themselves, for people and for autofs. It asks
//! the bucket alone.

use crate::args::{PoolArgs, PoolCommand};
use crate::pool::{Members, Record, State, is_name, objects_of};
use crate::{Failure, Outcome};
use host::Objects;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// No server is waited for longer.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The command.
pub fn run(a: &PoolArgs) -> Result<Outcome, Failure> {
    match &a.command {
        PoolCommand::Status { url, json } => status(url, *json),
        PoolCommand::Autofs { url, volume } => autofs(url, volume.as_deref()),
    }
}

/// A server, by the name of its record.
struct Seen {
    record: Record,
    alive: bool,
}

/// All servers. One that says nothing new for as long as it may take is not alive.
fn servers(url: &Path, objects: &Objects) -> Result<BTreeMap<String, Seen>, Failure> {
    let fail = |e: String| Failure::Failed(format!("{}: {e}", url.display()));
    let mut members = Members::default();
    members.look(objects, "").map_err(fail)?;
    let first: BTreeMap<String, u64> =
        members.0.iter().map(|(id, h)| (id.clone(), h.record.count)).collect();
    let begun = Instant::now();
    loop {
        let alive = |id: &String, r: &Record| first.get(id).is_none_or(|c| *c != r.count);
        let waits = members.0.iter().any(|(id, h)| {
            let patience = Duration::from_millis(h.record.every_ms.saturating_mul(5) / 2);
            !alive(id, &h.record) && begun.elapsed() < patience.min(PATIENCE)
        });
        if !waits {
            let seen = |(id, h): (String, crate::pool::Heard)| {
                let alive = alive(&id, &h.record);
                (id, Seen { record: h.record, alive })
            };
            return Ok(members.0.into_iter().map(seen).collect());
        }
        std::thread::sleep(LOOK_EVERY);
        members.look(objects, "").map_err(fail)?;
    }
}

/// What is known of a volume: nothing, or what the server says that has it.
fn volume_of(servers: &BTreeMap<String, Seen>, name: &str) -> Value {
    let says = |s: &&Seen| s.record.volumes.contains_key(name);
    let all = || servers.values().filter(says);
    let is = |s: &&Seen, state: State| s.alive && s.record.volumes[name].state == state;
    let best = [State::Serving, State::Ending, State::Opening, State::Refused];
    let found = best.into_iter().find_map(|state| all().find(|s| is(s, state)));
    let Some(s) = found else {
        return json!({ "name": name, "state": "nobody's" });
    };
    let has = &s.record.volumes[name];
    let mut told = json!({ "name": name, "state": has.state.name(), "server": s.record.server });
    for (key, value) in [("at", &has.at), ("options", &has.options), ("why", &has.why)] {
        if !value.is_empty() {
            told[key] = json!(value);
        }
    }
    told
}

/// All volumes. A folder that no server names is one if it has the object `volume`.
fn volumes(objects: &Objects, servers: &BTreeMap<String, Seen>) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for name in objects.folders()?.iter().filter(|n| is_name(n)) {
        let named = servers.values().any(|s| s.record.volumes.contains_key(name));
        if named || objects.get(&format!("{name}/volume"))?.is_some() {
            all.push(volume_of(servers, name));
        }
    }
    Ok(all)
}

fn server_of(s: &Seen) -> Value {
    let has = s.record.volumes.values().filter(|h| h.state != State::Refused).count();
    json!({ "server": s.record.server, "alive": s.alive, "volumes": has })
}

fn status(url: &Path, as_json: bool) -> Result<Outcome, Failure> {
    let objects = objects_of(url)?;
    let servers = servers(url, &objects)?;
    let volumes = volumes(&objects, &servers).map_err(|e| format!("{}: {e}", url.display()))?;
    let servers: Vec<Value> = servers.values().map(server_of).collect();
    if as_json {
        tell!("{}", json!({ "volumes": volumes, "servers": servers }));
        return Ok(Outcome::Done);
    }
    let text = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
    let wide = volumes.iter().map(|v| text(v, "name").len()).max().unwrap_or(0);
    for v in &volumes {
        let (name, state, server) = (text(v, "name"), text(v, "state"), text(v, "server"));
        let more = [text(v, "at"), text(v, "why")].concat();
        let line = format!("{name:wide$}  {state:8}  {server}  {more}");
        tell!("{}", line.trim_end());
    }
    for s in &servers {
        let silent = if s["alive"] == true { "" } else { ", not heard of" };
        tell!("{}: {} volumes{silent}", text(s, "server"), s["volumes"]);
    }
    Ok(Outcome::Done)
}

fn autofs(url: &Path, only: Option<&str>) -> Result<Outcome, Failure> {
    let servers = servers(url, &objects_of(url)?)?;
    let says = servers.values().flat_map(|s| s.record.volumes.keys());
    let mut names: Vec<&String> = says.filter(|n| only.is_none_or(|o| o == *n)).collect();
    names.sort();
    names.dedup();
    let mut told = 0;
    for name in names {
        let v = volume_of(&servers, name);
        let (Some(at), Some(options)) = (v["at"].as_str(), v["options"].as_str()) else { continue };
        let entry = format!("-fstype=nfs,{options} {at}");
        match only {
            Some(_) => tell!("{entry}"),
            None => tell!("{name} {entry}"),
        }
        told += 1;
    }
    match only.filter(|_| told == 0) {
        Some(name) => Err(Failure::Failed(format!("{name}: nobody serves it now"))),
        None => Ok(Outcome::Done),
    }
}

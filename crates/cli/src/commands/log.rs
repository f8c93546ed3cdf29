//! `cairn log`: the stand-alone log on a file, a partition or a disk, from the command line. What
//! entries mean is their writer's business; nothing here knows a file system.

use super::mkfs::{NewFiles, what_is_there};
use crate::args::{LogArgs, LogClient, LogCommand};
use crate::device::FileDevice;
use crate::{Failure, Outcome};
use env::{DiskId, Env, Local};
use host::{HostFile, drive, entropy};
use serde_json::json;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use wal::{Client, FormatOptions, Log, LogArea, LogError, LogInfo, Lsn, OpenOptions};

/// The command.
pub fn run(a: &LogArgs) -> Result<Outcome, Failure> {
    match &a.command {
        LogCommand::Format { logfile, size, force } => format(logfile, *size, *force),
        LogCommand::Append { of, text } => append(of, text),
        LogCommand::Read { logfile, lsn } => read(logfile, Lsn(*lsn)),
        LogCommand::Scan { logfile, from, json } => scan(logfile, Lsn(*from), *json),
        LogCommand::Trim { of, lsn } => trim(of, Lsn(*lsn)),
        LogCommand::Info { logfile, json } => info(logfile, *json),
    }
}

/// Runs `f` on the log's file.
fn on<T: 'static>(
    file: HostFile,
    f: impl FnOnce(Env, LogArea) -> Local<'static, Result<T, LogError>>,
) -> Result<T, Failure> {
    let shown = file.path().display().to_string();
    let seed = entropy().map_err(|e| format!("no random bytes: {e}"))?;
    let seed = u64::from_le_bytes(seed[..8].try_into().expect("8 of 16 bytes"));
    let bytes = file.size_bytes();
    let result = drive(&[Arc::new(file)], seed, |env| {
        let area = LogArea::whole(env.port().disk(DiskId(0), bytes));
        f(env, area)
    });
    result.map_err(|e| Failure::Failed(format!("{shown}: {e}")))
}

fn reading<T: 'static>(
    path: &Path,
    f: impl FnOnce(Log) -> Local<'static, Result<T, LogError>> + 'static,
) -> Result<T, Failure> {
    on(HostFile::open_log(path, true)?, |env, area| {
        Box::pin(async move { f(Log::open_read_only(&env, area).await?).await })
    })
}

fn writing<T: 'static>(
    of: &LogClient,
    f: impl FnOnce(Client) -> Local<'static, Result<T, LogError>> + 'static,
) -> Result<T, Failure> {
    let name = of.client.clone();
    if name.is_empty() || name.len() > 16 {
        return Err(Failure::Usage("--client takes a name of 1 to 16 bytes".into()));
    }
    on(HostFile::open_log(&of.logfile, false)?, |env, area| {
        Box::pin(async move {
            let log = Log::open(&env, area, OpenOptions::default()).await?;
            let mut id = [0; 16];
            id[..name.len()].copy_from_slice(name.as_bytes());
            f(log.client(id, &name)?).await
        })
    })
}

fn format(path: &Path, size: u64, force: bool) -> Result<Outcome, Failure> {
    let mut new = NewFiles::default();
    let file = match path.exists() {
        true => HostFile::open_log(path, false)?,
        false => new.create(path, size)?,
    };
    let device = FileDevice(Arc::new(file));
    if let Some(there) = what_is_there(&device, path)?.filter(|_| !force) {
        let why = format!("there is {there} already, which --force would destroy");
        return Err(Failure::Failed(format!("{}: {why}", path.display())));
    }
    let file = Arc::into_inner(device.0).expect("nobody else has it");
    let uuid = entropy().map_err(|e| format!("no random bytes: {e}"))?;
    on(file, |_, area| {
        Box::pin(async move {
            let options = FormatOptions { uuid, ..FormatOptions::default() };
            Log::format(&area, &options).await
        })
    })?;
    new.stay();
    Ok(Outcome::Done)
}

fn append(of: &LogClient, text: &[String]) -> Result<Outcome, Failure> {
    let mut entries: Vec<Vec<u8>> = text.iter().map(|t| t.clone().into_bytes()).collect();
    if entries.is_empty() {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map_err(|e| format!("standard input: {e}"))?;
        entries.push(bytes);
    }
    let lsns = writing(of, |client| {
        Box::pin(async move {
            let mut all = Vec::new();
            for e in entries {
                all.push(client.append(&e)?);
            }
            if let Some(last) = all.last() {
                client.flush(*last).await?;
            }
            Ok(all)
        })
    })?;
    lsns.iter().for_each(|l| tell!("{l}"));
    Ok(Outcome::Done)
}

fn read(path: &Path, lsn: Lsn) -> Result<Outcome, Failure> {
    let found = reading(path, move |log| {
        Box::pin(async move {
            let entry = log.scan(lsn).next().await?.filter(|e| e.lsn == lsn);
            entry.ok_or(LogError::NoEntry(lsn))
        })
    })?;
    let mut to = std::io::stdout().lock();
    let wrote = to.write_all(&found.bytes).and_then(|()| to.flush());
    wrote.map_err(|e| format!("standard output: {e}"))?;
    Ok(Outcome::Done)
}

fn scan(path: &Path, from: Lsn, as_json: bool) -> Result<Outcome, Failure> {
    let (entries, info) = reading(path, move |log| {
        Box::pin(async move {
            let mut scan = log.scan(from);
            let mut all = Vec::new();
            while let Some(e) = scan.next().await? {
                all.push((e.lsn, e.client, e.bytes.len()));
            }
            Ok((all, log.info()))
        })
    })?;
    let name = |id: wal::ClientId| {
        info.clients.get(usize::from(id.0)).map_or(String::new(), |c| c.1.clone())
    };
    if as_json {
        let list: Vec<_> = entries
            .iter()
            .map(|(l, c, n)| json!({ "lsn": l.0, "client": name(*c), "bytes": n }))
            .collect();
        tell!("{}", json!(list));
        return Ok(Outcome::Done);
    }
    for (lsn, client, bytes) in entries {
        tell!("{lsn:>14} {:16} {bytes}", format::shown(name(client).as_bytes()));
    }
    Ok(Outcome::Done)
}

fn trim(of: &LogClient, lsn: Lsn) -> Result<Outcome, Failure> {
    writing(of, move |client| {
        Box::pin(async move {
            client.trim(lsn);
            client.log().persist().await
        })
    })?;
    Ok(Outcome::Done)
}

fn info(path: &Path, as_json: bool) -> Result<Outcome, Failure> {
    let i: LogInfo = reading(path, |log| Box::pin(async move { Ok(log.info()) }))?;
    let hex = |id: &[u8; 16]| id.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let clients = i.clients.iter().map(|(id, label, needs)| {
        json!({ "id": hex(id), "label": label, "needs_from": needs.map(|l| l.0) })
    });
    let all = json!({
        "uuid": hex(&i.uuid),
        "epoch": i.epoch.0,
        "capacity": i.capacity,
        "segment_bytes": i.segment_bytes,
        "unit": i.unit,
        "head": i.head.0,
        "end": i.durable.0,
        "reads_to_find_the_end": i.tail_probes,
        "clients": clients.collect::<Vec<_>>(),
    });
    if as_json {
        tell!("{all}");
        return Ok(Outcome::Done);
    }
    let serde_json::Value::Object(map) = &all else { return Ok(Outcome::Done) };
    for (key, value) in map.iter().filter(|(k, _)| *k != "clients") {
        tell!("{:22} {}", key.replace('_', " "), value.to_string().trim_matches('"'));
    }
    for (id, label, needs) in &i.clients {
        let label = format::shown(label.as_bytes());
        let needs = needs.map_or("nothing".to_owned(), |l| format!("from {l} on"));
        tell!("client                 {label} ({}): {needs}", hex(id));
    }
    Ok(Outcome::Done)
}

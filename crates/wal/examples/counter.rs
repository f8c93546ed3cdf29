//! A program with a log of its own: counters that survive a crash at any moment. Each addition is
//! an entry; the state is what the entries add up to, read back at every start; a summary is
//! written and the log trimmed when there are many. It shows every step a user of the log takes.
//!
//! ```text
//! counter LOGFILE              prints all counters
//! counter LOGFILE NAME [N]     adds N (1), durably, and prints the sum
//! ```

#![expect(clippy::disallowed_macros, reason = "a program prints; the core does not")]

use env::{DiskId, Env};
use host::{HostFile, drive, entropy};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use wal::{Client, FormatOptions, Log, LogArea, LogError, OpenOptions};

type Counters = BTreeMap<String, i64>;

/// After so many entries a summary takes their place.
const ENTRIES_MAX: u64 = 1000;

/// An entry: `=` or `+`, and for each counter "name number" in a line.
fn encode(kind: char, counters: &Counters) -> Vec<u8> {
    let lines: Vec<String> = counters.iter().map(|(name, n)| format!("{name} {n}")).collect();
    format!("{kind}{}", lines.join("\n")).into_bytes()
}

fn apply(bytes: &[u8], to: &mut Counters) {
    let text = String::from_utf8_lossy(bytes);
    if text.starts_with('=') {
        to.clear(); // a summary says all
    }
    for line in text.get(1..).unwrap_or_default().lines() {
        if let Some((name, n)) = line.rsplit_once(' ') {
            *to.entry(name.to_owned()).or_default() += n.parse::<i64>().unwrap_or(0);
        }
    }
}

/// The counters as the log has them, and how many entries say so.
async fn load(client: &Client) -> Result<(Counters, u64), LogError> {
    let (mut counters, mut entries) = (Counters::new(), 0);
    let mut scan = client.scan(wal::Lsn(0));
    while let Some(e) = scan.next().await? {
        apply(&e.bytes, &mut counters);
        entries += 1;
    }
    Ok((counters, entries))
}

async fn add(env: Env, area: LogArea, name: String, n: i64) -> Result<Counters, LogError> {
    let log = Log::open(&env, area, OpenOptions::default()).await?;
    let client = log.client(*b"example-counters", "counters")?;
    let (mut counters, entries) = load(&client).await?;
    let one = Counters::from([(name, n)]);
    let entry = encode('+', &one);
    let room = client.reserve(entry.len() as u64).await?;
    let lsn = client.append_reserved(room, &entry)?;
    client.flush(lsn).await?; // from here on it survives
    apply(&entry, &mut counters);
    if entries >= ENTRIES_MAX {
        let summary = client.append(&encode('=', &counters))?;
        client.flush(summary).await?; // before what it replaces is given up
        client.trim(summary);
        log.persist().await?;
    }
    Ok(counters)
}

fn run(path: &str, change: Option<(String, i64)>) -> Result<Counters, String> {
    let uuid = entropy().map_err(|e| e.to_string())?;
    let is_new = !Path::new(path).exists();
    let file = match is_new {
        true => HostFile::create(Path::new(path), 4 << 20)?,
        false => HostFile::open(Path::new(path), change.is_none())?,
    };
    let bytes = file.size_bytes();
    let done = drive(&[Arc::new(file)], 1, |env| {
        let area = LogArea::whole(env.port().disk(DiskId(0), bytes));
        Box::pin(async move {
            if is_new {
                let options = FormatOptions { uuid, ..FormatOptions::default() };
                Log::format(&area, &options).await?;
            }
            match change {
                Some((name, n)) => add(env, area, name, n).await,
                None => {
                    let log = Log::open_read_only(&env, area).await?;
                    Ok(load(&log.client(*b"example-counters", "counters")?).await?.0)
                }
            }
        })
    });
    done.map_err(|e| format!("{path}: {e}"))
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let change = args.get(1).map(|name| {
        let n = args.get(2).map_or(Ok(1), |n| n.parse());
        (name.replace(['\n', ' '], "_"), n.unwrap_or(1))
    });
    let Some(path) = args.first() else {
        eprintln!("usage: counter LOGFILE [NAME [N]]");
        std::process::exit(2);
    };
    match run(path, change) {
        Ok(counters) => counters.iter().for_each(|(name, n)| println!("{name} {n}")),
        Err(why) => {
            eprintln!("counter: {why}");
            std::process::exit(1);
        }
    }
}

//! `cairn snapshot`: makes, lists, deletes and mounts snapshots of a volume in a log-structured
//! store, on a disk or in a bucket: by the server that has it, if it is served from this machine,
//! else in the store itself.

use crate::args::{SnapshotArgs, SnapshotCommand};
use crate::status::Server;
use crate::{Failure, Outcome, disk};
use jiff::Timestamp;
use serde_json::json;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use vfs::SnapshotOp;

/// The command.
pub fn run(a: SnapshotArgs) -> Result<Outcome, Failure> {
    match a.command {
        SnapshotCommand::Create { image } => create(&image),
        SnapshotCommand::List { image, json } => list(&image, json),
        SnapshotCommand::Delete { image } => delete(&image),
        SnapshotCommand::Clone { snapshot, clone } => {
            let wanted = || Failure::Usage(format!("{}: URL@NAME is wanted", snapshot.display()));
            let of = disk::snapshot_of(&snapshot).ok_or_else(wanted)?;
            super::objects::clone(of, &clone)?;
            tell!("{}", clone.display());
            Ok(Outcome::Done)
        }
        SnapshotCommand::Mount(m) => match disk::snapshot_of(&m.image) {
            Some(_) => super::serve::mount(*m),
            None => Err(Failure::Usage(format!("{}: IMAGE@NAME is wanted", m.image.display()))),
        },
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A time as a name that sorts: 2026-11-22T21:30:00.
fn told(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|s| Timestamp::from_second(s).ok());
    time.map_or_else(|| seconds.to_string(), |t| t.strftime("%Y-%m-%dT%H:%M:%S").to_string())
}

/// The server that has this volume, and the volume's place in its report. One that only reads a
/// bucket keeps nobody from it.
fn server_of(image: &Path) -> Option<(Server, usize)> {
    let (server, name) = super::scrub::server_of(image)?;
    let number = server.report.volumes.iter().position(|v| v.name == name)?;
    let beside =
        server.report.volumes[number].read_only && super::objects::is_bucket(image).ok()?;
    (!beside).then_some((server, number))
}

/// What a server could not do, as the command says it.
fn failure(image: &Path, e: &io::Error) -> Failure {
    Failure::Failed(format!("{}: {e}", image.display()))
}

/// Errors: the volume has no store that could keep snapshots.
fn refuse_plain(image: &Path) -> Result<(), Failure> {
    if super::lfs::is_store(image)? {
        return Ok(());
    }
    let why = "it is in no log-structured store: cairn mkfs --profile lfs makes volumes that are";
    Err(Failure::Failed(format!("{}: {why}", image.display())))
}

/// Makes or deletes a snapshot of a volume that nobody serves.
fn in_store(image: &Path, op: SnapshotOp) -> Result<(), Failure> {
    if super::objects::is_bucket(image)? {
        return super::objects::snapshot(image, op, now());
    }
    refuse_plain(image)?;
    let made = now();
    super::lfs::on_with(image, lfs::OpenOptions::default(), move |_, store| {
        Box::pin(async move {
            match op {
                SnapshotOp::Make(name) => store.snapshot(&name, made).await?,
                SnapshotOp::Delete(name) => store.delete_snapshot(&name).await?,
                SnapshotOp::List => (),
            }
            store.reclaimed().await;
            store.checkpoint().await.map_err(|e| e.to_string())
        })
    })
}

fn create(image: &Path) -> Result<Outcome, Failure> {
    let (image, name) = match disk::snapshot_of(image) {
        Some((image, name)) => (image, name.to_owned()),
        None => (image, told(now())),
    };
    if !disk::exists(image) {
        let why = "there is no such image, or the name behind the @ is none";
        return Err(Failure::Failed(format!("{}: {why}", image.display())));
    }
    match server_of(image) {
        Some((server, volume)) => {
            server.snapshot("create", volume, &name).map_err(|e| failure(image, &e))?;
        }
        None => in_store(image, SnapshotOp::Make(name.clone()))?,
    }
    tell!("{}@{name}", image.display());
    Ok(Outcome::Done)
}

fn delete(image: &Path) -> Result<Outcome, Failure> {
    let wanted = || Failure::Usage(format!("{}: IMAGE@NAME is wanted", image.display()));
    let (image, name) = disk::snapshot_of(image).ok_or_else(wanted)?;
    match server_of(image) {
        Some((server, volume)) => {
            server.snapshot("delete", volume, name).map_err(|e| failure(image, &e))?;
        }
        None => in_store(image, SnapshotOp::Delete(name.to_owned()))?,
    }
    Ok(Outcome::Done)
}

/// When each was made, and its name.
fn all_of(image: &Path) -> Result<Vec<(u64, String)>, Failure> {
    if let Some((server, volume)) = server_of(image) {
        let told = server.snapshot("list", volume, "").map_err(|e| failure(image, &e))?;
        let told = String::from_utf8_lossy(&told).into_owned();
        let line = |l: &str| {
            let (made, name) = l.split_once(' ')?;
            Some((made.parse().ok()?, name.to_owned()))
        };
        return Ok(told.lines().filter_map(line).collect());
    }
    if super::objects::is_bucket(image)? {
        return super::objects::snapshots(image);
    }
    refuse_plain(image)?;
    let options = lfs::OpenOptions { read_only: true, ..lfs::OpenOptions::default() };
    super::lfs::on_with(image, options, |_, store| {
        let all = store.snapshots().into_iter().map(|s| (s.made, s.name)).collect();
        Box::pin(async move { Ok(all) })
    })
}

fn list(image: &Path, as_json: bool) -> Result<Outcome, Failure> {
    let all = all_of(image)?;
    if as_json {
        let one = |(made, name): &(u64, String)| json!({ "name": name, "made": made });
        tell!("{}", json!(all.iter().map(one).collect::<Vec<_>>()));
    } else {
        all.iter().for_each(|(made, name)| tell!("{}  {name}", told(*made)));
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn times_are_told_as_the_calendar_has_them() {
        assert_eq!(told(0), "1970-01-01T00:00:00");
        assert_eq!(told(951_782_400 + 86_399), "2000-02-29T23:59:59");
        assert_eq!(told(1_795_383_000), "2026-11-22T21:30:00");
        assert_eq!(told(4_107_542_400), "2100-03-01T00:00:00");
    }
}

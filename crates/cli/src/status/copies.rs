//! Copies of volumes in use, as the server has a part in them: it notes what is written meanwhile,
//! tells that, and holds changes back for a moment. Who copies is another process, and may vanish.

use super::collect::Status;
use host::Changes;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vfs::{FsError, Reply, Request, SnapshotOp};

/// Who is silent for so long has vanished, and another copy may begin.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest that changes are held back.
const HELD_MS_MAX: u64 = 600_000;
/// So long a volume may take to come to rest, beside the time that is asked for.
const REST: Duration = Duration::from_secs(300);

/// What was written since the last time it was asked for.
#[derive(Default, Serialize, Deserialize)]
pub struct Changed {
    /// First byte and bytes, in order.
    pub ranges: Vec<(u64, u64)>,
    /// Writes that were under way when the ranges had been taken.
    pub writing: u64,
}

/// The copies that are being taken, by the volumes' numbers.
#[derive(Default)]
pub struct Copies(Mutex<HashMap<usize, (Arc<Changes>, Instant)>>);

impl Copies {
    /// Its marks; and it was heard of.
    fn of(&self, volume: usize) -> Result<Arc<Changes>, String> {
        let mut all = self.0.lock().expect("nobody panics while holding it");
        let (changes, heard) = all.get_mut(&volume).ok_or("no copy of it is being taken")?;
        *heard = Instant::now();
        Ok(changes.clone())
    }

    fn begin(&self, volume: usize, watch: impl FnOnce() -> Arc<Changes>) -> Result<(), String> {
        let mut all = self.0.lock().expect("nobody panics while holding it");
        if all.get(&volume).is_some_and(|(_, heard)| heard.elapsed() < SILENCE) {
            return Err("a copy of it is being taken".into());
        }
        all.insert(volume, (watch(), Instant::now()));
        Ok(())
    }

    fn end(&self, volume: usize) {
        self.0.lock().expect("nobody panics while holding it").remove(&volume);
    }
}

impl Status {
    /// One step: `STEP/NUMBER`, by the volume's place in the report. Returns the answer, as JSON.
    /// Errors: a sentence.
    pub(super) async fn copy(&self, path: &str) -> Result<String, String> {
        let unknown = || format!("{path}: no step of a copy");
        let (step, rest) = path.split_once('/').ok_or_else(unknown)?;
        let (most, number) = match step {
            "freeze" => rest.split_once('/').ok_or_else(unknown)?,
            _ => ("", rest),
        };
        let volume: usize = number.parse().map_err(|_| unknown())?;
        let file = &self.volumes.get(volume).ok_or_else(unknown)?.file;
        match step {
            "begin" if file.is_bucket() => {
                return Err("it lies in a bucket: cairn lfs export makes an image of it".into());
            }
            "begin" => self.copies.begin(volume, || file.watch())?,
            "changed" => {
                let ranges = self.copies.of(volume)?.take();
                let changed = Changed { ranges, writing: file.writes_under_way() };
                return Ok(serde_json::to_string(&changed).expect("numbers only"));
            }
            "freeze" => {
                let ms = most.parse().ok().filter(|ms| *ms <= HELD_MS_MAX).ok_or_else(unknown)?;
                self.copies.of(volume)?;
                let most = env::Nanos::from_millis(ms);
                self.hold(volume, Request::Freeze { most }).await?;
            }
            "thaw" => self.hold(volume, Request::Thaw).await?,
            "alive" => drop(self.copies.of(volume)?),
            "end" => self.copies.end(volume),
            _ => return Err(unknown()),
        }
        Ok("{}".into())
    }

    /// `create/NUMBER/NAME`, `delete/NUMBER/NAME` or `list/NUMBER/`, by the volume's place in the
    /// report. Returns the answer. Errors: a sentence.
    pub(super) async fn snapshot(&self, path: &str) -> Result<String, String> {
        let unknown = || format!("{path}: nothing to do with snapshots");
        let mut parts = path.splitn(3, '/');
        let (Some(step), Some(number), Some(name)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(unknown());
        };
        let volume: usize = number.parse().map_err(|_| unknown())?;
        if self.volumes.get(volume).is_none() {
            return Err(unknown());
        }
        let op = match step {
            "create" => SnapshotOp::Make(name.to_owned()),
            "delete" => SnapshotOp::Delete(name.to_owned()),
            "list" => SnapshotOp::List,
            _ => return Err(unknown()),
        };
        let why = match self.ask_one(volume, Request::Snapshot(op), REST).await {
            Some(Ok(Reply::Bytes(all))) => return Ok(String::from_utf8_lossy(&all).into_owned()),
            Some(Ok(_)) => return Ok(String::new()),
            Some(Err(FsError::Exists)) => format!("there is a snapshot of the name {name} already"),
            Some(Err(FsError::NotFound)) => format!("there is no snapshot of the name {name}"),
            Some(Err(FsError::Invalid)) => format!("{name}: no name of a snapshot"),
            Some(Err(FsError::Busy)) if step == "delete" => {
                "it stays: a clone needs it (the server's log says which), or the bucket failed"
                    .into()
            }
            Some(Err(FsError::Busy)) => "it does not come to rest".into(),
            Some(Err(FsError::NotSupported)) => {
                "its store has no snapshots: cairn mkfs --profile lfs makes volumes that have"
                    .into()
            }
            Some(Err(e)) => e.to_string(),
            None => "the volume does not answer".into(),
        };
        Err(why)
    }

    async fn hold(&self, volume: usize, request: Request) -> Result<(), String> {
        match self.ask_one(volume, request, REST).await {
            Some(Ok(_)) => Ok(()),
            Some(Err(FsError::Busy)) => Err("it does not come to rest".into()),
            Some(Err(FsError::Stale)) => Err("changes were held back for too long".into()),
            Some(Err(e)) => Err(e.to_string()),
            None => Err("the volume does not answer".into()),
        }
    }
}

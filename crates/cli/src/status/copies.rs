//! Copies of volumes in use, as the server has a part in them: it notes what is written meanwhile,
//! tells that, and holds changes back for a moment. Who copies is another process, and may vanish.
//!
//! Invariants:
//! * C1. Of a volume one copy is taken at a time, and a later one has a greater number.

use super::collect::Status;
use host::Changes;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// What `begin` answers.
#[derive(Serialize, Deserialize)]
pub struct Begun {
    /// Every later step brings it: whoever was taken for dead learns that another copy has begun,
    /// and does not empty that one's marks.
    pub copy: u64,
    /// The file that is written, as [`host::HostFile::number`] has it: at its path there may be
    /// another one by now.
    #[serde(default)]
    pub file: Option<(u64, u64)>,
}

/// A copy that is being taken. Whoever has it beside the table is in the middle of a step.
struct CopySession {
    number: u64,
    changes: Arc<Changes>,
    heard: Mutex<Instant>,
}

/// The copies that are being taken, by the volumes' numbers.
#[derive(Default)]
pub struct Copies {
    sessions: Mutex<HashMap<usize, Arc<CopySession>>>,
    begun: AtomicU64,
}

impl Copies {
    /// The copy of this volume and number; and it was heard of.
    fn of(&self, (volume, number): (usize, u64)) -> Result<Arc<CopySession>, String> {
        let all = self.sessions.lock().expect("nobody panics while holding it");
        let session = all.get(&volume).ok_or("no copy of it is being taken")?;
        if session.number != number {
            return Err("nothing was heard of this copy for too long: another has begun".into());
        }
        *session.heard.lock().expect("nobody panics while holding it") = Instant::now();
        Ok(session.clone())
    }

    fn begin(&self, volume: usize, watch: impl FnOnce() -> Arc<Changes>) -> Result<Begun, String> {
        let mut all = self.sessions.lock().expect("nobody panics while holding it");
        let goes_on = |session: &Arc<CopySession>| {
            let heard = session.heard.lock().expect("nobody panics while holding it");
            Arc::strong_count(session) > 1 || heard.elapsed() < SILENCE
        };
        if all.get(&volume).is_some_and(goes_on) {
            return Err("a copy of it is being taken".into());
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let session = CopySession { number, changes: watch(), heard: Mutex::new(Instant::now()) };
        let before = all.insert(volume, Arc::new(session));
        let earlier = before.map_or(0, |s| s.number);
        assert!(earlier < number, "C1: copy {number} takes the place of {earlier}");
        Ok(Begun { copy: number, file: None })
    }

    fn end(&self, (volume, number): (usize, u64)) {
        let mut all = self.sessions.lock().expect("nobody panics while holding it");
        if all.get(&volume).is_some_and(|session| session.number == number) {
            all.remove(&volume);
        }
    }
}

impl Status {
    /// One step: `begin/VOLUME`, by the volume's place in the report, then `STEP/VOLUME/COPY`, by
    /// the number that was answered. Returns the answer, as JSON. Errors: a sentence.
    pub(super) async fn copy(&self, path: &str) -> Result<String, String> {
        let unknown = || format!("{path}: no step of a copy");
        let (step, rest) = path.split_once('/').ok_or_else(unknown)?;
        let (most, rest) = match step {
            "freeze" => rest.split_once('/').ok_or_else(unknown)?,
            _ => ("", rest),
        };
        let (volume, copy) = match rest.split_once('/') {
            Some((volume, copy)) => (volume, copy.parse().ok()),
            None => (rest, None),
        };
        let volume: usize = volume.parse().map_err(|_| unknown())?;
        let file = &self.volumes.get(volume).ok_or_else(unknown)?.file;
        if step == "begin" {
            if file.is_bucket() {
                return Err("it lies in a bucket: cairn lfs export makes an image of it".into());
            }
            let begun = self.copies.begin(volume, || file.watch())?;
            let begun = Begun { file: file.number().ok(), ..begun };
            return Ok(serde_json::to_string(&begun).expect("a number only"));
        }
        let of = (volume, copy.ok_or_else(unknown)?);
        match step {
            "changed" => {
                let ranges = self.copies.of(of)?.changes.take();
                let changed = Changed { ranges, writing: file.writes_under_way() };
                return Ok(serde_json::to_string(&changed).expect("numbers only"));
            }
            "freeze" => {
                let ms = most.parse().ok().filter(|ms| *ms <= HELD_MS_MAX).ok_or_else(unknown)?;
                let most = env::Nanos::from_millis(ms);
                // It may take longer than silence may: the copy is not given up meanwhile, and is
                // heard of once more at the end.
                let session = self.copies.of(of)?;
                let held = self.hold(volume, Request::Freeze { most }).await;
                drop(session);
                held.and(self.copies.of(of).map(drop))?;
            }
            "thaw" => {
                self.copies.of(of)?;
                self.hold(volume, Request::Thaw).await?;
            }
            "alive" => drop(self.copies.of(of)?),
            "end" => self.copies.end(of),
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
            Some(Err(FsError::NoSpace)) => {
                "there is no space left: cairn snapshot delete frees what only a snapshot holds"
                    .into()
            }
            Some(Err(FsError::ReadOnly)) => {
                "the volume is open for reading only: nothing about its snapshots can be changed"
                    .into()
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_taken_for_dead_is_told_and_takes_no_marks_of_the_next() {
        let path = std::env::temp_dir().join(format!("cairn-copies-{}", std::process::id()));
        let file = host::HostFile::create(&path, 1 << 20).expect("a file can be made");
        std::fs::remove_file(&path).expect("it was made");
        let copies = Copies::default();
        let begin = || copies.begin(0, || file.watch()).map(|begun| (0, begun.copy));
        let silent = |of| {
            let session = copies.of(of).expect("it is being taken");
            let past = Instant::now().checked_sub(SILENCE).expect("the machine runs for longer");
            *session.heard.lock().expect("nobody panics here") = past;
            session
        };
        let first = begin().expect("nobody copies");
        assert!(begin().is_err(), "it was heard of just now");
        let step = silent(first);
        assert!(begin().is_err(), "a step of it is under way, and may be for long");
        drop(step);
        let second = begin().expect("the first is silent");
        assert!(copies.of(first).is_err(), "the marks are the second's");
        copies.end(first);
        assert!(copies.of(second).is_ok(), "only its own copy is ended by the first");
        copies.end(second);
        assert!(copies.of(second).is_err());
        begin().expect("it was ended");
    }
}

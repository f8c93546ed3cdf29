//! Snapshots of a volume in a log-structured store: one that is made while the volume is in use,
//! and one that is looked at. Where a snapshot keeps its blocks is the store's business.

use crate::VolumeError;
use crate::store::Store;
use env::{Disk, DiskError, Env, Local, Nanos};
use std::rc::Rc;
use vfs::{Call, FsError, Reply, Request, SnapshotOp, Volume};

/// A volume in use stands still for so long at most while a snapshot of it is made.
const HELD: Nanos = Nanos::from_secs(30);

/// Does what is asked of a volume in use: it stands still while a snapshot is made, so that the
/// snapshot is whole by itself in every mode.
pub(crate) async fn in_use(
    env: &Env,
    volume: &Rc<dyn Volume>,
    store: &dyn Store,
    op: SnapshotOp,
) -> Result<Reply, FsError> {
    let now = env.wall().0 / 1_000_000_000;
    let SnapshotOp::Make(name) = op else { return store.snapshot(op, now).await };
    let ask = |request| volume.clone().call(Call::local(request));
    let until = env.now().plus(HELD);
    ask(Request::Freeze { most: HELD }).await.result?;
    let made = store.snapshot(SnapshotOp::Make(name.clone()), now).await;
    // Who comes too late lets go of nothing: by now it may stand still for a copy.
    let stood = match env.now() < until {
        true => ask(Request::Thaw).await.result,
        false => Err(FsError::Stale),
    };
    if made.is_ok() && stood.is_err() {
        // It went on before the snapshot was there.
        store.snapshot(SnapshotOp::Delete(name), now).await?;
        return Err(FsError::Busy);
    }
    made
}

/// A store with snapshots, on a disk or in a bucket.
pub(crate) trait Snapshotted {
    /// Those that there are, from the oldest to the newest.
    fn all(&self) -> Vec<lfs::Snapshot>;
    /// Makes one, durably; `made`: seconds since 1970.
    fn make<'a>(&'a self, name: &'a str, made: u64) -> Local<'a, Result<(), String>>;
    /// Deletes one, durably.
    fn delete<'a>(&'a self, name: &'a str) -> Local<'a, Result<(), String>>;
}

impl Snapshotted for lfs::Store {
    fn all(&self) -> Vec<lfs::Snapshot> {
        self.snapshots()
    }
    fn make<'a>(&'a self, name: &'a str, made: u64) -> Local<'a, Result<(), String>> {
        Box::pin(self.snapshot(name, made))
    }
    fn delete<'a>(&'a self, name: &'a str) -> Local<'a, Result<(), String>> {
        Box::pin(self.delete_snapshot(name))
    }
}

impl Snapshotted for bucket::Store {
    fn all(&self) -> Vec<lfs::Snapshot> {
        self.snapshots()
    }
    fn make<'a>(&'a self, name: &'a str, made: u64) -> Local<'a, Result<(), String>> {
        Box::pin(self.snapshot(name, made))
    }
    fn delete<'a>(&'a self, name: &'a str) -> Local<'a, Result<(), String>> {
        Box::pin(self.delete_snapshot(name))
    }
}

/// The same in the store.
pub(crate) async fn carry_out(
    store: &dyn Snapshotted,
    op: SnapshotOp,
    now: u64,
) -> Result<Reply, FsError> {
    let is_there = |name: &str| store.all().iter().any(|s| s.name == name);
    let done = match op {
        SnapshotOp::Make(name) if lfs::check_name(&name).is_err() => return Err(FsError::Invalid),
        SnapshotOp::Make(name) if is_there(&name) => return Err(FsError::Exists),
        SnapshotOp::Make(name) => store.make(&name, now).await,
        SnapshotOp::Delete(name) if !is_there(&name) => return Err(FsError::NotFound),
        SnapshotOp::Delete(name) => {
            let done = store.delete(&name).await;
            if let Some(why) = done.as_ref().err().filter(|_| is_there(&name)) {
                tracing::warn!("the snapshot {name} stays: {why}");
                return Err(FsError::Busy);
            }
            done
        }
        SnapshotOp::List => {
            let line = |s: lfs::Snapshot| format!("{} {}\n", s.made, s.name);
            let all: String = store.all().into_iter().map(line).collect();
            return Ok(Reply::Bytes(all.into_bytes()));
        }
    };
    done.map(|()| Reply::Done).map_err(|why| {
        tracing::error!("a snapshot: {why}");
        // The stores say it in a sentence, of which this is what their disks say.
        if why.contains("no space left") { FsError::NoSpace } else { FsError::Io }
    })
}

/// A snapshot, as what a layout lies on. Errors: there is none of that name.
pub(crate) fn shown(
    disk: Result<impl Disk + 'static, String>,
) -> Result<Rc<dyn Store>, VolumeError> {
    Ok(Rc::new(Shown(Rc::new(disk.map_err(VolumeError)?))))
}

/// It cannot be written, so there is nothing to be closed.
struct Shown(Rc<dyn Disk>);

impl Store for Shown {
    fn disk(&self) -> Rc<dyn Disk> {
        self.0.clone()
    }
    fn close(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async { Ok(()) })
    }
}

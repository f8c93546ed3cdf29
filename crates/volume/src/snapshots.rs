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
    ask(Request::Freeze { most: HELD }).await.result?;
    let made = store.snapshot(SnapshotOp::Make(name.clone()), now).await;
    let stood = ask(Request::Thaw).await.result;
    if made.is_ok() && stood.is_err() {
        // It went on before the snapshot was there.
        store.snapshot(SnapshotOp::Delete(name), now).await?;
        return Err(FsError::Busy);
    }
    made
}

/// The same in the store.
pub(crate) async fn carry_out(
    store: &lfs::Store,
    op: SnapshotOp,
    now: u64,
) -> Result<Reply, FsError> {
    let is_there = |name: &str| store.snapshots().iter().any(|s| s.name == name);
    let done = match op {
        SnapshotOp::Make(name) if lfs::check_name(&name).is_err() => return Err(FsError::Invalid),
        SnapshotOp::Make(name) if is_there(&name) => return Err(FsError::Exists),
        SnapshotOp::Make(name) => store.snapshot(&name, now).await,
        SnapshotOp::Delete(name) if !is_there(&name) => return Err(FsError::NotFound),
        SnapshotOp::Delete(name) => store.delete_snapshot(&name).await,
        SnapshotOp::List => {
            let line = |s: lfs::Snapshot| format!("{} {}\n", s.made, s.name);
            let all: String = store.snapshots().into_iter().map(line).collect();
            return Ok(Reply::Bytes(all.into_bytes()));
        }
    };
    done.map(|()| Reply::Done).map_err(|why| {
        tracing::error!("a snapshot: {why}");
        FsError::Io
    })
}

/// A snapshot of this name, as what a layout lies on. Errors: there is none.
pub(crate) fn shown(store: &lfs::Store, name: &str) -> Result<Rc<dyn Store>, VolumeError> {
    let disk = store.snapshot_disk(name).map_err(VolumeError)?;
    Ok(Rc::new(Shown(Rc::new(disk))))
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

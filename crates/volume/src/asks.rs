//! What other machines ask a volume in a bucket for that is in use here: snapshots. How they ask is
//! the store's business.

use crate::snapshots::in_use;
use crate::store::Store;
use bucket::Wish;
use env::Env;
use std::rc::Rc;
use vfs::{FsError, SnapshotOp, Volume};

/// Looks again and again, as long as the volume is open here.
pub(crate) fn start(env: &Env, volume: &Rc<dyn Volume>, store: &Rc<dyn Store>) {
    if store.asked_of().and_then(bucket::Store::looks_every).is_none() {
        return;
    }
    let (volume, store) = (Rc::downgrade(volume), Rc::downgrade(store));
    let env = env.clone();
    env.clone().spawn("asks", async move {
        loop {
            let (Some(volume), Some(store)) = (volume.upgrade(), store.upgrade()) else { return };
            let Some(of) = store.asked_of() else { return };
            let Some(every) = of.looks_every() else { return };
            if let Some(asked) = of.asked().await {
                let op = match asked.wish.clone() {
                    Wish::Create(name) => SnapshotOp::Make(name),
                    Wish::Delete(name) => SnapshotOp::Delete(name),
                };
                tracing::info!("asked by another machine: {op:?}");
                let done = in_use(&env, &volume, &*store, op).await;
                of.answer(&asked, done.map(drop).map_err(|e| told(&e))).await;
            }
            drop((volume, store));
            env.sleep(every).await;
        }
    });
}

/// What is wrong, for who has asked.
fn told(e: &FsError) -> String {
    match e {
        FsError::Exists => "there is a snapshot of that name already".into(),
        FsError::NotFound => "there is no snapshot of that name".into(),
        FsError::Invalid => "that is no name of a snapshot".into(),
        FsError::Busy => "it is needed by a clone, or the volume could not stand still".into(),
        e => format!("its writer could not do that: {e}"),
    }
}

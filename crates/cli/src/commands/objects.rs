//! The store of a volume in a bucket, where a command speaks to it and not to the volume: how it is
//! filled, whether it is whole, and its newest state as a plain image.

use super::lfs::Inside;
use crate::args::{LfsArgs, LfsCommand, OpenArgs};
use crate::image::bucket_options;
use crate::{Failure, Outcome, size};
use env::{Disk, DiskId, Env, Local};
use host::{HostFile, Url, drive};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use volume::{Ground, VolumeError, open_bucket};

/// Is a bucket meant? Errors: a URL that is not known.
pub fn is_bucket(image: &Path) -> Result<bool, Failure> {
    Ok(Url::of(image)?.is_some())
}

/// Runs `f` on the store.
fn on<T: 'static>(
    image: &Path,
    read_only: bool,
    f: impl FnOnce(Env, bucket::Store) -> Local<'static, Result<T, VolumeError>> + 'static,
) -> Result<T, Failure> {
    let file = Arc::new(HostFile::open(image, read_only)?);
    let bytes = file.size_bytes();
    let result = drive(&[file], 1, move |env| {
        Box::pin(async move {
            let bucket = bucket_options(&OpenArgs::default());
            let ground = Ground { bucket, ..Ground::alone(env.clone(), bytes, None) };
            let store = open_bucket(&ground, read_only).await?;
            f(env, store).await
        })
    });
    result.map_err(|e| Failure::Failed(format!("{}: {e}", image.display())))
}

/// `cairn lfs` of a bucket.
pub fn run(a: &LfsArgs) -> Result<Outcome, Failure> {
    match &a.command {
        LfsCommand::Stat { image, json } => stat(image, *json),
        LfsCommand::Clean { image, segments, .. } => clean(image, *segments),
        LfsCommand::Export { checkpoint: Some(_), .. } => {
            Err(Failure::Usage("--checkpoint: a bucket shows its newest state only".into()))
        }
        LfsCommand::Export { image, out, .. } => export(image, out),
    }
}

fn stat(image: &Path, as_json: bool) -> Result<Outcome, Failure> {
    let (wrong, filled, opened, memory) = on(image, true, |_, store| {
        Box::pin(async move {
            let wrong = store.verify().await.map_err(|e| VolumeError(e.to_string()))?;
            Ok((wrong, store.filled(), store.opened(), store.table_memory_bytes()))
        })
    })?;
    let (objects, blocks, live) = filled;
    if as_json {
        let all = json!({
            "objects": objects,
            "blocks": blocks,
            "live_blocks": live,
            "checkpoint": opened.checkpoint,
            "rolled_forward": opened.rolled,
            "epoch": opened.epoch,
            "table_memory_bytes": memory,
            "wrong": wrong,
        });
        println!("{all}");
    } else {
        let bytes = |blocks: u64| size::show(blocks * bucket::BLOCK_BYTES as u64);
        println!("objects      {objects}, {} in them, {} live", bytes(blocks), bytes(live));
        println!("epoch        {}", opened.epoch);
        println!("checkpoint   {}, {} objects behind it", opened.checkpoint, opened.rolled);
    }
    if wrong.is_empty() {
        return Ok(Outcome::Done);
    }
    for w in wrong.iter().take(20) {
        crate::say::err(&format!("{}: {w}", image.display()));
    }
    Ok(Outcome::Damaged)
}

fn clean(image: &Path, objects: u32) -> Result<Outcome, Failure> {
    let (emptied, stats) = on(image, false, move |_, store| {
        Box::pin(async move {
            let emptied = store.clean(objects as usize).await?;
            store.close().await?;
            Ok((emptied, store.stats()))
        })
    })?;
    println!("{}: {emptied} objects emptied, {} blocks moved", image.display(), stats.moved);
    Ok(Outcome::Done)
}

/// What is wrong with the store, and the report of the volume in it.
pub fn check_inside(
    image: &Path,
    options: check::Options,
) -> Result<(Vec<String>, check::Report), Failure> {
    on(image, true, move |env, store| {
        Box::pin(async move {
            let wrong = store.verify().await.map_err(|e| VolumeError(e.to_string()))?;
            let disk = std::rc::Rc::new(store);
            let inside = env::Blocking::made_of(&env, disk, &[DiskId(0)]).await?;
            let mut bar = crate::progress::Bar::new();
            Ok((wrong, check::check(&Inside(inside), &options, &mut bar)?))
        })
    })
}

/// The same, and all that its files hold.
pub fn read_inside(image: &Path) -> Result<super::check::Found, Failure> {
    on(image, true, move |env, store| {
        Box::pin(async move {
            let wrong = store.verify().await.map_err(|e| VolumeError(e.to_string()))?;
            let disk = std::rc::Rc::new(store);
            let inside = env::Blocking::made_of(&env, disk, &[DiskId(0)]).await?;
            Ok(super::check::Found::of(wrong, &Inside(inside)))
        })
    })
}

fn export(image: &Path, out: &Path) -> Result<Outcome, Failure> {
    if out.exists() {
        return Err(Failure::Failed(format!("{}: there is a file already", out.display())));
    }
    let to = out.to_path_buf();
    let copied = on(image, true, move |_, store| {
        Box::pin(async move {
            let file = HostFile::create(&to, store.size_bytes()).map_err(VolumeError)?;
            let write = |at, bytes: &[u8]| file.write_at(at, bytes).map_err(|e| e.to_string());
            let copied = volume::copy_out(&store, store.mapped(), write).await;
            let copied = copied.map_err(VolumeError)?;
            file.flush().map_err(|e| VolumeError(e.to_string()))?;
            Ok(copied)
        })
    })?;
    println!("{}: {}", out.display(), size::show(copied * bucket::BLOCK_BYTES as u64));
    Ok(Outcome::Done)
}

//! The store of a volume in a bucket, where a command speaks to it and not to the volume: how it is
//! filled, whether it is whole, and its newest state as a plain image.

use super::lfs::Inside;
use super::mkfs::NewFiles;
use crate::args::{LfsArgs, LfsCommand, OpenArgs};
use crate::image::bucket_options;
use crate::status::money;
use crate::{Failure, Outcome, size};
use bucket::{CloneOptions, Wish};
use env::{Disk, DiskId, Env, Local};
use host::{Url, drive};
use serde_json::{Value, json};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use vfs::SnapshotOp;
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
    let file = Arc::new(crate::disk::open(image, read_only)?);
    let bytes = file.size_bytes();
    let near = crate::buckets::near_log(&file, read_only)?;
    let near_bytes = near.as_ref().map(|n| n.size_bytes());
    let disks: Vec<_> = std::iter::once(file).chain(near).collect();
    let result = drive(&disks, 1, move |env| {
        Box::pin(async move {
            let bucket = bucket_options(&OpenArgs::default());
            let ground = Ground { bucket, ..Ground::alone(env.clone(), bytes, near_bytes) };
            let store = open_bucket(&ground, read_only).await?;
            let done = f(env, store.clone()).await;
            if done.is_err() {
                store.give_up().await;
            }
            done
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
    let (wrong, filled, opened, memory, (snapshots, own)) = on(image, true, |_, store| {
        Box::pin(async move {
            let wrong = store.verify().await.map_err(|e| VolumeError(e.to_string()))?;
            let names: Vec<String> = store.snapshots().into_iter().map(|s| s.name).collect();
            let snapshots = (names, store.snapshot_blocks());
            Ok((wrong, store.filled(), store.opened(), store.table_memory_bytes(), snapshots))
        })
    })?;
    let (objects, blocks, live) = filled;
    let stored = blocks * bucket::BLOCK_BYTES as u64;
    let month = money(crate::buckets::prices().of_a_month(stored));
    if as_json {
        let all = json!({
            "objects": objects,
            "blocks": blocks,
            "live_blocks": live,
            "cost_a_month_stored": month,
            "snapshot_blocks": own,
            "snapshots": snapshots,
            "checkpoint": opened.checkpoint.0,
            "rolled_forward": opened.rolled,
            "epoch": opened.epoch.0.0,
            "table_memory_bytes": memory,
            "wrong": wrong,
        });
        tell!("{all}");
    } else {
        let bytes = |blocks: u64| size::show(blocks * bucket::BLOCK_BYTES as u64);
        tell!("objects      {objects}, {} in them, {} live", bytes(blocks), bytes(live));
        tell!("epoch        {}", opened.epoch);
        tell!("checkpoint   {}, {} objects behind it", opened.checkpoint, opened.rolled);
        tell!("cost         {month} a month for what is stored");
        if !snapshots.is_empty() {
            tell!("snapshots    {}; {} that only they have", snapshots.join(", "), bytes(own));
        }
    }
    if wrong.is_empty() {
        return Ok(Outcome::Done);
    }
    for w in wrong.iter().take(20) {
        crate::say::err(&format!("{}: {w}", image.display()));
    }
    Ok(Outcome::Damaged)
}

/// What a command looks at: the volume, or a snapshot of it that was named.
fn shown(store: bucket::Store, snapshot: Option<String>) -> Result<Rc<dyn Disk>, VolumeError> {
    Ok(match snapshot {
        Some(name) => Rc::new(store.snapshot_disk(&name).map_err(VolumeError)?),
        None => Rc::new(store),
    })
}

/// The name of the snapshot that is meant.
fn named(image: &Path) -> Option<String> {
    crate::disk::snapshot_of(image).map(|(_, name)| name.to_owned())
}

/// Has the machine that writes the volume make or delete a snapshot. False: nobody writes it.
fn asked(image: &Path, op: &SnapshotOp) -> Result<bool, Failure> {
    let wish = match op {
        SnapshotOp::Make(name) => Wish::Create(name.clone()),
        SnapshotOp::Delete(name) => Wish::Delete(name.clone()),
        SnapshotOp::List => return Ok(false),
    };
    let file = Arc::new(crate::disk::open(image, true)?);
    let all = bucket_options(&OpenArgs::default());
    let (key, after) = (all.key, all.after);
    let done = drive(std::slice::from_ref(&file), seed()?, move |env| {
        let options = bucket::OpenOptions { key, after, ..bucket::OpenOptions::default() };
        let objects = env.port().bucket(DiskId(0));
        Box::pin(async move { bucket::ask_writer(&env, objects, &options, wish).await })
    });
    let done = done.map_err(|e| Failure::Failed(format!("{}: {e}", image.display())))?;
    Ok(done.is_some())
}

/// No two have the same.
fn seed() -> Result<u64, Failure> {
    let chance = host::entropy().map_err(|e| format!("no random bytes: {e}"))?;
    Ok(u64::from_le_bytes(*chance.first_chunk().expect("there are 16")))
}

/// Makes or deletes a snapshot; `now`: seconds since 1970.
pub fn snapshot(image: &Path, op: SnapshotOp, now: u64) -> Result<(), Failure> {
    if asked(image, &op)? {
        return Ok(());
    }
    on(image, false, move |_, store| {
        Box::pin(async move {
            let done = match op {
                SnapshotOp::Make(name) => store.snapshot(&name, now).await,
                SnapshotOp::Delete(name) => store.delete_snapshot(&name).await,
                SnapshotOp::List => Ok(()),
            };
            store.close().await?; // also where it could not be done
            done.map_err(VolumeError)
        })
    })
}

/// Uploads what the volume's near log has and the bucket has not; how many groups these were.
pub fn upload(image: &Path) -> Result<u64, Failure> {
    on(image, false, |_, store| {
        Box::pin(async move {
            let groups = store.stats().groups;
            store.close().await?;
            Ok(groups)
        })
    })
}

/// Makes a volume that begins as a snapshot of another one: that one's URL, and the name.
pub fn clone((origin, name): (&Path, &str), clone: &Path) -> Result<(), Failure> {
    let shown = clone.display();
    if crate::disk::snapshot_of(clone).is_some() {
        let why = "what is behind the @ would be a snapshot's name: call the volume something else";
        return Err(Failure::Usage(format!("{shown}: {why}")));
    }
    let (Some(from), Some(to)) = (Url::of(origin)?, Url::of(clone)?) else {
        let why = "only volumes in buckets have clones: two URLs are wanted";
        return Err(Failure::Usage(format!("{shown}: {why}")));
    };
    if !from.is_beside(&to) {
        let why = format!("{shown}: it has to lie in the bucket that {} is in", origin.display());
        return Err(Failure::Usage(why));
    }
    to.make_folder()?;
    let places = (from.whole_prefix()?, to.whole_prefix()?);
    let uuid = host::entropy().map_err(|e| format!("no random bytes: {e}"))?;
    let how = CloneOptions { uuid, places, key: crate::buckets::key(), plant: None };
    let opened = [crate::disk::open(origin, true)?, crate::disk::open(clone, false)?];
    let name = name.to_owned();
    let seed = u64::from_le_bytes(uuid[..8].try_into().expect("8 of 16 bytes"));
    let made = drive(&opened.map(Arc::new), seed, move |env| {
        Box::pin(async move {
            let [from, to] = [0, 1].map(|n| env.port().bucket(DiskId(n)));
            bucket::clone_snapshot(&env, (from, &name), to, how).await
        })
    });
    made.map_err(|e| Failure::Failed(format!("{shown}: {e}")))
}

/// A store in a few numbers, from its table.
pub fn figures(image: &Path) -> Result<Value, Failure> {
    on(image, true, |_, store| {
        let (objects, blocks, live) = store.filled();
        let bytes = |blocks: u64| blocks * bucket::BLOCK_BYTES as u64;
        let mut all = json!({
            "objects": objects,
            "stored_bytes": bytes(blocks),
            "live_bytes": bytes(live),
            "cost_a_month_stored": money(crate::buckets::prices().of_a_month(bytes(blocks))),
        });
        let names: Vec<String> = store.snapshots().into_iter().map(|s| s.name).collect();
        if !names.is_empty() {
            all["snapshots"] = json!(names.join(" "));
        }
        Box::pin(async move { Ok(all) })
    })
}

/// When each snapshot was made, and its name.
pub fn snapshots(image: &Path) -> Result<Vec<(u64, String)>, Failure> {
    on(image, true, |_, store| {
        let all = store.snapshots().into_iter().map(|s| (s.made, s.name)).collect();
        Box::pin(async move { Ok(all) })
    })
}

fn clean(image: &Path, objects: u32) -> Result<Outcome, Failure> {
    let (emptied, stats) = on(image, false, move |_, store| {
        Box::pin(async move {
            let emptied = store.clean(objects as usize).await?;
            store.close().await?;
            Ok((emptied, store.stats()))
        })
    })?;
    tell!("{}: {emptied} objects emptied, {} blocks moved", image.display(), stats.moved);
    Ok(Outcome::Done)
}

/// What is wrong with the store, and the report of the volume in it.
pub fn check_inside(
    image: &Path,
    options: check::Options,
) -> Result<(Vec<String>, check::Report), Failure> {
    let snapshot = named(image);
    on(image, true, move |env, store| {
        Box::pin(async move {
            let wrong = store.verify().await.map_err(|e| VolumeError(e.to_string()))?;
            let disk = shown(store, snapshot)?;
            let inside = env::Blocking::made_of(&env, disk, &[DiskId(0)]).await?;
            let mut bar = crate::progress::Bar::new();
            Ok((wrong, check::check_whole(&Inside(inside), &options, &mut bar)?))
        })
    })
}

/// The same, and all that its files hold.
pub fn read_inside(image: &Path) -> Result<super::check::Found, Failure> {
    let snapshot = named(image);
    on(image, true, move |env, store| {
        Box::pin(async move {
            let wrong = store.verify().await.map_err(|e| VolumeError(e.to_string()))?;
            let disk = shown(store, snapshot)?;
            let inside = env::Blocking::made_of(&env, disk, &[DiskId(0)]).await?;
            Ok(super::check::Found::of(wrong, &Inside(inside), true))
        })
    })
}

fn export(image: &Path, out: &Path) -> Result<Outcome, Failure> {
    if out.exists() {
        return Err(Failure::Failed(format!("{}: there is a file already", out.display())));
    }
    // A part of an image would look like one: stopped or failed, it goes again.
    let (to, mut new) = (out.to_path_buf(), NewFiles::default());
    let snapshot = named(image);
    let copied = on(image, true, move |_, store| {
        Box::pin(async move {
            let made = new.create(&to, store.size_bytes());
            let file = made.map_err(|e| VolumeError(e.words()))?;
            let write = |at, bytes: &[u8]| file.write_at(at, bytes).map_err(|e| e.to_string());
            let copied = match snapshot {
                Some(name) => {
                    let disk = store.snapshot_disk(&name).map_err(VolumeError)?;
                    volume::copy_out(&disk, store.snapshot_mapped(&disk), write).await
                }
                None => volume::copy_out(&store, store.mapped(), write).await,
            };
            let copied = copied.map_err(VolumeError)?;
            file.flush().map_err(|e| VolumeError(e.to_string()))?;
            new.stay();
            Ok(copied)
        })
    })?;
    tell!("{}: {}", out.display(), size::show(copied * bucket::BLOCK_BYTES as u64));
    Ok(Outcome::Done)
}

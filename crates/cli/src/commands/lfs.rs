//! `cairn lfs`: the log-structured store below a volume: how it is filled, cleaning it, and its
//! newest state as a plain image. What the volume in it holds is not looked at.

use super::mkfs::NewFiles;
use crate::args::{LfsArgs, LfsCommand};
use crate::{Failure, Outcome, size};
use env::{Disk, DiskId, Env, Local};
use host::{drive, entropy};
use serde_json::{Value, json};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// The command.
pub fn run(a: &LfsArgs) -> Result<Outcome, Failure> {
    let (LfsCommand::Stat { image, .. }
    | LfsCommand::Clean { image, .. }
    | LfsCommand::Export { image, .. }) = &a.command;
    if super::objects::is_bucket(image)? {
        return super::objects::run(a);
    }
    match &a.command {
        LfsCommand::Stat { image, json } => stat(image, *json),
        LfsCommand::Clean { image, segments, policy } => clean(image, *segments, *policy),
        LfsCommand::Export { image, out, checkpoint } => {
            export(image, out, checkpoint.unwrap_or_default())
        }
    }
}

/// Runs `f` on the store, opened for reading only.
fn on<T: 'static>(
    image: &Path,
    f: impl FnOnce(Env, lfs::Store) -> Local<'static, Result<T, String>> + 'static,
) -> Result<T, Failure> {
    on_with(image, lfs::OpenOptions { read_only: true, ..lfs::OpenOptions::default() }, f)
}

/// Runs `f` on the opened store.
pub(super) fn on_with<T: 'static>(
    image: &Path,
    options: lfs::OpenOptions,
    f: impl FnOnce(Env, lfs::Store) -> Local<'static, Result<T, String>> + 'static,
) -> Result<T, Failure> {
    on_disk(image, options.read_only, |env, disk| {
        Box::pin(async move {
            let store = lfs::Store::open(env.clone(), disk, options).await?;
            f(env, store).await
        })
    })
}

/// Runs `f` on the disk, whatever lies on it.
fn on_disk<T: 'static>(
    image: &Path,
    read_only: bool,
    f: impl FnOnce(Env, Rc<dyn Disk>) -> Local<'static, Result<T, String>> + 'static,
) -> Result<T, Failure> {
    let file = crate::disk::open(image, read_only)?;
    let seed = entropy().map_err(|e| format!("no random bytes: {e}"))?;
    let seed = u64::from_le_bytes(seed[..8].try_into().expect("8 of 16 bytes"));
    let bytes = file.size_bytes();
    let result = drive(&[Arc::new(file)], seed, |env| {
        let disk = env.port().disk(DiskId(0), bytes);
        f(env, disk)
    });
    result.map_err(|e| Failure::Failed(format!("{}: {e}", image.display())))
}

/// Everything that the store keeps is recomputed; a bar shows how far that is.
async fn verified(store: &lfs::Store) -> Result<lfs::Report, String> {
    use check::Progress;
    let mut bar = crate::progress::Bar::new();
    let mut tell = |done, all| bar.step("segments", done, all);
    store.verify_and_tell(true, &mut tell).await.map_err(|e| e.to_string())
}

/// What is wrong at the older checkpoint, which stands in for the newer where that is damaged;
/// nothing where there is none.
fn wrong_at_older(image: &Path) -> Result<Vec<String>, Failure> {
    let at = lfs::At::Older;
    let options = lfs::OpenOptions { read_only: true, at, ..lfs::OpenOptions::default() };
    let found = on_with(image, options, |_, store| {
        Box::pin(async move {
            let number = store.opened().generation;
            let told = |w: String| format!("at checkpoint {number}: {w}");
            Ok(match store.verify(false).await {
                Ok(report) => report.wrong.into_iter().map(told).collect(),
                Err(e) => vec![told(e.to_string())],
            })
        })
    });
    Ok(found.unwrap_or_default())
}

fn stat(image: &Path, as_json: bool) -> Result<Outcome, Failure> {
    let older = wrong_at_older(image)?;
    let (mut report, geometry, opened, memory, totals, snapshots) = on(image, |_, store| {
        Box::pin(async move {
            let report = verified(&store).await?;
            let (opened, memory) = (store.opened(), store.table_memory_bytes());
            let names: Vec<String> = store.snapshots().into_iter().map(|s| s.name).collect();
            Ok((report, store.geometry(), opened, memory, store.totals(), names))
        })
    })?;
    report.wrong.extend(older);
    let lfs::Filled { segments: [free, open, contents, table], tenths } = report.filled;
    if as_json {
        let all = json!({
            "segment_bytes": u64::from(geometry.segment_blocks) * lfs::BLOCK_BYTES as u64,
            "segments": geometry.segments,
            "virtual_blocks": geometry.virtual_blocks,
            "mapped_blocks": report.mapped,
            "thin": geometry.is_thin(),
            "capacity_blocks": geometry.capacity().min(geometry.virtual_blocks),
            "snapshot_blocks": report.snapshots,
            "snapshots": snapshots,
            "extents": report.extents,
            "free": free, "open": open, "contents": contents, "table": table,
            "by_tenths_full": tenths,
            "checkpoint": opened.generation,
            "rolled_forward": opened.rolled,
            "table_memory_bytes": memory,
            "totals": totals_of(&totals),
            "wrong": report.wrong,
        });
        tell!("{all}");
    } else {
        let bytes = u64::from(geometry.segment_blocks) * lfs::BLOCK_BYTES as u64;
        tell!("segments     {} of {}", geometry.segments, size::show(bytes));
        tell!("  free {free}, written into {open}, contents {contents}, table {table}");
        let tenths: Vec<String> = tenths.iter().map(u32::to_string).collect();
        tell!("  contents by how full, in tenths: {}", tenths.join(" "));
        let full = report.mapped as f64 * 100.0 / geometry.virtual_blocks as f64;
        tell!(
            "blocks       {} of {} ({full:.1} %), in {} extents",
            report.mapped,
            geometry.virtual_blocks,
            report.extents
        );
        if geometry.is_thin() {
            let most = geometry.capacity();
            let full = (report.mapped + report.snapshots) as f64 * 100.0 / most as f64;
            tell!("thin         at most {most} of them may hold something ({full:.1} % do)");
        }
        tell!(
            "checkpoint   {}, {} partial segments of log behind it",
            opened.generation,
            opened.rolled
        );
        tell!("written      {}", told(&totals));
        if !snapshots.is_empty() {
            let own = size::show(report.snapshots * lfs::BLOCK_BYTES as u64);
            tell!("snapshots    {}; {own} that only they have", snapshots.join(", "));
        }
    }
    if report.wrong.is_empty() {
        return Ok(Outcome::Done);
    }
    for w in report.wrong.iter().take(20) {
        crate::say::err(&format!("{}: {w}", image.display()));
    }
    Ok(Outcome::Damaged)
}

/// Its segments, and what the disk was measured to take, for a person.
pub(super) fn shape_told(image: &Path, chosen: bool) -> Result<String, Failure> {
    on(image, move |_, store| {
        let geometry = store.geometry();
        let bytes = u64::from(geometry.segment_blocks) * lfs::BLOCK_BYTES as u64;
        let shape = format!("{} segments of {}", geometry.segments, size::show(bytes));
        let told = match store.speed() {
            None => shape,
            Some(s) => {
                let (access, bandwidth) = (s.access as f64 / 1e6, s.bandwidth as f64 / 1e6);
                let asked = s.segment_bytes();
                let but =
                    if asked > bytes && !chosen { "; a small disk has smaller ones" } else { "" };
                format!(
                    "{shape}: the disk takes {access:.2} ms for an access and {bandwidth:.0} MB/s, \
                     which ask for {}{but}",
                    size::show(asked)
                )
            }
        };
        Box::pin(async move { Ok(told) })
    })
}

/// What was written until now, for a program.
fn totals_of(t: &lfs::Totals) -> Value {
    let bytes = |blocks: u64| blocks * lfs::BLOCK_BYTES as u64;
    json!({
        "user_bytes": t.user_bytes,
        "written_bytes": bytes(t.written),
        "cleaner_bytes": bytes(t.cleaner),
        "table_bytes": bytes(t.tables),
        "cleaner_read_bytes": bytes(t.cleaner_reads),
        "cleaned_segments": t.cleaned,
        "write_amplification": t.amplification(),
        "cleaning_share": t.cleaning_share(),
    })
}

/// The same for a person.
fn told(t: &lfs::Totals) -> String {
    let bytes = |blocks: u64| size::show(blocks * lfs::BLOCK_BYTES as u64);
    let below = t.amplification().map_or(String::new(), |a| format!(", {a:.2} times that"));
    format!(
        "{} by users; {} to the disk{below}: {} by the cleaner, {} for summaries, table and \
         checkpoints",
        size::show(t.user_bytes),
        bytes(t.written),
        bytes(t.cleaner),
        bytes(t.tables)
    )
}

/// A store in a few numbers, without recomputing anything.
pub(super) fn figures(image: &Path) -> Result<Value, Failure> {
    on(image, |_, store| {
        Box::pin(async move {
            let (filled, mut all) = (store.filled(), totals_of(&store.totals()));
            all["segment_bytes"] =
                json!(u64::from(store.geometry().segment_blocks) * lfs::BLOCK_BYTES as u64);
            all["segments"] = json!(store.geometry().segments);
            all["free_segments"] = json!(filled.segments[0]);
            all["by_tenths_full"] = json!(filled.tenths);
            let names: Vec<String> = store.snapshots().into_iter().map(|s| s.name).collect();
            if !names.is_empty() {
                all["snapshots"] = json!(names.join(" "));
            }
            Ok(all)
        })
    })
}

fn clean(image: &Path, segments: u32, policy: lfs::Policy) -> Result<Outcome, Failure> {
    let options = lfs::OpenOptions { policy, ..lfs::OpenOptions::default() };
    let (emptied, stats) = on_with(image, options, move |_, store| {
        Box::pin(async move {
            let emptied = store.clean(segments).await.map_err(|e| e.to_string())?;
            Ok((emptied, store.stats()))
        })
    })?;
    let (moved, plugged) = (stats.moved, stats.plugged);
    let shown = image.display();
    tell!(
        "{shown}: {emptied} segments emptied, {moved} blocks moved, {plugged} of them into holes"
    );
    Ok(Outcome::Done)
}

/// Is this a log-structured store, in a file or in a bucket? See [`volume::is_store`].
pub fn is_store(image: &Path) -> Result<bool, Failure> {
    if crate::disk::open(image, true)?.is_bucket() {
        return Ok(true);
    }
    on_disk(image, true, |_, disk| {
        Box::pin(async move { volume::is_store(&disk).await.map_err(|e| e.to_string()) })
    })
}

/// Was the store closed, so that no log lies behind its checkpoint?
pub(super) fn closed_cleanly(image: &Path) -> Result<bool, Failure> {
    on(image, |_, store| Box::pin(async move { Ok(store.opened().rolled == 0) }))
}

/// The volume, read through its store.
pub(super) struct Inside(pub(super) env::Blocking);

impl check::ReadBlocks for Inside {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), check::IoError> {
        self.0.read(at, into).map_err(|e| check::IoError { what: e.to_string(), at })
    }
}

/// The volume in the store, or what it was at a snapshot.
async fn inside(env: &Env, store: lfs::Store, snapshot: Option<String>) -> Result<Inside, String> {
    let disk: Rc<dyn Disk> = match snapshot {
        Some(name) => Rc::new(store.snapshot_disk(&name)?),
        None => Rc::new(store),
    };
    let made = env::Blocking::made_of(env, disk, &[DiskId(0)]).await;
    made.map(Inside).map_err(|e| e.to_string())
}

/// Recomputes what the store keeps, then checks the volume in it: what is wrong with the one, and
/// the report of the other.
pub fn check_inside(
    image: &Path,
    options: check::Options,
) -> Result<(Vec<String>, check::Report), Failure> {
    if super::objects::is_bucket(image)? {
        return super::objects::check_inside(image, options);
    }
    let snapshot = crate::disk::snapshot_of(image).map(|s| s.1.to_owned());
    let older = wrong_at_older(image)?;
    on(image, move |env, store| {
        Box::pin(async move {
            let mut wrong = verified(&store).await?.wrong;
            wrong.extend(older);
            let inside = inside(&env, store, snapshot).await?;
            let mut bar = crate::progress::Bar::new();
            let report = check::check_whole(&inside, &options, &mut bar);
            Ok((wrong, report.map_err(|e| e.to_string())?))
        })
    })
}

/// The same, and all that its files hold.
pub fn read_inside(image: &Path) -> Result<super::check::Found, Failure> {
    if super::objects::is_bucket(image)? {
        return super::objects::read_inside(image);
    }
    let snapshot = crate::disk::snapshot_of(image).map(|s| s.1.to_owned());
    on(image, move |env, store| {
        Box::pin(async move {
            let text = |e: env::DiskError| e.to_string();
            let wrong = store.verify(true).await.map_err(text)?.wrong;
            let inside = inside(&env, store, snapshot).await?;
            Ok(super::check::Found::of(wrong, &inside, true))
        })
    })
}

fn export(image: &Path, out: &Path, at: lfs::At) -> Result<Outcome, Failure> {
    if out.exists() {
        return Err(Failure::Failed(format!("{}: there is a file already", out.display())));
    }
    // A part of an image would look like one: stopped or failed, it goes again.
    let (to, mut new) = (out.to_path_buf(), NewFiles::default());
    let snapshot = crate::disk::snapshot_of(image).map(|s| s.1.to_owned());
    let options = lfs::OpenOptions { read_only: true, at, ..lfs::OpenOptions::default() };
    let mapped = on_with(image, options, move |_, store| {
        Box::pin(async move {
            let shown = snapshot.map(|name| store.snapshot_disk(&name)).transpose()?;
            let file = new.create(&to, store.size_bytes()).map_err(crate::Failure::words)?;
            let write = |at, bytes: &[u8]| file.write_at(at, bytes).map_err(|e| e.to_string());
            let copied = match shown {
                Some(disk) => {
                    let ranges = store.snapshot_mapped(&disk).await.map_err(|e| e.to_string())?;
                    volume::copy_out(&disk, ranges, write).await?
                }
                None => volume::export_blocks(&store, write).await?,
            };
            file.flush().map_err(|e| e.to_string())?;
            new.stay();
            Ok(copied)
        })
    })?;
    tell!("{}: {}", out.display(), size::show(mapped * lfs::BLOCK_BYTES as u64));
    Ok(Outcome::Done)
}

//! `cairn copy`: a volume's copy of one moment, also while the volume is in use. Where there is an
//! earlier copy only what differs is written. What comes out is clean, and needs no log.

mod live;
mod target;

use crate::args::CopyArgs;
use crate::progress::{Bar, RecoveryBar};
use crate::status::Server;
use crate::{Failure, Outcome, size};
use check::Progress;
use env::{Block, SECTOR_BYTES};
use format::ext::Superblock;
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use host::{HostFile, drive, entropy};
use live::Live;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use target::{Earlier, HEAD_BYTES, Target};
use volume::{Ground, Mode, OpenOptions};

/// So much is read at once.
const PIECE_BYTES: usize = 1 << 20;

/// What is copied.
struct Source {
    file: Arc<HostFile>,
    shown: String,
    /// Somebody writes to it.
    in_use: bool,
}

impl Source {
    fn bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    /// Copies a piece of at most [`PIECE_BYTES`].
    fn copy(&self, at: u64, len: u64, target: &mut Target) -> Result<(), Failure> {
        if self.file.is_hole(at, len) {
            return target.put_zeros(at, len);
        }
        // A file may end in the middle of a sector, behind all that the volume has.
        let rest = len % SECTOR_BYTES as u64;
        let whole = len - rest;
        let mut block = Block::zeroed(whole as usize);
        let read = match self.in_use {
            true => self.file.read_past_cache(at, &mut block),
            false => self.file.read_at(at, block.bytes_mut()),
        };
        let fail = |e| Failure::Failed(format!("{}: byte {at}: {e}", self.shown));
        read.map_err(fail)?;
        target.put(at, block.bytes())?;
        let mut behind = vec![0; rest as usize];
        self.file.read_at(at + whole, &mut behind).map_err(fail)?;
        target.put(at + whole, &behind)
    }
}

/// The UUID of a volume, or of the store it lies in; None: there is none. And does its journal lie
/// on another device?
fn identity(file: &HostFile) -> Option<([u8; 16], bool)> {
    let mut head = Block::zeroed(HEAD_BYTES);
    file.read_past_cache(0, &mut head).ok()?;
    if let Ok(store) = lfs::Superblock::decode(head.bytes()) {
        return Some((store.uuid, false));
    }
    let at = SUPERBLOCK_AT as usize;
    let sb = Superblock::decode(&head.bytes()[at..at + SUPERBLOCK_BYTES]).ok()?;
    Some((sb.uuid(), sb.journal_is_outside()))
}

/// The command.
pub fn run(a: &CopyArgs) -> Result<Outcome, Failure> {
    if !(a.hold > 0.0 && a.hold <= 600.0) {
        return Err(Failure::Usage("--hold is a number of seconds up to 600".into()));
    }
    match super::scrub::server_of(&a.src) {
        Some((server, name)) => served(a, &server, &name),
        None => at_rest(a),
    }
}

/// A volume that nobody changes.
fn at_rest(a: &CopyArgs) -> Result<Outcome, Failure> {
    let shown = a.src.display().to_string();
    let fail = |why: String| Failure::Failed(format!("{shown}: {why}"));
    let file = Arc::new(crate::disk::open(&a.src, true)?);
    if file.is_bucket() {
        return Err(fail("it lies in a bucket: cairn lfs export makes an image of it".into()));
    }
    if file.snapshot().is_some() {
        let why = "it is a snapshot, and its store would be copied as a whole: cairn lfs export \
                   makes an image of it";
        return Err(fail(why.into()));
    }
    let found = crate::image::look(std::slice::from_ref(&file))?;
    let p = found.ext().map_err(|e| fail(e.to_string()))?;
    if p.needs_recovery && (p.superblock.journal_is_outside() || p.log_is_outside()) {
        return Err(fail(
            "it was not closed cleanly, and what it lacks is on another device: cairn recover \
             --log PATH first"
                .into(),
        ));
    }
    let as_it_is = p.read_only.clone();
    let uuid = identity(&file).map_or([0; 16], |i| i.0);
    drop(found);
    let source = Source { file, shown: shown.clone(), in_use: false };
    let mut target = Target::open(&a.dst, &earlier(a, &source, uuid))?;
    let (mut bar, total) = (Bar::new(), source.bytes());
    for at in (0..total).step_by(PIECE_BYTES) {
        let piece = (PIECE_BYTES as u64).min(total - at);
        source.copy(at, piece, &mut target)?;
        bar.step("copying", at + piece, total);
    }
    let written = target.finish(&a.dst)?;
    if let Some(why) = as_it_is {
        tell!("{}: {}, as it is: {why}", a.dst.display(), size::show(written));
        return Ok(Outcome::Done);
    }
    recover(&a.dst)?;
    told(a, written, "");
    Ok(Outcome::Done)
}

/// A volume that a server of this machine has.
fn served(a: &CopyArgs, server: &Server, name: &str) -> Result<Outcome, Failure> {
    let number = server.report.volumes.iter().position(|v| v.name == name);
    let number = number.ok_or_else(|| format!("/{name} is not served any more"))?;
    let v = &server.report.volumes[number];
    if let Some(mount) = &v.mount {
        if is_below(&a.dst, mount) {
            let why = "it lies in the volume that is copied, which would never come to an end";
            return Err(Failure::Usage(format!("{}: {why}", a.dst.display())));
        }
        // What the mount's kernel holds back is asked for, too.
        let _ = std::fs::File::open(mount).map(rustix::fs::syncfs);
    }
    let image = PathBuf::from(&v.image);
    let shown = image.display().to_string();
    if host::Url::of(&image)?.is_some() {
        let why = "it lies in a bucket: cairn lfs export makes an image of it";
        return Err(Failure::Failed(format!("{shown}: {why}")));
    }
    let file = Arc::new(crate::disk::open_beside(&image)?);
    let (uuid, outside) = identity(&file).ok_or_else(|| format!("{shown}: no volume is there"))?;
    if outside {
        let why = "its journal is on another device: end its server first, and copy both";
        return Err(Failure::Failed(format!("{shown}: {why}")));
    }
    let source = Source { file, shown: shown.clone(), in_use: true };
    let mut live = Live::begin(server, number, &source)?;
    let mut target = Target::open(&a.dst, &earlier(a, &source, uuid))?;
    let went = live.run((&source, &mut target), Duration::from_secs_f64(a.hold))?;
    drop(live);
    let written = target.finish(&a.dst)?;
    recover(&a.dst)?;
    let held = went.held.as_secs_f64() * 1e3;
    let rounds = size::count(went.rounds.into(), "round");
    told(a, written, &format!(", in {rounds}; changes waited for {held:.0} ms"));
    Ok(Outcome::Done)
}

fn earlier<'a>(a: &'a CopyArgs, source: &'a Source, uuid: [u8; 16]) -> Earlier<'a> {
    Earlier { uuid, bytes: source.bytes(), force: a.force, source: source.file.path() }
}

fn told(a: &CopyArgs, written: u64, how: &str) {
    let dst = a.dst.display();
    tell!("{dst}: a clean copy; {} written{how}", size::show(written));
}

/// Is the file, there or not, on what is mounted at `mount`?
fn is_below(file: &Path, mount: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    let parent = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let device = |p: &Path| std::fs::metadata(p).ok().map(|m| m.dev());
    device(parent).is_some() && device(parent) == device(Path::new(mount))
}

/// Finishes what the copy shows as unfinished, as opening it would.
fn recover(dst: &Path) -> Result<(), Failure> {
    let file = Arc::new(crate::disk::open(dst, false)?);
    let bytes = file.size_bytes();
    let entropy = entropy().map_err(|e| format!("no random bytes: {e}"))?;
    let seed = u64::from_le_bytes(*entropy.last_chunk().expect("there are 16"));
    let watch = Some(Arc::new(RecoveryBar::new(None)) as Arc<dyn volume::Watch>);
    let options = OpenOptions { watch, ..OpenOptions::plain(Mode::Sync, 64 << 20, entropy) };
    let did = drive(&[file], seed, move |env| {
        Box::pin(
            async move { volume::recover_copy(&Ground::alone(env, bytes, None), &options).await },
        )
    });
    let why = |e| format!("{}: all of it is copied, and opening it would fail: {e}", dst.display());
    did.map(drop).map_err(|e| Failure::Failed(why(e)))
}

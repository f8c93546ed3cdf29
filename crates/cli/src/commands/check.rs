//! `cairn check`: is the volume sound, and can all of it be read? It changes nothing.

use crate::args::{CheckArgs, FsckArgs};
use crate::device::FileDevice;
use crate::progress::{Bar, Counter};
use crate::{Failure, Outcome, say, size};
use check::{CheckError, Contents, Options, Report, Unreadable, read_contents};
use host::now;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How much of a file in a mount is read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Lines about what cannot be read, before "and so on".
const SHOWN: usize = 200;

/// The command.
pub fn run(a: &CheckArgs) -> Result<Outcome, Failure> {
    if a.read && a.image.is_dir() {
        return mounted(&a.image, a.json);
    }
    if !a.read {
        return super::fsck::run(&FsckArgs {
            image: a.image.clone(),
            repair: false,
            discard_log: false,
            unless_clean: false,
            background: false,
            json: a.json,
        });
    }
    if let Some((server, name)) = super::scrub::server_of(&a.image) {
        let volumes = &server.report.volumes;
        let mount = volumes.iter().find(|v| v.name == name).and_then(|v| v.mount.clone());
        // What its server has not written yet can be read through the mount only.
        return mount.map_or_else(
            || {
                let image = a.image.display();
                Err(Failure::Failed(format!(
                    "{image}: it is served, and not mounted here: mount it and say `cairn check \
                     --read DIR`; `cairn fsck --background {image}` checks its structure meanwhile"
                )))
            },
            |mount| mounted(Path::new(&mount), a.json),
        );
    }
    closed(&a.image, a.json)
}

/// What was found in a closed volume.
pub struct Found {
    /// What is wrong with the store below it.
    pub wrong: Vec<String>,
    /// What is wrong with it; an error: a part of its metadata that cannot be read.
    pub report: Result<Report, CheckError>,
    /// What its files hold.
    pub contents: Result<Contents, CheckError>,
}

impl Found {
    /// Looks at a volume on this; `whole`: in a store, it is whole at every moment.
    pub fn of(wrong: Vec<String>, image: &dyn check::ReadBlocks, whole: bool) -> Found {
        let now_secs = now().wall.secs() as u32;
        let options = Options { now_secs, verify: false, mark_clean: false };
        let mut bar = Bar::new();
        let report = match whole {
            true => check::check_whole(image, &options, &mut bar),
            false => check::check(image, &options, &mut bar),
        };
        Found { wrong, report, contents: read_contents(image, &mut Bar::new()) }
    }
}

fn closed(image: &Path, as_json: bool) -> Result<Outcome, Failure> {
    let shown = image.display().to_string();
    let in_store = super::lfs::is_store(image)?;
    if crate::disk::snapshot_of(image).is_some() && !in_store {
        crate::image::look(&[Arc::new(crate::disk::open(image, true)?)])?; // there are none
    }
    let mut found = if in_store {
        super::lfs::read_inside(image)?
    } else {
        Found::of(Vec::new(), &FileDevice(Arc::new(crate::disk::open(image, true)?)), false)
    };
    if let (Ok(report), true) = (&mut found.report, in_store) {
        report.leave_out_totals();
    }
    let (report, contents) = match (found.report, found.contents) {
        // What keeps both off is said as by fsck.
        (Err(e), Err(_)) if !matches!(e, CheckError::Io(_)) => {
            return Err(Failure::Failed(format!("{shown}: {e}")));
        }
        both => both,
    };
    let unreadable = contents.as_ref().map_or(&[][..], |c| &c.unreadable[..]);
    let sound = report.as_ref().is_ok_and(Report::is_sound) && found.wrong.is_empty();
    if as_json {
        let all = serde_json::json!({
            "sound": sound,
            "store": found.wrong,
            "metadata_unreadable": report.as_ref().err().map(ToString::to_string),
            "findings": report.as_ref().map(|r| r.counts.values().sum::<u64>()).ok(),
            "files": contents.as_ref().map(|c| c.files).ok(),
            "bytes": contents.as_ref().map(|c| c.bytes).ok(),
            "unreadable": unreadable.iter().map(as_value).collect::<Vec<_>>(),
        });
        tell!("{all}");
    } else {
        found.wrong.iter().for_each(|w| say::err(&format!("{shown}: the store: {w}")));
        match &report {
            Ok(r) => super::fsck::print(&shown, r, (false, in_store)),
            Err(e) => say::err(&format!("{shown}: metadata that cannot be read: {e}")),
        }
        if let Err(e) = &contents {
            say::err(&format!("{shown}: the files cannot be found: {e}"));
        }
        unreadable.iter().take(SHOWN).for_each(|u| tell!("{}", told(u)));
        if unreadable.len() > SHOWN {
            tell!("… and {} more", unreadable.len() - SHOWN);
        }
        if let Ok(c) = &contents {
            let (read, bad) = (size::show(c.bytes), unreadable.len());
            tell!("{shown}: {read} of {} files read, {bad} unreadable", c.files);
        }
    }
    let whole = sound && contents.is_ok() && unreadable.is_empty();
    Ok(if whole { Outcome::Done } else { Outcome::Damaged })
}

/// What to say of a file that cannot be read.
fn told(u: &Unreadable) -> String {
    let name = match u.names.split_first() {
        None => format!("inode {}, which has no name", u.ino),
        Some((first, [])) => first.clone(),
        Some((first, more)) => format!("{first} (also {})", more.join(", ")),
    };
    format!(
        "{name}: {} blocks cannot be read, from byte {} of the volume on: {}",
        u.blocks, u.at, u.why
    )
}

fn as_value(u: &Unreadable) -> serde_json::Value {
    serde_json::json!({
        "inode": u.ino.0, "names": u.names, "blocks": u.blocks, "at": u.at, "why": u.why,
    })
}

/// Reads all files of a mounted volume. Its server compares the checksums of what it reads.
fn mounted(dir: &Path, as_json: bool) -> Result<Outcome, Failure> {
    let failed = |e: std::io::Error| Failure::Failed(format!("{}: {e}", dir.display()));
    let device = std::fs::symlink_metadata(dir).map_err(failed)?.dev();
    // Of one whose server was killed the kernel may still know what it is, and no more.
    std::fs::read_dir(dir).map_err(failed)?;
    let counter = Counter::new("files read");
    let (mut files, mut bytes, mut bad) = (0u64, 0u64, Vec::new());
    let mut dirs: Vec<PathBuf> = vec![dir.to_owned()];
    while let Some(at) = dirs.pop() {
        let mut each = |entry: std::io::Result<std::fs::DirEntry>| -> std::io::Result<()> {
            let path = entry?.path();
            // What goes away meanwhile is no fault.
            let Ok(meta) = std::fs::symlink_metadata(&path) else { return Ok(()) };
            if meta.dev() != device {
                return Ok(());
            }
            if meta.is_dir() {
                dirs.push(path);
            } else if meta.is_file() {
                counter.add(1);
                files += 1;
                match whole(&path) {
                    Ok(n) => bytes += n,
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => (),
                    Err(e) => bad.push((path, e.to_string())),
                }
            }
            Ok(())
        };
        let read = std::fs::read_dir(&at).and_then(|mut all| all.try_for_each(&mut each));
        if let Err(e) = read {
            bad.push((at, e.to_string()));
        }
    }
    drop(counter);
    if as_json {
        let all: Vec<_> = bad
            .iter()
            .map(|(p, why)| serde_json::json!({ "names": [p.display().to_string()], "why": why }))
            .collect();
        let all = serde_json::json!({ "files": files, "bytes": bytes, "unreadable": all });
        tell!("{all}");
    } else {
        let lines = bad.iter().take(SHOWN).map(|(p, why)| format!("{}: {why}", p.display()));
        lines.for_each(|l| tell!("{l}"));
        let (read, n, at) = (size::show(bytes), bad.len(), dir.display());
        tell!("{at}: {read} of {files} files read, {n} unreadable");
    }
    Ok(if bad.is_empty() { Outcome::Done } else { Outcome::Damaged })
}

/// Reads a file to its end, from the device as far as the kernel can be told to.
fn whole(path: &Path) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    let (mut piece, mut bytes) = (vec![0; PIECE_BYTES], 0);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(bytes),
            n => bytes += n as u64,
        }
    }
}

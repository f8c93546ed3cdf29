//! Volumes that are about to be served: looked at, recovered, and put behind their monitors, each
//! in a shard of its own or, where they share a log, in one. It knows no front end.
//!
//! Invariants:
//! * V1. A volume has one number everywhere: its place among those that were named.
//! * V2. What is served is open.

use crate::args::{OpenArgs, WritebackCache};
use crate::buckets::{has_near_log, near_of_volume, opened_near_log};
use crate::config::VolumeArgs;
use crate::image::{CONTENTS_ALONE_SHARE, check_found, check_open_args, look, not_opened};
use crate::image::{mode_of, options_of, tell, with_mode};
use crate::logs::{NewLog, existing_log, make_log};
use crate::progress::RecoveryBar;
use crate::status::OpeningWatch;
use crate::{Failure, say};
use format::ufs::inode::CLASSIC_BYTES;
use host::{Driver, HostFile};
use std::path::Path;
use std::sync::Arc;
use vfs::{Monitor, Reply, Request, VolumeInfo, VolumeState};
use volume::{Found, OpenOptions};

/// A volume and what it lies on.
pub(super) struct Served {
    /// Its export's name, without the slash.
    pub(super) name: String,
    pub(super) monitor: Arc<Monitor>,
    pub(super) file: Arc<HostFile>,
    /// The disks of its shard: its own, and others' that share its log, and the log's if it has
    /// one.
    pub(super) disks: Vec<Arc<HostFile>>,
    /// Its log, if that was not there before.
    pub(super) new_log: Option<Arc<NewLog>>,
    pub(super) read_only: bool,
    /// See [`OpenOptions::returned_is_durable`].
    pub(super) returned_is_durable: bool,
    /// May the mount's kernel hold back what is written?
    pub(super) writeback: bool,
    /// Is it read while another machine writes it?
    pub(super) followed: bool,
    /// Do times have no fractions of a second?
    pub(super) whole_seconds: bool,
    /// Are the volume's blocks those of the disk, with no store between?
    pub(super) in_place: bool,
    /// What its mode promises, in a line.
    pub(super) promise: String,
    /// How it is being opened.
    pub(super) opening: OpeningWatch,
}

impl Served {
    /// Asks it, without workers or beside them.
    fn driver(&self) -> Driver {
        Driver::new(self.monitor.clone(), self.disks.clone())
    }

    /// What it tells of itself, once it is open.
    pub(super) fn info(&self) -> Result<VolumeInfo, Failure> {
        match self.driver().request(Request::Info) {
            Ok(Reply::Info(info)) => Ok(*info),
            _ => Err(Failure::Failed(format!("{}: tells nothing about itself", self.name))),
        }
    }
}

/// A volume that was looked at, and is to be opened.
struct Prepared {
    file: Arc<HostFile>,
    found: Found,
    options: OpenOptions,
    /// Is it only read, has it times of whole seconds, does it lie in its place?
    of_volume: (bool, bool, bool),
    opening: OpeningWatch,
}

/// Bytes of a page of the kernel's cache.
const PAGE_BYTES: usize = 4096;

/// What is in front of a volume: who keeps contents that were read and written?
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Front {
    /// Nobody, or NFS's clients each for itself: the host's page cache is there for all of them.
    Any,
    /// A mount alone, so the kernel: the host need not keep them once more.
    MountAlone,
}

/// Is the mount's kernel to hold back what is written? Errors: it was asked for where a promise
/// would be broken, or where others change the volume too.
fn writeback(args: &OpenArgs, mode: volume::Mode, front: Front) -> Result<bool, Failure> {
    if args.writeback_cache != WritebackCache::On {
        return Ok(false);
    }
    let refused = |why: String| Err(Failure::Usage(format!("--writeback-cache on: {why}")));
    if front != Front::MountAlone {
        return refused("others would not see what a mount's kernel holds back".into());
    }
    if !options_of(args, mode)?.contents_may_wait() {
        return refused(format!(
            "mode {mode} promises the order of what was written, which is lost if the kernel holds \
             it back; modes sync and async promise nothing of it before fsync"
        ));
    }
    Ok(true)
}

/// Makes a volume that was looked at ready to be opened; prints what its mode promises.
fn prepared(
    file: Arc<HostFile>,
    mut found: Found,
    (args, front): (&OpenArgs, Front),
    log: Option<&Arc<HostFile>>,
) -> Result<Prepared, Failure> {
    let mode = check_open_args(args)?;
    tell(&file, &mut found, args.read_only, args.use_boot_area)?;
    let p = found.ext().map_err(|e| e.to_string())?;
    let block_bytes = p.superblock.block_bytes();
    let read_only = args.read_only || p.read_only.is_some();
    let whole_seconds = p.superblock.inode_bytes() <= CLASSIC_BYTES;
    let in_place = !found.store.is_segments();
    let mut options = options_of(args, mode)?;
    options.read_only = read_only;
    options.snapshot = file.snapshot();
    options.user = crate::hold::user(file.path());
    let of_buckets =
        [("follow", args.follow), ("standby", args.standby), ("take-over", args.take_over)];
    if let Some((option, _)) = of_buckets.iter().find(|o| o.1 && !file.is_bucket()) {
        let why = format!("--{option}: only a volume in a bucket is written by other machines");
        return Err(Failure::Usage(why));
    }
    let shown = file.path().display().to_string();
    say::out(&format!("{shown}: mode {mode}: {}", options.promise_line()));
    if in_place {
        file.prepare_mount(block_bytes);
    }
    // Blocks of a page each: no two of them are written in one page. A log sees to that by itself;
    // a journal on another device has the volume's blocks.
    if block_bytes == PAGE_BYTES && !read_only {
        file.write_past_cache();
    }
    if block_bytes == PAGE_BYTES || mode.is_redo() {
        log.iter().for_each(|l| l.write_past_cache());
    }
    if front == Front::MountAlone {
        file.all_past_cache();
        let share = options.cache_bytes / CONTENTS_ALONE_SHARE;
        options.contents_bytes = options.contents_bytes.map(|least| least.max(share));
    }
    let bar = Arc::new(RecoveryBar::new(Some(shown)));
    options.watch = Some(bar.clone());
    let opening = OpeningWatch::new(bar);
    options.log_disk_bytes = log.map(|l| l.size_bytes());
    let of_volume = (read_only, whole_seconds, in_place);
    Ok(Prepared { file, found, options, of_volume, opening })
}

fn seed() -> Result<u64, Failure> {
    let bytes = host::entropy().map_err(|e| e.to_string())?;
    Ok(u64::from_le_bytes(bytes[..8].try_into().expect("8 of 16 bytes")))
}

/// Prepares a volume for being served.
pub(super) fn open(path: &Path, args: &OpenArgs, front: Front) -> Result<Served, Failure> {
    // A snapshot can only be read, so nobody has to say so.
    let read_only = args.read_only || crate::disk::snapshot_of(path).is_some();
    let args = &OpenArgs { read_only, ..args.clone() };
    let near = near_of_volume(args)?.map(|(path, _)| path);
    let of = (read_only, args.log.as_deref(), near.as_deref());
    open_as(path, of, front, |found| with_mode(args, found))
}

/// The same with arguments that depend on what was found; known before are whether it is opened
/// for reading only, and where its log and its near log are.
pub(super) fn open_as(
    path: &Path,
    (read_only, log, near): (bool, Option<&str>, Option<&Path>),
    front: Front,
    args: impl FnOnce(&Found) -> OpenArgs,
) -> Result<Served, Failure> {
    let file = Arc::new(crate::disk::open(path, read_only)?);
    let near = opened_near_log(&file, read_only, near)?;
    let mut log = existing_log(log, read_only)?.or(near);
    let disks: Vec<_> = std::iter::once(file.clone()).chain(log.clone()).collect();
    let found = look(&disks)?;
    let args = args(&found);
    let mode = mode_of(args.mode.as_deref().unwrap_or_default())?;
    check_found(&args, mode, &found, path)?;
    check_open_args(&args)?;
    let writeback = writeback(&args, mode, front)?;
    let new_log = match log {
        None => make_log(&args, mode, &[(&file, &found)])?.map(Arc::new),
        Some(_) => None,
    };
    log = log.or_else(|| new_log.as_ref().map(|l| l.file.clone()));
    let p = prepared(file, found, (&args, front), log.as_ref())?;
    let returned_is_durable = p.options.returned_is_durable();
    let promise = p.options.promise_line();
    let followed = p.options.bucket.follow.is_some();
    let opener = volume::opener(Some(p.found), p.file.size_bytes(), p.options);
    let (monitor, file) = (Arc::new(Monitor::new(seed()?, opener)), p.file);
    let disks = std::iter::once(file.clone()).chain(log).collect();
    let Prepared { of_volume: (read_only, whole_seconds, in_place), opening, .. } = p;
    Ok(Served {
        name: crate::config::name_of(path),
        monitor,
        file,
        disks,
        new_log,
        read_only,
        returned_is_durable,
        writeback,
        followed,
        whole_seconds,
        in_place,
        promise,
        opening,
    })
}

/// Prepares all of them. Those with one log share a shard: whoever is inside carries on the work of
/// all, so that their entries go out together.
pub(super) fn open_all(volumes: &[VolumeArgs], front: Front) -> Result<Vec<Served>, Failure> {
    let log = |v: &VolumeArgs| v.serve.open.log.clone().filter(|l| l != "internal");
    if volumes.len() > 1 && has_near_log() {
        let why = "--near-log: it is one volume's; a configuration names one for each (near-log)";
        return Err(Failure::Usage(why.into()));
    }
    refuse_shared_near_logs(volumes)?;
    for (n, v) in volumes.iter().enumerate() {
        let images = v.serve.images.len();
        assert_eq!(images, 1, "V1: images of volume {n}, which is called {}", v.name);
    }
    let mut all: Vec<Option<Served>> = volumes.iter().map(|_| None).collect();
    for (n, v) in volumes.iter().enumerate() {
        let sharing = |w: &&(usize, &VolumeArgs)| log(v).is_some() && log(w.1) == log(v);
        let of_log: Vec<(usize, &VolumeArgs)> =
            volumes.iter().enumerate().filter(|w| sharing(&w)).collect();
        if of_log.len() <= 1 {
            let served = open(&v.serve.images[0], &v.serve.open, front)?;
            all[n] = Some(Served { name: v.name.clone(), ..served });
        } else if of_log[0].0 == n {
            let members: Vec<&VolumeArgs> = of_log.iter().map(|w| w.1).collect();
            for ((n, _), served) in of_log.iter().zip(open_sharing(&members, front)?) {
                all[*n] = Some(served);
            }
        }
    }
    let all: Vec<Served> = all.into_iter().flatten().collect();
    let in_order = all.iter().map(|s| &s.name).eq(volumes.iter().map(|v| &v.name));
    assert!(in_order, "V1: {} volumes were named, and others are served", volumes.len());
    if all.len() > 1 {
        name_in_log(&all);
    }
    Ok(all)
}

/// The log's lines say which volume's they are; of those that share a shard, that they are theirs.
fn name_in_log(all: &[Served]) {
    for v in all {
        let together = all.iter().filter(|w| w.disks.len() > 1 && shares(v, w));
        let mut names: Vec<String> = together.map(|w| format!("/{}", w.name)).collect();
        if names.is_empty() {
            names.push(format!("/{}", v.name));
        }
        // Once for each that is served, as long as the process lives.
        v.monitor.call(names.join(", ").leak());
    }
}

/// Do two volumes lie on one list of disks?
fn shares(v: &Served, w: &Served) -> bool {
    v.disks.iter().map(Arc::as_ptr).eq(w.disks.iter().map(Arc::as_ptr))
}

/// A near log is one volume's.
fn refuse_shared_near_logs(volumes: &[VolumeArgs]) -> Result<(), Failure> {
    let mut seen = Vec::new();
    for v in volumes {
        let Some((path, _)) = near_of_volume(&v.serve.open)? else { continue };
        if seen.contains(&path) {
            let why = format!("near-log {}: it is one volume's, not two's", path.display());
            return Err(Failure::Usage(why));
        }
        seen.push(path);
    }
    Ok(())
}

/// Several volumes with one log: that is for the modes with a log only.
fn open_sharing(volumes: &[&VolumeArgs], front: Front) -> Result<Vec<Served>, Failure> {
    let mut opened = Vec::new();
    for v in volumes {
        let open = &v.serve.open;
        let named = open.mode.clone().unwrap_or_else(|| volume::Mode::DEFAULT.to_string());
        let args = OpenArgs { mode: Some(named), ..open.clone() };
        let mode = check_open_args(&args)?;
        if !mode.is_redo() {
            let why = format!("--log: a journal of mode {mode} is one volume's; serve one");
            return Err(Failure::Usage(why));
        }
        let writeback = writeback(&args, mode, front)?;
        opened.push((v.serve.images[0].as_path(), args, writeback));
    }
    // One that is only read must not keep the others from writing the log.
    let read_only = opened.iter().all(|(_, args, _)| args.read_only);
    let first = &OpenArgs { read_only, ..opened[0].1.clone() };
    let mut log = existing_log(first.log.as_deref(), read_only)?;
    let mut looked = Vec::new();
    for (image, args, _) in &opened {
        let file = Arc::new(crate::disk::open(image, args.read_only)?);
        let disks: Vec<_> = std::iter::once(file.clone()).chain(log.clone()).collect();
        let found = look(&disks)?;
        check_found(args, check_open_args(args)?, &found, image)?;
        looked.push((file, found, args));
    }
    let mut new_log = None;
    if log.is_none() {
        let found: Vec<_> = looked.iter().map(|(file, found, _)| (file, found)).collect();
        new_log = make_log(first, check_open_args(first)?, &found)?.map(Arc::new);
        log = new_log.as_ref().map(|l| l.file.clone());
    }
    let mut all: Vec<Prepared> = Vec::new();
    for (file, found, args) in looked {
        all.push(prepared(file, found, (args, front), log.as_ref())?);
    }
    let disks: Vec<_> = all.iter().map(|p| p.file.clone()).chain(log).collect();
    let (mut members, mut rest) = (Vec::new(), Vec::new());
    for p in all {
        let of_options = (p.options.returned_is_durable(), p.options.promise_line());
        rest.push((p.file.clone(), p.of_volume, of_options, p.opening));
        members.push((p.found, p.file.size_bytes(), p.options));
    }
    let openers = volume::openers(members).map_err(|e| Failure::Failed(e.to_string()))?;
    let monitors = Monitor::several(seed()?, rest.len(), openers);
    let mut all = Vec::new();
    for ((monitor, rest), (v, of)) in
        monitors.into_iter().zip(rest).zip(volumes.iter().zip(&opened))
    {
        let (file, of_volume, (returned_is_durable, promise), opening) = rest;
        let (read_only, whole_seconds, in_place) = of_volume;
        all.push(Served {
            name: v.name.clone(),
            monitor: Arc::new(monitor),
            file,
            disks: disks.clone(),
            new_log: new_log.clone(),
            read_only,
            returned_is_durable,
            writeback: of.2,
            followed: false,
            whole_seconds,
            in_place,
            promise,
            opening,
        });
    }
    Ok(all)
}

/// Opens them. If one cannot be opened, those that could are closed again.
pub(super) fn open_volumes(volumes: &[Served]) -> Result<(), Failure> {
    let drivers: Vec<Driver> = volumes.iter().map(Served::driver).collect();
    let mut opened = volumes.iter().zip(Driver::open_all(&drivers));
    let failed = opened.find_map(|(v, r)| Some((v, r.err()?)));
    let Some((v, why)) = failed else {
        let shut = volumes.iter().find(|v| v.monitor.state() != VolumeState::Open);
        assert!(shut.is_none(), "V2: {:?} is not open", shut.map(|v| &v.name));
        return Ok(());
    };
    close_volumes(volumes);
    Err(not_opened(v.file.path(), &why).into())
}

/// Closes those that are open, without workers.
pub(super) fn close_volumes(volumes: &[Served]) {
    for v in volumes {
        // What went wrong first is what is told.
        let _ = v.driver().close();
    }
}

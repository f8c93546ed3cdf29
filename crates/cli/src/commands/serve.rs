//! `cairn serve` and `cairn mount`: volumes opened behind their monitors, workers, mounts, and the
//! end of it all.

use super::http::{self, Status};
use super::nfs_server::{NfsArgs, Started, describe, name_of};
use super::rpcbind::Registration;
use super::served::{Front, Served, open, open_all, open_doors};
use crate::args::{MkfsArgs, MountArgs, OpenArgs, ServeArgs, Uring};
use crate::image::check_open_args;
use crate::{Failure, Outcome, say};
use fuse::{CachePolicy, MountOptions, Options, Session, UringChoice};
use host::{Driver, Pool, block_signals, wait_for_stop};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How long the kernel believes what it was told, in seconds: nobody else changes the volume.
const TTL_ALONE: u64 = 3600;
/// The same where NFS clients change it too.
const TTL_SHARED: u64 = 1;

/// By which ways the volumes are reached.
#[derive(Default)]
struct Fronts<'a> {
    mount: Option<(&'a Path, Options)>,
    nfs: Option<NfsArgs>,
    http: Option<&'a str>,
    rpcbind: bool,
    /// Is this the process in the background?
    detached: bool,
}

/// The line that says that all is served.
const READY: &str = "ready";

/// `cairn mount`.
pub fn mount(a: MountArgs) -> Result<Outcome, Failure> {
    host::keep_pages_small();
    check_open_args(&a.open)?;
    let options = mount_options(&a.options)?;
    if options.is_remount() {
        fuse::remount(&a.image, &a.dir, &a.options.join(","))?;
        return Ok(Outcome::Done);
    }
    let read_only = a.open.read_only || options.is_read_only();
    let a = MountArgs { open: OpenArgs { read_only, ..a.open }, ..a };
    if a.daemon {
        return daemonize();
    }
    if a.detached {
        host::new_session();
    }
    let volumes = vec![open(&a.image, &a.open, Front::MountAlone)?];
    let fronts =
        Fronts { mount: Some((&a.dir, options)), detached: a.detached, ..Fronts::default() };
    run_volumes(volumes, &a.open, fronts)
}

/// What the lists say, one after the other.
fn mount_options(lists: &[String]) -> Result<Options, Failure> {
    Options::default().with(&lists.join(",")).map_err(|e| Failure::Usage(format!("-o: {e}")))
}

/// Starts itself again in the background and waits until that one is ready, or has failed. Until
/// then the other one has this one's standard error, and tells there what is wrong.
fn daemonize() -> Result<Outcome, Failure> {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let fail = |e: std::io::Error| Failure::Failed(format!("cannot start in the background: {e}"));
    let exe = std::env::current_exe().map_err(fail)?;
    let daemon = |a: std::ffi::OsString| if a == "--daemon" { "--detached".into() } else { a };
    let mut child = Command::new(exe)
        .args(std::env::args_os().skip(1).map(daemon))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    let lines = BufReader::new(child.stdout.take().ok_or_else(|| "no pipe".to_owned())?).lines();
    for line in lines.map_while(Result::ok) {
        say::out(&line);
        if line == READY {
            return Ok(Outcome::Done);
        }
    }
    let status = child.wait().map_err(fail)?;
    match status.code() {
        Some(code) => Err(Failure::Told(code.clamp(1, 255) as u8)),
        None => Err(Failure::Failed(format!("it ended in the background: {status}"))),
    }
}

/// `cairn serve`.
pub fn run(a: ServeArgs) -> Result<Outcome, Failure> {
    refuse_what_is_not_there(&a)?;
    // What was asked for wrongly is told before anything is opened, and so recovered, or made.
    let options = mount_options(&a.options)?;
    if options.is_remount() {
        return Err(Failure::Usage("-o remount: that is for `cairn mount`".into()));
    }
    let nfs = match a.no_nfs {
        true => None,
        false => Some(NfsArgs::new(a.nfs.as_deref(), &a.export)?),
    };
    host::keep_pages_small();
    let mut images = a.images.clone();
    if images.is_empty() {
        images.push(PathBuf::from("cairn.img"));
    }
    nfs.as_ref().map_or(Ok(()), |n| n.check_names(&images))?;
    if a.images.is_empty() && !images[0].exists() {
        make_default(&images[0], &a)?;
    }
    let front = if a.no_nfs { Front::MountAlone } else { Front::Any };
    // Without NFS there is nobody who would write but the mount.
    let read_only = a.open.read_only || a.no_nfs && options.is_read_only();
    let a = ServeArgs { open: OpenArgs { read_only, ..a.open }, ..a };
    let volumes = open_all(&images, &a.open, front)?;
    let mount = a.mount.as_deref().map(|dir| (dir, options));
    let http = a.http.as_deref();
    let fronts = Fronts { mount, nfs, http, rpcbind: a.rpcbind, detached: false };
    run_volumes(volumes, &a.open, fronts)
}

fn refuse_what_is_not_there(a: &ServeArgs) -> Result<(), Failure> {
    check_open_args(&a.open)?;
    if a.mount.is_some() && a.images.len() > 1 {
        return Err(Failure::Usage("--mount is for one volume".into()));
    }
    if a.rpcbind && a.no_nfs {
        return Err(Failure::Usage("--rpcbind without NFS has nothing to register".into()));
    }
    if a.no_nfs && a.mount.is_none() {
        return Err(Failure::Usage("--no-nfs without --mount leaves nothing to serve".into()));
    }
    if !a.no_nfs && a.open.mode.as_deref() == Some("async") && !a.unsafe_async {
        let why = "mode async answers over NFS before anything is durable: give --unsafe-async to \
                   accept that, or --no-nfs";
        return Err(Failure::Usage(why.into()));
    }
    if a.unsafe_async {
        say::err(
            "warning: in mode async a crash loses changes that NFS clients were told are safe",
        );
    }
    Ok(())
}

fn make_default(image: &Path, a: &ServeArgs) -> Result<(), Failure> {
    let args = MkfsArgs::plain(image.to_owned(), a.size, a.profile);
    super::mkfs::make(&args)?;
    say::out(&format!("made {} ({})", image.display(), crate::size::show(a.size)));
    Ok(())
}

fn run_volumes(
    volumes: Vec<Served>,
    args: &OpenArgs,
    fronts: Fronts<'_>,
) -> Result<Outcome, Failure> {
    block_signals();
    open_doors(&volumes)?;
    let mut served = Vec::new();
    for v in volumes.iter().filter(|_| fronts.nfs.is_some()) {
        let driver = Driver::new(v.monitor.clone(), v.disks.clone());
        served.push(describe(&driver, v.file.path())?);
    }
    let pool = start_workers(&volumes)?;
    let session = match fronts.mount {
        None => None,
        Some(at) => {
            let alone = fronts.nfs.is_none();
            let policy = CachePolicy {
                secs: if alone { TTL_ALONE } else { TTL_SHARED },
                returned_is_durable: alone && volumes[0].returned_is_durable,
                writeback: alone && volumes[0].writeback,
                whole_seconds: volumes[0].whole_seconds,
            };
            Some(start_session(&pool, &volumes[0], at, (args, policy))?)
        }
    };
    let detached = fronts.detached;
    let servers = match start_servers(&pool, &volumes, served, fronts) {
        Ok(r) => r,
        Err(why) => {
            let _ = session.as_ref().map(Session::unmount);
            close(&volumes, &pool)?;
            return Err(Failure::Failed(why));
        }
    };
    if detached {
        say::go_to_background(READY).map_err(|e| format!("/dev/null: {e}"))?;
    } else {
        say::out(READY);
    }
    wait_for_stop(|| session.as_ref().is_some_and(Session::has_ended));
    drop(servers.registration);
    // Clients find their connections closed, and never a volume that is.
    servers.nfs.iter().for_each(Started::stop);
    if let Some(s) = &session {
        match s.unmount() {
            Ok(true) => say::err("the mount is busy: it goes when its users do"),
            Ok(false) => (),
            Err(e) => say::err(&e),
        }
    }
    let closed = close(&volumes, &pool);
    servers.nfs.iter().for_each(|n| n.end(closed.is_ok()));
    closed
}

fn start_workers(volumes: &[Served]) -> Result<Arc<Pool>, Failure> {
    let list = volumes.iter().map(|v| (v.monitor.clone(), v.disks.clone())).collect();
    Ok(Pool::start(list).map_err(|e| format!("the workers cannot be started: {e}"))?)
}

/// Opens the volumes and starts their workers, with nothing in front.
pub(super) fn start(volumes: &[Served]) -> Result<Arc<Pool>, Failure> {
    open_doors(volumes)?;
    start_workers(volumes)
}

/// What clients are served by.
struct Servers {
    nfs: Option<Started>,
    registration: Option<Registration>,
}

/// NFS, its registration, and HTTP, as far as they are asked for.
fn start_servers(
    pool: &Arc<Pool>,
    volumes: &[Served],
    served: Vec<nfs::Served>,
    fronts: Fronts<'_>,
) -> Result<Servers, String> {
    let images = volumes.iter().map(|v| v.file.path().to_owned()).collect();
    let started = fronts.nfs.map(|n| n.start(pool, served, images)).transpose()?;
    if let Some(address) = fronts.http {
        let names = volumes.iter().map(|v| (name_of(v.file.path()), !v.read_only)).collect();
        let nfs = started.as_ref().map(|s| s.server.clone());
        let at = http::start(address, Status { pool: pool.clone(), volumes: names, nfs })?;
        say::out(&format!("status: http://{at}/, metrics: http://{at}/metrics"));
    }
    let registration = match &started {
        Some(s) if fronts.rpcbind => Some(Registration::new(s.at())?),
        _ => None,
    };
    Ok(Servers { nfs: started, registration })
}

fn start_session(
    pool: &Arc<Pool>,
    v: &Served,
    (dir, options): (&Path, Options),
    (args, policy): (&OpenArgs, CachePolicy),
) -> Result<Session, Failure> {
    let options = if v.read_only { options.read_only() } else { options };
    let options = MountOptions { source: v.file.path().display().to_string(), options };
    let choice = match args.fuse_uring {
        Uring::Auto => UringChoice::Auto,
        Uring::On => UringChoice::On,
        Uring::Off => UringChoice::Off,
    };
    let session = Session::start(pool, 0, dir, &options, (choice, v.block_bytes, policy));
    let session = session.inspect_err(|_| {
        let _ = close(std::slice::from_ref(v), pool);
    })?;
    if let Some(hint) = session.hint() {
        say::out(&hint);
    }
    say::out(&format!("mounted on {}", dir.display()));
    Ok(session)
}

/// Closes them, then the workers end.
pub(super) fn close(volumes: &[Served], pool: &Pool) -> Result<Outcome, Failure> {
    let mut failed = None;
    for (n, v) in volumes.iter().enumerate() {
        if let Err(e) = pool.close(n) {
            failed = Some(format!("{}: closing: {e}", v.file.path().display()));
        }
    }
    pool.stop();
    match failed {
        None => Ok(Outcome::Done),
        Some(why) => Err(Failure::Failed(why)),
    }
}

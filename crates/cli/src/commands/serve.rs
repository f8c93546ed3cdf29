//! `cairn serve` and `cairn mount`: volumes opened behind their monitors, workers, mounts, and the
//! end of it all.

use super::ending::{self, Why};
use super::nfs_server::{NfsArgs, Started};
use super::rpcbind::Registration;
use super::served::{Front, Served, close_volumes, open, open_all, open_volumes};
use crate::args::{MkfsArgs, MountArgs, OpenArgs, Profile, ServeArgs, Uring};
use crate::config::{self, Config};
use crate::image::{check_open_args, mode_of};
use crate::notify::{self, Opening, Watchdog};
use crate::pool;
use crate::status::{self, Control, Copies, Gone, Shown, Status};
use crate::{Failure, Outcome, say};
use fuse::{CachePolicy, Fellows, MountOptions, Options, Serving, Session, UringChoice};
use host::{Pool, Stop, Stops};
use stats::Recorder;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::VolumeState;
use volume::Mode;

/// How long the kernel believes what it was told, in seconds: nobody else changes the volume.
const TTL_ALONE: u64 = 3600;
/// The same where NFS clients change it too.
const TTL_SHARED: u64 = 1;
/// The same where another machine writes the volume, and answers have an age.
const TTL_FOLLOWED: u64 = 0;

/// By which ways the volumes are reached.
#[derive(Default)]
struct Fronts {
    mounts: Vec<Mounting>,
    /// Of those that were mounted.
    gone: Vec<Gone>,
    nfs: Option<NfsArgs>,
    http: Option<String>,
    rpcbind: bool,
    /// Is this the process in the background?
    detached: bool,
    /// Is this the process of one volume of a pool?
    of_pool: bool,
    /// Where exports are read again.
    config: Option<PathBuf>,
    /// Whoever watches hears of it until everything is open.
    opening: Option<Opening>,
}

/// A volume that is mounted, too.
struct Mounting {
    /// Its number among those served.
    volume: usize,
    dir: PathBuf,
    options: Options,
    uring: Uring,
}

/// The line that says that all is served.
const READY: &str = "ready";

/// `cairn mount`.
pub fn mount(a: MountArgs) -> Result<Outcome, Failure> {
    host::keep_pages_small();
    check_open_args(&a.open)?;
    let options = mount_options(&a.options)?;
    let a = MountArgs { dir: real_dir(a.dir), ..a };
    if options.is_remount() {
        fuse::remount(&a.image, &a.dir, &a.options.join(","))?;
        return Ok(Outcome::Done);
    }
    let read_only = a.open.read_only || options.is_read_only();
    let a = MountArgs { open: OpenArgs { read_only, ..a.open }, ..a };
    fuse::check_place(&a.dir)?;
    if a.daemon {
        return daemonize();
    }
    let volumes = vec![open(&a.image, &a.open, Front::MountAlone)?];
    let mounts = vec![Mounting { volume: 0, dir: a.dir, options, uring: a.open.fuse_uring }];
    run_volumes(volumes, Fronts { mounts, detached: a.detached, ..Fronts::default() })
}

/// A directory as whoever is in another one would name it, and as the kernel names its mount. One
/// whose server was killed cannot be looked into, but what it lies in can.
fn real_dir(dir: PathBuf) -> PathBuf {
    let beside = || {
        let whole = std::path::absolute(&dir).ok()?;
        Some(whole.parent()?.canonicalize().ok()?.join(whole.file_name()?))
    };
    dir.canonicalize().ok().or_else(beside).unwrap_or(dir)
}

/// What the lists say, one after the other.
pub fn mount_options(lists: &[String]) -> Result<Options, Failure> {
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
    if let [url] = &a.images[..]
        && pool::is_pool(url)
    {
        return pool::serve(&a, url);
    }
    a.of_pool.map_or(Ok(()), pool::belong)?;
    let mut config = asked_for(a)?;
    // What was asked for wrongly is told before anything is opened, and so recovered, or made.
    let (mounts, nfs) = wanted(&config)?;
    let a = &config.serve;
    mounts.iter().try_for_each(|m| fuse::check_place(&m.dir).map(drop))?;
    host::keep_pages_small();
    if a.images.is_empty()
        && a.config.is_none()
        && !crate::disk::exists(&config.volumes[0].serve.images[0])
    {
        make_default(&config.volumes[0].serve.images[0], a)?;
    }
    let front = if a.no_nfs { Front::MountAlone } else { Front::Any };
    // Without NFS there is nobody who would write but the mount.
    let alone = a.no_nfs;
    for m in mounts.iter().filter(|m| alone && m.options.is_read_only()) {
        config.volumes[m.volume].serve.open.read_only = true;
    }
    let opening = Opening::of(config.volumes.iter().map(|v| v.name.as_str()));
    let volumes = open_all(&config.volumes, front)?;
    let Config { serve: ServeArgs { http, rpcbind, config, of_pool, .. }, .. } = config;
    let of_pool = of_pool.is_some();
    let opening = Some(opening);
    let fronts =
        Fronts { mounts, nfs, http, rpcbind, of_pool, config, opening, ..Fronts::default() };
    run_volumes(volumes, fronts)
}

/// The volumes and their options: the configuration's, the command line's, or the default one.
fn asked_for(a: ServeArgs) -> Result<Config, Failure> {
    if let Some(path) = &a.config {
        let config = config::load(path)?;
        if config.volumes.is_empty() {
            let why = format!("{}: it names no volume: [volume.NAME]", path.display());
            return Err(Failure::Usage(why));
        }
        return Ok(config);
    }
    let mut config = config::of_line(a);
    if config.volumes.is_empty() {
        let images = vec![PathBuf::from("cairn.img")];
        let made = config::of_line(ServeArgs { images, ..config.serve.clone() });
        config.volumes = made.volumes;
    }
    Ok(config)
}

/// The mounts that are asked for, with what mount(8) would say of them.
fn mounts(config: &Config) -> Result<Vec<Mounting>, Failure> {
    let mut all = Vec::new();
    for (volume, v) in config.volumes.iter().enumerate() {
        let options = mount_options(&v.serve.options)?;
        if options.is_remount() {
            return Err(Failure::Usage("-o remount: that is for `cairn mount`".into()));
        }
        if let Some(dir) = v.serve.mount.clone().map(real_dir) {
            all.push(Mounting { volume, dir, options, uring: v.serve.open.fuse_uring });
        }
    }
    Ok(all)
}

fn nfs_of(config: &Config) -> Result<Option<NfsArgs>, Failure> {
    if config.serve.no_nfs {
        return Ok(None);
    }
    let nfs = NfsArgs::new(config.serve.nfs.as_deref(), &config.serve.export)?;
    let names: Vec<String> = config.volumes.iter().map(|v| v.name.clone()).collect();
    nfs.check_names(&names)?;
    Ok(Some(nfs))
}

/// Can it be served, as far as can be told before anything is opened?
pub fn check(config: &Config) -> Result<(), Failure> {
    wanted(config).map(drop)
}

/// Is it ADDRESS:PORT, as far as can be told without asking for it?
pub fn check_address(option: &str, address: &str) -> Result<(), Failure> {
    let port = address.rsplit_once(':').is_some_and(|(_, p)| p.parse::<u16>().is_ok());
    let why = || format!("--{option} {address}: write ADDRESS:PORT, as 127.0.0.1:2049");
    if port { Ok(()) } else { Err(Failure::Usage(why())) }
}

fn wanted(config: &Config) -> Result<(Vec<Mounting>, Option<NfsArgs>), Failure> {
    refuse_what_is_not_there(config)?;
    let a = &config.serve;
    for (option, address) in [("nfs", &a.nfs), ("http", &a.http)] {
        address.iter().try_for_each(|a| check_address(option, a))?;
    }
    Ok((mounts(config)?, nfs_of(config)?))
}

fn refuse_what_is_not_there(config: &Config) -> Result<(), Failure> {
    let a = &config.serve;
    for v in &config.volumes {
        check_open_args(&v.serve.open)?;
        if let Some(url) = v.serve.images.iter().find(|i| pool::is_pool(i)) {
            let why = "a pool's URL: it is served alone, and named on the command line";
            return Err(Failure::Usage(format!("{}: {why}", url.display())));
        }
    }
    let mounted = config.volumes.iter().any(|v| v.serve.mount.is_some());
    if a.mount.is_some() && config.volumes.len() > 1 {
        return Err(Failure::Usage("--mount is for one volume".into()));
    }
    if a.rpcbind && a.no_nfs {
        return Err(Failure::Usage("--rpcbind without NFS has nothing to register".into()));
    }
    if a.no_nfs && !mounted {
        return Err(Failure::Usage("--no-nfs without --mount leaves nothing to serve".into()));
    }
    let modes = config.volumes.iter().filter_map(|v| v.serve.open.mode.as_deref());
    let loses = modes.filter_map(Mode::by_name).find(|m| m.may_leave_anything());
    if let Some(mode) = loses.filter(|_| !a.no_nfs && !a.unsafe_async) {
        return Err(Failure::Usage(format!(
            "mode {mode} answers over NFS before anything is durable: give --unsafe-async to \
             accept that, or --no-nfs"
        )));
    }
    if a.unsafe_async {
        say::err(
            "warning: in mode async a crash loses changes that NFS clients were told are safe",
        );
    }
    Ok(())
}

/// What is made where no kind is said: not all modes write the usual one.
fn usual_profile(mode: Option<&str>) -> Result<Profile, Failure> {
    let mode = mode.map_or(Ok(Mode::DEFAULT), mode_of)?;
    Ok(if mode.writes_ext4() { super::mkfs::DEFAULT } else { Profile::Ext3 })
}

fn make_default(image: &Path, a: &ServeArgs) -> Result<(), Failure> {
    let profile = a.profile.map_or_else(|| usual_profile(a.open.mode.as_deref()), Ok)?;
    let args = MkfsArgs::plain(image.to_owned(), a.size, profile);
    super::mkfs::make(&args)?;
    say::out(&format!("made {} ({})", image.display(), crate::size::show(a.size)));
    Ok(())
}

fn run_volumes(volumes: Vec<Served>, mut fronts: Fronts) -> Result<Outcome, Failure> {
    let stops = Stops::new().map_err(|e| format!("signals: {e}"))?;
    open_volumes(&volumes)?;
    drop(fronts.opening.take());
    let mut served = Vec::new();
    for v in volumes.iter().filter(|_| fronts.nfs.is_some()) {
        served.push(nfs::Served { name: v.name.clone(), info: v.info()? });
    }
    let pool = start_workers(&volumes)?;
    let recorder = Arc::<Recorder>::default();
    let shown = shown(&volumes, &fronts.mounts)?;
    let sessions = start_sessions(&pool, &volumes, &mut fronts, &recorder)?;
    fronts.gone = sessions.iter().map(|s| Box::new(s.ending()) as Gone).collect();
    let (detached, config) = (fronts.detached, fronts.config.take());
    let kept = fronts.of_pool.then(|| pool::Kept::new(pool.clone()));
    let servers = match start_servers((&pool, recorder), &volumes, (served, shown), fronts) {
        Ok(r) => r,
        Err(why) => {
            sessions.iter().for_each(|s| drop(s.unmount()));
            close(&volumes, &pool)?;
            return Err(Failure::Failed(why));
        }
    };
    volumes.iter().filter_map(|v| v.new_log.as_ref()).for_each(|l| l.stays());
    if detached {
        // Not before it is mounted: autofs, and systemd for it, knows whom it waits for by his
        // process group, and lets nobody else near the directory.
        host::new_session();
        say::go_to_background(READY).map_err(|e| format!("/dev/null: {e}"))?;
    } else {
        say::out(READY);
    }
    notify::ready(volumes.iter().map(|v| v.name.as_str()));
    let _watchdog = Watchdog::start(&pool);
    let why = serve_until_stopped(&stops, &sessions, &servers, (config.as_deref(), kept));
    notify::stopping();
    pool.stopping();
    volumes.iter().for_each(|v| v.file.let_go_soon());
    ending::watched(&stops, (&volumes, &pool), why, || end(&volumes, &pool, servers, &sessions))
}

/// Waits for the end: a signal, that all mounts are gone that somebody made, or that a pool's
/// volume is another machine's. SIGHUP reads the configuration's exports again, where there is one,
/// and ends it where there is none.
fn serve_until_stopped(
    stops: &Stops,
    sessions: &[Session],
    servers: &Servers,
    (config, mut kept): (Option<&Path>, Option<pool::Kept>),
) -> Why {
    let of_signal = if kept.is_some() { Why::Pool } else { Why::Signal };
    let mut gone = || {
        let unmounted = !sessions.is_empty() && sessions.iter().all(Session::has_ended);
        unmounted || kept.as_mut().is_some_and(pool::Kept::is_lost)
    };
    loop {
        match stops.heard(&mut gone) {
            None => return Why::Gone,
            Some(Stop::Hangup) if config.is_some() => (),
            Some(_) => return of_signal,
        }
        let Some(path) = config else { continue };
        notify::reloading();
        match config::load(path).and_then(|c| nfs_of(&c)) {
            Ok(Some(nfs)) => {
                servers.nfs.iter().for_each(|s| s.take_exports(nfs.clone()));
                say::err(&format!("{}: its exports hold from now on", path.display()));
            }
            Ok(None) => say::err("the exports stay: without NFS there are none"),
            Err(Failure::Failed(why) | Failure::Usage(why)) => {
                say::err(&format!("{why}; everything stays as it was"));
            }
            Err(Failure::Told(_)) => (),
        }
        notify::ready(std::iter::empty());
    }
}

/// Clients find their connections closed, and never a volume that is.
fn end(
    volumes: &[Served],
    pool: &Arc<Pool>,
    servers: Servers,
    sessions: &[Session],
) -> Result<Outcome, Failure> {
    drop(servers.registration);
    servers.nfs.iter().for_each(Started::stop);
    for s in sessions {
        match s.unmount() {
            Ok(true) => say::err("the mount is busy: it goes when its users do"),
            Ok(false) => (),
            Err(e) => say::err(&e),
        }
    }
    let closed = close(volumes, pool);
    let open = volumes.iter().find(|v| v.monitor.state() == VolumeState::Open);
    assert!(open.is_none(), "V2: {:?} is open at the end of it all", open.map(|v| &v.name));
    servers.nfs.iter().for_each(|n| n.end(closed.is_ok()));
    closed
}

/// The workers of volumes that are open. Where there is no thread for them, these are closed again.
fn start_workers(volumes: &[Served]) -> Result<Arc<Pool>, Failure> {
    let list = volumes.iter().map(|v| (v.monitor.clone(), v.disks.clone())).collect();
    let started = Pool::start(list).inspect_err(|_| close_volumes(volumes));
    Ok(started.map_err(|e| format!("the workers cannot be started: {e}"))?)
}

/// Opens the volumes and starts their workers, with nothing in front.
pub(super) fn start(volumes: &[Served]) -> Result<Arc<Pool>, Failure> {
    open_volumes(volumes)?;
    start_workers(volumes)
}

/// What of the volumes can be told from now on, whatever becomes of them.
fn shown(volumes: &[Served], mounts: &[Mounting]) -> Result<Vec<Shown>, Failure> {
    let one = |(n, v): (usize, &Served)| {
        let info = v.info()?;
        let mount = mounts.iter().find(|m| m.volume == n);
        Ok(Shown {
            name: v.name.clone(),
            image: whole_path(v.file.path()),
            writable: !v.read_only,
            promise: v.promise.clone(),
            mount: mount.map(|m| m.dir.display().to_string()),
            openings: v.opening.done(&info.uuid, &info.mode),
            file: v.file.clone(),
        })
    };
    volumes.iter().enumerate().map(one).collect()
}

/// A path that means the same to whoever asks, wherever he stands.
fn whole_path(path: &Path) -> String {
    let whole = std::path::absolute(path).ok().filter(|_| !path.to_string_lossy().contains("://"));
    whole.as_deref().unwrap_or(path).display().to_string()
}

/// What clients are served by.
struct Servers {
    nfs: Option<Started>,
    registration: Option<Registration>,
    _control: Option<Control>,
}

/// NFS, its registration, and HTTP, as far as they are asked for.
fn start_servers(
    (pool, recorder): (&Arc<Pool>, Arc<Recorder>),
    volumes: &[Served],
    (served, shown): (Vec<nfs::Served>, Vec<Shown>),
    fronts: Fronts,
) -> Result<Servers, String> {
    let all = volumes.len();
    assert_eq!((pool.volumes().len(), shown.len()), (all, all), "V1: volumes of workers, report");
    assert!(fronts.nfs.is_none() || served.len() == all, "V1: NFS has {} volumes", served.len());
    let images = volumes.iter().map(|v| v.file.path().to_owned()).collect();
    let start = |n: NfsArgs| n.start(pool, served, images, recorder.clone());
    let started = fronts.nfs.map(start).transpose()?;
    let nfs = started.as_ref().map(|s| s.server.clone());
    let status = Arc::new(Status {
        pool: pool.clone(),
        volumes: shown,
        nfs,
        recorder,
        mounts_gone: fronts.gone,
        copies: Copies::default(),
    });
    if let Some(address) = &fronts.http {
        let at = status::start(address, status.clone())?;
        say::out(&format!("status: http://{at}/, metrics: http://{at}/metrics"));
    }
    let control = Control::start(status);
    let registration = match &started {
        Some(s) if fronts.rpcbind => Some(Registration::new(s.at())?),
        _ => None,
    };
    Ok(Servers { nfs: started, registration, _control: control })
}

/// Mounts what is to be mounted; if one fails, none stays.
fn start_sessions(
    pool: &Arc<Pool>,
    volumes: &[Served],
    fronts: &mut Fronts,
    recorder: &Recorder,
) -> Result<Vec<Session>, Failure> {
    let alone = fronts.nfs.is_none();
    let mut sessions: Vec<Session> = Vec::new();
    let fellows = Arc::<Fellows>::default();
    for m in std::mem::take(&mut fronts.mounts) {
        match start_session(pool, &volumes[m.volume], m, (alone, recorder, fellows.clone())) {
            Ok(s) => sessions.push(s),
            Err(why) => {
                sessions.iter().for_each(|s| drop(s.unmount()));
                let _ = close(volumes, pool); // what went wrong first is what is told
                return Err(why);
            }
        }
    }
    fellows.are_complete();
    Ok(sessions)
}

fn start_session(
    pool: &Arc<Pool>,
    v: &Served,
    m: Mounting,
    (alone, recorder, fellows): (bool, &Recorder, Arc<Fellows>),
) -> Result<Session, Failure> {
    let policy = CachePolicy {
        secs: match (v.followed, alone) {
            (true, _) => TTL_FOLLOWED,
            (_, true) => TTL_ALONE,
            _ => TTL_SHARED,
        },
        returned_is_durable: alone && !v.followed && v.returned_is_durable,
        writeback: alone && !v.followed && v.writeback,
        whole_seconds: v.whole_seconds,
    };
    let options = if v.read_only { m.options.read_only() } else { m.options };
    let device = v.in_place.then(|| v.file.clone()).filter(|f| f.is_device());
    let options = MountOptions { source: whole_path(v.file.path()), options, device };
    let uring = match m.uring {
        Uring::Auto => UringChoice::Auto,
        Uring::On => UringChoice::On,
        Uring::Off => UringChoice::Off,
    };
    let series = fuse::series(recorder, &v.name);
    let info = v.info()?;
    let (block_bytes, root_ino) = (info.block_bytes as usize, info.root_ino);
    let serving = Serving { uring, block_bytes, root_ino, policy, series, fellows };
    let session = Session::start(pool, m.volume, &m.dir, &options, serving)?;
    if let Some(hint) = session.hint() {
        say::out(&hint);
    }
    say::out(&format!("mounted on {}", m.dir.display()));
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

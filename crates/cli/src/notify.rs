//! What a service tells whoever watches over it, as sd_notify(3) has it: that it opens, is ready,
//! reloads, stops, and that it is alive. Where nobody watches, nothing happens. It knows volumes by
//! their names only.

use host::{Pool, ask_then, block_signals};
use sd_notify::NotifyState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest step of an opening that is believed to get on: a recovery tells of its progress
/// more often.
const STEP: Duration = Duration::from_secs(60);

fn tell(states: &[NotifyState<'_>]) {
    // Nobody need listen, and a service works on without.
    let _ = sd_notify::notify(states);
}

fn names<'a>(volumes: impl Iterator<Item = &'a str>) -> String {
    volumes.map(|v| format!("/{v}")).collect::<Vec<_>>().join(", ")
}

/// How often it is looked whether an opening gets on.
const LOOK: Duration = Duration::from_secs(10);

/// Volumes are being opened, which may take as long as their recovery: until it is dropped, whoever
/// watches is asked for more time as long as anything is read or written.
pub struct Opening {
    _thread: Option<Repeating>,
}

impl Opening {
    /// It begins.
    pub fn of<'a>(volumes: impl Iterator<Item = &'a str>) -> Opening {
        tell(&[NotifyState::Status(&format!("opening {}", names(volumes)))]);
        more_time();
        let mut before = String::new();
        let look = move || {
            let now = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
            if now != before || waits_for_a_disk() {
                more_time();
            }
            before = now;
        };
        let watched = std::env::var_os("NOTIFY_SOCKET").is_some();
        Opening { _thread: watched.then(|| Repeating::start("opening", LOOK, look)).flatten() }
    }
}

/// Is a thread in a request to a disk that the kernel has not answered? A flush of much that was
/// written may take minutes, and nothing is counted meanwhile.
fn waits_for_a_disk() -> bool {
    let waits = |task: std::io::Result<std::fs::DirEntry>| {
        let status = task.and_then(|t| std::fs::read_to_string(t.path().join("status")));
        status.is_ok_and(|s| s.lines().any(|l| l.starts_with("State:\tD")))
    };
    std::fs::read_dir("/proc/self/task").is_ok_and(|mut tasks| tasks.any(waits))
}

/// Everything is served. Without names: still the same.
pub fn ready<'a>(volumes: impl Iterator<Item = &'a str>) {
    let names = names(volumes);
    let status = format!("serving {names}");
    match names.is_empty() {
        true => tell(&[NotifyState::Ready]),
        false => tell(&[NotifyState::Ready, NotifyState::Status(&status)]),
    }
}

/// The configuration is being read again.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// The end has begun: what is in memory is written back.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("closing")]);
}

/// A log is being replayed: so far, of so much. It is told once a second at most.
pub fn replaying(at: u64, of: u64) {
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let now = host::now().mono.0 / 1_000_000_000;
    if TOLD.swap(now, Ordering::Relaxed) != now {
        let percent = (at * 100).checked_div(of).unwrap_or(100);
        tell(&[NotifyState::Status(&format!("recovering: {percent} % of the log replayed"))]);
        more_time();
    }
}

/// Whoever watches is to wait for another step.
fn more_time() {
    tell(&[NotifyState::ExtendTimeoutUsec(STEP.as_micros() as u32)]);
}

/// A thread that does something again and again until it is dropped.
struct Repeating {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Repeating {
    fn start(name: &str, every: Duration, mut what: impl FnMut() + Send + 'static) -> Option<Self> {
        let (stop, stopped) = channel();
        let run = move || {
            // They are for the thread that waits for them.
            block_signals();
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                what();
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run).ok()?;
        Some(Repeating { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Repeating {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The service is alive, for as long as it says so again and again.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// Says that the service is alive for as long as every volume answers.
pub struct Watchdog {
    _thread: Repeating,
}

impl Watchdog {
    /// Starts it, if whoever watches wants to hear of it.
    pub fn start(pool: &Arc<Pool>) -> Option<Watchdog> {
        let every = sd_notify::watchdog_enabled()? / 2;
        let pool = pool.clone();
        let look = move || {
            if all_answer(&pool, every) {
                tell(&[NotifyState::Watchdog]);
            } else {
                tracing::error!("a volume does not answer: the watchdog is left to bark");
            }
        };
        Some(Watchdog { _thread: Repeating::start("watchdog", every / 2, look)? })
    }
}

/// Does every volume say what it is, in time? One that has failed does, too.
fn all_answer(pool: &Arc<Pool>, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    let (answered, answers) = channel();
    let volumes = pool.volumes().len();
    for v in 0..volumes {
        let answered = answered.clone();
        ask_then(pool, v, vfs::Request::Info, move |_| {
            let _ = answered.send(()); // nobody waits any more
        });
    }
    (0..volumes)
        .all(|_| answers.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok())
}

//! A volume of a pool as this machine serves it: a `cairn serve` of its own, which takes no other
//! volume with it when it fails. What it says is read, and passed on. It knows no other server.
//!
//! Invariants:
//! * L1. A process that has ended, and was seen to, is not signalled: its number may be another's.

use super::record::{Has, State};
use crate::say;
use host::{Pool, ask};
use rustix::process::{
    Pid, Signal, getppid, kill_process, set_parent_process_death_signal as when_parent_dies,
};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use vfs::{Reply, Request};

/// The option by which it knows whose it is.
const OF_POOL: &str = "--of-pool";
/// What it has said last is waited for so long when it has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

enum Line {
    Out(String),
    Err(String),
}

/// The process.
pub struct Child {
    process: std::process::Child,
    lines: Receiver<Line>,
    /// How far it is, as others are told.
    pub has: Has,
    /// Where it listens; 0: at a port of the machine's choice.
    pub port: u16,
    last_error: String,
    /// It has ended, and was seen to.
    gone: bool,
}

impl Child {
    /// Starts it with these arguments.
    pub fn start(arguments: &[OsString], port: u16) -> std::io::Result<Child> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(arguments)
            .arg(format!("{OF_POOL}={}", std::process::id()))
            // Who watches over the pool's server hears of that one alone.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (to, lines) = channel();
        let listens = listen(process.stdout.take(), to.clone(), Line::Out)
            .and_then(|()| listen(process.stderr.take(), to, Line::Err));
        if let Err(e) = listens {
            // Nobody would hear what it says.
            let _ = process.kill().and_then(|()| process.wait());
            return Err(e);
        }
        let (has, last_error) = (Has::new(State::Opening), String::new());
        Ok(Child { process, lines, has, port, last_error, gone: false })
    }

    /// Takes in what it has said. Returns whether that has changed anything.
    pub fn listen(&mut self) -> bool {
        let before = self.has.clone();
        while let Ok(line) = self.lines.try_recv() {
            self.heard(line);
        }
        self.has != before
    }

    fn heard(&mut self, line: Line) {
        match line {
            Line::Err(line) => {
                say::err(&line);
                if let Some(why) = line.strip_prefix("cairn: ") {
                    self.last_error = why.to_owned();
                }
            }
            Line::Out(line) => {
                if let Some((options, at)) = mounted_with(&line) {
                    (self.has.options, self.has.at) = (options.to_owned(), at.to_owned());
                }
                if line == "ready" && self.has.state == State::Opening {
                    self.has.state = State::Serving;
                }
            }
        }
    }

    /// Asks it to close its volume cleanly and end.
    pub fn end(&mut self) {
        assert!(!self.gone, "L1: process {} is signalled, and has ended", self.process.id());
        self.has = Has::new(State::Ending);
        if let Err(e) = kill_process(Pid::from_child(&self.process), Signal::TERM) {
            tracing::warn!("process {}: {e}", self.process.id());
        }
    }

    /// Has it ended? Then why, if nobody had asked it to.
    pub fn ended(&mut self) -> Option<Result<(), String>> {
        let status = self.process.try_wait().ok()??;
        let again = std::mem::replace(&mut self.gone, true);
        assert!(!again, "L1: process {} has ended twice", self.process.id());
        let until = Instant::now() + LAST_WORDS;
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok(line) = self.lines.recv_timeout(left()) {
            self.heard(line);
        }
        Some(self.reason(status))
    }

    fn reason(&self, status: ExitStatus) -> Result<(), String> {
        match (self.has.state, status.success()) {
            (State::Ending, true) => Ok(()),
            _ if self.last_error.is_empty() => Err(format!("its process ended with {status}")),
            _ => Err(self.last_error.clone()),
        }
    }
}

/// A thread passes lines on until there are no more.
fn listen(
    from: Option<impl Read + Send + 'static>,
    to: Sender<Line>,
    as_line: fn(String) -> Line,
) -> std::io::Result<()> {
    let Some(from) = from else { return Ok(()) };
    let pass_on = move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send(as_line(line)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("child".into()).spawn(pass_on).map(drop)
}

/// The options and the place in the line that says how a volume is mounted.
fn mounted_with(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix("mount -t nfs -o ")?.strip_suffix(" DIR")?;
    rest.split_once(' ')
}

/// The arguments of the process that serves `url`, from those of the pool's server: the volume
/// stands where the pool did, `nfs` is where it listens, and of the exports those stay that are for
/// this volume, or for all.
pub fn arguments(
    line: &[OsString],
    (pool, url): (&OsStr, &str),
    name: &str,
    nfs: &str,
) -> Vec<OsString> {
    let is_for_it = |rule: &str| {
        let of = rule.split_once('=').map_or("", |(of, _)| of);
        of.is_empty() || of == name
    };
    let mut all = Vec::new();
    let mut rest = line.iter();
    while let Some(arg) = rest.next() {
        let text = arg.to_string_lossy();
        match text.split_once('=').map_or((&*text, None), |(o, v)| (o, Some(v))) {
            _ if arg == pool => all.push(url.into()),
            ("--nfs", Some(_)) => (),
            ("--nfs", None) => drop(rest.next()),
            ("--export", Some(rule)) if is_for_it(rule) => all.push(arg.clone()),
            ("--export", Some(_)) => (),
            ("--export", None) => {
                let rule = rest.next().filter(|r| is_for_it(&r.to_string_lossy()));
                all.extend(rule.iter().flat_map(|r| [arg.clone(), (*r).clone()]));
            }
            _ => all.push(arg.clone()),
        }
    }
    all.extend(["--nfs".into(), nfs.into()]);
    all
}

/// In the process of a volume: it ends when the pool's server does. Errors: that has ended already.
pub fn belong(server: u32) -> Result<(), String> {
    when_parent_dies(Some(Signal::TERM)).map_err(|e| format!("of a pool: {e}"))?;
    let parent = getppid().map(|p| p.as_raw_nonzero().get());
    match parent == i32::try_from(server).ok() {
        true => Ok(()),
        false => Err("the pool's server has ended".into()),
    }
}

/// In the process of a volume: looks whether the volume is this machine's still.
pub struct Kept {
    pool: Arc<Pool>,
    next: Instant,
}

/// So often.
const LOOK: Duration = Duration::from_secs(1);
/// What does not answer for so long is looked at later.
const PATIENCE: Duration = Duration::from_secs(5);

impl Kept {
    pub fn new(pool: Arc<Pool>) -> Kept {
        Kept { pool, next: Instant::now() }
    }

    /// Has the volume stopped writing, as when another machine has taken it over?
    pub fn is_lost(&mut self) -> bool {
        if Instant::now() < self.next {
            return false;
        }
        let told = ask(&self.pool, 0, Request::Info, PATIENCE);
        self.next = Instant::now() + LOOK;
        let Some(Reply::Info(info)) = told else { return false };
        let stopped = |c: &&(&str, u64)| c.0 == "cairn_bucket_stopped" && c.1 > 0;
        info.read_only || info.counters.iter().any(|c| stopped(&c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_gets_its_own_arguments() {
        let words = |all: &str| all.split(' ').map(OsString::from).collect::<Vec<_>>();
        let line = "-v serve s3://b/homes/ --nfs 0.0.0.0:2049 --export=v=10.0.0.0/8 --export \
                    w=10.0.0.1 --export ==::1 --endpoint http://x --takeover-after=1";
        let line: Vec<OsString> = words(&line.split_whitespace().collect::<Vec<_>>().join(" "));
        let pool = OsString::from("s3://b/homes/");
        let of = |name: &str| arguments(&line, (&pool, "s3://b/homes/v"), name, "0.0.0.0:2050");
        let v = "-v serve s3://b/homes/v --export=v=10.0.0.0/8 --export ==::1 --endpoint http://x \
                 --takeover-after=1 --nfs 0.0.0.0:2050";
        assert_eq!(of("v"), words(v));
        assert!(of("w").contains(&"w=10.0.0.1".into()));
    }

    #[test]
    fn how_it_is_mounted_is_read_from_its_line() {
        let line = "mount -t nfs -o vers=3,tcp,port=1 [::1]:/v DIR";
        assert_eq!(mounted_with(line), Some(("vers=3,tcp,port=1", "[::1]:/v")));
        assert_eq!(mounted_with("ready"), None);
    }
}

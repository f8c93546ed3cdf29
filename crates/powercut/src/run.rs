//! The runs of one mode, one after the other until its time is over: a volume set up, the real
//! program on it, a scenario through its mount, the power cut, the states judged.

use crate::drive;
use crate::options::Options;
use crate::recorder::Recorder;
use env::Rng;
use lab::{Setting, elsewhere};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use volume::{Commit, Mode};

/// What was found in one mode.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) runs: u64,
    pub(crate) states: u64,
    /// Each with its scenario, seed, event and variant.
    pub(crate) broken: Vec<String>,
}

/// Scenarios in which much happens; the short sequences would be all opening and closing.
const SCENARIOS: [&str; 8] =
    ["callers", "random", "reuse", "append", "overwrite", "mix", "postmark", "wrap"];
/// A server that takes longer to be ready is none.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Of a run's time, so much is for judging its states; the rest of a mode's time is for more runs.
const JUDGE_FOR: Duration = Duration::from_millis(1500);

/// Runs and judges until the mode's time is over, or something is broken. Errors: a run is not
/// possible here.
pub(crate) fn explore(options: &Options, setting: Setting) -> Result<Found, String> {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut found = Found::default();
    let mut seed = options.seed;
    while found.broken.is_empty() && Instant::now() < end {
        let some = SCENARIOS[(seed % SCENARIOS.len() as u64) as usize];
        let name = options.scenario.as_deref().unwrap_or(some);
        let judged = one(options, setting, (name, seed), end)?;
        found.runs += 1;
        found.states += judged.states;
        let state = |b: String| format!("{name}, seed {seed}, {b}");
        found.broken.extend(judged.broken.into_iter().map(state));
        seed += 1;
    }
    Ok(found)
}

fn one(
    options: &Options,
    setting: Setting,
    (name, seed): (&str, u64),
    end: Instant,
) -> Result<elsewhere::Judgement, String> {
    let mut prepared = elsewhere::prepare(setting, name, seed)?;
    prepared.replace(drive::through_a_mount);
    let (disk, mount) = (options.work.join("recorder"), options.work.join("mount"));
    for dir in [&disk, &mount] {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let recorder = Recorder::mount(&disk, prepared.disk().clone(), seed)?;
    let server = Server::start(&options.cairn, recorder.path(), mount, served(options, setting))?;
    let refused = drive::all(&server.mount, prepared.acts(), prepared.callers(), &recorder);
    let trace = recorder.cut();
    drop(server);
    drop(recorder);
    let judge_until = end.min(Instant::now() + JUDGE_FOR);
    let mut goes_on = || Instant::now() < judge_until;
    Ok(prepared.judge(trace, &refused, &mut Rng::new(seed), &mut goes_on))
}

/// How the program is started, which is not always as it is judged.
fn served(options: &Options, setting: Setting) -> Setting {
    let commit = if options.overclaim { Commit::Async } else { setting.commit };
    Setting { commit, ..setting }
}

/// The real program, killed and unmounted when dropped.
struct Server {
    child: Child,
    mount: PathBuf,
}

impl Server {
    fn start(
        cairn: &Path,
        disk: &Path,
        mount: PathBuf,
        setting: Setting,
    ) -> Result<Server, String> {
        let mut command = Command::new(cairn);
        command.arg("serve").arg(disk).args(["--no-nfs", "--cache", "16M", "--mount"]).arg(&mount);
        command.args(["--mode", &setting.mode.to_string()]);
        if setting.mode == Mode::Async {
            command.arg("--unsafe-async");
        }
        if setting.mode.is_logging() {
            let commit = if setting.commit == Commit::Sync { "sync" } else { "async" };
            command.args(["--commit", commit]);
        }
        let child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn();
        let mut child = child.map_err(|e| format!("{}: {e}", cairn.display()))?;
        let output = child.stdout.take();
        let server = Server { child, mount };
        match output.map(is_ready) {
            Some(true) => Ok(server),
            _ => Err(format!("{} serves nothing (see above)", cairn.display())),
        }
    }
}

/// Does the server say that it is ready? What it prints afterwards is read and forgotten.
fn is_ready(output: ChildStdout) -> bool {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line.starts_with("ready") {
                // Nobody listens any more if it was too late.
                let _ = tell.send(());
            }
        }
    });
    told.recv_timeout(READY_WITHIN).is_ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; what matters is that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let lazily = |program: &str, flag: &str| {
            let mut command = Command::new(program);
            command.arg(flag).arg(&self.mount).stderr(Stdio::null());
            command.status().is_ok_and(|s| s.success())
        };
        if !lazily("umount", "-l") {
            lazily("fusermount3", "-uz");
        }
    }
}

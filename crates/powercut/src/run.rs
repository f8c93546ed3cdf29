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
/// possible here, or there was no time to judge a single state.
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
    if found.states == 0 && found.broken.is_empty() {
        return Err(format!("no state of {} runs was judged: more --seconds", found.runs));
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
    let mut server =
        Server::start(&options.cairn, recorder.path(), mount, served(options, setting))?;
    let refused = drive::all(&server.mount, prepared.acts(), prepared.callers(), &recorder);
    let trace = recorder.cut();
    let ended = server.has_ended();
    drop(server);
    drop(recorder);
    let refused = match refused {
        _ if ended => return Ok(broken("the server has ended by itself".into())),
        Err(why) => return Ok(broken(why)),
        Ok(refused) => refused,
    };
    let judge_until = end.min(Instant::now() + JUDGE_FOR);
    let mut goes_on = || Instant::now() < judge_until;
    Ok(prepared.judge(trace, &refused, &mut Rng::new(seed), &mut goes_on))
}

/// A run that went wrong before its power was cut.
fn broken(why: String) -> elsewhere::Judgement {
    elsewhere::Judgement { states: 0, broken: vec![why] }
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

    /// Has it ended, though nobody has told it to? What is done at its mount then is done to
    /// nobody.
    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A program in the server's place, which says that it is ready and does this.
    fn served_by(name: &str, then: &str) -> Server {
        let dir = std::env::temp_dir().join(format!("powercut-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder for the test");
        let program = dir.join("program");
        std::fs::write(&program, format!("#!/bin/sh\necho ready\n{then}\n")).expect("a script");
        let runs = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, runs).expect("it can be run");
        let setting = Setting::plain(Mode::Sync);
        let server = Server::start(&program, &dir.join("disk"), dir.join("mount"), setting);
        let server = server.expect("it says that it is ready");
        std::fs::remove_dir_all(&dir).expect("the test's own");
        server
    }

    #[test]
    fn a_server_that_ends_by_itself_is_noticed() {
        let mut ends = served_by("ends", "exit 0");
        let end = Instant::now() + READY_WITHIN;
        while !ends.has_ended() {
            assert!(Instant::now() < end, "it has ended, and that is not seen");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut stays = served_by("stays", "exec sleep 60");
        assert!(!stays.has_ended());
    }
}

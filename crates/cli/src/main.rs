//! The `cairn` command: reads the arguments, runs one command, and turns its outcome into an exit
//! code and, if it failed, one line that says what was wrong, with what, and what to do.

#[macro_use]
mod say;
mod args;
mod attributes;
mod buckets;
mod commands;
mod config;
mod device;
mod disk;
mod hands;
mod helpers;
mod hold;
mod image;
mod logs;
mod notify;
mod pool;
mod progress;
mod size;
mod status;
mod subtree;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How a command ended.
pub enum Outcome {
    /// Exit 0.
    Done,
    /// fsck or check found damage and left it: exit 3.
    Damaged,
    /// fsck repaired: exit 4.
    Repaired,
    /// The crash explorer found a broken promise: exit 1.
    Broken,
}

/// Why a command failed.
pub enum Failure {
    /// The operation failed: exit 1.
    Failed(String),
    /// It was asked for wrongly: exit 2.
    Usage(String),
    /// It failed in another process, which has told why: its exit code.
    Told(u8),
}

impl Failure {
    /// Why, in words.
    pub fn words(self) -> String {
        match self {
            Failure::Failed(why) | Failure::Usage(why) => why,
            Failure::Told(code) => format!("it has ended with exit code {code}"),
        }
    }
}

impl From<String> for Failure {
    fn from(s: String) -> Failure {
        Failure::Failed(s)
    }
}
impl From<volume::VolumeError> for Failure {
    fn from(e: volume::VolumeError) -> Failure {
        Failure::Failed(e.to_string())
    }
}

fn main() -> ExitCode {
    if let Some(code) = helpers::run(&std::env::args_os().collect::<Vec<_>>()) {
        return code;
    }
    let cli = arguments();
    let level = match cli.command {
        // What it sees it says itself, in a line, but not that another machine may be writing.
        Command::Ls(_) | Command::Cat(_) | Command::Stat(_) | Command::Get(_) => {
            "off,volume::mmp=warn"
        }
        // Volumes of its own, made to fail: what those say of it is no news.
        Command::Crash(_) | Command::Lab(_) => "off",
        _ => "warn",
    };
    let log = say::start_log(cli.verbose, cli.log_format, level).map_err(Failure::Failed);
    // Who only starts the one in the background opens nothing, and has no cache from it.
    let opens = !matches!(&cli.command, Command::Mount(a) if a.daemon);
    let buckets = || if opens { buckets::set(cli.bucket) } else { Ok(()) };
    if let Err(failure) = log.and_then(|()| buckets()) {
        return code_of(Err(failure));
    }
    if only_reads(&cli.command) {
        host::end_with_reader();
    }
    let outcome = match cli.command {
        Command::Serve(a) => commands::serve::run(a),
        Command::Mount(a) => commands::serve::mount(a),
        Command::Umount(a) => commands::umount::run(&a),
        Command::Mkfs(a) => commands::mkfs::run(&a),
        Command::Fsck(a) => commands::fsck::run(&a),
        Command::Check(a) => commands::check::run(&a),
        Command::Copy(a) => commands::copy::run(&a),
        Command::Recover(a) => commands::recover::run(&a),
        Command::Resize(a) => commands::tune::resize(&a),
        Command::Label(a) => commands::tune::label(&a),
        Command::Uuid(a) => commands::tune::uuid(&a),
        Command::Info(a) => commands::info::run(&a),
        Command::Ls(a) => commands::files::ls(&a),
        Command::Cat(a) => commands::files::cat(&a),
        Command::Stat(a) => commands::files::stat(&a),
        Command::Get(a) => commands::get::run(&a),
        Command::Put(a) => commands::put::run(&a),
        Command::Mkdir(a) => commands::files::mkdir(&a),
        Command::Rm(a) => commands::remove::run(&a),
        Command::Bench(a) => commands::bench::run(&a),
        Command::Crash(a) => commands::crash::run(&a),
        Command::Lab(a) => commands::lab::run(&a),
        Command::Log(a) => commands::log::run(&a),
        Command::Lfs(a) => commands::lfs::run(&a),
        Command::Snapshot(a) => commands::snapshot::run(a),
        Command::Pool(a) => commands::pool::run(&a),
        Command::Stats(a) => commands::stats::run(&a),
        Command::Top(a) => commands::top::run(&a),
        Command::Config(a) => commands::config::run(&a),
        Command::Generate(a) => commands::generate::run(&a),
    };
    code_of(outcome)
}

/// Says what has failed; how the program ends.
fn code_of(outcome: Result<Outcome, Failure>) -> ExitCode {
    match outcome.and_then(|o| say::all_told().map(|()| o).map_err(Failure::Failed)) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Damaged) => ExitCode::from(3),
        Ok(Outcome::Repaired) => ExitCode::from(4),
        Ok(Outcome::Broken) => ExitCode::from(1),
        Err(Failure::Failed(why)) => {
            say::err(&format!("cairn: {why}"));
            ExitCode::from(1)
        }
        Err(Failure::Usage(why)) => {
            say::err(&format!("cairn: {why}"));
            ExitCode::from(2)
        }
        Err(Failure::Told(code)) => ExitCode::from(code),
    }
}

/// The arguments; wrong ones end it here, with one line. Who asks for help gets all of it.
fn arguments() -> Cli {
    use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand as Nothing;
    Cli::try_parse().unwrap_or_else(|e| {
        if !e.use_stderr() || e.kind() == Nothing {
            if let Err(why) = e.print()
                && why.kind() != std::io::ErrorKind::BrokenPipe
            {
                say::err(&format!("cairn: standard output: {why}"));
                std::process::exit(1);
            }
            std::process::exit(if e.use_stderr() { 2 } else { 0 });
        }
        say::err(&format!("cairn: {}", say::one_line(&e.render().to_string())));
        std::process::exit(2)
    })
}

/// Does the command change nothing, so that it may end at any moment?
fn only_reads(command: &Command) -> bool {
    use Command::{Cat, Check, Crash, Info, Ls, Stat, Stats};
    matches!(command, Check(_) | Info(_) | Ls(_) | Cat(_) | Stat(_) | Crash(_) | Stats(_))
}

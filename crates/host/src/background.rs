//! What a process does to stay behind when the shell that started it goes on: a session of its own,
//! no terminal and no pipe to write to, and the system's log for what it still has to say. It knows
//! no volume.

use nix::syslog::{Facility, Priority, Severity, syslog};
use nix::unistd::{dup2_stderr, dup2_stdout, setsid};
use std::fs::OpenOptions;

/// The standard streams, by their descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// A session of its own: the signals of the terminal it came from do not reach it any more.
pub fn new_session() {
    // It fails only if this process leads a group already, and then the signals do not reach it
    // either.
    let _ = setsid();
}

/// Lets go of a stream: from now on it is /dev/null, and whoever waited for its end sees that.
pub fn let_go(stream: Stream) -> std::io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    match stream {
        Stream::Output => dup2_stdout(&null)?,
        Stream::Error => dup2_stderr(&null)?,
    }
    Ok(())
}

/// A line for the system's log, as a daemon's; lost where there is none.
pub fn system_log(line: &str) {
    let priority = Priority::new(Severity::LOG_WARNING, Facility::LOG_DAEMON);
    let _ = syslog(priority, &line.trim_end().replace('\0', " "));
}

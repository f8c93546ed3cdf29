//! What a process does to stay behind when the shell that started it goes on: a session of its own,
//! no terminal and no pipe to write to, and the system's log for what it still has to say. It knows
//! no volume.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;

/// The standard streams, by their descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Standard input.
    Input = 0,
    /// Standard output.
    Output = 1,
    /// Standard error.
    Error = 2,
}

/// A session of its own: the signals of the terminal it came from do not reach it any more.
pub fn new_session() {
    // SAFETY: takes nothing. It fails only if this process leads a group already, and then the
    // signals do not reach it either.
    #[expect(unsafe_code, reason = "std has no sessions")]
    unsafe {
        libc::setsid();
    }
}

/// Lets go of a stream: from now on it is /dev/null, and whoever waited for its end sees that.
pub fn let_go(stream: Stream) -> std::io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    // SAFETY: two descriptors of this process; whoever writes to the stream writes to the new one.
    #[expect(unsafe_code, reason = "std cannot replace a descriptor")]
    let rc = unsafe { libc::dup2(null.as_raw_fd(), stream as i32) };
    if rc < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// A line for the system's log, as a daemon's; lost where there is none.
pub fn system_log(line: &str) {
    let text = line.trim_end().replace('\0', " ");
    let text = CString::new(text).expect("it has no zeros any more");
    // SAFETY: two strings that end in a zero and live through the call.
    #[expect(unsafe_code, reason = "std does not know the system's log")]
    unsafe {
        libc::syslog(libc::LOG_DAEMON | libc::LOG_WARNING, c"%s".as_ptr(), text.as_ptr());
    }
}

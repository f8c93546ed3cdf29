//! Signals that mean "stop": blocked in every thread, and waited for in one.

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;
use std::os::fd::AsFd;

/// How often it is looked whether there is another reason to end.
const LOOK_MS: u16 = 100;

fn stop_set() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

/// Blocks SIGINT, SIGTERM and SIGHUP in this thread and those it starts from now on.
pub fn block_signals() {
    stop_set().thread_block().expect("the kernel knows these three");
}

/// Why a wait for the end was over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// SIGINT or SIGTERM, or what was served is gone.
    End,
    /// SIGHUP: to servers with a configuration, that it is to be read again.
    Hangup,
}

/// Where a process hears that it is to stop.
pub struct Stops(SignalFd);

impl Stops {
    /// Blocks the signals as [`block_signals`] does; they are heard here from now on.
    /// Errors: no more files may be open.
    pub fn new() -> io::Result<Stops> {
        block_signals();
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Stops(SignalFd::with_flags(&stop_set(), flags)?))
    }

    /// Waits until one of them comes, or until `ended` says so (looked at ten times a second).
    pub fn wait(&self, mut ended: impl FnMut() -> bool) -> Stop {
        while !ended() {
            let mut one = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            // Whatever poll says: nothing is read where nothing has come.
            let _ = poll(&mut one, LOOK_MS);
            if let Ok(Some(got)) = self.0.read_signal() {
                return meaning(got.ssi_signo);
            }
        }
        Stop::End
    }
}

fn meaning(number: u32) -> Stop {
    let heard = stop_set().iter().find(|s| *s as u32 == number);
    assert!(heard.is_some(), "signal {number} was not listened for");
    if heard == Some(Signal::SIGHUP) { Stop::Hangup } else { Stop::End }
}

/// Lets a reader that goes away (`| head`) end this process quietly, as it ends other programs. Not
/// for servers, and not for who changes a volume.
pub fn end_with_reader() {
    // SAFETY: the default action is the kernel's; no handler of ours runs.
    #[expect(unsafe_code, reason = "std ignores SIGPIPE, and has no way to take that back")]
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}

//! Signals that mean "stop": blocked in every thread, and waited for in one.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, raise, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;
use std::os::fd::AsFd;
use std::thread::JoinHandle;

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
        Stops::of(stop_set())
    }

    fn of(signals: SigSet) -> io::Result<Stops> {
        signals.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Stops(SignalFd::with_flags(&signals, flags)?))
    }

    /// Waits until one of them comes, or until `ended` says so (looked at ten times a second).
    pub fn wait(&self, ended: impl FnMut() -> bool) -> Stop {
        self.heard(ended).unwrap_or(Stop::End)
    }

    /// The same; None: `ended` said so.
    pub fn heard(&self, mut ended: impl FnMut() -> bool) -> Option<Stop> {
        while !ended() {
            let mut one = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            // Whatever poll says: nothing is read where nothing has come.
            let _ = poll(&mut one, LOOK_MS);
            if let Ok(Some(got)) = self.0.read_signal() {
                return Some(meaning(got.ssi_signo));
            }
        }
        None
    }
}

/// Does something when a signal comes that means "stop", and lets that end the process then; until
/// this is dropped.
pub struct BeforeStop {
    /// Dropped, it tells the thread that nobody needs it any more.
    end: Option<io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
    mask: SigSet,
}

impl BeforeStop {
    /// From now on, `f` is done in a thread of its own. Threads that are started meanwhile do not
    /// get these signals either.
    /// Errors: no more files may be open, or threads be started.
    pub fn new(f: impl FnOnce() + Send + 'static) -> io::Result<BeforeStop> {
        let mask = SigSet::thread_get_mask()?;
        let (ended, end) = io::pipe()?;
        // What is ignored (nohup) ends nothing.
        let stops = Stops::of(stop_set().iter().filter(|s| !is_ignored(*s)).collect())?;
        let watch = move || {
            let one = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let mut both = [one(stops.0.as_fd()), one(ended.as_fd())];
            while poll(&mut both, PollTimeout::NONE).is_err() {} // only who traces interrupts it
            if let Ok(Some(got)) = stops.0.read_signal() {
                f();
                end_by(got.ssi_signo);
            }
        };
        let thread = std::thread::Builder::new().name("signals".into()).spawn(watch);
        // Without one, the signals do again what they did before.
        let before_stop = |thread| BeforeStop { end: Some(end), thread, mask };
        match thread {
            Ok(thread) => Ok(before_stop(Some(thread))),
            Err(e) => {
                drop(before_stop(None));
                Err(e)
            }
        }
    }
}

impl Drop for BeforeStop {
    fn drop(&mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // if it panicked, it has said so
        }
        self.mask.thread_set_mask().expect("it was the mask before");
    }
}

/// Was this process started with the signal ignored?
fn is_ignored(signal: Signal) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed; the kernel fills in the one structure, which is plain numbers.
    #[expect(unsafe_code, reason = "nix only sets what is done with a signal")]
    let (told, now) = unsafe {
        let told = libc::sigaction(signal as i32, std::ptr::null(), now.as_mut_ptr());
        (told, now.assume_init())
    };
    told == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// Ends the process as this signal does where nobody waits for it.
fn end_by(number: u32) {
    if let Some(signal) = stop_set().iter().find(|s| *s as u32 == number) {
        let _ = [signal].into_iter().collect::<SigSet>().thread_unblock();
        let _ = raise(signal);
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

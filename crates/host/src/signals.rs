//! Signals that mean "stop": blocked in every thread, and waited for in one.

use std::mem::MaybeUninit;

fn stop_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set, the others change it.
    #[expect(unsafe_code, reason = "std has no signals")]
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for s in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), s);
        }
        set.assume_init()
    }
}

/// Blocks SIGINT, SIGTERM and SIGHUP in this thread and those it starts from now on.
pub fn block_signals() {
    let set = stop_set();
    // SAFETY: the set is initialised; the old mask is not wanted.
    #[expect(unsafe_code, reason = "std has no signals")]
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Why a wait for the end was over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// SIGINT or SIGTERM, or what was served is gone.
    End,
    /// SIGHUP: to servers with a configuration, that it is to be read again.
    Hangup,
}

/// Waits until one of them comes, or until `ended` says so (looked at ten times a second).
pub fn wait_for_stop(mut ended: impl FnMut() -> bool) -> Stop {
    let set = stop_set();
    let wait = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !ended() {
        // SAFETY: set and time live through the call.
        #[expect(unsafe_code, reason = "std has no signals")]
        let got =
            unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const wait) };
        match got {
            libc::SIGHUP => return Stop::Hangup,
            got if got > 0 => return Stop::End,
            _ => (),
        }
    }
    Stop::End
}

/// Lets a reader that goes away (`| head`) end this process quietly, as it ends other programs. Not
/// for servers, and not for who changes a volume.
pub fn end_with_reader() {
    // SAFETY: the default action is the kernel's; no handler of ours runs.
    #[expect(unsafe_code, reason = "std ignores SIGPIPE, and has no way to take that back")]
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

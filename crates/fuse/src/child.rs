//! What a server asks of its own mount, asked by a child process. A thread of the server's that
//! waits for an answer of that mount holds /dev/fuse open with the others: killed there, the
//! process would wait for itself, could not end, and would keep the image locked until somebody
//! aborts the connection. A child without /dev/fuse waits for nobody who waits for it.

use std::io;

/// Makes some system calls in a child process, which holds no descriptor but those of its terminal,
/// and waits for its end. `calls` returns 0 or an errno. It must not allocate or lock: whatever
/// other threads held when the child was made stays held there for ever.
pub(crate) fn in_child(calls: impl FnOnce() -> i32) -> io::Result<()> {
    // SAFETY: the child runs `calls` and ends, without unwinding and without anything that was
    // made before being dropped there; its callers keep to system calls.
    #[expect(unsafe_code, reason = "std makes no process without another program")]
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        // SAFETY: takes numbers only; nothing of this process uses the descriptors any more.
        #[expect(unsafe_code, reason = "the child keeps no connection to the kernel open")]
        unsafe {
            let closed = libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
            libc::_exit(if closed == 0 { calls() } else { libc::ENOSYS });
        }
    }
    let code = wait_for(pid)?;
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// With what the child has ended.
fn wait_for(pid: libc::pid_t) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: a number that lives through the call.
        #[expect(unsafe_code, reason = "std waits only for children of its own making")]
        let done = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if done == pid {
            break;
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
    Ok(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { libc::EINTR })
}

/// The errno of the last call of this thread.
pub(crate) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Opens a path and closes it. For [`in_child`].
pub(crate) fn open_and_close(path: &std::ffi::CStr, flags: i32) -> i32 {
    // SAFETY: a string that lives through the call; the descriptor is nobody else's.
    #[expect(unsafe_code, reason = "std's way allocates")]
    unsafe {
        let fd = libc::open(path.as_ptr(), flags | libc::O_CLOEXEC);
        if fd < 0 {
            return errno();
        }
        libc::close(fd);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_tells_what_became_of_it() {
        assert!(in_child(|| open_and_close(c"/dev/null", libc::O_RDONLY)).is_ok());
        let none = in_child(|| open_and_close(c"/dev/no-such-thing", libc::O_RDONLY));
        assert_eq!(none.expect_err("it is not there").raw_os_error(), Some(libc::ENOENT));
        let file = std::fs::File::open("/dev/null").expect("it is there");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let kept = in_child(|| {
            // SAFETY: takes numbers only.
            #[expect(unsafe_code, reason = "a descriptor is asked for")]
            let rc = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            if rc < 0 { errno() } else { 0 }
        });
        assert_eq!(kept.expect_err("it has no descriptors").raw_os_error(), Some(libc::EBADF));
    }
}

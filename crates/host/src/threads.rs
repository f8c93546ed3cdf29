//! What a ring does, done by plain threads: for kernels without io_uring, and where it is forbidden
//! (containers, sysctl). It takes the same entries and carries out the few kinds that disks and
//! wake-ups need; FUSE's queues need the real thing.

use io_uring::squeue::Entry128;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// One of them always waits for the worker's wakeup.
const THREADS: usize = 5;

/// The bytes of an entry, of which the first 64 are `struct io_uring_sqe`.
struct Raw([u8; 128]);

#[derive(Default)]
struct Shared {
    asked: Mutex<VecDeque<Raw>>,
    something_asked: Condvar,
    done: Mutex<Vec<(u64, i32)>>,
    something_done: Condvar,
}

/// Threads that carry out entries. They last as long as the process.
pub(crate) struct Threads(Arc<Shared>);

impl Threads {
    pub(crate) fn start() -> std::io::Result<Threads> {
        let shared = Arc::new(Shared::default());
        for _ in 0..THREADS {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("disk".into());
            thread.spawn(move || shared.serve())?;
        }
        Ok(Threads(shared))
    }

    pub(crate) fn push(&self, entries: &[Entry128]) {
        let mut asked = self.0.asked.lock().expect("nobody panics while holding it");
        for e in entries {
            // SAFETY: an entry is 128 bytes of plain numbers, laid out as the kernel has them.
            #[expect(unsafe_code, reason = "the crate lets nobody look into an entry")]
            let raw = unsafe { std::mem::transmute::<Entry128, [u8; 128]>(e.clone()) };
            asked.push_back(Raw(raw));
        }
        self.0.something_asked.notify_all();
    }

    /// Waits for a completion, at most `timeout_ns`.
    pub(crate) fn wait(&self, timeout_ns: Option<u64>) {
        let done = self.0.done.lock().expect("nobody panics while holding it");
        let timeout = timeout_ns.map_or(Duration::from_secs(3600), Duration::from_nanos);
        let waited = self.0.something_done.wait_timeout_while(done, timeout, |d| d.is_empty());
        drop(waited.expect("nobody panics while holding it"));
    }

    /// Takes the completions that are there.
    pub(crate) fn completions(&self, into: &mut Vec<(u64, i32)>) {
        into.append(&mut self.0.done.lock().expect("nobody panics while holding it"));
    }
}

impl Shared {
    fn serve(&self) {
        loop {
            let asked = self.asked.lock().expect("nobody panics while holding it");
            let mut asked = self
                .something_asked
                .wait_while(asked, |a| a.is_empty())
                .expect("nobody panics while holding it");
            let raw = asked.pop_front().expect("it was waited for");
            drop(asked);
            let done = (raw.u64(32), raw.carry_out());
            self.done.lock().expect("nobody panics while holding it").push(done);
            self.something_done.notify_one();
        }
    }
}

impl Raw {
    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    /// The result as a completion has it: what the system call returns, or minus its error.
    fn carry_out(&self) -> i32 {
        const NOP: u8 = 0;
        const READV: u8 = 1;
        const WRITEV: u8 = 2;
        const FSYNC: u8 = 3;
        const FALLOCATE: u8 = 17;
        const READ: u8 = 22;
        let fd = self.u32(4).cast_signed();
        let (at, len, flags) = (self.u64(8).cast_signed(), self.u32(24), self.u32(28));
        let address = self.u64(16);
        let iovecs = address as *const libc::iovec;
        // SAFETY: who pushes an entry keeps what it points to until its completion is taken.
        #[expect(unsafe_code, reason = "entries hold pointers, for the kernel or for us")]
        let rc = unsafe {
            match self.0[0] {
                NOP => 0,
                READV => libc::preadv(fd, iovecs, len.cast_signed(), at),
                WRITEV => libc::pwritev2(fd, iovecs, len.cast_signed(), at, flags.cast_signed()),
                FSYNC => libc::fdatasync(fd) as isize,
                FALLOCATE => {
                    libc::fallocate(fd, len.cast_signed(), at, address.cast_signed()) as isize
                }
                READ => libc::read(fd, address as *mut libc::c_void, len as usize),
                _ => return -libc::ENOSYS,
            }
        };
        if rc >= 0 {
            return rc as i32;
        }
        -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io_uring::{opcode, types};
    use std::os::fd::AsRawFd;

    fn results(t: &Threads, n: usize) -> Vec<(u64, i32)> {
        let mut all = Vec::new();
        while all.len() < n {
            t.wait(Some(30_000_000_000));
            let before = all.len();
            t.completions(&mut all);
            assert!(all.len() > before, "nothing came in half a minute");
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn entries_do_what_a_ring_would() {
        let path = std::env::temp_dir().join(format!("cairn-threads-{}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let fd = types::Fd(file.as_raw_fd());
        let threads = Threads::start().unwrap();
        let iovec =
            |b: &mut [u8]| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() };
        let (mut one, mut two) = (vec![1u8; 1000], vec![2u8; 500]);
        let written = [iovec(&mut one), iovec(&mut two)];
        let write = opcode::Writev::new(fd, written.as_ptr(), 2).offset(100);
        let write = write.rw_flags(libc::RWF_DSYNC).build().user_data(7);
        threads.push(&[Entry128::from(write)]);
        assert_eq!(results(&threads, 1), [(7, 1500)]);
        let mut back = vec![0u8; 2000];
        let into = [iovec(&mut back)];
        let read = opcode::Readv::new(fd, into.as_ptr(), 1).offset(50).build().user_data(8);
        let flags = types::FsyncFlags::DATASYNC;
        let sync = opcode::Fsync::new(fd).flags(flags).build().user_data(9);
        let bad = types::Fd(-1);
        let fails = opcode::Fsync::new(bad).flags(flags).build().user_data(10);
        threads.push(&[read, sync, fails].map(Entry128::from));
        assert_eq!(results(&threads, 3), [(8, 1550), (9, 0), (10, -libc::EBADF)]);
        assert!(back[..50].iter().all(|b| *b == 0) && back[50..1050].iter().all(|b| *b == 1));
        assert!(back[1050..1550].iter().all(|b| *b == 2));
        std::fs::remove_file(&path).unwrap();
    }
}

//! What the threads of one mount have in common: how far its kernel may trust what it was told, the
//! dialect that was agreed on, and which of mount(8)'s options hold at present.

use crate::cache_policy::CachePolicy;
use crate::decode::Shape;
use crate::fellows::Fellows;
use crate::init::Dialect;
use crate::nodes::Nodes;
use crate::options::Options;
use crate::wire::op;
use host::HostFile;
use stats::Series;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) struct Shared {
    pub(crate) policy: CachePolicy,
    pub(crate) dialect: Dialect,
    pub(crate) nodes: Nodes,
    /// The options in force, as mount(2) has them.
    options: AtomicU64,
    /// How long answers took.
    pub(crate) series: Arc<Series>,
    /// Requests that were passed on, and those of them that are answered.
    asked: AtomicU64,
    answered: AtomicU64,
    /// It was unmounted, and that was noticed.
    pub(crate) ended: AtomicBool,
    /// The mount's /dev/fuse, once it is served.
    dev: OnceLock<OwnedFd>,
    /// The file that is no file can be looked up (`probe`).
    pub(crate) probing: AtomicBool,
    /// The server's mounts, this one among them.
    pub(crate) fellows: Arc<Fellows>,
    /// The device that the mount has the claim of, perhaps.
    pub(crate) device: Option<Arc<HostFile>>,
}

/// Does the kernel say that nothing comes from this /dev/fuse any more?
fn is_disconnected(dev: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: dev.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one structure that lives through the call, which does not wait.
    #[expect(unsafe_code, reason = "std has no poll")]
    let n = unsafe { libc::poll(&raw mut poll, 1, 0) };
    n > 0 && poll.revents & libc::POLLERR != 0
}

impl Shared {
    pub(crate) fn new(
        (policy, dialect): (CachePolicy, Dialect),
        nodes: Nodes,
        series: Arc<Series>,
    ) -> Shared {
        let (options, asked, answered, ended, dev, probing) = Default::default();
        let (fellows, device) = Default::default();
        Shared {
            policy,
            dialect,
            nodes,
            options,
            series,
            asked,
            answered,
            ended,
            dev,
            probing,
            fellows,
            device,
        }
    }

    /// From now on the kernel can be asked whether it is still mounted.
    pub(crate) fn serves(&self, dev: OwnedFd) {
        let _ = self.dev.set(dev); // once a mount
    }

    /// Was it unmounted? The kernel knows at once; the thread that reads from it notices when it
    /// runs, which on a busy machine is after umount(8) has ended and others have asked.
    pub(crate) fn has_ended(&self) -> bool {
        let gone = || self.dev.get().is_some_and(is_disconnected);
        if !self.ended.load(Ordering::SeqCst) && gone() {
            self.ended.store(true, Ordering::SeqCst);
        }
        self.ended.load(Ordering::SeqCst)
    }

    /// The kernel sends what it holds back of a file, and keeps none of its pages after that:
    /// not from a thread that answers requests.
    pub(crate) fn have_pages_sent(&self, ino: u32) {
        self.out_of_date(u64::from(ino), 0);
    }

    /// An inode has changed by a request whose answer has no attributes: the kernel asks anew for
    /// those that it keeps. That waits for nothing.
    pub(crate) fn changes_attributes(&self, shape: Shape) {
        if let Shape::FlagsSet(node) = shape {
            self.out_of_date(node, -1);
        }
    }

    /// What the kernel keeps of the inode, attributes and pages from byte `from` on (below 0: no
    /// pages), is out of date.
    fn out_of_date(&self, node: u64, from: i64) {
        const INVAL_INODE: i32 = 2; // FUSE_NOTIFY_INVAL_INODE: inode, offset, length
        let mut what = [0; 24];
        what[..8].copy_from_slice(&node.to_ne_bytes());
        what[8..16].copy_from_slice(&from.to_ne_bytes());
        if let Some(dev) = self.dev.get() {
            crate::dev::notify(dev, INVAL_INODE, &what);
        }
    }

    /// A request is passed on.
    pub(crate) fn asks(&self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
    }

    /// It is answered.
    pub(crate) fn answered(&self, opcode: u32, arrived: Instant, failed: bool) {
        let answered = self.answered.fetch_add(1, Ordering::SeqCst);
        let asked = self.asked.load(Ordering::SeqCst);
        assert!(answered < asked, "F1: {asked} requests were passed on, and more are answered");
        self.series.answered(opcode as usize, arrived, failed);
    }

    /// Waits until all that was asked is answered and nothing more has come for `quiet`; false if
    /// that is not so after `most`.
    pub(crate) fn rests(&self, quiet: Duration, most: Duration) -> bool {
        let begun = Instant::now();
        let (mut since, mut before) = (begun, u64::MAX);
        while begun.elapsed() < most {
            let answered = self.answered.load(Ordering::SeqCst);
            let asked = self.asked.load(Ordering::SeqCst);
            if asked != answered || asked != before {
                (since, before) = (Instant::now(), asked);
            } else if since.elapsed() >= quiet {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Of a test.
    #[cfg(test)]
    pub(crate) fn alone(policy: CachePolicy) -> Shared {
        let dialect = Dialect { setxattr_ext: false, no_opendir: true };
        Shared::new((policy, dialect), Nodes(2), crate::series(&stats::Recorder::default(), ""))
    }

    /// From now on these hold; those that held until now.
    pub(crate) fn set_options(&self, now: Options) -> Options {
        Options(self.options.swap(now.0, Ordering::SeqCst))
    }

    /// Is what this operation changes to be durable when it is answered (`sync`, `dirsync`)?
    pub(crate) fn is_synchronous(&self, opcode: u32) -> bool {
        let now = self.options.load(Ordering::Relaxed);
        if now == 0 {
            return false;
        }
        let changes_names = matches!(
            opcode,
            op::CREATE
                | op::MKNOD
                | op::MKDIR
                | op::SYMLINK
                | op::LINK
                | op::UNLINK
                | op::RMDIR
                | op::RENAME
                | op::RENAME2
        );
        now & libc::MS_SYNCHRONOUS != 0 || changes_names && now & libc::MS_DIRSYNC != 0
    }
}

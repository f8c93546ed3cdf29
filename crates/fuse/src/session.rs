//! One mount, from mount(2) to its end: the first exchange on /dev/fuse, the choice of transport,
//! the thread that stays with /dev/fuse for what io_uring does not carry.

use crate::cache_policy::CachePolicy;
use crate::dev::{Clones, READERS_PER_CPU, read_request, write_reply};
use crate::fellows::Fellows;
use crate::init::{Offer, PAYLOAD};
use crate::mount::{MountOptions, mount};
use crate::nodes::Nodes;
use crate::shared::Shared;
use crate::umount::{unmount, unmount_at_the_end};
use crate::uring::Queues;
use crate::wire::{HEAD_IN, Head, NAMES, op};
use host::Pool;
use stats::{Recorder, Series};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// With nothing to do for so long a mount has sent what it held back.
const QUIET: Duration = Duration::from_millis(50);
/// A mount that is in use all the time is waited for no longer.
const REST_MAX: Duration = Duration::from_secs(10);

const ENABLE: &str = "/sys/module/fuse/parameters/enable_uring";

/// FUSE over io_uring?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UringChoice {
    /// Where the kernel offers it.
    Auto,
    /// Switch the kernel's parameter on first (root).
    On,
    /// Never.
    Off,
}

/// How a mount's requests are served.
pub struct Serving {
    /// Over io_uring?
    pub uring: UringChoice,
    /// The volume's block size.
    pub block_bytes: usize,
    /// Its root directory's inode.
    pub root_ino: u32,
    /// What the kernel may keep.
    pub policy: CachePolicy,
    /// Where it is recorded how long answers take, see [`series`].
    pub series: Arc<Series>,
    /// The server's mounts.
    pub fellows: Arc<Fellows>,
}

/// The recorder's series of a volume's mount.
pub fn series(recorder: &Recorder, export: &str) -> Arc<Series> {
    recorder.series(("fuse", &NAMES), export, "")
}

/// A mount.
pub struct Session {
    dir: PathBuf,
    shared: Arc<Shared>,
    over_uring: bool,
}

impl Session {
    /// Mounts volume number `volume` of the pool at `dir`. Returns once requests
    /// are served.
    pub fn start(
        pool: &Arc<Pool>,
        volume: usize,
        dir: &Path,
        options: &MountOptions,
        serving: Serving,
    ) -> Result<Session, String> {
        let Serving { uring: choice, block_bytes, root_ino, policy, series, fellows } = serving;
        if choice == UringChoice::On {
            std::fs::write(ENABLE, "Y").map_err(|e| {
                format!("{ENABLE}: {e}: FUSE over io_uring needs Linux 6.14 or later, and root")
            })?;
        }
        let dev = mount(dir, options, block_bytes)?;
        let give_up = |e: String| {
            let _ = unmount(dir);
            options.device.iter().for_each(|d| drop(d.take_back_soon()));
            e
        };
        let offer = first_request(&dev).map_err(|e| give_up(format!("FUSE: {e}")))?;
        let wanted = choice != UringChoice::Off && offer.1.has_uring();
        let over_uring = wanted && host::ring_available();
        let dup = |d: &OwnedFd| d.try_clone().map_err(|e| give_up(format!("FUSE: {e}")));
        let mut shared = Shared::new((policy, offer.1.dialect()), Nodes(root_ino), series);
        (shared.fellows, shared.device) = (fellows, options.device.clone());
        let shared = Arc::new(shared);
        shared.fellows.add(&shared);
        shared.serves(dup(&dev)?);
        // Once INIT is answered, the kernel asks at the unmount, and perhaps nobody who answers.
        let give_up = |e: String| {
            shared.ended.store(true, Ordering::SeqCst);
            unmount_at_the_end(dir);
            e
        };
        let clones = if over_uring {
            let queues = Queues::new(dup(&dev)?, pool.clone(), volume, block_bytes, shared.clone());
            answer_init(&dev, &offer, (true, policy));
            pool.add_source(queues);
            Clones::beside(dev, volume, block_bytes, shared.clone())
        } else {
            answer_init(&dev, &offer, (false, policy));
            let readers = pool.workers() * READERS_PER_CPU;
            let clones = Clones::new(&dev, readers, volume, block_bytes, shared.clone());
            clones.map_err(|e| give_up(format!("/dev/fuse: {e}")))?
        };
        let followed = crate::watch::follow(pool, volume, dir, &shared);
        followed.map_err(|e| give_up(format!("the mount's options: {e}")))?;
        start_readers(pool, &clones).map_err(|e| give_up(e.to_string()))?;
        crate::probe::open_once(dir, &shared);
        Ok(Session { dir: dir.to_owned(), shared, over_uring })
    }

    /// One line that says how to get it, if it does not.
    pub fn hint(&self) -> Option<String> {
        let there = Path::new(ENABLE).exists();
        match (self.over_uring, there) {
            (true, _) => None,
            (false, _) if !host::ring_available() => Some(
                "FUSE runs over /dev/fuse; io_uring, which is faster, is forbidden here".into(),
            ),
            (false, true) => Some(format!(
                "FUSE runs over /dev/fuse; over io_uring it is 1.4 times as fast \
                 (docs/figures.md): `echo Y > {ENABLE}` as root, or --fuse-uring on"
            )),
            (false, false) => Some(
                "FUSE runs over /dev/fuse; Linux 6.14 and later offer io_uring, which is faster"
                    .into(),
            ),
        }
    }
    /// Has somebody unmounted it?
    pub fn has_ended(&self) -> bool {
        self.shared.has_ended()
    }
    /// The same, to be asked by others, and when this is gone.
    pub fn ending(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || shared.upgrade().is_none_or(|s| s.has_ended())
    }
    /// Unmounts it. True if it was busy, and goes when its users do; what its kernel has held back
    /// until now is written first.
    pub fn unmount(&self) -> Result<bool, String> {
        if !self.has_ended() && self.shared.policy.writeback {
            self.take_held_back();
        }
        if self.shared.ended.swap(true, Ordering::SeqCst) {
            return Ok(false);
        }
        let busy = unmount(&self.dir);
        let busy = busy.map_err(|e| format!("cannot unmount {}: {e}", self.dir.display()))?;
        if !busy {
            self.shared.take_back(); // what is busy keeps its claim
        }
        Ok(busy)
    }

    /// Has the kernel send what it holds back, and takes it in. Since Linux 6.16 syncfs begins that
    /// for a FUSE mount and does not wait for it: what is on its way is seen by its coming.
    fn take_held_back(&self) {
        if let Err(e) = crate::mount::write_held_back(&self.dir) {
            tracing::error!("what was written last to {}: {e}", self.dir.display());
        }
        if !self.shared.rests(QUIET, REST_MAX) {
            tracing::warn!("{} is written to all the time while it ends", self.dir.display());
        }
    }
}

fn first_request(dev: &OwnedFd) -> io::Result<(Head, Offer)> {
    let mut room = vec![0; PAYLOAD + 8192];
    let n = read_request(dev, &mut room)?;
    let head = Head::decode(&room);
    if n < HEAD_IN + 16 || head.opcode != op::INIT {
        return Err(io::Error::other("the kernel's first request is not INIT"));
    }
    Ok((head, Offer::decode(&room[HEAD_IN..n])))
}

fn answer_init(dev: &OwnedFd, (head, offer): &(Head, Offer), how: (bool, CachePolicy)) {
    let mut out = [0; 64];
    let n = offer.accept(how, &mut out);
    write_reply(dev, head.unique, Ok(&out[..n]));
}

/// Starts a thread for each clone. Where queues serve, the one thread has FORGET and INTERRUPT,
/// what comes before the queues are ready, and the news of the unmount.
fn start_readers(pool: &Arc<Pool>, clones: &Arc<Clones>) -> io::Result<()> {
    for i in 0..clones.count() {
        let (pool, clones) = (pool.clone(), clones.clone());
        let thread = std::thread::Builder::new().name(format!("/dev/fuse {i}"));
        thread.spawn(move || clones.serve(&pool, i))?;
    }
    Ok(())
}

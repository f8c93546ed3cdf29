//! The monitor: one thread inside a volume at a time, and any thread may be the one. Whoever brings
//! work (a FUSE queue, a connection, a finished disk request) enters, runs tasks until none is
//! ready, and takes the replies and the new disk requests out. It knows no rings and no sockets.
//!
//! A thread that finds the monitor shut spins before it sleeps: with a sleeping mutex in its place
//! half of the speed is lost, because the answer then comes from another CPU.
//!
//! Invariants:
//! * M1. One thread is inside at a time.
//! * M2. What comes in is all taken, and whoever leaves takes all that is to go out.
//! * M3. A volume is opened, or fails to be, once, and closed only after it was open.
//! * M4. There is a volume behind its monitor exactly while that says that it is open.

use crate::{Answer, Call, FsError};
use env::{Engine, Env, IoDone, IoRequest, Local, Nanos, Now};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, TryLockError};

#[expect(clippy::disallowed_types, reason = "the monitor is where threads meet")]
type Mutex<T> = std::sync::Mutex<T>;
type Guard<'a, T> = std::sync::MutexGuard<'a, T>;

/// An opened volume: answers calls, each a task that runs to its end whatever becomes of who asked.
pub trait Volume {
    /// Answers one call.
    fn call(self: Rc<Self>, call: Call) -> Local<'static, Answer>;
    /// Writes everything back and marks the volume clean. Afterwards calls fail.
    fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>>;
}

/// Opens a volume inside its engine; a failure is a sentence for the user.
pub type Open = Box<dyn FnOnce(Env) -> Opening + Send>;

/// A volume that is being opened.
pub type Opening = Local<'static, Result<Rc<dyn Volume>, String>>;

/// Opens several volumes inside one engine: those that share something, such as a log.
pub type OpenAll = Box<dyn FnOnce(Env) -> Vec<Opening> + Send>;

/// Where a reply goes: called by the thread that leaves the volume, outside the monitor.
pub trait Front: Send + Sync {
    /// The answer to the call that was entered with this `id`.
    fn reply(&self, id: u64, answer: Answer);
    /// Several replies follow: they may be sent together.
    fn cork(&self) {}
    /// No more follow.
    fn uncork(&self) {}
}

/// Names a call until it is answered.
#[derive(Clone)]
pub struct Ticket {
    /// Who is to be answered.
    pub front: Arc<dyn Front>,
    /// The front end's own number for the call.
    pub id: u64,
}

/// What comes in.
pub enum Work {
    /// A call, and where its answer goes.
    Call(Ticket, Call),
    /// A call nobody waits for (FORGET).
    Silent(Call),
    /// Close the volume; see [`Monitor::state`].
    Close,
}

/// What goes out.
#[derive(Default)]
pub struct Out {
    /// Answers, to be handed to their fronts outside the monitor.
    pub replies: Vec<(Ticket, Answer)>,
    /// Disk requests, to be carried out and brought back.
    pub io: Vec<IoRequest>,
}

impl Out {
    /// Hands every reply to its front.
    pub fn answer(&mut self) {
        let mut fronts: Vec<Arc<dyn Front>> = Vec::new();
        if self.replies.len() > 1 {
            for (ticket, _) in &self.replies {
                if !fronts.iter().any(|f| Arc::ptr_eq(f, &ticket.front)) {
                    fronts.push(ticket.front.clone());
                }
            }
        }
        fronts.iter().for_each(|f| f.cork());
        for (ticket, answer) in self.replies.drain(..) {
            ticket.front.reply(ticket.id, answer);
        }
        fronts.iter().for_each(|f| f.uncork());
    }
}

/// How far a volume is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VolumeState {
    /// Recovery and loading are under way.
    Opening,
    /// It answers.
    Open,
    /// It could not be opened; why, for the user.
    Failed(String),
    /// It was closed, cleanly or not.
    Closed(Result<(), FsError>),
}

type Replies = Rc<RefCell<Vec<(Ticket, Answer)>>>;

struct Inside {
    engine: Engine,
    volumes: Vec<Slot>,
    replies: Replies,
    open: Option<OpenAll>,
}

/// SAFETY: `Inside` is full of Rc and RefCell, so one thread at a time may use it, with a
/// happens-before from one to the next. (1) It is private to this file and reached only through the
/// mutex in [`Shard`]. (2) No clone of an Rc of it leaves: what goes in (`Work`, `IoDone`, `Now`)
/// and out (`Out`) is Send, which the compiler checks below; the closure that opens the volume is
/// Send, and what it makes stays inside. (3) Wakers are numbers that mean something only to the
/// thread inside (env::exec), through a thread-local that is empty outside. (4) No other
/// thread-local holds anything of it after `turn`.
#[expect(unsafe_code, reason = "the one place where a volume's insides change threads")]
unsafe impl Send for Inside {}
const _: fn() = || {
    fn send<T: Send>() {}
    send::<Work>();
    send::<Out>();
    send::<IoDone>();
    send::<OpenAll>();
};

/// Alone in its lines of the processor's cache (two, as they are fetched in pairs): who spins reads
/// it again and again, and must not slow down who changes what lies beside it.
#[repr(align(128))]
struct Alone<T>(T);

/// What is behind a monitor: one volume, or several that share an engine.
struct Shard {
    inside: Mutex<Inside>,
    busy: Alone<AtomicBool>,
    /// Nanoseconds on the monotonic clock; 0: none. Written by whoever is inside.
    deadline: AtomicU64,
    states: Vec<Arc<Mutex<VolumeState>>>,
}

/// A volume behind its monitor. Whoever enters by one of several monitors of a shard carries on the
/// work of all.
pub struct Monitor {
    shard: Arc<Shard>,
    /// Which of the shard's volumes is meant.
    which: usize,
}

/// How many times a thread looks before it sleeps: 10 to 100 microseconds, as long as the
/// processor's pause is. If the one inside has lost its CPU, spinning longer would keep it from it.
const SPINS: u32 = 800;

impl Monitor {
    /// A monitor with a volume behind it that the first entry begins to open. `seed` feeds its
    /// random numbers.
    pub fn new(seed: u64, open: Open) -> Monitor {
        let mut one = Monitor::several(seed, 1, Box::new(|env| vec![open(env)]));
        one.pop().expect("a shard for one has a monitor")
    }

    /// Monitors of one shard, for volumes of which the first entry begins to open all. Their disks
    /// are numbered in common.
    pub fn several(seed: u64, volumes: usize, open: OpenAll) -> Vec<Monitor> {
        let inside = Inside {
            engine: Engine::new(seed),
            volumes: (0..volumes).map(|_| Slot::default()).collect(),
            replies: Rc::default(),
            open: Some(open),
        };
        let opening = || Arc::new(Mutex::new(VolumeState::Opening));
        let shard = Arc::new(Shard {
            inside: Mutex::new(inside),
            busy: Alone(AtomicBool::new(false)),
            deadline: AtomicU64::new(0),
            states: (0..volumes).map(|_| opening()).collect(),
        });
        (0..volumes).map(|which| Monitor { shard: shard.clone(), which }).collect()
    }

    /// Opening, open, failed or closed.
    pub fn state(&self) -> VolumeState {
        self.shard.states[self.which].lock().expect("nobody panics while holding it").clone()
    }

    /// Enters with `work` and ended requests, runs until nothing is ready, and leaves with what
    /// came of it; `work` and `done` are empty afterwards. Calls that come before the volume is
    /// open, or after it is closed, are answered with `Stale`.
    pub fn enter(&self, now: Now, work: &mut Vec<Work>, done: &mut Vec<IoDone>, out: &mut Out) {
        let shard = &*self.shard;
        let mut guard = shard.lock();
        let was = shard.busy.0.swap(true, Ordering::Relaxed);
        assert!(!was, "M1: two threads are inside a volume");
        let inside = &mut *guard;
        let open = inside.open.take();
        let Inside { engine, volumes, replies, .. } = inside;
        engine.turn(now, done, |env| {
            if let Some(open) = open {
                begin_open(env, open, volumes, &shard.states);
            }
            for w in work.drain(..) {
                begin(env, w, &volumes[self.which], replies, &shard.states[self.which]);
            }
        });
        out.replies.append(&mut replies.borrow_mut());
        out.io.append(&mut engine.take_io());
        assert!(work.is_empty() && done.is_empty(), "M2: something that came in is left");
        let deadline = engine.deadline().map_or(0, |d| d.0.max(1));
        shard.deadline.store(deadline, Ordering::Relaxed);
        let was = shard.busy.0.swap(false, Ordering::Relaxed);
        assert!(was, "M1: another thread has left a volume that this one is in");
    }

    /// When the volume wants to be entered next even if nothing happens (monotonic).
    pub fn deadline(&self) -> Option<Nanos> {
        let ns = self.shard.deadline.load(Ordering::Relaxed);
        (ns != 0).then_some(Nanos(ns))
    }

    /// What is said inside has this name in the log, where several volumes are served. A shard has
    /// one name for all, since whoever is inside carries on the work of all.
    pub fn call(&self, name: &'static str) {
        self.shard.lock().engine.call(name);
    }

    /// How many tasks live inside; for tests and status pages.
    pub fn live_tasks(&self) -> usize {
        self.shard.lock().engine.live()
    }
}

impl Shard {
    fn lock(&self) -> Guard<'_, Inside> {
        for _ in 0..SPINS {
            if !self.busy.0.load(Ordering::Relaxed) {
                match self.inside.try_lock() {
                    Ok(g) => return g,
                    Err(TryLockError::WouldBlock) => (),
                    Err(TryLockError::Poisoned(_)) => break,
                }
            }
            for _ in 0..2 {
                std::hint::spin_loop();
            }
        }
        self.inside.lock().expect("a volume whose task panicked is not entered again")
    }
}

fn set(state: &Mutex<VolumeState>, to: VolumeState) {
    let mut state = state.lock().expect("nobody panics while holding it");
    let follows = match &to {
        VolumeState::Opening => false,
        VolumeState::Open | VolumeState::Failed(_) => *state == VolumeState::Opening,
        // Twice, where two have asked for it.
        VolumeState::Closed(_) => matches!(*state, VolumeState::Open | VolumeState::Closed(_)),
    };
    assert!(follows, "M3: a volume that is {state:?} becomes {to:?}");
    *state = to;
}

type Slot = Rc<RefCell<Option<Rc<dyn Volume>>>>;

fn begin_open(env: &Env, open: OpenAll, volumes: &[Slot], states: &[Arc<Mutex<VolumeState>>]) {
    let all = open(env.clone());
    assert_eq!(all.len(), volumes.len(), "M4: every monitor of a shard has its volume");
    for ((opening, volume), state) in all.into_iter().zip(volumes).zip(states) {
        let (volume, state) = (volume.clone(), state.clone());
        env.spawn("open", async move {
            match opening.await {
                Ok(v) => {
                    let before = volume.borrow_mut().replace(v);
                    assert!(before.is_none(), "M3: a volume is opened in another one's place");
                    set(&state, VolumeState::Open);
                }
                Err(why) => set(&state, VolumeState::Failed(why)),
            }
        });
    }
}

fn begin(env: &Env, work: Work, volume: &Slot, replies: &Replies, state: &Arc<Mutex<VolumeState>>) {
    let opened = volume.borrow().clone();
    let says = || *state.lock().expect("nobody panics while holding it") == VolumeState::Open;
    // It takes a lock that the requests of many share.
    debug_assert_eq!(opened.is_some(), says(), "M4: a volume is there, or is not, unlike it says");
    match (work, opened) {
        (Work::Call(ticket, call), Some(v)) => {
            let replies = replies.clone();
            env.spawn("call", async move {
                let answer = v.call(call).await;
                replies.borrow_mut().push((ticket, answer));
            });
        }
        (Work::Call(ticket, _), None) => {
            replies.borrow_mut().push((ticket, Answer::error(FsError::Stale)));
        }
        (Work::Silent(call), Some(v)) => env.spawn("silent call", async move {
            v.call(call).await;
        }),
        (Work::Close, Some(v)) => {
            let (volume, state) = (volume.clone(), state.clone());
            env.spawn("close", async move {
                let result = v.close().await;
                volume.borrow_mut().take();
                set(&state, VolumeState::Closed(result));
            });
        }
        (Work::Silent(_) | Work::Close, None) => (),
    }
}

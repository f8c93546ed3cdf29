//! The executor: a slab of named tasks and a ready queue, run until nothing is ready. It knows no
//! time and no disks; `engine` puts those beside it.
//!
//! A task switches only where it awaits; between two awaits it has everything to itself. The order
//! is first come, first served, so one seed gives one schedule; a perturbation from a seed picks
//! among the ready tasks instead, to try other schedules. Waking from outside a turn is a bug,
//! because the ready queue belongs to the thread that is inside.
//!
//! Invariants:
//! * E1. A slot is free or holds one task, which is away only while it is polled.
//! * E2. What is woken under a slot's number and generation is the task that it has now.
//! * E3. A turn is inside of no other, and leaves nothing ready behind.

use crate::Rng;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A task: a future that owns what it works on.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Clone, Copy, PartialEq, Eq)]
struct TaskId {
    slot: u32,
    generation: u32,
}

thread_local! {
    static READY: RefCell<Option<VecDeque<TaskId>>> = const { RefCell::new(None) };
    static CALLED: Cell<&'static str> = const { Cell::new("") };
}

/// What the engine is called that this thread is inside of: for the log, where several volumes are
/// served. Empty: it has no name, or the thread is inside of none.
pub fn inside_of() -> &'static str {
    CALLED.get()
}

/// Names a task to be woken. Its fields are atomic only because wakers have to be `Sync`.
struct TaskWaker {
    slot: u32,
    generation: AtomicU32,
    /// Woken since it was last polled: it is in the queue, where once is enough. A task that waits
    /// for a thousand reads would be polled a thousand times for those that end together.
    is_woken: AtomicBool,
}

impl TaskWaker {
    fn new(slot: u32, generation: u32) -> Arc<TaskWaker> {
        let generation = AtomicU32::new(generation);
        Arc::new(TaskWaker { slot, generation, is_woken: AtomicBool::new(false) })
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.load(Ordering::Relaxed) {
            return;
        }
        self.is_woken.store(true, Ordering::Relaxed);
        let id = TaskId { slot: self.slot, generation: self.generation.load(Ordering::Relaxed) };
        READY.with_borrow_mut(|q| {
            q.as_mut().expect("a task is woken only inside a turn of its engine").push_back(id);
        });
    }
}

struct Slot {
    generation: u32,
    name: &'static str,
    task: Option<Task>,
    id: Arc<TaskWaker>,
    /// Made of it; away while the task is polled.
    waker: Waker,
}

impl Slot {
    fn new(slot: u32, name: &'static str) -> Slot {
        let id = TaskWaker::new(slot, 0);
        let waker = Waker::from(id.clone());
        Slot { generation: 0, name, task: None, id, waker }
    }
}

/// What happened at one step, for traces and crash points.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The task's name.
    pub name: &'static str,
    /// Its place in the slab.
    pub slot: u32,
    /// Has it ended with this step?
    pub ended: bool,
}

/// Runs tasks.
#[derive(Default)]
pub struct Executor {
    slots: Vec<Slot>,
    free: Vec<u32>,
    ready: VecDeque<TaskId>,
    perturb: Option<Rng>,
    on_step: Option<Box<dyn FnMut(Step)>>,
    stopped: Cell<bool>,
    called: &'static str,
}

impl Executor {
    /// See [`inside_of`].
    pub(crate) fn call(&mut self, name: &'static str) {
        self.called = name;
    }

    /// Adds a task; it runs in the next [`Executor::run`], or in this one.
    pub(crate) fn spawn(&mut self, name: &'static str, task: Task) {
        let slot = match self.free.pop() {
            Some(s) => s,
            None => {
                let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 tasks");
                self.slots.push(Slot::new(slot, name));
                slot
            }
        };
        let s = &mut self.slots[slot as usize];
        assert!(s.task.is_none(), "E1: slot {slot} is free, and holds {}", s.name);
        let named = s.id.generation.load(Ordering::Relaxed);
        assert_eq!(named, s.generation, "E2: whoever wakes {name} in slot {slot} wakes another");
        (s.name, s.task) = (name, Some(task));
        self.ready.push_back(TaskId { slot, generation: s.generation });
    }

    /// Picks among ready tasks by this generator instead of in their order.
    pub fn perturb(&mut self, rng: Rng) {
        self.perturb = Some(rng);
    }

    /// Calls `hook` after each step.
    pub fn on_step(&mut self, hook: impl FnMut(Step) + 'static) {
        self.on_step = Some(Box::new(hook));
    }

    /// Puts this executor's ready queue in force while `f` runs, so that wakers work.
    pub(crate) fn inside<T>(&mut self, f: impl FnOnce(&mut Executor) -> T) -> T {
        let outer = READY.replace(Some(std::mem::take(&mut self.ready)));
        assert!(outer.is_none(), "E3: a volume was entered from inside a volume");
        CALLED.set(self.called);
        let result = f(self);
        CALLED.set("");
        self.ready = READY.replace(None).expect("it was put there above");
        result
    }

    /// Runs one ready task to its next await. False if none is ready. Call it `inside`.
    pub(crate) fn step(&mut self) -> bool {
        let spawned = &mut self.ready; // while inside
        let perturb = self.perturb.as_mut();
        let next = READY.with_borrow_mut(|q| {
            let q = q.as_mut().expect("step is called inside");
            q.extend(spawned.drain(..));
            match perturb {
                Some(rng) if q.len() > 1 => q.swap_remove_back(rng.below(q.len() as u64) as usize),
                _ => q.pop_front(),
            }
        });
        let Some(id) = next else { return false };
        self.poll(id);
        true
    }

    fn poll(&mut self, id: TaskId) {
        let s = &mut self.slots[id.slot as usize];
        if s.generation != id.generation {
            return; // woken after its end
        }
        let mut task = s.task.take().expect("E1: a task that has not ended is in its slot");
        // Whatever wakes it from now on has it polled again.
        s.id.is_woken.store(false, Ordering::Relaxed);
        let waker = std::mem::replace(&mut s.waker, Waker::noop().clone());
        let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
        let s = &mut self.slots[id.slot as usize];
        s.waker = waker;
        let ended = match polled {
            Poll::Pending => {
                s.task = Some(task);
                false
            }
            Poll::Ready(()) => {
                drop(task);
                self.retire(id.slot);
                true
            }
        };
        if let Some(hook) = &mut self.on_step {
            hook(Step { name: self.slots[id.slot as usize].name, slot: id.slot, ended });
        }
    }

    /// Makes a slot free. A waker that is still held somewhere names the old generation, so there
    /// is a new one; one that nobody else holds serves again.
    fn retire(&mut self, slot: u32) {
        let (live, free) = (self.live(), self.free.len());
        assert!(live > 0, "E1: a task ends where all {free} slots are free: {slot} is free twice");
        let s = &mut self.slots[slot as usize];
        assert!(s.task.is_none(), "E1: task {} in slot {slot} goes, and has not ended", s.name);
        s.generation = s.generation.wrapping_add(1);
        const OURS: usize = 2; // `id` and `waker`
        if Arc::strong_count(&s.id) == OURS {
            s.id.generation.store(s.generation, Ordering::Relaxed);
            s.id.is_woken.store(false, Ordering::Relaxed);
        } else {
            s.id = TaskWaker::new(slot, s.generation);
            s.waker = Waker::from(s.id.clone());
        }
        self.free.push(slot);
    }

    /// How many tasks have not ended.
    pub fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The names of the tasks that have not ended, for a report on what hangs.
    pub fn live_names(&self) -> Vec<&'static str> {
        self.slots.iter().filter(|s| s.task.is_some()).map(|s| s.name).collect()
    }

    /// Drops every task where it stands, as a crash does. Their destructors may wake one another.
    pub(crate) fn kill(&mut self) {
        if self.stopped.replace(true) {
            return;
        }
        let slots = std::mem::take(&mut self.slots);
        self.free.clear();
        if std::thread::panicking() {
            std::mem::forget(slots); // destructors that wake would only bury the first panic
            return;
        }
        self.inside(|_| drop(slots));
        self.ready.clear();
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.kill();
    }
}

//! The engine: all that lives inside one volume's monitor, and the handle by which its tasks ask
//! for things.
//! It does not know which world turns it.
//!
//! Invariants:
//! * T1. After a turn every task waits for something: none is left that was only started.
//! * T2. After a turn no timer is due: whoever is told of the next one would turn again at once,
//!   and for ever.

use crate::exec::{Executor, Task};
use crate::timers::Timers;
use crate::{IoDone, IoRequest, Nanos, Now, Port, Rng};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

struct Shared {
    now: Cell<Now>,
    spawned: RefCell<Vec<(&'static str, Task)>>,
    timers: RefCell<Timers>,
    rng: RefCell<Rng>,
    port: Port,
}

/// What a task may ask for: time, chance, another task, a disk. Cheap to clone.
#[derive(Clone)]
pub struct Env(Rc<Shared>);

impl Env {
    /// The monotonic time of this turn.
    pub fn now(&self) -> Nanos {
        self.0.now.get().mono
    }
    /// The wall-clock time of this turn, for timestamps.
    pub fn wall(&self) -> Nanos {
        self.0.now.get().wall
    }
    /// The port to the disks.
    pub fn port(&self) -> &Port {
        &self.0.port
    }
    /// 64 random bits of this volume's seed.
    pub fn random(&self) -> u64 {
        self.0.rng.borrow_mut().next_u64()
    }
    /// Starts a task of the volume; nobody's leaving stops it.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        self.0.spawned.borrow_mut().push((name, Box::pin(task)));
    }
    /// Waits until the monotonic clock shows `at`.
    pub async fn sleep_until(&self, at: Nanos) {
        struct Cancel<'a>(&'a Shared, Option<(Nanos, u64)>);
        impl Drop for Cancel<'_> {
            fn drop(&mut self) {
                if let Some(k) = self.1 {
                    self.0.timers.borrow_mut().cancel(k);
                }
            }
        }
        let mut timer = Cancel(&self.0, None);
        poll_fn(|cx| {
            if self.now() >= at {
                return Poll::Ready(());
            }
            if let Some(k) = timer.1.take() {
                self.0.timers.borrow_mut().cancel(k);
            }
            timer.1 = Some(self.0.timers.borrow_mut().add(at, cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
    /// Waits for `d`.
    pub async fn sleep(&self, d: Nanos) {
        self.sleep_until(self.now().plus(d)).await;
    }
    /// Lets every other ready task run once.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// A volume's tasks, timers and outstanding requests.
pub struct Engine {
    env: Env,
    exec: Executor,
    /// Memory for tasks on their way into the executor.
    starting: Vec<(&'static str, Task)>,
}

impl Engine {
    /// An engine with nothing in it; `seed` feeds [`Env::random`].
    pub fn new(seed: u64) -> Engine {
        let shared = Shared {
            now: Cell::default(),
            spawned: RefCell::default(),
            timers: RefCell::default(),
            rng: RefCell::new(Rng::new(seed)),
            port: Port::default(),
        };
        Engine { env: Env(Rc::new(shared)), exec: Executor::default(), starting: Vec::new() }
    }

    /// The handle for its tasks.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// What it is called in the log ([`crate::inside_of`]).
    pub fn call(&mut self, name: &'static str) {
        self.exec.call(name);
    }

    /// The executor, to perturb or watch it.
    pub fn executor(&mut self) -> &mut Executor {
        &mut self.exec
    }

    /// One turn: the time is `now`, the requests in `done` have ended, `arrive` brings new work;
    /// then tasks run until none is ready. Afterwards the world takes the requests away
    /// ([`Engine::take_io`]).
    pub fn turn(&mut self, now: Now, done: &mut Vec<IoDone>, arrive: impl FnOnce(&Env)) {
        self.env.0.now.set(now);
        let env = self.env.clone();
        let starting = &mut self.starting;
        self.exec.inside(|exec| {
            for d in done.drain(..) {
                env.0.port.complete(d);
            }
            let due = env.0.timers.borrow_mut().due(now.mono);
            due.into_iter().for_each(std::task::Waker::wake);
            arrive(&env);
            loop {
                std::mem::swap(starting, &mut env.0.spawned.borrow_mut());
                for (name, task) in starting.drain(..) {
                    exec.spawn(name, task);
                }
                if !exec.step() {
                    break;
                }
            }
        });
        let left = self.env.0.spawned.borrow().len();
        assert_eq!(left, 0, "T1: tasks are left that were started and have not run");
        let next = self.deadline();
        assert!(next.is_none_or(|at| at > now.mono), "T2: {next:?} is due at {:?}", now.mono);
    }

    /// The requests its tasks have made since the last call.
    pub fn take_io(&mut self) -> Vec<IoRequest> {
        self.env.0.port.take()
    }

    /// When it wants to be turned next, on the monotonic clock, if nothing else happens.
    pub fn deadline(&self) -> Option<Nanos> {
        self.env.0.timers.borrow().next()
    }

    /// How many tasks live.
    pub fn live(&self) -> usize {
        self.exec.live()
    }

    /// Stops everything where it stands, as a power cut does.
    pub fn kill(&mut self) {
        self.exec.kill();
        self.env.0.spawned.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, DiskId, Durability, IoOp};

    fn at(ns: u64) -> Now {
        Now { mono: Nanos(ns), wall: Nanos(ns) }
    }

    #[test]
    fn tasks_timers_and_requests_in_order() {
        let mut e = Engine::new(1);
        let log = Rc::new(RefCell::new(Vec::new()));
        let (l1, l2) = (log.clone(), log.clone());
        e.turn(at(0), &mut Vec::new(), |env| {
            let (e1, e2) = (env.clone(), env.clone());
            env.spawn("late", async move {
                e1.sleep(Nanos(20)).await;
                l1.borrow_mut().push("late");
            });
            env.spawn("disk", async move {
                let disk = e2.port().disk(DiskId(0), 4096);
                let w = disk.write(0, vec![Block::zeroed(512)], Durability::Fua).await;
                l2.borrow_mut().push(if w.is_ok() { "written" } else { "failed" });
                assert!(disk.write(4096, vec![Block::zeroed(512)], Durability::Fua).await.is_err());
            });
        });
        let io = e.take_io();
        assert_eq!(io.len(), 1);
        assert_eq!(io[0].op, IoOp::Write(Durability::Fua));
        assert_eq!(e.deadline(), Some(Nanos(20)));
        let done = IoDone::of_disk(io[0].id, Vec::new(), Ok(()));
        e.turn(at(10), &mut vec![done], |_| ());
        e.turn(at(20), &mut Vec::new(), |_| ());
        assert_eq!(*log.borrow(), ["written", "late"]);
        assert_eq!(e.live(), 0);
    }

    /// P2: a task that waits no longer, and one whose request ends after that.
    #[test]
    fn of_a_request_that_nobody_waits_for_nothing_is_kept() {
        let mut e = Engine::new(1);
        e.turn(at(0), &mut Vec::new(), |env| {
            let env2 = env.clone();
            env.spawn("disk", async move {
                let disk = env2.port().disk(DiskId(0), 4096);
                let read = disk.read(0, vec![Block::zeroed(512)]);
                assert!(crate::unless(read, env2.sleep(Nanos(10))).await.is_none());
                let flushed = disk.flush().await;
                assert!(flushed.is_ok());
            });
        });
        let read = e.take_io();
        e.turn(at(10), &mut Vec::new(), |_| ());
        assert_eq!(e.env().port().waited_for(), 1, "the flush");
        let mut done: Vec<IoDone> = read.into_iter().chain(e.take_io()).map(ended).collect();
        e.turn(at(20), &mut done, |_| ());
        assert_eq!((e.live(), e.env().port().waited_for()), (0, 0));
    }

    /// E2: also where somebody has kept the waker of a task that was in the slot before.
    #[test]
    fn a_slot_has_one_task_after_the_other() {
        let mut e = Engine::new(1);
        let kept = Rc::new(RefCell::new(Vec::new()));
        for round in 0..4 {
            let begun = 100 * round;
            e.turn(at(begun), &mut Vec::new(), |env| {
                let (env2, kept) = (env.clone(), kept.clone());
                env.spawn("one", async move {
                    let keep = |cx: &mut std::task::Context<'_>| {
                        kept.borrow_mut().push(cx.waker().clone());
                        Poll::Ready(())
                    };
                    if round % 2 == 0 {
                        poll_fn(keep).await;
                    }
                    env2.sleep(Nanos(10)).await;
                });
            });
            assert_eq!(e.live(), 1, "round {round}");
            // Whoever wakes one that has ended wakes nobody.
            let before: Vec<_> = std::mem::take(&mut *kept.borrow_mut());
            e.turn(at(begun + 10), &mut Vec::new(), |_| ());
            e.turn(at(begun + 20), &mut Vec::new(), |_| {
                before.iter().for_each(|w| w.wake_by_ref())
            });
            assert_eq!(e.live(), 0, "round {round}");
            kept.borrow_mut().extend(before);
        }
    }

    /// T1 and P4.
    #[test]
    fn what_a_task_starts_runs_at_once_and_asks_in_order() {
        let mut e = Engine::new(1);
        e.turn(at(0), &mut Vec::new(), |env| {
            let env2 = env.clone();
            env.spawn("first", async move {
                for _ in 0..3 {
                    let env3 = env2.clone();
                    env2.spawn("other", async move {
                        let disk = env3.port().disk(DiskId(0), 4096);
                        assert!(disk.flush().await.is_ok());
                    });
                }
            });
        });
        let io = e.take_io();
        assert_eq!((io.len(), e.live()), (3, 3));
        let mut done = io.into_iter().map(ended).collect();
        e.turn(at(1), &mut done, |_| ());
        assert_eq!(e.live(), 0);
    }

    fn ended(r: IoRequest) -> IoDone {
        IoDone::of_disk(r.id, r.blocks, Ok(()))
    }

    #[test]
    fn a_killed_engine_runs_no_more() {
        let mut e = Engine::new(1);
        let lock = Rc::new(crate::sync::Lock::new());
        e.turn(at(0), &mut Vec::new(), |env| {
            for _ in 0..3 {
                let (lock, env2) = (lock.clone(), env.clone());
                env.spawn("holder", async move {
                    let _g = lock.lock().await;
                    env2.sleep(Nanos(1000)).await;
                });
            }
        });
        assert_eq!(e.live(), 3);
        e.kill();
        assert_eq!(Rc::strong_count(&lock), 1);
    }
}

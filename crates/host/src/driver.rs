//! Driving a volume from one thread, for commands that open it, do something and close it: requests
//! are carried out where they are made. Also the way of a thread that stands beside the workers and
//! enters once.
//!
//! Invariants:
//! * N1. Each request that is carried out ends, once.
//! * N2. Each call has one answer.

use crate::{HostFile, now};
use env::{Engine, Env, IoDone, IoOp, IoRequest, Local};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use vfs::{Answer, Call, Front, FsError, Monitor, Out, Reply, Request, Ticket, VolumeState, Work};

/// Hands over answers with the numbers of their calls.
struct Answers(mpsc::Sender<(u64, Answer)>);
impl Front for Answers {
    fn reply(&self, id: u64, answer: Answer) {
        let _ = self.0.send((id, answer)); // nobody waits for it any more
    }
}

/// From so many reads at one time on they are made by several threads.
const MANY_READS: usize = 64;
/// So many: a disk is busy with as many requests, and this is not for long.
const READERS: usize = 16;

/// Makes reads that were asked for together, as the descriptors of a large volume that lie all over
/// it are: one after the other they would cost a disk's whole answer each. Where there is no thread
/// to be had, the caller's does it.
fn read_together(disks: &[Arc<HostFile>], reads: Vec<IoRequest>) -> Vec<IoDone> {
    let reads = Mutex::new(reads);
    let next = || reads.lock().expect("nobody panics while holding it").pop();
    let done = Mutex::new(Vec::new());
    let read = || {
        while let Some(r) = next() {
            let one = disks[usize::from(r.disk.0)].carry_out(r);
            done.lock().expect("nobody panics while holding it").push(one);
        }
    };
    std::thread::scope(|s| {
        for _ in 1..READERS {
            if std::thread::Builder::new().spawn_scoped(s, read).is_err() {
                break;
            }
        }
        read();
    });
    done.into_inner().expect("nobody panics while holding it")
}

/// Carries out requests on the calling thread; many reads, on several.
pub(crate) fn carry_out_all(disks: &[Arc<HostFile>], io: &mut Vec<IoRequest>) -> Vec<IoDone> {
    let (tx, rx) = mpsc::channel();
    let mut done = Vec::new();
    let (wanted, mut asked) = (io.len(), 0);
    let ids: u64 = io.iter().fold(0, |all, r| all.wrapping_add(r.id));
    if io.iter().filter(|r| r.op == IoOp::Read).count() >= MANY_READS {
        let reads = io.extract_if(.., |r| r.op == IoOp::Read).collect();
        done = read_together(disks, reads);
    }
    for r in io.drain(..) {
        let disk = &disks[usize::from(r.disk.0)];
        match &disk.bucket {
            // All that were made together are under way together.
            Some(bucket) if r.op == IoOp::Object => {
                let tx = tx.clone();
                bucket.start(r, move |done| drop(tx.send(done)));
                asked += 1;
            }
            _ => done.push(disk.carry_out(r)),
        }
    }
    done.extend(rx.iter().take(asked));
    assert_eq!(done.len(), wanted, "N1: requests that have ended, of those that were made");
    let same = done.iter().fold(0, |all: u64, d| all.wrapping_add(d.id)) == ids;
    assert!(same, "N1: {wanted} requests have ended, and others than were made");
    done
}

/// Runs one future on these disks to its end, on the calling thread, and gives back what it
/// returns: for what is no volume.
pub fn drive<T: 'static>(
    disks: &[Arc<HostFile>],
    seed: u64,
    f: impl FnOnce(Env) -> Local<'static, T>,
) -> T {
    let mut engine = Engine::new(seed);
    let slot = Rc::new(RefCell::new(None));
    let mut start = Some((f, slot.clone()));
    let mut done = Vec::new();
    loop {
        engine.turn(now(), &mut done, |env| {
            if let Some((f, slot)) = start.take() {
                let future = f(env.clone());
                env.spawn("main", async move {
                    let value = future.await;
                    slot.borrow_mut().replace(value);
                });
            }
        });
        done = carry_out_all(disks, &mut engine.take_io());
        if let Some(value) = slot.borrow_mut().take() {
            return value;
        }
        if done.is_empty() {
            let wait = engine.deadline().map_or(Duration::from_millis(1), |d| {
                Duration::from_nanos(d.since(now().mono).0).min(Duration::from_millis(50))
            });
            std::thread::sleep(wait);
        }
    }
}

/// Calls what it holds with the answer.
struct Then<F>(Mutex<Option<F>>);
impl<F: FnOnce(Answer) + Send> Front for Then<F> {
    fn reply(&self, _: u64, answer: Answer) {
        let then = self.0.lock().expect("nobody panics while holding it").take();
        then.expect("N2: a call is answered once")(answer);
    }
}

/// Asks a volume that the workers serve, from a thread beside them; None: no answer came in time.
pub fn ask(pool: &crate::Pool, volume: usize, request: Request, time: Duration) -> Option<Reply> {
    let (tx, rx) = mpsc::channel();
    ask_then(pool, volume, request, move |answer| {
        let _ = tx.send(answer); // nobody waits for it any more
    });
    rx.recv_timeout(time).ok()?.result.ok()
}

/// The same without waiting: `then` is called with the answer, by whichever thread leaves the
/// volume with it.
pub fn ask_then(
    pool: &crate::Pool,
    volume: usize,
    request: Request,
    then: impl FnOnce(Answer) + Send + 'static,
) {
    let ticket = Ticket { front: Arc::new(Then(Mutex::new(Some(then)))), id: 0 };
    pool.enter(volume, &mut vec![Work::Call(ticket, Call::local(request))]);
}

/// One thread with one volume.
pub struct Driver {
    monitor: Arc<Monitor>,
    disks: Vec<Arc<HostFile>>,
}

impl Driver {
    /// For the volume behind `monitor`, on `disks`.
    pub fn new(monitor: Arc<Monitor>, disks: Vec<Arc<HostFile>>) -> Driver {
        Driver { monitor, disks }
    }

    /// Enters with `work`, and again with what the disks did, until `until` says so.
    fn run(&self, mut work: Vec<Work>, mut until: impl FnMut() -> bool) {
        let mut done = Vec::new();
        let mut out = Out::default();
        loop {
            self.monitor.enter(now(), &mut work, &mut done, &mut out);
            out.answer();
            done = carry_out_all(&self.disks, &mut out.io);
            if !done.is_empty() {
                continue;
            }
            if until() {
                return;
            }
            let wait = self.monitor.deadline().map_or(Duration::from_millis(50), |d| {
                Duration::from_nanos(d.since(now().mono).0).min(Duration::from_millis(50))
            });
            std::thread::sleep(wait);
        }
    }

    /// Opens it; a failure is a sentence for the user.
    pub fn open(&self) -> Result<(), String> {
        let mut results = Driver::open_all(std::slice::from_ref(self));
        results.pop().expect("each has a result")
    }

    /// Opens several at the same time, a thread each. One that is open is entered until all are:
    /// other machines may watch whether it is alive.
    pub fn open_all(all: &[Driver]) -> Vec<Result<(), String>> {
        let [first, rest @ ..] = all else { return Vec::new() };
        let is_opening = |d: &Driver| d.monitor.state() == VolumeState::Opening;
        let open = |d: &Driver| d.run(Vec::new(), || !all.iter().any(is_opening));
        std::thread::scope(|threads| {
            for d in rest {
                let thread = std::thread::Builder::new().spawn_scoped(threads, || open(d));
                if thread.is_err() {
                    d.run(Vec::new(), || !is_opening(d)); // there is none: one after the other
                }
            }
            open(first);
        });
        let result = |d: &Driver| match d.monitor.state() {
            VolumeState::Failed(why) => Err(why),
            _ => Ok(()),
        };
        all.iter().map(result).collect()
    }

    /// Asks, and waits for the answer.
    pub fn call(&self, call: Call) -> Answer {
        self.call_all(vec![call]).pop().expect("each call has an answer")
    }

    /// Asks all of this at once, and waits for the answers, which are in the order of the calls:
    /// what has to become durable does so together.
    pub fn call_all(&self, calls: Vec<Call>) -> Vec<Answer> {
        let (tx, rx) = mpsc::channel();
        let front = Arc::new(Answers(tx));
        let mut answers: Vec<Option<Answer>> = vec![None; calls.len()];
        let mut missing = calls.len();
        let ticket = |id| Ticket { front: front.clone(), id };
        let work = (0..).zip(calls).map(|(id, c)| Work::Call(ticket(id), c)).collect();
        self.run(work, || {
            for (id, answer) in rx.try_iter() {
                let before = answers[id as usize].replace(answer);
                assert!(before.is_none(), "N2: call {id} is answered twice");
                missing -= 1;
            }
            missing == 0
        });
        answers.into_iter().map(|a| a.expect("N2: run ends with all answers")).collect()
    }

    /// Asks for the volume itself.
    pub fn request(&self, request: Request) -> Result<Reply, FsError> {
        self.call(Call::local(request)).result
    }

    /// Closes it.
    pub fn close(&self) -> Result<(), FsError> {
        if self.monitor.state() != VolumeState::Open {
            return Ok(());
        }
        self.run(vec![Work::Close], || matches!(self.monitor.state(), VolumeState::Closed(_)));
        match self.monitor.state() {
            VolumeState::Closed(result) => result,
            _ => Ok(()),
        }
    }
}

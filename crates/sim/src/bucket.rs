//! A virtual bucket that several machines use over a network: requests travel, may fail before they
//! are carried out, be carried out and lose their answer, or be carried out long after they were
//! given up. A machine can be stopped and go on later, or be killed, at any of its requests.
//!
//! Invariants:
//! * O1. Who was killed is told nothing any more, and begins nothing.
//! * O2. A listing has each name once, in order, and only those that were asked for.
//! * O3. A line carries one thing after the other, as fast as it is: what is begun later ends
//!   later.
//! * O4. Who asks for a range of an object gets no more than that of it.
//! * O5. What happens to a machine happens once: it stands still once at a time, at one request.
//! * O6. A machine knows its own names: those that its volume's begin with, less that.
//! * O7. Who deletes says what: as of a real store, nothing is no request.

use env::sync::Notify;
use env::{Bucket, BucketError, BucketErrorKind, Env, Local, Nanos, ObjectDone, ObjectOp, Rng};
use env::{DiskError, DiskErrorKind, ReadNow};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// How often something goes wrong: one request in so many; 0: never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trouble {
    /// It fails and is not carried out, as when the store throttles.
    pub refused: u64,
    /// It is carried out, and its answer is lost.
    pub lost: u64,
    /// It fails, and is carried out up to some seconds later.
    pub late: u64,
    /// With it begin some seconds in which no request of anybody is carried out, as when the store
    /// throttles.
    pub throttled: u64,
    /// So many names are listed at once, and between two such parts of a listing, others put and
    /// delete; 0: all at once.
    pub page: usize,
}

impl Trouble {
    /// Nothing goes wrong.
    pub const NONE: Trouble = Trouble { refused: 0, lost: 0, late: 0, throttled: 0, page: 0 };

    /// Does every request do what it is answered, and is it answered?
    pub fn is_none(&self) -> bool {
        Trouble { page: 0, ..*self } == Trouble::NONE
    }

    /// Everything does, now and then.
    pub const ROUGH: Trouble = Trouble { refused: 23, lost: 17, late: 29, throttled: 149, page: 3 };
}

/// A line that all requests of all machines take.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Each request is later by so much.
    pub delay: Nanos,
    /// Bytes a second, of both directions together.
    pub bytes_per_s: u64,
}

/// What happens to a machine at one of its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// It is killed before the request leaves.
    KilledBefore,
    /// It is killed when the request has been carried out.
    KilledAfter,
    /// It is killed, and the request is carried out later.
    KilledLate,
    /// It stands still for so long before the request leaves.
    StoppedBefore(Nanos),
    /// It stands still for so long when the request has been carried out.
    StoppedAfter(Nanos),
    /// The request is carried out, and its answer is lost; the machine goes on.
    AnswerLost,
}

/// All objects of a bucket by their names.
pub type Objects = BTreeMap<String, Arc<[u8]>>;

struct Inner {
    env: Env,
    objects: RefCell<Objects>,
    rng: RefCell<Rng>,
    trouble: Trouble,
    overwritten: RefCell<Vec<String>>,
    /// The line, and until when it is taken; None: each request takes some time of its own.
    line: Option<(Line, Cell<Nanos>)>,
    throttled_until: Cell<Nanos>,
}

/// The bucket.
#[derive(Clone)]
pub struct SimBucket(Rc<Inner>);

/// One machine's way to it.
pub struct Machine {
    bucket: SimBucket,
    /// What the names of its volume begin with; a name that begins with a `/` is a whole one.
    prefix: &'static str,
    cut: Cell<Option<(u64, Cut)>>,
    requests: Cell<u64>,
    killed: Cell<bool>,
    stopped: Cell<bool>,
    resumed: Notify,
}

/// A request takes up to so long on its way, and its answer too.
const TRAVEL: Nanos = Nanos::from_millis(20);
/// One that is late, up to so long.
const LATE: Nanos = Nanos::from_secs(20);
/// Of a bucket at the end of a line so many names are listed at once, of so many bytes each.
const PAGE: usize = 1000;
const LISTED_BYTES: u64 = 300;
/// Who sends more on a line lets others send in between.
const TURN_BYTES: u64 = 64 << 10;
/// A store throttles for up to so long.
const THROTTLED: Nanos = Nanos::from_secs(8);

impl SimBucket {
    /// An empty bucket. `seed` decides what goes wrong, and how long things take.
    pub fn new(env: Env, seed: u64, trouble: Trouble) -> SimBucket {
        SimBucket::of(env, Objects::new(), (seed, trouble))
    }

    /// A bucket with these objects in it.
    pub fn of(env: Env, objects: Objects, how: (u64, Trouble)) -> SimBucket {
        SimBucket::made(env, objects, how, None)
    }

    /// An empty bucket at the other end of a line; nothing goes wrong.
    pub fn behind(env: Env, line: Line) -> SimBucket {
        assert!(line.bytes_per_s > 0, "O3: nothing ever comes over {line:?}");
        SimBucket::made(env, Objects::new(), (1, Trouble::NONE), Some(line))
    }

    fn made(
        env: Env,
        objects: Objects,
        (seed, trouble): (u64, Trouble),
        line: Option<Line>,
    ) -> SimBucket {
        SimBucket(Rc::new(Inner {
            env,
            objects: RefCell::new(objects),
            rng: RefCell::new(Rng::new(seed)),
            trouble,
            overwritten: RefCell::default(),
            line: line.map(|l| (l, Cell::default())),
            throttled_until: Cell::default(),
        }))
    }

    /// A machine that uses it. `cut`: what happens to it, at which of its requests.
    pub fn machine(&self, cut: Option<(u64, Cut)>) -> Rc<Machine> {
        self.machine_below("", cut)
    }

    /// The same, for a volume whose objects' names begin with this.
    pub fn machine_below(&self, prefix: &'static str, cut: Option<(u64, Cut)>) -> Rc<Machine> {
        Rc::new(Machine {
            bucket: self.clone(),
            prefix,
            cut: Cell::new(cut),
            requests: Cell::new(0),
            killed: Cell::new(false),
            stopped: Cell::new(false),
            resumed: Notify::new(),
        })
    }

    /// Objects that another one was put in the place of, heartbeats aside.
    pub fn overwritten(&self) -> Vec<String> {
        self.0.overwritten.borrow().clone()
    }

    /// All of these are in it from now on.
    pub fn put_all(&self, objects: Objects) {
        self.0.objects.borrow_mut().extend(objects);
    }

    /// All that is in it now.
    pub fn objects(&self) -> Objects {
        self.0.objects.borrow().clone()
    }

    /// The names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.0.objects.borrow().keys().cloned().collect()
    }

    fn below(&self, d: Nanos) -> Nanos {
        Nanos(self.0.rng.borrow_mut().below(d.0))
    }

    fn happens(&self, one_in: u64) -> bool {
        one_in > 0 && self.0.rng.borrow_mut().one_in(one_in)
    }

    /// Returns when so many bytes have gone in one direction.
    async fn travel(&self, bytes: u64, there: bool) {
        let env = &self.0.env;
        let Some((line, free_at)) = &self.0.line else {
            return env.sleep(self.below(TRAVEL)).await;
        };
        if there {
            env.sleep(line.delay).await;
        }
        // Those who use it at the same time take turns.
        let mut left = bytes;
        while left > 0 {
            let turn = left.min(TURN_BYTES);
            left -= turn;
            let takes = Nanos(turn * 1_000_000_000 / line.bytes_per_s);
            let end = Nanos(free_at.get().0.max(env.now().0)).plus(takes);
            let before = free_at.replace(end);
            assert!(before <= end, "O3: {turn} bytes end at {end:?}, those before at {before:?}");
            env.sleep(Nanos(end.0.saturating_sub(env.now().0))).await;
        }
    }

    /// Does the store throttle just now?
    fn throttles(&self) -> bool {
        let now = self.0.env.now();
        if self.happens(self.0.trouble.throttled) {
            self.0.throttled_until.set(now.plus(self.below(THROTTLED)));
        }
        now < self.0.throttled_until.get()
    }

    /// A listing, part after part.
    async fn list(&self, prefix: &str, after: &str) -> Vec<String> {
        let page = if self.0.line.is_some() { PAGE } else { self.0.trouble.page };
        let mut all = Vec::<String>::new();
        loop {
            let part = {
                let objects = self.0.objects.borrow();
                let after = all.last().map_or(after, String::as_str);
                let wanted = |n: &&String| n.starts_with(prefix) && n.as_str() > after;
                let some = if page == 0 { usize::MAX } else { page };
                objects.keys().filter(wanted).take(some).cloned().collect::<Vec<_>>()
            };
            let is_last = page == 0 || part.len() < page;
            let bytes = part.len() as u64 * LISTED_BYTES;
            all.extend(part);
            if is_last {
                let (first, last) = (all.first(), all.last());
                let asked = |n: &String| n.starts_with(prefix) && n.as_str() > after;
                let right =
                    all.is_sorted_by(|a, b| a < b) && first.into_iter().chain(last).all(asked);
                assert!(right, "O2: {prefix:?} after {after:?}: {all:?}");
                return all;
            }
            self.travel(bytes, true).await;
        }
    }

    /// Carries a request out.
    fn apply(&self, op: &ObjectOp) -> Result<ObjectDone, BucketError> {
        let mut objects = self.0.objects.borrow_mut();
        match op {
            ObjectOp::PutAbsent(name, bytes) => {
                if objects.contains_key(name) {
                    return Err(error(op, BucketErrorKind::Exists));
                }
                objects.insert(name.clone(), bytes.clone());
                Ok(ObjectDone::Done)
            }
            ObjectOp::Put(name, bytes) => {
                let before = objects.insert(name.clone(), bytes.clone());
                if !name.contains("beats/") && before.is_some_and(|b| b != *bytes) {
                    self.0.overwritten.borrow_mut().push(name.clone());
                }
                Ok(ObjectDone::Done)
            }
            ObjectOp::Get(..) | ObjectOp::GetKept { .. } => get(&objects, op),
            ObjectOp::List { prefix, after } => {
                let wanted = |n: &&String| n.starts_with(prefix) && *n > after;
                Ok(ObjectDone::Names(objects.keys().filter(wanted).cloned().collect()))
            }
            ObjectOp::Delete(names) => {
                drop(objects);
                self.delete(names);
                Ok(ObjectDone::Done)
            }
        }
    }

    fn delete(&self, names: &[String]) {
        let mut objects = self.0.objects.borrow_mut();
        names.iter().for_each(|name| drop(objects.remove(name)));
    }

    /// Carries it out some time, whoever has given it up.
    fn apply_late(&self, op: ObjectOp) {
        let (me, wait) = (self.clone(), self.below(LATE));
        self.0.env.spawn("late request", async move {
            me.0.env.sleep(wait).await;
            let _ = me.apply(&op); // nobody waits for it
        });
    }
}

/// Bytes that come back.
fn received(done: &ObjectDone) -> u64 {
    match done {
        ObjectDone::Bytes(bytes) | ObjectDone::Kept(bytes) => bytes.len() as u64,
        ObjectDone::Done | ObjectDone::Names(_) => 0,
    }
}

fn get(objects: &Objects, op: &ObjectOp) -> Result<ObjectDone, BucketError> {
    let (name, range) = match op {
        ObjectOp::Get(name, range) => (name, *range),
        ObjectOp::GetKept { name, range, .. } => (name, Some(*range)),
        _ => return Err(error(op, BucketErrorKind::Refused)),
    };
    let bytes = objects.get(name).ok_or_else(|| error(op, BucketErrorKind::NotFound))?;
    let (from, len) = range.unwrap_or((0, bytes.len() as u64));
    let end = from.saturating_add(len).min(bytes.len() as u64);
    let part = bytes.get(from as usize..end as usize).unwrap_or_default();
    assert!(part.len() as u64 <= len, "O4: {} bytes of {name}, for {len}", part.len());
    Ok(ObjectDone::Bytes(part.to_vec()))
}

/// A bucket as it was when it was lent, for who reads without waiting: nothing goes wrong there.
#[derive(Debug)]
pub(crate) struct LentBucket(Objects, &'static str);

impl ReadNow for LentBucket {
    fn read_now(&self, at: u64, _: &mut [u8]) -> Result<(), DiskError> {
        let (kind, during, detail) = (DiskErrorKind::Io, "read", "it is a bucket".to_owned());
        Err(DiskError { kind, during, at, detail })
    }
    fn object_now(&self, op: &ObjectOp) -> Result<ObjectDone, BucketError> {
        get(&self.0, &whole(self.1, op.clone()))
    }
}

fn error(op: &ObjectOp, kind: BucketErrorKind) -> BucketError {
    let (during, name) = (op.verb(), op.name().to_owned());
    BucketError { kind, during, name, detail: String::new() }
}

impl Machine {
    /// How many requests it has made.
    pub fn requests(&self) -> u64 {
        self.requests.get()
    }
    /// Was it killed?
    pub fn is_killed(&self) -> bool {
        self.killed.get()
    }

    /// It is killed now, whatever it does.
    pub fn kill(&self) {
        self.killed.set(true);
        self.resumed.wake_all();
    }

    /// The number of a request that it begins.
    pub(crate) fn next_request(&self) -> u64 {
        self.requests.replace(self.requests.get() + 1)
    }

    /// Is it killed in the middle of this request?
    pub(crate) fn is_cut_late(&self, n: u64) -> bool {
        let late = self.cut.get() == Some((n, Cut::KilledLate));
        if late {
            self.killed.set(true);
        }
        late
    }

    /// What happens at the next request, if it is this moment's: `after`, it has been carried out.
    pub(crate) async fn pass(self: &Rc<Self>, n: u64, after: bool) {
        let cut = self.cut.get().filter(|(at, _)| *at == n).map(|(_, cut)| cut);
        match cut {
            Some(Cut::KilledBefore) if !after => self.killed.set(true),
            Some(Cut::KilledAfter) if after => self.killed.set(true),
            Some(Cut::StoppedBefore(d)) if !after => self.stop(d),
            Some(Cut::StoppedAfter(d)) if after => self.stop(d),
            _ => (),
        }
        while self.stopped.get() && !self.killed.get() {
            self.resumed.wait().await;
        }
        if self.killed.get() {
            std::future::pending::<()>().await;
        }
    }

    fn stop(self: &Rc<Self>, d: Nanos) {
        let before = self.stopped.replace(true);
        assert!(!before, "O5: a machine that stands still is stopped at {:?}", self.cut.get());
        let (me, env) = (self.clone(), self.bucket.0.env.clone());
        self.bucket.0.env.spawn("machine goes on", async move {
            env.sleep(d).await;
            me.stopped.set(false);
            me.resumed.wake_all();
        });
    }

    /// The bucket as it is now.
    pub(crate) fn lend(&self) -> Arc<dyn ReadNow> {
        Arc::new(LentBucket(self.bucket.objects(), self.prefix))
    }

    /// The same machine's way to another volume.
    pub fn below(self: &Rc<Self>, prefix: &'static str) -> Rc<dyn Bucket> {
        Rc::new(Below(self.clone(), prefix))
    }

    pub(crate) async fn carry_on(self: Rc<Self>, op: ObjectOp) -> Result<ObjectDone, BucketError> {
        let prefix = self.prefix;
        self.carry_on_below(prefix, op).await
    }

    async fn carry_on_below(
        self: Rc<Self>,
        prefix: &'static str,
        op: ObjectOp,
    ) -> Result<ObjectDone, BucketError> {
        let from_root = op.name().starts_with('/');
        let own = |n: String| match from_root {
            true => format!("/{n}"),
            false => match n.strip_prefix(prefix) {
                Some(own) => own.to_owned(),
                None => panic!("O6: {n} is a name of another volume than {prefix}"),
            },
        };
        let done = self.clone().carry_out(whole(prefix, op)).await;
        assert!(!self.killed.get(), "O1: a machine was killed, and is answered");
        Ok(match done? {
            ObjectDone::Names(all) => ObjectDone::Names(all.into_iter().map(own).collect()),
            done => done,
        })
    }

    async fn carry_out(self: Rc<Self>, op: ObjectOp) -> Result<ObjectDone, BucketError> {
        let names = if let ObjectOp::Delete(names) = &op { names.len() } else { 1 };
        assert!(names > 0, "O7: nothing is to be deleted");
        let n = self.next_request();
        let bucket = &self.bucket;
        self.pass(n, false).await;
        if self.is_cut_late(n) {
            bucket.apply_late(op.clone());
            std::future::pending::<()>().await;
        }
        bucket.travel(op.bytes(), true).await;
        let trouble = bucket.0.trouble;
        if bucket.throttles() {
            self.pass(n, true).await;
            return Err(error(&op, BucketErrorKind::Unknown));
        }
        if bucket.happens(trouble.late) {
            bucket.apply_late(op.clone());
            self.pass(n, true).await;
            return Err(error(&op, BucketErrorKind::Unknown));
        }
        if bucket.happens(trouble.refused) {
            if let ObjectOp::Delete(names) = &op {
                bucket.delete(&names[..names.len() / 2]);
            }
            self.pass(n, true).await;
            return Err(error(&op, BucketErrorKind::Unknown));
        }
        let done = match &op {
            ObjectOp::List { prefix, after } => {
                Ok(ObjectDone::Names(bucket.list(prefix, after).await))
            }
            ObjectOp::Delete(names) => {
                // Not all at one moment.
                let (some, others) = names.split_at(names.len() / 2);
                bucket.delete(some);
                bucket.travel(0, true).await;
                bucket.delete(others);
                Ok(ObjectDone::Done)
            }
            op => bucket.apply(op),
        };
        bucket.travel(done.as_ref().map_or(0, received), false).await;
        self.pass(n, true).await;
        if self.cut.get() == Some((n, Cut::AnswerLost)) || bucket.happens(trouble.lost) {
            return Err(error(&op, BucketErrorKind::Unknown));
        }
        done
    }
}

/// A machine's way as a bucket.
pub struct Way(pub Rc<Machine>);

impl Bucket for Way {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        Box::pin(self.0.clone().carry_on(op))
    }
}

/// The same, to a volume below another prefix.
struct Below(Rc<Machine>, &'static str);

impl Bucket for Below {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        Box::pin(self.0.clone().carry_on_below(self.1, op))
    }
}

/// The request with whole names.
fn whole(prefix: &str, op: ObjectOp) -> ObjectOp {
    op.renamed(|n| match n.strip_prefix('/') {
        Some(whole) => whole.to_owned(),
        None => format!("{prefix}{n}"),
    })
}

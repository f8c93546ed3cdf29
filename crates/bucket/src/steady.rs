//! Requests that fail are made again: at growing intervals, for as long as there is patience. A
//! store that throttles or is away for half a minute costs time and nothing else; whoever named the
//! wrong place, where nothing has ever answered, hears of it soon.

use env::{Bucket, BucketError, BucketErrorKind, Env, Local, Nanos, ObjectDone, ObjectOp};
use std::cell::Cell;
use std::rc::Rc;

/// For so long a request that fails is made again.
pub(crate) const PATIENCE: Nanos = Nanos::from_secs(60);
/// And so long if the bucket has not answered anything yet.
const FIRST_PATIENCE: Nanos = Nanos::from_secs(8);
/// And so often at least: who stood still for longer has not been patient.
const TRIES_LEAST: u32 = 4;
/// The first pause before that, which doubles.
pub(crate) const PAUSE: Nanos = Nanos::from_millis(50);
const PAUSE_MAX: Nanos = Nanos::from_secs(5);

/// The tries of one request.
pub(crate) struct Again<'a> {
    env: &'a Env,
    began: Nanos,
    pause: Nanos,
    tried: u32,
}

impl Again<'_> {
    pub(crate) fn new(env: &Env) -> Again<'_> {
        Again { env, began: env.now(), pause: PAUSE, tried: 1 }
    }

    /// Waits until it is to be tried again. False: it has been tried for long enough.
    pub(crate) async fn wait(&mut self, error: &BucketError, patience: Nanos) -> bool {
        if self.tried >= TRIES_LEAST && self.env.now().since(self.began) > patience {
            return false;
        }
        self.tried += 1;
        tracing::warn!("{error}; it is tried again");
        self.env.sleep(self.pause).await;
        self.pause = Nanos((self.pause.0 * 2).min(PAUSE_MAX.0));
        true
    }
}

/// A bucket whose requests are counted, and made again for a while where that does no harm.
pub(crate) struct Steady {
    env: Env,
    bucket: Rc<dyn Bucket>,
    /// It has answered: it is there, and is the one that was meant.
    answered: Cell<bool>,
    pub(crate) requests: Cell<[u64; 4]>,
    pub(crate) bytes: Cell<[u64; 2]>,
    /// Ranges that a cache had.
    pub(crate) kept: Cell<u64>,
}

impl Steady {
    pub(crate) fn new(env: Env, bucket: Rc<dyn Bucket>) -> Rc<Steady> {
        Rc::new(Steady {
            env,
            bucket,
            answered: Cell::new(false),
            requests: Cell::default(),
            bytes: Cell::default(),
            kept: Cell::default(),
        })
    }

    fn count(&self, op: &ObjectOp) {
        let n = match op {
            ObjectOp::PutAbsent(..) | ObjectOp::Put(..) => 0,
            ObjectOp::Get(..) | ObjectOp::GetKept { .. } => 1,
            ObjectOp::List { .. } => 2,
            ObjectOp::Delete(_) => 3,
        };
        let (mut requests, mut bytes) = (self.requests.get(), self.bytes.get());
        requests[n] += 1;
        bytes[0] += op.bytes();
        self.requests.set(requests);
        self.bytes.set(bytes);
    }

    async fn ask_once(&self, op: ObjectOp) -> Result<ObjectDone, BucketError> {
        let may_be_kept = matches!(op, ObjectOp::GetKept { .. });
        if !may_be_kept {
            self.count(&op);
            return self.received(self.bucket.ask(op).await);
        }
        let done = self.bucket.ask(op.clone()).await;
        match done {
            Ok(ObjectDone::Kept(_)) => self.kept.set(self.kept.get() + 1),
            _ => self.count(&op),
        }
        self.received(done)
    }

    fn received(&self, done: Result<ObjectDone, BucketError>) -> Result<ObjectDone, BucketError> {
        let unknown = |e: &BucketError| e.kind == BucketErrorKind::Unknown;
        if !done.as_ref().is_err_and(unknown) {
            self.answered.set(true);
        }
        if let Ok(ObjectDone::Bytes(got)) = &done {
            let mut bytes = self.bytes.get();
            bytes[1] += got.len() as u64;
            self.bytes.set(bytes);
        }
        done
    }
}

impl Bucket for Steady {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        Box::pin(async move {
            let reads = matches!(op.verb(), "GET" | "LIST");
            let mut again = Again::new(&self.env);
            loop {
                let error = match self.ask_once(op.clone()).await {
                    Err(e) if reads && e.kind == BucketErrorKind::Unknown => e,
                    done => return done,
                };
                let patience = if self.answered.get() { PATIENCE } else { FIRST_PATIENCE };
                if !again.wait(&error, patience).await {
                    return Err(error);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bucket that is away from its second request on, for so many seconds.
    struct Away(Env, Cell<Option<Nanos>>, u64);

    impl Bucket for Away {
        fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
            let since = self.1.get();
            let away = since.is_some_and(|s| self.0.now().since(s) < Nanos::from_secs(self.2));
            self.1.set(since.or(Some(self.0.now())));
            let (kind, during) = (BucketErrorKind::Unknown, op.verb());
            let error = BucketError { kind, during, name: "log/1".into(), detail: String::new() };
            Box::pin(async move { if away { Err(error) } else { Ok(ObjectDone::Bytes(vec![7])) } })
        }
    }

    /// Reads from a bucket that goes away when it has answered, or has never answered. Returns
    /// whether there was an answer in the end, and after how long.
    fn read(away_secs: u64, has_answered: bool) -> (bool, Nanos) {
        let mut world = sim::World::new(sim::Image::new(4096));
        sim::block_on(&mut world, move |env, _| async move {
            let gone = Cell::new((!has_answered).then(|| env.now()));
            let steady = Steady::new(env.clone(), Rc::new(Away(env.clone(), gone, away_secs)));
            if has_answered {
                assert!(steady.get("log/1", None).await.is_ok());
            }
            let began = env.now();
            (steady.get("log/1", None).await.is_ok(), env.now().since(began))
        })
    }

    #[test]
    fn a_store_that_is_away_for_half_a_minute_costs_time_only() {
        let (answered, after) = read(30, true);
        assert!(answered && after < Nanos::from_secs(36), "{after:?}");
    }

    #[test]
    fn patience_ends() {
        let (answered, after) = read(3600, true);
        assert!(!answered && after < Nanos::from_secs(67), "{after:?}");
    }

    #[test]
    fn where_nothing_ever_answered_it_ends_soon() {
        let (answered, after) = read(3600, false);
        assert!(!answered && after < Nanos::from_secs(14), "{after:?}");
    }
}

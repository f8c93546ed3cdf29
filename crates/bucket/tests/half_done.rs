//! Requests that were done and whose answers are lost, and openings that come no further than their
//! fence: what is there is found, and nobody waits for who never was.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bucket::{AtRest, FormatOptions, OpenOptions, Store};
use env::{Bucket, BucketError, BucketErrorKind, Env, Local, Nanos, ObjectDone, ObjectOp};
use sim::{Image, SimBucket, Trouble, Way, World, block_on};
use std::cell::Cell;
use std::rc::Rc;

fn error(op: &ObjectOp, kind: BucketErrorKind) -> BucketError {
    let (during, name) = (op.verb(), op.name().to_owned());
    BucketError { kind, during, name, detail: String::new() }
}

async fn make(env: &Env, bucket: &Rc<dyn Bucket>) -> Result<(), String> {
    let (uuid, size_bytes) = ([7; 16], 512 * 4096);
    let format = FormatOptions { uuid, size_bytes, force: false, at_rest: AtRest::default() };
    bucket::format(env.clone(), bucket.clone(), &format).await?.finish().await
}

fn options() -> OpenOptions {
    OpenOptions { after: Nanos::from_secs(30), ..OpenOptions::default() }
}

/// A way to the bucket on which the answer to the first PUT of the object `volume` is lost.
struct Loses(Rc<dyn Bucket>, Cell<bool>);

impl Bucket for Loses {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        Box::pin(async move {
            let lost = op.verb() == "PUT" && op.name() == "volume" && !self.1.replace(true);
            let failed = error(&op, BucketErrorKind::Unknown);
            let done = self.0.ask(op).await;
            if lost { Err(failed) } else { done }
        })
    }
}

/// I9: a volume that is there is not said to be none.
#[test]
fn a_volume_whose_last_answer_was_lost_is_made() {
    block_on(&mut World::new(Image::new(4096)), |env, _| async move {
        let all = SimBucket::new(env.clone(), 3, Trouble::NONE);
        let way: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        let loses: Rc<dyn Bucket> = Rc::new(Loses(way.clone(), Cell::new(false)));
        make(&env, &loses).await.unwrap();
        Store::open(env.clone(), way.clone(), options()).await.unwrap().close().await.unwrap();
        let again = make(&env, &way).await.unwrap_err();
        assert!(again.contains("a volume already"), "{again}");
    });
}

/// A way to the bucket that refuses to list what is there once a fence was put.
struct RefusesToList(Rc<dyn Bucket>, Cell<bool>);

impl Bucket for RefusesToList {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        let is_fence = op.verb() == "PUT" && op.name().starts_with("log/");
        if op.verb() == "LIST" && self.1.get() {
            let refused = error(&op, BucketErrorKind::Refused);
            return Box::pin(async move { Err(refused) });
        }
        self.1.set(self.1.get() || is_fence);
        self.0.ask(op)
    }
}

/// Whose fence is there, and who could not look behind it, never writes: the next one need not wait
/// until he is silent.
#[test]
fn who_came_no_further_than_his_fence_is_not_waited_for() {
    block_on(&mut World::new(Image::new(4096)), |env, _| async move {
        let all = SimBucket::new(env.clone(), 3, Trouble::NONE);
        let way: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        make(&env, &way).await.unwrap();
        Store::open(env.clone(), way.clone(), options()).await.unwrap().close().await.unwrap();
        let refuses: Rc<dyn Bucket> = Rc::new(RefusesToList(way.clone(), Cell::new(false)));
        assert!(Store::open(env.clone(), refuses, options()).await.is_err());
        let began = env.now();
        let store = Store::open(env.clone(), way.clone(), options()).await.unwrap();
        let took = env.now().since(began);
        assert!(took < Nanos::from_secs(5), "{took:?}");
        store.close().await.unwrap();
    });
}

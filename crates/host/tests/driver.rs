//! Volumes that are opened one beside the other: those that are open go on while others are not.

#![allow(clippy::unwrap_used)]

use env::{Local, Nanos};
use host::Driver;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Answer, Call, FsError, Monitor, Opening, Reply, Volume};

struct Toy;

impl Volume for Toy {
    fn call(self: Rc<Self>, _: Call) -> Local<'static, Answer> {
        Box::pin(async { Ok(Reply::Done).into() })
    }
    fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>> {
        Box::pin(async { Ok(()) })
    }
}

/// A volume that takes so long to open, says every millisecond after that that it is alive, and is
/// opened well or not.
fn driver(takes_ms: u64, beats: &Arc<AtomicU64>, result: Result<(), String>) -> Driver {
    let beats = beats.clone();
    let open = move |env: env::Env| -> Opening {
        Box::pin(async move {
            env.sleep(Nanos::from_millis(takes_ms)).await;
            result?;
            let beating = env.clone();
            env.spawn("beat", async move {
                loop {
                    beating.sleep(Nanos::from_millis(1)).await;
                    beats.fetch_add(1, Ordering::SeqCst);
                }
            });
            Ok(Rc::new(Toy) as Rc<dyn Volume>)
        })
    };
    Driver::new(Arc::new(Monitor::new(1, Box::new(open))), Vec::new())
}

#[test]
fn a_volume_that_is_open_is_alive_while_another_is_opened() {
    let beats = Arc::new(AtomicU64::new(0));
    let none = Arc::default();
    let all = [driver(0, &beats, Ok(())), driver(1500, &none, Ok(()))];
    assert_eq!(Driver::open_all(&all), [Ok(()), Ok(())]);
    let seen = beats.load(Ordering::SeqCst);
    assert!(seen > 50, "{seen} in 1.5 s");
}

#[test]
fn one_that_cannot_be_opened_keeps_nobody_waiting() {
    let (beats, fails) = (Arc::default(), || Err("broken".to_owned()));
    let all = [driver(5, &beats, fails()), driver(0, &beats, Ok(())), driver(1, &beats, fails())];
    assert_eq!(Driver::open_all(&all), [fails(), Ok(()), fails()]);
    assert_eq!(all[1].close(), Ok(()));
}

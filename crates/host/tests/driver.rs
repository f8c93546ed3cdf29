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

/// When the opening of a volume is over.
enum Opens {
    /// After so many milliseconds.
    After(u64),
    /// When another one has said so often that it is alive.
    WhenHeard(Arc<AtomicU64>, u64),
}

/// A volume that opens then, says every millisecond after that that it is alive, and is opened well
/// or not.
fn driver(opens: Opens, beats: &Arc<AtomicU64>, result: Result<(), String>) -> Driver {
    let beats = beats.clone();
    let open = move |env: env::Env| -> Opening {
        Box::pin(async move {
            match opens {
                Opens::After(ms) => env.sleep(Nanos::from_millis(ms)).await,
                Opens::WhenHeard(of, n) => {
                    let most = env.now().plus(Nanos::from_secs(30));
                    while of.load(Ordering::SeqCst) < n && env.now() < most {
                        env.sleep(Nanos::from_millis(1)).await;
                    }
                }
            }
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
    let (none, last) = (Arc::default(), Opens::WhenHeard(beats.clone(), 50));
    let all = [driver(Opens::After(0), &beats, Ok(())), driver(last, &none, Ok(()))];
    assert_eq!(Driver::open_all(&all), [Ok(()), Ok(())]);
    let heard = beats.load(Ordering::SeqCst);
    assert!(heard >= 50, "{heard} in half a minute");
}

#[test]
fn one_that_cannot_be_opened_keeps_nobody_waiting() {
    let (beats, fails) = (Arc::<AtomicU64>::default(), || Err("broken".to_owned()));
    let of = |ms, result| driver(Opens::After(ms), &beats, result);
    let all = [of(5, fails()), of(0, Ok(())), of(1, fails())];
    assert_eq!(Driver::open_all(&all), [fails(), Ok(()), fails()]);
    assert_eq!(all[1].close(), Ok(()));
}

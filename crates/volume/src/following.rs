//! A volume in a bucket that is read here while another machine writes it. Each call is answered
//! from one moment of the volume, which is as old as the last look at the log at most; it changes
//! nothing in the bucket, and knows nothing of what a call asks.
//!
//! Rule        A *moment* is the volume opened for reading as the log was at one look. When the log
//!             has gone on, the next moment is opened beside it and takes its place for new calls.
//! Invariants  I1 no answer comes from two moments.
//!             I2 no answer shows the volume as it was longer ago than the bound: who cannot look,
//!             or was asleep, answers with errors.
//!             I3 an inode that somebody holds is the one that he was told of, or stale.

use crate::objects::{Objects, loaded};
use crate::open::load_in;
use crate::place::Ground;
use crate::{OpenOptions, VolumeError, open_bucket};
use env::sync::Lock;
use env::{Local, Nanos};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use vfs::{Answer, Attr, Call, FsError, Reply, Request, Volume};

/// Bugs that can be planted in following.
pub const PLANTS: &[&str] =
    &["follower-never-too-old", "follower-keeps-its-cache", "follower-forgets-generations"];

/// Looks within the time that answers may be old.
const LOOKS: u64 = 5;
/// A look may find that what it reads is gone, because the log has gone on again.
const TRIES: usize = 5;

/// The volume at one moment.
struct Moment {
    volume: Rc<dyn Volume>,
    store: bucket::Store,
    /// It was the newest when the look began that said so last.
    newest_at: Cell<Nanos>,
}

/// Inodes that somebody holds: the generation that was told, and how often.
type Held = BTreeMap<u32, (u32, u64)>;

/// A volume that is followed.
pub(crate) struct Following {
    ground: Ground,
    options: OpenOptions,
    within: Nanos,
    moment: RefCell<Rc<Moment>>,
    held: RefCell<Held>,
    looking: Lock,
    closed: Cell<bool>,
}

/// Opens a volume for reading, and follows it: no answer is older than `within`. Errors: a sentence
/// for the user.
pub(crate) async fn open(
    ground: Ground,
    options: OpenOptions,
    within: Nanos,
) -> Result<Rc<dyn Volume>, VolumeError> {
    let began = ground.env.now();
    let store = open_bucket(&ground, true).await?;
    let moment = moment_of(&ground, &options, (store, began)).await?;
    let following = Rc::new(Following {
        ground,
        options,
        within,
        moment: RefCell::new(Rc::new(moment)),
        held: RefCell::default(),
        looking: Lock::new(),
        closed: Cell::new(false),
    });
    following.start();
    Ok(following)
}

async fn moment_of(
    ground: &Ground,
    options: &OpenOptions,
    (store, began): (bucket::Store, Nanos),
) -> Result<Moment, VolumeError> {
    let volume =
        load_in(&Objects, loaded(store.clone(), ground.bucket.prices), ground, options.clone())
            .await?;
    Ok(Moment { volume, store, newest_at: Cell::new(began) })
}

impl Following {
    fn start(self: &Rc<Self>) {
        let (weak, env) = (Rc::downgrade(self), self.ground.env.clone());
        let every = Nanos((self.within.0 / LOOKS).max(1));
        self.ground.env.clone().spawn("follower", async move {
            loop {
                env.sleep(every).await;
                let Some(following) = weak.upgrade().filter(|f| !f.closed.get()) else { return };
                following.look().await;
            }
        });
    }

    /// Looks whether the log has gone on.
    async fn look(self: &Rc<Self>) {
        let asked = self.ground.env.now();
        let _alone = self.looking.lock().await;
        if self.moment.borrow().newest_at.get() > asked {
            return; // somebody else has looked meanwhile
        }
        for _ in 0..TRIES {
            let began = self.ground.env.now();
            let now = self.moment.borrow().clone();
            let moment = match now.store.newer().await {
                Ok(None) => return now.newest_at.set(began),
                Ok(Some(store)) => moment_of(&self.ground, &self.options, (store, began)).await,
                Err(why) => Err(VolumeError(why)),
            };
            match moment {
                Ok(moment) => return self.take(moment),
                Err(e) => tracing::warn!("following the volume: {e}; it is tried again"),
            }
        }
    }

    /// New calls are answered from this moment on.
    fn take(&self, moment: Moment) {
        if self.options.plant.is("follower-keeps-its-cache") {
            let volume = self.moment.borrow().volume.clone();
            *self.moment.borrow_mut() = Rc::new(Moment { volume, ..moment });
            return;
        }
        let (now, new) = (self.moment.borrow().newest_at.get(), moment.newest_at.get());
        assert!(now <= new, "I2: the moment of {new:?} takes the place of that of {now:?}");
        let old = std::mem::replace(&mut *self.moment.borrow_mut(), Rc::new(moment));
        self.ground.env.spawn("moment that is over", async move {
            let _ = old.volume.clone().close().await; // it was read only
        });
    }

    fn is_too_old(&self, moment: &Moment) -> bool {
        let old = self.ground.env.now().since(moment.newest_at.get()) > self.within;
        old && !self.options.plant.is("follower-never-too-old")
    }

    async fn answer(self: &Rc<Self>, call: Call) -> Answer {
        for _ in 0..TRIES {
            let moment = self.moment.borrow().clone();
            if self.is_too_old(&moment) {
                break;
            }
            let answer = moment.volume.clone().call(call.clone()).await;
            // A moment that is over may miss objects, or be closed: the one that is now tells.
            let odd = matches!(answer.result, Err(FsError::Io | FsError::Corrupt | FsError::Stale));
            if odd {
                self.look().await;
                if !Rc::ptr_eq(&moment, &self.moment.borrow()) {
                    continue;
                }
            }
            if !self.is_too_old(&moment) {
                return answer; // I2
            }
        }
        Answer::error(FsError::Io)
    }

    /// Whoever holds inodes is told of no other ones (I3).
    fn expecting(&self, call: &mut Call) {
        let held = self.held.borrow();
        let known = inos(&call.request).map(|ino| Some((ino?, held.get(&ino?)?.0)));
        let forgets = self.options.plant.is("follower-forgets-generations");
        if call.expect == [None; 2] && !forgets {
            call.expect = known;
        }
    }

    fn hold(&self, answer: &Answer) {
        let named: Vec<&Attr> = match &answer.result {
            Ok(Reply::Entry { attr, .. }) => vec![attr],
            Ok(Reply::Dir { entries, .. }) => {
                entries.iter().filter_map(|e| e.attr.as_ref()).collect()
            }
            _ => return,
        };
        let mut all = self.held.borrow_mut();
        for attr in named {
            let held = all.entry(attr.ino).or_insert((attr.generation, 0));
            *held = (attr.generation, held.1 + 1);
        }
    }

    fn forget(&self, ino: u32, count: u64) {
        let mut held = self.held.borrow_mut();
        if let Some((_, n)) = held.get_mut(&ino) {
            assert!(*n > 0, "I3: inode {ino} is held, and by nobody");
            *n = n.saturating_sub(count);
            if *n == 0 {
                held.remove(&ino);
            }
        }
    }
}

/// The inodes that a request is about.
fn inos(request: &Request) -> [Option<u32>; 2] {
    let one = match request {
        Request::Lookup { dir, .. } | Request::ReadDir { dir, .. } => *dir,
        Request::GetAttr { ino }
        | Request::ReadLink { ino }
        | Request::Read { ino, .. }
        | Request::GetXattr { ino, .. }
        | Request::ListXattr { ino }
        | Request::Access { ino, .. }
        | Request::GetFlags { ino }
        | Request::Seek { ino, .. } => *ino,
        _ => return [None; 2],
    };
    [Some(one), None]
}

impl Volume for Following {
    fn call(self: Rc<Self>, mut call: Call) -> Local<'static, Answer> {
        Box::pin(async move {
            if let Request::Forget { ino, count } = call.request {
                self.forget(ino, count);
                return Answer::from(Ok(Reply::Done));
            }
            // A moment does not last, so holds are kept here.
            let holds = std::mem::replace(&mut call.hold, false);
            self.expecting(&mut call);
            let answer = self.answer(call).await;
            if holds {
                self.hold(&answer);
            }
            answer
        })
    }

    fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>> {
        Box::pin(async move {
            self.closed.set(true);
            let moment = self.moment.borrow().clone();
            moment.volume.clone().close().await
        })
    }
}

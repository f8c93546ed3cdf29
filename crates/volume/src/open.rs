//! Opening volumes, the one way for all of them: look (the store, then the layout), decide, do, and
//! load. All of it runs inside the engine of whoever asks, on its disks, so that a simulator can
//! cut it off at every step. Which stores and layouts there are it does not know.

use crate::layout::{FoundLayout, probe_layout};
use crate::log::{self, LogReport, SharedLog};
use crate::place::{Ground, Place};
use crate::recover::count_free;
use crate::store::{FoundStore, STORES, Store};
use crate::{Decision, OpenOptions, Probe, Recovered, VolumeError};
use crate::{following, mmp, snapshots};
use env::{DiskId, Env, Local, Nanos};
use format::ext::Geometry;
use integrity::Plant;
use mechanisms::Mode;
use std::cell::Cell;
use std::rc::Rc;
use vfs::{Answer, Call, FsError, Open, OpenAll, Opening, Request, Volume};

/// What a look at the disks has shown: a store, and a layout on it.
#[derive(Debug)]
pub struct Found {
    /// The store.
    pub store: Box<dyn FoundStore>,
    /// The layout.
    pub layout: Box<dyn FoundLayout>,
}

impl Found {
    /// What is known of a volume of the family of ext2. Errors: it is another layout.
    pub fn ext(&self) -> Result<&Probe, VolumeError> {
        self.layout.ext().ok_or_else(|| VolumeError("this is no volume of ext2's family".into()))
    }
}

/// Looks at a volume's disks, reading only. Errors: there is no volume, or it cannot be used, and
/// what to do; or the device failed.
pub async fn look(ground: &Ground) -> Result<Found, VolumeError> {
    let store = find_store(ground).await?;
    let loaded = store.load(ground, true).await?;
    let layout = look_in(&*store, &*loaded, ground).await?;
    Ok(Found { store, layout })
}

/// Looks at the layout in a loaded store.
async fn look_in(
    store: &dyn FoundStore,
    loaded: &dyn Store,
    ground: &Ground,
) -> Result<Box<dyn FoundLayout>, VolumeError> {
    let log = ground.log_reader().await?;
    let mut layout = probe_layout(&loaded.reader(ground).await?, log.as_ref())?;
    if let Some(p) = layout.ext_mut() {
        p.in_segments = store.is_segments();
    }
    Ok(layout)
}

/// Loads the volume, for reading only, that lies in a loaded store.
pub(crate) async fn load_in(
    found: &dyn FoundStore,
    store: Rc<dyn Store>,
    ground: &Ground,
    options: OpenOptions,
) -> Result<Rc<dyn Volume>, VolumeError> {
    let layout = look_in(found, &*store, ground).await?;
    let ground = ground.clone();
    layout
        .load(Place { ground, disk: store.disk(), store, shared: None, claim: None }, options)
        .await
}

async fn find_store(ground: &Ground) -> Result<Box<dyn FoundStore>, VolumeError> {
    for kind in STORES {
        if let Some(found) = kind.probe(ground).await? {
            if ground.snapshot.is_some() && !found.has_snapshots() {
                return Err(VolumeError(format!("a {} has no snapshots", found.name())));
            }
            return Ok(found);
        }
    }
    Err(VolumeError("no store is known".into()))
}

/// Where the layout lies when its store is loaded.
async fn place(found: &Found, ground: &Ground, read_only: bool) -> Result<Place, VolumeError> {
    let store = found.store.load(ground, read_only).await?;
    Ok(Place { ground: ground.clone(), disk: store.disk(), store, shared: None, claim: None })
}

/// What opening the volume with these options would do first; nothing is written.
pub async fn decide(
    found: &mut Found,
    ground: &Ground,
    options: &OpenOptions,
) -> Result<Decision, VolumeError> {
    let at = place(found, ground, true).await?;
    let mut decision = found.layout.decide(&at, options).await?;
    if !options.read_only {
        decision.steps.splice(0..0, found.store.steps());
        decision.refused = found.store.damage().or(decision.refused);
    }
    Ok(decision)
}

/// What the volume has in a log of ours, without changing anything; None: nothing. Errors: a
/// sentence for the user, where the log is not the right one or is damaged.
pub async fn log_report(found: &Found, ground: &Ground) -> Result<Option<LogReport>, VolumeError> {
    let Some(probe) = found.layout.ext() else { return Ok(None) };
    log::report(&place(found, ground, true).await?, probe).await
}

/// How many blocks and inodes are free, reckoned from the groups as by opening: the superblock
/// learns of that when the volume is closed. What waits in a journal or log is not looked through.
/// Errors: the device's, or it is another layout.
pub async fn free(found: &Found, ground: &Ground) -> Result<(u64, u32), VolumeError> {
    let geo = Geometry::of(&found.ext()?.superblock);
    let at = place(found, ground, true).await?;
    Ok(count_free(&at.disk, &geo).await?)
}

/// The store, then the layout: what an unclean end left is decided and finished.
async fn recover_at(
    found: &mut Found,
    ground: &Ground,
    (options, shared): (&OpenOptions, Option<Rc<SharedLog>>),
) -> Result<(Place, Recovered), VolumeError> {
    if !options.read_only {
        found.store.recover(ground).await?;
    }
    let mut at = Place { shared, ..place(found, ground, options.read_only).await? };
    let did = recover_layout(found, &mut at, options).await;
    if did.is_err() {
        at.store.give_up().await;
    }
    Ok((at, did?))
}

/// The layout, which is kept from everybody else if there is a way to.
async fn recover_layout(
    found: &mut Found,
    at: &mut Place,
    options: &OpenOptions,
) -> Result<Recovered, VolumeError> {
    if found.store.is_shared() {
        found.layout = look_in(&*found.store, &*at.store, &at.ground).await?;
    }
    if let Some(claimed) = found.layout.claim(at, options).await? {
        *at = claimed;
    }
    if at.claim.is_some() {
        // Somebody may have used it since it was looked at.
        found.layout = look_in(&*found.store, &*at.store, &at.ground).await?;
        mmp::check_fresh(at, &found.ext()?.superblock).await?;
    }
    let decision = found.layout.decide(at, options).await?;
    decision.allowed()?;
    let did = found.layout.recover(at, options).await?;
    let still = !options.read_only || did == Recovered::default();
    assert!(still, "V1: a volume that is only to be read was recovered: {did:?}");
    let decided = did == Recovered::default() || !decision.steps.is_empty();
    assert!(decided, "V1: nothing was to be done, and {did:?} was");
    if did != Recovered::default() {
        options.watch.iter().for_each(|w| w.done(&did));
    }
    Ok(did)
}

/// Recovers the volume, and does nothing else but what only a loaded volume can do. Errors say why
/// it could not, and what to do; then nothing was written unless the device failed in the middle,
/// and then recovery can be run again.
pub async fn recover(ground: &Ground, options: &OpenOptions) -> Result<Recovered, VolumeError> {
    let ground = &Ground { bucket: options.bucket.clone(), ..ground.clone() };
    let mut found = look(ground).await?;
    if let Some(p) = found.layout.ext() {
        let why = p.not_replayed().map(str::to_owned).or_else(|| p.read_only.clone());
        why.map_or(Ok(()), |why| Err(VolumeError(why)))?;
    }
    let (at, mut did) = recover_at(&mut found, ground, (options, None)).await?;
    let store = at.store.clone();
    if found.layout.has_leftovers() {
        let has_log = ground.log.is_some();
        let mode = found.layout.ext().map_or(options.mode, |p| p.usual_mode(has_log));
        let volume = found.layout.load(at, OpenOptions { mode, ..options.clone() }).await;
        let closed = match volume {
            Ok(v) => v.close().await.map_err(|e| VolumeError(format!("closing: {e}"))),
            Err(e) => Err(e),
        };
        let layout = match closed {
            Ok(()) => look_in(&*found.store, &*store, ground).await,
            Err(e) => Err(e),
        };
        if layout.is_err() {
            store.give_up().await;
        }
        did.freed = !layout?.has_leftovers(); // else there was no room
    }
    store.close().await?;
    Ok(did)
}

/// Recovers a copy that was taken while the volume stood still ([`vfs::Request::Freeze`]): all that
/// a log outside held was in its place too, so that the copy does without it.
pub async fn recover_copy(
    ground: &Ground,
    options: &OpenOptions,
) -> Result<Recovered, VolumeError> {
    let found = look(ground).await?;
    if let Some(probe) = found.layout.ext().filter(|p| p.log_is_outside()) {
        log::leave(&place(&found, ground, false).await?, probe).await?;
    }
    let in_segments = found.store.is_segments();
    if let Some(probe) = found.layout.ext().filter(|_| !in_segments) {
        mmp::clear(&place(&found, ground, false).await?, &probe.superblock).await?;
    }
    let did = recover(ground, options).await?;
    if in_segments {
        // Whatever counts the superblock has, no group has brought up to date.
        let options = OpenOptions { mode: Mode::IN_SEGMENTS, watch: None, ..options.clone() };
        let volume = open(None, ground.clone(), options, None).await.map_err(VolumeError)?;
        volume.close().await.map_err(|e| VolumeError(format!("closing: {e}")))?;
    }
    Ok(did)
}

/// An opened volume on its store.
struct Stacked {
    env: Env,
    volume: Rc<dyn Volume>,
    store: Rc<dyn Store>,
    plant: Plant,
    /// Both stand still until then, for whoever copies the disk, or are about to.
    still: Cell<Option<Nanos>>,
}

/// Bugs that can be planted in answering for a volume that another machine may have taken over.
pub const WRITER_PLANTS: &[&str] = &["woken-writer-answers"];

impl Volume for Stacked {
    fn call(self: Rc<Self>, call: Call) -> Local<'static, Answer> {
        match call.request {
            Request::Snapshot(op) => Box::pin(async move {
                Answer::from(snapshots::in_use(&self.env, &self.volume, &*self.store, op).await)
            }),
            Request::Freeze { most } => Box::pin(async move { self.freeze(most, call).await }),
            Request::Thaw => Box::pin(async move { self.thaw(call).await }),
            Request::Info | Request::Forget { .. } => self.volume.clone().call(call),
            _ if self.store.asked_of().is_some() => Box::pin(self.answer_when_sure(call)),
            _ => self.volume.clone().call(call),
        }
    }
    fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>> {
        Box::pin(async move {
            if let Err(e) = self.volume.clone().close().await {
                self.store.give_up().await;
                return Err(e);
            }
            self.store.close().await.map_err(|e| {
                tracing::error!("closing the store: {e}");
                FsError::Io
            })
        })
    }
}

impl Stacked {
    fn new(env: Env, volume: Rc<dyn Volume>, store: Rc<dyn Store>, plant: Plant) -> Stacked {
        Stacked { env, volume, store, plant, still: Cell::default() }
    }

    fn is_still(&self) -> bool {
        self.still.get().is_some_and(|until| self.env.now() < until)
    }

    /// The store first: what the volume has at last is not moved any more.
    async fn freeze(&self, most: Nanos, call: Call) -> Answer {
        if self.is_still() {
            return Answer::error(FsError::Busy);
        }
        let until = self.env.now().plus(most);
        self.still.set(Some(until));
        self.store.be_still(until).await;
        let answer = self.volume.clone().call(call).await;
        if answer.result.is_err() && self.still.get() == Some(until) {
            self.go_on().await;
        }
        answer
    }

    /// Who comes too late lets go of nothing: another one may hold the volume by now.
    async fn thaw(&self, call: Call) -> Answer {
        if !self.is_still() {
            return Answer::error(FsError::Stale);
        }
        let answer = self.volume.clone().call(call).await;
        self.go_on().await;
        answer
    }

    async fn go_on(&self) {
        self.still.set(None);
        self.store.be_still(self.env.now()).await;
    }

    /// Answers when it is known that the volume was not taken over by another machine meanwhile.
    async fn answer_when_sure(self: Rc<Self>, call: Call) -> Answer {
        let answer = self.volume.clone().call(call).await;
        match self.store.asked_of().filter(|_| !self.plant.is("woken-writer-answers")) {
            Some(of) if of.sure().await.is_err() => Answer::error(FsError::Io),
            _ => answer,
        }
    }
}

async fn open(
    found: Option<Found>,
    ground: Ground,
    options: OpenOptions,
    shared: Option<Rc<SharedLog>>,
) -> Result<Rc<dyn Volume>, String> {
    let text = |e: VolumeError| e.0;
    // A snapshot stays as it is: there is nothing to be followed.
    let follow = options.bucket.follow.filter(|_| ground.snapshot.is_none());
    if let (Some(within), true) = (follow, options.read_only) {
        return following::open(ground, options, within).await.map_err(text);
    }
    let mut found = match found {
        Some(found) => found,
        None => look(&ground).await.map_err(text)?,
    };
    let asked = options.cleaner.is_some()
        || options.cleaning.is_some()
        || options.thresholds.is_some()
        || options.reorganise.is_some();
    if asked && !found.store.takes_policy() {
        return Err(format!(
            "--cleaner, --cleaning, --cleaner-thresholds and --reorganise are for volumes in a \
             log-structured store on a disk: this one's store is a {}",
            found.store.name()
        ));
    }
    let done = recover_at(&mut found, &ground, (&options, shared)).await;
    let (at, _) = done.map_err(text)?;
    let (env, store, plant) = (at.ground.env.clone(), at.store.clone(), options.plant);
    let loaded = found.layout.load(at, options).await;
    if loaded.is_err() {
        store.give_up().await;
    }
    let volume = loaded.map_err(text)?;
    crate::asks::start(&env, &volume, &store);
    Ok(Rc::new(Stacked::new(env, volume, store, plant)))
}

/// Opens one of several volumes that share a log. If it cannot be opened, the others do not wait
/// for it to make room.
async fn open_member(
    found: Found,
    ground: Ground,
    options: OpenOptions,
    shared: Rc<SharedLog>,
) -> Result<Rc<dyn Volume>, String> {
    let (id, _) = found.layout.id_in_log();
    let opened = open(Some(found), ground, options, Some(shared.clone())).await;
    opened.inspect_err(|_| shared.leave(id))
}

/// What a monitor needs to open the volume on `DiskId(0)` with `disk_bytes`: it is recovered if
/// that is necessary, and loaded. `found`: what a look has shown; None: it looks itself.
pub fn opener(found: Option<Found>, disk_bytes: u64, options: OpenOptions) -> Open {
    Box::new(move |env| -> Opening {
        let mut ground = Ground::alone(env, disk_bytes, options.log_disk_bytes);
        (ground.plant, ground.bucket) = (options.plant, options.bucket.clone());
        (ground.cleaner, ground.cleaning) = (options.cleaner, options.cleaning);
        (ground.thresholds, ground.reorganise) = (options.thresholds, options.reorganise);
        ground.discards = options.discards;
        ground.snapshot = options.snapshot.clone();
        Box::pin(open(found, ground, options, None))
    })
}

/// Opens the volume on this ground, inside the engine that the ground is in. Errors: a sentence for
/// the user.
pub async fn open_on(ground: Ground, options: OpenOptions) -> Result<Rc<dyn Volume>, String> {
    let ground = Ground { bucket: options.bucket.clone(), ..ground };
    open(None, ground, options, None).await
}

/// The same as [`opener`] for several volumes that share one log outside: each with its bytes, on
/// the engine's first disks in this order, with the log on the disk after theirs. Errors: two have
/// one UUID.
pub fn openers(volumes: Vec<(Found, u64, OpenOptions)>) -> Result<OpenAll, VolumeError> {
    let members: Vec<_> = volumes.iter().map(|(f, ..)| f.layout.id_in_log()).collect();
    for (i, (id, _)) in members.iter().enumerate() {
        if members[..i].iter().any(|(other, _)| other == id) {
            let why = "two volumes have the same UUID: a log tells its users apart by that";
            return Err(VolumeError(format!("{why} (tune2fs -U random)")));
        }
    }
    Ok(Box::new(move |env: Env| {
        let shared = Rc::new(SharedLog::new(members));
        let log = DiskId(u16::try_from(volumes.len()).expect("volumes are not that many"));
        let one = |(n, (found, own_bytes, options)): (u16, (Found, u64, OpenOptions))| -> Opening {
            let log = options.log_disk_bytes.map(|bytes| (log, bytes));
            let ground = Ground { log, ..Ground::alone(env.clone(), own_bytes, None) };
            let (cleaner, cleaning) = (options.cleaner, options.cleaning);
            let (thresholds, reorganise) = (options.thresholds, options.reorganise);
            let (own, discards) = (DiskId(n), options.discards);
            let ground =
                Ground { own, cleaner, cleaning, thresholds, reorganise, discards, ..ground };
            Box::pin(open_member(found, ground, options, shared.clone()))
        };
        (0..).zip(volumes).map(one).collect()
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use env::{Disk, DiskError};
    use std::cell::RefCell;
    use vfs::{Reply, SnapshotOp};

    /// A volume that answers as it is told to, and a store that notes until when it is still.
    #[derive(Default)]
    struct Told {
        answer: Cell<Option<FsError>>,
        asked: RefCell<Vec<&'static str>>,
        still: Cell<Nanos>,
    }

    impl Volume for Told {
        fn call(self: Rc<Self>, call: Call) -> Local<'static, Answer> {
            self.asked.borrow_mut().push(match call.request {
                Request::Freeze { .. } => "freeze",
                Request::Thaw => "thaw",
                _ => "something else",
            });
            let answer = self.answer.get().map_or(Ok(Reply::Done), Err);
            Box::pin(async move { Answer::from(answer) })
        }
        fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>> {
            Box::pin(async { Ok(()) })
        }
    }

    /// It takes long for a snapshot.
    struct Still(Rc<Told>, Env);

    impl Store for Still {
        fn disk(&self) -> Rc<dyn Disk> {
            unreachable!("nothing is read")
        }
        fn snapshot(&self, op: SnapshotOp, _: u64) -> Local<'_, Result<Reply, FsError>> {
            Box::pin(async move {
                if let SnapshotOp::Make(_) = op {
                    self.1.sleep(MOST).await;
                }
                Ok(Reply::Done)
            })
        }
        fn be_still(&self, until: Nanos) -> Local<'_, ()> {
            self.0.still.set(until);
            Box::pin(async {})
        }
        fn close(&self) -> Local<'_, Result<(), DiskError>> {
            Box::pin(async { Ok(()) })
        }
    }

    const MOST: Nanos = Nanos::from_secs(60);

    /// Runs this on a volume, with a call of it.
    fn run<F: Future<Output = ()> + 'static>(
        test: impl FnOnce(Env, Rc<Told>, Rc<Stacked>) -> F + 'static,
    ) {
        let mut world = sim::World::new(sim::Image::new(4096));
        sim::block_on(&mut world, |env, _| async move {
            let told = Rc::new(Told::default());
            let (volume, store) = (told.clone(), Rc::new(Still(told.clone(), env.clone())));
            let stacked = Stacked::new(env.clone(), volume, store, Plant::default());
            test(env, told, Rc::new(stacked)).await;
        });
    }

    async fn ask(stacked: &Rc<Stacked>, request: Request) -> Option<FsError> {
        stacked.clone().call(Call::local(request)).await.result.err()
    }

    #[test]
    fn a_store_whose_volume_did_not_come_to_rest_goes_on() {
        run(|env, told, stacked| async move {
            told.answer.set(Some(FsError::Io));
            assert_eq!(ask(&stacked, Request::Freeze { most: MOST }).await, Some(FsError::Io));
            assert!(told.still.get() <= env.now(), "it stands still for nobody");
            told.answer.set(None);
            assert_eq!(ask(&stacked, Request::Freeze { most: MOST }).await, None);
            assert_eq!(told.still.get(), env.now().plus(MOST));
            assert_eq!(ask(&stacked, Request::Thaw).await, None);
            assert!(told.still.get() <= env.now());
        });
    }

    #[test]
    fn it_stands_still_for_the_first_who_asks_until_he_lets_go() {
        run(|env, told, stacked| async move {
            assert_eq!(ask(&stacked, Request::Freeze { most: MOST }).await, None);
            let until = env.now().plus(MOST);
            let less = Nanos::from_secs(1);
            assert_eq!(ask(&stacked, Request::Freeze { most: less }).await, Some(FsError::Busy));
            assert_eq!(told.still.get(), until, "another one's failure ends nothing");
            env.sleep(MOST).await;
            // By now the volume may stand still for a snapshot, which goes past this.
            assert_eq!(ask(&stacked, Request::Thaw).await, Some(FsError::Stale));
            assert_eq!(*told.asked.borrow(), ["freeze"], "what is another's is let go");
            assert_eq!(ask(&stacked, Request::Freeze { most: MOST }).await, None);
        });
    }

    #[test]
    fn a_snapshot_that_took_too_long_lets_nobody_go() {
        run(|_, told, stacked| async move {
            let make = Request::Snapshot(SnapshotOp::Make("late".into()));
            assert_eq!(ask(&stacked, make).await, Some(FsError::Busy));
            // By now the volume may stand still for a copy.
            assert_eq!(*told.asked.borrow(), ["freeze"], "what is another's is let go");
        });
    }
}

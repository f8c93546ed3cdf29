//! One run: machines that open one volume in a bucket, one after the other and at the same time,
//! each with a volume of its own in one virtual world; and a last one, to which nothing happens.
//!
//! Invariants:
//! * W1. Machines have ways of their own: none answers through another's.

use super::follow;
use super::history::History;
use super::plan::{CALM, Case, Plan, Shots};
use super::shots::Album;
use crate::acts::Act;
use crate::perform::perform;
use crate::promised::answered_durably;
use crate::random::random_act;
use crate::seen::paths;
use crate::setting::{JUDGED_SECS, SimDevice};
use bucket::{AtRest, Pace};
use check::{Options, check};
use env::{BUCKET_BYTES, Bucket, Disk, DiskId, Env, Local, Nanos, Rng};
use format::mkfs::{MkfsOptions, Profile};
use integrity::Plant;
use sim::{Image, Machine, Machines, Objects, SimBucket, Way, World, block_on};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::OnceLock;
use vfs::{Answer, Call, FsError, Reply, Request, Volume};
use volume::{BucketOptions, Commit, Ground, Mode, OpenOptions, TakeOver};

/// Operations of each machine.
const ACTS: u64 = 24;
/// A writer that was not heard of for so long is silent.
pub(super) const SILENT: Nanos = Nanos::from_secs(1);
const VOLUME_BYTES: u64 = 4 << 20;
/// Often enough that most of what happens is in the middle of one.
pub(super) const PACE: Pace = Pace { checkpoint_objects: 7, slack_blocks: 24, keep: Nanos(0) };
/// A network may fail even the last machine, but not for ever.
const TRIES: u64 = 5;
/// The disk of who checks is behind those of all machines, and of who looks at snapshots.
const CHECKER: u16 = 200;

/// What a new volume in a bucket is.
fn fresh() -> Objects {
    static FRESH: OnceLock<Objects> = OnceLock::new();
    let made = || {
        let mut world = World::new(Image::new(4096));
        block_on(&mut world, |env, _| async move {
            let bucket = SimBucket::new(env.clone(), 1, CALM);
            let way: Rc<dyn Bucket> = Rc::new(Way(bucket.machine(None)));
            let options = MkfsOptions {
                block_bytes: lfs::BLOCK_BYTES,
                inodes: Some(256),
                uuid: *crate::setting::VOLUME,
                ..MkfsOptions::plain(VOLUME_BYTES, Profile::Ext2)
            };
            let made = volume::make_in_bucket(env, way, &options, (false, AtRest::default())).await;
            made.expect("a small volume can be made");
            bucket.objects()
        })
    };
    FRESH.get_or_init(made).clone()
}

/// How many requests the first machine makes if nothing happens.
pub(crate) fn requests(seed: u64) -> u64 {
    let counted = Rc::new(RefCell::new(0));
    let into = counted.clone();
    let alone = move |all: All| async move {
        let way = all.bucket.machine(None);
        let ended = one(&all, ("first", 0), way.clone(), TakeOver::Insist).await;
        *into.borrow_mut() = way.requests();
        ended
    };
    let _ = in_world((seed, &Plan::calm(), Plant::NONE), alone); // who else runs it tells why
    let n: u64 = *counted.borrow();
    n.max(1)
}

/// What all machines of a run share.
#[derive(Clone)]
pub(super) struct All {
    pub(super) env: Env,
    pub(super) bucket: SimBucket,
    pub(super) machines: Machines,
    history: History,
    pub(super) album: Album,
    shots: Shots,
    alone: bool,
    pub(super) seed: u64,
    pub(super) plant: Plant,
}

fn in_world<F>(
    (seed, plan, plant): (u64, &Plan, Plant),
    f: impl FnOnce(All) -> F,
) -> Result<(), String>
where
    F: Future<Output = Result<(), String>> + 'static,
{
    let mut world = World::new(Image::new(4096));
    let (machines, trouble, objects) = (world.machines(), plan.trouble, fresh());
    let (shots, alone) = (plan.shots, plan.alone);
    block_on(&mut world, move |env, _| {
        let bucket = SimBucket::of(env.clone(), objects, (seed, trouble));
        let (history, album) = (History::default(), Album::default());
        f(All { env, bucket, machines, history, album, shots, alone, seed, plant })
    })
}

/// Does a run. Errors: what was broken.
/// `tell`: prints what led to that.
pub(crate) fn run(case: Case, plant: Plant, tell: bool) -> Result<(), String> {
    let plan = case.plan();
    if case.scenario.follows {
        let (cut, calm) = (plan.cuts[1], plan.trouble.is_none());
        let f = move |all| async move { follow::both(all, cut, calm).await.map(|_| ()) };
        return in_world((case.seed, &plan, plant), f);
    }
    let seed = case.seed;
    in_world((seed, &case.plan(), plant), move |all| async move {
        let broken = all_machines(&all, &plan).await;
        // All that is late has come, and whoever stood still goes on.
        all.env.sleep(Nanos::from_secs(25)).await;
        let last = last_machine(&all).await;
        if let Some(why) = broken.borrow_mut().take() {
            return Err(why);
        }
        last?;
        if let Some(name) = all.bucket.overwritten().first() {
            return Err(format!("broken: {name} was overwritten"));
        }
        // Who judges is on no network.
        let as_it_is = SimBucket::of(all.env.clone(), all.bucket.objects(), (1, CALM));
        let seen = all.env.now();
        let way: Rc<dyn Bucket> = Rc::new(Way(as_it_is.machine(None)));
        let epochs = bucket::writers(&way).await.map_err(|why| format!("broken: {why}"))?;
        // A fence under a name that had been used before does not count: its writer tried again.
        let order: Vec<String> = epochs.into_iter().map(|(_, writer)| writer).collect();
        let again = |n: usize| order[n + 1..].contains(&order[n]);
        let order: Vec<String> =
            (0..order.len()).filter(|n| !again(*n)).map(|n| order[n].clone()).collect();
        if tell {
            all.history.tell();
            eprintln!("in the order of their epochs: {}", order.join(", "));
        }
        all.history.judge((&order, seen), Nanos(SILENT.0 / 2))
    })
}

/// The first broken promise.
type Broken = Rc<RefCell<Option<String>>>;

/// Starts them, and waits until they have ended, were killed, or wait for others.
async fn all_machines(all: &All, plan: &Plan) -> Broken {
    let broken = Broken::default();
    let running = Rc::new(RefCell::new(Vec::new()));
    let ways: Vec<Rc<Machine>> = plan.cuts.iter().map(|cut| all.bucket.machine(*cut)).collect();
    for (n, name) in ["first", "second", "third"].into_iter().enumerate() {
        match n {
            0 => (),
            1 => {
                let first = &ways[0];
                let done = || running.borrow().contains(&0) || first.is_killed();
                while first.requests() < plan.second.0 && !done() {
                    all.env.sleep(Nanos::from_millis(1)).await;
                }
                all.env.sleep(plan.second.1).await;
            }
            _ => all.env.sleep(plan.third).await,
        }
        let waits = n == 1 || n == 2 && plan.third_too;
        let take_over = if waits { plan.take_over } else { TakeOver::Insist };
        let clones = n == 1 && plan.shots == Shots::Cloned;
        let (all, way, broken) = (all.clone(), ways[n].clone(), broken.clone());
        let (ended, env) = (running.clone(), all.env.clone());
        env.spawn("machine", async move {
            let end = match clones {
                true => all.album.clone_one(&all, &way).await,
                false => one(&all, (name, n as u16), way, take_over).await,
            };
            let end = match all.alone && n == 0 {
                true => end.map_err(|why| format!("broken: nobody else was there: {why}")),
                false => end,
            };
            if let Some(why) = end.err().filter(|why| is_broken(why)) {
                broken.borrow_mut().get_or_insert(why);
            }
            ended.borrow_mut().push(n);
        });
    }
    for _ in 0..30 {
        let over = |n: &usize| running.borrow().contains(n) || ways[*n].is_killed();
        if (0..ways.len()).all(|n| over(&n)) {
            break;
        }
        all.env.sleep(Nanos::from_secs(1)).await;
    }
    broken
}

/// Being refused is no broken promise; damage is.
fn is_broken(why: &str) -> bool {
    ["broken:", "is damaged", "not valid"].iter().any(|w| why.contains(w))
}

/// What a call of a machine was answered.
fn told(name: &str, e: FsError) -> String {
    let damage = if e == FsError::Corrupt { "broken: " } else { "" };
    format!("{damage}{name}: {e:?}")
}

async fn last_machine(all: &All) -> Result<(), String> {
    let mut told = String::new();
    for n in 0..TRIES {
        let (name, id) = (format!("last {n}"), 3 + n as u16);
        let way = all.bucket.machine(None);
        match one(all, (&name, id), way, TakeOver::Insist).await {
            Ok(()) => {
                sound(all).await?;
                return all.album.judge(all).await;
            }
            Err(why) if is_broken(&why) => return Err(why),
            Err(why) => told = why,
        }
    }
    Err(format!("broken: nobody can open the volume any more: {told}"))
}

pub(super) fn ground(all: &All, id: u16) -> Ground {
    let ground = Ground::alone(all.env.clone(), BUCKET_BYTES, None);
    Ground { own: DiskId(id), plant: all.plant, ..ground }
}

/// The checker on what is there in the end, and the table against the objects.
async fn sound(all: &All) -> Result<(), String> {
    // Who judges is on no network: what he cannot read is not there.
    let as_it_is = SimBucket::of(all.env.clone(), all.bucket.objects(), (1, CALM));
    all.machines.attach(DiskId(CHECKER), as_it_is.machine(None));
    let broken = |why: String| format!("broken: {why}");
    let store = volume::open_bucket(&ground(all, CHECKER), true).await;
    let store = store.map_err(|e| broken(e.to_string()))?;
    let wrong = store.verify().await.map_err(|e| broken(e.to_string()))?;
    if let Some(what) = wrong.first() {
        return Err(format!("broken: {what}"));
    }
    let mut image = Image::new(store.size_bytes());
    let copied = volume::copy_out(&store, store.mapped(), |at, bytes| {
        image.write(at, bytes);
        Ok(())
    });
    copied.await.map_err(|e| broken(e.to_string()))?;
    let options = Options { now_secs: JUDGED_SECS, verify: false, mark_clean: false };
    let report = check(&SimDevice(image), &options, &mut ());
    let mut report = report.map_err(|e| broken(e.to_string()))?;
    report.leave_out_totals(); // the last machine, too, may have been unable to close it
    match report.findings.first() {
        Some(finding) => Err(format!("broken: the checker finds {finding}")),
        None => Ok(()),
    }
}

/// One machine: opens the volume, looks, works, and closes it, mostly. Errors: it may not, or what
/// is broken.
async fn one(
    all: &All,
    (name, id): (&str, u16),
    way: Rc<Machine>,
    take_over: TakeOver,
) -> Result<(), String> {
    all.machines.attach(DiskId(id), way.clone());
    assert!(id < CHECKER, "W1: machine {id} has the way of who checks");
    let mut rng = Rng::new(all.seed.wrapping_mul(31).wrapping_add(u64::from(id)));
    let commit = if all.seed.is_multiple_of(2) { Commit::Async } else { Commit::Sync };
    let writer = name.to_owned();
    let rest = BucketOptions::default();
    let bucket = BucketOptions { take_over, after: SILENT, writer, pace: PACE, ..rest };
    let plain = OpenOptions::plain(Mode::Lfs, 1 << 20, [9; 16]);
    let options = OpenOptions { commit, plant: all.plant, bucket, ..plain };
    let returned = options.returned_is_durable();
    let volume = volume::open_on(ground(all, id), options).await?;
    let text = |e: FsError| told(name, e);
    let found = paths(&volume, true, false).await.map_err(text)?;
    let notes = notes(&volume).await;
    let me = all.history.open((name, all.env.now()), (found, notes))?;
    for _ in 0..ACTS {
        if way.is_killed() {
            return Ok(());
        }
        let act = random_act(&mut rng, &all.history.now(me));
        let durable = rng.one_in(3);
        if !work(all, &volume, me, (act, durable, returned)).await? {
            return if all.alone && id == 0 {
                Err("it takes nothing any more".into())
            } else {
                Ok(())
            };
        }
        if rng.one_in(3) {
            sync_beside(all, &volume, me);
            all.env.sleep(Nanos::from_millis(rng.below(40))).await;
        }
        if all.shots != Shots::None && rng.one_in(5) && !way.is_killed() {
            let now = (me, all.history.now(me));
            all.album.work(&volume, now, &mut rng).await;
        }
        if rng.one_in(12) {
            all.env.sleep(Nanos::from_secs(rng.below(3))).await;
        }
    }
    if id > 2 || !rng.one_in(3) {
        volume.close().await.map_err(text)?;
    }
    Ok(())
}

/// Does one act. False: the volume takes nothing any more.
async fn work(
    all: &All,
    volume: &Rc<dyn Volume>,
    me: usize,
    (act, durable, returned): (Act, bool, bool),
) -> Result<bool, String> {
    let (want, changes) = all.history.begin(me, &act);
    let begun = all.history.begun(me);
    let noted: Rc<dyn Volume> = Rc::new(Noted(volume.clone(), History::note(me, begun)));
    // There is room for all: what is cut short is not what was asked.
    let got = perform(&noted, &act, durable, &mut None).await;
    let got = got.and_then(|done| if done == act { Ok(()) } else { Err(FsError::NoSpace) });
    if !matches!(got, Err(FsError::Io | FsError::ReadOnly)) {
        all.history.answered(me, all.env.now());
    }
    match (got, want) {
        (Ok(()), Ok(())) => {
            // Of one that changes nothing, nothing is promised.
            let told = returned || durable && answered_durably(&act);
            if act == Act::Sync || changes && told {
                all.history.acknowledge(me, begun);
            }
            Ok(true)
        }
        (Err(FsError::Io | FsError::ReadOnly), _) => Ok(false),
        (got, want) if got == want => Ok(true),
        (got, want) => Err(format!("broken: {act:?}: {got:?} and not {want:?}")),
    }
}

/// The volume, with a note on each call.
struct Noted(Rc<dyn Volume>, u128);

impl Volume for Noted {
    fn call(self: Rc<Self>, call: Call) -> Local<'static, Answer> {
        self.0.clone().call(Call { note: Some(self.1), ..call })
    }
    fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>> {
        self.0.clone().close()
    }
}

/// The notes that the volume was opened with.
async fn notes(volume: &Rc<dyn Volume>) -> BTreeSet<u128> {
    match volume.clone().call(Call::local(Request::Info)).await.result {
        Ok(Reply::Info(info)) => info.done.iter().flat_map(|all| all.iter().copied()).collect(),
        _ => BTreeSet::new(),
    }
}

/// Somebody asks for all to be durable while others go on.
fn sync_beside(all: &All, volume: &Rc<dyn Volume>, me: usize) {
    let (all, volume, begun) = (all.clone(), volume.clone(), all.history.begun(me));
    all.env.clone().spawn("sync", async move {
        if perform(&volume, &Act::Sync, false, &mut None).await.is_ok() {
            all.history.acknowledge(me, begun);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_no_refusal() {
        assert!(is_broken(&told("first", FsError::Corrupt)));
        for e in [FsError::Io, FsError::ReadOnly, FsError::NoSpace] {
            assert!(!is_broken(&told("first", e)), "{e:?}");
        }
    }
}

//! A volume in the virtual world: made, opened, asked, read back.
//!
//! Invariants:
//! * B1. Each volume has a disk, and all of them one log at the most; the volume that is asked is
//!   one of them.
//! * B2. A caller stays with one volume, and each act has one caller.
//! * B3. Time passes while somebody waits for it: whoever lets so much pass is so much later.
//! * B4. An answer is put in its place once.

use crate::acts::{Act, ino_of};
use crate::perform::{Holds, give_back, perform, stand_still};
use crate::record::RUN_SECS;
use crate::scenario::groups;
use crate::seen::paths;
use env::{Engine, Env, Nanos};
use format::ext::Geometry;
use integrity::Plant;
use sim::timing::{Jitter, Timing};
use sim::{Fault, Image, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use vfs::{Answer, Call, FsError, OpenAll, Reply, Request, Volume};
use volume::{AfterCrash, OpenOptions};

pub use crate::seen::Seen;
pub use crate::setting::{Setting, SimDevice, VolumeKind, fresh, recover};
pub(crate) use crate::setting::{VOLUME, new_disks};

/// What a caller of a volume does, from its beginning to its end.
pub(crate) type Task =
    Box<dyn FnOnce(Env, Rc<dyn Volume>) -> env::Local<'static, Result<(), FsError>>>;

/// So much time passes at least between two acts of a caller whose clock is looked at.
const TICK: Nanos = Nanos(1000);
/// More groups than the volumes of other scenarios have.
const MANY_GROUPS: u32 = 16;

/// Opened volumes with their world. One of them is asked.
pub struct Subject {
    /// The world they are in.
    pub world: World,
    engine: Engine,
    volume: Rc<dyn Volume>,
    all: Vec<Rc<dyn Volume>>,
}

impl Subject {
    /// Opens the volumes on these disks, with their log on the last where that is outside.
    pub fn open(
        disks: Vec<Image>,
        setting: Setting,
        read_only: bool,
        (plant, seed): (Plant, u64),
    ) -> Result<Subject, String> {
        // With some seeds the journals commit, and write back, in the middle of everything.
        let often = seed % 3 != 0 && setting.is_prefix();
        Subject::open_with_interval(disks, setting, (read_only, often, None), (plant, seed))
    }

    /// The same to be recorded, later than any setup: with some seeds, what keeps its order by
    /// waves writes back in the middle of everything, too.
    pub(crate) fn open_to_record(
        disks: Vec<Image>,
        setting: Setting,
        (plant, seed): (Plant, u64),
    ) -> Result<Subject, String> {
        let in_waves = setting.mode.info().after_crash == AfterCrash::GiveBack;
        let often = seed % 3 != 0 && setting.is_prefix() || seed % 3 == 2 && in_waves;
        let begins = Some(RUN_SECS);
        Subject::open_with_interval(disks, setting, (false, often, begins), (plant, seed))
    }

    fn open_with_interval(
        disks: Vec<Image>,
        setting: Setting,
        (read_only, often, begins): (bool, bool, Option<u64>),
        (plant, seed): (Plant, u64),
    ) -> Result<Subject, String> {
        let commit_interval = if often { Nanos::from_micros(500) } else { Nanos::from_secs(5) };
        let options = OpenOptions {
            read_only,
            plant,
            commit_interval,
            cleaner: setting.in_segments().then(|| cleaner(plant, seed)),
            ..setting.open_options(cache_bytes(&disks[0]))
        };
        let mut timings: Vec<Box<dyn Timing>> = Vec::new();
        if seed % 2 == 1 {
            // Writes overtake one another.
            let jitter = |n| -> Box<dyn Timing> { Box::new(Jitter::new(seed ^ n)) };
            timings = (0..disks.len() as u64).map(jitter).collect();
        }
        Subject::open_all((disks, setting.volumes), options, timings, (seed, begins))
    }

    /// Opens the volumes on these disks with these options, their log on the last disk if it is
    /// outside; `timings` is a model for each disk, or nothing.
    pub(crate) fn open_several(
        all: (Vec<Image>, u16),
        options: OpenOptions,
        timings: Vec<Box<dyn Timing>>,
        seed: u64,
    ) -> Result<Subject, String> {
        Subject::open_all(all, options, timings, (seed, None))
    }

    /// The same of several volumes, without models.
    #[cfg(test)]
    pub(crate) fn open_with(
        all: (Vec<Image>, u16),
        options: OpenOptions,
        seed: u64,
    ) -> Result<Subject, String> {
        Subject::open_all(all, options, Vec::new(), (seed, None))
    }

    fn open_all(
        (disks, volumes): (Vec<Image>, u16),
        options: OpenOptions,
        timings: Vec<Box<dyn Timing>>,
        (seed, begins): (u64, Option<u64>),
    ) -> Result<Subject, String> {
        let mut world = world_of(&disks);
        begins.into_iter().for_each(|secs| world.set_epoch(secs));
        if !timings.is_empty() {
            world.set_timings(timings);
        }
        let (engine, all) = open_in(&mut world, (&disks, volumes), options, seed)?;
        assert_eq!(all.len(), usize::from(volumes), "B1: so many volumes are open");
        Ok(Subject { world, engine, volume: all[0].clone(), all })
    }

    /// Opens a volume while its disk fails. Err: it could not be opened, and why; with what its
    /// disk was asked.
    pub(crate) fn open_failing(
        disks: &[Image],
        setting: Setting,
        fault: Fault,
        seed: u64,
    ) -> Result<Subject, (Box<World>, String)> {
        let mut world = world_of(disks);
        world.set_fault(fault);
        let options = setting.open_options(cache_bytes(&disks[0]));
        match open_in(&mut world, (disks, setting.volumes), options, seed) {
            Ok((engine, all)) => Ok(Subject { world, engine, volume: all[0].clone(), all }),
            Err(why) => Err((Box::new(world), why)),
        }
    }

    /// Leaves everything as it stands. Those who wait for ever hold one another, and nobody could
    /// be woken when they go.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }

    /// From now on the n-th volume is asked.
    pub(crate) fn turn_to(&mut self, n: u16) {
        self.volume = self.all[usize::from(n)].clone();
    }

    /// Asks and waits; the trace has a mark when it began and when it was answered (twice `number`,
    /// and one more).
    pub fn ask(&mut self, number: u64, request: Request) -> Result<Reply, FsError> {
        self.call(number, Call::local(request)).result
    }

    /// The same for a caller of any kind.
    pub fn call(&mut self, number: u64, call: Call) -> Answer {
        self.world.mark(2 * number);
        let slot = Rc::new(RefCell::new(None));
        let answered = slot.clone();
        let mut call = Some((self.volume.clone(), call, slot.clone()));
        self.world.run(
            &mut self.engine,
            move |env| {
                if let Some((v, call, slot)) = call.take() {
                    env.spawn("call", async move {
                        *slot.borrow_mut() = Some(v.call(call).await);
                    });
                }
            },
            |_| answered.borrow().is_some(),
        );
        self.world.mark(2 * number + 1);
        slot.borrow_mut().take().expect("it was answered")
    }

    /// Starts tasks beside one another and turns the world until all of them have ended. Each gets
    /// the volume and the engine's handle.
    #[cfg(test)]
    pub(crate) fn together(&mut self, tasks: Vec<Task>) -> Result<(), FsError> {
        let volume = self.volume.clone();
        self.each(tasks.into_iter().map(|t| (volume.clone(), t)).collect())
    }

    /// The same with the volumes in turn: the n-th task gets the n-th, and after the last the first
    /// again.
    pub(crate) fn spread(&mut self, tasks: Vec<Task>) -> Result<(), FsError> {
        let volumes = self.all.clone();
        self.each(volumes.into_iter().cycle().zip(tasks).collect())
    }

    fn each(&mut self, tasks: Vec<(Rc<dyn Volume>, Task)>) -> Result<(), FsError> {
        let count = tasks.len();
        let ended = Rc::new(RefCell::new(Vec::new()));
        let (mut tasks, into) = (tasks, ended.clone());
        self.world.run(
            &mut self.engine,
            move |env| {
                for (volume, task) in std::mem::take(&mut tasks) {
                    let (future, into) = (task(env.clone(), volume), into.clone());
                    env.spawn("task", async move {
                        let result = future.await;
                        into.borrow_mut().push(result);
                    });
                }
            },
            |_| ended.borrow().len() == count,
        );
        ended.borrow().iter().copied().collect()
    }

    /// The same, each with the volume that it is for, and until `limit` has passed: Err says how
    /// many have not ended then.
    #[cfg(test)]
    pub(crate) fn together_within(
        &mut self,
        tasks: Vec<(u16, Task)>,
        limit: Nanos,
    ) -> Result<Vec<Result<(), FsError>>, String> {
        let count = tasks.len();
        let ended = Rc::new(RefCell::new(Vec::new()));
        let (volumes, into) = (self.all.clone(), ended.clone());
        let (mut tasks, end) = (tasks, self.world.now() + limit.0);
        self.world.run(
            &mut self.engine,
            move |env| {
                for (of, task) in std::mem::take(&mut tasks) {
                    let (volume, into) = (volumes[usize::from(of)].clone(), into.clone());
                    let future = task(env.clone(), volume);
                    env.spawn("task", async move {
                        let result = future.await;
                        into.borrow_mut().push(result);
                    });
                }
            },
            |w| ended.borrow().len() == count || w.now() >= end,
        );
        let all = ended.borrow().clone();
        if all.len() == count { Ok(all) } else { Err(format!("{} wait", count - all.len())) }
    }

    /// Closes the volumes, one after the other; the disks as they are then.
    pub fn close(mut self) -> Result<Vec<Image>, FsError> {
        self.shut()?;
        Ok(self.disks())
    }

    /// Closes them; the trace can still be read.
    pub(crate) fn shut(&mut self) -> Result<(), FsError> {
        self.all.clone().into_iter().try_for_each(|volume| self.close_one(volume))
    }

    fn close_one(&mut self, volume: Rc<dyn Volume>) -> Result<(), FsError> {
        let slot = Rc::new(RefCell::new(None));
        let mut volume = Some((volume, slot.clone()));
        let closed = slot.clone();
        self.world.run(
            &mut self.engine,
            move |env| {
                if let Some((v, slot)) = volume.take() {
                    env.spawn("close", async move { *slot.borrow_mut() = Some(v.close().await) });
                }
            },
            |_| closed.borrow().is_some(),
        );
        slot.borrow_mut().take().expect("it has closed")
    }

    /// The disks as reads see them: the volume's, then its log's.
    pub fn disks(&self) -> Vec<Image> {
        let mut all = vec![self.world.disk.clone()];
        all.extend(self.world.logs.iter().cloned());
        all
    }

    /// Lets virtual time pass, so that write-back runs.
    pub fn pass(&mut self, ns: u64) {
        let end = self.world.now() + ns;
        let mut armed = false;
        self.world.run(
            &mut self.engine,
            move |env| {
                if !std::mem::replace(&mut armed, true) {
                    let e = env.clone();
                    env.spawn("pass", async move { e.sleep(Nanos(ns)).await });
                }
            },
            |w| w.now() >= end,
        );
        assert!(self.world.now() >= end, "B3: it is {}, and not {end}", self.world.now());
    }

    /// The inode at a path.
    pub fn walk(&mut self, path: &str) -> Result<u32, FsError> {
        let mut at = 2;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            let request = Request::Lookup { dir: at, name: name.as_bytes().to_vec() };
            at = ino_of(&self.ask(u64::MAX / 4, request)?).ok_or(FsError::Io)?;
        }
        Ok(at)
    }

    /// Does an act.
    pub fn act(&mut self, number: u64, act: &Act) -> Result<(), FsError> {
        self.act_as_done(number, act).map(drop)
    }

    /// Does an act, and returns what was done: a write may be cut short.
    pub(crate) fn act_as_done(&mut self, number: u64, act: &Act) -> Result<Act, FsError> {
        let mut inos = Vec::new();
        for path in act.needs() {
            inos.push(self.walk(path)?);
        }
        self.ask(number, act.request(&inos)).map(|reply| act.clone().answered_by(&reply))
    }

    /// Does the acts in `lanes` callers at a time: each does every `lanes`-th of them, one after
    /// the other, and of several volumes each act is for the next one. The callers of a volume from
    /// `remote` on ask as NFS clients do; with `holding` the others hold what they have looked up
    /// for a while, as a kernel does. With `ticks` no two acts of a caller begin in one moment. The
    /// trace has marks as for `ask`. Returns what was done of
    /// each, as [`perform`] says it. None: it was not answered within `secs_max` of virtual time.
    pub(crate) fn act_in_lanes(
        &mut self,
        acts: &[Act],
        lanes: usize,
        (remote, holding, ticks): (usize, bool, bool),
        secs_max: u64,
    ) -> Vec<Option<Result<Act, FsError>>> {
        let results = Rc::new(RefCell::new(vec![None; acts.len()]));
        let (volumes, pen) = (self.all.clone(), self.world.pen());
        let shared = lanes > 0 && lanes.is_multiple_of(volumes.len());
        assert!(shared, "B2: {lanes} callers of {} volumes", volumes.len());
        let mut work: Vec<Vec<(usize, Act)>> = vec![Vec::new(); lanes];
        for (n, act) in acts.iter().enumerate() {
            work[n % lanes].push((n, act.clone()));
        }
        let into = results.clone();
        let end = self.world.now() + Nanos::from_secs(secs_max).0;
        self.world.run(
            &mut self.engine,
            move |env| {
                for (l, lane) in std::mem::take(&mut work).into_iter().enumerate() {
                    let volume = volumes[l % volumes.len()].clone();
                    let durable = l / volumes.len() >= remote;
                    let (pen, into) = (pen.clone(), into.clone());
                    let of = env.clone();
                    let mut holds = (holding && !durable).then(|| Holds::new(l as u64));
                    env.spawn("lane", async move {
                        for (n, act) in lane {
                            if ticks {
                                of.sleep(TICK).await;
                            }
                            pen.mark(2 * n as u64);
                            if let Act::Pause(secs) = act {
                                of.sleep(Nanos::from_secs(secs)).await;
                            }
                            let result = match act {
                                Act::Still(secs) => stand_still(&volume, &of, secs).await,
                                _ => perform(&volume, &act, durable, &mut holds).await,
                            };
                            pen.mark(2 * n as u64 + 1);
                            let before = into.borrow_mut()[n].replace(result);
                            assert!(before.is_none(), "B4: act {n} is answered again");
                            if let Some(h) = &mut holds {
                                give_back(&volume, h.due()).await;
                            }
                        }
                        if let Some(h) = holds {
                            give_back(&volume, h.rest()).await;
                        }
                    });
                }
            },
            |w| w.now() >= end || results.borrow().iter().all(Option::is_some),
        );
        results.borrow().clone()
    }

    /// Every path of the volume with its kind, size and (with `contents`) bytes. Without
    /// lost+found.
    pub fn tree(&mut self, contents: bool) -> Result<BTreeMap<String, Seen>, FsError> {
        self.tree_of(contents, false)
    }

    /// The same; `twice`: a directory may have two names, and is then seen under both.
    pub(crate) fn tree_of(
        &mut self,
        contents: bool,
        twice: bool,
    ) -> Result<BTreeMap<String, Seen>, FsError> {
        let (volume, slot) = (self.volume.clone(), Rc::new(RefCell::new(None)));
        let (read, mut task) = (slot.clone(), Some((volume, slot)));
        self.world.run(
            &mut self.engine,
            move |env| {
                if let Some((volume, slot)) = task.take() {
                    env.spawn("read all", async move {
                        let paths = paths(&volume, contents, twice).await;
                        slot.borrow_mut().replace(paths);
                    });
                }
            },
            |_| read.borrow().is_some(),
        );
        read.borrow_mut().take().expect("it has ended")
    }
}

fn world_of(disks: &[Image]) -> World {
    let mut world = World::new(disks[0].clone());
    world.logs = disks[1..].to_vec();
    if disks.len() > 1 {
        world.refuse_mixed_requests(); // several may look at a log that all write
    }
    world
}

/// Opens volumes in a world.
fn open_in(
    world: &mut World,
    (disks, volumes): (&[Image], u16),
    options: OpenOptions,
    seed: u64,
) -> Result<(Engine, Vec<Rc<dyn Volume>>), String> {
    let open = opener_of(disks, volumes, options)?;
    let mut engine = Engine::new(seed);
    let count = usize::from(volumes);
    let slots: Rc<RefCell<Vec<_>>> = Rc::new(RefCell::new((0..count).map(|_| None).collect()));
    let mut opening = Some((open, slots.clone()));
    let opened = slots.clone();
    world.run(
        &mut engine,
        move |env| {
            let Some((open, slots)) = opening.take() else { return };
            for (n, opening) in open(env.clone()).into_iter().enumerate() {
                let slots = slots.clone();
                env.spawn("open", async move {
                    let volume = opening.await;
                    slots.borrow_mut()[n] = Some(volume);
                });
            }
        },
        |_| opened.borrow().iter().all(Option::is_some),
    );
    let volumes = std::mem::take(&mut *slots.borrow_mut());
    let all = volumes.into_iter().flatten().collect::<Result<Vec<_>, String>>()?;
    Ok((engine, all))
}

/// Memory for the volume on this disk: hardly any for one of many groups.
fn cache_bytes(disk: &Image) -> usize {
    let found = volume::probe(&SimDevice(disk.clone()));
    let geo = found.ok().map(|p| Geometry::of(&p.superblock));
    match geo.filter(|g| g.groups > MANY_GROUPS) {
        Some(geo) => groups::CACHE_BLOCKS * geo.block_bytes,
        None => 4 << 20,
    }
}

/// The policy of a store's cleaner: with some seeds, and where bugs of plugging are looked for, it
/// plugs holes; with others, and for bugs of several heads, it keeps apart what users write.
fn cleaner(plant: Plant, seed: u64) -> lfs::Policy {
    let of_plugging = plant.0.is_some_and(|p| p.starts_with("plug"));
    let of_heads = plant.0.is_some_and(|p| p.contains("head"));
    match seed / 2 % 4 {
        _ if of_plugging => lfs::Policy::Plug,
        _ if of_heads => lfs::Policy::SepBit,
        0 => lfs::Policy::Plug,
        1 => lfs::Policy::default(),
        2 => lfs::Policy::SepBit,
        _ => lfs::Policy::CostBenefit,
    }
}

/// What opens the volumes on these disks.
fn opener_of(disks: &[Image], volumes: u16, options: OpenOptions) -> Result<OpenAll, String> {
    let (has, most) = (disks.len(), usize::from(volumes) + 1);
    assert!(volumes > 0 && (most - 1..=most).contains(&has), "B1: {volumes} on {has} disks");
    let (own, logs) = disks.split_at(usize::from(volumes));
    let log_disk_bytes = logs.first().map(Image::size);
    let options = OpenOptions { log_disk_bytes, ..options };
    if volumes == 1 {
        let open = volume::opener(None, own[0].size(), options);
        return Ok(Box::new(|env| vec![open(env)]));
    }
    let member = |disk: &Image| -> Result<_, String> {
        Ok((crate::setting::look(disk, logs.first())?, disk.size(), options.clone()))
    };
    let all = own.iter().map(member).collect::<Result<Vec<_>, String>>()?;
    volume::openers(all).map_err(|e| e.to_string())
}

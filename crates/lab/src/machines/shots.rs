//! Snapshots that machines make and delete while others take the volume over, and a clone of one: a
//! snapshot that was told to be made is there in the end, unless somebody began to delete it, and
//! shows what the volume was; one that was told to be deleted is not; and a clone shows what its
//! snapshot showed, and keeps that from being deleted.
//!
//! Invariants:
//! * X1. A snapshot is made once under its name, by the machine whose own that is.
//! * X2. One that was deleted was to be deleted.

use super::plan::CALM;
use super::run::{All, PACE, SILENT, ground};
use crate::acts::Act;
use crate::model::Model;
use crate::perform::perform;
use crate::random::differs;
use crate::seen::paths;
use bucket::CloneOptions;
use env::{DiskId, Nanos, Rng};
use sim::{Machine, SimBucket};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use vfs::{Call, Request, SnapshotOp, Volume};
use volume::{BucketOptions, Ground, Mode, OpenOptions, TakeOver};

/// What the names of a clone's objects begin with.
const CLONE: &str = "clone/";
/// The disks of who judges are behind those of all machines.
const JUDGE: u16 = 100;

/// What is known of a snapshot.
struct Shot {
    /// What it shows, if it is there.
    shows: Model,
    told: bool,
    /// Somebody has begun to delete it; and has been told that it is gone.
    ends: bool,
    ended: bool,
}

/// All snapshots of a run, and the clone.
#[derive(Clone, Default)]
pub(crate) struct Album(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    shots: BTreeMap<String, Shot>,
    /// The snapshot that is cloned, and whether that was told to be done.
    cloned: Option<(String, bool)>,
}

async fn ask(volume: &Rc<dyn Volume>, op: SnapshotOp) -> bool {
    volume.clone().call(Call::local(Request::Snapshot(op))).await.result.is_ok()
}

impl Album {
    /// A machine, whose volume is so now, makes a snapshot or deletes one of its own.
    pub(crate) async fn work(
        &self,
        volume: &Rc<dyn Volume>,
        (me, shows): (usize, Model),
        rng: &mut Rng,
    ) {
        let own = format!("m{me}-");
        let (count, old) = {
            let all = self.0.borrow();
            let mine = || all.shots.iter().filter(|(name, _)| name.starts_with(&own));
            let old = mine().filter(|(_, s)| s.told && !s.ends).map(|(name, _)| name.clone());
            (mine().count(), old.collect::<Vec<_>>())
        };
        if !old.is_empty() && (old.len() > 2 || rng.one_in(3)) {
            let name = old[rng.below(old.len() as u64) as usize].clone();
            self.change(&name, |s| s.ends = true);
            if ask(volume, SnapshotOp::Delete(name.clone())).await {
                self.change(&name, |s| s.ended = true);
            }
            return;
        }
        let name = format!("{own}{count}");
        let shot = Shot { shows, told: false, ends: false, ended: false };
        let before = self.0.borrow_mut().shots.insert(name.clone(), shot).is_some();
        assert!(!before, "X1: {name} is made twice");
        if ask(volume, SnapshotOp::Make(name.clone())).await {
            self.change(&name, |s| s.told = true);
        }
    }

    fn change(&self, name: &str, f: impl Fn(&mut Shot)) {
        let mut all = self.0.borrow_mut();
        let Some(shot) = all.shots.get_mut(name) else { panic!("X1: nobody has made {name}") };
        f(shot);
        let known = shot.ends || !shot.ended;
        assert!(known, "X2: {name} is deleted, and nobody has begun to");
    }

    /// A machine makes a clone of the first snapshot that there is.
    pub(crate) async fn clone_one(&self, all: &All, way: &Rc<Machine>) -> Result<(), String> {
        let first = || {
            let inner = self.0.borrow();
            inner.shots.iter().find(|(_, s)| s.told && !s.ends).map(|(name, _)| name.clone())
        };
        for _ in 0..400 {
            if let Some(name) = first() {
                self.0.borrow_mut().cloned = Some((name.clone(), false));
                let how = CloneOptions {
                    uuid: [8; 16],
                    places: ("/".into(), format!("/{CLONE}")),
                    key: None,
                    plant: all.plant.0,
                };
                let of = (way.below(""), name.as_str());
                bucket::clone_snapshot(&all.env, of, way.below(CLONE), how).await?;
                self.0.borrow_mut().cloned = Some((name, true));
                return Ok(());
            }
            all.env.sleep(Nanos::from_millis(10)).await;
        }
        Ok(())
    }

    /// Everything has ended: is what was told true?
    pub(crate) async fn judge(&self, all: &All) -> Result<(), String> {
        if self.0.borrow().shots.is_empty() {
            return Ok(());
        }
        // Who judges is on no network.
        let as_it_is = SimBucket::of(all.env.clone(), all.bucket.objects(), (1, CALM));
        let own = ground(all, JUDGE);
        all.machines.attach(own.own, as_it_is.machine(None));
        let store = volume::open_bucket(&own, true).await.map_err(|e| format!("broken: {e}"))?;
        let there: Vec<String> = store.snapshots().into_iter().map(|s| s.name).collect();
        for (name, shot) in &self.0.borrow().shots {
            let is_there = there.contains(name);
            if shot.told && !shot.ends && !is_there {
                return Err(format!("broken: the snapshot {name} is gone"));
            }
            if shot.ended && is_there {
                return Err(format!("broken: the snapshot {name} is there, and was deleted"));
            }
        }
        for name in there {
            let found = shown(Ground { snapshot: Some(name.clone()), ..own.clone() }).await;
            self.compare(&name, found, &name)?;
        }
        self.judge_clone((all, &as_it_is), &own).await
    }

    fn compare(&self, name: &str, found: Found, what: &str) -> Result<(), String> {
        let inner = self.0.borrow();
        let known = inner.shots.get(name).ok_or(format!("broken: nobody made {name}"))?;
        let found = found.map_err(|why| format!("broken: {what} cannot be read: {why}"))?;
        differs(&found, &known.shows).map_err(|why| format!("broken: {what}: {why}"))
    }

    async fn judge_clone(
        &self,
        (all, bucket): (&All, &SimBucket),
        origin: &Ground,
    ) -> Result<(), String> {
        let Some((name, told)) = self.0.borrow().cloned.clone() else { return Ok(()) };
        if told && self.0.borrow().shots[&name].ended {
            return Err("broken: a snapshot was deleted that a clone needs (C3)".into());
        }
        let clone = Ground { own: DiskId(JUDGE + 1), ..origin.clone() };
        all.machines.attach(clone.own, bucket.machine_below(CLONE, None));
        let found = shown(clone.clone()).await;
        if found.is_err() && !told {
            return Ok(()); // it was never made to its end
        }
        self.compare(&name, found, "a clone")?;
        let own = open(origin.clone(), "origin").await.map_err(|why| format!("broken: {why}"))?;
        if ask(&own, SnapshotOp::Delete(name.clone())).await {
            return Err("broken: a snapshot can be deleted that a clone needs (C3)".into());
        }
        // Each goes its own way.
        let writes = open(clone.clone(), "clone").await.map_err(|why| format!("broken: {why}"))?;
        for (volume, path) in [(&own, "/origin"), (&writes, "/clone")] {
            let done = perform(volume, &Act::Create(path.into()), true, &mut None).await;
            done.map_err(|e| format!("broken: {path}: {e:?}"))?;
            volume.clone().close().await.map_err(|e| format!("broken: {path}: {e:?}"))?;
        }
        let mut found = shown(clone).await.map_err(|why| format!("broken: the clone: {why}"))?;
        let has = found.remove("/clone").is_some() && !found.contains_key("/origin");
        if !has {
            return Err("broken: a clone shows what its origin wrote (C1)".into());
        }
        self.compare(&name, Ok(found), "a clone that is written")
    }
}

type Found = Result<crate::seen::Paths, String>;

/// What is there, read only.
async fn shown(ground: Ground) -> Found {
    let plain = OpenOptions::plain(Mode::Lfs, 1 << 20, [9; 16]);
    let options = OpenOptions { read_only: true, plant: ground.plant, ..plain };
    let volume = volume::open_on(ground, options).await?;
    let found = paths(&volume, true, false).await.map_err(|e| format!("{e:?}"))?;
    volume.close().await.map_err(|e| format!("{e:?}"))?;
    Ok(found)
}

async fn open(ground: Ground, name: &str) -> Result<Rc<dyn Volume>, String> {
    let (take_over, writer) = (TakeOver::Insist, name.to_owned());
    let rest = BucketOptions::default();
    let bucket = BucketOptions { take_over, after: SILENT, writer, pace: PACE, ..rest };
    let plain = OpenOptions::plain(Mode::Lfs, 1 << 20, [9; 16]);
    let options = OpenOptions { plant: ground.plant, bucket, ..plain };
    volume::open_on(ground, options).await
}

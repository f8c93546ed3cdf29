//! The store in a bucket as a kind of store: its device is a bucket, its log is followed in memory
//! while it is only looked at, and taken over when it is to be written. What lies in its virtual
//! blocks is the layout's business.

use crate::VolumeError;
use crate::groups::{fill, group_of};
use crate::place::Ground;
use crate::store::{FoundStore, Store, StoreKind};
use bucket::{AtRest, Key, Making, NearOptions, Pace, Prices, TakeOver};
use env::{Bucket, Disk, DiskError, Env, Local, Nanos};
use format::mkfs::{MkfsOptions, Plan};
use mechanisms::{GroupChange, GroupId, GroupStore};
use std::rc::Rc;
use vfs::{FsError, Reply, SnapshotOp};

/// How a volume in a bucket is opened.
#[derive(Clone, Debug)]
pub struct BucketOptions {
    /// What to do where somebody else writes it.
    pub take_over: TakeOver,
    /// A writer that was not heard of for so long is silent.
    pub after: Nanos,
    /// Who opens it, for a person.
    pub writer: String,
    /// How often it is tidied.
    pub pace: Pace,
    /// Opened for reading only, it is followed, and no answer is older than this.
    pub follow: Option<Nanos>,
    /// What requests cost.
    pub prices: Prices,
    /// Its key, if it is encrypted.
    pub key: Option<Key>,
    /// Is there a cache below that outlives this process?
    pub kept: bool,
    /// The disk that was named for its log is its near log: its name, and the bound.
    pub near: Option<(String, Nanos)>,
}

impl BucketOptions {
    /// What is lost with the machine, for a person; None: nothing that was promised.
    pub(crate) fn lost_with_the_machine(&self) -> Option<String> {
        let (name, within) = self.near.as_ref()?;
        let secs = within.0 as f64 / 1e9;
        Some(format!(
            "durable is what is in the near log {name}; the bucket has it within {secs} s, or \
             callers wait. If this machine or that file is lost, or another machine takes over, \
             what the last {secs} s of returned calls changed is lost at most; else a start here \
             uploads it first"
        ))
    }
}

impl Default for BucketOptions {
    fn default() -> BucketOptions {
        let defaults = bucket::OpenOptions::default();
        let (take_over, after) = (defaults.take_over, defaults.after);
        let (writer, pace) = (defaults.writer, defaults.pace);
        let prices = Prices::default();
        let (follow, key, kept, near) = (None, None, false, None);
        BucketOptions { take_over, after, writer, pace, follow, prices, key, kept, near }
    }
}

/// A store of objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objects;

/// Opens the store in the bucket that the ground is. Errors: there is none, somebody else writes
/// it, or the bucket's.
pub async fn open_bucket(on: &Ground, read_only: bool) -> Result<bucket::Store, VolumeError> {
    let of_snapshots = bucket::SNAPSHOT_PLANTS.iter().chain(bucket::CLONE_PLANTS);
    let known = || bucket::PLANTS.iter().chain(of_snapshots.clone()).copied();
    let plant = on.plant.0.and_then(|p| known().find(|known| *known == p));
    let BucketOptions { take_over, after, writer, pace, prices, key, kept, .. } = on.bucket.clone();
    let near = if read_only { None } else { near_log(on)? };
    let defaults = bucket::OpenOptions { read_only, plant, near, ..Default::default() };
    let options =
        bucket::OpenOptions { take_over, after, writer, pace, prices, key, kept, ..defaults };
    let objects = on.env.port().bucket(on.own);
    bucket::Store::open(on.env.clone(), objects, options).await.map_err(VolumeError)
}

/// The near log on this ground. Errors: one is named, and its disk is not there.
fn near_log(on: &Ground) -> Result<Option<NearOptions>, VolumeError> {
    let Some((name, within)) = on.bucket.near.clone() else { return Ok(None) };
    let disk = on.log_disk().ok_or_else(|| VolumeError(format!("no near log {name} here")))?;
    Ok(Some(NearOptions { disk, name, within }))
}

impl StoreKind for Objects {
    fn probe<'a>(
        &'a self,
        on: &'a Ground,
    ) -> Local<'a, Result<Option<Box<dyn FoundStore>>, VolumeError>> {
        Box::pin(async {
            // Whether there is a volume is told by who loads it.
            Ok(on.is_bucket().then(|| Box::new(Objects) as Box<dyn FoundStore>))
        })
    }
}

impl FoundStore for Objects {
    fn name(&self) -> &'static str {
        "log-structured store in a bucket"
    }
    fn is_segments(&self) -> bool {
        true
    }
    fn is_shared(&self) -> bool {
        true
    }
    fn has_snapshots(&self) -> bool {
        true
    }
    fn recover<'a>(&'a mut self, _: &'a Ground) -> Local<'a, Result<(), VolumeError>> {
        Box::pin(async { Ok(()) })
    }
    fn load<'a>(
        &'a self,
        on: &'a Ground,
        read_only: bool,
    ) -> Local<'a, Result<Rc<dyn Store>, VolumeError>> {
        Box::pin(async move {
            let store = open_bucket(on, read_only || on.snapshot.is_some()).await?;
            match &on.snapshot {
                Some(name) => crate::snapshots::shown(store.snapshot_disk(name)),
                None => Ok(loaded(store, on.bucket.prices)),
            }
        })
    }
}

struct Loaded(bucket::Store, Prices);

/// An opened store, as what a layout lies on.
pub(crate) fn loaded(store: bucket::Store, prices: Prices) -> Rc<dyn Store> {
    Rc::new(Loaded(store, prices))
}

impl Store for Loaded {
    fn disk(&self) -> Rc<dyn Disk> {
        Rc::new(self.0.clone())
    }
    fn groups(&self) -> Option<Rc<dyn GroupStore>> {
        Some(Rc::new(Groups(self.0.clone(), self.1)))
    }
    fn notes(&self) -> Option<Vec<u128>> {
        Some(self.0.notes())
    }
    fn asked_of(&self) -> Option<&bucket::Store> {
        Some(&self.0)
    }
    fn snapshot(&self, op: SnapshotOp, now: u64) -> Local<'_, Result<Reply, FsError>> {
        Box::pin(crate::snapshots::carry_out(&self.0, op, now))
    }
    fn give_up(&self) -> Local<'_, ()> {
        Box::pin(self.0.give_up())
    }
    fn close(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(self.0.close())
    }
}

/// The store as the mechanism of its mode knows it: a block of the volume is a virtual block.
struct Groups(bucket::Store, Prices);

impl GroupStore for Groups {
    fn blocks_max(&self) -> u64 {
        self.0.group_blocks_max()
    }
    fn reserve(&self, blocks: u64, _: bool) -> Local<'_, Result<u64, DiskError>> {
        Box::pin(async move { self.0.wait_for_room().await.map(|()| blocks) })
    }
    fn has_room_now(&self, _: u64) -> bool {
        self.0.has_room_now()
    }
    fn release(&self, _: u64) {}
    fn put(&self, group: Vec<GroupChange>, _: u64) -> Local<'_, Result<GroupId, DiskError>> {
        let group = group_of(group);
        Box::pin(async move { self.0.put(&group).await.map(GroupId) })
    }
    fn flush(&self, group: GroupId) -> Local<'_, Result<(), DiskError>> {
        Box::pin(self.0.flush_to(group.0))
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let s = self.0.stats();
        let ([puts, gets, lists, deletes], [sent, received]) = (s.requests, s.bytes);
        let stored = self.0.filled().1 * lfs::BLOCK_BYTES as u64;
        vec![
            ("cairn_bucket_put_requests_total", puts),
            ("cairn_bucket_get_requests_total", gets),
            ("cairn_bucket_list_requests_total", lists),
            ("cairn_bucket_delete_requests_total", deletes),
            ("cairn_bucket_sent_bytes_total", sent),
            ("cairn_bucket_received_bytes_total", received),
            ("cairn_bucket_kept_reads_total", s.kept),
            ("cairn_bucket_cost_micros_total", self.1.of_requests(s.requests, s.bytes)),
            ("cairn_bucket_stored_bytes", stored),
            ("cairn_bucket_month_micros", self.1.of_a_month(stored)),
            ("cairn_bucket_groups_total", s.groups),
            ("cairn_bucket_log_objects_total", s.objects),
            ("cairn_bucket_blocks_written_total", s.blocks),
            ("cairn_bucket_blocks_moved_total", s.moved),
            ("cairn_bucket_checkpoints_total", s.checkpoints),
            ("cairn_bucket_near_groups", s.near_groups),
            ("cairn_bucket_put_micros", s.put_micros),
            ("cairn_bucket_stopped", u64::from(self.0.has_stopped())),
        ]
    }
}

/// Makes a store in an empty bucket, and a volume on the store, of the size that `volume` says.
/// Returns how many blocks the volume has. Errors: there is a volume already and `force` is not
/// given; the bucket does not do what is needed, or failed.
pub async fn make_in_bucket(
    env: Env,
    objects: Rc<dyn Bucket>,
    volume: &MkfsOptions,
    (force, at_rest): (bool, AtRest),
) -> Result<u64, VolumeError> {
    let (uuid, size_bytes) = (volume.uuid, volume.size_bytes);
    let plan = Plan::new(volume).map_err(|e| VolumeError(e.to_string()))?;
    let options = bucket::FormatOptions { uuid, size_bytes, force, at_rest };
    let making: Making = bucket::format(env, objects, &options).await.map_err(VolumeError)?;
    fill(&making.store, &plan).await?;
    making.finish().await.map_err(VolumeError)?;
    Ok(plan.geometry().blocks)
}

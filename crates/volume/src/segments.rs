//! The log-structured store as a kind of store: found by its magic, rolled forward in memory while
//! it is only looked at, opened with a new epoch when it is to be written. What lies in its virtual
//! blocks is the layout's business.

use crate::VolumeError;
use crate::groups::{fill, group_of};
use crate::place::Ground;
use crate::store::{FoundStore, Store, StoreKind};
use cache::{Cache, Watch};
use env::{Block, Disk, DiskError, DiskErrorKind, Env, Local};
use format::BlockNo;
use format::foreign::LOOK_BYTES;
use format::mkfs::{MkfsOptions, Plan};
use mechanisms::{GroupChange, GroupId, GroupStore};
use std::rc::{Rc, Weak};
use vfs::{FsError, Reply, SnapshotOp};

/// A store of segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments;

/// One that was found.
#[derive(Clone, Debug)]
struct FoundSegments {
    /// What opening it will do.
    opened: lfs::Opened,
    /// Why it is not opened for writing.
    damage: Option<String>,
}

async fn open(on: &Ground, read_only: bool) -> Result<lfs::Store, VolumeError> {
    let known = || lfs::PLANTS.iter().chain(lfs::SNAPSHOT_PLANTS).copied();
    let plant = on.plant.0.and_then(|p| known().find(|known| *known == p));
    let defaults = lfs::OpenOptions::default();
    let policy = on.cleaner.unwrap_or(defaults.policy);
    let cleaning = on.cleaning.unwrap_or(lfs::Cleaning::Idle);
    let discard = on.discards;
    let thresholds = on.thresholds.unwrap_or_default();
    let reorganise = on.reorganise;
    let chosen = lfs::OpenOptions { policy, cleaning, thresholds, reorganise, ..defaults };
    let options = lfs::OpenOptions { read_only, discard, plant, ..chosen };
    lfs::Store::open(on.env.clone(), on.disk(), options).await.map_err(VolumeError)
}

impl StoreKind for Segments {
    fn probe<'a>(
        &'a self,
        on: &'a Ground,
    ) -> Local<'a, Result<Option<Box<dyn FoundStore>>, VolumeError>> {
        Box::pin(async {
            if !is_store(&on.disk()).await? {
                return Ok(None);
            }
            let store = open(on, true).await?;
            let (opened, damage) = (store.opened(), store.damage());
            Ok(Some(Box::new(FoundSegments { opened, damage }) as Box<dyn FoundStore>))
        })
    }
}

/// Does a log-structured store begin here? One whose first block is lost is known by the copy of
/// its superblock, unless something else has been made in its place. Errors: the device's.
pub async fn is_store(disk: &Rc<dyn Disk>) -> Result<bool, DiskError> {
    if disk.size_bytes() < lfs::BLOCK_BYTES as u64 {
        return Ok(false);
    }
    let first = disk.read(0, vec![Block::zeroed(lfs::BLOCK_BYTES)]).await?;
    if first[0].bytes().starts_with(&lfs::MAGIC) {
        return Ok(true);
    }
    // Of most disks the first block says what they are: no more is read of those.
    let may_be = is_lost(first[0].bytes()) && lfs::superblock(disk).await.is_ok();
    Ok(may_be && is_lost(&head_of(disk).await?))
}

/// As much of the disk's beginning as tells what it is.
async fn head_of(disk: &Rc<dyn Disk>) -> Result<Vec<u8>, DiskError> {
    let blocks = LOOK_BYTES.div_ceil(lfs::BLOCK_BYTES) as u64;
    let blocks = blocks.min(disk.size_bytes() / lfs::BLOCK_BYTES as u64);
    let memory = (0..blocks).map(|_| Block::zeroed(lfs::BLOCK_BYTES)).collect();
    let read = disk.read(0, memory).await?;
    Ok(read.iter().flat_map(|b| b.bytes().iter().copied()).collect())
}

/// Is there nothing that anybody would look for in a disk's beginning ([`LOOK_BYTES`] of it): no
/// volume's superblock, nothing foreign, no copy under way?
fn is_lost(head: &[u8]) -> bool {
    const EXT_MAGIC: (usize, &[u8]) = (1024 + 56, &[0x53, 0xef]);
    let ext = head.get(EXT_MAGIC.0..).is_some_and(|h| h.starts_with(EXT_MAGIC.1));
    !ext && format::foreign::look(head).is_none()
}

impl FoundStore for FoundSegments {
    fn name(&self) -> &'static str {
        "log-structured store"
    }
    fn is_segments(&self) -> bool {
        true
    }
    fn takes_policy(&self) -> bool {
        true
    }
    fn has_snapshots(&self) -> bool {
        true
    }
    fn steps(&self) -> Vec<String> {
        match (self.opened.rolled, self.opened.generation) {
            (0, _) => Vec::new(),
            (n, g) => vec![format!(
                "the store's log is followed: {n} partial segments behind \
                                    checkpoint {g}"
            )],
        }
    }
    fn damage(&self) -> Option<String> {
        self.damage.clone()
    }
    fn recover<'a>(&'a mut self, on: &'a Ground) -> Local<'a, Result<(), VolumeError>> {
        Box::pin(async {
            self.damage.clone().map_or(Ok(()), |why| Err(VolumeError(why)))?;
            if self.opened.rolled > 0 {
                let store = open(on, false).await?;
                // Else it went on to free what deleted snapshots had, beside the one loaded next.
                store.close().await?;
                self.opened = lfs::Opened { rolled: 0, ..store.opened() };
            }
            Ok(())
        })
    }
    fn load<'a>(
        &'a self,
        on: &'a Ground,
        read_only: bool,
    ) -> Local<'a, Result<Rc<dyn Store>, VolumeError>> {
        Box::pin(async move {
            let store = open(on, read_only || on.snapshot.is_some()).await?;
            match &on.snapshot {
                Some(name) => Ok(crate::snapshots::shown(store.snapshot_disk(name))?),
                None => Ok(Rc::new(Loaded { store, read_only }) as Rc<dyn Store>),
            }
        })
    }
}

struct Loaded {
    store: lfs::Store,
    read_only: bool,
}

impl Store for Loaded {
    fn disk(&self) -> Rc<dyn Disk> {
        Rc::new(self.store.clone())
    }
    fn groups(&self) -> Option<Rc<dyn GroupStore>> {
        Some(Rc::new(Groups(self.store.clone())))
    }
    fn remember(&self, cache: &Rc<Cache>) {
        self.store.set_memory(Rc::new(InMemory(Rc::downgrade(cache))));
        cache.set_watch(Rc::new(ComesAndGoes(self.store.clone())));
    }
    fn snapshot(&self, op: SnapshotOp, now: u64) -> Local<'_, Result<Reply, FsError>> {
        Box::pin(async move {
            if self.read_only && !matches!(op, SnapshotOp::List) {
                return Err(FsError::ReadOnly);
            }
            crate::snapshots::carry_out(&self.store, op, now).await
        })
    }
    fn be_still(&self, until: env::Nanos) -> Local<'_, ()> {
        Box::pin(self.store.be_still(until))
    }
    fn close(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async {
            if self.read_only {
                return Ok(());
            }
            self.store.close().await
        })
    }
}

/// The cache as the store knows it.
struct InMemory(Weak<Cache>);

impl lfs::Memory for InMemory {
    fn contents(&self, v: lfs::Virt) -> Option<Block> {
        self.0.upgrade()?.settled(BlockNo(v.0))
    }
}

/// The store as the cache knows it.
struct ComesAndGoes(lfs::Store);

impl Watch for ComesAndGoes {
    fn came(&self, block: BlockNo) {
        self.0.came(lfs::Virt(block.0));
    }
    fn gone(&self, block: BlockNo) {
        self.0.gone(lfs::Virt(block.0));
    }
}

/// The store as the mechanism of its mode knows it: a block of the volume is a virtual block.
struct Groups(lfs::Store);

impl GroupStore for Groups {
    fn blocks_max(&self) -> u64 {
        self.0.group_blocks_max()
    }
    fn reserve(&self, blocks: u64, frees: bool) -> Local<'_, Result<u64, DiskError>> {
        Box::pin(async move {
            match frees {
                true => self.0.reserve_to_free(blocks).await,
                false => self.0.reserve(blocks).await,
            }
        })
    }
    fn has_room_now(&self, blocks: u64) -> bool {
        self.0.has_room_now(blocks)
    }
    fn space_left(&self) -> Option<u64> {
        self.0.room()
    }
    fn release(&self, kept: u64) {
        self.0.release(kept);
    }
    fn put(&self, group: Vec<GroupChange>, kept: u64) -> Local<'_, Result<GroupId, DiskError>> {
        let group = group_of(group);
        Box::pin(async move { self.0.put(&group, kept).await.map(GroupId) })
    }
    fn flush(&self, group: GroupId) -> Local<'_, Result<(), DiskError>> {
        Box::pin(self.0.flush_to(group.0))
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let (s, t, filled) = (self.0.stats(), self.0.totals(), self.0.filled());
        let bytes = |blocks: u64| blocks * lfs::BLOCK_BYTES as u64;
        let mut all = vec![
            ("cairn_lfs_user_bytes_total", t.user_bytes),
            ("cairn_lfs_written_bytes_total", bytes(t.written)),
            ("cairn_lfs_cleaner_bytes_total", bytes(t.cleaner)),
            ("cairn_lfs_table_bytes_total", bytes(t.tables)),
            ("cairn_lfs_cleaner_read_bytes_total", bytes(t.cleaner_reads)),
            ("cairn_lfs_cleaned_segments_total", t.cleaned),
            ("cairn_lfs_cleaned_idle_segments_total", s.cleaned_idle),
            ("cairn_lfs_groups_total", s.groups),
            ("cairn_lfs_blocks_written_total", s.written),
            ("cairn_lfs_blocks_freed_total", s.freed),
            ("cairn_lfs_blocks_moved_total", s.moved),
            ("cairn_lfs_range_bytes_total", s.range_bytes),
            ("cairn_lfs_folded_blocks_total", s.folded),
            ("cairn_lfs_log_blocks_total", s.log_blocks),
            ("cairn_lfs_table_blocks_total", s.table_blocks),
            ("cairn_lfs_partials_total", s.partials),
            ("cairn_lfs_checkpoints_total", s.checkpoints),
            ("cairn_lfs_cleaner_read_blocks_total", s.read_to_clean),
            ("cairn_lfs_cleaner_remembered_blocks_total", s.remembered),
            ("cairn_lfs_longest_wait_nanos", s.wait_max),
            ("cairn_lfs_reorganising", u64::from(self.0.reorganises())),
            ("cairn_lfs_reorganised_blocks_total", s.reorganised),
            ("cairn_lfs_reorganise_spent_nanos_total", s.reorganise_spent),
            ("cairn_lfs_reorganise_saved_nanos_total", s.reorganise_saved),
            ("cairn_lfs_table_memory_bytes", self.0.table_memory_bytes() as u64),
            (policy_gauge(self.0.policy()), 1),
            (cleaning_gauge(self.0.cleaning()), 1),
        ];
        all.extend(self.0.room().map(|room| ("cairn_lfs_room_bytes", bytes(room))));
        all.extend(USES.into_iter().zip(filled.segments.map(u64::from)));
        all.extend(TENTHS.into_iter().zip(filled.tenths.map(u64::from)));
        all
    }
}

/// Gauges: segments by what they are for.
const USES: [&str; 4] = [
    "cairn_lfs_segments_free",
    "cairn_lfs_segments_open",
    "cairn_lfs_segments_contents",
    "cairn_lfs_segments_table",
];

/// Gauges: segments of contents by how much of them lives, in tenths.
const TENTHS: [&str; 10] = [
    "cairn_lfs_segments_full_0",
    "cairn_lfs_segments_full_1",
    "cairn_lfs_segments_full_2",
    "cairn_lfs_segments_full_3",
    "cairn_lfs_segments_full_4",
    "cairn_lfs_segments_full_5",
    "cairn_lfs_segments_full_6",
    "cairn_lfs_segments_full_7",
    "cairn_lfs_segments_full_8",
    "cairn_lfs_segments_full_9",
];

/// The gauge that is 1 while segments are cleaned at these times.
fn cleaning_gauge(cleaning: lfs::Cleaning) -> &'static str {
    match cleaning {
        lfs::Cleaning::Idle => "cairn_lfs_cleaning_idle",
        lfs::Cleaning::Pressure => "cairn_lfs_cleaning_pressure",
        lfs::Cleaning::Off => "cairn_lfs_cleaning_off",
    }
}

/// The gauge that is 1 while the cleaner follows this policy.
fn policy_gauge(policy: lfs::Policy) -> &'static str {
    match policy {
        lfs::Policy::Greedy => "cairn_lfs_policy_greedy",
        lfs::Policy::CostBenefit => "cairn_lfs_policy_cost_benefit",
        lfs::Policy::CostBenefitCached => "cairn_lfs_policy_cached",
        lfs::Policy::Balanced => "cairn_lfs_policy_balanced",
        lfs::Policy::SepBit => "cairn_lfs_policy_sepbit",
        lfs::Policy::Plug => "cairn_lfs_policy_plug",
        lfs::Policy::Paper => "cairn_lfs_policy_paper",
        lfs::Policy::Adaptive => "cairn_lfs_policy_adaptive",
    }
}

/// Makes a store on an empty disk, and a volume on the store; the size in `volume` is taken from
/// what the store offers. Returns how many blocks the volume has. Errors: the disk is too small, or
/// failed.
pub async fn make_on_segments(
    env: Env,
    disk: Rc<dyn Disk>,
    store: &lfs::FormatOptions,
    volume: &MkfsOptions,
) -> Result<u64, VolumeError> {
    lfs::format(&disk, store).await.map_err(VolumeError)?;
    let opened = lfs::Store::open(env, disk, lfs::OpenOptions::default()).await;
    let opened = opened.map_err(VolumeError)?;
    let options = MkfsOptions { size_bytes: opened.size_bytes(), ..volume.clone() };
    let plan = Plan::new(&options).map_err(|e| VolumeError(e.to_string()))?;
    let (wanted, has) = (plan.geometry().blocks, opened.size_bytes());
    let fits = wanted * plan.geometry().block_bytes as u64 <= has;
    assert!(fits, "V4: a volume of {wanted} blocks in a store of {has} bytes");
    let filled = async {
        fill(&opened, &plan).await?;
        opened.checkpoint().await
    };
    let is_full = |e: &DiskError| e.kind == DiskErrorKind::NoSpace;
    match filled.await {
        Err(e) if !is_full(&e) => return Err(e.into()),
        Ok(()) if opened.room() != Some(0) => (),
        _ => {
            let why = "the store has no room for what so large a volume keeps beside its files: \
                       make the volume smaller (--size), or the store larger (--store-size)";
            return Err(VolumeError(why.into()));
        }
    }
    Ok(plan.geometry().blocks)
}

/// Blocks copied at once.
const COPIED: u64 = 256;

/// Calls `write` with every part of the store's newest state that has contents: the byte at which
/// it lies in the virtual disk, and the bytes. Returns how many blocks that were. Errors: the
/// device's, damage, or what `write` has said.
pub async fn export_blocks(
    store: &lfs::Store,
    write: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<u64, String> {
    let mut ranges = Vec::new();
    store.mapped(|v, n| ranges.push((v.0, n))).await.map_err(|e| e.to_string())?;
    copy_out(store, ranges, write).await
}

/// The same of any disk, of these blocks: first, and how many.
pub async fn copy_out(
    store: &dyn Disk,
    ranges: Vec<(u64, u64)>,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<u64, String> {
    let text = |e: DiskError| e.to_string();
    let mut copied = 0;
    for (first, n) in ranges {
        for at in (first..first + n).step_by(COPIED as usize) {
            let blocks = (first + n - at).min(COPIED);
            let memory = (0..blocks).map(|_| Block::zeroed(lfs::BLOCK_BYTES)).collect();
            let byte = at * lfs::BLOCK_BYTES as u64;
            let read = store.read(byte, memory).await.map_err(text)?;
            let n = read.len() as u64;
            assert_eq!(n, blocks, "the disk fills the blocks that it was given");
            for (i, block) in (0..).zip(&read) {
                write(byte + i * lfs::BLOCK_BYTES as u64, block.bytes())?;
            }
            copied += blocks;
        }
    }
    Ok(copied)
}

//! Building a volume inside its engine: its log replayed, then cache, mechanism, layout and
//! operations, in this order, and the mark that it is open before anything else is written.

use crate::VolumeError;
use crate::closing::Opened;
use crate::log::{self, Place, PrivateLog, SharedLog};
use crate::probe::Probe;
use crate::state;
use cache::{BufKind, Cache, CacheOptions};
use env::{Disk, DiskId, Env, Nanos};
use ext::{Ext, Loaded};
use format::ext::Superblock;
use format::ext::boot::{BootArea, BootState};
use format::ext::map::file_bytes_max;
use format::ext::superblock::SUPERBLOCK_BYTES;
use integrity::Plant;
use mechanisms::{Commit, JournalPlace, JournalRecipe, LogRecipe, Mode, Recipe, Replayed};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use ufs::Ufs;
use vfs::{Open, OpenAll, Opening, Volume, VolumeInfo};

/// Who looks on while a log is replayed.
pub trait ReplayWatch: Send + Sync + std::fmt::Debug {
    /// `at` of `of` bytes of the log have been read.
    fn progress(&self, at: u64, of: u64);
    /// The log was replayed.
    fn done(&self, did: Replayed);
}

/// How to open.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// How changes are made safe.
    pub mode: Mode,
    /// Change nothing.
    pub read_only: bool,
    /// Memory for blocks, in bytes.
    pub cache_bytes: usize,
    /// How much of it clean contents may have; None: all.
    pub contents_bytes: Option<usize>,
    /// Dirty data is written back at least this often.
    pub commit_interval: Nanos,
    /// The log or the journal is kept so short that its replay takes no longer than this, about.
    pub recovery_within: Nanos,
    /// Random bytes, for the key of file handles if the volume has none yet, for a new log's
    /// name, and for the keys of the directories' indices.
    pub entropy: [u8; 16],
    /// A planted bug, for the crash explorer.
    pub plant: Plant,
    /// When does a returned operation count as done (modes with a log of ours)?
    pub commit: Commit,
    /// Up to how many bytes a write is logged (`unified`), or its piece in a block (`selective`);
    /// None: a block, and for a piece, less than one.
    pub threshold: Option<u64>,
    /// Are contents durable before what points at them (`redo`)?
    pub ordered_data: bool,
    /// Bytes of the disk with the log, which is `DiskId(1)`; None: the log is inside.
    pub log_disk_bytes: Option<u64>,
    /// Is told how far the replay of a log of ours is.
    pub watch: Option<Arc<dyn ReplayWatch>>,
    /// Each entry of a log of ours is written alone: what batching is compared with in the lab.
    pub log_alone: bool,
}

impl OpenOptions {
    /// Is every call that has returned durable as a whole, what it wrote too, so that fsync has
    /// nothing left to do?
    pub fn returned_is_durable(&self) -> bool {
        self.mode == Mode::Unified && self.commit == Commit::Sync
    }

    /// Does the mode promise nothing at all of contents that were written but not fsynced, neither
    /// when they are durable nor what comes before or after them? Then somebody above may hold
    /// them back. The journals' modes promise that a file is as long as it was at a commit, those
    /// with contents in the log the order of writes too: a file that is renamed over another while
    /// its contents are still held back would be found empty.
    pub fn contents_may_wait(&self) -> bool {
        matches!(self.mode, Mode::Sync | Mode::Async)
    }

    /// As a user gets them who names nothing but the mode.
    pub fn plain(mode: Mode, cache_bytes: usize, entropy: [u8; 16]) -> OpenOptions {
        OpenOptions {
            mode,
            read_only: false,
            cache_bytes,
            contents_bytes: None,
            commit_interval: Nanos::from_secs(5),
            recovery_within: Nanos::from_secs(10),
            entropy,
            plant: Plant::NONE,
            commit: Commit::Sync,
            threshold: None,
            ordered_data: false,
            log_disk_bytes: None,
            watch: None,
            log_alone: false,
        }
    }
}

/// The largest write-back transfer.
const TRANSFER_BYTES_MAX: usize = 1 << 20;

/// What a monitor needs to open the probed volume, which lies on `DiskId(0)` with `disk_bytes`. It
/// must be clean, or recovered, or opened for reading only; a log of ours is replayed here.
pub fn opener(probe: Probe, disk_bytes: u64, options: OpenOptions) -> Open {
    Box::new(move |env| -> Opening {
        let disk = env.port().disk(DiskId(0), disk_bytes);
        let place = Place { env, disk, log_disk: DiskId(1), shared: None };
        Box::pin(open(place, probe, options))
    })
}

/// The same for several volumes that share one log outside: each with its bytes, on the engine's
/// first disks in this order, with the log on the disk after theirs. Errors: two have one UUID.
pub fn openers(volumes: Vec<(Probe, u64, OpenOptions)>) -> Result<OpenAll, VolumeError> {
    let name =
        |(p, ..): &(Probe, u64, OpenOptions)| (log::id_in_log(&p.superblock), p.superblock.label());
    let members: Vec<_> = volumes.iter().map(name).collect();
    for (i, (id, _)) in members.iter().enumerate() {
        if members[..i].iter().any(|(other, _)| other == id) {
            let why = "two volumes have the same UUID: a log tells its users apart by that";
            return Err(VolumeError(format!("{why} (tune2fs -U random)")));
        }
    }
    Ok(Box::new(move |env| {
        let shared = Rc::new(SharedLog::new(members));
        let log_disk = DiskId(u16::try_from(volumes.len()).expect("volumes are not that many"));
        let one = |(n, (probe, bytes, options)): (u16, (Probe, u64, OpenOptions))| -> Opening {
            let disk = env.port().disk(DiskId(n), bytes);
            let place = Place { env: env.clone(), disk, log_disk, shared: Some(shared.clone()) };
            Box::pin(open(place, probe, options))
        };
        (0..).zip(volumes).map(one).collect()
    }))
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

async fn open(
    place: Place,
    mut probe: Probe,
    options: OpenOptions,
) -> Result<Rc<dyn Volume>, String> {
    let read_only = options.read_only || probe.read_only.is_some();
    let (env, disk) = (place.env.clone(), place.disk.clone());
    let clean = probe.is_clean();
    let mut overlay = None;
    if read_only {
        if probe.has_private_log() && !probe.is_guarded_for_nothing() {
            overlay = Some(log::look(&place, &probe, &options).await?);
        }
    } else {
        // What a killed process wrote may be in the device's cache only, and we are about to rely
        // on it.
        disk.flush().await.map_err(text)?;
        if probe.has_private_log() {
            log::replay(&place, &mut probe, &options).await?;
        }
        if !probe.is_clean() {
            return Err("the volume was not closed cleanly: cairn recover".into());
        }
        check_mode(&probe, &options)?;
    }
    let cache = new_cache(&env, &disk, &probe, &options, read_only);
    if let Some(r) = &overlay {
        lay_over(&cache, r.blocks(), |b, bytes| r.apply(b, bytes)).await?;
    } else if let Some(r) = &probe.replay {
        lay_over(&cache, r.blocks(), |b, bytes| r.apply(b, bytes)).await?;
    }
    if overlay.is_some() || probe.replay.is_some() {
        probe.superblock = superblock_of(&cache, &probe.superblock).await?;
    }
    let mut private = None;
    if !read_only && options.mode.is_redo() {
        private = Some(log::open(&place, &probe, &options).await?);
    }
    let recipe = recipe_of(&place, (&cache, &probe), &options, private.as_ref());
    let mode = if read_only { Mode::Async } else { options.mode };
    let mechanism = mechanisms::build(mode, &recipe).map_err(text)?;
    let journaled = options.mode.is_journal() || options.mode.is_redo();
    let loaded = Loaded { superblock: probe.superblock.clone(), read_only };
    let ext = Ext::load(env.clone(), cache.clone(), mechanism, loaded).await;
    let ext = Rc::new(ext.map_err(text)?);
    let mut boot = next_state(&probe, &options, clean);
    if !read_only {
        if let Some(b) = &mut boot {
            b.log_uuid = private.as_ref().filter(|p| p.external).map_or([0; 16], |p| p.uuid);
            state::store(&disk, b).await.map_err(text)?;
        }
        ext.reload_superblock_block(&disk).await.map_err(text)?;
        ext.mark_open(journaled).await.map_err(text)?;
        if let Some(log) = &private {
            log.guard().await.map_err(text)?;
        }
        cache.start();
    }
    let root = ufs::Store::inode(&*ext, format::ROOT_INO).await;
    let root = root.map_err(|e| format!("the root directory: {e}"))?;
    let generation = root.with(|raw| format::ext::inode::InodeRef(raw).generation());
    drop(root);
    let info = about((&ext, generation), &options, boot.as_ref(), read_only);
    let ufs = Ufs::new(ext.clone(), &options.entropy, move || info.clone());
    if !read_only {
        let orphans = ufs.reclaim_orphans().await.map_err(|e| format!("orphans: {e}"))?;
        if orphans > 0 {
            tracing::info!("{orphans} orphans reclaimed");
        }
    }
    Ok(Rc::new(Opened { ufs, ext, boot: RefCell::new(boot), read_only, private }))
}

/// Has the volume what the mode needs?
fn check_mode(probe: &Probe, options: &OpenOptions) -> Result<(), String> {
    let mode = options.mode;
    if !(mode.is_journal() || mode.is_redo()) {
        return Ok(());
    }
    let outside = probe.superblock.journal_is_outside();
    if outside && mode.is_redo() {
        return Err(format!(
            "mode {mode} needs a journal inside the volume, which keeps others off while the log \
             holds something; this volume's is on another device"
        ));
    }
    if outside && probe.journal.is_none() {
        return Err(format!(
            "mode {mode}: the volume's journal is on another device: --log PATH names that"
        ));
    }
    if mode.is_journal() && !outside && options.log_disk_bytes.is_some() {
        return Err(format!(
            "mode {mode}: --log names another device, and this volume's journal is inside; cairn \
             mkfs --log PATH makes a volume with its journal there"
        ));
    }
    if probe.journal.is_some() {
        return Ok(());
    }
    if let Some(why) = &probe.journal_fault {
        return Err(format!("mode {mode}: {why}; cairn fsck --repair makes a new journal"));
    }
    Err(format!(
        "mode {mode} needs a journal, which this volume does not have: tune2fs -j adds one, and \
         cairn mkfs --profile ext3 makes a volume with one"
    ))
}

fn new_cache(
    env: &Env,
    disk: &Rc<dyn Disk>,
    probe: &Probe,
    options: &OpenOptions,
    read_only: bool,
) -> Rc<Cache> {
    // The journals and the logs write back by themselves, after their commits.
    let by_itself = options.mode.is_journal() || options.mode.is_redo();
    let lazily = options.mode == Mode::Async || by_itself || read_only;
    let options = CacheOptions {
        block_bytes: probe.superblock.block_bytes(),
        cache_bytes: options.cache_bytes,
        contents_bytes: options.contents_bytes.unwrap_or(options.cache_bytes),
        interval: (!lazily).then_some(options.commit_interval),
        transfer_bytes_max: TRANSFER_BYTES_MAX,
    };
    Cache::new(env.clone(), disk.clone(), options)
}

/// Brings blocks in memory up to what a log says of them. Nothing is written: nobody will.
async fn lay_over(
    cache: &Rc<Cache>,
    blocks: impl Iterator<Item = format::BlockNo>,
    apply: impl Fn(format::BlockNo, &mut [u8]),
) -> Result<(), String> {
    for b in blocks {
        let buf = cache.get(b, BufKind::Meta).await.map_err(text)?;
        buf.modify(|bytes| apply(b, bytes));
    }
    Ok(())
}

/// The superblock as memory has it; `old`, a copy, where the primary is damaged and no log says
/// what it was.
async fn superblock_of(cache: &Rc<Cache>, old: &Superblock) -> Result<Superblock, String> {
    let (block, at) = if old.block_bytes() == 1024 { (1, 0) } else { (0, 1024) };
    let buf = cache.get(format::BlockNo(block), BufKind::Meta).await.map_err(text)?;
    let decoded = Superblock::decode(&buf.bytes()[at..at + SUPERBLOCK_BYTES]);
    Ok(decoded.unwrap_or_else(|_| old.clone()))
}

fn recipe_of(
    place: &Place,
    (cache, probe): (&Rc<Cache>, &Probe),
    options: &OpenOptions,
    private: Option<&PrivateLog>,
) -> Recipe {
    let block = probe.superblock.block_bytes() as u64;
    // A whole block gains nothing by being journaled; less than one spares a read, or a transfer.
    let default = if options.mode == Mode::Selective { block - 1 } else { block };
    let threshold = options.threshold.unwrap_or(default);
    let log = private.map(|p| LogRecipe {
        client: p.client.clone(),
        commit: options.commit,
        ordered_data: options.ordered_data,
        threshold,
        commit_interval: options.commit_interval,
        live_bytes_max: mechanisms::live_bytes_max(options.recovery_within),
    });
    let of = probe.journal.as_ref().filter(|_| options.mode.is_journal());
    let journal = of.map(|j| JournalRecipe {
        place: JournalPlace {
            disk: match options.log_disk_bytes {
                Some(bytes) if j.outside => place.env.port().disk(place.log_disk, bytes),
                _ => cache.disk().clone(),
            },
            internal: !j.outside,
            extents: j.extents.clone(),
            superblock_at: j.superblock_at,
            superblock: j.raw.clone(),
        },
        commit_interval: options.commit_interval,
        live_bytes_max: mechanisms::live_bytes_max(options.recovery_within),
        threshold,
    });
    Recipe { cache: cache.clone(), plant: options.plant, log, journal }
}

/// The state to be written at opening; None where the boot area is somebody else's.
fn next_state(probe: &Probe, options: &OpenOptions, clean: bool) -> Option<BootState> {
    let old = match &probe.boot {
        BootArea::Foreign => return None,
        BootArea::Empty => BootState::default(),
        BootArea::Ours(s) => s.clone(),
    };
    let lost = !(clean && old.clean);
    let mut new = BootState {
        serial: old.serial + 1,
        opened: old.opened + 1,
        losses: old.losses + u64::from(lost),
        mode: options.mode.to_string(),
        clean: false,
        ..old
    };
    if new.handle_key == [0; 16] {
        new.handle_key = options.entropy;
    }
    Some(new)
}

fn about(
    (ext, root_generation): (&Ext, u32),
    o: &OpenOptions,
    boot: Option<&BootState>,
    read_only: bool,
) -> VolumeInfo {
    let info = o.mode.info();
    let sb = ext.superblock();
    let low = *o.entropy.first_chunk().expect("there are 16");
    VolumeInfo {
        uuid: sb.uuid(),
        mode: info.name.into(),
        promise: info.promise.into(),
        handle_key: boot.map_or(o.entropy, |b| b.handle_key),
        root_generation,
        // Where nothing may be kept, any opening may follow a crash.
        boot: boot.map_or(u64::from_le_bytes(low), |b| b.losses),
        opened: boot.map(|b| b.opened),
        read_only,
        block_bytes: sb.block_bytes() as u32,
        file_bytes_max: file_bytes_max(sb.block_bytes()),
        links_max: 32_000,
        counters: Vec::new(),
    }
}

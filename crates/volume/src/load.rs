//! Building an ext volume inside its engine: cache, mechanism, layout and operations, in this
//! order, and the mark that it is open before anything else is written. What an unclean end left
//! was finished before; who only reads looks through it.

use crate::OpenOptions;
use crate::intents;
use crate::journal::Journal;
use crate::log::{self, PrivateLog};
use crate::needs;
use crate::opened::{Opened, is_written};
use crate::overlay::{Newer, Overlay};
use crate::place::Place;
use crate::probe::{Probe, stamp_of};
use crate::recover::Plan;
use crate::scrub::Scrubber;
use crate::state;
use crate::trimmer::Trimmer;
use cache::{Cache, CacheOptions};
use check::ReadBlocks;
use env::Disk;
use ext::{Ext, Loaded};
use format::ext::boot::{BootArea, BootState};
use format::ext::features::incompat;
use integrity::invariant;
use mechanisms::{
    GroupRecipe, GroupStore, JournalPlace, JournalRecipe, Keeps, LogRecipe, Mode, Recipe,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use ufs::Ufs;
use vfs::{Volume, VolumeInfo};

/// The largest write-back transfer.
const TRANSFER_BYTES_MAX: usize = 1 << 20;

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Builds the volume that was found at `place`; it is clean, or is to be read only. Errors: a
/// sentence for the user.
pub(crate) async fn load(
    mut place: Place,
    mut probe: Probe,
    options: OpenOptions,
) -> Result<Rc<dyn Volume>, String> {
    let read_only = options.read_only || probe.read_only.is_some();
    if read_only {
        look_through(&mut place, &mut probe, &options).await?;
    } else {
        if !probe.is_clean() && !probe.is_usable_at_once(&options) {
            return Err("the volume was not closed cleanly: cairn recover".into());
        }
        needs::check(&probe, options.mode, place.ground.log.is_some())?;
        check_segments(&place, &probe, options.mode)?;
    }
    let (env, disk) = (place.ground.env.clone(), place.disk.clone());
    let cache = new_cache(&place, &probe, &options, read_only);
    let mut private = None;
    if !read_only && options.mode.is_redo() {
        private = Some(log::open(&place, &probe, &options).await?);
    }
    let (now, notes) = (env.wall().secs() as u32, place.store.notes());
    let intents = intents::open(&place, &probe, &options, read_only).await?;
    let mut recipe = recipe_of(&place, (&cache, &probe), &options, private.as_ref());
    recipe.intents = intents.as_ref().map(|i| i.recipe.clone());
    let mode = if read_only { Mode::TO_READ } else { options.mode };
    let mechanism = mechanisms::build(mode, &recipe).map_err(text)?;
    let journaled = options.mode.is_atomic();
    let superblock = probe.superblock.clone();
    let journal = probe.journal.as_ref().map_or(Vec::new(), Journal::blocks_inside);
    let loaded = Loaded { superblock, journal, read_only, plant: options.plant };
    let ext = Ext::load(env.clone(), cache.clone(), mechanism, loaded).await;
    let ext = ext.map_err(text)?;
    let mut boot = next_state(&probe, &options, now);
    let groups = groups_of(&place, &options).filter(|_| !read_only);
    let mut is_kept = true;
    let dirty = cache.counts().1;
    assert_eq!(dirty, 0, "V3: {dirty} blocks are changed before the volume says that it is open");
    if !read_only {
        let logs = (private.as_ref(), intents.as_ref().map(|i| i.uuid));
        is_kept = store_state(&disk, &mut boot, logs, groups.as_ref()).await?;
        ext.reload_superblock_block(&disk).await.map_err(text)?;
        if options.mode.info().keeps != Keeps::Segments {
            // There, the store knows how it was left, and the volume is always whole.
            ext.mark_open(journaled, now).await.map_err(text)?;
            check_marked(&ext);
        }
        guard(private.as_ref(), &ext, &options).await?;
        cache.start();
    }
    stop_when_lost(&place, &ext);
    let generation = root_generation(&ext).await?;
    let known = (boot.as_ref(), is_kept);
    let info = about((&ext, generation), &options, known, (read_only, notes));
    let ufs = Ufs::new(ext.clone(), &options.entropy, move || info.clone());
    if !read_only {
        reclaim_orphans(&ufs).await?;
    }
    let scrub = Scrubber::new(&ufs, !read_only && !probe.is_clean());
    if !read_only {
        if let Some(candidates) = intents.and_then(|i| i.candidates) {
            scrub.look_at(candidates).await?;
        }
        scrub.run(options.scrub_every);
    }
    let trimmer = Trimmer::new(&ufs);
    trimmer.run(tells_of_free(&probe, &options) && !read_only);
    ext.survey_soon();
    let (boot, frozen) = (RefCell::new(boot.filter(|_| is_kept)), Cell::new(None));
    // With a journal the superblock is the journal's to write.
    let counts_lag = options.mode.info().keeps == Keeps::Segments || !ext.mechanism().atomic();
    let opened =
        Opened { ufs, ext, boot, read_only, scrub, trimmer, frozen, counts_lag, private, groups };
    Ok(Rc::new(opened))
}

/// Whoever finds the volume as it is now does not take it for one that was closed.
fn check_marked(ext: &Ext) {
    let sb = ext.superblock();
    let open = !sb.is_clean() || sb.has_incompat(incompat::RECOVER);
    assert!(open, "V3: a volume that is in use for writing says that nobody uses it");
}

async fn root_generation(ext: &Ext) -> Result<u32, String> {
    let root = ufs::store::Inodes::inode(ext, format::ROOT_INO).await;
    let root = root.map_err(|e| format!("the root directory: {e}"))?;
    Ok(root.with(|raw| format::ufs::inode::InodeRef(raw).generation()))
}

/// Guards the log, if there is one, of a volume that says by now that it needs recovery.
async fn guard(log: Option<&PrivateLog>, ext: &Ext, o: &OpenOptions) -> Result<(), String> {
    let Some(log) = log else { return Ok(()) };
    let flagged = ext.superblock().has_incompat(incompat::RECOVER);
    invariant!(o.plant, flagged, "G1: the guard of a log comes before the flag");
    log.guard().await.map_err(text)
}

async fn reclaim_orphans(ufs: &Ufs<Ext>) -> Result<(), String> {
    let orphans = ufs.reclaim_orphans().await.map_err(|e| format!("orphans: {e}"))?;
    if orphans > 0 {
        tracing::info!("{orphans} orphans reclaimed");
    }
    Ok(())
}

/// Does who opens it tell of what is freed? A store keeps that until it hears of it; in its own
/// mode it does from each group.
fn tells_of_free(probe: &Probe, options: &OpenOptions) -> bool {
    let keeps = probe.in_segments && options.mode.info().keeps != Keeps::Segments;
    options.discards || keeps
}

/// When another machine has the volume, nothing is changed any more.
fn stop_when_lost(place: &Place, ext: &Rc<Ext>) {
    let Some(claim) = place.claim.clone() else { return };
    let ext = ext.clone();
    place.ground.env.spawn("fence", async move {
        claim.lost().await;
        ext.stop_writing();
    });
}

/// Who only reads sees the volume as it will be when its journal or log is replayed.
async fn look_through(place: &mut Place, p: &mut Probe, o: &OpenOptions) -> Result<(), String> {
    if let Plan::LookThrough = p.plan {
        lay_newer(place, p, o).await?;
    }
    if let Some(shared) = &place.shared {
        shared.leave(log::id_in_log(&p.superblock)); // who only reads makes no room for others
    }
    Ok(())
}

/// Lays what the journal or the log holds over the volume's disk.
async fn lay_newer(place: &mut Place, p: &mut Probe, o: &OpenOptions) -> Result<(), String> {
    let newer = if p.has_private_log() {
        Newer::Log(log::look(place, p, o).await?)
    } else {
        let j = p.journal.as_ref().ok_or("its journal is gone")?;
        let outside = if j.outside { place.ground.log_reader().await.map_err(text)? } else { None };
        let inside = place.reader().await.map_err(text)?;
        let blocks = inside.size_bytes() / p.superblock.block_bytes() as u64;
        let held = j.load(outside.as_ref().unwrap_or(&inside), blocks).map_err(text)?;
        Newer::Journal(Box::new(held))
    };
    let over = Overlay::new(place.disk.clone(), p.superblock.block_bytes(), newer);
    place.disk = Rc::new(over);
    // A copy stays where the primary is damaged and no log says what it was.
    if let Ok(newest) = log::read_superblock(&place.disk).await {
        p.superblock = newest;
    }
    Ok(())
}

/// Does it lie where a mode of volumes in segments needs it?
fn check_segments(place: &Place, probe: &Probe, mode: Mode) -> Result<(), String> {
    let groups = place.store.groups();
    if mode.info().keeps != Keeps::Segments {
        let Some(room) = groups.and_then(|g| g.space_left()) else { return Ok(()) };
        let bytes = room * lfs::BLOCK_BYTES as u64;
        return Err(format!(
            "the volume is larger than its store, which has room for {bytes} bytes more: mode \
             {mode} would not notice when that is full; --mode lfs does"
        ));
    }
    if groups.is_none() {
        return Err(format!(
            "mode {mode} is for volumes in a log-structured store: cairn mkfs --profile lfs \
             makes one"
        ));
    }
    if probe.superblock.block_bytes() != lfs::BLOCK_BYTES {
        return Err(format!("mode {mode} needs blocks of {} bytes", lfs::BLOCK_BYTES));
    }
    Ok(())
}

fn new_cache(place: &Place, probe: &Probe, options: &OpenOptions, read_only: bool) -> Rc<Cache> {
    let info = options.mode.info();
    let on_its_own = info.cache_writes_back && !read_only;
    let options = CacheOptions {
        block_bytes: probe.superblock.block_bytes(),
        cache_bytes: options.cache_bytes,
        contents_bytes: options.contents_bytes.unwrap_or(options.cache_bytes),
        interval: on_its_own.then_some(options.commit_interval),
        transfer_bytes_max: TRANSFER_BYTES_MAX,
    };
    let cache = Cache::new(place.ground.env.clone(), place.disk.clone(), options);
    if !read_only && info.keeps == Keeps::Segments {
        place.store.remember(&cache);
    }
    cache
}

fn recipe_of(
    place: &Place,
    (cache, probe): (&Rc<Cache>, &Probe),
    options: &OpenOptions,
    private: Option<&PrivateLog>,
) -> Recipe {
    let block = probe.superblock.block_bytes() as u64;
    let threshold = options.threshold.unwrap_or((options.mode.info().threshold)(block));
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
            disk: match place.ground.log_disk() {
                Some(disk) if j.outside => disk,
                _ => cache.disk().clone(),
            },
            internal: !j.outside,
            extents: j.extents.clone(),
            superblock_at: j.superblock_at,
            superblock: j.raw.clone(),
            wide: probe.superblock.blocks() > 1 << 32,
        },
        commit_interval: options.commit_interval,
        live_bytes_max: mechanisms::live_bytes_max(options.recovery_within),
        threshold,
    });
    let store = groups_of(place, options);
    let (commit, commit_interval) = (options.commit, options.commit_interval);
    let groups = store.map(|store| GroupRecipe { store, commit, commit_interval });
    Recipe { cache: cache.clone(), plant: options.plant, log, journal, groups, intents: None }
}

/// The state to be written at opening; None where the boot area is somebody else's. `now`: when the
/// volume is marked as open, in seconds. It is known again whether that comes about or not.
fn next_state(probe: &Probe, options: &OpenOptions, now: u32) -> Option<BootState> {
    let old = match &probe.boot {
        BootArea::Foreign => return None,
        BootArea::Empty => BootState::default(),
        BootArea::Ours(s) => s.clone(),
    };
    let lost = !(probe.was_clean && old.clean);
    let found = &probe.superblock;
    let stamps = [stamp_of(found), stamp_of(&ext::marked_open(found, now))];
    let mut new = BootState {
        serial: old.serial + 1,
        opened: old.opened + 1,
        losses: old.losses + u64::from(lost),
        mode: options.mode.to_string(),
        clean: false,
        stamps,
        ..old
    };
    if new.handle_key == [0; 16] {
        new.handle_key = options.entropy;
    }
    Some(new)
}

/// The store of segments that takes groups, in the mode of such.
fn groups_of(place: &Place, options: &OpenOptions) -> Option<Rc<dyn GroupStore>> {
    place.store.groups().filter(|_| options.mode.info().keeps == Keeps::Segments)
}

/// Writes the state, with what it says of the log and the intents, where there is room for it;
/// false: there is none.
async fn store_state(
    disk: &Rc<dyn Disk>,
    state: &mut Option<BootState>,
    (log, intents): (Option<&PrivateLog>, Option<[u8; 16]>),
    groups: Option<&Rc<dyn GroupStore>>,
) -> Result<bool, String> {
    let Some(b) = state else { return Ok(true) };
    b.log_uuid = log.filter(|p| p.external).map_or([0; 16], |p| p.uuid);
    b.intents = intents;
    assert!(!b.clean, "V3: who opens the volume for mode {} says that nobody does", b.mode);
    is_written(state::store(disk, b).await, groups).map_err(text)
}

/// A number that no other opening has.
fn number_of(entropy: &[u8; 16]) -> u64 {
    u64::from_le_bytes(*entropy.first_chunk().expect("there are 16"))
}

fn about(
    (ext, root_generation): (&Ext, u32),
    o: &OpenOptions,
    (boot, is_kept): (Option<&BootState>, bool),
    (read_only, notes): (bool, Option<Vec<u128>>),
) -> VolumeInfo {
    let info = o.mode.info();
    // Nobody will know of an opening that is not written down.
    let known = boot.filter(|_| is_kept);
    let (sb, limits) = (ext.superblock(), ufs::store::StoreInfo::limits(ext));
    VolumeInfo {
        uuid: sb.uuid(),
        mode: info.name.into(),
        promise: o.with_near_log(info.promise),
        handle_key: boot.map_or(o.entropy, |b| b.handle_key),
        root_ino: format::ROOT_INO.0,
        root_generation,
        // Where nothing may be kept, any opening may follow a crash.
        boot: known.map_or(number_of(&o.entropy), |b| b.losses),
        opened: known.map(|b| b.opened),
        read_only,
        block_bytes: sb.block_bytes() as u32,
        file_bytes_max: limits.file_bytes_max,
        links_max: limits.links_max,
        counters: Vec::new(),
        done: notes.map(Arc::from),
    }
}

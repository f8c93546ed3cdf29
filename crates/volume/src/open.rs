//! Building a volume inside its engine: cache, mechanism, layout, operations, in this order, and
//! the mark that it is open before anything else is written.

use crate::closing::Opened;
use crate::probe::Probe;
use crate::state;
use cache::{Cache, CacheOptions};
use env::{DiskId, Env, Local, Nanos};
use ext::{Ext, Loaded};
use format::ext::boot::{BootArea, BootState};
use format::ext::map::file_bytes_max;
use integrity::Plant;
use mechanisms::{Mode, Recipe};
use std::cell::RefCell;
use std::rc::Rc;
use ufs::Ufs;
use vfs::{Open, Volume, VolumeInfo};

/// How to open.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// How changes are made safe.
    pub mode: Mode,
    /// Change nothing.
    pub read_only: bool,
    /// Memory for blocks, in bytes.
    pub cache_bytes: usize,
    /// Dirty data is written home at least this often.
    pub commit_interval: Nanos,
    /// Random bytes, for the key of file handles if the volume has none yet.
    pub entropy: [u8; 16],
    /// A planted bug, for the crash explorer.
    pub plant: Plant,
}

/// The largest transfer home.
const TRANSFER_BYTES_MAX: usize = 1 << 20;

/// What a door needs to open the probed volume, which lies on `DiskId(0)` with `disk_bytes`. It
/// must be clean, or recovered, or opened for reading only.
pub fn opener(probe: Probe, disk_bytes: u64, options: OpenOptions) -> Open {
    Box::new(move |env| -> Local<'static, Result<Rc<dyn Volume>, String>> {
        Box::pin(open(env, probe, disk_bytes, options))
    })
}

async fn open(
    env: Env,
    probe: Probe,
    disk_bytes: u64,
    options: OpenOptions,
) -> Result<Rc<dyn Volume>, String> {
    let read_only = options.read_only || probe.read_only.is_some();
    if !read_only && !probe.is_clean() {
        return Err("the volume was not closed cleanly: cairn recover".into());
    }
    let disk = env.port().disk(DiskId(0), disk_bytes);
    if !read_only {
        // What a killed process wrote may be in the device's cache only, and we are about to rely
        // on it.
        disk.flush().await.map_err(|e| e.to_string())?;
    }
    let block_bytes = probe.superblock.block_bytes();
    let lazily = options.mode == Mode::Async || read_only;
    let cache = Cache::new(
        env.clone(),
        disk.clone(),
        CacheOptions {
            block_bytes,
            cache_bytes: options.cache_bytes,
            interval: (!lazily).then_some(options.commit_interval),
            transfer_bytes_max: TRANSFER_BYTES_MAX,
        },
    );
    let recipe = Recipe { cache: cache.clone(), plant: options.plant, log: None };
    let mechanism = mechanisms::build(options.mode, &recipe);
    let clean = probe.is_clean();
    let loaded = Loaded { superblock: probe.superblock.clone(), read_only };
    let ext = Ext::load(env.clone(), cache.clone(), mechanism, loaded).await;
    let ext = Rc::new(ext.map_err(|e| e.to_string())?);
    let boot = next_state(&probe, &options, clean);
    if !read_only {
        if let Some(b) = &boot {
            state::store(&disk, b).await.map_err(|e| e.to_string())?;
        }
        ext.reload_superblock_block(&disk).await.map_err(|e| e.to_string())?;
        ext.mark_open().await.map_err(|e| e.to_string())?;
        cache.start();
    }
    let root = ufs::Store::inode(&*ext, format::ROOT_INO).await;
    let root = root.map_err(|e| format!("the root directory: {e}"))?;
    let generation = root.with(|raw| format::ext::inode::InodeRef(raw).generation());
    drop(root);
    let info = about((&ext, generation), &options, boot.as_ref(), read_only);
    let ufs = Ufs::new(ext.clone(), move || info.clone());
    Ok(Rc::new(Opened { ufs, ext, boot: RefCell::new(boot), read_only }))
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
    VolumeInfo {
        uuid: sb.uuid(),
        mode: info.name.into(),
        promise: info.promise.into(),
        handle_key: boot.map_or(o.entropy, |b| b.handle_key),
        root_generation,
        boot: boot.map_or(u64::from_le_bytes([7; 8]), |b| b.losses),
        read_only,
        block_bytes: sb.block_bytes() as u32,
        file_bytes_max: file_bytes_max(sb.block_bytes()),
        links_max: 32_000,
        counters: Vec::new(),
    }
}

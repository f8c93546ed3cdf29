//! The log-structured store as a kind of store: found by its magic, rolled forward in memory while
//! it is only looked at, opened with a new epoch when it is to be written. What lies in its virtual
//! blocks is the layout's business.

use crate::VolumeError;
use crate::place::Ground;
use crate::store::{FoundStore, Store, StoreKind};
use env::{Block, Disk, DiskError, Env, Local};
use format::mkfs::{MkfsOptions, Plan};
use std::rc::Rc;

/// A store of segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments;

/// One that was found.
#[derive(Clone, Copy, Debug)]
struct FoundSegments {
    /// What opening it will do.
    opened: lfs::Opened,
}

async fn open(on: &Ground, read_only: bool) -> Result<lfs::Store, VolumeError> {
    let options = lfs::OpenOptions { read_only, ..lfs::OpenOptions::default() };
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
            let opened = open(on, true).await?.opened();
            Ok(Some(Box::new(FoundSegments { opened }) as Box<dyn FoundStore>))
        })
    }
}

/// Does a log-structured store begin here? Errors: the device's.
pub async fn is_store(disk: &Rc<dyn Disk>) -> Result<bool, DiskError> {
    if disk.size_bytes() < lfs::BLOCK_BYTES as u64 {
        return Ok(false);
    }
    let first = disk.read(0, vec![Block::zeroed(lfs::BLOCK_BYTES)]).await?;
    Ok(first[0].bytes().starts_with(&lfs::MAGIC))
}

impl FoundStore for FoundSegments {
    fn name(&self) -> &'static str {
        "log-structured store"
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
    fn recover<'a>(&'a mut self, on: &'a Ground) -> Local<'a, Result<(), VolumeError>> {
        Box::pin(async {
            if self.opened.rolled > 0 {
                self.opened = open(on, false).await?.opened();
                self.opened.rolled = 0;
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
            let store = open(on, read_only).await?;
            Ok(Rc::new(Loaded { store, read_only }) as Rc<dyn Store>)
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
    fn close(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async {
            if self.read_only {
                return Ok(());
            }
            self.store.checkpoint().await
        })
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
    let mut blocks = Vec::new();
    plan.each_block(|b, bytes| {
        blocks.push((b, Block::copy_of(bytes)));
        Ok::<(), VolumeError>(())
    })?;
    let bs = plan.geometry().block_bytes as u64;
    for (b, block) in blocks {
        opened.write(b.0 * bs, vec![block], env::Durability::Cached).await?;
    }
    opened.checkpoint().await?;
    Ok(plan.geometry().blocks)
}

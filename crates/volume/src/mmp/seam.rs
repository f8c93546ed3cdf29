//! Where the claim meets the rest: the place of a claimed volume, whose disk lets no write pass
//! without it, and whose store gives it up at the end. How a claim is made it does not know.

use super::Claim;
use crate::place::{Ground, Place, Reader};
use crate::store::Store;
use crate::{OpenOptions, VolumeError};
use env::{Block, Disk, DiskError, Durability, Local, Nanos};
use format::ext::Superblock;
use format::ext::features::incompat;
use format::ext::mmp::{Mmp, SEQ_CLEAN};
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use mechanisms::GroupStore;
use std::rc::Rc;
use vfs::{FsError, Reply, SnapshotOp};

/// What is read past a cache.
const PAGE: usize = 4096;

/// Makes the volume found at `at` ours, if it can be used by several machines (`mmp`): then it is
/// where writes pass the claim. None: it cannot be.
pub(crate) async fn claim(
    at: &Place,
    sb: &Superblock,
    o: &OpenOptions,
) -> Result<Option<Place>, VolumeError> {
    // In segments nothing is written in place, and the store below keeps others off, or nobody.
    if !sb.has_incompat(incompat::MMP) || at.store.groups().is_some() {
        return Ok(None);
    }
    let env = &at.ground.env;
    let claim = Claim::make((env, &at.disk), sb, &o.user, (false, o.plant)).await?;
    claim.keep();
    let below = at.store.clone();
    let disk: Rc<dyn Disk> = Rc::new(Fenced { below: at.disk.clone(), claim: claim.clone() });
    // A log of several volumes is not one volume's.
    let of_log = at.shared.is_none().then(|| claim.clone());
    let ground = Ground { claim: of_log, ..at.ground.clone() };
    let store: Rc<dyn Store> = Rc::new(Claimed { below, disk: disk.clone(), claim: claim.clone() });
    Ok(Some(Place { ground, disk, store, shared: at.shared.clone(), claim: Some(claim) }))
}

/// Is the superblock that was found the one that the device holds, whatever this machine's memory
/// says? Another one may have used the volume until a moment ago.
pub(crate) async fn check_fresh(at: &Place, found: &Superblock) -> Result<(), VolumeError> {
    let read = at.disk.read_fresh(0, vec![Block::zeroed(PAGE)]).await?;
    let start = SUPERBLOCK_AT as usize;
    if read[0].bytes()[start..start + SUPERBLOCK_BYTES] == found.bytes()[..] {
        return Ok(());
    }
    Err(VolumeError("another machine has used it until a moment ago: once more, please".into()))
}

/// Says so where somebody uses a volume that is only looked at: what is read may be of any moment.
pub(crate) async fn warn_reader(at: &Place, sb: &Superblock) {
    let Some(block) = sb.mmp_block() else { return };
    let (byte, len) = (block.0 * sb.block_bytes() as u64, sb.block_bytes());
    let Ok(read) = at.disk.read(byte, vec![Block::zeroed(len)]).await else { return };
    let Ok(found) = Mmp::decode(read[0].bytes(), block) else { return };
    if found.seq() != SEQ_CLEAN {
        let (node, device) = (found.node(), found.device());
        tracing::warn!("{device} on {node} may be writing it: what is read here may be half done");
    }
}

/// A disk whose writes pass the claim.
pub(crate) struct Fenced {
    pub(crate) below: Rc<dyn Disk>,
    pub(crate) claim: Rc<Claim>,
}

impl Disk for Fenced {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }
    fn read(&self, at: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        self.below.read(at, blocks)
    }
    fn read_fresh(&self, at: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        self.below.read_fresh(at, blocks)
    }
    fn write(
        &self,
        at: u64,
        blocks: Vec<Block>,
        how: Durability,
    ) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            self.claim.sure().await?;
            self.below.write(at, blocks, how).await
        })
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            self.claim.check_ours()?;
            self.below.flush().await
        })
    }
    fn discard(&self, at: u64, len: u64) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            self.claim.sure().await?;
            self.below.discard(at, len).await
        })
    }
}

/// The store below, with that disk.
struct Claimed {
    below: Rc<dyn Store>,
    disk: Rc<dyn Disk>,
    claim: Rc<Claim>,
}

impl Store for Claimed {
    fn disk(&self) -> Rc<dyn Disk> {
        self.disk.clone()
    }
    fn reader<'a>(&'a self, on: &'a Ground) -> Local<'a, Result<Reader, DiskError>> {
        self.below.reader(on)
    }
    fn groups(&self) -> Option<Rc<dyn GroupStore>> {
        self.below.groups()
    }
    fn snapshot(&self, op: SnapshotOp, now: u64) -> Local<'_, Result<Reply, FsError>> {
        self.below.snapshot(op, now)
    }
    fn be_still(&self, until: Nanos) -> Local<'_, ()> {
        self.below.be_still(until)
    }
    fn close(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async {
            self.below.close().await?;
            self.claim.release().await
        })
    }
    fn give_up(&self) -> Local<'_, ()> {
        Box::pin(async {
            self.below.give_up().await;
            if let Err(e) = self.claim.release().await {
                tracing::warn!("mmp: {e}");
            }
        })
    }
}

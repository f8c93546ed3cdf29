//! Keeping other machines off a closed volume, for a command that changes it in another way than by
//! opening it: they are told that it is being checked, and so nobody waits. It renews nothing.

use super::{Claim, Refused, User};
use crate::VolumeError;
use crate::place::{Ground, Place};
use env::{Block, Disk, Durability, Env};
use format::ext::Superblock;
use format::ext::features::incompat;
use format::ext::mmp::{MMP_BYTES, Mmp, SEQ_CLEAN};
use std::rc::Rc;

/// A copy is nobody's yet.
pub(crate) async fn clear(at: &Place, sb: &Superblock) -> Result<(), VolumeError> {
    put_clean(&at.ground.env, &at.disk, sb, None).await
}

/// Writes that nobody uses the volume, unless the block is another one than `kept`.
async fn put_clean(
    env: &Env,
    disk: &Rc<dyn Disk>,
    sb: &Superblock,
    kept: Option<&[u8]>,
) -> Result<(), VolumeError> {
    let Some(block) = sb.mmp_block() else { return Ok(()) };
    let (byte, len) = (block.0 * sb.block_bytes() as u64, sb.block_bytes());
    let mut read = disk.read(byte, vec![Block::zeroed(len)]).await?;
    if kept.is_some_and(|kept| read[0].bytes()[..MMP_BYTES] != *kept) {
        return Err(VolumeError("somebody else has used it meanwhile (mmp)".into()));
    }
    let found = Mmp::decode(read[0].bytes(), block);
    let mut mmp = found.map_err(|e| VolumeError(e.to_string()))?;
    mmp.set_seq(SEQ_CLEAN, env.wall().secs(), sb.sums());
    read[0].bytes_mut()[..MMP_BYTES].copy_from_slice(mmp.bytes());
    Ok(disk.write(byte, read, Durability::Fua).await?)
}

/// What was claimed for a command that works on a closed volume.
pub struct Hold(Rc<Claim>);

/// Keeps others off a closed volume while a command changes it; None: it has no way to (`mmp`), or
/// its block is damaged and `mend` is to make it anew. Errors: somebody else uses it.
pub async fn hold(
    on: &Ground,
    sb: &Superblock,
    (user, mend): (&User, bool),
) -> Result<Option<Hold>, VolumeError> {
    if !sb.has_incompat(incompat::MMP) {
        return Ok(None);
    }
    let made = Claim::make((&on.env, &on.disk()), sb, user, (true, on.plant)).await;
    match made {
        Ok(claim) => Ok(Some(Hold(claim))),
        Err(Refused::Broken(_)) if mend => Ok(None),
        Err(e) => Err(e.into()),
    }
}

impl Hold {
    /// The block as it is now, for [`release`], which may be another engine's.
    pub fn kept(&self) -> Vec<u8> {
        self.0.ours.borrow().bytes().to_vec()
    }
}

/// Says that nobody uses it any more, if the block is still as [`Hold::kept`] was. Errors: it is
/// not, or the device's.
pub async fn release(on: &Ground, sb: &Superblock, kept: &[u8]) -> Result<(), VolumeError> {
    put_clean(&on.env, &on.disk(), sb, Some(kept)).await
}

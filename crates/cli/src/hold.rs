//! Keeping other machines off a closed volume for as long as a command changes it, where the volume
//! has a way to (`mmp`). What the command does it does not know.

use crate::Failure;
use crate::device::FileDevice;
use format::ext::Superblock;
use host::{HostFile, drive};
use std::path::Path;
use std::sync::Arc;
use volume::{Ground, User};

/// A volume that is kept; dropped, it is let go.
pub struct Held {
    file: Option<Arc<HostFile>>,
    superblock: Superblock,
    block: Vec<u8>,
}

/// Who we are, as other machines are told.
pub fn user(path: &Path) -> User {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    User { node: host.trim().to_owned(), device: crate::disk::stem(path) }
}

/// Keeps others off; None: the volume has no way to, or there is none. `mend`: a damaged block is
/// about to be made anew, and keeps nobody off. Errors: somebody else uses the volume.
pub fn hold(file: &Arc<HostFile>, mend: bool) -> Result<Option<Held>, Failure> {
    let Ok(found) = volume::probe(&FileDevice(file.clone())) else { return Ok(None) };
    let (path, bytes) = (file.path().to_owned(), file.size_bytes());
    let (of, sb) = (user(&path), found.superblock.clone());
    let seed = host::entropy().map_err(|e| format!("/dev/urandom: {e}"))?;
    let seed = u64::from_le_bytes(*seed.first_chunk().expect("there are 16"));
    let block = drive(std::slice::from_ref(file), seed, move |env| {
        Box::pin(async move {
            let ground = Ground::alone(env, bytes, None);
            Ok(volume::hold(&ground, &sb, (&of, mend)).await?.map(|h| h.kept()))
        })
    });
    let block = block.map_err(|e: volume::VolumeError| format!("{}: {e}", path.display()))?;
    let (file, superblock) = (Some(file.clone()), found.superblock);
    Ok(block.map(|block| Held { file, superblock, block }))
}

impl Held {
    /// The file is another one from now on; None: nobody has it open for the moment.
    pub fn moves(&mut self, file: Option<Arc<HostFile>>) {
        self.file = file;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        let (sb, block, bytes) =
            (self.superblock.clone(), std::mem::take(&mut self.block), file.size_bytes());
        let shown = file.path().display().to_string();
        let released = drive(&[file], 1, move |env| {
            Box::pin(
                async move { volume::release(&Ground::alone(env, bytes, None), &sb, &block).await },
            )
        });
        if let Err(e) = released {
            crate::say::err(&format!("{shown}: {e}"));
        }
    }
}

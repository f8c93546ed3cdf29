//! Logs in files or devices of their own, as they are named on the command line. One that is not
//! there is made for the modes that have a log, and goes again if nothing comes of the volumes that
//! it was made for: a file that nobody needs would be in the way of the next attempt.

use crate::Failure;
use crate::args::OpenArgs;
use crate::device::FileDevice;
use host::HostFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use volume::{Found, Mode, Probe};

/// The size of a log that is made because it is not there.
const LOG_BYTES: u64 = 256 << 20;

/// Where its log is, if not inside.
pub fn log_path(named: Option<&str>) -> Option<&Path> {
    named.filter(|l| *l != "internal").map(Path::new)
}

/// The log's own file or device, if one is named and there.
pub fn existing_log(
    named: Option<&str>,
    read_only: bool,
) -> Result<Option<Arc<HostFile>>, Failure> {
    match log_path(named).filter(|path| path.exists()) {
        Some(path) => Ok(Some(Arc::new(HostFile::open_log(path, read_only)?))),
        None => Ok(None),
    }
}

/// A log that volumes are opened with. Dropped before it stays, it is removed if this run has made
/// it, and no volume says that there is something in it.
pub struct NewLog {
    pub file: Arc<HostFile>,
    made: Option<PathBuf>,
    volumes: Vec<Arc<HostFile>>,
    stays: AtomicBool,
}

impl NewLog {
    /// The volumes are in use with it.
    pub fn stays(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }
}

impl Drop for NewLog {
    fn drop(&mut self) {
        let Some(path) = self.made.as_ref().filter(|_| !self.stays.load(Ordering::Relaxed)) else {
            return;
        };
        // Who was stopped halfway may need it when it is opened again.
        let free = |v: &Arc<HostFile>| {
            volume::probe(&FileDevice(v.clone())).is_ok_and(|p| !p.has_private_log())
        };
        if self.volumes.iter().all(free) {
            // Whoever reads the error looks there; what cannot be removed he sees.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Makes the log that is named and not there, unless one of these volumes has left something in
/// one; a journal is made with its volume. `found`: what is known of the volumes.
pub fn make_log(
    a: &OpenArgs,
    mode: Mode,
    found: &[(&Arc<HostFile>, &Found)],
) -> Result<Option<NewLog>, Failure> {
    let Some(path) = log_path(a.log.as_deref()) else { return Ok(None) };
    let makes = !path.exists() && mode.is_redo() && !a.read_only;
    if makes {
        for (file, found) in found {
            if found.ext().is_ok_and(Probe::has_private_log) {
                let (image, path) = (file.path().display(), path.display());
                let why = format!("{image}: its changes are in a log, and there is none at {path}");
                return Err(Failure::Failed(why));
            }
        }
        let failed = |e: std::io::Error| Failure::Failed(format!("{}: {e}", path.display()));
        let new = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
        let new = new.map_err(failed)?;
        if let Err(e) = new.set_len(LOG_BYTES) {
            let _ = std::fs::remove_file(path); // it is of no use to anybody
            return Err(failed(e));
        }
    }
    let file = Arc::new(HostFile::open_log(path, a.read_only)?);
    let volumes = found.iter().map(|(file, _)| (*file).clone()).collect();
    let made = makes.then(|| path.to_owned());
    Ok(Some(NewLog { file, made, volumes, stays: AtomicBool::new(false) }))
}

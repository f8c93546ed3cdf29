//! A volume opened without a mount, for programs that measure or try its requests. It knows no
//! requests, and makes no volume.

use env::Nanos;
use host::{Driver, HostFile};
use std::path::Path;
use std::sync::Arc;
use vfs::Monitor;

/// The volume in `image`, in the mode of this name, with so much cache. Changes are durable when
/// they are asked to be.
pub(crate) fn open(image: &Path, mode: &str, cache_bytes: usize) -> Result<Driver, String> {
    let file = Arc::new(HostFile::open(image, false)?);
    let mode = volume::Mode::all().find(|m| m.name == mode).ok_or("no such mode")?.mode;
    let options = volume::OpenOptions {
        commit: volume::Commit::Async,
        recovery_within: Nanos::from_secs(10),
        ..volume::OpenOptions::plain(mode, cache_bytes, [7; 16])
    };
    let opener = volume::opener(None, file.size_bytes(), options);
    let driver = Driver::new(Arc::new(Monitor::new(1, opener)), vec![file]);
    driver.open()?;
    Ok(driver)
}

//! The image below a loop device. Who has the image by its name and who has the device lock two
//! different files, and would both write the same bytes: so who opens the device is held against
//! who has the image.

use crate::lock;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

/// The image that a loop device, or a partition of one, shows; None: it is another device.
fn image_of(device: u64) -> Option<PathBuf> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let at = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let places = ["loop/backing_file", "../loop/backing_file"];
    let text = places.iter().find_map(|p| std::fs::read_to_string(at.join(p)).ok())?;
    Some(text.trim_end().into())
}

/// Refuses a loop device whose image another process has. (The other way round the kernel's list of
/// loop devices says it.) What may not be opened, or has lost its name, is not known of.
pub(crate) fn check_unused(device: u64, path: &Path, exclusive: bool) -> Result<(), String> {
    let Some(image) = image_of(device) else { return Ok(()) };
    let Ok(file) = opened(&image, exclusive) else { return Ok(()) };
    lock::take(&file, &image, exclusive).map_err(|why| {
        format!("{}: it is a loop device of an image that is in use: {why}", path.display())
    })
}

/// A lock for writing needs a file that may be written.
fn opened(image: &Path, exclusive: bool) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(exclusive).open(image)
}

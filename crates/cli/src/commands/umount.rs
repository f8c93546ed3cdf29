//! `cairn umount`: takes a mount away and waits until its server has closed the volume. umount(8)
//! returns before that (but for mounts of devices), and whoever then opens the image without asking
//! for its lock, as Linux does behind a loop device, would write beside a server that still writes.
//! As `umount.fuse.cairn` it is umount(8)'s helper.

use crate::args::UmountArgs;
use crate::{Failure, Outcome, say};
use std::time::Duration;

/// A server that takes longer has a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(600);

pub fn run(args: &UmountArgs) -> Result<Outcome, Failure> {
    let shown = args.dir.display();
    let image = fuse::unmount_volume(&args.dir, args.lazy)?;
    if args.lazy {
        return Ok(Outcome::Done);
    }
    let waits = |pid: Option<u32>| {
        let by = pid.map_or_else(String::new, |pid| format!(" by process {pid}"));
        say::err(&format!("{}: it is being closed{by}", image.display()));
    };
    if host::wait_until_closed(crate::disk::file_of(&image), PATIENCE, waits) {
        return Ok(Outcome::Done);
    }
    Err(Failure::Failed(format!(
        "{shown} is unmounted, and its server has not closed {} yet: leave that alone until it has",
        image.display()
    )))
}

//! Waiting until nobody has an image any more: `umount` returns before the server of a mount has
//! closed its volume, and only programs that ask for the lock are kept off until then.

use crate::lock;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is told to whoever waits, after so long.
const SAY_AFTER: Duration = Duration::from_secs(2);

/// Waits until no process has the image or device, at most this long. `waits` is called once if
/// that takes a while, with the process that has it, if that may be known. False: somebody has it
/// still. What cannot be opened, as a bucket, nobody has.
pub fn wait_until_closed(path: &Path, most: Duration, waits: impl FnOnce(Option<u32>)) -> bool {
    let Ok(file) = File::open(path) else { return true };
    let begun = Instant::now();
    let mut waits = Some(waits);
    while lock::is_taken(&file) {
        if begun.elapsed() > most {
            return false;
        }
        if begun.elapsed() > SAY_AFTER
            && let Some(waits) = waits.take()
        {
            waits(lock::holder(&file));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostFile;
    use crate::file::beside_the_build;

    #[test]
    fn an_image_is_waited_for_until_it_is_closed() {
        let path = beside_the_build("closing");
        let file = HostFile::create(&path, 1 << 20).expect("the build's folder may be written");
        assert!(!wait_until_closed(&path, Duration::from_millis(50), |_| ()));
        drop(file);
        assert!(wait_until_closed(&path, Duration::from_secs(5), |_| ()));
        std::fs::remove_file(&path).expect("it was made");
        assert!(wait_until_closed(&path, Duration::ZERO, |_| ()), "nobody has what is not there");
    }
}

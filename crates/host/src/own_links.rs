//! Symbolic links at the end of a path that is named beside an image: whoever may write in a folder
//! could else say by one what file is written.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// As many symbolic links as the kernel follows in one path.
const LINKS_MAX: usize = 40;

/// Where the path leads, if its last part is a symbolic link that may be followed.
pub(crate) fn past_own_links(path: &Path) -> Result<PathBuf, String> {
    let shown = path.display();
    let fail = |e: std::io::Error| format!("{shown}: {e}");
    let me = std::fs::metadata("/proc/self").map_err(fail)?.uid();
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(meta) = std::fs::symlink_metadata(&at) else { return Ok(at) }; // opening says why
        if !meta.is_symlink() {
            return Ok(at);
        }
        if meta.uid() != me && meta.uid() != 0 {
            return Err(format!(
                "{shown}: {} is a symbolic link of another user (uid {}), which is not followed: \
                 name the file itself",
                at.display(),
                meta.uid()
            ));
        }
        let to = std::fs::read_link(&at).map_err(fail)?;
        at = at.parent().unwrap_or(Path::new("")).join(to);
    }
    Err(fail(std::io::Error::from_raw_os_error(libc::ELOOP)))
}

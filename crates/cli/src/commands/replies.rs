//! The replies of the last seconds, in a small file beside the image from a clean end to the next
//! beginning: `.IMAGE.replies`. It is only a help, so what goes wrong with it is told to nobody but
//! the log, and what is not as it was written is thrown away.

use nfs::Server;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The file, for an image that is a file itself.
fn place(image: &Path) -> Option<PathBuf> {
    let image = fs::canonicalize(image).ok().filter(|i| i.is_file())?;
    let mut name = OsString::from(".");
    name.push(image.file_name()?);
    name.push(".replies");
    Some(image.with_file_name(name))
}

/// Gives the server what the one before has left. The file goes in any case: what it says is true
/// only now.
pub fn take_over(server: &Server, volume: usize, image: &Path) {
    let Some(at) = place(image) else { return };
    match read(&at) {
        Ok(bytes) => {
            if !server.take_over(volume, &bytes, now_secs()) {
                tracing::info!("{}: not of this volume as it is, or too old", at.display());
            }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => tracing::info!("{}: {e}", at.display()),
    }
    if let Err(e) = fs::remove_file(&at) {
        tracing::info!("{}: {e}", at.display());
    }
}

fn read(at: &Path) -> io::Result<Vec<u8>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(at)?;
    let meta = file.metadata()?;
    let own = File::open("/proc/self")?.metadata()?.uid();
    if !meta.is_file() || meta.uid() != own || meta.mode() & 0o077 != 0 {
        return Err(io::Error::other("not a file that a server of this user has left"));
    }
    let mut bytes = Vec::new();
    file.take(Server::REPLIES_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Leaves what the next server needs, if there is anything. Whatever had the name gives way, a
/// symbolic link too.
pub fn leave(server: &Server, volume: usize, image: &Path) {
    let Some(bytes) = server.last_replies(volume, now_secs()) else { return };
    let Some(at) = place(image) else { return };
    if let Err(e) = write(&at, &bytes) {
        tracing::info!("{}: {e}: requests that come again may be done again", at.display());
    }
}

fn write(at: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(at) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => (),
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options.open(at)?.write_all(bytes)
}

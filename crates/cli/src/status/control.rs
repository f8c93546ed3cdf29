//! The control socket: where a running server can be asked by whoever runs it on the same machine,
//! in a directory that nobody else can enter: `/run/cairn` for root, else the user's own runtime
//! directory. A server without one serves all the same.

use super::collect::Status;
use super::http::start_on_socket;
use std::fs::{DirBuilder, Permissions, set_permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ENDING: &str = "sock";

/// A socket, as long as this lives.
pub struct Control(PathBuf);

impl Control {
    /// Listens. None: it cannot, and the log says why.
    pub fn start(status: Arc<Status>) -> Option<Control> {
        let dir = directory();
        let listening = ours(&dir).and_then(|()| {
            clean(&dir);
            let path = dir.join(format!("{}.{ENDING}", std::process::id()));
            let _ = std::fs::remove_file(&path); // of a process that had our number
            let control = Control(path);
            let listener = UnixListener::bind(&control.0)?;
            start_on_socket(listener, status)?;
            Ok(control)
        });
        match listening {
            Ok(control) => Some(control),
            Err(e) => {
                tracing::info!("{}: {e}: `cairn stats` will not find this server", dir.display());
                None
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Where the sockets of this user's servers are.
fn directory() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user == 0 => PathBuf::from("/run/cairn"),
        Some(dir) if !dir.is_empty() => PathBuf::from(dir).join("cairn"),
        _ => std::env::temp_dir().join(format!("cairn-{user}")),
    }
}

/// Makes the directory if it is not there. Errors: it is not ours alone.
fn ours(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => (),
    }
    let found = std::fs::symlink_metadata(dir)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to somebody else"));
    }
    if found.mode() & 0o077 != 0 {
        // systemd makes it for all to enter.
        set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// All sockets that are there.
pub fn sockets() -> Vec<PathBuf> {
    let found = std::fs::read_dir(directory()).into_iter().flatten().flatten();
    let is_socket = |p: &PathBuf| p.extension().is_some_and(|e| e == ENDING);
    let mut all: Vec<PathBuf> = found.map(|e| e.path()).filter(is_socket).collect();
    all.sort();
    all
}

/// Removes the sockets of servers that were killed.
fn clean(dir: &Path) {
    for path in sockets().iter().filter(|p| p.parent() == Some(dir)) {
        let gone = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
        if UnixStream::connect(path).is_err_and(gone) {
            let _ = std::fs::remove_file(path);
        }
    }
}

//! Opening a disk by the name that the user gave: an image, a device, `IMAGE@pN`, partition N of an
//! image that has a partition table, or a bucket's URL; and behind any of them `@NAME`, a snapshot
//! of the volume there. It knows no volume.

use crate::status;
use format::foreign::LOOK_BYTES;
use format::partitions::{Partition, Table, table};
use host::{HostFile, Url};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Opens a disk and makes sure that nobody else uses it. Errors are for the user.
pub fn open(path: &Path, read_only: bool) -> Result<HostFile, String> {
    if snapshot_of(path).is_some() && !read_only {
        return Err(format!("{}: a snapshot can only be read", path.display()));
    }
    let open = |path: &Path| {
        if !read_only && is_read_only_device(path) {
            let shown = path.display();
            return Err(format!(
                "{shown}: the device is read-only, and would be written (mounts and servers: \
                 --read-only)"
            ));
        }
        HostFile::open(path, read_only)
    };
    open_by(path, open).map_err(|why| with_server(path, why))
}

/// Does the kernel refuse writes to this device? Opened for writing it may be all the same, as what
/// `losetup -r` makes, and then each write fails.
fn is_read_only_device(path: &Path) -> bool {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let device = std::fs::metadata(path).ok().filter(|m| m.file_type().is_block_device());
    device.is_some_and(|m| {
        let (major, minor) = (rustix::fs::major(m.rdev()), rustix::fs::minor(m.rdev()));
        let told = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
        told.is_ok_and(|ro| ro.trim() == "1")
    })
}

/// Why a disk cannot be opened; where a server of ours has it, also as what.
fn with_server(path: &Path, why: String) -> String {
    if path.is_dir() {
        let wanted = || "a directory: an image or a device is wanted".to_owned();
        // Of a mount whose server was killed the kernel may know only this much.
        let why = std::fs::read_dir(path).err().map_or_else(wanted, |e| e.to_string());
        return format!("{}: {why}", path.display());
    }
    const REMEDY: &str = ": end it first";
    let Some(what) = why.strip_suffix(REMEDY).filter(|w| w.contains("in use by process")) else {
        return why;
    };
    let Some((server, name)) = crate::commands::scrub::server_of(path) else {
        let user = what.rsplit_once("in use by process ").and_then(|(_, user)| {
            user.split(' ').next()?.parse().ok().filter(|pid| status::is_silent(*pid))
        });
        // A server that cannot be asked is not ended because of that.
        let Some(pid) = user else { return why };
        return format!("{what}, which {}", status::why_silent(pid));
    };
    let volume = server.report.volumes.iter().find(|v| v.name == name);
    let shown = match volume.and_then(|v| v.mount.as_deref()) {
        Some(dir) => format!("mounted on {dir}"),
        None => format!("which serves it as /{name}"),
    };
    format!("{what}, {shown}{REMEDY}")
}

/// The same for reading, beside whoever uses it.
pub fn open_beside(path: &Path) -> Result<HostFile, String> {
    open_by(path, HostFile::open_beside)
}

/// Makes a file of this length. A snapshot's name is none for a file, which would hide that one.
pub fn create(path: &Path, bytes: u64) -> Result<HostFile, String> {
    if snapshot_of(path).is_some() {
        return Err(format!("{}: a snapshot can only be read", path.display()));
    }
    HostFile::create(path, bytes)
}

fn open_by(
    path: &Path,
    how: impl FnOnce(&Path) -> Result<HostFile, String>,
) -> Result<HostFile, String> {
    if let Some((image, snapshot)) = snapshot_of(path) {
        return Ok(open_by(image, how)?.at_snapshot(snapshot, path));
    }
    match partition_of(path) {
        Some((image, number)) => {
            let whole = how(image)?;
            let p = find(&whole, path, number)?;
            whole.part(p.begins, p.bytes, path)
        }
        None => how(path),
    }
}

/// The image and the name of a snapshot of the volume in it, where `IMAGE@NAME` is written. A file
/// that is really called so is none, nor is a partition, nor a folder of objects.
pub fn snapshot_of(path: &Path) -> Option<(&Path, &str)> {
    let is_folder = matches!(Url::of(path), Ok(Some(Url::Folder(dir))) if dir.exists());
    if path.exists() || partition_of(path).is_some() || is_folder {
        return None;
    }
    let (image, name) = path.to_str()?.rsplit_once('@')?;
    let image = Path::new(image);
    let named = lfs::check_name(name).is_ok() && exists(image);
    named.then_some((image, name))
}

/// The file of a volume that is named so: of `IMAGE@pN` and `IMAGE@NAME` that is `IMAGE`.
pub fn file_of(path: &Path) -> &Path {
    let image = snapshot_of(path).map_or(path, |(image, _)| image);
    partition_of(image).map_or(image, |(image, _)| image)
}

/// Is there something under this name? What lies behind a URL is not looked at.
pub fn exists(path: &Path) -> bool {
    path.exists() || partition_of(path).is_some() || matches!(Url::of(path), Ok(Some(_)))
}

/// The whole path, wherever it is named from. A partition's name is no file's.
pub fn real(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_default()
}

/// The name of a disk without what says where it lies: the file's, without its ending; of a
/// partition with its number, as Linux names them.
pub fn stem(path: &Path) -> String {
    let stem = |p: &Path| p.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match partition_of(path) {
        Some((image, number)) => format!("{}-p{number}", stem(image)),
        None => stem(path),
    }
}

/// The image and the partition's number. A file that is really called so is no partition.
pub fn partition_of(path: &Path) -> Option<(&Path, u32)> {
    split(path).filter(|(image, _)| !path.exists() && image.exists())
}

/// The image whose partition is named, if there is none of that name.
pub fn missing_of(path: &Path) -> Option<&Path> {
    let (image, _) = split(path)?;
    (!path.exists() && !image.exists()).then_some(image)
}

/// `IMAGE@pN` in its parts.
fn split(path: &Path) -> Option<(&Path, u32)> {
    let bytes = path.as_os_str().as_bytes();
    let at = bytes.windows(2).rposition(|w| w == b"@p")?;
    let number = std::str::from_utf8(&bytes[at + 2..]).ok()?;
    let digits = !number.starts_with('0') && number.bytes().all(|b| b.is_ascii_digit());
    let number = number.parse().ok().filter(|_| digits)?;
    Some((Path::new(OsStr::from_bytes(&bytes[..at])), number))
}

fn find(whole: &HostFile, path: &Path, number: u32) -> Result<Partition, String> {
    let shown = path.display();
    let mut head = vec![0; whole.size_bytes().min(LOOK_BYTES as u64) as usize];
    whole.read_at(0, &mut head).map_err(|e| format!("{shown}: {e}"))?;
    let none = || Table { kind: "", partitions: Vec::new() };
    let all = table(&head).unwrap_or_else(none).partitions;
    let found = all.iter().find(|p| p.number == number).copied();
    found.ok_or_else(|| match &all[..] {
        [] => format!("{shown}: there is no partition table"),
        _ => {
            let there: Vec<String> = all.iter().map(|p| format!("p{}", p.number)).collect();
            format!("{shown}: there is no such partition; there are: {}", there.join(", "))
        }
    })
}

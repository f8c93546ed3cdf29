//! What the command line says of all buckets, once a process: the endpoint, the price list, the key
//! of an encrypted volume, the near log. It asks no bucket.

use crate::Failure;
use crate::args::{BucketArgs, NearArgs, OpenArgs};
use bucket::{Key, Prices};
use env::{Env, Nanos};
use host::HostFile;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use volume::{BucketOptions, Ground};

static PRICES: OnceLock<Prices> = OnceLock::new();
static KEY: OnceLock<Key> = OnceLock::new();
static NEAR: OnceLock<(PathBuf, Nanos)> = OnceLock::new();
/// The bytes of a near log that is made because it is not there.
const NEAR_BYTES: usize = 256 << 20;

/// What requests cost.
pub fn prices() -> Prices {
    PRICES.get().copied().unwrap_or_default()
}

/// From now on this holds, once a process. Errors: there is no key where one is named, or the cache
/// cannot be used.
pub fn set(a: BucketArgs) -> Result<(), Failure> {
    a.endpoint.into_iter().for_each(host::set_endpoint);
    let _ = PRICES.set(a.prices.unwrap_or_default());
    if let Some((path, bytes)) = a.cache_disk {
        host::set_cache_disk(&path, bytes)?;
    }
    if let Some(near) = near_of(&a.near)? {
        let _ = NEAR.set(near);
    }
    let key = match (a.key_file, a.key_command) {
        (Some(path), _) => key_of_file(&path),
        (None, Some(command)) => key_of_command(&command),
        (None, None) => return Ok(()),
    };
    let _ = KEY.set(key.map_err(Failure::Failed)?);
    Ok(())
}

/// Where a near log is, and its bound, as arguments say it. Errors: a bound that cannot be.
fn near_of(a: &NearArgs) -> Result<Option<(PathBuf, Nanos)>, Failure> {
    if !(0.1..=3600.0).contains(&a.upload_within) {
        return Err(Failure::Usage("--upload-within: 0.1 to 3600 seconds".into()));
    }
    let within = Nanos((a.upload_within * 1e9) as u64);
    Ok(a.near_log.clone().map(|path| (path, within)))
}

fn key_of_file(path: &Path) -> Result<Key, String> {
    let raw = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Key::parse(&raw).map_err(|why| format!("{}: {why}", path.display()))
}

fn key_of_command(command: &str) -> Result<Key, String> {
    let fail = |why: String| format!("--key-command {command}: {why}");
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::inherit()).stderr(Stdio::inherit());
    let out = shell.output().map_err(|e| fail(e.to_string()))?;
    if !out.status.success() {
        return Err(fail(format!("it has failed ({})", out.status)));
    }
    Key::parse(&out.stdout).map_err(fail)
}

/// The key that was given.
pub fn key() -> Option<Key> {
    KEY.get().cloned()
}

/// What the command line says, as options of a volume in a bucket.
pub fn options() -> BucketOptions {
    let kept = host::has_cache_disk();
    let near = NEAR.get().map(|(path, within)| (path.display().to_string(), *within));
    BucketOptions { key: key(), prices: prices(), kept, near, ..BucketOptions::default() }
}

/// Is a near log named on the command line?
pub fn has_near_log() -> bool {
    NEAR.get().is_some()
}

/// The near log of a volume that is opened like this: its configuration's, else the command line's.
/// Errors: a bound that cannot be.
pub fn near_of_volume(a: &OpenArgs) -> Result<Option<(PathBuf, Nanos)>, Failure> {
    match &a.near {
        Some(near) => near_of(near),
        None => Ok(NEAR.get().cloned()),
    }
}

/// The near log that the command line names for this volume, as [`opened_near_log`] has it.
pub fn near_log(volume: &HostFile, read_only: bool) -> Result<Option<Arc<HostFile>>, Failure> {
    opened_near_log(volume, read_only, NEAR.get().map(|(path, _)| path.as_path()))
}

/// The near log of this volume: none if it is only read. It is made if it is not there. Errors: the
/// volume is in no bucket; it cannot be opened or made.
pub fn opened_near_log(
    volume: &HostFile,
    read_only: bool,
    path: Option<&Path>,
) -> Result<Option<Arc<HostFile>>, Failure> {
    let Some(path) = path else { return Ok(None) };
    if !volume.is_bucket() {
        let why = format!("--near-log: {} is not in a bucket", volume.path().display());
        return Err(Failure::Usage(why));
    }
    if read_only {
        return Ok(None);
    }
    if !path.exists() {
        make_near_log(path).map_err(|e| Failure::Failed(format!("{}: {e}", path.display())))?;
    }
    let file = HostFile::open_log(path, false)?;
    file.write_past_cache();
    Ok(Some(Arc::new(file)))
}

/// Its blocks are there before it has its name: a log that grows would make each write slower.
fn make_near_log(path: &Path) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let filled = std::fs::File::create(&name).and_then(|mut file| {
        let zeros = vec![0; 1 << 20];
        for _ in 0..NEAR_BYTES / zeros.len() {
            file.write_all(&zeros)?;
        }
        file.sync_all()
    });
    // A disk that it does not fit on is not left full.
    filled.inspect_err(|_| drop(std::fs::remove_file(&name)))?;
    std::fs::rename(&name, path)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// A volume's disks, for who only looks: with what opens it if it is in a bucket.
pub fn ground(env: Env, (own, log): (u64, Option<u64>), snapshot: Option<String>) -> Ground {
    Ground { snapshot, bucket: options(), ..Ground::alone(env, own, log) }
}

//! What the command line says of all buckets, once a process: the endpoint, the price list, and the
//! key of an encrypted volume. It asks no bucket.

use crate::Failure;
use crate::args::BucketArgs;
use bucket::{Key, Prices};
use env::Env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use volume::{BucketOptions, Ground};

static PRICES: OnceLock<Prices> = OnceLock::new();
static KEY: OnceLock<Key> = OnceLock::new();

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
    let key = match (a.key_file, a.key_command) {
        (Some(path), _) => key_of_file(&path),
        (None, Some(command)) => key_of_command(&command),
        (None, None) => return Ok(()),
    };
    let _ = KEY.set(key.map_err(Failure::Failed)?);
    Ok(())
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
    BucketOptions { key: key(), prices: prices(), kept, ..BucketOptions::default() }
}

/// A volume's disks, for who only looks: with what opens it if it is in a bucket.
pub fn ground(env: Env, (own, log): (u64, Option<u64>), snapshot: Option<String>) -> Ground {
    Ground { snapshot, bucket: options(), ..Ground::alone(env, own, log) }
}

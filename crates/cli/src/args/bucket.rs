//! What every command takes about volumes in buckets: where the store is reached, what it costs,
//! and keys. A command that uses no bucket does not look at it.

use crate::size;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
#[command(next_help_heading = "Volumes in buckets")]
pub struct BucketArgs {
    /// Where the object store of s3:// URLs is reached [default: AWS_ENDPOINT_URL, or Amazon's].
    #[arg(long, value_name = "URL", global = true)]
    pub endpoint: Option<String>,
    /// What requests to a bucket cost, for the metrics, `info` and `lfs stat`: prices of 1,000 PUT,
    /// GET, LIST, DELETE and of a GB IN, OUT and STORED for a month, as in `PUT=0.0045,OUT=0`,
    /// where they differ from Amazon's S3 Standard in us-east-1; `free,…` begins with nothing.
    #[arg(long, value_name = "LIST", global = true, value_parser = bucket::Prices::parse)]
    pub prices: Option<bucket::Prices>,
    /// The key of an encrypted volume in a bucket: a file with 32 random bytes, or 64 hexadecimal
    /// digits. `mkfs` with a key makes such a volume.
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "key_command")]
    pub key_file: Option<PathBuf>,
    /// The same, printed by a command of the shell.
    #[arg(long, value_name = "COMMAND", global = true)]
    pub key_command: Option<String>,
    /// Keep what is read from buckets in this file, of this size; it survives restarts.
    #[arg(long, value_name = "PATH,SIZE", global = true, value_parser = cache_disk)]
    pub cache_disk: Option<(PathBuf, u64)>,
    #[command(flatten)]
    pub near: NearArgs,
}

/// The near log: what may also be said of each volume in a configuration.
#[derive(Args, Clone)]
#[command(next_help_heading = "Volumes in buckets")]
pub struct NearArgs {
    /// Of a volume in a bucket that is written: what is durable in this file or partition counts as
    /// durable, and is uploaded later; a new file has 256 MiB. Lost with this machine is what the
    /// bucket does not have yet.
    #[arg(long, value_name = "PATH", global = true)]
    pub near_log: Option<PathBuf>,
    /// With --near-log: the bucket has everything after so many seconds, or callers wait.
    #[arg(long, value_name = "SECONDS", global = true, default_value = "5")]
    #[arg(value_parser = size::seconds)]
    pub upload_within: f64,
}

/// A cache's file and its size. Errors: what is wrong with that.
fn cache_disk(text: &str) -> Result<(PathBuf, u64), String> {
    let (path, bytes) = text.rsplit_once(',').ok_or("PATH,SIZE is wanted, as in /var/c,10G")?;
    Ok((path.into(), size::parse(bytes)?))
}

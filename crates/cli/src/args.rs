//! The command line, as the contract has it. What belongs to something that is not in this version
//! is taken and refused with exit 2, so that a script learns it at once.

mod bucket;
mod check;
mod config;
mod copy;
mod crash;
mod fsck;
mod help;
mod lab;
mod log;
mod pool;
mod snapshot;
mod store;
mod tune;

use crate::size;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

pub use self::bucket::{BucketArgs, NearArgs};
use check::CHECK_EXAMPLES;
pub use check::CheckArgs;
pub use config::{ConfigArgs, ConfigCommand};
pub use copy::CopyArgs;
pub use crash::{CrashArgs, CrashProfile};
pub use fsck::FsckArgs;
pub use help::LogFormat;
use help::{EXAMPLES, MOUNTED, NFS, SAFETY, SERVE_EXAMPLES};
pub use lab::{BenchArgs, LabArgs, LabCommand};
pub use log::{LogArgs, LogClient, LogCommand};
use pool::POOL_EXAMPLES;
pub use pool::{PoolArgs, PoolCommand};
pub use snapshot::{SnapshotArgs, SnapshotCommand};
pub use store::{LfsArgs, LfsCommand};
use tune::{LABEL_EXAMPLES, RESIZE_EXAMPLES, UUID_EXAMPLES};
pub use tune::{LabelArgs, ResizeArgs, UuidArgs};

/// Above the options that every command has.
const GLOBAL: &str = "Of every command";

/// A crash-safe file server: ext2, ext3 and ext4 volumes, safe in the way you choose.
#[derive(Parser)]
#[command(version, about, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// Logs: -v what happens, -vv more. RUST_LOG works too.
    #[arg(short, long, action = clap::ArgAction::Count, global = true, help_heading = GLOBAL)]
    pub verbose: u8,
    /// How the log is written: lines to read, a JSON object a line, or systemd's journal with each
    /// value in a field of its own (`journalctl -t cairn -o json`).
    #[arg(
        long,
        global = true,
        default_value = "text",
        hide_default_value = true,
        help_heading = GLOBAL
    )]
    pub log_format: LogFormat,
    #[command(flatten)]
    pub bucket: BucketArgs,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Open volumes and serve them until Ctrl-C.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Mount a volume with FUSE.
    Mount(MountArgs),
    /// Unmount a volume, and wait until its server has closed it.
    Umount(UmountArgs),
    /// Make a volume.
    Mkfs(MkfsArgs),
    /// Check a volume; exit 0 sound, 3 damage left in place, 4 repaired.
    Fsck(FsckArgs),
    /// Check a volume and change nothing; with --read, whether all of its files can be read.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Finish what an unclean end left, as opening would, without mounting.
    Recover(RecoverArgs),
    /// Copy a volume as it is at one moment, also while it is in use.
    Copy(CopyArgs),
    /// Enlarge a closed volume, and its image.
    #[command(after_help = RESIZE_EXAMPLES)]
    Resize(ResizeArgs),
    /// Show or change a closed volume's label.
    #[command(after_help = LABEL_EXAMPLES)]
    Label(LabelArgs),
    /// Show or change a closed volume's UUID.
    #[command(after_help = UUID_EXAMPLES)]
    Uuid(UuidArgs),
    /// Geometry, features, state, mode last used, promise.
    Info(InfoArgs),
    /// List directories: the root, if none is named.
    Ls(ListedArgs),
    /// Print files, also through symbolic links within the volume.
    Cat(PathsArgs),
    /// Show attributes.
    Stat(ShownArgs),
    /// Copy out of the volume: PATH… then the local target (default: here). Hard links, modes and
    /// times are kept, and owners too, if root does it.
    Get(PathsArgs),
    /// Copy into the volume: LOCAL… then the directory in the volume. Hard links, owners, modes and
    /// times are kept.
    Put(PathsArgs),
    /// Make directories.
    Mkdir(PathsArgs),
    /// Remove files, and with -r directories.
    Rm(RmArgs),
    /// Run a workload on a directory and tell the rate.
    Bench(BenchArgs),
    /// Explore the states that a power cut can leave, and tell what each mode lost.
    Crash(CrashArgs),
    /// Repeat the papers' experiments on modelled disks in virtual time.
    Lab(LabArgs),
    /// What the servers of this machine do: fullness, latencies, clients, what was slow.
    Stats(StatsArgs),
    /// The same, live.
    Top(StatsArgs),
    /// The configuration file of `cairn serve`: look at it, or show what it comes to.
    Config(ConfigArgs),
    /// The stand-alone log: make one, append to it, read it.
    Log(LogArgs),
    /// The log-structured store below a volume: how it is filled, clean it, export it.
    Lfs(LfsArgs),
    /// Moments of a volume in a log-structured store that stay readable.
    Snapshot(SnapshotArgs),
    /// Volumes below one prefix of a bucket, divided among several servers.
    #[command(after_help = POOL_EXAMPLES)]
    Pool(PoolArgs),
    /// Write the man pages or the shells' completions into a directory.
    #[command(hide = true)]
    Generate(GenerateArgs),
}

#[derive(Args)]
pub struct UmountArgs {
    /// Where it is mounted.
    pub dir: PathBuf,
    /// If somebody uses it, take its name away now and the mount when its last user goes; nothing
    /// is waited for.
    #[arg(short, long)]
    pub lazy: bool,
}

#[derive(Args)]
pub struct StatsArgs {
    /// Only this one, by its export's name or its image [default: all that are served].
    pub volume: Option<String>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

/// What a package holds that follows from the command line.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Generated {
    /// A page for each command, section 1, and those of the helpers, section 8.
    Man,
    /// For bash, zsh and fish.
    Completions,
}

#[derive(Args)]
pub struct GenerateArgs {
    /// Which of the two.
    pub what: Generated,
    /// Made if it is not there.
    pub dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Profile {
    Ext2,
    Ext3,
    Ext4,
    Lfs,
}

impl Profile {
    /// Its name, as it is given.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Ext2 => "ext2",
            Profile::Ext3 => "ext3",
            Profile::Ext4 => "ext4",
            Profile::Lfs => "lfs",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Uring {
    Auto,
    On,
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum WritebackCache {
    Auto,
    On,
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Commit {
    Sync,
    Async,
}

/// How a volume is opened.
#[derive(Args, Clone)]
pub struct OpenArgs {
    /// How changes are made safe.
    /// [default: unified, but sync without a journal, and ordered where that needs recovery]
    #[arg(help_heading = SAFETY, long)]
    pub mode: Option<String>,
    /// Where the log is: internal, or a path (modes with a log).
    #[arg(help_heading = SAFETY, long)]
    pub log: Option<String>,
    /// When a local operation that has returned is durable (modes with a log): at once, or, but for
    /// fsync, some 10 ms later. What NFS answers is durable either way [default: async].
    #[arg(help_heading = SAFETY, long)]
    pub commit: Option<Commit>,
    /// Seconds after which delayed changes are durable (mode async: only when there are many).
    #[arg(help_heading = SAFETY, long, default_value = "5", value_name = "SECONDS")]
    #[arg(value_parser = size::seconds)]
    pub commit_interval: f64,
    /// Seconds that a recovery may take: the log is emptied when more has gathered in it.
    #[arg(help_heading = SAFETY, long, default_value = "10", value_name = "SECONDS")]
    #[arg(value_parser = size::seconds)]
    pub recovery_within: f64,
    /// Writes of up to this size are logged (unified) [default: a block; longer ones that a caller
    /// waits for are too while that makes the wait shorter], or of each write the pieces, one a
    /// block, of up to this size (selective) [default: less than a block].
    #[arg(help_heading = SAFETY, long, value_name = "BYTES", value_parser = size::parse)]
    pub threshold: Option<u64>,
    /// Write data before the metadata that points at them (mode redo).
    #[arg(help_heading = SAFETY, long)]
    pub ordered_data: bool,
    /// Check the volume while it is in use whenever so many days have passed; what nothing points
    /// at is given back.
    #[arg(long, value_name = "DAYS", value_parser = size::seconds)]
    pub scrub: Option<f64>,
    /// Tell the disk of what is freed (in runs of 64 KiB and more, some 20 s later), so that a
    /// solid-state disk or a sparse image gets it back; fstrim(8) does it when it is run.
    #[arg(long)]
    pub discard: bool,
    /// Change nothing.
    #[arg(long)]
    pub read_only: bool,
    /// Use bytes 0 to 1023 even if something else is there; it is saved to a file first.
    #[arg(long)]
    pub use_boot_area: bool,
    /// Memory for blocks [default: a quarter of the machine's].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub cache: Option<u64>,
    /// FUSE over io_uring.
    #[arg(help_heading = MOUNTED, long, default_value = "auto")]
    pub fuse_uring: Uring,
    /// The mount's kernel may hold back what is written until fsync, close or later (modes sync
    /// and async, which promise nothing of it before; auto: off).
    #[arg(help_heading = MOUNTED, long, default_value = "auto")]
    pub writeback_cache: WritebackCache,
    /// Of a volume in a log-structured store on a disk: which segments the cleaner empties first,
    /// and how (docs/lfs.md) [default: balanced].
    #[arg(long, value_name = "POLICY", value_parser = store::cleaner_policy)]
    pub cleaner: Option<lfs::Policy>,
    /// When it does: idle (when nothing else is asked for, and when free segments get few),
    /// pressure (only then), off (never) [default: idle].
    #[arg(long, value_name = "WHEN", value_parser = store::cleaning)]
    pub cleaning: Option<lfs::Cleaning>,
    /// From when to when it does under pressure, in percent of the segments that are free beyond
    /// those kept for table and cleaner, and how many it empties in a pass at most: 2,4 or
    /// 5,10,32.
    #[arg(long, value_name = "BEGIN,STOP[,AT-ONCE]", value_parser = store::thresholds)]
    pub cleaner_thresholds: Option<lfs::Thresholds>,
    /// Of the same: blocks that are read one behind the other are laid so, in idle time (on, off)
    /// [default: on where the disk was measured to take a millisecond or more for an access].
    #[arg(long, value_name = "on|off", value_parser = store::on_or_off)]
    pub reorganise: Option<bool>,
    /// Of a volume in a bucket: wait until its writer is silent or has ended, then go on in its
    /// place.
    #[arg(long)]
    pub standby: bool,
    /// Of a volume in a bucket: take it over, even if its writer was heard of a moment ago.
    #[arg(long, conflicts_with = "standby")]
    pub take_over: bool,
    /// Seconds after which the writer of a volume in a bucket counts as silent.
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = size::seconds)]
    pub takeover_after: f64,
    /// Of a volume in a bucket, with --read-only: show what the machine that writes it goes on to
    /// write.
    #[arg(long)]
    pub follow: bool,
    /// No answer shows a followed volume as it was longer ago, in seconds; errors come instead.
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = size::seconds)]
    pub follow_within: f64,
    /// With --mode soft-updates: a small log says what a crash may leave half done, so that giving
    /// it back looks at that alone, at the opening; the volume's idle journal has room for it.
    #[arg(long)]
    pub journal_intents: bool,
    /// What a configuration says of its near log.
    #[arg(skip)]
    pub near: Option<NearArgs>,
}

#[derive(Args, Clone)]
pub struct ServeArgs {
    /// Volumes [default: ./cairn.img, made if missing]. A bucket's URL with a slash at its end: a
    /// share of the volumes there; other machines that serve the same have theirs.
    pub images: Vec<PathBuf>,
    /// Volumes and options as this file says, where nothing else is said here; SIGHUP reads its
    /// exports again.
    #[arg(long, value_name = "FILE", conflicts_with = "images")]
    pub config: Option<PathBuf>,
    /// Size of the image if it is made.
    #[arg(long, default_value = "10G", value_parser = size::parse)]
    pub size: u64,
    /// Kind of the volume if it is made [default: ext4, and ext3 for the modes that do not write
    /// that].
    #[arg(long)]
    pub profile: Option<Profile>,
    #[command(flatten)]
    pub open: OpenArgs,
    /// Serve NFS and MOUNT here.
    #[arg(help_heading = NFS, long, value_name = "ADDR:PORT", conflicts_with = "no_nfs")]
    pub nfs: Option<String>,
    /// Do not serve NFS.
    #[arg(help_heading = NFS, long)]
    pub no_nfs: bool,
    /// Also mount it here with FUSE.
    #[arg(help_heading = MOUNTED, long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Options of the mount, as mount(8) has them: suid, dev, noexec, noatime, …
    #[arg(help_heading = MOUNTED, short = 'o', value_name = "OPTIONS", requires = "mount")]
    pub options: Vec<String>,
    /// Status page and metrics here.
    #[arg(long, value_name = "ADDR:PORT")]
    pub http: Option<String>,
    /// Register with the local rpcbind.
    #[arg(help_heading = NFS, long)]
    pub rpcbind: bool,
    /// Who may use what, as whom: NAME=CIDR[,ro|rw][,root_squash|no_root_squash|all_squash]
    /// [,secure|insecure][,anonuid=N][,anongid=N]… (docs/nfs.md).
    #[arg(help_heading = NFS, long)]
    pub export: Vec<String>,
    /// Accept mode async over NFS, which loses acknowledged changes in a crash.
    #[arg(help_heading = NFS, long)]
    pub unsafe_async: bool,
    /// This is the process of one volume of a pool, of the server with this number.
    #[arg(long, hide = true, value_name = "PROCESS")]
    pub of_pool: Option<u32>,
}

#[derive(Args)]
pub struct MountArgs {
    /// The volume: an image, a device, IMAGE@pN for a partition, IMAGE@NAME for a snapshot, or a
    /// bucket's URL.
    pub image: PathBuf,
    /// The directory to mount it on.
    pub dir: PathBuf,
    #[command(flatten)]
    pub open: OpenArgs,
    /// As mount(8) has them: ro, suid, dev, noexec, noatime, … [default: nosuid,nodev]; with
    /// `remount`: of the mount that is there.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Go to the background once it is mounted.
    #[arg(long)]
    pub daemon: bool,
    /// This is the process in the background.
    #[arg(long, hide = true)]
    pub detached: bool,
}

#[derive(Args)]
pub struct MkfsArgs {
    /// A new image, one that is there, a device, IMAGE@pN, or a bucket's URL.
    pub image: PathBuf,
    /// The volume's size [default: the device's].
    #[arg(long, value_parser = size::parse)]
    pub size: Option<u64>,
    /// Kind of the volume: ext2 has no journal, ext3 has one, ext4 has extents and checksums too,
    /// lfs lies in a log-structured store [default: ext4; in a bucket it is one without a journal].
    #[arg(long)]
    pub profile: Option<Profile>,
    /// Bytes of a block: 1024, 2048 or 4096.
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = size::parse)]
    pub block_size: u64,
    /// Bytes of an inode: 128, or 256 with nanosecond times.
    #[arg(long, default_value = "256")]
    pub inode_size: usize,
    /// At least so many inodes.
    #[arg(long)]
    pub inodes: Option<u32>,
    /// The journal's size [default: by the volume's].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub journal_size: Option<u64>,
    /// The journal on another device.
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// With --profile lfs: the image's size, of which --size may be a multiple (thin): what is
    /// written takes room, what is removed gives it back.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub store_size: Option<u64>,
    /// With --profile lfs: bytes of a segment, from 64K on [default: what the disk's access and
    /// bandwidth ask for, which are measured].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub segment_size: Option<u64>,
    /// Its name, up to 16 bytes.
    #[arg(long, default_value = "")]
    pub label: String,
    /// Even if there is something on it already.
    #[arg(long)]
    pub force: bool,
    /// In a bucket: are objects made shorter by zstd? auto: unless they are encrypted, which
    /// --key-file does, because their lengths would tell something of what is in them.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto", require_equals = true)]
    #[arg(num_args = 0..=1, default_missing_value = "always", hide_possible_values = false)]
    pub compress: Compress,
}

/// When objects in a bucket are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Compress {
    /// Unless they are encrypted.
    #[default]
    Auto,
    Always,
    Never,
}

impl Compress {
    /// Are they? `encrypted`: with a key.
    pub fn is_on(self, encrypted: bool) -> bool {
        self == Compress::Always || self == Compress::Auto && !encrypted
    }
}

impl MkfsArgs {
    /// What the command takes without any option.
    pub fn plain(image: PathBuf, size: u64, profile: Profile) -> MkfsArgs {
        MkfsArgs { size: Some(size), profile: Some(profile), ..defaults([image.into()]) }
    }
}

impl Default for OpenArgs {
    /// What a command opens a volume with that is told nothing.
    fn default() -> OpenArgs {
        defaults([])
    }
}

/// The arguments of a command of which only these are said: what holds for the others stands in
/// the attributes above, and nowhere else.
fn defaults<T: Args>(said: impl IntoIterator<Item = OsString>) -> T {
    let line = std::iter::once("cairn".into()).chain(said);
    let given = T::augment_args(clap::Command::new("cairn")).try_get_matches_from(line);
    let read = given.and_then(|m| T::from_arg_matches(&m));
    read.expect("arguments without a default value have been said")
}

#[derive(Args)]
pub struct RecoverArgs {
    /// The volume: an image, a device, IMAGE@pN, or a bucket's URL.
    pub image: PathBuf,
    /// Its log or journal, where that is on another device.
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct InfoArgs {
    /// The volume: an image, a device, IMAGE@pN, IMAGE@NAME for a snapshot,
    /// or a bucket's URL.
    pub image: PathBuf,
    /// Its log, where that is on another device.
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PathsArgs {
    /// The volume: an image, a device, IMAGE@pN, or a bucket's URL.
    pub image: PathBuf,
    /// Paths in the volume, from its root; which of them are local, the first line says.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Its log, where that is on another device.
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
}

/// Paths that are told about.
#[derive(Args)]
pub struct ShownArgs {
    #[command(flatten)]
    pub of: PathsArgs,
    /// For programs: an object a path, each in a line of its own.
    #[arg(long)]
    pub json: bool,
}

/// Directories that are listed.
#[derive(Args)]
pub struct ListedArgs {
    /// The volume: an image, a device, IMAGE@pN, or a bucket's URL.
    pub image: PathBuf,
    /// Paths in the volume, from its root.
    #[arg(default_value = "/")]
    pub paths: Vec<OsString>,
    /// Its log, where that is on another device.
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// For programs: one array, with an object a name.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct RmArgs {
    /// The volume: an image, a device, IMAGE@pN, or a bucket's URL.
    pub image: PathBuf,
    /// In the volume, from its root.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Its log, where that is on another device.
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// Directories too, with all they hold.
    #[arg(short, long)]
    pub recursive: bool,
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::{Command, CommandFactory};

    fn walk(path: &str, command: &Command, all: &mut Vec<String>) {
        let bare = |a: &&clap::Arg| a.get_help().is_none() && !a.is_hide_set();
        all.extend(command.get_arguments().filter(bare).map(|a| format!("{path} {}", a.get_id())));
        for sub in command.get_subcommands() {
            walk(&format!("{path} {}", sub.get_name()), sub, all);
        }
    }

    #[test]
    fn every_argument_of_every_command_has_its_line_of_help() {
        let mut bare = Vec::new();
        walk("cairn", &Cli::command(), &mut bare);
        assert!(bare.is_empty(), "without help: {bare:?}");
    }
}

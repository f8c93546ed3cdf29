//! Words of the helps: headings of the long ones, whole lines that do something, and how the log is
//! written, which every command can be told.

use clap::ValueEnum;

/// Headings of the long helps.
pub(super) const SAFETY: &str = "How changes are made safe";
pub(super) const MOUNTED: &str = "Mounted here";
pub(super) const NFS: &str = "Over NFS";

/// Whole lines that do something, below the helps.
pub(super) const EXAMPLES: &str = "Examples:
  cairn mkfs disk.img --size 10G
  cairn mount disk.img DIR --daemon
  cairn serve disk.img --export 'disk=192.168.1.0/24,rw'
  cairn info vm.img@p1
  cairn fsck disk.img";
pub(super) const SERVE_EXAMPLES: &str = "Examples:
  cairn serve
      ./cairn.img, made if missing, over NFS for this machine
  cairn serve a.img b.img --export 'a=192.168.1.0/24,rw;10.0.0.7,ro'
      two volumes; the first for a network and, for reading, a machine
  cairn serve mail.img --no-nfs --mount /srv/mail -o noatime
      a mount alone
  cairn serve --config /etc/cairn/cairn.toml --http 127.0.0.1:9049
      what the file says, with a page that shows it";

/// How the log is written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum LogFormat {
    Text,
    Json,
    Journald,
}

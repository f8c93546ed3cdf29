//! The options of a mount by their names in mount(8), and as the bits of mount(2). It knows neither
//! how one mounts nor which mounts there are.

use libc::{
    MS_DIRSYNC, MS_NOATIME, MS_NODEV, MS_NODIRATIME, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_RELATIME,
    MS_REMOUNT, MS_STRICTATIME, MS_SYNCHRONOUS,
};
use vfs::AccessTimes;

/// libc has no name for it.
const MS_NOSYMFOLLOW: u64 = 256;

/// Which options hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options(pub(crate) u64);

/// What a mount has that was told nothing.
impl Default for Options {
    fn default() -> Options {
        Options(MS_NOSUID | MS_NODEV)
    }
}

const TIMES: u64 = MS_NOATIME | MS_RELATIME | MS_STRICTATIME;
const ALL: u64 = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_SYNCHRONOUS;
/// What `user` and its like mean beside who may mount: unless more is said.
const BY_A_USER: u64 = MS_NOSUID | MS_NODEV | MS_NOEXEC;

/// A name, the bits it takes away, those it gives.
const NAMES: [(&str, u64, u64); 34] = [
    ("defaults", ALL, 0),
    ("ro", 0, MS_RDONLY),
    ("rw", MS_RDONLY, 0),
    ("suid", MS_NOSUID, 0),
    ("nosuid", 0, MS_NOSUID),
    ("dev", MS_NODEV, 0),
    ("nodev", 0, MS_NODEV),
    ("exec", MS_NOEXEC, 0),
    ("noexec", 0, MS_NOEXEC),
    ("sync", 0, MS_SYNCHRONOUS),
    ("async", MS_SYNCHRONOUS, 0),
    ("dirsync", 0, MS_DIRSYNC),
    ("atime", MS_NOATIME, 0),
    ("noatime", TIMES, MS_NOATIME),
    ("diratime", MS_NODIRATIME, 0),
    ("nodiratime", 0, MS_NODIRATIME),
    ("relatime", TIMES, MS_RELATIME),
    ("norelatime", MS_RELATIME, 0),
    ("strictatime", TIMES, MS_STRICTATIME),
    ("nostrictatime", MS_STRICTATIME, 0),
    ("symfollow", MS_NOSYMFOLLOW, 0),
    ("nosymfollow", 0, MS_NOSYMFOLLOW),
    ("remount", 0, MS_REMOUNT),
    ("user", 0, BY_A_USER),
    ("users", 0, BY_A_USER),
    ("owner", 0, BY_A_USER),
    ("group", 0, BY_A_USER),
    // For whoever reads fstab, or true of every mount of ours that root makes.
    ("nouser", 0, 0),
    ("auto", 0, 0),
    ("noauto", 0, 0),
    ("nofail", 0, 0),
    ("_netdev", 0, 0),
    ("default_permissions", 0, 0),
    ("nolazytime", 0, 0),
];

impl Options {
    /// These with what a list says, later ones over earlier ones. Errors name the option that is
    /// not known here.
    pub fn with(self, list: &str) -> Result<Options, String> {
        let mut bits = self.0;
        for name in list.split(',').filter(|n| !n.is_empty()) {
            if name.starts_with("x-") || name.starts_with("X-") || name.starts_with("comment=") {
                continue; // for other programs
            }
            let Some((_, less, more)) = NAMES.iter().find(|n| n.0 == name) else {
                return Err(format!("option {name:?} is not one that a mount of cairn knows"));
            };
            bits = bits & !less | more;
        }
        let times = (bits & TIMES).count_ones();
        assert!(times <= 1, "{times} ways to keep times of access, after {list}");
        Ok(Options(bits))
    }

    /// For reading only?
    pub fn is_read_only(self) -> bool {
        self.0 & MS_RDONLY != 0
    }
    /// Is a mount that is there to be changed?
    pub fn is_remount(self) -> bool {
        self.0 & MS_REMOUNT != 0
    }
    /// Does it give what only root may give?
    pub(crate) fn needs_root(self) -> bool {
        self.0 & (MS_NOSUID | MS_NODEV) != MS_NOSUID | MS_NODEV
    }
    /// For reading only, too.
    pub fn read_only(self) -> Options {
        Options(self.0 | MS_RDONLY)
    }

    /// How reads keep times of access. The kernel leaves them to a FUSE server, and does not tell
    /// it what the mount's options say.
    pub(crate) fn access_times(self) -> AccessTimes {
        match self.0 {
            o if o & (MS_RDONLY | MS_NOATIME) != 0 => AccessTimes::Never,
            o if o & MS_STRICTATIME != 0 => AccessTimes::Always,
            _ => AccessTimes::Relative,
        }
    }

    /// Those that a list says, and no others.
    pub(crate) fn of(list: &str) -> Result<Options, String> {
        Options(0).with(list)
    }
    /// Those of a mount that is not there yet.
    pub(crate) fn but_remount(self) -> Options {
        Options(self.0 & !MS_REMOUNT)
    }

    /// By their names, for fusermount3.
    pub(crate) fn names(self) -> String {
        let bits = self.but_remount().0;
        let given = NAMES.iter().filter(|n| n.2.count_ones() == 1 && bits & n.2 != 0);
        given.map(|n| n.0).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &str) -> Options {
        Options::default().with(list).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn options_are_those_of_mount_and_the_last_one_holds() {
        assert_eq!(of(""), Options::default());
        assert_eq!(of("suid,dev"), Options(0));
        assert_eq!(of("defaults"), Options(0));
        assert_eq!(of("defaults,nosuid,ro,rw,noexec"), Options(MS_NOSUID | MS_NOEXEC));
        assert_eq!(of("dev,suid,user"), Options(BY_A_USER));
        assert_eq!(of("user,exec"), Options(MS_NOSUID | MS_NODEV));
        assert!(of("remount,ro").is_remount() && of("remount,ro").is_read_only());
        assert!(of("x-systemd.automount,noauto,nofail,_netdev") == Options::default());
        assert!(Options::default().with("nosuid,nosense").is_err_and(|e| e.contains("nosense")));
    }

    #[test]
    fn times_of_access_follow_the_last_word_about_them() {
        for (list, when) in [
            ("", AccessTimes::Relative),
            ("relatime", AccessTimes::Relative),
            ("noatime", AccessTimes::Never),
            ("noatime,atime", AccessTimes::Relative),
            ("noatime,strictatime", AccessTimes::Always),
            ("strictatime,relatime", AccessTimes::Relative),
            ("strictatime,ro", AccessTimes::Never),
        ] {
            assert_eq!(of(list).access_times(), when, "{list}");
        }
    }

    #[test]
    fn fusermount_gets_their_names() {
        assert_eq!(of("noexec,noatime,ro").names(), "ro,nosuid,nodev,noexec,noatime");
        assert_eq!(of("").names(), "nosuid,nodev");
    }
}

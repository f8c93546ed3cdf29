//! Reads /proc/self/mountinfo, whose format proc_pid_mountinfo(5) describes. It says which options
//! a mount has, and knows nothing of what follows from them.

use crate::options::Options;
use host::unescaped;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) const PATH: &str = "/proc/self/mountinfo";

/// A mount.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its number, which no other mount has while it is there.
    pub(crate) id: u64,
    dir: PathBuf,
    pub(crate) kind: String,
    pub(crate) source: PathBuf,
    /// Its own options and those of its file system.
    options: String,
}

impl Entry {
    fn parse(line: &str) -> Option<Entry> {
        let (ours, theirs) = line.split_once(" - ")?;
        let ours: Vec<&str> = ours.split(' ').collect();
        let theirs: Vec<&str> = theirs.split(' ').collect();
        Some(Entry {
            id: ours.first()?.parse().ok()?,
            dir: unescaped(ours.get(4)?),
            kind: (*theirs.first()?).to_owned(),
            source: unescaped(theirs.get(1)?),
            options: format!("{},{}", ours.get(5)?, theirs.get(2)?),
        })
    }

    fn last(is_it: impl Fn(&Entry) -> bool) -> io::Result<Option<Entry>> {
        let all = std::fs::read(PATH)?;
        let all = String::from_utf8_lossy(&all);
        Ok(all.lines().filter_map(Entry::parse).rfind(is_it))
    }

    /// Is it a mount of ours, of a device or not?
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.kind.as_str(), "fuse.cairn" | "fuseblk.cairn")
    }

    /// The uppermost mount at `dir`, if there is one.
    pub(crate) fn at(dir: &Path) -> io::Result<Option<Entry>> {
        let dir = std::path::absolute(dir)?;
        // The last name may not be asked of the file system: it may be a mount that cannot answer.
        let dir = match (dir.parent(), dir.file_name()) {
            (Some(parent), Some(name)) => parent.canonicalize()?.join(name),
            _ => dir,
        };
        Entry::last(|e| e.dir == dir)
    }

    /// The mount with this number, if it is still there.
    pub(crate) fn numbered(id: u64) -> io::Result<Option<Entry>> {
        Entry::last(|e| e.id == id)
    }

    /// Its options; what is not said there does not hold.
    pub(crate) fn options(&self) -> Options {
        let mut now = Options(0);
        for name in self.options.split(',').filter(|n| *n != "rw") {
            now = now.with(name).unwrap_or(now);
        }
        if now.access_times() == vfs::AccessTimes::Relative && now.0 & libc::MS_RELATIME == 0 {
            now = Options(now.0 | libc::MS_STRICTATIME); // it is the one that has no word there
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::AccessTimes;

    #[test]
    fn lines_of_mountinfo_are_understood() {
        let line =
            r"36 35 0:52 / /a\040dir rw,nosuid,relatime shared:1 - fuse.cairn /v\134w rw,user_id=0";
        let e = Entry::parse(line).expect("a line");
        assert_eq!((e.id, e.kind.as_str()), (36, "fuse.cairn"));
        assert_eq!((e.dir.to_str(), e.source.to_str()), (Some("/a dir"), Some("/v\\w")));
        assert_eq!(e.options(), Options(libc::MS_NOSUID | libc::MS_RELATIME));
        for (own, of_all, times) in [
            ("rw,nosuid", "rw", AccessTimes::Always),
            ("ro,nosuid,relatime", "rw", AccessTimes::Never),
            ("rw,nosuid,relatime", "ro", AccessTimes::Never),
            ("rw,noatime", "rw,sync", AccessTimes::Never),
        ] {
            let e = Entry::parse(&format!("1 2 0:3 / /m {own} - fuse.cairn v {of_all}"));
            assert_eq!(e.expect("a line").options().access_times(), times, "{own} {of_all}");
        }
        assert!(Entry::parse("nonsense").is_none() && Entry::parse("1 2 - x").is_none());
    }
}

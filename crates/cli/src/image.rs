//! Opening an image for a command: look, recover if need be, open in one thread, walk paths, close.

use crate::Failure;
use crate::args::OpenArgs;
use crate::commands::nfs_server::of_this_machine;
use crate::logs::{NewLog, existing_log, log_path, make_log};
use crate::progress::RecoveryBar;
use crate::say;
use env::{Nanos, Rope};
use format::ext::boot::{self, BootArea};
use format::shown;
use host::{Driver, HostFile, drive, entropy};
use integrity::Plant;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use vfs::{Attr, Call, FsError, Kind, Monitor, Reply, Request, SeekKind};
use volume::{BucketOptions, Commit, Found, Mode, ModeOption, OpenOptions, Probe, TakeOver};

/// The mode by its name, or what modes there are.
pub fn mode_of(name: &str) -> Result<Mode, Failure> {
    Mode::by_name(name).ok_or_else(|| not_there(name))
}

fn not_there(name: &str) -> Failure {
    let all: Vec<&str> = Mode::proven().map(|m| m.name).collect();
    Failure::Usage(format!("mode {name} is not in this version; there are {}", all.join(", ")))
}

/// The arguments with a mode: if none is named, the volume's default.
pub fn with_mode(a: &OpenArgs, found: &Found) -> OpenArgs {
    let has_log = log_path(a.log.as_deref()).is_some();
    let of = |p: &Probe| p.default_mode(has_log);
    let default = || found.ext().map_or(Mode::WITHOUT_JOURNAL, of).to_string();
    OpenArgs { mode: Some(a.mode.clone().unwrap_or_else(default)), ..a.clone() }
}

/// Looks at a volume's disks, its own first and then the one that was named for its log.
pub fn look(disks: &[Arc<HostFile>]) -> Result<Found, Failure> {
    let shown = disks[0].path().to_owned();
    let sizes = (disks[0].size_bytes(), disks.get(1).map(|l| l.size_bytes()));
    let snapshot = disks[0].snapshot();
    let found = drive(disks, 1, move |env| {
        let ground = crate::buckets::ground(env, sizes, snapshot);
        Box::pin(async move { volume::look(&ground).await })
    });
    found.map_err(|e| about(&shown, &e.to_string()).into())
}

/// An error about a volume, which the words may call IMAGE where they tell a line to paste.
pub fn about(image: &Path, why: &str) -> String {
    let shown = image.display().to_string();
    format!("{shown}: {}", why.replace("IMAGE", &shown))
}

/// The same of a volume that could not be opened. Where its medium is full, what it holds is no
/// less safe than before.
pub fn not_opened(image: &Path, why: &str) -> String {
    let why = about(image, why);
    if !why.contains("no space left on the medium") {
        return why;
    }
    format!(
        "{why}; opening it has to write, to recover it if it was not closed. Nothing is lost: make \
         room on the medium and open it again, or open it for reading (mounts and servers: \
         --read-only)"
    )
}

/// Refuses what a look has shown to be in vain, before anything is promised, or made for it.
pub fn check_found(a: &OpenArgs, mode: Mode, found: &Found, image: &Path) -> Result<(), Failure> {
    let Ok(p) = found.ext() else { return Ok(()) };
    let has_log = log_path(a.log.as_deref()).is_some();
    if let Some(why) = p.takes_no_log().filter(|_| has_log) {
        return Err(Failure::Usage(about(image, &format!("--log has no meaning: {why}"))));
    }
    // What an unclean end has left is finished first, and may change what there is; so does who
    // makes the boot area ours. A journal that is elsewhere has to be named in any case.
    let elsewhere = p.superblock.journal_is_outside() && p.journal.is_none();
    let changes = !p.is_clean() && !elsewhere || a.use_boot_area;
    if a.read_only || p.read_only.is_some() || changes {
        return Ok(());
    }
    p.refuses(mode, has_log).map_or(Ok(()), |why| Err(about(image, &why).into()))
}

/// Refuses options of modes that are not there.
pub fn check_open_args(a: &OpenArgs) -> Result<Mode, Failure> {
    let mode = a.mode.as_deref().map_or(Ok(Mode::WITHOUT_JOURNAL), mode_of)?;
    if !mode.info().proven {
        return Err(not_there(&mode.to_string()));
    }
    let outside = a.log.as_ref().is_some_and(|l| l != "internal");
    let given = [
        (ModeOption::Log, outside),
        (ModeOption::Commit, a.commit.is_some()),
        (ModeOption::Threshold, a.threshold.is_some()),
        (ModeOption::OrderedData, a.ordered_data),
        (ModeOption::JournalIntents, a.journal_intents),
    ];
    if let Some(option) = mode.refuses(&given).filter(|_| a.mode.is_some()) {
        let why = format!("{} has no meaning in mode {mode}", option.name());
        return Err(Failure::Usage(why));
    }
    if !(a.commit_interval > 0.0 && a.commit_interval < 1e6) {
        return Err(Failure::Usage("--commit-interval is a number of seconds above 0".into()));
    }
    if !(a.takeover_after > 0.0 && a.takeover_after < 1e6) {
        return Err(Failure::Usage("--takeover-after is a number of seconds above 0".into()));
    }
    if !(a.recovery_within > 0.0 && a.recovery_within < 1e6) {
        return Err(Failure::Usage("--recovery-within is a number of seconds above 0".into()));
    }
    if a.scrub.is_some_and(|days| !(days > 0.0 && days < 1e5)) {
        return Err(Failure::Usage("--scrub is a number of days above 0".into()));
    }
    if a.follow && !a.read_only {
        let why = "--follow is for who reads while another machine writes: give --read-only too";
        return Err(Failure::Usage(why.into()));
    }
    if a.follow && !(0.1..=3600.0).contains(&a.follow_within) {
        return Err(Failure::Usage("--follow-within: 0.1 to 3600 seconds".into()));
    }
    if let Some(bytes) = a.cache.filter(|b| *b < CACHE_BYTES_MIN) {
        let why = format!("--cache {bytes}: {} at least", crate::size::show(CACHE_BYTES_MIN));
        return Err(Failure::Usage(why));
    }
    crate::buckets::near_of_volume(a)?;
    if a.scrub.is_some() && a.read_only {
        return Err(Failure::Usage("--scrub has no meaning with --read-only".into()));
    }
    Ok(mode)
}

/// No volume works with less memory for blocks.
const CACHE_BYTES_MIN: u64 = 1 << 20;

/// What clean contents may have of a cache whose size nobody has named: the kernel holds them too,
/// below us in the image's pages, and reading its copy costs little.
const CONTENTS_BYTES: usize = 16 << 20;
/// The same, as a share of the cache, where the kernel holds contents only above us, as a mount's:
/// what is changed in part is read before, and not from the kernel's copy.
pub const CONTENTS_ALONE_SHARE: usize = 16;

/// A quarter of the machine's memory: a bound, for metadata and what is dirty.
pub fn default_cache() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = total.and_then(|t| t.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(256 << 20, |k| k * 1024 / 4)
}

/// The volume's options from the arguments.
pub fn options_of(a: &OpenArgs, mode: Mode) -> Result<OpenOptions, Failure> {
    Ok(OpenOptions {
        mode,
        read_only: a.read_only,
        cache_bytes: a.cache.unwrap_or_else(default_cache).max(CACHE_BYTES_MIN) as usize,
        contents_bytes: a.cache.is_none().then_some(CONTENTS_BYTES),
        commit_interval: Nanos((a.commit_interval * 1e9) as u64),
        recovery_within: Nanos((a.recovery_within * 1e9) as u64),
        entropy: entropy().map_err(|e| format!("no random bytes: {e}"))?,
        plant: Plant::NONE,
        commit: match a.commit {
            Some(crate::args::Commit::Sync) => Commit::Sync,
            _ => Commit::Async,
        },
        threshold: a.threshold,
        ordered_data: a.ordered_data,
        journal_intents: a.journal_intents,
        log_disk_bytes: None,
        watch: None,
        scrub_every: a.scrub.map(|days| Nanos((days * 86_400e9) as u64)),
        discards: a.discard,
        log_alone: false,
        cleaner: a.cleaner,
        cleaning: a.cleaning,
        thresholds: a.cleaner_thresholds,
        reorganise: a.reorganise,
        user: volume::User::default(),
        bucket: bucket_options(a),
        snapshot: None,
    })
}

/// How a volume is opened that is in a bucket.
pub fn bucket_options(a: &OpenArgs) -> BucketOptions {
    let take_over = match (a.standby, a.take_over) {
        (true, _) => TakeOver::Wait,
        (_, true) => TakeOver::Insist,
        _ => TakeOver::Refuse,
    };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let at = of_this_machine().map_or(String::new(), |at| format!(" ({at})"));
    let writer = format!("process {} on {}{at}", std::process::id(), host.trim());
    let after = Nanos((a.takeover_after * 1e9) as u64);
    let follow = a.follow.then_some(Nanos((a.follow_within * 1e9) as u64));
    let all = BucketOptions { take_over, after, writer, follow, ..crate::buckets::options() };
    match crate::buckets::near_of_volume(a) {
        Ok(near) => {
            let near = near.map(|(path, within)| (path.display().to_string(), within));
            BucketOptions { near, ..all }
        }
        Err(_) => all, // it was refused before
    }
}

/// Says what a look has shown that whoever opens the volume should know, and makes the boot area
/// ours if that was asked for.
pub fn tell(
    file: &Arc<HostFile>,
    found: &mut Found,
    read_only: bool,
    use_boot_area: bool,
) -> Result<(), Failure> {
    let shown = file.path().display().to_string();
    let Some(p) = found.layout.ext_mut() else { return Ok(()) };
    // What is refused is told by whoever opens it.
    if let Some(why) = p.read_only.as_ref().filter(|_| p.not_replayed().is_none()) {
        say::err(&format!("{shown}: {why}"));
    }
    if read_only || p.read_only.is_some() || p.boot != BootArea::Foreign {
        return Ok(());
    }
    if use_boot_area {
        p.boot = save_boot_area(file)?;
    } else {
        say::err(&format!(
            "{shown}: bytes 0 to 1023 hold something else (a boot loader?): the mode is not \
             recorded there, and NFS handles do not survive a restart; --use-boot-area uses them"
        ));
    }
    Ok(())
}

/// Saves what is in the boot area and clears it; what is there then.
fn save_boot_area(file: &Arc<HostFile>) -> Result<BootArea, Failure> {
    let _held = crate::hold::hold(file, false)?; // it may be another machine's
    let to = file.path().with_extension("boot-area");
    let mut bytes = [0; 1024];
    let fail = |e: std::io::Error| Failure::Failed(format!("{}: {e}", to.display()));
    file.read_at(0, &mut bytes).map_err(fail)?;
    // Another machine may have done so and gone while this one waited for its turn.
    let now = boot::decode(&bytes);
    if now != BootArea::Foreign {
        return Ok(now);
    }
    // Never over what was saved before, nor through a link that somebody has put there; and what
    // is cleared below is safe by then.
    let new = std::fs::OpenOptions::new().write(true).create_new(true).open(&to);
    let mut saved = new.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            let why = "the old bytes would be saved here, and there is something: move it away";
            Failure::Failed(format!("{}: {why}", to.display()))
        }
        _ => fail(e),
    })?;
    saved.write_all(&bytes).and_then(|()| saved.sync_all()).map_err(fail)?;
    file.write_at(0, &[0; 1024]).map_err(fail)?;
    file.flush().map_err(fail)?;
    say::err(&format!("the old bytes 0 to 1023 are saved in {}", to.display()));
    Ok(BootArea::Empty)
}

/// The arguments for opening an image as a command does: in this mode, or the one last used.
pub fn open_args(found: &Found, mode: Option<&str>, log: Option<String>) -> OpenArgs {
    let has_log = log_path(log.as_deref()).is_some();
    let of = |p: &Probe| p.usual_mode(has_log);
    let last = || found.ext().map_or(Mode::WITHOUT_JOURNAL, of).to_string();
    OpenArgs { mode: Some(mode.map_or_else(last, str::to_owned)), log, ..OpenArgs::default() }
}

/// Linux follows no more symbolic links for one path either.
const LINKS_MAX: u32 = 40;

/// A volume opened for one command.
pub struct Image {
    driver: Driver,
    shown: String,
    /// The root directory's inode.
    root: u32,
    block_bytes: usize,
}

impl Image {
    /// Opens it; a read-only one reads an unclean volume through its journal or log. `log`: where
    /// that is, if it is on another device.
    pub fn open(path: &Path, read_only: bool, log: Option<&Path>) -> Result<Image, Failure> {
        let shown = path.display().to_string();
        let file = Arc::new(crate::disk::open(path, read_only)?);
        let mut files = vec![file.clone()];
        let log = log.map(|l| l.display().to_string());
        files.extend(existing_log(log.as_deref(), read_only)?);
        files.extend(crate::buckets::near_log(&file, read_only)?);
        let mut found = look(&files)?;
        let refused = found.ext().ok().and_then(Probe::not_replayed);
        let cannot = found.ext().ok().and_then(|p| p.read_only.as_ref());
        if let Some(why) = cannot.filter(|_| !read_only && refused.is_none()) {
            let why = why.trim_start_matches("opened for reading only: ");
            return Err(Failure::Failed(format!("{shown}: it cannot be changed: {why}")));
        }
        let args = open_args(&found, None, log);
        let args = OpenArgs { read_only, cache: Some(64 << 20), ..args };
        let mode = mode_of(args.mode.as_deref().unwrap_or_default())?;
        check_found(&args, mode, &found, path)?;
        check_open_args(&args)?;
        let new_log = match files.len() {
            1 => make_log(&args, mode, &[(&file, &found)])?,
            _ => None,
        };
        files.extend(new_log.iter().map(|l| l.file.clone()));
        tell(&file, &mut found, read_only, false)?;
        let mut options = options_of(&args, mode)?;
        options.snapshot = file.snapshot();
        options.user = crate::hold::user(path);
        options.watch = Some(Arc::new(RecoveryBar::new(Some(shown.clone()))));
        options.log_disk_bytes = files.get(1).map(|l| l.size_bytes());
        let seed = u64::from_le_bytes(*options.entropy.last_chunk().expect("there are 16"));
        let opener = volume::opener(Some(found), file.size_bytes(), options);
        let monitor = Arc::new(Monitor::new(seed, opener));
        let driver = Driver::new(monitor, files);
        driver.open().map_err(|e| not_opened(path, &e))?;
        new_log.iter().for_each(NewLog::stays);
        let (root, block_bytes) = match driver.request(Request::Info) {
            Ok(Reply::Info(info)) => (info.root_ino, info.block_bytes as usize),
            _ => return Err(Failure::Failed(format!("{shown}: it does not say what it is"))),
        };
        Ok(Image { driver, shown, root, block_bytes })
    }

    /// Contents that are to be written at this byte of a file, in pieces that the volume's memory
    /// takes over as they are.
    pub fn cut(&self, contents: &[u8], offset: u64) -> Rope {
        Rope::cut(contents, (offset % self.block_bytes as u64) as usize, self.block_bytes)
    }

    /// Asks the volume; `what` is named in the error.
    pub fn ask(&self, what: &str, request: Request) -> Result<Reply, Failure> {
        self.driver.request(request).map_err(|e| self.failure(what, e))
    }

    /// Asks all of this at once, so that what has to become durable does so together; the replies
    /// in the same order. All are carried out as far as they can be; the first that cannot is the
    /// error, named by `what` of its number.
    pub fn ask_all(
        &self,
        requests: Vec<Request>,
        what: impl Fn(usize) -> String,
    ) -> Result<Vec<Reply>, Failure> {
        let replies = self.ask_each(requests).into_iter().enumerate();
        replies.map(|(n, r)| r.map_err(|e| self.failure(&what(n), e))).collect()
    }

    /// The same, where it matters which of them were carried out.
    pub fn ask_each(&self, requests: Vec<Request>) -> Vec<Result<Reply, FsError>> {
        let answers = self.driver.call_all(requests.into_iter().map(Call::local).collect());
        answers.into_iter().map(|a| a.result).collect()
    }

    /// An error about a path.
    pub fn failure(&self, what: &str, e: FsError) -> Failure {
        self.failed(what, &e.to_string())
    }
    /// The same in words.
    pub fn failed(&self, what: &str, why: &str) -> Failure {
        Failure::Failed(format!("{}: {what}: {why}", self.shown))
    }

    /// The inode at a path, following no link. Names are bytes, as the volume has them.
    pub fn walk(&self, path: impl AsRef<OsStr>) -> Result<Attr, Failure> {
        let path = path.as_ref().as_bytes();
        let mut at = self.attr(self.root)?;
        for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            let request = Request::Lookup { dir: at.ino, name: name.to_vec() };
            let Reply::Entry { attr, .. } = self.ask(&shown(path), request)? else {
                return Err(self.failure(&shown(path), FsError::Io));
            };
            at = attr;
        }
        Ok(at)
    }

    /// The inode at a path, following symbolic links: all of them lead on within the volume, whose
    /// root is where a whole path begins.
    pub fn follow(&self, path: &OsStr) -> Result<Attr, Failure> {
        let what = &shown(path.as_bytes());
        let names_of = |path: &[u8]| -> Vec<Vec<u8>> {
            let names = path.split(|b| *b == b'/').filter(|n| !n.is_empty());
            names.rev().map(<[u8]>::to_vec).collect()
        };
        let mut dir = self.attr(self.root)?;
        let (mut left, mut links) = (names_of(path.as_bytes()), 0);
        while let Some(name) = left.pop() {
            let request = Request::Lookup { dir: dir.ino, name };
            let Reply::Entry { attr, .. } = self.ask(what, request)? else {
                return Err(self.failure(what, FsError::Io));
            };
            if attr.kind() != Kind::Symlink {
                dir = attr;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(self.failed(what, "its symbolic links lead round in a circle"));
            }
            let Reply::Bytes(text) = self.ask(what, Request::ReadLink { ino: attr.ino })? else {
                return Err(self.failure(what, FsError::Io));
            };
            if text.first() == Some(&b'/') {
                dir = self.attr(self.root)?;
            }
            left.extend(names_of(&text));
        }
        Ok(dir)
    }

    /// The directory of a path's last name, and that name.
    pub fn parent(&self, path: &OsStr) -> Result<(Attr, Vec<u8>), Failure> {
        let mut names = path.as_bytes();
        while let [before @ .., b'/'] = names {
            names = before;
        }
        let dir = names.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let name = names[dir..].strip_prefix(b"/").unwrap_or(&names[dir..]);
        Ok((self.walk(OsStr::from_bytes(&names[..dir]))?, name.to_vec()))
    }

    /// An inode's attributes.
    pub fn attr(&self, ino: u32) -> Result<Attr, Failure> {
        self.attr_of("inode", ino)
    }

    /// The attributes of the inode that a name points at; the name is in the error.
    pub fn attr_of(&self, name: &str, ino: u32) -> Result<Attr, Failure> {
        match self.driver.request(Request::GetAttr { ino }) {
            Ok(Reply::Attr(a)) => Ok(a),
            Ok(_) => Err(self.failure(name, FsError::Io)),
            Err(FsError::Stale) => Err(self.failed(
                name,
                &format!("its inode {ino} is free or damaged: `cairn fsck` tells what is wrong"),
            )),
            Err(e) => Err(self.failure(name, e)),
        }
    }

    /// The names in a directory, without "." and "..".
    pub fn list(&self, path: &str, dir: u32) -> Result<Vec<vfs::DirEntry>, Failure> {
        let mut all = Vec::new();
        let mut cookie = 0;
        loop {
            let request =
                Request::ReadDir { dir, cookie, max_bytes: 1 << 20, entry_bytes: 24, attrs: true };
            let Reply::Dir { entries, eof, .. } = self.ask(path, request)? else {
                return Err(self.failure(path, FsError::Io));
            };
            cookie = entries.last().map_or(cookie, |e| e.cookie);
            all.extend(entries.into_iter().filter(|e| e.name != b"." && e.name != b".."));
            if eof {
                return Ok(all);
            }
        }
    }

    /// Calls `f` with a file's bytes, piece by piece.
    pub fn read(
        &self,
        path: &str,
        ino: u32,
        mut f: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut offset = 0;
        loop {
            let request = Request::Read { ino, offset, len: 1 << 20 };
            let Reply::Data { data, eof, .. } = self.ask(path, request)? else {
                return Err(self.failure(path, FsError::Io));
            };
            data.parts().try_for_each(&mut f)?;
            offset += data.len() as u64;
            if eof {
                return Ok(());
            }
        }
    }

    /// The parts of a file that are no holes, each with its offset.
    pub fn read_data(
        &self,
        path: &str,
        ino: u32,
        mut f: impl FnMut(u64, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let seek = |kind, offset| match self.driver.request(Request::Seek { ino, kind, offset }) {
            Ok(Reply::Offset(found)) => Ok(Some(found)),
            Err(FsError::NoSuchOffset) => Ok(None),
            Ok(_) => Err(self.failure(path, FsError::Io)),
            Err(e) => Err(self.failure(path, e)),
        };
        let mut offset = 0;
        while let Some(begin) = seek(SeekKind::Data, offset)? {
            let end = seek(SeekKind::Hole, begin)?.unwrap_or(begin);
            offset = begin;
            while offset < end {
                let len = (end - offset).min(1 << 20) as u32;
                let request = Request::Read { ino, offset, len };
                let Reply::Data { data, .. } = self.ask(path, request)? else {
                    return Err(self.failure(path, FsError::Io));
                };
                if data.is_empty() {
                    return Ok(());
                }
                for part in data.parts() {
                    f(offset, part)?;
                    offset += part.len() as u64;
                }
            }
        }
        Ok(())
    }

    /// Closes it.
    pub fn close(self) -> Result<(), Failure> {
        self.driver.close().map_err(|e| self.failure("closing", e))
    }
}

/// A letter for a kind of file, as ls has it.
pub fn kind_letter(kind: Kind) -> char {
    match kind {
        Kind::File => '-',
        Kind::Dir => 'd',
        Kind::Symlink => 'l',
        Kind::Block => 'b',
        Kind::Char => 'c',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
    }
}

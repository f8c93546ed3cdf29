//! The helpers of the system's own commands, as mount(8), umount(8), fsck(8) and mkfs(8) call them:
//! the same program under the names `mount.cairn`, `umount.fuse.cairn`, `fsck.cairn` and
//! `mkfs.cairn`, and `cairn IMAGE DIR -o …` as mount.fuse3(8) has it. Each says in the words of
//! `cairn` what it was asked for, runs that, and gives the exit code that its caller knows. Of
//! volumes it knows nothing.

use crate::args::OpenArgs;
use crate::say;
use clap::{Args, CommandFactory};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// A way in which another program calls this one.
struct Helper {
    /// What `cairn` is to do; nothing: it is only rehearsed.
    words: Vec<OsString>,
    /// The exit codes of its caller for those of `cairn`: 0 to 4.
    codes: [u8; 5],
}

/// mount(8): 1 for a wrong call, 32 for a mount that failed.
const MOUNT_CODES: [u8; 5] = [0, 32, 1, 32, 32];
/// fsck(8): 1 repaired, 4 damage left, 8 could not be looked at, 16 for a wrong call.
const FSCK_CODES: [u8; 5] = [0, 8, 16, 4, 1];
/// mkfs(8): 1 for whatever went wrong.
const MKFS_CODES: [u8; 5] = [0, 1, 1, 1, 1];

/// The exit code, if the program was called as a helper.
pub fn run(args: &[OsString]) -> Option<ExitCode> {
    let helper = match called_as(args)? {
        Ok(helper) => helper,
        Err((why, code)) => {
            say::err(&format!("cairn: {why}"));
            return Some(ExitCode::from(code));
        }
    };
    if helper.words.is_empty() {
        return Some(ExitCode::SUCCESS); // a rehearsal
    }
    let status =
        std::env::current_exe().and_then(|me| Command::new(me).args(&helper.words).status());
    let code = match status {
        // Ended by a signal: nothing is known, so it failed.
        Ok(status) => status.code().unwrap_or(1).clamp(0, 4) as usize,
        Err(why) => {
            say::err(&format!("cairn: it cannot be started: {why}"));
            1
        }
    };
    Some(ExitCode::from(helper.codes[code]))
}

/// What is wrong with a call, and the exit code for it.
type Wrong = (String, u8);

fn called_as(args: &[OsString]) -> Option<Result<Helper, Wrong>> {
    let name = Path::new(args.first()?).file_name()?.to_str()?;
    let rest = &args[1..];
    let command = name.strip_suffix(".cairn").map(|c| c.trim_end_matches(".fuse"));
    if let (Some(command @ ("mount" | "fsck" | "mkfs")), [only]) = (command, rest)
        && (only == "--help" || only == "-h")
    {
        let words = [command, "--help"].map(OsString::from).to_vec();
        return Some(Ok(Helper { words, codes: [0, 1, 1, 1, 1] }));
    }
    match name {
        "umount.cairn" | "umount.fuse.cairn" => Some(umount(rest)),
        "mount.cairn" | "mount.fuse.cairn" => Some(mount(rest)),
        "fsck.cairn" => Some(fsck(rest)),
        "mkfs.cairn" => Some(mkfs(rest)),
        _ if is_from_mount_fuse(rest) => Some(mount(&as_asked(rest))),
        _ => None,
    }
}

/// mount.fuse3(8) runs `cairn IMAGE DIR -o OPTIONS`: no command of ours has a `/` in its name, and
/// a name without one is an image's if there is a file of that name, and no command.
fn is_from_mount_fuse(args: &[OsString]) -> bool {
    let [image, dir, option, ..] = args else { return false };
    let is_path = |a: &OsString| a.as_bytes().contains(&b'/') || Path::new(a).exists();
    let is_command = || crate::args::Cli::command().find_subcommand(image).is_some();
    option == "-o" && is_path(image) && is_path(dir) && !is_command()
}

/// The same without `dev` and `suid` at the list's end: mount.fuse3(8) adds them by itself, each
/// unless the list refuses it. Whoever asks for them himself has them twice.
fn as_asked(args: &[OsString]) -> Vec<OsString> {
    let mut args = args.to_vec();
    let Some(list) = args.get_mut(3) else { return args };
    let text = list.to_string_lossy().into_owned();
    let mut all: Vec<&str> = text.split(',').collect();
    for (added, refused) in [("suid", "nosuid"), ("dev", "nodev")] {
        if all.last() == Some(&added) && !all.contains(&refused) {
            all.pop();
        }
    }
    *list = all.join(",").into();
    args
}

/// `mount.cairn IMAGE DIR [-sfnvrw] [-o OPTIONS]`.
fn mount(args: &[OsString]) -> Result<Helper, Wrong> {
    let wrong = |why: String| (why, MOUNT_CODES[2]);
    let (mut paths, mut lists, mut fake, mut verbose) = (Vec::new(), Vec::new(), false, false);
    let mut args = args.iter();
    while let Some(a) = args.next() {
        match a.to_str() {
            Some("-o") => lists.push(value(&mut args, "-o").map_err(wrong)?),
            // A name space, a type: neither changes what is mounted.
            Some("-N" | "-t") => drop(value(&mut args, "-t").map_err(wrong)?),
            Some("-r") => lists.push("ro".into()),
            Some("-f") => fake = true,
            Some("-v") => verbose = true,
            Some("-n" | "-s" | "-w") => (),
            Some(o) if o.starts_with('-') => return Err(wrong(format!("option {o} is not known"))),
            _ => paths.push(a.clone()),
        }
    }
    let [image, dir] = paths.try_into().map_err(|_| wrong("an image and a directory".into()))?;
    let (ours, system) = split(&lists.join(","));
    let mut words: Vec<OsString> = ["mount", "--daemon"].map(OsString::from).to_vec();
    if verbose {
        words.push("-v".into());
    }
    words.extend(ours);
    if !system.is_empty() {
        words.extend(["-o".into(), OsString::from(system)]);
    }
    words.extend(["--".into(), image, dir]);
    let words = if fake { Vec::new() } else { words };
    Ok(Helper { words, codes: MOUNT_CODES })
}

/// `umount.fuse.cairn DIR [-flnrv] [-N NAMESPACE] [-t TYPE]`.
fn umount(args: &[OsString]) -> Result<Helper, Wrong> {
    let wrong = |why: String| (why, MOUNT_CODES[2]);
    let (mut dir, mut lazy) = (None, false);
    let mut args = args.iter();
    while let Some(a) = args.next() {
        match a.to_str() {
            Some("-N" | "-t") => drop(value(&mut args, "-t").map_err(wrong)?),
            Some("-l") => lazy = true,
            // Forcing would answer requests in the server's place: it is there, and ends by itself.
            Some("-f" | "-n" | "-r" | "-v") => (),
            Some(o) if o.starts_with('-') => return Err(wrong(format!("option {o} is not known"))),
            _ if dir.is_none() => dir = Some(a.clone()),
            _ => return Err(wrong("one directory at a time".into())),
        }
    }
    let dir = dir.ok_or_else(|| wrong("umount.fuse.cairn needs a directory".into()))?;
    let mut words: Vec<OsString> = vec!["umount".into()];
    words.extend(lazy.then(|| "--lazy".into()));
    words.extend(["--".into(), dir]);
    Ok(Helper { words, codes: MOUNT_CODES })
}

fn value(args: &mut std::slice::Iter<'_, OsString>, of: &str) -> Result<String, String> {
    let text = args.next().and_then(|a| a.to_str()).map(str::to_owned);
    text.ok_or_else(|| format!("{of} needs a value"))
}

/// The options of a mount as `cairn mount` has them on its command line (`mode=ordered` is
/// `--mode=ordered`), and those that are mount(8)'s own, as a list.
fn split(list: &str) -> (Vec<OsString>, String) {
    let command = OpenArgs::augment_args(clap::Command::new("mount"));
    let takes_value = |name: &str| {
        let known = command.get_arguments().find(|a| a.get_long() == Some(name))?;
        Some(known.get_action().takes_values())
    };
    let (mut ours, mut system) = (Vec::new(), Vec::new());
    for o in list.split(',').filter(|o| !o.is_empty()) {
        let (name, value) = o.split_once('=').map_or((o, None), |(n, v)| (n, Some(v)));
        match (takes_value(name), value) {
            (Some(true), Some(_)) | (Some(false), None) => ours.push(format!("--{o}").into()),
            // Whom a mount lets in follows from who makes it.
            _ if matches!(name, "allow_other" | "fsname" | "subtype" | "blksize") => (),
            _ => system.push(o),
        }
    }
    (ours, system.join(","))
}

/// `fsck.cairn [-a|-p|-y|-n] [-f] [-C FD] IMAGE`.
fn fsck(args: &[OsString]) -> Result<Helper, Wrong> {
    let wrong = |why: String| (why, FSCK_CODES[2]);
    let (mut image, mut repair) = (None, false);
    let (mut even_clean, mut forced) = (true, false);
    let mut args = args.iter().peekable();
    while let Some(a) = args.next() {
        match a.to_str() {
            // At boot: what was closed cleanly is not looked at, unless -f says so.
            Some("-a" | "-p") => (repair, even_clean) = (true, false),
            Some("-y") => repair = true,
            Some("-n") => repair = false,
            Some("-f") => forced = true,
            // Progress on a descriptor; we show it on a terminal.
            Some("-C") => {
                args.next_if(|a| a.as_bytes().iter().all(u8::is_ascii_digit));
            }
            Some("-v" | "-r" | "-T" | "-M" | "-V") => (),
            Some(o) if o.starts_with("-C") => (),
            Some(o) if o.starts_with('-') => return Err(wrong(format!("option {o} is not known"))),
            _ if image.is_none() => image = Some(a.clone()),
            _ => return Err(wrong("one volume at a time".into())),
        }
    }
    let image = image.ok_or_else(|| wrong("fsck.cairn needs a volume".into()))?;
    let mut words: Vec<OsString> = vec!["fsck".into()];
    words.extend(repair.then(|| "--repair".into()));
    words.extend((!even_clean && !forced).then(|| "--unless-clean".into()));
    words.extend(["--".into(), image]);
    Ok(Helper { words, codes: FSCK_CODES })
}

/// `mkfs.cairn [options of cairn mkfs] IMAGE [KIBIBYTES]`, with mkfs(8)'s `-v` and mke2fs's `-L`.
fn mkfs(args: &[OsString]) -> Result<Helper, Wrong> {
    let mut words: Vec<OsString> = vec!["mkfs".into()];
    let number = |a: &OsStr| !a.is_empty() && a.as_bytes().iter().all(u8::is_ascii_digit);
    let mut rest = args;
    // mkfs(8) puts the size last, in blocks of 1 KiB, behind the device.
    if let [before @ .., device, size] = args
        && number(size)
        && !device.as_bytes().starts_with(b"-")
    {
        let kibibytes = size.to_str().unwrap_or_default();
        words.extend(["--size".into(), format!("{kibibytes}K").into()]);
        rest = &args[..before.len() + 1];
    }
    for a in rest {
        match a.to_str() {
            Some("-v" | "-V") => (),
            Some("-L") => words.push("--label".into()),
            Some("-F") => words.push("--force".into()),
            _ => words.push(a.clone()),
        }
    }
    Ok(Helper { words, codes: MKFS_CODES })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> String {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let helper = called_as(&args).expect("a helper").unwrap_or_else(|(why, _)| panic!("{why}"));
        helper.words.join(OsStr::new(" ")).into_string().expect("all of it is text")
    }

    #[test]
    fn mount_has_our_options_and_its_own_in_one_list() {
        assert_eq!(
            words("/sbin/mount.cairn /a.img /mnt -o rw,mode=ordered,suid,cache=64M,ordered-data"),
            "mount --daemon --mode=ordered --cache=64M --ordered-data -o rw,suid -- /a.img /mnt"
        );
        assert_eq!(words("mount.cairn /a.img /mnt -n"), "mount --daemon -- /a.img /mnt");
        assert_eq!(
            words("cairn /a.img /mnt -o ro,allow_other"),
            "mount --daemon -o ro -- /a.img /mnt"
        );
        // What mount.fuse3 adds nobody has asked for.
        for (list, asked) in [
            ("dev,suid", ""),
            ("ro,suid,dev,suid", " -o ro,suid"),
            ("nodev,ro,suid", " -o nodev,ro"),
            ("nosuid,nodev", " -o nosuid,nodev"),
            ("dev,suid,dev,suid", " -o dev,suid"),
        ] {
            let line = format!("cairn /a.img /mnt -o {list}");
            assert_eq!(words(&line), format!("mount --daemon{asked} -- /a.img /mnt"));
        }
        // What takes no value is no option of ours with one: the mount says that it is unknown.
        assert_eq!(
            words("mount.cairn /a /m -o ordered-data=1,mode"),
            "mount --daemon -o ordered-data=1,mode -- /a /m"
        );
    }

    #[test]
    fn umount_has_its_callers_words() {
        assert_eq!(words("/sbin/umount.fuse.cairn /mnt -t fuse.cairn"), "umount -- /mnt");
        assert_eq!(words("umount.fuse.cairn /mnt -l -n"), "umount --lazy -- /mnt");
    }

    #[test]
    fn fsck_and_mkfs_have_their_callers_words() {
        assert_eq!(words("fsck.cairn --help"), "fsck --help");
        assert_eq!(words("/sbin/mount.cairn -h"), "mount --help");
        assert_eq!(words("fsck.cairn -a -f -C0 /dev/sdb"), "fsck --repair -- /dev/sdb");
        assert_eq!(words("fsck.cairn -a /dev/sdb"), "fsck --repair --unless-clean -- /dev/sdb");
        assert_eq!(words("/usr/sbin/fsck.cairn -C 5 -n /dev/sdb"), "fsck -- /dev/sdb");
        assert_eq!(words("mkfs.cairn -v -L home /dev/sdb"), "mkfs --label home /dev/sdb");
        assert_eq!(words("mkfs.cairn /tmp/a.img 102400"), "mkfs --size 102400K /tmp/a.img");
        assert_eq!(words("mkfs.cairn --inodes 500 /a.img"), "mkfs --inodes 500 /a.img");
    }

    #[test]
    fn wrong_calls_have_the_callers_code_and_ours_are_left_alone() {
        let called = |line: &str| {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            called_as(&args).map(|r| r.err().map(|(_, code)| code))
        };
        assert_eq!(called("mount.cairn /a"), Some(Some(1)));
        assert_eq!(called("fsck.cairn -Q /a"), Some(Some(16)));
        assert_eq!(called("cairn mount /a /b"), None);
        assert_eq!(called("cairn ls /a /b"), None);
        // Names without a slash, of what is there; a command is one whatever there is.
        assert_eq!(called("cairn Cargo.toml src -o rw"), Some(None));
        assert_eq!(called("cairn no-such.img src -o rw"), None);
        assert_eq!(called("cairn mount src -o rw"), None);
    }
}

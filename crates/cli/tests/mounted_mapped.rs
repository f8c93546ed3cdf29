//! Mapped files through a mount: what a program has stored in memory is in the file, for whoever
//! asks where that has holes, and when nothing more may be written to it. Needs FUSE, root and
//! Python; without, the test is skipped with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{Folder, MountPoint, Server, is_root, ok, s};
use std::path::Path;
use std::process::Command;

/// Where the kernel holds back what is written, too.
const HELD_BACK: &[&str] = &["--mode", "async", "--writeback-cache", "on"];

/// Runs a program that has the file open and mapped, 1 MiB of a hole, and says what it prints. It
/// is ended when it hangs: the kernel waits for our answers.
fn mapped(file: &Path, program: &str) -> Option<String> {
    let head = "import fcntl, mmap, os, struct, sys\n\
                fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n\
                os.ftruncate(fd, 1 << 20)\n\
                m = mmap.mmap(fd, 1 << 20)\n";
    let mut run = Command::new("timeout");
    run.args(["--signal=KILL", "60", "python3", "-c"]).arg(format!("{head}{program}")).arg(file);
    let out = run.output().unwrap();
    if !out.status.success() && String::from_utf8_lossy(&out.stderr).contains("python3") {
        eprintln!("skipped: there is no python3");
        return None;
    }
    assert!(out.status.success(), "{:?}: {}", out.status, String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8(out.stdout).unwrap())
}

#[test]
fn what_is_stored_in_mapped_pages_is_no_hole() {
    for more in [&[][..], HELD_BACK] {
        let folder = Folder::new();
        let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
        let image = folder.plain_volume("v", "32M");
        let server = Server::mounted(&image, &at, more);
        let program = "m[300000] = 7\n\
                       print(os.lseek(fd, 0, os.SEEK_DATA) <= 300000,\n\
                             os.lseek(fd, 300000, os.SEEK_HOLE) > 300000)\n\
                       m[500000] = 8\n\
                       print(os.lseek(fd, 400000, os.SEEK_DATA) <= 500000)\n";
        let Some(said) = mapped(&at.file("f"), program) else { return };
        assert_eq!(said, "True True\nTrue\n", "{more:?}");
        drop(server);
    }
}

/// `chattr` comes after what was stored before it.
#[test]
fn what_was_stored_before_a_file_became_immutable_is_in_it() {
    for (flag, more) in [(0x10, &[][..]), (0x20, &[]), (0x10, HELD_BACK)] {
        let folder = Folder::new();
        let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
        let image = folder.plain_volume("v", "32M");
        let server = Server::mounted(&image, &at, more);
        let program = format!(
            "m[700000:700005] = b'hello'\n\
             flags = struct.unpack('L', fcntl.ioctl(fd, 0x80086601, struct.pack('L', 0)))[0]\n\
             fcntl.ioctl(fd, 0x40086602, struct.pack('L', flags | {flag}))\n\
             m.flush()\n"
        );
        let Some(_) = mapped(&at.file("f"), &program) else { return };
        server.stop();
        let text = ok(&["cat", s(&image), "/f"]);
        assert_eq!(&text[700_000..700_005], "hello", "{flag:#x} {more:?}");
    }
}

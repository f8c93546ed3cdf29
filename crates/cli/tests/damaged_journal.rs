//! A damaged journal that was to be replayed, of another program, from the command line: what can
//! be found by its copy is replayed, and where there is nothing any more to replay the volume is
//! repaired without. What our own modes leave is for other tests.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{Folder, cairn, ok, s};
use std::path::Path;
use std::process::{Command, Stdio};

/// What the journal holds is this block's new contents.
const LOGGED: u64 = 5000;

/// What is done to the image's bytes.
type Damage<'a> = &'a dyn Fn(&mut [u8]);

fn tool(name: &str, args: &[&str], stdin: &str) -> (Option<i32>, String) {
    use std::io::Write;
    let place = Path::new("/usr/sbin").join(name);
    let mut run = Command::new(if place.exists() { place } else { name.into() });
    let mut child = run
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
}

/// A volume of ext3 whose journal has to be replayed.
fn unreplayed(folder: &Folder) -> Vec<u8> {
    let (image, logged) = (folder.0.join("v.img"), folder.0.join("logged"));
    std::fs::write(&logged, vec![0x77; 1024]).unwrap();
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let options = ["-q", "-F", "-t", "ext3", "-b", "1024", "-J", "size=1"];
    assert_eq!(tool("mke2fs", &[&options[..], &[s(&image)]].concat(), "").0, Some(0));
    let script = format!("jo\njw -b {LOGGED} {}\njc\n", s(&logged));
    tool("debugfs", &["-w", s(&image)], &script);
    std::fs::read(&image).unwrap()
}

/// The byte at which the journal's `n`-th block, of those that debugfs lists, begins.
fn journal_block(image: &Path, n: usize) -> usize {
    let all = tool("debugfs", &["-R", "blocks <8>", s(image)], "").1;
    all.split_whitespace().nth(n).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn a_damaged_journal_keeps_no_volume_from_being_repaired() {
    let folder = Folder::new();
    let whole = unreplayed(&folder);
    let image = folder.0.join("v.img");
    let (first, indirect) = (journal_block(&image, 0), journal_block(&image, 12));
    let sector = LOGGED as usize * 1024;
    let inode = |bytes: &mut [u8]| {
        std::fs::write(&image, &*bytes).unwrap();
        tool("debugfs", &["-w", "-R", "clri <8>", s(&image)], "");
        bytes.copy_from_slice(&std::fs::read(&image).unwrap());
    };
    let magic = |bytes: &mut [u8]| bytes[first] ^= 1;
    let pointer = |bytes: &mut [u8]| bytes[indirect + 3] ^= 0x80;
    let damages: [(&str, Damage<'_>, bool); 3] =
        [("inode", &inode, true), ("magic", &magic, false), ("pointer", &pointer, false)];
    for (what, damage, replayed) in damages {
        for how in [&["--repair"][..], &["--repair", "--discard-log"]] {
            let mut broken = whole.clone();
            damage(&mut broken);
            std::fs::write(&image, &broken).unwrap();
            let (code, out, err) = cairn(&[&["fsck", s(&image)], how].concat());
            assert_eq!(code, 4, "{what}, {how:?}: {out}{err}");
            let after = std::fs::read(&image).unwrap();
            assert_eq!(after[sector] == 0x77, replayed && how.len() == 1, "{what}: {out}");
            let (code, text) = tool("e2fsck", &["-fn", s(&image)], "");
            assert_eq!(code, Some(0), "{what}, {how:?}: {out}{text}");
            ok(&["fsck", s(&image)]);
        }
    }
}

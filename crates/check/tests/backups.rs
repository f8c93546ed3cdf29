//! A lost primary superblock on a disk that older volumes have left copies on. What mkfs does about
//! such copies is the volume's tests' business.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::asked::{asked, repaired};
use crate::common::{Scratch, made, tool};
use check::locate;
use format::ext::Superblock;

const M: u64 = 1 << 20;

/// The image with a new volume over it, whose tools leave what they do not need as it is.
fn made_over(s: &Scratch, old: &[u8], options: &[&str]) -> Vec<u8> {
    let img = s.path("over.img");
    std::fs::write(&img, old).unwrap();
    let tree = s.path("tree");
    std::fs::create_dir_all(tree.join("dir")).unwrap();
    std::fs::write(tree.join("dir/file"), "what the new one has").unwrap();
    let out = tool("mke2fs")
        .args(["-q", "-F", "-E", "nodiscard", "-d"])
        .arg(&tree)
        .args(options)
        .arg(&img)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    std::fs::read(&img).unwrap()
}

/// The same, made a day before: within one second nothing says which is older.
fn aged(mut image: Vec<u8>) -> Vec<u8> {
    for at in (0..image.len()).step_by(1024) {
        let Ok(mut s) = Superblock::decode(&image[at..at + 1024]) else { continue };
        s.set_mkfs_time(s.mkfs_time() - 86_400);
        image[at..at + 1024].copy_from_slice(&s.bytes()[..]);
    }
    image
}

#[test]
fn a_lost_primary_comes_back_from_its_own_copies() {
    let s = Scratch::new("backups");
    for (old, new) in [(1024, "4096"), (1024, "2048"), (2048, "4096"), (4096, "1024")] {
        for kind in ["ext2", "ext4"] {
            let image = aged(made(&["-t", kind], old, 160 * M));
            let image = made_over(&s, &image, &["-t", kind, "-b", new]);
            let uuid = Superblock::decode(&image[1024..2048]).unwrap().uuid();
            for (from, to) in [(1024, 2048), (0, 64 << 10)] {
                let mut broken = image.clone();
                broken[from..to].fill(0);
                let found = locate(&broken).unwrap();
                assert_eq!(found.superblock.uuid(), uuid, "{kind}: {old}, {new}, to {to}");
                if to == 2048 {
                    repaired(&s, &mut broken, new);
                    let text = asked(&s, &broken, "cat /dir/file");
                    assert_eq!(text, "what the new one has", "{kind}: {old}, {new}");
                }
            }
        }
    }
}

//! A partition of an image as a volume: made, filled, served and checked by the name IMAGE@pN,
//! and nothing outside of it is touched.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::stable_how;
use served::{ANY, Folder, Server, cairn, ok, s};
use std::path::{Path, PathBuf};

const MIB: usize = 1 << 20;
/// What lies outside of the partitions.
const OUTSIDE: u8 = 0x5a;
/// Where each begins, in bytes, and its size: the second shares no page with what is before it.
const PARTITIONS: [(usize, usize); 2] = [(MIB, 16 * MIB), (20 * MIB + 512, 16 * MIB)];

/// An image with an old partition table of two, the second in its third entry.
fn partitioned(at: &Path) -> PathBuf {
    let image = at.join("disk.img");
    let mut bytes = vec![OUTSIDE; 40 * MIB];
    bytes[446..510].fill(0);
    for ((begins, len), entry) in PARTITIONS.into_iter().zip([446, 446 + 32]) {
        bytes[entry + 4] = 0x83;
        bytes[entry + 8..entry + 12].copy_from_slice(&(begins as u32 / 512).to_le_bytes());
        bytes[entry + 12..entry + 16].copy_from_slice(&(len as u32 / 512).to_le_bytes());
        bytes[begins..begins + len].fill(0);
    }
    bytes[510..512].copy_from_slice(b"\x55\xaa");
    std::fs::write(&image, bytes).unwrap();
    image
}

fn named(image: &Path, n: u32) -> PathBuf {
    PathBuf::from(format!("{}@p{n}", image.display()))
}

#[test]
fn a_partition_is_a_volume_and_the_rest_stays_as_it_is() {
    let folder = Folder::new();
    let image = partitioned(&folder.0);
    let before = std::fs::read(&image).unwrap();
    for (n, mode) in [(1, "unified"), (3, "ordered")] {
        let part = named(&image, n);
        ok(&["mkfs", s(&part), "--label", &format!("part{n}")]);
        let server = Server::trusting(&[&part], ANY, &["--mode", mode]);
        let mut on = server.client("/");
        let root = on.root.clone();
        let file = on.create_new(&root, "f").unwrap();
        on.write(&file, 0, &vec![n as u8; 300_000], stable_how::FILE_SYNC).unwrap();
        server.kill();
        ok(&["recover", s(&part)]);
        ok(&["fsck", s(&part)]);
        let copy = folder.0.join(format!("copy{n}"));
        ok(&["get", s(&part), "/f", s(&copy)]);
        assert_eq!(std::fs::read(&copy).unwrap(), vec![n as u8; 300_000]);
        assert!(ok(&["info", s(&part)]).contains(&format!("part{n}")));
    }
    let after = std::fs::read(&image).unwrap();
    let inside = |at: usize| PARTITIONS.iter().any(|(b, len)| (*b..b + len).contains(&at));
    let touched = (0..after.len()).find(|at| after[*at] != before[*at] && !inside(*at));
    assert_eq!(touched, None);
}

#[test]
fn what_is_no_partition_is_said_to_be_none() {
    let folder = Folder::new();
    let image = partitioned(&folder.0);
    let fails = |args: &[&str], with: &str| {
        let (code, _, err) = cairn(args);
        assert!(code == 1 && err.contains(with) && err.lines().count() == 1, "{args:?}: {err}");
    };
    fails(&["info", s(&image)], "disk.img@p1; there are: @p1 at byte 1048576, 16777216 bytes; @p3");
    fails(&["info", s(&named(&image, 2))], "there is no such partition; there are: p1, p3");
    fails(&["mkfs", s(&named(&image, 2)), "--size", "1M"], "there is no such partition");
    let plain = folder.volume("plain.img", "8M");
    fails(&["fsck", s(&named(&plain, 1))], "there is no partition table");
    std::fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(30 << 20).unwrap();
    fails(&["info", s(&named(&image, 3))], "the image is cut short");
    // A file that is called so is itself meant.
    let odd = named(&plain, 1);
    std::fs::copy(&plain, &odd).unwrap();
    ok(&["fsck", s(&odd)]);
}

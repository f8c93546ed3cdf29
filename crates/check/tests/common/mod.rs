//! Images for the tests, made by the real mke2fs and debugfs, and the real e2fsck's opinion of what
//! becomes of them. It also knows where an image's metadata lies, so that damage can be done where
//! it hurts.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod asked;
pub mod fields;
pub mod rounds;
pub mod wide;

use check::{CheckError, Hands, IoError, Options, ReadBlocks, Report, check, check_together};
use format::bytes::{le16, le32, set16, set32};
use format::ext::geometry::GROUP_DESC_BYTES;
use format::ext::superblock::SUPERBLOCK_AT;
use format::ext::{Geometry, GroupDesc, Superblock};
use format::ufs::inode::InodeRef;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A directory of its own, removed when it goes.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(what: &str) -> Scratch {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let name = format!("cairn-check-{what}-{}-{:p}", std::process::id(), &what);
        let dir = base.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A tool of e2fsprogs, which may be outside the PATH of a user.
pub fn tool(name: &str) -> Command {
    let place = Path::new("/usr/sbin").join(name);
    Command::new(if place.exists() { place } else { name.into() })
}

/// A small generator of chance, the same on every run.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n.max(1)
    }
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A tree with some of everything that needs no root: nested and large directories, files with
/// every level of indirect blocks the size allows, holes, links of every kind.
fn tree(dir: &Path, block: usize) {
    let file = |p: PathBuf, len: usize, seed: u8| {
        let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
        std::fs::write(p, bytes).unwrap();
    };
    for d in 0..4 {
        let sub = dir.join(format!("dir{d}"));
        std::fs::create_dir_all(sub.join("inner/deeper")).unwrap();
        for f in 0..6 {
            file(sub.join(format!("file{f}")), 700 * f + d, f as u8);
        }
        file(sub.join("inner/deeper/leaf"), 20 * block, 7);
        std::os::unix::fs::symlink("../file0", sub.join("inner/short")).unwrap();
        std::os::unix::fs::symlink("x".repeat(200), sub.join("inner/long")).unwrap();
        std::fs::hard_link(sub.join("file1"), sub.join("inner/hard")).unwrap();
    }
    let many = dir.join("many");
    std::fs::create_dir(&many).unwrap();
    for n in 0..180 {
        file(many.join(format!("a-rather-long-name-to-fill-blocks-{n:04}")), n % 3, 1);
    }
    file(dir.join("double"), (12 + block / 4 + 40) * block, 3);
    let sparse = std::fs::File::create(dir.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 70_000_000 / 4096 * block as u64)
        .unwrap();
}

/// An image made by mke2fs with a tree in it, plus what only debugfs can add: devices and
/// attributes.
pub fn made(options: &[&str], block: usize, bytes: u64) -> Vec<u8> {
    let s = Scratch::new("made");
    let src = s.path("tree");
    std::fs::create_dir(&src).unwrap();
    tree(&src, block);
    let img = s.path("img");
    std::fs::File::create(&img).unwrap().set_len(bytes).unwrap();
    let out = tool("mke2fs")
        .args(["-q", "-F", "-E", "hash_seed=6e7e5f7e-0000-4000-8000-112233445566"])
        .args(["-U", "01234567-89ab-4def-8123-456789abcdef", "-b", &block.to_string()])
        .args(options)
        .arg("-d")
        .arg(&src)
        .arg(&img)
        .output()
        .unwrap();
    assert!(out.status.success(), "mke2fs: {}", String::from_utf8_lossy(&out.stderr));
    let mut debugfs = tool("debugfs")
        .arg("-w")
        .arg(&img)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let long = "v".repeat(300);
    let script = format!(
        "cd dir0\nmknod pipe p\nmknod tty c 4 64\nmknod disk b 259 70000\n\
         ea_set file1 user.colour blue\nea_set file2 user.colour {long}\n\
         ea_set file2 trusted.other thing\nea_set inner user.dir value\nquit\n"
    );
    debugfs.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(debugfs.wait().unwrap().success());
    std::fs::read(&img).unwrap()
}

/// The image with hash indexes on its larger directories, as the kernel would have made them.
pub fn indexed(s: &Scratch, image: &[u8]) -> Vec<u8> {
    let path = s.path("indexed.img");
    std::fs::write(&path, image).unwrap();
    let out = tool("e2fsck").arg("-fyD").arg(&path).output().unwrap();
    assert!(matches!(out.status.code(), Some(0 | 1)));
    std::fs::read(&path).unwrap()
}

/// An image that counts how often it is read.
pub struct Counted<'a>(pub &'a Vec<u8>, pub AtomicUsize);

impl ReadBlocks for Counted<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.1.fetch_add(1, Relaxed);
        self.0.read_at(at, into)
    }
}

/// Two threads, which take small parts.
pub struct Two;

impl Hands for Two {
    fn count(&self) -> usize {
        2
    }
    fn slots(&self) -> u32 {
        64
    }
    fn each(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(n) = Some(next.fetch_add(1, Relaxed)).filter(|n| *n < jobs) {
                job(n);
            }
        };
        std::thread::scope(|s| {
            s.spawn(work);
            work();
        });
    }
}

/// A check by one, and by several hands: they find the same, and mend it in the same way.
pub fn check_both(image: &Vec<u8>, options: &Options) -> Result<Report, CheckError> {
    let alone = check(image, options, &mut ());
    let together = check_together(image, options, &mut (), &Two);
    assert_eq!(alone, together, "by one, and by several");
    alone
}

/// What `e2fsck -fn` says of an image: its exit code and its output. A map that leads in circles
/// can keep it busy for hours; after ten seconds its code is 124.
pub fn e2fsck(s: &Scratch, image: &[u8]) -> (i32, String) {
    let path = s.path("judged.img");
    std::fs::write(&path, image).unwrap();
    let e2fsck = tool("e2fsck").get_program().to_owned();
    let out = Command::new("timeout").arg("10").arg(e2fsck).arg("-fn").arg(&path).output().unwrap();
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.code().unwrap_or(-1), text)
}

/// Where an image's metadata lies, as ranges of bytes, by kind.
pub struct Metadata {
    pub block: usize,
    pub geo: Geometry,
    pub superblock: Vec<(usize, usize)>,
    pub descs: Vec<(usize, usize)>,
    pub bitmaps: Vec<(usize, usize)>,
    /// Inodes in use, one range each.
    pub inodes: Vec<(usize, usize)>,
    pub dirs: Vec<(usize, usize)>,
    pub indirect: Vec<(usize, usize)>,
    pub xattrs: Vec<(usize, usize)>,
}

pub fn metadata(image: &[u8]) -> Metadata {
    let at = SUPERBLOCK_AT as usize;
    let sb = Superblock::decode(&image[at..at + 1024]).unwrap();
    let geo = Geometry::of(&sb);
    let bs = geo.block_bytes;
    let descs_at = (geo.first_data_block as usize + 1) * bs;
    let mut m = Metadata {
        block: bs,
        geo,
        superblock: vec![(at, 1024)],
        descs: vec![(descs_at, geo.groups as usize * GROUP_DESC_BYTES)],
        bitmaps: Vec::new(),
        inodes: Vec::new(),
        dirs: Vec::new(),
        indirect: Vec::new(),
        xattrs: Vec::new(),
    };
    for g in 0..geo.groups as usize {
        let at = descs_at + g * GROUP_DESC_BYTES;
        let d = GroupDesc::decode(&image[at..at + GROUP_DESC_BYTES]);
        m.bitmaps.push((d.block_bitmap as usize * bs, bs));
        m.bitmaps.push((d.inode_bitmap as usize * bs, bs));
        for i in 0..geo.inodes_per_group as usize {
            let at = d.inode_table as usize * bs + i * geo.inode_bytes;
            let raw = &image[at..at + geo.inode_bytes];
            let inode = InodeRef(raw);
            if inode.mode() == 0 || inode.links() == 0 {
                continue;
            }
            m.inodes.push((at, geo.inode_bytes));
            if inode.xattr_block().0 != 0 {
                m.xattrs.push((inode.xattr_block().0 as usize * bs, bs));
            }
            let slow = inode.is_symlink() && inode.size() >= 60;
            if inode.is_file() || inode.is_dir() || slow {
                for n in 0..15 {
                    let level = n.max(11) - 11;
                    below(image, inode.pointer(n), level, inode.is_dir(), &mut m);
                }
            }
        }
    }
    m
}

fn below(image: &[u8], block: u32, level: usize, dir: bool, m: &mut Metadata) {
    if block == 0 {
        return;
    }
    let at = block as usize * m.block;
    if level == 0 {
        if dir {
            m.dirs.push((at, m.block));
        }
        return;
    }
    m.indirect.push((at, m.block));
    for n in 0..m.block / 4 {
        let next = le32(image, at + 4 * n);
        below(image, next, level - 1, dir, m);
    }
}

/// Puts another value into the `n` bytes at `at`, of those that a field of this volume might
/// mistake for its own; says what it did.
pub fn another_value(
    image: &mut [u8],
    at: usize,
    n: usize,
    geo: &Geometry,
    c: &mut Chance,
) -> String {
    let old = match n {
        1 => u32::from(image[at]),
        2 => u32::from(le16(image, at)),
        _ => le32(image, at),
    };
    let values = [
        0,
        1,
        u32::MAX,
        old.wrapping_add(1),
        old.wrapping_sub(1),
        old ^ 1 << c.below(8 * n as u64),
        old ^ 1 << c.below(8 * n as u64),
        c.below(geo.blocks) as u32,
        c.below(u64::from(geo.inodes())) as u32,
    ];
    let v = c.pick(&values);
    match n {
        1 => image[at] = v as u8,
        2 => set16(image, at, v as u16),
        _ => set32(image, at, v),
    }
    format!("byte {at} ({n}): {old:#x} -> {v:#x}")
}

/// Damages the image at a random place of one of these ranges; says what it did.
pub fn damage(image: &mut [u8], ranges: &[(usize, usize)], m: &Metadata, c: &mut Chance) -> String {
    let (start, len) = c.pick(ranges);
    let at = start + c.below(len as u64) as usize;
    let word = at & !3;
    match c.below(8) {
        0..=2 => {
            let bit = c.below(8);
            image[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped (of range {start}+{len})")
        }
        3 => {
            image[at] = c.below(256) as u8;
            format!("byte {at} set to {} (of range {start}+{len})", image[at])
        }
        4 => {
            image[word..word + 4].fill(0);
            format!("word {word} zeroed (of range {start}+{len})")
        }
        5 => {
            let block = c.below(m.geo.blocks) as u32;
            image[word..word + 4].copy_from_slice(&block.to_le_bytes());
            format!("word {word} set to {block} (of range {start}+{len})")
        }
        6 => {
            let sector = at / 512 * 512;
            image[sector..sector + 512].fill(0);
            format!("sector at {sector} zeroed (of range {start}+{len})")
        }
        _ => {
            let (other, n) = c.pick(ranges);
            let n = n.min(len).min(512);
            image.copy_within(other..other + n, start);
            format!("{n} bytes copied from {other} to {start}")
        }
    }
}

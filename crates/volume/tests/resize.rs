//! Volumes that grow, judged by e2fsck: each kind that mke2fs makes, by sizes that end in groups
//! cut short, that need more blocks of descriptors, and more of them than are reserved; and every
//! cut of the power while they do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use check::{IoError, Options, ReadBlocks, WriteBlocks};
use env::DiskId;
use sim::{CrashImages, Event, Image, Trace, Write};
use std::io::{Read, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use volume::Resize;

const M: u64 = 1 << 20;
const NOW: u32 = 1_900_000_000;

/// A disk of the simulator, and what it was asked.
struct Disk {
    image: Image,
    trace: Trace,
}

impl ReadBlocks for Disk {
    fn size_bytes(&self) -> u64 {
        self.image.size()
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.image.read(at, into);
        Ok(())
    }
    fn known_zero(&self, at: u64, len: u64) -> bool {
        self.image.is_hole(at, len)
    }
}
impl WriteBlocks for Disk {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
        assert!(at + bytes.len() as u64 <= self.image.size(), "a write beyond the end");
        self.image.write(at, bytes);
        let n = self.trace.writes.len();
        let write = Write { disk: DiskId(0), at, bytes: bytes.into(), fua: false };
        self.trace.writes.push(write);
        self.trace.events.extend([Event::WriteIssued(n), Event::WriteEnded(n)]);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), IoError> {
        let n = self.trace.flushes.len();
        self.trace.flushes.push(DiskId(0));
        self.trace.events.extend([Event::FlushIssued(n), Event::FlushEnded(n)]);
        Ok(())
    }
    fn read_back(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.read_at(at, into)
    }
}

impl Disk {
    fn of(image: &Image) -> Disk {
        Disk { image: image.clone(), trace: Trace::default() }
    }
    /// The same on a device of another length.
    fn longer(image: &Image, bytes: u64) -> Disk {
        let mut longer = Image::new(bytes);
        each_piece(image, |at, piece| longer.write(at, piece));
        Disk::of(&longer)
    }
}

/// Calls with every piece that is not a hole.
fn each_piece(image: &Image, mut f: impl FnMut(u64, &[u8])) {
    let mut piece = vec![0; 4096];
    for at in (0..image.size()).step_by(4096) {
        let n = (image.size() - at).min(4096) as usize;
        if !image.is_hole(at, n as u64) {
            image.read(at, &mut piece[..n]);
            f(at, &piece[..n]);
        }
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(what: &str) -> Scratch {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let dir = base.join(format!("cairn-resize-{what}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
    fn store(&self, image: &Image) -> PathBuf {
        let path = self.0.join("judged.img");
        let mut file = std::fs::File::create(&path).unwrap();
        file.set_len(image.size()).unwrap();
        each_piece(image, |at, piece| {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(piece).unwrap();
        });
        path
    }
    /// e2fsck's opinion: its exit code and its words.
    fn e2fsck(&self, how: &str, image: &Image) -> (i32, String) {
        let path = self.store(image);
        let out = tool("e2fsck").arg(how).arg(&path).output().unwrap();
        let text = [out.stdout, out.stderr].concat();
        (out.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }
    /// A volume as mke2fs makes it, with files.
    fn made(&self, options: &str, bytes: u64) -> Image {
        let tree = self.0.join("tree");
        if !tree.exists() {
            std::fs::create_dir_all(tree.join("dir/inner")).unwrap();
            for n in 0..40 {
                let name = tree.join("dir").join(format!("file{n}"));
                std::fs::write(name, vec![n as u8; 1000 * n]).unwrap();
            }
        }
        let path = self.0.join("made.img");
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        let mut mke2fs = tool("mke2fs");
        mke2fs.args(["-q", "-F"]).args(options.split_whitespace()).arg("-d").arg(&tree).arg(&path);
        let out = mke2fs.output().unwrap();
        assert!(out.status.success(), "{options}: {}", String::from_utf8_lossy(&out.stderr));
        self.load(&path)
    }
    fn load(&self, path: &Path) -> Image {
        let mut file = std::fs::File::open(path).unwrap();
        let mut image = Image::new(file.metadata().unwrap().len());
        let (mut at, mut piece) = (0, vec![0; 4096]);
        while at < image.size() {
            let n = (image.size() - at).min(4096) as usize;
            file.read_exact(&mut piece[..n]).unwrap();
            if piece[..n].iter().any(|b| *b != 0) {
                image.write(at, &piece[..n]);
            }
            at += n as u64;
        }
        image
    }
    /// The names and contents that debugfs finds.
    fn files(&self, image: &Image) -> String {
        let (path, out) = (self.store(image), self.0.join("dump"));
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir_all(&out).unwrap();
        let ask = format!("rdump / {}", out.display());
        assert!(tool("debugfs").args(["-R", &ask]).arg(&path).output().unwrap().status.success());
        let sum = "find . -type f | sort | xargs md5sum; find . | sort";
        let listed = Command::new("sh").args(["-c", sum]).current_dir(&out).output().unwrap();
        String::from_utf8_lossy(&listed.stdout).into_owned()
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tool(name: &str) -> Command {
    let place = Path::new("/usr/sbin").join(name);
    Command::new(if place.exists() { place } else { name.into() })
}

/// Grows the volume; what was written. Error: the refusal.
fn grow(image: &Image, bytes: u64, zeroed: bool) -> Result<Disk, String> {
    let disk = Disk::of(image);
    let done = volume::resize(&disk, bytes, NOW, &mut ()).map_err(|e| e.to_string())?;
    let Resize::Larger(growth) = done else { return Err("nothing to do".into()) };
    let mut longer = Disk::longer(image, bytes.max(image.size()));
    if !zeroed {
        // A device with something else behind the volume.
        for at in (image.size()..bytes).step_by(4096) {
            longer.image.write(at, &vec![0xa5; (bytes - at).min(4096) as usize]);
        }
    }
    growth.apply(&mut longer, &mut ()).map_err(|e| e.to_string())?;
    Ok(longer)
}

fn is_sound(image: &Image) -> bool {
    let options = Options { now_secs: NOW, verify: false, mark_clean: false };
    check::check(&Disk::of(image), &options, &mut ()).unwrap().is_sound()
}

/// Kinds of volumes, bytes at first, and bytes to grow to one after the other.
fn matrix() -> Vec<(&'static str, u64, Vec<u64>)> {
    let by = [20 * M + 3 * 1024, 33 * M, 33 * M + 700 * 1024, 150 * M, 300 * M];
    vec![
        ("-t ext2 -b 1024", 9 * M, by.to_vec()),
        ("-t ext3 -b 1024 -J size=1", 12 * M, by.to_vec()),
        ("-t ext3 -b 4096 -J size=4", 24 * M, vec![40 * M, 130 * M, 700 * M]),
        ("-t ext2 -b 1024 -O ^sparse_super,^resize_inode", 9 * M, by[..3].to_vec()),
        ("-t ext2 -b 2048 -I 128", 9 * M, by.to_vec()),
        ("-t ext4 -b 1024 -J size=1", 9 * M, by.to_vec()),
        ("-t ext4 -b 2048 -J size=2", 9 * M, by.to_vec()),
        ("-t ext4 -b 4096 -J size=4", 30 * M, vec![41 * M, 200 * M, 3000 * M, 20_000 * M]),
        ("-t ext4 -b 4096 -J size=4 -G 4", 150 * M, vec![300 * M, 1400 * M]),
        ("-t ext4 -b 1024 -J size=1 -O ^metadata_csum,uninit_bg", 9 * M, by.to_vec()),
        ("-t ext4 -b 1024 -J size=1 -O ^metadata_csum,^64bit", 9 * M, by.to_vec()),
        ("-t ext4 -b 1024 -J size=1 -O ^flex_bg", 9 * M, by.to_vec()),
        ("-t ext4 -b 1024 -J size=1 -O meta_bg,^resize_inode", 9 * M, by.to_vec()),
        ("-t ext4 -b 1024 -J size=1 -O sparse_super2,^resize_inode", 17 * M, by.to_vec()),
        ("-t ext4 -b 1024 -J size=1 -O orphan_file,metadata_csum_seed", 9 * M, by.to_vec()),
        ("-t ext4 -b 1024 -J size=1 -O ^resize_inode", 9 * M, vec![100 * M, 140 * M, 1500 * M]),
        ("-t ext4 -b 1024 -J size=1 -E resize=200000", 9 * M, vec![100 * M, 150 * M, 700 * M]),
        ("-t ext4 -b 1024 -g 2048 -J size=1 -N 600", 9 * M, by.to_vec()),
    ]
}

#[test]
fn what_has_grown_is_sound() {
    let s = Scratch::new("matrix");
    for (options, bytes, sizes) in matrix() {
        for zeroed in [true, false] {
            let mut image = s.made(options, bytes);
            let files = s.files(&image);
            for size in &sizes {
                if !zeroed && *size > 400 * M {
                    continue;
                }
                let place = format!("{options}, {} to {size}, zeroed {zeroed}", image.size());
                image =
                    grow(&image, *size, zeroed).map_err(|e| format!("{place}: {e}")).unwrap().image;
                let (code, text) = s.e2fsck("-fn", &image);
                assert_eq!(code, 0, "{place}\n{text}");
                assert!(is_sound(&image), "{place}");
            }
            assert_eq!(s.files(&image), files, "{options}");
        }
    }
}

#[test]
fn a_volume_without_room_for_descriptors_is_refused_with_what_it_can_get() {
    let s = Scratch::new("refused");
    let image = s.made("-t ext2 -b 1024 -O ^resize_inode", 9 * M);
    let why = grow(&image, 300 * M, true).err().unwrap();
    assert!(why.contains("it can get 268435456 bytes at most"), "{why}");
    let image = grow(&image, 256 * M, true).map_err(|e| e.to_string()).unwrap().image;
    assert_eq!(s.e2fsck("-fn", &image).0, 0);
    assert!(grow(&image, 256 * M + 5 * M, true).is_err());
}

#[test]
fn what_is_in_use_or_damaged_is_refused() {
    let s = Scratch::new("unclean");
    let mut image = s.made("-t ext4 -b 1024 -J size=1", 9 * M);
    let state = |image: &mut Image, v: u8| image.write(1024 + 0x3a, &[v, 0]);
    let plain = s.made("-t ext2 -b 1024", 9 * M);
    let mut unclean = plain.clone();
    state(&mut unclean, 0);
    let why = grow(&unclean, 20 * M, true).err().unwrap();
    assert!(why.contains("cairn recover"), "{why}");
    let mut damaged = plain;
    state(&mut damaged, 3);
    let why = grow(&damaged, 20 * M, true).err().unwrap();
    assert!(why.contains("cairn fsck --repair"), "{why}");
    // A bit of a bitmap: the mark alone would not tell.
    let at = 1024 * 60;
    (0..40).for_each(|n| image.write(at + 1024 * n, &[0x77; 1024]));
    let why = grow(&image, 20 * M, true).err().unwrap();
    assert!(why.contains("cairn fsck --repair"), "{why}");
}

/// After any cut the volume has one of the two sizes. It is clean, or marked; a repair, by us or
/// by e2fsck, keeps every file, and then it can grow.
#[test]
fn every_cut_leaves_the_old_volume_or_the_new_one() {
    let s = Scratch::new("cuts");
    let thorough = std::env::var("CUTS").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    let kinds = [
        ("-t ext4 -b 1024 -J size=1", 9 * M, 150 * M),
        ("-t ext4 -b 1024 -J size=1 -E resize=100000", 9 * M, 150 * M),
        ("-t ext4 -b 4096 -J size=4 -O ^resize_inode", 30 * M, 300 * M),
        ("-t ext4 -b 1024 -J size=1 -O meta_bg,^resize_inode", 9 * M, 60 * M),
        ("-t ext4 -b 1024 -J size=1 -O ^metadata_csum,uninit_bg", 9 * M, 60 * M),
    ];
    for (options, bytes, size) in kinds {
        let image = s.made(options, bytes);
        let files = s.files(&image);
        let old = Disk::longer(&image, size).image;
        let grown = grow(&image, size, true).unwrap();
        let blocks = |i: &Image| volume::probe(&Disk::of(i)).unwrap().superblock.blocks();
        let sizes = [blocks(&image), blocks(&grown.image)];
        let mut cuts = CrashImages::new(&grown.trace, &old);
        let (mut seen, mut marked) = (std::collections::BTreeSet::new(), 0);
        loop {
            for n in 0..cuts.variants(thorough) {
                let left = cuts.image(n);
                if !seen.insert(left.digest()) {
                    continue;
                }
                let place = format!("{options}: event cut, variant {n} of state {}", seen.len());
                marked += u64::from(judge(&s, &left, sizes, &files, &place, seen.len() % 16 == 1));
            }
            if cuts.step().is_none() {
                break;
            }
        }
        assert!(seen.len() > 20 && marked > 5, "{options}: {} states, {marked} marked", seen.len());
    }
}

/// Is the volume marked as to be checked?
fn judge(
    s: &Scratch,
    left: &Image,
    sizes: [u64; 2],
    files: &str,
    place: &str,
    e2fsck: bool,
) -> bool {
    let found = volume::probe(&Disk::of(left)).unwrap();
    assert!(sizes.contains(&found.superblock.blocks()), "{place}: {:?}", found.superblock);
    let clean = found.is_clean();
    if clean {
        assert!(is_sound(left), "{place}: clean, and not sound");
    }
    let options = Options { now_secs: NOW, verify: true, mark_clean: true };
    let mut mended = Disk::of(left);
    let report = check::check(&mended, &options, &mut ()).unwrap();
    assert!(report.left.is_empty(), "{place}: {:#?}", report.left);
    report.plan.apply(&mut mended, &mut ()).unwrap();
    let after = volume::probe(&Disk::of(&mended.image)).unwrap().superblock.blocks();
    assert!(sizes.contains(&after), "{place}: {after} blocks once repaired");
    if e2fsck {
        let (code, text) = s.e2fsck("-fn", &mended.image);
        assert_eq!(code, 0, "{place}: repaired by us\n{text}");
        assert_eq!(s.files(&mended.image), files, "{place}: repaired by us");
        let (code, text) = s.e2fsck("-fy", left);
        assert!(code < 4, "{place}: {code}\n{text}");
        let theirs = s.load(&s.0.join("judged.img"));
        assert_eq!(s.files(&theirs), files, "{place}: repaired by e2fsck");
        if after == sizes[0] {
            let bytes = theirs.size();
            let again = grow(&mended.image, bytes, true).map_err(|e| format!("{place}: {e}"));
            let again = again.unwrap().image;
            assert_eq!(s.e2fsck("-fn", &again).0, 0, "{place}: and grown");
        }
    }
    !clean
}

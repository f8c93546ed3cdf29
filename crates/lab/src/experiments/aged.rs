//! Volumes that have aged: files come and go by a habit and a seed, until the free space is as such
//! a volume has it. The operations are the served volume's own. It measures nothing.
//!
//! Invariants:
//! * A1. What lies there is what has come and not gone.

use super::by_size::write;
use super::nvme;
use super::rig::{BLOCK, Caller, Machine, ROOT, Rig};
use crate::subject::{Setting, SimDevice};
use env::Rng;
use format::mkfs::{MkfsOptions, Profile};
use sim::Image;
use std::cell::Cell;
use std::rc::Rc;
use vfs::FsError;
use volume::Mode;

/// Who uses the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Home directories: files of all sizes; the youngest go first.
    Home,
    /// A news server: articles of a block or two, each group's oldest expire.
    News,
    /// Installed software: large files, which go with their directory, and seldom.
    Software,
}

/// How a volume is used.
#[derive(Debug)]
pub(super) struct Habit {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    /// Bytes of the smallest file and of the largest.
    bytes: (u64, u64),
    dirs: usize,
    /// So many times what lies on the volume comes and goes.
    turnover: u64,
}

impl Habit {
    /// All of them. Articles have the mean of seltzer-2000's, 3.46 KB.
    pub(super) const ALL: [Habit; 3] = [
        Habit {
            kind: Kind::Home,
            name: "home",
            bytes: (1 << 10, 256 << 10),
            dirs: 50,
            turnover: 4,
        },
        Habit { kind: Kind::News, name: "news", bytes: (1, 6900), dirs: 200, turnover: 4 },
        Habit {
            kind: Kind::Software,
            name: "software",
            bytes: (64 << 10, 4 << 20),
            dirs: 12,
            turnover: 1,
        },
    ];

    fn size(&self, rng: &mut Rng) -> u64 {
        let (low, high) = self.bytes;
        match self.kind {
            Kind::News => low + rng.below(high - low),
            // Each power of two as often as any other.
            _ => {
                let powers = (high / low).ilog2();
                let from = low << rng.below(u64::from(powers));
                from + rng.below(from)
            }
        }
    }
}

/// A file: its number, and its blocks with those that map it.
type File = (u64, u64);

/// A volume's user at work.
struct User {
    habit: &'static Habit,
    rng: Rng,
    dirs: Vec<u32>,
    /// By directory, the oldest first.
    files: Vec<Vec<File>>,
    made: u64,
    /// Blocks of the files that are there, and of all that ever were.
    lying: u64,
    ever: u64,
}

/// Blocks of a file, with those that map it.
fn blocks_of(bytes: u64) -> u64 {
    let data = bytes.div_ceil(BLOCK);
    let (direct, pointers) = (12, BLOCK / 4);
    let indirect = data.saturating_sub(direct).div_ceil(pointers);
    data + indirect + u64::from(indirect > 1)
}

impl User {
    async fn new(c: &Caller, habit: &'static Habit, seed: u64) -> Result<User, FsError> {
        let mut dirs = Vec::new();
        for n in 0..habit.dirs {
            dirs.push(c.mkdir(ROOT, &format!("old{n}")).await?);
        }
        let files = vec![Vec::new(); habit.dirs];
        Ok(User { habit, rng: Rng::new(seed), dirs, files, made: 0, lying: 0, ever: 0 })
    }

    async fn add(&mut self, c: &Caller) -> Result<(), FsError> {
        let dir = self.rng.below(self.dirs.len() as u64) as usize;
        let (n, bytes) = (self.made, self.habit.size(&mut self.rng));
        let ino = c.create(self.dirs[dir], &format!("f{n}")).await?;
        write(c, ino, bytes).await?;
        let blocks = blocks_of(bytes);
        assert!(blocks > 0, "a file of {} has no blocks", self.habit.name);
        self.files[dir].push((n, blocks));
        self.made += 1;
        self.lying += blocks;
        self.ever += blocks;
        Ok(())
    }

    /// Removes what the habit has go first.
    async fn remove(&mut self, c: &Caller) -> Result<(), FsError> {
        let dir = loop {
            let dir = self.rng.below(self.dirs.len() as u64) as usize;
            if !self.files[dir].is_empty() {
                break dir;
            }
        };
        let there = self.files[dir].len();
        let which = match self.habit.kind {
            Kind::Home if self.rng.one_in(2) => {
                there - 1 - self.rng.below(there.min(4) as u64) as usize
            }
            Kind::Home => self.rng.below(there as u64) as usize,
            Kind::News | Kind::Software => 0,
        };
        let goes = if self.habit.kind == Kind::Software { there } else { 1 };
        for (n, blocks) in self.files[dir].drain(which..which + goes).collect::<Vec<File>>() {
            c.unlink(self.dirs[dir], &format!("f{n}")).await?;
            assert!(self.lying >= blocks, "more goes than there is");
            self.lying -= blocks;
        }
        Ok(())
    }

    /// Until so many blocks lie there, and so many times that have come.
    async fn work(&mut self, c: &Caller, blocks: u64) -> Result<(), FsError> {
        while self.ever < blocks * (1 + self.habit.turnover) || self.lying < blocks {
            if self.lying >= blocks {
                self.remove(c).await?;
            }
            self.add(c).await?;
        }
        let there: u64 = self.files.iter().flatten().map(|f| f.1).sum();
        assert_eq!(there, self.lying, "A1: blocks of {} files lie there", self.habit.name);
        c.sync_all().await
    }
}

/// Groups of 8 MiB, about 16 cylinders, as FFS has them.
const GROUP_BLOCKS: u32 = 2048;

/// A new volume.
pub(super) fn empty(m: &Machine) -> Image {
    let options = MkfsOptions {
        inodes: Some(m.inodes),
        group_blocks: Some(GROUP_BLOCKS),
        ..MkfsOptions::plain(m.bytes.0, Profile::Ext2)
    };
    let mut device = SimDevice(Image::new(m.bytes.0));
    volume::make(&mut device, &options, true).expect("an experiment's volume can be made");
    device.0
}

fn free(disk: &Image) -> Result<u64, String> {
    let device = SimDevice(disk.clone());
    let found = volume::probe(&device).map_err(|e| e.to_string())?;
    Ok(found.superblock.free_blocks())
}

/// Of 100 blocks that were free on the new volume, so many are in use.
pub(super) fn in_use(new: &Image, disk: &Image) -> Result<f64, String> {
    Ok(100.0 - 100.0 * free(disk)? as f64 / free(new)? as f64)
}

/// The volume after its use, with so many of 100 blocks in use, and how many files there are. Disks
/// take hardly any time meanwhile.
pub(super) fn aged(
    m: &Machine,
    new: Image,
    habit: &'static Habit,
    full: u64,
) -> Result<(Image, u64), String> {
    assert!(full < 100, "files come before others go");
    let blocks = free(&new)? * full / 100;
    let quick = Machine { disk: nvme, ..*m };
    let mut rig = Rig::over(&quick, Setting::plain(Mode::Async), vec![new], |o| o)?;
    let files = Rc::new(Cell::new(0));
    let into = files.clone();
    let work = async move |c: Caller| -> Result<(), FsError> {
        let mut user = User::new(&c, habit, full).await?;
        user.work(&c, blocks).await?;
        into.set(user.files.iter().map(|f| f.len() as u64).sum());
        Ok(())
    };
    rig.callers(false, [work])?;
    let disk = rig.closed()?.swap_remove(0);
    Ok((disk, files.get()))
}

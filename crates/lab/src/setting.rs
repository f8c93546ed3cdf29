//! How the lab's volumes are made and opened: the mode with its options, small new disks for it,
//! and the recovery that comes before opening. It runs nothing. As of a real file, what lies behind
//! a disk's end can be neither read nor written.
//!
//! Invariants:
//! * G1. A block is as long as the shortest, or a power of two times as long.
//! * G2. There is a disk for each volume, and one for the log where that is outside; each is as
//!   long after a recovery as before it.
//! * G3. Volumes of one log have names of their own.

use crate::scenario::groups;
use check::{IoError, ReadBlocks, WriteBlocks};
use env::Disk;
use format::ext::features::incompat;
use format::jbd2::device::JournalDevice;
use format::mkfs::{MkfsOptions, Profile};
use sim::{Image, World};
use volume::{Commit, Found, Ground, Keeps, Mode, OpenOptions, Recovered};

/// An image as recovery uses it.
pub struct SimDevice(pub Image);

impl SimDevice {
    fn check(&self, at: u64, len: usize) -> Result<(), IoError> {
        let size = self.0.size();
        match at.checked_add(len as u64).is_some_and(|end| end <= size) {
            true => Ok(()),
            false => Err(IoError { what: format!("{len} bytes on a device of {size}"), at }),
        }
    }
}

impl ReadBlocks for SimDevice {
    fn size_bytes(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.check(at, into.len())?;
        self.0.read(at, into);
        Ok(())
    }
    fn known_zero(&self, at: u64, len: u64) -> bool {
        self.0.is_hole(at, len)
    }
}
impl WriteBlocks for SimDevice {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.check(at, bytes.len())?;
        self.0.write(at, bytes);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
    fn read_back(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.read_at(at, into)
    }
}

/// What kind of volume there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeKind {
    /// ext2, or ext3 where the mode has a journal or log.
    Ext3,
    /// ext4, its journal inside.
    Ext4 {
        /// Do its metadata carry checksums?
        checksums: bool,
    },
}

/// How a volume is opened in the lab: the mode and its options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The mode.
    pub mode: Mode,
    /// Is the log on a disk of its own?
    pub outside: bool,
    /// When does a returned operation count as done?
    pub commit: Commit,
    /// Are contents durable before what points at them (`redo`)?
    pub ordered_data: bool,
    /// Up to how many bytes a write is logged; None: a block.
    pub threshold: Option<u64>,
    /// Is it written down what operations may leave half done (`soft-updates`)?
    pub intents: bool,
    /// How many volumes there are; several share one log, which is outside.
    pub volumes: u16,
    /// What kind they are.
    pub kind: VolumeKind,
    /// INCOMPAT features that they have besides.
    pub with: u32,
    /// Of a volume in a log-structured store: is it larger than that has room for?
    pub thin: bool,
    /// Has it many small groups?
    pub small_groups: bool,
    /// Has it the shortest inodes?
    pub small_inodes: bool,
    /// Bytes of a block, but in a log-structured store, which has its own.
    pub block_bytes: u64,
}

/// Bytes of a block of the lab's volumes, if nobody says otherwise.
const BLOCK_BYTES: u64 = 1024;

impl Setting {
    /// A mode without options.
    pub fn plain(mode: Mode) -> Setting {
        Setting {
            mode,
            outside: false,
            commit: Commit::Sync,
            ordered_data: false,
            threshold: None,
            intents: false,
            volumes: 1,
            kind: VolumeKind::Ext3,
            with: 0,
            thin: false,
            small_groups: false,
            small_inodes: false,
            block_bytes: BLOCK_BYTES,
        }
    }

    /// The same with blocks of so many bytes.
    #[must_use]
    pub fn with_blocks(self, block_bytes: u64) -> Setting {
        Setting { block_bytes, ..self }
    }

    /// How many times as long as usual a block is.
    pub(crate) fn block_scale(&self) -> u64 {
        let times = self.block_bytes / BLOCK_BYTES;
        let whole = times.is_power_of_two() && self.block_bytes.is_multiple_of(BLOCK_BYTES);
        assert!(whole, "G1: blocks of {} bytes", self.block_bytes);
        times
    }

    /// Bytes of a journal inside: as many blocks in any volume.
    pub(crate) fn journal_bytes(&self) -> u64 {
        JOURNAL_BYTES * self.block_scale()
    }

    /// May contents lie in the volume's inodes?
    pub(crate) fn has_inline_data(&self) -> bool {
        self.with & incompat::INLINE_DATA != 0
    }

    /// The same with contents in the inodes.
    #[must_use]
    pub fn with_inline_data(self) -> Setting {
        Setting { with: self.with | incompat::INLINE_DATA, ..self }
    }

    /// May values of attributes lie in inodes of their own?
    pub(crate) fn has_values(&self) -> bool {
        self.with & incompat::EA_INODE != 0
    }

    /// The same with such values.
    #[must_use]
    pub fn with_values(self) -> Setting {
        Setting { with: self.with | incompat::EA_INODE, ..self }
    }

    /// Has the volume a journal?
    pub(crate) fn has_journal(&self) -> bool {
        self.mode.is_atomic()
    }

    /// Does the volume lie in a log-structured store?
    pub(crate) fn in_segments(&self) -> bool {
        self.mode.info().keeps == Keeps::Segments
    }

    /// Is what a crash leaves the state after some operation, found without a repair?
    pub(crate) fn is_prefix(&self) -> bool {
        self.has_journal() || self.in_segments()
    }

    /// The options of an opening, without those that say where the disks are.
    pub(crate) fn open_options(&self, cache_bytes: usize) -> OpenOptions {
        OpenOptions {
            commit: self.commit,
            threshold: self.threshold,
            ordered_data: self.ordered_data,
            journal_intents: self.intents,
            ..OpenOptions::plain(self.mode, cache_bytes, [9; 16])
        }
    }

    /// The options as the command line has them.
    pub fn options(&self) -> String {
        let mut all = Vec::new();
        if self.outside {
            all.push("--log log".to_owned());
        }
        if self.commit == Commit::Async {
            all.push("--commit async".to_owned());
        }
        if self.ordered_data {
            all.push("--ordered-data".to_owned());
        }
        if self.intents {
            all.push("--journal-intents".to_owned());
        }
        all.extend(self.threshold.map(|t| format!("--threshold {t}")));
        if self.volumes > 1 {
            all.push(format!("--volumes {}", self.volumes));
        }
        match self.kind {
            VolumeKind::Ext3 => (),
            VolumeKind::Ext4 { checksums: true } => all.push("--profile ext4".into()),
            VolumeKind::Ext4 { checksums: false } => all.push("--profile ext4-plain".into()),
        }
        if self.block_bytes != BLOCK_BYTES {
            all.push(format!("--block-size {}", self.block_bytes));
        }
        all.extend(WITH.iter().filter(|w| self.with & w.1 != 0).map(|w| format!("--with {}", w.0)));
        all.join(" ")
    }
}

/// Features that a volume in the lab may have besides.
pub const WITH: &[(&str, u32)] = &[
    ("mmp", incompat::MMP),
    ("inline_data", incompat::INLINE_DATA),
    ("ea_inode", incompat::EA_INODE),
];

/// When crash states are recovered and judged, in seconds since 1970: later than every virtual run,
/// and than every real one whose states are brought here (elsewhere.rs). e2fsck is told the same.
pub(crate) const JUDGED_SECS: u32 = 4_000_000_000;

/// Bytes of a segment of a small store.
const SEGMENT_BYTES: u64 = 64 << 10;

/// Bytes of a journal inside.
const JOURNAL_BYTES: u64 = 1 << 20;

/// Bytes of a log's own disk.
const LOG_BYTES: u64 = 1 << 20;

/// The disks of new volumes of this kind: their own, and their log's.
pub(crate) fn new_disks(size_bytes: u64, setting: Setting) -> Vec<Image> {
    if setting.outside && setting.mode.is_journal() {
        return with_journal_outside(size_bytes);
    }
    if setting.in_segments() {
        return vec![in_segments(size_bytes, setting.thin)];
    }
    let unused = !setting.has_journal() && setting.kind != VolumeKind::Ext3;
    let has_journal = setting.has_journal() || setting.intents || unused;
    // As much room for files as in a volume without a journal.
    let more = if setting.intents || unused { setting.journal_bytes() } else { 0 };
    let size_bytes = size_bytes + more;
    let one = |n| {
        made_of(MkfsOptions {
            uuid: uuid(n),
            label: label(n),
            incompat: setting.with,
            inode_bytes: if setting.small_inodes { 128 } else { 256 },
            group_blocks: setting.small_groups.then_some(groups::GROUP_BLOCKS),
            profile: match setting.kind {
                VolumeKind::Ext3 if has_journal => Profile::Ext3,
                VolumeKind::Ext3 => Profile::Ext2,
                VolumeKind::Ext4 { checksums } => Profile::Ext4 { checksums },
            },
            block_bytes: setting.block_bytes as usize,
            journal_bytes: has_journal.then_some(setting.journal_bytes()),
            ..options(size_bytes, has_journal)
        })
    };
    let mut all: Vec<Image> = (0..setting.volumes).map(one).collect();
    if setting.outside {
        all.push(Image::new(LOG_BYTES));
    }
    let wanted = usize::from(setting.volumes) + usize::from(setting.outside);
    assert_eq!(all.len(), wanted, "G2: so many disks for {setting:?}");
    all
}

/// A small, fresh volume in a log-structured store; `thin`: it is four times as large as others on
/// the same disk.
fn in_segments(size_bytes: u64, thin: bool) -> Image {
    let (uuid, segment_bytes) = (*VOLUME, Some(SEGMENT_BYTES));
    // Twice the size: its blocks are larger than the other volumes'.
    let virtual_bytes = Some(2 * size_bytes);
    let store =
        lfs::FormatOptions { uuid, segment_bytes, virtual_bytes, heads: Some(6), disk: None };
    let fits = |bytes: &u64| lfs::shape(*bytes, &store).is_ok_and(|g| !g.is_thin());
    let disk_bytes = (2..).map(|n| n << 20).find(fits).expect("some size is enough");
    let virtual_bytes = Some(if thin { 8 } else { 2 } * size_bytes);
    let store = lfs::FormatOptions { virtual_bytes, ..store };
    let mut world = World::new(Image::new(disk_bytes));
    let volume = MkfsOptions { block_bytes: lfs::BLOCK_BYTES, ..options(size_bytes, false) };
    let made = sim::block_on(&mut world, move |env, disk| async move {
        volume::make_on_segments(env, disk, &store, &volume).await
    });
    made.expect("a small volume can be made");
    world.disk
}

/// Blocks: the first, and how many.
pub(crate) type Ranges = Vec<(u64, u64)>;

/// The volume in a log-structured store, as a plain image, and the blocks that the store keeps.
/// Errors: the store's damage, which includes what it keeps being other than what is there. `deep`:
/// the segments' summaries are looked at too.
pub(crate) fn exported(store: &Image, deep: bool) -> Result<(Image, Ranges), String> {
    exported_at(store, lfs::At::Log, deep)
}

/// The same at another moment.
pub(crate) fn exported_at(
    store: &Image,
    at: lfs::At,
    deep: bool,
) -> Result<(Image, Ranges), String> {
    let mut world = World::new(store.clone());
    sim::block_on(&mut world, move |env, disk| async move {
        let options = lfs::OpenOptions { read_only: true, at, ..lfs::OpenOptions::default() };
        let store = lfs::Store::open(env, disk, options).await?;
        let report = store.verify(deep).await.map_err(|e| e.to_string())?;
        if let Some(wrong) = report.wrong.first() {
            return Err(format!("the store: {wrong}"));
        }
        let mut kept = Vec::new();
        store.mapped(|v, n| kept.push((v.0, n))).await.map_err(|e| e.to_string())?;
        let mut image = Image::new(Disk::size_bytes(&store));
        let blocks = image.size() / lfs::BLOCK_BYTES as u64;
        let beyond = kept.iter().find(|(first, n)| first + n > blocks);
        if let Some((first, n)) = beyond {
            return Err(format!("the store keeps {n} blocks at {first}, of {blocks}"));
        }
        volume::export_blocks(&store, |at, bytes| {
            image.write(at, bytes);
            Ok(())
        })
        .await?;
        Ok((image, kept))
    })
}

/// A small, fresh volume, and the device with its journal.
fn with_journal_outside(size_bytes: u64) -> Vec<Image> {
    const JOURNAL: [u8; 16] = *b"cairn-lab-jrnl-1";
    let mut log = SimDevice(Image::new(LOG_BYTES));
    let blocks = (LOG_BYTES / 1024) as u32;
    let journal = JournalDevice { block_bytes: 1024, blocks, uuid: JOURNAL };
    let made = volume::make_journal(&mut log, &journal, VOLUME, (true, 1_700_000_000));
    made.expect("a small journal can be made");
    vec![made_of(MkfsOptions { journal_device: Some(JOURNAL), ..options(size_bytes, true) }), log.0]
}

/// Recovers a volume, as `cairn recover` does, at this time: its disk, and the one with its log if
/// there is one, are then as recovery has left them, or as far as it came. Errors: why it did not.
pub fn recover(disks: &mut [Image], now_secs: u32) -> Result<Recovered, String> {
    let (world, did) = recover_in_world(disks, now_secs, |_| ());
    let sizes = [&world.disk].into_iter().chain(&world.logs).map(Image::size);
    assert!(sizes.eq(disks.iter().map(Image::size)), "G2: recovery gives other disks back");
    disks[0] = world.disk;
    disks[1..].iter_mut().zip(world.logs).for_each(|(old, new)| *old = new);
    did
}

/// The same in a world of its own, which `set` makes ready; the world keeps what it was asked.
pub(crate) fn recover_in_world(
    disks: &[Image],
    now_secs: u32,
    set: impl FnOnce(&mut World),
) -> (World, Result<Recovered, String>) {
    let mut world = World::new(disks[0].clone());
    world.logs = disks[1..].to_vec();
    world.set_epoch(u64::from(now_secs));
    set(&mut world);
    // A log that was named for another mode is not this volume's.
    let outside = volume::probe(&SimDevice(disks[0].clone())).is_ok_and(|p| {
        let log = p.state().is_some_and(|s| s.log_uuid != [0; 16]);
        p.superblock.journal_is_outside() || log && p.has_private_log()
    });
    let (own_bytes, log) = (disks[0].size(), disks.get(1).filter(|_| outside).map(Image::size));
    let did = sim::block_on(&mut world, move |env, _| async move {
        let options =
            OpenOptions { log_disk_bytes: log, ..OpenOptions::plain(Mode::Sync, 4 << 20, [9; 16]) };
        volume::recover(&Ground::alone(env, own_bytes, log), &options).await
    });
    (world, did.map_err(|e| e.to_string()))
}

/// What a look at a volume's own disk, and at its log's, shows. Errors: there is none.
pub(crate) fn look(own: &Image, log: Option<&Image>) -> Result<Found, String> {
    let mut world = World::new(own.clone());
    world.logs = log.into_iter().cloned().collect();
    let (own_bytes, log_bytes) = (own.size(), log.map(Image::size));
    let found = sim::block_on(&mut world, move |env, _| async move {
        volume::look(&Ground::alone(env, own_bytes, log_bytes)).await
    });
    found.map_err(|e| e.to_string())
}

/// The volume's UUID.
pub(crate) const VOLUME: &[u8; 16] = b"cairn-lab-volume";

/// The label of the n-th of several volumes.
fn label(n: u16) -> String {
    if n == 0 { "lab".into() } else { format!("lab{}", n + 1) }
}

/// The UUID of the n-th of several volumes.
fn uuid(n: u16) -> [u8; 16] {
    let mut uuid = *VOLUME;
    let last = u8::try_from(n).ok().and_then(|n| uuid[15].checked_add(n));
    uuid[15] = last.unwrap_or_else(|| panic!("G3: {n} volumes have no names of their own"));
    uuid
}

/// A small, fresh volume.
pub fn fresh(size_bytes: u64, journal: bool) -> Image {
    made_of(options(size_bytes, journal))
}

fn options(size_bytes: u64, journal: bool) -> MkfsOptions {
    MkfsOptions {
        block_bytes: BLOCK_BYTES as usize,
        inodes: Some(512),
        journal_bytes: journal.then_some(JOURNAL_BYTES),
        label: "lab".into(),
        uuid: *VOLUME,
        ..MkfsOptions::plain(size_bytes, if journal { Profile::Ext3 } else { Profile::Ext2 })
    }
}

fn made_of(options: MkfsOptions) -> Image {
    let mut device = SimDevice(Image::new(options.size_bytes));
    volume::make(&mut device, &options, true).expect("a small volume can be made");
    device.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_the_end_of_a_disk_there_is_nothing() {
        let mut device = SimDevice(Image::new(8192));
        assert!(device.read_at(4096, &mut [0; 4096]).is_ok());
        for at in [4097, 8192, u64::MAX] {
            assert!(device.read_at(at, &mut [0; 4096]).is_err(), "{at}");
            assert!(device.write_at(at, &[0; 4096]).is_err(), "{at}");
        }
    }
}

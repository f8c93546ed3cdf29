//! `cairn mkfs`: makes a volume in a new image, an existing one, or a device.
//!
//! Invariants:
//! * N1. What goes again because nothing came of it was made by this command, once.

use crate::args::{Compress, MkfsArgs, Profile};
use crate::device::FileDevice;
use crate::{Failure, Outcome, size};
use bucket::AtRest;
use check::{IoError, ReadBlocks, WriteBlocks};
use env::DiskId;
use format::jbd2::device::JournalDevice;
use format::jbd2::superblock::BLOCKS_MIN;
use format::mkfs::{MkfsOptions, default_journal_blocks};
use host::{BeforeStop, HostFile, Url, drive, entropy, now};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use volume::{LABEL_BYTES_MAX, VolumeError};

/// The kind of a volume of which nothing is said; in a bucket none is.
pub const DEFAULT: Profile = Profile::Ext4;

/// The command.
pub fn run(a: &MkfsArgs) -> Result<Outcome, Failure> {
    let of_journal = [("--log", a.log.is_some()), ("--journal-size", a.journal_size.is_some())];
    if let Some((option, _)) = of_journal.iter().find(|o| o.1 && a.profile == Some(Profile::Ext2)) {
        let why = format!("{option}: a volume of profile ext2 has no journal");
        return Err(Failure::Usage(why));
    }
    let blocks = make(a)?;
    let profile = a.profile.unwrap_or(DEFAULT);
    let lies_in = match profile {
        _ if Url::of(&a.image)?.is_some() => " in a log-structured store in a bucket",
        Profile::Lfs => " in a log-structured store",
        _ => "",
    };
    let kind = match profile {
        Profile::Lfs if a.journal_size.is_some() => "ext3",
        Profile::Lfs => "ext2",
        _ if Url::of(&a.image)?.is_some() => "ext2",
        other => other.name(),
    };
    tell!(
        "{}: {kind} volume{lies_in}, {blocks} blocks of {}, {}",
        a.image.display(),
        a.block_size,
        size::show(blocks * a.block_size)
    );
    if let Some(log) = &a.log {
        let (image, log) = (a.image.display(), log.display());
        tell!(
            "{image}: its journal is {log}, which has to be named: cairn serve {image} --log {log}"
        );
    }
    if profile == Profile::Lfs && Url::of(&a.image)?.is_none() {
        tell!("{}", super::lfs::shape_told(&a.image, a.segment_size.is_some())?);
    }
    Ok(Outcome::Done)
}

/// Makes the volume; how many blocks it has.
pub fn make(a: &MkfsArgs) -> Result<u64, Failure> {
    let asked_for = a.profile.unwrap_or(DEFAULT);
    let profile = match asked_for {
        Profile::Ext2 => format::mkfs::Profile::Ext2,
        Profile::Ext3 => format::mkfs::Profile::Ext3,
        // The store is the journal; one inside is for the modes that need it.
        Profile::Lfs if a.journal_size.is_none() => format::mkfs::Profile::Ext2,
        Profile::Lfs => format::mkfs::Profile::Ext3,
        Profile::Ext4 => format::mkfs::Profile::Ext4 { checksums: true },
    };
    if asked_for == Profile::Lfs && (a.block_size != lfs::BLOCK_BYTES as u64 || a.log.is_some()) {
        return Err(Failure::Usage("--profile lfs: blocks of 4096, and no --log".into()));
    }
    if a.store_size.is_some() && (asked_for != Profile::Lfs || Url::of(&a.image)?.is_some()) {
        let why = "--store-size is for --profile lfs, and not in a bucket, which has no size";
        return Err(Failure::Usage(why.into()));
    }
    if let Some(bytes) = a.segment_size
        && (asked_for != Profile::Lfs || Url::of(&a.image)?.is_some() || bytes < SEGMENT_BYTES_MIN)
    {
        let why = "--segment-size is for --profile lfs on a disk, and at least 64K";
        return Err(Failure::Usage(why.into()));
    }
    if a.label.len() > LABEL_BYTES_MAX {
        let why = format!("--label {}: a label has at most {LABEL_BYTES_MAX} bytes", a.label);
        return Err(Failure::Usage(why));
    }
    let shown = a.image.display();
    if let Some(url) = Url::of(&a.image)? {
        return make_in_bucket(&url, a);
    }
    if a.compress == Compress::Always || crate::buckets::key().is_some() {
        let why = "--compress and keys are for volumes in a bucket";
        return Err(Failure::Usage(format!("{shown}: {why}")));
    }
    let made = !crate::disk::exists(&a.image);
    let mut new = NewFiles::default();
    // Of the image; the volume's is another where the store's was said.
    let asked = a.store_size.or(a.size);
    let file = if made {
        let size = asked.ok_or_else(|| Failure::Usage(format!("{shown}: --size is needed")))?;
        Arc::new(new.create(&a.image, size)?)
    } else {
        existing(&a.image, asked, a.force)?
    };
    let size_bytes = asked.unwrap_or(file.size_bytes());
    if size_bytes > file.size_bytes() {
        let have = size::show(file.size_bytes());
        return Err(Failure::Failed(format!("{shown}: has only {have}")));
    }
    let uuid = new_uuid()?;
    let journal_device = match &a.log {
        Some(path) => Some(make_journal(path, a, (size_bytes, &uuid), &mut new)?),
        None => None,
    };
    let options = MkfsOptions { journal_device, uuid, ..options(a, profile, size_bytes)? };
    let result = if asked_for == Profile::Lfs {
        let virtual_bytes = a.size.filter(|_| a.store_size.is_some());
        let (uuid, segment_bytes) = (options.uuid, a.segment_size);
        let store = lfs::FormatOptions { uuid, segment_bytes, virtual_bytes, ..Default::default() };
        make_on_segments(&file, options, store, made)
    } else {
        volume::make(&mut FileDevice(file), &options, made)
    };
    let blocks = result.map_err(|e| Failure::Failed(format!("{shown}: {e}")))?;
    new.stay();
    Ok(blocks)
}

/// Files that are made, and go again if nothing comes of them, for whatever reason: an error, or a
/// signal that ends the command. What was there before never goes.
#[derive(Default)]
pub struct NewFiles {
    made: Arc<Mutex<Vec<PathBuf>>>,
    on_signal: Option<BeforeStop>,
}

impl NewFiles {
    /// Makes a file of this length.
    pub fn create(&mut self, path: &Path, bytes: u64) -> Result<HostFile, Failure> {
        if let Some(image) = crate::disk::missing_of(path) {
            let (shown, image) = (path.display(), image.display());
            return Err(Failure::Failed(format!("{shown}: there is no {image} with partitions")));
        }
        if self.on_signal.is_none() {
            let made = self.made.clone();
            let guard = BeforeStop::new(move || remove_all(&made));
            self.on_signal = Some(guard.map_err(|e| format!("signals: {e}"))?);
        }
        let mut all = self.made.lock().expect(UNBROKEN); // a signal waits until it is known
        // What another program has made meanwhile, or a link that leads nowhere, is not ours.
        let made = crate::disk::create(path, bytes)?;
        assert!(!all.iter().any(|p| p == path), "N1: {} is made twice", path.display());
        all.push(path.to_owned());
        Ok(made)
    }
    /// They stay.
    pub fn stay(&mut self) {
        self.made.lock().expect(UNBROKEN).clear();
    }
}

const UNBROKEN: &str = "nobody panics while holding it";

fn remove_all(made: &Mutex<Vec<PathBuf>>) {
    for path in made.lock().expect(UNBROKEN).drain(..) {
        // Whoever reads the error looks there; what cannot be removed he sees.
        let _ = std::fs::remove_file(path);
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        remove_all(&self.made);
    }
}

/// What the arguments say of the volume itself.
fn options(
    a: &MkfsArgs,
    profile: format::mkfs::Profile,
    size_bytes: u64,
) -> Result<MkfsOptions, Failure> {
    Ok(MkfsOptions {
        incompat: 0,
        size_bytes,
        block_bytes: a.block_size as usize,
        inode_bytes: a.inode_size,
        inodes: a.inodes,
        group_blocks: None,
        profile,
        journal_bytes: a.journal_size,
        journal_device: None,
        label: a.label.clone(),
        uuid: new_uuid()?,
        hash_seed: random()?,
        owner: me(),
        now_secs: now().wall.secs() as u32,
    })
}

/// Makes a store in a bucket, and the volume in it.
fn make_in_bucket(url: &Url, a: &MkfsArgs) -> Result<u64, Failure> {
    let shown = a.image.display();
    if a.profile == Some(Profile::Ext4)
        || a.block_size != lfs::BLOCK_BYTES as u64
        || a.journal_size.is_some()
    {
        let why = "a volume in a bucket has blocks of 4096, no journal, and not profile ext4";
        return Err(Failure::Usage(format!("{shown}: {why}")));
    }
    if crate::disk::snapshot_of(&a.image).is_some() {
        let why = "what is behind the @ would be a snapshot's name: call the volume something else";
        return Err(Failure::Usage(format!("{shown}: {why}")));
    }
    let size = a.size.ok_or_else(|| Failure::Usage(format!("{shown}: --size is needed")))?;
    let volume = options(a, format::mkfs::Profile::Ext2, size)?;
    url.make_folder()?;
    let objects = Arc::new(HostFile::open(&a.image, false)?);
    let key = crate::buckets::key();
    let at_rest = AtRest { compressed: a.compress.is_on(key.is_some()), key };
    let (seed, how) = (
        u64::from_le_bytes(volume.uuid[..8].try_into().expect("8 of 16 bytes")),
        (a.force, at_rest),
    );
    let made = drive(std::slice::from_ref(&objects), seed, move |env| {
        let bucket = env.port().bucket(DiskId(0));
        Box::pin(async move { volume::make_in_bucket(env, bucket, &volume, how).await })
    });
    made.map_err(|e| Failure::Failed(format!("{shown}: {e}")))
}

/// Bytes of a segment at least: of smaller ones, summaries take too much.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// Makes a log-structured store, and the volume in it.
fn make_on_segments(
    file: &Arc<HostFile>,
    volume: MkfsOptions,
    store: lfs::FormatOptions,
    made: bool,
) -> Result<u64, VolumeError> {
    let bytes = volume.size_bytes;
    if !made {
        // Nothing of an old volume or store is left to be taken for a part of this.
        let zeros = vec![0; MARKS_BYTES];
        let mut device = FileDevice(file.clone());
        for at in (0..bytes).step_by(MARKS_BYTES) {
            let n = (bytes - at).min(MARKS_BYTES as u64) as usize;
            if !device.known_zero(at, n as u64) {
                device.write_at(at, &zeros[..n])?;
            }
        }
    }
    let seed = u64::from_le_bytes(volume.uuid[..8].try_into().expect("8 of 16 bytes"));
    drive(std::slice::from_ref(file), seed, move |env| {
        let disk = env.port().disk(DiskId(0), bytes);
        Box::pin(async move {
            let speed = lfs::measure(&env, &disk).await?;
            let store = lfs::FormatOptions { disk: speed, ..store };
            volume::make_on_segments(env, disk, &store, &volume).await
        })
    })
}

fn random() -> Result<[u8; 16], Failure> {
    entropy().map_err(|e| Failure::Failed(format!("no random bytes: {e}")))
}

pub fn new_uuid() -> Result<[u8; 16], Failure> {
    let mut uuid = random()?;
    (uuid[6], uuid[8]) = (uuid[6] & 0x0f | 0x40, uuid[8] & 0x3f | 0x80);
    Ok(uuid)
}

/// A journal on a device has blocks of the volume's size, of which there are three.
const BLOCK_SIZES: [u64; 3] = [1024, 2048, 4096];

/// Makes the journal of the volume `user` on a device of its own; its UUID.
fn make_journal(
    path: &Path,
    a: &MkfsArgs,
    (volume_bytes, user): (u64, &[u8; 16]),
    new: &mut NewFiles,
) -> Result<[u8; 16], Failure> {
    let shown = path.display();
    if !BLOCK_SIZES.contains(&a.block_size) {
        let (image, bytes) = (a.image.display(), a.block_size);
        let why = format!("{image}: a block size of {bytes}: choose 1024, 2048 or 4096");
        return Err(Failure::Failed(why));
    }
    let made = !path.exists();
    let file = if made {
        let blocks = default_journal_blocks(volume_bytes / a.block_size).max(BLOCKS_MIN.into());
        new.create(path, a.journal_size.unwrap_or(blocks * a.block_size))?
    } else {
        HostFile::open_log(path, false)?
    };
    let mut device = FileDevice(Arc::new(file));
    let bytes = device.size_bytes().min(a.journal_size.unwrap_or(u64::MAX));
    let blocks = bytes / a.block_size;
    if blocks < BLOCKS_MIN.into() {
        return Err(Failure::Failed(format!(
            "{shown}: a journal has at least {BLOCKS_MIN} blocks"
        )));
    }
    if !made && !a.force && holds_something(&device).map_err(|e| format!("{shown}: {e}"))? {
        let why = "there is something on it already; --force makes a journal over it";
        return Err(Failure::Failed(format!("{shown}: {why}")));
    }
    let journal = JournalDevice {
        block_bytes: a.block_size as usize,
        blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
        uuid: new_uuid()?,
    };
    let how = (made, now().wall.secs() as u32);
    let done = volume::make_journal(&mut device, &journal, user, how);
    done.map_err(|e| Failure::Failed(format!("{shown}: {e}")))?;
    Ok(journal.uuid)
}

/// How much is looked at, at each end of a device: at its start all known file systems, swap, LUKS,
/// LVM and partition tables have a mark (those of Btrfs and ZFS lie deepest), at its end RAID, ZFS
/// and GPT.
const MARKS_BYTES: usize = 1 << 20;

/// Is there anything at either end? What is damaged, or of a kind nobody here knows, counts too.
fn holds_something(device: &FileDevice) -> Result<bool, IoError> {
    let size = device.size_bytes();
    let mut bytes = vec![0; size.min(MARKS_BYTES as u64) as usize];
    for at in [0, size - bytes.len() as u64] {
        device.read_at(at, &mut bytes)?;
        if bytes.iter().any(|b| *b != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What would be destroyed; None: nothing is there.
pub fn what_is_there(device: &FileDevice, path: &Path) -> Result<Option<String>, Failure> {
    let failed = |e: IoError| Failure::Failed(format!("{}: {e}", path.display()));
    let mut start = [0; lfs::MAGIC.len()];
    if device.size_bytes() >= start.len() as u64 {
        device.read_at(0, &mut start).map_err(failed)?;
    }
    Ok(if volume::probe(device).is_ok() || start == lfs::MAGIC {
        Some("a volume".to_owned())
    } else if holds_something(device).map_err(failed)? {
        Some(volume::foreign(device).map_or_else(|| "something".to_owned(), |f| f.name))
    } else {
        None
    })
}

fn existing(path: &Path, size: Option<u64>, force: bool) -> Result<Arc<HostFile>, Failure> {
    let shown = path.display();
    let file = Arc::new(crate::disk::open(path, false)?);
    let device = FileDevice(file.clone());
    if let Some(there) = what_is_there(&device, path)?.filter(|_| !force) {
        let why = format!("there is {there} already, which --force would destroy");
        return Err(Failure::Failed(format!("{shown}: {why}")));
    }
    let is_file = path.is_file();
    if is_file && size.is_none() && file.size_bytes() == 0 {
        return Err(Failure::Usage(format!("{shown}: it is empty: --size is needed")));
    }
    if let Some(size) = size.filter(|s| is_file && *s > file.size_bytes()) {
        let grown =
            std::fs::OpenOptions::new().write(true).open(path).and_then(|f| f.set_len(size));
        grown.map_err(|e| format!("{shown}: {e}"))?;
        drop((file, device));
        return Ok(Arc::new(crate::disk::open(path, false)?));
    }
    Ok(file)
}

/// Who runs this: the owner of the root directory.
fn me() -> (u32, u32) {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").map_or((0, 0), |m| (m.uid(), m.gid()))
}

//! `cairn mkfs`: makes a volume in a new image, an existing one, or a device.

use crate::args::{MkfsArgs, Profile};
use crate::device::FileDevice;
use crate::{Failure, Outcome, size};
use format::mkfs::MkfsOptions;
use host::{HostFile, entropy, now};
use std::path::Path;
use std::sync::Arc;

/// The command.
pub fn run(a: &MkfsArgs) -> Result<Outcome, Failure> {
    if a.log.is_some() {
        return Err(Failure::Usage("--log: external journals are not in this version".into()));
    }
    let blocks = make(a)?;
    println!(
        "{}: {} volume, {} blocks of {}, {}",
        a.image.display(),
        if a.profile == Profile::Ext2 { "ext2" } else { "ext3" },
        blocks,
        a.block_size,
        size::show(blocks * a.block_size)
    );
    Ok(Outcome::Done)
}

/// Makes the volume; how many blocks it has.
pub fn make(a: &MkfsArgs) -> Result<u64, Failure> {
    let profile = match a.profile {
        Profile::Ext2 => format::mkfs::Profile::Ext2,
        Profile::Ext3 => format::mkfs::Profile::Ext3,
        Profile::Ext4 | Profile::Lfs => {
            return Err(Failure::Usage("that profile is not in this version: ext2, ext3".into()));
        }
    };
    let shown = a.image.display();
    let exists = a.image.exists();
    let (file, made) = if exists {
        (existing(&a.image, a)?, false)
    } else {
        let size = a.size.ok_or_else(|| Failure::Usage(format!("{shown}: --size is needed")))?;
        (HostFile::create(&a.image, size)?, true)
    };
    let size_bytes = a.size.unwrap_or(file.size_bytes());
    if size_bytes > file.size_bytes() {
        let have = size::show(file.size_bytes());
        return Err(Failure::Failed(format!("{shown}: has only {have}")));
    }
    let random = || entropy().map_err(|e| Failure::Failed(format!("/dev/urandom: {e}")));
    let mut uuid = random()?;
    (uuid[6], uuid[8]) = (uuid[6] & 0x0f | 0x40, uuid[8] & 0x3f | 0x80);
    let options = MkfsOptions {
        size_bytes,
        block_bytes: a.block_size as usize,
        inode_bytes: a.inode_size,
        inodes: a.inodes,
        profile,
        journal_bytes: a.journal_size,
        label: a.label.clone(),
        uuid,
        hash_seed: random()?,
        owner: me(),
        now_secs: now().wall.secs() as u32,
    };
    let mut device = FileDevice(Arc::new(file));
    volume::make(&mut device, &options, made).map_err(|e| {
        if made {
            let _ = std::fs::remove_file(&a.image);
        }
        Failure::Failed(format!("{shown}: {e}"))
    })
}

fn existing(path: &Path, a: &MkfsArgs) -> Result<HostFile, Failure> {
    let shown = path.display();
    let mut file = HostFile::open(path, false)?;
    if !a.force && volume::probe(&FileDevice(Arc::new(HostFile::open(path, true)?))).is_ok() {
        let why = format!("{shown}: there is a volume already; --force makes a new one over it");
        return Err(Failure::Failed(why));
    }
    let is_file = path.is_file();
    if let Some(size) = a.size.filter(|s| is_file && *s > file.size_bytes()) {
        let grown =
            std::fs::OpenOptions::new().write(true).open(path).and_then(|f| f.set_len(size));
        grown.map_err(|e| format!("{shown}: {e}"))?;
        drop(file);
        file = HostFile::open(path, false)?;
    }
    Ok(file)
}

/// Who runs this: the owner of the root directory.
fn me() -> (u32, u32) {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").map_or((0, 0), |m| (m.uid(), m.gid()))
}

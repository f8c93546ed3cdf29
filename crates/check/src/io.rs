//! How the checker reads a volume and how a repair is written: two small traits the caller
//! implements, over a file, a device or a simulated disk. It knows bytes and places, nothing of
//! what they mean.

use std::fmt;

/// The device said no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoError {
    /// What failed, as the device put it.
    pub what: String,
    /// Byte of the volume at which it failed.
    pub at: u64,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {} of the volume)", self.what, self.at)
    }
}
impl std::error::Error for IoError {}

/// A volume that can be read.
pub trait ReadBlocks {
    /// The volume's size in bytes.
    fn size_bytes(&self) -> u64;
    /// Fills `into` from byte `at` on; the range lies inside the volume. The checker asks for whole
    /// blocks, in runs of up to a megabyte.
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError>;
    /// Is it known, without reading, that these bytes are all zero (a hole of a sparse file)?
    /// `false` is always right; `true` saves reading the inode tables of a large, mostly empty
    /// volume.
    fn known_zero(&self, at: u64, len: u64) -> bool {
        let _ = (at, len);
        false
    }
}

/// A volume that can be written.
pub trait WriteBlocks {
    /// Writes whole blocks from byte `at` on.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), IoError>;
    /// Returns once all that was written is durable.
    fn flush(&mut self) -> Result<(), IoError>;
    /// Reads what is there, whole blocks from byte `at` on: a repair copies blocks of files without
    /// keeping them in memory.
    fn read_back(&self, at: u64, into: &mut [u8]) -> Result<(), IoError>;
}

/// An image in memory.
impl ReadBlocks for Vec<u8> {
    fn size_bytes(&self) -> u64 {
        self.len() as u64
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        match start.checked_add(into.len()).and_then(|end| self.get(start..end)) {
            Some(bytes) => into.copy_from_slice(bytes),
            None => return Err(IoError { what: "read beyond the end of the image".into(), at }),
        }
        Ok(())
    }
}

impl WriteBlocks for Vec<u8> {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        match start.checked_add(bytes.len()).and_then(|end| self.get_mut(start..end)) {
            Some(place) => place.copy_from_slice(bytes),
            None => return Err(IoError { what: "write beyond the end of the image".into(), at }),
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
    fn read_back(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.read_at(at, into)
    }
}

/// Hands that look at several groups at once: threads, which a checker has none of.
pub trait Hands: Sync {
    /// How many there are.
    fn count(&self) -> usize;
    /// Does each of so many jobs once, and returns when all are done.
    fn each(&self, jobs: usize, job: &(dyn Fn(usize) + Sync));
    /// Slots of inodes that one of them looks at in one go.
    fn slots(&self) -> u32 {
        8192
    }
}

/// How far the check has come, for a progress bar.
pub trait Progress {
    /// `done` of `total` units of the phase named are through.
    fn step(&mut self, phase: &'static str, done: u64, total: u64);
}

/// Shows nothing.
impl Progress for () {
    fn step(&mut self, _: &'static str, _: u64, _: u64) {}
}

//! An image file as recovery, repair and mkfs use it. It knows no volume.

use check::{IoError, ReadBlocks, WriteBlocks};
use host::HostFile;
use std::sync::Arc;

/// A shared image.
pub struct FileDevice(pub Arc<HostFile>);

fn io(e: &std::io::Error, at: u64) -> IoError {
    IoError { what: e.to_string(), at }
}

impl ReadBlocks for FileDevice {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.0.read_at(at, into).map_err(|e| io(&e, at))
    }
    fn known_zero(&self, at: u64, len: u64) -> bool {
        self.0.is_hole(at, len)
    }
}

impl WriteBlocks for FileDevice {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.0.write_at(at, bytes).map_err(|e| io(&e, at))
    }
    fn flush(&mut self) -> Result<(), IoError> {
        self.0.flush().map_err(|e| io(&e, 0))
    }
    fn read_back(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.read_at(at, into)
    }
}

//! Memory for one block: reference-counted, aligned for direct I/O, copied when it is changed while
//! shared.
//! An image on its way to the disk is therefore a clone of the cache's block, and stays what it was
//! when the cache's copy changes (rule R2 of the device model: write from an immutable copy). It
//! knows no disk.

use std::fmt;
use std::sync::{Arc, LazyLock};

/// The unit in which a disk can tear a write, and the alignment of every block in memory.
pub const SECTOR_BYTES: usize = 512;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(512))]
struct Sector([u8; SECTOR_BYTES]);

/// A block's bytes. Cloning shares them; `bytes_mut` copies them first if they are shared.
#[derive(Clone)]
pub struct Block(Arc<Box<[Sector]>>);

impl Block {
    /// `len` zero bytes; `len` is a multiple of [`SECTOR_BYTES`].
    pub fn zeroed(len: usize) -> Block {
        assert!(len.is_multiple_of(SECTOR_BYTES), "a block is whole sectors, not {len} bytes");
        Block(Arc::new(vec![Sector([0; SECTOR_BYTES]); len / SECTOR_BYTES].into_boxed_slice()))
    }

    /// No bytes, and no memory of its own: what stands where contents have not come yet.
    pub fn empty() -> Block {
        static EMPTY: LazyLock<Block> = LazyLock::new(|| Block::zeroed(0));
        EMPTY.clone()
    }

    /// A copy of `bytes`, whose length is a multiple of [`SECTOR_BYTES`].
    pub fn copy_of(bytes: &[u8]) -> Block {
        let mut b = Block::zeroed(bytes.len());
        b.bytes_mut().copy_from_slice(bytes);
        b
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.len() * SECTOR_BYTES
    }

    /// Is it [`Block::empty`]?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    /// Its bytes, to change. If somebody else holds them (a write in flight, a reply), they keep
    /// the old ones.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let sectors: &mut Box<[Sector]> = Arc::make_mut(&mut self.0);
        bytemuck::cast_slice_mut(sectors)
    }

    /// Are they in the same memory?
    pub fn is_same(&self, other: &Block) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Does anybody else hold these bytes?
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_the_old_bytes() {
        let mut live = Block::zeroed(1024);
        let image = live.clone();
        live.bytes_mut()[1000] = 7;
        assert_eq!(image.bytes()[1000], 0);
        assert_eq!(live.bytes()[1000], 7);
        assert!(!live.is_shared() && !live.is_same(&image) && image.is_same(&image.clone()));
    }

    #[test]
    fn memory_is_aligned_for_direct_io() {
        for len in [512, 1024, 4096, 65536] {
            assert_eq!(Block::zeroed(len).bytes().as_ptr().addr() % SECTOR_BYTES, 0);
        }
    }
}

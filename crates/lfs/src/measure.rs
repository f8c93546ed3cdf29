//! What a disk takes for an access and for bytes, measured by writing zeros where nothing is: the
//! size of segments follows from it, and what policies weigh one way against another by. It knows
//! neither.
//!
//! Rule        Each write is durable before the next, so that no cache answers in the disk's place;
//!             of several, the median counts. What was written is discarded again.
//! Cost        Some two dozen accesses and a few MiB.

use crate::geometry::{BLOCK, BLOCK_BYTES};
use env::{Block, Disk, DiskError, Durability, Env};
use std::rc::Rc;

/// What a request takes: an access, and its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Speed {
    /// Nanoseconds of a mean access.
    pub access: u64,
    /// Bytes a second.
    pub bandwidth: u64,
}

/// Writes of a block, and of many in one piece.
const ACCESSES: u64 = 15;
const PIECES: u64 = 3;
/// Bytes of such a piece, and of a block of it.
const PIECE: u64 = 4 << 20;
const PART: u64 = 256 << 10;

impl Speed {
    /// A disk of which nothing is known.
    pub const USUAL: Speed = Speed { access: 12_000_000, bandwidth: 150_000_000 };

    /// Four times what it could write while it moves its arm: with smaller segments the accesses
    /// weigh too much, with larger ones cleaning does (matthews-1997, section 4.1).
    pub fn segment_bytes(&self) -> u64 {
        (self.access as f64 * self.bandwidth as f64 * 4e-9) as u64
    }
}

fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all[all.len() / 2].max(1)
}

async fn timed(env: &Env, disk: &Rc<dyn Disk>, at: u64, bytes: u64) -> Result<u64, DiskError> {
    let blocks = match bytes {
        BLOCK => vec![Block::zeroed(BLOCK_BYTES)],
        _ => (0..bytes / PART).map(|_| Block::zeroed(PART as usize)).collect(),
    };
    let begun = env.now();
    disk.write(at, blocks, Durability::Fua).await?;
    Ok(env.now().since(begun).0)
}

/// Measures a disk that holds nothing yet. None: it is too small to say. Errors: the disk's.
pub async fn measure(env: &Env, disk: &Rc<dyn Disk>) -> Result<Option<Speed>, DiskError> {
    let room = disk.size_bytes() / 2 / PIECE;
    if room < PIECES + 1 {
        return Ok(None);
    }
    let (mut accesses, mut pieces) = (Vec::new(), Vec::new());
    let span = disk.size_bytes() / BLOCK / (ACCESSES + 1);
    for n in 1..=ACCESSES {
        // Every seventh of fifteen: here and there.
        let at = n * 7 % (ACCESSES + 1) * span * BLOCK;
        accesses.push(timed(env, disk, at, BLOCK).await?);
        disk.discard(at, BLOCK).await?;
    }
    for n in 0..PIECES {
        let at = (room + n) * PIECE;
        pieces.push(timed(env, disk, at, PIECE).await?);
        disk.discard(at, PIECE).await?;
    }
    let (access, piece) = (median(accesses), median(pieces));
    let moved = piece.saturating_sub(access).max(piece / 8).max(1);
    Ok(Some(Speed { access, bandwidth: (PIECE as f64 * 1e9 / moved as f64) as u64 }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use sim::timing::by_name;
    use sim::{Image, World, block_on};

    fn measured(model: &str) -> Speed {
        const DISK: u64 = 1 << 30;
        let mut world = World::new(Image::new(DISK));
        world.set_timings(vec![by_name(model, DISK).unwrap()]);
        world.forget();
        block_on(&mut world, async |env, disk| measure(&env, &disk).await.unwrap().unwrap())
    }

    #[test]
    fn the_models_are_measured_as_they_are() {
        for (model, access_ms, mb) in
            [("rz26", 9.0..24.0, 1.8..2.7), ("sata7200", 4.0..16.0, 80.0..220.0)]
        {
            let s = measured(model);
            let (access, bandwidth) = (s.access as f64 / 1e6, s.bandwidth as f64 / 1e6);
            assert!(access_ms.contains(&access), "{model}: {access} ms");
            assert!(mb.contains(&bandwidth), "{model}: {bandwidth} MB/s");
        }
        assert!(measured("nvme").access < 500_000);
    }

    #[test]
    fn segments_are_as_the_disk_asks() {
        let paper = Speed { access: 15_000_000, bandwidth: 5_000_000 };
        assert_eq!(paper.segment_bytes(), 300_000);
        let shape = |bytes, access_ms: u64, mb: u64| {
            let speed = Speed { access: access_ms * 1_000_000, bandwidth: mb * 1_000_000 };
            let options = crate::FormatOptions { disk: Some(speed), ..Default::default() };
            u64::from(crate::shape(bytes, &options).unwrap().segment_blocks) * BLOCK
        };
        assert_eq!(shape(1 << 40, 12, 150), 8 << 20);
        assert_eq!(shape(1 << 40, 1, 100), 1 << 20, "no smaller than the table wants");
        assert_eq!(shape(1 << 30, 12, 150), 1 << 20, "a small disk has segments enough");
        assert_eq!(shape(1 << 40, 100, 1000), 16 << 20);
    }
}

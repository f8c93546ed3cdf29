//! How long a disk takes: a trait, and the models of it. A model sees places and lengths, never
//! bytes, and decides when each access ends; the order of the ends is the order of these times.

mod buffer;
pub mod drives;
mod geometry;
mod head;
mod network;
mod simple;
mod write_back;

pub use buffer::Buffering;
pub use geometry::{Geometry, Overheads, SeekCurve, Zone};
pub use head::HeadDisk;
pub use network::Network;
pub use simple::{Constant, Jitter, SolidState};
pub use write_back::{CacheSize, NoBarriers, WriteBack};

use env::Nanos;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bytes come in.
    Read,
    /// Bytes go out; `fua`: onto the medium before it ends.
    Write {
        /// Through the cache?
        fua: bool,
    },
    /// The cache is emptied.
    Flush,
}

/// One access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// What.
    pub kind: Kind,
    /// First byte.
    pub at: u64,
    /// How many bytes.
    pub len: u64,
}

/// A disk's clockwork.
pub trait Timing {
    /// When the access issued at `now` ends: later than `now`, or at once.
    fn ends_at(&mut self, now: Nanos, access: Access) -> Nanos;
}

/// Bytes of a sector, the unit in which a disk is addressed.
const SECTOR_BYTES: u64 = 512;

/// The write cache of the drives that have one; how many segments it is divided into is an
/// assumption.
const CACHE: CacheSize = CacheSize { bytes: 16 << 20, segments: 32 };

/// The names of [`by_name`].
pub const MODELS: &[&str] = &[
    "instant",
    "cheetah9lp",
    "rz26",
    "hp97560",
    "m2694",
    "cheetah15k",
    "cheetah15k-uncached",
    "cheetah15k-nobarrier",
    "sata7200",
    "nvme",
    "gp3",
];

/// The model of this name for a disk of `size_bytes`. The old drives write through; those of 15,000
/// and 7,200 turns have a write cache that flushes empty, unless the name says otherwise.
pub fn by_name(name: &str, size_bytes: u64) -> Option<Box<dyn Timing>> {
    let head = |g| HeadDisk::new(g, size_bytes);
    let cached = |g| WriteBack::new(head(g), CACHE);
    Some(match name {
        "instant" => Box::new(Constant::INSTANT),
        "cheetah9lp" => Box::new(head(drives::cheetah_9lp())),
        "rz26" => Box::new(head(drives::rz26())),
        "hp97560" => Box::new(head(drives::hp97560())),
        "m2694" => Box::new(head(drives::m2694())),
        "cheetah15k" => Box::new(cached(drives::cheetah_15k())),
        "cheetah15k-uncached" => Box::new(head(drives::cheetah_15k())),
        "cheetah15k-nobarrier" => Box::new(NoBarriers(cached(drives::cheetah_15k()))),
        "sata7200" => Box::new(cached(drives::sata_7200())),
        "nvme" => Box::new(SolidState::nvme()),
        "gp3" => Box::new(Network::gp3()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_its_name() {
        for name in MODELS {
            let mut model = by_name(name, 1 << 30).unwrap();
            let a = Access { kind: Kind::Read, at: 4096, len: 4096 };
            assert!(model.ends_at(Nanos(0), a) >= Nanos(0), "{name}");
        }
        assert!(by_name("drum", 1).is_none());
    }
}

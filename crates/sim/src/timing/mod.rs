//! How long a disk takes: a trait, and the models of it. A model sees places and lengths, never
//! bytes, and decides when each access ends; the order of the ends is the order of these times.

mod head;
mod network;
mod simple;
mod write_back;

pub use head::{Geometry, HeadDisk, SeekCurve, Zone};
pub use network::Network;
pub use simple::{Constant, Jitter};
pub use write_back::WriteBack;

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

/// The names of [`by_name`].
pub const MODELS: &[&str] =
    &["instant", "cheetah9lp", "rz26", "cheetah15k", "sata7200", "nvme", "gp3"];

/// The model of this name for a disk of `size_bytes`.
pub fn by_name(name: &str, size_bytes: u64) -> Option<Box<dyn Timing>> {
    Some(match name {
        "instant" => Box::new(Constant::INSTANT),
        "cheetah9lp" => Box::new(WriteBack::new(HeadDisk::cheetah_9lp(size_bytes))),
        "rz26" => Box::new(HeadDisk::rz26(size_bytes)),
        "cheetah15k" => Box::new(WriteBack::new(HeadDisk::cheetah_15k(size_bytes))),
        "sata7200" => Box::new(WriteBack::new(HeadDisk::sata_7200(size_bytes))),
        "nvme" => Box::new(Constant::NVME),
        "gp3" => Box::new(Network::gp3()),
        _ => return None,
    })
}

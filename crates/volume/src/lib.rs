//! Opens volumes: the only place that does. And makes, recovers and repairs them.
//!
//! Opening goes in steps, the same for every store below and every layout on it: `open` looks at
//! the disks (`store`, `layout`), has the layout decide what an unclean end makes necessary
//! (`decision`), has it done, and loads the volume. All of it goes through the disks of the engine
//! that the volume is opened in, so that each step can be cut off in the simulator. The layout of
//! the family of ext2 is here too: `probe` says what is there, `recover` finishes what was left, in
//! the mode that was in force, `load` builds cache, mechanism, layout and operations; `closing`
//! takes them down again.
//!
//! Invariants  V1 what is done before a volume is loaded was decided before, and who only reads has
//!             nothing done.
//!             V2 recovery writes inside of the volume, and what it has finished needs no more.
//!             V3 the boot area says that somebody uses the volume before anything else is written,
//!             and that nobody does behind all else; what it is told can be read again.
//!             V4 mkfs writes inside of the volume that it makes.
//!             V5 a volume with another name keeps what its checksums begin with.
//!             V6 one pass of the checker beside service is under way.
//!             V7 a volume that stands still has nothing to be written.

mod asks;
mod decision;
mod discard;
mod following;
mod freeze;
mod groups;
mod intents;
mod journal;
mod layout;
mod load;
mod log;
mod make;
mod mmp;
mod needs;
mod objects;
mod open;
mod opened;
mod options;
mod overlay;
mod place;
mod probe;
mod promise;
mod recover;
mod rename;
mod resize;
mod score;
mod scrub;
mod segments;
mod snapshots;
mod state;
mod store;
mod trimmer;

/// Bugs of the layout that can be planted on volumes of ext4, in every mode that writes them.
pub use ext::PLANTS as LAYOUT_PLANTS;
pub use ext::PLANTS_ANYWHERE as LAYOUT_PLANTS_ANYWHERE;
pub use ext::PLANTS_EVERYWHERE as LAYOUT_PLANTS_EVERYWHERE;
pub use ext::PLANTS_IN_PLACE as LAYOUT_PLANTS_IN_PLACE;
pub use ext::PLANTS_OF_CONTENTS as LAYOUT_PLANTS_OF_CONTENTS;
pub use ext::PLANTS_UNORDERED as LAYOUT_PLANTS_UNORDERED;

pub use bucket::TakeOver;
/// Bugs of the checker beside service, in modes that have it run after a crash.
pub use check::live::PLANTS as CHECKER_PLANTS;
pub use decision::{Decision, Recovered, Watch};
pub use discard::discard_log;
/// Bugs of following a volume in a bucket that can be planted.
pub use following::PLANTS as FOLLOWER_PLANTS;
pub use journal::Journal;
pub use layout::{FoundLayout, LayoutKind};
pub use log::LogReport;
pub use make::{make, make_journal};
pub use mechanisms::{
    AfterCrash, Commit, Contents, IN_SEGMENTS, INTENT_PLANTS, Keeps, MODES, Mode, ModeInfo,
    ModeOption,
};
/// Bugs of keeping a second machine off that can be planted.
pub use mmp::PLANTS as MMP_PLANTS;
pub use mmp::{Claim, Hold, User, hold, release};
pub use objects::{BucketOptions, make_in_bucket, open_bucket};
pub use open::{Found, WRITER_PLANTS, decide, free, log_report, look};
pub use open::{open_on, opener, openers, recover, recover_copy};
pub use options::OpenOptions;
pub use place::{Ground, Place, Reader};
pub use probe::{Probe, foreign, probe};
pub use recover::{restore_journal, restore_primary};
pub use rename::{LABEL_BYTES_MAX, set_label, set_uuid};
pub use resize::{Growth, Resize, resize};
pub use score::{Layout, layout, layout_of};
pub use segments::{copy_out, export_blocks, is_store, make_on_segments};
pub use store::{FoundStore, Store, StoreKind};

use check::{CheckError, IoError, ReadBlocks, WriteBlocks};
use std::fmt;

/// A device as mkfs and repair by hand use it: blocking reads and writes.
pub trait Device: ReadBlocks + WriteBlocks {
    /// As a reader.
    fn reader(&self) -> &dyn ReadBlocks;
    /// As a writer.
    fn writer(&mut self) -> &mut dyn WriteBlocks;
}

impl<T: ReadBlocks + WriteBlocks> Device for T {
    fn reader(&self) -> &dyn ReadBlocks {
        self
    }
    fn writer(&mut self) -> &mut dyn WriteBlocks {
        self
    }
}

/// Why a volume cannot be opened, made or recovered: a sentence for the user, with what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeError(pub String);

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for VolumeError {}

impl From<env::DiskError> for VolumeError {
    fn from(e: env::DiskError) -> VolumeError {
        VolumeError(e.to_string())
    }
}
impl From<IoError> for VolumeError {
    fn from(e: IoError) -> VolumeError {
        VolumeError(e.to_string())
    }
}
impl From<CheckError> for VolumeError {
    fn from(e: CheckError) -> VolumeError {
        VolumeError(e.to_string())
    }
}

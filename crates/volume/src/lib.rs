//! Opens volumes: the only place that does. And makes, recovers and repairs them.
//!
//! Opening goes in steps, each in its file: `probe` looks at the device and says what is there;
//! `recover` finishes what an unclean end left, in the mode that was in force; `open` builds cache,
//! mechanism, layout and operations inside a volume's engine; `closing` takes it down again.
//! Probing and recovery work on the device directly, before anybody is inside; what they write goes
//! by blocks and knows no mechanism.

mod closing;
mod discard;
mod journal;
mod log;
mod make;
mod open;
mod probe;
mod promise;
mod recover;
mod score;
mod state;

pub use discard::discard_log;
pub use journal::Journal;
pub use log::{LogReport, log_report};
pub use make::{make, make_journal};
pub use mechanisms::{Commit, MODES, Mode, ModeInfo, Replayed};
pub use open::{OpenOptions, ReplayWatch, opener, openers};
pub use probe::{Probe, look_through, probe};
pub use recover::{Recovered, recover, restore_primary};
pub use score::layout_score;

use check::{CheckError, IoError, ReadBlocks, WriteBlocks};
use std::fmt;

/// A device as recovery and repair use it: blocking reads and writes.
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

//! Why a mechanism cannot go on. A device's error is sticky: what follows it fails too.

use env::DiskError;
use std::fmt;

/// A mechanism's failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IntegrityError {
    /// The device failed, now or earlier.
    Disk(DiskError),
    /// The operation needs more log space than the log has.
    LogTooSmall {
        /// Blocks the operation may need.
        needed: u64,
        /// Blocks the log can give one operation.
        available: u64,
    },
    /// Writes of so many bytes are to be logged, and not one of them has room in the log.
    ThresholdTooLarge {
        /// In bytes.
        wanted: u64,
        /// The most that there is room for, in bytes.
        most: u64,
    },
    /// The log is full of what somebody else has left in it, who is not here to take it out.
    LogHeld {
        /// Who that is.
        by: String,
    },
    /// The log holds something that cannot be used.
    Format(format::FormatError),
}

impl From<DiskError> for IntegrityError {
    fn from(e: DiskError) -> IntegrityError {
        IntegrityError::Disk(e)
    }
}
impl From<format::FormatError> for IntegrityError {
    fn from(e: format::FormatError) -> IntegrityError {
        IntegrityError::Format(e)
    }
}
impl fmt::Display for IntegrityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntegrityError::Disk(e) => write!(f, "{e}"),
            IntegrityError::LogTooSmall { needed, available } => write!(
                f,
                "the log is too small: an operation needs {needed} blocks, it has {available}"
            ),
            IntegrityError::ThresholdTooLarge { wanted, most } => write!(
                f,
                "a log of this length takes writes of up to {most} bytes; the threshold is \
                 {wanted}: lower it to that, or make the log longer"
            ),
            IntegrityError::LogHeld { by } => {
                write!(f, "the log is full of entries of {by}, which is not open here")
            }
            IntegrityError::Format(e) => write!(f, "{e}"),
        }
    }
}
impl std::error::Error for IntegrityError {}

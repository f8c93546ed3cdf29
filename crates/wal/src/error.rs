//! Why a log cannot do what it was asked. A device's error is sticky: what follows it fails too; a
//! full log is a state that ends when somebody trims.

use crate::Lsn;
use env::DiskError;
use std::fmt;

/// A log's failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogError {
    /// The device failed, now or earlier.
    Disk(DiskError),
    /// There is no log there, or one of another kind.
    NotALog {
        /// What was found instead.
        why: String,
    },
    /// What must be there is not.
    Damaged {
        /// What is wrong.
        what: String,
        /// Where in the log.
        at: Lsn,
    },
    /// The entries that are still needed fill the log; it has room again after a trim.
    Full,
    /// The same, and what is in the way belongs to a client that nobody has opened here.
    Held {
        /// Its label, or its id where it has none.
        by: String,
    },
    /// The entry is longer than this log takes.
    TooLarge {
        /// Its length in bytes.
        len: u64,
        /// The most it takes.
        max: u64,
    },
    /// No entry begins at this LSN, or it has been trimmed.
    NoEntry(Lsn),
    /// The table of clients is full.
    TooManyClients,
    /// The log was opened for reading only.
    ReadOnly,
}

impl From<DiskError> for LogError {
    fn from(e: DiskError) -> LogError {
        LogError::Disk(e)
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Disk(e) => write!(f, "log: {e}"),
            LogError::NotALog { why } => write!(f, "not a log: {why}"),
            LogError::Damaged { what, at } => write!(f, "the log is damaged at LSN {at}: {what}"),
            LogError::Full => f.write_str("the log is full of entries that are still needed"),
            LogError::Held { by } => {
                write!(f, "the log is full of entries of {by}, which is not open here")
            }
            LogError::TooLarge { len, max } => {
                write!(f, "an entry of {len} bytes is too long: this log takes {max}")
            }
            LogError::NoEntry(lsn) => write!(f, "no entry begins at LSN {lsn}"),
            LogError::TooManyClients => f.write_str("the log's table of clients is full"),
            LogError::ReadOnly => f.write_str("the log was opened for reading only"),
        }
    }
}
impl std::error::Error for LogError {}

//! The disk says no: what a decoder reports. A bug is an assertion and a user's mistake is
//! `vfs::FsError`; neither is an error of this kind.

use std::fmt;

/// Why bytes of a volume cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// Something that must hold does not: what, and where (block, inode, byte).
    Corrupt {
        /// What is wrong, as a sentence fragment: "group 3's inode bitmap lies outside the volume".
        what: String,
        /// Where it was found: "block 17, byte 24".
        at: String,
    },
    /// A feature this version does not have, by name, and what the user can do.
    Incompatible {
        /// The feature's name, as `dumpe2fs` prints it.
        feature: String,
        /// What to do about it.
        advice: String,
    },
}

impl FormatError {
    /// Shorthand for `Corrupt`.
    pub fn corrupt(what: impl Into<String>, at: impl Into<String>) -> FormatError {
        FormatError::Corrupt { what: what.into(), at: at.into() }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Corrupt { what, at } => write!(f, "{what} ({at})"),
            FormatError::Incompatible { feature, advice } => {
                write!(f, "feature {feature} is not in this version: {advice}")
            }
        }
    }
}
impl std::error::Error for FormatError {}

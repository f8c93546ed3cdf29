//! Bugs of the layout that the crash explorer can plant, as a mechanism has some of its own. They
//! are about extents and checksums, so that only volumes of ext4 show them.

/// Their names.
pub const PLANTS: &[&str] = &[NOT_RENEWED, REUSED_EARLY, SPLIT_IN_TWO, MARKED_EARLY];

/// Where an operation goes on in another transaction, the checksums of what it has changed so far
/// stay as they were.
pub(crate) const NOT_RENEWED: &str = "checksum-not-renewed";
/// The mechanism is not told that a node of an extent tree was freed, so that it is reused before
/// that is durable, and a replay may put the old node over what is there then.
pub(crate) const REUSED_EARLY: &str = "extent-node-reused-early";
/// A node of an extent tree is split in one transaction, and its other half found in the next.
pub(crate) const SPLIT_IN_TWO: &str = "index-split-in-two";
/// An unwritten extent is written in one transaction, and its contents are the next one's.
pub(crate) const MARKED_EARLY: &str = "unwritten-marked-early";

//! The lab: volumes in the virtual world, cut off at every moment, recovered, and judged by a model
//! of what was promised. It knows the volume only through its requests.

mod acts;
mod again;
mod bad;
mod beside;
mod contents;
pub mod crash;
mod damaged;
#[cfg(test)]
mod damaged_indexes;
pub mod elsewhere;
pub mod experiments;
#[cfg(test)]
mod flushes;
#[cfg(test)]
mod healthy;
mod holes;
#[cfg(test)]
mod indexed_dirs;
mod inodes;
mod intents;
#[cfg(test)]
mod journals;
mod judge;
mod kept;
mod kernel;
#[cfg(test)]
mod kernel_dirs;
mod later;
mod lifecycle;
pub mod machines;
mod marks;
mod model;
#[cfg(test)]
mod orphans;
#[cfg(test)]
mod parts;
mod perform;
mod postmark;
mod prefix;
mod promised;
mod random;
mod record;
mod reopen;
#[cfg(test)]
mod scattered;
mod scenario;
mod seen;
mod segments;
mod setting;
#[cfg(test)]
mod shared_disk;
mod shown;
mod soft;
mod subject;
mod times;
#[cfg(test)]
mod waits;

pub use acts::{Act, date_of, payload};
pub use contents::Contents;
pub use damaged::use_damaged;
pub use model::Model;
pub use scenario::{
    CLEANING, EXTENTS, FULL, GROUPS, INLINE, OF_STORES, SHIFTS, SPLITS, THIN, VALUES, scenarios,
};
pub use setting::WITH;
pub use shown::shown_in;
pub use subject::{Seen, Setting, SimDevice, Subject, VolumeKind, fresh, recover};

//! What is being asked: requests and replies as plain data, the errors a user can get, who may do
//! what, and the monitor through which a request enters a volume. It knows no blocks and no
//! layouts; `fuse` and `nfs` translate into it and `ufs` answers it.

pub mod access;
mod error;
mod monitor;
mod request;
mod types;

pub use error::FsError;
pub use monitor::{Front, Monitor, Open, OpenAll, Opening, Out, Ticket, Volume, VolumeState, Work};
pub use request::{
    AccessTimes, Answer, Call, Cred, DirEntry, MakeKind, PreAttr, RenameMode, Reply, Request,
    SeekKind, SetAttr, SetTime, Shift, SnapshotOp, SpaceOp, Stability, StatFs, VolumeInfo, Wcc,
    WriteUpTo, XattrMode,
};
pub use types::{Attr, Kind, S_IFMT, Time};

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// The largest read or write that one request carries, in bytes.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;

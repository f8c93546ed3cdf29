//! The seam where a mechanism of crash safety plugs in. The layout says *what* changed; a mechanism
//! decides *when* it may reach the disk. It knows no names and no paths, and of an inode only its
//! number.
//!
//! The trait was sketched against three customers before it was fixed:
//!
//! * Ordered writes (`sync`): each edit carries its old bytes, so that an image can be rendered
//!   without the edits whose turn has not come; `end` writes in phases.
//! * Soft updates: the same edits, with dependencies that live on after `end`. `before_write` rolls
//!   edits back, `flushed` retires them, `may_reuse` keeps freed blocks from being used, and
//!   `press` is the syncer's call.
//! * A redo log: `end` turns the transaction's byte ranges into one entry; `before_write` answers
//!   `NotYet` until the entry is durable; `durable` waits for the group.
//!
//! ```text
//!   begin ──► edit* ──► end ──(locks may be released)──► durable ──(the caller may be answered)
//! ```

mod before;
mod change;
mod error;
mod mechanism;
mod plant;
mod standstill;
mod txn;
mod undo;

pub use before::Before;
pub use change::{Change, InitKind, LeadsTo, PointerAt};
pub use error::IntegrityError;
pub use mechanism::{
    Credits, Ended, FileScope, Freed, Guarantees, Integrity, Mechanism, Pressure, Scope, TxnId,
};
pub use plant::Plant;
pub use standstill::{Hold, Inside, Standstill};
pub use txn::{Edit, TouchedBlocks, Txn};
pub use undo::{Grain, Undo};

//! Locks and signals between the tasks of one volume: local, first come first served, and so
//! repeatable.
//! They order tasks across awaits; between two awaits nothing needs a lock.

mod lock;
mod notify;
mod semaphore;

pub use lock::{Lock, LockGuard, SharedGuard};
pub use notify::Notify;
pub use semaphore::{Permit, Semaphore};

//! Disk requests that took long, in the log (`-v`) with when they began and ended by the machine's
//! monotonic clock, so that who measures an operation can tell what was the disk's part of it
//! (`cairn bench soak`). It knows no operation.

use crate::now;
use env::{IoOp, Nanos};

/// Requests that take this long are told of.
const LONG: Nanos = Nanos::from_millis(50);

/// Tells of a request that has ended now, if it took long.
pub(crate) fn tell(op: &IoOp, at: u64, begun: Nanos) {
    let ended = now().mono;
    if ended.since(begun) >= LONG {
        let took_ms = ended.since(begun).0 / 1_000_000;
        tracing::info!(
            "disk request of {took_ms} ms from {} to {}: {op:?} at byte {at}",
            begun.0,
            ended.0
        );
    }
}

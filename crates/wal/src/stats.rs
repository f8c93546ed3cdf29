//! What a log counts, for metrics: how many entries share a write, and what a byte of an entry
//! costs in bytes of log. It decides nothing.

/// Counters since the log was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogStats {
    /// Entries appended.
    pub entries: u64,
    /// Their bytes, without headers.
    pub entry_bytes: u64,
    /// Groups written; `entries / writes` is the batching efficiency.
    pub writes: u64,
    /// Bytes written in groups, headers and padding included.
    pub write_bytes: u64,
    /// How long writes of groups took, all together, in nanoseconds.
    pub write_nanos: u64,
    /// How many groups were in flight when one was issued, itself included, all together.
    pub in_flight_sum: u64,
    /// Superblocks written.
    pub superblocks: u64,
    /// How often somebody had to wait for space.
    pub waits_for_space: u64,
    /// Log writes that may be in flight now.
    pub window: u64,
    /// Bytes between the durable head and the tail.
    pub used_bytes: u64,
    /// Bytes that there may be between the two.
    pub capacity_bytes: u64,
}

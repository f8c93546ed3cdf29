//! Time as a number of nanoseconds. The core never reads a clock; a world hands it the time at each
//! turn.

/// Nanoseconds, either since an arbitrary start (monotonic) or since 1970 (wall clock); the field's
/// or the function's name says which.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Whole seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s * 1_000_000_000)
    }
    /// Milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }
    /// Microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us * 1000)
    }
    /// The whole seconds in it.
    pub const fn secs(self) -> u64 {
        self.0 / 1_000_000_000
    }
    /// The nanoseconds past the whole second.
    pub const fn subsec(self) -> u32 {
        (self.0 % 1_000_000_000) as u32
    }
    /// This much later.
    pub const fn plus(self, d: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(d.0))
    }
    /// How long since `earlier`, 0 if it is not earlier.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The two clocks at one moment.
#[derive(Clone, Copy, Default, Debug)]
pub struct Now {
    /// Never goes back; for timers and durations.
    pub mono: Nanos,
    /// Since 1970; for timestamps in inodes, and nothing else.
    pub wall: Nanos,
}

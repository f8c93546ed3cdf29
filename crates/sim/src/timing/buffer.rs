//! A disk's track buffer: segments of what was read, the newest of which grows while nothing else
//! is asked, as the disk reads ahead up to a fence. It knows sectors and times, no platters.
//!
//! Invariants:
//! * B1. No segment has a sector of a later write.
//! * B2. The newest segment grows as the disk reads on, and never shrinks from that end.

use std::collections::VecDeque;

/// How a drive buffers.
#[derive(Clone, Copy, Debug)]
pub struct Buffering {
    /// How many runs of sectors it holds.
    pub segments: usize,
    /// Sectors of each.
    pub sectors: u64,
    /// Sectors it reads on past the last that was asked for.
    pub ahead: u64,
}

/// A run of sectors, `from` to before `to`.
#[derive(Clone, Copy, Debug)]
struct Segment {
    from: u64,
    to: u64,
}

/// Reading ahead: it was at the end of the newest segment at `time_us`, and goes on to `limit`.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    time_us: f64,
    limit: u64,
}

/// What of a request is there.
pub(super) enum Found {
    /// All of it.
    Whole,
    /// The disk is reading there: it had reached this sector at this time.
    Begun {
        /// When.
        time_us: f64,
        /// The first sector that is missing.
        reached: u64,
    },
    /// None of it, or nothing that helps.
    Nothing,
}

/// The buffer.
pub(super) struct Buffer {
    told: Buffering,
    /// The newest first.
    segments: VecDeque<Segment>,
    ahead: Option<Ahead>,
}

impl Buffer {
    pub(super) fn new(told: Buffering) -> Buffer {
        Buffer { told, segments: VecDeque::new(), ahead: None }
    }

    /// Since when, from which sector, and to which the disk reads ahead.
    pub(super) fn ahead(&self) -> Option<(f64, u64, u64)> {
        let (a, s) = (self.ahead?, self.segments.front()?);
        Some((a.time_us, s.to, a.limit))
    }

    /// The reading ahead has come to before this sector at this time.
    pub(super) fn came_to(&mut self, to: u64, time_us: f64) {
        let Some(newest) = self.segments.front_mut() else { return };
        assert!(newest.to <= to, "B2: {newest:?} shrinks to {to}");
        newest.to = to;
        newest.from = newest.from.max(to.saturating_sub(self.told.sectors));
        match &mut self.ahead {
            Some(a) if to < a.limit => a.time_us = time_us,
            _ => self.ahead = None,
        }
    }

    pub(super) fn find(&self, first: u64, count: u64) -> Found {
        let end = first + count;
        if self.segments.iter().any(|s| s.from <= first && end <= s.to) {
            return Found::Whole;
        }
        match (self.ahead, self.segments.front()) {
            (Some(a), Some(s)) if s.from <= first && first <= s.to && first < a.limit => {
                Found::Begun { time_us: a.time_us, reached: s.to }
            }
            _ => Found::Nothing,
        }
    }

    /// All before `to` was wanted: reading ahead, if it goes on at all, goes on further.
    pub(super) fn wanted(&mut self, to: u64) {
        if let Some(a) = &mut self.ahead {
            a.limit = a.limit.max(to + self.told.ahead);
        }
    }

    /// The newest segment has grown to before `to` at `time_us`, and reading ahead goes on.
    pub(super) fn goes_on(&mut self, to: u64, time_us: f64) {
        self.ahead = Some(Ahead { time_us, limit: to + self.told.ahead });
        self.came_to(to, time_us);
    }

    /// Sectors were read from the medium until `time_us`: a new segment; reading ahead begins.
    pub(super) fn holds(&mut self, from: u64, to: u64, time_us: f64) {
        self.overwritten(from, to);
        self.segments.push_front(Segment { from, to });
        self.segments.truncate(self.told.segments.max(1));
        self.goes_on(to, time_us);
    }

    /// The head has gone elsewhere, and these sectors are no longer what was read.
    pub(super) fn overwritten(&mut self, from: u64, to: u64) {
        self.ahead = None;
        self.segments.retain(|s| s.to <= from || to <= s.from);
    }
}

//! A disk's track buffer: segments of what was read, the newest of which grows while nothing else
//! is asked, as the disk reads ahead up to a fence. It knows sectors and times, no platters.
//!
//! Invariants:
//! * B1. No segment has a sector of a later write.
//! * B2. The newest segment grows as the disk reads on, and never shrinks from that end.
//! * B3. No segment is empty, or longer than the drive has it, and there are no more than it has.
//! * B4. Reading ahead goes on before its fence, from the newest segment's end, and in time.

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
    /// Sectors of the disk: nothing is read ahead behind its end.
    end: u64,
    /// The newest first.
    segments: VecDeque<Segment>,
    ahead: Option<Ahead>,
}

impl Buffer {
    pub(super) fn new(told: Buffering, end: u64) -> Buffer {
        assert!(told.segments > 0 && told.sectors > 0, "B3: {told:?} holds nothing");
        Buffer { told, end, segments: VecDeque::new(), ahead: None }
    }

    /// What holds after each change.
    fn check(&self) {
        let (count, most) = (self.segments.len(), self.told.segments);
        assert!(count <= most, "B3: {count} segments of {most}");
        let Some(newest) = self.segments.front() else {
            assert!(self.ahead.is_none(), "B4: {:?} of no segment", self.ahead);
            return;
        };
        let long = newest.to - newest.from;
        assert!(newest.from < newest.to && long <= self.told.sectors, "B3: {newest:?}");
        let stands = self.ahead.is_none_or(|a| newest.to < a.limit && a.limit <= self.end);
        assert!(stands, "B4: {:?} goes on from {} of {}", self.ahead, newest.to, self.end);
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
            Some(a) if to < a.limit => {
                assert!(a.time_us <= time_us, "B4: it goes back from {a:?} to {time_us} µs");
                a.time_us = time_us;
            }
            _ => self.ahead = None,
        }
        self.check();
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
            a.limit = a.limit.max(to + self.told.ahead).min(self.end);
        }
    }

    /// The newest segment has grown to before `to` at `time_us`, and reading ahead goes on.
    pub(super) fn goes_on(&mut self, to: u64, time_us: f64) {
        let limit = (to + self.told.ahead).min(self.end);
        self.ahead = Some(Ahead { time_us, limit });
        self.came_to(to, time_us);
    }

    /// Sectors were read from the medium until `time_us`: a new segment; reading ahead begins.
    pub(super) fn holds(&mut self, from: u64, to: u64, time_us: f64) {
        self.overwritten(from, to);
        self.segments.push_front(Segment { from, to });
        self.segments.truncate(self.told.segments);
        self.goes_on(to, time_us);
    }

    /// The head has gone elsewhere, and these sectors are no longer what was read.
    pub(super) fn overwritten(&mut self, from: u64, to: u64) {
        self.ahead = None;
        self.segments.retain(|s| s.to <= from || to <= s.from);
    }
}

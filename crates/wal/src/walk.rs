//! Walking from group to group on the disk: what is a valid group here, and where the next one is.
//! The tail is found with it and scans read with it; it writes nothing.

use crate::area::LogArea;
use crate::error::LogError;
use crate::layout::{ENTRY_HEADER, EntryHeader, Epoch, GROUP_HEADER, GroupHeader, Lsn, Superblock};

/// Reads one group after the other.
pub(crate) struct Walk {
    area: LogArea,
    sb: Superblock,
    seed: u32,
    plant: Option<&'static str>,
    /// Where the next group begins, unless it begins with the next segment.
    pub(crate) at: Lsn,
    first: bool,
    /// Is the log being written meanwhile, behind what is read?
    beside: bool,
    /// The epoch of the group that was read last.
    epoch: Epoch,
    /// A segment's bytes from some position on.
    held: (Lsn, Vec<u8>),
    /// Reads of the disk.
    pub(crate) reads: u64,
}

/// A valid group: where it lies, and its bytes in the walk's memory.
pub(crate) struct Group {
    pub(crate) header: GroupHeader,
    at: usize,
}

impl Walk {
    /// From `at` on, where a group begins, or would begin.
    pub(crate) fn new(area: LogArea, sb: Superblock, at: Lsn, plant: Option<&'static str>) -> Walk {
        let seed = sb.seed();
        let held = (at, Vec::new());
        let whole = sb.begins_unit(at);
        assert!(whole, "I6: a walk begins at {at}, in the middle of a unit");
        let (first, beside) = (true, false);
        Walk { area, sb, seed, plant, at, first, beside, epoch: Epoch(0), held, reads: 0 }
    }

    /// The same through a log that is in use.
    pub(crate) fn beside(self) -> Walk {
        Walk { beside: true, ..self }
    }

    fn planted(&self, name: &str) -> bool {
        self.plant == Some(name)
    }

    /// The next group; None where the chain ends.
    pub(crate) async fn next(&mut self) -> Result<Option<Group>, LogError> {
        if let Some(g) = self.group_at(self.at).await? {
            return Ok(Some(self.accept(g)));
        }
        // The group did not fit in what was left of the segment?
        if !self.sb.begins_segment(self.at) {
            let next = self.sb.next_segment(self.at);
            if let Some(g) = self.group_at(next).await? {
                return Ok(Some(self.accept(g)));
            }
            if self.planted("gap-skipped") {
                return self.skip_gap().await;
            }
        }
        Ok(None)
    }

    /// Planted bug: goes on behind a gap.
    async fn skip_gap(&mut self) -> Result<Option<Group>, LogError> {
        let (mut at, end) = (self.at, self.sb.next_segment(self.at));
        while at.plus(u64::from(self.sb.unit)) < end {
            at = at.plus(u64::from(self.sb.unit));
            (self.at, self.first) = (at, true);
            if let Some(g) = self.group_at(at).await? {
                return Ok(Some(self.accept(g)));
            }
        }
        Ok(None)
    }

    fn accept(&mut self, g: Group) -> Group {
        let h = &g.header;
        let behind = h.lsn.plus(self.sb.pad(u64::from(h.bytes)));
        let before = std::mem::replace(&mut self.at, behind);
        assert!(before <= h.lsn && h.lsn < self.at, "a walk from {before} goes on at {}", h.lsn);
        let end = self.sb.next_segment(h.lsn);
        assert!(self.at <= end, "I6: the group at {} crosses into the segment at {end}", h.lsn);
        self.first = false;
        self.epoch = h.epoch;
        g
    }

    /// The bytes from `lsn` to the end of its segment.
    async fn load(&mut self, lsn: Lsn) -> Result<(), LogError> {
        let end = self.sb.next_segment(lsn);
        let held_end = self.held.0.plus(self.held.1.len() as u64);
        if lsn < self.held.0 || end > held_end {
            let (place, len) = (self.sb.place(lsn), end.since(lsn) as usize);
            let bytes = match self.beside {
                true => self.area.read_beside(place, len).await?,
                false => self.area.read(place, len).await?,
            };
            self.reads += 1;
            self.held = (lsn, bytes);
        }
        let (from, to) = (self.held.0, self.held.0.plus(self.held.1.len() as u64));
        assert!(from <= lsn && end <= to, "{lsn} to {end} are wanted, {from} to {to} are here");
        Ok(())
    }

    async fn group_at(&mut self, lsn: Lsn) -> Result<Option<Group>, LogError> {
        self.load(lsn).await?;
        let at = lsn.since(self.held.0) as usize;
        let bytes = &self.held.1[at..];
        let Some(header) = GroupHeader::decode(self.seed, bytes) else { return Ok(None) };
        let fits = (GROUP_HEADER..=bytes.len()).contains(&(header.bytes as usize));
        if header.lsn != lsn || !fits || !self.follows(&header) || !epoch_ok(&self.sb, &header) {
            return Ok(None);
        }
        let group = Group { header, at };
        let whole = self.entries(&group).is_some();
        Ok(whole.then_some(group))
    }

    /// Is it the successor of what was read last (I4, I6)?
    fn follows(&self, h: &GroupHeader) -> bool {
        // The first one read has no known predecessor if it begins a segment; one that is looked
        // for in the next segment has: what is missing where the walk stands.
        let begins = h.lsn == self.at && self.sb.begins_segment(h.lsn);
        let unknown = self.first && (begins || self.planted("gap-skipped"));
        let linked = h.prev == self.at || unknown;
        linked && (h.epoch >= self.epoch || self.planted("epoch-ignored"))
    }

    /// The entries' parts with their LSNs; None if one is damaged.
    pub(crate) fn entries(&self, g: &Group) -> Option<Vec<(Lsn, EntryHeader, &[u8])>> {
        let bytes = &self.held.1[g.at..g.at + g.header.bytes as usize];
        let check = !self.planted("torn-tail-accepted");
        let mut parts = Vec::with_capacity(g.header.entries.min(4096) as usize);
        let mut at = GROUP_HEADER;
        for _ in 0..g.header.entries {
            let lsn = g.header.lsn.plus(at as u64);
            let (h, part) = EntryHeader::decode(self.seed, lsn, &bytes[at..], check)?;
            if check && h.epoch != g.header.epoch.low() {
                return None;
            }
            at += ENTRY_HEADER + part.len();
            parts.push((lsn, h, part));
        }
        Some(parts)
    }
}

/// Does the group's epoch fit its place (I4)?
fn epoch_ok(sb: &Superblock, h: &GroupHeader) -> bool {
    if h.lsn >= sb.epoch_start { h.epoch == sb.epoch } else { h.epoch < sb.epoch }
}

/// The header at the start of a segment, if the segment is in use in this epoch.
async fn segment_header(
    area: &LogArea,
    sb: &Superblock,
    start: Lsn,
) -> Result<Option<GroupHeader>, LogError> {
    let bytes = area.read(sb.place(start), sb.unit as usize).await?;
    let header = GroupHeader::decode(sb.seed(), &bytes);
    Ok(header.filter(|h| h.lsn == start && epoch_ok(sb, h)))
}

/// What finding the tail found.
pub(crate) struct Tail {
    pub(crate) at: Lsn,
    /// Reads of the binary search.
    pub(crate) probes: u64,
}

/// How far the log was durable when this group was written. Errors: its sum is right and its
/// numbers cannot be, so it is not of our making.
fn durable_of(sb: &Superblock, h: &GroupHeader) -> Result<Lsn, LogError> {
    if sb.begins_unit(h.durable) && h.durable <= h.lsn {
        return Ok(h.durable);
    }
    let what = format!("it says that the log was durable up to {}, which cannot be", h.durable);
    Err(LogError::Damaged { what, at: h.lsn })
}

/// Finds the tail: binary search over the segments, then forward from the durable prefix that the
/// last segment's first group carries.
pub(crate) async fn find_tail(
    area: &LogArea,
    sb: &Superblock,
    plant: Option<&'static str>,
) -> Result<Tail, LogError> {
    let floor = sb.floor(sb.head);
    let base = floor.max(sb.epoch_start);
    let segment = u64::from(sb.segment_bytes);
    let first = Lsn(base.0.next_multiple_of(segment));
    let (mut low, mut high) = (0, sb.limit().saturating_since(first) / segment);
    let (mut start, mut probes) = (base, 0);
    while low < high {
        let middle = (low + high) / 2;
        probes += 1;
        assert!(probes <= u64::from(u64::BITS), "the search for the tail does not end");
        match segment_header(area, sb, first.plus(middle * segment)).await? {
            Some(h) => {
                low = middle + 1;
                start = durable_of(sb, &h)?.max(base);
                if plant == Some("tail-from-last-segment") {
                    start = h.lsn;
                }
            }
            None => high = middle,
        }
    }
    assert!(start >= base, "I4: the walk to the tail begins at {start}, before {base}");
    let mut walk = Walk::new(area.clone(), sb.clone(), start, plant);
    while walk.next().await?.is_some() {}
    let at = walk.at;
    assert!(start <= at && sb.begins_unit(at), "I6: a walk from {start} ends at {at}");
    check_behind(area, sb, at).await?;
    Ok(Tail { at, probes })
}

/// Segments without a valid group that are looked at behind the tail: the one that it lies in, and
/// one that a damaged group begins.
const EMPTY_SEGMENTS: u32 = 2;

/// Looks behind the tail for a group that names a durable prefix beyond it: what the walk stopped
/// at was durable, and has been damaged since (I6). After a power cut there may be groups there,
/// but none that was issued later than what is missing was durable.
async fn check_behind(area: &LogArea, sb: &Superblock, tail: Lsn) -> Result<(), LogError> {
    let (mut lsn, mut empty) = (tail, 0);
    while lsn < sb.limit() && empty < EMPTY_SEGMENTS {
        let end = sb.next_segment(lsn);
        let bytes = area.read(sb.place(lsn), end.since(lsn) as usize).await?;
        empty += 1;
        let places = (lsn.0..end.0).step_by(sb.unit as usize);
        for (at, unit) in places.map(Lsn).zip(bytes.chunks(sb.unit as usize)) {
            let here = |h: &GroupHeader| h.lsn == at && epoch_ok(sb, h);
            let Some(h) = GroupHeader::decode(sb.seed(), unit).filter(here) else { continue };
            if h.durable > tail {
                let what =
                    format!("what was durable there is not whole, but what follows at {at} is");
                return Err(LogError::Damaged { what, at: tail });
            }
            empty = 0;
        }
        lsn = end;
    }
    Ok(())
}

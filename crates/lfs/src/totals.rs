//! What a store has written since it was made: by users, by the cleaner, for itself. Checkpoints
//! keep it, and the log behind one adds what it shows. It asks no disk.

use crate::codec::{Reader, Writer};
use crate::geometry::{BLOCK, BLOCK_BYTES, Geometry};
use crate::state::Stats;
use crate::summary::{Entry, Summary};

/// Sums since the store was made, or since a program that keeps them first opened it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Bytes that users wrote.
    pub user_bytes: u64,
    /// Blocks written to the disk below, whatever for.
    pub written: u64,
    /// Of these: survivors of segments that were cleaned, and what says where they are in holes.
    pub cleaner: u64,
    /// Of these: summaries, the table and checkpoints.
    pub tables: u64,
    /// Blocks that the cleaner has read.
    pub cleaner_reads: u64,
    /// Segments that the cleaner has emptied.
    pub cleaned: u64,
}

const FIELDS: u32 = 6;

impl Totals {
    /// Bytes written below for each byte that users wrote; None: they wrote nothing.
    pub fn amplification(&self) -> Option<f64> {
        let users = self.user_bytes;
        (users > 0).then(|| self.written as f64 * BLOCK_BYTES as f64 / users as f64)
    }

    /// The share of what was written that the cleaner wrote; None: nothing was.
    pub fn cleaning_share(&self) -> Option<f64> {
        (self.written > 0).then(|| self.cleaner as f64 / self.written as f64)
    }

    fn fields(&mut self) -> [&mut u64; FIELDS as usize] {
        let Totals { user_bytes, written, cleaner, tables, cleaner_reads, cleaned } = self;
        [user_bytes, written, cleaner, tables, cleaner_reads, cleaned]
    }

    /// How many numbers (4), then the numbers (8 each).
    pub(crate) fn encode(mut self, w: &mut Writer) {
        w.u32(FIELDS);
        self.fields().into_iter().for_each(|n| {
            w.u64(*n);
        });
    }

    /// The reverse. A body that ends before has none: its program did not count. More numbers than
    /// these are a later program's.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Option<Totals> {
        let mut all = Totals::default();
        if r.0.is_empty() {
            return Some(all);
        }
        let count = r.u32()?;
        for n in all.fields().into_iter().take(count as usize) {
            *n = r.u64()?;
        }
        for _ in FIELDS..count {
            r.u64()?;
        }
        Some(all)
    }

    /// These, and what was done since they were loaded.
    pub(crate) fn with(mut self, s: &Stats) -> Totals {
        let (moved, plugged) = (s.moved, s.plugged);
        assert!(plugged <= moved, "{plugged} of {moved} blocks that were moved went into holes");
        let mut since = Totals {
            user_bytes: s.user_bytes,
            written: s.log_blocks + s.plug_blocks + s.table_blocks + s.checkpoints,
            cleaner: s.moved - s.plugged + s.plug_blocks + s.amended,
            tables: s.partials + s.table_blocks + s.checkpoints,
            cleaner_reads: s.read_to_clean,
            cleaned: s.cleaned,
        };
        for (a, b) in self.fields().into_iter().zip(since.fields()) {
            *a = a.saturating_add(*b);
        }
        self
    }

    /// So many blocks more were written for the table or a checkpoint.
    pub(crate) fn add_tables(&mut self, blocks: u64) {
        self.written = self.written.saturating_add(blocks);
        self.tables = self.tables.saturating_add(blocks);
    }

    /// A partial segment was found behind the checkpoint.
    pub(crate) fn add_partial(&mut self, s: &Summary, g: &Geometry) {
        self.add_tables(1);
        for e in &s.entries {
            let (v, _) = e.blocks();
            let (user_bytes, written, cleaner) = match e {
                Entry::Written { .. } if v.0 >= g.virtual_blocks => (0, 1, 1),
                Entry::Written { .. } => (BLOCK, 1, 0),
                Entry::Moved { .. } | Entry::Plugged { .. } => (0, 1, 1),
                Entry::Range { range, .. } => (range.len() as u64, 0, 0),
                _ => (0, 0, 0),
            };
            self.user_bytes = self.user_bytes.saturating_add(user_bytes);
            self.written = self.written.saturating_add(written);
            self.cleaner = self.cleaner.saturating_add(cleaner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_back_from_bodies_of_any_age() {
        let all = Totals {
            user_bytes: 8192,
            written: 6,
            cleaner: 3,
            tables: 1,
            cleaner_reads: 5,
            cleaned: 4,
        };
        let mut w = Writer::default();
        all.encode(&mut w);
        assert_eq!(Totals::decode(&mut Reader(&w.0)), Some(all));
        assert_eq!((all.amplification(), all.cleaning_share()), (Some(3.0), Some(0.5)));
        assert_eq!(Totals::decode(&mut Reader(&[])), Some(Totals::default()), "an older one");
        assert_eq!(Totals::decode(&mut Reader(&w.0[..20])), None, "cut short");
        let mut later = w.0.clone();
        later[0] += 1;
        later.extend([9; 8]);
        assert_eq!(Totals::decode(&mut Reader(&later)), Some(all), "a later one");
        assert_eq!(Totals::default().amplification(), None);
    }
}

//! The store's own fsck: everything that is kept is recomputed and compared. It changes nothing.

use crate::geometry::{Place, SegNo, Virt};
use crate::merge::Merge;
use crate::store::Store;
use crate::summary::Entry;
use crate::superblock::Superblock;
use crate::survivors::summaries;
use crate::usage::{Filled, Use};
use std::collections::BTreeMap;

/// How a store is filled.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Virtual blocks with contents.
    pub mapped: u64,
    /// Extents in the table.
    pub extents: u64,
    /// Blocks that only snapshots have.
    pub snapshots: u64,
    /// Segments of which it is known that holes were plugged.
    pub plugged: u64,
    /// How its segments are filled.
    pub filled: Filled,
    /// What is wrong.
    pub wrong: Vec<String>,
}

impl Store {
    /// Walks the table and the segments. `deep`: reads every segment's summaries too. Errors: the
    /// disk failed, or a page of the table is damaged.
    pub async fn verify(&self, deep: bool) -> Result<Report, env::DiskError> {
        self.verify_and_tell(deep, &mut |_, _| ()).await
    }

    /// The same; `tell` hears of how many segments were read, and of how many there are.
    pub async fn verify_and_tell(
        &self,
        deep: bool,
        tell: &mut dyn FnMut(u64, u64),
    ) -> Result<Report, env::DiskError> {
        let mut report = Report::default();
        report.wrong.extend(self.damage());
        let lies = self.walk_table(&mut report).await?;
        self.compare_usage(&lies, &mut report);
        if deep {
            let first = self.inner.read_blocks(Place(0), 1).await?;
            if Superblock::decode(first.bytes()).is_err() {
                report.wrong.push("the superblock is damaged; its copy at the end is not".into());
            }
            self.compare_summaries(&lies, &mut report, tell).await?;
        }
        Ok(report)
    }

    /// All that the table says: what lies at each place.
    async fn walk_table(&self, report: &mut Report) -> Result<BTreeMap<u64, u64>, env::DiskError> {
        let inner = &self.inner;
        let g = inner.geometry;
        let mut merge = {
            let s = inner.state.borrow();
            let new = std::iter::once(&s.table.active).chain(s.table.frozen.as_deref());
            Merge::new(new, s.table.runs.iter().cloned())
        };
        let mut lies: BTreeMap<u64, u64> = BTreeMap::new();
        let mut left = g.blocks();
        while let Some(e) = merge.next(inner).await? {
            let Some(place) = e.place else { continue };
            report.extents += 1;
            let (snapshot, _) = g.owner(e.v);
            if snapshot > 0 {
                report.snapshots += u64::from(e.n);
            } else {
                let users = u64::from(e.n).min(g.virtual_blocks.saturating_sub(e.v.0));
                report.mapped += users;
                report.plugged += u64::from(e.n) - users;
            }
            if !g.are_blocks(e.v, u64::from(e.n)) {
                report.wrong.push(format!("block {} lies behind the end", e.end() - 1));
            }
            if snapshot > 0 && !inner.state.borrow().snapshots.knows(snapshot) {
                let what = format!("block {} is of snapshot {snapshot}, which is not there", e.v.0);
                report.wrong.push(what);
            }
            // Where there are more than places, many share one: that is said once.
            let Some(rest) = left.checked_sub(u64::from(e.n)) else {
                let what = format!("from block {} on there are more blocks than places", e.v.0);
                report.wrong.push(what);
                break;
            };
            left = rest;
            for i in 0..u64::from(e.n) {
                if let Some(other) = lies.insert(place.0 + i, e.v.0 + i) {
                    let what = format!("blocks {other} and {} share a place", e.v.0 + i);
                    report.wrong.push(what);
                }
            }
        }
        Ok(lies)
    }

    fn compare_usage(&self, lies: &BTreeMap<u64, u64>, report: &mut Report) {
        let g = self.inner.geometry;
        let s = self.inner.state.borrow();
        let mut live = vec![0_u32; g.segments as usize];
        for (place, v) in lies {
            match g.segment_of(Place(*place)) {
                Some(seg) => live[seg.0 as usize] += 1,
                None => report.wrong.push(format!("block {v} lies outside the segments")),
            }
        }
        for (seg, info) in s.usage.all() {
            let found = live[seg.0 as usize];
            if found != info.live {
                let what = format!("segment {}: {} live, {found} found", seg.0, info.live);
                report.wrong.push(what);
            }
            if found > 0 && matches!(info.used, Use::Free | Use::Table) {
                report.wrong.push(format!("segment {} holds contents: {:?}", seg.0, info.used));
            }
            report.filled.add(info.used, found, g.segment_blocks);
        }
    }

    /// Does a summary in its segment name every block that lives there?
    async fn compare_summaries(
        &self,
        lies: &BTreeMap<u64, u64>,
        report: &mut Report,
        tell: &mut dyn FnMut(u64, u64),
    ) -> Result<(), env::DiskError> {
        let inner = &self.inner;
        let g = inner.geometry;
        // What the volume has given to a snapshot keeps its number.
        let same = |lies: u64, put: Virt| g.owner(Virt(lies)).1 == g.owner(put).1;
        for n in 0..g.segments {
            let seg = SegNo(n);
            tell(u64::from(n) + 1, u64::from(g.segments));
            let start = g.start(seg);
            let end = start.0 + u64::from(g.segment_blocks);
            let mut left: BTreeMap<u64, u64> =
                lies.range(start.0..end).map(|(p, v)| (*p, *v)).collect();
            let waiting = |p: &u64| inner.state.borrow().pending.contains_key(p);
            left.retain(|p, _| !waiting(p));
            if left.is_empty() {
                continue;
            }
            for a in inner.amended(seg).await? {
                let place = start.0 + u64::from(a.slot);
                if left.get(&place).is_some_and(|v| same(*v, a.v)) {
                    left.remove(&place);
                }
            }
            let raw = inner.read_blocks(start, u64::from(g.segment_blocks)).await?;
            for summary in summaries(raw.bytes(), start) {
                for (entry, place) in summary.blocks() {
                    let (Entry::Written { v, .. } | Entry::Moved { v, .. }) = entry else {
                        continue;
                    };
                    if left.get(&place.0).is_some_and(|lies| same(*lies, v)) {
                        left.remove(&place.0);
                    }
                }
            }
            for (place, v) in left {
                let what = format!("no summary says that block {v} lies at {place}");
                report.wrong.push(what);
            }
        }
        Ok(())
    }

    /// Calls `f` with every range of virtual blocks that has contents, in order.
    pub async fn mapped(&self, mut f: impl FnMut(Virt, u64)) -> Result<(), env::DiskError> {
        let (mut merge, patched) = {
            let s = self.inner.state.borrow();
            let new = std::iter::once(&s.table.active).chain(s.table.frozen.as_deref());
            let patched: Vec<u64> = s.patches.all().map(|(v, _)| v.0).collect();
            (Merge::new(new, s.table.runs.iter().cloned()), patched)
        };
        // Of a block that lies nowhere, ranges may be known.
        let mut alone = patched.into_iter().peekable();
        while let Some(e) = merge.next(&self.inner).await? {
            if e.place.is_none() || e.v.0 >= self.inner.geometry.virtual_blocks {
                continue;
            }
            while let Some(v) = alone.next_if(|v| *v < e.end()) {
                if v < e.v.0 {
                    f(Virt(v), 1);
                }
            }
            f(e.v, u64::from(e.n).min(self.inner.geometry.virtual_blocks - e.v.0));
        }
        alone.for_each(|v| f(Virt(v), 1));
        Ok(())
    }
}

//! The translation table: where each virtual block lies. New mappings are in memory; the others are
//! in runs on the disk, of which pages are kept in memory up to a bound, also when a checkpoint
//! changes the runs: a page never changes while a run has it. It does not know what blocks hold.
//!
//! A block's mapping is the first that is found in: what is new, what the checkpoint under way is
//! writing, the runs from the newest to the oldest. Nothing found is a block never written.

use crate::extents::{Extent, Extents};
use crate::geometry::{BLOCK, BLOCK_BYTES, Place, Virt};
use crate::possible::are_extents;
use crate::run::{Run, decode_page};
use crate::store::Inner;
use env::{DiskError, IdMap};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A page of a run, and where it lies.
pub(crate) type Page = (Place, Rc<Vec<Extent>>);

/// Pages of runs in memory: those used lately, and those used before them.
#[derive(Default)]
pub(crate) struct Pages {
    young: IdMap<u64, Rc<Vec<Extent>>>,
    old: IdMap<u64, Rc<Vec<Extent>>>,
}

impl Pages {
    fn get(&mut self, place: Place, half: usize) -> Option<Rc<Vec<Extent>>> {
        if let Some(p) = self.young.get(&place.0) {
            return Some(p.clone());
        }
        let page = self.old.remove(&place.0)?;
        self.put(place, page.clone(), half);
        Some(page)
    }
    pub(crate) fn put(&mut self, place: Place, page: Rc<Vec<Extent>>, half: usize) {
        if self.young.len() >= half {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(place.0, page);
        let young = self.young.len();
        assert!(young <= half.max(1), "{young} pages of the table are the younger half of {half}");
    }
    /// Keeps the pages of these runs: the places of others are used again for other pages.
    fn keep(&mut self, runs: &[Rc<Run>]) {
        let named: BTreeSet<u64> =
            runs.iter().flat_map(|r| r.pages.iter().map(|p| p.1.0)).collect();
        self.young.retain(|place, _| named.contains(place));
        self.old.retain(|place, _| named.contains(place));
    }
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

/// The table.
#[derive(Default)]
pub(crate) struct Table {
    /// What is newer than the last checkpoint that was begun.
    pub(crate) active: Extents,
    /// What the checkpoint under way is writing.
    pub(crate) frozen: Option<Rc<Extents>>,
    /// From the newest to the oldest.
    pub(crate) runs: Vec<Rc<Run>>,
    /// Raised whenever `runs` changes.
    pub(crate) version: u64,
    pub(crate) pages: Pages,
}

/// What the runs say of a range.
pub(crate) struct Base {
    version: u64,
    known: Extents,
}

impl Table {
    /// The runs are these now. `written`: pages of theirs that are in memory; `half`: of those that
    /// may be.
    pub(crate) fn adopt(&mut self, runs: Vec<Rc<Run>>, written: Vec<Page>, half: usize) {
        let is_said = self.frozen.is_some();
        assert!(is_said, "I8: the table gets runs of which no checkpoint has said what is new");
        self.runs = runs;
        self.frozen = None;
        self.version += 1;
        self.pages.keep(&self.runs);
        for (place, page) in written {
            self.pages.put(place, page, half);
        }
    }
    /// What is newer than the runs.
    fn new_of(&self, v: Virt) -> Option<Extent> {
        self.active.get(v).or_else(|| self.frozen.as_ref().and_then(|f| f.get(v)))
    }
    /// What is known of a block, where it lies or that it lies nowhere; None: nothing is.
    pub(crate) fn entry(&self, v: Virt, base: &Base) -> Option<Extent> {
        assert!(self.is_current(base), "the runs are asked again when they have changed");
        self.new_of(v).or_else(|| base.known.get(v))
    }
    /// Need the runs not be asked about this range?
    fn is_new(&self, v: Virt, n: u64) -> bool {
        let (mut at, end) = (v.0, v.0 + n);
        while at < end {
            let Some(e) = self.new_of(Virt(at)) else { return false };
            at = e.end();
        }
        true
    }
    /// Is what was asked of the runs still what they say?
    pub(crate) fn is_current(&self, base: &Base) -> bool {
        base.version == self.version
    }
    /// Where a block lies, by what is new and what the runs said.
    pub(crate) fn place(&self, v: Virt, base: &Base) -> Option<Place> {
        self.entry(v, base).and_then(|e| e.at(v))
    }
    /// Blocks from `v` on of which one source says where they lie, at most up to `to`.
    fn piece(&self, v: Virt, to: u64, base: &Base) -> Extent {
        assert!(self.is_current(base), "the runs are asked again when they have changed");
        let mut end = to;
        let sources = [Some(&self.active), self.frozen.as_deref(), Some(&base.known)];
        for source in sources.into_iter().flatten() {
            if let Some(e) = source.get(v) {
                return e.cut(v.0, e.end().min(end));
            }
            end = end.min(source.next(v).unwrap_or(end));
        }
        let n = (end - v.0).min(u64::from(u32::MAX)) as u32;
        Extent { v, n, place: None }
    }
    /// The mapping of blocks from `v` on, at most up to `to`, that lie one behind the other. A log
    /// may name as many blocks as a volume has: they are not looked at one by one.
    pub(crate) fn extent(&self, v: Virt, to: u64, base: &Base) -> Extent {
        let mut e = self.piece(v, to, base);
        while e.end() < to {
            let next = self.piece(Virt(e.end()), to, base);
            if !e.joins(&next) {
                break;
            }
            e.n += next.n;
        }
        let goes_on = e.v == v && v.0 < e.end() && e.end() <= to;
        assert!(goes_on, "I8: {e:?} is where blocks {} to {to} lie", v.0);
        e
    }
}

impl Inner {
    /// What the runs say of `n` blocks from `v` on. Good until the runs change, which the caller
    /// asks by [`Table::is_current`] after every await.
    pub(crate) async fn base(&self, v: Virt, n: u64) -> Result<Base, DiskError> {
        self.base_of(vec![v], n).await
    }

    /// The same for who changes them: of those too that say whether a snapshot needs them.
    pub(crate) async fn base_to_change(&self, v: Virt, n: u64) -> Result<Base, DiskError> {
        let mut all = vec![v];
        if v.0 < self.geometry.virtual_blocks {
            let keepers = self.state.borrow().snapshots.keepers();
            all.extend(keepers.iter().flatten().map(|id| self.geometry.own_block(*id, v)));
        }
        self.base_of(all, n).await
    }

    /// The same of `n` blocks from each of these on.
    pub(crate) async fn base_of(&self, firsts: Vec<Virt>, n: u64) -> Result<Base, DiskError> {
        self.base_of_all(firsts.iter().map(|v| (*v, n)), 1).await
    }

    /// The same of many blocks at once: from each of these on so many. Where they are sorted, each
    /// page of the table is read once, `ahead` of them in a request.
    pub(crate) async fn base_of_all(
        &self,
        blocks: impl Iterator<Item = (Virt, u64)>,
        ahead: u64,
    ) -> Result<Base, DiskError> {
        let (runs, version, mut gaps) = {
            let s = self.state.borrow();
            let old = blocks.filter(|(v, n)| !s.table.is_new(*v, *n));
            let gaps: Vec<(u64, u64)> = old.map(|(v, n)| (v.0, v.0 + n)).collect();
            (s.table.runs.clone(), s.table.version, gaps)
        };
        let mut base = Base { version, known: Extents::default() };
        for run in runs {
            let mut left = Vec::new();
            for (from, to) in gaps {
                let mut at = from;
                for page in run.pages_of(from, to) {
                    let page = match self.page(&run, (page, ahead), version).await {
                        // The run is gone, and something else lies there: ask again.
                        Err(_) if self.state.borrow().table.version != version => return Ok(base),
                        other => other?,
                    };
                    let first = page.partition_point(|e| e.end() <= at);
                    for e in page[first..].iter().take_while(|e| e.v.0 < to) {
                        let (start, end) = (e.v.0.max(at), e.end().min(to));
                        if start > at {
                            left.push((at, start));
                        }
                        base.known.set(e.cut(start, end));
                        at = end;
                    }
                }
                if at < to {
                    left.push((at, to));
                }
            }
            gaps = left;
        }
        Ok(base)
    }

    /// A page of a run that the table had at this version, and so many with it that lie behind it.
    /// They are kept in memory only if that is still so: what lies at other places may be written
    /// at any time.
    async fn page(
        &self,
        run: &Run,
        (number, ahead): (usize, u64),
        version: u64,
    ) -> Result<Rc<Vec<Extent>>, DiskError> {
        let place = run.pages[number].1;
        if let Some(p) = self.page_in_memory(place) {
            return if run.has_page(number, &p) { Ok(p) } else { Err(damaged(place, PAGE)) };
        }
        let behind = (0..ahead).zip(&run.pages[number..]);
        let n = behind.take_while(|(i, p)| p.1 == place.plus(*i)).count() as u64;
        let raw = self.read_blocks(place, n).await?;
        let mut first = None;
        for (i, raw) in (0..).zip(raw.bytes().chunks(BLOCK_BYTES)) {
            let place = place.plus(i);
            let Some(page) = self.page_of(raw).map(Rc::new) else { break };
            let s = &mut *self.state.borrow_mut();
            if s.table.version == version {
                s.table.pages.put(place, page.clone(), self.pages_half());
            }
            first.get_or_insert(page);
        }
        first.filter(|p| run.has_page(number, p)).ok_or_else(|| damaged(place, PAGE))
    }

    /// A page of the table's present runs, if it is in memory.
    pub(crate) fn page_in_memory(&self, place: Place) -> Option<Rc<Vec<Extent>>> {
        self.state.borrow_mut().table.pages.get(place, self.pages_half())
    }

    /// Half of the pages that may be in memory.
    pub(crate) fn pages_half(&self) -> usize {
        self.options.table_pages / 2
    }

    /// A page of a run, which is not kept in memory.
    pub(crate) async fn read_page(
        &self,
        run: &Run,
        number: usize,
    ) -> Result<Rc<Vec<Extent>>, DiskError> {
        let place = run.pages[number].1;
        let page = match self.page_in_memory(place) {
            Some(page) => Some(page),
            None => self.page_of(self.read_blocks(place, 1).await?.bytes()).map(Rc::new),
        };
        page.filter(|p| run.has_page(number, p)).ok_or_else(|| damaged(place, PAGE))
    }

    /// A page's extents; None: it is damaged.
    fn page_of(&self, raw: &[u8]) -> Option<Vec<Extent>> {
        let page = decode_page(self.seed, raw)?;
        are_extents(&page, &self.geometry).then_some(page)
    }
}

const PAGE: &str = "a page of the table";

/// What a checksum has found, as an error of the disk.
pub(crate) fn damaged(place: Place, what: &str) -> DiskError {
    let detail = format!("{what} is damaged");
    DiskError {
        kind: env::DiskErrorKind::Io,
        during: "read",
        at: place.0.saturating_mul(BLOCK),
        detail,
    }
}

//! Walking the table in order: new mappings and runs, the newer hiding the older. Checkpoints write
//! new runs with it, and the verifier counts. It changes nothing.

use crate::extents::{Extent, Extents};
use crate::geometry::Virt;
use crate::run::Run;
use crate::store::Inner;
use env::DiskError;
use std::collections::VecDeque;
use std::rc::Rc;

enum Rest {
    Memory,
    Run { run: Rc<Run>, page: usize },
}

/// One source, at its present extent.
struct Source {
    ready: VecDeque<Extent>,
    rest: Rest,
}

/// Sources from the newest to the oldest.
pub(crate) struct Merge {
    sources: Vec<Source>,
    at: u64,
}

impl Merge {
    pub(crate) fn new<'a>(
        memory: impl Iterator<Item = &'a Extents>,
        runs: impl Iterator<Item = Rc<Run>>,
    ) -> Merge {
        let memory = memory.map(|m| Source { ready: m.iter().collect(), rest: Rest::Memory });
        let runs =
            runs.map(|run| Source { ready: VecDeque::new(), rest: Rest::Run { run, page: 0 } });
        Merge { sources: memory.chain(runs).collect(), at: 0 }
    }

    /// The same from this block on.
    pub(crate) fn from<'a>(
        first: Virt,
        memory: impl Iterator<Item = &'a Extents>,
        runs: impl Iterator<Item = Rc<Run>>,
    ) -> Merge {
        let mut merge = Merge::new(std::iter::empty(), runs);
        for s in &mut merge.sources {
            if let Rest::Run { run, page } = &mut s.rest {
                *page = run.pages_of(first.0, u64::MAX).start;
            }
        }
        let known = |m: &Extents| m.iter().filter(|e| e.end() > first.0).collect();
        let memory = memory.map(|m| Source { ready: known(m), rest: Rest::Memory });
        merge.sources = memory.chain(merge.sources).collect();
        merge.at = first.0;
        merge
    }

    /// The next extent: what is known of its blocks, freed ones too. None at the end.
    pub(crate) async fn next(&mut self, inner: &Inner) -> Result<Option<Extent>, DiskError> {
        for s in &mut self.sources {
            s.fill(inner, self.at).await?;
        }
        let starts = self.sources.iter().filter_map(|s| s.ready.front());
        let Some(first) = starts.map(|e| e.v.0.max(self.at)).min() else { return Ok(None) };
        let covers = |s: &Source| s.ready.front().is_some_and(|e| e.v.0 <= first);
        let newest = self.sources.iter().position(covers).expect("one of them begins there");
        let e = self.sources[newest].ready[0];
        let newer = self.sources[..newest].iter().filter_map(|s| s.ready.front());
        let end = newer.map(|n| n.v.0).fold(e.end(), u64::min);
        self.at = end;
        Ok(Some(e.cut(first, end)))
    }
}

impl Source {
    /// Drops what ends before `at`, and makes the next extent ready.
    async fn fill(&mut self, inner: &Inner, at: u64) -> Result<(), DiskError> {
        loop {
            while self.ready.front().is_some_and(|e| e.end() <= at) {
                self.ready.pop_front();
            }
            let Rest::Run { run, page } = &mut self.rest else { return Ok(()) };
            if !self.ready.is_empty() || *page == run.pages.len() {
                return Ok(());
            }
            let number = *page;
            *page += 1;
            // Not kept: a merge reads each once.
            self.ready = inner.read_page(run, number).await?.iter().copied().collect();
        }
    }
}

//! A pass over candidates: what a journal of intents names is looked at, and mended as in a whole
//! pass. It is for a volume that nobody uses yet.

use super::{Halt, Scrub, Step};
use crate::store::Scrubbed;
use check::live::{Candidates, Tally};
use format::Ino;
use format::ufs::inode::{InodeRef, in_use};
use std::collections::BTreeSet;

impl<S: Scrubbed> Scrub<'_, S> {
    pub(super) async fn run_over(&self, candidates: Candidates) -> Step<()> {
        let (store, tally) = (&self.ufs.store, &self.watch.tally);
        Tally::add(&tally.candidates, candidates.len() as u64);
        let inodes: Vec<Ino> = candidates.inodes.keys().copied().collect();
        let counted: Vec<u32> =
            candidates.groups.iter().filter(|(_, dirs)| **dirs).map(|(g, _)| *g).collect();
        let groups = self.groups_of(&candidates)?;
        store.scrub_begins_with(candidates).await;
        for ino in inodes {
            self.survey(ino).await?;
            self.pause().await?;
        }
        for g in counted {
            for ino in store.inodes_in_use(g).await? {
                let h = store.raw_inode(ino).await?;
                if h.with(|raw| in_use(raw) && InodeRef(raw).is_dir()) {
                    self.watch.tell(|c| c.other_dir(ino));
                }
            }
            self.pause().await?;
        }
        self.mend(groups).await?;
        self.durable().await?;
        tally.left.set(self.left.borrow().len() as u64);
        Ok(())
    }

    /// The groups whose bitmaps or counts may be wrong.
    fn groups_of(&self, candidates: &Candidates) -> Step<BTreeSet<u32>> {
        let mut all = BTreeSet::new();
        for e in &candidates.blocks {
            let last = e.start.plus(e.len.saturating_sub(1));
            let ends =
                (self.ufs.store.group_of_block(e.start), self.ufs.store.group_of_block(last));
            let (Some(from), Some(to)) = ends else {
                let what = format!("an intent names block {last}, which the volume does not have");
                return Err(Halt::Failed(self.unbelievable(what)));
            };
            all.extend(from..=to);
        }
        let known = |g: &u32| *g < self.ufs.store.group_count();
        all.extend(candidates.groups.keys().copied().filter(known));
        Ok(all)
    }

    /// The journal of intents cannot be this volume's: nothing is damaged, and nothing is believed.
    fn unbelievable(&self, what: String) -> vfs::FsError {
        tracing::warn!("{what}");
        vfs::FsError::Invalid
    }
}

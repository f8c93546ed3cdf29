//! Cleaning: live blocks of objects that hold few are written again, so that the objects die and
//! are deleted with the next checkpoint; and garbage, which an interrupted mkfs, upload or deletion
//! has left. It deletes nothing that a table needs.

use crate::chain::{Trouble, head_of};
use crate::object::name;
use crate::state::{Gathered, place};
use crate::store::{Inner, Store};
use env::{Block, DiskError, DiskErrorKind};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Of an object that is this full or fuller nothing is gained, in percent.
const FULL_PERCENT: u64 = 75;
/// Objects cleaned before it is looked again whether that is enough.
const AT_ONCE: usize = 16;

impl Store {
    /// Empties at most so many objects, those with the fewest live blocks first, and writes a
    /// checkpoint, with which they are deleted. Returns how many were emptied. Errors: the
    /// bucket's.
    pub async fn clean(&self, objects: usize) -> Result<usize, DiskError> {
        let emptied = self.inner.clean(objects).await?;
        if emptied > 0 {
            self.inner.checkpoint().await?;
        }
        Ok(emptied)
    }
}

impl Inner {
    /// Cleans, as a task, if more of the bucket is without life than lives.
    pub(crate) fn clean_if_due(self: &Rc<Self>) {
        if !self.is_untidy() || self.state.borrow().cleaning {
            return;
        }
        self.state.borrow_mut().cleaning = true;
        let store = self.clone();
        self.env.spawn("cleaner", async move {
            while store.is_untidy() && !store.state.borrow().closing {
                // A failure of the store is sticky, one of a read is told to who reads.
                if !matches!(store.clean(AT_ONCE).await, Ok(1..)) {
                    break;
                }
            }
            store.state.borrow_mut().cleaning = false;
        });
    }

    fn is_untidy(&self) -> bool {
        let s = self.state.borrow();
        let (mut blocks, mut live) = (0, 0);
        for info in s.table.objects.values().filter(|i| i.live > 0) {
            (blocks, live) = (blocks + u64::from(info.blocks), live + u64::from(info.live));
        }
        blocks > 2 * live + self.options.pace.slack_blocks
    }

    async fn clean(self: &Rc<Self>, objects: usize) -> Result<usize, DiskError> {
        let victims: Vec<u64> = {
            let s = self.state.borrow();
            let sparse = |(serial, info): (&u64, &crate::state::Info)| {
                let share = u64::from(info.live) * 100 / u64::from(info.blocks.max(1));
                let worth = info.live > 0 && share < FULL_PERCENT && *serial <= s.acknowledged;
                worth.then_some((share, *serial))
            };
            let mut all: Vec<(u64, u64)> = s.table.objects.iter().filter_map(sparse).collect();
            all.sort_unstable();
            all.into_iter().take(objects).map(|(_, serial)| serial).collect()
        };
        for serial in &victims {
            self.empty(*serial).await?;
        }
        // Their blocks die where they were when this is sealed: else they were victims again.
        self.state.borrow_mut().seal(&self.shape, self.env.random());
        self.send_ready();
        Ok(victims.len())
    }

    /// Writes an object's live blocks again.
    async fn empty(self: &Rc<Self>, serial: u64) -> Result<(), DiskError> {
        let (head, ..) = match head_of(&self.bucket, &self.shape, serial).await {
            Ok(found) => found,
            Err(Trouble::Again) => return Ok(()), // it died meanwhile
            Err(Trouble::Wrong(detail)) => {
                let (kind, during) = (DiskErrorKind::Io, "read");
                return Err(DiskError { kind, during, at: 0, detail });
            }
        };
        for (index, v) in (0..).zip(&head.written) {
            let lies = place(serial, index);
            // The volume's, or what a snapshot has under its number.
            let owner = || {
                let s = self.state.borrow();
                let is_his = |v: &u64| s.table.place(*v) == Some(lies) && !s.open.contains_key(v);
                s.table.namesakes(*v).find(is_his)
            };
            let Some(owned) = owner() else { continue };
            self.wait_for_room().await?;
            let read: Vec<Block> = self.read_virtual(owned, 1).await?;
            let order = self.order.lock().await;
            if owner() == Some(owned) {
                let mut s = self.state.borrow_mut();
                s.stats.moved += 1;
                let moved = read.into_iter().map(|block| (owned, Gathered::Moved(block)));
                s.open.extend(moved);
            }
            drop(order);
            self.seal_if_full();
        }
        tracing::debug!("{} is emptied", name(serial));
        Ok(())
    }

    /// Takes away what lies below the newest checkpoint and is in no table, as a task.
    /// `there`: the serials that were there when the log was followed.
    pub(crate) fn start_collecting(self: &Rc<Self>, there: &BTreeSet<u64>) {
        let garbage: Vec<u64> = {
            let s = self.state.borrow();
            let kept = |n: &u64| s.table.objects.contains_key(n) || s.table.fences.contains(n);
            // As the table is before anything is written: nothing dead is missing in it yet (I7).
            there.range(..s.checkpoint).filter(|n| !kept(n)).copied().collect()
        };
        let store = self.clone();
        self.env.spawn("garbage", async move { store.delete(&garbage).await });
    }
}

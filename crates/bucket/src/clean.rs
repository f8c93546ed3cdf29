//! Cleaning: live blocks of objects that hold few are written again, so that the objects die and
//! are deleted with the next checkpoint; and garbage, which an interrupted mkfs, upload or deletion
//! has left. It deletes nothing that a table needs.

use crate::BLOCK_BYTES;
use crate::all::{TOGETHER, all};
use crate::chain::{Trouble, head_of, list};
use crate::object::{Head, Serial, name};
use crate::prices::Prices;
use crate::state::{Gathered, Info, place};
use crate::store::{Inner, Store};
use crate::stream::{MANY, Run};
use crate::writer::SEALED_BLOCKS;
use env::{Block, DiskError, DiskErrorKind};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Of an object that is this full or fuller nothing is gained, in percent.
const FULL_PERCENT: u64 = 75;
/// Cleaning has to be worth what it costs within so many months.
const MONTHS: u128 = 12;
const GB: u128 = 1_000_000_000;
/// Objects cleaned before it is looked again whether that is enough.
const AT_ONCE: usize = 16;

/// How often the costs of cleaning what an object saves a month are: the most first. None: they are
/// not saved within the time in which it is worth them.
fn worth(info: &Info, prices: &Prices) -> Option<u64> {
    let bytes = |blocks: u64| u128::from(blocks) * BLOCK_BYTES as u128;
    let (live, blocks) = (u64::from(info.live), u64::from(info.blocks));
    let dead = blocks - live;
    // As many runs as there are on average where it is chance which blocks live; and the head.
    let gets = 2 + live * dead / blocks.max(1);
    let [put, get, ..] = prices.requests.map(u128::from);
    let [sent, received] = prices.bytes.map(|price| u128::from(price) * bytes(live) / GB);
    let shared_put = put * u128::from(live) / SEALED_BLOCKS as u128;
    let cost = (get * u128::from(gets) + shared_put) / 1000 + sent + received;
    let saved = bytes(dead) * u128::from(prices.stored) / GB;
    if saved * MONTHS < cost {
        return None;
    }
    Some(u64::try_from(saved * 1000 / cost.max(1)).unwrap_or(u64::MAX))
}

/// The runs that these blocks are read in, each as its first and how many.
fn runs_of(live: impl Iterator<Item = u64>, prices: &Prices) -> Vec<(u64, u64)> {
    let get = u128::from(prices.requests[1]) / 1000;
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for index in live {
        let gap = |(first, n): &(u64, u64)| index - first - n;
        let costs =
            |gap: u64| u128::from(gap) * BLOCK_BYTES as u128 * u128::from(prices.bytes[1]) / GB;
        match runs.last_mut().filter(|r| costs(gap(r)) <= get && index - r.0 < MANY) {
            Some(run) => run.1 = index - run.0 + 1,
            None => runs.push((index, 1)),
        }
    }
    let apart = runs.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0);
    assert!(apart && runs.iter().all(|r| r.1 <= MANY), "R2: a block is read twice: {runs:?}");
    runs
}

impl Store {
    /// Empties at most so many objects, those with the fewest live blocks first, and writes a
    /// checkpoint, with which they are deleted. Returns how many were emptied. Errors: the
    /// bucket's.
    pub async fn clean(&self, objects: usize) -> Result<usize, DiskError> {
        let emptied = self.inner.clean(objects, &Prices::FREE).await?;
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
                let prices = &store.options.prices;
                if !matches!(store.clean(AT_ONCE, prices).await, Ok(1..)) {
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

    /// Empties at most so many objects, those first that are most worth what it costs.
    async fn clean(self: &Rc<Self>, objects: usize, prices: &Prices) -> Result<usize, DiskError> {
        let victims: Vec<Serial> = {
            let s = self.state.borrow();
            let sparse = |(serial, info): (&Serial, &Info)| {
                let share = u64::from(info.live) * 100 / u64::from(info.blocks.max(1));
                let may_be = info.live > 0 && share < FULL_PERCENT && *serial <= s.acknowledged;
                let worth = may_be.then(|| worth(info, prices)).flatten()?;
                Some((std::cmp::Reverse(worth), share, *serial))
            };
            let mut all: Vec<_> = s.table.objects.iter().filter_map(sparse).collect();
            all.sort_unstable();
            all.into_iter().take(objects).map(|(.., serial)| serial).collect()
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
    async fn empty(self: &Rc<Self>, serial: Serial) -> Result<(), DiskError> {
        let (head, ..) = match head_of(&self.bucket, &self.shape, serial).await {
            Ok(found) => found,
            Err(Trouble::Again) => return Ok(()), // it died meanwhile
            Err(Trouble::Wrong(detail) | Trouble::Unknown(detail)) => {
                let (kind, during) = (DiskErrorKind::Io, "read");
                return Err(DiskError { kind, during, at: 0, detail });
            }
        };
        self.read_live(serial, &head).await;
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

    /// Reads an object's live blocks into memory, run by run, several at the same time. What is
    /// between two runs is read with them where that costs less than another request.
    async fn read_live(&self, serial: Serial, head: &Head) {
        let runs = {
            let s = self.state.borrow();
            let Some(info) = s.table.objects.get(&serial) else { return };
            let lives = |(index, v): &(u64, &u64)| {
                let lies = place(serial, *index);
                s.table.namesakes(**v).any(|v| s.table.place(v) == Some(lies))
            };
            let live = (0..).zip(&head.written).filter(lives).map(|(index, _)| index);
            let head_bytes = u64::from(info.head_bytes);
            let run = |(first, n)| Run { serial, first, n, head_bytes };
            runs_of(live, &self.options.prices).into_iter().map(run).collect::<Vec<_>>()
        };
        for some in runs.chunks(TOGETHER) {
            // What goes wrong here is told where the block is wanted.
            all(some.iter().map(|run| self.fetch_shared(*run)).collect()).await;
        }
    }

    /// Takes away what lies below the newest checkpoint and is in no table, as a task.
    /// `there`: the serials that were there when the log was followed, if all were listed then.
    pub(crate) fn start_collecting(self: &Rc<Self>, there: Option<BTreeSet<Serial>>) {
        // As the table is before anything is written: nothing dead is missing in it yet (I7).
        let (kept, checkpoint) = {
            let s = self.state.borrow();
            let kept = s.table.objects.keys().chain(&s.table.fences).copied();
            (kept.collect::<BTreeSet<Serial>>(), s.checkpoint)
        };
        let store = self.clone();
        self.env.spawn("garbage", async move {
            store.env.sleep(store.options.pace.keep).await;
            let there = match there {
                Some(there) => there,
                None => match list(&store.bucket, Serial::NONE).await {
                    Ok(there) => there,
                    // Whoever opens the volume next finds it.
                    Err(e) => return tracing::warn!("garbage is not looked for: {e}"),
                },
            };
            let garbage: Vec<Serial> =
                there.range(..checkpoint).filter(|n| !kept.contains(n)).copied().collect();
            store.check_dead(&garbage);
            store.delete(&garbage).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(live: u32) -> Info {
        Info { head_bytes: 8192, blocks: 1024, live }
    }

    #[test]
    fn what_is_dear_to_read_stays_longer() {
        let far = Prices::default();
        let near = Prices::parse("OUT=0").unwrap_or_default();
        assert!(worth(&object(100), &near) > worth(&object(300), &near));
        assert!(worth(&object(740), &near).is_some(), "requests alone are worth it");
        assert!(worth(&object(740), &far).is_none(), "reading costs more than keeping for a year");
        assert!(worth(&object(50), &far).is_some());
        assert_eq!(worth(&object(700), &Prices::FREE), Some(0), "then nothing matters");
    }

    #[test]
    fn what_lies_between_is_read_where_that_costs_less() {
        let live = [0, 1, 3, 9, 400, 600];
        let runs = |prices: &Prices| runs_of(live.into_iter(), prices);
        assert_eq!(runs(&Prices::default()), [(0, 4), (9, 1), (400, 1), (600, 1)]);
        let near = Prices::parse("OUT=0").unwrap_or_default();
        assert_eq!(runs(&near), [(0, 401), (600, 1)], "but no more than is read at once");
    }
}

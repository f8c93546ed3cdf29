//! Atomic groups of changes as callers put them. A group goes into what has gathered as a whole,
//! and that into one object: it survives a crash whole or not at all. It does not know what a group
//! means.

use crate::BLOCK_BYTES;
use crate::store::{Inner, Store};
use env::{Block, DiskError};
use lfs::{Change, Group};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Blocks that a group has at most.
pub(crate) const GROUP_BLOCKS: u64 = 512;

impl Store {
    /// Blocks that a group has at most.
    pub fn group_blocks_max(&self) -> u64 {
        GROUP_BLOCKS
    }

    /// May more gather now, and be put without waiting for another group?
    pub fn has_room_now(&self) -> bool {
        self.inner.has_room() && !self.inner.order.is_busy()
    }

    /// Waits until more may gather. Errors: the store has failed.
    pub async fn wait_for_room(&self) -> Result<(), DiskError> {
        self.inner.wait_for_room().await
    }

    /// Puts a group behind all others; returns its number. Reading finds it from then on. Errors:
    /// the store has failed, or could not be read.
    pub async fn put(&self, group: &Group) -> Result<u64, DiskError> {
        self.inner.put(group).await
    }

    /// Makes this group durable, and all before it.
    pub async fn flush_to(&self, number: u64) -> Result<(), DiskError> {
        self.inner.flush_to(number).await
    }
}

impl Inner {
    pub(crate) async fn put(self: &Rc<Self>, group: &Group) -> Result<u64, DiskError> {
        let _order = self.order.lock().await;
        self.wait_for_near_room(group).await?;
        let bases = self.bases(group).await?;
        let room = self.near_room(group).await?;
        // No await from here on: whoever puts it may be gone at any.
        let number = self.take(group, bases)?;
        self.note_near(number, group, room)?;
        self.seal_if_full();
        Ok(number)
    }

    /// Puts a group that the near log has, under the number that it has there (N5).
    pub(crate) async fn put_again(
        self: &Rc<Self>,
        number: u64,
        group: &Group,
    ) -> Result<(), DiskError> {
        self.wait_for_room().await?;
        let _order = self.order.lock().await;
        let bases = self.bases(group).await?;
        {
            let mut s = self.state.borrow_mut();
            let sealed = s.sealed_put;
            assert!(number > sealed, "N5: group {number} comes again, and {sealed} was sealed");
            s.put = number - 1;
        }
        let taken = self.take(group, bases)?;
        assert_eq!(taken, number, "N5: it has the number that the near log knows");
        self.seal_if_full();
        Ok(())
    }

    /// A group is among what has gathered, where these are the blocks of which only ranges are
    /// said; its number.
    fn take(&self, group: &Group, bases: BTreeMap<u64, Block>) -> Result<u64, DiskError> {
        self.check_failed()?;
        let mut s = self.state.borrow_mut();
        let mut known = bases;
        for change in &group.changes {
            match change {
                Change::Whole(v, block) => {
                    s.write(v.0, block.clone());
                    known.insert(v.0, block.clone());
                }
                Change::Bytes { v, ranges, image } => {
                    let whole = match image {
                        Some(image) => image.clone(),
                        None => {
                            let zeros = || Block::zeroed(BLOCK_BYTES);
                            let base = known.remove(&v.0).unwrap_or_else(zeros);
                            patched(base, ranges)
                        }
                    };
                    s.write(v.0, whole.clone());
                    known.insert(v.0, whole);
                }
                Change::Free(v, n) => {
                    s.free(v.0, *n);
                    let behind = known.split_off(&v.0).split_off(&(v.0 + n));
                    known.extend(behind);
                }
                Change::Note(note) => s.notes.put(*note),
            }
        }
        s.put += 1;
        s.stats.groups += 1;
        Ok(s.put)
    }

    /// The blocks of which only ranges are said, as they are: the order of groups is held, so they
    /// stay so.
    async fn bases(&self, group: &Group) -> Result<BTreeMap<u64, Block>, DiskError> {
        self.check_failed()?;
        let blocks = self.shape.blocks;
        let end = group.changes.iter().map(ends_at).max().unwrap_or(0);
        assert!(end <= blocks, "I4: a group goes up to block {end} of a volume of {blocks}");
        let mut bases = BTreeMap::new();
        for change in &group.changes {
            if let Change::Bytes { v, image: None, .. } = change
                && !bases.contains_key(&v.0)
            {
                let read = self.read_virtual(v.0, 1).await?;
                bases.extend(read.into_iter().map(|b| (v.0, b)));
            }
        }
        Ok(bases)
    }
}

/// The block behind the last that it changes.
fn ends_at(change: &Change) -> u64 {
    match change {
        Change::Whole(v, _) | Change::Bytes { v, .. } => v.0 + 1,
        Change::Free(v, n) => v.0.saturating_add(*n),
        Change::Note(_) => 0,
    }
}

fn patched(mut base: Block, ranges: &[(usize, Vec<u8>)]) -> Block {
    let bytes = base.bytes_mut();
    for (at, range) in ranges {
        bytes[*at..at + range.len()].copy_from_slice(range);
    }
    base
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::{FormatOptions, NEAR_BYTES_MIN, NearOptions, OpenOptions};
    use env::{Bucket, Nanos, unless};
    use lfs::Virt;
    use sim::{SimBucket, Trouble, Way};

    /// N1: whoever puts a group may be gone at any of its awaits, those for room in the near log
    /// among them.
    #[test]
    fn a_put_that_is_given_up_is_in_the_near_log_or_nowhere() {
        let mut world = sim::World::new(sim::Image::new(NEAR_BYTES_MIN));
        sim::block_on(&mut world, |env, disk| async move {
            let bucket = SimBucket::new(env.clone(), 1, Trouble::NONE);
            let way = || -> Rc<dyn Bucket> { Rc::new(Way(bucket.machine(None))) };
            let (size_bytes, at_rest) = (1024 * BLOCK_BYTES as u64, Default::default());
            let format = FormatOptions { uuid: [7; 16], size_bytes, force: false, at_rest };
            let making = crate::format(env.clone(), way(), &format).await.unwrap();
            making.finish().await.unwrap();
            let near = Some(NearOptions { disk, name: "near".into(), within: Nanos::from_secs(2) });
            let options = OpenOptions { near, ..OpenOptions::default() };
            let store = Store::open(env.clone(), way(), options).await.unwrap();
            let near = store.inner.near.as_ref().unwrap();
            let is_known = || store.inner.state.borrow().put == near.book.borrow().last;
            let group = Group { changes: vec![Change::Whole(Virt(7), Block::zeroed(BLOCK_BYTES))] };
            store.put(&group).await.unwrap();
            assert!(is_known());
            // Somebody keeps all that is free of the log, as entries do that are being written.
            let mut kept = Vec::new();
            while let Ok(room) = near.client.try_reserve(4096) {
                kept.push(room);
            }
            let put = unless(store.put(&group), env.sleep(Nanos::from_millis(1))).await;
            assert_eq!(put, None, "there is no room");
            assert!(is_known(), "N1: what was taken is not in the near log");
            drop(kept);
            let number = store.put(&group).await.unwrap();
            store.flush_to(number).await.unwrap();
            assert!(is_known());
        });
    }
}

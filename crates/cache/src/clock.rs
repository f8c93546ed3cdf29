//! Which block goes when room is needed: the clock, with a hand for metadata and one for contents.
//! A hand passes over its blocks; one that was not used since its last pass, is clean and is held
//! by nobody, goes. Contents have a bound of their own, because a kernel holds them too, above us
//! (a mount's) or below (the image's pages): a second copy of a long file would only push metadata
//! out. Whether a block is needed it is told.

use crate::{Buf, BufKind, Watch};
use env::IdMap;
use format::BlockNo;
use std::collections::VecDeque;
use std::rc::Rc;

/// The hands.
#[derive(Default)]
pub(crate) struct Clock {
    meta: Hand,
    contents: Hand,
    /// What streams have passed, the first to go first.
    passed: VecDeque<u64>,
}

/// The blocks of one kind, the next to be looked at first. A stream's blocks leave memory before
/// the hand comes to them: it finds their numbers only.
#[derive(Default)]
struct Hand {
    watch: Option<Rc<dyn Watch>>,
    blocks: VecDeque<u64>,
    /// About so many of the numbers are of blocks that are gone.
    gone: usize,
}

/// How many blocks a hand passes at most for one that is wanted, when memory is full, and for one
/// that has come, when there are only more contents than their bound.
const STEPS_FULL: usize = 64;
const STEPS_OVER: usize = 8;
/// How many numbers of blocks that are gone are kept at least before they are looked for.
const GONE_MAX: usize = 16 << 10;

impl Clock {
    pub(crate) fn set_watch(&mut self, watch: &Rc<dyn Watch>) {
        self.meta.watch = Some(watch.clone());
        self.contents.watch = Some(watch.clone());
    }

    pub(crate) fn add(&mut self, block: u64, kind: BufKind) {
        match kind {
            BufKind::Meta => self.meta.blocks.push_back(block),
            BufKind::Data => self.contents.blocks.push_back(block),
        }
    }

    /// Does a hand come to every block? What no hand comes to would stay for ever.
    fn check(&self, map: &IdMap<u64, Buf>) {
        let (known, all) = (self.meta.blocks.len() + self.contents.blocks.len(), map.len());
        assert!(known >= all, "C3: the hands come to {known} blocks of {all} in memory");
    }

    /// A stream has passed this block: it goes when as many as `lag` have been passed after it,
    /// unless somebody has used it since. So a stream needs the memory of those alone, however
    /// long it is.
    pub(crate) fn pass(&mut self, map: &mut IdMap<u64, Buf>, block: u64, lag: usize) {
        self.passed.push_back(block);
        while self.passed.len() > lag {
            let first = self.passed.pop_front().expect("there are more than none");
            let goes = |b: &Buf| b.kind() == BufKind::Data && !b.must_stay() && !b.0.touched.get();
            if map.get(&first).is_some_and(goes) {
                self.contents.let_go(map, first);
                self.contents.has_lost_one(map);
            }
        }
    }

    /// Lets contents go until there are fewer than `bound`. `n` blocks have come: the work is in
    /// proportion, and more may go than have come, because a bound that was wide while much was
    /// dirty becomes narrow at once.
    pub(crate) fn bound_contents(&mut self, map: &mut IdMap<u64, Buf>, bound: usize, n: usize) {
        self.check(map);
        let mut steps = n * STEPS_OVER;
        while self.contents.len() >= bound && steps > 0 {
            steps = self.contents.turn(map, steps).unwrap_or(0);
        }
    }

    /// Lets blocks go until there are fewer than `capacity`; false: too many must stay. Contents
    /// go first while they have more than a quarter of the memory.
    pub(crate) fn make_room(&mut self, map: &mut IdMap<u64, Buf>, capacity: usize) -> bool {
        self.check(map);
        while map.len() >= capacity {
            let contents_first = self.contents.len() >= capacity / 4;
            let (first, second) = match contents_first {
                true => (&mut self.contents, &mut self.meta),
                false => (&mut self.meta, &mut self.contents),
            };
            if first.turn(map, STEPS_FULL).or_else(|| second.turn(map, STEPS_FULL)).is_none() {
                return false;
            }
        }
        true
    }
}

impl Hand {
    /// The block leaves memory: nobody will find its bytes here again.
    fn let_go(&self, map: &mut IdMap<u64, Buf>, block: u64) {
        let Some(b) = map.remove(&block) else { return };
        // The map's share is gone: `b` is the only one.
        assert!(!b.must_stay(), "C3: {b:?} leaves memory, and is held or on its way");
        let listed = b.0.dirty_list.borrow().has(&b);
        assert!(!listed, "C3: {b:?} leaves memory, and must be written");
        assert!(b.0.block.0 == block, "C3: {b:?} was found at {block}");
        if let Some(watch) = &self.watch {
            watch.gone(BlockNo(block));
        }
    }

    fn len(&self) -> usize {
        self.blocks.len().saturating_sub(self.gone)
    }

    /// Moves until a block has gone: the steps that are left of `steps`. None: as many blocks have
    /// stayed.
    fn turn(&mut self, map: &mut IdMap<u64, Buf>, steps: usize) -> Option<usize> {
        for left in (0..steps).rev() {
            let block = self.blocks.pop_front()?;
            let Some(b) = map.get(&block) else {
                self.gone = self.gone.saturating_sub(1);
                continue;
            };
            if !b.must_stay() && !b.0.touched.replace(false) {
                self.let_go(map, block);
                return Some(left);
            }
            self.blocks.push_back(block);
        }
        None
    }

    /// One of its blocks has left memory without it.
    fn has_lost_one(&mut self, map: &IdMap<u64, Buf>) {
        self.gone += 1;
        if self.gone > GONE_MAX + self.blocks.len() / 2 {
            self.blocks.retain(|b| map.contains_key(b));
            self.gone = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{BufKind, Cache, CacheOptions};
    use env::{Block, Disk, DiskError, Durability, Engine, Local, Nanos, Now};
    use format::{BlockNo, Ino};
    use std::rc::Rc;

    /// Takes everything and keeps nothing.
    struct Nowhere;
    impl Disk for Nowhere {
        fn size_bytes(&self) -> u64 {
            1 << 40
        }
        fn read(&self, _: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
            Box::pin(async { Ok(blocks) })
        }
        fn write(&self, _: u64, _: Vec<Block>, _: Durability) -> Local<'_, Result<(), DiskError>> {
            Box::pin(async { Ok(()) })
        }
        fn flush(&self) -> Local<'_, Result<(), DiskError>> {
            Box::pin(async { Ok(()) })
        }
        fn discard(&self, _: u64, _: u64) -> Local<'_, Result<(), DiskError>> {
            Box::pin(async { Ok(()) })
        }
    }

    fn with_cache(
        cache_bytes: usize,
        contents_bytes: usize,
        f: impl FnOnce(&mut Engine, Rc<Cache>),
    ) {
        let (mut engine, mut cache) = (Engine::new(1), None);
        turn(&mut engine, |env| {
            let options = CacheOptions {
                block_bytes: 4096,
                cache_bytes,
                contents_bytes,
                interval: None,
                transfer_bytes_max: 1 << 20,
            };
            cache = Some(Cache::new(env.clone(), Rc::new(Nowhere), options));
        });
        f(&mut engine, cache.expect("the turn made it"));
    }
    fn turn(engine: &mut Engine, f: impl FnOnce(&env::Env)) {
        engine.turn(Now { mono: Nanos(0), wall: Nanos(0) }, &mut Vec::new(), f);
    }

    #[test]
    fn contents_stay_below_their_bound_and_metadata_stays() {
        with_cache(64 << 20, 1 << 20, |_, cache| {
            (0..1000).for_each(|n| drop(cache.get_new(BlockNo(n), BufKind::Meta, Ino(0))));
            (1000..9000).for_each(|n| drop(cache.get_new(BlockNo(n), BufKind::Data, Ino(0))));
            assert_eq!(cache.counts(), (1000 + 256, 0));
            assert!((0..1000).all(|n| cache.is_cached(BlockNo(n))));
        });
    }

    #[test]
    fn what_is_written_back_goes_as_if_it_had_been_read() {
        with_cache(64 << 20, 1 << 20, |engine, cache| {
            for n in 0..8000 {
                cache.get_new(BlockNo(n), BufKind::Data, Ino(7)).mark_dirty();
            }
            assert_eq!(cache.counts(), (8000, 8000), "what is dirty does not go");
            turn(engine, |_| cache.write_behind(cache.dirty_all()));
            let (all, dirty) = cache.counts();
            assert_eq!(dirty, 0);
            assert!(all < 1000, "{all} blocks stay of 8000 that were written");
        });
    }

    #[test]
    fn what_had_to_stay_goes_faster_than_more_comes() {
        with_cache(64 << 20, 1 << 20, |_, cache| {
            let new = |n| cache.get_new(BlockNo(n), BufKind::Data, Ino(7));
            let held: Vec<_> = (0..8000).map(new).collect();
            cache.pass(held.iter());
            assert_eq!(cache.counts().0, 8000, "what is held does not go");
            drop(held);
            (8000..9200).for_each(|n| drop(new(n)));
            assert_eq!(cache.counts().0, 256);
        });
    }

    #[test]
    fn a_stream_needs_little_memory_however_large_the_bound_is() {
        with_cache(400 << 20, 200 << 20, |_, cache| {
            let used: Vec<u64> = (0..1000).collect();
            used.iter().for_each(|&n| drop(cache.get_new(BlockNo(n), BufKind::Data, Ino(1))));
            for n in 1000..60_000 {
                let b = cache.get_new(BlockNo(n), BufKind::Data, Ino(2));
                b.modify(|bytes| bytes[0] = 1); // not the memory that all zeros share
                b.mark_clean();
                cache.pass(std::iter::once(&b));
            }
            let (all, _) = cache.counts();
            assert_eq!(all, used.len() + (16 << 20) / 4096);
            assert!(used.iter().all(|&n| cache.is_cached(BlockNo(n))));
            // The hand finds numbers of blocks that are gone, and gets along.
            (100_000..160_000).for_each(|n| drop(cache.get_new(BlockNo(n), BufKind::Data, Ino(3))));
            assert!(cache.counts().0 <= (200 << 20) / 4096 + 1);
        });
    }

    #[test]
    fn a_stream_does_not_push_out_what_is_used() {
        with_cache(4 << 20, 1 << 20, |_, cache| {
            let used = |n: u64| (n < 100).then(|| cache.get_cached(BlockNo(n)));
            (0..100).for_each(|n| drop(cache.get_new(BlockNo(n), BufKind::Data, Ino(1))));
            for n in 1000..5000 {
                (0..100).for_each(|n| drop(used(n)));
                cache.pass(std::iter::once(&cache.get_new(BlockNo(n), BufKind::Data, Ino(2))));
            }
            assert!((0..100).all(|n| cache.is_cached(BlockNo(n))));
        });
    }
}

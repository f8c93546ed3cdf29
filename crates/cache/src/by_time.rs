//! Write-back by time: what has been dirty for long goes to the disk, and is flushed, though nobody
//! asks and there is room. It says which blocks are due and how often the gate is asked for them;
//! how a block is written it does not know (writeback.rs).
//!
//! Rule        Whatever has changed is durable an interval later, as long as the disk takes no more
//!             than a third of the interval for what is due together; else that comes on top, and a
//!             tick: who keeps the disk busy all the time should have some of it.
//! Terms       *tick*: a third of the interval. They go on while blocks are written. *old*: dirty
//!             since before the last tick but one; what is younger may still be being changed, and
//!             would be written twice.
//! Cost        A flush a tick in which something was written. A block that is changed all the time
//!             is written at every second one.

use crate::writeback::Tick;
use crate::{Buf, Cache};
use env::{DiskError, Nanos};
use std::rc::Rc;

/// So many transfers are asked for together: who makes a file durable meanwhile waits for those,
/// and not for all that is due.
const SHARE: usize = 64;
/// Rounds in which nothing has gone on before the rest is left to the next tick.
const IDLE_ROUNDS_MAX: u32 = 2;

impl Cache {
    /// Starts what writes back by time.
    pub(crate) fn start_by_time(self: &Rc<Self>, interval: Nanos) {
        let cache = self.clone();
        let tick = Nanos((interval.0 / 3).max(1));
        self.env.spawn("ticks", async move {
            let mut next = cache.env.now().plus(tick);
            while !cache.stopping.get() {
                cache.env.sleep_until(next).await;
                let missed = cache.env.now().since(next).0 / tick.0;
                next = next.plus(Nanos(tick.0.saturating_mul(missed + 1)));
                assert!(
                    next > cache.env.now(),
                    "a tick that has passed already, and the next, too"
                );
                let begun = cache.gate.borrow().last_begun();
                // After two, all that is dirty is old.
                (0..(missed + 1).min(2)).for_each(|_| cache.dirty.borrow_mut().advance(begun));
                cache.ticked.wake_all();
            }
        });
        let cache = self.clone();
        self.env.spawn("write-back by time", async move {
            while !cache.stopping.get() {
                cache.ticked.wait().await;
                if !cache.stopping.get() && (cache.counts().1 > 0 || cache.is_unflushed()) {
                    // An error is sticky and has been reported; later callers see it.
                    let _ = cache.write_old().await;
                }
            }
        });
    }

    /// Has something been written since the last flush began? Whoever made room by that did not
    /// wait for one.
    fn is_unflushed(&self) -> bool {
        self.written_in.get() == Some(self.epoch())
    }

    /// Writes what is old and makes it durable, until nothing is or the disk was at it for longer
    /// than a tick: then what is young gets the rest of the next one to become old.
    async fn write_old(self: &Rc<Self>) -> Result<(), DiskError> {
        while self.write_old_at(self.now()).await? {}
        Ok(())
    }

    fn now(&self) -> Tick {
        self.dirty.borrow().tick
    }

    /// Writes what is old at the tick `now`, in as many rounds as the gate needs for that, or until
    /// there is another tick; true: it came between many short rounds, of which more are needed.
    /// What changes meanwhile is left alone: to go on for it would take the disk and the processor
    /// from whoever makes the changes, for as long as they do.
    async fn write_old_at(self: &Rc<Self>, now: Tick) -> Result<bool, DiskError> {
        let gate = self.gate.borrow().clone();
        let last = self.dirty.borrow().begun_before();
        let is_late = |b: &Buf| now.is_late_for(b.0.since.get());
        let mut old = self.dirty_all();
        let mut on_the_way: Vec<Buf> = old.iter().filter(|b| b.is_writing()).cloned().collect();
        old.retain(|b| is_late(b) || gate.behind(b, last) > 0);
        if old.is_empty() && on_the_way.is_empty() && !self.is_unflushed() {
            return Ok(false);
        }
        let late: Vec<Buf> = old.iter().filter(|b| is_late(b)).cloned().collect();
        let (mut before, mut rounds, mut idle) = (usize::MAX, 0, 0);
        loop {
            self.prepare().await;
            self.write_shares(&old).await?;
            // What others have begun to write may be as old; the flush is to cover it, too.
            for b in std::mem::take(&mut on_the_way).iter().filter(|b| b.is_writing()) {
                b.0.changed.wait().await;
            }
            self.flush_device().await?;
            let mut left = 0;
            old.retain(|b| {
                let n = if b.is_dirty() { gate.behind(b, last) } else { 0 };
                left += n;
                n > 0
            });
            (rounds, idle) = (rounds + 1, if left < before { 0 } else { idle + 1 });
            before = left;
            let (over, passed) = (old.is_empty() || idle == IDLE_ROUNDS_MAX, self.now() != now);
            if over || passed {
                self.write_plain(late, now).await?;
                return Ok(!over && rounds > 1);
            }
        }
    }

    /// Writes those that no round has written since they were late, whatever has to be left out:
    /// something in them is due that needs no order. Not before the rounds: most are written there
    /// with what waits in them, and would be twice.
    async fn write_plain(self: &Rc<Self>, late: Vec<Buf>, now: Tick) -> Result<(), DiskError> {
        let mut left = late;
        left.retain(|b| b.is_dirty() && now.is_late_for(b.0.since.get().min(now)));
        if left.is_empty() {
            return Ok(());
        }
        let gate = self.gate.borrow().clone();
        gate.force(&left, true);
        let written = self.write_shares(&left).await;
        gate.force(&left, false);
        written?;
        if self.is_unflushed() { self.flush_device().await } else { Ok(()) }
    }

    /// Writes the blocks, which are in order, some transfers of neighbours at a time.
    async fn write_shares(self: &Rc<Self>, bufs: &[Buf]) -> Result<(), DiskError> {
        let sorted = bufs.is_sorted_by(|a, b| a.block() < b.block());
        assert!(sorted, "neighbours are not found among blocks that are in no order");
        let is_next = |a: &Buf, b: &Buf| a.block().plus(1) == b.block();
        let runs = bufs.chunk_by(is_next).flat_map(|run| run.chunks(self.transfer_blocks()));
        let transfers: Vec<&[Buf]> = runs.collect();
        for share in transfers.chunks(SHARE) {
            self.write(share.concat()).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BYTES, Journal};
    use crate::{Begun, BufKind, CacheOptions, FlushEpoch, Image, WriteGate};
    use env::{Engine, Env, Now};
    use format::{BlockNo, Ino};
    use std::cell::Cell;

    /// A volume with ticks of 100 ms, and its clock.
    struct Run {
        engine: Engine,
        disk: Rc<Journal>,
        cache: Rc<Cache>,
    }

    impl Run {
        fn new(write_ms: u64) -> Run {
            let (mut engine, mut made) = (Engine::new(1), None);
            engine.turn(Now { mono: Nanos(0), wall: Nanos(0) }, &mut Vec::new(), |env| {
                let disk = Rc::new(Journal::slow(env, Nanos::from_millis(write_ms)));
                let options = CacheOptions {
                    block_bytes: BYTES,
                    cache_bytes: 64 * BYTES,
                    contents_bytes: usize::MAX,
                    interval: Some(Nanos::from_millis(300)),
                    transfer_bytes_max: BYTES,
                };
                made = Some((disk.clone(), Cache::new(env.clone(), disk, options)));
            });
            let (disk, cache) = made.expect("the turn made it");
            cache.start();
            Run { engine, disk, cache }
        }
        fn turn(&mut self, ms: u64, f: impl FnOnce(&Env)) {
            let mono = Nanos::from_millis(ms);
            self.engine.turn(Now { mono, wall: mono }, &mut Vec::new(), |env| f(env));
        }
        fn change(&self, n: u64) {
            self.cache.get_new(BlockNo(n), BufKind::Meta, Ino(0)).modify(|b| b[0] += 1);
        }
    }

    /// One block is changed all the time, the other once.
    #[test]
    fn what_is_dirty_is_written_at_the_second_tick_and_no_block_at_each() {
        let mut run = Run::new(0);
        let cache = run.cache.clone();
        let bufs = [1, 2].map(|n| cache.get_new(BlockNo(n), BufKind::Meta, Ino(0)));
        let change = |n: usize| bufs[n - 1].modify(|b| b[0] += 1);
        let mut written = Vec::new();
        for ms in 1..=650 {
            run.turn(ms, |_| {
                if ms % 10 == 5 {
                    change(1);
                }
                if ms == 105 {
                    change(2);
                }
            });
            written.extend(run.disk.written.take().into_iter().map(|block| (block, ms)));
        }
        // Block 1 is dirty from 5 ms on, block 2 from just after the tick at 101 ms; what is dirty
        // again after a write has two ticks once more.
        assert_eq!(written, [(1, 201), (2, 301), (1, 401), (1, 601)]);
    }

    /// Block 9 becomes dirty just after a pass that takes longer than the interval has begun.
    #[test]
    fn who_is_written_for_long_makes_nobody_younger() {
        let mut run = Run::new(350);
        let mut written = Vec::new();
        for ms in 1..=1500 {
            match ms {
                5 => run.change(1),
                205 => run.change(9),
                _ => (),
            }
            run.turn(ms, |_| ());
            written.extend(run.disk.written.take().into_iter().map(|block| (block, ms)));
        }
        let done = written.iter().find(|w| w.0 == 9).map(|w| w.1);
        // The pass of 201 ms ends at 551; block 9 has been old since 401, the next tick is at 601.
        assert_eq!(done, Some(951));
    }

    /// Who writes much waits for room and for no flush; then nothing is dirty, and nobody comes.
    #[test]
    fn what_was_written_to_make_room_is_flushed_too() {
        let mut run = Run::new(0);
        (0..20).for_each(|n| run.change(n));
        let cache = run.cache.clone();
        run.turn(5, |env| env.spawn("writer", async move { cache.throttle().await }));
        run.turn(6, |_| ());
        assert!(run.cache.counts().1 <= 8 && run.disk.unflushed.get() > 0, "room was made");
        (7..=700).for_each(|ms| run.turn(ms, |_| ()));
        assert_eq!((run.cache.counts().1, run.disk.unflushed.get()), (0, 0));
    }

    /// Block 0 has a chain of changes, each of which may be written when the one before is durable,
    /// and something that needs no order; block 1 has what may not be written yet at all.
    #[derive(Default)]
    struct Chain {
        left: Cell<usize>,
        waves: Cell<usize>,
        forced: Cell<bool>,
        plain: Cell<u32>,
    }

    impl WriteGate for Chain {
        fn behind(&self, b: &Buf, _: Begun) -> usize {
            if b.block().0 == 0 { self.left.get() } else { 0 }
        }
        fn force(&self, bufs: &[Buf], on: bool) {
            if bufs.iter().any(|b| b.block().0 == 1) {
                self.forced.set(on);
            }
        }
        fn before_write(&self, b: &Buf) -> Image {
            match (b.block().0, self.left.get()) {
                (1, _) if self.forced.get() => Image::Instead(b.image()),
                (1, _) => Image::NotYet,
                (_, 0 | 1) => Image::AsIs,
                _ => Image::Instead(b.image()),
            }
        }
        fn after_write(&self, b: &Buf, _: &Image, _: Result<(), &DiskError>, _: FlushEpoch) {
            match b.block().0 {
                0 => self.waves.set(self.waves.get() + 1),
                _ => self.plain.set(self.plain.get() + 1),
            }
        }
        fn flushed(&self, _: FlushEpoch) {
            self.left.set(self.left.get().saturating_sub(self.waves.take()));
        }
    }

    /// Names that are moved to and fro in one directory are such a chain.
    #[test]
    fn a_chain_as_long_as_you_like_is_written_in_one_pass() {
        let mut run = Run::new(0);
        let gate = Rc::new(Chain::default());
        gate.left.set(40);
        run.cache.set_gate(gate.clone());
        run.change(0);
        (1..=250).for_each(|ms| run.turn(ms, |_| ()));
        assert_eq!((gate.left.get(), run.cache.counts().1), (0, 0));
    }

    /// A change of the mode, in a block of inodes in which a younger one may not be seen yet.
    #[test]
    fn what_needs_no_order_does_not_wait_for_its_neighbours() {
        let mut run = Run::new(0);
        let gate = Rc::new(Chain::default());
        run.cache.set_gate(gate.clone());
        run.change(1);
        (1..=250).for_each(|ms| run.turn(ms, |_| ()));
        assert_eq!(gate.plain.get(), 1);
        // Nothing else has changed in it since.
        (251..=390).for_each(|ms| run.turn(ms, |_| ()));
        assert_eq!(gate.plain.get(), 1);
    }

    /// Block 2 waits for block 3: forced, it would be written without what waits in it.
    #[derive(Default)]
    struct Pair {
        first_written: Cell<bool>,
        first_durable: Cell<bool>,
        forced: Cell<bool>,
        second_written: Cell<bool>,
    }

    impl WriteGate for Pair {
        fn behind(&self, b: &Buf, _: Begun) -> usize {
            usize::from(b.block().0 == 2 && !self.second_written.get())
        }
        fn force(&self, bufs: &[Buf], on: bool) {
            self.forced.set(on && bufs.iter().any(|b| b.block().0 == 2));
        }
        fn before_write(&self, b: &Buf) -> Image {
            match (b.block().0 == 2 && !self.first_durable.get(), self.forced.get()) {
                (false, _) => Image::AsIs,
                (true, true) => Image::Instead(b.image()),
                (true, false) => Image::NotYet,
            }
        }
        fn after_write(&self, b: &Buf, _: &Image, _: Result<(), &DiskError>, _: FlushEpoch) {
            let written = if b.block().0 == 2 { &self.second_written } else { &self.first_written };
            written.set(true);
        }
        fn flushed(&self, _: FlushEpoch) {
            self.first_durable.set(self.first_written.get());
        }
    }

    /// A block of inodes waits for its block of bits, and is written when that is durable.
    #[test]
    fn what_a_later_round_writes_is_not_written_before_it() {
        let mut run = Run::new(0);
        run.cache.set_gate(Rc::new(Pair::default()));
        (2..=3).for_each(|n| run.change(n));
        (1..=650).for_each(|ms| run.turn(ms, |_| ()));
        assert_eq!(run.disk.written.take(), [3, 2]);
    }
}

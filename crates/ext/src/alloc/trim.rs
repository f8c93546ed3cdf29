//! Trimming: the disk is told which blocks nobody needs, so that a solid-state disk or a sparse
//! image gets them back (`fstrim`). It knows neither how a disk forgets blocks nor who asks.
//!
//! Rule        A discard is a write that may show as anything, to blocks that the allocator could
//!             give to a file at this very moment, and does not give to any until it has ended.
//! Invariants  T1 what is discarded is free, and its being free is durable: the mechanism allows
//!             its reuse.
//!             T2 one run at a time is kept from the allocator, from before its discard is asked
//!             for until it has ended; whoever finds no other room waits for it.
//!             T3 no read or write of a block is under way while it is discarded.
//! Recovery    none: a discard that a crash cuts off has changed free blocks only.
//! Cost        a request for each free run of up to 64 MiB; a group in which nothing was freed
//!             since it was trimmed is passed over, unless something in it was not to be had then.

use super::search::usable;
use crate::Ext;
use crate::group::Group;
use env::sync::{Lock, LockGuard};
use format::ext::bitmap::{next_one, next_zero};
use format::{BlockNo, Extent, GroupNo};
use integrity::Freed;
use std::cell::Cell;
use std::ops::Range;
use ufs::store::{StoreInfo, Syncs};
use vfs::FsError;

/// A longer run is discarded in several requests.
const BYTES_AT_ONCE: u64 = 64 << 20;

/// Planted bug: what is free is discarded even if a crash could bring it back to life.
pub(crate) const DISCARDED_EARLY: &str = "discarded-before-free-is-durable";

/// What is being discarded.
#[derive(Default)]
pub(crate) struct Trimming {
    /// Held while a run is.
    turn: Lock,
    run: Cell<Option<Extent>>,
}

impl Trimming {
    /// Is any of these blocks being discarded (T2)?
    pub(crate) fn meets(&self, e: Extent) -> bool {
        let apart = |r: Extent| r.start.0 + r.len <= e.start.0 || e.start.0 + e.len <= r.start.0;
        self.run.get().is_some_and(|r| !apart(r))
    }

    /// Nothing is discarded as long as the guard lives.
    pub(crate) async fn pause(&self) -> LockGuard {
        let guard = self.turn.lock().await;
        assert!(self.run.get().is_none(), "T2: a run is kept, and nobody discards it");
        guard
    }
}

/// Ends the keeping of a run, also if whoever asked has gone.
struct Kept<'a>(&'a Trimming);
impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.run.set(None);
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
struct Ask<'a> {
    /// Shorter runs are left alone.
    least: u64,
    /// Is it to end before the next run?
    stop: &'a dyn Fn() -> bool,
}

impl Ext {
    /// Discards what is free among these blocks, in runs of at least `least`. Returns how many
    /// blocks. Errors: `NotSupported` where the disk cannot; `Io`.
    pub(crate) async fn trim_blocks(
        &self,
        among: Range<u64>,
        least: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<u64, FsError> {
        // What was freed until now is to be trimmed too (T1).
        if self.mechanism.has_busy_extents() && !self.plant.is(DISCARDED_EARLY) {
            self.sync_all().await?;
        }
        self.trim_groups(among, Ask { least, stop }, |_| true).await
    }

    /// The same in all groups in which something was freed. What may not be used again yet is left
    /// for the next time, and nothing is made durable for it.
    pub(crate) async fn trim_what_was_freed(
        &self,
        least: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<u64, FsError> {
        self.trim_groups(0..u64::MAX, Ask { least, stop }, |g| g.freed).await
    }

    async fn trim_groups(
        &self,
        among: Range<u64>,
        ask: Ask<'_>,
        wanted: impl Fn(&Group) -> bool,
    ) -> Result<u64, FsError> {
        self.surveyed().await;
        let mut trimmed = 0;
        for g in (0..self.geo.groups).map(GroupNo) {
            let start = self.geo.group_start(g).0;
            let end = start + u64::from(self.geo.group_blocks(g));
            let bits = among.start.max(start)..among.end.min(end);
            if bits.is_empty() {
                continue;
            }
            {
                let (groups, new) = (self.groups.borrow(), Group::new(0));
                let group = groups.known(g).unwrap_or(&new);
                let is_done = group.trimmed.is_some_and(|before| before <= ask.least);
                if is_done || !wanted(group) {
                    continue;
                }
            }
            // Whatever is freed from now on takes this away again.
            let all = (bits == (start..end)).then_some(ask.least);
            self.learn(g, |group| group.trimmed = all);
            let bits = (bits.start - start) as usize..(bits.end - start) as usize;
            let did = self.trim_group(g, bits, ask).await;
            if did.is_err() {
                self.to_be_trimmed_again(g);
            }
            trimmed += did?;
        }
        Ok(trimmed)
    }

    /// Not all that is free in the group was discarded.
    fn to_be_trimmed_again(&self, g: GroupNo) {
        self.learn(g, |group| group.trimmed = None);
    }

    async fn trim_group(
        &self,
        g: GroupNo,
        bits: Range<usize>,
        ask: Ask<'_>,
    ) -> Result<u64, FsError> {
        let (mut at, mut trimmed) = (bits.start, 0);
        loop {
            if (ask.stop)() {
                self.to_be_trimmed_again(g);
                break;
            }
            let least = ask.least.max(1);
            let Some((e, next)) = self.trim_run(g, at..bits.end, least).await? else { break };
            trimmed += e;
            at = next;
            self.env.yield_now().await;
        }
        Ok(trimmed)
    }

    /// The next run: how many blocks of it were discarded, and where the search goes on.
    async fn trim_run(
        &self,
        g: GroupNo,
        bits: Range<usize>,
        least: u64,
    ) -> Result<Option<(u64, usize)>, FsError> {
        let map = self.block_map(g).await?;
        let _inside = self.still.enter().await; // whoever allocates is inside before he waits
        let _turn = self.trimming.pause().await;
        self.writable()?;
        let most = (BYTES_AT_ONCE / self.block_bytes() as u64) as usize;
        let group_start = self.geo.group_start(g);
        let extent = |bit: usize, len: usize| {
            let start = group_start.plus(bit as u64);
            Extent { start, len: len as u64 }
        };
        let Some(first) = next_zero(&map.bytes(), bits.start, bits.end) else { return Ok(None) };
        let limit = (first + most).min(bits.end);
        let stop = next_one(&map.bytes(), first, limit).unwrap_or(limit);
        let early = self.plant.is(DISCARDED_EARLY);
        let (bit, len) = usable(first, stop - first, |bit, len| {
            early || self.mechanism.may_reuse(Freed::Blocks(extent(bit, len)))
        });
        if bit > first || len == 0 {
            self.to_be_trimmed_again(g); // when it may be used again (T1)
        }
        if len == 0 {
            return Ok(Some((0, stop)));
        }
        // A run is cut into pieces, of which none is longer.
        if (len as u64) < least.min(most as u64) {
            return Ok(Some((0, bit + len)));
        }
        let end = bit + len;
        assert!(bits.start <= bit && end <= bits.end, "T1: {bit} to {end} was not asked for");
        let e = extent(bit, len);
        assert!(!self.meets_system(e.start, e.len), "T1: {e:?} are the volume's own blocks");
        let other = self.trimming.run.replace(Some(e));
        assert!(other.is_none(), "T2: {e:?} and {other:?} are kept at one time");
        let kept = Kept(&self.trimming);
        let done = self.discard(e).await;
        drop(kept);
        // Searches that passed it over may find it again.
        self.learn(g, |group| group.cursor = group.cursor.min(bit));
        done?;
        Ok(Some((e.len, bit + len)))
    }

    async fn discard(&self, e: Extent) -> Result<(), FsError> {
        let blocks = (e.start.0..e.start.0 + e.len).map(BlockNo);
        self.cache.await_idle(blocks.clone()).await;
        self.writable()?; // a write that was under way has failed: memory may still have it
        for b in blocks.filter_map(|b| self.cache.get_cached(b)) {
            let idle = !b.is_writing() && !b.is_dirty();
            assert!(idle, "T3: {b:?} is discarded, and was to be written");
        }
        let bytes = self.block_bytes() as u64;
        self.cache.disk().discard(e.start.0 * bytes, e.len * bytes).await.map_err(|error| {
            if error.kind == env::DiskErrorKind::Unsupported {
                return FsError::NotSupported;
            }
            tracing::warn!("trimming: {error}");
            FsError::Io
        })
    }
}

//! Space: allocating ahead, punching holes, zeroing ranges, and finding data and holes.

use super::{Ctx, Done, LockGuard};
use crate::Ufs;
use crate::inode::Inode;
use crate::store::{Fill, PunchStep, Run, Store, Transaction};
use format::FileBlock;
use format::ufs::inode::InodeMut;
use integrity::{Change, Credits};
use std::ops::Range;
use std::rc::Rc;
use vfs::access::{WRITE, owners};
use vfs::{FsError, Reply, SeekKind, SpaceOp};

/// Runs allocated in one transaction.
const RUNS: u64 = 8;
/// Blocks allocated in one transaction.
const STEP: u64 = 256;
/// What a hole edits beside its blocks: the inode, and parts of blocks at its ends.
const BESIDE: Credits = Credits::to_free(16);
/// The same where blocks are allocated ahead in its place: [`RUNS`] of them besides.
const BESIDE_ZEROS: Credits = Credits::blocks(16 + 64);

/// A hole that is to be punched.
pub(super) struct Hole {
    /// Parts of blocks at its ends.
    pub(super) edges: Vec<(FileBlock, Range<usize>)>,
    /// The whole blocks.
    pub(super) blocks: Range<FileBlock>,
    /// How these go: at least one step.
    pub(super) steps: Vec<PunchStep>,
    /// Do those stay that were allocated ahead, and are zeros?
    pub(super) keeps_zeros: bool,
}

impl<S: Store> Ufs<S> {
    pub(super) async fn space(
        &self,
        ctx: &mut Ctx,
        ino: u32,
        op: SpaceOp,
        offset: u64,
        len: u64,
    ) -> Done {
        let inode = self.inode(ino).await?;
        let end = offset.checked_add(len).ok_or(FsError::FileTooBig)?;
        if len == 0 {
            return Err(FsError::Invalid);
        }
        self.check_size(&inode, end)?;
        self.permit(ctx, &inode, WRITE).await?;
        let locks = self.lock(&[&inode]).await?;
        let size = inode.size();
        let only_adds = matches!(op, SpaceOp::Allocate { .. });
        self.check_contents(&inode, if only_adds { size } else { offset })?;
        self.leave_inode(ctx, &inode).await?;
        let beyond = end > size;
        let unwritten = self.store.has_unwritten(&inode.h);
        match op {
            // The layout keeps no blocks beyond a file's end: e2fsck would call them a mistake.
            SpaceOp::Allocate { keep_size: true } if beyond && !unwritten => {
                return Err(FsError::NotSupported);
            }
            // As on Linux's ext3; posix_fallocate then writes by itself.
            SpaceOp::Allocate { .. } if !unwritten && !self.store.guarantees().allocates_ahead => {
                return Err(FsError::NotSupported);
            }
            _ => (),
        }
        self.store.writable()?;
        if op != SpaceOp::PunchHole {
            self.store.allow_size(end).await?;
        }
        let zeros = unwritten && matches!(op, SpaceOp::ZeroRange { .. });
        let hole = match op {
            SpaceOp::Allocate { .. } => None,
            SpaceOp::PunchHole | SpaceOp::ZeroRange { .. } if offset >= size => None,
            _ => Some(self.hole(&inode, offset..end.min(size), zeros).await?),
        };
        let need = hole.as_ref().map_or(Credits::blocks(64), |h| h.steps[0].need);
        let mut txn = self.begin(ctx, need).await?;
        let done = match op {
            SpaceOp::Allocate { keep_size } if unwritten => {
                self.preallocate(&mut txn, &inode, offset..end, keep_size).await
            }
            SpaceOp::Allocate { .. } => self.allocate(&mut txn, &inode, offset, end).await,
            SpaceOp::PunchHole => self.punch(&mut txn, &inode, hole).await,
            SpaceOp::ZeroRange { keep_size } if unwritten => {
                self.zero_range(&mut txn, &inode, hole, (offset..end, keep_size)).await
            }
            SpaceOp::ZeroRange { keep_size } => match self.punch(&mut txn, &inode, hole).await {
                Ok(()) => self.zero_behind(&mut txn, &inode, end, keep_size).await,
                Err(e) => Err(e),
            },
        };
        let reply = self.end_written(ctx, &inode, txn, locks, done).await?;
        self.end_lengthened(ctx, &inode, inode.size() > size).await?;
        Ok(reply)
    }

    /// What ends a change of a file's contents, or undoes one that failed: times and mode, as
    /// after a write.
    pub(super) async fn end_written(
        &self,
        ctx: &mut Ctx,
        inode: &Rc<Inode>,
        mut txn: S::Txn,
        locks: Vec<LockGuard>,
        done: Result<(), FsError>,
    ) -> Done {
        if let Err(e) = done {
            return self.abandon(txn, locks, e).await;
        }
        self.touch_changed(&mut txn, &inode.h);
        let kill = ctx.cred.uid != 0;
        let mode = owners::mode_after_write(&self.attr(&inode.h), &ctx.cred, kill);
        inode.h.edit(&mut txn, Change::Attr(inode.ino()), |raw| {
            InodeMut(raw).set_mode(mode as u16);
        });
        let reply = Reply::Attr(self.attr(&inode.h));
        self.finish(ctx, txn, locks).await?;
        Ok(reply)
    }

    /// Blocks for every hole of the range that need no zeros; the file grows to its end, if it is
    /// to.
    async fn preallocate(
        &self,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
        range: Range<u64>,
        keep_size: bool,
    ) -> Result<(), FsError> {
        let bs = self.store.limits().block_bytes as u64;
        assert!(inode.lock.is_busy(), "U15: room for {}, which is not locked", inode.ino());
        let (mut at, last, size) = (range.start / bs, range.end.div_ceil(bs), inode.size());
        if range.end > size && !keep_size {
            self.zero_tail(txn, inode, size).await?;
        }
        let mut steps = 0;
        while at < last {
            let n = self.store.preallocate(txn, &inode.h, FileBlock(at), last - at).await?;
            assert!((1..=last - at).contains(&n), "U9: {n} blocks are allocated ahead at {at}");
            at += n;
            // What is allocated belongs to the file at once, in case the rest does not fit.
            let reached = (at * bs).min(range.end);
            if reached > inode.size() && !keep_size {
                self.grow_to(txn, inode, reached);
            }
            steps += 1;
            if steps % RUNS == 0 && at < last {
                self.store.renew(txn, Credits::blocks(64)).await?;
            }
        }
        Ok(())
    }

    /// Zeroed blocks for every hole of the range; the file grows to its end.
    async fn allocate(
        &self,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
    ) -> Result<(), FsError> {
        let bs = self.store.limits().block_bytes as u64;
        let mut at = offset / bs;
        let last = end.div_ceil(bs);
        let size = inode.size();
        if end > size {
            self.zero_tail(txn, inode, size).await?;
        }
        while at < last {
            let run = self.run_at(inode, FileBlock(at), last - at).await?;
            let n = if run.start.is_some() {
                run.len
            } else {
                let want = run.len.min(STEP);
                let whole = (Fill::Whole, Fill::Whole);
                let bufs =
                    self.store.write_blocks(txn, &inode.h, FileBlock(at), want, whole).await?;
                for b in &bufs {
                    b.mark_dirty(); // new blocks are zeros, and share the memory of one
                    txn.data(inode.ino(), b, 0..bs as usize);
                }
                let n = bufs.len() as u64;
                assert!((1..=want).contains(&n), "U9: {n} blocks are allocated, for {want}");
                if last - at > STEP {
                    self.store.write_behind(&inode.h, FileBlock(at), n);
                }
                // What is allocated belongs to the file at once, in case the rest does not fit.
                let reached = ((at + n) * bs).min(end);
                if reached > inode.size() {
                    self.grow_to(txn, inode, reached);
                }
                self.store.renew(txn, Credits::blocks(64)).await?;
                n
            };
            at += n;
        }
        if end > inode.size() {
            self.grow_to(txn, inode, end);
        }
        Ok(())
    }

    fn grow_to(&self, txn: &mut S::Txn, inode: &Inode, size: u64) {
        let was = inode.size();
        assert!(inode.lock.is_busy(), "U15: {} grows, and is not locked", inode.ino());
        assert!(size > was, "U15: {} grows from {was} to {size} bytes", inode.ino());
        inode.h.edit(txn, Change::Grow(inode.ino()), |raw| InodeMut(raw).set_size(size));
    }

    /// What a hole over these bytes, which the file has, is made of. The blocks at its edges are
    /// zeroed with its first step. `zeros`: others are allocated ahead in the place of its blocks.
    async fn hole(
        &self,
        inode: &Inode,
        Range { start: offset, end }: Range<u64>,
        zeros: bool,
    ) -> Result<Hole, FsError> {
        let bs = self.store.limits().block_bytes as u64;
        let size = inode.size();
        let (first, last) = (offset.div_ceil(bs), end / bs);
        // The file's last, partial block goes too when the hole reaches the file's end.
        let last = if end == size { size.div_ceil(bs) } else { last };
        let mut edges = Vec::new();
        let within = |b: u64, from: u64, to: u64| (FileBlock(b), from as usize..to as usize);
        if first > last || (first == last && !offset.is_multiple_of(bs) && offset / bs == end / bs)
        {
            edges.push(within(offset / bs, offset % bs, end - offset / bs * bs));
        } else {
            if !offset.is_multiple_of(bs) {
                edges.push(within(offset / bs, offset % bs, bs));
            }
            if end / bs >= last && !end.is_multiple_of(bs) {
                edges.push(within(end / bs, 0, end % bs));
            }
        }
        let inside = edges.iter().all(|(_, r)| r.start < r.end && r.end as u64 <= bs);
        assert!(inside, "U9: a hole from {offset} to {end} takes {edges:?} of blocks");
        let blocks = FileBlock(first)..FileBlock(last.max(first));
        let beside = if zeros { BESIDE_ZEROS } else { BESIDE };
        let steps = self.store.punch_steps(&inode.h, blocks.clone(), beside).await?;
        let come_to_end = steps.last().is_some_and(|s| s.to == blocks.end)
            && steps.is_sorted_by(|a, b| a.to < b.to);
        assert!(come_to_end, "U9: steps {steps:?} for a hole at {blocks:?}");
        Ok(Hole { edges, blocks, steps, keeps_zeros: zeros })
    }

    /// Punches a hole that was planned with the inode locked.
    pub(super) async fn punch(
        &self,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
        hole: Option<Hole>,
    ) -> Result<(), FsError> {
        let Some(Hole { edges, blocks, steps, keeps_zeros }) = hole else { return Ok(()) };
        assert!(inode.lock.is_busy(), "U15: a hole in {}, which is not locked", inode.ino());
        for (block, range) in edges {
            self.zero_in_block(txn, inode, block, range).await?;
        }
        let mut at = blocks.start;
        for (i, step) in steps.iter().enumerate() {
            if i > 0 {
                self.store.env().yield_now().await; // a long hole lets others in
                self.store.renew(txn, step.need).await?;
            }
            match keeps_zeros {
                true => self.punch_written(txn, inode, at..step.to).await?,
                false => self.store.punch(txn, &inode.h, at, step.to).await?,
            }
            at = step.to;
        }
        assert_eq!(at, blocks.end, "U9: where a hole in {} ends", inode.ino());
        Ok(())
    }

    /// Where the file's block lies, and how far that goes on: a block at least, or nothing would
    /// come to its end.
    async fn run_at(&self, inode: &Inode, at: FileBlock, max: u64) -> Result<Run, FsError> {
        let run = self.store.map(&inode.h, at, max).await?;
        assert!((1..=max).contains(&run.len), "U9: {run:?} at {at}, for {max} blocks");
        Ok(run)
    }

    /// Frees what is not zeros already of a step.
    async fn punch_written(
        &self,
        txn: &mut S::Txn,
        inode: &Inode,
        Range { start: mut at, end }: Range<FileBlock>,
    ) -> Result<(), FsError> {
        while at < end {
            let run = self.run_at(inode, at, end.0 - at.0).await?;
            let next = at.plus(run.len);
            if run.start.is_some() {
                self.store.punch(txn, &inode.h, at, next).await?;
            }
            at = next;
        }
        Ok(())
    }

    /// Zeros that cost none: others that were never written take the place of a range's blocks, and
    /// of its holes. These come first, so that a volume without room for them refuses before any
    /// contents have gone.
    async fn zero_range(
        &self,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
        hole: Option<Hole>,
        (range, keep_size): (Range<u64>, bool),
    ) -> Result<(), FsError> {
        let Some(mut hole) = hole else {
            return self.preallocate(txn, inode, range, keep_size).await;
        };
        let (held, room) = (|| self.attr(&inode.h).blocks, self.has_room_for(range.clone()).await);
        let before = held();
        self.preallocate(txn, inode, range.clone(), true).await?;
        if held() != before {
            // What it was to edit besides is used up, and what was planned knows nothing of what
            // lies in the holes now.
            hole = self.hole(inode, range.start..range.end.min(inode.size()), true).await?;
            self.store.renew(txn, hole.steps[0].need).await?;
        }
        match room {
            true => self.punch(txn, inode, Some(hole)).await?,
            false => self.write_zeros(txn, inode, hole).await?,
        }
        self.preallocate(txn, inode, range, keep_size).await
    }

    /// Is there room for all blocks of the range beside those it has? What goes cannot be used
    /// again before it is durable that it is gone.
    async fn has_room_for(&self, range: Range<u64>) -> bool {
        let bs = self.store.limits().block_bytes as u64;
        range.end.div_ceil(bs) - range.start / bs <= self.store.statfs().await.available
    }

    /// Zeros over a range's written blocks, in as many transactions as there are writes: what a
    /// full volume has no others for.
    async fn write_zeros(
        &self,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
        Hole { edges, blocks, .. }: Hole,
    ) -> Result<(), FsError> {
        let bs = self.store.limits().block_bytes as u64;
        let most = (self.store.guarantees().write_bytes_max / bs).clamp(1, STEP);
        for (block, range) in edges {
            self.zero_in_block(txn, inode, block, range).await?;
        }
        let mut at = blocks.start;
        while at < blocks.end {
            let run = self.run_at(inode, at, most.min(blocks.end.0 - at.0)).await?;
            let mut n = run.len;
            if run.start.is_some() {
                let data_bytes = run.len * bs;
                let need = Credits { data_bytes, ..Credits::blocks(16 + run.len / 64) };
                self.store.renew(txn, need).await?;
                let whole = (Fill::Whole, Fill::Whole);
                let bufs = self.store.write_blocks(txn, &inode.h, at, run.len, whole).await?;
                for b in &bufs {
                    b.modify(|b| b.fill(0));
                    txn.data(inode.ino(), b, 0..bs as usize);
                }
                n = bufs.len() as u64;
                assert!((1..=run.len).contains(&n), "U9: {n} blocks are zeroed, of {run:?}");
                self.store.write_behind(&inode.h, at, n);
            }
            at = at.plus(n);
        }
        self.store.renew(txn, Credits::blocks(64)).await
    }

    /// The file is to be zeros up to `end`, which may be behind its end.
    async fn zero_behind(
        &self,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
        end: u64,
        keep_size: bool,
    ) -> Result<(), FsError> {
        let size = inode.size();
        if end > size && !keep_size {
            self.zero_tail(txn, inode, size).await?;
            self.grow_to(txn, inode, end);
        }
        Ok(())
    }

    pub(super) async fn seek(&self, ino: u32, kind: SeekKind, offset: u64) -> Done {
        let inode = self.inode(ino).await?;
        let _shared = self.lock_shared(&inode).await?;
        let size = inode.size();
        if offset >= size {
            return Err(FsError::NoSuchOffset);
        }
        if inode.with(|i| i.is_inline()) {
            return Ok(Reply::Offset(if kind == SeekKind::Data { offset } else { size }));
        }
        let bs = self.store.limits().block_bytes as u64;
        let (mut at, last) = (offset / bs, size.div_ceil(bs));
        while at < last {
            let run = self.run_at(&inode, FileBlock(at), last - at).await?;
            if run.start.is_some() == (kind == SeekKind::Data) {
                return Ok(Reply::Offset((at * bs).max(offset).min(size)));
            }
            at += run.len;
        }
        match kind {
            SeekKind::Hole => Ok(Reply::Offset(size)),
            SeekKind::Data => Err(FsError::NoSuchOffset),
        }
    }
}

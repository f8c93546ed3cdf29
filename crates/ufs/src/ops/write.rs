//! Writing contents. Whole blocks of the payload are taken over by the cache as they are; parts of
//! blocks are copied in. The size grows in the same transaction as the pointers.

use super::{Ctx, Done};
use crate::Ufs;
use crate::inode::Inode;
use crate::store::{Fill, Store, Transaction};
use cache::Buf;
use env::Rope;
use format::FileBlock;
use format::ufs::inode::{FLAG_APPEND, InodeMut, Which};
use integrity::{Change, Credits};
use std::rc::Rc;
use vfs::access::{WRITE, owners};
use vfs::{FsError, Reply, Stability, TRANSFER_BYTES_MAX};

/// The bits of a mode by which a program runs as its owner, or as its group.
const SET_IDS: u16 = 0o6000;

/// A write, as it is asked for.
pub(super) struct Write {
    pub(super) offset: u64,
    pub(super) data: Rope,
    pub(super) stability: Stability,
    pub(super) append: bool,
    pub(super) kill_suid: bool,
}

impl<S: Store> Ufs<S> {
    /// Writes all of it, as often as an operation is cut short.
    pub(super) async fn write_whole(&self, ctx: &mut Ctx, ino: u32, w: Write) -> Done {
        let inode = self.inode(ino).await?;
        let done = self.has_already(&inode, &w).await?;
        if done > 0 && done == w.data.len() {
            if w.stability != Stability::Unstable {
                self.fsync(ino, false).await?;
            }
            let (len, attr) = (done as u32, self.attr(&inode.h));
            return Ok(Reply::Written { len, stability: w.stability, attr });
        }
        self.write_parts(ctx, ino, w, (done, true)).await
    }

    /// Writes what is behind its first `done` bytes, as often as an operation is cut short; less
    /// only if the rest is refused. `or_none`: then all of it is.
    pub(super) async fn write_parts(
        &self,
        ctx: &mut Ctx,
        ino: u32,
        w: Write,
        (mut done, or_none): (usize, bool),
    ) -> Done {
        let mut last = None;
        loop {
            let (offset, data) = (w.offset + done as u64, w.data.behind(done));
            let part = Write { offset, data, ..w };
            let mut reply = match (self.write(ctx, ino, part).await, last) {
                (Ok(reply), _) => reply,
                // Of the rest the next write is told.
                (Err(_), Some(reply)) if !or_none => return Ok(reply),
                (Err(e), _) => return Err(e),
            };
            let Reply::Written { len, .. } = &mut reply else { return Ok(reply) };
            let n = *len as usize;
            done += n;
            *len = done as u32;
            if n == 0 || done == w.data.len() {
                return Ok(reply);
            }
            last = Some(reply);
        }
    }

    /// How many of the write's first bytes a file that can only be appended to has there already. A
    /// kernel with a write-back cache sends the whole page to which something was appended.
    async fn has_already(&self, inode: &Rc<Inode>, w: &Write) -> Result<usize, FsError> {
        let only_grows = inode.with(|i| i.is_file() && i.flags() & FLAG_APPEND != 0);
        if !only_grows || w.append {
            return Ok(0);
        }
        let _shared = self.lock_shared(inode).await?;
        let len = inode.size().saturating_sub(w.offset).min(w.data.len() as u64);
        let there = self.read_rope(inode, w.offset, len).await?;
        let mut head = w.data.clone();
        head.truncate(len as usize);
        Ok(if head.to_vec() == there.to_vec() { len as usize } else { 0 })
    }

    pub(super) async fn write(&self, ctx: &mut Ctx, ino: u32, w: Write) -> Done {
        let inode = self.inode(ino).await?;
        if inode.is_dir() {
            return Err(FsError::IsDir);
        }
        if !inode.with(|i| i.is_file()) {
            return Err(FsError::Invalid);
        }
        if self.permit_owner(ctx, &inode).is_err() {
            self.permit(ctx, &inode, WRITE).await?;
        }
        self.store.writable()?;
        if !w.data.is_empty() {
            self.check_write(&inode, &w)?; // what is refused takes nothing away
            self.drop_capability(ctx, &inode).await?;
            self.drop_set_ids(ctx, &inode, w.kill_suid).await?;
        }
        let locks = self.lock(&[&inode]).await?;
        let before = self.pre(&inode);
        ctx.wcc[0] = self.wcc(ctx, Some(before), &inode);
        let (offset, most) = self.check_write(&inode, &w)?;
        let mut data = w.data;
        data.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        if data.is_empty() {
            drop(locks);
            let attr = self.attr(&inode.h);
            return Ok(Reply::Written { len: 0, stability: Stability::FileSync, attr });
        }
        let bs = self.store.limits().block_bytes as u64;
        let blocks = (offset + data.len() as u64).div_ceil(bs) - offset / bs;
        let stable = w.stability != Stability::Unstable;
        let moves = inode.with(|i| i.is_inline());
        let data_bytes = data.len() as u64 + if moves { inode.size() } else { 0 };
        let need = Credits { data_bytes, stable, ..Credits::blocks(16 + blocks / 64) };
        self.store.allow_size(offset + data.len() as u64).await?;
        let mut txn = self.begin(ctx, need).await?;
        let put = self.put(&mut txn, &inode, offset, &data).await;
        let n = match put {
            Ok(n) => n,
            Err(e) => return self.abandon(txn, locks, e).await,
        };
        let mode = owners::mode_after_write(&self.attr(&inode.h), &ctx.cred, w.kill_suid);
        self.note_write(&mut txn, &inode, offset + n as u64, mode);
        ctx.wcc[0] = self.wcc(ctx, Some(before), &inode);
        let attr = self.attr(&inode.h);
        let ended = self.store.end(txn).await;
        let behind =
            inode.behind.borrow_mut().note(offset, n as u64, bs, TRANSFER_BYTES_MAX as u64);
        if let Some((first, count)) = behind {
            self.store.write_behind(&inode.h, FileBlock(first), count);
        }
        drop(locks);
        self.store.returned(ended?, false).await?;
        if stable {
            self.wait_for_changes(&inode).await;
            self.sync_file(&inode, w.stability == Stability::DataSync).await?;
        }
        Ok(Reply::Written { len: n as u32, stability: w.stability, attr })
    }

    /// Before somebody's bytes come into a program that runs as its owner: that it does so is over,
    /// durably, as contents may be on the disk before the mode that is set with them. The caller
    /// may write, and has no lock.
    async fn drop_set_ids(
        &self,
        ctx: &mut Ctx,
        inode: &Rc<Inode>,
        asked: bool,
    ) -> Result<(), FsError> {
        let stays = |mode: u32| mode == self.attr(&inode.h).mode;
        let mode = || owners::mode_after_write(&self.attr(&inode.h), &ctx.cred, asked);
        if !asked || inode.with(|i| i.mode()) & SET_IDS == 0 || stays(mode()) {
            return Ok(());
        }
        let locks = self.lock(&[inode]).await?;
        let mut txn = self.store.begin(Credits::blocks(2)).await?;
        let same = self.store.xattr_pointer(&inode.h);
        Self::put_mode(&mut txn, &inode.h, mode() as u16, (same, same));
        let ended = self.store.end(txn).await?;
        drop(locks);
        self.store.returned(ended, true).await
    }

    /// Where the write begins, and the most bytes that it may have.
    fn check_write(&self, inode: &Inode, w: &Write) -> Result<(u64, u64), FsError> {
        let offset = if w.append { inode.size() } else { w.offset };
        self.check_contents(inode, offset)?;
        let max = self.store.bytes_max(&inode.h);
        if offset >= max && !w.data.is_empty() {
            return Err(FsError::FileTooBig);
        }
        Ok((offset, (max - offset.min(max)).min(self.store.guarantees().write_bytes_max)))
    }

    fn note_write(&self, txn: &mut S::Txn, inode: &Inode, end: u64, mode: u32) {
        let most = self.store.bytes_max(&inode.h);
        assert!(inode.lock.is_busy(), "U15: {} has grown, and is not locked", inode.ino());
        assert!(end <= most, "U9: {} is written up to {end}, of {most}", inode.ino());
        let other = mode ^ u32::from(inode.with(|i| i.mode()));
        let kept = other & 0o7777 & !u32::from(SET_IDS) == 0;
        assert!(kept, "U14: a write gives {} the mode {mode:o}", inode.ino());
        if end > inode.size() {
            inode.h.edit(txn, Change::Grow(inode.ino()), |raw| InodeMut(raw).set_size(end));
        }
        let now = self.now();
        inode.h.edit(txn, Change::Attr(inode.ino()), |raw| {
            let mut i = InodeMut(raw);
            i.set_time(Which::Modify, now);
            i.set_time(Which::Change, now);
            i.set_mode(mode as u16);
        });
    }

    /// Puts the bytes into blocks; how many found a place.
    async fn put(
        &self,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
        offset: u64,
        data: &Rope,
    ) -> Result<usize, FsError> {
        assert!(inode.lock.is_busy(), "U15: {} is written, and is not locked", inode.ino());
        if self.write_inline(txn, &inode.h, offset, data).await? {
            return Ok(data.len());
        }
        let bs = self.store.limits().block_bytes as u64;
        let size = inode.size();
        if offset > size {
            self.zero_tail(txn, inode, size).await?;
        }
        let end = offset + data.len() as u64;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let first = at / bs;
            let count = end.div_ceil(bs) - first;
            // A block that reaches to the file's end or beyond need not be read for its tail.
            let head = if at.is_multiple_of(bs) { Fill::Whole } else { Fill::Keep };
            let tail = if end.is_multiple_of(bs) || end >= size { Fill::Whole } else { Fill::Keep };
            let fill = match count {
                1 if head == Fill::Keep || tail == Fill::Keep => (Fill::Keep, Fill::Keep),
                _ => (head, tail),
            };
            let bufs = self.store.write_blocks(txn, &inode.h, FileBlock(first), count, fill).await;
            let bufs = match bufs {
                Ok(b) => b,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            };
            let n = bufs.len() as u64;
            assert!((1..=count).contains(&n), "U9: {n} blocks to write into, for {count}");
            for buf in &bufs {
                let start = (offset + done as u64) % bs;
                let n = (bs - start).min((data.len() - done) as u64) as usize;
                put_block(buf, data, done, start as usize, n);
                txn.data(inode.ino(), buf, start as usize..start as usize + n);
                done += n;
            }
            if txn.is_spent() {
                break; // the rest is another write
            }
        }
        let some = (1..=data.len()).contains(&done);
        assert!(some, "U9: {done} bytes of {} were written to {}", data.len(), inode.ino());
        Ok(done)
    }
}

/// Puts `n` bytes of `data`, from its byte `from` on, at `start` of the block.
fn put_block(buf: &Buf, data: &Rope, from: usize, start: usize, n: usize) {
    let block_len = buf.bytes().len();
    if n == block_len
        && let Some(whole) = whole_block(data, from, n)
    {
        buf.replace(whole);
        return;
    }
    buf.modify(|b| data.copy_range(from, &mut b[start..start + n]));
}

/// The piece of the payload that is just this block.
fn whole_block(data: &Rope, from: usize, n: usize) -> Option<env::Block> {
    let mut at = 0;
    for (block, range) in data.blocks() {
        if at == from {
            return (range.start == 0 && range.len() == n && block.len() == n)
                .then(|| block.clone());
        }
        at += range.len();
        if at > from {
            return None;
        }
    }
    None
}

//! Reading contents: clones of the cache's blocks, counted and not copied. A file that is read from
//! front to back is read ahead.

use super::{Ctx, Done};
use crate::Ufs;
use crate::inode::Inode;
use crate::store::Store;
use cache::Buf;
use env::{Block, Rope};
use format::FileBlock;
use format::ufs::inode::{InodeMut, Which};
use integrity::{Change, Credits};
use std::rc::Rc;
use vfs::access::{EXECUTE, READ};
use vfs::{AccessTimes, FsError, Reply, TRANSFER_BYTES_MAX};

/// The furthest that is read ahead.
const AHEAD_BYTES: u64 = 4 << 20;

impl<S: Store> Ufs<S> {
    pub(super) async fn read(&self, ctx: &Ctx, ino: u32, offset: u64, len: u32) -> Done {
        let inode = self.inode(ino).await?;
        if inode.is_dir() {
            return Err(FsError::IsDir);
        }
        if !inode.with(|i| i.is_file()) {
            return Err(FsError::Invalid);
        }
        if ctx.cred.check && self.permit_owner(ctx, &inode).is_err() {
            // Over NFS a program that may be executed must also be readable.
            let may = self.permit(ctx, &inode, READ).await;
            if may.is_err() {
                self.permit(ctx, &inode, EXECUTE).await?;
            }
        }
        let _shared = self.lock_shared(&inode).await?;
        let size = inode.size();
        let len = u64::from(len).min(TRANSFER_BYTES_MAX as u64).min(size.saturating_sub(offset));
        let data = self.read_rope(&inode, offset, len).await?;
        self.note_access(&inode).await;
        let eof = offset.saturating_add(len) >= size;
        Ok(Reply::Data { data, eof, attr: self.attr(&inode.h) })
    }

    pub(super) async fn read_rope(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        len: u64,
    ) -> Result<Rope, FsError> {
        let mut rope = Rope::new();
        if len == 0 {
            return Ok(rope);
        }
        let bs = self.store.limits().block_bytes as u64;
        let first = offset / bs;
        let count = (offset + len).div_ceil(bs) - first;
        let file_blocks = inode.size().div_ceil(bs);
        let ahead = inode.ahead.borrow_mut().note(first, count, file_blocks, AHEAD_BYTES / bs);
        let is_stream = inode.ahead.borrow().is_stream(AHEAD_BYTES / bs);
        let at = FileBlock(first);
        let cached = self.store.read_blocks_cached(&inode.h, at, count);
        if let (Some((from, n)), true) = (ahead, cached.is_none() || count < file_blocks) {
            self.store.read_ahead(&inode.h, FileBlock(from), n).await;
        }
        let bufs = match cached {
            Some(b) => b,
            None => self.store.read_blocks(&inode.h, at, count).await?,
        };
        if is_stream {
            self.store.pass(&bufs);
        }
        assert_eq!(bufs.len() as u64, count, "U9: blocks to read from inode {}", inode.ino());
        let mut skip = (offset % bs) as usize;
        let mut left = len as usize;
        let zero = bufs.iter().any(Option::is_none).then(|| Block::zeroed(bs as usize));
        for b in bufs {
            let n = left.min(bs as usize - skip);
            let block = match &b {
                Some(buf) => Buf::image(buf),
                None => zero.clone().expect("made for the holes"),
            };
            rope.push(block, skip..skip + n);
            left -= n;
            skip = 0;
        }
        assert_eq!(left, 0, "U9: bytes that were not read from inode {}", inode.ino());
        Ok(rope)
    }

    /// Keeps the time of access, if it is to be kept.
    async fn note_access(&self, inode: &Rc<Inode>) {
        let now = self.now();
        let due = match self.access_times.get() {
            AccessTimes::Never => false,
            AccessTimes::Always => true,
            AccessTimes::Relative => inode.with(|i| {
                let at = i.time(Which::Access).unwrap_or_default();
                let changed = i.time(Which::Modify).max(i.time(Which::Change)).unwrap_or_default();
                at <= changed || now.0 - at.0 >= 24 * 3600
            }),
        };
        // A read waits for no room, nor until the volume does not stand still for a copy any more:
        // the next one keeps the time.
        let need = Credits::to_free(1);
        if !due || self.store.writable().is_err() || !self.store.begins_at_once(&need) {
            return;
        }
        let Ok(mut txn) = self.store.begin(need).await else { return };
        inode.h.edit(&mut txn, Change::Attr(inode.ino()), |raw| {
            InodeMut(raw).set_time(Which::Access, now);
        });
        // Nobody waits for a time of access; an error is the next writer's to hear.
        let _ = self.store.end(txn).await;
    }
}

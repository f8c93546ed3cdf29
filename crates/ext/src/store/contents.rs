//! The blocks of files, as the operations ask for them. Which of the two kinds of map a file has is
//! asked here, once for each call; the kinds themselves are crate::map's.

use crate::Ext;
use crate::map::data_error;
use cache::{Buf, BufKind};
use format::ufs::inode::{FLAG_VALUE, InodeRef};
use format::{FileBlock, FormatError};
use integrity::{Credits, Txn};
use std::ops::Range;
use ufs::InodeHandle;
use ufs::store::{Contents, Fill, PunchStep, Run};
use vfs::FsError;

impl Contents for Ext {
    async fn map(&self, inode: &InodeHandle, at: FileBlock, max: u64) -> Result<Run, FsError> {
        self.find(inode, at, max).await
    }
    async fn read_blocks(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Result<Vec<Option<Buf>>, FsError> {
        if let Some(bufs) = self.inline_blocks(inode, at, count)? {
            return Ok(bufs);
        }
        let mut bufs = Vec::with_capacity(count as usize);
        while (bufs.len() as u64) < count {
            let done = bufs.len() as u64;
            let run = self.map(inode, at.plus(done), count - done).await?;
            match run.start {
                None => bufs.extend((0..run.len).map(|_| None)),
                Some(start) => {
                    let read = self.cache.get_run(start, run.len, BufKind::Data).await;
                    bufs.extend(read.map_err(|e| data_error(&e))?.into_iter().map(Some));
                }
            }
        }
        Ok(bufs)
    }
    fn read_blocks_cached(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Option<Vec<Option<Buf>>> {
        if let Some(bufs) = self.inline_blocks(inode, at, count).ok()? {
            return Some(bufs);
        }
        let mut bufs = Vec::with_capacity(count as usize);
        while (bufs.len() as u64) < count {
            let done = bufs.len() as u64;
            let run = self.find_cached(inode, at.plus(done), count - done)?;
            for i in 0..run.len {
                bufs.push(match run.start {
                    None => None,
                    Some(b) => Some(self.cache.get_cached(b.plus(i))?),
                });
            }
        }
        Some(bufs)
    }
    async fn read_ahead(&self, inode: &InodeHandle, at: FileBlock, count: u64) {
        let mut done = 0;
        while done < count {
            let Ok(run) = self.map(inode, at.plus(done), count - done).await else { return };
            if let Some(start) = run.start {
                self.cache.prefetch(start, run.len, BufKind::Data);
            }
            done += run.len;
        }
    }
    fn pass(&self, bufs: &[Option<Buf>]) {
        self.cache.pass(bufs.iter().flatten());
    }
    fn write_behind(&self, inode: &InodeHandle, at: FileBlock, count: u64) {
        if self.is_inline(inode) {
            return;
        }
        if let Some(bufs) = self.read_blocks_cached(inode, at, count) {
            self.cache.write_behind(bufs.into_iter().flatten().collect());
        }
    }
    async fn write_blocks(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
        fill: (Fill, Fill),
    ) -> Result<Vec<Buf>, FsError> {
        assert!(!self.is_inline(inode), "blocks of inode {}, which has none", inode.ino);
        if inode.with(|raw| InodeRef(raw).flags() & FLAG_VALUE != 0) {
            let what = "it holds an attribute's value, and is written".to_owned();
            return Err(self.damage(&FormatError::corrupt(what, format!("inode {}", inode.ino))));
        }
        let bufs = match self.has_extents(inode) {
            true => self.tree_blocks(txn, inode, at, count, fill).await?,
            false => self.blocks_for_write(txn, inode, at, count, fill).await?,
        };
        let (n, ino) = (bufs.len() as u64, inode.ino);
        assert!((1..=count).contains(&n), "M3: {n} blocks of inode {ino} for {count}");
        Ok(bufs)
    }
    fn bytes_max(&self, inode: &InodeHandle) -> u64 {
        self.file_bytes_max(inode)
    }
    fn has_unwritten(&self, inode: &InodeHandle) -> bool {
        self.has_extents(inode)
    }
    async fn preallocate(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Result<u64, FsError> {
        self.tree_preallocate(txn, inode, at, count).await
    }
    async fn allow_size(&self, size: u64) -> Result<(), FsError> {
        self.allow_large(size).await
    }
    async fn truncate(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        from: FileBlock,
    ) -> Result<(), FsError> {
        if self.drop_inline(txn, inode, from) {
            return Ok(());
        }
        if self.has_extents(inode) {
            return self.tree_cut(txn, inode, from).await;
        }
        self.cut(txn, inode, from).await
    }
    async fn punch_steps(
        &self,
        inode: &InodeHandle,
        range: Range<FileBlock>,
        beside: Credits,
    ) -> Result<Vec<PunchStep>, FsError> {
        self.steps_of_punch(inode, range, beside).await
    }
    async fn punch(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError> {
        if self.has_extents(inode) {
            return self.tree_punch(txn, inode, from, to).await;
        }
        self.punch_blocks(txn, inode, from, to).await
    }
    async fn check_shift(
        &self,
        inode: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError> {
        if !self.has_extents(inode) {
            return Err(FsError::NotSupported);
        }
        self.check_tree_shift(inode, from, to).await
    }
    async fn shift(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError> {
        self.shift_tree(txn, inode, from, to).await
    }
    async fn move_out(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError> {
        self.move_inline_out(txn, inode).await
    }
}

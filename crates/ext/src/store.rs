//! The layout as the operations see it: each call of [`ufs::Store`], delegating to the file that
//! does it.

use crate::Ext;
use crate::alloc::{Goal, Runs};
use crate::map::data_error;
use crate::plants::{LEAF_IN_TWO, NOT_RENEWED};
use cache::{Buf, BufKind, Role};
use check::live::Watch;
use env::Env;
use format::ext::extents::BLOCKS_MAX;
use format::ext::features::{incompat, ro_compat};
use format::ext::inode::{FLAG_VALUE, InodeRef};
use format::ext::map::file_bytes_max;
use format::ext::xattr::Elsewhere;
use format::{BlockNo, FileBlock, FormatError, Ino};
use integrity::{Change, Credits, Ended, FileScope, Guarantees, InitKind, Scope, Txn};
use std::ops::Range;
use ufs::store::{Fill, PunchStep, Run};
use ufs::{InodeHandle, Limits, Store};
use vfs::{FsError, Kind, StatFs};

/// ext2 counts links in 16 bits and keeps some distance; so do we, for its sake.
const LINKS_MAX: u32 = 32_000;
/// So many ext4 counts, and of directories on volumes that allow it, no more.
const EXT4_LINKS_MAX: u32 = 65_000;

impl Store for Ext {
    fn env(&self) -> &Env {
        &self.env
    }
    fn watch(&self) -> Option<&Watch> {
        Some(&self.watch)
    }
    fn is_unseen(&self, ino: Ino) -> bool {
        self.mechanism.is_unseen(ino)
    }
    fn has_busy_extents(&self) -> bool {
        self.mechanism.has_busy_extents()
    }
    fn limits(&self) -> Limits {
        let uncounted = self.sb.borrow().has_ro_compat(ro_compat::DIR_NLINK);
        Limits {
            block_bytes: self.block_bytes(),
            inode_bytes: self.geo.inode_bytes,
            first_ino: self.geo.first_ino,
            file_bytes_max: match self.geo.extents {
                true => BLOCKS_MAX * self.block_bytes() as u64,
                false => file_bytes_max(self.block_bytes()),
            },
            links_max: if uncounted { EXT4_LINKS_MAX } else { LINKS_MAX },
            uncounted_dirs: uncounted,
            dir_tail: self.geo.sums.dir_tail(),
            index_rules: self.rules,
            entry_kinds: self.sb.borrow().has_incompat(incompat::FILETYPE),
            inline_data: self.geo.inline_data,
            value_inodes: self.sb.borrow().has_incompat(incompat::EA_INODE),
        }
    }
    fn guarantees(&self) -> Guarantees {
        self.mechanism.guarantees()
    }
    fn writable(&self) -> Result<(), FsError> {
        let stopped = self.read_only.get() || self.damaged.get() || self.cache.failure().is_some();
        if stopped { Err(FsError::ReadOnly) } else { Ok(()) }
    }
    fn corrupt(&self, e: &FormatError) -> FsError {
        self.damage(e)
    }

    async fn begin(&self, need: Credits) -> Result<Txn, FsError> {
        self.writable()?;
        let inside = self.still.enter().await;
        let mut txn = self.begin_inside(need).await?;
        txn.inside = Some(inside);
        Ok(txn)
    }
    async fn renew(&self, txn: &mut Txn, need: Credits) -> Result<(), FsError> {
        let (reserve, inside) = (txn.reserve, txn.inside.take());
        if !self.plant.is(NOT_RENEWED) {
            self.seal(txn);
        }
        let ended = txn.end_early().await;
        self.watch.ends(txn.number);
        ended.map_err(|e| self.failed(&e))?;
        // An operation of several steps stays one for who waits until none is under way.
        *txn = self.begin_inside(need).await?;
        (txn.reserve, txn.inside) = (reserve, inside);
        Ok(())
    }
    async fn end(&self, txn: Txn) -> Result<Ended, FsError> {
        if txn.is_over() {
            return Err(FsError::Io); // why, was said when it could not be renewed
        }
        let mut txn = txn;
        self.seal(&mut txn);
        let (number, _inside) = (txn.number, txn.inside.take());
        let ended = self.mechanism.end(txn).await;
        self.watch.ends(number);
        ended.map_err(|e| self.failed(&e))
    }
    async fn returned(&self, ended: Ended, durable: bool) -> Result<(), FsError> {
        self.mechanism.durable(ended).await.map_err(|e| self.failed(&e))?;
        if durable {
            let synced = self.mechanism.sync(Scope::Txn(ended)).await;
            synced.map_err(|e| self.failed(&e))?;
        }
        Ok(())
    }
    async fn sync_inodes(&self, inodes: &[InodeHandle], data_only: bool) -> Result<(), FsError> {
        let files =
            inodes.iter().map(|h| FileScope { ino: h.ino, inode_block: h.buf.block() }).collect();
        let scope = Scope::Files { files, data_only };
        self.mechanism.sync(scope).await.map_err(|e| self.failed(&e))
    }
    async fn sync_all(&self) -> Result<(), FsError> {
        self.mechanism.sync(Scope::All).await.map_err(|e| self.failed(&e))
    }
    async fn quiesce(&self) -> Result<(), FsError> {
        let done = self.cache.write_all().await;
        done.map_err(|e| self.failed(&e.into()))
    }

    async fn inode(&self, ino: Ino) -> Result<InodeHandle, FsError> {
        let h = self.slot(ino).await?;
        self.check_inode(&h)?;
        Ok(h)
    }
    fn inode_cached(&self, ino: Ino) -> Option<InodeHandle> {
        let h = self.slot_cached(ino)?;
        self.check_inode(&h).ok()?;
        Some(h)
    }
    async fn alloc_inode(
        &self,
        txn: &mut Txn,
        parent: &InodeHandle,
        kind: Kind,
    ) -> Result<InodeHandle, FsError> {
        self.new_inode(txn, parent, kind).await
    }
    async fn free_inode(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError> {
        self.release_inode(txn, inode).await
    }
    async fn orphan_add(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError> {
        self.orphan_push(txn, inode);
        Ok(())
    }
    async fn orphan_remove(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError> {
        self.orphan_drop(txn, inode);
        Ok(())
    }

    async fn orphans(&self) -> Result<Vec<InodeHandle>, FsError> {
        self.load_orphans().await
    }

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
        if self.has_extents(inode) {
            return self.tree_blocks(txn, inode, at, count, fill).await;
        }
        self.blocks_for_write(txn, inode, at, count, fill).await
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

    async fn move_out(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError> {
        self.move_inline_out(txn, inode).await
    }

    async fn dir_block(&self, inode: &InodeHandle, at: FileBlock) -> Result<Buf, FsError> {
        match self.dir_block_judged(inode, at).await? {
            (buf, None) => Ok(buf),
            (_, Some(e)) => Err(self.damage(&e)),
        }
    }
    async fn dir_block_judged(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
    ) -> Result<(Buf, Option<FormatError>), FsError> {
        if let Some(buf) = self.inline_dir(inode)? {
            return Ok((buf, None));
        }
        let run = self.map(inode, at, 1).await?;
        let Some(start) = run.start else {
            let what = format!("a directory has a hole at its block {at}");
            let place = format!("inode {}", inode.ino);
            return Err(self.damage(&FormatError::corrupt(what, place)));
        };
        let read = self.cache.get(start, BufKind::Meta).await;
        let buf = read.map_err(|e| self.unreadable(&e))?;
        buf.set_owner(inode.ino);
        self.mark(&buf, Role::Dir(self.generation(inode)));
        if let Some(seed) = self.seed_of(inode).filter(|_| !buf.is_checked(0)) {
            let checked = seed.check_dir(start, &buf.bytes());
            if let Err(e) = checked {
                return Ok((buf, Some(e)));
            }
        }
        buf.set_checked(0);
        Ok((buf, None))
    }
    async fn dir_grow(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        contents: &[u8],
    ) -> Result<Buf, FsError> {
        if self.has_extents(inode) {
            return self.tree_dir_block(txn, inode, at, contents).await;
        }
        let (leaf, taken) = self.leaf_for_write(txn, inode, at).await?;
        if leaf.pointer(0) != BlockNo(0) {
            let what = format!("a directory has a block {at}, beyond its end");
            let place = format!("inode {}", inode.ino);
            return Err(self.damage(&FormatError::corrupt(what, place)));
        }
        let block = match taken {
            Some(block) => block,
            None => self.block_for_dir(txn, inode, self.goal(inode, &leaf, at)).await?,
        };
        let buf = self.put_dir_block(txn, inode, block, contents);
        self.set_pointer(txn, inode, &leaf, 0, buf.block());
        self.count_sectors(txn, inode, 1);
        Ok(buf)
    }
    async fn amid_split(&self, txn: &mut Txn) -> Result<(), FsError> {
        if self.plant.is(LEAF_IN_TWO) { self.in_two(txn).await } else { Ok(()) }
    }
    async fn dir_swap(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        contents: &[u8],
    ) -> Result<Buf, FsError> {
        if self.has_extents(inode) {
            let old = self.map(inode, at, 1).await?.start.ok_or(FsError::Corrupt)?;
            let goal = Goal::In(self.geo.group_of(old));
            let buf = self.new_dir_block(txn, inode, goal, contents).await?;
            self.tree_put_one(txn, inode, at, buf.block()).await?;
            self.free_blocks(txn, Runs::one(old, 1)).await?;
            return Ok(buf);
        }
        let (leaf, _) = self.leaf_for_write(txn, inode, at).await?;
        let old = leaf.pointer(0);
        self.check_pointer(inode.ino, old, "a block")?;
        let goal = Goal::In(self.geo.group_of(old));
        let buf = self.new_dir_block(txn, inode, goal, contents).await?;
        self.set_pointer(txn, inode, &leaf, 0, buf.block());
        self.free_blocks(txn, Runs::one(old, 1)).await?;
        Ok(buf)
    }

    async fn value_elsewhere(
        &self,
        inode: &InodeHandle,
        at: Elsewhere,
    ) -> Result<Vec<u8>, FsError> {
        self.value_of_inode(inode, at).await
    }
    async fn make_value(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        named: (&[u8], &[u8]),
    ) -> Result<Elsewhere, FsError> {
        self.new_value(txn, inode, named).await
    }
    async fn use_value(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: Elsewhere,
        more: bool,
    ) -> Result<(), FsError> {
        self.count_user(txn, inode, at, more).await
    }
    async fn unmake_values(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        made: &[Elsewhere],
    ) -> Result<(), FsError> {
        self.free_made(txn, inode, made).await
    }
    fn count_values(&self, txn: &mut Txn, inode: &InodeHandle, blocks: i64) {
        self.count_sectors(txn, inode, blocks);
    }
    async fn xattr_block(&self, inode: &InodeHandle) -> Result<Option<Buf>, FsError> {
        self.attributes(inode).await
    }
    async fn set_xattr_block(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        contents: Option<&[u8]>,
    ) -> Result<bool, FsError> {
        self.set_attributes(txn, inode, contents).await
    }
    async fn leave_xattr_block(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<bool, FsError> {
        self.leave_attributes(txn, inode).await
    }

    fn label(&self) -> String {
        self.sb.borrow().label()
    }
    async fn set_label(&self, label: &str) -> Result<(), FsError> {
        self.put_label(label).await
    }

    fn statfs(&self) -> StatFs {
        // In a thin volume, what its store has room for.
        let room = self.mechanism.space_left().unwrap_or(u64::MAX);
        let free = self.free_blocks.get();
        StatFs {
            block_bytes: self.block_bytes() as u32,
            blocks: self
                .geo
                .blocks
                .saturating_sub(self.overhead + u64::from(self.geo.first_data_block)),
            free: free.min(room),
            available: free.saturating_sub(self.reserved.get()).min(room),
            inodes: u64::from(self.geo.inodes()),
            inodes_free: self.free_inodes.get(),
            name_bytes_max: 255,
        }
    }
    async fn trim(
        &self,
        among: Range<u64>,
        least: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<u64, FsError> {
        self.trim_blocks(among, least, stop).await
    }
    async fn trim_freed(&self, least: u64, stop: &dyn Fn() -> bool) -> Result<u64, FsError> {
        self.trim_what_was_freed(least, stop).await
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let s = self.cache.stats();
        let (blocks, dirty) = self.cache.counts();
        let mut all = vec![
            ("cairn_cache_hits_total", s.hits.get()),
            ("cairn_cache_misses_total", s.misses.get()),
            ("cairn_disk_reads_total", s.reads.get()),
            ("cairn_disk_writes_total", s.writes.get()),
            ("cairn_blocks_written_total", s.blocks_written.get()),
            ("cairn_home_bytes_total", s.blocks_written.get() * self.block_bytes() as u64),
            ("cairn_flushes_total", s.flushes.get()),
            ("cairn_free_blocks", self.free_blocks.get()),
            ("cairn_free_inodes", self.free_inodes.get()),
            ("cairn_cache_blocks", blocks as u64),
            ("cairn_cache_capacity_blocks", self.cache.capacity() as u64),
            ("cairn_dirty_bytes", dirty as u64 * self.block_bytes() as u64),
        ];
        all.extend(self.mechanism.counters());
        all.extend(self.watch.counters());
        all
    }
}

impl Ext {
    /// A transaction of who has entered.
    async fn begin_inside(&self, need: Credits) -> Result<Txn, FsError> {
        self.cache.throttle().await;
        let begun = self.mechanism.begin(need).await;
        let mut txn = begun.map_err(|e| self.failed(&e))?;
        txn.number = self.watch.begins();
        Ok(txn)
    }

    /// A new block at the end of a directory with an extent tree.
    async fn tree_dir_block(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        contents: &[u8],
    ) -> Result<Buf, FsError> {
        let goal = self.goal_of_dir_block(inode, at);
        let buf = self.new_dir_block(txn, inode, goal, contents).await?;
        if let Err(e) = self.tree_put_one(txn, inode, at, buf.block()).await {
            self.free_blocks(txn, Runs::one(buf.block(), 1)).await?;
            return Err(e);
        }
        self.count_sectors(txn, inode, 1);
        Ok(buf)
    }

    async fn new_dir_block(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        goal: Goal,
        contents: &[u8],
    ) -> Result<Buf, FsError> {
        let block = self.block_for_dir(txn, inode, goal).await?;
        Ok(self.put_dir_block(txn, inode, block, contents))
    }

    async fn block_for_dir(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        goal: Goal,
    ) -> Result<BlockNo, FsError> {
        let e = match self.has_extents(inode) {
            true => self.alloc_blocks(txn, goal, 1).await?,
            false => self.alloc_for_pointers(txn, goal, 1).await?,
        };
        Ok(e.start)
    }

    /// What a directory's new block, or a long symlink's, holds.
    fn put_dir_block(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        block: BlockNo,
        contents: &[u8],
    ) -> Buf {
        let buf = self.cache.get_new(block, BufKind::Meta, inode.ino);
        // A link's text, and an attribute's value, have no checksum in their blocks.
        let is_text =
            inode.with(|raw| InodeRef(raw).is_symlink() || InodeRef(raw).flags() & FLAG_VALUE != 0);
        if !is_text {
            self.mark(&buf, Role::Dir(self.generation(inode)));
        }
        let kind = if is_text { InitKind::Symlink } else { InitKind::Dir };
        let init = Change::InitBlock { ino: inode.ino, kind };
        txn.edit(&buf, 0..self.block_bytes(), init, |b| b.copy_from_slice(contents));
        buf
    }
}

//! A store in memory: inodes and blocks in maps, no bitmaps, no log, no disk. It is the smallest
//! thing that the operations run over, and it watches them: what they begin they end, what they
//! change is announced, and what nobody needs any more they give back.

use cache::{Buf, BufKind, Cache, CacheOptions, FlushEpoch, Image, WriteGate};
use env::{Block, Disk, DiskError, Durability, Env, Local};
use format::ufs::dirent;
use format::ufs::dirhash::IndexRules;
use format::ufs::inode::{FREED, InodeMut, InodeRef, free};
use format::{BlockNo, FileBlock, Ino, ROOT_INO};
use integrity::{Change, Credits, Edit, Ended, Freed, Guarantees, InitKind, Integrity};
use integrity::{IntegrityError, Pressure, Scope, Txn, TxnId};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::{Rc, Weak};
use ufs::store::*;
use ufs::{InodeHandle, Limits};
use vfs::{FsError, Kind, StatFs};

pub const BLOCK: usize = 1024;
const INODE: usize = 256;

/// No disk: nothing is ever written back.
struct Nowhere;

impl Disk for Nowhere {
    fn size_bytes(&self) -> u64 {
        u64::MAX / 2
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

/// No protection; it counts what is open.
struct Unsafe {
    me: Weak<Unsafe>,
    open: RefCell<BTreeSet<TxnId>>,
    last: Cell<TxnId>,
    releases_behind: bool,
    /// Do others get their turn when an operation has begun?
    pauses: Cell<bool>,
    env: Env,
}

impl WriteGate for Unsafe {
    fn before_write(&self, _: &Buf) -> Image {
        Image::AsIs
    }
    fn after_write(&self, _: &Buf, _: &Image, _: Result<(), &DiskError>, _: FlushEpoch) {}
    fn flushed(&self, _: FlushEpoch) {}
}

impl Integrity for Unsafe {
    fn atomic(&self) -> bool {
        true
    }
    fn releases_behind(&self) -> bool {
        self.releases_behind
    }
    fn wants_before(&self, _: &Change) -> bool {
        false
    }
    fn begin(&self, need: Credits) -> Local<'_, Result<Txn, IntegrityError>> {
        Box::pin(async move {
            let id = self.last.get().next();
            self.last.set(id);
            self.open.borrow_mut().insert(id);
            if self.pauses.get() {
                self.env.yield_now().await;
            }
            Ok(Txn::new(self.me.upgrade().unwrap(), id, need.blocks))
        })
    }
    fn change(&self, txn: &mut Txn, _: Edit) {
        assert!(self.open.borrow().contains(&txn.id), "an edit outside an operation");
    }
    fn data(&self, txn: &mut Txn, _: Ino, _: &Buf, _: Range<usize>) {
        assert!(self.open.borrow().contains(&txn.id), "contents outside an operation");
    }
    fn end(&self, txn: Txn) -> Local<'_, Result<Ended, IntegrityError>> {
        assert!(self.open.borrow_mut().remove(&txn.id), "an operation ends once");
        Box::pin(async move { Ok(txn.id.into()) })
    }
    fn durable(&self, _: Ended) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async { Ok(()) })
    }
    fn sync(&self, _: Scope) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async { Ok(()) })
    }
    fn may_reuse(&self, _: Freed) -> bool {
        true
    }
    fn has_busy_extents(&self) -> bool {
        false
    }
    fn press(&self, _: Pressure) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async { Ok(()) })
    }
    fn close(&self) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async { Ok(()) })
    }
}

#[derive(Default)]
struct File {
    map: BTreeMap<u64, Buf>,
    xattrs: Option<Buf>,
}

/// The store.
pub struct Memory {
    env: Env,
    cache: Rc<Cache>,
    mechanism: Rc<Unsafe>,
    inodes: RefCell<BTreeMap<u32, (InodeHandle, File)>>,
    orphans: RefCell<BTreeSet<u32>>,
    next_ino: Cell<u32>,
    next_block: Cell<u64>,
    /// So many turns the next inode that is read is waited for.
    inode_waits: Cell<u32>,
    /// The root's links whenever a transaction has ended early: a crash then finds these.
    renewed: RefCell<Vec<u16>>,
    rules: Option<IndexRules>,
}

impl Memory {
    /// With a root directory; with rules, directories are indexed by hash. `releases_behind`: may
    /// what has no name be freed a while later?
    pub fn new(env: Env, rules: Option<IndexRules>, releases_behind: bool) -> Rc<Memory> {
        let options = CacheOptions {
            block_bytes: BLOCK,
            cache_bytes: 64 << 20,
            contents_bytes: 64 << 20,
            interval: None,
            transfer_bytes_max: 1 << 20,
        };
        let cache = Cache::new(env.clone(), Rc::new(Nowhere), options);
        let mechanism = Rc::new_cyclic(|me| Unsafe {
            me: me.clone(),
            open: RefCell::default(),
            last: Cell::default(),
            releases_behind,
            pauses: Cell::new(false),
            env: env.clone(),
        });
        let memory = Memory {
            env,
            cache,
            mechanism,
            inodes: RefCell::default(),
            orphans: RefCell::default(),
            next_ino: Cell::new(11),
            next_block: Cell::new(1),
            inode_waits: Cell::new(0),
            renewed: RefCell::default(),
            rules,
        };
        let (h, buf) = (memory.slot(ROOT_INO), memory.block(BufKind::Meta, ROOT_INO));
        buf.modify(|b| dirent::init_dots(b, ROOT_INO, ROOT_INO, true));
        h.buf.modify(|raw| {
            let mut i = InodeMut(raw);
            i.set_mode(0o040_755);
            i.set_links(2);
            i.set_size(BLOCK as u64);
        });
        let file = File { map: [(0, buf)].into(), xattrs: None };
        memory.inodes.borrow_mut().insert(ROOT_INO.0, (h, file));
        Rc::new(memory)
    }

    fn block(&self, kind: BufKind, owner: Ino) -> Buf {
        let n = self.next_block.replace(self.next_block.get() + 1);
        self.cache.get_new(BlockNo(n), kind, owner)
    }

    fn slot(&self, ino: Ino) -> InodeHandle {
        InodeHandle { ino, buf: self.block(BufKind::Meta, ino), offset: 0, len: INODE }
    }

    fn with<T>(&self, ino: Ino, f: impl FnOnce(&mut File) -> T) -> T {
        f(&mut self.inodes.borrow_mut().get_mut(&ino.0).expect("the inode is there").1)
    }

    /// The inodes in use, and those on the list of orphans.
    pub fn in_use(&self) -> (BTreeSet<u32>, BTreeSet<u32>) {
        (self.inodes.borrow().keys().copied().collect(), self.orphans.borrow().clone())
    }

    /// The root's links at each early end of a transaction since the last time.
    pub fn links_between(&self) -> Vec<u16> {
        self.renewed.take()
    }

    /// From now on others get their turn in the middle of every operation.
    pub fn pause_within(&self) {
        self.mechanism.pauses.set(true);
    }

    /// Who reads the next inode waits for that while others get so many turns.
    pub fn delay_inode(&self, turns: u32) {
        self.inode_waits.set(turns);
    }

    /// The next file gets this number, which is free.
    pub fn set_next_ino(&self, ino: u32) {
        self.next_ino.set(ino);
    }

    /// How many operations have begun and not ended.
    pub fn open(&self) -> usize {
        self.mechanism.open.borrow().len()
    }

    fn point(&self, txn: &mut Txn, inode: &InodeHandle, at: FileBlock, buf: &Buf) -> Option<Buf> {
        let lies = buf.block();
        // There is no map on a disk whose bytes would change: a word of the slot stands for it.
        txn.edit(&inode.buf, INODE..INODE + 4, Change::Attr(inode.ino), |b| {
            b.copy_from_slice(&(lies.0 as u32).to_le_bytes());
        });
        self.with(inode.ino, |f| f.map.insert(at.0, buf.clone()))
    }

    fn filled(&self, txn: &mut Txn, inode: &InodeHandle, kind: InitKind, contents: &[u8]) -> Buf {
        let buf = self.block(BufKind::Meta, inode.ino);
        let change = Change::InitBlock { ino: inode.ino, kind };
        txn.edit(&buf, 0..BLOCK, change, |b| b.copy_from_slice(contents));
        buf
    }
}

fn failed(e: IntegrityError) -> FsError {
    unreachable!("this mechanism never fails: {e}")
}

impl StoreInfo for Memory {
    fn env(&self) -> &Env {
        &self.env
    }
    fn limits(&self) -> Limits {
        Limits {
            block_bytes: BLOCK,
            inode_bytes: INODE,
            first_ino: 11,
            file_bytes_max: 1 << 40,
            links_max: 12,
            entry_kinds: true,
            inline_data: false,
            value_inodes: false,
            uncounted_dirs: true,
            dir_tail: 0,
            index_rules: self.rules,
        }
    }
    fn guarantees(&self) -> Guarantees {
        self.mechanism.guarantees()
    }
    fn writable(&self) -> Result<(), FsError> {
        Ok(())
    }
    fn corrupt(&self, e: &format::FormatError) -> FsError {
        unreachable!("nobody damages this store: {e}")
    }
}

impl Transactions for Memory {
    type Txn = Txn;

    async fn begin(&self, need: Credits) -> Result<Txn, FsError> {
        self.mechanism.begin(need).await.map_err(failed)
    }
    fn begins_at_once(&self, need: &Credits) -> bool {
        self.mechanism.begins_at_once(need)
    }
    async fn renew(&self, txn: &mut Txn, need: Credits) -> Result<(), FsError> {
        self.renewed.borrow_mut().push(links(self, ROOT_INO.0));
        txn.end_early().await.map_err(failed)?;
        *txn = self.begin(need).await?;
        Ok(())
    }
    async fn end(&self, txn: Txn) -> Result<Ended, FsError> {
        self.mechanism.end(txn).await.map_err(failed)
    }
    async fn returned(&self, _: Ended, _: bool) -> Result<(), FsError> {
        Ok(())
    }
    fn keeps_old_name(&self, by: TxnId) -> bool {
        self.mechanism.keeps_old_name(by)
    }
    async fn amid_split(&self, _: &mut Txn) -> Result<(), FsError> {
        Ok(())
    }
}

impl Syncs for Memory {
    async fn sync_inodes(&self, _: &[InodeHandle], _: bool) -> Result<(), FsError> {
        Ok(())
    }
    async fn sync_all(&self) -> Result<(), FsError> {
        Ok(())
    }
    async fn quiesce(&self) -> Result<(), FsError> {
        Ok(())
    }
    fn has_busy_extents(&self) -> bool {
        false
    }
    fn is_unseen(&self, _: Ino) -> bool {
        false
    }
}

impl Inodes for Memory {
    async fn inode(&self, ino: Ino) -> Result<InodeHandle, FsError> {
        for _ in 0..self.inode_waits.take() {
            self.env.yield_now().await;
        }
        self.inode_cached(ino).ok_or(FsError::Stale)
    }
    fn inode_cached(&self, ino: Ino) -> Option<InodeHandle> {
        self.inodes.borrow().get(&ino.0).map(|i| i.0.clone())
    }
    async fn alloc_inode(
        &self,
        txn: &mut Txn,
        _: &InodeHandle,
        _: Kind,
    ) -> Result<InodeHandle, FsError> {
        let ino = Ino(self.next_ino.replace(self.next_ino.get() + 1));
        let h = self.slot(ino);
        h.edit(txn, Change::InitInode(ino), |raw| {
            InodeMut(raw).set_generation(ino.0);
            InodeMut(raw).set_extra_isize();
        });
        self.inodes.borrow_mut().insert(ino.0, (h.clone(), File::default()));
        Ok(h)
    }
    async fn free_inode(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError> {
        inode.edit(txn, Change::FreeInode(inode.ino), |raw| free(&mut raw[FREED], 1));
        let (_, file) = self.inodes.borrow_mut().remove(&inode.ino.0).expect("it is in use");
        let empty = file.map.is_empty() && file.xattrs.is_none();
        assert!(empty, "inode {} is freed with what it has", inode.ino);
        assert!(!self.orphans.borrow().contains(&inode.ino.0), "an orphan that is gone");
        Ok(())
    }
    async fn orphan_add(&self, _: &mut Txn, inode: &InodeHandle) -> Result<(), FsError> {
        self.orphans.borrow_mut().insert(inode.ino.0);
        Ok(())
    }
    async fn orphan_remove(&self, _: &mut Txn, inode: &InodeHandle) -> Result<(), FsError> {
        self.orphans.borrow_mut().remove(&inode.ino.0);
        Ok(())
    }
    async fn orphans(&self) -> Result<Vec<InodeHandle>, FsError> {
        let all = self.orphans.borrow();
        Ok(all.iter().filter_map(|i| self.inode_cached(Ino(*i))).collect())
    }
}

impl Contents for Memory {
    async fn map(&self, inode: &InodeHandle, at: FileBlock, _: u64) -> Result<Run, FsError> {
        let start = self.with(inode.ino, |f| f.map.get(&at.0).map(Buf::block));
        Ok(Run { start, len: 1 })
    }
    async fn read_blocks(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Result<Vec<Option<Buf>>, FsError> {
        Ok(self.read_blocks_cached(inode, at, count).expect("all is in memory"))
    }
    fn read_blocks_cached(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Option<Vec<Option<Buf>>> {
        let range = at.0..at.0 + count;
        Some(self.with(inode.ino, |f| range.map(|b| f.map.get(&b).cloned()).collect()))
    }
    async fn read_ahead(&self, _: &InodeHandle, _: FileBlock, _: u64) {}
    fn pass(&self, _: &[Option<Buf>]) {}
    fn write_behind(&self, _: &InodeHandle, _: FileBlock, _: u64) {}
    async fn write_blocks(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
        _: (Fill, Fill),
    ) -> Result<Vec<Buf>, FsError> {
        let mut bufs = Vec::new();
        // Never more than three at once, as a layout without so much free space in a row.
        for b in (at.0..at.0 + count).take(3) {
            let known = self.with(inode.ino, |f| f.map.get(&b).cloned());
            let buf = known.unwrap_or_else(|| {
                let buf = self.block(BufKind::Data, inode.ino);
                self.point(txn, inode, FileBlock(b), &buf);
                buf
            });
            bufs.push(buf);
        }
        Ok(bufs)
    }
    fn has_unwritten(&self, _: &InodeHandle) -> bool {
        false
    }
    async fn preallocate(
        &self,
        _: &mut Txn,
        _: &InodeHandle,
        _: FileBlock,
        _: u64,
    ) -> Result<u64, FsError> {
        unreachable!("nothing is allocated here that is not written")
    }
    async fn allow_size(&self, _: u64) -> Result<(), FsError> {
        Ok(())
    }
    async fn truncate(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        from: FileBlock,
    ) -> Result<(), FsError> {
        loop {
            let last = self.with(inode.ino, |f| {
                let last = f.map.last_key_value().map(|(b, _)| *b).filter(|b| *b >= from.0);
                last.inspect(|b| drop(f.map.remove(b)))
            });
            if last.is_none() {
                return Ok(());
            }
            self.renew(txn, Credits::blocks(4)).await?; // each in a transaction of its own
        }
    }
    async fn punch_steps(
        &self,
        _: &InodeHandle,
        range: Range<FileBlock>,
        beside: Credits,
    ) -> Result<Vec<PunchStep>, FsError> {
        Ok(vec![PunchStep { to: range.end, need: beside }])
    }
    async fn punch(
        &self,
        _: &mut Txn,
        inode: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError> {
        self.with(inode.ino, |f| f.map.retain(|b, _| !(from.0..to.0).contains(b)));
        Ok(())
    }
}

impl Directories for Memory {
    async fn dir_block(&self, inode: &InodeHandle, at: FileBlock) -> Result<Buf, FsError> {
        self.with(inode.ino, |f| f.map.get(&at.0).cloned()).ok_or(FsError::Corrupt)
    }
    async fn dir_block_judged(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
    ) -> Result<(Buf, Option<format::FormatError>), FsError> {
        Ok((self.dir_block(inode, at).await?, None))
    }
    fn dir_block_in_memory(&self, inode: &InodeHandle, place: BlockNo) -> Option<Buf> {
        self.with(inode.ino, |f| f.map.values().find(|b| b.block() == place).cloned())
    }
    async fn dir_grow(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        contents: &[u8],
    ) -> Result<Buf, FsError> {
        let buf = self.filled(txn, inode, InitKind::Dir, contents);
        let old = self.point(txn, inode, at, &buf);
        assert!(old.is_none(), "a directory grows at its end");
        Ok(buf)
    }
    async fn dir_swap(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        contents: &[u8],
    ) -> Result<Buf, FsError> {
        let buf = self.filled(txn, inode, InitKind::Dir, contents);
        self.point(txn, inode, at, &buf);
        Ok(buf)
    }
}

impl Attributes for Memory {
    async fn xattr_block(&self, inode: &InodeHandle) -> Result<Option<Buf>, FsError> {
        Ok(self.with(inode.ino, |f| f.xattrs.clone()))
    }
    fn xattr_pointer(&self, inode: &InodeHandle) -> BlockNo {
        self.with(inode.ino, |f| f.xattrs.as_ref().map_or(BlockNo(0), Buf::block))
    }
    async fn set_xattr_block(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        contents: Option<&[u8]>,
    ) -> Result<bool, FsError> {
        let buf = contents.map(|c| self.filled(txn, inode, InitKind::Xattr, c));
        self.with(inode.ino, |f| f.xattrs = buf);
        Ok(true)
    }
    async fn leave_xattr_block(&self, _: &mut Txn, _: &InodeHandle) -> Result<bool, FsError> {
        Ok(false) // each file has its own
    }
}

impl Space for Memory {
    async fn statfs(&self) -> StatFs {
        StatFs {
            block_bytes: BLOCK as u32,
            blocks: 1 << 30,
            free: 1 << 30,
            available: 1 << 30,
            inodes: 1 << 30,
            inodes_free: 1 << 30,
            name_bytes_max: 255,
        }
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Links of an inode that is in use.
pub fn links(store: &Memory, ino: u32) -> u16 {
    let h = store.inode_cached(Ino(ino)).expect("the inode is in use");
    h.with(|raw| InodeRef(raw).links())
}

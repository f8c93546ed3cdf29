//! A snapshot as a disk that can only be read. While others go on to write, its blocks may move to
//! other objects: then the newest moment of the log tells where they lie now, for they hold the
//! same. How they came to be there it does not know.

use crate::BLOCK_BYTES;
use crate::store::Store;
use env::{Block, Disk, DiskError, DiskErrorKind, Durability, Local};
use lfs::{Virt, none_of_that_name};
use std::cell::RefCell;
use std::rc::Rc;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The log moves on so often while one read is under way, and it is given up.
const LOOKS: usize = 20;

/// The disk.
#[derive(Clone)]
pub struct SnapshotDisk {
    /// As the log was when it was looked at last.
    store: Rc<RefCell<Store>>,
    id: u32,
}

impl Store {
    /// A snapshot as a disk. Errors: there is none of that name.
    pub fn snapshot_disk(&self, name: &str) -> Result<SnapshotDisk, String> {
        let id = {
            let s = self.inner.state.borrow();
            let all = &s.table.snapshots;
            all.named(name).map(|s| s.id).ok_or_else(|| none_of_that_name(name, all))?
        };
        self.snapshot_disk_of(id)
    }

    /// The same, by its number.
    pub(crate) fn snapshot_disk_of(&self, id: u32) -> Result<SnapshotDisk, String> {
        match self.inner.state.borrow().table.snapshots.knows(id) {
            true => Ok(SnapshotDisk { store: Rc::new(RefCell::new(self.clone())), id }),
            false => Err("the snapshot was deleted".into()),
        }
    }

    /// The ranges of a snapshot's blocks that may have contents: first, and how many.
    pub fn snapshot_mapped(&self, of: &SnapshotDisk) -> Vec<(u64, u64)> {
        let s = self.inner.state.borrow();
        let newer = s.table.snapshots.all.iter().skip_while(|s| s.id != of.id).map(|s| s.id);
        let mut all: Vec<(u64, u64)> = Vec::new();
        for owner in newer.chain([0]) {
            let first = s.table.owners.own_block(owner, Virt(0)).0;
            let its = s.table.extents.range(first, s.table.owners.own_end(owner));
            let its = its.filter(|e| e.place.is_some());
            all.extend(its.map(|e| (e.v.0 - first, e.end() - first)));
        }
        all.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (from, to) in all {
            match joined.last_mut().filter(|last| from <= last.1) {
                Some(last) => last.1 = last.1.max(to),
                None => joined.push((from, to)),
            }
        }
        joined.into_iter().map(|(from, to)| (from, to - from)).collect()
    }
}

impl SnapshotDisk {
    /// The snapshot's number.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// What was asked of the bucket for it: requests, and bytes sent and received.
    pub(crate) fn asked(&self) -> ([u64; 4], [u64; 2]) {
        let stats = self.store.borrow().stats();
        (stats.requests, stats.bytes)
    }

    async fn read_whole(&self, v: u64, n: u64) -> Result<Vec<Block>, DiskError> {
        for _ in 0..LOOKS {
            let store = self.store.borrow().clone();
            if !store.inner.state.borrow().table.snapshots.knows(self.id) {
                return Err(failed(v * BLOCK, "the snapshot was deleted"));
            }
            if let Some(blocks) = store.inner.read_on(Some(self.id), v, n).await? {
                return Ok(blocks);
            }
            let newer = if store.inner.options.read_only { store.newer().await } else { Ok(None) };
            match newer.map_err(|why| failed(v * BLOCK, &why))? {
                Some(newer) => *self.store.borrow_mut() = newer,
                None => break,
            }
        }
        Err(self.store.borrow().inner.missing(Some(self.id), (v, n)))
    }
}

fn failed(at: u64, why: &str) -> DiskError {
    DiskError { kind: DiskErrorKind::Io, during: "read", at, detail: why.into() }
}

fn read_only(during: &'static str, at: u64) -> DiskError {
    DiskError { kind: DiskErrorKind::ReadOnly, during, at, detail: String::new() }
}

impl Disk for SnapshotDisk {
    fn size_bytes(&self) -> u64 {
        self.store.borrow().size_bytes()
    }
    fn read(&self, at: u64, mut blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        Box::pin(async move {
            let len: u64 = blocks.iter().map(|b| b.len() as u64).sum();
            self.store.borrow().inner.check_range("read", at, len)?;
            let (first, last) = (at / BLOCK, (at + len).div_ceil(BLOCK));
            let read = self.read_whole(first, last - first).await?;
            lfs::copy_parts(&read, (at - first * BLOCK) as usize, &mut blocks);
            Ok(blocks)
        })
    }
    fn write(&self, at: u64, _: Vec<Block>, _: Durability) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move { Err(read_only("write", at)) })
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async { Ok(()) })
    }
    fn discard(&self, at: u64, _: u64) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move { Err(read_only("discard", at)) })
    }
}

//! A snapshot as a disk that can only be read. It knows how to find the snapshot's blocks, and not
//! how they came to be there.

use crate::disk::copy_parts;
use crate::extents::Extent;
use crate::geometry::{BLOCK, BLOCK_BYTES, Virt};
use crate::snapshot::{Snapshots, refused};
use crate::store::{Inner, Store};
use env::{Block, Disk, DiskError, DiskErrorKind, Durability, Local};
use std::rc::Rc;

/// The disk.
#[derive(Clone)]
pub struct SnapshotDisk {
    inner: Rc<Inner>,
    id: u32,
}

impl Store {
    /// A snapshot as a disk. Errors: there is none of that name.
    pub fn snapshot_disk(&self, name: &str) -> Result<SnapshotDisk, String> {
        let s = self.inner.state.borrow();
        let found = s.snapshots.named(name).map(|s| s.id);
        let id = found.ok_or_else(|| none_of_that_name(name, &s.snapshots))?;
        Ok(SnapshotDisk { inner: self.inner.clone(), id })
    }

    /// The ranges of a snapshot's blocks that have contents: first, and how many.
    pub async fn snapshot_mapped(&self, of: &SnapshotDisk) -> Result<Vec<(u64, u64)>, DiskError> {
        let mut all: Vec<(u64, u64)> = Vec::new();
        let (mut at, end) = (0, self.inner.geometry.virtual_blocks);
        while at < end {
            let n = (end - at).min(LOOKED_AT);
            for e in of.extents(Virt(at), n).await?.into_iter().filter(|e| e.place.is_some()) {
                match all.last_mut().filter(|(first, n)| first + *n == e.v.0) {
                    Some(last) => last.1 += u64::from(e.n),
                    None => all.push((e.v.0, u64::from(e.n))),
                }
            }
            at += n;
        }
        Ok(all)
    }
}

/// What is said where there is no snapshot of a name.
pub fn none_of_that_name(name: &str, among: &Snapshots) -> String {
    let all: Vec<&str> = among.all.iter().map(|s| s.name.as_str()).collect();
    match all[..] {
        [] => format!("there is no snapshot {name}, nor any other"),
        _ => format!("there is no snapshot {name}; there are: {}", all.join(", ")),
    }
}

/// Blocks looked for at once.
const LOOKED_AT: u64 = 4096;

impl SnapshotDisk {
    /// Where `n` blocks from `v` on lie now: by the snapshot's own, else the next newer one's, and
    /// so on to the volume's.
    async fn extents(&self, v: Virt, n: u64) -> Result<Vec<Extent>, DiskError> {
        loop {
            let firsts = self.chain(v)?;
            let base = self.inner.base_of(firsts.clone(), n).await?;
            let s = self.inner.state.borrow();
            if !s.table.is_current(&base) {
                continue;
            }
            let mut all: Vec<Extent> = Vec::new();
            for i in 0..n {
                let known = |f: &Virt| {
                    let at = Virt(f.0 + i);
                    s.table.entry(at, &base).map(|e| e.at(at))
                };
                let place = firsts.iter().find_map(known).flatten();
                let e = Extent { v: Virt(v.0 + i), n: 1, place };
                match all.last_mut().filter(|last| last.joins(&e)) {
                    Some(last) => last.n += 1,
                    None => all.push(e),
                }
            }
            let said: u64 = all.iter().map(|e| u64::from(e.n)).sum();
            assert_eq!(said, n, "S1: it is not said of each block from {} on where it lies", v.0);
            return Ok(all);
        }
    }

    /// The blocks that may be this one of the snapshot, the volume's last. Errors: it has ended.
    fn chain(&self, v: Virt) -> Result<Vec<Virt>, DiskError> {
        let s = self.inner.state.borrow();
        let newer = s.snapshots.all.iter().skip_while(|s| s.id != self.id);
        let mut all: Vec<(u32, bool)> = newer.map(|s| (s.id, s.ended)).collect();
        if all.first().is_none_or(|(_, ended)| *ended) {
            return Err(refused("it was deleted"));
        }
        all.push((0, false));
        Ok(all.into_iter().map(|(id, _)| self.inner.geometry.own_block(id, v)).collect())
    }

    async fn read_whole(&self, v: u64, n: u64) -> Result<Vec<Block>, DiskError> {
        let mut out = Vec::with_capacity(n as usize);
        while (out.len() as u64) < n {
            let at = v + out.len() as u64;
            // What lies there is asked for before anybody else can move it.
            let first = self.extents(Virt(at), v + n - at).await?.swap_remove(0);
            match first.place {
                Some(place) => out.extend(self.inner.read_places(place, u64::from(first.n)).await?),
                None => out.extend((0..first.n).map(|_| Block::zeroed(BLOCK_BYTES))),
            }
        }
        let read = out.len() as u64;
        assert_eq!(read, n, "S1: another number of blocks from {v} on is read than was asked for");
        Ok(out)
    }
}

fn read_only(during: &'static str, at: u64) -> DiskError {
    DiskError { kind: DiskErrorKind::ReadOnly, during, at, detail: String::new() }
}

impl Disk for SnapshotDisk {
    fn size_bytes(&self) -> u64 {
        self.inner.geometry.virtual_blocks * BLOCK
    }
    fn read(&self, at: u64, mut blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        Box::pin(async move {
            let len: u64 = blocks.iter().map(|b| b.len() as u64).sum();
            self.inner.check_range("read", at, len)?;
            let (first, last) = (at / BLOCK, (at + len).div_ceil(BLOCK));
            let read = self.read_whole(first, last - first).await?;
            copy_parts(&read, (at - first * BLOCK) as usize, &mut blocks);
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

//! Attributes: from the raw inode to what stat tells, and the small edits that most operations
//! share.

use crate::Ufs;
use crate::inode::Inode;
use crate::ops::Ctx;
use crate::store::{InodeHandle, Store, Transaction};
use format::intent::Intent;
use format::ufs::inode::{InodeMut, InodeRef, RawTime, Which};
use integrity::Change;
use vfs::{Attr, PreAttr, SetTime, Time, Wcc};

/// A time that somebody sets. Whoever asks may tell of more nanoseconds than a second has.
pub(crate) fn time_to_set(t: SetTime, now: RawTime) -> RawTime {
    match t {
        SetTime::Now => now,
        SetTime::To(t) => (t.sec, t.nsec.min(999_999_999)),
    }
}

fn time(raw: Option<RawTime>) -> Time {
    let (sec, nsec) = raw.unwrap_or_default();
    Time { sec, nsec }
}

impl<S: Store> Ufs<S> {
    pub(crate) fn attr(&self, h: &InodeHandle) -> Attr {
        let blksize = self.store.limits().block_bytes as u32;
        h.with(|raw| {
            let i = InodeRef(raw);
            let device = matches!(i.mode() & 0xf000, 0x2000 | 0x6000);
            // As in Linux: to tar and cp a file without blocks is one hole.
            let inside = if i.is_inline() && i.is_file() { i.size().div_ceil(512) } else { 0 };
            Attr {
                ino: h.ino.0,
                generation: i.generation(),
                mode: u32::from(i.mode()),
                nlink: u32::from(i.links()),
                uid: i.uid(),
                gid: i.gid(),
                size: i.size(),
                blocks: i.sectors_wide(blksize as usize) + inside,
                atime: time(i.time(Which::Access)),
                mtime: time(i.time(Which::Modify)),
                ctime: time(i.time(Which::Change)),
                crtime: i.time(Which::Create).map(|t| time(Some(t))),
                rdev: if device { i.device() } else { (0, 0) },
                blksize,
            }
        })
    }

    pub(crate) fn now(&self) -> RawTime {
        let t = Time::from_wall(self.store.env().wall());
        (t.sec, t.nsec)
    }

    /// Sets times to now.
    pub(crate) fn touch(&self, txn: &mut S::Txn, h: &InodeHandle, which: &[Which]) {
        let now = self.now();
        h.edit(txn, Change::Attr(h.ino), |raw| {
            which.iter().for_each(|w| InodeMut(raw).set_time(*w, now));
        });
    }

    /// Contents and inode changed now.
    pub(crate) fn touch_changed(&self, txn: &mut S::Txn, h: &InodeHandle) {
        self.touch(txn, h, &[Which::Modify, Which::Change]);
    }

    pub(crate) fn pre(&self, inode: &Inode) -> PreAttr {
        let a = self.attr(&inode.h);
        PreAttr { size: a.size, mtime: a.mtime, ctime: a.ctime }
    }

    /// What the answer tells of the inode, if it is to.
    pub(crate) fn wcc(&self, ctx: &Ctx, before: Option<PreAttr>, inode: &Inode) -> Wcc {
        if !ctx.wants_wcc {
            return Wcc::default();
        }
        Wcc { before, after: Some(self.attr(&inode.h)) }
    }

    /// A directory has one subdirectory more or less: its links follow, unless it has so many that
    /// they are not counted; then it has one link. One that counts too few, as a damaged one may,
    /// keeps the two that it has of its own: without links it would be free.
    pub(crate) fn count_subdir(&self, txn: &mut S::Txn, dir: &Inode, by: i64, change: Change) {
        assert!(dir.lock.is_busy(), "U1: subdirectories of {} are counted, not locked", dir.ino());
        let (now, limits) = (i64::from(dir.links()), self.store.limits());
        let too_many = self.may_uncount(dir) && now + by > i64::from(limits.links_max);
        let uncounted = too_many || limits.uncounted_dirs && now == 1;
        let to = if uncounted { 1 } else { (now + by).max(now.min(2)) };
        self.set_links(txn, &dir.h, to as u32, change);
    }

    /// May the directory have one subdirectory more?
    pub(crate) fn may_link(&self, dir: &Inode) -> bool {
        dir.links() < self.store.limits().links_max || self.may_uncount(dir)
    }

    /// May the directory's subdirectories be too many to count? On Linux only those of one with an
    /// index may: it would count on from 1 in another, and then say less than there are.
    fn may_uncount(&self, dir: &Inode) -> bool {
        self.store.limits().uncounted_dirs && self.has_index_flag(dir)
    }

    pub(crate) fn set_links(&self, txn: &mut S::Txn, h: &InodeHandle, to: u32, change: Change) {
        let locked = || self.table.get(h.ino).is_none_or(|i| i.lock.is_busy() || i.unnamed.get());
        // A look more for each count; whoever makes an inode is alone with it before it is there.
        debug_assert!(locked(), "U1: the links of {} are counted, and it is not locked", h.ino);
        let (before, is_dir) = h.with(|raw| (InodeRef(raw).links(), InodeRef(raw).is_dir()));
        txn.intend(|| Intent::Links { ino: h.ino, before, is_dir });
        // A damaged count may be the most there is; it must not become none.
        let to = to.min(u32::from(u16::MAX)) as u16;
        h.edit(txn, change, |raw| InodeMut(raw).set_links(to));
    }
}

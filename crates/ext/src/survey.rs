//! What has to be known of all groups before anything is changed: their counts, and the runs of
//! the volume's own blocks, which no file may have. All descriptors are read for it once, some at
//! a time, checked and summed up.
//!
//! As a rule that is done before opening returns. Where descriptors lie apart in very many places
//! (meta_bg on a volume of terabytes with small blocks: 40,960 reads for 5 TiB), it goes on behind
//! the opening: who reads goes on meanwhile, who changes something, or asks what is free, waits for
//! its end (`surveyed`). Damage that it finds then turns the volume read-only, as damage does that
//! is found later.
//!
//! Invariants:
//! * S1. Before the survey has ended nothing is allocated, freed or counted, and no transaction
//!   is under way.
//! * S2. The volume's own blocks are runs in order, apart from one another, and all of the volume.

use crate::Ext;
use crate::LoadError;
use crate::descs::{are_kept, decode, load_descriptors, scan_descriptors};
use crate::group::{Counts, Groups};
use cache::Cache;
use env::Nanos;
use env::sync::Notify;
use format::ext::{Geometry, GroupDesc};
use format::{BlockNo, Extent, FormatError, GroupNo};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// Runs of the volume's own blocks that grow at one time: bitmaps of both kinds, tables, and what
/// lies before them.
const GROWING: usize = 8;
/// More places of descriptors than these are not waited for when a volume is opened: as many are
/// read in some tens of milliseconds.
const PLACES_AT_OPENING: u32 = 1024;

/// So long after opening the survey begins by itself.
const A_MOMENT: Nanos = Nanos(1_000_000);

/// The volume's own blocks: superblocks, descriptors, bitmaps, inode tables, mmp's.
#[derive(Default)]
pub(crate) struct OwnBlocks {
    /// As runs, in order.
    pub(crate) runs: Vec<Extent>,
    /// How many they are.
    pub(crate) count: u64,
}

/// How far the survey is, and what it has found.
#[derive(Default)]
pub(crate) struct Survey {
    own: OnceCell<OwnBlocks>,
    begun: Cell<bool>,
    ended: Cell<bool>,
    changed: Notify,
}

impl Survey {
    /// One that has ended.
    pub(crate) fn of(own: OwnBlocks) -> Survey {
        let (begun, ended) = (Cell::new(true), Cell::new(true));
        Survey { own: OnceCell::from(own), begun, ended, changed: Notify::default() }
    }
    /// The volume's own blocks, as far as they are known.
    pub(crate) fn own(&self) -> &[Extent] {
        self.own.get().map_or(&[], |o| &o.runs)
    }
    /// How many they are.
    pub(crate) fn own_count(&self) -> u64 {
        self.own.get().map_or(0, |o| o.count)
    }
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get()
    }
    fn end(&self) {
        assert!(!self.ended.replace(true), "S1: a survey ends once");
        self.changed.wake_all();
    }
}

/// Do the descriptors lie in so many places that opening does not wait for them?
pub(crate) fn goes_on_behind(geo: &Geometry) -> bool {
    geo.desc_blocks().saturating_sub(geo.first_meta_bg) > PLACES_AT_OPENING
}

impl Ext {
    /// Waits until all groups are known: for who changes something, or asks what is free. If
    /// damage was found the volume is not writable then.
    pub async fn surveyed(&self) {
        while !self.survey.has_ended() {
            self.begin_survey();
            self.survey.changed.wait().await;
        }
    }

    /// When the volume is open, and nobody has waited for the survey yet: it is begun in a moment,
    /// in which whoever has opened the volume goes on with it.
    pub fn survey_soon(self: &Rc<Ext>) {
        if self.survey.has_ended() {
            return;
        }
        let ext = self.clone();
        self.env.spawn("survey soon", async move {
            ext.env.sleep_until(ext.env.now().plus(A_MOMENT)).await;
            ext.begin_survey();
        });
    }

    fn begin_survey(&self) {
        let Some(me) = self.me.upgrade().filter(|_| !self.survey.begun.replace(true)) else {
            return;
        };
        self.env.spawn("survey", me.survey_behind());
    }

    /// Has the survey ended?
    pub fn is_surveyed(&self) -> bool {
        self.survey.has_ended()
    }

    /// The survey behind the opening.
    async fn survey_behind(self: Rc<Ext>) {
        match survey(&self.cache, &self.geo, self.read_only.get()).await {
            Ok(found) => self.learn_all(found),
            Err(e) => {
                match e {
                    LoadError::Format(e) => drop(self.damage(&e)),
                    LoadError::Disk(e) => drop(self.unreadable(&e)),
                }
                // Nothing will be allocated; who only looks finds nothing free.
                *self.groups.borrow_mut() = Groups::none_free(self.geo.groups);
            }
        }
        self.survey.end();
    }

    fn learn_all(&self, found: Surveyed) {
        assert!(!self.survey.has_ended(), "S1: what is free was counted before");
        let (has, all) = (found.groups.counts.len(), self.geo.groups);
        assert_eq!(has, all as usize, "S1: groups that were counted, and all that there are");
        let (blocks, inodes) = found.groups.sums();
        self.free_blocks.set(blocks * u64::from(self.geo.cluster_blocks));
        self.free_inodes.set(inodes);
        *self.groups.borrow_mut() = found.groups;
        let first = self.survey.own.set(found.own).is_ok();
        assert!(first, "S1: the volume's own blocks were found before");
    }
}

/// What is found of the groups when a volume is opened.
pub(crate) struct Surveyed {
    pub(crate) groups: Groups,
    pub(crate) own: OwnBlocks,
}

/// Looks at all descriptors. Counts that cannot be, which a crash may leave, matter only to who
/// allocates. Errors: `Corrupt`, also where two of the volume's own structures are said to be in
/// one place.
pub(crate) async fn survey(
    cache: &Rc<Cache>,
    geo: &Geometry,
    read_only: bool,
) -> Result<Surveyed, LoadError> {
    let mut counts = Vec::with_capacity(geo.groups as usize);
    let mut own = Own::default();
    own.all.extend(geo.mmp.map(|start| Extent { start, len: 1 }));
    let mut sound = Ok(());
    let each = |n: u32, block: &[u8]| {
        let first = GroupNo(n * geo.descs_per_block());
        let looked = decode(geo, first, block, |g, desc| {
            let (blocks, inodes) = (geo.group_blocks(g), geo.inodes_per_group);
            if (desc.free_blocks > blocks || desc.free_inodes > inodes) && !read_only {
                let what = format!("group {g} counts more free than it has");
                return Err(FormatError::corrupt(what, format!("group descriptor {g}")));
            }
            counts.push(Counts::of(desc));
            own.add_group(geo, g, desc);
            Ok(())
        });
        if sound.is_ok() {
            sound = looked;
        }
    };
    if are_kept(cache, geo) {
        load_descriptors(cache, geo, each).await?;
    } else {
        scan_descriptors(cache.disk(), geo, each).await?;
    }
    sound?;
    assert_eq!(counts.len(), geo.groups as usize, "S1: groups with a descriptor, and all groups");
    let runs = own.finish()?;
    let count = runs.iter().map(|e| e.len).sum();
    let end = runs.last().map_or(0, |e| e.start.0 + e.len);
    assert!(count <= end && end <= geo.blocks, "S2: {count} own blocks up to {end}");
    Ok(Surveyed { groups: Groups::new(counts), own: OwnBlocks { runs, count } })
}

/// Runs in the making. Those of flexible groups grow at several places at once.
#[derive(Default)]
struct Own {
    all: Vec<Extent>,
    growing: Vec<Extent>,
}

impl Own {
    fn add_group(&mut self, geo: &Geometry, g: GroupNo, d: &GroupDesc) {
        let overhead = geo.overhead(g).min(geo.group_blocks(g));
        if overhead > 0 {
            self.add(geo.group_start(g).0, u64::from(overhead));
        }
        self.add(d.block_bitmap, 1);
        self.add(d.inode_bitmap, 1);
        self.add(d.inode_table, u64::from(geo.inode_table_blocks()));
    }

    fn add(&mut self, start: u64, len: u64) {
        let found = self.growing.iter().position(|e| e.start.0 + e.len == start);
        let run = match found {
            Some(n) => {
                let e = self.growing.remove(n);
                Extent { len: e.len + len, ..e }
            }
            None => Extent { start: BlockNo(start), len },
        };
        self.growing.push(run);
        if self.growing.len() > GROWING {
            self.all.push(self.growing.remove(0));
        }
    }

    fn finish(mut self) -> Result<Vec<Extent>, FormatError> {
        self.all.append(&mut self.growing);
        self.all.sort_unstable();
        let overlap = self.all.windows(2).find(|w| w[0].start.0 + w[0].len > w[1].start.0);
        if let Some(w) = overlap {
            let what = "two of the volume's own structures are said to be in one place";
            return Err(FormatError::corrupt(what, format!("block {}", w[1].start)));
        }
        self.all.dedup_by(|next, last| {
            let follows = last.start.0 + last.len == next.start.0;
            last.len += if follows { next.len } else { 0 };
            follows
        });
        self.all.shrink_to_fit();
        let apart = self.all.is_sorted_by(|a, b| a.start.0 + a.len < b.start.0);
        assert!(apart, "S2: runs of the volume's own blocks that meet");
        Ok(self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixteen groups at a time have their bitmaps and tables together, and few runs come of it.
    #[test]
    fn runs_of_flexible_groups_are_joined() {
        let mut own = Own::default();
        let mut naive = std::collections::BTreeSet::new();
        for flex in 0..50u64 {
            for i in 0..16 {
                let base = flex * 16 * 8192 + 1;
                let pieces = [
                    (base + i, 1),
                    (base + 16 + i, 1),
                    (base + 32 + i * 7, 7),
                    (base + i * 8192 + 8000, if i == 3 { 2 } else { 0 }),
                ];
                for (start, len) in pieces.into_iter().filter(|p| p.1 > 0) {
                    own.add(start, len);
                    naive.extend(start..start + len);
                }
            }
        }
        assert!(own.all.len() < 50 * 6, "{} runs in the making", own.all.len());
        let runs = own.finish().unwrap();
        assert_eq!(runs.len(), 100, "one of each sixteen groups, and one block apart");
        let joined: Vec<u64> = runs.iter().flat_map(|e| e.start.0..e.start.0 + e.len).collect();
        assert!(joined.iter().eq(naive.iter()));
    }

    #[test]
    fn two_in_one_place_are_seen() {
        for (a, b) in [((10, 4), (13, 1)), ((10, 1), (10, 1)), ((20, 9), (10, 11))] {
            let mut own = Own::default();
            own.add(a.0, a.1);
            own.add(100, 3);
            own.add(b.0, b.1);
            assert!(own.finish().is_err(), "{a:?} and {b:?}");
        }
    }
}

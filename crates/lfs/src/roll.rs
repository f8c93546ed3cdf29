//! Rolling forward: following the log from a checkpoint to the last whole group, in memory. It
//! writes nothing; the checkpoint that makes the result durable comes afterwards (I6).

use crate::beyond::End;
use crate::extents::Extent;
use crate::geometry::{Place, SegNo, Virt};
use crate::possible::are_different;
use crate::state::State;
use crate::store::Inner;
use crate::summary::{Entry, Epoch, Serial, Summary, sum_of};
use crate::table::{Base, damaged};
use crate::usage::Use;
use env::DiskError;

/// Entries of the log that are applied together, and pages of the table read at once for them.
const TOGETHER: usize = 1 << 15;
const AHEAD: u64 = 64;

/// Where the next partial of a head may begin, and what lies there.
struct Candidate {
    place: Place,
    found: Option<(Summary, u32)>,
}

/// How far the chain was followed.
struct Chain {
    serial: Serial,
    sum: u32,
    epoch: Epoch,
    heads: Vec<(SegNo, u32, SegNo)>,
}

impl Inner {
    /// Applies all whole groups behind the checkpoint that was loaded. Returns how many partial
    /// segments were.
    pub(crate) async fn roll_forward(&self) -> Result<u64, DiskError> {
        let mut chain = {
            let s = self.state.borrow();
            let heads = s.heads.iter().map(|h| (h.segment, h.offset, h.next)).collect();
            Chain { serial: s.serial, sum: s.last_sum, epoch: s.epoch, heads }
        };
        let mut seen: Vec<Vec<Candidate>> = (0..chain.heads.len()).map(|_| Vec::new()).collect();
        let mut group: Vec<(Summary, u32)> = Vec::new();
        let (mut some, mut entries, mut applied) = (Vec::new(), 0, 0);
        while let Some((summary, sum)) = self.follow(&mut chain, &mut seen).await? {
            let whole = summary.group_end || self.plant == Some("group-end-ignored");
            entries += summary.entries.len();
            group.push((summary, sum));
            if !whole {
                continue;
            }
            some.append(&mut group);
            if entries >= TOGETHER {
                applied += some.len() as u64;
                self.replay_all(std::mem::take(&mut some)).await?;
                entries = 0;
            }
        }
        applied += some.len() as u64;
        self.replay_all(some).await?;
        let end = End { serial: chain.serial, epoch: chain.epoch, heads: chain.heads };
        let broken = self.look_beyond(end).await;
        self.state.borrow_mut().broken = broken;
        Ok(applied)
    }

    /// Applies the partials of whole groups. The table is asked for all of them at once, in its own
    /// order, so that a long log reads each page of it once.
    async fn replay_all(&self, all: Vec<(Summary, u32)>) -> Result<(), DiskError> {
        let entries = || all.iter().flat_map(|(s, _)| &s.entries);
        let of_snapshots = |e: &Entry| {
            matches!(e, Entry::Snapshot(_) | Entry::Ended { .. } | Entry::Handed { .. })
        };
        // Who else has a block may change from one entry to the next.
        let alone = self.state.borrow().snapshots.all.is_empty() && !entries().any(of_snapshots);
        let base = if alone {
            let mut blocks: Vec<(Virt, u64)> = entries()
                .map(Entry::blocks)
                .filter(|(v, n)| self.geometry.are_blocks(*v, *n))
                .collect();
            blocks.sort_unstable();
            Some(self.base_of_all(blocks.into_iter(), AHEAD).await?)
        } else {
            None
        };
        for (summary, sum) in &all {
            self.replay(summary, *sum, base.as_ref()).await?;
        }
        Ok(())
    }

    /// The next partial of the chain: identity, serial, the previous one's sum, and its own over
    /// every byte.
    async fn follow(
        &self,
        chain: &mut Chain,
        seen: &mut [Vec<Candidate>],
    ) -> Result<Option<(Summary, u32)>, DiskError> {
        let mut best: Option<(usize, Summary, u32)> = None;
        let last = chain.heads.len() - 1;
        for (h, (seen, head)) in seen.iter_mut().zip(&chain.heads).enumerate() {
            if seen.is_empty() {
                *seen = self.look(*head).await?;
            }
            let forgotten = self.plant == Some("heads-not-followed") && h > 0 && h != last;
            for (s, sum) in seen.iter().filter_map(|c| c.found.as_ref()).filter(|_| !forgotten) {
                let linked = s.previous_sum == chain.sum && s.epoch >= chain.epoch
                    || self.plant == Some("stale-tail-joined");
                let next = s.serial == chain.serial.next() && usize::from(s.head) == h;
                let newer = best.as_ref().is_none_or(|b| b.1.epoch < s.epoch);
                if next && linked && newer {
                    best = Some((h, s.clone(), *sum));
                }
            }
        }
        let Some((h, summary, sum)) = best else { return Ok(None) };
        let n = u64::from(summary.payload) + 1;
        if !self.geometry.is_inside(summary.place, n) || summary.next.0 >= self.geometry.segments {
            return Ok(None);
        }
        let raw = self.read_blocks(summary.place, n).await?;
        let (head, payload) = raw.bytes().split_at(crate::BLOCK_BYTES);
        let first_words = self.plant == Some("sum-of-first-words");
        let taken = if first_words { 4 } else { crate::BLOCK_BYTES };
        let parts = payload.chunks(crate::BLOCK_BYTES).map(|b| &b[..taken]);
        if sum_of(self.seed, head, parts) != sum {
            return Ok(None); // torn, or damaged (beyond.rs): the log ends here
        }
        let segment = self.geometry.segment_of(summary.place).expect("it was asked above");
        let others = (0..).zip(&chain.heads).filter(|(i, _)| *i != h);
        let others = others.flat_map(|(_, head)| [head.0, head.2]);
        if !are_different(others.chain([segment, summary.next])) {
            return Ok(None); // no store goes on in a segment that another head has
        }
        let offset = (summary.place.0 - self.geometry.start(segment).0 + n) as u32;
        let wrong = |what: &str| damaged(summary.place, &format!("{what} of a partial segment"));
        summary.check(&self.geometry).map_err(wrong)?;
        if self.plant.is_none() && !self.may_be_next(chain.heads[h], segment, summary.next) {
            return Err(wrong("the next segment"));
        }
        chain.heads[h] = (segment, offset, summary.next);
        (chain.serial, chain.sum, chain.epoch) = (summary.serial, sum, summary.epoch);
        seen[h].clear();
        Ok(Some((summary, sum)))
    }

    /// May a head that has come to `segment` have announced this one (I2, I3)? It stays what it was
    /// while the head stays, and what is announced anew held nothing when the checkpoint was
    /// written, nor was it named by it.
    fn may_be_next(&self, head: (SegNo, u32, SegNo), segment: SegNo, next: SegNo) -> bool {
        if head.0 == segment {
            return head.2 == next;
        }
        let s = self.state.borrow();
        let is_named = s.named[1].contains(&next);
        !is_named && s.usage.get(next).live == 0
    }

    /// Where a head may have gone on: behind its last partial, or in the announced segment (I3).
    async fn look(&self, head: (SegNo, u32, SegNo)) -> Result<Vec<Candidate>, DiskError> {
        let (segment, offset, next) = head;
        let mut places = vec![self.geometry.start(next)];
        if offset < self.geometry.segment_blocks {
            places.push(self.geometry.start(segment).plus(u64::from(offset)));
        }
        let mut all = Vec::new();
        for place in places {
            let raw = self.read_blocks(place, 1).await?;
            let found = Summary::decode(raw.bytes(), place);
            all.push(Candidate { place, found });
        }
        all.retain(|c| c.found.is_some());
        if all.is_empty() {
            // Looked at once is enough: nothing is there.
            all.push(Candidate { place: Place(0), found: None });
        }
        debug_assert!(all.iter().all(|c| c.found.is_none() || c.place.0 > 0));
        Ok(all)
    }

    /// Where the blocks of an entry lie, and what else says whose they are.
    async fn base_for(&self, entry: &Entry) -> Result<Base, DiskError> {
        let (v, n) = entry.blocks();
        match entry {
            Entry::Handed { to, .. } => {
                let own = self.geometry.own_block(*to, self.geometry.owner(v).1);
                self.base_of(vec![v, own], n).await
            }
            _ => self.base_to_change(v, n).await,
        }
    }

    /// Is what an entry says of snapshots so that there can be such (S3, S5)?
    fn check_snapshots(&self, summary: &Summary, entry: &Entry) -> Result<(), DiskError> {
        let s = self.state.borrow();
        let right = match entry {
            Entry::Snapshot(new) => new.id > s.snapshots.last,
            Entry::Handed { to, .. } => s.snapshots.knows(*to),
            _ => true,
        };
        let wrong = || damaged(summary.place, "a record of a snapshot in a partial segment");
        if right { Ok(()) } else { Err(wrong()) }
    }

    /// What a partial of a whole group says is so. `known`: where the table has its blocks, if that
    /// was asked already.
    async fn replay(
        &self,
        summary: &Summary,
        sum: u32,
        known: Option<&Base>,
    ) -> Result<(), DiskError> {
        {
            let s = &mut *self.state.borrow_mut();
            let (last, serial) = (s.serial, summary.serial);
            assert_eq!(serial, last.next(), "I1: the log is followed, and a partial is left out");
            let joins = summary.previous_sum == s.last_sum && summary.epoch >= s.epoch
                || self.plant == Some("stale-tail-joined");
            assert!(joins, "I6: {serial:?} of epoch {} joins a log of {}", summary.epoch, s.epoch);
            s.enter(summary, &self.plant);
            s.before.add_partial(summary, &s.geometry);
        }
        for (entry, place) in entries(summary) {
            let (v, n) = entry.blocks();
            self.check_snapshots(summary, &entry)?;
            let asked = if known.is_none() { Some(self.base_for(&entry).await?) } else { None };
            let base = known.or(asked.as_ref()).expect("one of them is there");
            let mut s = self.state.borrow_mut();
            match entry {
                Entry::Written { stamp, .. } => {
                    let stamp = stamp.min(summary.stamp);
                    s.patches.remove(v);
                    s.written_again(v, base);
                    s.replace(Extent { v, n: 1, place: Some(place) }, stamp, None);
                }
                Entry::Range { range, .. } => s.patches.add(v, &range, None),
                Entry::Moved { stamp, from, .. } => {
                    let now = s.table.place(v, base);
                    if now == Some(from) {
                        let stamp = stamp.min(summary.stamp);
                        if s.planted("move-drops-ranges") {
                            s.patches.remove(v);
                        }
                        s.replace(Extent { v, n: 1, place: Some(place) }, stamp, now);
                    }
                }
                Entry::Plugged { stamp, from, to, .. } => {
                    let hole = self.geometry.segment_of(to).map(|seg| s.usage.get(seg).used);
                    if s.table.place(v, base) == Some(from) && hole == Some(Use::Closed) {
                        s.plugged(v, (from, stamp.min(summary.stamp)), to);
                    }
                }
                Entry::Free { .. } => {
                    s.patches.remove_within(v, n);
                    let mut at = v;
                    while at.0 < v.0 + n {
                        let e = s.table.extent(at, v.0 + n, base);
                        s.forget(e, base);
                        at.0 = e.end();
                    }
                }
                Entry::Snapshot(of) => s.snapshot_made(of),
                Entry::Ended { id, gone } => s.snapshot_ended(id, gone),
                Entry::Handed { to, .. } => {
                    let mut at = v;
                    while at.0 < v.0 + n {
                        let e = s.table.extent(at, v.0 + n, base);
                        s.hand_over(e, to);
                        at.0 = e.end();
                    }
                }
            }
        }
        let mut s = self.state.borrow_mut();
        s.serial = summary.serial;
        (s.epoch, s.last_sum) = (summary.epoch.max(s.epoch), sum);
        s.stamp = s.stamp.max(summary.stamp);
        (s.completed, s.durable) = (s.serial, s.serial);
        Ok(())
    }
}

/// Each entry with its payload's place; that of one without payload is of no interest.
fn entries(summary: &Summary) -> impl Iterator<Item = (Entry, Place)> {
    let mut at = summary.place;
    summary.entries.iter().map(move |e| {
        if e.has_payload() {
            at = at.plus(1);
        }
        (e.clone(), at)
    })
}

impl State {
    /// A head is found to have written this partial: its segments are taken, before anything is
    /// allocated.
    fn enter(&mut self, summary: &Summary, plant: &Option<&'static str>) {
        let segment = self.geometry.segment_of(summary.place).expect("it was checked");
        let start = self.geometry.start(segment).0;
        let head = &mut self.heads[usize::from(summary.head)];
        let stays = head.segment == segment && summary.place.0 == start + u64::from(head.offset);
        let follows = stays || head.next == segment && summary.place.0 == start;
        assert!(follows, "I3: head {} did not go on at {:?}", summary.head, summary.place);
        let left = (head.segment != segment).then_some(head.segment);
        head.segment = segment;
        head.offset = (summary.place.0 - start) as u32 + 1 + summary.payload;
        head.next = summary.next;
        if let Some(left) = left {
            self.usage.close(left);
        }
        if *plant != Some("roll-forward-allocates-visited") {
            self.usage.claim(summary.next, Use::Open);
        }
        self.usage.claim(segment, Use::Open);
    }

    /// What the volume had of a block that was written is a snapshot's, or nobody's.
    fn written_again(&mut self, v: Virt, base: &Base) {
        let old = self.table.place(v, base);
        if self.planted("snapshot-not-followed") {
            old.into_iter().for_each(|p| self.died(p, 1));
        } else {
            self.give_up(Extent { v, n: 1, place: old }, base);
        }
    }

    fn replace(&mut self, new: Extent, stamp: u64, old: Option<Place>) {
        if let Some(old) = old {
            self.died(old, 1);
        }
        if let Some(seg) = new.place.and_then(|p| self.geometry.segment_of(p)) {
            self.usage.born(seg, stamp);
        }
        self.table.active.set(new);
    }
}

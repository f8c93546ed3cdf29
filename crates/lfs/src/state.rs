//! All that a store holds in memory. It asks no disk.

use crate::beyond::Broken;
use crate::checkpoint::no_room;
use crate::clean::Thresholds;
use crate::extents::Extent;
use crate::geometry::{BLOCK, Geometry, SegNo, Virt};
use crate::graph::Graph;
use crate::heads::{Head, Placing};
use crate::idle::Idle;
use crate::log::{Flight, Ready};
use crate::measure::Speed;
use crate::memory::Residents;
use crate::pace::{Pace, Purpose};
use crate::patches::Patches;
use crate::plug::Deaths;
use crate::policy::{Costs, Planner};
use crate::possible::are_different;
use crate::snapshot::Snapshots;
use crate::store::OpenOptions;
use crate::summary::{Epoch, Serial};
use crate::table::Table;
use crate::totals::Totals;
use crate::usage::{Usage, Use};
use env::{Block, DiskError, IdMap, Nanos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What was done since the store was opened, in blocks unless said otherwise.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Written by users.
    pub written: u64,
    /// Bytes that users wrote, in whole blocks and in parts of them.
    pub user_bytes: u64,
    /// Freed by users.
    pub freed: u64,
    /// Freed because no snapshot needs them any more.
    pub reclaimed: u64,
    /// Atomic groups put by callers.
    pub groups: u64,
    /// Bytes that were put in summaries as ranges.
    pub range_bytes: u64,
    /// Written as a whole because too much was pending of them.
    pub folded: u64,
    /// Moved by the cleaner.
    pub moved: u64,
    /// Of these, put into holes of other segments.
    pub plugged: u64,
    /// Written into holes.
    pub plug_blocks: u64,
    /// Written to say what is in the holes of a segment.
    pub amended: u64,
    /// Read by the cleaner.
    pub read_to_clean: u64,
    /// Requests in which it did.
    pub clean_reads: u64,
    /// What it moved that was in memory.
    pub remembered: u64,
    /// Written in partial segments: contents and summaries.
    pub log_blocks: u64,
    /// Partial segments.
    pub partials: u64,
    /// Written for the table and the checkpoints.
    pub table_blocks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Segments the cleaner has emptied.
    pub cleaned: u64,
    /// Of these, in idle time.
    pub cleaned_idle: u64,
    /// Moved in idle time because they are read one behind the other.
    pub reorganised: u64,
    /// Nanoseconds that this took, cleaning behind it included, and those that reads have saved by
    /// it, as the disk's costs have it.
    pub reorganise_spent: u64,
    /// See before.
    pub reorganise_saved: u64,
    /// Nanoseconds of the longest wait of a write for segments.
    pub wait_max: u64,
}

/// The cleaner found nothing to gain.
#[derive(Clone, Debug)]
pub(crate) struct Stuck {
    /// When so much had been written and freed.
    pub(crate) changes: u64,
    /// Nor would it before; None: not before something has changed.
    pub(crate) until: Option<Nanos>,
    /// What whoever waits for room is told.
    pub(crate) why: DiskError,
}

pub(crate) struct State {
    pub(crate) geometry: Geometry,
    /// Blocks that may live, where the volume has more (I15).
    capacity: Option<u64>,
    pub(crate) seed: u32,
    pub(crate) plant: Option<&'static str>,
    pub(crate) planner: Planner,
    pub(crate) table: Table,
    pub(crate) usage: Usage,
    pub(crate) deaths: Deaths,
    pub(crate) residents: Residents,
    /// What is read behind what; None: nothing is laid for it.
    pub(crate) graph: Option<Graph>,
    /// Ranges whose blocks have not been written since.
    pub(crate) patches: Patches,
    pub(crate) snapshots: Snapshots,
    /// What ended ones have is being freed.
    pub(crate) reclaiming: bool,
    /// So often it has failed one time after the other.
    pub(crate) reclaim_failures: u32,
    pub(crate) heads: Vec<Head>,
    pub(crate) placing: Placing,
    /// The last partial segment's serial, and its sum.
    pub(crate) serial: Serial,
    pub(crate) last_sum: u32,
    pub(crate) epoch: Epoch,
    /// The epoch of the newest checkpoint (I6).
    pub(crate) epoch_durable: Epoch,
    /// Blocks written by users since the store was made.
    pub(crate) stamp: u64,
    /// Between `begin_group` and `end_group`.
    pub(crate) in_group: bool,
    /// What is closed is not what users had put at some moment: the rest is in open partials.
    pub(crate) torn: bool,
    /// Groups of callers that were put; of these, the last that is durable.
    pub(crate) put: u64,
    pub(crate) put_durable: u64,
    /// Partials of users closed at the end of a group: all that was put before is in them.
    pub(crate) sealed: u64,
    /// Blocks that are kept for groups to come.
    pub(crate) reserved: u64,
    pub(crate) pace: Pace,
    pub(crate) idle: Idle,
    /// Blocks with ranges are being written as a whole.
    pub(crate) folding: bool,
    /// Contents that the disk does not have yet, by place.
    pub(crate) pending: IdMap<u64, Block>,
    pub(crate) ready: VecDeque<Ready>,
    pub(crate) flights: BTreeMap<Serial, Flight>,
    /// All partials up to here have ended; are durable.
    pub(crate) completed: Serial,
    pub(crate) durable: Serial,
    pub(crate) flushing: bool,
    /// Where the table's next block goes.
    pub(crate) table_at: Option<(SegNo, u32)>,
    /// The table's segments that the older and the newer checkpoint name.
    pub(crate) named: [BTreeSet<SegNo>; 2],
    /// Blocks of log since the last checkpoint was begun.
    pub(crate) since_checkpoint: u64,
    pub(crate) checkpoint_wanted: bool,
    pub(crate) cleaning: bool,
    pub(crate) thresholds: Thresholds,
    /// Blocks that the cleaner's pass is still to move.
    pub(crate) to_move: u64,
    /// Free segments beyond the reserve that somebody waits for.
    pub(crate) segments_wanted: u32,
    /// The cleaner found nothing to gain.
    pub(crate) stuck: Option<Stuck>,
    /// So much has to be written and freed before cleaning is tried again by itself.
    pub(crate) clean_from: u64,
    pub(crate) failed: Option<DiskError>,
    /// The log that was followed is damaged where it ended.
    pub(crate) broken: Option<Broken>,
    pub(crate) stats: Stats,
    /// What was done before the store was opened.
    pub(crate) before: Totals,
}

impl State {
    pub(crate) fn new(geometry: Geometry, seed: u32, options: &OpenOptions) -> State {
        let segment = u64::from(geometry.segment_blocks) * BLOCK;
        let speed = options.disk.unwrap_or(Speed::USUAL);
        let costs = Costs::new(speed.access as f64, speed.bandwidth as f64, segment, BLOCK);
        let blocks = geometry.blocks();
        State {
            geometry,
            capacity: geometry.is_thin().then(|| geometry.capacity()),
            seed,
            plant: options.plant,
            planner: Planner::new(options.policy, costs, blocks),
            table: Table::default(),
            usage: Usage::new(geometry.segments, geometry.segment_blocks),
            deaths: Deaths::default(),
            residents: Residents::default(),
            graph: crate::reorganise::is_wanted(options).then(Graph::default),
            patches: Patches::default(),
            snapshots: Snapshots::default(),
            reclaiming: false,
            reclaim_failures: 0,
            heads: Vec::new(),
            placing: Placing::new(options.policy, geometry.user_heads()),
            serial: Serial::default(),
            last_sum: 0,
            epoch: Epoch::default(),
            epoch_durable: Epoch::default(),
            stamp: 0,
            in_group: false,
            torn: false,
            put: 0,
            put_durable: 0,
            sealed: 0,
            reserved: 0,
            pace: Pace::default(),
            idle: Idle::default(),
            folding: false,
            pending: IdMap::default(),
            ready: VecDeque::new(),
            flights: BTreeMap::new(),
            completed: Serial::default(),
            durable: Serial::default(),
            flushing: false,
            table_at: None,
            named: [BTreeSet::new(), BTreeSet::new()],
            since_checkpoint: 0,
            checkpoint_wanted: false,
            cleaning: false,
            thresholds: options.thresholds,
            to_move: 0,
            segments_wanted: 0,
            stuck: None,
            clean_from: 0,
            failed: None,
            broken: None,
            stats: Stats::default(),
            before: Totals::default(),
        }
    }

    /// Free segments, those included that the table has taken of what is kept for it.
    pub(crate) fn spare(&self) -> u32 {
        self.usage.free_or_table(self.table_reserve())
    }

    /// Segments that only the table and the checkpoints may take: as many as the volume's blocks
    /// may need, or what there is with those of snapshots.
    pub(crate) fn table_reserve(&self) -> u32 {
        if self.snapshots.is_unused() {
            return self.geometry.table_reserve();
        }
        let least = self.geometry.extents_max();
        let runs: u64 = self.table.runs.iter().map(|r| r.extents).sum();
        let new = self.table.active.len() + self.table.frozen.as_ref().map_or(0, |f| f.len());
        self.geometry.table_reserve_for(least.max(runs + new as u64))
    }

    /// Segments that users leave alone.
    pub(crate) fn reserve(&self) -> u32 {
        self.table_reserve() + self.geometry.cleaner_reserve()
    }

    /// Segments that who adds something leaves to who does not: only where snapshots may hold all
    /// else, as without them there is always room for the volume.
    pub(crate) fn last_reserve(&self, purpose: Purpose) -> u32 {
        let kept = purpose == Purpose::More && self.snapshots_hold();
        if kept { self.geometry.last_reserve() } else { 0 }
    }

    /// Are there snapshots, or is what deleted ones had not free yet?
    fn snapshots_hold(&self) -> bool {
        !self.snapshots.all.is_empty()
    }

    /// What who finds no room is told.
    pub(crate) fn no_room(&self) -> DiskError {
        no_room(self.snapshots_hold())
    }

    /// Blocks that may hold something beside those that do; None: as many as the volume has.
    pub(crate) fn room(&self) -> Option<u64> {
        self.capacity.map(|all| all.saturating_sub(self.holding()))
    }

    /// Blocks that hold something: in their places, or as ranges.
    pub(crate) fn holding(&self) -> u64 {
        self.usage.live() + self.patches.len() as u64
    }

    /// May so many more hold something (I15)? False: not before others have given back what is kept
    /// for them. Errors: not before something is freed.
    pub(crate) fn may_hold_more(&self, blocks: u64) -> Result<bool, DiskError> {
        let Some(room) = self.room() else { return Ok(true) };
        if blocks > room && !self.planted("thin-without-bound") {
            return Err(self.no_room());
        }
        Ok(blocks + self.reserved <= room || self.reserved == 0)
    }

    /// Blocks were read. Those named in `over`, counted from the first, have newer ranges in memory
    /// that are laid over what was read. Notes in which order blocks are read.
    pub(crate) fn note_read(&mut self, e: Extent, over: impl Iterator<Item = u64>, now: Nanos) {
        let Some(first) = e.place else { return };
        if self.graph.is_some() {
            (0..u64::from(e.n))
                .for_each(|i| self.note_order_of_reads(Virt(e.v.0 + i), first.plus(i), now));
        }
        if !self.residents.is_watched() {
            return;
        }
        for i in 0..u64::from(e.n) {
            let segment = self.geometry.segment_of(first.plus(i));
            self.residents.lies(Virt(e.v.0 + i), segment);
        }
        over.for_each(|i| self.residents.lies(Virt(e.v.0 + i), None));
    }

    /// What was done since the store was made.
    pub(crate) fn totals(&self) -> Totals {
        self.before.with(&self.stats)
    }

    /// What whoever waits for room is told, where cleaning now would gain nothing; None: it may.
    pub(crate) fn is_stuck(&self, now: Nanos) -> Option<&DiskError> {
        let same = self.stuck.as_ref().filter(|s| s.changes == self.changes());
        same.filter(|s| s.until.is_none_or(|until| now < until)).map(|s| &s.why)
    }

    /// Grows whenever a block may have died.
    pub(crate) fn changes(&self) -> u64 {
        self.stats.written + self.stats.freed + self.stats.reclaimed
    }

    /// What is so whenever a checkpoint begins: no group is said in part, and what is counted is
    /// what is there.
    pub(crate) fn check_at_checkpoint(&self) {
        let open = self.heads.iter().position(|h| h.open.is_some());
        assert!(open.is_none(), "I7: a checkpoint begins, and head {open:?} has a partial open");
        let whole = !self.in_group && !self.torn;
        assert!(whole, "I5: a checkpoint begins within a group: {}, {}", self.in_group, self.torn);
        let (epoch, said) = (self.epoch, self.epoch_durable);
        assert!(said <= epoch, "I6: a checkpoint of epoch {epoch}, and there is one of {said}");
        self.usage.check();
        self.patches.check();
        if self.planted("roll-forward-allocates-visited") {
            return;
        }
        let taken = || self.heads.iter().flat_map(|h| [h.segment, h.next]);
        assert!(are_different(taken()), "I3: two heads have the same segment");
        let other = taken().find(|seg| self.usage.get(*seg).used != Use::Open);
        assert!(other.is_none(), "I3: a head has {other:?}, which may be another's");
        let written = self.usage.all().filter(|(_, s)| s.used == Use::Open).count();
        assert_eq!(written, taken().count(), "I3: segments count as written that no head has");
    }

    pub(crate) fn planted(&self, name: &str) -> bool {
        self.plant == Some(name)
    }
}

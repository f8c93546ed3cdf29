//! A log of blocks on a modelled disk, as matthews-1997 simulates it: segments, what lies in them,
//! and the cleaner's own policies deciding over them. A request takes an access and its transfer;
//! nothing else takes time. There is no table, no summary and no checkpoint.
//!
//! Invariants:
//! * L1. A block lies where `at` says, and nowhere else: each segment has as many live blocks as
//!   its slots hold.
//! * L2. Of a segment's live blocks so many are in memory as it counts; of a free one none.
//! * L3. An open segment is its class's head, and has room.
//! * L4. A block that is to be moved into a hole has one, and lies nowhere else meanwhile.
//! * L5. In memory are no more blocks than there is room for, each used last when it says.
//! * L6. What was done adds up: victims were read, their live blocks moved or plugged, and neither
//!   cleaning nor plugging gives time back.
//! * L7. A disk has segments of whole blocks, and room for what is to lie there.

use lfs::{Candidate, Costs, Lifespans, Limits, Planner, Policy, SegNo, Way};

/// No block lies there.
const NOTHING: u32 = u32::MAX;

/// A disk's mean access and bandwidth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Drive {
    pub(super) access_ms: f64,
    /// Megabytes a second.
    pub(super) bandwidth: f64,
}

/// How a plugged block is found again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plugs {
    /// It has its own header, of 512 bytes, which takes no room.
    Headers,
    /// It costs nothing.
    Free,
    /// Each segment's header is read and written with its plugs.
    Segments,
}

/// Where users' and the cleaner's blocks go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placement {
    /// One head each.
    Two,
    /// Heads by how long blocks live (wang-2022).
    SepBit,
}

/// The disk, and what is done with it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Shape {
    pub(super) drive: Drive,
    pub(super) segment_bytes: u64,
    pub(super) block_bytes: u64,
    pub(super) segments: u32,
    pub(super) policy: Policy,
    pub(super) placement: Placement,
    pub(super) plugs: Plugs,
    /// Bytes that a pass reads at most.
    pub(super) pass_bytes: u64,
    /// Blocks that fit into memory.
    pub(super) memory: usize,
}

impl Shape {
    /// The paper's: 1 GB in segments of 256 KB and blocks of 8 KB, on its disk.
    pub(super) fn paper(policy: Policy) -> Shape {
        Shape {
            drive: Drive { access_ms: 15.0, bandwidth: 5.0 },
            segment_bytes: 256 << 10,
            block_bytes: 8192,
            segments: 4096,
            policy,
            placement: Placement::Two,
            plugs: Plugs::Free,
            pass_bytes: 20 << 20,
            memory: 0,
        }
    }
    /// Blocks in a segment.
    pub(super) fn per(&self) -> u32 {
        (self.segment_bytes / self.block_bytes) as u32
    }
    /// Blocks of all segments.
    pub(super) fn blocks(&self) -> u32 {
        self.segments * self.per()
    }
    /// Milliseconds of a request for so many bytes.
    pub(super) fn request(&self, bytes: u64) -> f64 {
        self.drive.access_ms + self.transfer(bytes)
    }
    /// Milliseconds of these bytes at full bandwidth.
    pub(super) fn transfer(&self, bytes: u64) -> f64 {
        bytes as f64 / (self.drive.bandwidth * 1e3)
    }
    fn costs(&self) -> Costs {
        let header = if self.plugs == Plugs::Headers { 512 } else { 0 };
        let (access, bandwidth) = (self.drive.access_ms * 1e6, self.drive.bandwidth * 1e6);
        Costs::new(access, bandwidth, self.segment_bytes, self.block_bytes + header)
    }
}

/// What was done, in blocks, and how long it took.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct Did {
    /// Written by users.
    pub(super) new: u64,
    /// Segments read by the cleaner.
    pub(super) read: u64,
    /// Milliseconds that these take less, because of what is in memory.
    saved_ms: f64,
    /// Moved into new segments, and into holes.
    pub(super) moved: u64,
    pub(super) plugged: u64,
    /// Holes one behind the other count once.
    pub(super) plug_runs: u64,
    /// Segments whose holes were plugged.
    targets: u64,
    /// Victims, and their live blocks.
    victims: u64,
    victims_live: u64,
    /// Of the passes, those that plugged.
    pub(super) passes: [u64; 2],
}

#[derive(Clone)]
struct Segment {
    /// What lies where; as long as it has been filled.
    slots: Vec<u32>,
    live: u32,
    /// Live blocks in memory.
    cached: u32,
    /// When its youngest block was written by a user.
    youngest: u64,
    /// When it was begun.
    begun: u64,
    class: u8,
    open: bool,
}

/// Blocks in memory: the last used.
struct Memory {
    /// By block, when it was used last; 0: it is not in memory.
    used: Vec<u64>,
    order: std::collections::VecDeque<(u32, u64)>,
    blocks: usize,
    tick: u64,
}

/// The log.
pub(super) struct Log {
    shape: Shape,
    segments: Vec<Segment>,
    /// By block: segment and slot.
    at: Vec<(u32, u32)>,
    /// By block: when a user wrote it.
    written: Vec<u64>,
    free: Vec<u32>,
    /// By class.
    heads: Vec<Option<u32>>,
    planner: Planner,
    lifespans: Lifespans,
    memory: Memory,
    /// Blocks written by users.
    clock: u64,
    pub(super) did: Did,
}

impl Log {
    pub(super) fn new(shape: Shape, blocks: u32) -> Log {
        let whole = shape.per() > 0 && shape.segment_bytes.is_multiple_of(shape.block_bytes);
        assert!(whole && blocks <= shape.blocks(), "L7: {blocks} blocks on {shape:?}");
        let none = Segment {
            slots: Vec::new(),
            live: 0,
            cached: 0,
            youngest: 0,
            begun: 0,
            class: 0,
            open: false,
        };
        let used = if shape.memory > 0 { vec![0; blocks as usize] } else { Vec::new() };
        let memory = Memory { used, order: Default::default(), blocks: 0, tick: 0 };
        Log {
            shape,
            segments: vec![none; shape.segments as usize],
            at: vec![(NOTHING, 0); blocks as usize],
            written: vec![0; blocks as usize],
            free: (0..shape.segments).rev().collect(),
            heads: vec![None; Lifespans::CLASSES],
            planner: Planner::new(shape.policy, shape.costs(), u64::from(shape.blocks())),
            lifespans: Lifespans::default(),
            memory,
            clock: 0,
            did: Did::default(),
        }
    }

    /// A user writes a block.
    pub(super) fn write(&mut self, block: u32) {
        let class = match self.shape.placement {
            Placement::Two => 0,
            Placement::SepBit => {
                let there = self.at[block as usize].0 != NOTHING;
                let lived = there.then(|| self.clock - self.written[block as usize]);
                self.lifespans.of_write(lived)
            }
        };
        self.bury(block);
        self.clock += 1;
        self.did.new += 1;
        self.written[block as usize] = self.clock;
        self.touch(block);
        self.place(block, usize::from(class));
    }

    /// Is anything kept in memory? Else reads make no difference.
    pub(super) fn remembers(&self) -> bool {
        self.shape.memory > 0
    }

    /// A user reads a block.
    pub(super) fn read(&mut self, block: u32) {
        self.touch(block);
    }

    /// A block's old place is a hole.
    fn bury(&mut self, block: u32) {
        let (seg, slot) = self.at[block as usize];
        if seg == NOTHING {
            return;
        }
        let cached = self.is_cached(block);
        self.at[block as usize] = (NOTHING, 0);
        let s = &mut self.segments[seg as usize];
        assert_eq!(s.slots[slot as usize], block, "L1: segment {seg} has another in slot {slot}");
        s.slots[slot as usize] = NOTHING;
        s.live -= 1;
        s.cached -= u32::from(cached);
        if s.live == 0 && !s.open {
            self.release(seg);
        }
    }

    fn release(&mut self, seg: u32) {
        let (class, lived) = {
            let s = &mut self.segments[seg as usize];
            assert_eq!((s.live, s.cached), (0, 0), "L2: segment {seg} is free, and holds blocks");
            s.slots.clear();
            (s.class, self.clock - s.begun)
        };
        self.lifespans.ended(class, lived);
        self.free.push(seg);
    }

    /// Puts a block behind the others of its class.
    fn place(&mut self, block: u32, class: usize) {
        let head = match self.heads[class] {
            Some(h) => h,
            None => {
                if self.free.is_empty() {
                    self.collect();
                }
                // What the cleaner wrote meanwhile may have opened this class's head.
                self.heads[class].unwrap_or_else(|| self.begin(class))
            }
        };
        let (cached, now) = (self.is_cached(block), self.written[block as usize]);
        let per = self.shape.per() as usize;
        let s = &mut self.segments[head as usize];
        let open = s.open && usize::from(s.class) == class && s.slots.len() < per;
        assert!(open, "L3: segment {head} is the head of {class}, with {} blocks", s.slots.len());
        self.at[block as usize] = (head, s.slots.len() as u32);
        s.slots.push(block);
        s.live += 1;
        s.cached += u32::from(cached);
        assert!(s.cached <= s.live, "L2: {} of {} blocks of {head} cached", s.cached, s.live);
        s.youngest = s.youngest.max(now);
        if s.slots.len() == per {
            s.open = false;
            self.heads[class] = None;
            if s.live == 0 {
                self.release(head);
            }
        }
    }

    fn begin(&mut self, class: usize) -> u32 {
        let seg = self.free.pop().expect("a pass frees more than it takes");
        let s = &mut self.segments[seg as usize];
        let blank = !s.open && s.live == 0 && s.slots.is_empty();
        assert!(blank, "L3: segment {seg} is begun, and holds {} blocks", s.live);
        (s.youngest, s.begun, s.class, s.open) = (0, self.clock, class as u8, true);
        self.heads[class] = Some(seg);
        seg
    }

    /// A pass of the cleaner, or as many as it takes until a segment is free.
    fn collect(&mut self) {
        while self.free.is_empty() {
            self.pass();
        }
    }

    fn pass(&mut self) {
        let (per, clock) = (self.shape.per(), self.clock);
        let closed = (0..).zip(&self.segments).filter(|(_, s)| !s.open && s.live > 0);
        let candidates = closed.map(|(n, s)| Candidate {
            segment: SegNo(n),
            live: s.live,
            blocks: per,
            cached: s.cached,
            holes: per - s.live,
            age: clock - s.youngest,
        });
        let candidates: Vec<Candidate> = candidates.collect();
        // All slots are looked at, once in a pass.
        debug_assert!(candidates.iter().all(|c| self.counts(c)), "L1, L2: a count is another");
        let most = u64::MAX;
        let victims = (self.shape.pass_bytes / self.shape.segment_bytes) as usize;
        let limits = Limits { victims, moved: most, plugged: most, freed: most };
        let plan = self.planner.plan(candidates, &limits);
        assert!(!plan.victims.is_empty(), "L7: the disk is full");
        let (moved, before) = (self.did.moved + self.did.plugged, self.did.victims_live);
        self.did.passes[usize::from(plan.way == Way::Plug)] += 1;
        let mut survivors: Vec<(u32, u8)> = Vec::new();
        for v in &plan.victims {
            self.empty(v, &mut survivors);
        }
        match plan.way {
            Way::Clean => {
                // Cold with cold.
                survivors.sort_by_key(|(b, _)| self.written[*b as usize]);
                self.did.moved += survivors.len() as u64;
                for (block, class) in survivors {
                    let to = match self.shape.placement {
                        Placement::Two => 1,
                        Placement::SepBit => {
                            let age = self.clock - self.written[block as usize];
                            self.lifespans.of_move(class, age)
                        }
                    };
                    self.place(block, usize::from(to));
                }
            }
            Way::Plug => self.plug(&plan.targets, survivors),
        }
        let (moved, live) =
            (self.did.moved + self.did.plugged - moved, self.did.victims_live - before);
        assert_eq!(moved, live, "L6: of the victims' live blocks so many were moved");
    }

    /// Are a segment's counts those of its blocks?
    fn counts(&self, c: &Candidate) -> bool {
        let s = &self.segments[c.segment.0 as usize];
        let there = (0..).zip(&s.slots).filter(|(_, b)| **b != NOTHING);
        let lies = |(slot, b): (u32, &u32)| self.at[*b as usize] == (c.segment.0, slot);
        let (live, cached) = there.clone().fold((0, 0), |(live, cached), (_, b)| {
            (live + 1, cached + u32::from(self.is_cached(*b)))
        });
        there.clone().all(lies) && (c.live, c.cached) == (live, cached)
    }

    /// Reads a victim; its segment is free.
    fn empty(&mut self, v: &Candidate, survivors: &mut Vec<(u32, u8)>) {
        self.did.victims += 1;
        self.did.victims_live += u64::from(v.live);
        self.did.read += 1;
        // Without memory, whole segments are read, as the paper has it.
        if self.shape.memory > 0 {
            let whole = self.shape.request(self.shape.segment_bytes);
            self.did.saved_ms += whole - self.shape.costs().read(v) / 1e6;
        }
        let s = &mut self.segments[v.segment.0 as usize];
        assert_eq!((s.live, s.open), (v.live, false), "L1: the victim {:?}", v.segment);
        let class = s.class;
        survivors.extend(s.slots.iter().filter(|b| **b != NOTHING).map(|b| (*b, class)));
        (s.live, s.cached) = (0, 0);
        self.release(v.segment.0);
    }

    /// Writes blocks into holes.
    fn plug(&mut self, targets: &[Candidate], survivors: Vec<(u32, u8)>) {
        let mut left = survivors.into_iter().map(|s| s.0).peekable();
        for t in targets {
            if left.peek().is_none() {
                return;
            }
            self.did.targets += 1;
            let mut before = None;
            for slot in 0..self.shape.per() {
                if self.segments[t.segment.0 as usize].slots[slot as usize] != NOTHING {
                    continue;
                }
                let Some(block) = left.next() else { break };
                let cached = self.is_cached(block);
                let s = &mut self.segments[t.segment.0 as usize];
                assert!(!s.open && s.live > 0, "L4: {:?} is no target", t.segment);
                s.slots[slot as usize] = block;
                s.live += 1;
                s.cached += u32::from(cached);
                s.youngest = s.youngest.max(self.written[block as usize]);
                self.at[block as usize] = (t.segment.0, slot);
                self.did.plugged += 1;
                self.did.plug_runs += u64::from(before.is_none_or(|b| b + 1 != slot));
                before = Some(slot);
            }
        }
        assert!(left.peek().is_none(), "L4: there were holes for all");
    }

    fn is_cached(&self, block: u32) -> bool {
        self.memory.used.get(block as usize).is_some_and(|t| *t > 0)
    }

    /// A block is used; another may leave the memory.
    fn touch(&mut self, block: u32) {
        if self.shape.memory == 0 {
            return;
        }
        let m = &mut self.memory;
        m.tick += 1;
        m.order.push_back((block, m.tick));
        let before = std::mem::replace(&mut m.used[block as usize], m.tick);
        if before > 0 {
            return;
        }
        m.blocks += 1;
        if let (seg, _) = self.at[block as usize]
            && seg != NOTHING
        {
            self.segments[seg as usize].cached += 1;
        }
        while self.memory.blocks > self.shape.memory {
            let Some((old, tick)) = self.memory.order.pop_front() else { return };
            if self.memory.used[old as usize] != tick {
                continue;
            }
            self.memory.used[old as usize] = 0;
            self.memory.blocks -= 1;
            let (seg, _) = self.at[old as usize];
            if seg != NOTHING {
                self.segments[seg as usize].cached -= 1;
            }
        }
        let (blocks, room) = (self.memory.blocks, self.shape.memory);
        let known = self.memory.order.len();
        assert!(blocks <= room && blocks <= known, "L5: {blocks} of {room}, {known} known");
    }

    /// What was done since the last time.
    pub(super) fn take(&mut self) -> Did {
        let did = std::mem::take(&mut self.did);
        assert_eq!(did.read, did.victims, "L6: so many segments were read");
        let runs = did.plug_runs <= did.plugged && did.targets <= did.plugged;
        assert!(runs && did.saved_ms >= 0.0, "L6: {did:?}");
        did
    }
}

impl Did {
    /// The victims' share of live blocks.
    pub(super) fn utilisation(&self, s: &Shape) -> f64 {
        self.victims_live as f64 / (self.victims * u64::from(s.per())).max(1) as f64
    }
    /// Write cost (EQ1): what was written and read for each block that users wrote.
    pub(super) fn write_cost(&self, s: &Shape) -> f64 {
        let read = self.read * u64::from(s.per());
        (self.new + read + self.moved + self.plugged) as f64 / self.new as f64
    }
    /// Blocks written for each that users wrote.
    pub(super) fn amplification(&self) -> f64 {
        (self.new + self.moved + self.plugged) as f64 / self.new as f64
    }
    /// Overall write cost (EQ3, EQ5): the time, beside that of the new blocks alone at full
    /// bandwidth. `together`: users' blocks that are written in one request; None: whole segments.
    pub(super) fn overall(&self, s: &Shape, together: Option<u64>) -> f64 {
        let ideal = s.transfer(self.new * s.block_bytes);
        let segments =
            |blocks: u64| blocks as f64 / f64::from(s.per()) * s.request(s.segment_bytes);
        let new = match together {
            None => segments(self.new),
            Some(n) => self.new as f64 / n as f64 * s.request(n * s.block_bytes),
        };
        let read = self.read as f64 * s.request(s.segment_bytes) - self.saved_ms;
        (new + read + segments(self.moved) + self.plugs_ms(s)) / ideal
    }
    /// The cleaner's part of it.
    pub(super) fn cleaning(&self, s: &Shape, together: Option<u64>) -> f64 {
        let users = Did { new: self.new, ..Did::default() };
        let cleaning = self.overall(s, together) - users.overall(s, together);
        assert!(cleaning >= 0.0, "L6: the cleaner gives {cleaning} back");
        cleaning
    }
    fn plugs_ms(&self, s: &Shape) -> f64 {
        let of = |bytes| self.plugged as f64 * s.request(bytes);
        match s.plugs {
            Plugs::Free => of(s.block_bytes),
            Plugs::Headers => of(s.block_bytes + 512),
            Plugs::Segments => of(s.block_bytes) + self.targets as f64 * 2.0 * s.request(512),
        }
    }
    /// The same with holes one behind the other plugged in one request.
    pub(super) fn overall_in_runs(&self, s: &Shape) -> f64 {
        let ideal = s.transfer(self.new * s.block_bytes);
        let runs =
            self.plug_runs as f64 * s.drive.access_ms + s.transfer(self.plugged * s.block_bytes);
        self.overall(s, None) + (runs - self.plugs_ms(s)) / ideal
    }
}

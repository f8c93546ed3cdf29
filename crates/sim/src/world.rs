//! Virtual time: requests take as long as a model says, ends come in the order of their times, and
//! nothing else makes time pass.
//!
//! Invariants:
//! * W1. A request is of whole sectors of a disk of this world, or of a bucket that a machine of it
//!   has a way to.
//! * W2. Nothing ends before it begins: no model takes time back.
//! * W3. Two writes of one place are never in flight together, nor, where that is refused, a read
//!   and a write. That a write will fail, or that nothing is recorded, changes nothing of it.
//! * W4. What was carried out is counted once at the world and once at its disk: reads and flushes
//!   are as many here as there, and of writes, which a recorded discard is too, none are missing.
//! * W5. Each request of a disk has one end: those that have ended and those under way are all.
//! * W6. The trace has an event for each write and flush while it is kept, and none afterwards.
//! * W7. What is to fail is there: a disk of this world, bytes of one.
//! * W8. A world's disks, clocks and models are settled before it is asked anything.

use crate::bucket::Machine;
use crate::image::Image;
use crate::lent::{LentImage, LentReads};
use crate::timing::{Access, Kind, Timing};
use crate::trace::{Event, Trace, Write};
use env::{DiskError, DiskErrorKind, Durability, Engine, Env, IoDone, IoOp, IoRequest, Nanos, Now};
use env::{DiskId, ReadNow, Rng, SECTOR_BYTES};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// How long a request takes, in nanoseconds.
pub type Latency = fn(op: &IoOp, bytes: u64) -> u64;

fn default_latency(op: &IoOp, bytes: u64) -> u64 {
    match op {
        IoOp::Flush => 500_000,
        IoOp::Read | IoOp::ReadFresh => 50_000 + bytes,
        IoOp::Lend | IoOp::Object => 0,
        _ => 20_000 + bytes,
    }
}

/// What goes wrong, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The n-th write (from 0) fails.
    Write(u64),
    /// The n-th flush fails.
    Flush(u64),
    /// Reads that touch this byte fail.
    Read(u64),
    /// The disk fails for good: its n-th write or flush (from 0, counted together), and all after.
    Gone(DiskId, u64),
    /// Writes that touch bytes of the first disk between these fail, after so many that do not.
    Area {
        /// The first byte.
        from: u64,
        /// One behind the last.
        to: u64,
        /// So many writes there succeed from now on.
        after: u64,
        /// Then one fails, and no other.
        once: bool,
    },
}

/// Writes marks into the trace from inside the engine: before whatever the same turn asks the disk.
#[derive(Clone, Default)]
pub struct Pen(Rc<RefCell<Vec<u64>>>);

impl Pen {
    /// Notes something.
    pub fn mark(&self, what: u64) {
        self.0.borrow_mut().push(what);
    }
}

/// The machines of a world, each with its way to a bucket in the place of a disk: a volume that is
/// opened on such a "disk" is one machine's.
#[derive(Clone, Default)]
pub struct Machines(Rc<RefCell<BTreeMap<DiskId, Rc<Machine>>>>);

impl Machines {
    /// Requests to this disk are from now on this machine's to its bucket.
    pub fn attach(&self, id: DiskId, machine: Rc<Machine>) {
        self.0.borrow_mut().insert(id, machine);
    }
    fn get(&self, id: DiskId) -> Option<Rc<Machine>> {
        self.0.borrow().get(&id).cloned()
    }
    /// Each request travels in a task of its own.
    fn begin(&self, requests: Vec<IoRequest>, env: &Env) {
        for r in requests {
            let (Some(machine), Some(op)) = (self.get(r.disk), r.object) else { continue };
            let port = env.port().clone();
            env.spawn("request", async move {
                let done = machine.carry_on(op).await;
                port.complete(IoDone::of_object(r.id, done));
            });
        }
    }
}

/// What a disk was asked, counted at the disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// Requests.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Requests.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
    /// Requests.
    pub flushes: u64,
}

/// Bytes of a disk that a request under way is of.
#[derive(Clone, Copy)]
struct Span {
    disk: DiskId,
    at: u64,
    len: u64,
    is_write: bool,
}

impl Span {
    /// Have the two a byte in common? Then the first of them.
    fn meets(&self, other: &Span) -> Option<u64> {
        let first = self.at.max(other.at);
        let last = (self.at + self.len).min(other.at + other.len);
        (self.disk == other.disk && first < last).then_some(first)
    }
}

/// One engine, its disks, one clock.
pub struct World {
    /// What reads see.
    pub disk: Image,
    /// The same of further disks: `DiskId(1)` on.
    pub logs: Vec<Image>,
    /// What was asked.
    pub trace: Trace,
    /// Requests carried out: reads, writes, flushes.
    pub counts: [u64; 3],
    /// What each disk was asked, in the order of their numbers.
    traffic: Vec<Traffic>,
    /// The same of all disks together, up to when it was last taken: reads, writes, flushes.
    taken: [u64; 3],
    /// Discards that were carried out as writes.
    discards: u64,
    forgets: bool,
    /// Are reads of what is being written refused?
    refuses_mixed: bool,
    latency: Latency,
    timings: Vec<Box<dyn Timing>>,
    fault: Option<Fault>,
    /// Has it gone wrong?
    has_failed: bool,
    /// Writes to the area that fails.
    area_writes: u64,
    now: u64,
    sequence: u64,
    ends: BTreeMap<(u64, u64), (IoDone, Option<Event>)>,
    /// So many have ended.
    ended: u64,
    /// Where writes are under way, and reads where both together are refused: by their ends.
    under_way: BTreeMap<(u64, u64), Span>,
    flushes: usize,
    pen: Pen,
    lent_reads: LentReads,
    lent_reads_take_time: bool,
    machines: Machines,
    /// Requests to buckets that the next turn begins.
    leaving: Vec<IoRequest>,
    /// The wall clock's nanoseconds since 1970 when the world begins.
    epoch: u64,
}

/// What discarded bytes read as.
const DISCARDED: u8 = 0xdc;
/// What the wall clock shows when a world begins, in nanoseconds since 1970, if nobody sets it:
/// virtual 2023, so that timestamps look like some.
pub const EPOCH: u64 = 1_700_000_000_000_000_000;

impl World {
    /// A world around this disk.
    pub fn new(disk: Image) -> World {
        World {
            disk,
            logs: Vec::new(),
            trace: Trace::default(),
            counts: [0; 3],
            traffic: Vec::new(),
            taken: [0; 3],
            discards: 0,
            forgets: false,
            refuses_mixed: false,
            latency: default_latency,
            timings: Vec::new(),
            fault: None,
            has_failed: false,
            area_writes: 0,
            now: 0,
            sequence: 0,
            ends: BTreeMap::new(),
            ended: 0,
            under_way: BTreeMap::new(),
            flushes: 0,
            pen: Pen::default(),
            lent_reads: LentReads::default(),
            lent_reads_take_time: false,
            machines: Machines::default(),
            leaving: Vec::new(),
            epoch: EPOCH,
        }
    }
    /// From here on a read of what is being written is refused, and a write of what is being read.
    /// (A log-structured store reads a run of blocks as one request, and takes those that are on
    /// their way from memory: it asks for none of this.)
    pub fn refuse_mixed_requests(&mut self) {
        self.refuses_mixed = true;
    }
    /// Requests take as long as each disk's model says, in the order of the disks' numbers.
    pub fn set_timings(&mut self, timings: Vec<Box<dyn Timing>>) {
        assert_eq!(timings.len(), 1 + self.logs.len(), "W8: a model for each disk");
        assert!(self.sequence == 0, "W8: {} requests were timed by another model", self.sequence);
        self.timings = timings;
    }
    /// From now on nothing more is kept in the trace: for runs that are long and are not cut off at
    /// every moment.
    pub fn forget(&mut self) {
        self.forgets = true;
        self.trace = Trace::default();
        // Events of what is under way belong to the trace that is gone.
        self.ends.values_mut().for_each(|end| end.1 = None);
        self.flushes = 0;
    }
    /// The wall clock shows so many seconds since 1970 when the world begins.
    pub fn set_epoch(&mut self, secs: u64) {
        assert_eq!(self.now, 0, "W8: the wall clock is set, and it has been looked at");
        self.epoch = Nanos::from_secs(secs).0;
    }
    /// From now on what is read without waiting takes the time that reads take. Otherwise it takes
    /// none, so that a run does not depend on how a volume was looked at before it.
    pub fn lent_reads_take_time(&mut self) {
        self.lent_reads_take_time = true;
    }
    /// From now on this goes wrong.
    pub fn set_fault(&mut self, fault: Fault) {
        let size = |disk: DiskId| match disk.0 {
            0 => Some(self.disk.size()),
            n => self.logs.get(usize::from(n) - 1).map(Image::size),
        };
        let is_there = match fault {
            Fault::Write(_) | Fault::Flush(_) => true,
            Fault::Read(byte) => self.logs.iter().chain([&self.disk]).any(|d| byte < d.size()),
            Fault::Gone(disk, _) => size(disk).is_some(),
            Fault::Area { from, to, .. } => from < to && to <= self.disk.size(),
        };
        assert!(is_there, "W7: {fault:?} is of what there is not");
        self.fault = Some(fault);
    }
    /// What each disk was asked, in the order of their numbers, since it was last taken.
    pub fn traffic(&self) -> &[Traffic] {
        &self.traffic
    }
    /// Takes that away: what is counted from now on is counted from nothing.
    pub fn take_traffic(&mut self) -> Vec<Traffic> {
        self.check_counts();
        self.taken = self.asked();
        std::mem::take(&mut self.traffic)
    }
    /// Has a write or a flush failed?
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
    /// Notes something in the trace.
    pub fn mark(&mut self, what: u64) {
        if self.forgets {
            return;
        }
        self.trace.events.push(Event::Mark(what));
        self.trace.marked.push(self.epoch + self.now);
    }
    /// The pen for marks made inside the engine.
    pub fn pen(&self) -> Pen {
        self.pen.clone()
    }
    /// Its machines; so far none.
    pub fn machines(&self) -> Machines {
        self.machines.clone()
    }
    /// The time, in nanoseconds since the world began.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Turns the engine until `until` says so. Panics if nothing can happen any more, because then
    /// something waits for ever.
    pub fn run(
        &mut self,
        engine: &mut Engine,
        mut arrive: impl FnMut(&Env),
        mut until: impl FnMut(&mut World) -> bool,
    ) {
        let mut done = Vec::new();
        loop {
            let now = Now { mono: Nanos(self.now), wall: Nanos(self.epoch + self.now) };
            let leaving = std::mem::take(&mut self.leaving);
            engine.turn(now, &mut done, |env| {
                self.machines.begin(leaving, env);
                arrive(env);
            });
            self.charge_lent_reads();
            let marks: Vec<u64> = std::mem::take(&mut *self.pen.0.borrow_mut());
            if !self.forgets {
                self.trace.marked.extend(marks.iter().map(|_| now.wall.0));
                self.trace.events.extend(marks.into_iter().map(Event::Mark));
            }
            for request in engine.take_io() {
                self.begin(request);
            }
            if until(self) {
                self.check_counts();
                return;
            }
            if !self.leaving.is_empty() {
                continue;
            }
            let next_end = self.ends.keys().next().map(|k| k.0);
            let next_timer = engine.deadline().map(|d| d.0);
            let Some(next) = next_end.into_iter().chain(next_timer).min() else {
                panic!("nothing can happen any more; alive: {:?}", engine.executor().live_names());
            };
            self.now = self.now.max(next);
            let begun = self.under_way.keys().next();
            let early = begun.is_some_and(|k| !self.ends.contains_key(k));
            assert!(!early, "W5: what has ended is under way: {begun:?}");
            while let Some(entry) = self.ends.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                self.under_way.remove(entry.key());
                let (end, event) = entry.remove();
                assert!(event.is_none() || !self.forgets, "W6: {event:?} is kept");
                self.trace.events.extend(event);
                self.ended += 1;
                done.push(end);
            }
            let left = self.ends.len() as u64;
            assert_eq!(self.ended + left, self.sequence, "W5: {left} of all requests are left");
        }
    }

    /// All that the disks were asked, whatever was taken away of it: reads, writes, flushes.
    fn asked(&self) -> [u64; 3] {
        self.traffic.iter().fold(self.taken, |[reads, writes, flushes], t| {
            [reads + t.reads, writes + t.writes, flushes + t.flushes]
        })
    }

    /// W4 and W6.
    fn check_counts(&self) {
        let [reads, writes, flushes] = self.asked();
        let all = [reads, writes + self.discards, flushes];
        assert_eq!(self.counts, all, "W4: the disks have counted other requests than the world");
        let kept = [self.trace.writes.len(), self.trace.flushes.len()];
        if self.forgets {
            let marks = self.trace.events.len();
            assert_eq!((kept, marks), ([0, 0], 0), "W6: a trace is kept of what is forgotten");
        }
    }

    fn lend(&mut self, disk: DiskId) -> Arc<dyn ReadNow> {
        if let Some(machine) = self.machines.get(disk) {
            return machine.lend();
        }
        let bad = match self.fault {
            Some(Fault::Read(byte)) => Some(byte),
            _ => None,
        };
        let (image, reads) = (self.image(disk).clone(), self.lent_reads.clone());
        Arc::new(LentImage { disk, image, bad, reads })
    }

    /// Whoever reads without waiting is inside all the while: time passes for everybody.
    fn charge_lent_reads(&mut self) {
        for (disk, at, len) in self.lent_reads.take() {
            self.counts[0] += 1;
            self.count(disk, &IoOp::Read, len);
            if self.lent_reads_take_time {
                self.now = self.end_of(disk, &IoOp::Read, at, len);
            }
        }
    }

    fn image(&mut self, disk: DiskId) -> &mut Image {
        match disk.0 {
            0 => &mut self.disk,
            n => self.logs.get_mut(usize::from(n) - 1).expect("only disks of this world are asked"),
        }
    }

    /// When a request that begins now ends.
    fn end_of(&mut self, disk: DiskId, op: &IoOp, at: u64, len: u64) -> u64 {
        let Some(timing) = self.timings.get_mut(usize::from(disk.0)) else {
            return self.now + (self.latency)(op, len);
        };
        let kind = match op {
            IoOp::Read | IoOp::ReadFresh => Kind::Read,
            IoOp::Write(how) => Kind::Write { fua: *how == Durability::Fua },
            IoOp::Flush => Kind::Flush,
            IoOp::Discard { .. } | IoOp::Lend | IoOp::Object => return self.now,
        };
        let end = timing.ends_at(Nanos(self.now), Access { kind, at, len }).0;
        assert!(end >= self.now, "W2: {op:?} ends at {end}, before it begins at {}", self.now);
        end
    }

    fn count(&mut self, disk: DiskId, op: &IoOp, bytes: u64) {
        let n = usize::from(disk.0);
        if self.traffic.len() <= n {
            self.traffic.resize(n + 1, Traffic::default());
        }
        let t = &mut self.traffic[n];
        match op {
            IoOp::Read | IoOp::ReadFresh => {
                (t.reads, t.read_bytes) = (t.reads + 1, t.read_bytes + bytes);
            }
            IoOp::Write(_) => (t.writes, t.write_bytes) = (t.writes + 1, t.write_bytes + bytes),
            IoOp::Flush => t.flushes += 1,
            IoOp::Discard { .. } | IoOp::Lend | IoOp::Object => (),
        }
    }

    fn begin(&mut self, request: IoRequest) {
        if request.object.is_some() {
            let disk = request.disk;
            assert!(self.machines.get(disk).is_some(), "W1: {disk:?} is no way to a bucket");
            self.leaving.push(request);
            return;
        }
        let IoRequest { id, disk, op, at, mut blocks, .. } = request;
        let bytes: u64 = blocks.iter().map(|b| b.len() as u64).sum();
        self.check_place(disk, &op, at, bytes);
        self.count(disk, &op, bytes);
        let (event, failed) = match op {
            IoOp::Read | IoOp::ReadFresh => {
                self.counts[0] += 1;
                if op == IoOp::Read && self.refuses_mixed {
                    self.check_alone(Span { disk, at, len: bytes, is_write: false });
                }
                let mut from = at;
                for b in &mut blocks {
                    self.image(disk).read(from, b.bytes_mut());
                    from += b.len() as u64;
                }
                let bad = matches!(self.fault, Some(Fault::Read(b)) if b >= at && b < at + bytes);
                (None, bad.then_some("read"))
            }
            IoOp::Write(how) => {
                let all: Vec<u8> = blocks.iter().flat_map(|b| b.bytes().to_vec()).collect();
                let fua = how == Durability::Fua;
                self.begin_write(Write { disk, at, bytes: all.into(), fua })
            }
            IoOp::Flush => self.begin_flush(disk),
            // Whatever may be read afterwards; to be seen where states are cut.
            IoOp::Discard { len } if !self.forgets => {
                let bytes = vec![DISCARDED; len as usize].into();
                self.discards += 1;
                self.begin_write(Write { disk, at, bytes, fua: false })
            }
            IoOp::Discard { .. } | IoOp::Lend | IoOp::Object => (None, None),
        };
        let lent = (op == IoOp::Lend).then(|| self.lend(disk));
        let detail = "injected".to_owned();
        let kind = DiskErrorKind::Io;
        let result = match failed {
            Some(during) => Err(DiskError { kind, during, at, detail }),
            None => Ok(()),
        };
        self.sequence += 1;
        let end = self.end_of(disk, &op, at, bytes);
        let span = match op {
            IoOp::Write(_) => Some((bytes, true)),
            IoOp::Discard { len } if !self.forgets => Some((len, true)),
            IoOp::Read if self.refuses_mixed => Some((bytes, false)),
            _ => None,
        };
        if let Some((len, is_write)) = span {
            self.under_way.insert((end, self.sequence), Span { disk, at, len, is_write });
        }
        self.ends.insert(
            (end, self.sequence),
            (IoDone { lent, ..IoDone::of_disk(id, blocks, result) }, event),
        );
    }

    /// The port has looked at the range by the size that it was told: here it is the disk's own.
    fn check_place(&mut self, disk: DiskId, op: &IoOp, at: u64, bytes: u64) {
        let len = match op {
            IoOp::Read | IoOp::ReadFresh | IoOp::Write(_) => bytes,
            IoOp::Discard { len } => *len,
            IoOp::Flush | IoOp::Lend | IoOp::Object => return,
        };
        let (size, sector) = (self.image(disk).size(), SECTOR_BYTES as u64);
        let whole = at.is_multiple_of(sector) && len.is_multiple_of(sector) && len > 0;
        assert!(whole, "W1: {op:?} of {len} bytes at {at} of {disk:?} is of parts of sectors");
        let fits = at.checked_add(len).is_some_and(|end| end <= size);
        assert!(fits, "W1: {op:?} of {len} bytes at {at} of {disk:?}, which has {size}");
    }

    /// The event of its end, or the word for its failure.
    fn begin_write(&mut self, write: Write) -> (Option<Event>, Option<&'static str>) {
        let n = self.trace.writes.len();
        let (disk, at, len) = (write.disk, write.at, write.bytes.len() as u64);
        self.check_alone(Span { disk, at, len, is_write: true });
        if !self.forgets {
            self.trace.events.push(Event::WriteIssued(n));
        }
        let nth = self.fault == Some(Fault::Write(self.counts[1]));
        let failed = nth || self.is_gone(write.disk) || self.is_bad_area(&write);
        self.has_failed |= failed;
        self.counts[1] += 1;
        // A write that fails leaves any mixture of old and new sectors.
        let mut chance = Rng::new(n as u64);
        for (i, sector) in write.bytes.chunks(SECTOR_BYTES).enumerate() {
            if !failed || chance.one_in(2) {
                self.image(write.disk).write(write.at + (i * SECTOR_BYTES) as u64, sector);
            }
        }
        let ended = (!self.forgets).then_some(Event::WriteEnded(n));
        if !self.forgets {
            self.trace.writes.push(write);
        }
        if failed { (None, Some("write")) } else { (ended, None) }
    }

    /// Has the disk failed for good? The request that asks is counted already.
    fn is_gone(&self, disk: DiskId) -> bool {
        let Some(Fault::Gone(which, n)) = self.fault else { return false };
        let asked = self.traffic.get(usize::from(disk.0)).map_or(0, |t| t.writes + t.flushes);
        which == disk && asked > n
    }

    /// Does the write go where the disk fails by now?
    fn is_bad_area(&mut self, write: &Write) -> bool {
        let Some(Fault::Area { from, to, after, once }) = self.fault else { return false };
        let touches = write.at < to && write.at + write.bytes.len() as u64 > from;
        if !touches || write.disk.0 != 0 {
            return false;
        }
        self.area_writes += 1;
        self.area_writes == after + 1 || self.area_writes > after && !once
    }

    /// Nothing orders requests in flight, so two writes to one place are a bug of whoever asks. A
    /// read beside a write of the same place finds anything, here only what is new; and what the
    /// host keeps of it may stay old. Who reads past what the host keeps knows that.
    fn check_alone(&self, mine: Span) {
        let what = match mine.is_write {
            true => ["what is being read is written", "two writes in flight to one place"],
            false => ["", "what is being written is read"],
        };
        for other in self.under_way.values().filter(|o| o.is_write || mine.is_write) {
            let (met, what) = (mine.meets(other), what[usize::from(other.is_write)]);
            assert!(met.is_none(), "W3: {what}: byte {met:?} of {:?}", mine.disk);
        }
    }

    fn begin_flush(&mut self, disk: DiskId) -> (Option<Event>, Option<&'static str>) {
        if !self.forgets {
            let kept = self.trace.flushes.len();
            assert_eq!(kept, self.flushes, "W6: a flush is not in the trace");
            self.trace.events.push(Event::FlushIssued(self.flushes));
            self.trace.flushes.push(disk);
        }
        let nth = self.fault == Some(Fault::Flush(self.counts[2]));
        let failed = nth || self.is_gone(disk);
        self.has_failed |= failed;
        self.counts[2] += 1;
        self.flushes += 1;
        if failed {
            return (None, Some("flush"));
        }
        ((!self.forgets).then_some(Event::FlushEnded(self.flushes - 1)), None)
    }
}

//! A tiny world for the log's tests: one disk with a volatile cache, requests that end in any
//! order, and power cuts after any of them, with torn sectors. It knows no log.

#![allow(dead_code, reason = "each test uses a part of it")]

use env::{
    DiskError, DiskErrorKind, DiskId, Durability, Engine, Env, IoDone, IoOp, IoRequest, Nanos, Now,
    Rng,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) const SECTOR: usize = 512;
type Sector = [u8; SECTOR];
/// When it ends, what it is, and how many writes had ended when it was issued.
type Pending = (u64, IoRequest, u64);

/// What survives, and what may.
#[derive(Clone, Default)]
pub(crate) struct Medium {
    durable: BTreeMap<u64, Sector>,
    visible: BTreeMap<u64, Sector>,
    /// Versions that were written and are not durable, each with the number of its write.
    volatile: BTreeMap<u64, Vec<(u64, Sector)>>,
    /// Writes that have ended.
    writes: u64,
}

impl Medium {
    fn sectors(req: &IoRequest) -> Vec<(u64, Sector)> {
        let mut all = Vec::new();
        let mut at = req.at / SECTOR as u64;
        for b in &req.blocks {
            for s in b.bytes().chunks(SECTOR) {
                all.push((at, s.try_into().unwrap()));
                at += 1;
            }
        }
        all
    }
    fn read(&self, at: u64) -> Sector {
        self.visible.get(&at).copied().unwrap_or([0; SECTOR])
    }
    fn apply(&mut self, req: &IoRequest, fua: bool) {
        self.writes += 1;
        for (at, bytes) in Medium::sectors(req) {
            self.visible.insert(at, bytes);
            if fua {
                self.durable.insert(at, bytes);
                self.volatile.remove(&at);
            } else {
                self.volatile.entry(at).or_default().push((self.writes, bytes));
            }
        }
    }
    /// A flush has ended that was issued after so many writes. It never covers a newer version that
    /// is durable already.
    fn flushed(&mut self, writes: u64) {
        for (at, versions) in &mut self.volatile {
            if let Some(v) = versions.extract_if(.., |v| v.0 <= writes).last() {
                self.durable.insert(*at, v.1);
            }
        }
        self.volatile.retain(|_, versions| !versions.is_empty());
    }
    /// The bytes as a reader sees them, to damage them.
    pub(crate) fn poke(&mut self, at: u64, f: impl FnOnce(&mut [u8])) {
        let mut s = self.read(at / SECTOR as u64);
        f(&mut s[at as usize % SECTOR..]);
        self.visible.insert(at / SECTOR as u64, s);
        self.durable.insert(at / SECTOR as u64, s);
    }
    /// The bytes as a reader sees them.
    pub(crate) fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let (first, last) = (at / SECTOR as u64, (at + len as u64).div_ceil(SECTOR as u64));
        let all: Vec<u8> = (first..last).flat_map(|s| self.read(s)).collect();
        all[at as usize % SECTOR..at as usize % SECTOR + len].to_vec()
    }
    /// Nothing more will happen to it.
    pub(crate) fn all_durable(&self) -> Medium {
        let durable = self.durable.clone();
        Medium { visible: durable.clone(), durable, ..Medium::default() }
    }
    /// What is left after a power cut: of each sector that is not durable, any version.
    fn cut(&self, in_flight: &[IoRequest], rng: &mut Rng) -> Medium {
        let mut candidates = self.volatile.clone();
        for req in in_flight {
            if matches!(req.op, IoOp::Write(_)) {
                let none = rng.one_in(3);
                let all = rng.one_in(3);
                for (at, bytes) in Medium::sectors(req) {
                    if all || (!none && rng.one_in(2)) {
                        candidates.entry(at).or_default().push((u64::MAX, bytes));
                    }
                }
            }
        }
        let mut durable = self.durable.clone();
        for (at, versions) in candidates {
            let pick = rng.below(versions.len() as u64 + 1) as usize;
            if let Some(v) = versions.get(pick) {
                durable.insert(at, v.1);
            }
        }
        Medium { visible: durable.clone(), durable, ..Medium::default() }
    }
}

/// The world.
pub(crate) struct World {
    pub(crate) medium: Medium,
    pub(crate) engine: Engine,
    pub(crate) bytes: u64,
    rng: Rng,
    now: u64,
    pending: Vec<Pending>,
    /// Requests that have ended.
    pub(crate) ended: u64,
    /// Bytes written, and requests by kind.
    pub(crate) written: u64,
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    /// From this request on writes fail.
    pub(crate) fail_writes_from: Option<u64>,
    /// Reads of any of these bytes fail.
    pub(crate) unreadable: std::ops::Range<u64>,
    /// How long a write takes with so many in flight, in microseconds; None: any order, no time.
    pub(crate) service: Option<fn(usize) -> u64>,
}

impl World {
    pub(crate) fn new(seed: u64, bytes: u64, medium: Medium) -> World {
        World {
            medium,
            engine: Engine::new(seed),
            bytes,
            rng: Rng::new(seed),
            now: 0,
            pending: Vec::new(),
            ended: 0,
            written: 0,
            writes: 0,
            reads: 0,
            fail_writes_from: None,
            unreadable: 0..0,
            service: None,
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    fn collect(&mut self) {
        let new = self.engine.take_io();
        let crowd = self.pending.len() + new.len();
        for req in new {
            let due = self.service.map_or(self.now, |f| self.now + f(crowd) * 1000);
            self.pending.push((due, req, self.medium.writes));
        }
    }

    fn finish(&mut self) -> IoDone {
        let i = match self.service {
            None => self.rng.below(self.pending.len() as u64) as usize,
            Some(_) => {
                let first = self.pending.iter().enumerate().min_by_key(|(_, p)| p.0);
                first.map(|(i, _)| i).unwrap()
            }
        };
        let (due, mut req, writes) = self.pending.remove(i);
        self.now = self.now.max(due);
        self.ended += 1;
        let mut result = Ok(());
        match req.op {
            IoOp::Read | IoOp::ReadFresh => {
                self.reads += 1;
                let end = req.at + req.blocks.iter().map(|b| b.len() as u64).sum::<u64>();
                if req.at < self.unreadable.end && self.unreadable.start < end {
                    let (kind, at) = (DiskErrorKind::Io, req.at);
                    let detail = String::new();
                    result = Err(DiskError { kind, during: "read", at, detail });
                }
                let mut at = req.at / SECTOR as u64;
                for b in &mut req.blocks {
                    for s in b.bytes_mut().chunks_mut(SECTOR) {
                        s.copy_from_slice(&self.medium.read(at));
                        at += 1;
                    }
                }
            }
            IoOp::Write(how) => {
                self.writes += 1;
                self.written += req.blocks.iter().map(|b| b.len() as u64).sum::<u64>();
                if self.fail_writes_from.is_some_and(|n| self.writes >= n) {
                    let (kind, at) = (DiskErrorKind::Io, req.at);
                    let detail = String::new();
                    result = Err(DiskError { kind, during: "write", at, detail });
                } else {
                    self.medium.apply(&req, how == Durability::Fua);
                }
            }
            IoOp::Flush => self.medium.flushed(writes),
            IoOp::Discard { .. } => (),
            IoOp::Lend | IoOp::Object => unreachable!("a log is a disk, and not read at once"),
        }
        IoDone::of_disk(req.id, std::mem::take(&mut req.blocks), result)
    }

    /// Runs until nothing is left to do, or until `cut` requests have ended. True if all is done.
    pub(crate) fn run(&mut self, cut: u64, start: impl FnOnce(&Env)) -> bool {
        let mut done = Vec::new();
        let mut start = Some(start);
        let steps = Rc::new(Cell::new(0u32));
        let count = steps.clone();
        self.engine.executor().on_step(move |step| {
            count.set(count.get() + 1);
            assert!(count.get() < 100_000, "{} goes round without an end", step.name);
        });
        loop {
            steps.set(0);
            let at = Now { mono: Nanos(self.now), wall: Nanos(self.now) };
            self.engine.turn(at, &mut done, |env| {
                if let Some(s) = start.take() {
                    s(env);
                }
            });
            self.collect();
            if self.pending.is_empty() {
                match self.engine.deadline() {
                    Some(t) => self.now = t.0,
                    None => return self.engine.live() == 0,
                }
                continue;
            }
            if self.ended >= cut {
                return false;
            }
            // Somebody may wake up before the next request ends.
            let due = self.pending.iter().map(|p| p.0).min();
            if let (Some(t), Some(due), Some(_)) = (self.engine.deadline(), due, self.service)
                && t.0 < due
            {
                self.now = self.now.max(t.0);
                continue;
            }
            done.push(self.finish());
        }
    }

    /// The power goes: what is left of the disk.
    pub(crate) fn cut(mut self) -> Medium {
        self.engine.kill();
        let in_flight: Vec<IoRequest> = self.pending.drain(..).map(|p| p.1).collect();
        self.medium.cut(&in_flight, &mut self.rng)
    }

    /// The disk, for a task of this world.
    pub(crate) fn disk(env: &Env, bytes: u64) -> Rc<dyn env::Disk> {
        env.port().disk(DiskId(0), bytes)
    }
}

/// A block of pattern bytes, for entries.
pub(crate) fn pattern(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut v = vec![0; len];
    rng.fill(&mut v);
    v
}

//! Virtual time: requests take as long as a model says, ends come in the order of their times, and
//! nothing else makes time pass.

use crate::image::Image;
use crate::trace::{Event, Trace, Write};
use env::{DiskError, DiskErrorKind, Durability, Engine, Env, IoDone, IoOp, IoRequest, Nanos, Now};
use std::collections::BTreeMap;

/// How long a request takes, in nanoseconds.
pub type Latency = fn(op: &IoOp, bytes: u64) -> u64;

fn default_latency(op: &IoOp, bytes: u64) -> u64 {
    match op {
        IoOp::Flush => 500_000,
        IoOp::Read => 50_000 + bytes,
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
}

/// One disk, one engine, one clock.
pub struct World {
    /// What reads see.
    pub disk: Image,
    /// What was asked.
    pub trace: Trace,
    /// Requests carried out: reads, writes, flushes.
    pub counts: [u64; 3],
    latency: Latency,
    fault: Option<Fault>,
    now: u64,
    sequence: u64,
    ends: BTreeMap<(u64, u64), (IoDone, Option<Event>)>,
    flushes: usize,
}

/// Virtual 2023, so that timestamps look like some.
const EPOCH: u64 = 1_700_000_000_000_000_000;

impl World {
    /// A world around this disk.
    pub fn new(disk: Image) -> World {
        World {
            disk,
            trace: Trace::default(),
            counts: [0; 3],
            latency: default_latency,
            fault: None,
            now: 0,
            sequence: 0,
            ends: BTreeMap::new(),
            flushes: 0,
        }
    }
    /// Requests take as long as `latency` says.
    pub fn set_latency(&mut self, latency: Latency) {
        self.latency = latency;
    }
    /// From now on this goes wrong.
    pub fn set_fault(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }
    /// Notes something in the trace.
    pub fn mark(&mut self, what: u64) {
        self.trace.events.push(Event::Mark(what));
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
            let now = Now { mono: Nanos(self.now), wall: Nanos(EPOCH + self.now) };
            engine.turn(now, &mut done, &mut arrive);
            for request in engine.take_io() {
                self.begin(request);
            }
            if until(self) {
                return;
            }
            let next_end = self.ends.keys().next().map(|k| k.0);
            let next_timer = engine.deadline().map(|d| d.0);
            let Some(next) = next_end.into_iter().chain(next_timer).min() else {
                panic!("nothing can happen any more; alive: {:?}", engine.executor().live_names());
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.ends.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let (end, event) = entry.remove();
                self.trace.events.extend(event);
                done.push(end);
            }
        }
    }

    fn begin(&mut self, request: IoRequest) {
        let IoRequest { id, op, at, mut blocks, .. } = request;
        let bytes: u64 = blocks.iter().map(|b| b.len() as u64).sum();
        let mut event = None;
        let mut result = Ok(());
        match op {
            IoOp::Read => {
                self.counts[0] += 1;
                let mut at = at;
                for b in &mut blocks {
                    self.disk.read(at, b.bytes_mut());
                    at += b.len() as u64;
                }
                if matches!(self.fault, Some(Fault::Read(b)) if b >= at - bytes && b < at) {
                    result = Err("read");
                }
            }
            IoOp::Write(how) => {
                let n = self.trace.writes.len();
                let all: Vec<u8> = blocks.iter().flat_map(|b| b.bytes().to_vec()).collect();
                self.trace.events.push(Event::WriteIssued(n));
                let failed = self.fault == Some(Fault::Write(self.counts[1]));
                self.counts[1] += 1;
                if failed {
                    result = Err("write");
                } else {
                    self.disk.write(at, &all);
                    event = Some(Event::WriteEnded(n));
                }
                let fua = how == Durability::Fua;
                self.trace.writes.push(Write { at, bytes: all.into(), fua });
            }
            IoOp::Flush => {
                self.trace.events.push(Event::FlushIssued(self.flushes));
                if self.fault == Some(Fault::Flush(self.counts[2])) {
                    result = Err("flush");
                } else {
                    event = Some(Event::FlushEnded(self.flushes));
                }
                self.counts[2] += 1;
                self.flushes += 1;
            }
            IoOp::Discard { .. } => (),
        }
        let detail = "injected".to_owned();
        let result = result.map_err(|during| {
            let kind = DiskErrorKind::Io;
            DiskError { kind, during, at, detail }
        });
        self.sequence += 1;
        let end = self.now + (self.latency)(&op, bytes);
        self.ends.insert((end, self.sequence), (IoDone { id, blocks, result }, event));
    }
}

//! A disk in memory for one engine: sparse, so that volumes of terabytes fit, with errors on demand
//! and a list of what was done to it. It answers every request at once; it knows no volatile cache.

use env::{Block, DiskError, DiskErrorKind, IoDone, IoOp, IoRequest};
use std::collections::{BTreeMap, BTreeSet};

const CHUNK: usize = 64 * 1024;

/// What was done to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Bytes `at..at + len` were read.
    Read(u64, u64),
    /// Bytes `at..at + len` were written.
    Write(u64, u64),
    Flush,
}

pub struct MemDisk {
    pub size: u64,
    chunks: BTreeMap<u64, Box<[u8]>>,
    pub events: Vec<Event>,
    /// Reads that touch one of these bytes fail.
    pub bad_reads: BTreeSet<u64>,
    /// The write of this number from now on fails, and all after it.
    pub writes_left: Option<u64>,
    /// The flush of this number from now on fails.
    pub flushes_left: Option<u64>,
}

impl MemDisk {
    pub fn new(size: u64) -> MemDisk {
        MemDisk {
            size,
            chunks: BTreeMap::new(),
            events: Vec::new(),
            bad_reads: BTreeSet::new(),
            writes_left: None,
            flushes_left: None,
        }
    }

    pub fn read(&self, at: u64, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let pos = at + done as u64;
            let within = (pos % CHUNK as u64) as usize;
            let n = (CHUNK - within).min(out.len() - done);
            match self.chunks.get(&(pos / CHUNK as u64)) {
                Some(c) => out[done..done + n].copy_from_slice(&c[within..within + n]),
                None => out[done..done + n].fill(0),
            }
            done += n;
        }
    }

    pub fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.read(at, &mut out);
        out
    }

    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let pos = at + done as u64;
            let within = (pos % CHUNK as u64) as usize;
            let n = (CHUNK - within).min(bytes.len() - done);
            let fresh = || vec![0; CHUNK].into_boxed_slice();
            let chunk = self.chunks.entry(pos / CHUNK as u64).or_insert_with(fresh);
            chunk[within..within + n].copy_from_slice(&bytes[done..done + n]);
            done += n;
        }
    }

    /// Every chunk that was ever written.
    pub fn each(&self, mut f: impl FnMut(u64, &[u8])) {
        for (n, c) in &self.chunks {
            f(n * CHUNK as u64, c);
        }
    }

    /// Carries a request out.
    pub fn serve(&mut self, r: IoRequest) -> IoDone {
        let IoRequest { id, op, at, mut blocks, .. } = r;
        let len: u64 = blocks.iter().map(|b| b.len() as u64).sum();
        let failed = |during| {
            let detail = "injected".to_owned();
            Err(DiskError { kind: DiskErrorKind::Io, during, at, detail })
        };
        let result = match op {
            IoOp::Read => {
                self.events.push(Event::Read(at, len));
                if self.bad_reads.range(at..at + len).next().is_some() {
                    failed("read")
                } else {
                    self.fill(at, &mut blocks);
                    Ok(())
                }
            }
            IoOp::Write(_) if used_up(&mut self.writes_left) => failed("write"),
            IoOp::Write(_) => {
                self.events.push(Event::Write(at, len));
                let mut to = at;
                for b in &blocks {
                    self.write(to, b.bytes());
                    to += b.len() as u64;
                }
                Ok(())
            }
            IoOp::Flush if used_up(&mut self.flushes_left) => failed("flush"),
            IoOp::Flush => {
                self.events.push(Event::Flush);
                Ok(())
            }
            IoOp::Discard { .. } => Ok(()),
        };
        IoDone { id, blocks, result }
    }

    fn fill(&self, at: u64, blocks: &mut [Block]) {
        let mut from = at;
        for b in blocks {
            self.read(from, b.bytes_mut());
            from += b.len() as u64;
        }
    }
}

fn used_up(left: &mut Option<u64>) -> bool {
    let Some(n) = left else { return false };
    let none = *n == 0;
    *n = n.saturating_sub(1);
    none
}

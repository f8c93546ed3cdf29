//! Random operations on one file of a volume, each compared with what memory says: what fsx does
//! through a mount, without a kernel in between, which over FUSE refuses to take ranges out of
//! files and to put them in. Now and then the volume is closed and opened again.
//!
//! ```text
//!  cargo run --release --example fsx -- IMAGE MODE OPERATIONS SEED
//! ```
//!
//! IMAGE is a volume that `cairn mkfs` or mke2fs has made; the file in it is `/fsx`.

mod opened;

use env::{Rng, Rope};
use host::Driver;
use opened::open;
use std::path::Path;
use vfs::{Call, Cred, FsError, MakeKind, Reply, Request, SetAttr, Shift, SpaceOp, Stability};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// More than the file and all that describes it.
const CACHE_BYTES: usize = 64 << 20;
/// How long the file may get.
const BYTES_MAX: u64 = 256 << 10;
/// Operations between two openings.
const OPENED: u64 = 10_000;

/// One operation, as it is told where a difference is found.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u64, u64),
    Read(u64, u64),
    Truncate(u64),
    Space(SpaceOp, u64, u64),
    Shift(Shift, u64, u64),
    Fsync,
}

struct Fsx {
    /// None: closed.
    driver: Option<Driver>,
    ino: u32,
    bytes: Vec<u8>,
    block: u64,
    rng: Rng,
}

impl Fsx {
    fn ask(&self, request: Request) -> Result<Reply, FsError> {
        let driver = self.driver.as_ref().expect("it is open");
        driver.call(Call { cred: Cred::root(), ..Call::local(request) }).result
    }

    /// Closes the volume, and lets its image go.
    fn close(&mut self) -> Result<(), String> {
        self.driver.take().map_or(Ok(()), |d| d.close().map_err(|e| e.to_string()))
    }

    /// A range within the longest file there may be.
    fn range(&mut self) -> (u64, u64) {
        let at = self.rng.below(BYTES_MAX);
        let most = if self.rng.one_in(4) { BYTES_MAX } else { 3 * self.block };
        (at, 1 + self.rng.below((BYTES_MAX - at).min(most)))
    }

    /// A range of whole blocks, which ends before the longest file does.
    fn blocks(&mut self) -> (u64, u64) {
        let all = BYTES_MAX / self.block;
        let at = self.rng.below(all - 1);
        let most = if self.rng.one_in(4) { all } else { 4 };
        (at * self.block, self.block * (1 + self.rng.below((all - at - 1).min(most))))
    }

    fn next(&mut self) -> Step {
        let keep_size = self.rng.one_in(2);
        let (at, len) = self.range();
        match self.rng.below(20) {
            0..=5 => Step::Write(at, len),
            6..=9 => Step::Read(at, len),
            10 => Step::Truncate(at),
            11 | 12 => Step::Space(SpaceOp::PunchHole, at, len),
            13 => Step::Space(SpaceOp::ZeroRange { keep_size }, at, len),
            14 => Step::Space(SpaceOp::Allocate { keep_size }, at, len),
            15 if self.rng.one_in(5) => Step::Fsync,
            n => {
                let (at, len) = self.blocks();
                Step::Shift(if n < 18 { Shift::Collapse } else { Shift::Insert }, at, len)
            }
        }
    }

    /// Does it in memory; what the volume has to answer.
    fn expect(&mut self, step: Step, value: u8) -> Result<(), FsError> {
        let size = self.bytes.len() as u64;
        let bytes = &mut self.bytes;
        match step {
            Step::Write(at, len) => {
                let end = (at + len) as usize;
                bytes.resize(bytes.len().max(end), 0);
                bytes[at as usize..end].copy_from_slice(&pattern(value, at, len));
            }
            Step::Read(..) | Step::Fsync => (),
            Step::Truncate(to) => bytes.resize(to as usize, 0),
            Step::Shift(Shift::Collapse, at, len) => {
                if at + len >= size {
                    return Err(FsError::Invalid);
                }
                bytes.drain(at as usize..(at + len) as usize);
            }
            Step::Shift(Shift::Insert, at, len) => {
                if at >= size {
                    return Err(FsError::Invalid);
                }
                bytes.splice(at as usize..at as usize, vec![0; len as usize]);
            }
            Step::Space(op, at, len) => {
                let end = at + len;
                if !matches!(op, SpaceOp::Allocate { .. }) && at < size {
                    bytes[at as usize..end.min(size) as usize].fill(0);
                }
                let grows = matches!(
                    op,
                    SpaceOp::Allocate { keep_size: false }
                        | SpaceOp::ZeroRange { keep_size: false }
                );
                if grows {
                    bytes.resize(bytes.len().max(end as usize), 0);
                }
            }
        }
        Ok(())
    }

    fn run(&self, step: Step, value: u8) -> Result<(), FsError> {
        let ino = self.ino;
        let request = match step {
            Step::Write(offset, len) => {
                let block = self.block as usize;
                let data = Rope::cut(&pattern(value, offset, len), offset as usize % block, block);
                Request::write(ino, offset, data, Stability::Unstable)
            }
            Step::Read(offset, len) => Request::Read { ino, offset, len: len as u32 },
            Step::Truncate(to) => {
                let set = SetAttr { size: Some(to), ..SetAttr::default() };
                Request::SetAttr { ino, set }
            }
            Step::Space(op, offset, len) => Request::Space { ino, op, offset, len },
            Step::Shift(way, offset, len) => Request::Shift { ino, way, offset, len },
            Step::Fsync => Request::Fsync { ino, data_only: false },
        };
        self.ask(request).map(drop)
    }

    /// Is the file, from one place to another, what memory says?
    fn compare(&self, from: u64, to: u64) -> Result<(), String> {
        let size = self.bytes.len() as u64;
        match self.ask(Request::GetAttr { ino: self.ino }) {
            Ok(Reply::Attr(attr)) if attr.size == size => (),
            other => return Err(format!("{size} bytes are expected: {other:?}")),
        }
        let to = to.min(size);
        let (ino, mut at) = (self.ino, from);
        while at < to {
            let read = Request::Read { ino, offset: at, len: (to - at) as u32 };
            let Ok(Reply::Data { data, .. }) = self.ask(read) else {
                return Err(format!("nothing can be read at {at}"));
            };
            let mut have = vec![0; data.len()];
            data.copy_to(&mut have);
            let want = &self.bytes[at as usize..at as usize + have.len()];
            if let Some(i) = have.iter().zip(want).position(|(a, b)| a != b) {
                let (place, a, b) = (at + i as u64, have[i], want[i]);
                return Err(format!("byte {place} is {a:#x}, and should be {b:#x}"));
            }
            at += (have.len() as u64).max(1);
        }
        Ok(())
    }
}

/// The bytes of a write: such that no two writes, and no two blocks of one, are alike.
fn pattern(value: u8, at: u64, len: u64) -> Vec<u8> {
    let byte = |n: u64| value.wrapping_add((n / 512) as u8).wrapping_mul(31).wrapping_add(n as u8);
    (at..at + len).map(byte).collect()
}

/// The file, made if it is not there; and how long the volume's blocks are.
fn file(driver: &Driver) -> Result<(u32, u64), String> {
    let ask = |r| driver.call(Call { cred: Cred::root(), hold: true, ..Call::local(r) }).result;
    let (attr, exclusive) = (SetAttr { mode: Some(0o644), ..SetAttr::default() }, None);
    let (name, kind) = (b"fsx".to_vec(), MakeKind::File { exclusive });
    let make = Request::Make { dir: 2, name, kind, attr, fail_if_exists: false, umask: 0 };
    let Ok(Reply::Entry { attr, .. }) = ask(make) else { return Err("no file".into()) };
    let Ok(Reply::StatFs(s)) = ask(Request::StatFs) else { return Err("no sizes".into()) };
    Ok((attr.ino, u64::from(s.block_bytes)))
}

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, mode, operations, seed] = args.as_slice() else {
        return Err("fsx IMAGE MODE OPERATIONS SEED".into());
    };
    let number = |s: &String| s.parse::<u64>().map_err(|e| format!("{s}: {e}"));
    let (operations, seed) = (number(operations)?, number(seed)?);
    let driver = open(Path::new(image), mode, CACHE_BYTES)?;
    let (ino, block) = file(&driver)?;
    let mut fsx = Fsx { driver: Some(driver), ino, bytes: Vec::new(), block, rng: Rng::new(seed) };
    fsx.run(Step::Truncate(0), 0).map_err(|e| format!("{e:?}"))?;
    let mut last: Vec<Step> = Vec::new();
    for n in 0..operations {
        let (step, value) = (fsx.next(), fsx.rng.below(256) as u8);
        last.push(step);
        let told = |what: String| format!("operation {n}, seed {seed}: {what}\n{last:?}");
        let want = fsx.expect(step, value);
        let have = fsx.run(step, value);
        if have != want {
            return Err(told(format!("{step:?} was answered {have:?}, and not {want:?}")));
        }
        let (from, to) = match step {
            Step::Read(at, len) => (at, at + len),
            _ => (0, 0),
        };
        fsx.compare(from, to).map_err(told)?;
        if n % OPENED == OPENED - 1 || n + 1 == operations {
            let told = |what: String| format!("after operation {n}, seed {seed}: {what}\n{last:?}");
            fsx.compare(0, BYTES_MAX * 2).map_err(told)?;
            fsx.close()?;
            let driver = open(Path::new(image), mode, CACHE_BYTES)?;
            fsx.ino = file(&driver)?.0;
            fsx.driver = Some(driver);
            fsx.compare(0, BYTES_MAX * 2).map_err(told)?;
            last.clear();
        }
    }
    println!("{operations} operations in mode {mode}, seed {seed}: as in memory");
    fsx.close()
}

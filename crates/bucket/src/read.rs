//! Reading blocks: from memory, or from the bucket by ranges of objects, each block compared with
//! its sum. It changes nothing but what is kept in memory of what was read.

use crate::BLOCK_BYTES;
use crate::all::all;
use crate::clone::inherited;
use crate::object::{SLOT_BYTES, block_sum, name};
use crate::state::parts;
use crate::store::Inner;
use crate::stream::{MANY, Run};
use env::{Block, BucketError, BucketErrorKind, DiskError, DiskErrorKind, Local};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How often what is read may change its place before that is given up.
const TRIES: u32 = 8;
/// After so many, requests that are under way are waited for no more: what they bring is gone from
/// memory before it can be used.
const SHARED_TRIES: u32 = 4;

/// Read at once where nothing tells what comes next.
const FEW: u64 = 16;

/// What is wanted of some blocks.
#[derive(Default)]
struct Wanted {
    /// Each block, if it is in memory.
    found: Vec<Option<Block>>,
    /// What is to be read for the others.
    runs: Vec<Run>,
    /// What a clone has from its origin: the first block there, and how many.
    inherited: Vec<(u64, u64)>,
    /// Some of them come with what others read.
    elsewhere: bool,
}

/// A request under way, until it is dropped.
struct UnderWay<'a>(&'a Inner, Run);
impl<'a> UnderWay<'a> {
    fn new(store: &'a Inner, run: Run) -> UnderWay<'a> {
        store.state.borrow_mut().fetching.begin(run);
        UnderWay(store, run)
    }
}
impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state.borrow_mut().fetching.end(self.1);
        self.0.fetched.wake_all();
    }
}

impl Inner {
    /// `n` blocks from `v` on, of the volume or a snapshot (`view`), for a user: what lies behind
    /// them is asked for if it is likely to be read next. None: an object is missing.
    pub(crate) async fn read_on(
        self: &Rc<Self>,
        view: Option<u32>,
        v: u64,
        n: u64,
    ) -> Result<Option<Vec<Block>>, DiskError> {
        let ahead = self.state.borrow_mut().streams.note(v, n, self.shape.blocks);
        for (from, n) in ahead {
            let store = self.clone();
            self.env.spawn("read-ahead", async move {
                let mut next = Some((from, n));
                while let Some(piece) = next {
                    let wanted = store.look(view, piece, true);
                    // What goes wrong here is told to who reads there.
                    all(wanted.runs.iter().map(|r| store.fetch_shared(*r)).collect()).await;
                    next = store.state.borrow_mut().streams.ended(store.shape.blocks);
                }
            });
        }
        self.read_view(view, v, n).await
    }

    /// `n` virtual blocks from `v` on, whosever they are.
    pub(crate) async fn read_virtual(&self, v: u64, n: u64) -> Result<Vec<Block>, DiskError> {
        let read = self.read_view(None, v, n).await?;
        read.ok_or_else(|| self.missing(None, (v, n)))
    }

    async fn read_view(
        &self,
        view: Option<u32>,
        v: u64,
        n: u64,
    ) -> Result<Option<Vec<Block>>, DiskError> {
        // What is read meanwhile may be written anew and its old object be deleted: ask again.
        for tried in 0..TRIES {
            let Wanted { found, runs, inherited, elsewhere } =
                self.look(view, (v, n), tried < SHARED_TRIES);
            if runs.is_empty() && inherited.is_empty() && !elsewhere {
                let zeros = || Block::zeroed(BLOCK_BYTES);
                let has = found.len() as u64;
                assert_eq!(has, n, "S1: of the blocks from {v} on there are others than asked for");
                let all = found.into_iter().map(|b| b.unwrap_or_else(zeros));
                return Ok(Some(all.collect()));
            }
            let missing = all(runs.iter().map(|r| self.fetch_shared(*r)).collect()).await;
            let mut read: BTreeMap<u64, Block> =
                missing.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
            self.read_inherited(inherited, &mut read).await?;
            if elsewhere {
                self.fetched(view, (v, n)).await;
            }
            if let Some(all) = self.complete((view, v), found, &read) {
                return Ok(Some(all));
            }
        }
        Ok(None)
    }

    /// An object of these blocks is not there, as an error of the disk.
    pub(crate) fn missing(&self, view: Option<u32>, (v, n): (u64, u64)) -> DiskError {
        let first = self.look(view, (v, n), false).runs.first().map(|run| name(run.serial));
        let object = first.as_deref().unwrap_or("its object");
        let detail = format!("{object} is missing from the bucket");
        let at = v.saturating_mul(BLOCK_BYTES as u64);
        DiskError { kind: DiskErrorKind::Io, during: "read", at, detail }
    }

    /// What is in memory of `n` blocks from `v` on, and what has to be read. `shared`: what others
    /// have asked for is not asked for once more.
    fn look(&self, view: Option<u32>, (v, n): (u64, u64), shared: bool) -> Wanted {
        let mut s = self.state.borrow_mut();
        let mut wanted = Wanted::default();
        for v in v..v + n {
            if let Some(known) = s.in_memory(view, v) {
                wanted.found.push(known);
                continue;
            }
            wanted.found.push(None);
            let v = s.table.shown(view, v);
            let place = s.table.place(v).expect("else it is zeros");
            if let Some(first) = inherited(place) {
                match wanted.inherited.last_mut().filter(|(from, n)| from + *n == first) {
                    Some((_, n)) => *n += 1,
                    None => wanted.inherited.push((first, 1)),
                }
                continue;
            }
            let (serial, index) = parts(place);
            let Some(info) = s.table.objects.get(&serial).copied() else { continue };
            let blocks = u64::from(info.blocks);
            assert!(index < blocks, "S2: block {v} is the {index}th of {blocks} in {serial}");
            if wanted.runs.iter().any(|r| r.holds(serial, index)) {
                continue;
            }
            if shared && s.fetching.holds(serial, index) {
                wanted.elsewhere = true;
                continue;
            }
            let behind = index > 0 && s.cache.has(crate::state::place(serial, index - 1));
            let ahead = if behind { MANY } else { FEW };
            let ahead = ahead.min(blocks - index);
            let n = if shared { s.fetching.free(serial, index, ahead) } else { ahead };
            match wanted.runs.last_mut().filter(|r| r.serial == serial && r.end() == index) {
                Some(last) => last.n += n,
                None => {
                    let head_bytes = u64::from(info.head_bytes);
                    wanted.runs.push(Run { serial, first: index, n, head_bytes });
                }
            }
        }
        let beyond = wanted.runs.iter().find(|r| {
            let of = s.table.objects.get(&r.serial);
            r.n == 0 || of.is_none_or(|info| r.end() > u64::from(info.blocks))
        });
        assert!(beyond.is_none(), "R2: {beyond:?} is read, and goes beyond its object");
        wanted
    }

    /// The same as [`Inner::fetch`], known to whoever wants a block of it meanwhile.
    pub(crate) fn fetch_shared(&self, run: Run) -> Local<'_, Result<Vec<(u64, Block)>, DiskError>> {
        let known = UnderWay::new(self, run);
        Box::pin(async move {
            let read = self.fetch(run).await;
            drop(known);
            read
        })
    }

    /// Returns when no request of others is under way that brings any of these blocks.
    async fn fetched(&self, view: Option<u32>, (v, n): (u64, u64)) {
        while self.look(view, (v, n), true).elsewhere {
            self.fetched.wait().await;
        }
    }

    /// The blocks of a run by their places; none if the object is gone.
    fn fetch(&self, run: Run) -> Local<'_, Result<Vec<(u64, Block)>, DiskError>> {
        Box::pin(async move {
            let slot = SLOT_BYTES as u64;
            let range = (run.head_bytes + run.first * slot, run.n * slot);
            let name = name(run.serial);
            let Some(of) = self.kept_as(run.serial).await else {
                let read = self.bucket.get(&name, Some(range)).await;
                return self.blocks_of(run, read);
            };
            // What lies at a place never changes (I1).
            let kept = self.bucket.get_kept(&name, range, (of, false)).await;
            match self.blocks_of(run, kept) {
                // What a cache has of it may be what is wrong.
                Err(_) => {
                    let read = self.bucket.get_kept(&name, range, (of, true)).await;
                    self.blocks_of(run, read)
                }
                blocks => blocks,
            }
        })
    }

    /// The blocks that were read of a run, each compared with its sum.
    fn blocks_of(
        &self,
        run: Run,
        read: Result<Vec<u8>, BucketError>,
    ) -> Result<Vec<(u64, Block)>, DiskError> {
        let raw = match read {
            Err(e) if e.kind == BucketErrorKind::NotFound => return Ok(Vec::new()),
            raw => raw?,
        };
        let mut blocks = Vec::new();
        for (index, part) in (run.first..).zip(raw.chunks(SLOT_BYTES)).take(run.n as usize) {
            let at = crate::state::place(run.serial, index);
            let (sum, bytes) = part.split_at_checked(4).unwrap_or((&[], &[]));
            let found = block_sum(&self.shape.uuid, (run.serial, index), bytes);
            if bytes.len() != BLOCK_BYTES || sum != found.to_le_bytes() {
                let what = format!("{}: the sum of block {index}", name(run.serial));
                return Err(damaged(at.0, &what));
            }
            let block = Block::copy_of(bytes);
            self.state.borrow_mut().cache.put(at, block.clone());
            blocks.push((at.0, block));
        }
        Ok(blocks)
    }

    /// All blocks, with what was read put where memory had none; None: some have moved meanwhile.
    fn complete(
        &self,
        (view, v): (Option<u32>, u64),
        found: Vec<Option<Block>>,
        read: &BTreeMap<u64, Block>,
    ) -> Option<Vec<Block>> {
        let mut s = self.state.borrow_mut();
        let whole = (v..).zip(found).map(|(v, known)| match known {
            Some(block) => Some(block),
            None => match s.in_memory(view, v) {
                Some(known) => Some(known.unwrap_or_else(|| Block::zeroed(BLOCK_BYTES))),
                None => read.get(&s.table.place(s.table.shown(view, v))?.0).cloned(),
            },
        });
        whole.collect()
    }
}

/// What a sum has found, as an error of the disk.
pub(crate) fn damaged(v: u64, what: &str) -> DiskError {
    let detail = format!("the object is damaged: {what}");
    let at = v.saturating_mul(BLOCK_BYTES as u64);
    DiskError { kind: DiskErrorKind::Io, during: "read", at, detail }
}

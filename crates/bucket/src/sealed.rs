//! A bucket whose objects are sealed, over one that keeps them: what is above sees the objects as
//! they were put, and may read ranges of them. Listing, deleting and the condition of a PUT go
//! through as they are. What the objects mean it does not know.
//!
//! ```text
//!  an object at rest:   "CairnSEA" | parts (4) | of each, its bytes at rest (4) | the parts
//! ```
//!
//! The list of lengths is not sealed: a wrong one leads to parts that do not open. It is read with
//! the object's beginning, and kept in memory, so that a range is one GET more at most.

use crate::at_rest::{At, PART_BYTES, SEALED_MORE, Sealer, Why, Worth};
use crate::volume::NAME;
use env::sync::Notify;
use env::{Bucket, BucketError, BucketErrorKind, Local, ObjectDone, ObjectOp};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"CairnSEA";
const HEAD_BYTES: usize = 12;
/// No object has more parts.
const PARTS_MAX: usize = 1 << 20;
/// What is read of an object of which nothing is known: its list of lengths, and its first part.
const FIRST_BYTES: u64 = 40 << 10;
/// Objects whose lengths are kept in memory.
const KNOWN: usize = 4096;

/// Where the parts of an object lie: the end of each, the first one's beginning before them.
type Ends = Rc<[u64]>;

/// The bucket.
pub(crate) struct Sealed {
    below: Rc<dyn Bucket>,
    sealer: Sealer,
    known: RefCell<BTreeMap<String, Ends>>,
    /// Objects whose beginning is being read, and that one of them was.
    asking: RefCell<BTreeSet<String>>,
    asked: Notify,
}

/// An object's beginning is being read, until this is dropped.
struct Asking<'a>(&'a Sealed, &'a str);
impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.borrow_mut().remove(self.1);
        self.0.asked.wake_all();
    }
}

/// An object at rest, as its bytes begin.
enum Begins {
    Ends(Ends),
    /// So many bytes are needed.
    Short(u64),
}

impl Sealed {
    pub(crate) fn new(below: Rc<dyn Bucket>, sealer: Sealer) -> Sealed {
        let (known, asking) = (RefCell::default(), RefCell::default());
        Sealed { below, sealer, known, asking, asked: Notify::new() }
    }

    fn seal(&self, name: &str, bytes: &[u8]) -> Arc<[u8]> {
        let parts = bytes.len().div_ceil(PART_BYTES);
        assert!(parts <= PARTS_MAX, "A1: an object of {} bytes is too long", bytes.len());
        let at = |index: usize| At { name, index: index as u32, parts: parts as u32 };
        let mut worth = Worth::default();
        let mut all = Vec::with_capacity(HEAD_BYTES + parts * (4 + SEALED_MORE) + bytes.len());
        all.extend_from_slice(&MAGIC);
        all.extend_from_slice(&(parts as u32).to_le_bytes());
        all.resize(HEAD_BYTES + 4 * parts, 0);
        for (n, part) in bytes.chunks(PART_BYTES).enumerate() {
            let len = self.sealer.seal_into(at(n), part, &mut worth, &mut all);
            all[HEAD_BYTES + 4 * n..][..4].copy_from_slice(&(len as u32).to_le_bytes());
        }
        let ends = begins(&all);
        let found = matches!(&ends, Ok(Begins::Ends(e)) if e.last() == Some(&(all.len() as u64)));
        assert!(found, "A2: the parts of {name} are not found again where they lie");
        all.into()
    }

    /// The parts from `first` on that `bytes` are, which lie one behind the other.
    fn open(
        &self,
        name: &str,
        ends: &Ends,
        (first, last): (usize, usize),
        bytes: &[u8],
    ) -> Result<Vec<u8>, Why> {
        let parts = ends.len() - 1;
        assert!(first <= last && last <= parts, "A1: parts {first} to {last} of {parts}");
        let (mut all, begin) = (Vec::with_capacity(bytes.len()), ends[first]);
        for n in first..last {
            let range = (ends[n] - begin) as usize..(ends[n + 1] - begin) as usize;
            let sealed = bytes.get(range).ok_or("it is cut short")?;
            let at = At { name, index: n as u32, parts: ends.len() as u32 - 1 };
            let len = self.sealer.open_into(at, sealed, &mut all)?;
            if n + 2 < ends.len() && len != PART_BYTES {
                return Err("a part of it is too short");
            }
        }
        Ok(all)
    }

    /// `of`: the object never changes under its name, and is this volume's; and whether what is
    /// kept of it is wrong.
    async fn get(
        &self,
        name: &str,
        range: Option<(u64, u64)>,
        of: Option<([u8; 16], bool)>,
    ) -> Result<(Vec<u8>, bool), BucketError> {
        let damaged = |why: Why| BucketError {
            kind: BucketErrorKind::Damaged,
            during: "GET",
            name: name.to_owned(),
            detail: why.to_owned(),
        };
        let Some((from, len)) = range else {
            let raw = self.below.get(name, None).await?;
            return match begins(&raw).map_err(damaged)? {
                Begins::Ends(ends) if ends.last() == Some(&(raw.len() as u64)) => {
                    let parts = ends.len() - 1;
                    let opened = self.open(name, &ends, (0, parts), &raw[ends[0] as usize..]);
                    opened.map(|all| (all, false)).map_err(damaged)
                }
                _ => Err(damaged("it is cut short")),
            };
        };
        let was_known = self.known.borrow().contains_key(name);
        let got = self.get_range(name, (from, len), of, damaged).await;
        let is_damaged = got.as_ref().is_err_and(|e| e.kind == BucketErrorKind::Damaged);
        if !was_known || !is_damaged {
            return got;
        }
        // What was deleted may have been put again by somebody else, of another length (I8).
        self.known.borrow_mut().remove(name);
        self.get_range(name, (from, len), of, damaged).await
    }

    /// A range of an object as it was put; and did a cache have all of it?
    async fn get_range(
        &self,
        name: &str,
        (from, len): (u64, u64),
        of: Option<([u8; 16], bool)>,
        damaged: impl Fn(Why) -> BucketError,
    ) -> Result<(Vec<u8>, bool), BucketError> {
        let mut kept = true;
        let (ends, beginning) = match self.known_ends(name).await {
            Ok(ends) => (ends, Vec::new()),
            Err(_alone) => {
                kept = false;
                self.beginning(name, from.saturating_add(len), &damaged).await?
            }
        };
        let (part, parts) = (PART_BYTES as u64, ends.len() - 1);
        let first = (from / part).min(parts as u64) as usize;
        let last = from.saturating_add(len).div_ceil(part).min(parts as u64) as usize;
        if first >= last {
            return Ok((Vec::new(), kept));
        }
        let (at, to) = (ends[first], ends[last]);
        let opened = match beginning.get(at as usize..to as usize) {
            Some(bytes) => self.open(name, &ends, (first, last), bytes),
            None => {
                let (bytes, was_kept) = self.range(name, (at, to - at), of).await?;
                kept &= was_kept;
                self.open(name, &ends, (first, last), &bytes)
            }
        };
        let mut all = opened.map_err(damaged)?;
        let skip = (from - first as u64 * part).min(all.len() as u64) as usize;
        let n = usize::try_from(len).unwrap_or(usize::MAX).min(all.len() - skip);
        all.truncate(skip + n);
        all.drain(..skip);
        Ok((all, kept))
    }

    /// A range of an object at rest; and did a cache have it?
    async fn range(
        &self,
        name: &str,
        range: (u64, u64),
        of: Option<([u8; 16], bool)>,
    ) -> Result<(Vec<u8>, bool), BucketError> {
        let name = name.to_owned();
        let op = match of {
            Some((of, anew)) => ObjectOp::GetKept { name, range, of, anew },
            None => ObjectOp::Get(name, Some(range)),
        };
        match self.below.ask(op).await? {
            ObjectDone::Kept(bytes) => Ok((bytes, true)),
            ObjectDone::Bytes(bytes) => Ok((bytes, false)),
            _ => Ok((Vec::new(), false)),
        }
    }

    /// Where an object's parts lie, if that is known, or becomes known because somebody else reads
    /// its beginning. Errors: the caller is to read that, and nobody else does meanwhile.
    async fn known_ends<'a>(&'a self, name: &'a str) -> Result<Ends, Asking<'a>> {
        loop {
            if let Some(ends) = self.known.borrow().get(name) {
                return Ok(ends.clone());
            }
            if self.asking.borrow_mut().insert(name.to_owned()) {
                return Err(Asking(self, name));
            }
            self.asked.wait().await;
        }
    }

    /// Where an object's parts lie, and its beginning, which may be enough for what is wanted.
    async fn beginning(
        &self,
        name: &str,
        wanted: u64,
        damaged: impl Fn(Why) -> BucketError,
    ) -> Result<(Ends, Vec<u8>), BucketError> {
        let parts = wanted.div_ceil(PART_BYTES as u64);
        let most = HEAD_BYTES as u64 + parts * (PART_BYTES + SEALED_MORE + 4) as u64;
        let mut bytes = most.min(FIRST_BYTES);
        for _ in 0..2 {
            let raw = self.below.get(name, Some((0, bytes))).await?;
            match begins(&raw).map_err(&damaged)? {
                Begins::Ends(ends) => {
                    self.keep(name, ends.clone());
                    return Ok((ends, raw));
                }
                Begins::Short(needed) => bytes = needed,
            }
        }
        Err(damaged("it is cut short"))
    }

    fn keep(&self, name: &str, ends: Ends) {
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN {
            known.pop_first(); // the log's names rise
        }
        known.insert(name.to_owned(), ends);
    }
}

fn begins(raw: &[u8]) -> Result<Begins, Why> {
    let not_sealed = "it was not sealed, as this volume's objects are";
    let number = |at: usize| {
        let bytes = raw.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    };
    if !raw.starts_with(&MAGIC) {
        return Err(not_sealed);
    }
    let parts = number(MAGIC.len()).filter(|n| *n <= PARTS_MAX).ok_or(not_sealed)?;
    let head = HEAD_BYTES + 4 * parts;
    if raw.len() < head {
        return Ok(Begins::Short(head as u64));
    }
    let mut ends = vec![head as u64];
    for n in 0..parts {
        let len = number(HEAD_BYTES + 4 * n).filter(|n| *n <= PART_BYTES + SEALED_MORE);
        ends.push(ends[n] + len.ok_or("its list of lengths is damaged")? as u64);
    }
    Ok(Begins::Ends(ends.into()))
}

/// Objects that lie as they are: what is read before it is known how the others do.
fn is_plain(name: &str) -> bool {
    name == NAME
}

impl Bucket for Sealed {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        Box::pin(async move {
            if is_plain(op.name()) {
                return self.below.ask(op).await;
            }
            match op {
                ObjectOp::PutAbsent(name, bytes) => {
                    let bytes = self.seal(&name, &bytes);
                    self.below.ask(ObjectOp::PutAbsent(name, bytes)).await
                }
                ObjectOp::Put(name, bytes) => {
                    let bytes = self.seal(&name, &bytes);
                    self.known.borrow_mut().remove(&name);
                    self.below.ask(ObjectOp::Put(name, bytes)).await
                }
                ObjectOp::Get(name, range) => {
                    let (bytes, _) = self.get(&name, range, None).await?;
                    Ok(ObjectDone::Bytes(bytes))
                }
                ObjectOp::GetKept { name, range, of, anew } => {
                    let (bytes, kept) = self.get(&name, Some(range), Some((of, anew))).await?;
                    Ok(if kept { ObjectDone::Kept(bytes) } else { ObjectDone::Bytes(bytes) })
                }
                other => self.below.ask(other).await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::at_rest::AtRest;
    use sim::{Image, SimBucket, Trouble, Way, World, block_on};

    /// A checkpoint is deleted, and the fence of who takes over has its name: who had read a part
    /// of the one knows where parts lay that are not there any more.
    #[test]
    fn an_object_that_another_has_put_in_the_place_of_a_deleted_one_is_read_as_it_is() {
        block_on(&mut World::new(Image::new(4096)), |env, _| async move {
            let below: Rc<dyn Bucket> =
                Rc::new(Way(SimBucket::new(env, 1, Trouble::NONE).machine(None)));
            let how = AtRest { compressed: true, key: None };
            let sealed = || Sealed::new(below.clone(), Sealer::new(&how));
            let [ours, theirs]: [Rc<dyn Bucket>; 2] = [Rc::new(sealed()), Rc::new(sealed())];
            let name = "log/0000000000000007";
            for (byte, len) in [(1, 3 * PART_BYTES), (2, 100), (3, 5 * PART_BYTES)] {
                theirs.put_absent(name, vec![byte; len].into()).await.unwrap();
                assert_eq!(ours.get(name, Some((0, 60))).await.unwrap(), [byte; 60]);
                theirs.delete(name).await.unwrap();
            }
        });
    }
}

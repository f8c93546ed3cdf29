//! Clones: a volume in a bucket that begins as a snapshot of another one, its *origin*, and shares
//! with it whatever it has not written itself. How the origin moves its blocks it does not know.
//!
//! Rule        Of a block that the clone has not written, its table says: as in the snapshot. The
//!             origin does not end that snapshot as long as there is the clone.
//! Terms       *Inherited*: a place with the highest bit, and below it the block's number in the
//!             origin's snapshot. *Pin*: an object of the origin, put before the clone is made; it
//!             names snapshot and clone. *Word*: an object beside the pin, by whoever is first:
//!             the clone is `made`, or will never be, `void`. *Tombstone*: an object of the origin:
//!             this snapshot is being ended, and there are no new clones of it.
//!
//! Invariants  C1 a clone sees the snapshot's bytes until it writes others, whatever the origin
//!             writes, moves or ends.
//!             C2 the pin is there before who clones looks for a tombstone, and that is there
//!             before who ends the snapshot looks for pins. So one of them sees the other.
//!             C3 a snapshot is ended when each pin's word is `void`, or the clone that was made is
//!             not there any more.
//!             C4 a clone is opened only if the word is `made`.
//!             C5 pins, words and tombstones are put only if absent and never deleted; so what
//!             comes late, or twice, changes nothing.
//!
//! ```text
//!  in the origin   clones/SNAPSHOT/CLONE        pin: snapshot and clone by number and name
//!                  clones/SNAPSHOT/CLONE.word   `made` or `void`
//!                  clones/SNAPSHOT/closed       the tombstone
//!  in the clone    origin                       where the origin lies; then as any other volume
//!  a link          0 "CairnLNK" | 8 sum of the rest | 12 the other volume's name (16)
//!                  28 the snapshot's number (4) | 32 bytes of the place (4) | where it lies
//! ```
//!
//! States      pinned -the object `volume` is put-> there -its word is `made`-> made;
//!             pinned, there -its word is `void`-> never
//! Recovery    a clone that is there, and has no word, gets it from who opens it for writing.
//! Cost        making one: some ten requests, and a checkpoint of an extent for each run of blocks
//!             that have contents. Reading what is inherited: as from the snapshot.

use crate::at_rest::Key;
use crate::make::{Making, WINDOW, begin};
use crate::snapshot_disk::SnapshotDisk;
use crate::store::{Inner, OpenOptions, Store};
use crate::volume::{Shape, is_volume};
use crate::writer::{Put, put_own};
use env::{Block, Bucket, BucketError, BucketErrorKind, Disk, DiskError, Env, Local};
use env::{ObjectDone, ObjectOp};
use lfs::codec::{Reader, Writer};
use lfs::{Extent, Place, Virt};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What the names of pins, words and tombstones begin with.
pub(crate) const CLONES: &str = "clones/";
const ORIGIN: &str = "origin";
const MAGIC: [u8; 8] = *b"CairnLNK";
const MADE: &[u8] = b"made";
const VOID: &[u8] = b"void";
/// In a place: it is inherited.
const INHERITED: u64 = 1 << 63;
/// No volume has a block of this number.
const BLOCKS_MAX: u64 = 1 << 40;
const BLOCK: u64 = crate::BLOCK_BYTES as u64;

/// Bugs of clones, which show where there are some.
pub const CLONE_PLANTS: &[&str] = &["pins-ignored", "no-tombstone", "word-not-heard"];

/// The block of the origin's snapshot, if the place is inherited.
pub(crate) fn inherited(place: Place) -> Option<u64> {
    (place.0 & INHERITED > 0).then_some(place.0 & !INHERITED)
}

/// May a table say so of `n` blocks?
pub(crate) fn can_be(first: u64, n: u32) -> bool {
    n > 0 && first < BLOCKS_MAX && first + u64::from(n) <= BLOCKS_MAX
}

/// A bucket as the volume sees it that lies elsewhere in it. What begins with a `/` is a whole name
/// for whoever is below.
struct Elsewhere {
    below: Rc<dyn Bucket>,
    prefix: String,
}

impl Bucket for Elsewhere {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        // A clone's origin may be a clone, whose origin is elsewhere again.
        let is_whole = op.name().starts_with('/');
        let prefix = if is_whole { "" } else { self.prefix.as_str() };
        let op = op.renamed(|name| format!("{prefix}{name}"));
        Box::pin(async move {
            let own = |name: String| name.strip_prefix(prefix).map(str::to_owned);
            Ok(match self.below.ask(op).await? {
                ObjectDone::Names(all) => {
                    ObjectDone::Names(all.into_iter().filter_map(own).collect())
                }
                done => done,
            })
        })
    }
}

/// What a clone says of its origin, and a pin of a clone.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Link {
    /// The other volume's name.
    uuid: [u8; 16],
    /// The snapshot's number in the origin.
    id: u32,
    /// Where the other volume lies: whole names begin with it.
    place: String,
}

impl Link {
    fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        body.bytes(&self.uuid).u32(self.id).u32(self.place.len() as u32);
        body.bytes(self.place.as_bytes());
        let mut all = Writer::default();
        all.bytes(&MAGIC).u32(crc32c::crc32c(&body.0)).bytes(&body.0);
        let again = Link::decode(&all.0);
        assert_eq!(again.as_ref(), Some(self), "I13: a link leads elsewhere when it is read again");
        all.0
    }
    fn decode(raw: &[u8]) -> Option<Link> {
        let mut r = Reader(raw);
        let (magic, sum) = (r.bytes(8)?, r.u32()?);
        if magic != MAGIC || crc32c::crc32c(r.0) != sum {
            return None;
        }
        let uuid = r.bytes(16)?.try_into().ok()?;
        let (id, bytes) = (r.u32()?, r.u32()? as usize);
        let place = std::str::from_utf8(r.bytes(bytes)?).ok()?.to_owned();
        r.0.is_empty().then_some(Link { uuid, id, place })
    }
    async fn read(bucket: &Rc<dyn Bucket>, name: &str) -> Result<Link, String> {
        let raw = bucket.get(name, None).await.map_err(|e| e.to_string())?;
        Link::decode(&raw).ok_or_else(|| format!("{name} is damaged: its checksum is wrong"))
    }
}

fn pin_of(id: u32, clone: &[u8; 16]) -> String {
    let hex: String = clone.iter().map(|b| format!("{b:02x}")).collect();
    format!("{CLONES}{id:08x}/{hex}")
}

fn word_of(pin: &str) -> String {
    format!("{pin}{WORD}")
}

const WORD: &str = ".word";

fn tombstone_of(id: u32) -> String {
    format!("{CLONES}{id:08x}/closed")
}

/// The first word is the one that counts (C5): which it is.
async fn say(
    (env, bucket): (&Env, &Rc<dyn Bucket>),
    name: &str,
    word: &[u8],
) -> Result<Vec<u8>, String> {
    let put = put_own(env, bucket, name, (word.into(), word.len()), None).await;
    match put.map_err(|e| e.to_string())? {
        Put::Ours => Ok(word.to_vec()),
        Put::Theirs(there) => Ok(there),
    }
}

async fn is_there(bucket: &Rc<dyn Bucket>, name: &str) -> Result<bool, String> {
    match bucket.get(name, None).await {
        Ok(_) => Ok(true),
        Err(e) if e.kind == BucketErrorKind::NotFound => Ok(false),
        Err(e) => Err(e.to_string()),
    }
}

/// How to make a clone.
#[derive(Clone, Debug)]
pub struct CloneOptions {
    /// The clone's name.
    pub uuid: [u8; 16],
    /// Where the origin and the clone lie, as each is to be reached from the other: names that
    /// begin with this are whole ones.
    pub places: (String, String),
    /// The origin's key, which the clone has too.
    pub key: Option<Key>,
    /// A planted bug.
    pub plant: Option<&'static str>,
}

/// Makes a volume in the bucket `clone` that is what the snapshot of this name is. It is there when
/// this returns. Errors: there is no such snapshot; there is a volume already; or the bucket's.
pub async fn clone_snapshot(
    env: &Env,
    (origin, name): (Rc<dyn Bucket>, &str),
    clone: Rc<dyn Bucket>,
    how: CloneOptions,
) -> Result<(), String> {
    let (key, plant) = (how.key.clone(), how.plant);
    let options = OpenOptions { read_only: true, key, plant, ..OpenOptions::default() };
    let store = Store::open(env.clone(), origin, options).await?;
    let snapshot = store.snapshot_disk(name)?;
    let (id, bucket) = (snapshot.id(), store.inner.bucket.clone());
    begin(env, &clone, false).await?;
    let pin = pin_of(id, &how.uuid);
    let link = Link { uuid: how.uuid, id, place: how.places.1 }.encode();
    if say((env, &bucket), &pin, &link).await? != link {
        return Err("there is a clone of this name".into());
    }
    // C2: the pin is there.
    if plant != Some("no-tombstone") && is_there(&bucket, &tombstone_of(id)).await? {
        return Err(format!("the snapshot {name} is being deleted"));
    }
    let at_rest = store.shape().at_rest(how.key.as_ref())?;
    let shape = Shape { uuid: how.uuid, window: WINDOW, clone: true, ..store.shape() };
    let made = Store::make(env.clone(), clone.clone(), (shape.lying(&at_rest), &at_rest));
    for (first, n) in store.snapshot_mapped(&snapshot) {
        made.inherit(first, n);
    }
    made.checkpoint().await.map_err(|e| e.to_string())?;
    let link = Link { uuid: store.shape().uuid, id, place: how.places.0 }.encode();
    made.inner.bucket.put(ORIGIN, link.into()).await.map_err(|e| e.to_string())?;
    Making { store: made, bucket: clone.clone() }.finish().await?;
    let word = say((env, &bucket), &word_of(&pin), MADE).await?;
    if word != MADE && plant != Some("word-not-heard") {
        let _ = clone.delete(crate::volume::NAME).await; // C4: nobody opens it anyhow
        return Err(format!("the snapshot {name} was deleted meanwhile"));
    }
    Ok(())
}

/// A clone's view of its origin. Errors: the origin, or its snapshot, is not there; the clone was
/// never made to its end; or the bucket's.
pub(crate) async fn origin_of(
    env: &Env,
    (below, own): (Rc<dyn Bucket>, &Rc<dyn Bucket>),
    shape: &Shape,
    options: &OpenOptions,
) -> Result<SnapshotDisk, String> {
    let Link { uuid, id, place } = Link::read(own, ORIGIN).await?;
    let there = Rc::new(Elsewhere { below, prefix: place.clone() });
    let fail = |why: String| format!("it is a clone, and its origin at {place}: {why}");
    let writes = !options.read_only;
    let options = OpenOptions { read_only: true, near: None, ..options.clone() };
    let opening: Local<'_, Result<Store, String>> =
        Box::pin(Store::open(env.clone(), there, options.clone()));
    let store = opening.await.map_err(fail)?;
    if store.shape().uuid != uuid {
        return Err(fail("there is another volume now".into()));
    }
    let bucket = &store.inner.bucket;
    let word = word_of(&pin_of(id, &shape.uuid));
    let said = match bucket.get(&word, None).await {
        Ok(said) => said,
        Err(e) if e.kind == BucketErrorKind::NotFound && writes => {
            say((env, bucket), &word, MADE).await?
        }
        Err(e) if e.kind == BucketErrorKind::NotFound => {
            let why = "the clone was not made to its end: opened for writing, it is";
            return Err(fail(why.into()));
        }
        Err(e) => return Err(fail(e.to_string())),
    };
    if said != MADE && options.plant != Some("word-not-heard") {
        return Err(fail("its snapshot was deleted before the clone was made".into()));
    }
    store.snapshot_disk_of(id).map_err(fail)
}

impl Store {
    /// Of these blocks the clone that is being made has what its origin has.
    fn inherit(&self, first: u64, n: u64) {
        let mut s = self.inner.state.borrow_mut();
        let most = u64::from(u32::MAX);
        for at in (first..first + n).step_by(most as usize) {
            let n = (first + n - at).min(most) as u32;
            assert!(can_be(at, n), "C1: block {at} cannot be inherited");
            let place = Some(Place(INHERITED | at));
            s.table.extents.set(Extent { v: Virt(at), n, place });
        }
    }
}

impl Inner {
    /// Blocks of the origin's snapshot, by the places that the clone's table has for them (C1).
    pub(crate) async fn read_inherited(
        &self,
        runs: Vec<(u64, u64)>,
        read: &mut BTreeMap<u64, Block>,
    ) -> Result<(), DiskError> {
        for (first, n) in runs {
            let Some(origin) = self.origin.as_ref() else {
                return Err(crate::read::damaged(first, "it is no clone, and has an origin"));
            };
            let memory = (0..n).map(|_| Block::zeroed(crate::BLOCK_BYTES)).collect();
            let blocks = origin.read(first * BLOCK, memory).await?;
            assert_eq!(
                blocks.len() as u64,
                n,
                "C1: of {n} blocks from {first} on some are missing"
            );
            let s = self.state.borrow_mut();
            for (v, block) in (first..).zip(blocks) {
                let place = Place(INHERITED | v);
                s.cache.put(place, block.clone());
                read.insert(place.0, block);
            }
        }
        Ok(())
    }

    /// Nobody needs the snapshot of this number any more, and nobody will. Errors: a clone does; or
    /// the bucket's.
    pub(crate) async fn let_go_of_clones(&self, id: u32) -> Result<(), String> {
        if self.plant == Some("pins-ignored") {
            return Ok(());
        }
        self.look_at_clones(id, false).await?;
        let tombstone = tombstone_of(id);
        if self.plant != Some("no-tombstone") {
            say((&self.env, &self.bucket), &tombstone, VOID).await?;
        }
        // C2: the tombstone is there.
        self.look_at_clones(id, true).await
    }

    /// Errors: there is a clone. `ends`: one that is not made yet never will be (C3).
    async fn look_at_clones(&self, id: u32, ends: bool) -> Result<(), String> {
        let text = |e: BucketError| e.to_string();
        let prefix = format!("{CLONES}{id:08x}/");
        let names = self.bucket.list(&prefix, "").await.map_err(text)?;
        let pins = names.iter().filter(|n| !n.ends_with(WORD) && **n != tombstone_of(id));
        for pin in pins {
            let link = Link::read(&self.bucket, pin).await?;
            let word = word_of(pin);
            let said = match ends {
                true => say((&self.env, &self.bucket), &word, VOID).await?,
                false => match self.bucket.get(&word, None).await {
                    Err(e) if e.kind == BucketErrorKind::NotFound => continue,
                    said => said.map_err(text)?,
                },
            };
            if said == MADE && self.is_clone(&link).await? {
                return Err(format!("the clone at {} needs it", link.place));
            }
        }
        Ok(())
    }

    /// Is the clone there?
    async fn is_clone(&self, link: &Link) -> Result<bool, String> {
        let (below, prefix): (Rc<dyn Bucket>, String) = (self.steady.clone(), link.place.clone());
        let there: Rc<dyn Bucket> = Rc::new(Elsewhere { below, prefix });
        if !is_volume(&there).await.map_err(|e| e.to_string())? {
            return Ok(false);
        }
        Ok(Shape::of(&there).await?.uuid == link.uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_decoded_as_it_was() {
        let link = Link { uuid: [3; 16], id: 9, place: "/homes/ada/".into() };
        let raw = link.encode();
        assert_eq!(Link::decode(&raw), Some(link));
        for n in 0..raw.len() {
            let mut other = raw.clone();
            other[n] ^= 1;
            assert_eq!(Link::decode(&other), None, "byte {n}");
            assert_eq!(Link::decode(&raw[..n]), None, "cut at {n}");
        }
    }
}

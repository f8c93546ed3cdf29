//! Following the log: the newest checkpoint, then object after object along the chain, up to the
//! first serial that is absent. It reads only, and can be done while somebody writes.

use crate::STANDBY_PLANT;
use crate::all::{TOGETHER, all};
use crate::fence::was_deleted;
use crate::notes::Notes;
use crate::object::{Decoded, Epoch, HEAD_GUESS, Head, Kind, LOG, Serial, name, serial_of};
use crate::possible;
use crate::state::Table;
use crate::volume::Shape;
use env::{Bucket, BucketError, BucketErrorKind};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The log as far as it goes.
pub(crate) struct Chain {
    pub(crate) table: Table,
    /// The checkpoint it began with; 0: none.
    pub(crate) checkpoint: Serial,
    pub(crate) epoch: Epoch,
    /// Who began that epoch.
    pub(crate) writer: String,
    /// The last valid object, and its sum.
    pub(crate) last: (Serial, u32),
    /// The first serial that is absent.
    pub(crate) next: Serial,
    /// Objects behind the checkpoint.
    pub(crate) rolled: u64,
    /// The newest checkpoint among them: the table has what nobody needs since. 0: none.
    pub(crate) newer: Serial,
    /// The serials that are there: all, or those from where the log was followed on.
    pub(crate) listed: BTreeSet<Serial>,
    pub(crate) is_listed_whole: bool,
    /// What the groups of late were noted as.
    pub(crate) notes: Notes,
}

/// Why it cannot be followed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Something was deleted meanwhile: look again.
    Again,
    /// What is wrong.
    Wrong(String),
    /// The bucket could not be asked: nothing is known.
    Unknown(String),
}

impl From<BucketError> for Trouble {
    fn from(e: BucketError) -> Trouble {
        match e.kind {
            BucketErrorKind::NotFound => Trouble::Again,
            BucketErrorKind::Damaged => Trouble::Wrong(e.to_string()),
            _ => Trouble::Unknown(e.to_string()),
        }
    }
}

/// A head, its sum and its bytes.
pub(crate) type Found = (Box<Head>, u32, usize);

/// Takes what was read of an object, its head at least.
pub(crate) type Reader<'a> = &'a mut dyn FnMut(&Found, &[u8]);

/// An object's head, and what was read with it: so many bytes, or all of a smaller object. Errors:
/// it is gone, or damaged.
async fn beginning_of(
    bucket: &Rc<dyn Bucket>,
    shape: &Shape,
    (serial, want): (Serial, u64),
) -> Result<(Found, Vec<u8>), Trouble> {
    let name = name(serial);
    let mut more = want;
    for _ in 0..2 {
        let raw = bucket.get(&name, Some((0, more))).await?;
        match Head::decode(&shape.uuid, &raw) {
            Decoded::Head(head, sum, bytes) if head.serial == serial => {
                possible::head(&head, shape).map_err(|field| damaged(serial, field))?;
                return Ok(((head, sum, bytes), raw));
            }
            Decoded::Short(needed) if more == want => more = needed as u64,
            Decoded::Head(..) => return Err(damaged(serial, "its serial")),
            Decoded::Short(_) => break,
            Decoded::Damaged(field) => return Err(damaged(serial, field)),
        }
    }
    Err(damaged(serial, "it is cut short, and its checksum"))
}

/// An object says what none can say.
fn damaged(serial: Serial, field: &str) -> Trouble {
    Trouble::Wrong(format!("{} is damaged: {field} is wrong", name(serial)))
}

/// An object's head. Errors: it is gone, or damaged.
pub(crate) async fn head_of(
    bucket: &Rc<dyn Bucket>,
    shape: &Shape,
    serial: Serial,
) -> Result<Found, Trouble> {
    beginning_of(bucket, shape, (serial, HEAD_GUESS)).await.map(|(found, _)| found)
}

/// The heads of all of these.
pub(crate) async fn heads_of(
    bucket: &Rc<dyn Bucket>,
    shape: &Shape,
    serials: &[Serial],
) -> Vec<Result<Found, Trouble>> {
    let mut heads = Vec::new();
    for some in serials.chunks(TOGETHER) {
        let one = |s: &Serial| -> env::Local<'_, _> { Box::pin(head_of(bucket, shape, *s)) };
        heads.extend(all(some.iter().map(one).collect()).await);
    }
    heads
}

/// The serials that are there behind this one.
pub(crate) async fn list(
    bucket: &Rc<dyn Bucket>,
    after: Serial,
) -> Result<BTreeSet<Serial>, BucketError> {
    let after = if after == Serial::NONE { String::new() } else { name(after) };
    let names = bucket.list(LOG, &after).await?;
    let all: BTreeSet<Serial> = names.iter().filter_map(|n| serial_of(n)).collect();
    match all.last().filter(|s| **s >= possible::SERIALS_END) {
        None => Ok(all),
        Some(serial) => Err(BucketError {
            kind: BucketErrorKind::Damaged,
            during: "LIST",
            name: name(*serial),
            detail: "its serial is wrong".into(),
        }),
    }
}

impl Chain {
    /// The log before anything was put.
    pub(crate) fn empty(shape: &Shape, plant: Option<&'static str>) -> Chain {
        Chain {
            table: Table::new(shape.blocks, plant),
            checkpoint: Serial::NONE,
            epoch: Epoch::FIRST,
            writer: String::new(),
            last: (Serial::NONE, 0),
            next: Serial::NONE.next(),
            rolled: 0,
            newer: Serial::NONE,
            listed: BTreeSet::new(),
            is_listed_whole: true,
            notes: Notes::default(),
        }
    }

    /// Follows the log. `plant`: a planted bug.
    pub(crate) async fn load(
        bucket: &Rc<dyn Bucket>,
        shape: &Shape,
        plant: Option<&'static str>,
    ) -> Result<Chain, Trouble> {
        let listed = list(bucket, Serial::NONE).await?;
        let mut chain = Chain::begin(bucket, shape, (listed, plant)).await?;
        chain.go_to_end(bucket, shape, plant).await?;
        Ok(chain)
    }

    /// The same from where the log was followed to. `end`: the writer has said that its log goes so
    /// far. No listing, which costs as much as all else that is done here: who puts a fence behind
    /// it looks at all that is there then (I8). Again: it is not the log that it was.
    pub(crate) async fn resume(
        mut self,
        bucket: &Rc<dyn Bucket>,
        shape: &Shape,
        (end, plant): (Serial, Option<&'static str>),
    ) -> Result<Chain, Trouble> {
        if self.last.0 > Serial::NONE {
            // What is there as long as nothing newer is (I7).
            let (_, sum, _) = head_of(bucket, shape, self.last.0).await?;
            if sum != self.last.1 {
                return Err(Trouble::Again);
            }
        }
        self.go_on_asking(bucket, (shape, plant), (end, (HEAD_GUESS, &mut |_, _| ()))).await?;
        self.look_at_its_fence(bucket, (shape, plant)).await?;
        Ok(self)
    }

    /// As far as the log was listed. Again: what was listed shows that something was deleted.
    async fn go_to_end(
        &mut self,
        bucket: &Rc<dyn Bucket>,
        shape: &Shape,
        plant: Option<&'static str>,
    ) -> Result<(), Trouble> {
        self.go_on(bucket, shape, plant).await?;
        // No more is under way beyond the end (I3): what is there was put behind something that was
        // deleted.
        if self.listed.range(self.next.plus(shape.window)..).next().is_some() {
            return Err(Trouble::Again);
        }
        self.look_at_its_fence(bucket, (shape, plant)).await
    }

    /// A fence with nothing behind it may lie in a name that had been deleted (I8). Where something
    /// goes on from it, its writer has looked. Again: it does.
    async fn look_at_its_fence(
        &self,
        bucket: &Rc<dyn Bucket>,
        (shape, plant): (&Shape, Option<&'static str>),
    ) -> Result<(), Trouble> {
        let is_last = self.table.fences.contains(&self.last.0);
        if is_last && plant != Some("fence-not-looked-at-again") {
            let deleted = was_deleted(bucket, shape, self.last.0).await;
            if deleted.map_err(Trouble::Unknown)? {
                return Err(Trouble::Again);
            }
        }
        Ok(())
    }

    /// From the next serial on, as far as objects were listed.
    pub(crate) async fn go_on(
        &mut self,
        bucket: &Rc<dyn Bucket>,
        shape: &Shape,
        plant: Option<&'static str>,
    ) -> Result<(), Trouble> {
        while self.listed.contains(&self.next) {
            let there = self.listed.range(self.next..);
            let some: Vec<Serial> = there.take(TOGETHER).copied().collect();
            self.take(bucket, (shape, plant), (&some, HEAD_GUESS, &mut |_, _| ())).await?;
        }
        Ok(())
    }

    /// From the next serial on up to the first that is absent, without a listing; of each object so
    /// many bytes are read together with its head, and handed over. A newer checkpoint takes the
    /// place of what was read before it. Again: the writer has said that its log goes on behind
    /// what is absent, so that was deleted.
    pub(crate) async fn go_on_asking(
        &mut self,
        bucket: &Rc<dyn Bucket>,
        (shape, plant): (&Shape, Option<&'static str>),
        (end, (want, reader)): (Serial, (u64, Reader<'_>)),
    ) -> Result<(), Trouble> {
        let mut together = 1;
        loop {
            let some: Vec<Serial> = (0..together).map(|n| self.next.plus(n)).collect();
            match self.take(bucket, (shape, plant), (&some, want, reader)).await {
                Ok(()) => together = (2 * together).min(TOGETHER as u64),
                Err(Trouble::Again) if self.next > end => break,
                Err(trouble) => return Err(trouble),
            }
        }
        if self.newer > Serial::NONE {
            (self.checkpoint, self.newer, self.rolled) = (self.newer, Serial::NONE, 0);
            self.take_checkpoint(bucket, (shape, plant)).await?;
            // Behind a checkpoint there is at most what came while it was read, and what was read.
            Box::pin(self.go_on_asking(bucket, (shape, plant), (end, (want, reader)))).await?;
        }
        Ok(())
    }

    /// Follows the log through the objects of these serials, of which the first is the next. Again:
    /// one that it goes on with is absent.
    async fn take(
        &mut self,
        bucket: &Rc<dyn Bucket>,
        (shape, plant): (&Shape, Option<&'static str>),
        (serials, want, reader): (&[Serial], u64, Reader<'_>),
    ) -> Result<(), Trouble> {
        let one =
            |s: &Serial| -> env::Local<'_, _> { Box::pin(beginning_of(bucket, shape, (*s, want))) };
        let first = self.next;
        assert_eq!(serials.first(), Some(&first), "I2: the log is followed from elsewhere");
        let read = all(serials.iter().map(one).collect()).await;
        for (read, serial) in read.into_iter().zip(serials) {
            if *serial == self.next {
                let (found, raw) = read?;
                reader(&found, &raw);
                if found.0.kind == Kind::Checkpoint && plant != Some(STANDBY_PLANT) {
                    self.newer = *serial;
                }
                self.follow(found, shape.window, plant == Some("void-accepted"))?;
            }
        }
        assert!(first < self.next, "I2: {first} is there, and the log does not go on with it");
        Ok(())
    }

    /// The newest checkpoint: one of the newest objects is it or names it (I3, I6). An object names
    /// the one that was acknowledged when it was sealed, and as many as may be under way may have
    /// been sealed before it is put.
    async fn begin(
        bucket: &Rc<dyn Bucket>,
        shape: &Shape,
        (listed, plant): (BTreeSet<Serial>, Option<&'static str>),
    ) -> Result<Chain, Trouble> {
        let newest: Vec<Serial> =
            listed.iter().rev().take(2 * shape.window as usize + 1).copied().collect();
        let mut checkpoint = Serial::NONE;
        for found in heads_of(bucket, shape, &newest).await {
            let head = match found {
                Ok((head, ..)) => head,
                // It may be the newest checkpoint that is gone, and a taker's fence lie below it in
                // a name that had been deleted: that is not to be followed (I8).
                // One that could not be read may be the newest checkpoint, or name it; an older one
                // may be there still, because it could not be deleted.
                Err(trouble @ (Trouble::Again | Trouble::Unknown(_))) => return Err(trouble),
                Err(Trouble::Wrong(_)) => continue, // who reads all of it tells
            };
            let known = if head.kind == Kind::Checkpoint { head.serial } else { head.checkpoint };
            checkpoint = checkpoint.max(known);
        }
        let mut chain = Chain { checkpoint, listed, ..Chain::empty(shape, plant) };
        if checkpoint > Serial::NONE {
            chain.take_checkpoint(bucket, (shape, plant)).await?;
        }
        Ok(chain)
    }

    /// The table is the checkpoint's, and the log goes on behind that.
    async fn take_checkpoint(
        &mut self,
        bucket: &Rc<dyn Bucket>,
        (shape, plant): (&Shape, Option<&'static str>),
    ) -> Result<(), Trouble> {
        let damaged = |field| damaged(self.checkpoint, field);
        let raw = bucket.get(&name(self.checkpoint), None).await?;
        let (head, sum, bytes) = match Head::decode(&shape.uuid, &raw) {
            Decoded::Head(head, sum, bytes) => (head, sum, bytes),
            Decoded::Short(_) => return Err(damaged("it is cut short, and its checksum")),
            Decoded::Damaged(field) => return Err(damaged(field)),
        };
        if head.kind == Kind::Fence && head.serial == self.checkpoint {
            return Err(Trouble::Again); // it was deleted, and a taker's fence has its name (I8)
        }
        let body = &raw[bytes..];
        let right = head.kind == Kind::Checkpoint && head.serial == self.checkpoint;
        if !right || crc32c::crc32c(body) != head.body_sum {
            return Err(damaged("its checksum"));
        }
        possible::head(&head, shape).map_err(damaged)?;
        let nothing = Table::new(shape.blocks, plant);
        self.table = Table::decode(nothing, (head.serial, body)).map_err(damaged)?;
        self.table.apply(&head, bytes);
        (self.epoch, self.last) = (head.epoch, (head.serial, sum));
        self.next = head.serial.next();
        self.notes.found(&head);
        Ok(())
    }

    /// The object under the next serial: it goes on where the last valid one ends (I4, I5).
    fn follow(
        &mut self,
        (head, sum, bytes): Found,
        window: u64,
        void_accepted: bool,
    ) -> Result<(), Trouble> {
        assert_eq!(head.serial, self.next, "I2: the log is followed without gaps");
        let is_fence = head.kind == Kind::Fence;
        let epoch = if is_fence { Epoch(head.serial) } else { self.epoch };
        if (head.previous != self.last || head.epoch != epoch) && !void_accepted {
            let why = "it does not go on where the log ends before it";
            return Err(Trouble::Wrong(format!("{} is not valid: {why}", name(head.serial))));
        }
        self.table.goes_on(&head).map_err(|field| damaged(head.serial, field))?;
        self.table.apply(&head, bytes);
        (self.last, self.epoch) = ((head.serial, sum), epoch);
        self.notes.found(&head);
        self.rolled += u64::from(!is_fence);
        self.next = head.serial.plus(if is_fence && !void_accepted { window } else { 1 });
        if is_fence {
            self.writer = head.writer;
        }
        Ok(())
    }
}

//! Opening with a near log: is it one, is it this volume's, and what of it does the chain not have?
//! That is put again where the chain goes on from this machine's last object, and refused where
//! somebody else has gone on (N5, N6). It changes nothing that was there.

use crate::at_rest::AtRest;
use crate::chain::{Chain, Trouble, head_of};
use crate::fence::who;
use crate::near::{Book, Near, NearOptions, failed};
use crate::near_record::{Record, group_of};
use crate::object::{Serial, name};
use crate::store::{Inner, Store};
use crate::volume::Shape;
use env::{Block, Bucket, Env};
use std::cell::RefCell;
use std::rc::Rc;
use wal::{Client, Log, LogArea, LogError, Lsn};

/// A near log is no smaller than this: the largest group fits some times.
pub const NEAR_BYTES_MIN: u64 = 16 << 20;

/// What a chain says of a near log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Standing {
    /// Groups up to this one are in the chain, or in nobody's.
    pub(crate) upto: u64,
    /// The chain ends with an object of this machine.
    pub(crate) is_ours: bool,
}

/// What to do with one that cannot be used.
fn away(name: &str) -> String {
    format!(
        "It is kept; to go on without it, and without what it has and the bucket has not, move it \
         away: mv {name} {name}.kept"
    )
}

impl Near {
    /// Opens it, or makes it where the disk is blank. Errors: it is no near log of this volume, or
    /// damaged; or the disk's.
    pub(crate) async fn open(
        (env, shape): (&Env, &Shape),
        how: &AtRest,
        options: &NearOptions,
        plant: Option<&'static str>,
    ) -> Result<Near, String> {
        let name = &options.name;
        let damaged = |e: LogError| match e {
            LogError::Disk(e) => format!("the near log {name}: {e}"),
            e => format!("the near log {name} cannot be used: {e}. {}", away(name)),
        };
        let area = LogArea::whole(options.disk.clone());
        if area.len_bytes() < NEAR_BYTES_MIN {
            let (min, has) = (NEAR_BYTES_MIN, area.len_bytes());
            return Err(format!("the near log {name} has {has} bytes; it needs {min}"));
        }
        if let Err(e @ LogError::NotALog { .. }) = wal::inspect(&area).await {
            if !is_unused(options).await.map_err(|e| damaged(LogError::Disk(e)))? {
                return Err(damaged(e));
            }
            let (a, b) = (env.random().to_le_bytes(), env.random().to_le_bytes());
            let mut format = wal::FormatOptions { uuid: [0; 16], ..Default::default() };
            format.uuid.iter_mut().zip(a.into_iter().chain(b)).for_each(|(u, b)| *u = b);
            Log::format(&area, &format).await.map_err(damaged)?;
        }
        let log = Log::open(env, area, wal::OpenOptions::default()).await.map_err(damaged)?;
        let info = log.info();
        let other = info.clients.iter().find(|(id, _, needs)| *id != shape.uuid && needs.is_some());
        if let Some((_, label, _)) = other {
            let why = format!("the near log {name} is another volume's, or {label}'s");
            return Err(format!("{why}, and has something of it. {}", away(name)));
        }
        let client = log.client(shape.uuid, "near log").map_err(damaged)?;
        let near = Near {
            env: env.clone(),
            client,
            sealer: Near::sealer_of(how),
            name: name.clone(),
            within: options.within,
            epoch: info.epoch,
            capacity: info.capacity,
            book: RefCell::new(Book::default()),
            plant,
        };
        near.read_book().await?;
        Ok(near)
    }

    /// What is in it. Errors: damage, or the disk's.
    async fn read_book(&self) -> Result<(), String> {
        let mut scan = self.client.scan(Lsn(0));
        let (now, mut book) = (self.env.now(), Book::default());
        while let Some(e) = scan.next().await.map_err(|e| self.refused(&e.to_string()))? {
            match Record::decode(&e.bytes, self.sealer.as_ref()) {
                Some(Record::Group(number, _)) => {
                    book.groups.insert(number, (e.lsn, now));
                    book.last = book.last.max(number);
                }
                Some(Record::Mark { serial, sum, upto }) => {
                    book.marks.insert((serial, sum), (e.lsn, upto));
                    book.last = book.last.max(upto);
                }
                None => return Err(self.refused("an entry is none of a near log's")),
            }
        }
        *self.book.borrow_mut() = book;
        Ok(())
    }

    fn refused(&self, why: &str) -> String {
        format!("the near log {} cannot be used: {why}. {}", self.name, away(&self.name))
    }

    /// Is the chain's last object one that this machine has put?
    pub(crate) fn has_put(&self, last: (Serial, u32)) -> bool {
        self.book.borrow().marks.contains_key(&last)
    }

    /// What the chain says of it. Errors: somebody else has gone on, and something is left out.
    pub(crate) async fn judge(
        &self,
        bucket: &Rc<dyn Bucket>,
        shape: &Shape,
        chain: &Chain,
    ) -> Result<Standing, Trouble> {
        let (known, last, oldest) = {
            let book = self.book.borrow();
            let known = book.marks.get(&chain.last).map(|m| m.1);
            (known, book.last, book.marks.keys().next().map_or(Serial::NONE, |m| m.0))
        };
        if let Some(upto) = known {
            return Ok(Standing { upto, is_ours: true });
        }
        // The last fence of somebody else that ends what this machine had put.
        for fence in chain.table.fences.range(oldest..).rev() {
            let (head, sum, _) = head_of(bucket, shape, *fence).await?;
            let (is_ours, upto) = {
                let book = self.book.borrow();
                let upto = book.marks.get(&head.previous).map(|m| m.1);
                (book.marks.contains_key(&(*fence, sum)), upto)
            };
            if let Some(upto) = upto.filter(|_| !is_ours) {
                return self.cut_off(upto, (*fence, &head.writer));
            }
        }
        let Some(n) = Some(self.waiting()).filter(|n| *n > 0) else {
            return Ok(Standing { upto: last, is_ours: false });
        };
        let why = format!(
            "it has {n} groups of changes, and the log in the bucket is not the one that they go \
             on from (was an older state of it put back?)"
        );
        Err(Trouble::Wrong(self.refused(&why)))
    }

    /// Groups behind `upto` are void.
    fn cut_off(&self, upto: u64, (fence, writer): (Serial, &str)) -> Result<Standing, Trouble> {
        let last = self.book.borrow().last;
        let lost = self.book.borrow().groups.range(upto + 1..).count();
        if lost == 0 {
            return Ok(Standing { upto: last, is_ours: false });
        }
        if self.plant == Some("near-put-onto-anything") {
            return Ok(Standing { upto, is_ours: true });
        }
        let (near, by, fence) = (&self.name, who(writer), name(fence));
        Err(Trouble::Wrong(format!(
            "the near log {near} has {lost} groups of changes that had not reached the bucket when \
             {by} took the volume over ({fence}): they are lost to the volume, though calls that \
             made them may have returned. {}",
            away(near)
        )))
    }

    /// What is not to be put again is forgotten. Returns what is, in order: its numbers and places.
    pub(crate) fn begin(&self, standing: Standing) -> Vec<(u64, Lsn)> {
        let mut book = self.book.borrow_mut();
        book.groups = book.groups.split_off(&(standing.upto + 1));
        if self.plant == Some("near-not-put-again") {
            book.groups.clear();
        }
        assert!(standing.is_ours || book.groups.is_empty(), "N5: these are void");
        book.groups.iter().map(|(number, at)| (*number, at.0)).collect()
    }
}

/// Has nobody ever written to it? A crash while it was made may have left a part of a superblock.
async fn is_unused(options: &NearOptions) -> Result<bool, env::DiskError> {
    let read = options.disk.read(0, vec![Block::zeroed(64 << 10)]).await?;
    let bytes = read[0].bytes();
    let (made, entries) = bytes.split_at(8192);
    let is_ours = |slot: &[u8]| slot.iter().all(|b| *b == 0) || slot.starts_with(b"CairnLog");
    let first = made.chunks(512).step_by(8).all(is_ours); // a slot's first sector
    Ok(first && entries.iter().all(|b| *b == 0))
}

impl Store {
    /// Puts what only the near log has, and waits until the bucket has it: nothing else is done
    /// before. Errors: the bucket's, or the near log's.
    pub(crate) async fn put_near_again(&self, again: Vec<(u64, Lsn)>) -> Result<(), String> {
        let inner = &self.inner;
        let Some(near) = inner.near.as_ref().filter(|_| !again.is_empty()) else {
            inner.trim_near();
            return Ok(());
        };
        let n = again.len();
        tracing::warn!("{n} groups of changes are in the near log {} alone: uploaded", near.name);
        let first = again[0].1;
        let mut scan = near.client.scan(first);
        let mut left = again.into_iter().map(|a| a.0).peekable();
        while let Some(number) = left.peek().copied() {
            let next = scan.next().await.map_err(|e| near.refused(&e.to_string()))?;
            let Some(entry) = next else { return Err(near.refused("an entry is missing")) };
            let Some(Record::Group(found, body)) =
                Record::decode(&entry.bytes, near.sealer.as_ref())
            else {
                continue; // a mark
            };
            if found < number {
                continue;
            }
            let damaged = || near.refused("a group in it is none of this volume's");
            let group = group_of(&body, inner.shape.blocks).ok_or_else(damaged)?;
            inner.put_again(number, &group).await.map_err(|e| e.to_string())?;
            left.next();
        }
        let put = inner.state.borrow().put;
        inner.upload_to(put).await.map_err(|e| e.to_string())?;
        inner.trim_near();
        assert_eq!(near.waiting(), 0, "N5: all is in the bucket before anything else is");
        Ok(())
    }
}

impl Inner {
    /// Nothing is in the near log that the bucket has not: it is empty. Errors: the log's.
    pub(crate) async fn end_near(&self) -> Result<(), env::DiskError> {
        let Some(near) = &self.near else { return Ok(()) };
        if near.waiting() > 0 {
            return Ok(());
        }
        let client: &Client = &near.client;
        client.trim(client.end());
        client.log().persist().await.map_err(|e| failed(&near.name, &e))
    }
}

//! The port: the way requests to disks and buckets leave a volume and their ends come back. To the
//! tasks inside it is a [`Disk`] or a [`Bucket`]; to the world outside it is a list of requests to
//! carry out. Both worlds use this one port, so that what the simulator tests is what the host
//! runs.
//!
//! Invariants:
//! * P1. A request has a number of its own, and ends once.
//! * P2. A request is known as long as somebody waits for it: of whoever has gone nothing is kept.
//! * P3. The memory of a read comes back as it went: as many blocks, as long as they were.
//! * P4. Requests leave in the order of their numbers.

use crate::bucket::{Bucket, BucketError, BucketErrorKind, ObjectDone, ObjectOp};
use crate::disk::{Disk, DiskError, DiskErrorKind, Durability, Local};
use crate::{Block, IdMap, ReadNow};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Which of the world's disks: 0 is the volume's, others are logs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DiskId(pub u16);

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoOp {
    /// Fill the blocks.
    Read,
    /// Fill the blocks, with what the device holds and no cache of this machine does.
    ReadFresh,
    /// Write the blocks.
    Write(Durability),
    /// Make completed writes durable.
    Flush,
    /// Forget `len` bytes.
    Discard {
        /// How many bytes.
        len: u64,
    },
    /// Lend a reader of the disk.
    Lend,
    /// What the request says of an object: the device is a bucket.
    Object,
}

/// A request on its way to a world.
#[derive(Debug)]
pub struct IoRequest {
    /// Comes back in [`IoDone`].
    pub id: u64,
    /// Which disk.
    pub disk: DiskId,
    /// What.
    pub op: IoOp,
    /// First byte.
    pub at: u64,
    /// The memory, in order; empty for flush and discard.
    pub blocks: Vec<Block>,
    /// What is asked of a bucket.
    pub object: Option<ObjectOp>,
}

/// The end of a request.
#[derive(Debug)]
pub struct IoDone {
    /// The request's number.
    pub id: u64,
    /// The request's memory: a read's is filled now.
    pub blocks: Vec<Block>,
    /// How it went.
    pub result: Result<(), DiskError>,
    /// The reader that was asked for.
    pub lent: Option<Arc<dyn ReadNow>>,
    /// What came of a bucket's request.
    pub object: Option<Result<ObjectDone, BucketError>>,
}

impl IoDone {
    /// The end of a request of a disk.
    pub fn of_disk(id: u64, blocks: Vec<Block>, result: Result<(), DiskError>) -> IoDone {
        IoDone { id, blocks, result, lent: None, object: None }
    }
    /// The end of a request of a bucket.
    pub fn of_object(id: u64, object: Result<ObjectDone, BucketError>) -> IoDone {
        IoDone { id, blocks: Vec::new(), result: Ok(()), lent: None, object: Some(object) }
    }
}

#[derive(Default)]
struct Waiting {
    done: Option<IoDone>,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Inner {
    next_id: Cell<u64>,
    leaving: RefCell<Vec<IoRequest>>,
    waiting: RefCell<IdMap<u64, Waiting>>,
}

/// The port of one volume.
#[derive(Clone, Default)]
pub struct Port(Rc<Inner>);

impl Port {
    /// The disk `id` of `size_bytes`.
    pub fn disk(&self, id: DiskId, size_bytes: u64) -> Rc<dyn Disk> {
        Rc::new(PortDisk { port: self.clone(), id, size_bytes })
    }

    /// The bucket `id`.
    pub fn bucket(&self, id: DiskId) -> Rc<dyn Bucket> {
        Rc::new(PortBucket { port: self.clone(), id })
    }

    /// A reader of the disk `id`, for who reads without waiting. Errors: the device's.
    pub async fn lend(&self, id: DiskId) -> Result<Arc<dyn ReadNow>, DiskError> {
        let done = self.ask(id, IoOp::Lend, 0, Vec::new()).await;
        done.result?;
        Ok(done.lent.expect("a world that lends a disk gives its reader"))
    }

    /// How many requests are waited for.
    #[cfg(test)]
    pub(crate) fn waited_for(&self) -> usize {
        self.0.waiting.borrow().len()
    }

    /// The number of the next request.
    pub(crate) fn next_id(&self) -> u64 {
        self.0.next_id.get()
    }

    /// The requests made since the one with number `id`, that one among them: they do not leave.
    pub(crate) fn take_since(&self, id: u64) -> Vec<IoRequest> {
        let mut leaving = self.0.leaving.borrow_mut();
        leaving.extract_if(.., |r| r.id >= id).collect()
    }

    /// The requests made since the last call, in the order they were made.
    pub fn take(&self) -> Vec<IoRequest> {
        let leaving = std::mem::take(&mut *self.0.leaving.borrow_mut());
        let rises = leaving.is_sorted_by(|a, b| a.id < b.id);
        assert!(rises, "P4: of {} requests that leave one overtakes another", leaving.len());
        leaving
    }

    /// A request has ended: wakes the task that waits for it. If that task is gone, so is the
    /// request.
    pub fn complete(&self, done: IoDone) {
        let waker = {
            let mut waiting = self.0.waiting.borrow_mut();
            let Some(w) = waiting.get_mut(&done.id) else { return };
            assert!(w.done.is_none(), "P1: request {} ended twice", done.id);
            w.done = Some(done);
            w.waker.take()
        };
        if let Some(w) = waker {
            w.wake();
        }
    }

    async fn ask(&self, disk: DiskId, op: IoOp, at: u64, blocks: Vec<Block>) -> IoDone {
        self.send(IoRequest { id: 0, disk, op, at, blocks, object: None }).await
    }

    async fn send(&self, request: IoRequest) -> IoDone {
        let id = self.0.next_id.get();
        self.0.next_id.set(id + 1);
        let old = self.0.waiting.borrow_mut().insert(id, Waiting::default());
        assert!(old.is_none(), "P1: two requests have the number {id}");
        let _known = Known { of: self, id };
        self.0.leaving.borrow_mut().push(IoRequest { id, ..request });
        poll_fn(|cx| {
            let mut waiting = self.0.waiting.borrow_mut();
            let w = waiting.get_mut(&id).expect("P2: somebody waits for it");
            if let Some(done) = w.done.take() {
                return Poll::Ready(done);
            }
            w.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// A request that somebody waits for, until he has its end or has gone.
struct Known<'a> {
    of: &'a Port,
    id: u64,
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        // What came with it is dropped when nothing is borrowed any more.
        let _was = self.of.0.waiting.borrow_mut().remove(&self.id);
    }
}

struct PortBucket {
    port: Port,
    id: DiskId,
}

impl Bucket for PortBucket {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        Box::pin(async move {
            let (during, name) = (op.verb(), op.name().to_owned());
            let (object, blocks) = (Some(op), Vec::new());
            let request =
                IoRequest { id: 0, disk: self.id, op: IoOp::Object, at: 0, blocks, object };
            self.port.send(request).await.object.unwrap_or_else(|| {
                let (kind, detail) = (BucketErrorKind::Refused, "the device is no bucket".into());
                Err(BucketError { kind, during, name, detail })
            })
        })
    }
}

struct PortDisk {
    port: Port,
    id: DiskId,
    size_bytes: u64,
}

impl PortDisk {
    fn check(&self, during: &'static str, at: u64, len: u64) -> Result<(), DiskError> {
        if at.checked_add(len).is_some_and(|end| end <= self.size_bytes) {
            return Ok(());
        }
        let detail = format!("{len} bytes on a device of {}", self.size_bytes);
        Err(DiskError { kind: DiskErrorKind::OutOfRange, during, at, detail })
    }
}

impl PortDisk {
    async fn fill(&self, op: IoOp, at: u64, blocks: Vec<Block>) -> Result<Vec<Block>, DiskError> {
        let (n, len) = (blocks.len(), total(&blocks));
        let done = self.port.ask(self.id, op, at, blocks).await;
        done.result?;
        let (back, bytes) = (done.blocks.len(), total(&done.blocks));
        assert_eq!((back, bytes), (n, len), "P3: a read at {at} comes back with other memory");
        Ok(done.blocks)
    }
}

fn total(blocks: &[Block]) -> u64 {
    blocks.iter().map(|b| b.len() as u64).sum()
}

impl Disk for PortDisk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
    fn read(&self, at: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        Box::pin(async move {
            self.check("read", at, total(&blocks))?;
            self.fill(IoOp::Read, at, blocks).await
        })
    }
    fn read_fresh(&self, at: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        Box::pin(async move {
            self.check("read", at, total(&blocks))?;
            self.fill(IoOp::ReadFresh, at, blocks).await
        })
    }
    fn write(
        &self,
        at: u64,
        blocks: Vec<Block>,
        how: Durability,
    ) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            self.check("write", at, total(&blocks))?;
            self.port.ask(self.id, IoOp::Write(how), at, blocks).await.result
        })
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move { self.port.ask(self.id, IoOp::Flush, 0, Vec::new()).await.result })
    }
    fn discard(&self, at: u64, len: u64) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            self.check("discard", at, len)?;
            self.port.ask(self.id, IoOp::Discard { len }, at, Vec::new()).await.result
        })
    }
}

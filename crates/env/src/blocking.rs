//! Reading a disk without waiting, for code that reads a great deal in an order of its own and
//! cannot be suspended in its middle: a checker, a walk through a file's map. The world lends a
//! reader of the disk ([`Port::lend`]); a disk that is made of others is read through theirs.
//!
//! Only reading is possible in this way, and only while the volume is opened or examined and nobody
//! else is inside. What is written goes through [`Disk`], so that every step of it can be cut off.

use crate::bucket::{BucketError, BucketErrorKind, ObjectDone, ObjectOp};
use crate::disk::{Disk, DiskError, DiskErrorKind};
use crate::{Block, DiskId, Env, IoDone, IoOp, Port, SECTOR_BYTES};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A disk that is read at once. It shows what the disk held when it was lent, or holds now.
pub trait ReadNow: Send + Sync + fmt::Debug {
    /// Fills `into` from byte `at` on, wherever that begins and ends. Errors: the device's.
    fn read_now(&self, at: u64, into: &mut [u8]) -> Result<(), DiskError>;
    /// Is it known, without reading, that these bytes are all zero? `false` is always right.
    fn known_zero(&self, at: u64, len: u64) -> bool {
        let _ = (at, len);
        false
    }
    /// Reads an object, where this is a bucket. Errors: the bucket's; or it is none.
    fn object_now(&self, op: &ObjectOp) -> Result<ObjectDone, BucketError> {
        let (kind, during) = (BucketErrorKind::Refused, op.verb());
        let (name, detail) = (op.name().to_owned(), "the device is no bucket".to_owned());
        Err(BucketError { kind, during, name, detail })
    }
}

/// A disk, as it is now, for who reads without waiting.
pub struct Blocking {
    port: Port,
    disk: Rc<dyn Disk>,
    /// The readers of the world's disks below, the disk's own among them.
    lent: Vec<(DiskId, Arc<dyn ReadNow>)>,
    /// The disk is the world's own, the first of these, and not one that is made of them.
    is_own: bool,
}

impl Blocking {
    /// The world's disk `id` of `size_bytes`. Errors: the device's.
    pub async fn own(env: &Env, id: DiskId, size_bytes: u64) -> Result<Blocking, DiskError> {
        let disk = env.port().disk(id, size_bytes);
        let lent = vec![(id, env.port().lend(id).await?)];
        Ok(Blocking { port: env.port().clone(), disk, lent, is_own: true })
    }

    /// A disk that is made of the world's disks `below`. Errors: the device's.
    pub async fn made_of(
        env: &Env,
        disk: Rc<dyn Disk>,
        below: &[DiskId],
    ) -> Result<Blocking, DiskError> {
        let mut lent = Vec::new();
        for id in below {
            lent.push((*id, env.port().lend(*id).await?));
        }
        Ok(Blocking { port: env.port().clone(), disk, lent, is_own: false })
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    /// Is it known, without reading, that these bytes are all zero?
    pub fn known_zero(&self, at: u64, len: u64) -> bool {
        self.is_own && self.lent[0].1.known_zero(at, len)
    }

    /// Fills `into` from byte `at` on, wherever that begins and ends. Errors: the device's, or the
    /// disk is made in a way that it cannot be read without waiting.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let sector = SECTOR_BYTES as u64;
        let end = at.saturating_add(into.len() as u64);
        if end > self.size_bytes() {
            let (kind, during) = (DiskErrorKind::OutOfRange, "read");
            let detail = format!("{} bytes on a device of {}", into.len(), self.size_bytes());
            return Err(DiskError { kind, during, at, detail });
        }
        if self.is_own {
            return self.lent[0].1.read_now(at, into);
        }
        let start = at - at % sector;
        let whole = (end.next_multiple_of(sector) - start) as usize;
        let mut reading = self.disk.read(start, vec![Block::zeroed(whole)]);
        let before = self.port.next_id();
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(read) = reading.as_mut().poll(&mut cx) {
                let bytes = read?;
                let skip = (at - start) as usize;
                into.copy_from_slice(&bytes[0].bytes()[skip..skip + into.len()]);
                return Ok(());
            }
            if !self.serve(before) {
                let (kind, during) = (DiskErrorKind::Io, "read");
                let detail = "the store waits for something that is no read".to_owned();
                return Err(DiskError { kind, during, at, detail });
            }
        }
    }

    /// Carries out the reads that were asked for since request `before`. False: there was none.
    fn serve(&self, before: u64) -> bool {
        let mut served = false;
        for mut r in self.port.take_since(before) {
            let of = self.lent.iter().find(|(id, _)| *id == r.disk);
            let reads = |op: &&ObjectOp| matches!(op.verb(), "GET" | "LIST");
            if let (Some((_, bucket)), Some(op)) = (of, r.object.as_ref().filter(reads)) {
                self.port.complete(IoDone::of_object(r.id, bucket.object_now(op)));
                served = true;
                continue;
            }
            let lent = self.lent.iter().find(|(id, _)| *id == r.disk && r.op == IoOp::Read);
            let mut at = r.at;
            let result = match lent {
                Some((_, disk)) => r.blocks.iter_mut().try_for_each(|b| {
                    let done = disk.read_now(at, b.bytes_mut());
                    at += b.len() as u64;
                    done
                }),
                None => Err(DiskError {
                    kind: DiskErrorKind::ReadOnly,
                    during: "read",
                    at,
                    detail: "a store may only read while it is read without waiting".into(),
                }),
            };
            self.port.complete(IoDone::of_disk(r.id, r.blocks, result));
            served = true;
        }
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Local;
    use crate::{Durability, Engine, Nanos, Now};
    use std::cell::RefCell;

    /// Byte `n` of it is `n`.
    #[derive(Debug)]
    struct Counting;
    impl ReadNow for Counting {
        fn read_now(&self, at: u64, into: &mut [u8]) -> Result<(), DiskError> {
            into.iter_mut().zip(at..).for_each(|(b, n)| *b = n as u8);
            Ok(())
        }
        fn known_zero(&self, _: u64, _: u64) -> bool {
            true
        }
    }

    /// The same disk, two sectors further on, found by a read of a table.
    struct Moved(Rc<dyn Disk>);
    impl Disk for Moved {
        fn size_bytes(&self) -> u64 {
            self.0.size_bytes() - 1024
        }
        fn read(&self, at: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
            Box::pin(async move {
                let table = self.0.read(0, vec![Block::zeroed(512)]).await?;
                let by = u64::from(table[0].bytes()[2]) * 512;
                self.0.read(at + by, blocks).await
            })
        }
        fn write(
            &self,
            at: u64,
            blocks: Vec<Block>,
            how: Durability,
        ) -> Local<'_, Result<(), DiskError>> {
            self.0.write(at, blocks, how)
        }
        fn flush(&self) -> Local<'_, Result<(), DiskError>> {
            self.0.flush()
        }
        fn discard(&self, at: u64, len: u64) -> Local<'_, Result<(), DiskError>> {
            self.0.discard(at, len)
        }
    }

    /// Runs `f` in an engine whose only disk is [`Counting`], lent and not read otherwise.
    fn inside<F: Future<Output = ()> + 'static>(f: impl FnOnce(Env) -> F) {
        let mut engine = Engine::new(1);
        let now = Now { mono: Nanos(0), wall: Nanos(0) };
        let ended = Rc::new(RefCell::new(false));
        let (mut f, set) = (Some(f), ended.clone());
        let mut done = Vec::new();
        for _ in 0..10 {
            engine.turn(now, &mut done, |env| {
                if let Some(f) = f.take() {
                    let (future, set) = (f(env.clone()), set.clone());
                    env.spawn("test", async move {
                        future.await;
                        *set.borrow_mut() = true;
                    });
                }
            });
            for r in engine.take_io() {
                assert_eq!(r.op, IoOp::Lend, "the world is asked for nothing else");
                let lent = Some(Arc::new(Counting) as Arc<dyn ReadNow>);
                done.push(IoDone { lent, ..IoDone::of_disk(r.id, r.blocks, Ok(())) });
            }
        }
        assert!(*ended.borrow());
    }

    #[test]
    fn a_disk_of_the_world_is_read_at_any_byte() {
        inside(|env| async move {
            let disk = Blocking::own(&env, DiskId(0), 4096).await.unwrap();
            let mut into = [0; 3];
            disk.read(254, &mut into).unwrap();
            assert_eq!(into, [254, 255, 0]);
            assert!(disk.known_zero(0, 4096));
            assert!(disk.read(4094, &mut into).is_err(), "beyond its end");
        });
    }

    #[test]
    fn a_disk_made_of_others_is_read_through_theirs() {
        inside(|env| async move {
            let moved = Rc::new(Moved(env.port().disk(DiskId(0), 4096)));
            let disk = Blocking::made_of(&env, moved, &[DiskId(0)]).await.unwrap();
            let mut into = [0; 700];
            disk.read(3, &mut into).unwrap();
            assert_eq!((into[0], into[1], into[699]), (3, 4, (1024u32 + 702) as u8));
            assert!(!disk.known_zero(0, 512), "a hole below says nothing of what lies above");
        });
    }

    #[test]
    fn a_disk_that_would_have_to_wait_is_an_error_and_no_hang() {
        inside(|env| async move {
            let moved = Rc::new(Moved(env.port().disk(DiskId(0), 4096)));
            let disk = Blocking::made_of(&env, moved, &[]).await.unwrap();
            assert!(disk.read(0, &mut [0; 8]).is_err());
        });
    }
}

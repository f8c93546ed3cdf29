//! FUSE over io_uring: a queue a CPU, each with entries that the kernel fills with requests and we
//! commit with replies, on the ring of that CPU's worker. INIT, FORGET and INTERRUPT still come by
//! /dev/fuse.

use crate::decode::{Decoded, Parts};
use crate::encode::encode;
use crate::held_back::send_first;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::wire::Head;
use host::{Entry, Pool, Source, WorkList};
use io_uring::{opcode, types};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use vfs::{Answer, Front, Ticket, Work};

/// Entries of a queue.
const DEPTH: usize = 48;
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

pub(crate) struct Queues {
    me: Weak<Queues>,
    dev: OwnedFd,
    pool: Arc<Pool>,
    volume: usize,
    block_bytes: usize,
    shared: Arc<Shared>,
    slots: Vec<Vec<Slot>>,
    tag: std::sync::atomic::AtomicU64,
}

/// The 80 bytes of a command: flags, commit id, queue.
fn command(commit_id: u64, queue: usize) -> [u8; 80] {
    let mut c = [0; 80];
    c[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    c[16..18].copy_from_slice(&(queue as u16).to_ne_bytes());
    c
}

impl Queues {
    pub(crate) fn new(
        dev: OwnedFd,
        pool: Arc<Pool>,
        volume: usize,
        block_bytes: usize,
        shared: Arc<Shared>,
    ) -> Arc<Queues> {
        let slots =
            (0..pool.workers()).map(|_| (0..DEPTH).map(|_| Slot::new()).collect()).collect();
        Arc::new_cyclic(|me| Queues {
            me: me.clone(),
            dev,
            pool,
            volume,
            block_bytes,
            shared,
            slots,
            tag: 0.into(),
        })
    }

    fn data(&self, queue: usize, entry: usize) -> u64 {
        self.tag.load(Ordering::Relaxed) | (queue * DEPTH + entry) as u64
    }

    fn register(&self, queue: usize, entry: usize) -> Entry {
        let slot = &self.slots[queue][entry];
        let fd = types::Fd(self.dev.as_raw_fd());
        let mut e = opcode::UringCmd80::new(fd, REGISTER)
            .cmd(command(0, queue))
            .addr(Some(slot.iovecs() as u64))
            .build()
            .user_data(self.data(queue, entry));
        // The crate cannot set `len`, where the kernel wants the number of iovecs: bytes 24 to 28.
        // SAFETY: an entry is 128 plain bytes, and these four are its `len` field.
        #[expect(unsafe_code, reason = "io-uring's UringCmd80 has no setter for it")]
        unsafe {
            std::ptr::from_mut(&mut e).cast::<u8>().add(24).cast::<u32>().write_unaligned(2);
        }
        e
    }

    fn commit(&self, queue: usize, entry: usize) {
        let slot = &self.slots[queue][entry];
        slot.goes();
        let fd = types::Fd(self.dev.as_raw_fd());
        let e = opcode::UringCmd80::new(fd, COMMIT_AND_FETCH)
            .cmd(command(slot.commit_id(), queue))
            .build()
            .user_data(self.data(queue, entry));
        self.pool.push(queue, &[e]);
    }
}

impl Source for Queues {
    fn start(&self, pool: &Pool, worker: usize, tag: u64) {
        let other = self.tag.swap(tag, Ordering::Relaxed);
        assert!(other == 0 || other == tag, "F1: entries come by two tags, {other:x} and {tag:x}");
        let entries: Vec<Entry> = (0..DEPTH).map(|i| self.register(worker, i)).collect();
        pool.push(worker, &entries);
    }

    fn complete(&self, _: &Pool, worker: usize, data: u64, result: i32, work: &mut WorkList) {
        let (queue, entry) = (data as usize / DEPTH, data as usize % DEPTH);
        assert_eq!(queue, worker, "F1: an entry of queue {queue} comes by worker {worker}'s ring");
        if result != 0 {
            if -result != libc::ENOTCONN && !self.shared.ended.load(Ordering::Relaxed) {
                let e = std::io::Error::from_raw_os_error(-result);
                tracing::error!("FUSE queue {queue}: {e}");
            }
            return; // unmounted
        }
        let slot = &self.slots[queue][entry];
        slot.comes();
        let parts = Parts {
            head: Head::decode(slot.head()),
            fixed: slot.fixed(),
            rest: slot.rest(),
            block_bytes: self.block_bytes,
            shared: &self.shared,
        };
        match parts.decode() {
            Decoded::Ask(shape, call) => {
                slot.set_asked(shape);
                self.shared.asks();
                let front = self.me.upgrade().expect("the pool holds its sources");
                let call = Work::Call(Ticket { front, id: data }, call);
                let call = send_first(&self.pool, self.volume, &self.shared, call);
                work.extend(call.map(|c| (self.volume, c)));
            }
            Decoded::Now(errno) => {
                slot.finish(if errno == 0 { Ok(0) } else { Err(errno) });
                self.commit(queue, entry);
            }
            Decoded::Probe => {
                slot.finish(Ok(crate::probe::entry(slot.payload())));
                self.commit(queue, entry);
            }
            Decoded::Destroyed => {
                if self.shared.is_destroyed() {
                    slot.finish(Ok(0));
                    self.commit(queue, entry);
                }
            }
            Decoded::Silent(calls) => {
                work.extend(calls.into_iter().map(|c| (self.volume, Work::Silent(c))));
                slot.finish(Ok(0));
                self.commit(queue, entry);
            }
        }
    }
}

impl Front for Queues {
    fn reply(&self, id: u64, answer: Answer) {
        let (queue, entry) = (id as usize / DEPTH, id as usize % DEPTH);
        let slot = &self.slots[queue][entry];
        let (shape, arrived) = slot.take_asked();
        let opcode = Head::decode(slot.head()).opcode;
        let failed = answer.result.is_err();
        self.shared.changes_attributes(shape);
        let result = encode(shape, answer, (self.shared.policy, self.shared.nodes), slot.payload());
        slot.finish(result);
        self.commit(queue, entry);
        self.shared.answered(opcode, arrived, failed);
    }
}

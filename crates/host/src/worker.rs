//! One worker: a thread on its own CPU, with one ring on which everything it waits for arrives. It
//! collects what has come, enters each volume concerned once, answers, submits the volume's disk
//! requests on its ring.

use crate::changes::Written;
use crate::file::{disk_error, iovec_of, iovecs};
use crate::pool::{Message, Pool, Source, WorkList};
use crate::ring::Entry;
use crate::room::{Retries, copy_of};
use crate::way::Way;
use crate::{HostFile, now};
use env::{Block, Durability, IoDone, IoOp, IoRequest, Nanos};
use io_uring::{opcode, types};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{Out, Work};

const TAG_MASK: u64 = 0xff << 56;
const DATA_WAKEUP: u64 = 1;
const DATA_NOBODY: u64 = 2;
const DATA_DISK: u64 = 1 << 32;

/// A disk request that the kernel has.
struct InFlight {
    volume: usize,
    id: u64,
    op: IoOp,
    at: u64,
    disk: usize,
    begun: Nanos,
    blocks: Vec<Block>,
    /// What it writes, if anything.
    written: Option<Written>,
    /// Points into `blocks`, whose memory does not move.
    _iovecs: Vec<libc::iovec>,
    /// Holds the copy of the blocks, if there is one.
    way: Way,
}

struct Worker<'a> {
    pool: &'a Pool,
    me: usize,
    in_flight: Vec<Option<Box<InFlight>>>,
    free: Vec<usize>,
    work: WorkList,
    done: Vec<(usize, IoDone)>,
    wakeup: Box<[u8; 8]>,
    /// Writes that wait for room on the medium under an image.
    room: Retries,
    /// The pool's sources, as far as they have sent something.
    sources: Vec<Arc<dyn Source>>,
    /// Memory for what goes into a volume and comes out, used again and again.
    bags: (Vec<Work>, Vec<IoDone>, Out),
}

pub(crate) fn run(pool: &Pool, me: usize) {
    pin(me);
    let mut w = Worker {
        pool,
        me,
        in_flight: Vec::new(),
        free: Vec::new(),
        work: Vec::new(),
        done: Vec::new(),
        wakeup: Box::new([0; 8]),
        room: Retries::new(pool.room.clone()),
        sources: Vec::new(),
        bags: Default::default(),
    };
    w.listen_for_wakeup();
    w.serve();
}

fn pin(cpu: usize) {
    // SAFETY: the set is plain memory, zeroed and filled before the call.
    #[expect(unsafe_code, reason = "std cannot pin threads")]
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        // Where it is not allowed (a container with fewer CPUs), the thread runs unpinned.
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

impl Worker<'_> {
    fn serve(&mut self) {
        let ring = &self.pool.inboxes[self.me].ring;
        let mut completions = Vec::new();
        // The first entries begin the opening.
        (0..self.pool.volumes.len()).for_each(|v| self.enter(v));
        while !self.pool.stop.load(Ordering::Relaxed) {
            let deadlines = self.pool.volumes.iter().filter_map(|v| v.monitor.deadline());
            let until = deadlines.chain(self.room.next()).min();
            if let Err(e) = ring.wait(until) {
                tracing::error!("io_uring: {e}");
                // nothing can be waited for any more, and nothing be made safe.
                std::process::abort();
            }
            ring.completions(&mut completions);
            for (data, result) in completions.drain(..) {
                self.completion(data, result);
            }
            self.try_again();
            self.run_volumes();
        }
        // What the kernel still has must not be freed.
        std::mem::forget(std::mem::take(&mut self.in_flight));
        std::mem::forget(std::mem::take(&mut self.wakeup));
    }

    fn listen_for_wakeup(&mut self) {
        let inbox = &self.pool.inboxes[self.me];
        let fd = types::Fd(inbox.wakeup.as_raw_fd());
        let read =
            opcode::Read::new(fd, self.wakeup.as_mut_ptr(), 8).build().user_data(DATA_WAKEUP);
        inbox.ring.push(&[read.into()]);
    }

    fn completion(&mut self, data: u64, result: i32) {
        let tag = data & TAG_MASK;
        if tag != 0 {
            let index = (tag >> 56) as usize - 1;
            if index >= self.sources.len() {
                let all = self.pool.sources.read().expect("nobody panics while holding it");
                self.sources.clone_from(&all);
            }
            let source = &self.sources[index];
            source.complete(self.pool, self.me, data & !TAG_MASK, result, &mut self.work);
        } else if data & DATA_DISK != 0 {
            self.disk_done((data & 0xffff_ffff) as usize, result);
        } else if data == DATA_WAKEUP {
            self.listen_for_wakeup();
            self.run_messages();
        } else {
            assert_eq!(data, DATA_NOBODY, "P1: an entry of a kind that there is none of has ended");
        }
    }

    fn run_messages(&mut self) {
        let messages = {
            let mut all = self.pool.inboxes[self.me].messages.lock().expect("nobody panics here");
            std::mem::take(&mut *all)
        };
        for e in messages {
            match e {
                Message::Start(source, tag) => source.start(self.pool, self.me, tag),
                Message::Disk(v, mut io) => self.submit(v, &mut io),
                Message::Submit(entries) => self.pool.push(self.me, &entries),
                Message::Ended(v, done) => self.done.push((v, done)),
            }
        }
    }

    fn disk_done(&mut self, slot: usize, result: i32) {
        let r = self.in_flight[slot].take().expect("P1: a request ends once");
        self.free.push(slot);
        let (free, places) = (self.free.len(), self.in_flight.len());
        assert!(free <= places, "P1: {free} places are free, of {places}");
        let want: usize = r.blocks.iter().map(Block::len).sum();
        crate::slow::tell(&r.op, r.at, r.begun);
        let InFlight { volume, id, op, at, disk, blocks, way, written, .. } = *r;
        let file = self.pool.volumes[volume].disks[disk].clone();
        file.writing.ended(written);
        let told = matches!(way, Way::Told(_));
        let moves = matches!(op, IoOp::Read | IoOp::ReadFresh | IoOp::Write(_)) && !told;
        let device = env::DiskId(disk as u16);
        let request = |blocks| IoRequest { id, disk: device, op, at, blocks, object: None };
        if op == IoOp::Lend {
            self.done.push((volume, file.carry_out(request(blocks))));
            return;
        }
        if result >= 0 && (!moves || result as usize == want) {
            if op == IoOp::Write(Durability::Cached) && file.starts_early(&way, want) {
                self.start_early(&file, at, want);
            }
            let done = IoDone::of_disk(id, blocks, Ok(()));
            self.room.ended((volume, file.path()), &done, now().mono);
            self.done.push((volume, done));
            return;
        }
        let request = request(blocks);
        let again = copy_of(&request);
        let done = match -result {
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV | libc::EINVAL if told => {
                file.refused_zeros();
                file.carry_out(request)
            }
            // Cut short, or not to be had this way: carried out again as a whole, waiting. Rare.
            // Cancelled it is where the kernel has no thread for it, of as many as there may be.
            ..=0 | libc::EAGAIN | libc::EINTR | libc::EINVAL | libc::ECANCELED => {
                file.carry_out(request)
            }
            errno => {
                let e = std::io::Error::from_raw_os_error(errno);
                let result = Err(disk_error(&request.op, request.at, &e));
                IoDone::of_disk(request.id, request.blocks, result)
            }
        };
        if !self.room.keeps((volume, file.path()), &done, again, now().mono) {
            self.done.push((volume, done));
        }
    }

    /// Writes that found no room are tried again.
    fn try_again(&mut self) {
        for (volume, request) in self.room.due(now().mono) {
            self.submit(volume, &mut vec![request]);
        }
    }

    /// Lets the kernel begin to write back a long write. Nobody waits for it: that is what a flush
    /// is for, which also hears of its errors.
    fn start_early(&self, file: &HostFile, at: u64, len: usize) {
        let range = opcode::SyncFileRange::new(types::Fd(file.fd()), len as u32)
            .offset(file.begins + at)
            .flags(libc::SYNC_FILE_RANGE_WRITE);
        self.pool.push(self.me, &[range.build().user_data(DATA_NOBODY).into()]);
    }

    /// Enters every volume for which something has come, or whose time has come.
    fn run_volumes(&mut self) {
        for v in 0..self.pool.volumes.len() {
            let monitor = &self.pool.volumes[v].monitor;
            let due = || monitor.deadline().is_some_and(|d| d <= now().mono);
            let something =
                self.work.iter().any(|w| w.0 == v) || self.done.iter().any(|d| d.0 == v);
            if something || due() {
                self.enter(v);
            }
        }
    }

    fn enter(&mut self, v: usize) {
        let (mut work, mut done, mut out) = std::mem::take(&mut self.bags);
        work.extend(self.work.extract_if(.., |w| w.0 == v).map(|w| w.1));
        done.extend(self.done.extract_if(.., |d| d.0 == v).map(|d| d.1));
        self.pool.volumes[v].enter(&mut work, &mut done, &mut out);
        // The disk's requests first: they run while the replies are made, which may take longer
        // than the disk does.
        let asked = !out.io.is_empty();
        self.submit(v, &mut out.io);
        if asked && out.replies.len() > 1 {
            self.pool.inboxes[self.me].ring.submit();
        }
        out.answer();
        self.bags = (work, done, out);
    }

    fn submit(&mut self, v: usize, io: &mut Vec<IoRequest>) {
        for r in io.extract_if(.., |r| r.op == IoOp::Object) {
            self.ask_bucket(v, r);
        }
        let entries: Vec<Entry> = io.drain(..).map(|r| self.disk_entry(v, r)).collect();
        if !entries.is_empty() {
            self.pool.push(self.me, &entries);
        }
    }

    /// A request to a bucket goes to that one's own thread, and its end comes back as a message.
    fn ask_bucket(&mut self, v: usize, request: IoRequest) {
        let file = self.pool.volumes[v].disks[usize::from(request.disk.0)].clone();
        match &file.bucket {
            Some(bucket) => {
                let inbox = self.pool.inboxes[self.me].clone();
                bucket.start(request, move |done| inbox.send(Message::Ended(v, done)));
            }
            // As a message too: what is done here is taken in with the next completion only.
            None => self.end_of(v, file.carry_out(request)),
        }
    }

    /// A request has ended without the ring: this worker is told as of any other.
    fn end_of(&self, v: usize, done: IoDone) {
        self.pool.inboxes[self.me].send(Message::Ended(v, done));
    }

    fn disk_entry(&mut self, volume: usize, request: IoRequest) -> Entry {
        let file = &self.pool.volumes[volume].disks[usize::from(request.disk.0)];
        let written = file.writing.begun(&request);
        let IoRequest { id, disk, op, at, mut blocks, .. } = request;
        let way = file.way(&op, at, &blocks);
        let (fd, iovecs) = match &way {
            Way::Plain(fd) => (*fd, iovecs(&op, &mut blocks)),
            Way::Copied(fd, bytes, start) => (*fd, vec![iovec_of(&bytes[*start..])]),
            Way::Told(fd) => (*fd, Vec::new()),
        };
        let (pointed, len) = (
            iovecs.iter().map(|v| v.iov_len).sum::<usize>(),
            blocks.iter().map(Block::len).sum::<usize>(),
        );
        let told = matches!(way, Way::Told(_));
        assert!(told || pointed == len, "P1: {op:?} of {len} bytes points to {pointed}");
        let about = if let IoOp::Discard { len } = op { len } else { len as u64 };
        file.check_inside(&op, at, about);
        let (fd, ptr, n) = (types::Fd(fd), iovecs.as_ptr(), iovecs.len() as u32);
        let from = file.begins + at;
        let entry = match op {
            IoOp::Read | IoOp::ReadFresh => opcode::Readv::new(fd, ptr, n).offset(from).build(),
            IoOp::Write(_) if matches!(way, Way::Told(_)) => {
                let len = blocks.iter().map(Block::len).sum::<usize>() as u64;
                let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
                opcode::Fallocate::new(fd, len).offset(from).mode(mode).build()
            }
            IoOp::Write(how) => {
                let flags = if how == Durability::Fua { libc::RWF_DSYNC } else { 0 };
                opcode::Writev::new(fd, ptr, n).offset(from).rw_flags(flags).build()
            }
            IoOp::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            IoOp::Discard { len } => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                opcode::Fallocate::new(fd, len).offset(from).mode(mode).build()
            }
            // The reader is made where the request ends.
            IoOp::Lend | IoOp::Object => opcode::Nop::new().build(),
        };
        let disk = usize::from(disk.0);
        let begun = now().mono;
        let _iovecs = iovecs;
        let r = InFlight { volume, id, op, at, disk, begun, blocks, written, _iovecs, way };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        // The kernel writes to the memory of a request until it has ended.
        let before = self.in_flight[slot].replace(Box::new(r));
        assert!(before.is_none(), "P1: the place of a request that the kernel has is given away");
        Entry::from(entry.user_data(DATA_DISK | slot as u64))
    }
}

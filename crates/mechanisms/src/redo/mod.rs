//! A redo log of byte ranges: one atomic entry for each operation (seltzer-2000: LFFS;
//! vahalia-1995: Calaveras), and with small file contents in it, mode `unified`.
//!
//! The model: operations change blocks in memory and end one after the other; each that has ended
//! has a serial. Its changes become an entry in the log, and later, whenever it suits, the blocks
//! are written in place. Four positions cut the log, and each only moves to the right:
//!
//! ```text
//!          trimmed              durable            appended             given
//!             |                    |                   |                   |
//!  -----------|--------------------|-------------------|-------------------|----> operations
//!   free space: | acknowledged;    | in the log,       | ended, queued:    | not ended: open.rs
//!   every block | blocks are being | on its way to     | waits for open    |
//!   is durable  | written in place | the disk          | operations or for |
//!   in place    | (dirty_pages.rs) | (commit.rs)       | ordered data      |
//!               |                  |                   | (queue.rs)        |
//! ```
//!
//! `given` and `appended` count serials (serials.rs); `appended` and `durable` are also LSNs of the
//! log; `trimmed` is the oldest recLSN, the first LSN that some dirty block needs. So
//! trimmed <= durable <= appended <= given at every moment.
//!
//! Read in this order: append.rs (an operation ends and its entry goes into the log), commit.rs
//! (entries become durable, callers hear of it), dirty_pages.rs and gate.rs (what may be written in
//! place, and from where on the log is needed), checkpoint.rs (write-back and trim), replay.rs
//! (recovery); beside them reserve.rs (space before anything changes), data.rs and ways.rs (file
//! contents: which are logged, and which way the others go).
//!
//! Rule        An operation's changes are written in place only when its entry is durable, and the
//!             log is needed until they are durable there.
//! Terms       *serial*: the place of an operation among those that have ended. *entry*: the byte
//!             ranges of one operation, or of several that can only be durable together. *recLSN*:
//!             the LSN from which on a block needs the log. *ordered data*: those that are written
//!             back before their entry.
//! Invariants  I1 an image that is written back holds no byte of an operation that has not ended,
//!             and none whose entry is not durable (dirty_pages.rs).
//!             I2 entries are in the log in the order in which operations ended (queue.rs).
//!             I3 an entry holds no byte of an operation that is not in it or before it: what is
//!             mixed with an open operation's bytes waits for it and shares its entry (queue.rs,
//!             open.rs).
//!             I4 a block's recLSN goes when a write-back that holds everything up to its newest
//!             entry is durable (flushed after it had ended), or the block's freeing is durable
//!             (dirty_pages.rs).
//!             I5 the log is trimmed below the oldest recLSN, no further.
//!             I6 what an operation frees is not used again before its entry is durable, and the
//!             entry revokes it: nothing older is replayed onto it (busy_extents.rs, replay.rs).
//!             I7 `durable` (with `--commit sync`) and `sync` return after the log's durable prefix
//!             has passed the entry: `sync` of files, their newest. With `--commit async` nobody
//!             waits, and entries go out by themselves a few milliseconds later (commit.rs).
//!             I8 after a failed write or flush nothing begins.
//!             I9 ordered data are durable before the entry that points at them is in the log,
//!             and a block for which the log may hold contents never takes ordered data (data.rs).
//!             I10 an entry whose contents need not be written back any more, because a later one
//!             has them or frees their blocks, is in the log with that one or not at all
//!             (queue.rs).
//!             I11 all the room that an entry may take is kept before its operation changes
//!             anything: an open one never waits for room, and one that ends is open no more,
//!             whatever becomes of it (reserve.rs).
//! On disk     entries of the `wal` crate, one client a volume; what is in one: entry.rs.
//! States      operation: open -end-> queued -append-> in the log -> durable -all blocks in place->
//!             trimmed
//! Recovery    replay.rs: entries in order, revoked ones dropped, the rest merged by block, written
//!             back, flushed, then the log is emptied. Nothing else is needed; running it twice
//!             does no harm.
//! Contents    in mode `redo` too, few bytes that somebody waits for (a stable write over NFS) are
//!             in the entry that he waits for anyway; else he would wait for a write-back and a
//!             flush besides. A block is in one of two states: all of its contents that are not in
//!             place are in the log, or none are (data.rs).
//! Places      blocks stay in memory until the log is half full or nothing has happened for an
//!             interval: on one disk every write-back stands in the log's way.
//! Cost        a share of one log write for each operation that waits, and later of one write-back
//!             for each block, however often it changed.

mod append;
mod barrier;
mod checkpoint;
mod commit;
mod data;
mod dirty_pages;
mod entry;
mod gate;
#[cfg(test)]
mod model;
pub(crate) mod open;
mod patch;
mod plants;
mod queue;
mod replay;
mod reserve;
pub(crate) mod serials;
mod ways;

use crate::busy_extents::BusyExtents;
use crate::{Commit, LogRecipe, Recipe};
use cache::{Buf, Cache};
use data::DataPolicy;
use dirty_pages::DirtyPages;
use env::sync::{Lock, Notify};
use env::{DiskError, IdMap, Local, Nanos};
use format::{FormatError, Ino};
use integrity::{
    Change, Credits, Edit, Ended, Freed, Integrity, IntegrityError, Plant, Pressure, Scope, Txn,
    TxnId, invariant,
};
use open::Open;
use queue::Queue;
use serials::{Serial, Serials};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};
use wal::{Client, LogError};

pub(crate) use data::DataPolicy as Policy;
pub(crate) use plants::{PLANTS, UNIFIED_PLANTS};
pub use replay::{Replay, Replayed, recover};

#[derive(Default)]
struct State {
    last_txn: TxnId,
    open: Open,
    queue: Queue,
    serials: Serials,
    dirty_pages: DirtyPages,
    busy: BusyExtents,
    data: data::DataState,
    ways: ways::Ways,
    /// The newest operation of each inode that is not known to be durable.
    files: IdMap<u64, Serial>,
    files_kept: usize,
    /// Planted bug: the rest of the last entry.
    torn: Option<Vec<u8>>,
}

/// Edits that most operations have no more of: room for so many is asked for at once.
const EDITS: usize = 8;

/// The mechanism.
pub(crate) struct Redo {
    me: Weak<Redo>,
    cache: Rc<Cache>,
    /// Are there block numbers of more than 32 bits?
    wide: bool,
    log: Client,
    commit: Commit,
    live_bytes_max: u64,
    data: DataPolicy,
    plant: Plant,
    state: RefCell<State>,
    /// An operation has ended while somebody waited for that, or everything has failed.
    ended: Notify,
    /// Operations may begin again, or everything has failed.
    unbarred: Notify,
    /// How many tasks wait until no operation is open, while none begins; and how many of these
    /// keep operations from beginning even then.
    barrier: Cell<u32>,
    shut: Cell<u32>,
    /// One checkpoint at a time; one that makes contents durable at a time.
    checkpointing: Lock,
    committing: Lock,
    /// A task that makes everything durable is under way.
    flushing: Cell<bool>,
    /// A task that sends out what nobody waits for is under way, at most so long after its end.
    sending: Cell<bool>,
    send_after: Nanos,
    stopping: Cell<bool>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    operations: Cell<u64>,
    joined: Cell<u64>,
    checkpoints: Cell<u64>,
    logged_data: Cell<u64>,
    ordered_data: Cell<u64>,
    diverted_data: Cell<u64>,
    presses: Cell<u64>,
}

fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get() + n);
}

impl Redo {
    /// The mechanism over this cache, whose gate it becomes. Errors: a log in which not even one
    /// write of as many bytes as are logged has room.
    pub(crate) fn new(
        recipe: &Recipe,
        log: &LogRecipe,
        data: DataPolicy,
    ) -> Result<Rc<Redo>, IntegrityError> {
        let redo = Rc::new_cyclic(|me| Redo {
            me: me.clone(),
            cache: recipe.cache.clone(),
            wide: recipe.cache.has_wide_numbers(),
            log: log.client.clone(),
            commit: log.commit,
            live_bytes_max: log.live_bytes_max,
            data,
            plant: recipe.plant,
            state: RefCell::default(),
            ended: Notify::new(),
            unbarred: Notify::new(),
            barrier: Cell::new(0),
            shut: Cell::new(0),
            checkpointing: Lock::new(),
            committing: Lock::new(),
            flushing: Cell::new(false),
            sending: Cell::new(false),
            send_after: commit::SEND_AFTER.min(Nanos(log.commit_interval.0 / 2)),
            stopping: Cell::new(false),
            counters: Counters::default(),
        });
        let waits = data.ordered || !data.adaptive;
        assert!(waits, "I9: contents may go into the log late, and no entry waits for them");
        redo.check_threshold()?;
        let left = redo.log.needs();
        invariant!(redo.plant, left.is_none(), "I5: entries from {left:?} on were not replayed");
        if data.adaptive {
            redo.state.borrow_mut().ways = ways::Ways::new(recipe.cache.env().random());
        }
        // What waits for its place may go into the log instead, whatever the threshold (I9).
        if data.logs_any() || data.adaptive {
            redo.state.borrow_mut().data.track_logged();
        }
        recipe.cache.set_gate(redo.clone());
        redo.start_daemon();
        redo.start_clock(log.commit_interval);
        Ok(redo)
    }

    fn strong(&self) -> Rc<Redo> {
        self.me.upgrade().expect("a mechanism outlives its transactions")
    }

    /// A log that fails stops the volume, as its disk would.
    fn log_error(&self, e: LogError) -> IntegrityError {
        let error = match e {
            LogError::Disk(e) => {
                self.cache.fail(&e);
                e.into()
            }
            other => {
                let why = FormatError::corrupt(other.to_string(), "the log");
                let detail = other.to_string();
                let kind = env::DiskErrorKind::Io;
                self.cache.fail(&DiskError { kind, during: "log access", at: 0, detail });
                why.into()
            }
        };
        assert!(self.check().is_err(), "I8: the log has failed, and all goes on: {error}");
        error
    }

    fn check(&self) -> Result<(), IntegrityError> {
        self.cache.failure().map_or(Ok(()), |e| Err(e.into())) // I8
    }
}

impl Integrity for Redo {
    fn atomic(&self) -> bool {
        true
    }
    fn names_durable(&self) -> bool {
        self.commit == Commit::Sync
    }
    fn wants_before(&self, _: &Change) -> bool {
        false
    }
    fn zeros_are_cheap(&self) -> bool {
        false // they would be written back, and for appends that are logged in vain
    }

    fn fits(&self, need: &Credits) -> bool {
        self.has_room_for(need)
    }

    fn begins_at_once(&self, need: &Credits) -> bool {
        !self.is_barred() && self.has_room_now(need)
    }

    fn begin(&self, need: Credits) -> Local<'_, Result<Txn, IntegrityError>> {
        Box::pin(async move {
            let reservation = loop {
                self.check()?;
                while self.is_barred() {
                    self.unbarred.wait().await;
                    self.check()?;
                }
                self.catch_up().await?;
                let reservation = self.reserve_for(need).await?;
                if !self.is_barred() {
                    break reservation;
                }
            };
            self.check()?; // it may have failed while this waited
            let mut s = self.state.borrow_mut();
            let id = s.last_txn.next();
            s.last_txn = id;
            assert_eq!(self.shut.get(), 0, "I11: {id} begins while nobody may");
            s.open.begin(id, reservation, self.data.is_small(&need));
            let mut txn = Txn::new(self.strong(), id, need.blocks);
            txn.edits.reserve(EDITS);
            Ok(txn)
        })
    }

    fn change(&self, txn: &mut Txn, edit: Edit) {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        let free = s.busy.allows(&edit.change);
        assert!(free, "I6: {:?} before its freeing is durable", edit.change);
        match edit.change {
            _ if self.plant.is("reuse-at-once") => (),
            Change::FreeBlocks(extent) => s.busy.add_blocks(txn.id, extent),
            Change::FreeInodeBit(ino) => s.busy.add_inode(txn.id, ino),
            _ => (),
        }
        if !self.plant.is("open-bytes-logged") {
            s.open.edit(txn.id, edit.buf.block(), edit.range.clone());
        }
        txn.edits.push(edit);
    }

    fn contents_first(&self) -> bool {
        self.data.ordered
    }

    fn data(&self, txn: &mut Txn, ino: Ino, buf: &Buf, range: Range<usize>) {
        self.note_data(txn, ino, buf, range);
    }

    fn end(&self, txn: Txn) -> Local<'_, Result<Ended, IntegrityError>> {
        Box::pin(async move {
            let id = txn.id;
            if self.plant.is("room-while-open") {
                self.ask_while_open(id).await?;
            }
            let ended = self.build_record(txn);
            assert!(
                !self.state.borrow().open.has(id),
                "I11: operation {id} has ended, and is open"
            );
            if self.barrier.get() > 0 {
                self.ended.wake_all();
            }
            let ended = ended?;
            self.append()?;
            self.check_positions();
            self.push_data();
            if self.commit == Commit::Async && !self.plant.is("never-sent") {
                self.send_soon();
            }
            if self.log.log().is_half_full() || self.log.live_bytes() > self.live_bytes_max {
                self.checkpoint_in_background();
            }
            Ok(ended.into())
        })
    }

    fn durable(&self, ended: Ended) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move {
            match self.commit {
                Commit::Async => Ok(()),
                Commit::Sync if self.plant.is("ack-before-log") => Ok(()),
                Commit::Sync => {
                    self.wait(ended.into()).await?;
                    self.check_durable(ended.into());
                    Ok(())
                }
            }
        })
    }

    fn sync(&self, scope: Scope) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move { self.sync_scope(scope).await })
    }

    fn may_reuse(&self, what: Freed) -> bool {
        self.retire();
        self.state.borrow().busy.may_reuse(what)
    }

    fn has_busy_extents(&self) -> bool {
        !self.state.borrow().busy.is_empty()
    }

    fn press(&self, why: Pressure) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move { self.relieve(why).await })
    }

    fn close(&self) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move { self.shut().await })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let s = self.log.log().stats();
        let c = &self.counters;
        vec![
            ("cairn_operations_total", c.operations.get()),
            ("cairn_operations_joined_total", c.joined.get()),
            ("cairn_checkpoints_total", c.checkpoints.get()),
            ("cairn_logged_data_bytes_total", c.logged_data.get()),
            ("cairn_direct_data_bytes_total", c.ordered_data.get()),
            ("cairn_diverted_data_bytes_total", c.diverted_data.get()),
            ("cairn_log_presses_total", c.presses.get()),
            ("cairn_log_entries_total", s.entries),
            ("cairn_log_entry_bytes_total", s.entry_bytes),
            ("cairn_log_writes_total", s.writes),
            ("cairn_log_bytes_total", s.write_bytes),
            ("cairn_log_write_nanos_total", s.write_nanos),
            ("cairn_log_in_flight_sum_total", s.in_flight_sum),
            ("cairn_log_superblocks_total", s.superblocks),
            ("cairn_log_waits_total", s.waits_for_space),
            ("cairn_log_window", s.window),
            ("cairn_log_used_bytes", s.used_bytes),
            ("cairn_log_capacity_bytes", s.capacity_bytes),
        ]
    }
}

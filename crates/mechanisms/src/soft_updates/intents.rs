//! The journal of intents: before a byte of an operation is seen on the disk, a log says durably
//! what the operation may leave half done. After a crash the checker looks there and nowhere else.
//! (SU+J, mckusick-2010, on this project's log.)
//!
//! Rule        Whatever the disk shows that is not as it should be, the log names. What is durable
//!             as a whole need not be named any more.
//! Invariants  J1 an image holds bytes of an operation only if its intents are durable; bits in use
//!             and counts of groups, which are harmless else, are taken back until then.
//!             J2 an intent expires when nothing of its operation is left to become durable; that
//!             of an inode without names, which lives on, when the inode is given back.
//!             J3 while a recovery looks at the intents that a crash has left, none expires.
//!             J4 a log that is not complete any more is made another one, durably, before the
//!             first operation goes without intents.
//! Cost        one entry of the log a wave, for all operations since the last.

use format::Ino;
use format::intent::Intent;
use integrity::{IntegrityError, Plant, TxnId, invariant};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use wal::{Client, FormatOptions, Log, LogArea, LogError, Lsn};

/// An entry of the log holds no more bytes of records than this.
const ENTRY_BYTES: usize = 64 << 10;
/// The name of a log whose intents are not complete: it is nobody's.
const NOBODY: [u8; 16] = [0xff; 16];

/// The bugs that can be planted in what is written down, and in what is believed of it.
pub const INTENT_PLANTS: &[&str] = &[
    "intent-skipped",
    "intent-late",
    "intent-after-bits",
    "intent-expires-early",
    "stale-intents-believed",
    "intents-expire-in-recovery",
    "failed-intents-forgotten",
    "failed-wave-serves",
    "failed-wave-wakes-nobody",
];

/// Where intents are written.
#[derive(Clone)]
pub struct IntentRecipe {
    /// The volume's place in the log.
    pub client: Client,
    /// Where that log lies.
    pub area: LogArea,
    /// Does it hold what a crash has left, which is to be looked at first?
    pub held: bool,
}

/// What has not been appended yet.
#[derive(Default)]
struct Pending {
    /// Records, in pieces that go into one entry each at most.
    pieces: Vec<Vec<u8>>,
    txns: Vec<TxnId>,
}

pub(super) struct Intents {
    client: Client,
    area: LogArea,
    plant: Plant,
    turn: env::sync::Lock,
    pending: RefCell<Pending>,
    /// Operations that are not durable, by the entry that holds their intents.
    live: RefCell<BTreeMap<TxnId, Lsn>>,
    /// Inodes without names, by the entry that says so; None: it is not appended yet.
    unlinked_open: RefCell<BTreeMap<Ino, Option<Lsn>>>,
    /// J3.
    held: Cell<bool>,
    /// J4: it is not used any more.
    void: Cell<bool>,
    /// It is about to be void: nothing is appended or trimmed any more.
    ending: Cell<bool>,
    /// From where on the log's superblock says that the intents are needed.
    persisted: Cell<Lsn>,
    operations: Cell<u64>,
    bytes: Cell<u64>,
    entries: Cell<u64>,
}

impl Intents {
    pub(super) fn new(recipe: &IntentRecipe, plant: Plant) -> Intents {
        Intents {
            client: recipe.client.clone(),
            area: recipe.area.clone(),
            plant,
            turn: env::sync::Lock::new(),
            pending: RefCell::default(),
            live: RefCell::default(),
            unlinked_open: RefCell::default(),
            held: Cell::new(recipe.held && !plant.is("intents-expire-in-recovery")),
            void: Cell::new(false),
            ending: Cell::new(false),
            persisted: Cell::new(recipe.client.needs().unwrap_or(recipe.client.end())),
            operations: Cell::new(0),
            bytes: Cell::new(0),
            entries: Cell::new(0),
        }
    }

    /// Is it in use?
    pub(super) fn is_on(&self) -> bool {
        !self.void.get()
    }

    /// An operation has ended: what it says is to be appended. False: it needs no intents.
    pub(super) fn note(&self, txn: TxnId, inodes: &BTreeSet<Ino>, said: &[Intent]) -> bool {
        if self.void.get() || inodes.is_empty() && said.is_empty() {
            return false;
        }
        if self.plant.is("intent-skipped") && txn.0.is_multiple_of(3) {
            return false;
        }
        let mut unlinked_open = self.unlinked_open.borrow_mut();
        for i in said {
            match i {
                Intent::UnlinkedOpen(ino) => drop(unlinked_open.insert(*ino, None)),
                Intent::Spared(ino) => drop(unlinked_open.remove(ino)),
                _ => (),
            }
        }
        let mut pending = self.pending.borrow_mut();
        let most = self.entry_bytes();
        let known = inodes.iter().map(|i| Intent::Inode(*i));
        for record in known.chain(said.iter().cloned()) {
            let mut one = Vec::new();
            record.encode(&mut one);
            match pending.pieces.last_mut() {
                Some(p) if p.len() + one.len() <= most => p.extend(one),
                _ => pending.pieces.push(one),
            }
        }
        pending.txns.push(txn);
        self.operations.set(self.operations.get() + 1);
        true
    }

    fn entry_bytes(&self) -> usize {
        ENTRY_BYTES.min(self.client.log().entry_bytes_max() as usize / 4)
    }

    /// Inodes without names whose record would keep the log's oldest part are named again.
    fn carry(&self) {
        if self.client.needs().is_none() || self.client.live_bytes() < 4 * self.spared_bytes() {
            return;
        }
        let oldest = self.live.borrow().values().copied().min();
        let mut pending = self.pending.borrow_mut();
        let mut again = Vec::new();
        for (ino, at) in self.unlinked_open.borrow_mut().iter_mut() {
            if at.is_some_and(|at| oldest.is_none_or(|o| at < o)) {
                Intent::UnlinkedOpen(*ino).encode(&mut again);
                *at = None;
            }
        }
        let torn = again.len() % 5;
        assert_eq!(torn, 0, "J2: a record of {torn} bytes where each has five");
        let whole = again.chunks(self.entry_bytes() / 5 * 5).map(<[u8]>::to_vec);
        pending.pieces.extend(whole); // five bytes each
    }

    /// Appends what has ended since the last time, and waits until it is durable. Returns whose
    /// intents are durable by that; all, if the log is used no more. Errors: the device's.
    pub(super) async fn append(&self) -> Result<Appended, IntegrityError> {
        let _turn = self.turn.lock().await;
        if self.void.get() {
            return Ok(Appended::All);
        }
        self.carry();
        let Pending { pieces, txns } = std::mem::take(&mut *self.pending.borrow_mut());
        let (mut first, mut last) = (None, None);
        let most = self.entry_bytes();
        let long = pieces.iter().map(Vec::len).find(|len| *len > most);
        assert!(long.is_none(), "J1: {long:?} bytes of intents, of which an entry takes {most}");
        for p in &pieces {
            match self.client.append(p) {
                Ok(lsn) => {
                    first = first.or(Some(lsn));
                    last = Some(lsn);
                    self.bytes.set(self.bytes.get() + p.len() as u64);
                    self.entries.set(self.entries.get() + 1);
                }
                Err(LogError::Disk(e)) => return Err(e.into()),
                Err(e) => {
                    self.give_up(&e.to_string()).await?;
                    return Ok(Appended::All);
                }
            }
        }
        let (Some(first), Some(last)) = (first, last) else { return Ok(Appended::These(txns)) };
        assert!(first <= last, "J1: intents are in the log from {first} to {last}");
        self.check_new(&txns);
        self.live.borrow_mut().extend(txns.iter().map(|t| (*t, first)));
        for at in self.unlinked_open.borrow_mut().values_mut() {
            at.get_or_insert(first);
        }
        if self.plant.is("intent-late") {
            return Ok(Appended::These(txns));
        }
        let flushed = match self.client.flush(last).await {
            Ok(()) => self.persist_trim().await,
            Err(e) => Err(e),
        };
        match flushed {
            Ok(()) => {
                let durable = self.client.is_durable(last);
                invariant!(self.plant, durable, "J1: intents up to {last} are not durable");
                Ok(Appended::These(txns))
            }
            Err(LogError::Disk(e)) => Err(e.into()),
            Err(e) => {
                self.give_up(&e.to_string()).await?;
                Ok(Appended::All)
            }
        }
    }

    /// These operations' intents have just been appended.
    fn check_new(&self, txns: &[TxnId]) {
        let live = self.live.borrow();
        let twice = txns.iter().find(|t| live.contains_key(t));
        assert!(twice.is_none(), "J2: the intents of operation {twice:?} are written twice");
    }

    /// Intents of operations that are durable expire (J2). `lives`: is something left of one?
    pub(super) fn expire(&self, lives: impl Fn(TxnId) -> bool) {
        let early = self.plant.is("intent-expires-early");
        let mut live = self.live.borrow_mut();
        live.retain(|txn, _| lives(*txn) && !early);
        if self.ending.get() || self.held.get() || self.client.needs().is_none() {
            return; // J3
        }
        let unlinked_open = self.unlinked_open.borrow();
        let kept = unlinked_open.values().copied();
        let oldest = live.values().copied().map(Some).chain(kept).flatten().min();
        let early = early || self.plant.is("intents-expire-in-recovery");
        if early || self.client.live_bytes() >= self.spared_bytes() {
            self.client.trim(oldest.unwrap_or_else(|| self.client.durable()));
            let needs = self.client.needs();
            let kept = oldest.is_none_or(|o| needs.is_some_and(|from| from <= o));
            invariant!(self.plant, kept, "J2: {oldest:?} is live, the log begins at {needs:?}");
        }
    }

    /// So much of what has expired is kept, because it does no harm: whoever needs nothing of a log
    /// has to write its superblock before he needs something again.
    fn spared_bytes(&self) -> u64 {
        (self.client.log().info().capacity / 1024).clamp(1 << 10, 1 << 20)
    }

    /// What has expired need not be looked at after a crash: the log says so durably now and then.
    async fn persist_trim(&self) -> Result<(), LogError> {
        let needs = self.client.needs().unwrap_or(self.client.end());
        let from = self.persisted.get();
        assert!(from <= needs, "J2: intents are needed from {needs}, and are kept from {from}");
        if needs.0.saturating_sub(self.persisted.get().0) < self.spared_bytes() {
            return Ok(());
        }
        self.client.log().persist().await?;
        self.persisted.set(needs);
        Ok(())
    }

    /// Everything is durable, and nothing will follow.
    pub(super) async fn close(&self) -> Result<(), IntegrityError> {
        let none = self.live.borrow().is_empty() || self.plant.is_any();
        assert!(none, "J2: a closed volume has intents");
        if !self.ending.get() && !self.held.get() {
            self.client.trim(self.client.end());
        }
        Ok(())
    }

    /// Is so much of the log in use that whoever begins should help?
    pub(super) fn is_crowded(&self) -> bool {
        !self.ending.get() && self.client.log().is_half_full()
    }

    /// The recovery has come to its end. `whole`: everything that the intents named is as it should
    /// be, durably; else they are worth nothing.
    pub(super) async fn looked_at(&self, whole: bool) -> Result<(), IntegrityError> {
        if !self.held.replace(false) || whole {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        self.give_up("what a crash has left is not all given back").await
    }

    /// The log becomes nobody's (J4). What ends meanwhile waits as if it were to be appended.
    async fn give_up(&self, why: &str) -> Result<(), IntegrityError> {
        tracing::warn!("the journal of intents is not used any more until the next opening: {why}");
        self.ending.set(true);
        let lost = |e: LogError| match e {
            LogError::Disk(e) => IntegrityError::Disk(e),
            e => IntegrityError::Format(format::FormatError::corrupt(e.to_string(), "the log")),
        };
        // Whatever of it is under way ends before.
        let _ = self.client.log().persist().await;
        self.client.fail(LogError::ReadOnly);
        let options = FormatOptions { uuid: NOBODY, ..FormatOptions::default() };
        Log::format(&self.area, &options).await.map_err(lost)?;
        self.void.set(true);
        *self.pending.borrow_mut() = Pending::default();
        Ok(())
    }

    pub(super) fn counters(&self) -> [(&'static str, u64); 5] {
        [
            ("cairn_intents_on", u64::from(self.is_on())),
            ("cairn_intent_operations_total", self.operations.get()),
            ("cairn_intent_bytes_total", self.bytes.get()),
            ("cairn_intent_entries_total", self.entries.get()),
            (
                "cairn_intent_live_bytes",
                self.client.needs().map_or(0, |_| self.client.live_bytes()),
            ),
        ]
    }
}

/// Whose intents are durable.
pub(super) enum Appended {
    /// These operations'.
    These(Vec<TxnId>),
    /// No operation needs any.
    All,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{client_in, done};
    use std::rc::Rc;
    use std::task::{Context, Poll};

    const HELD: Ino = Ino(77);

    fn recipe(bytes: usize) -> (env::Engine, IntentRecipe) {
        let (engine, client, area) = client_in(bytes);
        (engine, IntentRecipe { client, area, held: false })
    }

    async fn named(client: &Client) -> Vec<Intent> {
        let entries = client.read_all().await.expect("the log can be read");
        let all = entries.iter().map(|e| Intent::decode_all(&e.bytes).expect("records"));
        all.flatten().collect()
    }

    /// An operation a wave, each durable before the next, and never anything left of an old one.
    async fn work(i: &Intents, from: u64, count: u64) {
        for txn in (from..from + count).map(TxnId) {
            let inodes: BTreeSet<Ino> = (0..40).map(|n| Ino(100 + n)).collect();
            assert!(i.note(txn, &inodes, &[Intent::Taken(Ino(99))]));
            let done = i.append().await;
            let (needs, log) = (i.client.needs(), i.client.log().info());
            let told = matches!(done, Ok(Appended::These(t)) if t == [txn]);
            assert!(told, "operation {txn}, {needs:?} of {log:?}");
            i.expire(|t| t == txn);
        }
    }

    #[test]
    fn inodes_without_names_are_named_as_long_as_they_live() {
        let (mut engine, recipe) = recipe(1 << 20);
        let client = recipe.client.clone();
        done(&mut engine, async move {
            let i = Intents::new(&recipe, Plant::NONE);
            assert!(i.note(TxnId(1), &BTreeSet::from([HELD]), &[Intent::UnlinkedOpen(HELD)]));
            i.append().await.expect("the log takes it");
            let first = client.needs().expect("it holds something");
            work(&i, 2, 2000).await;
            assert!(client.needs() > Some(first), "the oldest part of the log is needed no more");
            let live = client.live_bytes();
            assert!(live < 64 << 10, "J2: what is durable expires: {live} bytes are left");
            assert!(named(&client).await.contains(&Intent::UnlinkedOpen(HELD)), "J2: it lives on");
            assert!(i.note(TxnId(3000), &BTreeSet::from([HELD]), &[Intent::Spared(HELD)]));
            i.append().await.expect("the log takes it");
            work(&i, 3001, 200).await;
            assert!(
                !named(&client).await.contains(&Intent::UnlinkedOpen(HELD)),
                "it was given back"
            );
        });
    }

    #[test]
    fn what_a_crash_has_left_stays_until_it_was_looked_at() {
        let (mut engine, recipe) = recipe(1 << 20);
        let client = recipe.client.clone();
        done(&mut engine, async move {
            let i = Intents::new(&IntentRecipe { held: true, ..recipe }, Plant::NONE);
            work(&i, 1, 300).await;
            let (all, before) = (named(&client).await.len(), client.live_bytes());
            assert_eq!(all, 300 * 41, "J3: nothing has expired");
            i.looked_at(true).await.expect("it only says so");
            work(&i, 301, 2).await;
            assert!(client.live_bytes() < before, "J3: it has come to its end");
        });
    }

    #[test]
    fn nothing_goes_without_intents_before_nobody_believes_them() {
        let (mut engine, recipe) = recipe(1 << 20);
        done(&mut engine, async move {
            let i = Intents::new(&recipe, Plant::NONE);
            work(&i, 1, 2).await;
            let mut given_up = std::pin::pin!(i.give_up("a test"));
            let now = |cx: &mut Context<'_>| Poll::Ready(given_up.as_mut().poll(cx).is_pending());
            assert!(std::future::poll_fn(now).await, "J4: the disk has to be asked");
            let told = i.note(TxnId(3), &BTreeSet::from([HELD]), &[]);
            assert!(told && i.is_on(), "J4: what a crash leaves would be looked for in the log");
            given_up.await.expect("it is made another one");
            assert!(!i.is_on() && !i.note(TxnId(4), &BTreeSet::from([HELD]), &[]));
        });
    }

    #[test]
    fn a_log_that_is_full_is_nobodys() {
        let (mut engine, recipe) = recipe(1 << 20);
        let area = recipe.area.clone();
        let ours = Rc::new(Cell::new(0));
        let waves = ours.clone();
        done(&mut engine, async move {
            let i = Intents::new(&IntentRecipe { held: true, ..recipe }, Plant::NONE);
            for txn in 1..100_000 {
                let inodes: BTreeSet<Ino> = (0..400).map(|n| Ino(100 + n)).collect();
                if !i.note(TxnId(txn), &inodes, &[]) {
                    break;
                }
                let all = matches!(i.append().await, Ok(Appended::All));
                assert_eq!(all, !i.is_on(), "J4: whoever needs none any more is told");
                ours.set(txn);
            }
            assert!(!i.is_on());
            assert_eq!(wal::inspect(&area).await, Ok(NOBODY), "J4: nobody believes it");
        });
        assert!(waves.get() > 100, "it was full after {} waves", waves.get());
    }
}

//! A volume's log of byte ranges (modes `redo` and `unified`): inside, in the blocks of the idle
//! journal, or on a disk of its own. Opened, replayed, guarded and given up here.
//!
//! While the log may hold something, nobody else may change the volume: the journal's superblock
//! then has a feature that neither e2fsck nor Linux knows, and the volume needs recovery.
//!
//! Invariants  G1 the flag of the volume is durable before the guard is written, and the guard
//!             before the first entry: whoever finds the guard finds a volume that says what to do.
//!             G2 the guard's removal is durable before the flag's, and the log is empty before
//!             either.
//!             G3 no number that users could know is that of the next transaction of a journal in
//!             whose blocks a log was: their bytes lie there, and would be replayed.

use crate::journal::Journal;
use crate::place::Place;
use crate::probe::Probe;
use crate::recover::{count_free, set_free};
use crate::{OpenOptions, VolumeError};
use env::sync::{Lock, LockGuard};
use env::{Block, Disk, DiskError, Durability, Env};
use format::ext::features::incompat;
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use format::ext::{Geometry, Superblock};
use format::jbd2::unforeseen;
use integrity::{IntegrityError, Plant, invariant};
use mechanisms::{RedoReplay, Replayed};
use std::cell::RefCell;
use std::rc::Rc;
use wal::{Client, FormatOptions, Log, LogArea, LogError};

/// An open log, and what guards it.
pub(crate) struct PrivateLog {
    pub(crate) client: Client,
    pub(crate) external: bool,
    pub(crate) uuid: [u8; 16],
    journal: Journal,
    disk: Rc<dyn Disk>,
    plant: Plant,
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// A log that several volumes of one engine use: the first to come opens it.
pub(crate) struct SharedLog {
    open: Lock,
    log: RefCell<Option<Log>>,
    /// Who will use it: all are its clients from the start, or one could wait for room that only
    /// another one, not opened yet, can make.
    members: RefCell<Vec<([u8; 16], String)>>,
}

impl SharedLog {
    pub(crate) fn new(members: Vec<([u8; 16], String)>) -> SharedLog {
        SharedLog { open: Lock::new(), log: RefCell::new(None), members: RefCell::new(members) }
    }

    /// Waits until nobody else looks at the log, makes or opens it.
    async fn turn(&self) -> Turn<'_> {
        Turn { shared: self, _open: self.open.lock().await }
    }

    /// The log as it is, for who only reads.
    async fn look(&self, env: &Env, area: LogArea) -> Result<Log, LogError> {
        let turn = self.turn().await;
        match turn.log() {
            Some(log) => Ok(log),
            None => Log::open_read_only(env, area).await,
        }
    }

    /// This one makes no room: it is not opened, or only to be read. Others must not wait for it.
    pub(crate) fn leave(&self, id: [u8; 16]) {
        self.members.borrow_mut().retain(|(member, _)| *member != id);
        if let Some(log) = &*self.log.borrow() {
            log.leave(id);
        }
    }
}

/// Whoever has it may look at the log's disk, unless somebody has the log open.
struct Turn<'a> {
    shared: &'a SharedLog,
    _open: LockGuard,
}

impl Turn<'_> {
    fn log(&self) -> Option<Log> {
        self.shared.log.borrow().clone()
    }
}

/// The log's UUID. One that is open is asked: its superblock may just be being written, and half of
/// it looks like damage.
async fn uuid_in(area: &LogArea, turn: Option<&Turn<'_>>) -> Result<[u8; 16], LogError> {
    match turn.and_then(Turn::log) {
        Some(log) => Ok(log.info().uuid),
        None => wal::inspect(area).await,
    }
}

impl Place {
    fn area(&self, journal: &Journal) -> LogArea {
        match self.ground.log_disk() {
            Some(disk) => LogArea::whole(disk),
            None => LogArea::new(self.disk.clone(), journal.log_extents()),
        }
    }

    /// Opens the log for writing, or takes it as another volume has opened it.
    async fn open_log(&self, area: LogArea, o: &OpenOptions) -> Result<Log, LogError> {
        let Some(shared) = self.shared.as_ref().filter(|_| self.ground.log.is_some()) else {
            return Log::open(&self.ground.env, area, wal_options(o)).await;
        };
        let turn = shared.turn().await;
        if let Some(log) = turn.log() {
            return Ok(log);
        }
        let log = Log::open(&self.ground.env, area, wal_options(o)).await?;
        for (id, label) in &*shared.members.borrow() {
            log.client(*id, label)?;
        }
        let other = shared.log.replace(Some(log.clone()));
        assert!(other.is_none(), "G1: a log is opened that another volume has open");
        Ok(log)
    }

    /// Makes a new log if there is none.
    async fn make_log(&self, area: &LogArea, uuid: [u8; 16], external: bool) -> Result<(), String> {
        let turn = match &self.shared {
            Some(shared) if external => Some(shared.turn().await),
            _ => None,
        };
        if external {
            match uuid_in(area, turn.as_ref()).await {
                Ok(_) => return Ok(()),
                Err(e @ LogError::Damaged { .. }) => return Err(format!("the log: {e}")),
                Err(_) => (),
            }
        }
        if external && !is_blank(area).await? {
            return Err("--log: neither a log nor blank: cairn log format makes a new one".into());
        }
        let options = FormatOptions { uuid, ..FormatOptions::default() };
        Log::format(area, &options).await.map_err(|e| format!("the log: {e}"))
    }
}

fn wal_options(o: &OpenOptions) -> wal::OpenOptions {
    let plant = o.plant.0.filter(|p| wal::PLANTS.contains(p));
    wal::OpenOptions { window: None, plant, alone: o.log_alone }
}

fn journal_of(probe: &Probe) -> Result<&Journal, String> {
    probe.journal.as_ref().ok_or_else(|| "the journal's inode is gone: cairn fsck".to_string())
}

/// What a log calls a volume: its UUID. All zeros are legal there (`tune2fs -U clear`), and nobody
/// in a log, so that such a volume has a name of its own.
pub(crate) fn id_in_log(sb: &Superblock) -> [u8; 16] {
    if sb.uuid() == [0; 16] { *b"cairn-no-uuid-00" } else { sb.uuid() }
}

/// Lets go of a log that is not needed: all that it holds is in its place.
pub(crate) async fn leave(place: &Place, probe: &Probe) -> Result<(), VolumeError> {
    let journal = journal_of(probe).map_err(VolumeError)?;
    // The log is elsewhere: nothing of it is in the journal's blocks.
    let next = journal.superblock.sequence;
    Ok(give_up(&place.disk, (journal, next), &Geometry::of(&probe.superblock)).await?)
}

/// What a volume's log that is not read says: it holds what was acknowledged, so it is never an
/// empty one.
fn unreadable(e: &LogError) -> String {
    match e {
        LogError::Damaged { .. } | LogError::NotALog { .. } => format!("the log: {e}; {GIVE_UP}"),
        _ => format!("the log: {e}"),
    }
}

/// What to do about a damaged log.
const GIVE_UP: &str = "the volume was not opened. Copy it and its log first; then cairn fsck \
                       --repair --discard-log gives up what the log holds and repairs the rest";

/// Is the log that was opened the one that the volume has left things in?
fn check_log(probe: &Probe, at: &Place) -> Result<(), String> {
    let outside = probe.state().is_some_and(|s| s.log_uuid != [0; 16]);
    match (outside, at.ground.log.is_some()) {
        (true, false) => Err("its log is on another device: --log PATH names it".into()),
        (false, true) => {
            Err("its log is inside: open it without --log once, or cairn recover".into())
        }
        _ => Ok(()),
    }
}

async fn check_uuid(at: &Place, probe: &Probe, area: &LogArea) -> Result<(), String> {
    let Some(want) = probe.state().map(|s| s.log_uuid).filter(|u| *u != [0; 16]) else {
        return Ok(());
    };
    let turn = match &at.shared {
        Some(shared) => Some(shared.turn().await),
        None => None,
    };
    let have = uuid_in(area, turn.as_ref()).await.map_err(|e| unreadable(&e))?;
    if have == want {
        return Ok(());
    }
    Err("this is not the log that the volume was last used with: --log names the other one".into())
}

/// What a volume's log holds of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogReport {
    /// Is the log on another device?
    pub outside: bool,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// The volume's entries that are not known to be in place.
    pub entries: u64,
    /// Bytes from the oldest of these to the log's end.
    pub bytes: u64,
    /// Bytes that fit in the log.
    pub capacity: u64,
}

/// Looks at the log of a volume that has something in one, without changing anything; None: it has
/// nothing. Errors: a sentence for the user, where the log is not the right one or is damaged.
pub(crate) async fn report(place: &Place, probe: &Probe) -> Result<Option<LogReport>, VolumeError> {
    if !probe.has_private_log() {
        return Ok(None);
    }
    read_report(place, probe).await.map(Some).map_err(VolumeError)
}

async fn read_report(place: &Place, probe: &Probe) -> Result<LogReport, String> {
    check_log(probe, place)?;
    let area = place.area(journal_of(probe)?);
    check_uuid(place, probe, &area).await?;
    let log = Log::open_read_only(&place.ground.env, area).await.map_err(|e| unreadable(&e))?;
    let client = log.client(id_in_log(&probe.superblock), "").map_err(text)?;
    let mut scan = client.scan(wal::Lsn(0));
    let mut entries = 0;
    while scan.next().await.map_err(text)?.is_some() {
        entries += 1;
    }
    let info = log.info();
    let bytes = client.needs().map_or(0, |l| info.durable.0.saturating_sub(l.0));
    let (outside, uuid, capacity) = (place.ground.log.is_some(), info.uuid, info.capacity);
    Ok(LogReport { outside, uuid, entries, bytes, capacity })
}

/// Reads what the log holds, for who only reads.
pub(crate) async fn look(
    place: &Place,
    probe: &Probe,
    o: &OpenOptions,
) -> Result<RedoReplay, String> {
    check_log(probe, place)?;
    let area = place.area(journal_of(probe)?);
    check_uuid(place, probe, &area).await?;
    let log = match &place.shared {
        Some(_) if !o.read_only => place.open_log(area, o).await,
        Some(shared) => shared.look(&place.ground.env, area).await,
        None => Log::open_read_only(&place.ground.env, area).await,
    };
    let log = log.map_err(|e| unreadable(&e))?;
    let client = log.client(id_in_log(&probe.superblock), "").map_err(text)?;
    let bs = probe.superblock.block_bytes();
    RedoReplay::load(&client, bs, &mut |_, _| ()).await.map_err(text)
}

/// Replays what the log holds, and gives the log up. The probe is as new afterwards.
pub(crate) async fn replay(
    place: &Place,
    probe: &mut Probe,
    o: &OpenOptions,
) -> Result<Replayed, String> {
    check_log(probe, place)?;
    let disk = &place.disk;
    let journal = journal_of(probe)?.clone();
    let area = place.area(&journal);
    check_uuid(place, probe, &area).await?;
    let mut done = Replayed::default();
    // G3: also where this time no log was used, for one may have been before.
    let mut next = unforeseen(&[&o.entropy, &place.ground.env.random().to_le_bytes()]);
    if !probe.is_guarded_for_nothing() {
        // The log was made, durably, before the volume was guarded: it is there.
        let log = place.open_log(area, o).await.map_err(|e| unreadable(&e))?;
        let client =
            log.client(id_in_log(&probe.superblock), &probe.superblock.label()).map_err(text)?;
        let bs = probe.superblock.block_bytes();
        let watch = o.watch.as_deref();
        let mut progress =
            |at, of| watch.into_iter().for_each(|w| w.step("replaying the log", at, of));
        let did =
            mechanisms::recover(disk, &client, (bs, o.cache_bytes), o.plant, &mut progress).await;
        let did = did.map_err(|e| match e {
            IntegrityError::Disk(_) => format!("replaying the log: {e}"),
            _ => format!("replaying the log: {e}; {GIVE_UP}"),
        })?;
        tracing::info!("log replayed: {} entries, {} blocks", did.entries, did.blocks);
        log.nudge();
        next = number_behind(&journal, log.info().uuid, place.ground.log.is_some());
        done = did;
    }
    let geo = Geometry::of(&probe.superblock);
    give_up(disk, (&journal, next), &geo).await.map_err(text)?;
    let mut found = journal.clone();
    found.raw = journal.unguarded(next);
    let decoded = format::jbd2::JournalSuperblock::decode(&found.raw);
    found.superblock = decoded.map_err(text)?;
    probe.journal = Some(found);
    probe.needs_recovery = false;
    probe.superblock = read_superblock(disk).await?;
    Ok(done)
}

/// The superblock as the disk has it.
pub(crate) async fn read_superblock(disk: &Rc<dyn Disk>) -> Result<Superblock, String> {
    let read = disk.read(0, vec![Block::zeroed(4096)]).await.map_err(text)?;
    let at = SUPERBLOCK_AT as usize;
    Superblock::decode(&read[0].bytes()[at..at + SUPERBLOCK_BYTES]).map_err(text)
}

/// Opens an empty log for use. It is to be guarded before anything is logged.
pub(crate) async fn open(
    place: &Place,
    probe: &Probe,
    o: &OpenOptions,
) -> Result<PrivateLog, String> {
    let (env, disk) = (&place.ground.env, &place.disk);
    let journal = journal_of(probe)?.clone();
    let area = place.area(&journal);
    let external = place.ground.log.is_some();
    // Inside, other modes have used the blocks since, and older logs: a name that was never used
    // before, whatever chance says, makes their remains strangers.
    let serial = probe.state().map_or(0, |s| s.serial);
    let half: [u8; 8] = o.entropy[..8].try_into().expect("8 bytes");
    let chance = env.random() ^ u64::from_le_bytes(half);
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&chance.to_le_bytes());
    uuid[8..].copy_from_slice(&serial.to_le_bytes());
    place.make_log(&area, uuid, external).await?;
    let log = place.open_log(area, o).await.map_err(|e| format!("the log: {e}"))?;
    let uuid = log.info().uuid;
    let client = log.client(id_in_log(&probe.superblock), &probe.superblock.label());
    let client = client.map_err(|e| format!("the log: {e}"))?;
    if client.needs().is_some() {
        // The volume was not guarded: what is here was given up, and must never be replayed.
        tracing::warn!("the log holds entries that the volume has given up: they are dropped");
        client.trim(client.end());
        log.persist().await.map_err(|e| format!("the log: {e}"))?;
    }
    for other in log.absent() {
        tracing::warn!("the log also holds entries of {other}, which is not open here: they stay");
    }
    let (disk, plant) = (disk.clone(), o.plant);
    let opened = PrivateLog { client, external, uuid, journal, disk, plant };
    if plant.is("guard-before-flag") {
        opened.guard().await.map_err(text)?;
    }
    Ok(opened)
}

async fn is_blank(area: &LogArea) -> Result<bool, String> {
    let read = area.disk().read(0, vec![Block::zeroed(8192)]).await.map_err(text)?;
    Ok(read[0].bytes().iter().all(|b| *b == 0))
}

/// The number of the journal's next transaction when this log has been used (G3). Inside, it
/// follows from the log's name, which nobody knows but who can read the disk, so that a recovery
/// that is done again comes to the same end. One that is elsewhere leaves the journal's blocks
/// alone.
fn number_behind(journal: &Journal, log: [u8; 16], external: bool) -> u32 {
    if external { journal.superblock.sequence } else { unforeseen(&[&log]) }
}

/// The journal is an empty one as anybody's, then the volume needs no recovery; each durably. The
/// totals of what is free, which no log has up to date, are set with it: nobody counts any more.
/// `next`: the number of the next transaction (G3).
async fn give_up(
    disk: &Rc<dyn Disk>,
    (journal, next): (&Journal, u32),
    geo: &Geometry,
) -> Result<(), DiskError> {
    disk.flush().await?;
    let at = journal.byte_of(0).expect("a journal has a first block");
    disk.write(at, vec![Block::copy_of(&journal.unguarded(next))], Durability::Fua).await?;
    let free = count_free(disk, geo).await?;
    let mut block = disk.read(0, vec![Block::zeroed(4096)]).await?;
    let at = SUPERBLOCK_AT as usize;
    let bytes = block[0].bytes_mut();
    if let Ok(mut sb) = Superblock::decode(&bytes[at..at + SUPERBLOCK_BYTES]) {
        sb.set_incompat(sb.incompat() & !incompat::RECOVER);
        set_free(&mut sb, free);
        bytes[at..at + SUPERBLOCK_BYTES].copy_from_slice(&sb.bytes()[..]);
    }
    disk.write(0, block, Durability::Fua).await
}

impl Drop for PrivateLog {
    fn drop(&mut self) {
        self.client.leave(); // it has failed, was damaged, or needs the log no more
    }
}

impl PrivateLog {
    /// Keeps everybody off who does not know the log. The volume must say by now, durably, that it
    /// needs recovery (G1).
    pub(crate) async fn guard(&self) -> Result<(), DiskError> {
        let held = self.client.needs();
        invariant!(self.plant, held.is_none(), "G1: entries from {held:?} on are before the guard");
        let raw = Block::copy_of(&self.journal.guard());
        let at = self.journal.byte_of(0).expect("a journal has a first block");
        self.disk.write(at, vec![raw], Durability::Fua).await
    }
    /// Planted bug: the volume says that it is clean before the guard is gone.
    pub(crate) fn is_given_up_last(&self) -> bool {
        self.plant.is("flag-before-guard")
    }
    /// The log is empty and will not be used again; the volume still says that it needs recovery
    /// (G2).
    pub(crate) async fn give_up(&self) -> Result<(), DiskError> {
        let needed = self.client.needs();
        invariant!(self.plant, needed.is_none(), "G2: entries from {needed:?} on are given up");
        self.disk.flush().await?;
        let at = self.journal.byte_of(0).expect("a journal has a first block");
        let next = number_behind(&self.journal, self.uuid, self.external);
        let raw = Block::copy_of(&self.journal.unguarded(next));
        self.disk.write(at, vec![raw], Durability::Fua).await
    }
}

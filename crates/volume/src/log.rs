//! A volume's log of byte ranges (modes `redo` and `unified`): inside, in the blocks of the idle
//! journal, or on a disk of its own. Opened, replayed, guarded and given up here.
//!
//! While the log may hold something, nobody else may change the volume: the journal's superblock
//! then has a feature that neither e2fsck nor Linux knows, and the volume needs recovery. Both are
//! durable before the first entry, and go when the log is empty.

use crate::journal::Journal;
use crate::open::OpenOptions;
use crate::probe::Probe;
use env::{Block, Disk, DiskError, DiskId, Durability, Env};
use format::ext::Superblock;
use format::ext::features::incompat;
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use mechanisms::RedoReplay;
use std::rc::Rc;
use wal::{Client, FormatOptions, Log, LogArea, LogError};

/// An open log, and what guards it.
pub(crate) struct PrivateLog {
    pub(crate) client: Client,
    pub(crate) external: bool,
    pub(crate) uuid: [u8; 16],
    journal: Journal,
    disk: Rc<dyn Disk>,
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn area(env: &Env, disk: &Rc<dyn Disk>, journal: &Journal, o: &OpenOptions) -> LogArea {
    match o.log_disk_bytes {
        Some(bytes) => LogArea::whole(env.port().disk(DiskId(1), bytes)),
        None => LogArea::new(disk.clone(), journal.log_extents()),
    }
}

fn wal_options(o: &OpenOptions) -> wal::OpenOptions {
    let plant = o.plant.0.filter(|p| wal::PLANTS.contains(p));
    wal::OpenOptions { window: None, plant, alone: o.log_alone }
}

fn journal_of(probe: &Probe) -> Result<&Journal, String> {
    probe.journal.as_ref().ok_or_else(|| "the journal's inode is gone: cairn fsck".to_string())
}

/// Is the log that was opened the one that the volume has left things in?
fn check_log(probe: &Probe, o: &OpenOptions) -> Result<(), String> {
    let outside = probe.state().is_some_and(|s| s.log_uuid != [0; 16]);
    match (outside, o.log_disk_bytes.is_some()) {
        (true, false) => Err("its log is on another device: --log PATH names it".into()),
        (false, true) => {
            Err("its log is inside: open it without --log once, or cairn recover".into())
        }
        _ => Ok(()),
    }
}

async fn check_uuid(probe: &Probe, area: &LogArea) -> Result<(), String> {
    let Some(want) = probe.state().map(|s| s.log_uuid).filter(|u| *u != [0; 16]) else {
        return Ok(());
    };
    let have = wal::inspect(area).await.map_err(|e| format!("the log: {e}"))?;
    if have == want {
        return Ok(());
    }
    Err("this is not the log that the volume was last used with: --log names the other one".into())
}

/// Reads what the log holds, for who only reads.
pub(crate) async fn look(
    env: &Env,
    disk: &Rc<dyn Disk>,
    probe: &Probe,
    o: &OpenOptions,
) -> Result<RedoReplay, String> {
    check_log(probe, o)?;
    let area = area(env, disk, journal_of(probe)?, o);
    check_uuid(probe, &area).await?;
    let log = Log::open_read_only(env, area).await.map_err(text)?;
    let client = log.client(probe.superblock.uuid(), "").map_err(text)?;
    let bs = probe.superblock.block_bytes();
    RedoReplay::load(&client, bs, &mut |_, _| ()).await.map_err(text)
}

/// Replays what the log holds, and gives the log up. The probe is as new afterwards.
pub(crate) async fn replay(
    env: &Env,
    disk: &Rc<dyn Disk>,
    probe: &mut Probe,
    o: &OpenOptions,
) -> Result<(), String> {
    check_log(probe, o)?;
    let journal = journal_of(probe)?.clone();
    let area = area(env, disk, &journal, o);
    check_uuid(probe, &area).await?;
    let log = match Log::open(env, area, wal_options(o)).await {
        Ok(log) => Some(log),
        // Guarded, and then the log was never made: it holds nothing.
        Err(LogError::NotALog { .. }) if o.log_disk_bytes.is_none() => None,
        Err(e) => return Err(format!("the log: {e}")),
    };
    if let Some(log) = log {
        let client =
            log.client(probe.superblock.uuid(), &probe.superblock.label()).map_err(text)?;
        let bs = probe.superblock.block_bytes();
        let did = mechanisms::recover(disk, &client, bs, o.plant, &mut |_, _| ()).await;
        let did = did.map_err(|e| format!("replaying the log: {e}"))?;
        tracing::info!("log replayed: {} entries, {} blocks", did.entries, did.blocks);
        log.nudge();
    }
    give_up(disk, &journal).await.map_err(text)?;
    let mut found = journal.clone();
    found.raw = journal.unguarded();
    let decoded = format::jbd2::JournalSuperblock::decode(&found.raw);
    found.superblock = decoded.map_err(text)?;
    probe.journal = Some(found);
    probe.needs_recovery = false;
    probe.superblock = read_superblock(disk).await?;
    Ok(())
}

async fn read_superblock(disk: &Rc<dyn Disk>) -> Result<Superblock, String> {
    let read = disk.read(0, vec![Block::zeroed(4096)]).await.map_err(text)?;
    let at = SUPERBLOCK_AT as usize;
    Superblock::decode(&read[0].bytes()[at..at + SUPERBLOCK_BYTES]).map_err(text)
}

/// Opens an empty log for use, guarded.
pub(crate) async fn open(
    env: &Env,
    disk: &Rc<dyn Disk>,
    probe: &Probe,
    o: &OpenOptions,
) -> Result<PrivateLog, String> {
    let journal = journal_of(probe)?.clone();
    let area = area(env, disk, &journal, o);
    let external = o.log_disk_bytes.is_some();
    // Inside, other modes have used the blocks since, and older logs: a name that was never used
    // before, whatever chance says, makes their remains strangers.
    let serial = probe.state().map_or(0, |s| s.serial);
    let half: [u8; 8] = o.entropy[..8].try_into().expect("8 bytes");
    let chance = env.random() ^ u64::from_le_bytes(half);
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&chance.to_le_bytes());
    uuid[8..].copy_from_slice(&serial.to_le_bytes());
    let is_log = external && wal::inspect(&area).await.is_ok();
    if external && !is_log && !is_blank(&area).await? {
        return Err("--log: neither a log nor blank: cairn log format makes a new one".into());
    }
    if !is_log {
        let options = FormatOptions { uuid, ..FormatOptions::default() };
        Log::format(&area, &options).await.map_err(|e| format!("the log: {e}"))?;
    }
    let log = Log::open(env, area, wal_options(o)).await;
    let log = log.map_err(|e| format!("the log: {e}"))?;
    let uuid = log.info().uuid;
    let client = log.client(probe.superblock.uuid(), &probe.superblock.label());
    let client = client.map_err(|e| format!("the log: {e}"))?;
    let guarded = Block::copy_of(&journal.guard());
    let at = journal.byte_of(0).expect("a journal has a first block");
    disk.write(at, vec![guarded], Durability::Fua).await.map_err(text)?;
    Ok(PrivateLog { client, external, uuid, journal, disk: disk.clone() })
}

async fn is_blank(area: &LogArea) -> Result<bool, String> {
    let read = area.disk().read(0, vec![Block::zeroed(8192)]).await.map_err(text)?;
    Ok(read[0].bytes().iter().all(|b| *b == 0))
}

/// The journal is an empty one as anybody's, then the volume needs no recovery; each durably.
async fn give_up(disk: &Rc<dyn Disk>, journal: &Journal) -> Result<(), DiskError> {
    disk.flush().await?;
    let at = journal.byte_of(0).expect("a journal has a first block");
    disk.write(at, vec![Block::copy_of(&journal.unguarded())], Durability::Fua).await?;
    let mut block = disk.read(0, vec![Block::zeroed(4096)]).await?;
    let at = SUPERBLOCK_AT as usize;
    let bytes = block[0].bytes_mut();
    if let Ok(mut sb) = Superblock::decode(&bytes[at..at + SUPERBLOCK_BYTES]) {
        sb.set_incompat(sb.incompat() & !incompat::RECOVER);
        bytes[at..at + SUPERBLOCK_BYTES].copy_from_slice(&sb.bytes()[..]);
    }
    disk.write(0, block, Durability::Fua).await
}

impl PrivateLog {
    /// The log is empty and will not be used again.
    pub(crate) async fn give_up(&self) -> Result<(), DiskError> {
        self.disk.flush().await?;
        let at = self.journal.byte_of(0).expect("a journal has a first block");
        let raw = Block::copy_of(&self.journal.unguarded());
        self.disk.write(at, vec![raw], Durability::Fua).await
    }
}

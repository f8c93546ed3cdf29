//! Which of the two superblocks holds, and what a damaged one means. A power cut tears a write
//! between sectors, never within one, and the write that it tears was never durable: then the other
//! slot holds. Damage is no such end: what was acknowledged since may be known to the damaged slot
//! alone, and a log that opens without it would lose that silently. So it does not open.

use crate::area::LogArea;
use crate::error::LogError;
use crate::layout::{
    CLIENT_BYTES, CLIENTS_AT, DATA_AT, GroupHeader, IDLE, Lsn, SLOT_BYTES, Superblock,
};
use crate::walk::Walk;
use env::SECTOR_BYTES;

/// A slot, with zeros where it cannot be read.
struct Slot {
    bytes: Vec<u8>,
    /// Was all of it read?
    whole: bool,
    /// Was the sector read that says which superblock it is?
    says: bool,
}

/// Both slots. Errors: nothing of either can be read.
async fn read_slots(area: &LogArea) -> Result<[Slot; 2], LogError> {
    let failed = match area.read(0, 2 * SLOT_BYTES).await {
        Ok(mut first) => {
            let second = first.split_off(SLOT_BYTES);
            assert_eq!(first.len(), second.len(), "both slots are read, each as a whole");
            return Ok([first, second].map(|bytes| Slot { bytes, whole: true, says: true }));
        }
        Err(e) => e,
    };
    // A sector that fails is no reason to do without the others.
    let slots = [read_slot(area, 0).await, read_slot(area, SLOT_BYTES).await];
    match slots.iter().any(|s| s.says) {
        true => Ok(slots),
        false => Err(failed.into()),
    }
}

async fn read_slot(area: &LogArea, at: usize) -> Slot {
    if let Ok(bytes) = area.read(at as u64, SLOT_BYTES).await {
        return Slot { bytes, whole: true, says: true };
    }
    let mut slot = Slot { bytes: vec![0; SLOT_BYTES], whole: true, says: true };
    for sector in (0..SLOT_BYTES).step_by(SECTOR_BYTES) {
        match area.read((at + sector) as u64, SECTOR_BYTES).await {
            Ok(bytes) => slot.bytes[sector..sector + SECTOR_BYTES].copy_from_slice(&bytes),
            Err(_) => (slot.whole, slot.says) = (false, slot.says && sector > 0),
        }
    }
    assert!(slot.says || !slot.whole, "a slot at {at} is whole without its first sector");
    slot
}

/// Reads both slots; the valid one of the higher generation holds. Errors: `NotALog` if nothing
/// there is one, `Damaged` if a slot was not torn by a power cut but damaged, and may be the newer.
pub(crate) async fn read_superblock(area: &LogArea) -> Result<Superblock, LogError> {
    if area.len_bytes() < DATA_AT {
        let why = format!("{} bytes are too few", area.len_bytes());
        return Err(LogError::NotALog { why });
    }
    let [first, second] = &read_slots(area).await?;
    let sb = match (Superblock::decode(&first.bytes), Superblock::decode(&second.bytes)) {
        (Some(a), Some(b)) => Ok(if a.generation > b.generation { a } else { b }),
        (Some(good), None) => Err((good, 1, second)),
        (None, Some(good)) => Err((good, 0, first)),
        (None, None) => {
            let meant = |s: &Slot| !s.whole || Superblock::is_meant(&s.bytes);
            let why = if meant(first) || meant(second) {
                "both superblocks are damaged"
            } else {
                "there is no superblock (cairn log format makes a new log)"
            };
            return Err(LogError::NotALog { why: why.into() });
        }
    };
    let (sb, doubt) = match sb {
        Ok(sb) => (sb, None),
        Err((good, n, slot)) => (good, Some((n, slot))),
    };
    if DATA_AT + sb.capacity() > area.len_bytes() {
        let (need, have) = (DATA_AT + sb.capacity(), area.len_bytes());
        return Err(LogError::NotALog { why: format!("it needs {need} bytes, there are {have}") });
    }
    if let Some(other) = doubt {
        check_other(area, &sb, other).await?;
    }
    Ok(sb)
}

/// Does the log hold without its other slot, which is not valid?
async fn check_other(
    area: &LogArea,
    good: &Superblock,
    (slot, read): (u64, &Slot),
) -> Result<(), LogError> {
    let bytes = &read.bytes[..];
    if read.says && good.generation == 1 && slot == 0 && bytes.iter().all(|b| *b == 0) {
        return Ok(()); // a new log's
    }
    let at = good.head;
    let damaged = |what: &str| {
        let byte = slot * SLOT_BYTES as u64;
        let is = if read.whole { "is damaged" } else { "cannot be read" };
        let what = format!("the superblock at byte {byte} {is}, and {what}");
        Err(LogError::Damaged { what, at })
    };
    // What cannot be read was not torn. An older one's own number is enough.
    let older = read.says && is_older(good, bytes);
    let torn = read.whole && may_be_torn(good, bytes);
    if !older && !torn {
        return damaged("may be the newer one, without which entries would be missed");
    }
    if let Some(lsn) = newer_entry(area, good).await? {
        return damaged(&format!("the other one is older than what is at LSN {lsn}"));
    }
    tracing::warn!("the log's superblock {slot} is torn or damaged; the other one holds");
    Ok(())
}

/// Is what the slot held older than `good`? It says so itself, in a sector of which nothing else
/// need be true; unless that number is just what is damaged.
fn is_older(good: &Superblock, bytes: &[u8]) -> bool {
    let with = |generation| Superblock::decode_as(bytes, generation).is_some();
    let (older, newer) = (good.generation - 1, good.generation + 1);
    with(older) || Superblock::generation_of(bytes) == older && !with(newer)
}

/// Can a power cut have left it so? Only a superblock of several sectors is ever torn.
fn may_be_torn(good: &Superblock, bytes: &[u8]) -> bool {
    let in_one = (SECTOR_BYTES - CLIENTS_AT) / CLIENT_BYTES;
    // The number of clients may be just what is damaged.
    let claims = Superblock::clients_of(bytes) > in_one
        && !(0..=in_one).any(|n| Superblock::decode_with_clients(bytes, n).is_some());
    let several = claims || good.clients.len() > in_one;
    several && Superblock::generation_of(bytes) == good.generation + 1
}

/// The place of something that was written only after a newer superblock was durable, if there is
/// such a thing: a group of a later epoch, or beyond what this superblock lets be written (I2, I4);
/// or an entry of a client that this one does not know as active (I5).
async fn newer_entry(area: &LogArea, sb: &Superblock) -> Result<Option<Lsn>, LogError> {
    for n in 0..u64::from(sb.segments) {
        let place = DATA_AT + n * u64::from(sb.segment_bytes);
        let bytes = area.read(place, sb.unit as usize).await?;
        let here = |h: &GroupHeader| sb.place(h.lsn) == place;
        let Some(h) = GroupHeader::decode(sb.seed(), &bytes).filter(here) else { continue };
        if h.epoch > sb.epoch || h.lsn >= sb.limit() {
            return Ok(Some(h.lsn));
        }
    }
    let unknown = |client: u16, lsn: Lsn| match sb.clients.get(usize::from(client)) {
        None => true,
        Some(c) => c.trim == IDLE && lsn >= sb.end,
    };
    let mut walk = Walk::new(area.clone(), sb.clone(), sb.floor(sb.head), None);
    while let Some(group) = walk.next().await? {
        let parts = walk.entries(&group).unwrap_or_default();
        let found = parts.iter().find(|(lsn, h, _)| unknown(h.client, *lsn));
        if let Some((lsn, ..)) = found {
            return Ok(Some(*lsn));
        }
    }
    Ok(None)
}

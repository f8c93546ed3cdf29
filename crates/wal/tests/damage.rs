//! Damage: a bit of a superblock, or of a group, is not what was written. What was acknowledged is
//! there all the same, or the log does not open: it never opens with less.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::world::{Medium, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wal::{FormatOptions, Log, LogArea, LogError, OpenOptions};

const SEGMENTS: u64 = 16;
const SEGMENT: u64 = 4096;
const BYTES: u64 = 8192 + SEGMENTS * SEGMENT;

/// What is acknowledged and not trimmed, by LSN.
type Entries = BTreeMap<u64, Vec<u8>>;

/// A log that was written to for a while.
struct Lived {
    medium: Medium,
    entries: Entries,
    /// Where the last write of entries began: what it holds cannot be told from what was never
    /// durable.
    last: u64,
}

impl Lived {
    /// Is everything there? (There may be more: a trim is durable some time later.)
    fn all_in(&self, found: &Entries) -> bool {
        self.entries.iter().all(|(l, b)| found.get(l) == Some(b))
    }
}

fn id(n: u8) -> [u8; 16] {
    [n + 1; 16]
}

/// `others`: clients that hold nothing; `openings`: how often it was opened for writing; `rounds`:
/// entries in each, of which the last `kept` stay.
fn live(others: u8, openings: u8, rounds: u32, kept: usize) -> Lived {
    let mut w = World::new(7, BYTES, Medium::default());
    let out: Rc<RefCell<(Entries, u64)>> = Rc::default();
    let into = out.clone();
    assert!(w.run(u64::MAX, |env| {
        let env = env.clone();
        env.clone().spawn("life", async move {
            let area = LogArea::whole(World::disk(&env, BYTES));
            let o = FormatOptions {
                uuid: [7; 16],
                segment_bytes: Some(SEGMENT as u32),
                ..FormatOptions::default()
            };
            Log::format(&area, &o).await.unwrap();
            let mut lsns = Vec::new();
            for n in 0..openings {
                let log = Log::open(&env, area.clone(), OpenOptions::default()).await.unwrap();
                (0..others).for_each(|i| drop(log.client(id(100 + i), "other").unwrap()));
                let c = log.client(id(0), "volume").unwrap();
                for i in 0..rounds {
                    let bytes = vec![n ^ i as u8; 40 + (i as usize * 97) % 900];
                    let lsn = loop {
                        match c.append(&bytes) {
                            Ok(lsn) => break lsn,
                            Err(LogError::Full) => log.persist().await.unwrap(),
                            Err(e) => panic!("{e}"),
                        }
                    };
                    c.flush(lsn).await.unwrap();
                    into.borrow_mut().0.insert(lsn.0, bytes);
                    into.borrow_mut().1 = lsn.0;
                    lsns.push(lsn);
                    if lsns.len() > kept {
                        let first = lsns[lsns.len() - kept];
                        c.trim(first);
                        into.borrow_mut().0.retain(|l, _| *l >= first.0);
                    }
                }
            }
        });
    }));
    let (entries, last) = out.take();
    Lived { medium: w.medium.all_durable(), entries, last }
}

/// Opens it and reads all; Err: it does not open, or does not read.
fn found(medium: Medium) -> Result<Entries, LogError> {
    found_without(medium, 0..0)
}

/// The same where these bytes cannot be read.
fn found_without(medium: Medium, unreadable: std::ops::Range<u64>) -> Result<Entries, LogError> {
    let mut w = World::new(1, BYTES, medium);
    w.unreadable = unreadable;
    let out: Rc<RefCell<Option<Result<Entries, LogError>>>> = Rc::default();
    let into = out.clone();
    assert!(w.run(u64::MAX, |env| {
        let env = env.clone();
        env.clone().spawn("look", async move {
            let look = async {
                let area = LogArea::whole(World::disk(&env, BYTES));
                let log = Log::open(&env, area, OpenOptions::default()).await?;
                let all = log.client(id(0), "volume")?.read_all().await?;
                Ok(all.into_iter().map(|e| (e.lsn.0, e.bytes)).collect())
            };
            *into.borrow_mut() = Some(look.await);
        });
    }));
    out.take().unwrap()
}

/// Histories: new, written to once, opened again, trimmed, gone round; with few and many clients.
fn histories() -> Vec<Lived> {
    let all = [
        (0, 1, 1, 1000),
        (0, 1, 20, 1000),
        (0, 2, 12, 1000),
        (0, 3, 30, 20),
        (0, 1, 400, 30),
        (0, 4, 150, 12),
        (15, 1, 1, 1000),
        (15, 2, 12, 1000),
        (15, 2, 300, 20),
    ];
    all.map(|(others, openings, rounds, kept)| live(others, openings, rounds, kept)).into()
}

#[test]
fn a_flipped_bit_of_a_superblock_is_noticed_or_does_no_harm() {
    let mut refused = 0;
    for (n, h) in histories().iter().enumerate() {
        assert!(found(h.medium.clone()).is_ok_and(|e| h.all_in(&e)), "history {n} itself");
        for slot in [0, 4096] {
            // Every byte that says something, and some of those that are zeros.
            let bytes = h.medium.bytes(slot, 4096);
            for at in (0..4096).filter(|i| bytes[*i as usize] != 0 || i % 8 == 4) {
                let mut medium = h.medium.clone();
                medium.poke(slot + at, |b| b[0] ^= 1 << (at % 8));
                match found(medium) {
                    Ok(e) => assert!(h.all_in(&e), "history {n}, slot {slot}, byte {at}: less"),
                    Err(LogError::Damaged { .. } | LogError::NotALog { .. }) => refused += 1,
                    Err(e) => panic!("history {n}, slot {slot}, byte {at}: {e}"),
                }
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn a_superblock_that_is_wiped_or_random_is_noticed() {
    for (n, h) in histories().iter().enumerate() {
        for slots in [&[0u64][..], &[4096], &[0, 4096]] {
            for fill in [None, Some(0), Some(0xa5)] {
                let mut medium = h.medium.clone();
                for sector in slots.iter().flat_map(|s| (0..8).map(move |i| s + 512 * i)) {
                    let noise = |i: usize| fill.unwrap_or((i as u64 * 31 + sector / 512) as u8);
                    medium.poke(sector, |b| {
                        b.iter_mut().enumerate().for_each(|(i, x)| *x = noise(i))
                    });
                }
                let what = format!("history {n}, slots {slots:?}, filled with {fill:?}");
                match found(medium) {
                    Ok(e) => assert!(h.all_in(&e), "{what}: less"),
                    Err(LogError::Damaged { .. } | LogError::NotALog { .. }) => (),
                    Err(e) => panic!("{what}: {e}"),
                }
            }
        }
    }
}

/// A sector of the superblocks that cannot be read: the log opens without it if it is known that
/// nothing is missed, and else says which superblock it is.
#[test]
fn a_sector_of_a_superblock_that_cannot_be_read_is_no_end_of_both() {
    let mut opened = [0; 2];
    for (n, h) in histories().iter().enumerate() {
        for at in (0..8192u64).step_by(512) {
            let what = format!("history {n}, sector at {at}");
            match found_without(h.medium.clone(), at..at + 512) {
                Ok(e) => {
                    assert!(h.all_in(&e), "{what}: less");
                    opened[at as usize / 4096] += 1;
                }
                Err(LogError::Damaged { what: said, .. }) => {
                    assert!(said.contains("cannot be read"), "{what}: {said}");
                }
                Err(e) => panic!("{what}: {e}"),
            }
        }
        for all in [0..4096, 4096..8192, 0..8192u64] {
            match found_without(h.medium.clone(), all.clone()) {
                Err(LogError::Damaged { .. }) if all.end - all.start == 4096 => (),
                Err(LogError::Disk(_)) if all.end - all.start == 8192 => (),
                done => panic!("history {n}, {all:?}: {:?}", done.map(|e| e.len())),
            }
        }
    }
    assert!(opened.iter().all(|n| *n > 40), "{opened:?}");
}

#[test]
fn a_flipped_bit_of_a_group_never_ends_the_log_early() {
    for (n, h) in histories().iter().enumerate() {
        for at in (8192..BYTES).step_by(37) {
            let mut medium = h.medium.clone();
            medium.poke(at, |b| b[0] ^= 1 << (at % 8));
            let Ok(e) = found(medium) else { continue };
            let lost = h.entries.iter().filter(|(l, b)| e.get(l) != Some(b));
            // The last write may never have ended, for all that anybody can see.
            let first = lost.map(|(l, _)| *l).next();
            assert!(first.is_none_or(|l| l >= h.last), "history {n}, byte {at}: less");
        }
    }
}

#[test]
fn a_group_whose_numbers_cannot_be_is_refused_though_its_sum_is_right() {
    let seed = crc32c::crc32c(&[7; 16]);
    let mut refused = 0;
    for (n, h) in histories().iter().enumerate() {
        for at in (8192..BYTES).step_by(512) {
            let header = h.medium.bytes(at, 48);
            if header[..4] != *b"CWLG" {
                continue;
            }
            for durable in [1, 77, u64::MAX, u64::MAX - 511, 1 << 40] {
                let mut medium = h.medium.clone();
                medium.poke(at, |b| {
                    b[32..40].copy_from_slice(&u64::to_le_bytes(durable));
                    let sum = crc32c::crc32c_append(seed, &b[8..48]);
                    b[4..8].copy_from_slice(&sum.to_le_bytes());
                });
                match found(medium) {
                    Ok(_) => (),
                    Err(LogError::Damaged { .. }) => refused += 1,
                    Err(e) => panic!("history {n}, group at {at}, durable {durable}: {e}"),
                }
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn a_superblock_whose_numbers_cannot_go_on_is_refused_though_its_sum_is_right() {
    let mut refused = 0;
    for (n, h) in histories().iter().enumerate() {
        for (field, what) in [(32, "generation"), (40, "epoch")] {
            for number in [0, u64::MAX, u64::MAX - 1] {
                let mut medium = h.medium.clone();
                for slot in [0, 4096] {
                    let mut sb = h.medium.bytes(slot, 4096);
                    sb[field..field + 8].copy_from_slice(&number.to_le_bytes());
                    let sum = crc32c::crc32c(&sb[12..]);
                    medium.poke(slot, |b| {
                        b[8..12].copy_from_slice(&sum.to_le_bytes());
                        b[field..field + 8].copy_from_slice(&number.to_le_bytes());
                    });
                }
                match found(medium) {
                    Ok(_) => (),
                    Err(LogError::Damaged { .. } | LogError::NotALog { .. }) => refused += 1,
                    Err(e) => panic!("history {n}, {what} {number}: {e}"),
                }
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

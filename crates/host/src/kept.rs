//! A cache on a local disk of what was read from buckets: a file of slots of 64 KiB, which survives
//! restarts. Each slot has a sum of what it holds and of where that comes from, and is believed
//! only if that is right; so a torn write, a failing disk and somebody else's file are a miss and
//! nothing else. What may be kept is said by who asks ([`env::ObjectOp::GetKept`]); what it means
//! is not known here.
//!
//! ```text
//!  0    "CairnKPT" | 8 version 1 | 12 slots
//!  4096 of each slot: the source's name (16) | bytes (4) | sum (4) | 0 (8)
//!  then the slots, from the next multiple of 4096 on
//! ```
//!
//! The *source* of a slot: the volume, the object's name, and which 64 KiB of it. Slots are written
//! one behind the other, round and round: what came first goes first. Nothing is flushed.
//!
//! Invariants:
//! * K1. A slot is the one of one source at most, and a source has one slot at most.
//! * K2. What is kept, and believed, is no longer than a slot.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

const MAGIC: [u8; 8] = *b"CairnKPT";
const VERSION: u32 = 1;
const HEAD_BYTES: u64 = 4096;
const ENTRY_BYTES: usize = 32;
/// Bytes of an object that are kept together.
pub(crate) const SLOT_BYTES: u64 = 64 << 10;
/// Below that a cache is of no use.
const SLOTS_MIN: u64 = 16;
const SLOTS_MAX: u64 = 1 << 26;

/// What tells a slot's source from every other: two sums of it that are independent.
type Source = [u8; 16];

/// The cache.
#[derive(Debug)]
pub(crate) struct Kept {
    file: File,
    slots: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The slot of each source, its bytes and their sum.
    slots: HashMap<Source, (u64, u32, u32)>,
    /// What is in each slot.
    sources: Vec<Option<Source>>,
    /// The slot that is written next.
    next: u64,
}

/// A part of an object: whose, its name, and which of its slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) of: &'a [u8; 16],
    pub(crate) name: &'a str,
    pub(crate) index: u64,
}

impl Part<'_> {
    fn source(&self) -> Source {
        let all = [self.of, self.name.as_bytes(), &self.index.to_le_bytes()].concat();
        let mut source = Source::default();
        for (n, half) in source.chunks_mut(8).enumerate() {
            half.copy_from_slice(&fnv(n as u64 + 1, &all).to_le_bytes());
        }
        source
    }
}

/// FNV-1a, begun with a seed.
fn fnv(seed: u64, bytes: &[u8]) -> u64 {
    let begun = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes.iter().fold(begun, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// The sum of a slot: of what it holds and where that comes from.
fn sum_of(source: &Source, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(source), bytes)
}

impl Kept {
    /// Opens the file, or makes it, of about `bytes`. Errors are for the user.
    pub(crate) fn open(path: &Path, bytes: u64) -> Result<Kept, String> {
        let fail = |why: String| format!("--cache-disk {}: {why}", path.display());
        let text = |e: std::io::Error| fail(e.to_string());
        let slots = bytes.saturating_sub(HEAD_BYTES) / (SLOT_BYTES + ENTRY_BYTES as u64);
        if !(SLOTS_MIN..=SLOTS_MAX).contains(&slots) {
            return Err(fail("its size is from 2 MiB to 4 TiB".into()));
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(text)?;
        file.try_lock().map_err(|_| fail("another process uses it".into()))?;
        let mut head = [0; 20];
        let known = file.read_exact_at(&mut head, 0).is_ok();
        if file.metadata().map_err(text)?.len() > 0 && !(known && head.starts_with(&MAGIC)) {
            return Err(fail("there is a file that is no cache: it stays as it is".into()));
        }
        let kept = Kept { file, slots, state: Mutex::default() };
        if head[..] != kept.head() {
            // Another size or version: nothing in it is believed, for its slots lie elsewhere.
            kept.file.set_len(0).map_err(text)?;
            kept.file.write_all_at(&kept.head(), 0).map_err(text)?;
        }
        kept.file.set_len(kept.place(slots)).map_err(text)?;
        *kept.locked() = kept.entries().map_err(text)?;
        Ok(kept)
    }

    fn head(&self) -> [u8; 20] {
        let mut head = [0; 20];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..].copy_from_slice(&self.slots.to_le_bytes());
        head
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics holding it")
    }

    /// Where a slot lies.
    fn place(&self, slot: u64) -> u64 {
        assert!(slot <= self.slots, "K1: slot {slot} is behind the last of {}", self.slots);
        let entries = self.slots * ENTRY_BYTES as u64;
        HEAD_BYTES + entries.next_multiple_of(4096) + slot * SLOT_BYTES
    }

    /// What the file says of its slots.
    fn entries(&self) -> std::io::Result<State> {
        let mut raw = vec![0; self.slots as usize * ENTRY_BYTES];
        self.file.read_exact_at(&mut raw, HEAD_BYTES)?;
        let mut state = State { sources: vec![None; self.slots as usize], ..State::default() };
        for (slot, entry) in raw.chunks_exact(ENTRY_BYTES).enumerate() {
            let number =
                |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four bytes"));
            let source: Source = entry[..16].try_into().expect("sixteen bytes");
            let (bytes, sum) = (number(16), number(20));
            if source != Source::default() && u64::from(bytes) <= SLOT_BYTES {
                state.sources[slot] = Some(source);
                state.slots.insert(source, (slot as u64, bytes, sum));
            }
        }
        Ok(state)
    }

    /// A part, if it is here and as it was put.
    pub(crate) fn get(&self, part: Part<'_>) -> Option<Vec<u8>> {
        let source = part.source();
        let (slot, len, sum) = *self.locked().slots.get(&source)?;
        assert!(u64::from(len) <= SLOT_BYTES, "K2: {len} bytes are in slot {slot}");
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_at(&mut bytes, self.place(slot)).ok()?;
        (sum_of(&source, &bytes) == sum).then_some(bytes)
    }

    /// Keeps a part in place of what came first. That it cannot be kept is no failure.
    pub(crate) fn put(&self, part: Part<'_>, bytes: &[u8]) {
        assert!(bytes.len() as u64 <= SLOT_BYTES, "K2: {} bytes are kept", bytes.len());
        let source = part.source();
        let sum = sum_of(&source, bytes);
        let slot = {
            let mut state = self.locked();
            let slot = state.next;
            state.next = (slot + 1) % self.slots;
            if let Some(old) = state.sources[slot as usize].replace(source)
                && state.slots.get(&old).is_some_and(|s| s.0 == slot)
            {
                state.slots.remove(&old);
            }
            state.slots.insert(source, (slot, bytes.len() as u32, sum));
            let (known, next) = (state.slots.len() as u64, state.next);
            assert!(known <= self.slots, "K1: {known} sources are in {} slots", self.slots);
            assert!(next < self.slots, "K1: slot {next} is the next of {}", self.slots);
            // It looks at all of them, and a GiB has 16,384.
            let of_it = || state.slots.values().filter(|s| s.0 == slot).count();
            debug_assert_eq!(of_it(), 1, "K1: sources that are in slot {slot}");
            slot
        };
        let mut entry = [0; ENTRY_BYTES];
        entry[..16].copy_from_slice(&source);
        entry[16..20].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        entry[20..24].copy_from_slice(&sum.to_le_bytes());
        let at = HEAD_BYTES + slot * ENTRY_BYTES as u64;
        // In whatever order they come to the disk: the sum tells whether both have.
        let written = self.file.write_all_at(bytes, self.place(slot));
        if let Err(e) = written.and_then(|()| self.file.write_all_at(&entry, at)) {
            tracing::warn!("the cache on a disk cannot be written: {e}");
            self.locked().slots.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const VOLUME: [u8; 16] = [3; 16];

    fn part(name: &str, index: u64) -> Part<'_> {
        Part { of: &VOLUME, name, index }
    }

    fn fresh(name: &str) -> std::path::PathBuf {
        let path = crate::file::beside_the_build(name);
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn what_was_put_is_there_after_a_restart_and_goes_when_its_turn_comes() {
        let path = fresh("kept-restart");
        let size = HEAD_BYTES + 20 * (SLOT_BYTES + ENTRY_BYTES as u64);
        let kept = Kept::open(&path, size).unwrap();
        assert!(Kept::open(&path, size).unwrap_err().contains("another process"));
        for n in 0..20 {
            kept.put(part("log/1", n), &vec![n as u8; 1000 * n as usize]);
        }
        drop(kept);
        let kept = Kept::open(&path, size).unwrap();
        for n in 0..20 {
            assert_eq!(kept.get(part("log/1", n)), Some(vec![n as u8; 1000 * n as usize]));
        }
        assert_eq!(kept.get(part("log/2", 1)), None);
        assert_eq!(kept.get(Part { of: &[4; 16], name: "log/1", index: 1 }), None);
        for n in 0..15 {
            kept.put(part("log/2", n), &[7; 64]);
        }
        assert_eq!(kept.get(part("log/1", 14)), None, "it came first");
        assert_eq!(kept.get(part("log/1", 15)), Some(vec![15; 15_000]));
        drop(kept);
        let other = Kept::open(&path, 2 * size).unwrap();
        assert_eq!(other.get(part("log/2", 3)), None, "of another size it begins with nothing");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_damaged_is_not_there_and_other_files_are_left_alone() {
        let path = fresh("kept-damage");
        let kept = Kept::open(&path, 4 << 20).unwrap();
        for n in 0..2 {
            kept.put(part("log/1", n), &[9; 4096]);
        }
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[8], kept.place(0) + 77).unwrap();
        assert_eq!(kept.get(part("log/1", 0)), None);
        assert_eq!(kept.get(part("log/1", 1)), Some(vec![9; 4096]));
        drop(kept);
        // A sum that belongs to another source.
        let mut entry = [0; ENTRY_BYTES];
        let raw = File::open(&path).unwrap();
        raw.read_exact_at(&mut entry, HEAD_BYTES + ENTRY_BYTES as u64).unwrap();
        entry[..16].copy_from_slice(&part("log/2", 0).source());
        file.write_all_at(&entry, HEAD_BYTES + ENTRY_BYTES as u64).unwrap();
        let kept = Kept::open(&path, 4 << 20).unwrap();
        assert_eq!(kept.get(part("log/2", 0)), None);
        drop(kept);
        std::fs::write(&path, b"somebody's text").unwrap();
        assert!(Kept::open(&path, 4 << 20).unwrap_err().contains("no cache"));
        assert_eq!(std::fs::read(&path).unwrap(), b"somebody's text");
        assert!(Kept::open(&path, 1000).unwrap_err().contains("2 MiB"));
        std::fs::remove_file(path).unwrap();
    }
}

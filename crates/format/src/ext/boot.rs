//! Our private state, in the boot area: bytes 0 to 1023 of the volume, which belong to no block
//! group. Two slots of 512 bytes, written in turn, so that a torn write leaves the older one. It is
//! used only if the area is all zero or already ours; a boot loader's code is never overwritten.

use crate::bytes::{le32, le64, set32, set64};

/// The area's length in bytes.
pub const BOOT_BYTES: usize = 1024;
const SLOT: usize = 512;
const MAGIC: &[u8; 8] = b"CairnVol";

/// What is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BootState {
    /// Counts the writes of this state; the higher of two valid slots holds.
    pub serial: u64,
    /// How often the volume was opened for writing.
    pub opened: u64,
    /// Changes whenever unstable data may have been lost: at an opening after an unclean end.
    pub losses: u64,
    /// The mode last used, by its name.
    pub mode: String,
    /// Was it closed cleanly?
    pub clean: bool,
    /// Keys the NFS file handles; all zero: not chosen yet.
    pub handle_key: [u8; 16],
    /// The log's UUID; all zero: no log of its own.
    pub log_uuid: [u8; 16],
    /// The UUID of the journal of intents, if it is used with one.
    pub intents: Option<[u8; 16]>,
    /// What the superblock says of who has written to the volume: before the last opening, and
    /// during it.
    pub stamps: [u64; 2],
}

/// What the area holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BootArea {
    /// Zeros: free to use.
    Empty,
    /// Our state.
    Ours(BootState),
    /// Something else: leave it alone.
    Foreign,
}

/// Looks at the area's 1024 bytes.
pub fn decode(area: &[u8]) -> BootArea {
    assert_eq!(area.len(), BOOT_BYTES);
    let best = area.chunks(SLOT).filter_map(decode_slot).max_by_key(|s| s.serial);
    match best {
        Some(s) => BootArea::Ours(s),
        None if area.iter().all(|&b| b == 0) => BootArea::Empty,
        None if area.chunks(SLOT).any(|s| s.starts_with(MAGIC)) => {
            BootArea::Ours(BootState::default()) // both torn or damaged: ours, but nothing is known
        }
        None => BootArea::Foreign,
    }
}

/// Openings are counted at most so far.
const COUNT_MAX: u64 = 1 << 62;

/// A slot that is believed. Nobody counts as far as 2^62: a slot that says so is not ours, whatever
/// its sum says.
fn decode_slot(slot: &[u8]) -> Option<BootState> {
    let s = read_slot(slot)?;
    let believed = [s.serial, s.opened, s.losses].iter().all(|n| *n <= COUNT_MAX);
    believed.then_some(s)
}

/// Does a slot of the area say this? Of one that was just made it has to hold, also where it goes
/// on from counts so high that the next opening will not believe them.
pub fn says(area: &[u8; BOOT_BYTES], state: &BootState) -> bool {
    area.chunks_exact(SLOT).any(|slot| read_slot(slot).as_ref() == Some(state))
}

fn read_slot(slot: &[u8]) -> Option<BootState> {
    if !slot.starts_with(MAGIC) || crc32c::crc32c(&slot[12..]) != le32(slot, 8) {
        return None;
    }
    let counts = [16, 24, 32].map(|at| le64(slot, at));
    let mode = &slot[48..64];
    let end = mode.iter().position(|&b| b == 0).unwrap_or(mode.len());
    Some(BootState {
        serial: counts[0],
        opened: counts[1],
        losses: counts[2],
        clean: slot[40] == 1,
        mode: crate::shown(&mode[..end]),
        handle_key: slot[64..80].try_into().expect("16 bytes"),
        log_uuid: slot[80..96].try_into().expect("16 bytes"),
        intents: Some(slot[96..112].try_into().expect("16 bytes")).filter(|id| *id != [0; 16]),
        stamps: [le64(slot, 112), le64(slot, 120)],
    })
}

/// The slot's place (byte 0 or 512) and its 512 bytes.
pub fn encode(s: &BootState) -> (usize, [u8; SLOT]) {
    let mut b = [0; SLOT];
    b[..8].copy_from_slice(MAGIC);
    set64(&mut b, 16, s.serial);
    set64(&mut b, 24, s.opened);
    set64(&mut b, 32, s.losses);
    b[40] = u8::from(s.clean);
    let n = s.mode.len().min(16);
    b[48..48 + n].copy_from_slice(&s.mode.as_bytes()[..n]);
    b[64..80].copy_from_slice(&s.handle_key);
    b[80..96].copy_from_slice(&s.log_uuid);
    b[96..112].copy_from_slice(&s.intents.unwrap_or_default());
    set64(&mut b, 112, s.stamps[0]);
    set64(&mut b, 120, s.stamps[1]);
    let crc = crc32c::crc32c(&b[12..]);
    set32(&mut b, 8, crc);
    ((s.serial % 2) as usize * SLOT, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_with_a_count_that_nobody_reaches_is_none() {
        let mut area = vec![0; BOOT_BYTES];
        for (serial, opened) in [(1, 7), (u64::MAX - 1, 1), (4, u64::MAX)] {
            let (at, bytes) = encode(&BootState { serial, opened, ..BootState::default() });
            area[at..at + 512].copy_from_slice(&bytes);
            let BootArea::Ours(s) = decode(&area) else { panic!("it is ours") };
            assert_eq!((s.serial, s.opened), (1, 7), "beside {serial} and {opened}");
        }
    }

    #[test]
    fn what_is_made_says_what_it_was_made_of_however_high_it_counts() {
        for n in [0, COUNT_MAX - 1, COUNT_MAX, COUNT_MAX + 1] {
            let state = BootState { serial: n, opened: n, losses: n, ..BootState::default() };
            let mut area = [0; BOOT_BYTES];
            let (at, bytes) = encode(&state);
            area[at..at + SLOT].copy_from_slice(&bytes);
            assert!(says(&area, &state), "{n}");
            assert_eq!(decode(&area) == BootArea::Ours(state), n <= COUNT_MAX, "{n}");
        }
    }

    #[test]
    fn the_newer_slot_holds_and_a_torn_one_does_not() {
        let mut area = vec![0; BOOT_BYTES];
        assert_eq!(decode(&area), BootArea::Empty);
        for serial in 1..=2 {
            let (mode, intents) = ("sync".to_owned(), (serial == 2).then_some([7; 16]));
            let state = BootState { serial, mode, intents, ..BootState::default() };
            let s = BootState { clean: true, stamps: [serial, u64::MAX], ..state };
            let (at, bytes) = encode(&s);
            area[at..at + 512].copy_from_slice(&bytes);
        }
        let BootArea::Ours(s) = decode(&area) else { panic!("it is ours") };
        assert_eq!((s.serial, s.mode.as_str()), (2, "sync"));
        assert_eq!((s.intents, s.stamps), (Some([7; 16]), [2, u64::MAX]));
        area[300] ^= 1; // slot 0 holds serial 2
        let BootArea::Ours(s) = decode(&area) else { panic!("it is ours") };
        assert_eq!((s.serial, s.intents, s.stamps), (1, None, [1, u64::MAX]));
        assert_eq!(decode(&[0xeb; 1024]), BootArea::Foreign);
    }
}

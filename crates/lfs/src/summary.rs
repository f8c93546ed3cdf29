//! A partial segment's summary: which virtual block each block of the payload is, what became free,
//! and the chain that recovery follows. It is one block before the payload; it knows no disk.
//!
//! ```text
//!  0 "CLFS" | 4 sum of 8..4096 and the payload | 8 serial | 16 epoch | 24 stamp | 32 its own place
//!  40 the previous partial's sum | 44 blocks of payload | 48 the head's next segment
//!  52 entries | 54 head | 55 flags: 1 an atomic group ends here, 2 the last 8 bytes say something
//!  56 entries, one behind the other | 4088 all up to this serial was durable when it was closed
//!
//!  entry: kind in the top byte, virtual block in the rest (8 bytes), then
//!    1 written: its stamp (8)          2 moved: its stamp (8), the place it lay at (8)
//!    3 free: how many (8), no payload
//!    5 plugged: its stamp (8), the place it lay at (8), the one it lies at now (8); no payload
//!    6 a snapshot, which is the virtual block's number: seconds since 1970 (8), bytes of its name
//!      (8), the name, padded to 8; no payload
//!    7 a snapshot has ended: 1 if nothing of it is left (8); no payload
//!    8 handed to an older snapshot: how many (8), the snapshot (8); no payload
//!    4 range: offset in the block (2), bytes (2), zeros behind them (2), 0 (2), the bytes, padded
//!      to 8; no payload
//! ```

use crate::codec::{Reader, Writer};
use crate::geometry::{BLOCK_BYTES, Place, SegNo, Virt};
use crate::patches::Range;
use crate::snapshot::{NAME_BYTES_MAX, Snapshot};
use std::fmt;

const MAGIC: [u8; 4] = *b"CLFS";
const HEADER: usize = 56;
/// At the end of the block: the serial up to which all was durable.
const TAIL: usize = 8;
/// Bytes of entries in a summary.
pub(crate) const ENTRIES_BYTES_MAX: usize = BLOCK_BYTES - HEADER - TAIL;
const GROUP_END: u8 = 1;
/// It has the tail; programs before it wrote none.
const SAYS_DURABLE: u8 = 2;

/// A partial segment's number, over all heads and from 1 on: one with a higher serial was closed
/// later, and recovery follows them one by one. It is at byte 8 of the summary; the checkpoint's
/// body has that of the last partial that it covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Serial(pub(crate) u64);

impl Serial {
    /// The one of the partial that is closed next.
    pub(crate) fn next(self) -> Serial {
        Serial(self.0 + 1)
    }
}

/// Numbers the openings for writing, from 1 on: a later one has a higher epoch. It is at byte 16 of
/// the summary, and in the checkpoint's body.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Epoch(pub(crate) u64);

impl Epoch {
    /// The next opening's.
    pub(crate) fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What one entry says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// The next payload block is the new contents of this block.
    Written { v: Virt, stamp: u64 },
    /// The next payload block was copied from `from`.
    Moved { v: Virt, stamp: u64, from: Place },
    /// It was copied from `from` to `to`, which is in another segment.
    Plugged { v: Virt, stamp: u64, from: Place, to: Place },
    /// These blocks have no contents any more.
    Free { v: Virt, n: u64 },
    /// These bytes of the block are so; the others are as they were.
    Range { v: Virt, range: Range },
    /// What comes before is in this snapshot.
    Snapshot(Snapshot),
    /// A snapshot has ended; or nothing of it is left.
    Ended { id: u32, gone: bool },
    /// These blocks of an ended snapshot are blocks of this older one.
    Handed { v: Virt, n: u64, to: u32 },
}

impl Entry {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Entry::Moved { .. } | Entry::Handed { .. } => 24,
            Entry::Snapshot(s) => 24 + s.name.len().next_multiple_of(8),
            Entry::Plugged { .. } => 32,
            Entry::Range { range, .. } => 8 + range.encoded(),
            _ => 16,
        }
    }
    /// Has it a block of the payload?
    pub(crate) fn has_payload(&self) -> bool {
        matches!(self, Entry::Written { .. } | Entry::Moved { .. })
    }
    /// The blocks it is about.
    pub(crate) fn blocks(&self) -> (Virt, u64) {
        match *self {
            Entry::Free { v, n } | Entry::Handed { v, n, .. } => (v, n),
            Entry::Snapshot(_) | Entry::Ended { .. } => (Virt(0), 0),
            Entry::Written { v, .. }
            | Entry::Moved { v, .. }
            | Entry::Plugged { v, .. }
            | Entry::Range { v, .. } => (v, 1),
        }
    }
    fn encode(&self, w: &mut Writer) {
        let kind = |n: u64, v: &Virt| {
            assert!(v.0 < 1 << 56, "I3: block {} in an entry, which has 56 bits for it", v.0);
            n << 56 | v.0
        };
        match self {
            Entry::Written { v, stamp } => {
                w.u64(kind(1, v)).u64(*stamp);
            }
            Entry::Moved { v, stamp, from } => {
                w.u64(kind(2, v)).u64(*stamp).u64(from.0);
            }
            Entry::Free { v, n } => {
                w.u64(kind(3, v)).u64(*n);
            }
            Entry::Range { v, range } => range.encode(w.u64(kind(4, v))),
            Entry::Plugged { v, stamp, from, to } => {
                w.u64(kind(5, v)).u64(*stamp).u64(from.0).u64(to.0);
            }
            Entry::Snapshot(s) => {
                let bytes = s.name.as_bytes();
                let len = bytes.len();
                assert!(len <= NAME_BYTES_MAX, "S3: the name of snapshot {} is {len} bytes", s.id);
                let padded = bytes.len().next_multiple_of(8) - bytes.len();
                w.u64(kind(6, &Virt(u64::from(s.id)))).u64(s.made).u64(bytes.len() as u64);
                w.bytes(bytes).bytes(&[0; 8][..padded]);
            }
            Entry::Ended { id, gone } => {
                w.u64(kind(7, &Virt(u64::from(*id)))).u64(u64::from(*gone));
            }
            Entry::Handed { v, n, to } => {
                w.u64(kind(8, v)).u64(*n).u64(u64::from(*to));
            }
        }
    }
    fn decode(r: &mut Reader<'_>) -> Option<Entry> {
        let word = r.u64()?;
        let v = Virt(word & !(0xff << 56));
        if word >> 56 == 4 {
            return Some(Entry::Range { v, range: Range::decode(r)? });
        }
        let x = r.u64()?;
        Some(match word >> 56 {
            1 => Entry::Written { v, stamp: x },
            2 => Entry::Moved { v, stamp: x, from: Place(r.u64()?) },
            3 => Entry::Free { v, n: x },
            5 => {
                let (from, to) = (Place(r.u64()?), Place(r.u64()?));
                Entry::Plugged { v, stamp: x, from, to }
            }
            6 => Entry::Snapshot(snapshot(v.0, x, r)?),
            7 => Entry::Ended { id: u32::try_from(v.0).ok()?, gone: x != 0 },
            8 => Entry::Handed { v, n: x, to: u32::try_from(r.u64()?).ok()? },
            _ => return None,
        })
    }
}

fn snapshot(id: u64, made: u64, r: &mut Reader<'_>) -> Option<Snapshot> {
    let (id, len) = (u32::try_from(id).ok()?, r.u64()? as usize);
    let raw = r.bytes(Some(len).filter(|n| *n <= NAME_BYTES_MAX)?.next_multiple_of(8))?;
    let name = String::from_utf8(raw[..len].to_vec()).ok()?;
    Some(Snapshot { id, made, name, ended: false })
}

/// A summary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Summary {
    pub(crate) serial: Serial,
    pub(crate) epoch: Epoch,
    /// Blocks users had written when it was closed.
    pub(crate) stamp: u64,
    pub(crate) place: Place,
    pub(crate) previous_sum: u32,
    pub(crate) payload: u32,
    pub(crate) next: SegNo,
    pub(crate) head: u8,
    pub(crate) group_end: bool,
    /// All up to this one was durable when it was closed; 0: not said, as by older programs.
    pub(crate) durable: Serial,
    pub(crate) entries: Vec<Entry>,
}

impl Summary {
    /// The block and its sum, which covers every byte of the payload too.
    pub(crate) fn encode<'a>(
        &self,
        seed: u32,
        payload: impl Iterator<Item = &'a [u8]>,
    ) -> (Vec<u8>, u32) {
        let mut w = Writer::default();
        w.bytes(&MAGIC).u32(0).u64(self.serial.0).u64(self.epoch.0).u64(self.stamp);
        w.u64(self.place.0).u32(self.previous_sum).u32(self.payload).u32(self.next.0);
        let flags = (u8::from(self.group_end) * GROUP_END) | SAYS_DURABLE;
        w.u16(self.entries.len() as u16).u8(self.head).u8(flags);
        assert_eq!(w.0.len(), HEADER, "I3: the first entry of a summary begins elsewhere");
        for e in &self.entries {
            let before = w.0.len();
            e.encode(&mut w);
            let (counted, is) = (e.bytes(), w.0.len() - before);
            assert_eq!(counted, is, "I3: room is counted wrongly for {:?}", e.blocks());
        }
        let (len, most) = (w.0.len(), BLOCK_BYTES - TAIL);
        assert!(len <= most, "I3: a summary of {len} bytes, and there is room for {most}");
        w.0.resize(BLOCK_BYTES - TAIL, 0);
        w.u64(self.durable.0);
        let sum = sum_of(seed, &w.0, payload);
        w.0[4..8].copy_from_slice(&sum.to_le_bytes());
        let again = Summary::decode(&w.0, self.place);
        let same = again.is_some_and(|(s, claimed)| s == *self && claimed == sum);
        assert!(same, "I17: the summary of {:?} is read as another one", self.serial);
        (w.0, sum)
    }

    /// Reads a summary that lies at `at`, and the sum it claims; None: there is none.
    pub(crate) fn decode(raw: &[u8], at: Place) -> Option<(Summary, u32)> {
        let mut r = Reader(raw.get(..BLOCK_BYTES)?);
        if r.bytes(4)? != MAGIC {
            return None;
        }
        let sum = r.u32()?;
        let (serial, epoch) = (Serial(r.u64()?), Epoch(r.u64()?));
        let (stamp, place) = (r.u64()?, Place(r.u64()?));
        let (previous_sum, payload, next) = (r.u32()?, r.u32()?, SegNo(r.u32()?));
        let (count, head, flags) = (r.u16()?, r.u8()?, r.u8()?);
        let entries: Option<Vec<Entry>> = (0..count).map(|_| Entry::decode(&mut r)).collect();
        let entries = entries?;
        let blocks = entries.iter().filter(|e| e.has_payload()).count();
        let group_end = flags & GROUP_END != 0;
        let tail = if flags & SAYS_DURABLE != 0 { &raw[BLOCK_BYTES - TAIL..] } else { &[] };
        let durable = Serial(Reader(tail).u64().unwrap_or(0));
        let fits = place == at && blocks == payload as usize;
        let s = Summary {
            serial,
            epoch,
            stamp,
            place,
            previous_sum,
            payload,
            next,
            head,
            group_end,
            durable,
            entries,
        };
        fits.then_some((s, sum))
    }

    /// The blocks of the payload: what each is, and where it lies.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Entry, Place)> {
        let held = self.entries.iter().filter(|e| e.has_payload());
        held.zip(1..).map(|(e, i)| (e.clone(), self.place.plus(i)))
    }
}

/// The sum over a summary's block and its payload.
pub(crate) fn sum_of<'a>(
    seed: u32,
    summary: &[u8],
    payload: impl Iterator<Item = &'a [u8]>,
) -> u32 {
    let start = crc32c::crc32c_append(seed, &summary[8..]);
    payload.fold(start, crc32c::crc32c_append)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded_and_a_changed_byte_is_seen() {
        let entries = vec![
            Entry::Written { v: Virt(7), stamp: 3 },
            Entry::Free { v: Virt(9), n: 4 },
            Entry::Range { v: Virt(4), range: Range { at: 9, bytes: vec![1, 2, 3], zeros: 40 } },
            Entry::Plugged { v: Virt(8), stamp: 2, from: Place(5), to: Place(6) },
            Entry::Snapshot(Snapshot { id: 3, made: 9, name: "a-name".into(), ended: false }),
            Entry::Ended { id: 3, gone: true },
            Entry::Handed { v: Virt(1 << 50), n: 4, to: 2 },
            Entry::Moved { v: Virt(1 << 39), stamp: 1, from: Place(77) },
        ];
        let s = Summary {
            serial: Serial(5),
            epoch: Epoch(2),
            stamp: 9,
            place: Place(40),
            previous_sum: 8,
            payload: 2,
            next: SegNo(3),
            head: 1,
            group_end: true,
            durable: Serial(3),
            entries,
        };
        let payload = vec![1_u8; 2 * BLOCK_BYTES];
        let (raw, sum) = s.encode(11, std::iter::once(payload.as_slice()));
        assert_eq!(Summary::decode(&raw, Place(40)), Some((s.clone(), sum)));
        assert_eq!(Summary::decode(&raw, Place(41)), None, "a copy elsewhere is none");
        assert_eq!(sum_of(11, &raw, std::iter::once(payload.as_slice())), sum);
        let mut torn = payload;
        torn[8000] ^= 1;
        assert_ne!(sum_of(11, &raw, std::iter::once(torn.as_slice())), sum);
        let mut older = raw.clone();
        older[55] &= !SAYS_DURABLE;
        let read = Summary::decode(&older, Place(40)).map(|s| s.0.durable);
        assert_eq!(read, Some(Serial(0)), "programs before it said nothing");
        assert_eq!(s.blocks().map(|b| b.1.0).collect::<Vec<_>>(), [41, 42]);
    }
}

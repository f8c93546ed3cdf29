//! An object of the log as it lies in the bucket: a head, and behind it blocks, each with a sum of
//! its own so that a part of an object can be read and believed; or a checkpoint's body. It knows
//! no bucket.
//!
//! ```text
//!  0 "CairnOBJ" | 8 sum of the rest of the head | 12 kind | 16 the volume's name (16) | 32 serial
//!  40 epoch | 48 the valid object before it | 56 that one's sum | 60 bytes of the head
//!  64 the newest acknowledged checkpoint | 72 chance | 80 blocks | 84 freed ranges
//!  88 bytes of the writer's name | 92 the body's sum
//!  96 each block's virtual number (8) | freed: first (8), how many (8) | the writer's name
//!  then, if the kind has bit 8: blocks that are moved (4) | records of snapshots (4): each 1 (4)
//!       and the snapshot, it was made; or 2 (4) and its number (4), it has ended
//!  then, if the kind has bit 9: notes (4), each (16)
//!  then  of changes: for each block its sum (4) and its bytes (4096)
//!        of a checkpoint: its body
//! ```

use crate::BLOCK_BYTES;
use lfs::Snapshot;
use lfs::codec::{Reader, Writer};
use std::fmt;

const MAGIC: [u8; 8] = *b"CairnOBJ";
const FIXED_BYTES: usize = 96;
/// A block and its sum.
pub(crate) const SLOT_BYTES: usize = BLOCK_BYTES + 4;
const SUM: &str = "its checksum";
/// What is read of an object of which only the head is wanted: mostly all of it.
pub(crate) const HEAD_GUESS: u64 = 16 << 10;
/// No head is longer.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 20;

/// An object's number in the log, from 1 on: the object with the higher one comes later. It is in
/// the object's name and at byte 32 of its head; the places of its blocks begin with it, and a
/// checkpoint lists those that are there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Serial(pub u64);

impl Serial {
    /// No object's.
    pub(crate) const NONE: Serial = Serial(0);

    /// The next object's.
    pub(crate) const fn next(self) -> Serial {
        self.plus(1)
    }
    /// The one of so many objects later.
    pub(crate) const fn plus(self, objects: u64) -> Serial {
        Serial(self.0 + objects)
    }
    /// The object's before it; before the first, no object's.
    pub(crate) const fn before(self) -> Serial {
        Serial(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One writer's time, told by the serial of the fence that it began with: a later writer's is
/// higher. It is at byte 40 of each head, and in the name of the writer's heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Epoch(pub Serial);

impl Epoch {
    /// Before any fence: of who makes the volume.
    pub(crate) const FIRST: Epoch = Epoch(Serial::NONE);
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What an object of the log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// New contents of blocks, and blocks that have none any more.
    Changes,
    /// The whole table.
    Checkpoint,
    /// The end of one writer's log and the beginning of the next one's.
    Fence,
}

/// A kind has this bit where the object says something about snapshots: programs that know none,
/// and would let their blocks die, take it for damage.
const KNOWS_SNAPSHOTS: u32 = 0x100;

/// A kind has this bit where notes follow (notes.rs).
const HAS_NOTES: u32 = 0x200;

/// What becomes of a snapshot with an object, behind all that it writes and frees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// It was made.
    Made(Snapshot),
    /// The one of this number has ended.
    Ended(u32),
}

/// What an object says where there are snapshots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Said {
    /// So many of the blocks, the last ones, hold what they held before, and have only moved.
    pub(crate) moved: u32,
    pub(crate) records: Vec<Record>,
}

impl Said {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.moved).u32(self.records.len() as u32);
        for record in &self.records {
            match record {
                Record::Made(snapshot) => snapshot.encode(w.u32(1)),
                Record::Ended(id) => drop(w.u32(2).u32(*id)),
            }
        }
    }
    fn decode(r: &mut Reader<'_>) -> Option<Said> {
        let (moved, count) = (r.u32()?, r.u32()?);
        let record = |r: &mut Reader<'_>| match r.u32()? {
            1 => Some(Record::Made(Snapshot::decode(r)?)),
            2 => Some(Record::Ended(r.u32()?)),
            _ => None,
        };
        let records = (0..count).map(|_| record(r)).collect::<Option<_>>()?;
        Some(Said { moved, records })
    }
}

/// An object's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) serial: Serial,
    pub(crate) epoch: Epoch,
    /// The valid object before it, and its sum (I4).
    pub(crate) previous: (Serial, u32),
    /// The newest checkpoint that was acknowledged when this was sealed; 0: none.
    pub(crate) checkpoint: Serial,
    /// Chance: tells an object from every other that somebody may try to put there (I9).
    pub(crate) nonce: u64,
    /// The blocks it holds, in their order.
    pub(crate) written: Vec<u64>,
    /// Blocks that hold nothing any more: first, and how many.
    pub(crate) freed: Vec<(u64, u64)>,
    /// Who writes, in a fence.
    pub(crate) writer: String,
    /// A checkpoint's body's sum.
    pub(crate) body_sum: u32,
    /// None: nothing about snapshots.
    pub(crate) said: Option<Said>,
    /// Of changes, those of the groups in it; of a checkpoint, those that came lately.
    pub(crate) notes: Vec<u128>,
}

/// What decoding has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Decoded {
    /// A head, its sum, and its bytes.
    Head(Box<Head>, u32, usize),
    /// So many bytes are needed.
    Short(usize),
    /// It is not what was put there: why.
    Damaged(&'static str),
}

impl Head {
    pub(crate) fn encode(&self, uuid: &[u8; 16]) -> (Vec<u8>, u32) {
        let kind = match self.kind {
            Kind::Changes => 1,
            Kind::Checkpoint => 2,
            Kind::Fence => 3,
        };
        let mut said = Writer::default();
        self.said.iter().for_each(|s| s.encode(&mut said));
        if !self.notes.is_empty() {
            said.u32(self.notes.len() as u32);
            for note in &self.notes {
                said.bytes(&note.to_le_bytes());
            }
        }
        let kind = kind | self.said.as_ref().map_or(0, |_| KNOWS_SNAPSHOTS);
        let kind = kind | if self.notes.is_empty() { 0 } else { HAS_NOTES };
        let lists = 8 * self.written.len() + 16 * self.freed.len();
        let variable = lists + self.writer.len() + said.0.len();
        let mut w = Writer::default();
        w.bytes(&MAGIC).u32(0).u32(kind).bytes(uuid).u64(self.serial.0).u64(self.epoch.0.0);
        w.u64(self.previous.0.0).u32(self.previous.1).u32((FIXED_BYTES + variable) as u32);
        w.u64(self.checkpoint.0).u64(self.nonce);
        w.u32(self.written.len() as u32).u32(self.freed.len() as u32);
        w.u32(self.writer.len() as u32).u32(self.body_sum);
        assert_eq!(w.0.len(), FIXED_BYTES, "I13: the lists of a head begin elsewhere");
        for v in &self.written {
            w.u64(*v);
        }
        for (v, n) in &self.freed {
            w.u64(*v).u64(*n);
        }
        w.bytes(self.writer.as_bytes()).bytes(&said.0);
        let sum = crc32c::crc32c_append(crc32c::crc32c(uuid), &w.0[12..]);
        w.0[8..12].copy_from_slice(&sum.to_le_bytes());
        let again = Head::decode(uuid, &w.0);
        let is_same = matches!(&again, Decoded::Head(h, s, n)
            if **h == *self && *s == sum && *n == w.0.len());
        assert!(is_same, "I13: the head of {} is read as another one", self.serial);
        (w.0, sum)
    }

    pub(crate) fn decode(uuid: &[u8; 16], raw: &[u8]) -> Decoded {
        let mut r = Reader(raw);
        if r.bytes(8) != Some(&MAGIC) {
            return Decoded::Damaged(SUM);
        }
        let Some(Ok(bytes)) = raw.get(60..64).map(<[u8; 4]>::try_from) else {
            return Decoded::Damaged(SUM);
        };
        let head_bytes = u32::from_le_bytes(bytes) as usize;
        if !(FIXED_BYTES..=HEAD_BYTES_MAX).contains(&head_bytes) {
            return Decoded::Damaged(SUM);
        }
        let Some(head) = raw.get(..head_bytes) else { return Decoded::Short(head_bytes) };
        let sum = crc32c::crc32c_append(crc32c::crc32c(uuid), &head[12..]);
        if r.u32() != Some(sum) {
            return Decoded::Damaged(SUM);
        }
        let mut field = "its kind";
        match Head::fields(uuid, &mut Reader(&head[12..]), &mut field) {
            Some(head) => Decoded::Head(Box::new(head), sum, head_bytes),
            None => Decoded::Damaged(field),
        }
    }

    /// None: `field` cannot be, which is the one that was looked at last.
    fn fields(uuid: &[u8; 16], r: &mut Reader<'_>, field: &mut &'static str) -> Option<Head> {
        let kind = r.u32()?;
        let (knows_snapshots, has_notes) = (kind & KNOWS_SNAPSHOTS != 0, kind & HAS_NOTES != 0);
        let kind = match kind & !(KNOWS_SNAPSHOTS | HAS_NOTES) {
            1 => Kind::Changes,
            2 => Kind::Checkpoint,
            3 => Kind::Fence,
            _ => return None,
        };
        *field = "the volume's name";
        if r.bytes(16)? != uuid {
            return None;
        }
        let (serial, epoch) = (Serial(r.u64()?), Epoch(Serial(r.u64()?)));
        let previous = (Serial(r.u64()?), r.u32()?);
        let (_, checkpoint, nonce) = (r.u32()?, Serial(r.u64()?), r.u64()?);
        let (blocks, ranges, text, body_sum) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        *field = "how many blocks it holds";
        let written = (0..blocks).map(|_| r.u64()).collect::<Option<_>>()?;
        *field = "how many ranges it frees";
        let freed = (0..ranges).map(|_| Some((r.u64()?, r.u64()?))).collect::<Option<_>>()?;
        *field = "its writer";
        let writer = String::from_utf8(r.bytes(text as usize)?.to_vec()).ok()?;
        *field = "what it says of snapshots";
        let said = if knows_snapshots { Some(Said::decode(r)?) } else { None };
        if said.as_ref().is_some_and(|s| s.moved > blocks) {
            return None;
        }
        *field = "its notes";
        let count = if has_notes { r.u32()? } else { 0 };
        let note = |_| Some(u128::from_le_bytes(r.bytes(16)?.try_into().ok()?));
        let notes = (0..count).map(note).collect::<Option<_>>()?;
        Some(Head {
            kind,
            serial,
            epoch,
            previous,
            checkpoint,
            nonce,
            written,
            freed,
            writer,
            body_sum,
            said,
            notes,
        })
    }
}

/// The sum of the block that is the `index`th of its object: it says where it belongs.
pub(crate) fn block_sum(uuid: &[u8; 16], (serial, index): (Serial, u64), block: &[u8]) -> u32 {
    let mut at = Writer::default();
    at.bytes(uuid).u64(serial.0).u64(index);
    crc32c::crc32c_append(crc32c::crc32c(&at.0), block)
}

/// The name of an object of the log.
pub(crate) fn name(Serial(serial): Serial) -> String {
    format!("{LOG}{serial:016x}")
}

/// What the names of the log's objects begin with.
pub(crate) const LOG: &str = "log/";

/// The serial in a name; None: it is none of the log's.
pub(crate) fn serial_of(name: &str) -> Option<Serial> {
    let digits = name.strip_prefix(LOG)?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok().map(Serial))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            kind: Kind::Changes,
            serial: Serial(9),
            epoch: Epoch(Serial(4)),
            previous: (Serial(8), 77),
            checkpoint: Serial(3),
            nonce: 5,
            written: vec![1, 1 << 40],
            freed: vec![(7, 3)],
            writer: "somebody".into(),
            body_sum: 6,
            said: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn what_was_encoded_is_decoded_and_a_changed_byte_is_seen() {
        let (raw, sum) = head().encode(&[1; 16]);
        let decoded = Head::decode(&[1; 16], &raw);
        assert_eq!(decoded, Decoded::Head(Box::new(head()), sum, raw.len()));
        assert_eq!(Head::decode(&[1; 16], &raw[..100]), Decoded::Short(raw.len()));
        assert_eq!(Head::decode(&[2; 16], &raw), Decoded::Damaged(SUM), "another volume's");
        let made = Snapshot { id: 3, made: 1 << 33, name: "a".into(), ended: false };
        let records = vec![Record::Ended(2), Record::Made(made)];
        let said = Head { said: Some(Said { moved: 1, records }), ..head() };
        let (with, sum) = said.encode(&[1; 16]);
        let decoded = Head::decode(&[1; 16], &with);
        assert_eq!(decoded, Decoded::Head(Box::new(said.clone()), sum, with.len()));
        let noted = Head { notes: vec![7, 1 << 100], ..said };
        let (with, sum) = noted.encode(&[1; 16]);
        let decoded = Head::decode(&[1; 16], &with);
        assert_eq!(decoded, Decoded::Head(Box::new(noted), sum, with.len()));
        for i in 0..raw.len() {
            let mut other = raw.clone();
            other[i] ^= 1;
            assert!(!matches!(Head::decode(&[1; 16], &other), Decoded::Head(..)), "byte {i}");
        }
    }

    #[test]
    fn names_are_in_the_order_of_serials() {
        let rises = |a, b| name(Serial(a)) < name(Serial(b));
        assert!(rises(9, 10) && rises(255, 256));
        assert_eq!(serial_of(&name(Serial(1 << 50))), Some(Serial(1 << 50)));
        assert_eq!(serial_of("log/abc"), None);
    }
}

//! What is in a near log's entries: groups, and marks of objects. The log has its own sums; groups
//! of an encrypted volume are sealed with its key. It knows no log.
//!
//! ```text
//!  mark   2 (4) | serial (8) | the object's sum (4) | the last group in it or before it (8)
//!  group  1 (4) | number (8) | 0 (8) | changes (4), each:
//!           0 (4) a whole block (8) and its bytes | 1 (4) a block (8), ranges (4): at (4), bytes
//!           (4), these | 2 (4) first block (8) and how many (8) hold nothing any more
//!           | 3 (4) a note (16)
//!         3 (4) | number (8) | the log's epoch (8) | parts (4), each its length (4) and the sealed
//!           bytes of what follows the 1, the number and the 0
//! ```

use crate::BLOCK_BYTES;
use crate::at_rest::{At, PART_BYTES, SEALED_MORE, Sealer, Worth};
use crate::object::Serial;
use env::Block;
use lfs::codec::{Reader, Writer};
use lfs::{Change, Group, Virt};
use wal::Epoch;

/// An entry.
pub(crate) enum Record {
    /// A group's number, and its changes as they are encoded.
    Group(u64, Vec<u8>),
    /// An object is about to be put.
    Mark { serial: Serial, sum: u32, upto: u64 },
}

/// No group has this number, or a higher one.
const NUMBERS_END: u64 = 1 << 62;

/// The longest entry that a group can become.
pub(crate) fn room_of(group: &Group) -> u64 {
    let of = |c: &Change| match c {
        Change::Whole(..) => 12 + BLOCK_BYTES,
        Change::Bytes { ranges, .. } => 16 + ranges.iter().map(|r| 8 + r.1.len()).sum::<usize>(),
        Change::Free(..) | Change::Note(..) => 20,
    };
    let body = 4 + group.changes.iter().map(of).sum::<usize>();
    let parts = body.div_ceil(PART_BYTES);
    (24 + body + parts * (4 + SEALED_MORE)) as u64
}

/// The name under which a group's parts are sealed: another one for each group of each opening.
fn sealed_as(Epoch(epoch): Epoch, number: u64) -> String {
    format!("near/{epoch:016x}/{number:016x}")
}

impl Record {
    pub(crate) fn group(number: u64, group: &Group) -> Record {
        let mut w = Writer::default();
        w.u32(group.changes.len() as u32);
        for change in &group.changes {
            match change {
                Change::Whole(v, block) => drop(w.u32(0).u64(v.0).bytes(block.bytes())),
                Change::Bytes { v, ranges, .. } => {
                    w.u32(1).u64(v.0).u32(ranges.len() as u32);
                    for (at, bytes) in ranges {
                        w.u32(*at as u32).u32(bytes.len() as u32).bytes(bytes);
                    }
                }
                Change::Free(v, n) => drop(w.u32(2).u64(v.0).u64(*n)),
                Change::Note(note) => drop(w.u32(3).bytes(&note.to_le_bytes())),
            }
        }
        Record::Group(number, w.0)
    }

    /// The entry, in this epoch of the log.
    pub(crate) fn encode(&self, epoch: Epoch, sealer: Option<&Sealer>) -> Vec<u8> {
        let mut w = Writer::default();
        match (self, sealer) {
            (Record::Mark { serial, sum, upto }, _) => {
                w.u32(2).u64(serial.0).u32(*sum).u64(*upto);
            }
            (Record::Group(number, body), None) => drop(w.u32(1).u64(*number).u64(0).bytes(body)),
            (Record::Group(number, body), Some(sealer)) => {
                let (name, parts) = (sealed_as(epoch, *number), body.chunks(PART_BYTES));
                let count = parts.len() as u32;
                w.u32(3).u64(*number).u64(epoch.0).u32(count);
                for (index, part) in (0..).zip(parts) {
                    let sealed = sealer.seal(
                        At { name: &name, index, parts: count },
                        part,
                        &mut Worth::default(),
                    );
                    w.u32(sealed.len() as u32).bytes(&sealed);
                }
            }
        }
        // A copy of each group, and of an encrypted volume's as much work as sealing it.
        debug_assert!(self.is_read_from(&w.0, sealer), "N7: an entry is read as another one");
        w.0
    }

    fn is_read_from(&self, raw: &[u8], sealer: Option<&Sealer>) -> bool {
        match (self, Record::decode(raw, sealer)) {
            (Record::Group(n, body), Some(Record::Group(m, again))) => (*n, body) == (m, &again),
            (
                Record::Mark { serial, sum, upto },
                Some(Record::Mark { serial: s, sum: c, upto: u }),
            ) => (*serial, *sum, *upto) == (s, c, u),
            _ => false,
        }
    }

    /// The reverse; None: it is none of these, or not sealed with this key.
    pub(crate) fn decode(raw: &[u8], sealer: Option<&Sealer>) -> Option<Record> {
        let mut r = Reader(raw);
        match (r.u32()?, sealer) {
            (2, _) => {
                let (serial, sum, upto) = (Serial(r.u64()?), r.u32()?, r.u64()?);
                (upto < NUMBERS_END).then_some(())?;
                Some(Record::Mark { serial, sum, upto })
            }
            (1, None) => {
                let (number, _) = (r.u64()?, r.u64()?);
                (1..NUMBERS_END).contains(&number).then_some(())?;
                Some(Record::Group(number, r.0.to_vec()))
            }
            (3, Some(sealer)) => {
                let (number, epoch, parts) = (r.u64()?, Epoch(r.u64()?), r.u32()?);
                (1..NUMBERS_END).contains(&number).then_some(())?;
                let (name, mut body) = (sealed_as(epoch, number), Vec::new());
                for index in 0..parts {
                    let len = r.u32()? as usize;
                    let at = At { name: &name, index, parts };
                    body.extend(sealer.open(at, r.bytes(len)?).ok()?);
                }
                Some(Record::Group(number, body))
            }
            _ => None,
        }
    }
}

/// A group from its changes as they are encoded; None: they are none of a volume of so many blocks.
pub(crate) fn group_of(body: &[u8], blocks: u64) -> Option<Group> {
    let mut r = Reader(body);
    let count = r.u32()?;
    let is_there = |v: u64, n: u64| v.checked_add(n).is_some_and(|end| end <= blocks);
    let mut changes = Vec::new();
    for _ in 0..count {
        let kind = r.u32()?;
        if kind == 3 {
            changes.push(Change::Note(u128::from_le_bytes(r.bytes(16)?.try_into().ok()?)));
            continue;
        }
        let v = r.u64()?;
        let change = match kind {
            0 => Change::Whole(Virt(v), Block::copy_of(r.bytes(BLOCK_BYTES)?)),
            1 => {
                let mut ranges = Vec::new();
                for _ in 0..r.u32()? {
                    let (at, len) = (r.u32()? as usize, r.u32()? as usize);
                    let bytes = r.bytes(len)?.to_vec();
                    (at + len <= BLOCK_BYTES).then(|| ranges.push((at, bytes)))?;
                }
                Change::Bytes { v: Virt(v), ranges, image: None }
            }
            2 => Change::Free(Virt(v), r.u64()?),
            _ => return None,
        };
        let n = if let Change::Free(_, n) = change { n } else { 1 };
        is_there(v, n).then(|| changes.push(change))?;
    }
    Some(Group { changes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::at_rest::{AtRest, Key};

    fn group() -> Group {
        let ranges = vec![(0, vec![1, 2]), (4000, vec![3; 96])];
        let changes = vec![
            Change::Whole(Virt(7), Block::copy_of(&[5; BLOCK_BYTES])),
            Change::Bytes { v: Virt(8), ranges, image: None },
            Change::Free(Virt(1), 9),
            Change::Note(5 << 90),
        ];
        Group { changes }
    }

    #[test]
    fn what_was_encoded_is_decoded_with_the_key_and_not_beyond_the_volume() {
        let key = Key::parse(&[5; 32]).unwrap();
        let sealer = Sealer::new(&AtRest { compressed: false, key: Some(key) });
        for sealer in [None, Some(&sealer)] {
            let raw = Record::group(3, &group()).encode(Epoch(9), sealer);
            assert!(raw.len() as u64 <= room_of(&group()));
            let Some(Record::Group(3, body)) = Record::decode(&raw, sealer) else {
                panic!("it is a group of this number")
            };
            let back = group_of(&body, 10).unwrap();
            assert_eq!(format!("{back:?}"), format!("{:?}", group()));
            assert!(group_of(&body, 9).is_none(), "a range beyond the volume");
            for n in 0..body.len() {
                assert!(group_of(&body[..n], 10).is_none(), "cut short");
            }
        }
        let raw = Record::group(3, &group()).encode(Epoch(9), Some(&sealer));
        assert!(Record::decode(&raw, None).is_none(), "the key is missing");
        let mark = Record::Mark { serial: Serial(1), sum: 2, upto: 3 }.encode(Epoch(0), None);
        let decoded = Record::decode(&mark, Some(&sealer));
        assert!(matches!(decoded, Some(Record::Mark { serial: Serial(1), sum: 2, upto: 3 })));
    }
}

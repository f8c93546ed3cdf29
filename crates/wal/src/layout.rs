//! The log's bytes: superblock, group header, entry header, and where an LSN lies. Encoding and
//! decoding only; a checksum that does not match reads as "nothing there".

use std::fmt;

/// A position in the endless log, in bytes. An entry's LSN is where its header begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Lsn(pub u64);

impl Lsn {
    /// So many bytes further on.
    pub(crate) const fn plus(self, bytes: u64) -> Lsn {
        Lsn(self.0 + bytes)
    }
    /// The bytes between `earlier`, which does not lie behind it, and this.
    pub(crate) fn since(self, earlier: Lsn) -> u64 {
        assert!(earlier <= self, "{earlier} lies behind {self}, which is to be the later one");
        self.0 - earlier.0
    }
    /// The same; 0 if `earlier` lies behind it.
    pub(crate) const fn saturating_since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Numbers the openings for writing, of which the log's making is the first: a later one has a
/// higher epoch. The superblock has the newest, every group the one that it was written in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The next opening's.
    pub(crate) const fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
    /// As an entry has it: the lower half, because its group has all of it.
    pub(crate) const fn low(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A client's place in the table of clients.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientId(pub u16);

pub(crate) const SLOT_BYTES: usize = 4096;
pub(crate) const DATA_AT: u64 = 2 * SLOT_BYTES as u64;
pub(crate) const GROUP_HEADER: usize = 48;
pub(crate) const ENTRY_HEADER: usize = 20;
pub(crate) const FIRST: u16 = 1;
pub(crate) const LAST: u16 = 2;
/// A client that holds nothing.
pub(crate) const IDLE: Lsn = Lsn(u64::MAX);

const MAGIC: &[u8; 8] = b"CairnLog";
const GROUP_MAGIC: u32 = 0x474c_5743; // "CWLG"
const VERSION: u32 = 1;
pub(crate) const CLIENTS_AT: usize = 128;
pub(crate) const CLIENT_BYTES: usize = 40;
pub(crate) const CLIENTS_MAX: usize = (SLOT_BYTES - CLIENTS_AT) / CLIENT_BYTES;
// The numbers before the clients lie in the first sector with at least one of these, so that a
// superblock of few is never torn; and a slot holds all of them.
const _: () = assert!(CLIENTS_AT + CLIENT_BYTES <= 512);
const _: () = assert!(CLIENTS_AT + CLIENTS_MAX * CLIENT_BYTES <= SLOT_BYTES);

fn le16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("4 bytes"))
}
fn le64(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("8 bytes"))
}
fn put(b: &mut [u8], at: usize, v: &[u8]) {
    b[at..at + v.len()].copy_from_slice(v);
}

/// A client as the superblock has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClientSlot {
    pub(crate) id: [u8; 16],
    pub(crate) label: [u8; 16],
    /// It needs nothing below this LSN.
    pub(crate) trim: Lsn,
}

impl ClientSlot {
    /// The label as text.
    pub(crate) fn label(&self) -> String {
        String::from_utf8_lossy(&self.label).trim_end_matches('\0').to_owned()
    }

    /// What people know it by: the label, or the id where there is none.
    pub(crate) fn shown(&self) -> String {
        let label = self.label();
        if label.is_empty() { self.id.iter().map(|b| format!("{b:02x}")).collect() } else { label }
    }
}

/// The log's superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    pub(crate) uuid: [u8; 16],
    pub(crate) generation: u64,
    pub(crate) epoch: Epoch,
    pub(crate) epoch_start: Lsn,
    /// Nobody needs anything below this LSN.
    pub(crate) head: Lsn,
    /// When it was written, everything that had been appended was below this LSN; 0: not known.
    pub(crate) end: Lsn,
    pub(crate) segment_bytes: u32,
    pub(crate) segments: u32,
    pub(crate) unit: u32,
    pub(crate) clients: Vec<ClientSlot>,
}

impl Superblock {
    /// Bytes of entries and headers that the log can hold.
    pub(crate) fn capacity(&self) -> u64 {
        u64::from(self.segment_bytes) * u64::from(self.segments)
    }
    /// Where on the area an LSN lies.
    pub(crate) fn place(&self, lsn: Lsn) -> u64 {
        DATA_AT + lsn.0 % self.capacity()
    }
    /// The start of the segment that `lsn` lies in.
    pub(crate) fn floor(&self, lsn: Lsn) -> Lsn {
        Lsn(lsn.0 - lsn.0 % u64::from(self.segment_bytes))
    }
    /// The start of the next segment.
    pub(crate) fn next_segment(&self, lsn: Lsn) -> Lsn {
        self.floor(lsn).plus(u64::from(self.segment_bytes))
    }
    /// Does a segment begin there?
    pub(crate) fn begins_segment(&self, lsn: Lsn) -> bool {
        lsn.0.is_multiple_of(u64::from(self.segment_bytes))
    }
    /// Does a unit begin there?
    pub(crate) fn begins_unit(&self, lsn: Lsn) -> bool {
        lsn.0.is_multiple_of(u64::from(self.unit))
    }
    /// Nothing beyond the tail is there to be needed. A client may have become active durably, and
    /// what it then appended not: the first entry that it appends now may lie before the place of
    /// that one, and would be missed.
    pub(crate) fn forget_beyond(&mut self, tail: Lsn) {
        self.head = self.head.min(tail);
        for c in self.clients.iter_mut().filter(|c| c.trim != IDLE) {
            c.trim = c.trim.min(tail);
        }
    }
    /// The end of what may be written while this is the durable superblock.
    pub(crate) fn limit(&self) -> Lsn {
        self.floor(self.head).plus(self.capacity())
    }
    /// Rounds up to whole units.
    pub(crate) fn pad(&self, n: u64) -> u64 {
        n.next_multiple_of(u64::from(self.unit))
    }
    /// Where the padding of what ends there ends: the first unit from there on begins.
    pub(crate) fn padded(&self, end: Lsn) -> Lsn {
        Lsn(self.pad(end.0))
    }
    /// What checksums of this log begin with.
    pub(crate) fn seed(&self) -> u32 {
        crc32c::crc32c(&self.uuid)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        assert!(self.clients.len() <= CLIENTS_MAX);
        assert!(self.makes_sense(), "a superblock that nobody would accept is written");
        let mut b = vec![0; SLOT_BYTES];
        put(&mut b, 0, MAGIC);
        put(&mut b, 12, &VERSION.to_le_bytes());
        put(&mut b, 16, &self.uuid);
        put(&mut b, 32, &self.generation.to_le_bytes());
        put(&mut b, 40, &self.epoch.0.to_le_bytes());
        put(&mut b, 48, &self.epoch_start.0.to_le_bytes());
        put(&mut b, 56, &self.head.0.to_le_bytes());
        put(&mut b, 64, &self.segment_bytes.to_le_bytes());
        put(&mut b, 68, &self.segments.to_le_bytes());
        put(&mut b, 72, &self.unit.to_le_bytes());
        put(&mut b, 76, &(self.clients.len() as u32).to_le_bytes());
        put(&mut b, 80, &self.end.0.to_le_bytes());
        for (i, c) in self.clients.iter().enumerate() {
            let at = CLIENTS_AT + i * CLIENT_BYTES;
            put(&mut b, at, &c.id);
            put(&mut b, at + 16, &c.label);
            put(&mut b, at + 32, &c.trim.0.to_le_bytes());
        }
        let crc = crc32c::crc32c(&b[12..]);
        put(&mut b, 8, &crc.to_le_bytes());
        let read = Superblock::decode(&b);
        assert_eq!(read.as_ref(), Some(self), "I5: a superblock that reads as another is written");
        b
    }

    /// Is there a superblock, whole or not?
    pub(crate) fn is_meant(b: &[u8]) -> bool {
        b.starts_with(MAGIC)
    }

    /// The generation that a slot claims, whole or not.
    pub(crate) fn generation_of(b: &[u8]) -> u64 {
        le64(b, 32)
    }

    /// The number of clients that a slot claims, whole or not.
    pub(crate) fn clients_of(b: &[u8]) -> usize {
        le32(b, 76) as usize
    }

    /// The slot's superblock if nothing but its number of clients is damaged, which was this one.
    pub(crate) fn decode_with_clients(b: &[u8], clients: usize) -> Option<Superblock> {
        let mut b = b.to_vec();
        put(&mut b, 76, &(clients as u32).to_le_bytes());
        Superblock::decode(&b)
    }

    /// The slot's superblock if nothing but its generation is damaged, which was this one.
    pub(crate) fn decode_as(b: &[u8], generation: u64) -> Option<Superblock> {
        let mut b = b.to_vec();
        put(&mut b, 32, &generation.to_le_bytes());
        Superblock::decode(&b)
    }

    /// The slot's superblock, if it is whole and makes sense.
    pub(crate) fn decode(b: &[u8]) -> Option<Superblock> {
        if b.len() < SLOT_BYTES || !b.starts_with(MAGIC) || le32(b, 12) != VERSION {
            return None;
        }
        if crc32c::crc32c(&b[12..SLOT_BYTES]) != le32(b, 8) {
            return None;
        }
        let clients = (le32(b, 76) as usize <= CLIENTS_MAX).then(|| le32(b, 76) as usize)?;
        let slot = |i: usize| {
            let at = CLIENTS_AT + i * CLIENT_BYTES;
            ClientSlot {
                id: b[at..at + 16].try_into().expect("16 bytes"),
                label: b[at + 16..at + 32].try_into().expect("16 bytes"),
                trim: Lsn(le64(b, at + 32)),
            }
        };
        let sb = Superblock {
            uuid: b[16..32].try_into().expect("16 bytes"),
            generation: le64(b, 32),
            epoch: Epoch(le64(b, 40)),
            epoch_start: Lsn(le64(b, 48)),
            head: Lsn(le64(b, 56)),
            end: Lsn(le64(b, 80)),
            segment_bytes: le32(b, 64),
            segments: le32(b, 68),
            unit: le32(b, 72),
            clients: (0..clients).map(slot).collect(),
        };
        sb.makes_sense().then_some(sb)
    }

    pub(crate) fn makes_sense(&self) -> bool {
        let unit_ok = self.unit.is_power_of_two() && (512..=65536).contains(&self.unit);
        let seg_ok = unit_ok
            && self.segment_bytes.is_multiple_of(self.unit)
            && (4096..=1 << 28).contains(&self.segment_bytes);
        let far = u64::MAX / 4; // no position and no number of these comes near its end
        let kept = |c: &ClientSlot| c.trim >= self.head && (c.id != [0; 16] || c.trim == IDLE);
        seg_ok
            && (4..=1 << 20).contains(&self.segments)
            && (1..far).contains(&self.generation)
            && self.epoch.0 < far
            && self.head.0 < far
            && self.epoch_start <= self.limit()
            && self.begins_unit(self.epoch_start)
            && self.clients.iter().all(kept)
    }
}

/// A group's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupHeader {
    pub(crate) lsn: Lsn,
    pub(crate) epoch: Epoch,
    /// The end of the group before it.
    pub(crate) prev: Lsn,
    /// What was durable when it was written lies below this.
    pub(crate) durable: Lsn,
    pub(crate) bytes: u32,
    pub(crate) entries: u32,
}

impl GroupHeader {
    pub(crate) fn encode(&self, seed: u32, b: &mut [u8]) {
        let GroupHeader { lsn, prev, durable, .. } = *self;
        assert!(prev <= lsn, "I6: the group at {lsn} follows one that ends at {prev}");
        assert!(durable <= prev, "I6: the group at {lsn} says that {durable} is durable");
        assert!(self.bytes as usize > GROUP_HEADER && self.entries > 0, "a group of nothing");
        put(b, 0, &GROUP_MAGIC.to_le_bytes());
        put(b, 8, &self.lsn.0.to_le_bytes());
        put(b, 16, &self.epoch.0.to_le_bytes());
        put(b, 24, &self.prev.0.to_le_bytes());
        put(b, 32, &self.durable.0.to_le_bytes());
        put(b, 40, &self.bytes.to_le_bytes());
        put(b, 44, &self.entries.to_le_bytes());
        let crc = crc32c::crc32c_append(seed, &b[8..GROUP_HEADER]);
        put(b, 4, &crc.to_le_bytes());
        let read = GroupHeader::decode(seed, b);
        assert_eq!(read, Some(*self), "I6: a header that reads as another is written");
    }

    pub(crate) fn decode(seed: u32, b: &[u8]) -> Option<GroupHeader> {
        if b.len() < GROUP_HEADER || le32(b, 0) != GROUP_MAGIC {
            return None;
        }
        if crc32c::crc32c_append(seed, &b[8..GROUP_HEADER]) != le32(b, 4) {
            return None;
        }
        Some(GroupHeader {
            lsn: Lsn(le64(b, 8)),
            epoch: Epoch(le64(b, 16)),
            prev: Lsn(le64(b, 24)),
            durable: Lsn(le64(b, 32)),
            bytes: le32(b, 40),
            entries: le32(b, 44),
        })
    }
}

/// One part of an entry; most entries have one part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryHeader {
    pub(crate) len: u32,
    /// Where in the entry this part begins.
    pub(crate) offset: u32,
    /// The lower half of its group's epoch.
    pub(crate) epoch: u32,
    pub(crate) client: u16,
    pub(crate) flags: u16,
}

impl EntryHeader {
    /// Appends header and bytes to a group; `lsn` is where they will lie.
    pub(crate) fn append(&self, seed: u32, lsn: Lsn, bytes: &[u8], out: &mut Vec<u8>) {
        assert_eq!(self.len as usize, bytes.len());
        let whole = self.flags & FIRST == 0 || self.offset == 0;
        assert!(whole, "the first part of an entry begins at its byte {}", self.offset);
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.client.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(bytes);
        let crc = EntryHeader::crc(seed, lsn, &out[at + 4..]);
        put(out, at, &crc.to_le_bytes());
        let read = EntryHeader::peek(&out[at..]);
        assert_eq!(read, Some(*self), "an entry's header that reads as another is written");
    }

    fn crc(seed: u32, lsn: Lsn, rest: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(seed, &lsn.0.to_le_bytes()), rest)
    }

    /// The header alone, unchecked, if there are bytes enough.
    pub(crate) fn peek(b: &[u8]) -> Option<EntryHeader> {
        (b.len() >= ENTRY_HEADER).then(|| EntryHeader {
            len: le32(b, 4),
            offset: le32(b, 8),
            epoch: le32(b, 12),
            client: le16(b, 16),
            flags: le16(b, 18),
        })
    }

    /// The part at the start of `b` with its bytes, if the checksum holds (or is not asked for).
    pub(crate) fn decode(
        seed: u32,
        lsn: Lsn,
        b: &[u8],
        check: bool,
    ) -> Option<(EntryHeader, &[u8])> {
        let h = EntryHeader::peek(b)?;
        let end = ENTRY_HEADER.checked_add(h.len as usize).filter(|&e| e <= b.len())?;
        if check && EntryHeader::crc(seed, lsn, &b[4..end]) != le32(b, 0) {
            return None;
        }
        Some((h, &b[ENTRY_HEADER..end]))
    }
}

//! Partition tables: which part of a disk is which partition. It reads GUID tables (UEFI 2.10, 5.3)
//! of disks with sectors of 512 bytes or 4 KiB, and the four entries of a master boot record.

use crate::bytes::{le32, le64};

/// One partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partition {
    /// As Linux counts them: 1 is the table's first entry, used or not.
    pub number: u32,
    /// Its first byte on the disk.
    pub begins: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

/// A disk's table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// "GPT" or "DOS".
    pub kind: &'static str,
    /// Those that there are, in the table's order.
    pub partitions: Vec<Partition>,
}

/// The most entries that are looked at, as many as tables have.
const ENTRIES_MAX: u32 = 128;
const SECTOR_BYTES: u64 = 512;
/// Of a partition that says what a GUID table is to those who only know the old one.
const PROTECTIVE: u8 = 0xee;

/// The table in a disk's first [`crate::foreign::LOOK_BYTES`], if there is one. What it says of
/// places is not to be trusted: the disk may be smaller.
pub fn table(head: &[u8]) -> Option<Table> {
    gpt(head).or_else(|| mbr(head))
}

/// Only a GUID table: nothing else has its mark.
pub(crate) fn gpt(head: &[u8]) -> Option<Table> {
    let sector = [512, 4096].into_iter().find(|s| head.get(*s..s + 8) == Some(b"EFI PART"))?;
    let header = head.get(sector..sector + 92)?;
    let (entries, entry_bytes) = (le32(header, 80), le32(header, 84));
    let first = usize::try_from(le64(header, 72)).ok().and_then(|lba| lba.checked_mul(sector));
    let first = first.unwrap_or(usize::MAX);
    let mut partitions = Vec::new();
    for n in 0..entries.min(ENTRIES_MAX) {
        let at = (n as usize).checked_mul(entry_bytes as usize).and_then(|n| n.checked_add(first));
        let entry = at.and_then(|at| head.get(at..at.checked_add(48)?));
        let Some(entry) = entry else { break };
        let (first, last) = (le64(entry, 32), le64(entry, 40));
        if entry[..16].iter().any(|b| *b != 0) {
            let sectors = last.checked_sub(first).and_then(|n| n.checked_add(1));
            partitions.extend(sectors.and_then(|s| placed(n + 1, first, s, sector as u64)));
        }
    }
    Some(Table { kind: "GPT", partitions })
}

/// A master boot record with at least one partition. Boot sectors of file systems look like one
/// without.
pub(crate) fn mbr(head: &[u8]) -> Option<Table> {
    if head.get(510..512) != Some(b"\x55\xaa") {
        return None;
    }
    let entries = (1..).zip(head[446..510].chunks_exact(16));
    let flagged =
        entries.filter(|(_, e)| matches!(e[0], 0 | 0x80) && !matches!(e[4], 0 | PROTECTIVE));
    let found = flagged.filter_map(|(number, e)| {
        placed(number, le32(e, 8).into(), le32(e, 12).into(), SECTOR_BYTES)
    });
    let partitions: Vec<Partition> = found.collect();
    (!partitions.is_empty()).then_some(Table { kind: "DOS", partitions })
}

fn placed(number: u32, first: u64, sectors: u64, sector_bytes: u64) -> Option<Partition> {
    let begins = first.checked_mul(sector_bytes)?;
    let bytes = sectors.checked_mul(sector_bytes).filter(|b| *b > 0)?;
    begins.checked_add(bytes)?;
    Some(Partition { number, begins, bytes })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::foreign::LOOK_BYTES;

    pub(crate) fn with(marks: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; LOOK_BYTES];
        marks.iter().for_each(|(at, m)| head[*at..at + m.len()].copy_from_slice(m));
        head
    }

    fn old_entry(kind: u8, first: u32, sectors: u32) -> [u8; 16] {
        let mut entry = [0; 16];
        entry[4] = kind;
        entry[8..12].copy_from_slice(&first.to_le_bytes());
        entry[12..16].copy_from_slice(&sectors.to_le_bytes());
        entry
    }

    #[test]
    fn entries_of_an_old_table_keep_their_numbers() {
        let (second, signature) = (old_entry(0x83, 2048, 8), b"\x55\xaa");
        let head = with(&[(446 + 16, &second), (510, signature)]);
        let found = table(&head).expect("a table").partitions;
        assert_eq!(found, [Partition { number: 2, begins: 1 << 20, bytes: 4096 }]);
        assert_eq!(table(&with(&[(510, signature)])), None, "a boot sector without partitions");
        let protective = old_entry(PROTECTIVE, 1, 100);
        assert_eq!(table(&with(&[(446, &protective), (510, signature)])), None);
    }

    #[test]
    fn entries_of_a_guid_table_keep_their_numbers() {
        let mut header = [0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[72..80].copy_from_slice(&2_u64.to_le_bytes());
        header[80..84].copy_from_slice(&4_u32.to_le_bytes());
        header[84..88].copy_from_slice(&128_u32.to_le_bytes());
        let mut entry = [0; 128];
        entry[0] = 1;
        entry[32..40].copy_from_slice(&40_u64.to_le_bytes());
        entry[40..48].copy_from_slice(&47_u64.to_le_bytes());
        let head = with(&[(512, &header), (1024 + 2 * 128, &entry)]);
        let found = table(&head).expect("a table").partitions;
        assert_eq!(found, [Partition { number: 3, begins: 20480, bytes: 4096 }]);
    }

    #[test]
    fn hostile_tables_name_nothing_beyond_what_numbers_can() {
        let mut header = [0xff; 92];
        header[..8].copy_from_slice(b"EFI PART");
        assert_eq!(table(&with(&[(512, &header)])).expect("a table").partitions, []);
        header[72..80].copy_from_slice(&2_u64.to_le_bytes());
        header[84..88].copy_from_slice(&0_u32.to_le_bytes());
        let head = with(&[(512, &header), (1024, &[0xff; 128])]);
        assert_eq!(table(&head).expect("a table").partitions, []);
        assert_eq!(table(&head[..600]), None, "cut short");
        assert_eq!(table(&head[..1030]).expect("a table").partitions, []);
    }
}

//! What lies on a disk that holds no volume of ours: other file systems, containers, compressed and
//! other images, partition tables, by their magic numbers as in magic(5) and blkid(8). It reads the
//! marks only, and knows no volume.

use crate::bytes::{le32, le64};

/// Something else, by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// With an article: "an XFS file system".
    pub name: String,
    /// What to do about it. It never costs what is there.
    pub advice: String,
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "this is {}, and no volume: {}", self.name, self.advice)
    }
}

/// What to do about each kind.
#[derive(Clone, Copy)]
enum Kind {
    /// Linux mounts it.
    FileSystem(&'static str),
    /// A program makes a plain image of it.
    Packed(&'static str),
    /// Something lies inside, behind another device.
    Around(&'static str),
}

/// Where a mark lies, the mark, what has it.
type Mark = (usize, &'static [u8], &'static str, Kind);

use Kind::{Around, FileSystem, Packed};

const MARKS: [Mark; 27] = [
    (0, b"XFSB", "an XFS file system", FileSystem("xfs")),
    (0x1_0040, b"_BHRfS_M", "a Btrfs file system", FileSystem("btrfs")),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system", FileSystem("f2fs")),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system", FileSystem("erofs")),
    (0x1_0034, b"ReIsEr", "a ReiserFS file system", FileSystem("reiserfs")),
    (0x8000, b"JFS1", "a JFS file system", FileSystem("jfs")),
    (1030, b"\x34\x34", "a NILFS2 file system", FileSystem("nilfs2")),
    (3, b"NTFS    ", "an NTFS file system", FileSystem("ntfs3")),
    (3, b"EXFAT   ", "an exFAT file system", FileSystem("exfat")),
    (82, b"FAT32   ", "a FAT file system", FileSystem("vfat")),
    (54, b"FAT1", "a FAT file system", FileSystem("vfat")),
    (0, b"hsqs", "a SquashFS image", FileSystem("squashfs")),
    (0x8001, b"CD001", "an ISO 9660 image", FileSystem("iso9660")),
    (0, b"QFI\xfb", "a qcow2 image", Packed("qemu-img convert -O raw IMAGE RAW")),
    (0, b"KDMV", "a VMDK image", Packed("qemu-img convert -O raw IMAGE RAW")),
    (64, b"\x7f\x10\xda\xbe", "a VDI image", Packed("qemu-img convert -O raw IMAGE RAW")),
    (0, b"vhdxfile", "a VHDX image", Packed("qemu-img convert -O raw IMAGE RAW")),
    (0, b"\x1f\x8b", "a file compressed by gzip", Packed("gzip -dc IMAGE >RAW")),
    (0, b"\x28\xb5\x2f\xfd", "a file compressed by zstd", Packed("zstd -dc IMAGE >RAW")),
    (0, b"\xfd7zXZ\0", "a file compressed by xz", Packed("xz -dc IMAGE >RAW")),
    (0, b"BZh", "a file compressed by bzip2", Packed("bzip2 -dc IMAGE >RAW")),
    (0, b"PK\x03\x04", "a ZIP archive", Packed("unzip IMAGE")),
    (0, b"LUKS\xba\xbe", "a LUKS container", Around("cryptsetup open IMAGE NAME")),
    (512, b"LABELONE", "a physical volume of LVM", Around("vgchange -ay")),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a RAID", Around("mdadm --assemble --scan")),
    (4086, b"SWAPSPACE2", "swap space", Packed("")),
    (0x8000, b"\0\0\0\0\0\0\0\0\0\0\0\0BEA01", "a UDF image", FileSystem("udf")),
];

/// The bytes that [`look`] wants to see of a disk's beginning.
pub const LOOK_BYTES: usize = 0x1_1000;

/// What the first [`LOOK_BYTES`] of a disk (or all it has) are the beginning of; None: nothing that
/// is known here.
pub fn look(head: &[u8]) -> Option<Foreign> {
    gpt(head).or_else(|| marked(head)).or_else(|| mbr(head))
}

fn marked(head: &[u8]) -> Option<Foreign> {
    let has = |m: &&Mark| head.get(m.0..m.0 + m.1.len()) == Some(m.1);
    let (_, _, name, kind) = MARKS.iter().find(has)?;
    let advice = match kind {
        FileSystem(of) => format!("Linux mounts it with `mount -t {of}`"),
        Packed("") => "choose another disk".to_owned(),
        Packed(how) => format!("`{how}` unpacks it"),
        Around(how) => format!("`{how}` shows what is inside, if it is yours"),
    };
    Some(Foreign { name: (*name).to_owned(), advice })
}

const SECTOR_BYTES: u64 = 512;
/// Partitions that are named.
const PARTITIONS_SHOWN: usize = 4;

fn partitioned(of: &str, sector_bytes: u64, found: &[(u64, u64)]) -> Foreign {
    let one = |(n, (first, sectors)): (usize, &(u64, u64))| {
        format!("p{} at byte {}, {} bytes", n + 1, first * sector_bytes, sectors * sector_bytes)
    };
    let mut shown: Vec<String> = found.iter().enumerate().map(one).take(PARTITIONS_SHOWN).collect();
    if found.len() > PARTITIONS_SHOWN {
        shown.push("…".into());
    }
    let shown = if shown.is_empty() { "none".into() } else { shown.join("; ") };
    Foreign {
        name: format!("a disk with a {of} partition table"),
        advice: format!(
            "name a partition (of an image: `losetup --find --show --partscan IMAGE`, then \
             /dev/loop…p1); there are: {shown}"
        ),
    }
}

/// A GUID partition table (UEFI 2.10, 5.3), of disks with sectors of 512 bytes or 4 KiB.
fn gpt(head: &[u8]) -> Option<Foreign> {
    let sector = [512, 4096].into_iter().find(|s| head.get(*s..s + 8) == Some(b"EFI PART"))?;
    let header = head.get(sector..sector + 92)?;
    let (entries, entry_bytes) = (le32(header, 80), le32(header, 84));
    let table = usize::try_from(le64(header, 72)).ok().and_then(|lba| lba.checked_mul(sector));
    let table = table.unwrap_or(usize::MAX);
    let mut found = Vec::new();
    for n in 0..entries.min(128) as usize {
        let at = n.checked_mul(entry_bytes as usize).and_then(|n| n.checked_add(table));
        let entry = at.and_then(|at| head.get(at..at.checked_add(48)?));
        let Some(entry) = entry else { break };
        let (first, last) = (le64(entry, 32), le64(entry, 40));
        if entry[..16].iter().any(|b| *b != 0) && first <= last {
            found.push((first, (last - first).saturating_add(1)));
        }
    }
    let within = |p: &(u64, u64)| p.0.saturating_add(p.1) < u64::MAX / 4096;
    found.retain(within);
    Some(partitioned("GPT", sector as u64, &found))
}

/// A master boot record with at least one partition.
fn mbr(head: &[u8]) -> Option<Foreign> {
    if head.get(510..512) != Some(b"\x55\xaa") {
        return None;
    }
    let entries = head[446..510].chunks_exact(16);
    let partition = |e: &[u8]| (u64::from(le32(e, 8)), u64::from(le32(e, 12)));
    let flagged = |e: &&[u8]| matches!(e[0], 0 | 0x80) && e[4] != 0;
    let found: Vec<_> = entries.filter(flagged).map(partition).filter(|p| p.1 > 0).collect();
    (!found.is_empty()).then(|| partitioned("DOS", SECTOR_BYTES, &found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(marks: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; LOOK_BYTES];
        marks.iter().for_each(|(at, m)| head[*at..at + m.len()].copy_from_slice(m));
        head
    }

    #[test]
    fn each_mark_is_seen_and_within_what_is_looked_at() {
        for (at, mark, name, _) in MARKS {
            assert!(at + mark.len() <= LOOK_BYTES, "{name}");
            let found = look(&with(&[(at, mark)])).expect(name);
            assert_eq!(found.name, name);
            assert!(!found.to_string().contains("--force"), "{found}");
        }
        assert_eq!(look(&with(&[])), None);
        assert_eq!(look(&[]), None);
        assert_eq!(look(b"\x1f\x8b").expect("as short as that").name, "a file compressed by gzip");
    }

    #[test]
    fn partitions_are_named_by_their_places() {
        let mut entry = [0; 16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&2048_u32.to_le_bytes());
        entry[12..16].copy_from_slice(&8_u32.to_le_bytes());
        let dos = with(&[(446, &entry), (510, b"\x55\xaa")]);
        assert!(look(&dos).expect("a table").advice.contains("p1 at byte 1048576, 4096 bytes"));
        assert_eq!(look(&with(&[(510, b"\x55\xaa")])), None, "a boot sector without partitions");

        let mut header = [0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[72..80].copy_from_slice(&2_u64.to_le_bytes());
        header[80..84].copy_from_slice(&4_u32.to_le_bytes());
        header[84..88].copy_from_slice(&128_u32.to_le_bytes());
        let mut entry = [0; 128];
        entry[0] = 1;
        entry[32..40].copy_from_slice(&40_u64.to_le_bytes());
        entry[40..48].copy_from_slice(&47_u64.to_le_bytes());
        let gpt = with(&[(512, &header), (1024, &entry)]);
        assert!(look(&gpt).expect("a table").advice.contains("p1 at byte 20480, 4096 bytes"));
    }

    #[test]
    fn hostile_tables_are_looked_at_too() {
        let mut header = [0xff; 92];
        header[..8].copy_from_slice(b"EFI PART");
        assert!(look(&with(&[(512, &header)])).is_some_and(|f| f.advice.contains("none")));
        assert!(look(&with(&[(4096, &header)])).is_none_or(|f| f.name.contains("GPT")));
    }
}

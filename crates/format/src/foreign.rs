//! What lies on a disk that holds no volume of ours: other file systems, containers, compressed and
//! other images, partition tables, by their magic numbers as in magic(5) and blkid(8). It reads the
//! marks only, and knows no volume.

use crate::partitions::{Partition, Table, gpt, mbr};

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

/// Where a copy of a volume is being made this stands at its beginning, until all of it is there.
pub const UNFINISHED: &[u8; 24] = b"cairn: unfinished copy \n";

/// The bytes that [`look`] wants to see of a disk's beginning.
pub const LOOK_BYTES: usize = 0x1_1000;

/// What the first [`LOOK_BYTES`] of a disk (or all it has) are the beginning of; None: nothing that
/// is known here.
pub fn look(head: &[u8]) -> Option<Foreign> {
    let table = |t: Option<Table>| t.as_ref().map(partitioned);
    let copy = head.starts_with(UNFINISHED).then(|| Foreign {
        name: "an unfinished copy of a volume".to_owned(),
        advice: "the same `cairn copy` once more finishes it".to_owned(),
    });
    copy.or_else(|| table(gpt(head))).or_else(|| marked(head)).or_else(|| table(mbr(head)))
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

/// Partitions that are named.
const PARTITIONS_SHOWN: usize = 4;

fn partitioned(table: &Table) -> Foreign {
    let one = |p: &Partition| format!("@p{} at byte {}, {} bytes", p.number, p.begins, p.bytes);
    let shown = table.partitions.iter().map(one).take(PARTITIONS_SHOWN);
    let mut shown: Vec<String> = shown.collect();
    if table.partitions.len() > PARTITIONS_SHOWN {
        shown.push("…".into());
    }
    let shown = if shown.is_empty() { "none".into() } else { shown.join("; ") };
    let first = table.partitions.first().map_or(1, |p| p.number);
    Foreign {
        name: format!("a disk with a {} partition table", table.kind),
        advice: format!("name a partition, as IMAGE@p{first}; there are: {shown}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partitions::tests::with;

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
        let copy = look(&with(&[(0, UNFINISHED)])).expect("it says so itself");
        assert!(copy.to_string().contains("an unfinished copy"), "{copy}");
        assert_eq!(look(b"\x1f\x8b").expect("as short as that").name, "a file compressed by gzip");
    }

    #[test]
    fn partitions_are_named_by_their_places() {
        let all = (1..=6).map(|number| Partition { number, begins: 1 << 20, bytes: 4096 });
        let said = partitioned(&Table { kind: "DOS", partitions: all.collect() }).advice;
        assert!(
            said.contains("IMAGE@p1; there are: @p1 at byte 1048576, 4096 bytes; @p2"),
            "{said}"
        );
        assert!(said.ends_with("@p4 at byte 1048576, 4096 bytes; …"), "{said}");
        let none = partitioned(&Table { kind: "GPT", partitions: Vec::new() });
        assert!(none.advice.ends_with("none"), "{none}");
    }

    #[test]
    fn a_guid_table_is_seen_before_other_marks() {
        let found = look(&with(&[(512, b"EFI PART"), (510, b"\x55\xaa"), (0, b"\xeb")]));
        assert!(found.is_some_and(|f| f.name.contains("GPT")));
        assert!(look(&with(&[(4096, b"EFI PART")])).is_some_and(|f| f.name.contains("GPT")));
    }
}

//! Feature bits by name, as `dumpe2fs` prints them, and what this version does about each. It
//! decides nothing about a volume's state; `superblock` does.

use crate::FormatError;

/// COMPAT: a reader and a writer may ignore what they do not know.
pub mod compat {
    /// Blocks set aside for growing directories.
    pub const DIR_PREALLOC: u32 = 0x1;
    /// A journal.
    pub const HAS_JOURNAL: u32 = 0x4;
    /// Extended attributes.
    pub const EXT_ATTR: u32 = 0x8;
    /// Space for more group descriptors.
    pub const RESIZE_INODE: u32 = 0x10;
    /// Hash-indexed directories.
    pub const DIR_INDEX: u32 = 0x20;
    /// Superblock copies in two groups of its choice.
    pub const SPARSE_SUPER2: u32 = 0x200;
}
/// INCOMPAT: who does not know one must keep off.
pub mod incompat {
    /// Directory entries hold the kind of file.
    pub const FILETYPE: u32 = 0x2;
    /// The journal holds something.
    pub const RECOVER: u32 = 0x4;
}
/// RO_COMPAT: who does not know one may read.
pub mod ro_compat {
    /// Superblock copies in few groups only.
    pub const SPARSE_SUPER: u32 = 0x1;
    /// Files of 2 GiB and more.
    pub const LARGE_FILE: u32 = 0x2;
    /// Group descriptors carry checksums.
    pub const GDT_CSUM: u32 = 0x10;
    /// Inodes have extra fields of at least a certain size.
    pub const EXTRA_ISIZE: u32 = 0x40;
    /// Space is allocated in clusters.
    pub const BIGALLOC: u32 = 0x200;
    /// All metadata carries checksums.
    pub const METADATA_CSUM: u32 = 0x400;
}

/// The letter dumpe2fs has for a word of features, and the names of its bits.
type Names = (char, &'static [(u32, &'static str)]);

const COMPAT: Names = ('C', COMPAT_NAMES);
const INCOMPAT: Names = ('I', INCOMPAT_NAMES);
const RO_COMPAT: Names = ('R', RO_COMPAT_NAMES);

const COMPAT_NAMES: &[(u32, &str)] = &[
    (0x1, "dir_prealloc"),
    (0x2, "imagic_inodes"),
    (0x4, "has_journal"),
    (0x8, "ext_attr"),
    (0x10, "resize_inode"),
    (0x20, "dir_index"),
    (0x200, "sparse_super2"),
    (0x400, "fast_commit"),
    (0x800, "stable_inodes"),
    (0x1000, "orphan_file"),
];
const INCOMPAT_NAMES: &[(u32, &str)] = &[
    (0x1, "compression"),
    (0x2, "filetype"),
    (0x4, "needs_recovery"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x40, "extent"),
    (0x80, "64bit"),
    (0x100, "mmp"),
    (0x200, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x10000, "encrypt"),
    (0x20000, "casefold"),
];
const RO_COMPAT_NAMES: &[(u32, &str)] = &[
    (0x1, "sparse_super"),
    (0x2, "large_file"),
    (0x4, "btree_dir"),
    (0x8, "huge_file"),
    (0x10, "uninit_bg"),
    (0x20, "dir_nlink"),
    (0x40, "extra_isize"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x400, "metadata_csum"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x8000, "verity"),
    (0x10000, "orphan_present"),
];

/// INCOMPAT bits this version reads and writes; `needs_recovery` is a state, which the opener deals
/// with.
const INCOMPAT_KNOWN: u32 = incompat::FILETYPE | incompat::RECOVER;
/// RO_COMPAT bits this version writes.
const RO_COMPAT_KNOWN: u32 =
    ro_compat::SPARSE_SUPER | ro_compat::LARGE_FILE | ro_compat::EXTRA_ISIZE;

/// The names of the bits set; one without a name is called as dumpe2fs does, by its word and its
/// number.
fn names_in(bits: u32, (word, table): Names) -> Vec<String> {
    let name = |n: u32| match table.iter().find(|(bit, _)| *bit == 1 << n) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("FEATURE_{word}{n}"),
    };
    (0..32).filter(|n| bits >> n & 1 == 1).map(name).collect()
}

/// All features by name.
pub fn names(compat: u32, incompat: u32, ro_compat: u32) -> Vec<String> {
    let mut all = names_in(compat, COMPAT);
    all.extend(names_in(incompat, INCOMPAT));
    all.extend(names_in(ro_compat, RO_COMPAT));
    all
}

/// Refuses what this version cannot read, by name and with what to do.
pub fn check_incompat(bits: u32) -> Result<(), FormatError> {
    let unknown = names_in(bits & !INCOMPAT_KNOWN, INCOMPAT);
    if unknown.is_empty() {
        return Ok(());
    }
    let advice = if unknown.iter().any(|n| n.starts_with("FEATURE_")) {
        "it is not known; use the program that made this volume".to_owned()
    } else {
        let off: Vec<String> = unknown.iter().map(|n| format!("^{n}")).collect();
        format!("make the volume with cairn mkfs, or with `mke2fs -t ext3 -O {}`", off.join(","))
    };
    Err(FormatError::Incompatible { feature: unknown.join(", "), advice })
}

/// Refuses what would make even reading wrong or every repair incomplete, though old readers may
/// ignore it: checksums, clusters, and superblock copies in unusual places.
pub fn check_others(compat: u32, ro_compat: u32) -> Result<(), FormatError> {
    use ro_compat::{BIGALLOC, GDT_CSUM, METADATA_CSUM};
    let mut refused = names_in(compat & compat::SPARSE_SUPER2, COMPAT);
    refused.extend(names_in(ro_compat & (GDT_CSUM | METADATA_CSUM | BIGALLOC), RO_COMPAT));
    if refused.is_empty() {
        return Ok(());
    }
    let off: Vec<String> = refused.iter().map(|n| format!("^{n}")).collect();
    let off = off.join(",");
    let advice = if ro_compat & BIGALLOC == 0 && compat & compat::SPARSE_SUPER2 == 0 {
        format!("switch it off with `tune2fs -O {off}` and run `e2fsck -f`")
    } else {
        format!("make the volume with cairn mkfs, or with `mke2fs -t ext3 -O {off}`")
    };
    Err(FormatError::Incompatible { feature: refused.join(", "), advice })
}

/// The features that keep this version from checking and repairing a volume: it would not know what
/// else belongs to them.
pub fn not_checked_because(compat: u32, ro_compat: u32) -> Vec<String> {
    use compat::{DIR_INDEX, DIR_PREALLOC, EXT_ATTR, HAS_JOURNAL, RESIZE_INODE};
    let known = DIR_PREALLOC | HAS_JOURNAL | EXT_ATTR | RESIZE_INODE | DIR_INDEX;
    let mut all = names_in(compat & !known, COMPAT);
    all.extend(read_only_because(ro_compat));
    all
}

/// The RO_COMPAT features that allow only reading here.
pub fn read_only_because(bits: u32) -> Vec<String> {
    names_in(bits & !RO_COMPAT_KNOWN, RO_COMPAT)
}

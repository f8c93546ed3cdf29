//! The one table of features: every bit that e2fsprogs 1.47 has, by the name that `dumpe2fs`
//! prints, and what this version does about it. It decides nothing about a volume's state;
//! `superblock` does.
//!
//! What a bit of each word asks of who does not know it: COMPAT nothing; RO_COMPAT not to write;
//! INCOMPAT to keep off.

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
    /// Numbers and UUID do not change, because encryption relies on them.
    pub const STABLE_INODES: u32 = 0x800;
    /// Orphans are listed in a file of their own.
    pub const ORPHAN_FILE: u32 = 0x1000;
}
/// INCOMPAT: who does not know one must keep off.
pub mod incompat {
    /// Directory entries hold the kind of file.
    pub const FILETYPE: u32 = 0x2;
    /// The journal holds something.
    pub const RECOVER: u32 = 0x4;
    /// Group descriptors lie in the groups that they describe.
    pub const META_BG: u32 = 0x10;
    /// Files are mapped by extents.
    pub const EXTENTS: u32 = 0x40;
    /// Block numbers of more than 32 bits, and long group descriptors.
    pub const WIDE: u32 = 0x80;
    /// Who uses the volume says so in a block, again and again.
    pub const MMP: u32 = 0x100;
    /// Bitmaps and inode tables may lie in other groups.
    pub const FLEX_BG: u32 = 0x200;
    /// Values of attributes may be other inodes' contents.
    pub const EA_INODE: u32 = 0x400;
    /// Directories may have more than 4 GiB, and indices a third level.
    pub const LARGE_DIR: u32 = 0x4000;
    /// The checksums' seed is a field of its own, not the UUID.
    pub const CSUM_SEED: u32 = 0x2000;
    /// Small files and directories lie in their inodes.
    pub const INLINE_DATA: u32 = 0x8000;
}
/// RO_COMPAT: who does not know one may read.
pub mod ro_compat {
    /// Superblock copies in few groups only.
    pub const SPARSE_SUPER: u32 = 0x1;
    /// Files of 2 GiB and more.
    pub const LARGE_FILE: u32 = 0x2;
    /// Inodes count blocks with 48 bits.
    pub const HUGE_FILE: u32 = 0x8;
    /// Group descriptors carry checksums, and may say that bitmaps are not there yet.
    pub const GDT_CSUM: u32 = 0x10;
    /// Directories with more subdirectories than links are counted.
    pub const DIR_NLINK: u32 = 0x20;
    /// Inodes have extra fields of at least a certain size.
    pub const EXTRA_ISIZE: u32 = 0x40;
    /// Space is allocated in clusters.
    pub const BIGALLOC: u32 = 0x200;
    /// All metadata carries checksums.
    pub const METADATA_CSUM: u32 = 0x400;
    /// The orphan file holds something.
    pub const ORPHAN_PRESENT: u32 = 0x1_0000;
}

/// What this version does about a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// Reads and writes it.
    Written,
    /// Opens a volume that has it for reading only.
    ReadOnly,
    /// Does not open such a volume; what the user can do.
    Refused(&'static str),
}
use Support::{ReadOnly, Refused, Written};

/// The word of the superblock that a feature's bit is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// `s_feature_compat`.
    Compat,
    /// `s_feature_incompat`.
    Incompat,
    /// `s_feature_ro_compat`.
    RoCompat,
}
use Word::{Compat, Incompat, RoCompat};

/// A feature: its word, its bit, its name, what is done about it.
pub type Feature = (Word, u32, &'static str, Support);

const ITS_OWN: &str = "open it with the program or the kernel that made it";
const CASEFOLD: &str = "mount it with Linux: names that differ by case are one here only";
const JOURNAL: &str = "it is the journal of another volume: name that, and this with --log";

/// Every feature of e2fsprogs 1.47, in the order of its words and bits.
pub const FEATURES: &[Feature] = &[
    (Compat, 0x1, "dir_prealloc", Written),
    (Compat, 0x2, "imagic_inodes", Written),
    (Compat, 0x4, "has_journal", Written),
    (Compat, 0x8, "ext_attr", Written),
    (Compat, 0x10, "resize_inode", Written),
    (Compat, 0x20, "dir_index", Written),
    (Compat, 0x200, "sparse_super2", Written),
    (Compat, 0x400, "fast_commit", ReadOnly),
    (Compat, 0x800, "stable_inodes", Written),
    (Compat, 0x1000, "orphan_file", Written),
    (Incompat, 0x1, "compression", Refused(ITS_OWN)),
    (Incompat, 0x2, "filetype", Written),
    (Incompat, 0x4, "needs_recovery", Written),
    (Incompat, 0x8, "journal_dev", Refused(JOURNAL)),
    (Incompat, 0x10, "meta_bg", Written),
    (Incompat, 0x40, "extent", Written),
    (Incompat, 0x80, "64bit", Written),
    (Incompat, 0x100, "mmp", Written),
    (Incompat, 0x200, "flex_bg", Written),
    (Incompat, 0x400, "ea_inode", Written),
    (Incompat, 0x1000, "dirdata", Refused(ITS_OWN)),
    (Incompat, 0x2000, "metadata_csum_seed", Written),
    (Incompat, 0x4000, "large_dir", Written),
    (Incompat, 0x8000, "inline_data", Written),
    (Incompat, 0x1_0000, "encrypt", ReadOnly),
    (Incompat, 0x2_0000, "casefold", Refused(CASEFOLD)),
    (RoCompat, 0x1, "sparse_super", Written),
    (RoCompat, 0x2, "large_file", Written),
    (RoCompat, 0x4, "btree_dir", ReadOnly),
    (RoCompat, 0x8, "huge_file", Written),
    (RoCompat, 0x10, "uninit_bg", Written),
    (RoCompat, 0x20, "dir_nlink", Written),
    (RoCompat, 0x40, "extra_isize", Written),
    (RoCompat, 0x100, "quota", ReadOnly),
    (RoCompat, 0x200, "bigalloc", ReadOnly),
    (RoCompat, 0x400, "metadata_csum", Written),
    (RoCompat, 0x1000, "read-only", ReadOnly),
    (RoCompat, 0x2000, "project", ReadOnly),
    (RoCompat, 0x4000, "shared_blocks", ReadOnly),
    (RoCompat, 0x8000, "verity", ReadOnly),
    (RoCompat, 0x1_0000, "orphan_present", ReadOnly),
];

/// The three words of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// `s_feature_compat`.
    pub compat: u32,
    /// `s_feature_incompat`.
    pub incompat: u32,
    /// `s_feature_ro_compat`.
    pub ro_compat: u32,
}

impl Features {
    /// The bits that are set, each with its name (one without is called as dumpe2fs does, by its
    /// word and its number) and what is done about it.
    fn each(self) -> impl Iterator<Item = (Word, String, Support)> {
        let words = [(Compat, self.compat), (Incompat, self.incompat), (RoCompat, self.ro_compat)];
        let bits = words.into_iter().flat_map(|(word, bits)| {
            (0..32u32).filter(move |n| bits >> n & 1 == 1).map(move |n| (word, n))
        });
        bits.map(|(word, n)| {
            let known = FEATURES.iter().find(|(w, bit, ..)| *w == word && *bit == 1 << n);
            match known {
                Some((.., name, support)) => (word, (*name).to_owned(), *support),
                None => match word {
                    Compat => (word, format!("FEATURE_C{n}"), Written),
                    RoCompat => (word, format!("FEATURE_R{n}"), ReadOnly),
                    Incompat => (word, format!("FEATURE_I{n}"), Refused(ITS_OWN)),
                },
            }
        })
    }

    /// All of them by name.
    pub fn names(self) -> Vec<String> {
        self.each().map(|(_, name, _)| name).collect()
    }

    /// Refuses what this version cannot even read, by name and with what to do.
    pub fn check(self) -> Result<(), FormatError> {
        let refused: Vec<_> = self
            .each()
            .filter_map(|(_, name, support)| match support {
                Refused(advice) => Some((name, advice)),
                _ => None,
            })
            .collect();
        let Some((_, advice)) = refused.first() else { return Ok(()) };
        let advice = (*advice).to_owned();
        let names: Vec<String> = refused.into_iter().map(|(name, _)| name).collect();
        Err(FormatError::Incompatible { feature: names.join(", "), advice })
    }

    /// The features that allow only reading here.
    pub fn read_only_because(self) -> Vec<String> {
        self.each().filter(|f| f.2 != Written).map(|f| f.1).collect()
    }

    /// What lets a volume be written that may only be read, if there is something: the command that
    /// takes its features away.
    pub fn written_after(self) -> Option<String> {
        const TAKEN_AWAY: [&str; 4] = ["fast_commit", "quota", "project", "read-only"];
        let all = self.read_only_because();
        let can = !all.is_empty() && all.iter().all(|n| TAKEN_AWAY.contains(&n.as_str()));
        let names: Vec<String> = all.iter().map(|n| format!("^{n}")).collect();
        can.then(|| format!("tune2fs -O {}", names.join(",")))
    }

    /// The features that are written only in modes whose journal keeps whole blocks together, or
    /// that leave everything to a check: a write torn by a power cut would leave a wrong checksum,
    /// or half a tree of extents.
    pub fn journal_only_because(self) -> Vec<String> {
        use incompat::{CSUM_SEED, EA_INODE, EXTENTS, FLEX_BG, INLINE_DATA, META_BG, WIDE};
        use ro_compat::{DIR_NLINK, GDT_CSUM, HUGE_FILE, METADATA_CSUM};
        let such = Features {
            compat: self.compat & compat::SPARSE_SUPER2,
            incompat: self.incompat
                & (META_BG | EXTENTS | WIDE | FLEX_BG | CSUM_SEED | INLINE_DATA | EA_INODE),
            ro_compat: self.ro_compat & (HUGE_FILE | GDT_CSUM | DIR_NLINK | METADATA_CSUM),
        };
        such.names()
    }

    /// The features that keep this version from checking and repairing a volume: it would not know
    /// what else belongs to them.
    pub fn not_checked_because(self) -> Vec<String> {
        use compat::{DIR_INDEX, DIR_PREALLOC, EXT_ATTR, HAS_JOURNAL, ORPHAN_FILE};
        use compat::{RESIZE_INODE, SPARSE_SUPER2, STABLE_INODES};
        use incompat::{CSUM_SEED, EXTENTS, FILETYPE, FLEX_BG, INLINE_DATA, LARGE_DIR, META_BG};
        use incompat::{EA_INODE, MMP, RECOVER, WIDE};
        use ro_compat::{DIR_NLINK, EXTRA_ISIZE, GDT_CSUM, HUGE_FILE, LARGE_FILE, METADATA_CSUM};
        use ro_compat::{ORPHAN_PRESENT, SPARSE_SUPER};
        let old = DIR_PREALLOC | HAS_JOURNAL | EXT_ATTR | RESIZE_INODE | DIR_INDEX;
        let wide = EXTENTS | WIDE | FLEX_BG | META_BG | LARGE_DIR | CSUM_SEED | INLINE_DATA;
        let wide = wide | EA_INODE;
        let large = LARGE_FILE | HUGE_FILE | DIR_NLINK | EXTRA_ISIZE;
        let known = Features {
            compat: old | SPARSE_SUPER2 | STABLE_INODES | ORPHAN_FILE,
            incompat: FILETYPE | RECOVER | MMP | wide,
            ro_compat: SPARSE_SUPER | large | GDT_CSUM | METADATA_CSUM | ORPHAN_PRESENT,
        };
        let rest = Features {
            compat: self.compat & !known.compat,
            incompat: self.incompat & !known.incompat,
            ro_compat: self.ro_compat & !known.ro_compat,
        };
        rest.names()
    }
}

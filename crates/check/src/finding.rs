//! What a check can find, and how bad each kind is: the vocabulary of reports. It says nothing
//! about how a finding is made or mended.

use format::{BlockNo, GroupNo, Ino};
use std::fmt;

/// How a finding may have come about; the crash explorer judges a mode by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// What any crash may leave in mode `sync`: hints out of date and space not yet given back. Its
    /// repair loses nothing.
    Leftover,
    /// What the one operation in flight of a caller may leave in mode `sync`: half of a mkdir,
    /// rmdir or rename of a directory, or of a block of names that is split in two.
    InFlight,
    /// What no crash in mode `sync` may leave.
    Damage,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $class:ident $id:literal;)*) => {
        /// What is wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $name,)* }
        impl Kind {
            /// How it may have come about.
            pub fn class(self) -> Class {
                match self { $(Kind::$name => Class::$class,)* }
            }
            /// A stable name for tables and JSON.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$name => $id,)* }
            }
        }
    };
}

kinds! {
    /// The primary superblock was unusable and a copy stands in for it.
    SuperDamaged Damage "super-damaged";
    /// A field of the superblock contradicts what is on the volume.
    SuperField Damage "super-field";
    /// A time of the superblock lies in the future: a clock was wrong, then or now.
    SuperTime Leftover "super-time";
    /// A copy of the superblock or of the descriptors is damaged.
    BackupDamaged Damage "backup-damaged";
    /// A group descriptor names impossible places.
    DescDamaged Damage "descriptor-damaged";
    /// Names lead to inodes that a group says were never used: they were made, and it is not
    /// written yet. (The volume of another, which sets its tables up as they are needed.)
    NeverUsed Leftover "never-used-inodes";
    /// The chain of orphans is not empty.
    OrphanList Leftover "orphan-list";
    /// The file of orphans is damaged.
    OrphanFile Damage "orphan-file";
    /// A checksum is wrong, of what is otherwise right.
    Checksum Damage "checksum";
    /// The block by which machines keep off one another is none.
    Mmp Damage "mmp";
    /// The journal's inode or superblock is damaged.
    Journal Damage "journal";
    /// The superblock's copy of the journal's inode is out of date.
    JournalCopy Leftover "journal-copy";
    /// The inode of the reserved descriptor blocks is damaged.
    ResizeInode Damage "resize-inode";
    /// An inode that cannot be what it says.
    BadInode Damage "bad-inode";
    /// A single field of an inode is impossible.
    InodeField Damage "inode-field";
    /// An inode without names is not marked as deleted.
    DeletedInode Leftover "deleted-inode";
    /// A pointer of a block map leads out of the volume or into its metadata.
    BadPointer Damage "bad-pointer";
    /// A block belongs to two files, or twice to one.
    BlockTwice Damage "block-twice";
    /// i_blocks does not say how many blocks the inode holds.
    Sectors Leftover "i-blocks";
    /// Blocks are mapped beyond the file's end.
    BeyondEnd Leftover "beyond-end";
    /// A file or directory ends where it cannot.
    Size Damage "size";
    /// Extended attributes are damaged.
    Xattr Damage "xattr";
    /// An attribute block counts more users than it has.
    XattrHigh Leftover "xattr-count-high";
    /// An attribute block counts fewer users than it has.
    XattrLow Damage "xattr-count-low";
    /// A directory's block is missing.
    DirHole Damage "directory-hole";
    /// A chain of entries is broken: a torn directory.
    DirTorn Damage "directory-torn";
    /// "." or ".." is missing or wrong.
    Dots Damage "dots";
    /// A name of a free inode.
    NameOfFree Damage "name-of-free-inode";
    /// A name of an inode that does not exist or must not be named.
    NameOfNone Damage "name-of-no-inode";
    /// An entry gives the wrong kind of file.
    EntryKind Damage "entry-kind";
    /// A name that cannot be one.
    BadName Damage "bad-name";
    /// One name twice in a directory.
    NameTwice Damage "name-twice";
    /// A directory's hash index is damaged.
    Index Damage "index";
    /// A directory has two names.
    TwoNames InFlight "two-names";
    /// A directory has no name.
    Unconnected InFlight "unconnected-directory";
    /// One name in two blocks of a directory: it was under way from one to the other, and may name
    /// another inode there already.
    NameInTwoBlocks InFlight "name-in-two-blocks";
    /// ".." does not lead to the parent.
    StaleDotDot InFlight "stale-dotdot";
    /// The root directory is missing.
    NoRoot Damage "no-root";
    /// The directory for what is found is missing.
    NoLostFound Damage "no-lost-found";
    /// An inode that is no directory has no name.
    Unattached Leftover "unattached";
    /// More links than names.
    LinksHigh Leftover "links-high";
    /// Fewer links than names.
    LinksLow Damage "links-low";
    /// A block bitmap differs from what is in use.
    BlockBitmap Leftover "block-bitmap";
    /// An inode bitmap differs from what is in use.
    InodeBitmap Leftover "inode-bitmap";
    /// The bits behind a bitmap's end are not set.
    BitmapPadding Damage "bitmap-padding";
    /// A count of what is free, or of directories, is wrong.
    Counts Leftover "counts";
    /// The repair needs a block or an inode, and none is free.
    NoRoom Damage "no-room";
}

/// Where it is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The superblock, or the volume as a whole.
    Volume,
    /// A block group.
    Group(GroupNo),
    /// An inode.
    Inode(Ino),
    /// An entry: the directory, the block and the byte in it.
    Entry(Ino, BlockNo, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Volume => write!(f, "volume"),
            Place::Group(g) => write!(f, "group {g}"),
            Place::Inode(i) => write!(f, "inode {i}"),
            Place::Entry(i, b, at) => write!(f, "directory {i}, block {b}, byte {at}"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// Where.
    pub place: Place,
    /// What is wrong and what the repair does about it, as a clause.
    pub text: String,
    /// Does the repair take something away that has a name?
    pub loses_name: bool,
}

impl Finding {
    /// Is it a directory whose last block is mapped and lies beyond its end? It has no names yet.
    pub fn is_growing_directory(&self) -> bool {
        self.kind == Kind::BeyondEnd && self.text.starts_with("the directory")
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.place, self.text, self.kind.name())
    }
}

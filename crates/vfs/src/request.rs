//! Requests and replies as plain data that may cross threads. One request is one operation of the
//! file system; who asks and what the answer must guarantee go beside it in the [`Call`].

use crate::{Attr, FsError, Kind, Time};
use env::{Nanos, Rope};
use std::sync::Arc;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Cred {
    /// User.
    pub uid: u32,
    /// Group, which new files get.
    pub gid: u32,
    /// Further groups.
    pub groups: Arc<[u32]>,
    /// Must we check permissions? Not over FUSE, where the kernel has (`default_permissions`).
    pub check: bool,
}

impl Cred {
    /// Root, unchecked: the volume's own commands.
    pub fn root() -> Cred {
        Cred { uid: 0, gid: 0, groups: Arc::new([]), check: false }
    }
}

/// A request with who asks, and what the answer must carry.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who asks.
    pub cred: Cred,
    /// Answer a modification only when it is durable, in every mode (NFS).
    pub durable: bool,
    /// Tell the attributes before and after (NFS).
    pub wcc: bool,
    /// Count a reference to each inode named in the answer, until [`Request::Forget`] (FUSE).
    pub hold: bool,
    /// Inodes and the generations they must have, else `Stale` (NFS's file handles).
    pub expect: [Option<(u32, u32)>; 2],
    /// What a store that can keeps with the change, atomically with it, so that whoever opens the
    /// volume next knows that it was done ([`VolumeInfo::done`]).
    pub note: Option<u128>,
    /// What is asked.
    pub request: Request,
}

impl Call {
    /// A call by the volume's own commands.
    pub fn local(request: Request) -> Call {
        let cred = Cred::root();
        let (expect, note) = ([None; 2], None);
        Call { cred, durable: false, wcc: false, hold: false, expect, note, request }
    }
}

/// How durable a write must be when it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stability {
    /// In memory.
    Unstable,
    /// Data, and what is needed to find them again.
    DataSync,
    /// Data and all attributes.
    FileSync,
}

/// What to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MakeKind {
    /// A regular file. `exclusive` is the verifier of NFS's EXCLUSIVE create: kept on disk, and a
    /// file that has the same one is success.
    File {
        /// Some: an exclusive create with this verifier.
        exclusive: Option<[u8; 8]>,
    },
    /// A directory.
    Dir,
    /// A symbolic link to this text.
    Symlink(Vec<u8>),
    /// A device, fifo or socket; major and minor number for devices.
    Special(Kind, (u32, u32)),
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The volume's clock.
    Now,
    /// This one.
    To(Time),
}

/// Attributes to set; None leaves one alone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SetAttr {
    /// Permission bits (and set-id, sticky); the kind is left alone.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
    /// Last change of the inode, where the front end dictates it (FUSE with writeback cache).
    pub ctime: Option<SetTime>,
    /// Clear set-user-id and set-group-id as a write by a non-owner does (FUSE HANDLE_KILLPRIV).
    pub kill_suid: bool,
    /// Only if the inode's ctime is this (NFS's guard).
    pub guard: Option<Time>,
}

/// How rename treats an existing target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Fail.
    NoReplace,
    /// Swap the two names.
    Exchange,
    /// Leave a whiteout in the old place: a character device 0:0, by which overlayfs hides a name
    /// of the layer below. `Invalid` in modes whose operations are not atomic: a crash would leave
    /// the name of a directory twice, and repair take the old one away with no whiteout in its
    /// place.
    Whiteout {
        /// Replace it, or fail.
        replace: bool,
    },
}

/// How setxattr treats an existing attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    /// Create or replace.
    Either,
    /// Fail if it exists.
    Create,
    /// Fail if it does not.
    Replace,
}

/// What fallocate is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceOp {
    /// Allocate (zeroed) blocks; `keep_size` does not extend the file.
    Allocate {
        /// Leave the length alone.
        keep_size: bool,
    },
    /// Free the range; it reads as zeros.
    PunchHole,
    /// Make the range read as zeros.
    ZeroRange {
        /// Leave the length alone.
        keep_size: bool,
    },
}

/// How much of a write is done where one operation does not hold all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteUpTo {
    /// As much as one holds: who asks goes on with the rest.
    OneOperation,
    /// As much as finds a place, in several operations: programs take a shorter write for a full
    /// disk, if they look at all.
    Space,
    /// All, in several operations, or it is refused (where a part may have been written): nobody
    /// asks again for what a shorter write has left.
    All,
}

/// Which way what lies behind a range of whole blocks moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shift {
    /// The range is taken out of the file, which goes on behind it.
    Collapse,
    /// A hole is put before what lies at the offset, which is within the file.
    Insert,
}

/// What lseek looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekKind {
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset; the end of the file is one.
    Hole,
}

/// One operation.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are named after what they are")]
pub enum Request {
    /// A name in a directory. Answer: `Entry`. "." and ".." work.
    Lookup { dir: u32, name: Vec<u8> },
    /// The directory at a path below `dir` (names separated by `/`; empty: `dir` itself), no
    /// symbolic link followed. Answer: `Entry`.
    Walk { dir: u32, path: Vec<u8> },
    /// The inode of a number that was kept (the kernel's file handles). Answer: `Entry`. Errors:
    /// `Stale` for what nobody can have kept: free inodes, and the volume's own.
    ByNumber { ino: u32 },
    /// Gives back `count` references that `hold` took.
    Forget { ino: u32, count: u64 },
    /// Answer: `Attr`.
    GetAttr { ino: u32 },
    /// Answer: `Attr`.
    SetAttr { ino: u32, set: SetAttr },
    /// Answer: `Bytes`, the text of a symbolic link.
    ReadLink { ino: u32 },
    /// Makes a file of any kind. `attr` may set mode (else 0), owner, size, times. For
    /// MakeKind::File without `fail_if_exists` an existing file is opened as it is (size set if
    /// asked). Answer: `Entry`. `umask` is taken from the mode unless the directory has a default
    /// access list.
    Make {
        dir: u32,
        name: Vec<u8>,
        kind: MakeKind,
        attr: SetAttr,
        fail_if_exists: bool,
        umask: u32,
    },
    /// Makes a regular file without a name, for a caller with `hold`: a [`Request::Link`] may give
    /// it one; else it goes with its last hold, or in a crash. `attr` and `umask` as in `Make`.
    /// Answer: `Entry`.
    MakeUnnamed { dir: u32, attr: SetAttr, umask: u32 },
    /// Removes a name that is not a directory. Answer: `Done`.
    Unlink { dir: u32, name: Vec<u8> },
    /// Removes an empty directory. Answer: `Done`.
    Rmdir { dir: u32, name: Vec<u8> },
    /// Answer: `Done`. In the answer's wcc: the old directory, then the new one.
    Rename { dir: u32, name: Vec<u8>, to_dir: u32, to_name: Vec<u8>, mode: RenameMode },
    /// A further name. Answer: `Entry`. In the answer's wcc: the directory, then the file.
    Link { ino: u32, dir: u32, name: Vec<u8> },
    /// Answer: `Data`.
    Read { ino: u32, offset: u64, len: u32 },
    /// Answer: `Written`. `append` writes at the end instead of at `offset`.
    Write {
        ino: u32,
        // Ignored by an append.
        offset: u64,
        data: Rope,
        stability: Stability,
        append: bool,
        kill_suid: bool,
        upto: WriteUpTo,
    },
    /// Data, size and names durable (`data_only`: not times). Directories too. Answer: `Attr`.
    Fsync { ino: u32, data_only: bool },
    /// Everything durable. Answer: `Done`.
    SyncAll,
    /// Entries from `cookie` on (0: the start), as many as fit in `max_bytes` counting
    /// `entry_bytes` plus the name rounded up to 8 for each. `attrs` fills in each entry's
    /// attributes. Answer: `Dir`.
    ReadDir { dir: u32, cookie: u64, max_bytes: usize, entry_bytes: usize, attrs: bool },
    /// Answer: `StatFs`.
    StatFs,
    /// Answer: `Bytes`.
    GetXattr { ino: u32, name: Vec<u8> },
    /// Answer: `Done`. POSIX ACLs in the kernel's representation; `kill_sgid`: clear set-group-id,
    /// as an access list by somebody outside the group does.
    SetXattr { ino: u32, name: Vec<u8>, value: Vec<u8>, mode: XattrMode, kill_sgid: bool },
    /// Answer: `Bytes`, each name followed by a 0 byte.
    ListXattr { ino: u32 },
    /// Answer: `Done`.
    RemoveXattr { ino: u32, name: Vec<u8> },
    /// Which of the asked permissions (bits 4 read, 2 write, 1 execute or search; 8 delete a child)
    /// does the caller have? Answer: `Access`.
    Access { ino: u32, mask: u32 },
    /// Answer: `Attr`.
    Space { ino: u32, op: SpaceOp, offset: u64, len: u64 },
    /// Take a range out of a file, or put one in.
    Shift { ino: u32, way: Shift, offset: u64, len: u64 },
    /// The flags of `chattr`. Answer: `Flags`.
    GetFlags { ino: u32 },
    /// Sets all of them. Answer: `Done`. Errors: `NotSupported` where one differs that cannot be
    /// set, `Perm` where only root may.
    SetFlags { ino: u32, flags: u32 },
    /// Tells the disk which of the volume's bytes nobody needs, in runs of at least `min_bytes`.
    /// Answer: `Trimmed`. Errors: `Perm` unless root asks, `NotSupported` where the disk cannot.
    Trim { from: u64, bytes: u64, min_bytes: u64 },
    /// The volume's name. Answer: `Bytes`.
    Label,
    /// Gives it another name, durably. Answer: `Done`. Errors: `Perm` unless root asks, `Invalid`
    /// where it is too long.
    SetLabel { label: String },
    /// Answer: `Offset`.
    Seek { ino: u32, kind: SeekKind, offset: u64 },
    /// On which of the volume's blocks the block of a regular file lies (FIBMAP); 0: on none, as in
    /// a hole, in space that nothing was written to yet, or in an inode. The answer for block 0
    /// says too that all contents are in their place by then. Answer: `Offset`. Errors: `Invalid`
    /// for what is no regular file.
    MapBlock { ino: u32, block: u64 },
    /// How reads keep times of access from now on, whoever reads. Answer: `Done`.
    AccessTimes(AccessTimes),
    /// Everything durable and in its place, so that nothing is left to be written later unless
    /// there are further changes. Answer: `Done`.
    Quiesce,
    /// As `Quiesce`, and from the answer on nothing changes until `Thaw`, or until `most` has
    /// passed since changes were held back. Answer: `Done`. Errors: `Busy` if it did not come to
    /// rest in that time, or another one holds it.
    Freeze { most: Nanos },
    /// Changes may go on. Answer: `Done`. Errors: `Stale` if they went on before.
    Thaw,
    /// About the snapshots of the volume. Answer: `Bytes` for `List`, of each the seconds since
    /// 1970, a space, its name and a newline; else `Done`, and it is durable. Errors: `Exists`,
    /// `NotFound`; `NotSupported` where its store has none.
    Snapshot(SnapshotOp),
    /// Answer: `Info`.
    Info,
    /// Begins a pass of the checker beside service, unless one is under way. Answer: `Done`, at
    /// once; `Info` has the progress.
    Scrub,
}

impl Request {
    /// A plain write, as most are: at a place, not at the end, and possibly of fewer bytes.
    pub fn write(ino: u32, offset: u64, data: Rope, stability: Stability) -> Request {
        let (append, kill_suid, upto) = (false, false, WriteUpTo::OneOperation);
        Request::Write { ino, offset, data, stability, append, kill_suid, upto }
    }
}

/// What is to be done with snapshots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotOp {
    /// Make one of this name: the volume as it is now, standing still.
    Make(String),
    /// Delete the one of this name.
    Delete(String),
    /// Which are there?
    List,
}

/// When a read sets the time of access.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AccessTimes {
    /// Never.
    Never,
    /// As Linux's relatime has it: if the time is not later than the last change, or older than a
    /// day.
    #[default]
    Relative,
    /// Always.
    Always,
}

/// One name of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode.
    pub ino: u32,
    /// Its kind, as the entry has it (None: the volume has no file types in entries).
    pub kind: Option<Kind>,
    /// Where to go on after this entry.
    pub cookie: u64,
    /// Its attributes, if they were asked for (not for "." and "..", of which nothing is held
    /// either).
    pub attr: Option<Attr>,
}

/// What statfs tells, in blocks of `block_bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of statvfs")]
pub struct StatFs {
    pub block_bytes: u32,
    pub blocks: u64,
    pub free: u64,
    /// Without the share kept for root.
    pub available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub name_bytes_max: u32,
}

/// What a front end needs to know of a volume.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// The mode's name.
    pub mode: String,
    /// What the mode promises, as a sentence.
    pub promise: String,
    /// Keys the checksum of NFS file handles.
    pub handle_key: [u8; 16],
    /// The root directory's inode.
    pub root_ino: u32,
    /// Its generation, for its file handle.
    pub root_generation: u32,
    /// Changes with each opening that may have lost unstable data: the NFS write verifier.
    pub boot: u64,
    /// How often it was opened for writing, this time included; None where that is not kept.
    pub opened: Option<u64>,
    /// Opened for reading only?
    pub read_only: bool,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// The largest file, in bytes.
    pub file_bytes_max: u64,
    /// The most links to one inode.
    pub links_max: u32,
    /// Counters since opening, by name in Prometheus style ("cairn_cache_hits_total").
    pub counters: Vec<(&'static str, u64)>,
    /// Notes of calls ([`Call::note`]) that were done lately before this opening; None: the store
    /// keeps none.
    pub done: Option<Arc<[u128]>>,
}

/// What a request is answered with.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Nothing to say.
    Done,
    /// An inode, found or made. `created` tells which.
    Entry {
        /// Its attributes.
        attr: Attr,
        /// Was it made by this request?
        created: bool,
    },
    /// Attributes.
    Attr(Attr),
    /// The flags of `chattr`.
    Flags(u32),
    /// A link's text, an attribute's value, a list of names.
    Bytes(Vec<u8>),
    /// Data read.
    Data {
        /// The bytes.
        data: Rope,
        /// Is the end of the file at or before the end of these?
        eof: bool,
        /// The file's attributes.
        attr: Attr,
    },
    /// Data written.
    Written {
        /// How many bytes.
        len: u32,
        /// How durable they are (at least what was asked).
        stability: Stability,
        /// The file's attributes.
        attr: Attr,
    },
    /// Names.
    Dir {
        /// In the order of their cookies.
        entries: Vec<DirEntry>,
        /// No more after these?
        eof: bool,
        /// The directory's attributes.
        attr: Attr,
    },
    /// The volume's space.
    StatFs(StatFs),
    /// The granted bits of the mask.
    Access(u32),
    /// A position.
    Offset(u64),
    /// So many bytes.
    Trimmed(u64),
    /// About the volume.
    Info(Box<VolumeInfo>),
}

/// What NFS wants to know from before a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreAttr {
    /// Length in bytes.
    pub size: u64,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
}

/// Attributes around a change ("weak cache consistency").
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Wcc {
    /// Before, read under the same lock as the change.
    pub before: Option<PreAttr>,
    /// After.
    pub after: Option<Attr>,
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The reply, or why not.
    pub result: Result<Reply, FsError>,
    /// If the call asked for it: the object changed, or the directory (see each request).
    pub wcc: [Wcc; 2],
}

impl Answer {
    /// A failure that changed nothing.
    pub fn error(e: FsError) -> Answer {
        Answer { result: Err(e), wcc: [Wcc::default(); 2] }
    }
}

impl From<Result<Reply, FsError>> for Answer {
    fn from(result: Result<Reply, FsError>) -> Answer {
        Answer { result, wcc: [Wcc::default(); 2] }
    }
}

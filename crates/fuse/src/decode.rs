//! From the kernel's request to the volume's. What needs no state of the volume is answered here.

use crate::init::PAYLOAD;
use crate::shared::Shared;
use crate::wire::{Head, op, u32_at, u64_at};
use env::Rope;
use std::sync::Arc;
use vfs::{
    Call, Cred, Kind, MakeKind, RenameMode, Request, SeekKind, SetAttr, SetTime, Shift, SpaceOp,
    Stability, Time, WriteUpTo, XattrMode,
};

/// How the answer to a request is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    Empty,
    Attr,
    Entry,
    /// A new file, open; `exclusive`: that there is none yet was asked for.
    Created {
        exclusive: bool,
    },
    /// An open file or directory, with what the kernel is told of keeping its contents.
    Opened(u32),
    Bytes,
    /// Contents, of so many bytes at most.
    Data(u32),
    /// How many of so many bytes are written.
    Written(u32),
    StatFs,
    /// An attribute's value, or only its length if the asker's room is 0.
    Xattr(u32),
    /// Entries, in so many bytes at most.
    Dir(u32),
    DirPlus(u32),
    Offset,
    Statx,
    Ioctl,
    /// The flags of this inode, by the kernel's number, are other ones.
    FlagsSet(u64),
    Xflags,
    /// An inode's generation.
    Version,
    Label,
    /// What `fstrim` has asked, to be answered with the length in it changed.
    Trim {
        from: u64,
        min_bytes: u64,
    },
}

/// What becomes of a request.
#[expect(clippy::large_enum_variant, reason = "most requests are the large variant")]
pub(crate) enum Decoded {
    /// Ask the volume.
    Ask(Shape, Call),
    /// Answered already, with success and nothing more, or an errno.
    Now(i32),
    /// No answer is wanted; calls to make.
    Silent(Vec<Call>),
    /// Answered with the entry of the file that is no file.
    Probe,
    /// It has been unmounted, and who did that waits for the answer.
    Destroyed,
}

/// Linux's numbers.
const ENOSYS: i32 = 38;
const EINVAL: i32 = 22;
const ENOTSUP: i32 = 95;
const ENOTTY: i32 = 25;
/// The kernel keeps none of the file's pages.
const FOPEN_DIRECT_IO: u32 = 1;

/// A request in its parts.
pub(crate) struct Parts<'a> {
    pub(crate) head: Head,
    pub(crate) fixed: &'a [u8],
    pub(crate) rest: &'a [u8],
    /// The volume's block size, at whose borders written data are cut.
    pub(crate) block_bytes: usize,
    pub(crate) shared: &'a Shared,
}

fn name(b: &[u8]) -> Vec<u8> {
    b.split(|&c| c == 0).next().unwrap_or_default().to_vec()
}
fn two_names(b: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut parts = b.split(|&c| c == 0);
    let first = parts.next().unwrap_or_default().to_vec();
    (first, parts.next().unwrap_or_default().to_vec())
}

/// Device numbers as the kernel sends them.
fn device(rdev: u32) -> (u32, u32) {
    ((rdev & 0xf_ff00) >> 8, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00))
}

impl Parts<'_> {
    fn ino_of(&self, node: u64) -> u32 {
        self.shared.nodes.ino(node)
    }
    fn ino(&self) -> u32 {
        self.ino_of(self.head.node)
    }
    fn call(&self, request: Request) -> Call {
        let (uid, gid) = (self.head.uid, self.head.gid);
        let cred = Cred { uid, gid, groups: no_groups(), check: false };
        let durable = self.shared.is_synchronous(self.head.opcode);
        Call { cred, durable, wcc: false, hold: true, expect: [None; 2], note: None, request }
    }

    /// What to do with it.
    pub(crate) fn decode(&self) -> Decoded {
        let (ino, f) = (self.ino(), self.fixed);
        let name_of = || name(self.rest);
        let (shape, request) = match self.head.opcode {
            // How the kernel asks for what it has only a handle of, files too.
            op::LOOKUP if name_of() == b"." => (Shape::Entry, Request::ByNumber { ino }),
            op::LOOKUP if self.shared.is_probe(self.head.node, self.rest) => return Decoded::Probe,
            op::LOOKUP => (Shape::Entry, Request::Lookup { dir: ino, name: name_of() }),
            op::GETATTR => (Shape::Attr, Request::GetAttr { ino }),
            op::STATX => (Shape::Statx, Request::GetAttr { ino }),
            op::SETATTR => (Shape::Attr, Request::SetAttr { ino, set: set_attr(f) }),
            op::READLINK => (Shape::Bytes, Request::ReadLink { ino }),
            op::SYMLINK | op::MKNOD | op::MKDIR | op::CREATE => return self.make(),
            op::TMPFILE => {
                let attr = SetAttr { mode: Some(u32_at(f, 4) & 0o7777), ..SetAttr::default() };
                (
                    Shape::Created { exclusive: true },
                    Request::MakeUnnamed { dir: ino, attr, umask: u32_at(f, 8) },
                )
            }
            op::UNLINK => (Shape::Empty, Request::Unlink { dir: ino, name: name_of() }),
            op::RMDIR => (Shape::Empty, Request::Rmdir { dir: ino, name: name_of() }),
            op::RENAME | op::RENAME2 => return self.rename(),
            op::LINK => {
                let request =
                    Request::Link { ino: self.ino_of(u64_at(f, 0)), dir: ino, name: name_of() };
                (Shape::Entry, request)
            }
            op::READ => {
                let (offset, len) = (u64_at(f, 8), u32_at(f, 16).min(PAYLOAD as u32));
                (Shape::Data(len), Request::Read { ino, offset, len })
            }
            op::WRITE => (Shape::Written(u32_at(f, 16)), self.write()),
            op::STATFS => (Shape::StatFs, Request::StatFs),
            op::FSYNC | op::FSYNCDIR if self.shared.policy.returned_is_durable => {
                return Decoded::Now(ENOSYS);
            }
            op::FSYNC | op::FSYNCDIR => {
                (Shape::Empty, Request::Fsync { ino, data_only: u32_at(f, 8) & 1 != 0 })
            }
            op::SYNCFS => (Shape::Empty, Request::SyncAll),
            op::SETXATTR | op::GETXATTR | op::LISTXATTR | op::REMOVEXATTR => return self.xattr(),
            op::READDIR | op::READDIRPLUS => return self.readdir(),
            op::FALLOCATE => return self.fallocate(),
            // The volume does not know what the kernel holds back; told so, the kernel takes all of
            // a file for data.
            op::LSEEK if self.shared.policy.writeback => return Decoded::Now(ENOSYS),
            op::LSEEK => return self.seek(),
            op::BMAP => return self.map_block(),
            op::FORGET => return self.forget([(self.head.node, u64_at(f, 0))]),
            op::BATCH_FORGET => return self.batch_forget(),
            op::INTERRUPT => return Decoded::Silent(Vec::new()),
            // What is read is as old as the answer says, and no older.
            op::OPEN if self.shared.policy.keeps_nothing() => {
                (Shape::Opened(FOPEN_DIRECT_IO), Request::GetAttr { ino })
            }
            opcode @ (op::OPEN | op::OPENDIR) if self.is_to_open(opcode) => {
                (Shape::Opened(0), Request::GetAttr { ino })
            }
            // Opens need no state here: the kernel's references keep an inode alive. Told so once,
            // the kernel asks no more. Flush means nothing: nothing is held back from the file at
            // close.
            op::OPEN | op::OPENDIR | op::FLUSH => return Decoded::Now(ENOSYS),
            op::RELEASE | op::RELEASEDIR => return Decoded::Now(0),
            op::DESTROY => return Decoded::Destroyed,
            op::ACCESS => return Decoded::Now(ENOSYS), // the kernel decides (default_permissions)
            op::IOCTL => return self.ioctl(),
            _ => return Decoded::Now(ENOSYS),
        };
        Decoded::Ask(shape, self.call(request))
    }

    /// Is an opening to be answered, because the kernel's cache is dropped with it or since an old
    /// kernel must have one of each directory?
    fn is_to_open(&self, opcode: u32) -> bool {
        let needs_one = opcode == op::OPENDIR && !self.shared.dialect.no_opendir;
        self.shared.policy.drops_at_open() || needs_one
    }

    /// Nodes, and how many references to each the kernel gives back.
    fn forget(&self, nodes: impl IntoIterator<Item = (u64, u64)>) -> Decoded {
        let of_volume = nodes.into_iter().filter(|(node, _)| *node != crate::probe::NODE);
        let call = |(node, count)| self.call(Request::Forget { ino: self.ino_of(node), count });
        Decoded::Silent(of_volume.map(call).collect())
    }

    fn batch_forget(&self) -> Decoded {
        let count = u32_at(self.fixed, 0) as usize;
        let ones = self.rest.chunks_exact(16).take(count);
        self.forget(ones.map(|o| (u64_at(o, 0), u64_at(o, 8))))
    }

    fn make(&self) -> Decoded {
        let f = self.fixed;
        let mut shape = Shape::Entry;
        let mut fail_if_exists = true;
        let (kind, mode, umask, name) = match self.head.opcode {
            op::SYMLINK => {
                let (name, text) = two_names(self.rest);
                (MakeKind::Symlink(text), 0o777, 0, name)
            }
            op::MKDIR => (MakeKind::Dir, u32_at(f, 0), u32_at(f, 4), name(self.rest)),
            op::MKNOD => {
                let mode = u32_at(f, 0);
                let kind = match Kind::from_mode(mode) {
                    Some(Kind::File) => MakeKind::File { exclusive: None },
                    Some(k @ (Kind::Block | Kind::Char | Kind::Fifo | Kind::Socket)) => {
                        MakeKind::Special(k, device(u32_at(f, 4)))
                    }
                    _ => return Decoded::Now(EINVAL),
                };
                (kind, mode, u32_at(f, 8), name(self.rest))
            }
            _ => {
                let exclusive = u32_at(f, 0) & 0o200 != 0; // O_EXCL
                shape = Shape::Created { exclusive };
                // The kernel has found no such name. If somebody else has made one meanwhile, it
                // has to look again, and ask whether that may be opened.
                fail_if_exists = exclusive || self.shared.policy.is_shared();
                let kind = MakeKind::File { exclusive: None };
                (kind, u32_at(f, 4), u32_at(f, 8), name(self.rest))
            }
        };
        let attr = SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() };
        let dir = self.ino();
        let request = Request::Make { dir, name, kind, attr, umask, fail_if_exists };
        Decoded::Ask(shape, self.call(request))
    }

    fn rename(&self) -> Decoded {
        let flags = if self.head.opcode == op::RENAME2 { u32_at(self.fixed, 8) } else { 0 };
        let mode = match flags {
            0 => RenameMode::Replace,
            1 => RenameMode::NoReplace,
            2 => RenameMode::Exchange,
            4 | 5 => RenameMode::Whiteout { replace: flags == 4 },
            _ => return Decoded::Now(EINVAL),
        };
        let (name, to_name) = two_names(self.rest);
        let to_dir = self.ino_of(u64_at(self.fixed, 0));
        let request = Request::Rename { dir: self.ino(), name, to_dir, to_name, mode };
        Decoded::Ask(Shape::Empty, self.call(request))
    }

    fn write(&self) -> Request {
        let f = self.fixed;
        let (offset, size) = (u64_at(f, 8), u32_at(f, 16) as usize);
        let bytes = &self.rest[..size.min(self.rest.len())];
        let skew = (offset % self.block_bytes as u64) as usize;
        let flags = u32_at(f, 32);
        // O_DSYNC and O_SYNC of the file; the kernel sends no fsync of its own for them over FUSE.
        let stability = match flags & 0o4_010_000 {
            _ if self.shared.is_synchronous(op::WRITE) => Stability::FileSync,
            0o4_010_000 => Stability::FileSync,
            0o010_000 => Stability::DataSync,
            _ => Stability::Unstable,
        };
        let append = self.is_append();
        let data = Rope::cut(bytes, skew, self.block_bytes);
        assert_eq!(data.len(), bytes.len(), "F5: a write at byte {offset} is passed on in part");
        Request::Write {
            ino: self.ino(),
            offset,
            data,
            stability,
            append,
            kill_suid: u32_at(f, 20) & 4 != 0,
            upto: match append {
                // What of its pages was not written the kernel neither sends again nor tells.
                _ if self.is_from_pages() => WriteUpTo::All,
                // Others may append in the middle.
                true => WriteUpTo::OneOperation,
                false => WriteUpTo::Space,
            },
        }
    }

    /// Does a write go to the file's end, wherever that is? Where others change the volume too, the
    /// kernel may not know what they have appended. (What comes from its pages has its place.)
    fn is_append(&self) -> bool {
        const O_APPEND: u32 = 0o2000;
        let appends = u32_at(self.fixed, 32) & O_APPEND != 0;
        self.shared.policy.is_shared() && appends && !self.is_from_pages()
    }

    /// Does a write come from pages that the kernel has held back (mapped files)?
    fn is_from_pages(&self) -> bool {
        const FROM_PAGES: u32 = 1;
        u32_at(self.fixed, 20) & FROM_PAGES != 0
    }

    fn xattr(&self) -> Decoded {
        let (ino, f) = (self.ino(), self.fixed);
        let size = u32_at(f, 0);
        let (shape, request) = match self.head.opcode {
            op::GETXATTR => (Shape::Xattr(size), Request::GetXattr { ino, name: name(self.rest) }),
            op::LISTXATTR => (Shape::Xattr(size), Request::ListXattr { ino }),
            op::REMOVEXATTR => (Shape::Empty, Request::RemoveXattr { ino, name: name(self.rest) }),
            _ => {
                let name = name(self.rest);
                let value = self.rest.get(name.len() + 1..).unwrap_or_default();
                let value = value[..value.len().min(size as usize)].to_vec();
                let mode = match u32_at(f, 4) {
                    0 => XattrMode::Either,
                    1 => XattrMode::Create,
                    2 => XattrMode::Replace,
                    _ => return Decoded::Now(EINVAL),
                };
                let kill_sgid = self.shared.dialect.setxattr_ext && u32_at(f, 8) & 1 != 0;
                (Shape::Empty, Request::SetXattr { ino, name, value, mode, kill_sgid })
            }
        };
        Decoded::Ask(shape, self.call(request))
    }

    /// The requests of `lsattr` and `chattr`, of `fstrim`, and for the label, as the kernel passes
    /// them on.
    fn ioctl(&self) -> Decoded {
        const GET_FLAGS: u32 = 0x8008_6601;
        const SET_FLAGS: u32 = 0x4008_6602;
        const GET_XFLAGS: u32 = 0x801c_581f; // which the kernel asks before it sets the others
        const GET_VERSION: u32 = 0x8008_7601;
        const GET_VERSION_OF_EXT4: u32 = 0x8008_6603;
        const TRIM: u32 = 0xc018_5879;
        const GET_LABEL: u32 = 0x8100_9431;
        const SET_LABEL: u32 = 0x4100_9432;
        let (ino, command) = (self.ino(), u32_at(self.fixed, 12));
        if command == TRIM && self.rest.len() >= 24 {
            let (from, bytes, min_bytes) =
                (u64_at(self.rest, 0), u64_at(self.rest, 8), u64_at(self.rest, 16));
            let request = Request::Trim { from, bytes, min_bytes };
            return Decoded::Ask(Shape::Trim { from, min_bytes }, self.call(request));
        }
        match (command, self.rest.first_chunk::<4>()) {
            (GET_FLAGS, _) => Decoded::Ask(Shape::Ioctl, self.call(Request::GetFlags { ino })),
            (GET_LABEL, _) => Decoded::Ask(Shape::Label, self.call(Request::Label)),
            (SET_LABEL, _) => match String::from_utf8(name(self.rest)) {
                Ok(label) => Decoded::Ask(Shape::Ioctl, self.call(Request::SetLabel { label })),
                Err(_) => Decoded::Now(EINVAL),
            },
            (GET_XFLAGS, _) => Decoded::Ask(Shape::Xflags, self.call(Request::GetFlags { ino })),
            (GET_VERSION | GET_VERSION_OF_EXT4, _) => {
                Decoded::Ask(Shape::Version, self.call(Request::GetAttr { ino }))
            }
            (SET_FLAGS, Some(value)) => {
                let flags = u32::from_le_bytes(*value);
                let shape = Shape::FlagsSet(self.head.node);
                Decoded::Ask(shape, self.call(Request::SetFlags { ino, flags }))
            }
            _ => Decoded::Now(ENOTTY),
        }
    }

    fn readdir(&self) -> Decoded {
        let plus = self.head.opcode == op::READDIRPLUS;
        let room = u32_at(self.fixed, 16).min(PAYLOAD as u32);
        let request = Request::ReadDir {
            dir: self.ino(),
            cookie: u64_at(self.fixed, 8),
            max_bytes: room as usize,
            entry_bytes: if plus { 152 } else { 24 },
            attrs: plus,
        };
        let shape = if plus { Shape::DirPlus(room) } else { Shape::Dir(room) };
        Decoded::Ask(shape, self.call(request))
    }

    fn fallocate(&self) -> Decoded {
        let (offset, len) = (u64_at(self.fixed, 8), u64_at(self.fixed, 16));
        let ino = self.ino();
        let space = |op| Request::Space { ino, op, offset, len };
        let shift = |way| Request::Shift { ino, way, offset, len };
        let request = match u32_at(self.fixed, 24) {
            0 => space(SpaceOp::Allocate { keep_size: false }),
            1 => space(SpaceOp::Allocate { keep_size: true }),
            3 => space(SpaceOp::PunchHole),
            8 => shift(Shift::Collapse),
            0x10 => space(SpaceOp::ZeroRange { keep_size: false }),
            0x11 => space(SpaceOp::ZeroRange { keep_size: true }),
            0x20 => shift(Shift::Insert),
            _ => return Decoded::Now(ENOTSUP),
        };
        Decoded::Ask(Shape::Empty, self.call(request))
    }

    fn seek(&self) -> Decoded {
        let kind = match u32_at(self.fixed, 16) {
            3 => SeekKind::Data,
            4 => SeekKind::Hole,
            _ => return Decoded::Now(EINVAL),
        };
        let offset = u64_at(self.fixed, 8);
        Decoded::Ask(Shape::Offset, self.call(Request::Seek { ino: self.ino(), kind, offset }))
    }

    /// FIBMAP, which the kernel passes on where it knows the device. It counts in the blocks that
    /// it was told at the mount.
    fn map_block(&self) -> Decoded {
        if u32_at(self.fixed, 8) as usize != self.block_bytes {
            return Decoded::Now(EINVAL);
        }
        let request = Request::MapBlock { ino: self.ino(), block: u64_at(self.fixed, 0) };
        Decoded::Ask(Shape::Offset, self.call(request))
    }
}

fn no_groups() -> Arc<[u32]> {
    thread_local! {
        static NONE: Arc<[u32]> = Arc::new([]);
    }
    NONE.with(Arc::clone)
}

fn set_attr(f: &[u8]) -> SetAttr {
    let valid = u32_at(f, 0);
    let has = |bit: u32| valid & (1 << bit) != 0;
    let time = |sec_at: usize, nsec_at: usize, now: bool| {
        if now {
            return SetTime::Now;
        }
        let sec = u64_at(f, sec_at).cast_signed();
        SetTime::To(Time { sec, nsec: u32_at(f, nsec_at).min(999_999_999) })
    };
    SetAttr {
        mode: has(0).then(|| u32_at(f, 68)),
        uid: has(1).then(|| u32_at(f, 76)),
        gid: has(2).then(|| u32_at(f, 80)),
        size: has(3).then(|| u64_at(f, 16)),
        atime: has(4).then(|| time(32, 56, has(7))),
        mtime: has(5).then(|| time(40, 60, has(8))),
        ctime: has(10).then(|| time(48, 64, false)),
        kill_suid: has(11),
        guard: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_policy::CachePolicy;
    use crate::nodes::Nodes;
    use crate::wire::{HEAD_IN, fixed_len};

    const POLICY: CachePolicy =
        CachePolicy { secs: 1, returned_is_durable: false, writeback: false, whole_seconds: false };

    /// The kernel's bytes: a count and a filler of four bytes each, then inode and count of each.
    #[test]
    fn forgets_in_a_batch_are_those_of_their_inodes() {
        let mut bytes = vec![0; HEAD_IN];
        bytes[4..8].copy_from_slice(&op::BATCH_FORGET.to_ne_bytes());
        bytes.extend([3u32.to_ne_bytes(), [0; 4]].concat());
        for (ino, count) in [(70u64, 3u64), (crate::probe::NODE, 1), (71, 1)] {
            bytes.extend([ino.to_ne_bytes(), count.to_ne_bytes()].concat());
        }
        let head = Head::decode(&bytes);
        let (fixed, rest) = bytes[HEAD_IN..].split_at(fixed_len(head.opcode, false));
        let shared = Shared::alone(POLICY);
        let parts = Parts { head, fixed, rest, block_bytes: 4096, shared: &shared };
        let Decoded::Silent(calls) = parts.decode() else {
            panic!("forgets are not answered");
        };
        let seen: Vec<(u32, u64)> = calls
            .iter()
            .map(|c| match c.request {
                Request::Forget { ino, count } => (ino, count),
                _ => panic!("not a forget"),
            })
            .collect();
        assert_eq!(seen, [(70, 3), (71, 1)]);
    }

    #[test]
    fn fsync_asks_the_volume_unless_what_returned_is_durable() {
        for (opcode, returned_is_durable) in
            [(op::FSYNC, false), (op::FSYNCDIR, false), (op::FSYNC, true), (op::FSYNCDIR, true)]
        {
            let mut bytes = vec![0; HEAD_IN + 16];
            bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
            bytes[16..24].copy_from_slice(&70u64.to_ne_bytes());
            bytes[HEAD_IN + 8] = 1;
            let head = Head::decode(&bytes);
            let (fixed, rest) = bytes[HEAD_IN..].split_at(fixed_len(opcode, false));
            let shared = Shared::alone(CachePolicy { returned_is_durable, ..POLICY });
            let parts = Parts { head, fixed, rest, block_bytes: 4096, shared: &shared };
            match parts.decode() {
                Decoded::Now(ENOSYS) => assert!(returned_is_durable),
                Decoded::Ask(Shape::Empty, call) => {
                    assert!(!returned_is_durable);
                    let asked = matches!(call.request, Request::Fsync { ino: 70, data_only: true });
                    assert!(asked, "{:?}", call.request);
                }
                _ => panic!("{opcode}"),
            }
        }
    }

    /// The request of a program that appends, or makes a file; `flags` where the opcode has them.
    fn decoded(opcode: u32, at: usize, flags: u32, policy: CachePolicy) -> Decoded {
        let mut bytes = vec![0; HEAD_IN + fixed_len(opcode, false)];
        bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
        bytes[16..24].copy_from_slice(&70u64.to_ne_bytes());
        bytes[HEAD_IN + at..HEAD_IN + at + 4].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend(b"x\0");
        let head = Head::decode(&bytes);
        let (fixed, rest) = bytes[HEAD_IN..].split_at(fixed_len(opcode, false));
        let shared = Shared::alone(policy);
        Parts { head, fixed, rest, block_bytes: 4096, shared: &shared }.decode()
    }

    /// It counts in the blocks of the mount: those of a volume with other ones it cannot be told.
    #[test]
    fn a_block_is_asked_for_in_blocks_of_the_volume() {
        for (block_bytes, known) in [(4096u32, true), (1024, false), (0, false)] {
            match decoded(op::BMAP, 8, block_bytes, POLICY) {
                Decoded::Ask(Shape::Offset, call) => {
                    let asked = matches!(call.request, Request::MapBlock { ino: 70, block: 0 });
                    assert!(known && asked, "{:?}", call.request);
                }
                Decoded::Now(EINVAL) => assert!(!known),
                _ => panic!("it is neither asked for nor refused"),
            }
        }
    }

    /// One from before Linux 5.1 would tell whoever lists a directory that this is not implemented.
    #[test]
    fn a_kernel_that_needs_an_open_directory_gets_one() {
        let (mut bytes, offered) = (vec![0; HEAD_IN + 16], 1 << 24);
        bytes[4..8].copy_from_slice(&op::OPENDIR.to_ne_bytes());
        for flags in [0u32, offered] {
            let offer = [7, 31, 0, flags].map(u32::to_ne_bytes).concat();
            let mut shared = Shared::alone(CachePolicy { secs: 3600, ..POLICY });
            shared.dialect = crate::init::Offer::decode(&offer).dialect();
            let (head, fixed) = (Head::decode(&bytes), &bytes[HEAD_IN..]);
            let decoded =
                Parts { head, fixed, rest: &[], block_bytes: 4096, shared: &shared }.decode();
            match decoded {
                Decoded::Ask(Shape::Opened(0), _) => assert_eq!(flags, 0),
                Decoded::Now(ENOSYS) => assert_eq!(flags, offered),
                _ => panic!("it is neither opened nor said to need that"),
            }
        }
    }

    #[test]
    fn who_appends_beside_others_does_it_where_the_file_ends_now() {
        for (secs, flags) in [(1, 0o2001), (1, 1), (3600, 0o2001)] {
            let policy = CachePolicy { secs, ..POLICY };
            let Decoded::Ask(Shape::Written(_), call) = decoded(op::WRITE, 32, flags, policy)
            else {
                panic!("a write");
            };
            let Request::Write { append, .. } = call.request else { panic!("a write") };
            assert_eq!(append, secs == 1 && flags & 0o2000 != 0);
        }
    }

    #[test]
    fn a_file_that_another_has_made_is_looked_up_before_it_is_opened() {
        for (secs, flags) in [(1, 2), (1, 0o202), (3600, 2), (3600, 0o202)] {
            let policy = CachePolicy { secs, ..POLICY };
            let Decoded::Ask(shape, call) = decoded(op::CREATE, 0, flags, policy) else {
                panic!("a file is made");
            };
            let Request::Make { fail_if_exists, .. } = call.request else { panic!("{shape:?}") };
            let exclusive = flags & 0o200 != 0;
            assert_eq!(shape, Shape::Created { exclusive });
            assert_eq!(fail_if_exists, exclusive || secs == 1);
            let answer = vfs::Answer::from(Err(vfs::FsError::Exists));
            let told = crate::encode::encode(shape, answer, (policy, Nodes(2)), &mut [0; 256]);
            assert_eq!(told, Err(if exclusive { 17 } else { 116 }));
        }
    }
}

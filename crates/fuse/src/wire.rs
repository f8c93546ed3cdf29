//! The wire format: FUSE's structures as offsets into bytes, in the machine's own byte order as the
//! kernel has it. Numbers of operations, flags and lengths as in the kernel's header, version 7.38
//! and later additions.

/// A request's header, 40 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

pub(crate) const HEAD_IN: usize = 40;
pub(crate) const HEAD_OUT: usize = 16;

pub(crate) fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(take(b, at))
}
pub(crate) fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(take(b, at))
}
/// Bytes that are missing read as zero: a short structure is an older kernel's.
fn take<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    b.get(at..at + N).and_then(|s| s.try_into().ok()).unwrap_or([0; N])
}

impl Head {
    pub(crate) fn decode(b: &[u8]) -> Head {
        Head {
            opcode: u32_at(b, 4),
            unique: u64_at(b, 8),
            node: u64_at(b, 16),
            uid: u32_at(b, 24),
            gid: u32_at(b, 28),
        }
    }
}

/// Appends numbers to a reply.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    pub(crate) len: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Writer<'a> {
        Writer { out, len: 0 }
    }
    pub(crate) fn room(&self) -> usize {
        self.out.len() - self.len
    }
    pub(crate) fn bytes(&mut self, b: &[u8]) {
        self.out[self.len..self.len + b.len()].copy_from_slice(b);
        self.len += b.len();
    }
    pub(crate) fn u32(&mut self, v: u32) {
        self.bytes(&v.to_ne_bytes());
    }
    pub(crate) fn u64(&mut self, v: u64) {
        self.bytes(&v.to_ne_bytes());
    }
    pub(crate) fn u16(&mut self, v: u16) {
        self.bytes(&v.to_ne_bytes());
    }
    pub(crate) fn zeros(&mut self, n: usize) {
        self.out[self.len..self.len + n].fill(0);
        self.len += n;
    }
    /// The place of the next bytes, for a payload that copies itself.
    pub(crate) fn rest(&mut self, n: usize) -> &mut [u8] {
        self.len += n;
        &mut self.out[self.len - n..self.len]
    }
}

/// Operations.
pub(crate) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const BMAP: u32 = 37;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// The operations' names by number, for whoever counts them; the last is of all that have none.
pub(crate) const NAMES: [&str; 54] = [
    "other",
    "lookup",
    "forget",
    "getattr",
    "setattr",
    "readlink",
    "symlink",
    "other",
    "mknod",
    "mkdir",
    "unlink",
    "rmdir",
    "rename",
    "link",
    "open",
    "read",
    "write",
    "statfs",
    "release",
    "other",
    "fsync",
    "setxattr",
    "getxattr",
    "listxattr",
    "removexattr",
    "flush",
    "init",
    "opendir",
    "readdir",
    "releasedir",
    "fsyncdir",
    "getlk",
    "setlk",
    "setlkw",
    "access",
    "create",
    "interrupt",
    "bmap",
    "destroy",
    "ioctl",
    "poll",
    "other",
    "batch_forget",
    "fallocate",
    "readdirplus",
    "rename2",
    "lseek",
    "copy_file_range",
    "setupmapping",
    "removemapping",
    "syncfs",
    "tmpfile",
    "statx",
    "other",
];

/// The length of an operation's fixed part: over io_uring it comes apart, over /dev/fuse before the
/// rest. `setxattr_ext`: SETXATTR's longer form was agreed on.
pub(crate) fn fixed_len(opcode: u32, setxattr_ext: bool) -> usize {
    match opcode {
        op::SETXATTR if setxattr_ext => 16,
        op::FORGET
        | op::MKDIR
        | op::RENAME
        | op::LINK
        | op::GETXATTR
        | op::LISTXATTR
        | op::SETXATTR
        | op::ACCESS
        | op::OPEN
        | op::OPENDIR
        | op::SYNCFS
        | op::BATCH_FORGET => 8,
        op::GETATTR
        | op::BMAP
        | op::MKNOD
        | op::FSYNC
        | op::FSYNCDIR
        | op::CREATE
        | op::TMPFILE
        | op::RENAME2 => 16,
        op::FLUSH | op::RELEASE | op::RELEASEDIR | op::LSEEK | op::STATX => 24,
        op::FALLOCATE | op::IOCTL => 32,
        op::WRITE | op::READ | op::READDIR | op::READDIRPLUS => 40,
        op::SETATTR => 88,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, op};

    #[test]
    fn names_stand_at_their_numbers() {
        for (number, name) in [
            (op::LOOKUP, "lookup"),
            (op::SYMLINK, "symlink"),
            (op::WRITE, "write"),
            (op::FSYNC, "fsync"),
            (op::FSYNCDIR, "fsyncdir"),
            (op::CREATE, "create"),
            (op::BATCH_FORGET, "batch_forget"),
            (op::BMAP, "bmap"),
            (op::DESTROY, "destroy"),
            (op::LSEEK, "lseek"),
            (op::STATX, "statx"),
        ] {
            assert_eq!(NAMES[number as usize], name);
        }
    }
}

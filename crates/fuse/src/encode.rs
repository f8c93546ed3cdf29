//! From the volume's answer to the kernel's reply. How the reply travels it does not know.

use crate::cache_policy::CachePolicy;
use crate::decode::Shape;
use crate::nodes::Nodes;
use crate::wire::Writer;
use vfs::{Answer, Attr, DirEntry, FsError, Reply, StatFs};

/// Bytes of the answer that has the label.
const LABEL_ROOM: usize = 256;
/// Bytes of the kernel's `fuse_entry_out`.
const ENTRY: usize = 128;
const ERANGE: i32 = 34;
const EIO: i32 = 5;
const ESTALE: i32 = 116;

/// Writes the reply's body into `out`. Ok: its length; Err: an errno, positive.
pub(crate) fn encode(
    shape: Shape,
    answer: Answer,
    (policy, nodes): (CachePolicy, Nodes),
    out: &mut [u8],
) -> Result<usize, i32> {
    let reply = answer.result.map_err(|e| errno(shape, e))?;
    let mut w = Writer::new(out);
    match (shape, reply) {
        (Shape::Empty, _) => (),
        (Shape::Attr, Reply::Attr(a)) => {
            w.u64(policy.of(&a));
            w.u64(0);
            attr(&mut w, &a);
        }
        (Shape::Statx, Reply::Attr(a)) => {
            w.u64(policy.of(&a));
            w.zeros(24);
            statx(&mut w, &a);
        }
        (Shape::Entry, Reply::Entry { attr: a, .. }) => entry(&mut w, &a, (policy, nodes)),
        (Shape::Created { .. }, Reply::Entry { attr: a, .. }) => {
            entry(&mut w, &a, (policy, nodes));
            opened(&mut w, 2); // FOPEN_KEEP_CACHE
        }
        (Shape::Opened(how), Reply::Attr(_)) => opened(&mut w, how),
        (Shape::Bytes, Reply::Bytes(b)) => w.bytes(&b),
        (Shape::Data(most), Reply::Data { data, .. }) => contents(&mut w, &data, most),
        (Shape::Written(sent), Reply::Written { len, .. }) => {
            assert!(len <= sent, "F5: {len} bytes are said to be written, of {sent}");
            w.u32(len);
            w.u32(0);
        }
        (Shape::StatFs, Reply::StatFs(s)) => statfs(&mut w, &s),
        (Shape::Xattr(0), Reply::Bytes(b)) => {
            w.u32(b.len() as u32);
            w.u32(0);
        }
        (Shape::Xattr(room), Reply::Bytes(b)) => {
            if b.len() > room as usize {
                return Err(ERANGE);
            }
            w.bytes(&b);
        }
        (Shape::Dir(most) | Shape::DirPlus(most), Reply::Dir { entries, .. }) => {
            for e in &entries {
                dir_entry(&mut w, e, matches!(shape, Shape::DirPlus(_)), (policy, nodes));
            }
            assert!(w.len <= most as usize, "F2: {} bytes of a listing, for {most}", w.len);
        }
        (Shape::Offset, Reply::Offset(o)) => w.u64(o),
        (Shape::Ioctl, Reply::Flags(flags)) => {
            w.zeros(16); // it has succeeded
            w.u32(flags);
        }
        (Shape::Trim { from, min_bytes }, Reply::Trimmed(bytes)) => {
            w.zeros(16);
            [from, bytes, min_bytes].into_iter().for_each(|n| w.u64(n));
        }
        (Shape::Ioctl | Shape::FlagsSet(_), Reply::Done) => w.zeros(16),
        (Shape::Label, Reply::Bytes(text)) => label(&mut w, &text),
        (Shape::Version, Reply::Attr(a)) => version(&mut w, &a),
        (Shape::Xflags, Reply::Flags(flags)) => {
            w.zeros(16);
            w.u32(xflags(flags));
            w.zeros(24); // no hints, no project
        }
        _ => return Err(EIO),
    }
    let fixed = fixed_len(shape).is_none_or(|len| len == w.len);
    assert!(fixed, "F3: an answer of the shape {shape:?} has {} bytes", w.len);
    Ok(w.len)
}

/// How long the kernel's structures are that answers consist of; None: that depends on what is
/// told.
fn fixed_len(shape: Shape) -> Option<usize> {
    const IOCTL: usize = 16;
    Some(match shape {
        Shape::Empty => 0,
        Shape::Attr => 104,
        Shape::Statx => 288,
        Shape::Entry => ENTRY,
        Shape::Created { .. } => ENTRY + 16,
        Shape::Opened(_) => 16,
        Shape::Written(_) | Shape::Offset | Shape::Xattr(0) => 8,
        Shape::StatFs => 80,
        Shape::FlagsSet(_) => IOCTL,
        Shape::Version => IOCTL + 4,
        Shape::Trim { .. } => IOCTL + 24,
        Shape::Xflags => IOCTL + 28,
        Shape::Label => IOCTL + LABEL_ROOM,
        // Flags that are asked for, or none.
        Shape::Ioctl => return None,
        Shape::Bytes | Shape::Data(_) | Shape::Xattr(_) => return None,
        Shape::Dir(_) | Shape::DirPlus(_) => return None,
    })
}

fn opened(w: &mut Writer<'_>, how: u32) {
    w.u64(0); // no handle
    w.u32(how);
    w.u32(0);
}

fn contents(w: &mut Writer<'_>, data: &env::Rope, most: u32) {
    let (len, room) = (data.len(), w.room().min(most as usize));
    assert!(len <= room, "F2: {len} bytes are read where {room} were asked for");
    data.copy_to(w.rest(len));
}

fn errno(shape: Shape, e: FsError) -> i32 {
    match (shape, e) {
        // The kernel looks the name up again, and opens what it finds.
        (Shape::Created { exclusive: false }, FsError::Exists) => ESTALE,
        (_, e) => e.errno(),
    }
}

fn label(w: &mut Writer<'_>, text: &[u8]) {
    w.zeros(16);
    w.bytes(text);
    w.zeros(LABEL_ROOM - text.len().min(LABEL_ROOM));
}

/// Who asks has four bytes, though the command says eight.
fn version(w: &mut Writer<'_>, a: &Attr) {
    w.zeros(16);
    w.u32(a.generation);
}

fn attr(w: &mut Writer<'_>, a: &Attr) {
    w.u64(u64::from(a.ino));
    w.u64(a.size);
    w.u64(a.blocks);
    for t in [a.atime, a.mtime, a.ctime] {
        w.u64(t.sec.cast_unsigned());
    }
    for t in [a.atime, a.mtime, a.ctime] {
        w.u32(t.nsec);
    }
    w.u32(a.mode);
    w.u32(a.nlink);
    w.u32(a.uid);
    w.u32(a.gid);
    let (major, minor) = a.rdev;
    w.u32((minor & 0xff) | major << 8 | (minor & !0xff) << 12);
    w.u32(a.blksize);
    w.u32(0);
}

/// The kernel's `fuse_statx`: what `attr` tells, and the time of creation where there is one.
fn statx(w: &mut Writer<'_>, a: &Attr) {
    const BASIC: u32 = 0x7ff;
    const BTIME: u32 = 0x800;
    w.u32(BASIC | if a.crtime.is_some() { BTIME } else { 0 });
    w.u32(a.blksize);
    w.u64(0); // attributes
    w.u32(a.nlink);
    w.u32(a.uid);
    w.u32(a.gid);
    w.u16(a.mode as u16);
    w.u16(0);
    w.u64(u64::from(a.ino));
    w.u64(a.size);
    w.u64(a.blocks);
    w.u64(0); // which attributes are known
    for t in [a.atime, a.crtime.unwrap_or_default(), a.ctime, a.mtime] {
        w.u64(t.sec.cast_unsigned());
        w.u32(t.nsec);
        w.u32(0);
    }
    w.u32(a.rdev.0);
    w.u32(a.rdev.1);
    w.zeros(8 + 14 * 8);
}

fn entry(w: &mut Writer<'_>, a: &Attr, (policy, nodes): (CachePolicy, Nodes)) {
    w.u64(nodes.node(a.ino));
    w.u64(u64::from(a.generation));
    w.u64(policy.secs);
    w.u64(policy.of(a));
    w.u64(0);
    attr(w, a);
}

fn dir_entry(w: &mut Writer<'_>, e: &DirEntry, plus: bool, of: (CachePolicy, Nodes)) {
    let head = if plus { ENTRY + 24 } else { 24 };
    let (len, room) = (head + e.name.len().next_multiple_of(8), w.room());
    // The kernel would never give back what it holds of this one.
    assert!(len <= room, "F2: an entry of {len} bytes in a listing with {room} left");
    // From there the kernel would list it all anew, without an end.
    assert!(e.cookie != 0, "F6: inode {} has the cookie of a listing's beginning", e.ino);
    let end = w.len + len;
    let dots = e.name == b"." || e.name == b"..";
    if plus {
        match &e.attr {
            Some(a) if !dots => entry(w, a, of),
            _ => w.zeros(128), // node 0: nothing to remember
        }
    }
    w.u64(u64::from(e.ino));
    w.u64(e.cookie);
    w.u32(e.name.len() as u32);
    w.u32(e.kind.map_or(0, |k| k.mode_bits() >> 12));
    w.bytes(&e.name);
    w.zeros(e.name.len().next_multiple_of(8) - e.name.len());
    assert_eq!(w.len, end, "F3: an entry of {len} bytes ends elsewhere");
}

fn statfs(w: &mut Writer<'_>, s: &StatFs) {
    for v in [s.blocks, s.free, s.available, s.inodes, s.inodes_free] {
        w.u64(v);
    }
    w.u32(s.block_bytes);
    w.u32(s.name_bytes_max);
    w.u32(s.block_bytes);
    w.zeros(28);
}
/// Flags as `FS_IOC_FSGETXATTR` has them: synchronous, immutable, append-only, no dump, no access
/// times.
fn xflags(flags: u32) -> u32 {
    const PAIRS: [(u32, u32); 5] =
        [(0x8, 0x20), (0x10, 0x8), (0x20, 0x10), (0x40, 0x80), (0x80, 0x40)];
    PAIRS.iter().filter(|p| flags & p.0 != 0).map(|p| p.1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Rope;
    use vfs::{Kind, Stability, Time};

    const POLICY: CachePolicy =
        CachePolicy { secs: 1, returned_is_durable: false, writeback: false, whole_seconds: false };

    fn attr() -> Attr {
        let [atime, mtime, ctime] = [Time::default(); 3];
        Attr {
            ino: 12,
            generation: 1,
            mode: 0o100_644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            blocks: 0,
            atime,
            mtime,
            ctime,
            crtime: None,
            rdev: (0, 0),
            blksize: 4096,
        }
    }

    /// F3 holds for every shape, and memory of just that length is enough (F2).
    #[test]
    fn answers_have_the_lengths_of_the_kernels_structures() {
        let all = |attr: Attr| {
            let entry = || Reply::Entry { attr, created: true };
            let statfs = StatFs {
                block_bytes: 1024,
                blocks: 9,
                free: 8,
                available: 7,
                inodes: 6,
                inodes_free: 5,
                name_bytes_max: 255,
            };
            let written = Reply::Written { len: 1, stability: Stability::Unstable, attr };
            let data = Reply::Data { data: Rope::cut(&[7; 5000], 0, 4096), eof: true, attr };
            let name = |name: &[u8], attr| {
                let kind = Some(Kind::File);
                DirEntry { name: name.to_vec(), ino: 12, kind, cookie: 1, attr }
            };
            let entries = vec![name(b".", None), name(b"a-name", Some(attr))];
            let dir = || Reply::Dir { entries: entries.clone(), eof: true, attr };
            vec![
                (Shape::Empty, Reply::Done, 0),
                (Shape::Attr, Reply::Attr(attr), 104),
                (Shape::Statx, Reply::Attr(attr), 288),
                (Shape::Entry, entry(), 128),
                (Shape::Created { exclusive: true }, entry(), 144),
                (Shape::Opened(1), Reply::Attr(attr), 16),
                (Shape::Bytes, Reply::Bytes(vec![1; 9]), 9),
                (Shape::Data(5000), data, 5000),
                (Shape::Written(1), written, 8),
                (Shape::StatFs, Reply::StatFs(statfs), 80),
                (Shape::Xattr(0), Reply::Bytes(vec![1; 9]), 8),
                (Shape::Xattr(9), Reply::Bytes(vec![1; 9]), 9),
                (Shape::Dir(64), dir(), 2 * (24 + 8)),
                (Shape::DirPlus(320), dir(), 2 * (152 + 8)),
                (Shape::Offset, Reply::Offset(3), 8),
                (Shape::Ioctl, Reply::Flags(3), 20),
                (Shape::Ioctl, Reply::Done, 16),
                (Shape::FlagsSet(12), Reply::Done, 16),
                (Shape::Xflags, Reply::Flags(8), 44),
                (Shape::Version, Reply::Attr(attr), 20),
                (Shape::Label, Reply::Bytes(b"label".to_vec()), 272),
                (Shape::Trim { from: 1, min_bytes: 2 }, Reply::Trimmed(3), 40),
            ]
        };
        for (shape, reply, len) in all(attr()) {
            let told =
                encode(shape, Answer::from(Ok(reply)), (POLICY, Nodes(2)), &mut vec![0; len]);
            assert_eq!(told, Ok(len), "{shape:?}");
        }
    }
}

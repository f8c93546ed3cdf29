//! The replies: from a volume's answer, or from an error found before it was asked, to the bytes of
//! each procedure's result. It decides nothing; what was asked is in [`Pending`].
//!
//! Invariants:
//! * A1. Of a call that is refused the volume was asked for attributes, and for nothing else.
//! * A2. A volume answers with what belongs to the procedure.
//! * A3. No reply is longer than what its client has asked for, and has room for.
//! * A4. Attributes have the length that RFC 1813 gives them.

use crate::calls::{MNT, Pending};
use crate::handle;
use crate::mountd;
use crate::nfs3::{self, access};
use crate::replies::{fattr, post, status, wcc};
use crate::rpc::{self, Refusal};
use crate::server::Server;
use crate::xdr::Writer;
use env::Rope;
use vfs::{Answer, FsError, Kind, Reply, Stability, TRANSFER_BYTES_MAX, VolumeInfo, Wcc};

/// A READDIR whose limit leaves room for no entry.
const TOOSMALL: u32 = 10_005;

/// How many optional parts follow the status of a failed reply of a procedure, each one absent word
/// per item: post-op attributes are one word, wcc data two.
fn failure_words(procedure: u32) -> usize {
    match procedure {
        nfs3::NULL | nfs3::GETATTR | MNT => 0,
        p if nfs3::changes_one(p) || p == nfs3::COMMIT => 2,
        nfs3::RENAME => 4,
        nfs3::LINK => 3,
        _ => 1,
    }
}

pub(crate) fn fail(xid: u32, procedure: u32, why: u32) -> Vec<u8> {
    let mut w = rpc::success(xid);
    w.u32(why);
    (0..failure_words(procedure)).for_each(|_| w.u32(0));
    w.0
}

/// A reply, and data that follow it, padded to four bytes.
pub(crate) type Message = (Vec<u8>, Rope);

/// So much that is read is sent from where it lies, and not copied.
const SHARED_BYTES_MIN: usize = 16 << 10;

/// Writes the reply to an answered call.
pub(crate) fn finish(server: &Server, p: Pending, answer: Answer) -> Message {
    let (head, data) = message(server, p, answer);
    let (len, most) = (head.len() + data.len(), p.bytes_max);
    // A client is better off with a long reply than without a server.
    debug_assert!(len <= most, "A3: procedure {} has {len} bytes, not {most}", p.procedure);
    (head, data)
}

fn message(server: &Server, p: Pending, answer: Answer) -> Message {
    match answer.result {
        Ok(Reply::Data { data, eof, attr })
            if p.procedure == nfs3::READ && data.len() >= SHARED_BYTES_MIN =>
        {
            let mut w = rpc::success(p.xid);
            w.u32(0);
            read_head(&mut w, &attr, server.volumes[p.volume].fsid(), (data.len(), eof));
            (w.0, data)
        }
        _ => (written(server, p, answer), Rope::new()),
    }
}

/// The reply to a READ up to its data.
fn read_head(w: &mut Writer, attr: &vfs::Attr, fsid: u64, (len, eof): (usize, bool)) {
    post(w, Some(attr), fsid);
    w.u32(len as u32);
    w.bool(eof);
    w.u32(len as u32);
}

fn written(server: &Server, p: Pending, answer: Answer) -> Vec<u8> {
    let volume = &server.volumes[p.volume];
    let fsid = volume.fsid();
    let mut w = rpc::success(p.xid);
    let reply = match (answer.result, p.refused) {
        (Ok(reply), Some(why)) => {
            let asked = matches!(reply, Reply::Attr(_));
            assert!(asked, "A1: procedure {} was refused, and done: {reply:?}", p.procedure);
            // LINK's first handle is the file's, whose attributes come second.
            let [first, second] = answer.wcc;
            let around = if p.procedure == nfs3::LINK { [second, first] } else { [first, second] };
            return failed(w, p.procedure, why, &around, fsid);
        }
        (Ok(reply), None) => reply,
        (Err(e), _) => {
            return failed(w, p.procedure, told(p.procedure, e), &answer.wcc, fsid);
        }
    };
    w.u32(0);
    let handle = |a: &vfs::Attr| {
        handle::encode(&volume.info.uuid, &volume.info.handle_key, a.ino, a.generation)
    };
    let around = &answer.wcc;
    let known = match &reply {
        Reply::Entry { attr, .. } if p.procedure == MNT => {
            mountd::mounted(&mut w, &handle(attr));
            true
        }
        Reply::Dir { entries, eof, attr } => {
            listing(&mut w, p, entries, (*eof, attr), (fsid, &handle));
            true
        }
        Reply::Entry { attr, .. } => {
            found(&mut w, p, attr, around, (fsid, &handle));
            true
        }
        Reply::Attr(a) if matches!(p.procedure, nfs3::FSINFO | nfs3::PATHCONF) => {
            post(&mut w, Some(a), fsid);
            about(&mut w, p.procedure, &volume.info);
            true
        }
        _ => plain(&mut w, p, &reply, around, (fsid, volume.verifier())),
    };
    // A client that is told of a failure is better off than one whose server has gone.
    debug_assert!(known, "A2: procedure {} is answered with {reply:?}", p.procedure);
    if known { w.0 } else { rpc::refuse(p.xid, Refusal::SystemError) }
}

/// Makes a handle of an inode's attributes.
type MakeHandle<'a> = dyn Fn(&vfs::Attr) -> [u8; handle::HANDLE_BYTES] + 'a;

/// Replies with an inode: LOOKUP, what makes something, LINK.
fn found(
    w: &mut Writer,
    p: Pending,
    attr: &vfs::Attr,
    around: &[Wcc; 2],
    (fsid, handle): (u64, &MakeHandle<'_>),
) {
    match p.procedure {
        nfs3::LOOKUP => {
            w.opaque(&handle(attr));
            post(w, Some(attr), fsid);
            post(w, around[0].after.as_ref(), fsid);
        }
        nfs3::LINK => {
            post(w, around[1].after.as_ref(), fsid);
            wcc(w, &around[0], fsid);
        }
        _ => {
            w.bool(true);
            w.opaque(&handle(attr));
            post(w, Some(attr), fsid);
            wcc(w, &around[0], fsid);
        }
    }
}

/// All other replies; false for one that does not belong to its procedure.
fn plain(
    w: &mut Writer,
    p: Pending,
    reply: &Reply,
    around: &[Wcc; 2],
    (fsid, verifier): (u64, u64),
) -> bool {
    match (p.procedure, reply) {
        (nfs3::GETATTR, Reply::Attr(a)) => fattr(w, a, fsid),
        (nfs3::SETATTR | nfs3::REMOVE | nfs3::RMDIR, _) => wcc(w, &around[0], fsid),
        (nfs3::ACCESS, Reply::Access(bits)) => {
            let attr = around[0].after.as_ref();
            let is_dir = attr.is_some_and(|a| a.kind() == Kind::Dir);
            post(w, attr, fsid);
            w.u32(
                access::of_ours(*bits)
                    & p.asked
                    & if is_dir { access::OF_DIR } else { access::OF_FILE },
            );
        }
        (nfs3::READLINK, Reply::Bytes(text)) => {
            post(w, around[0].after.as_ref(), fsid);
            w.opaque(text);
        }
        (nfs3::READ, Reply::Data { data, eof, attr }) => {
            read_head(w, attr, fsid, (data.len(), *eof));
            data.parts().for_each(|part| w.fixed(part));
            w.pad(data.len());
        }
        (nfs3::WRITE, Reply::Written { len, stability, .. }) => {
            wcc(w, &around[0], fsid);
            w.u32(*len);
            w.u32(match stability {
                Stability::Unstable => 0,
                Stability::DataSync => 1,
                Stability::FileSync => 2,
            });
            w.u64(verifier);
        }
        (nfs3::RENAME, _) => around.iter().for_each(|a| wcc(w, a, fsid)),
        (nfs3::FSSTAT, Reply::StatFs(s)) => {
            post(w, around[0].after.as_ref(), fsid);
            let bytes = u64::from(s.block_bytes);
            w.longs(&[s.blocks * bytes, s.free * bytes, s.available * bytes]);
            w.longs(&[s.inodes, s.inodes_free, s.inodes_free]);
            w.u32(0);
        }
        (nfs3::COMMIT, Reply::Attr(a)) => {
            wcc(w, &Wcc { before: None, after: Some(*a) }, fsid);
            w.u64(verifier);
        }
        _ => return false,
    }
    true
}

/// Bytes of which reads and writes are to be multiples: a page of a client's memory.
const MULTIPLE: u32 = 4096;

/// What FSINFO and PATHCONF tell, which never changes.
fn about(w: &mut Writer, procedure: u32, info: &VolumeInfo) {
    if procedure == nfs3::FSINFO {
        let max = TRANSFER_BYTES_MAX as u32;
        w.words(&[max, max, MULTIPLE, max, max, MULTIPLE, 65_536]);
        w.u64(info.file_bytes_max);
        w.words(&[0, 1]); // times to the nanosecond
        w.u32(0x1b); // links, symlinks, homogeneous, times can be set
    } else {
        w.words(&[info.links_max, 255]);
        w.bools(&[true, true, false, true]); // no_trunc, chown restricted, case kept
    }
}

/// The error as the procedure knows it.
fn told(procedure: u32, e: FsError) -> u32 {
    match (procedure, e) {
        (nfs3::READDIR | nfs3::READDIRPLUS, FsError::Invalid) => TOOSMALL,
        (nfs3::RENAME, FsError::Busy) => status(FsError::Invalid), // "." and ".."
        _ => status(e),
    }
}

fn failed(mut w: Writer, procedure: u32, why: u32, around: &[Wcc; 2], fsid: u64) -> Vec<u8> {
    w.u32(why);
    match procedure {
        p if nfs3::changes_one(p) || p == nfs3::COMMIT => wcc(&mut w, &around[0], fsid),
        nfs3::RENAME => around.iter().for_each(|a| wcc(&mut w, a, fsid)),
        nfs3::LINK => {
            post(&mut w, around[1].after.as_ref(), fsid);
            wcc(&mut w, &around[0], fsid);
        }
        nfs3::NULL | nfs3::GETATTR | MNT => (),
        _ => post(&mut w, around[0].after.as_ref(), fsid),
    }
    w.0
}

fn listing(
    w: &mut Writer,
    p: Pending,
    entries: &[vfs::DirEntry],
    (eof, attr): (bool, &vfs::Attr),
    (fsid, handle): (u64, &MakeHandle<'_>),
) {
    post(w, Some(attr), fsid);
    w.u64(0); // cookies are good for ever: one verifier
    for e in entries {
        w.bool(true);
        w.u64(u64::from(e.ino));
        w.opaque(&e.name);
        w.u64(e.cookie);
        if p.procedure == nfs3::READDIRPLUS {
            post(w, e.attr.as_ref(), fsid);
            w.bool(e.attr.is_some());
            if let Some(a) = &e.attr {
                w.opaque(&handle(a));
            }
        }
    }
    w.bool(false);
    w.bool(eof);
}

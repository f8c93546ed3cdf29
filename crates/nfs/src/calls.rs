//! The 22 procedures, from their arguments to one call of the volume. What its answer becomes is
//! `answers`' business; who may call at all is the exports'.

use crate::answers::fail;
use crate::handle::{self, Handle};
use crate::nfs3;
use crate::rpc::{self, Head, Refusal};
use crate::server::{Server, User};
use crate::xdr::{Garbage, Reader};
use env::Rope;
use vfs::access::{EXECUTE, READ};
use vfs::{Call, MakeKind, RenameMode, Request, Stability, TRANSFER_BYTES_MAX, WriteUpTo};

/// What is needed to write a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pending {
    pub(crate) xid: u32,
    pub(crate) procedure: u32,
    pub(crate) volume: usize,
    /// Is it answered only when durable?
    pub(crate) durable: bool,
    /// Why it is refused: the volume is only asked for the attributes that go with the refusal.
    pub(crate) refused: Option<u32>,
    /// The permissions that ACCESS asks about.
    pub(crate) asked: u32,
    /// The reply has so many bytes at most.
    pub(crate) bytes_max: usize,
}

/// What a reply with contents or names has besides them: head, status, attributes, verifier, end.
const BESIDES: usize = 160;

impl Pending {
    /// For a call that is answered as soon as the volume says something.
    pub(crate) fn new(xid: u32, procedure: u32, volume: usize) -> Pending {
        let (durable, refused, asked, bytes_max) = (false, None, 0, usize::MAX);
        Pending { xid, procedure, volume, durable, refused, asked, bytes_max }
    }
}

/// MOUNT's one procedure that asks a volume, as if it were NFS's last.
pub(crate) const MNT: u32 = 22;

/// What becomes of a call.
pub(crate) enum Begun {
    /// Ask the volume.
    Ask(Box<(Pending, Call)>),
    /// Answered already.
    Now(Vec<u8>),
}

const BADHANDLE: u32 = 10_001;
const BADTYPE: u32 = 10_007;
const XDEV: u32 = 18;
const ROFS: u32 = 30;
const STALE: u32 = 70;
const ACCES: u32 = 13;

/// Begins an NFS call.
pub(crate) fn begin(server: &Server, head: &Head, r: &mut Reader<'_>, user: &User) -> Begun {
    if head.version != 3 {
        return Begun::Now(rpc::refuse(head.xid, Refusal::VersionMismatch(3, 3)));
    }
    if head.procedure == nfs3::NULL {
        return Begun::Now(rpc::success(head.xid).0);
    }
    if head.procedure > nfs3::COMMIT {
        return Begun::Now(rpc::refuse(head.xid, Refusal::ProcedureUnavailable));
    }
    match decode(server, head, r, user) {
        Ok(b) => b,
        Err(Garbage) => Begun::Now(rpc::refuse(head.xid, Refusal::GarbageArguments)),
    }
}

fn decode(server: &Server, head: &Head, r: &mut Reader<'_>, user: &User) -> Result<Begun, Garbage> {
    let p = head.procedure;
    let no = |why: u32| Ok(Begun::Now(fail(head.xid, p, why)));
    let first = match server.handle(r.handle()?) {
        Ok(h) => h,
        Err(handle::BadHandle::Bad) => return no(BADHANDLE),
        Err(handle::BadHandle::Stale) => return no(STALE),
    };
    let Some(rule) = server.rule(first.volume, user) else {
        server.refused(first.volume, user.peer);
        return no(ACCES);
    };
    let mut pending = Pending::new(head.xid, p, first.volume);
    let mut expect = [Some((first.ino, first.generation)), None];
    let mut durable = nfs3::modifies(p);
    let wanted = match p {
        _ if nfs3::modifies(p) && !rule.writable => Err(ROFS),
        nfs3::RENAME | nfs3::LINK => {
            let name = if p == nfs3::RENAME { r.name()? } else { Vec::new() };
            match server.handle(r.handle()?) {
                Ok(second) if second.volume == first.volume => {
                    expect[1] = Some((second.ino, second.generation));
                    Ok(two_handles(p, first, second, name, r)?)
                }
                Ok(_) => Err(XDEV),
                Err(handle::BadHandle::Bad) => Err(BADHANDLE),
                Err(handle::BadHandle::Stale) => Err(STALE),
            }
        }
        nfs3::ACCESS => {
            pending.asked = r.u32()?;
            // Nothing is written where the export is read-only.
            let most = if rule.writable { u32::MAX } else { READ | EXECUTE };
            Ok(Request::Access {
                ino: first.ino,
                mask: nfs3::access::to_ours(pending.asked) & most,
            })
        }
        _ => single(p, (first, server.block_bytes(first.volume)), r, &mut durable)?.ok_or(BADTYPE),
    };
    pending.refused = wanted.as_ref().err().copied();
    durable &= pending.refused.is_none();
    let request = wanted.unwrap_or(Request::GetAttr { ino: first.ino });
    pending.durable = durable || waits(&request);
    pending.bytes_max = match &request {
        Request::Read { len, .. } => BESIDES + (*len as usize).min(TRANSFER_BYTES_MAX),
        Request::ReadDir { max_bytes, .. } => BESIDES + max_bytes,
        _ => usize::MAX,
    };
    let cred = server.cred(&rule, user);
    let call = Call { cred, durable, wcc: true, hold: false, expect, note: None, request };
    Ok(Begun::Ask(Box::new((pending, call))))
}

/// Do the request's own words ask for durability?
fn waits(request: &Request) -> bool {
    match request {
        Request::Write { stability, .. } => *stability != Stability::Unstable,
        Request::Fsync { .. } => true,
        _ => false,
    }
}

fn two_handles(
    p: u32,
    first: Handle,
    second: Handle,
    name: Vec<u8>,
    r: &mut Reader<'_>,
) -> Result<Request, Garbage> {
    let to_name = r.name()?;
    Ok(if p == nfs3::RENAME {
        let mode = RenameMode::Replace;
        Request::Rename { dir: first.ino, name, to_dir: second.ino, to_name, mode }
    } else {
        Request::Link { ino: first.ino, dir: second.ino, name: to_name }
    })
}

/// The procedures with one handle. None: a kind that cannot be made.
fn single(
    p: u32,
    (h, block_bytes): (Handle, usize),
    r: &mut Reader<'_>,
    durable: &mut bool,
) -> Result<Option<Request>, Garbage> {
    let ino = h.ino;
    let make = |name, kind, attr, fail_if_exists| Request::Make {
        dir: ino,
        name,
        kind,
        attr,
        umask: 0,
        fail_if_exists,
    };
    Ok(Some(match p {
        nfs3::GETATTR => Request::GetAttr { ino },
        nfs3::SETATTR => {
            let mut set = r.set_attr()?;
            set.guard = r.guard()?;
            Request::SetAttr { ino, set }
        }
        nfs3::LOOKUP => Request::Lookup { dir: ino, name: r.name()? },
        nfs3::READLINK => Request::ReadLink { ino },
        nfs3::READ => {
            let (offset, len) = (r.u64()?, r.u32()?);
            Request::Read { ino, offset, len }
        }
        nfs3::WRITE => write(ino, block_bytes, r, durable)?,
        nfs3::CREATE => {
            let name = r.name()?;
            let (kind, attr, new) = r.create_how()?;
            make(name, kind, attr, new)
        }
        nfs3::MKDIR => {
            let name = r.name()?;
            make(name, MakeKind::Dir, r.set_attr()?, true)
        }
        nfs3::SYMLINK => {
            let (name, attr) = (r.name()?, r.set_attr()?);
            let text = r.opaque(4096)?.to_vec();
            make(name, MakeKind::Symlink(text), attr, true)
        }
        nfs3::MKNOD => {
            let name = r.name()?;
            let Some((kind, attr)) = r.special()? else { return Ok(None) };
            make(name, kind, attr, true)
        }
        nfs3::REMOVE => Request::Unlink { dir: ino, name: r.name()? },
        nfs3::RMDIR => Request::Rmdir { dir: ino, name: r.name()? },
        nfs3::READDIR | nfs3::READDIRPLUS => readdir(p, ino, r)?,
        nfs3::FSSTAT => Request::StatFs,
        // FSINFO and PATHCONF are known; the handle has to be good, and its attributes are told.
        nfs3::FSINFO | nfs3::PATHCONF => Request::GetAttr { ino },
        _ => {
            let _range = (r.u64()?, r.u32()?);
            Request::Fsync { ino, data_only: false }
        }
    }))
}

/// A write, its bytes in pieces as the volume's blocks will have them.
fn write(
    ino: u32,
    block_bytes: usize,
    r: &mut Reader<'_>,
    durable: &mut bool,
) -> Result<Request, Garbage> {
    let (offset, count, stable) = (r.u64()?, r.u32()? as usize, r.u32()?);
    let bytes = r.opaque(TRANSFER_BYTES_MAX)?;
    let stability = match stable {
        0 => Stability::Unstable,
        1 => Stability::DataSync,
        2 => Stability::FileSync,
        _ => return Err(Garbage),
    };
    *durable = false; // the write's own stability says it
    let bytes = &bytes[..count.min(bytes.len())];
    let data = Rope::cut(bytes, (offset % block_bytes as u64) as usize, block_bytes);
    Ok(Request::Write {
        ino,
        offset,
        data,
        stability,
        append: false,
        kill_suid: true,
        upto: WriteUpTo::OneOperation,
    })
}

fn readdir(p: u32, ino: u32, r: &mut Reader<'_>) -> Result<Request, Garbage> {
    let (cookie, _verifier) = (r.u64()?, r.u64()?);
    let mut count = r.u32()?;
    if p == nfs3::READDIRPLUS {
        count = r.u32()?; // maxcount; dircount, a hint that is not needed, came first
    }
    let max_bytes = (count as usize).min(TRANSFER_BYTES_MAX).saturating_sub(BESIDES);
    let entry_bytes = if p == nfs3::READDIRPLUS { 28 + 88 + 8 + 24 } else { 28 };
    Ok(Request::ReadDir { dir: ino, cookie, max_bytes, entry_bytes, attrs: p == nfs3::READDIRPLUS })
}

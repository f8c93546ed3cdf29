//! ONC RPC (RFC 5531): the head of a call, and the replies that say no before any procedure is
//! looked at.

use crate::xdr::{Garbage, Reader, Writer};

pub(crate) const NFS: u32 = 100_003;
pub(crate) const MOUNT: u32 = 100_005;
pub(crate) const NLM: u32 = 100_021;

/// A call's head.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) xid: u32,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    /// uid, gid and further groups, from AUTH_SYS; None: AUTH_NONE.
    pub(crate) auth: Option<(u32, u32, Vec<u32>)>,
}

/// A head that is answered with a refusal, or not at all.
pub(crate) enum BadHead {
    /// Not even a call: nothing to answer.
    NoCall,
    /// Answer with this.
    Refuse(Vec<u8>),
}

/// The longest credential (RFC 5531).
const AUTH_BYTES_MAX: usize = 400;

pub(crate) fn head(r: &mut Reader<'_>) -> Result<Head, BadHead> {
    let no_call = |_: Garbage| BadHead::NoCall;
    let xid = r.u32().map_err(no_call)?;
    if r.u32().map_err(no_call)? != 0 {
        return Err(BadHead::NoCall);
    }
    if r.u32().map_err(no_call)? != 2 {
        let mut w = Writer::default();
        w.words(&[xid, 1, 1, 0, 2, 2]); // denied, RPC_MISMATCH, versions 2 to 2
        return Err(BadHead::Refuse(w.0));
    }
    let garbage = |_: Garbage| BadHead::Refuse(refuse(xid, Refusal::GarbageArguments));
    let program = r.u32().map_err(garbage)?;
    let version = r.u32().map_err(garbage)?;
    let procedure = r.u32().map_err(garbage)?;
    let flavor = r.u32().map_err(garbage)?;
    let body = r.opaque(AUTH_BYTES_MAX).map_err(garbage)?;
    let _verifier = r.u32().map_err(garbage)?;
    r.opaque(AUTH_BYTES_MAX).map_err(garbage)?;
    let denied = |why: u32| {
        let mut w = Writer::default();
        w.words(&[xid, 1, 1, 1, why]);
        BadHead::Refuse(w.0)
    };
    let auth = match flavor {
        0 => None,
        1 => Some(auth_sys(body).map_err(|_| denied(1))?), // AUTH_BADCRED
        _ => return Err(denied(5)),                        // AUTH_TOOWEAK
    };
    Ok(Head { xid, program, version, procedure, auth })
}

fn auth_sys(body: &[u8]) -> Result<(u32, u32, Vec<u32>), Garbage> {
    let mut r = Reader(body);
    r.u32()?;
    r.opaque(255)?;
    let (uid, gid, n) = (r.u32()?, r.u32()?, r.u32()?);
    if n > 16 {
        return Err(Garbage);
    }
    let groups = (0..n).map(|_| r.u32()).collect::<Result<Vec<u32>, Garbage>>()?;
    Ok((uid, gid, groups))
}

/// The head of an accepted, successful reply.
pub(crate) fn success(xid: u32) -> Writer {
    let mut w = Writer::default();
    w.words(&[xid, 1, 0, 0, 0, 0]);
    w
}

/// Why a call that was accepted is not carried out (RFC 5531, `accept_stat`).
#[derive(Clone, Copy)]
pub(crate) enum Refusal {
    /// The program is not served here.
    ProgramUnavailable,
    /// Only these versions of it are, from the first to the last.
    VersionMismatch(u32, u32),
    /// It has no such procedure.
    ProcedureUnavailable,
    /// The arguments cannot be decoded.
    GarbageArguments,
    /// Something went wrong here.
    SystemError,
}

/// An accepted reply that says why not.
pub(crate) fn refuse(xid: u32, why: Refusal) -> Vec<u8> {
    let mut w = Writer::default();
    w.words(&[xid, 1, 0, 0, 0]);
    match why {
        Refusal::ProgramUnavailable => w.u32(1),
        Refusal::VersionMismatch(first, last) => w.words(&[2, first, last]),
        Refusal::ProcedureUnavailable => w.u32(3),
        Refusal::GarbageArguments => w.u32(4),
        Refusal::SystemError => w.u32(5),
    }
    w.0
}

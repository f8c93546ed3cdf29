//! The server: which volumes are served to whom, and what all connections share.
//!
//! Invariants:
//! * N1. A name stands for one volume, and so does a UUID.
//! * N2. Requests and connections are counted as they come, and once as they go.

use crate::again::Again;
use crate::connection::Connection;
use crate::drc::Drc;
use crate::exports::{Claim, Export};
use crate::handle::{self, BadHandle, Handle};
use crate::intake::Intake;
use crate::kept;
use crate::metrics::Metrics;
use crate::seldom::Seldom;
use arc_swap::ArcSwap;
use stats::Recorder;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use vfs::{Cred, VolumeInfo};

/// A volume as it is served.
pub struct Served {
    /// Its export's name, without the slash.
    pub name: String,
    /// What it said of itself when it was opened.
    pub info: VolumeInfo,
}

impl Served {
    pub(crate) fn fsid(&self) -> u64 {
        let u = &self.info.uuid;
        u64::from_be_bytes(std::array::from_fn(|i| u[i] ^ u[i + 8]))
    }
    /// Changes exactly when unstable data may have been lost.
    pub(crate) fn verifier(&self) -> u64 {
        self.fsid().rotate_left(17) ^ self.info.boot.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// The server.
pub struct Server {
    pub(crate) volumes: Vec<Served>,
    exports: ArcSwap<Vec<Export>>,
    pub(crate) drc: Drc<Connection>,
    /// Of each volume.
    pub(crate) again: Vec<Again>,
    pub(crate) metrics: Metrics,
    /// Bytes that all connections hold, see [`crate::quota`].
    pub(crate) held: Arc<AtomicUsize>,
    /// The same of what has come of unfinished records.
    pub(crate) intake: Arc<Intake>,
    /// Lines about whoever is refused.
    refusals: Seldom,
    strangers: Seldom,
}

/// What is to be mounted.
pub(crate) enum Mounting {
    /// A volume's root, by its handle.
    Root([u8; handle::HANDLE_BYTES]),
    /// A directory at a path from the root (its inode and generation), for this caller.
    Below { volume: usize, root: (u32, u32), path: Vec<u8>, cred: Cred },
}

/// What a server has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Open connections.
    pub connections: u64,
    /// Requests not answered yet.
    pub in_flight: u64,
    /// Requests that came again.
    pub duplicates: u64,
    /// Requests that the exports refused.
    pub refused: u64,
    /// Connections that were refused.
    pub turned_away: u64,
}

/// Who calls, and from where.
pub(crate) struct User {
    pub(crate) auth: Option<Claim>,
    pub(crate) peer: SocketAddr,
}

const MNT_NOENT: u32 = 2;
const MNT_ACCES: u32 = 13;

impl Server {
    /// Serves these volumes by these rules; how long answers take is recorded.
    pub fn new(volumes: Vec<Served>, exports: Vec<Export>, recorder: Arc<Recorder>) -> Server {
        for (n, v) in volumes.iter().enumerate() {
            let same = |w: &&Served| w.name == v.name || w.info.uuid == v.info.uuid;
            let twice = volumes[..n].iter().find(same);
            assert!(twice.is_none(), "N1: /{} is served beside another like it", v.name);
        }
        Server {
            again: volumes.iter().map(|v| Again::of(&v.info)).collect(),
            volumes,
            exports: ArcSwap::from_pointee(exports),
            drc: Drc::default(),
            metrics: Metrics::new(recorder),
            held: Arc::default(),
            intake: Arc::default(),
            refusals: Seldom::default(),
            strangers: Seldom::default(),
        }
    }
    /// Takes other rules from now on. Clients keep their connections; what they ask next is judged
    /// by these.
    pub fn set_exports(&self, exports: Vec<Export>) {
        self.exports.store(Arc::new(exports));
    }
    /// The replies of the last seconds to changes of this volume, for the server that comes after a
    /// clean end; `now` in seconds since 1970. None: there are none, or the volume keeps no count
    /// of its openings.
    pub fn last_replies(&self, volume: usize, now: u64) -> Option<Vec<u8>> {
        let info = &self.volumes[volume].info;
        let all = self.drc.last_of(volume, Duration::from_secs(kept::SECS));
        let opened = info.opened.filter(|_| !all.is_empty() && !info.read_only)?;
        Some(kept::encode(info, opened, now, &all))
    }
    /// Takes over what [`Server::last_replies`] of the server before has given; false: it is not of
    /// this volume as it is now, or too old.
    pub fn take_over(&self, volume: usize, replies: &[u8], now: u64) -> bool {
        let info = &self.volumes[volume].info;
        let all = info.opened.and_then(|opened| kept::decode(info, opened, now, replies));
        all.map(|all| self.drc.take_over(volume, all)).is_some()
    }
    /// The most bytes of [`Server::last_replies`].
    pub const REPLIES_BYTES_MAX: usize = kept::BYTES_MAX;
    /// Appends the server's own metrics, in OpenMetrics' text format.
    pub fn encode_metrics(&self, text: &mut String) -> std::fmt::Result {
        self.metrics.encode(text)
    }
    /// What is under way at this moment, and what was turned away until now.
    pub fn traffic(&self) -> Traffic {
        let m = &self.metrics;
        Traffic {
            connections: m.connections.get().max(0) as u64,
            in_flight: m.in_flight.get().max(0) as u64,
            duplicates: m.duplicates.get(),
            refused: m.refused.get(),
            turned_away: m.turned_away.get(),
        }
    }
    /// Bytes that a client, as the recorder names it, has sent, and those that it was sent.
    pub fn bytes_of(&self, client: &str) -> (u64, u64) {
        self.metrics.bytes(client)
    }
    /// Bytes in a block of the volume.
    pub(crate) fn block_bytes(&self, volume: usize) -> usize {
        self.volumes[volume].info.block_bytes as usize
    }
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().map(|v| v.name.as_str())
    }
    pub(crate) fn handle(&self, bytes: &[u8]) -> Result<Handle, BadHandle> {
        handle::decode(bytes, self.volumes.iter().map(|v| (&v.info.uuid, &v.info.handle_key)))
    }
    /// The rule that lets this caller use the volume, if any does.
    pub(crate) fn rule(&self, volume: usize, user: &User) -> Option<Export> {
        let name = &self.volumes[volume].name;
        let exports = self.exports.load();
        let rule = exports.iter().find(|e| e.covers(name, user.peer.ip()))?;
        rule.admits(user.peer.port()).then(|| rule.clone())
    }
    /// No rule lets this caller in: counted and logged.
    pub(crate) fn refused(&self, volume: usize, peer: SocketAddr) {
        self.metrics.refused.inc();
        let Some(more) = self.refusals.line() else { return };
        let name = &self.volumes[volume].name;
        let why = match self.exports.load().iter().any(|e| e.covers(name, peer.ip())) {
            true => "its --export is secure, so for ports below 1024",
            false => "no --export covers it",
        };
        tracing::warn!("{peer} was refused /{name}: {why}{more}");
    }
    /// May this peer use any of the volumes? Others are counted, and logged now and then.
    pub fn admits(&self, peer: SocketAddr) -> bool {
        let exports = self.exports.load();
        let known = self.names().any(|n| exports.iter().any(|e| e.covers(n, peer.ip())));
        if !known {
            self.turned_away(peer, "no --export covers it");
        }
        known
    }
    /// A connection was refused: counted, and logged now and then.
    pub fn turned_away(&self, peer: SocketAddr, why: &str) {
        self.metrics.turned_away.inc();
        if let Some(more) = self.strangers.line() {
            tracing::warn!("a connection of {} was refused: {why}{more}", peer.ip());
        }
    }
    pub(crate) fn cred(&self, rule: &Export, user: &User) -> Cred {
        rule.cred(user.auth.as_ref(), user.peer)
    }
    /// What a path that somebody wants to mount stands for: an export's name, perhaps with a
    /// directory in it. A single volume's name may be left out. Err: mountstat3.
    pub(crate) fn mounting(&self, path: &[u8], user: &User) -> Result<Mounting, u32> {
        let path = &path[path.iter().take_while(|b| **b == b'/').count()..];
        let end = path.iter().position(|b| *b == b'/').unwrap_or(path.len());
        let (first, rest) = path.split_at(end);
        let named = self.volumes.iter().position(|v| v.name.as_bytes() == first);
        let (volume, below) = match named {
            Some(v) => (v, rest),
            None if self.volumes.len() == 1 => (0, path),
            None => return Err(MNT_NOENT),
        };
        let Some(rule) = self.rule(volume, user) else {
            self.refused(volume, user.peer);
            return Err(MNT_ACCES);
        };
        let info = &self.volumes[volume].info;
        let (dir, generation) = (info.root_ino, info.root_generation);
        if below.iter().all(|b| *b == b'/') {
            let root = handle::encode(&info.uuid, &info.handle_key, dir, generation);
            return Ok(Mounting::Root(root));
        }
        let cred = self.cred(&rule, user);
        Ok(Mounting::Below { volume, root: (dir, generation), path: below.to_vec(), cred })
    }
}

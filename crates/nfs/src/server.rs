//! The server: which volumes are served to whom, and what all connections share.

use crate::drc::Drc;
use crate::exports::{Export, NOBODY};
use crate::handle::{self, BadHandle, Handle};
use crate::metrics::Metrics;
use std::net::SocketAddr;
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
    exports: Vec<Export>,
    pub(crate) drc: Drc,
    pub(crate) metrics: Metrics,
}

/// Who calls, and from where.
pub(crate) struct User {
    pub(crate) auth: Option<(u32, u32, Vec<u32>)>,
    pub(crate) peer: SocketAddr,
}

const MNT_NOENT: u32 = 2;
const MNT_ACCES: u32 = 13;

impl Server {
    /// Serves these volumes by these rules.
    pub fn new(volumes: Vec<Served>, exports: Vec<Export>) -> Server {
        Server { volumes, exports, drc: Drc::default(), metrics: Metrics::new() }
    }
    /// The metrics in OpenMetrics' text format; `counters` are what each volume said of itself, in
    /// the order in which the volumes are served.
    pub fn metrics(&self, counters: Vec<Vec<(&'static str, u64)>>) -> String {
        let names = self.names().map(str::to_owned);
        self.metrics.text(names.zip(counters).collect())
    }
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().map(|v| v.name.as_str())
    }
    pub(crate) fn handle(&self, bytes: &[u8]) -> Result<Handle, BadHandle> {
        handle::decode(bytes, self.volumes.iter().map(|v| (&v.info.uuid, &v.info.handle_key)))
    }
    /// The rule that lets this caller use the volume, if any does.
    pub(crate) fn rule(&self, volume: usize, user: &User) -> Option<&Export> {
        let name = &self.volumes[volume].name;
        self.exports.iter().find(|e| e.covers(name, user.peer.ip()))
    }
    /// No rule lets this caller in: counted and logged.
    pub(crate) fn refused(&self, volume: usize, peer: SocketAddr) {
        self.metrics.refused.inc();
        tracing::warn!("{peer} was refused /{}: no --export covers it", self.volumes[volume].name);
    }
    pub(crate) fn cred(&self, rule: &Export, user: &User) -> Cred {
        let (uid, gid, groups) = match &user.auth {
            None => (NOBODY, NOBODY, &[][..]),
            Some((uid, gid, groups)) => (*uid, *gid, groups.as_slice()),
        };
        let (uid, gid) = rule.user(uid, gid, user.peer.ip(), user.peer.port());
        Cred { uid, gid, groups: groups.into(), check: true }
    }
    /// The root's handle of the volume at an exported path, or why not.
    pub(crate) fn root_handle(&self, path: &str, peer: SocketAddr) -> Result<Vec<u8>, u32> {
        let name = path.trim_matches('/');
        let found = match name {
            "" if self.volumes.len() == 1 => Some(0),
            _ => self.volumes.iter().position(|v| v.name == name),
        };
        let volume = found.ok_or(MNT_NOENT)?;
        if self.rule(volume, &User { auth: None, peer }).is_none() {
            self.refused(volume, peer);
            return Err(MNT_ACCES);
        }
        let info = &self.volumes[volume].info;
        Ok(handle::encode(&info.uuid, &info.handle_key, 2, info.root_generation).to_vec())
    }
}

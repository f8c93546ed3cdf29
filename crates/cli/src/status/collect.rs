//! Collecting the report: every volume is asked at once, and one that does not answer in time is
//! told as such.

use super::copies::Copies;
use super::report::{
    CLOSED, CLOSING, ClientReport, OK, Opening, Report, TrafficReport, VolumeReport,
};
use host::{HostFile, Pool, ask_then};
use stats::{Recorder, SeriesSummary, VolumeMetrics};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, timeout_at};
use vfs::{FsError, Reply, Request, StatFs, VolumeInfo, VolumeState};

/// A volume that takes longer to say what it is counts as ill.
const PATIENCE: Duration = Duration::from_secs(5);

/// What of a volume does not change while it is served.
pub struct Shown {
    /// Its export's name, without the slash.
    pub name: String,
    pub image: String,
    /// Is it meant to be writable?
    pub writable: bool,
    /// What its mode promises, in a line.
    pub promise: String,
    pub mount: Option<String>,
    pub openings: Vec<Opening>,
    /// What it lies on.
    pub file: Arc<HostFile>,
}

/// Is a mount gone?
pub type Gone = Box<dyn Fn() -> bool + Send + Sync>;

/// Whom to ask.
pub struct Status {
    pub pool: Arc<Pool>,
    pub volumes: Vec<Shown>,
    pub nfs: Option<Arc<nfs::Server>>,
    pub recorder: Arc<Recorder>,
    /// Tell, one a mount, whether that is gone: with the last of them all of it ends.
    pub mounts_gone: Vec<Gone>,
    /// The copies that are being taken.
    pub copies: Copies,
}

/// What a volume says; None: not in time.
type Said = (Option<VolumeInfo>, Option<StatFs>);

impl Status {
    /// Asks every volume the same.
    async fn ask(&self, request: fn() -> Request) -> Vec<Option<Reply>> {
        let until = Instant::now() + PATIENCE;
        let asked: Vec<_> = (0..self.volumes.len())
            .map(|v| {
                let (tell, told) = tokio::sync::oneshot::channel();
                ask_then(&self.pool, v, request(), move |answer| {
                    let _ = tell.send(answer.result); // nobody waits for it any more
                });
                told
            })
            .collect();
        let mut all = Vec::with_capacity(asked.len());
        for told in asked {
            all.push(match timeout_at(until, told).await {
                Ok(Ok(Ok(reply))) => Some(reply),
                _ => None,
            });
        }
        all
    }

    /// Has the checker begin in the volume of this name. Errors: why not, a sentence.
    pub async fn scrub(&self, name: &str) -> Result<(), String> {
        let volume = self.number(name)?;
        match self.ask_one(volume, Request::Scrub, PATIENCE).await {
            Some(Ok(_)) => Ok(()),
            Some(Err(e)) => Err(format!("/{name}: {e}")),
            None => Err(format!("/{name} does not answer")),
        }
    }

    /// The number of the volume of this name. Errors: a sentence.
    fn number(&self, name: &str) -> Result<usize, String> {
        let known = self.volumes.iter().position(|v| v.name == name);
        known.ok_or_else(|| format!("no volume {name} is served"))
    }

    /// Asks one volume; None: no answer in time.
    pub(super) async fn ask_one(
        &self,
        volume: usize,
        request: Request,
        patience: Duration,
    ) -> Option<Result<Reply, FsError>> {
        let (tell, told) = tokio::sync::oneshot::channel();
        ask_then(&self.pool, volume, request, move |answer| {
            let _ = tell.send(answer.result); // nobody waits for it any more
        });
        timeout_at(Instant::now() + patience, told).await.ok()?.ok()
    }

    async fn infos(&self) -> Vec<Option<VolumeInfo>> {
        let info = |r| match r {
            Some(Reply::Info(info)) => Some(*info),
            _ => None,
        };
        self.ask(|| Request::Info).await.into_iter().map(info).collect()
    }

    async fn said(&self) -> Vec<Said> {
        let space = |r| match r {
            Some(Reply::StatFs(s)) => Some(s),
            _ => None,
        };
        let infos = self.infos().await;
        infos.into_iter().zip(self.ask(|| Request::StatFs).await.into_iter().map(space)).collect()
    }

    /// The text of a scrape.
    pub async fn metrics(&self) -> String {
        let waits = |v| self.pool.waits_for_room(v).map_or(0, |time| time.as_secs());
        let said = self.said().await.into_iter().zip(&self.volumes).enumerate();
        let named: Vec<VolumeMetrics> =
            said.map(|(v, (said, shown))| metrics_of(said, shown, waits(v))).collect();
        let mut text = String::new();
        let nfs = self.nfs.as_ref().map_or(Ok(()), |nfs| nfs.encode_metrics(&mut text));
        nfs.and_then(|()| stats::encode_series(&self.recorder, &mut text))
            .and_then(|()| stats::encode_volumes(named, env!("CARGO_PKG_VERSION"), &mut text))
            .and_then(|()| stats::encode_eof(&mut text))
            .expect("a string takes what is written to it");
        text
    }

    /// A line a volume, and whether all are well.
    pub async fn health(&self) -> (bool, String) {
        let infos = self.infos().await;
        let (mut well, mut text) = (true, String::new());
        for (v, info) in infos.iter().enumerate() {
            let state = self.state(v, info.as_ref());
            well &= state == OK;
            let _ = writeln!(text, "/{}: {state}", self.volumes[v].name);
        }
        (well, text)
    }

    /// How a volume is, in words.
    fn state(&self, v: usize, info: Option<&VolumeInfo>) -> String {
        let fixed = match (self.pool.volumes()[v].monitor.state(), info) {
            (VolumeState::Open, _) if self.ends() => CLOSING,
            (VolumeState::Open, Some(i)) if i.read_only && self.volumes[v].writable => {
                "stopped writing after a failure"
            }
            (VolumeState::Open, Some(_)) => match self.pool.waits_for_room(v) {
                Some(time) => return format!("waiting for space since {} s", time.as_secs()),
                None => OK,
            },
            (VolumeState::Open, None) => "does not answer",
            (VolumeState::Opening, _) => "opening",
            (VolumeState::Failed(_), _) => "failed",
            (VolumeState::Closed(_), _) => CLOSED,
        };
        fixed.to_owned()
    }

    /// Is this the end, as after umount?
    fn ends(&self) -> bool {
        !self.mounts_gone.is_empty() && self.mounts_gone.iter().all(|gone| gone())
    }

    /// The server as it is now.
    pub async fn report(&self) -> Report {
        let said = self.said().await;
        let series = self.recorder.summary();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let volumes = said.into_iter().enumerate().map(|(v, said)| self.volume(v, said));
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            at_ms: now.as_millis() as u64,
            up_secs: self.recorder.age().as_secs_f64(),
            volumes: volumes.collect(),
            nfs: self.nfs.as_ref().map(|nfs| traffic(nfs)),
            clients: self.nfs.as_ref().map_or_else(Vec::new, |nfs| clients(nfs, &series)),
            series,
            slow: self.recorder.slow(),
        }
    }

    fn volume(&self, v: usize, (info, space): Said) -> VolumeReport {
        let shown = &self.volumes[v];
        let report = VolumeReport {
            name: shown.name.clone(),
            image: shown.image.clone(),
            state: self.state(v, info.as_ref()),
            mode: info.as_ref().map_or_else(String::new, |i| i.mode.clone()),
            promise: shown.promise.clone(),
            read_only: !shown.writable || info.as_ref().is_some_and(|i| i.read_only),
            mount: shown.mount.clone(),
            openings: shown.openings.clone(),
            bytes: 0,
            bytes_free: 0,
            inodes: 0,
            inodes_free: 0,
            cache: Default::default(),
            dirty_bytes: 0,
            log: None,
            operations_a_commit: None,
            counters: Default::default(),
        };
        let report = match &space {
            Some(space) => report.with_space(space),
            None => report,
        };
        match &info {
            Some(i) => report.with_counters(&i.counters, u64::from(i.block_bytes)),
            None => report,
        }
    }
}

/// What a volume has counted, and gauges that make something of it; of one that does not answer,
/// how it was opened.
fn metrics_of((info, space): Said, shown: &Shown, waits_secs: u64) -> VolumeMetrics {
    let mut all = Vec::new();
    if let Some(o) = shown.openings.first() {
        all.push(("cairn_opened_timestamp_seconds", o.at));
        all.push(("cairn_opening_milliseconds", o.took_ms));
        all.push(("cairn_opening_recovered", u64::from(o.recovered.is_some())));
    }
    all.push(("cairn_answers", u64::from(info.is_some())));
    all.push(("cairn_meant_writable", u64::from(shown.writable)));
    all.push(("cairn_space_wait_seconds", waits_secs));
    if let Some(info) = &info {
        all.push(("cairn_read_only", u64::from(info.read_only)));
        all.push(("cairn_block_bytes", u64::from(info.block_bytes)));
        all.extend(info.counters.iter().copied());
    }
    if let Some(s) = space {
        all.extend([("cairn_blocks", s.blocks), ("cairn_inodes", s.inodes)]);
    }
    let mode = info.map_or_else(String::new, |i| i.mode);
    VolumeMetrics { export: shown.name.clone(), mode, counters: all }
}

fn traffic(nfs: &nfs::Server) -> TrafficReport {
    let t = nfs.traffic();
    TrafficReport {
        connections: t.connections,
        in_flight: t.in_flight,
        duplicates: t.duplicates,
        refused: t.refused,
        turned_away: t.turned_away,
    }
}

/// What each client did, over all volumes.
fn clients(nfs: &nfs::Server, series: &[SeriesSummary]) -> Vec<ClientReport> {
    let mut all: Vec<ClientReport> = Vec::new();
    for s in series.iter().filter(|s| !s.client.is_empty()) {
        let requests = s.operations.iter().map(|o| o.all.count).sum();
        match all.iter_mut().find(|c| c.address == s.client) {
            Some(c) => c.requests += requests,
            None => {
                let (received_bytes, sent_bytes) = nfs.bytes_of(&s.client);
                let address = s.client.clone();
                all.push(ClientReport { address, requests, received_bytes, sent_bytes });
            }
        }
    }
    all
}

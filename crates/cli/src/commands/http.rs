//! `cairn serve --http`: a status page, `/metrics` for Prometheus and `/health` for whoever watches
//! over the server. It only asks the volumes; it changes nothing.

use host::{Pool, ask};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tiny_http::{Header, Method, Request, Response};
use vfs::{DoorState, Reply, VolumeInfo};

/// A volume that takes longer to say what it is counts as ill.
const PATIENCE: Duration = Duration::from_secs(5);
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// What is told.
pub struct Status {
    pub pool: Arc<Pool>,
    /// The volumes' names, and whether each is meant to be writable.
    pub volumes: Vec<(String, bool)>,
    pub nfs: Option<Arc<nfs::Server>>,
}

/// Listens, and answers on a thread of its own until the process ends. Returns where.
pub fn start(address: &str, status: Status) -> Result<String, String> {
    let server = tiny_http::Server::http(address)
        .map_err(|e| format!("--http {address}: cannot listen: {e}"))?;
    let at = server.server_addr().to_string();
    let thread = std::thread::Builder::new().name("http".into());
    let run = move || {
        for request in server.incoming_requests() {
            status.answer(request);
        }
    };
    thread.spawn(run).map_err(|e| format!("--http: no thread: {e}"))?;
    Ok(at)
}

impl Status {
    fn answer(&self, request: Request) {
        let path = request.url().split('?').next().unwrap_or_default();
        let (code, kind, text) = match (request.method(), path) {
            (Method::Get | Method::Head, "/metrics") => (200, OPENMETRICS, self.metrics()),
            (Method::Get | Method::Head, "/health") => {
                let (well, text) = self.health();
                (if well { 200 } else { 503 }, PLAIN, text)
            }
            (Method::Get | Method::Head, "/") => (200, PLAIN, self.page()),
            (Method::Get | Method::Head, _) => {
                (404, PLAIN, "there are /, /metrics and /health\n".to_owned())
            }
            _ => (405, PLAIN, "only GET\n".to_owned()),
        };
        let header = Header::from_bytes("Content-Type", kind).expect("two constants of ASCII");
        let response = Response::from_string(text).with_status_code(code).with_header(header);
        if let Err(e) = request.respond(response) {
            tracing::debug!("http: {e}");
        }
    }

    fn info(&self, volume: usize) -> Option<VolumeInfo> {
        match ask(&self.pool, volume, vfs::Request::Info, PATIENCE) {
            Some(Reply::Info(info)) => Some(*info),
            _ => None,
        }
    }

    fn metrics(&self) -> String {
        let counters = (0..self.volumes.len())
            .map(|v| self.info(v).map_or_else(Vec::new, |i| i.counters))
            .collect::<Vec<_>>();
        match &self.nfs {
            Some(nfs) => nfs.metrics(counters),
            None => {
                let names = self.volumes.iter().map(|v| v.0.clone());
                nfs::volume_metrics(names.zip(counters).collect())
            }
        }
    }

    /// A line a volume, and whether all are well.
    fn health(&self) -> (bool, String) {
        let mut well = true;
        let mut text = String::new();
        for (v, (name, writable)) in self.volumes.iter().enumerate() {
            let state = match self.pool.volumes()[v].door.state() {
                DoorState::Open => match self.info(v) {
                    Some(i) if i.read_only && *writable => "stopped writing after a failure",
                    Some(_) => "ok",
                    None => "does not answer",
                },
                DoorState::Opening => "opening",
                DoorState::Failed(_) => "failed",
                DoorState::Closed(_) => "closed",
            };
            well &= state == "ok";
            let _ = writeln!(text, "/{name}: {state}");
        }
        (well, text)
    }

    fn page(&self) -> String {
        let mut text = format!("cairn {}\n\n", env!("CARGO_PKG_VERSION"));
        text.push_str(&self.health().1);
        for (v, (name, _)) in self.volumes.iter().enumerate() {
            if let Some(i) = self.info(v) {
                let _ = writeln!(text, "\n/{name}: mode {}: {}", i.mode, i.promise);
                for (what, n) in i.counters {
                    let _ = writeln!(text, "  {what} {n}");
                }
            }
        }
        text.push_str("\n/metrics: for Prometheus; /health: 200 or 503\n");
        text
    }
}

//! `cairn serve --http`: a status page, `/metrics` for Prometheus and `/health` for whoever watches
//! over the server. It only asks the volumes; it changes nothing. Whoever connects costs little: a
//! request's head is bounded and has to come soon, its body is not read, and of many connections
//! the oldest makes way.

use host::{Pool, ask_then};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use vfs::{Reply, VolumeInfo, VolumeState};

/// A volume that takes longer to say what it is counts as ill.
const PATIENCE: Duration = Duration::from_secs(5);
/// A request's head has to come within so long, and the whole exchange has to be over.
const HEAD_TIME: Duration = Duration::from_secs(5);
const TIME: Duration = Duration::from_secs(30);
const HEAD_BYTES_MAX: usize = 16 << 10;
const CONNECTIONS_MAX: usize = 64;
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
    let fail = |e: std::io::Error| format!("--http {address}: cannot listen: {e}");
    let listener = TcpListener::bind(address).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    let at = listener.local_addr().map_err(fail)?.to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(fail)?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(fail)?
    };
    let thread = std::thread::Builder::new().name("http".into());
    let run = move || runtime.block_on(serve(listener, Arc::new(status)));
    thread.spawn(run).map_err(|e| format!("--http: no thread: {e}"))?;
    Ok(at)
}

async fn serve(listener: tokio::net::TcpListener, status: Arc<Status>) {
    let mut open = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                // Perhaps no more files may be open just now.
                tracing::debug!("http: {e}");
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        open.retain(|c: &tokio::task::AbortHandle| !c.is_finished());
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::spawn(exchange(stream, status.clone())).abort_handle());
    }
}

/// One request and its answer.
async fn exchange(stream: TcpStream, status: Arc<Status>) {
    let service = service_fn(move |request| {
        let status = status.clone();
        async move { Ok::<_, Infallible>(status.answer(&request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(TIME, connection).await {
        Ok(Ok(())) => (),
        Ok(Err(e)) => tracing::debug!("http: {e}"),
        Err(_) => tracing::debug!("http: not over in {} s", TIME.as_secs()),
    }
}

impl Status {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let (code, kind, text) = match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/metrics") => {
                (StatusCode::OK, OPENMETRICS, self.metrics().await)
            }
            (&Method::GET | &Method::HEAD, "/health") => match self.health().await {
                (true, text) => (StatusCode::OK, PLAIN, text),
                (false, text) => (StatusCode::SERVICE_UNAVAILABLE, PLAIN, text),
            },
            (&Method::GET | &Method::HEAD, "/") => (StatusCode::OK, PLAIN, self.page().await),
            (&Method::GET | &Method::HEAD, _) => {
                let text = "there are /, /metrics and /health\n".to_owned();
                (StatusCode::NOT_FOUND, PLAIN, text)
            }
            _ => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n".to_owned()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    /// What each volume says of itself; None: it does not answer in time.
    async fn infos(&self) -> Vec<Option<VolumeInfo>> {
        let until = Instant::now() + PATIENCE;
        let asked: Vec<_> = (0..self.volumes.len())
            .map(|v| {
                let (tell, told) = tokio::sync::oneshot::channel();
                ask_then(&self.pool, v, vfs::Request::Info, move |answer| {
                    let _ = tell.send(answer.result); // nobody waits for it any more
                });
                told
            })
            .collect();
        let mut all = Vec::with_capacity(asked.len());
        for told in asked {
            all.push(match timeout_at(until, told).await {
                Ok(Ok(Ok(Reply::Info(info)))) => Some(*info),
                _ => None,
            });
        }
        all
    }

    async fn metrics(&self) -> String {
        let counters = self.infos().await.into_iter();
        let counters = counters.map(|i| i.map_or_else(Vec::new, |i| i.counters)).collect();
        match &self.nfs {
            Some(nfs) => nfs.metrics(counters),
            None => {
                let names = self.volumes.iter().map(|v| v.0.clone());
                nfs::volume_metrics(names.zip(counters).collect())
            }
        }
    }

    async fn health(&self) -> (bool, String) {
        self.states(&self.infos().await)
    }

    /// A line a volume, and whether all are well.
    fn states(&self, infos: &[Option<VolumeInfo>]) -> (bool, String) {
        let mut well = true;
        let mut text = String::new();
        for (v, ((name, writable), info)) in self.volumes.iter().zip(infos).enumerate() {
            let state = match (self.pool.volumes()[v].monitor.state(), info) {
                (VolumeState::Open, Some(i)) if i.read_only && *writable => {
                    "stopped writing after a failure"
                }
                (VolumeState::Open, Some(_)) => "ok",
                (VolumeState::Open, None) => "does not answer",
                (VolumeState::Opening, _) => "opening",
                (VolumeState::Failed(_), _) => "failed",
                (VolumeState::Closed(_), _) => "closed",
            };
            well &= state == "ok";
            let _ = writeln!(text, "/{name}: {state}");
        }
        (well, text)
    }

    async fn page(&self) -> String {
        let infos = self.infos().await;
        let mut text = format!("cairn {}\n\n", env!("CARGO_PKG_VERSION"));
        text.push_str(&self.states(&infos).1);
        for ((name, _), info) in self.volumes.iter().zip(infos) {
            if let Some(i) = info {
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

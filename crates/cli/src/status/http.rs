//! The ways by which the report goes out: `/`, a page that shows it; `/status.json`, the report;
//! `/metrics` for Prometheus and `/health` for whoever watches over the server. Whoever connects
//! costs little: a request's head is bounded and has to come soon, its body is not read, and of
//! many connections the oldest makes way.

use super::collect::Status;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};

/// A request's head has to come within so long, and the whole exchange has to be over.
const HEAD_TIME: Duration = Duration::from_secs(5);
const TIME: Duration = Duration::from_secs(30);
/// The same where a volume may first have to write all that it holds.
const OWN_TIME: Duration = Duration::from_secs(600);
const HEAD_BYTES_MAX: usize = 16 << 10;
const CONNECTIONS_MAX: usize = 64;
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const PAGE: &str = include_str!("page.html");

/// Where somebody listens.
enum Listener {
    Port(tokio::net::TcpListener),
    Socket(tokio::net::UnixListener),
}

/// A connection of either kind.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Listener::Port(l) => Box::new(l.accept().await?.0),
            Listener::Socket(l) => Box::new(l.accept().await?.0),
        })
    }
}

/// Listens on a port, and answers on a thread of its own until the process ends. Returns where.
pub fn start(address: &str, status: Arc<Status>) -> Result<String, String> {
    let fail = |e: io::Error| format!("--http {address}: cannot listen: {e}");
    let listener = TcpListener::bind(address).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    let at = listener.local_addr().map_err(fail)?.to_string();
    let adopt = || tokio::net::TcpListener::from_std(listener).map(Listener::Port);
    run("http", adopt, status).map_err(fail)?;
    Ok(at)
}

/// The same on a socket of the machine's own.
pub fn start_on_socket(listener: UnixListener, status: Arc<Status>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let adopt = || tokio::net::UnixListener::from_std(listener).map(Listener::Socket);
    run("control", adopt, status)
}

fn run(
    name: &str,
    adopt: impl FnOnce() -> io::Result<Listener>,
    status: Arc<Status>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        adopt()?
    };
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(move || runtime.block_on(serve(listener, status)))?;
    Ok(())
}

async fn serve(listener: Listener, status: Arc<Status>) {
    let mut open = VecDeque::new();
    let own = matches!(listener, Listener::Socket(_));
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
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
        open.push_back(tokio::spawn(exchange(stream, status.clone(), own)).abort_handle());
    }
}

/// One request and its answer.
async fn exchange(stream: Box<dyn Stream>, status: Arc<Status>, own: bool) {
    let service = service_fn(move |request| {
        let status = status.clone();
        async move { Ok::<_, Infallible>(status.answer(&request, own).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let time = if own { OWN_TIME } else { TIME };
    match timeout(time, connection).await {
        Ok(Ok(())) => (),
        Ok(Err(e)) => tracing::debug!("http: {e}"),
        Err(_) => tracing::debug!("http: not over in {} s", time.as_secs()),
    }
}

/// A volume's name as a part of a path: its file may have any name, and a path takes few signs.
pub(super) fn in_path(name: &str) -> String {
    let mut all = String::with_capacity(name.len());
    for b in name.bytes() {
        match b {
            b'-' | b'.' | b'_' | b'~' => all.push(char::from(b)),
            b if b.is_ascii_alphanumeric() => all.push(char::from(b)),
            b => all.push_str(&format!("%{b:02X}")),
        }
    }
    all
}

/// The name. What stands for no byte is taken as it is.
fn from_path(part: &str) -> String {
    let (mut all, mut rest) = (Vec::with_capacity(part.len()), part.as_bytes());
    while let Some((&first, more)) = rest.split_first() {
        let digits = more.get(..2).filter(|d| first == b'%' && d.iter().all(u8::is_ascii_hexdigit));
        let byte = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 16).ok());
        all.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &more[2..] } else { more };
    }
    String::from_utf8_lossy(&all).into_owned()
}

impl Status {
    /// `own`: it came by the control socket, from whoever runs the server.
    async fn answer(&self, request: &Request<Incoming>, own: bool) -> Response<Full<Bytes>> {
        let (code, kind, text) = match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/metrics") => {
                (StatusCode::OK, OPENMETRICS, self.metrics().await)
            }
            (&Method::GET | &Method::HEAD, "/health") => match self.health().await {
                (true, text) => (StatusCode::OK, PLAIN, text),
                (false, text) => (StatusCode::SERVICE_UNAVAILABLE, PLAIN, text),
            },
            (&Method::GET | &Method::HEAD, "/status.json") => {
                let report = serde_json::to_string(&self.report().await);
                (StatusCode::OK, JSON, report.expect("its keys are strings"))
            }
            (&Method::GET | &Method::HEAD, "/") => (StatusCode::OK, HTML, PAGE.to_owned()),
            (&Method::POST, path) if own && path.starts_with("/scrub/") => {
                match self.scrub(&from_path(&path["/scrub/".len()..])).await {
                    Ok(()) => (StatusCode::OK, PLAIN, "begun\n".to_owned()),
                    Err(why) => (StatusCode::CONFLICT, PLAIN, why),
                }
            }
            (&Method::POST, path) if own && path.starts_with("/snapshot/") => {
                match self.snapshot(&path["/snapshot/".len()..]).await {
                    Ok(text) => (StatusCode::OK, PLAIN, text),
                    Err(why) => (StatusCode::CONFLICT, PLAIN, why),
                }
            }
            (&Method::POST, path) if own && path.starts_with("/copy/") => {
                match self.copy(&path["/copy/".len()..]).await {
                    Ok(text) => (StatusCode::OK, JSON, text),
                    Err(why) => (StatusCode::CONFLICT, PLAIN, why),
                }
            }
            (&Method::GET | &Method::HEAD, _) => {
                let text = "there are /, /status.json, /metrics and /health\n".to_owned();
                (StatusCode::NOT_FOUND, PLAIN, text)
            }
            _ => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n".to_owned()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::{from_path, in_path};

    #[test]
    fn any_name_goes_through_a_path() {
        for name in ["home", "my disk", "100%", "a/b?c#d", "größe", "%41", "\u{7f}\n\\"] {
            let path = in_path(name);
            assert!(
                format!("/scrub/{path}")
                    .parse::<hyper::Uri>()
                    .is_ok_and(|u| { u.query().is_none() && u.path() == format!("/scrub/{path}") })
            );
            assert_eq!(from_path(&path), name);
        }
        assert_eq!(from_path("50%-off%2"), "50%-off%2", "an earlier program's");
    }
}

//! Asking the servers that run on this machine, by their control sockets. It knows no command, and
//! what is made of the answers is theirs.

use super::control::sockets;
use super::report::Report;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// A server that does not answer for so long is not asked again.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same where a volume may first have to write all that it holds.
const COPY_PATIENCE: Duration = Duration::from_secs(600);

/// A server that answered.
pub struct Server {
    socket: PathBuf,
    pub report: Report,
}

/// All servers of this user that answer, by their process numbers.
pub fn servers() -> Vec<Server> {
    let asked = sockets().into_iter().map(|socket| (ask(&socket), socket));
    let mut all: Vec<Server> = asked
        .filter_map(|(report, socket)| match report {
            Ok(report) => Some(Server { socket, report }),
            Err(e) => {
                tracing::info!("{}: {e}", socket.display());
                None
            }
        })
        .collect();
    all.sort_by_key(|s| s.report.pid);
    all
}

impl Server {
    /// Of a report that is there already.
    #[cfg(test)]
    pub fn of(report: Report) -> Server {
        Server { socket: PathBuf::new(), report }
    }
    /// Asks it again. Errors: it has ended, or does not answer.
    pub fn refresh(&mut self) -> io::Result<()> {
        self.report = ask(&self.socket)?;
        Ok(())
    }

    /// Has the checker begin in a volume. Errors: why not.
    pub fn scrub(&self, volume: &str) -> io::Result<()> {
        self.order(&format!("/scrub/{volume}"), PATIENCE).map(drop)
    }

    /// A step of a copy: `begin/VOLUME`, by its place in the report, then `alive`, `changed`,
    /// `freeze/MILLISECONDS`, `thaw` or `end`, each with `/VOLUME/COPY`. Returns what was answered.
    /// Errors: why not.
    pub fn copy(&self, step: &str) -> io::Result<Bytes> {
        self.order(&format!("/copy/{step}"), COPY_PATIENCE)
    }

    /// `create`, `delete` or `list` for the volume at this place of the report. Returns what was
    /// answered. Errors: why not.
    pub fn snapshot(&self, step: &str, volume: usize, name: &str) -> io::Result<Bytes> {
        self.order(&format!("/snapshot/{step}/{volume}/{name}"), COPY_PATIENCE)
    }

    fn order(&self, path: &str, patience: Duration) -> io::Result<Bytes> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let asked = send(&self.socket, Method::POST, path);
        let answered = runtime.block_on(async { timeout(patience, asked).await });
        answered.map_err(|_| io::Error::other("does not answer"))?
    }
}

fn ask(socket: &Path) -> io::Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(async { timeout(PATIENCE, get(socket, "/status.json")).await });
    let body = asked.map_err(|_| io::Error::other("does not answer"))??;
    serde_json::from_slice(&body).map_err(io::Error::other)
}

/// What the server says at this path.
async fn get(socket: &Path, path: &str) -> io::Result<Bytes> {
    send(socket, Method::GET, path).await
}

async fn send(socket: &Path, method: Method, path: &str) -> io::Result<Bytes> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) =
        handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let carried = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "cairn")
        .body(Empty::<Bytes>::new());
    let request = request.map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let code = response.status();
    let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    carried.abort();
    match code {
        StatusCode::OK => Ok(body),
        StatusCode::CONFLICT => Err(io::Error::other(String::from_utf8_lossy(&body).into_owned())),
        code => Err(io::Error::other(format!("answers {code}"))),
    }
}

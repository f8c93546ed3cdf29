//! Asking the servers that run on this machine, by their control sockets. It knows no command, and
//! what is made of the answers is theirs.

use super::control::sockets;
use super::http::in_path;
use super::report::Report;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
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

/// All servers of this user that answer, by their process numbers. Those that do not are known from
/// then on ([`silent`]), and not waited for again.
pub fn servers() -> Vec<Server> {
    let mut all = Vec::new();
    for socket in sockets() {
        let pid = process_of(&socket);
        if pid.is_some_and(|pid| is_silent(pid) || is_stopped(pid)) {
            pid.into_iter().for_each(falls_silent);
            continue;
        }
        match ask(&socket) {
            Ok(report) => all.push(Server { socket, report }),
            Err(e) => {
                tracing::info!("{}: {e}", socket.display());
                let silent = e.kind() == io::ErrorKind::TimedOut;
                pid.filter(|_| silent).into_iter().for_each(falls_silent);
            }
        }
    }
    all.sort_by_key(|s| s.report.pid);
    all
}

/// Processes of servers that were asked and did not answer.
static SILENT: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn falls_silent(pid: u32) {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
}

/// Was this process asked, and did not answer?
pub fn is_silent(pid: u32) -> bool {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner).contains(&pid)
}

/// What is to be said of the servers that did not answer; None: all did.
pub fn silent() -> Option<String> {
    let all = SILENT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let told: Vec<String> =
        all.iter().map(|pid| format!("process {pid} {}", why_silent(*pid))).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Why a process does not answer, and what to do.
pub fn why_silent(pid: u32) -> String {
    match is_stopped(pid) {
        true => format!("does not answer, because it is stopped: kill -CONT {pid} lets it go on"),
        false => "does not answer: it is very busy, or hangs; ask again".to_owned(),
    }
}

/// Whose control socket is it? They are called by their process.
fn process_of(socket: &Path) -> Option<u32> {
    socket.file_stem()?.to_str()?.parse().ok()
}

/// Has somebody stopped it (SIGSTOP, Ctrl-Z, a debugger)? Then it would be waited for in vain.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Its name comes before, in parentheses, and may have any characters.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
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
        self.order(&format!("/scrub/{}", in_path(volume)), PATIENCE).map(drop)
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
    let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "does not answer");
    let body = asked.map_err(silent)??;
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

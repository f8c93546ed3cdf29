//! The NFS side of `cairn serve`: exports, the listener, and the line to mount with.

use super::replies;
use crate::{Failure, say};
use host::{Limits, Listening, Outlet, Pool, Protocol, Service, Unfinished, listen};
use nfs::{Connection, Export, Sender, Served, Server, parse_export};
use stats::Recorder;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use vfs::Work;

/// How NFS is served.
#[derive(Clone)]
pub struct NfsArgs {
    address: String,
    exports: Vec<Export>,
}

struct Socket(Outlet);
impl Sender for Socket {
    fn send(&self, pieces: Vec<env::Piece>) {
        self.0.send(pieces);
    }
    fn unsent(&self) -> usize {
        self.0.unsent()
    }
    fn unsent_everywhere(&self) -> usize {
        self.0.unsent_by_all()
    }
    fn wait_below(&self, bytes: usize) {
        self.0.wait_below(bytes);
    }
}

struct Nfs(Arc<Connection>);
impl Protocol for Nfs {
    fn received(&self, bytes: &[u8]) -> Result<Vec<(usize, Work)>, String> {
        self.0.received(bytes)
    }
    fn uncork(&self) {
        self.0.uncork();
    }
    fn wait_for_quota(&self) -> bool {
        self.0.wait_for_quota()
    }
    fn is_waiting(&self) -> bool {
        self.0.is_waiting()
    }
    fn unfinished(&self) -> Option<Unfinished> {
        let nfs::Unfinished { number, missing_bytes, in_the_way } = self.0.unfinished()?;
        Some(Unfinished { number, missing_bytes, in_the_way })
    }
}

struct Connections(Arc<Server>);
impl Service for Connections {
    fn admits(&self, peer: SocketAddr) -> bool {
        self.0.admits(peer)
    }
    fn turned_away(&self, peer: SocketAddr, why: &str) {
        self.0.turned_away(peer, why);
    }
    fn accept(&self, peer: SocketAddr, outlet: Outlet) -> Arc<dyn Protocol> {
        Arc::new(Nfs(Connection::new(self.0.clone(), peer, Box::new(Socket(outlet)))))
    }
}

impl NfsArgs {
    /// From the command line.
    pub fn new(address: Option<&str>, exports: &[String]) -> Result<NfsArgs, Failure> {
        let mut all = Vec::new();
        for e in exports {
            all.extend(parse_export(e).map_err(Failure::Usage)?);
        }
        if all.is_empty() {
            all = Export::loopback();
        }
        let address = address.unwrap_or("127.0.0.1:2049").to_owned();
        Ok(NfsArgs { address, exports: all })
    }

    /// Is there a volume for each export that names one, and only one? These are served.
    pub fn check_names(&self, names: &[String]) -> Result<(), Failure> {
        if let Some(twice) = names.iter().enumerate().find(|(n, name)| names[..*n].contains(name)) {
            return Err(Failure::Usage(two_of_a_name(twice.1)));
        }
        let known = |e: &&Export| e.name.is_empty() || names.iter().any(|n| **n == *e.name);
        let Some(stray) = self.exports.iter().find(|e| !known(e)) else { return Ok(()) };
        let shown: Vec<String> = names.iter().map(|n| format!("/{n}")).collect();
        let (stray, names) = (&stray.name, shown.join(", "));
        Err(Failure::Usage(format!("--export {stray}=…: no such volume is served, but {names}")))
    }

    /// Listens, and prints how to mount. The volumes' images, in the same order, say where the
    /// server before may have left something.
    pub fn start(
        self,
        pool: &Arc<Pool>,
        volumes: Vec<Served>,
        images: Vec<PathBuf>,
        recorder: Arc<Recorder>,
    ) -> Result<Started, String> {
        all_different(&volumes)?;
        let names: Vec<String> = volumes.iter().map(|v| v.name.clone()).collect();
        let rules = self.exports.clone();
        let server = Arc::new(Server::new(volumes, self.exports, recorder));
        images.iter().enumerate().for_each(|(v, i)| replies::take_over(&server, v, i));
        let service = Arc::new(Connections(server.clone()));
        let listening = listen(pool, &self.address, service, Limits::default())?;
        let at = listening.at;
        let reached = reached(at);
        names.iter().for_each(|name| say::out(&mount_line(reached, name)));
        for doubt in names.iter().filter_map(|name| nfs::doubt(&rules, name, at)) {
            say::err(&format!("warning: {doubt}"));
        }
        Ok(Started { server, listening, images })
    }
}

/// Where clients reach a server that listens here: every address stands for the machine's own, the
/// one from which it would reach others.
fn reached(at: SocketAddr) -> SocketAddr {
    if !at.ip().is_unspecified() {
        return at;
    }
    // Listening on every address of IPv6 takes IPv4's callers, too.
    let own = of_this_machine().filter(|own| at.is_ipv6() || own.is_ipv4());
    SocketAddr::new(own.unwrap_or(Ipv4Addr::LOCALHOST.into()), at.port())
}

/// The address that this machine has in its network, if it is in one.
pub fn of_this_machine() -> Option<IpAddr> {
    own_address("0.0.0.0:0", "192.0.2.1:9").or_else(|| own_address("[::]:0", "[2001:db8::1]:9"))
}

/// The address from which this machine would send to there. Nothing is sent.
fn own_address(from: &str, to: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|a| a.ip()).filter(|ip| !ip.is_unspecified())
}

/// The command with which a client mounts.
fn mount_line(at: SocketAddr, name: &str) -> String {
    let port = at.port();
    // An address of IPv6 stands in brackets before a path, and "tcp" alone means IPv4's.
    let (host, transport) = match at {
        SocketAddr::V4(a) => (a.ip().to_string(), "tcp".to_owned()),
        SocketAddr::V6(a) => {
            let scope = match a.scope_id() {
                0 => String::new(),
                n => format!("%{n}"),
            };
            (format!("[{}{scope}]", a.ip()), "proto=tcp6,mountproto=tcp6".to_owned())
        }
    };
    let options = format!("vers=3,{transport},nolock,port={port},mountport={port}");
    format!("mount -t nfs -o {options} {host}:/{name} DIR")
}

fn two_of_a_name(name: &str) -> String {
    format!(
        "two volumes would be exported as /{name}: a configuration (--config) gives them names, or \
         rename one's file"
    )
}

/// Clients tell volumes apart by their names, and handles by the volumes' UUIDs.
fn all_different(volumes: &[Served]) -> Result<(), String> {
    for (i, a) in volumes.iter().enumerate() {
        for b in &volumes[i + 1..] {
            if a.name == b.name {
                return Err(two_of_a_name(&a.name));
            }
            if a.info.uuid == b.info.uuid {
                let (a, b) = (&a.name, &b.name);
                return Err(format!(
                    "/{a} and /{b} are copies of one volume (the same UUID), and clients would \
                     take one for the other: serve them one at a time, or give one a new UUID \
                     (cairn uuid IMAGE random)"
                ));
            }
        }
    }
    Ok(())
}

/// NFS as it is served.
pub struct Started {
    /// Whom to ask for metrics.
    pub server: Arc<Server>,
    listening: Listening,
    images: Vec<PathBuf>,
}

/// How long a clean end waits for clients that take no replies.
const PATIENCE: Duration = Duration::from_secs(5);

impl Started {
    /// Where it listens.
    pub fn at(&self) -> SocketAddr {
        self.listening.at
    }
    /// Takes these rules from now on; clients keep their connections.
    pub fn take_exports(&self, args: NfsArgs) {
        self.server.set_exports(args.exports);
    }
    /// From now on no request enters a volume; those that have are answered when the volumes are
    /// closed.
    pub fn stop(&self) {
        self.listening.stop(PATIENCE);
    }
    /// The volumes are closed, all of them cleanly or not: waits until their last answers are on
    /// their way, and leaves what the next server needs.
    pub fn end(&self, cleanly: bool) {
        self.listening.flush(PATIENCE);
        if cleanly {
            let images = self.images.iter().enumerate();
            images.for_each(|(v, i)| replies::leave(&self.server, v, i));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_an_address_that_can_be_mounted() {
        let line = |at: &str| mount_line(at.parse().unwrap(), "v");
        assert_eq!(
            line("127.0.0.1:2049"),
            "mount -t nfs -o vers=3,tcp,nolock,port=2049,mountport=2049 127.0.0.1:/v DIR"
        );
        assert_eq!(
            line("[fe80::1%2]:2049"),
            "mount -t nfs -o vers=3,proto=tcp6,mountproto=tcp6,nolock,port=2049,mountport=2049 \
             [fe80::1%2]:/v DIR"
        );
        for every in ["0.0.0.0:7", "[::]:7"] {
            let at = reached(every.parse().unwrap());
            assert!(!at.ip().is_unspecified() && at.port() == 7, "{every}: {at}");
        }
        let one = "192.0.2.7:7".parse().unwrap();
        assert_eq!(reached(one), one);
    }
}

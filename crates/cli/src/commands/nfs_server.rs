//! The NFS side of `cairn serve`: exports, the listener, and the line to mount with.

use crate::Failure;
use host::{Driver, Outlet, Pool, Protocol, listen};
use nfs::{Connection, Export, Sender, Served, Server, parse_export};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use vfs::{Reply, Request, Work};

/// How NFS is served.
pub struct NfsArgs {
    address: String,
    exports: Vec<Export>,
}

struct Socket(Outlet);
impl Sender for Socket {
    fn send(&self, bytes: Vec<u8>) {
        self.0.send(&bytes);
    }
}

struct Nfs(Arc<Connection>);
impl Protocol for Nfs {
    fn received(&self, bytes: &[u8]) -> Result<Vec<(usize, Work)>, String> {
        self.0.received(bytes)
    }
    fn gathered(&self) {
        self.0.gathered();
    }
    fn is_full(&self) -> bool {
        self.0.is_full()
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

    /// Listens, and prints how to mount.
    pub fn start(self, pool: &Arc<Pool>, volumes: Vec<Served>) -> Result<(), String> {
        let names: Vec<String> = volumes.iter().map(|v| v.name.clone()).collect();
        let server = Arc::new(Server::new(volumes, self.exports));
        let accept = move |peer: SocketAddr, outlet: Outlet| -> Arc<dyn Protocol> {
            Arc::new(Nfs(Connection::new(server.clone(), peer, Box::new(Socket(outlet)))))
        };
        let at = listen(pool, &self.address, Arc::new(accept))?;
        let port = at.port();
        for name in names {
            println!(
                "mount -t nfs -o vers=3,tcp,nolock,port={port},mountport={port} {}:/{name} DIR",
                at.ip()
            );
        }
        Ok(())
    }
}

/// What the server needs to know of an opened volume.
pub fn describe(driver: &Driver, path: &Path) -> Result<Served, Failure> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match driver.request(Request::Info) {
        Ok(Reply::Info(info)) => Ok(Served { name, info: *info }),
        _ => Err(Failure::Failed(format!("{}: tells nothing about itself", path.display()))),
    }
}

//! An export of an NFSv3 server, ours or anybody's: a connection for each thread, with one request
//! under way on it.

use super::{Place, Target};
use crate::Failure;
use nfs3_client::nfs3_types::nfs3::{
    COMMIT3args, CREATE3args, GETATTR3args, LOOKUP3args, MKDIR3args, Nfs3Option, Nfs3Result,
    READ3args, REMOVE3args, RMDIR3args, WRITE3args, createhow3, diropargs3, filename3, nfs_fh3,
    nfsstat3, sattr3, stable_how,
};
use nfs3_client::nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::tokio::{TokioConnector, TokioIo};
use nfs3_client::{Nfs3Client, Nfs3ConnectionBuilder, RpcError};
use std::io;
use std::net::ToSocketAddrs;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// Where an export is.
pub(super) struct Server {
    host: String,
    port: u16,
    mount_port: u16,
    export: String,
}

impl Server {
    /// From `HOST[:PORT]/EXPORT[?mountport=N]`.
    pub(super) fn at(url: &str) -> Result<Server, Failure> {
        let bad = || {
            let form = "nfs://HOST[:PORT]/EXPORT[?mountport=N]";
            Failure::Usage(format!("nfs://{url}: no server; its form is {form}"))
        };
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        let (host, export) = url.split_once('/').ok_or_else(bad)?;
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:2049") };
        let found = host.to_socket_addrs().ok().and_then(|mut a| a.next());
        let address = found.ok_or_else(bad)?;
        let mount_port = match query.strip_prefix("mountport=") {
            Some(n) => n.parse().map_err(|_| bad())?,
            None if query.is_empty() => address.port(),
            None => return Err(bad()),
        };
        Ok(Server {
            host: address.ip().to_string(),
            port: address.port(),
            mount_port,
            export: format!("/{export}"),
        })
    }

    fn connect(&self) -> Result<Client, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        // SAFETY: these take nothing and cannot fail.
        #[expect(unsafe_code, reason = "std does not tell who we are")]
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let who =
            auth_unix { uid, gid, machinename: Opaque::borrowed(b"cairn"), ..auth_unix::default() };
        let mounted = runtime.block_on(
            Nfs3ConnectionBuilder::new(TokioConnector, &self.host, &self.export)
                .nfs3_port(self.port)
                .mount_port(self.mount_port)
                .connect_from_privileged_port(uid == 0)
                .credential(opaque_auth::auth_unix(&who))
                .mount(),
        );
        let shown = format!("nfs://{}:{}{}", self.host, self.port, self.export);
        let mounted = mounted.map_err(|e| Failure::Failed(format!("{shown}: {e}")))?;
        let dir = mounted.root_nfs_fh3();
        let (rpc, file) = (mounted.into_nfs3_client(), dir.clone());
        Ok(Client { runtime, rpc, dir, file })
    }
}

impl Target for Server {
    fn places(&self, folder: &str, threads: usize) -> Result<Vec<Box<dyn Place>>, Failure> {
        let fail = |e: io::Error| Failure::Failed(format!("{}: {folder}: {e}", self.export));
        let mut first = self.connect()?;
        first.enter_new(folder).map_err(fail)?;
        let place = |t: usize| {
            let mut client = self.connect()?;
            client.dir = first.dir.clone();
            client.enter_new(&format!("t{t}")).map_err(fail)?;
            Ok(Box::new(client) as Box<dyn Place>)
        };
        (0..threads).map(place).collect()
    }
    fn finish(self: Box<Self>, folder: &str, threads: usize) -> Result<(), Failure> {
        let mut client = self.connect()?;
        let root = client.dir.clone();
        let tidy = || {
            client.open(folder)?;
            client.dir = client.file.clone();
            (0..threads).try_for_each(|t| client.rmdir(&format!("t{t}")))?;
            client.dir = root;
            client.rmdir(folder)
        };
        tidy().map_err(|e| Failure::Failed(format!("{}: {folder}: {e}", self.export)))
    }
}

struct Client {
    runtime: Runtime,
    rpc: Nfs3Client<TokioIo<TcpStream>>,
    dir: nfs_fh3,
    file: nfs_fh3,
}

/// What a call gave, or its error as one of ours.
fn taken<T, E>(result: Result<Nfs3Result<T, E>, RpcError>) -> io::Result<T> {
    match result {
        Ok(Nfs3Result::Ok(value)) => Ok(value),
        Ok(Nfs3Result::Err((status, _))) => Err(refused(status)),
        Err(e) => Err(io::Error::other(e.to_string())),
    }
}

fn refused(status: nfsstat3) -> io::Error {
    io::Error::other(format!("{status:?}"))
}

fn name_in<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: filename3::from(name.as_bytes()) }
}

fn mode(bits: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(bits), ..sattr3::default() }
}

impl Client {
    /// Makes a folder and goes into it.
    fn enter_new(&mut self, name: &str) -> io::Result<()> {
        self.mkdir(name)?;
        self.open(name)?;
        self.dir = self.file.clone();
        Ok(())
    }
}

impl Place for Client {
    fn mkdir(&mut self, name: &str) -> io::Result<()> {
        let args = MKDIR3args { where_: name_in(&self.dir, name), attributes: mode(0o755) };
        taken(self.runtime.block_on(self.rpc.mkdir(&args))).map(drop)
    }
    fn create(&mut self, name: &str) -> io::Result<()> {
        let how = createhow3::UNCHECKED(mode(0o644));
        let args = CREATE3args { where_: name_in(&self.dir, name), how };
        let made = taken(self.runtime.block_on(self.rpc.create(&args)))?;
        match made.obj {
            Nfs3Option::Some(file) => self.file = file,
            Nfs3Option::None => self.open(name)?,
        }
        Ok(())
    }
    fn open(&mut self, name: &str) -> io::Result<()> {
        let args = LOOKUP3args { what: name_in(&self.dir, name) };
        self.file = taken(self.runtime.block_on(self.rpc.lookup(&args)))?.object;
        Ok(())
    }
    fn write(&mut self, offset: u64, bytes: &[u8], durable: bool) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let args = WRITE3args {
                file: self.file.clone(),
                offset: offset + at as u64,
                count: rest.len() as u32,
                stable: if durable { stable_how::FILE_SYNC } else { stable_how::UNSTABLE },
                data: Opaque::borrowed(rest),
            };
            let done = taken(self.runtime.block_on(self.rpc.write(&args)))?;
            at += (done.count as usize).min(rest.len());
            if done.count == 0 {
                return Err(io::Error::other("the server wrote nothing"));
            }
        }
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        let args = COMMIT3args { file: self.file.clone(), offset: 0, count: 0 };
        taken(self.runtime.block_on(self.rpc.commit(&args))).map(drop)
    }
    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < into.len() {
            let args = READ3args {
                file: self.file.clone(),
                offset: offset + at as u64,
                count: (into.len() - at) as u32,
            };
            let got = taken(self.runtime.block_on(self.rpc.read(&args)))?.data;
            let n = got.len().min(into.len() - at);
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into[at..at + n].copy_from_slice(&got.as_ref()[..n]);
            at += n;
        }
        Ok(())
    }
    fn stat(&mut self) -> io::Result<()> {
        let args = GETATTR3args { object: self.file.clone() };
        taken(self.runtime.block_on(self.rpc.getattr(&args))).map(drop)
    }
    fn remove(&mut self, name: &str) -> io::Result<()> {
        let args = REMOVE3args { object: name_in(&self.dir, name) };
        taken(self.runtime.block_on(self.rpc.remove(&args))).map(drop)
    }
    fn rmdir(&mut self, name: &str) -> io::Result<()> {
        let args = RMDIR3args { object: name_in(&self.dir, name) };
        taken(self.runtime.block_on(self.rpc.rmdir(&args))).map(drop)
    }
}

//! `cairn serve --rpcbind`: tells the local rpcbind (RFC 1833, version 4) where NFS and MOUNT are,
//! so that clients need no port, and takes that back at the end. It knows nothing of either.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const SOCKETS: [&str; 2] = ["/run/rpcbind.sock", "/var/run/rpcbind.sock"];
const TCP: &str = "127.0.0.1:111";
const PATIENCE: Duration = Duration::from_secs(5);
const SET: u32 = 1;
const UNSET: u32 = 2;
/// NFS and MOUNT, version 3 both.
const PROGRAMS: [u32; 2] = [100_003, 100_005];
const REPLY_BYTES_MAX: usize = 4096;

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// What was registered; dropping it takes it back.
pub struct Registration {
    /// rpcbind's names of transports, and our address in its notation.
    addresses: Vec<(&'static str, String)>,
}

impl Registration {
    /// Registers a server that listens at `at`. What an earlier server left behind is replaced.
    pub fn new(at: SocketAddr) -> Result<Registration, String> {
        let fail = |e: io::Error| format!("--rpcbind: the local rpcbind: {e}");
        let addresses = addresses(at);
        each(&addresses, UNSET).map_err(fail)?;
        // From here on there may be something to take back.
        let registration = Registration { addresses };
        if each(&registration.addresses, SET).map_err(fail)? {
            return Ok(registration);
        }
        Err("--rpcbind: rpcbind refuses: somebody else's server is registered (rpcinfo -p)".into())
    }
}

/// Asks for all, and tells whether every answer was yes.
fn each(addresses: &[(&str, String)], procedure: u32) -> io::Result<bool> {
    let mut stream = connect()?;
    let mut all = true;
    for (netid, address) in addresses {
        for program in PROGRAMS {
            all &= ask(&mut *stream, procedure, program, (netid, address))?;
        }
    }
    Ok(all)
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Err(e) = each(&self.addresses, UNSET) {
            tracing::warn!("rpcbind keeps the registration: {e}");
        }
    }
}

/// A universal address (RFC 1833): the host, then the port's two bytes.
fn addresses(at: SocketAddr) -> Vec<(&'static str, String)> {
    let [high, low] = at.port().to_be_bytes();
    let one = |netid, ip: &str| (netid, format!("{ip}.{high}.{low}"));
    match at.ip() {
        // Listening on every address of IPv6 takes IPv4's callers, too.
        IpAddr::V6(v6) if v6.is_unspecified() => vec![one("tcp6", "::"), one("tcp", "0.0.0.0")],
        IpAddr::V6(v6) => vec![one("tcp6", &v6.to_string())],
        IpAddr::V4(v4) => vec![one("tcp", &v4.to_string())],
    }
}

/// By its own socket if there is one, where it knows who asks; else by TCP, where only low ports
/// may.
fn connect() -> io::Result<Box<dyn Stream>> {
    for path in SOCKETS {
        if let Ok(s) = UnixStream::connect(path) {
            s.set_read_timeout(Some(PATIENCE))?;
            return Ok(Box::new(s));
        }
    }
    let s = TcpStream::connect(TCP)?;
    s.set_read_timeout(Some(PATIENCE))?;
    Ok(Box::new(s))
}

fn string(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u32).to_be_bytes());
    out.extend(s.as_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
}

fn ask(
    stream: &mut dyn Stream,
    procedure: u32,
    program: u32,
    (netid, address): (&str, &str),
) -> io::Result<bool> {
    let xid = std::process::id() ^ program;
    let mut call = Vec::new();
    // RPC version 2, rpcbind 4, no credential and no verifier; then program and version.
    for word in [xid, 0, 2, 100_000, 4, procedure, 0, 0, 0, 0, program, 3] {
        call.extend(word.to_be_bytes());
    }
    string(&mut call, netid);
    string(&mut call, address);
    string(&mut call, "cairn");
    let mut record = (call.len() as u32 | 0x8000_0000).to_be_bytes().to_vec();
    record.append(&mut call);
    stream.write_all(&record)?;
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let len = (u32::from_be_bytes(head) & 0x7fff_ffff) as usize;
    if len > REPLY_BYTES_MAX {
        return Err(io::Error::other("an answer that is too long"));
    }
    let mut reply = vec![0; len];
    stream.read_exact(&mut reply)?;
    let words: Vec<u32> =
        reply.chunks_exact(4).map(|c| u32::from_be_bytes([c[0], c[1], c[2], c[3]])).collect();
    match words[..] {
        [x, 1, 0, 0, 0, 0, yes] if x == xid => Ok(yes == 1),
        _ => Err(io::Error::other("it refuses the call")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_addresses() {
        let of = |s: &str| addresses(s.parse().unwrap());
        assert_eq!(of("127.0.0.1:2049"), [("tcp", "127.0.0.1.8.1".to_owned())]);
        assert_eq!(of("[::1]:258"), [("tcp6", "::1.1.2".to_owned())]);
        assert_eq!(of("[::]:2049").len(), 2);
    }
}

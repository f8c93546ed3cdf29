//! `cairn serve --rpcbind`: tells the local rpcbind (RFC 1833, version 4) where NFS and MOUNT are,
//! so that clients need no port, and takes that back at the end. A server that is registered and
//! answers keeps its place; what a killed one has left is replaced. It knows nothing of either
//! protocol but its NULL procedure.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const SOCKETS: [&str; 2] = ["/run/rpcbind.sock", "/var/run/rpcbind.sock"];
const TCP: &str = "127.0.0.1:111";
const PATIENCE: Duration = Duration::from_secs(5);
const SET: u32 = 1;
const UNSET: u32 = 2;
/// NFS and MOUNT, version 3 both.
const PROGRAMS: [u32; 2] = [100_003, 100_005];
const DUMP: u32 = 4;
const RPCBIND: u32 = 100_000;
const REPLY_BYTES_MAX: usize = 256 << 10;
/// A server that says nothing for so long is gone.
const PING: Duration = Duration::from_secs(2);

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// What was registered; dropping it takes it back.
pub struct Registration {
    /// rpcbind's names of transports, and our address in its notation.
    addresses: Vec<(&'static str, String)>,
}

impl Registration {
    /// Registers a server that listens at `at`. What an earlier server left behind is replaced.
    /// Errors: nobody to register with, or another server is registered and answers.
    pub fn new(at: SocketAddr) -> Result<Registration, String> {
        let fail = |e: io::Error| format!("--rpcbind: the local rpcbind: {e}");
        let addresses = addresses(at);
        let netids: Vec<&str> = addresses.iter().map(|a| a.0).collect();
        if let Some(who) = living(&dump().map_err(fail)?, &netids, at) {
            return Err(format!(
                "--rpcbind: another NFS server is registered and answers at {who}: stop it, or \
                 serve without --rpcbind"
            ));
        }
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
    let mut what = Vec::new();
    for word in [program, 3] {
        what.extend(word.to_be_bytes());
    }
    string(&mut what, netid);
    string(&mut what, address);
    string(&mut what, "cairn");
    match *call(stream, (RPCBIND, 4, procedure), &what)? {
        [0, 0, 0, yes] => Ok(yes == 1),
        _ => Err(io::Error::other("it refuses the call")),
    }
}

/// Calls a procedure of a program's version, without a credential: its results.
fn call(
    stream: &mut dyn Stream,
    (program, version, procedure): (u32, u32, u32),
    args: &[u8],
) -> io::Result<Vec<u8>> {
    let xid = std::process::id() ^ program ^ procedure;
    let head = [xid, 0, 2, program, version, procedure, 0, 0, 0, 0];
    let mut body: Vec<u8> = head.iter().flat_map(|w: &u32| w.to_be_bytes()).collect();
    body.extend(args);
    let mark = (body.len() as u32 | 0x8000_0000).to_be_bytes();
    stream.write_all(&[&mark[..], &body].concat())?;
    let reply = record(stream)?;
    // That it is the reply, accepted, with no verifier, and a success.
    let head: Vec<u8> = [xid, 1, 0, 0, 0, 0].iter().flat_map(|w: &u32| w.to_be_bytes()).collect();
    match reply.strip_prefix(&head[..]) {
        Some(results) => Ok(results.to_vec()),
        None => Err(io::Error::other("it refuses the call")),
    }
}

/// A record, of as many fragments as it has.
fn record(stream: &mut dyn Stream) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        let (at, len) = (all.len(), (mark & 0x7fff_ffff) as usize);
        if at + len > REPLY_BYTES_MAX {
            return Err(io::Error::other("an answer that is too long"));
        }
        all.resize(at + len, 0);
        stream.read_exact(&mut all[at..])?;
        if mark & 0x8000_0000 != 0 {
            return Ok(all);
        }
    }
}

/// What is registered: a program, its version, the transport and the address.
type Entry = (u32, u32, String, String);

fn dump() -> io::Result<Vec<Entry>> {
    let list = call(&mut *connect()?, (RPCBIND, 4, DUMP), &[])?;
    entries(&list).ok_or_else(|| io::Error::other("a list that makes no sense"))
}

/// The list as rpcbind sends it: before each entry a 1, after the last one a 0.
fn entries(mut list: &[u8]) -> Option<Vec<Entry>> {
    fn word(list: &mut &[u8]) -> Option<u32> {
        let (word, rest) = list.split_first_chunk()?;
        *list = rest;
        Some(u32::from_be_bytes(*word))
    }
    fn text(list: &mut &[u8]) -> Option<String> {
        let len = word(list)? as usize;
        let text = list.get(..len)?;
        *list = list.get(len.next_multiple_of(4)..)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }
    let list = &mut list;
    let mut all = Vec::new();
    while word(list)? == 1 {
        let (program, version) = (word(list)?, word(list)?);
        let (netid, address, _owner) = (text(list)?, text(list)?, text(list)?);
        all.push((program, version, netid, address));
    }
    Some(all)
}

/// Who is registered on these transports for what we serve, and answers; not we ourselves.
fn living(all: &[Entry], netids: &[&str], me: SocketAddr) -> Option<SocketAddr> {
    let ours = |e: &&Entry| PROGRAMS.contains(&e.0) && e.1 == 3 && netids.contains(&&*e.2);
    let found = all.iter().filter(ours).filter_map(|e| Some((e.0, socket_address(&e.3)?)));
    found.filter(|(_, at)| at.port() != me.port()).find(|(p, at)| answers(*p, *at)).map(|f| f.1)
}

/// A universal address that can be connected to; every address stands for this machine's own.
fn socket_address(universal: &str) -> Option<SocketAddr> {
    let mut parts = universal.rsplitn(3, '.');
    let (low, high) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let ip: IpAddr = parts.next()?.parse().ok()?;
    let ip = match ip {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes([high, low])))
}

/// Does the program answer there that it is?
fn answers(program: u32, at: SocketAddr) -> bool {
    let ping = || -> io::Result<()> {
        let mut s = TcpStream::connect_timeout(&at, PING)?;
        s.set_read_timeout(Some(PING))?;
        call(&mut s, (program, 3, 0), &[]).map(drop)
    };
    ping().is_ok()
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

    #[test]
    fn addresses_are_read_back() {
        let of = |s: &str| socket_address(s).map(|a| a.to_string());
        assert_eq!(of("127.0.0.1.8.1").as_deref(), Some("127.0.0.1:2049"));
        assert_eq!(of("0.0.0.0.8.1").as_deref(), Some("127.0.0.1:2049"));
        assert_eq!(of("::.1.2").as_deref(), Some("[::1]:258"));
        for bad in ["", "8.1", "1.2.3.4", "127.0.0.1.256.1", "/run/rpcbind.sock"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_list_is_read_and_its_end_is_kept() {
        let mut list = Vec::new();
        for (program, address) in [(100_003, "127.0.0.1.8.1"), (100_005, "::.8.1")] {
            [1, program, 3u32].iter().for_each(|w| list.extend(w.to_be_bytes()));
            ["tcp", address, "superuser"].iter().for_each(|s| string(&mut list, s));
        }
        list.extend([0; 4]);
        let all = entries(&list).unwrap();
        assert_eq!(all[1], (100_005, 3, "tcp".into(), "::.8.1".into()));
        assert!((0..list.len()).all(|cut| entries(&list[..cut]).is_none()));
    }

    #[test]
    fn who_answers_is_told_from_who_is_gone() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        // It answers the first two, the second with a refusal, and is gone then.
        let server = std::thread::spawn(move || {
            for told in [0u32, 1] {
                let mut s = listener.accept().unwrap().0;
                let asked = record(&mut s).unwrap();
                let rest: Vec<u8> =
                    [1, 0, 0, 0, told].iter().flat_map(|w: &u32| w.to_be_bytes()).collect();
                let reply = [&asked[..4], &rest].concat();
                let mark = (reply.len() as u32 | 0x8000_0000).to_be_bytes();
                s.write_all(&[&mark[..], &reply].concat()).unwrap();
            }
        });
        let [high, low] = at.port().to_be_bytes();
        let entry = |p, v, netid: &str| (p, v, netid.to_owned(), format!("0.0.0.0.{high}.{low}"));
        let me: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let living = |all: &[Entry], me| living(all, &["tcp"], me);
        // Not ours to ask: another program, another version, another transport, we ourselves.
        let others = [entry(100_021, 3, "tcp"), entry(100_003, 2, "tcp"), entry(100_003, 3, "udp")];
        assert_eq!(living(&others, me), None);
        assert_eq!(living(&[entry(100_003, 3, "tcp")], at), None);
        assert_eq!(living(&[entry(100_003, 3, "tcp")], me), Some(at));
        assert_eq!(living(&[entry(100_003, 3, "tcp")], me), None, "another program by now");
        server.join().unwrap();
        assert_eq!(living(&[entry(100_003, 3, "tcp")], me), None, "nobody");
    }
}

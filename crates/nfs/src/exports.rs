//! Who may use which volume, and as whom: the exports, as they are given on the command line.
//!
//! Invariants:
//! * X1. Where root is squashed, or not believed, nobody has root's user, its group, or it among
//!   his further groups, but by the numbers that the rule itself gives to the anonymous.
//! * X2. Networks and clients are compared by their plain addresses.

use ipnet::{IpNet, Ipv4Net};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use vfs::Cred;
use vfs::access::in_group;

/// From which ports a rule's clients may ask. Only root binds ports below 1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ports {
    /// From any, but from 1024 on nobody is root: any user of the client could say that he is.
    LowForRoot,
    /// From those below 1024 only: so who asks was told by the client's root.
    Low,
    /// From any, and whoever says so is root.
    Any,
}

/// Which callers are the anonymous user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Squash {
    /// Root where the client is another machine.
    Default,
    /// Root.
    Root,
    /// None, but those without a credential.
    Nobody,
    /// All.
    All,
}

/// One rule: these clients may use this volume in this way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// The volume's name, without the slash; empty: any.
    pub name: Arc<str>,
    clients: IpNet,
    /// May it be changed?
    pub writable: bool,
    squash: Squash,
    ports: Ports,
    /// User and group of squashed and unknown callers.
    anonymous: (u32, u32),
}

/// What clients with their options look like.
const CLIENTS: &str = "CIDR[,ro|rw][,root_squash|no_root_squash|all_squash][,secure|insecure]\
                       [,anonuid=N][,anongid=N]";

/// Reads an export: a volume's name, `=`, and clients, several separated by `;`.
pub fn parse_export(text: &str) -> Result<Vec<Export>, String> {
    let bad = |why: &str| format!("--export {text}: {why}; write NAME={CLIENTS}");
    let (name, rest) = text.split_once('=').ok_or_else(|| bad("no = behind a name"))?;
    let name = name.trim_start_matches('/');
    rest.split(';').map(|client| parse_client(name, client).map_err(|why| bad(&why))).collect()
}

/// Are these clients, as they stand below a volume whose name is known? Errors: why not.
pub fn check_clients(text: &str) -> Result<(), String> {
    let each = text.split(';').try_for_each(|client| parse_client("", client).map(drop));
    each.map_err(|why| format!("{why}; write {CLIENTS}"))
}

fn parse_client(name: &str, text: &str) -> Result<Export, String> {
    let mut parts = text.split(',');
    let cidr = parts.next().unwrap_or_default();
    let one = || cidr.parse::<IpAddr>().map(IpNet::from);
    let clients: IpNet = cidr.parse().or_else(|_| one()).map_err(|_| {
        format!("{cidr} is no address and no network, as 192.168.1.7 or 192.168.1.0/24")
    })?;
    let mut e = Export {
        name: name.into(),
        clients: plain_net(clients),
        writable: true,
        squash: Squash::Default,
        ports: Ports::LowForRoot,
        anonymous: (NOBODY, NOBODY),
    };
    for option in parts {
        let id = |n: &str| n.parse().map_err(|_| format!("{option}: no number of a user or group"));
        match option.split_once('=') {
            None => e.set(option)?,
            Some(("anonuid", n)) => e.anonymous.0 = id(n)?,
            Some(("anongid", n)) => e.anonymous.1 = id(n)?,
            Some(_) => return Err(format!("{option} is no option")),
        }
    }
    Ok(e)
}

/// What an administrator should think over of a volume that is served at this address by these
/// rules: it is open to everybody, or whoever reaches the address is covered by no rule.
pub fn doubt(rules: &[Export], volume: &str, at: SocketAddr) -> Option<String> {
    let of_volume: Vec<&Export> =
        rules.iter().filter(|e| e.name.is_empty() || *e.name == *volume).collect();
    let only_here = at.ip().is_loopback();
    if !only_here && of_volume.iter().any(|e| e.clients.prefix_len() == 0) {
        return Some(format!(
            "/{volume} is open to whoever reaches {at}, and NFSv3 believes the user numbers that \
             it is told: name the clients (--export {volume}=CIDR)"
        ));
    }
    let loopback = |e: &&Export| e.clients.addr().is_loopback() || e.clients.prefix_len() == 0;
    match (only_here, of_volume.iter().any(loopback), of_volume.iter().all(loopback)) {
        (true, false, _) => Some(format!(
            "/{volume}: its --export covers nobody who reaches {at}: serve it at another address \
             (--nfs 0.0.0.0:{})",
            at.port()
        )),
        (false, _, true) => Some(format!(
            "/{volume}: of all who reach {at} only this machine is let in: name the others \
             (--export {volume}=CIDR)"
        )),
        _ => None,
    }
}

/// The address itself where it is an IPv4 one in IPv6's clothes.
pub(crate) fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

/// The same of a network.
fn plain_net(net: IpNet) -> IpNet {
    let v4 = match net.addr() {
        IpAddr::V6(v6) => v6.to_ipv4_mapped(),
        IpAddr::V4(_) => None,
    };
    // The first 96 bits say that it is one.
    let of = |ip| Ipv4Net::new(ip, net.prefix_len().checked_sub(96)?).ok();
    let found = v4.and_then(of).map_or(net, IpNet::V4);
    let whole = found.prefix_len() >= 96 && plain(found.addr()).is_ipv4() && found.addr().is_ipv6();
    assert!(!whole, "X2: {found} would cover nobody");
    found
}

impl Export {
    /// Everything for this machine: the default.
    pub fn loopback() -> Vec<Export> {
        ["=127.0.0.0/8", "=::1"].iter().flat_map(|t| parse_export(t).unwrap_or_default()).collect()
    }
    /// Does the rule speak of this volume and client?
    pub(crate) fn covers(&self, volume: &str, client: IpAddr) -> bool {
        (self.name.is_empty() || *self.name == *volume) && self.clients.contains(&plain(client))
    }
    /// One word of its options.
    fn set(&mut self, option: &str) -> Result<(), String> {
        match option {
            "ro" => self.writable = false,
            "rw" => self.writable = true,
            "root_squash" => self.squash = Squash::Root,
            "no_root_squash" => self.squash = Squash::Nobody,
            "all_squash" => self.squash = Squash::All,
            "secure" => self.ports = Ports::Low,
            "insecure" => self.ports = Ports::Any,
            other => return Err(format!("{other} is no option")),
        }
        Ok(())
    }
    /// May the clients ask from this port?
    pub(crate) fn admits(&self, port: u16) -> bool {
        port < 1024 || self.ports != Ports::Low
    }
    /// Who a caller is here: his credential, if he has one, as the rule lets it stand. Where root
    /// is squashed its group is too, whoever claims it, and of its further groups none is left.
    pub(crate) fn cred(&self, claim: Option<&Claim>, peer: SocketAddr) -> Cred {
        let (uid, gid) = self.anonymous;
        let anonymous = Cred { uid, gid, groups: [].into(), check: true };
        let Some((uid, gid, groups)) = claim.filter(|_| self.squash != Squash::All) else {
            return anonymous;
        };
        let trusted = peer.port() < 1024 || self.ports == Ports::Any;
        let squashes = match self.squash {
            Squash::Default => !plain(peer.ip()).is_loopback(),
            Squash::Nobody => false,
            Squash::Root | Squash::All => true,
        };
        if trusted && !squashes {
            return Cred { uid: *uid, gid: *gid, groups: groups.as_slice().into(), check: true };
        }
        if *uid == 0 {
            return anonymous;
        }
        let group = |g: u32| if g == 0 { anonymous.gid } else { g };
        let groups = groups.iter().map(|g| group(*g)).collect();
        let cred = Cred { uid: *uid, gid: group(*gid), groups, check: true };
        let rooted = cred.uid == 0 || self.anonymous.1 != 0 && in_group(&cred, 0);
        assert!(!rooted, "X1: {uid} of {peer} is let in with root's numbers");
        cred
    }
}

/// What AUTH_SYS claims: user, group and further groups.
pub(crate) type Claim = (u32, u32, Vec<u32>);

/// Who squashed and unknown callers are, unless the export says otherwise.
const NOBODY: u32 = 65_534;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_serves_too_much_or_nobody_is_told() {
        let said = |export: &str, at: &str| {
            let rules = parse_export(export).expect("it is right");
            doubt(&rules, "v", at.parse().expect("it is an address")).unwrap_or_default()
        };
        let (here, net, all) = ("127.0.0.1:2049", "192.0.2.1:2049", "0.0.0.0:2049");
        assert!(said("v=0.0.0.0/0,rw", all).contains("open to whoever"));
        assert!(said("v=0.0.0.0/0", net).contains("open to whoever"));
        assert!(said("v=192.0.2.0/24", here).contains("covers nobody"));
        assert!(said("v=127.0.0.1", all).contains("only this machine"));
        for (export, at) in [("v=0.0.0.0/0", here), ("v=192.0.2.0/24", net), ("v=127.0.0.1", here)]
        {
            assert_eq!(said(export, at), "", "{export} at {at}");
        }
    }

    fn user(e: &Export, uid: u32, gid: u32, at: &str) -> (u32, u32) {
        let cred = e.cred(Some(&(uid, gid, Vec::new())), at.parse().unwrap());
        (cred.uid, cred.gid)
    }

    #[test]
    fn rules() {
        let all = parse_export("/vol=10.0.0.0/8,ro;192.168.1.7,no_root_squash").unwrap();
        let ip = |s: &str| s.parse().unwrap();
        assert!(all[0].covers("vol", ip("10.9.8.7")) && !all[0].covers("vol", ip("11.0.0.1")));
        assert!(!all[0].covers("other", ip("10.9.8.7")) && !all[0].writable);
        assert!(all[0].covers("vol", ip("::ffff:10.1.1.1")));
        assert_eq!(user(&all[0], 0, 0, "10.1.1.1:700"), (NOBODY, NOBODY));
        assert_eq!(user(&all[0], 1000, 0, "10.1.1.1:700"), (1000, NOBODY), "X1: nor root's group");
        assert_eq!(user(&all[1], 0, 0, "192.168.1.7:700"), (0, 0));
        assert_eq!(user(&all[1], 0, 0, "192.168.1.7:7000"), (NOBODY, NOBODY));
        let mapped = &parse_export("v=::ffff:10.1.0.0/112").unwrap()[0];
        assert!(mapped.covers("v", ip("10.1.2.3")) && !mapped.covers("v", ip("10.2.0.0")));
        let v6 = &parse_export("v=2001:db8::7/32").unwrap()[0];
        assert!(v6.covers("v", ip("2001:db8:1::1")) && !v6.covers("v", ip("10.1.2.3")));
        assert!(parse_export("v=10.0.0.0/33").is_err() && parse_export("v=10.0.0.0/").is_err());
        assert!(parse_export("x=nonsense").is_err() && parse_export("x=1.2.3.4,what").is_err());
        let local = Export::loopback();
        assert_eq!(user(&local[0], 0, 0, "127.0.0.1:700"), (0, 0));
    }

    #[test]
    fn options_are_read() {
        for bad in ["anonuid", "anonuid=", "anonuid=-1", "anongid=x", "anon=1", "secure=1", ""] {
            assert!(parse_export(&format!("v=1.2.3.4,{bad}")).is_err(), "{bad}");
        }
        let e = &parse_export("v=1.2.3.4,secure,all_squash,anonuid=7,anongid=8").unwrap()[0];
        assert!(e.admits(1023) && !e.admits(1024));
        assert_eq!(user(e, 1000, 1000, "1.2.3.4:700"), (7, 8));
    }
}

//! Who may use which volume, and as whom: the exports, as they are given on the command line.

use std::net::IpAddr;

/// One rule: these clients may use this volume in this way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// The volume's name, without the slash; empty: any.
    pub name: String,
    network: IpAddr,
    bits: u8,
    /// May it be changed?
    pub writable: bool,
    /// Is root nobody here? None: by default not for loopback, else yes.
    pub root_squash: Option<bool>,
    /// May root's requests come from ports of 1024 and above?
    pub insecure: bool,
}

/// Reads `NAME=CIDR[,ro|rw][,root_squash|no_root_squash][,insecure]`, several clients separated by
/// `;`.
pub fn parse_export(text: &str) -> Result<Vec<Export>, String> {
    let bad = |why: &str| {
        format!(
            "--export {text}: {why}; write \
             NAME=CIDR[,ro|rw][,root_squash|no_root_squash][,insecure]"
        )
    };
    let (name, rest) = text.split_once('=').ok_or_else(|| bad("no ="))?;
    let mut all = Vec::new();
    for client in rest.split(';') {
        let mut parts = client.split(',');
        let cidr = parts.next().unwrap_or_default();
        let (ip, bits) = cidr.split_once('/').map_or((cidr, None), |(i, b)| (i, Some(b)));
        let network: IpAddr = ip.parse().map_err(|_| bad(&format!("{ip} is no address")))?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(b) => {
                b.parse().ok().filter(|b| *b <= most).ok_or_else(|| bad("no such prefix"))?
            }
        };
        let mut e = Export {
            name: name.trim_start_matches('/').to_owned(),
            network,
            bits,
            writable: true,
            root_squash: None,
            insecure: false,
        };
        for option in parts {
            match option {
                "ro" => e.writable = false,
                "rw" => e.writable = true,
                "root_squash" => e.root_squash = Some(true),
                "no_root_squash" => e.root_squash = Some(false),
                "insecure" => e.insecure = true,
                other => return Err(bad(&format!("{other} is no option"))),
            }
        }
        all.push(e);
    }
    Ok(all)
}

/// The address itself where it is an IPv4 one in IPv6's clothes.
pub(crate) fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

impl Export {
    /// Everything for this machine: the default.
    pub fn loopback() -> Vec<Export> {
        ["=127.0.0.0/8", "=::1"].iter().flat_map(|t| parse_export(t).unwrap_or_default()).collect()
    }
    /// Does the rule speak of this volume and client?
    pub(crate) fn covers(&self, volume: &str, client: IpAddr) -> bool {
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(a) => u128::from(u32::from(a)) << 96,
            IpAddr::V6(a) => u128::from(a),
        };
        let (client, network) = (plain(client), plain(self.network));
        let mask = if self.bits == 0 { 0 } else { u128::MAX << (128 - u32::from(self.bits)) };
        (self.name.is_empty() || self.name == volume)
            && client.is_ipv4() == network.is_ipv4()
            && bits(client) & mask == bits(network) & mask
    }
    /// Who a caller is here.
    pub(crate) fn user(&self, uid: u32, gid: u32, client: IpAddr, port: u16) -> (u32, u32) {
        let squash = self.root_squash.unwrap_or(!plain(client).is_loopback());
        // Any local user could claim to be root from an ordinary port.
        let trusted = port < 1024 || self.insecure;
        if uid == 0 && (squash || !trusted) { (NOBODY, NOBODY) } else { (uid, gid) }
    }
}

/// Who squashed and unknown callers are.
pub(crate) const NOBODY: u32 = 65_534;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules() {
        let all = parse_export("/vol=10.0.0.0/8,ro;192.168.1.7,no_root_squash").unwrap();
        let ip = |s: &str| s.parse().unwrap();
        assert!(all[0].covers("vol", ip("10.9.8.7")) && !all[0].covers("vol", ip("11.0.0.1")));
        assert!(!all[0].covers("other", ip("10.9.8.7")) && !all[0].writable);
        assert!(all[0].covers("vol", ip("::ffff:10.1.1.1")));
        assert_eq!(all[0].user(0, 0, ip("10.1.1.1"), 700), (NOBODY, NOBODY));
        assert_eq!(all[1].user(0, 0, ip("192.168.1.7"), 700), (0, 0));
        assert_eq!(all[1].user(0, 0, ip("192.168.1.7"), 7000), (NOBODY, NOBODY));
        assert!(parse_export("x=nonsense").is_err() && parse_export("x=1.2.3.4,what").is_err());
        let local = Export::loopback();
        assert_eq!(local[0].user(0, 0, ip("127.0.0.1"), 700), (0, 0));
    }
}

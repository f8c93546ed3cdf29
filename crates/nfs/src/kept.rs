//! The replies of the last seconds as bytes, for the server that comes after a clean end: a client
//! that saw no reply to its REMOVE asks again, and has to hear that it was done, not that there is
//! no such name. XDR (RFC 4506): what it is, which volume in which state, when; the replies; and a
//! keyed checksum over all of it.
//!
//! What is read is believed only if the checksum with the volume's own key says that this program
//! wrote it, if the volume was not opened for writing in between, and if it is seconds old. Even
//! then each count is held against what may be.
//!
//! Invariants:
//! * K1. What is written is within the bounds that a reader asks for: one reply that is not would
//!   cost all of them.

use crate::drc::{Key, REPLY_BYTES_MAX};
use crate::xdr::{Garbage, Reader, Writer};
use siphasher::sip::SipHasher24;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vfs::VolumeInfo;

const MAGIC: u64 = u64::from_be_bytes(*b"cairnrp1");
/// Older replies are neither kept nor believed: a client that sees no reply asks again sooner.
pub(crate) const SECS: u64 = 120;
/// The most replies of one volume.
const REPLIES_MAX: usize = 4096;
/// The most bytes of a file of them.
pub(crate) const BYTES_MAX: usize = 2 << 20;
/// A caller: user, group, and at most 16 further groups.
const WHO_MAX: usize = 18;

/// One request and how it was answered.
pub(crate) type Kept = (Key, Vec<u8>);

/// Keyed by the volume.
fn checksum(info: &VolumeInfo, bytes: &[u8]) -> u64 {
    SipHasher24::new_with_key(&info.handle_key).hash(bytes)
}

/// The newest of these replies, the oldest first, at a time in seconds since 1970.
pub(crate) fn encode(info: &VolumeInfo, opened: u64, at: u64, all: &[Kept]) -> Vec<u8> {
    let mut bytes = 0;
    let fits = |(key, reply): &&Kept| {
        bytes += 64 + 4 * key.who.len() + reply.len();
        bytes < BYTES_MAX
    };
    let count = all.iter().rev().take(REPLIES_MAX).take_while(fits).count();
    let mut w = Writer::default();
    w.longs(&[MAGIC, opened, at]);
    w.fixed(&info.uuid);
    w.u32(count as u32);
    for (key, reply) in &all[all.len() - count..] {
        match key.client {
            IpAddr::V4(a) => w.opaque(&a.octets()),
            IpAddr::V6(a) => w.opaque(&a.octets()),
        }
        let who = key.who.len();
        assert!(who <= WHO_MAX, "K1: a caller of {who} numbers is written");
        assert!(reply.len() <= REPLY_BYTES_MAX, "K1: a reply of {} bytes", reply.len());
        w.words(&[key.xid, key.procedure]);
        w.u64(key.body);
        w.u32(key.who.len() as u32);
        w.words(&key.who);
        w.opaque(reply);
    }
    let sum = checksum(info, &w.0);
    w.u64(sum);
    let (len, n) = (w.0.len(), count);
    assert!(len <= BYTES_MAX, "K1: {n} replies of {len} bytes are written");
    // What is read again is all of it once more.
    let read = || opened.checked_add(1).is_none_or(|next| decode(info, next, at, &w.0).is_some());
    debug_assert!(read(), "K1: {n} replies of {len} bytes are written that nobody can read");
    w.0
}

/// What another server has left, if it is of this volume, of its last opening for writing (the one
/// before `opened`), and of the last seconds before `now`.
pub(crate) fn decode(info: &VolumeInfo, opened: u64, now: u64, bytes: &[u8]) -> Option<Vec<Kept>> {
    let (body, sum) = bytes.split_last_chunk()?;
    if bytes.len() > BYTES_MAX || checksum(info, body) != u64::from_be_bytes(*sum) {
        return None;
    }
    let mut r = Reader(body);
    read(info, opened, now, &mut r).ok().flatten().filter(|_| r.0.is_empty())
}

fn read(
    info: &VolumeInfo,
    opened: u64,
    now: u64,
    r: &mut Reader<'_>,
) -> Result<Option<Vec<Kept>>, Garbage> {
    let (magic, before, at, uuid) = (r.u64()?, r.u64()?, r.u64()?, r.fixed::<16>()?);
    let is_last = before.checked_add(1) == Some(opened) && uuid == info.uuid;
    let is_new = at <= now && now - at <= SECS;
    let count = r.u32()? as usize;
    if magic != MAGIC || !is_last || !is_new || count > REPLIES_MAX {
        return Ok(None);
    }
    (0..count).map(|_| one(r)).collect::<Result<_, _>>().map(Some)
}

fn one(r: &mut Reader<'_>) -> Result<Kept, Garbage> {
    let address = r.opaque(16)?;
    let client = match (<[u8; 4]>::try_from(address), <[u8; 16]>::try_from(address)) {
        (Ok(v4), _) => IpAddr::V4(Ipv4Addr::from(v4)),
        (_, Ok(v6)) => IpAddr::V6(Ipv6Addr::from(v6)),
        _ => return Err(Garbage),
    };
    let (xid, procedure, body) = (r.u32()?, r.u32()?, r.u64()?);
    let n = r.u32()? as usize;
    if n > WHO_MAX {
        return Err(Garbage);
    }
    let who = (0..n).map(|_| r.u32()).collect::<Result<_, _>>()?;
    let reply = r.opaque(REPLY_BYTES_MAX)?.to_vec();
    Ok((Key { client, xid, procedure, who, body }, reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> VolumeInfo {
        VolumeInfo {
            uuid: [3; 16],
            mode: "sync".into(),
            promise: String::new(),
            handle_key: [9; 16],
            root_ino: 2,
            root_generation: 0,
            boot: 0,
            opened: Some(8),
            read_only: false,
            block_bytes: 4096,
            file_bytes_max: 1 << 40,
            links_max: 100,
            counters: Vec::new(),
            done: None,
        }
    }

    fn some() -> Vec<Kept> {
        let key = |ip: &str, xid| Key {
            client: ip.parse().unwrap(),
            xid,
            procedure: 12,
            who: [1000, 1000, 50].into(),
            body: 0x0102_0304_0506_0708,
        };
        vec![(key("10.0.0.1", 1), b"done".to_vec()), (key("fe80::1", 2), Vec::new())]
    }

    #[test]
    fn what_was_kept_comes_back_to_its_volume_in_time() {
        let (i, all) = (info(), some());
        let bytes = encode(&i, 7, 1000, &all);
        assert_eq!(decode(&i, 8, 1000, &bytes).as_ref(), Some(&all));
        assert_eq!(decode(&i, 8, 1000 + SECS, &bytes).as_ref(), Some(&all));
        for (opened, now) in [(8, 1001 + SECS), (8, 999), (7, 1000), (9, 1000), (0, 1000)] {
            assert_eq!(decode(&i, opened, now, &bytes), None, "{opened} {now}");
        }
        let another = VolumeInfo { uuid: [4; 16], ..info() };
        let with_another_key = VolumeInfo { handle_key: [8; 16], ..info() };
        assert_eq!(decode(&another, 8, 1000, &bytes), None);
        assert_eq!(decode(&with_another_key, 8, 1000, &bytes), None);
    }

    #[test]
    fn damage_is_noticed_and_bounds_hold() {
        let i = info();
        let bytes = encode(&i, 7, 1000, &some());
        for at in 0..bytes.len() {
            assert_eq!(decode(&i, 8, 1000, &bytes[..at]), None, "cut at {at}");
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert_eq!(decode(&i, 8, 1000, &bad), None, "byte {at}");
        }
        // Counts that are signed and yet cannot be.
        let sign = |mut b: Vec<u8>| {
            let sum = checksum(&i, &b);
            b.extend(sum.to_be_bytes());
            b
        };
        let body = &bytes[..bytes.len() - 8];
        for (at, word) in [(40, u32::MAX), (40, 3), (40, 1), (44, 5), (44, 17), (68, 19)] {
            let mut bad = body.to_vec();
            bad[at..at + 4].copy_from_slice(&word.to_be_bytes());
            assert_eq!(decode(&i, 8, 1000, &sign(bad)), None, "word {word} at {at}");
        }
        // The newest stay where there are too many.
        let many: Vec<Kept> = (0..3 * REPLIES_MAX as u32)
            .map(|xid| (Key { xid, ..some()[0].0.clone() }, vec![7; REPLY_BYTES_MAX]))
            .collect();
        let bytes = encode(&i, 7, 1000, &many);
        assert!(bytes.len() <= BYTES_MAX && bytes.len() > BYTES_MAX / 2);
        let back = decode(&i, 8, 1000, &bytes).unwrap();
        assert_eq!(back.last(), many.last());
    }
}

//! File handles: which volume, which inode, which use of that inode, and a keyed checksum over
//! these, so that handles survive a restart and cannot be guessed. 24 bytes.
//!
//! Invariants:
//! * H1. A handle that is given names what it was given for, and is believed.

use siphasher::sip::SipHasher24;

pub(crate) const HANDLE_BYTES: usize = 24;

/// What a handle names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle {
    /// The volume's number in this server.
    pub(crate) volume: usize,
    pub(crate) ino: u32,
    pub(crate) generation: u32,
}

fn volume_id(uuid: &[u8; 16]) -> [u8; 8] {
    std::array::from_fn(|i| uuid[i].wrapping_add(uuid[i + 8].rotate_left(3)))
}

/// The bytes of a handle of the volume with this UUID and key.
pub(crate) fn encode(uuid: &[u8; 16], key: &[u8; 16], ino: u32, generation: u32) -> [u8; 24] {
    let mut b = [0; HANDLE_BYTES];
    b[..8].copy_from_slice(&volume_id(uuid));
    b[8..12].copy_from_slice(&ino.to_be_bytes());
    b[12..16].copy_from_slice(&generation.to_be_bytes());
    let sum = SipHasher24::new_with_key(key).hash(&b[..16]);
    b[16..].copy_from_slice(&sum.to_be_bytes());
    // The checksum costs as much as the handle, of which a listing has hundreds.
    debug_assert_eq!(
        decode(&b, std::iter::once((uuid, key))),
        Ok(Handle { volume: 0, ino, generation }),
        "H1: the handle of an inode names something else"
    );
    b
}

/// Why a handle is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadHandle {
    /// Never given by us.
    Bad,
    /// Of a volume that is not served.
    Stale,
}

/// What the bytes name; `volumes` are (UUID, key) in the server's order.
pub(crate) fn decode<'a>(
    b: &[u8],
    volumes: impl Iterator<Item = (&'a [u8; 16], &'a [u8; 16])>,
) -> Result<Handle, BadHandle> {
    if b.len() != HANDLE_BYTES {
        return Err(BadHandle::Bad);
    }
    let mut bad = BadHandle::Stale;
    // Another volume's name may begin alike: its UUID is whatever its image says.
    for (volume, (uuid, key)) in volumes.enumerate() {
        if b[..8] != volume_id(uuid) {
            continue;
        }
        let sum = SipHasher24::new_with_key(key).hash(&b[..16]).to_be_bytes();
        // Compared as a whole, so that the time tells nothing about how far a guess was right.
        let differs = sum.iter().zip(&b[16..]).fold(0, |d, (x, y)| d | (x ^ y));
        if differs != 0 {
            bad = BadHandle::Bad;
            continue;
        }
        let number = |at: usize| u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        return Ok(Handle { volume, ino: number(8), generation: number(12) });
    }
    Err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_handle_is_refused() {
        let (uuid, key) = ([3; 16], [4; 16]);
        let h = encode(&uuid, &key, 12, 99);
        let volumes = || [(&uuid, &key)].into_iter();
        assert_eq!(decode(&h, volumes()), Ok(Handle { volume: 0, ino: 12, generation: 99 }));
        for i in 8..24 {
            let mut bad = h;
            bad[i] ^= 1;
            assert_eq!(decode(&bad, volumes()), Err(BadHandle::Bad));
        }
        assert_eq!(decode(&h, [(&[9; 16], &key)].into_iter()), Err(BadHandle::Stale));
        assert_eq!(decode(&h[..20], volumes()), Err(BadHandle::Bad));
    }

    #[test]
    fn volumes_whose_names_begin_alike_have_their_own_handles() {
        let like = |first, second| std::array::from_fn(|i| if i < 8 { first } else { second });
        let (a, b): ([u8; 16], [u8; 16]) = (like(0, 0), like(248, 1));
        assert_eq!(volume_id(&a), volume_id(&b));
        let volumes = || [(&a, &[1; 16]), (&b, &[2; 16])].into_iter();
        for (volume, (uuid, key)) in volumes().enumerate() {
            let h = encode(uuid, key, 12, 99);
            let ours = Handle { volume, ino: 12, generation: 99 };
            assert_eq!(decode(&h, volumes()), Ok(ours));
            assert_eq!(decode(&encode(uuid, &[3; 16], 12, 99), volumes()), Err(BadHandle::Bad));
        }
    }
}

//! How a volume's objects lie at rest: plain, compressed, encrypted, or both. A part of an object
//! is sealed here under the object's name and its place in it, and opened again. Where parts lie in
//! an object it does not know, nor who reads them.
//!
//! Rule        A sealed part opens under the name, the index and the number of parts with which it
//!             was sealed, and under no other; so objects cannot be swapped, nor parts, nor an
//!             object cut short.
//! Terms       *Part*: 32 KiB of an object, the last one less. *Associated data*: the name, the
//!             part's index (4), how many there are (4): authenticated, and not stored.
//! Invariants  A1 a part is one of its object's, and longer at rest by a few bytes at most: what
//!             reads it refuses longer ones.
//!             A2 what is sealed opens again as it was, and an object's parts are found where they
//!             lie.
//!
//! ```text
//!  a part at rest:   how it is stored (1): 0 as it is, 1 by zstd | its bytes | tag
//!  encrypted:  the first two by AES-256-GCM-SIV (RFC 8452), whose tag has 16 bytes
//!  else:       the tag is the CRC32C (4) of the associated data and the two
//! ```
//!
//! A nonce is made of what the key says of the name, and the part's index. It may come again: where
//! an object is put anew, or two writers put one name at once, of whom one loses. This mode of
//! encryption bears that: who sees both learns whether they are equal, and nothing else.

use aes_gcm_siv::aead::{Aead, KeyInit, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use std::cell::RefCell;
use std::fmt;
use zstd::bulk::Compressor;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Bytes of a part before it is sealed.
pub(crate) const PART_BYTES: usize = 32 << 10;
/// A sealed part is longer than its contents by this at most.
pub(crate) const SEALED_MORE: usize = 1 + TAG_BYTES;
pub(crate) const TAG_BYTES: usize = 16;
const SUM_BYTES: usize = 4;
const LEVEL: i32 = 1;
/// So many parts are stored as they are, without trying, behind some that could not be made
/// shorter.
const PASSED_MAX: u32 = 15;

/// A volume's key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)") // it is in no log
    }
}

impl Key {
    /// From what a file or a command gives: 32 bytes, or 64 hexadecimal digits and an end of line.
    /// Errors: what is wrong with it.
    pub fn parse(raw: &[u8]) -> Result<Key, String> {
        if let Ok(key) = raw.try_into() {
            return Ok(Key(key));
        }
        let digits: Option<Vec<u32>> =
            raw.trim_ascii().iter().map(|d| char::from(*d).to_digit(16)).collect();
        let pairs = digits
            .filter(|d| d.len() == 2 * KEY_BYTES)
            .map(|digits| digits.chunks(2).map(|d| (d[0] << 4 | d[1]) as u8).collect::<Vec<u8>>());
        let key = pairs.and_then(|bytes| bytes.try_into().ok()).map(Key);
        key.ok_or_else(|| {
            format!("a key is {KEY_BYTES} random bytes, or {} hexadecimal digits", 2 * KEY_BYTES)
        })
    }
}

impl Key {
    /// What only who has the key can say of these bytes.
    pub(crate) fn check(&self, of: &[u8]) -> [u8; TAG_BYTES] {
        word(&Aes256GcmSiv::new(&self.0.into()), of)
    }
}

/// How objects lie at rest; by default as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AtRest {
    /// Made shorter by zstd.
    pub compressed: bool,
    /// Encrypted with this key.
    pub key: Option<Key>,
}

impl AtRest {
    /// Is anything done to them at all?
    pub fn is_plain(&self) -> bool {
        *self == AtRest::default()
    }
}

/// Why a part does not open, for a person.
pub(crate) type Why = &'static str;

/// Seals parts and opens them.
pub(crate) struct Sealer {
    /// What zstd works with; None: parts are stored as they are. It is kept, because making it
    /// takes as long as a part.
    packer: Option<RefCell<Compressor<'static>>>,
    cipher: Option<Box<Aes256GcmSiv>>,
}

/// Which parts of one object are worth trying to make shorter: behind one that could not be, one is
/// passed over, then three, and so on, so that contents which are packed already cost little. It
/// begins anew with each object, so that sealing one again gives the same bytes.
#[derive(Default)]
pub(crate) struct Worth {
    passed: u32,
    pause: u32,
}

impl Worth {
    fn is_next_tried(&mut self) -> bool {
        let tried = self.passed >= self.pause;
        self.passed = if tried { 0 } else { self.passed + 1 };
        tried
    }
    fn tried(&mut self, shorter: bool) {
        self.pause = if shorter { 0 } else { (self.pause * 2 + 1).min(PASSED_MAX) };
    }
}

/// Of which object, which part of how many.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) name: &'a str,
    pub(crate) index: u32,
    pub(crate) parts: u32,
}

impl At<'_> {
    fn associated(&self) -> Vec<u8> {
        let numbers = [self.index.to_le_bytes(), self.parts.to_le_bytes()];
        [self.name.as_bytes(), numbers.as_flattened()].concat()
    }
}

/// What only who has the key can say of these bytes.
fn word(cipher: &Aes256GcmSiv, of: &[u8]) -> [u8; TAG_BYTES] {
    let tag = cipher.encrypt(&Nonce::default(), Payload { msg: b"", aad: of });
    tag.ok().and_then(|t| t.try_into().ok()).expect("of nothing there is a tag and no more")
}

/// The nonce of a part.
fn nonce(cipher: &Aes256GcmSiv, at: At<'_>) -> Nonce {
    let mut nonce = Nonce::default();
    let (name, index) = nonce.split_at_mut(8);
    name.copy_from_slice(&word(cipher, at.name.as_bytes())[..8]);
    index.copy_from_slice(&at.index.to_le_bytes());
    nonce
}

impl Sealer {
    pub(crate) fn new(how: &AtRest) -> Sealer {
        let cipher = how.key.as_ref().map(|key| Box::new(Aes256GcmSiv::new(&key.0.into())));
        let packer = how.compressed.then(|| Compressor::new(LEVEL).ok()).flatten();
        Sealer { packer: packer.map(RefCell::new), cipher }
    }

    /// The part made shorter; None: it could not be, or it is not tried.
    fn pack(&self, part: &[u8], worth: &mut Worth) -> Option<Vec<u8>> {
        let packer = self.packer.as_ref().filter(|_| worth.is_next_tried())?;
        let packed = packer.borrow_mut().compress(part).ok().filter(|p| p.len() < part.len());
        worth.tried(packed.is_some());
        packed
    }

    /// Adds a part as it lies at rest to `all`; returns of how many bytes. `worth`: of its object.
    pub(crate) fn seal_into(
        &self,
        at: At<'_>,
        part: &[u8],
        worth: &mut Worth,
        all: &mut Vec<u8>,
    ) -> usize {
        let (len, At { index, parts, .. }) = (part.len(), at);
        assert!(len <= PART_BYTES && index < parts, "A1: part {index} of {parts} has {len} bytes");
        let packed = self.pack(part, worth);
        let (how, bytes) = packed.as_ref().map_or((0, part), |packed| (1, &packed[..]));
        let (aad, begin) = (at.associated(), all.len());
        match &self.cipher {
            Some(cipher) => {
                let payload = Payload { msg: &[&[how], bytes].concat(), aad: &aad };
                let sealed = cipher.encrypt(&nonce(cipher, at), payload);
                all.extend_from_slice(&sealed.expect("a part is not too long"));
            }
            None => {
                all.push(how);
                all.extend_from_slice(bytes);
                let sum = crc32c::crc32c_append(crc32c::crc32c(&aad), &all[begin..]);
                all.extend_from_slice(&sum.to_le_bytes());
            }
        }
        let sealed = all.len() - begin;
        assert!(sealed <= len + SEALED_MORE, "A1: {len} bytes are {sealed} at rest");
        // It takes as long as sealing.
        debug_assert!(
            self.open(at, &all[begin..]).as_deref() == Ok(part),
            "A2: part {index} of {} does not open as it was",
            at.name
        );
        sealed
    }

    /// A part as it lies at rest.
    pub(crate) fn seal(&self, at: At<'_>, part: &[u8], worth: &mut Worth) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(part.len() + SEALED_MORE);
        self.seal_into(at, part, worth, &mut sealed);
        sealed
    }

    /// Adds the part as it was to `all`; returns of how many bytes. Errors: it is not what was
    /// sealed there.
    pub(crate) fn open_into(
        &self,
        at: At<'_>,
        sealed: &[u8],
        all: &mut Vec<u8>,
    ) -> Result<usize, Why> {
        let aad = at.associated();
        let opened;
        let body = match &self.cipher {
            Some(cipher) => {
                let payload = Payload { msg: sealed, aad: &aad };
                opened = cipher.decrypt(&nonce(cipher, at), payload);
                opened.as_ref().map_err(|_| "it was not sealed with this key under this name")?
            }
            None => {
                let wrong = "its checksum is wrong";
                let len = sealed.len().checked_sub(SUM_BYTES).ok_or(wrong)?;
                let (body, sum) = sealed.split_at(len);
                let found = crc32c::crc32c_append(crc32c::crc32c(&aad), body);
                (sum == found.to_le_bytes()).then_some(body).ok_or(wrong)?
            }
        };
        let begin = all.len();
        match body.split_first() {
            Some((0, part)) if part.len() <= PART_BYTES => all.extend_from_slice(part),
            Some((1, packed)) => {
                let part = zstd::bulk::decompress(packed, PART_BYTES)
                    .map_err(|_| "what zstd has made of it cannot be read")?;
                all.extend_from_slice(&part);
            }
            _ => return Err("it is stored in a way that is not known here"),
        }
        Ok(all.len() - begin)
    }

    /// The part as it was. Errors: as [`Sealer::open_into`].
    pub(crate) fn open(&self, at: At<'_>, sealed: &[u8]) -> Result<Vec<u8>, Why> {
        let mut part = Vec::new();
        self.open_into(at, sealed, &mut part)?;
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Sealer> {
        let key = || Some(Key([7; KEY_BYTES]));
        let ways = [(true, None), (false, key()), (true, key()), (false, None)];
        ways.map(|(compressed, key)| Sealer::new(&AtRest { compressed, key })).into()
    }

    #[test]
    fn a_part_opens_where_it_was_sealed_and_nowhere_else() {
        let noise: Vec<u8> = (0..PART_BYTES as u32).map(|i| ((i * i) >> 7) as u8).collect();
        let at = At { name: "log/1", index: 3, parts: 5 };
        for (sealer, part) in all().iter().flat_map(|s| [(s, &noise[..]), (s, &[9; 999]), (s, &[])])
        {
            let sealed = sealer.seal(at, part, &mut Worth::default());
            assert!(sealed.len() <= part.len() + SEALED_MORE);
            assert_eq!(sealer.open(at, &sealed).unwrap(), part);
            let again = sealer.seal(at, part, &mut Worth::default());
            assert_eq!(again, sealed, "a PUT that is tried again is the same");
            for other in [At { name: "log/2", ..at }, At { index: 2, ..at }, At { parts: 4, ..at }]
            {
                assert!(sealer.open(other, &sealed).is_err());
            }
            for bit in (0..sealed.len() * 8).step_by(sealed.len() * 8 / 40 + 1) {
                let mut flipped = sealed.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(sealer.open(at, &flipped).is_err(), "bit {bit}");
            }
            assert!(sealer.open(at, &sealed[..sealed.len() - 1]).is_err());
            assert!(sealer.open(at, &[]).is_err());
        }
    }

    #[test]
    fn another_key_opens_nothing_and_what_is_encrypted_cannot_be_read() {
        let with = |byte| Sealer::new(&AtRest { compressed: false, key: Some(Key([byte; 32])) });
        let (at, part) = (At { name: "log/1", index: 0, parts: 1 }, [5; 4096]);
        let sealed = with(1).seal(at, &part, &mut Worth::default());
        assert!(with(2).open(at, &sealed).is_err());
        assert!(!sealed.windows(8).any(|w| w == &part[..8]));
        let other = At { name: "log/2", ..at };
        assert_ne!(with(1).seal(other, &part, &mut Worth::default()), sealed);
    }

    #[test]
    fn what_compresses_is_shorter() {
        let packs = Sealer::new(&AtRest { compressed: true, key: None });
        let at = At { name: "log/1", index: 0, parts: 1 };
        assert!(packs.seal(at, &[3; PART_BYTES], &mut Worth::default()).len() < 200);
    }

    #[test]
    fn contents_that_are_packed_already_are_tried_now_and_then() {
        let mut worth = Worth::default();
        let tried: Vec<usize> = (0..64)
            .filter(|_| true)
            .filter(|n| {
                let tried = worth.is_next_tried();
                if tried {
                    worth.tried(*n >= 57);
                }
                tried
            })
            .collect();
        assert_eq!(tried, [0, 2, 6, 14, 30, 46, 62, 63]);
    }

    #[test]
    fn keys_are_bytes_or_digits() {
        let hex = format!("{}\n", "0a".repeat(32));
        assert_eq!(Key::parse(hex.as_bytes()), Ok(Key([10; 32])));
        assert_eq!(Key::parse(&[10; 32]), Ok(Key([10; 32])));
        for wrong in [&b"secret"[..], &[1; 31], &b"zz".repeat(32), b""] {
            assert!(Key::parse(wrong).is_err());
        }
        assert_eq!(format!("{:?}", Key([10; 32])), "Key(..)");
    }
}

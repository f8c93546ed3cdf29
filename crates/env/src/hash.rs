//! A hash map whose iteration order does not change from run to run: the hasher has no random seed.
//! Keys are small numbers of our own, so nobody can choose them to collide on purpose beyond what
//! block numbers allow.

use std::hash::{BuildHasherDefault, Hasher};

/// A map with small numeric keys.
#[expect(clippy::disallowed_types, reason = "the fixed hasher makes its order repeatable")]
pub type IdMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FixedHasher>>;
/// A set of small numeric keys.
#[expect(clippy::disallowed_types, reason = "the fixed hasher makes its order repeatable")]
pub type IdSet<K> = std::collections::HashSet<K, BuildHasherDefault<FixedHasher>>;

/// Multiplies and folds; the constant is 2^64 divided by the golden ratio.
#[derive(Default, Clone, Copy)]
pub struct FixedHasher(u64);

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl FixedHasher {
    fn mix(&mut self, v: u64) {
        let product = u128::from(self.0 ^ v ^ GOLDEN) * u128::from(GOLDEN);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}
impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for c in bytes.chunks(8) {
            let mut w = [0; 8];
            w[..c.len()].copy_from_slice(c);
            self.mix(u64::from_le_bytes(w));
        }
        self.mix(bytes.len() as u64);
    }
    fn write_u32(&mut self, v: u32) {
        self.mix(u64::from(v));
    }
    fn write_u64(&mut self, v: u64) {
        self.mix(v);
    }
    fn write_usize(&mut self, v: usize) {
        self.mix(v as u64);
    }
}

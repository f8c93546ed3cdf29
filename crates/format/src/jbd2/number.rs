//! The number of the next transaction of a journal whose blocks hold bytes that users chose.
//! Whoever replays a journal goes on into whatever lies behind its last transaction, and takes a
//! block for the next one by its magic number and its transaction's number alone where there are no
//! checksums; those of journals that have some begin with the volume's UUID, which is public.
//!
//! So a user who knows that number in advance writes a transaction of his own into a file, and has
//! a block of his choice written to a place of his choice. He must not know it.

use siphasher::sip::SipHasher24;

/// Keys the hash; the secret is what is hashed.
const KEY: &[u8; 16] = b"cairn-next-tid-1";

/// A number that nobody foresees who does not know all of these parts. The same parts have the same
/// one, so that a recovery that was cut off comes to the same end; it is never 0, which some take
/// for none.
pub fn unforeseen(parts: &[&[u8]]) -> u32 {
    let mut all = Vec::new();
    for part in parts {
        all.extend_from_slice(&(part.len() as u64).to_le_bytes());
        all.extend_from_slice(part);
    }
    let hash = SipHasher24::new_with_key(KEY).hash(&all);
    ((hash >> 32) as u32 ^ hash as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::unforeseen;
    use std::collections::BTreeSet;

    #[test]
    fn each_part_counts_and_where_it_ends() {
        let a = unforeseen(&[&[1, 2], &[3]]);
        assert_eq!(a, unforeseen(&[&[1, 2], &[3]]));
        assert_ne!(a, unforeseen(&[&[1], &[2, 3]]));
        assert_ne!(a, unforeseen(&[&[1, 2], &[4]]));
        let all: BTreeSet<u32> = (0..1000u32).map(|n| unforeseen(&[&n.to_le_bytes()])).collect();
        assert_eq!(all.len(), 1000);
        assert!(all.iter().any(|n| *n > u32::MAX / 2) && all.iter().any(|n| *n < u32::MAX / 2));
    }
}

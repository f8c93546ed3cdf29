//! SipHash-2-4 (Aumasson and Bernstein): a keyed checksum that cannot be forged without the key.
//! For file handles.

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

fn word(b: &[u8]) -> u64 {
    let mut w = [0; 8];
    w[..b.len()].copy_from_slice(b);
    u64::from_le_bytes(w)
}

/// The checksum of `bytes` under `key`.
pub(crate) fn siphash(key: &[u8; 16], bytes: &[u8]) -> u64 {
    let (k0, k1) = (word(&key[..8]), word(&key[8..]));
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let chunks = bytes.chunks_exact(8);
    let last = word(chunks.remainder()) | (bytes.len() as u64) << 56;
    for m in chunks.map(word).chain([last]) {
        v[3] ^= m;
        round(&mut v);
        round(&mut v);
        v[0] ^= m;
    }
    v[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_papers_example() {
        let key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let bytes: [u8; 15] = std::array::from_fn(|i| i as u8);
        assert_eq!(super::siphash(&key, &bytes), 0xa129_ca61_49be_45e5);
    }
}

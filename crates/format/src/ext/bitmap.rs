//! Bitmaps: bit `n` is bit `n % 8` of byte `n / 8`. Searching goes by 64 bits at a time.

/// Is the bit set?
pub fn is_set(map: &[u8], bit: usize) -> bool {
    map[bit / 8] & (1 << (bit % 8)) != 0
}
/// Sets a bit.
pub fn set(map: &mut [u8], bit: usize) {
    map[bit / 8] |= 1 << (bit % 8);
}
/// Clears a bit.
pub fn clear(map: &mut [u8], bit: usize) {
    map[bit / 8] &= !(1 << (bit % 8));
}
/// How many of the first `bits` are clear.
pub fn count_zeros(map: &[u8], bits: usize) -> usize {
    let whole: u32 = map[..bits / 8].iter().map(|b| b.count_zeros()).sum();
    whole as usize + (bits / 8 * 8..bits).filter(|&b| !is_set(map, b)).count()
}

/// The first clear bit in `from..to`.
pub fn next_zero(map: &[u8], from: usize, to: usize) -> Option<usize> {
    next(map, from, to, false)
}
/// The first set bit in `from..to`.
pub fn next_one(map: &[u8], from: usize, to: usize) -> Option<usize> {
    next(map, from, to, true)
}

fn next(map: &[u8], from: usize, to: usize, want: bool) -> Option<usize> {
    let mut bit = from;
    while bit < to {
        let byte = bit / 8;
        if bit.is_multiple_of(64) && byte + 8 <= map.len() {
            let chunk: [u8; 8] = map[byte..byte + 8].try_into().expect("eight bytes");
            let word = u64::from_le_bytes(chunk);
            let found = if want { word } else { !word };
            if found == 0 {
                bit += 64;
                continue;
            }
            let at = bit + found.trailing_zeros() as usize;
            // In the loops of every search for what is free.
            debug_assert_eq!(is_set(map, at), want, "F7: bit {at} is another than is looked for");
            return (at < to).then_some(at);
        }
        if is_set(map, bit) == want {
            return Some(bit);
        }
        bit += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs() {
        let mut map = vec![0xff; 32];
        for b in [3, 70, 71, 72, 200] {
            clear(&mut map, b);
        }
        assert_eq!(count_zeros(&map, 256), 5);
        assert_eq!(next_one(&map, 70, 256), Some(73));
    }

    /// Random changes and questions, of maps whose length is no multiple of eight bytes, against a
    /// list of bits.
    #[test]
    fn a_map_is_what_a_list_of_bits_is() {
        let mut rng = 7u64;
        let mut below = |n: usize| {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (rng >> 33) as usize % n
        };
        for bytes in [1, 3, 8, 13, 24, 67] {
            let bits = 8 * bytes;
            let (mut map, mut twin) = (vec![0u8; bytes], vec![false; bits]);
            for _ in 0..3000 {
                let (bit, run) = (below(bits), below(90));
                let end = (bit + run).min(bits);
                match below(4) {
                    0 => (bit..end).for_each(|b| {
                        set(&mut map, b);
                        twin[b] = true;
                    }),
                    1 => (bit..end).for_each(|b| {
                        clear(&mut map, b);
                        twin[b] = false;
                    }),
                    2 => {
                        let find = |want| (bit..end).find(|b| twin[*b] == want);
                        assert_eq!(next_one(&map, bit, end), find(true), "from {bit} to {end}");
                        assert_eq!(next_zero(&map, bit, end), find(false), "from {bit} to {end}");
                    }
                    _ => {
                        let zeros = twin[..end].iter().filter(|b| !**b).count();
                        assert_eq!(count_zeros(&map, end), zeros, "of {end}");
                    }
                }
                assert_eq!(is_set(&map, bit), twin[bit]);
            }
        }
    }
}

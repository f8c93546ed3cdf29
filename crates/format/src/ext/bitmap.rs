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
}

//! What a log says of one block: pieces of it, bytes or zeros, of which a later one wins. It takes
//! memory for what is said, not for the block: most entries are small.

/// One piece.
struct Piece {
    at: usize,
    len: usize,
    /// None: zeros.
    bytes: Option<Vec<u8>>,
}

/// Memory that a piece takes beside its bytes, and a patch beside its pieces, about.
const PIECE_COST: usize = size_of::<Piece>() + 16;
const PATCH_COST: usize = 96;

impl Piece {
    fn end(&self) -> usize {
        self.at + self.len
    }
    /// The part of it in `from..to`.
    fn part(&self, from: usize, to: usize) -> Piece {
        let inside = self.at <= from && from < to && to <= self.end();
        assert!(inside, "bytes {from} to {to} of a piece from {} to {}", self.at, self.end());
        let bytes = self.bytes.as_ref().map(|b| b[from - self.at..to - self.at].to_vec());
        Piece { at: from, len: to - from, bytes }
    }
    fn cost(&self) -> usize {
        PIECE_COST + self.bytes.as_ref().map_or(0, Vec::capacity)
    }
}

/// What is said, in the order of places; no two pieces overlap.
#[derive(Default)]
pub(super) struct Patch(Vec<Piece>);

impl Patch {
    /// These bytes are at `at`.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.put(Piece { at, len: bytes.len(), bytes: Some(bytes.to_vec()) });
    }

    /// So many bytes at `at` are zero.
    pub(super) fn zero(&mut self, at: usize, len: usize) {
        self.put(Piece { at, len, bytes: None });
    }

    fn put(&mut self, new: Piece) {
        if new.len == 0 {
            return;
        }
        let (at, end) = (new.at, new.end());
        let first = self.0.partition_point(|p| p.end() <= at);
        let last = self.0.partition_point(|p| p.at < end);
        let over = &self.0[first..last];
        let before = over.first().filter(|p| p.at < at).map(|p| p.part(p.at, at));
        let after = over.last().filter(|p| p.end() > end).map(|p| p.part(end, p.end()));
        let n = first + usize::from(before.is_some());
        self.0.splice(first..last, before.into_iter().chain([new]).chain(after));
        let around = &self.0[n.saturating_sub(1)..self.0.len().min(n + 2)];
        let apart = around.windows(2).all(|w| w[0].end() <= w[1].at);
        assert!(apart, "two pieces of a block say something of the same bytes at {at}");
        self.join(n);
        if n > 0 {
            self.join(n - 1);
        }
    }

    /// Makes one of the `n`-th piece and the next, if both are bytes and touch.
    fn join(&mut self, n: usize) {
        if let [a, b, ..] = &mut self.0[n..]
            && a.end() == b.at
            && let (Some(left), Some(right)) = (&mut a.bytes, &b.bytes)
        {
            left.extend_from_slice(right);
            a.len += b.len;
            assert_eq!(left.len(), a.len, "a piece at {} has bytes of another length", a.at);
            self.0.remove(n + 1);
        }
    }

    /// Is all of a block of so many bytes said?
    pub(super) fn is_whole(&self, block_bytes: usize) -> bool {
        let said = self.0.iter().map(|p| p.len).sum::<usize>();
        assert!(said <= block_bytes, "{said} bytes are said of a block of {block_bytes}");
        said == block_bytes
    }

    /// Brings the block up to date.
    pub(super) fn apply(&self, block: &mut [u8]) {
        let (end, len) = (self.0.last().map_or(0, Piece::end), block.len());
        assert!(end <= len, "a piece ends at byte {end} of a block of {len}");
        for p in &self.0 {
            match &p.bytes {
                Some(b) => block[p.at..p.end()].copy_from_slice(b),
                None => block[p.at..p.end()].fill(0),
            }
        }
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn cost(&self) -> usize {
        PATCH_COST + self.0.iter().map(Piece::cost).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Rng;

    #[test]
    fn the_latest_wins_byte_by_byte() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut patch, mut model) = (Patch::default(), [None; 64]);
            for n in 1..20u8 {
                let at = rng.below(64) as usize;
                let len = rng.below(65 - at as u64) as usize;
                let zero = rng.one_in(3);
                if zero {
                    patch.zero(at, len)
                } else {
                    patch.write(at, &vec![n; len])
                }
                model[at..at + len].fill(Some(if zero { 0 } else { n }));
            }
            let mut block = [0xee; 64];
            patch.apply(&mut block);
            assert_eq!(block, model.map(|b| b.unwrap_or(0xee)));
            assert_eq!(patch.is_whole(64), model.iter().all(Option::is_some));
            let said: usize = patch.0.iter().map(|p| p.bytes.as_ref().map_or(0, Vec::len)).sum();
            assert!(said <= 64 && patch.cost() < PATCH_COST + 64 * (PIECE_COST + 2 * 64));
        }
    }
}

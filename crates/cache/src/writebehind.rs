//! Sequential writes: notices that a file is written from front to back, and says which blocks the
//! writer has left behind, a whole transfer at a time, so that the disk works while the writer
//! does (clusters are written when they are full: mcvoy-1991). Small files and
//! scattered writes wait for the usual write-back. One for each inode; it decides and does not
//! write.

/// Watches one file's writes.
#[derive(Default, Debug)]
pub struct WriteBehind {
    /// Where the next sequential write would start, in bytes.
    next: u64,
    /// Bytes written one after the other.
    run: u64,
    /// The first block that has not been left behind.
    from: u64,
}

/// A file is a stream when this many transfers were written one after the other.
const STREAM_TRANSFERS: u64 = 4;

impl WriteBehind {
    /// `len` bytes were written at `offset`, in blocks of `block_bytes`. Returns the blocks left
    /// behind, as (first, count), when they fill a transfer of `transfer_bytes`.
    pub fn note(
        &mut self,
        offset: u64,
        len: u64,
        block_bytes: u64,
        transfer_bytes: u64,
    ) -> Option<(u64, u64)> {
        if offset != self.next {
            *self = WriteBehind { next: offset, run: 0, from: offset / block_bytes };
        }
        self.next = offset + len;
        self.run += len;
        let (from, to) = (self.from, self.next / block_bytes);
        assert!(from <= to, "block {from} was left behind, and the writer is at {to}");
        let is_stream = self.run >= STREAM_TRANSFERS * transfer_bytes;
        if !is_stream || (to - from) * block_bytes < transfer_bytes {
            return None;
        }
        self.from = to;
        Some((from, to - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_written_behind_and_all_of_it() {
        let mut w = WriteBehind::default();
        let mut behind = 0;
        for i in 0..10_000 {
            if let Some((first, count)) = w.note(i * 3000, 3000, 4096, 1 << 20) {
                assert_eq!(first, behind);
                assert!(count * 4096 >= 1 << 20 && (first + count) * 4096 <= (i + 1) * 3000);
                behind = first + count;
            }
        }
        assert!(10_000 * 3000 - behind * 4096 < (1 << 20) + 4096);
    }

    #[test]
    fn scattered_and_short_writes_are_left_alone() {
        let mut w = WriteBehind::default();
        for i in 0..10_000 {
            assert_eq!(w.note(i % 100 * 8192, 4096, 4096, 1 << 20), None);
        }
        for i in 0..1023 {
            assert_eq!(w.note(i * 4096, 4096, 4096, 1 << 20), None);
        }
        assert_eq!(w.note(1023 * 4096, 4096, 4096, 1 << 20), Some((0, 1024)));
    }
}

//! The first kind of checksums in a journal (COMPAT_CHECKSUM): one in each commit, of the
//! transaction's descriptors and copies as they lie in the journal. Linux writes them if mounted
//! with `journal_checksum` where the volume's metadata have none; here they are only read.

use super::be32;

/// Where a commit has the kind of its sum, its length in bytes, and the sum.
const KIND: usize = 0x0c;
const LEN: usize = 0x0d;
const SUM: usize = 0x10;
/// The kind that is a CRC-32.
const CRC32: u8 = 1;
/// The polynomial of Ethernet's CRC-32, its highest bit first.
const POLYNOMIAL: u32 = 0x04c1_1db7;
/// What each byte comes to.
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut all = [0; 256];
    let mut n = 0;
    while n < 256 {
        let (mut crc, mut bit) = ((n as u32) << 24, 0);
        while bit < 8 {
            let carry = crc >> 31;
            crc = (crc << 1) ^ (carry * POLYNOMIAL);
            bit += 1;
        }
        all[n] = crc;
        n += 1;
    }
    all
}

/// The sum of one transaction, as its blocks are read.
#[derive(Clone, Copy, Debug)]
pub struct OldSum(u32);

impl Default for OldSum {
    fn default() -> OldSum {
        OldSum(!0)
    }
}

impl OldSum {
    /// The next block: a descriptor, or a copy that one lists. Revocations do not count.
    pub fn add(&mut self, block: &[u8]) {
        self.0 = block
            .iter()
            .fold(self.0, |crc, byte| (crc << 8) ^ TABLE[((crc >> 24) as u8 ^ byte) as usize]);
    }

    /// Does the commit agree? One that says nothing does, too.
    pub fn agrees(self, commit: &[u8]) -> bool {
        match (commit[KIND], commit[LEN], be32(commit, SUM)) {
            (0, 0, 0) => true,
            (kind, len, sum) => (kind, len, sum) == (CRC32, 4, self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_crc_that_others_mean() {
        let mut sum = OldSum::default();
        sum.add(b"1234");
        sum.add(b"56789");
        // The published check value of CRC-32/MPEG-2.
        assert_eq!(sum.0, 0x0376_e6e7);
    }
}

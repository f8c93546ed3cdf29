//! The block by which machines that share a disk keep off one another (feature `mmp`): who uses the
//! volume writes a number into it again and again, and who finds one waits whether it changes. Its
//! bytes, its numbers and how long to wait are here; who reads and writes it when is not.
//!
//! What is written here lies in the first of the block's sectors, and the checksum, which lies in
//! the second, stays as it was found: four bytes that nobody uses make it right. So a write that a
//! power cut tears leaves the block from before it or the one after it, and no wrong checksum,
//! which Linux would not open.

use crate::bytes::{le16, le32, le64, set16, set32, set64};
use crate::ext::csum::{self, Sums};
use crate::{BlockNo, FormatError};

/// Bytes of it that mean something.
pub const MMP_BYTES: usize = 1024;
/// `mmp_magic`.
const MAGIC: u32 = 0x004d_4d50;
/// The largest number that says that somebody uses the volume.
pub const SEQ_MAX: u32 = 0xe24d_4d4f;
/// `mmp_seq`: a checker is at work.
pub const SEQ_FSCK: u32 = 0xe24d_4d50;
/// `mmp_seq`: nobody uses the volume.
pub const SEQ_CLEAN: u32 = 0xff4d_4d50;

/// `mmp_seq`.
const SEQ: usize = 4;
/// `mmp_time`: seconds since 1970, for people.
const TIME: usize = 8;
/// `mmp_nodename`.
const NODE: std::ops::Range<usize> = 16..80;
/// `mmp_bdevname`.
const DEVICE: std::ops::Range<usize> = 80..112;
/// `mmp_check_interval`: within so many seconds its writer changes the number.
const INTERVAL: usize = 112;
/// In `mmp_pad2`, at the end of the first sector.
const UNUSED: usize = 508;
/// Where the second sector begins.
const SECOND: usize = 512;
/// `mmp_checksum`.
const SUM: usize = 1020;

/// Seconds between two writes where the superblock names none, and the most that it may name.
const UPDATE_SECS: (u16, u16) = (5, 300);
/// The least that is believed of `mmp_check_interval`.
const INTERVAL_MIN: u16 = 5;

/// The block, as far as it means something.
#[derive(Clone, PartialEq, Eq)]
pub struct Mmp(Box<[u8; MMP_BYTES]>);

impl Mmp {
    /// From the block's first bytes. Errors: it is no such block. Its checksum may be wrong; see
    /// [`Mmp::check_sum`].
    pub fn decode(bytes: &[u8], at: BlockNo) -> Result<Mmp, FormatError> {
        let bad = |what: String| Err(FormatError::corrupt(what, place(at)));
        let Some(raw) = bytes.first_chunk::<MMP_BYTES>() else {
            return bad("the block of mmp is cut short".into());
        };
        if le32(raw, 0) != MAGIC {
            return bad(format!("it has the magic number {:#x}, not that of mmp", le32(raw, 0)));
        }
        let seq = le32(raw, SEQ);
        if seq > SEQ_FSCK && seq != SEQ_CLEAN {
            return bad(format!("mmp has the number {seq:#x}, which has no meaning"));
        }
        Ok(Mmp(Box::new(*raw)))
    }
    /// A block of a new volume that nobody uses.
    pub fn new(sums: Sums) -> Mmp {
        let mut new = Mmp(Box::new([0; MMP_BYTES]));
        set32(&mut new.0[..], 0, MAGIC);
        set32(&mut new.0[..], SEQ, SEQ_CLEAN);
        set16(&mut new.0[..], INTERVAL, INTERVAL_MIN);
        if let Sums::All(seed) = sums {
            let sum = csum::crc(seed, &new.0[..SUM]);
            set32(&mut new.0[..], SUM, sum);
        }
        new
    }
    /// Compares its checksum.
    pub fn check_sum(&self, sums: Sums, at: BlockNo) -> Result<(), FormatError> {
        let Sums::All(seed) = sums else { return Ok(()) };
        let (has, should) = (le32(&self.0[..], SUM), csum::crc(seed, &self.0[..SUM]));
        if has == should {
            return Ok(());
        }
        let what = format!("mmp's checksum is {has:#x}, and should be {should:#x}");
        Err(FormatError::corrupt(what, place(at)))
    }
    /// `mmp_seq`.
    pub fn seq(&self) -> u32 {
        le32(&self.0[..], SEQ)
    }
    /// `mmp_time`.
    pub fn time(&self) -> u64 {
        le64(&self.0[..], TIME)
    }
    /// The machine that wrote it last.
    pub fn node(&self) -> String {
        text(&self.0[NODE])
    }
    /// What that calls the device.
    pub fn device(&self) -> String {
        text(&self.0[DEVICE])
    }
    /// `mmp_check_interval`, in seconds.
    pub fn interval(&self) -> u16 {
        le16(&self.0[..], INTERVAL)
    }
    /// Who uses it says who he is, and how often he will say so.
    pub fn set_user(&mut self, node: &str, device: &str, interval: u16) {
        put_text(&mut self.0[NODE], node);
        put_text(&mut self.0[DEVICE], device);
        set16(&mut self.0[..], INTERVAL, interval);
    }
    /// The next number, at this time: the last change before it is written, because it makes the
    /// checksum right.
    pub fn set_seq(&mut self, seq: u32, now_secs: u64, sums: Sums) {
        let known = seq <= SEQ_FSCK || seq == SEQ_CLEAN;
        assert!(known, "F1: {seq:#x} is no number that anybody would read");
        let second = self.0[SECOND..].to_vec();
        set32(&mut self.0[..], SEQ, seq);
        set64(&mut self.0[..], TIME, now_secs);
        if let Sums::All(seed) = sums {
            let sum = le32(&self.0[..], SUM);
            csum::make_sum(seed, &mut self.0[..SUM], UNUSED, sum);
        }
        let kept = self.0[SECOND..] == second;
        assert!(kept, "F4: a torn write of number {seq:#x} would leave a wrong checksum");
    }
    /// Its bytes, which begin the block.
    pub fn bytes(&self) -> &[u8; MMP_BYTES] {
        &self.0
    }
}

impl std::fmt::Debug for Mmp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mmp({:#x}, {})", self.seq(), self.node())
    }
}

/// Seconds between two writes of who uses the volume, by the superblock's field.
pub fn update_secs(field: u16) -> u16 {
    if field == 0 { UPDATE_SECS.0 } else { field.min(UPDATE_SECS.1) }
}

/// What he says of that in the block: he may be late by as much.
pub fn interval_of(update_secs: u16) -> u16 {
    let most = UPDATE_SECS.1;
    assert!(update_secs <= most, "F1: written every {update_secs} s, and {most} is the most");
    (2 * update_secs).max(INTERVAL_MIN)
}

/// How long the number has to stay the same until nobody uses the volume, by the superblock's field
/// and the block's, as Linux and e2fsprogs have it.
pub fn wait_secs(field: u16, interval: u16) -> u64 {
    let interval = u64::from(field.max(interval).max(INTERVAL_MIN));
    (2 * interval + 1).min(interval + 60)
}

fn place(at: BlockNo) -> String {
    format!("block {at}")
}

fn text(raw: &[u8]) -> String {
    let end = raw.iter().position(|&b| b == 0).unwrap_or(raw.len());
    String::from_utf8_lossy(&raw[..end]).into_owned()
}

fn put_text(raw: &mut [u8], text: &str) {
    raw.fill(0);
    let n = text.len().min(raw.len() - 1);
    raw[..n].copy_from_slice(&text.as_bytes()[..n]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_change_and_the_second_sector_does_not() {
        let (sums, at) = (Sums::All(0x1234_5678), BlockNo(9));
        let mut mmp = Mmp::new(sums);
        mmp.check_sum(sums, at).unwrap();
        let second = mmp.bytes()[512..].to_vec();
        for seq in [1, SEQ_MAX, SEQ_FSCK, SEQ_CLEAN, 77] {
            mmp.set_user("a machine with a name", "/dev/sda1", 10);
            mmp.set_seq(seq, 1_700_000_000 + u64::from(seq), sums);
            let back = Mmp::decode(mmp.bytes(), at).unwrap();
            back.check_sum(sums, at).unwrap();
            assert_eq!((back.seq(), back.node().as_str()), (seq, "a machine with a name"));
            assert_eq!((back.device().as_str(), back.interval()), ("/dev/sda1", 10));
            assert_eq!(back.bytes()[512..], second, "a torn write would be seen");
        }
        let mut torn = *mmp.bytes();
        torn[SEQ] ^= 1;
        assert!(Mmp::decode(&torn, at).unwrap().check_sum(sums, at).is_err());
    }

    #[test]
    fn what_is_none_is_refused() {
        let mut raw = *Mmp::new(Sums::None).bytes();
        assert!(Mmp::decode(&raw[..1023], BlockNo(1)).is_err());
        set32(&mut raw, SEQ, SEQ_CLEAN - 1);
        assert!(Mmp::decode(&raw, BlockNo(1)).is_err(), "no number of anybody's");
        set32(&mut raw, 0, 1);
        assert!(Mmp::decode(&raw, BlockNo(1)).is_err());
    }

    #[test]
    fn waiting_is_as_long_as_elsewhere() {
        assert_eq!([update_secs(0), update_secs(1), update_secs(999)], [5, 1, 300]);
        assert_eq!([interval_of(1), interval_of(5), interval_of(300)], [5, 10, 600]);
        assert_eq!([wait_secs(1, 0), wait_secs(5, 10), wait_secs(100, 5)], [11, 21, 160]);
    }
}

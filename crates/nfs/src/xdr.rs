//! XDR (RFC 4506): big-endian words, byte strings padded to four. A reader never reads beyond its
//! bytes and never allocates more than they are.

/// The bytes do not make sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Garbage;

pub(crate) type Result<T> = std::result::Result<T, Garbage>;

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.0.len() {
            return Err(Garbage);
        }
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        Ok(head)
    }
    pub(crate) fn u32(&mut self) -> Result<u32> {
        let b = self.take(4)?;
        Ok(u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }
    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }
    pub(crate) fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }
    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Garbage)
    }
    /// A string of at most `max` bytes.
    pub(crate) fn opaque(&mut self, max: usize) -> Result<&'a [u8]> {
        let n = self.u32()? as usize;
        if n > max {
            return Err(Garbage);
        }
        let bytes = self.take(n)?;
        self.take(n.next_multiple_of(4) - n)?;
        Ok(bytes)
    }
}

#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_be_bytes());
    }
    pub(crate) fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_be_bytes());
    }
    pub(crate) fn bool(&mut self, v: bool) {
        self.u32(u32::from(v));
    }
    pub(crate) fn words(&mut self, all: &[u32]) {
        all.iter().for_each(|v| self.u32(*v));
    }
    pub(crate) fn longs(&mut self, all: &[u64]) {
        all.iter().for_each(|v| self.u64(*v));
    }
    pub(crate) fn bools(&mut self, all: &[bool]) {
        all.iter().for_each(|v| self.bool(*v));
    }
    pub(crate) fn fixed(&mut self, b: &[u8]) {
        self.0.extend_from_slice(b);
    }
    pub(crate) fn opaque(&mut self, b: &[u8]) {
        self.u32(b.len() as u32);
        self.fixed(b);
        self.pad(b.len());
    }
    pub(crate) fn pad(&mut self, len: usize) {
        self.0.resize(self.0.len() + len.next_multiple_of(4) - len, 0);
    }
}

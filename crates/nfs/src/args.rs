//! The arguments of NFS procedures, decoded. What they mean to a volume is `calls`' business.

use crate::xdr::{Garbage, Reader, Result};
use vfs::{Kind, MakeKind, SetAttr, SetTime, Time};

/// The longest handle a client may send.
const HANDLE_MAX: usize = 64;
/// Names longer than this are not even looked at; between 255 and this they are "too long".
const NAME_MAX: usize = 4096;

impl<'a> Reader<'a> {
    pub(crate) fn handle(&mut self) -> Result<&'a [u8]> {
        self.opaque(HANDLE_MAX)
    }
    pub(crate) fn name(&mut self) -> Result<Vec<u8>> {
        self.opaque(NAME_MAX).map(<[u8]>::to_vec)
    }
    fn time(&mut self) -> Result<Time> {
        // Unsigned: from 1970 to 2106.
        let sec = i64::from(self.u32()?);
        Ok(Time { sec, nsec: self.u32()?.min(999_999_999) })
    }
    fn set_time(&mut self) -> Result<Option<SetTime>> {
        Ok(match self.u32()? {
            0 => None,
            1 => Some(SetTime::Now),
            2 => Some(SetTime::To(self.time()?)),
            _ => return Err(Garbage),
        })
    }
    pub(crate) fn set_attr(&mut self) -> Result<SetAttr> {
        let mut set = SetAttr::default();
        if self.bool()? {
            set.mode = Some(self.u32()? & 0o7777);
        }
        if self.bool()? {
            set.uid = Some(self.u32()?);
        }
        if self.bool()? {
            set.gid = Some(self.u32()?);
        }
        if self.bool()? {
            set.size = Some(self.u64()?);
        }
        set.atime = self.set_time()?;
        set.mtime = self.set_time()?;
        Ok(set)
    }
    pub(crate) fn guard(&mut self) -> Result<Option<Time>> {
        if self.bool()? { self.time().map(Some) } else { Ok(None) }
    }
    /// CREATE's how: what to make, with which attributes, and whether it must be new.
    pub(crate) fn create_how(&mut self) -> Result<(MakeKind, SetAttr, bool)> {
        match self.u32()? {
            how @ (0 | 1) => Ok((MakeKind::File { exclusive: None }, self.set_attr()?, how == 1)),
            2 => {
                let exclusive = Some(self.fixed()?);
                Ok((MakeKind::File { exclusive }, SetAttr::default(), true))
            }
            _ => Err(Garbage),
        }
    }
    /// MKNOD's what; None: a kind that MKNOD does not make.
    pub(crate) fn special(&mut self) -> Result<Option<(MakeKind, SetAttr)>> {
        let kind = match self.u32()? {
            3 => Kind::Block,
            4 => Kind::Char,
            6 => Kind::Socket,
            7 => Kind::Fifo,
            _ => return Ok(None),
        };
        let set = self.set_attr()?;
        let device = match kind {
            Kind::Block | Kind::Char => (self.u32()?, self.u32()?),
            _ => (0, 0),
        };
        Ok(Some((MakeKind::Special(kind, device), set)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_to_2106() {
        // Of sattr3: no mode, owner, group, length; both times as the client says.
        let words = [0, 0, 0, 0, 2, 0x8000_0000, 7, 2, u32::MAX, 8u32];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        let set = Reader(&bytes).set_attr().unwrap();
        assert_eq!(set.atime, Some(SetTime::To(Time { sec: 1 << 31, nsec: 7 })));
        assert_eq!(set.mtime, Some(SetTime::To(Time { sec: (1 << 32) - 1, nsec: 8 })));
    }
}

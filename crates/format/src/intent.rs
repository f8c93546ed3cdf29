//! Records of a journal of intents: what an operation may leave half done if it is cut off, so that
//! whoever recovers looks there and nowhere else. They say where to look and what was there before;
//! what is there now, the volume says itself. No order of writes, and no log, is known here.
//!
//! ```text
//!   a record: its kind (1 byte), then little-endian
//!   1 inode, 2 taken, 9 unlinked-open, 10 spared: inode (4)
//!   3 links: inode (4) | count before (2) | is it a directory? (1)
//!   4 blocks: first (8) | how many (8)
//!   5 named, 6 unnamed: directory (4) | inode (4) | is that a directory? (1) | length (1) | name
//!   7 shared: block (8) | users before (4)          8 left: inode (4) | block (8)
//!   11 group: number (4) | do its directories change? (1)
//! ```

use crate::{BlockNo, Extent, FormatError, Ino};

/// A name in a directory that comes or goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameIntent {
    /// The directory.
    pub dir: Ino,
    /// What it names.
    pub ino: Ino,
    /// Is that a directory?
    pub is_dir: bool,
    /// The name.
    pub name: Vec<u8>,
}

/// What an operation is about to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Intent {
    /// Something of this inode.
    Inode(Ino),
    /// An inode that was free is taken.
    Taken(Ino),
    /// An inode's count of links changes, from this.
    Links {
        /// The inode.
        ino: Ino,
        /// What it counted before.
        before: u16,
        /// Was it a directory?
        is_dir: bool,
    },
    /// Blocks are taken or freed.
    Blocks(Extent),
    /// A name comes.
    Named(NameIntent),
    /// A name goes.
    Unnamed(NameIntent),
    /// An attribute block's count of users falls, from this.
    Shared {
        /// The block.
        block: BlockNo,
        /// What it counted before.
        users: u32,
    },
    /// An inode leaves the attribute block it had.
    Left {
        /// The inode.
        ino: Ino,
        /// The block.
        block: BlockNo,
    },
    /// A block group's counts change.
    Group {
        /// The group.
        group: u32,
        /// That of its directories too?
        dirs: bool,
    },
    /// An inode has lost its last name, or never had one, and lives on until it is given back.
    UnlinkedOpen(Ino),
    /// It does no longer: it is given back, or has a name.
    Spared(Ino),
}

impl Intent {
    /// Adds the record.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let begin = into.len();
        let ino = |into: &mut Vec<u8>, i: &Ino| into.extend_from_slice(&i.0.to_le_bytes());
        match self {
            Intent::Inode(i) | Intent::Taken(i) | Intent::UnlinkedOpen(i) | Intent::Spared(i) => {
                into.push(match self {
                    Intent::Inode(_) => 1,
                    Intent::Taken(_) => 2,
                    Intent::UnlinkedOpen(_) => 9,
                    _ => 10,
                });
                ino(into, i);
            }
            Intent::Links { ino: i, before, is_dir } => {
                into.push(3);
                ino(into, i);
                into.extend_from_slice(&before.to_le_bytes());
                into.push(u8::from(*is_dir));
            }
            Intent::Blocks(e) => {
                into.push(4);
                into.extend_from_slice(&e.start.0.to_le_bytes());
                into.extend_from_slice(&e.len.to_le_bytes());
            }
            Intent::Named(n) | Intent::Unnamed(n) => {
                into.push(if matches!(self, Intent::Named(_)) { 5 } else { 6 });
                ino(into, &n.dir);
                ino(into, &n.ino);
                into.extend_from_slice(&[u8::from(n.is_dir), n.name.len() as u8]);
                into.extend_from_slice(&n.name);
            }
            Intent::Shared { block, users } => {
                into.push(7);
                into.extend_from_slice(&block.0.to_le_bytes());
                into.extend_from_slice(&users.to_le_bytes());
            }
            Intent::Left { ino: i, block } => {
                into.push(8);
                ino(into, i);
                into.extend_from_slice(&block.0.to_le_bytes());
            }
            Intent::Group { group, dirs } => {
                into.push(11);
                into.extend_from_slice(&group.to_le_bytes());
                into.push(u8::from(*dirs));
            }
        }
        let mut rest = Rest(&into[begin..]);
        let again = rest.one();
        let same = again.as_ref() == Some(self) && rest.0.is_empty();
        assert!(same, "F1: {self:?} is read as {again:?}");
    }

    /// Reads records to the end of the bytes. Errors: they are not records.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Intent>, FormatError> {
        let mut rest = Rest(bytes);
        let mut all = Vec::new();
        while !rest.0.is_empty() {
            let at = bytes.len() - rest.0.len();
            let bad = || FormatError::corrupt("no record of an intent", format!("byte {at}"));
            all.push(rest.one().ok_or_else(bad)?);
        }
        Ok(all)
    }
}

/// What is left to be read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }
    fn ino(&mut self) -> Option<Ino> {
        self.bytes().map(u32::from_le_bytes).map(Ino)
    }
    fn long(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
    fn flag(&mut self) -> Option<bool> {
        self.bytes().and_then(|[b]| (b < 2).then_some(b == 1))
    }
    fn name(&mut self) -> Option<NameIntent> {
        let (dir, ino, is_dir) = (self.ino()?, self.ino()?, self.flag()?);
        let [len] = self.bytes()?;
        let name = self.0.get(..usize::from(len))?.to_vec();
        self.0 = &self.0[name.len()..];
        Some(NameIntent { dir, ino, is_dir, name })
    }
    fn one(&mut self) -> Option<Intent> {
        let [kind] = self.bytes()?;
        Some(match kind {
            1 => Intent::Inode(self.ino()?),
            2 => Intent::Taken(self.ino()?),
            3 => Intent::Links {
                ino: self.ino()?,
                before: self.bytes().map(u16::from_le_bytes)?,
                is_dir: self.flag()?,
            },
            4 => Intent::Blocks(Extent { start: BlockNo(self.long()?), len: self.long()? }),
            5 => Intent::Named(self.name()?),
            6 => Intent::Unnamed(self.name()?),
            7 => Intent::Shared {
                block: BlockNo(self.long()?),
                users: self.bytes().map(u32::from_le_bytes)?,
            },
            8 => Intent::Left { ino: self.ino()?, block: BlockNo(self.long()?) },
            9 => Intent::UnlinkedOpen(self.ino()?),
            10 => Intent::Spared(self.ino()?),
            11 => {
                Intent::Group { group: self.bytes().map(u32::from_le_bytes)?, dirs: self.flag()? }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_nonsense_is_refused() {
        let name =
            |n: &[u8]| NameIntent { dir: Ino(2), ino: Ino(13), is_dir: true, name: n.into() };
        let all = vec![
            Intent::Inode(Ino(12)),
            Intent::Taken(Ino(13)),
            Intent::Links { ino: Ino(2), before: 700, is_dir: true },
            Intent::Blocks(Extent { start: BlockNo(1 << 40), len: 3 }),
            Intent::Named(name(b"new")),
            Intent::Unnamed(name(&[b'x'; 255])),
            Intent::Shared { block: BlockNo(77), users: 9 },
            Intent::Left { ino: Ino(14), block: BlockNo(77) },
            Intent::UnlinkedOpen(Ino(15)),
            Intent::Spared(Ino(15)),
            Intent::Group { group: 3, dirs: true },
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|i| i.encode(&mut bytes));
        assert_eq!(Intent::decode_all(&bytes).unwrap(), all);
        // Cut off anywhere but between two records, it is not read.
        let mut ends = vec![0];
        for i in &all {
            let mut one = Vec::new();
            i.encode(&mut one);
            ends.push(ends.last().unwrap() + one.len());
        }
        for cut in 0..bytes.len() {
            let read = Intent::decode_all(&bytes[..cut]);
            assert_eq!(read.is_ok(), ends.contains(&cut), "cut at {cut}");
        }
        for first in [0, 12, 255] {
            assert!(Intent::decode_all(&[first, 1, 1, 1, 1, 1, 1]).is_err());
        }
    }
}

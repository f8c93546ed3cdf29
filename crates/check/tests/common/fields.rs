//! Mutations that know the format: not any bit, but a field with a value that means something
//! else. Kinds of files, reserved inodes, features, the journal's superblock, entries: what chance
//! over all bytes seldom hits.

use super::{Chance, another_value};
use format::bytes::{le16, le32, set16, set32};
use format::ext::geometry::GROUP_DESC_BYTES;
use format::ext::superblock::SUPERBLOCK_AT;
use format::ext::{Geometry, GroupDesc, Superblock};
use format::ufs::inode::InodeRef;

/// What is mutated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Superblock,
    Features,
    Journal,
    Reserved,
    Inode,
    Kind,
    Entry,
    Desc,
}

/// All of them.
pub const ALL: [Of; 8] = [
    Of::Superblock,
    Of::Features,
    Of::Journal,
    Of::Reserved,
    Of::Inode,
    Of::Kind,
    Of::Entry,
    Of::Desc,
];

/// Where a sound image has what can be mutated, in bytes.
pub struct Fields {
    geo: Geometry,
    descs: usize,
    /// Slots of inodes 1 to 10.
    reserved: Vec<usize>,
    /// Slots of the other inodes in use.
    inodes: Vec<usize>,
    /// Blocks of directories.
    dirs: Vec<usize>,
    /// The journal's superblock.
    journal: Option<usize>,
}

/// Fields of an inode's slot: where, and how many bytes.
const INODE: [(usize, usize); 20] = [
    (0, 2), // mode
    (2, 2),
    (4, 4), // size
    (8, 4),
    (16, 4),
    (20, 4), // dtime
    (24, 2),
    (26, 2),  // links
    (28, 4),  // i_blocks
    (32, 4),  // flags
    (40, 4),  // the first pointer
    (44, 4),  // the second
    (88, 4),  // indirect
    (92, 4),  // double
    (96, 4),  // triple
    (100, 4), // generation
    (104, 4), // attributes
    (108, 4), // the size's high half
    (112, 4), // fragment
    (116, 4), // high halves
];

const KINDS: [u16; 9] =
    [0o140_000, 0o120_000, 0o100_000, 0o060_000, 0o040_000, 0o020_000, 0o010_000, 0o050_000, 0];

impl Fields {
    pub fn of(image: &[u8]) -> Fields {
        let at = SUPERBLOCK_AT as usize;
        let sb = Superblock::decode(&image[at..at + 1024]).unwrap();
        let geo = Geometry::of(&sb);
        let bs = geo.block_bytes;
        let descs = (geo.first_data_block as usize + 1) * bs;
        let (mut reserved, mut inodes, mut dirs) = (Vec::new(), Vec::new(), Vec::new());
        let mut journal = None;
        for g in 0..geo.groups {
            let at = descs + g as usize * GROUP_DESC_BYTES;
            let d = GroupDesc::decode(&image[at..at + GROUP_DESC_BYTES]);
            for i in 0..geo.inodes_per_group {
                let slot = d.inode_table as usize * bs + i as usize * geo.inode_bytes;
                let inode = InodeRef(&image[slot..slot + geo.inode_bytes]);
                let ino = g * geo.inodes_per_group + i + 1;
                if ino == 8 && inode.is_file() {
                    journal = Some(inode.pointer(0) as usize * bs);
                }
                if ino < 11 {
                    reserved.push(slot);
                } else if inode.links() > 0 {
                    inodes.push(slot);
                }
                if inode.is_dir() && inode.links() > 0 {
                    let blocks = (0..12).map(|n| inode.pointer(n) as usize).filter(|b| *b != 0);
                    dirs.extend(blocks.map(|b| b * bs));
                }
            }
        }
        Fields { geo, descs, reserved, inodes, dirs, journal }
    }

    /// Mutates one field; says what it did.
    pub fn mutate(&self, image: &mut [u8], of: Of, c: &mut Chance) -> String {
        let sb = SUPERBLOCK_AT as usize;
        match of {
            Of::Superblock => {
                let at = sb + 4 * c.below(0x170 / 4) as usize;
                another_value(image, at, 4, &self.geo, c)
            }
            Of::Features => {
                let at = sb + c.pick(&[0x5c, 0x5c, 0x60, 0x64, 0x64]);
                let bit = c.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 9, 13]);
                flip(image, at, bit)
            }
            Of::Journal => self.journal(image, c),
            Of::Reserved | Of::Inode => {
                let slots = if of == Of::Inode { &self.inodes } else { &self.reserved };
                let (slot, (at, n)) = (c.pick(slots), c.pick(&INODE));
                format!("slot {slot}: {}", another_value(image, slot + at, n, &self.geo, c))
            }
            Of::Kind => {
                let all = [self.inodes.as_slice(), &self.reserved].concat();
                let slot = c.pick(&all);
                let mode = le16(image, slot) & 0o7777 | c.pick(&KINDS);
                set16(image, slot, mode);
                format!("slot {slot}: mode {mode:#o}")
            }
            Of::Entry => self.entry(image, c),
            Of::Desc => {
                let at = GROUP_DESC_BYTES * c.below(u64::from(self.geo.groups)) as usize;
                let (field, n) =
                    c.pick(&[(0, 4), (4, 4), (8, 4), (12, 2), (14, 2), (16, 2), (18, 2), (28, 2)]);
                another_value(image, self.descs + at + field, n, &self.geo, c)
            }
        }
    }

    fn journal(&self, image: &mut [u8], c: &mut Chance) -> String {
        let Some(at) = self.journal else { return "no journal".into() };
        // The head, sizes, sequence, errno, features, users, checksum; then the users' names.
        let word = c.below(0x60 / 4);
        let at = at + 4 * c.pick(&[word, word, word, 8, 9, 10, 11, 0x10, 0x40]) as usize;
        let old = u32::from_be_bytes([0, 1, 2, 3].map(|i| image[at + i]));
        let values =
            [0, 1, 2, old ^ 1 << c.below(32), old.wrapping_add(1), u32::MAX, 5u32.wrapping_neg()];
        let v = c.pick(&values);
        image[at..at + 4].copy_from_slice(&v.to_be_bytes());
        format!("journal, byte {}: {old:#x} -> {v:#x}", at - self.journal.unwrap_or(0))
    }

    fn entry(&self, image: &mut [u8], c: &mut Chance) -> String {
        let block = c.pick(&self.dirs);
        let (mut at, mut all) = (block, Vec::new());
        while at < block + self.geo.block_bytes {
            all.push(at);
            at += usize::from(le16(image, at + 4)).max(12);
        }
        let (entry, (field, n)) = (c.pick(&all), c.pick(&[(0, 4), (4, 2), (6, 1), (7, 1), (8, 1)]));
        another_value(image, entry + field, n, &self.geo, c)
    }
}

fn flip(image: &mut [u8], at: usize, bit: u32) -> String {
    let v = le32(image, at) ^ 1 << bit;
    set32(image, at, v);
    format!("features at {at}: bit {bit} flipped to {v:#x}")
}

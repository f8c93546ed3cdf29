//! Where an ext4 image has its metadata, and mutations of its fields: as a disk or a stray write
//! leaves them, or with a right checksum over a wrong field, as a mistaken program does.

use super::{Chance, Scratch, another_value, indexed, made, tool};
use format::bytes::{le16, le32, set32};
use format::ext::csum::Sums;
use format::ext::extents;
use format::ext::superblock::SUPERBLOCK_AT;
use format::ext::{Geometry, GroupDesc, Superblock};
use format::ufs::inode::{BLOCK_AT, InodeRef};
use format::{BlockNo, GroupNo, Ino};

/// What is mutated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Superblock,
    Desc,
    Inode,
    Root,
    Extents,
    Entry,
    Index,
    Bitmap,
    Attributes,
    Orphans,
}

/// All of them.
pub const ALL: [Of; 10] = [
    Of::Superblock,
    Of::Desc,
    Of::Inode,
    Of::Root,
    Of::Extents,
    Of::Entry,
    Of::Index,
    Of::Bitmap,
    Of::Attributes,
    Of::Orphans,
];

/// A block that belongs to an inode: the inode, and the byte at which it begins.
type Owned = (u32, usize);

/// Where a sound image has what can be mutated, in bytes.
pub struct Layout {
    pub geo: Geometry,
    sums: Sums,
    inodes: Vec<(u32, usize)>,
    nodes: Vec<Owned>,
    leaves: Vec<Owned>,
    index: Vec<Owned>,
    bitmaps: Vec<usize>,
    attributes: Vec<usize>,
    orphans: Vec<Owned>,
}

/// An image of ext4 with a tree in it: extent trees with nodes, indexed directories, attributes.
pub fn made4(options: &[&str], block: usize, bytes: u64) -> Vec<u8> {
    let s = Scratch::new("made4");
    let (img, pieces) = (s.path("img"), s.path("pieces"));
    std::fs::write(&img, made(&[&["-t", "ext4"], options].concat(), block, bytes)).unwrap();
    let file = std::fs::File::create(&pieces).unwrap();
    for n in 0..400u64 {
        let at = n * 2 * block as u64;
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![n as u8 | 1; block], at).unwrap();
    }
    let write = format!("write {} pieces", pieces.display());
    let out = tool("debugfs").args(["-w", "-R", &write]).arg(&img).output().unwrap();
    assert!(out.status.success());
    indexed(&s, &std::fs::read(&img).unwrap())
}

impl Layout {
    pub fn of(image: &[u8]) -> Layout {
        let at = SUPERBLOCK_AT as usize;
        let sb = Superblock::decode(&image[at..at + 1024]).unwrap();
        let geo = Geometry::of(&sb);
        let mut l = Layout {
            geo,
            sums: geo.sums,
            inodes: vec![],
            nodes: vec![],
            leaves: vec![],
            index: vec![],
            bitmaps: vec![],
            attributes: vec![],
            orphans: vec![],
        };
        for g in 0..geo.groups {
            let d = l.desc(image, g);
            let bs = geo.block_bytes;
            l.bitmaps.extend([d.block_bitmap as usize * bs, d.inode_bitmap as usize * bs]);
            for i in 0..geo.inodes_per_group - d.unused_inodes {
                let slot = d.inode_table as usize * bs + i as usize * geo.inode_bytes;
                let ino = g * geo.inodes_per_group + i + 1;
                let inode = InodeRef(&image[slot..slot + geo.inode_bytes]);
                if inode.mode() == 0 || inode.links() == 0 || ino == 7 {
                    continue;
                }
                l.inodes.push((ino, slot));
                if inode.xattr_block().0 != 0 {
                    l.attributes.push(inode.xattr_block().0 as usize * bs);
                }
                let file = inode.is_file() || inode.is_dir();
                if file && inode.has_extents() {
                    let root = image[slot + BLOCK_AT..slot + BLOCK_AT + 60].to_vec();
                    let is_orphans = ino == sb.orphan_file();
                    l.below(image, (ino, inode.is_dir(), is_orphans), &root);
                }
            }
        }
        l
    }

    fn desc(&self, image: &[u8], g: u32) -> GroupDesc {
        let at = self.geo.desc_at(GroupNo(g)) as usize;
        GroupDesc::decode(&image[at..at + self.geo.desc_bytes])
    }

    fn below(&mut self, image: &[u8], what: (u32, bool, bool), node: &[u8]) {
        let (ino, is_dir, is_orphans) = what;
        let (h, bs) = (extents::head(node, None).unwrap(), self.geo.block_bytes);
        for i in 0..h.entries {
            if h.depth > 0 {
                let at = extents::child(node, i).0 as usize * bs;
                self.nodes.push((ino, at));
                self.below(image, what, &image[at..at + bs]);
                continue;
            }
            let m = extents::mapped(node, i);
            for n in 0..u64::from(m.len) {
                let at = (m.start.0 + n) as usize * bs;
                let block = &image[at..at + bs];
                let is_root = le16(block, 4) == 12 && usize::from(le16(block, 16)) == bs - 12;
                let is_node = le32(block, 0) == 0 && usize::from(le16(block, 4)) == bs;
                match (is_dir, is_root && m.first == 0 && n == 0 || is_node) {
                    (true, true) => self.index.push((ino, at)),
                    (true, false) => self.leaves.push((ino, at)),
                    (false, _) if is_orphans => self.orphans.push((ino, at)),
                    (false, _) => (),
                }
            }
        }
    }

    /// Mutates one field; says what it did. With `seal` the structure's checksum is right after it.
    pub fn mutate(&self, image: &mut [u8], of: Of, seal: bool, c: &mut Chance) -> String {
        let bs = self.geo.block_bytes;
        let block = |all: &[Owned], c: &mut Chance| (!all.is_empty()).then(|| c.pick(all));
        let owned = match of {
            Of::Superblock | Of::Desc | Of::Inode | Of::Root | Of::Bitmap | Of::Attributes => {
                return self.mutate_own(image, of, seal, c);
            }
            Of::Extents => block(&self.nodes, c).map(|(ino, at)| {
                let field = at + 2 * c.below(40) as usize;
                (ino, at, field, c.pick(&[2, 2, 4]))
            }),
            Of::Entry => block(&self.leaves, c).map(|(ino, at)| {
                let mut all = vec![at];
                let mut next = at + usize::from(le16(image, at + 4)).max(12);
                while next + 12 <= at + bs {
                    all.push(next);
                    next += usize::from(le16(image, next + 4)).max(12);
                }
                let (field, n) = c.pick(&[(0, 4), (4, 2), (6, 1), (7, 1), (8, 1)]);
                (ino, at, c.pick(&all) + field, n)
            }),
            Of::Index => block(&self.index, c)
                .map(|(ino, at)| (ino, at, at + 2 * c.below(30) as usize, c.pick(&[2, 2, 4]))),
            Of::Orphans => block(&self.orphans, c).map(|(ino, at)| {
                let field = c.pick(&[at, at + 4, at + bs - 8, at + bs - 4]);
                (ino, at, field, 4)
            }),
        };
        let Some((ino, at, field, n)) = owned else { return format!("no {of:?}") };
        let text = another_value(image, field, n, &self.geo, c);
        if seal {
            self.seal(image, of, ino, at);
        }
        format!("block of inode {ino} at {at}, {text}")
    }

    /// The same of what belongs to no inode, or is one.
    fn mutate_own(&self, image: &mut [u8], of: Of, seal: bool, c: &mut Chance) -> String {
        let bs = self.geo.block_bytes;
        match of {
            Of::Superblock => {
                let at = SUPERBLOCK_AT as usize + 4 * c.below(0x290 / 4) as usize;
                let text = another_value(image, at, 4, &self.geo, c);
                if seal && matches!(self.sums, Sums::All(_)) {
                    Superblock::seal_bytes(&mut image[1024..2048]);
                }
                format!("superblock, {text}")
            }
            Of::Desc => {
                let g = GroupNo(c.below(u64::from(self.geo.groups)) as u32);
                let at = self.geo.desc_at(g) as usize;
                let text = another_value(image, at + 2 * c.below(20) as usize, 2, &self.geo, c);
                if seal {
                    self.sums.seal_desc(g, &mut image[at..at + self.geo.desc_bytes]);
                }
                format!("descriptor of group {g}, {text}")
            }
            Of::Bitmap => {
                let at = c.pick(&self.bitmaps) + c.below(bs as u64) as usize;
                image[at] ^= 1 << c.below(8);
                format!("a bit of a bitmap at {at}")
            }
            Of::Attributes if self.attributes.is_empty() => "no attributes".into(),
            Of::Attributes => {
                let at = c.pick(&self.attributes);
                let text = another_value(image, at + 4 * c.below(16) as usize, 4, &self.geo, c);
                if seal {
                    let b = BlockNo((at / bs) as u64);
                    self.sums.seal_xattr(b, &mut image[at..at + bs]);
                }
                format!("attributes at {at}, {text}")
            }
            _ => {
                let (ino, slot) = c.pick(&self.inodes);
                let at = match of {
                    Of::Inode => c.pick(&[0, 4, 20, 24, 28, 32, 100, 104, 108, 112, 116, 128]),
                    _ => BLOCK_AT + 2 * c.below(20) as usize,
                };
                let text = another_value(image, slot + at, c.pick(&[2, 2, 4]), &self.geo, c);
                if seal {
                    self.sums.seal_inode(Ino(ino), &mut image[slot..slot + self.geo.inode_bytes]);
                }
                format!("inode {ino} at {slot}, {text}")
            }
        }
    }

    fn seal(&self, image: &mut [u8], of: Of, ino: u32, at: usize) {
        let bs = self.geo.block_bytes;
        let slot = self.inodes.iter().find(|(n, _)| *n == ino).unwrap().1;
        let generation = InodeRef(&image[slot..slot + self.geo.inode_bytes]).generation();
        let Some(seed) = self.sums.of_inode(Ino(ino), generation) else { return };
        let block = &mut image[at..at + bs];
        match of {
            Of::Extents => seed.seal_extents(block),
            Of::Orphans => {
                let sum = seed.orphans(BlockNo((at / bs) as u64), &block[..bs - 8]);
                set32(block, bs - 4, sum);
            }
            _ => seed.seal_dir(block),
        }
    }
}

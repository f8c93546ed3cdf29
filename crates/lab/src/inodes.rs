//! What soft updates promise of each inode on the disk, whether a name leads to it or not: what it
//! holds is marked as in use, and it is wholly old or wholly new. A check of the volume forgets
//! inodes without names and so does not see this; who takes what they hold would give it to two.

use format::ext::bitmap::is_set;
use format::ext::geometry::{GROUP_DESC_BYTES, Geometry, GroupDesc};
use format::ext::inode::{CLASSIC_BYTES, InodeRef};
use format::ext::map::DIRECT;
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES, Superblock};
use format::{BlockNo, GroupNo, Ino};
use sim::Image;

/// The first inode that is not reserved; the journal's and the descriptors' are not looked at.
const FIRST: u32 = 12;

/// What the first inode says that it must not; None if all is well, or this is no volume of ext2.
pub(crate) fn wrong_inode(image: &Image) -> Option<String> {
    let mut raw = [0; SUPERBLOCK_BYTES];
    image.read(SUPERBLOCK_AT, &mut raw);
    let volume = Volume { image, geo: Geometry::of(&Superblock::decode(&raw).ok()?) };
    (FIRST..=volume.geo.inodes()).find_map(|n| volume.wrong(Ino(n)))
}

struct Volume<'a> {
    image: &'a Image,
    geo: Geometry,
}

impl Volume<'_> {
    fn desc(&self, g: GroupNo) -> GroupDesc {
        let mut raw = [0; GROUP_DESC_BYTES];
        self.image.read(self.geo.desc_at(g), &mut raw);
        GroupDesc::decode(&raw)
    }

    fn is_marked(&self, bitmap: u64, bit: usize) -> bool {
        let mut map = vec![0; self.geo.block_bytes];
        self.image.read(bitmap * self.geo.block_bytes as u64, &mut map);
        is_set(&map, bit)
    }

    fn wrong(&self, ino: Ino) -> Option<String> {
        let bs = self.geo.block_bytes as u64;
        let desc = self.desc(self.geo.group_of_ino(ino));
        let (block, offset) = self.geo.ino_place(ino);
        let mut raw = [0; CLASSIC_BYTES];
        self.image.read((desc.inode_table + u64::from(block)) * bs + offset as u64, &mut raw);
        let inode = InodeRef(&raw);
        if inode.links() == 0 {
            let torn = inode.is_dir() && !inode.size().is_multiple_of(bs);
            return torn.then(|| format!("the removed directory {ino} has got a file's length"));
        }
        if !self.is_marked(desc.inode_bitmap, self.geo.bit_of_ino(ino)) {
            return Some(format!("inode {ino} has links, and its bit is clear"));
        }
        let blocks = (0..DIRECT as usize).map(|i| BlockNo(u64::from(inode.pointer(i))));
        let has_blocks = inode.is_dir() || inode.is_file();
        let mut held = blocks.filter(|b| has_blocks && b.0 != 0 && self.geo.has_block(*b));
        let unmarked = |b: &BlockNo| {
            !self.is_marked(self.desc(self.geo.group_of(*b)).block_bitmap, self.geo.bit_of(*b))
        };
        held.find(unmarked).map(|b| format!("inode {ino} points at block {b}, whose bit is clear"))
    }
}

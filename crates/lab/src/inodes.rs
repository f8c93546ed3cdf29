//! What soft updates promise of each inode on the disk, whether a name leads to it or not: what it
//! holds is marked as in use, and it is wholly old or wholly new. A check of the volume forgets
//! inodes without names and so does not see this; who takes what they hold would give it to two.

use format::ext::bitmap::is_set;
use format::ext::geometry::{GROUP_DESC_BYTES, Geometry, GroupDesc};
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES, Superblock};
use format::ufs::inode::{CLASSIC_BYTES, InodeRef};
use format::ufs::map::DIRECT;
use format::{BlockNo, GroupNo, Ino};
use sim::Image;

/// An inode's pointers, the three to blocks of pointers included.
const POINTERS: usize = DIRECT as usize + 3;
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
        // The direct blocks, and those that map the others.
        let blocks = (0..POINTERS).map(|i| BlockNo(u64::from(inode.pointer(i))));
        let has_blocks = inode.is_dir() || inode.is_file();
        blocks.filter(|b| has_blocks && b.0 != 0).find_map(|b| {
            if !self.geo.has_block(b) {
                return Some(format!("inode {ino} points at block {b}, which there is not"));
            }
            let bitmap = self.desc(self.geo.group_of(b)).block_bitmap;
            let clear = !self.is_marked(bitmap, self.geo.bit_of(b));
            clear.then(|| format!("inode {ino} points at block {b}, whose bit is clear"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acts::Act;
    use crate::kernel::inode_at;
    use crate::subject::{Setting, Subject, fresh};
    use format::ext::bitmap::clear;
    use integrity::Plant;
    use volume::Mode;

    #[test]
    fn what_an_inode_holds_is_marked_and_on_the_disk() {
        let setting = Setting::plain(Mode::Async);
        let disks = vec![fresh(2 << 20, false)];
        let mut v = Subject::open(disks, setting, false, (Plant::NONE, 1)).unwrap();
        v.act(1, &Act::Create("/f".into())).unwrap();
        // Long enough for a block of pointers.
        v.act(2, &Act::Write("/f".into(), 0, 20_000, 7)).unwrap();
        let ino = Ino(v.walk("/f").unwrap());
        let image = v.close().unwrap().remove(0);
        assert_eq!(wrong_inode(&image), None);
        let mut raw = [0; SUPERBLOCK_BYTES];
        image.read(SUPERBLOCK_AT, &mut raw);
        let volume =
            Volume { image: &image, geo: Geometry::of(&Superblock::decode(&raw).unwrap()) };
        let at = inode_at(&image, &volume.geo, ino) + 40;
        for n in [0, 12] {
            let mut pointer = [0; 4];
            image.read(at + 4 * n, &mut pointer);
            let block = BlockNo(u64::from(u32::from_le_bytes(pointer)));
            assert!(block.0 > 0, "pointer {n}");
            let map_at = volume.desc(volume.geo.group_of(block)).block_bitmap * 1024;
            let (mut map, mut unmarked) = (vec![0; 1024], image.clone());
            image.read(map_at, &mut map);
            clear(&mut map, volume.geo.bit_of(block));
            unmarked.write(map_at, &map);
            let wrong = wrong_inode(&unmarked).unwrap_or_default();
            assert!(wrong.contains("whose bit is clear"), "pointer {n}: {wrong}");
            let mut elsewhere = image.clone();
            elsewhere.write(at + 4 * n, &[0xff; 4]);
            let wrong = wrong_inode(&elsewhere).unwrap_or_default();
            assert!(wrong.contains("which there is not"), "pointer {n}: {wrong}");
        }
    }
}

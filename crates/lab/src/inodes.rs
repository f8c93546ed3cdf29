//! What soft updates promise of each inode on the disk, whether a name leads to it or not: what it
//! holds is marked as in use, and it is wholly old or wholly new. A check of the volume forgets
//! inodes without names and so does not see this; who takes what they hold would give it to two.

use crate::setting::SimDevice;
use check::ReadBlocks;
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
/// What leads behind the end of the disk is wrong too, and nothing to trip over.
pub(crate) fn wrong_inode(image: &Image) -> Option<String> {
    let mut raw = [0; SUPERBLOCK_BYTES];
    image.read(SUPERBLOCK_AT, &mut raw);
    let geo = Geometry::of(&Superblock::decode(&raw).ok()?);
    let volume = Volume { device: SimDevice(image.clone()), geo };
    let wrong = |n| volume.wrong(Ino(n)).unwrap_or_else(|why| Some(format!("inode {n}: {why}")));
    (FIRST..=volume.geo.inodes()).find_map(wrong)
}

struct Volume {
    device: SimDevice,
    geo: Geometry,
}

impl Volume {
    fn read(&self, block: u64, offset: usize, into: &mut [u8]) -> Result<(), String> {
        let at = block.checked_mul(self.geo.block_bytes as u64);
        let at = at.and_then(|at| at.checked_add(offset as u64)).unwrap_or(u64::MAX);
        self.device.read_at(at, into).map_err(|e| e.to_string())
    }

    fn desc(&self, g: GroupNo) -> Result<GroupDesc, String> {
        let mut raw = [0; GROUP_DESC_BYTES];
        self.read(0, self.geo.desc_at(g) as usize, &mut raw)?;
        Ok(GroupDesc::decode(&raw))
    }

    fn is_marked(&self, bitmap: u64, bit: usize) -> Result<bool, String> {
        let mut map = vec![0; self.geo.block_bytes];
        self.read(bitmap, 0, &mut map)?;
        Ok(is_set(&map, bit))
    }

    fn wrong(&self, ino: Ino) -> Result<Option<String>, String> {
        let bs = self.geo.block_bytes as u64;
        let desc = self.desc(self.geo.group_of_ino(ino))?;
        let (block, offset) = self.geo.ino_place(ino);
        let table = desc.inode_table.saturating_add(u64::from(block));
        let mut raw = [0; CLASSIC_BYTES];
        self.read(table, offset, &mut raw)?;
        let inode = InodeRef(&raw);
        if inode.links() == 0 {
            let torn = inode.is_dir() && !inode.size().is_multiple_of(bs);
            return Ok(torn.then(|| format!("the removed directory {ino} has got a file's length")));
        }
        if !self.is_marked(desc.inode_bitmap, self.geo.bit_of_ino(ino))? {
            return Ok(Some(format!("inode {ino} has links, and its bit is clear")));
        }
        // The direct blocks, and those that map the others.
        let blocks = (0..POINTERS).map(|i| BlockNo(u64::from(inode.pointer(i))));
        let has_blocks = inode.is_dir() || inode.is_file();
        for b in blocks.filter(|b| has_blocks && b.0 != 0) {
            if !self.geo.has_block(b) {
                let what = format!("inode {ino} points at block {b}, which there is not");
                return Ok(Some(what));
            }
            let bitmap = self.desc(self.geo.group_of(b))?.block_bitmap;
            if !self.is_marked(bitmap, self.geo.bit_of(b))? {
                return Ok(Some(format!("inode {ino} points at block {b}, whose bit is clear")));
            }
        }
        Ok(None)
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
        let geo = Geometry::of(&Superblock::decode(&raw).unwrap());
        let volume = Volume { device: SimDevice(image.clone()), geo };
        let at = inode_at(&image, &volume.geo, ino) + 40;
        for n in [0, 12] {
            let mut pointer = [0; 4];
            image.read(at + 4 * n, &mut pointer);
            let block = BlockNo(u64::from(u32::from_le_bytes(pointer)));
            assert!(block.0 > 0, "pointer {n}");
            let map_at = volume.desc(volume.geo.group_of(block)).unwrap().block_bitmap * 1024;
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
        let mut nowhere = image.clone();
        nowhere.write(volume.geo.desc_at(GroupNo(0)) + 8, &[0xff; 4]);
        let wrong = wrong_inode(&nowhere).unwrap_or_default();
        assert!(wrong.contains("on a device of"), "a table of inodes behind the end: {wrong}");
    }
}

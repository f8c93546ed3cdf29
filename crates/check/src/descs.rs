//! The group descriptors: where each group's bitmaps and inode table are. A descriptor that cannot
//! be right is replaced by a copy's, or by the place that mkfs gives them; counts are left to the
//! last pass.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::run::Check;
use format::ext::geometry::{BLOCK_UNINIT, GROUP_DESC_BYTES, INODE_UNINIT};
use format::ext::{Geometry, GroupDesc};
use format::{BlockNo, GroupNo};

/// Flags that say a bitmap or table was never written, which only volumes with checksums may say.
const UNINIT: u16 = INODE_UNINIT | BLOCK_UNINIT;
/// How many copies of the descriptors are asked.
const COPIES_ASKED: usize = 3;

impl Check<'_> {
    /// Loads the descriptors, mending what cannot be.
    pub(crate) fn check_descs(&mut self) -> Result<(), CheckError> {
        let geo = self.geo();
        let primary = read_table(self, GroupNo(0))?;
        let copies = self.other_tables()?;
        let mut descs = Vec::with_capacity(geo.groups as usize);
        for g in (0..geo.groups).map(GroupNo) {
            let at = g.0 as usize * GROUP_DESC_BYTES;
            let raw = &primary[at..at + GROUP_DESC_BYTES];
            let mut d = GroupDesc::decode(raw);
            let others: Vec<GroupDesc> =
                copies.iter().map(|t| GroupDesc::decode(&t[at..at + GROUP_DESC_BYTES])).collect();
            if let Some(better) = better_places(&geo, g, &d, &others) {
                let text = match geo.check_desc(g, &d) {
                    Err(e) => format!("{e}; set from a copy, or to where mkfs puts them"),
                    Ok(()) => "its places differ from all copies; set from them".into(),
                };
                self.found(Kind::DescDamaged, Place::Group(g), text);
                d.block_bitmap = better.block_bitmap;
                d.inode_bitmap = better.inode_bitmap;
                d.inode_table = better.inode_table;
                self.put_desc(g, &d)?;
            }
            if d.has(UNINIT) || d.unused_inodes != 0 {
                let text = "it says that parts were never written, without the feature; cleared";
                self.found(Kind::DescDamaged, Place::Group(g), text);
                d.flags &= !UNINIT;
                d.unused_inodes = 0;
                self.put_desc(g, &d)?;
            }
            descs.push(d);
        }
        self.frame.descs = descs.into();
        self.check_copies(&copies)
    }

    /// Writes a descriptor to the primary table.
    pub(crate) fn put_desc(&mut self, g: GroupNo, d: &GroupDesc) -> Result<(), CheckError> {
        let (block, at) = desc_place(&self.geo(), GroupNo(0), g);
        self.view.edit(block, |b| d.encode(&mut b[at..at + GROUP_DESC_BYTES]))
    }

    fn other_tables(&self) -> Result<Vec<Vec<u8>>, CheckError> {
        let geo = self.geo();
        let with_copy = (1..geo.groups).map(GroupNo).filter(|g| geo.has_super(*g));
        with_copy.take(COPIES_ASKED).map(|g| read_table(self, g)).collect()
    }

    /// Compares the copies with the primary table, as to the places.
    fn check_copies(&mut self, copies: &[Vec<u8>]) -> Result<(), CheckError> {
        let geo = self.geo();
        let groups = (1..geo.groups).map(GroupNo).filter(|g| geo.has_super(*g));
        for (copy, table) in groups.zip(copies) {
            let descs = self.frame.descs.clone();
            let differs = |g: &GroupNo| {
                let other = GroupDesc::decode(
                    &table[g.0 as usize * GROUP_DESC_BYTES..][..GROUP_DESC_BYTES],
                );
                !same_places(&other, &descs[g.0 as usize])
            };
            let wrong: Vec<GroupNo> = (0..geo.groups).map(GroupNo).filter(differs).collect();
            if wrong.is_empty() {
                continue;
            }
            let text = format!("its copy of {} descriptors is wrong; written anew", wrong.len());
            self.found(Kind::BackupDamaged, Place::Group(copy), text);
            for g in wrong {
                let (block, at) = desc_place(&geo, copy, g);
                self.view.edit(block, |b| {
                    descs[g.0 as usize].encode(&mut b[at..][..GROUP_DESC_BYTES])
                })?;
            }
        }
        Ok(())
    }
}

/// Where descriptor `g` stands in the copy at the start of group `copy`.
fn desc_place(geo: &Geometry, copy: GroupNo, g: GroupNo) -> (BlockNo, usize) {
    let at = g.0 as usize * GROUP_DESC_BYTES;
    let block = geo.group_start(copy).plus(1 + (at / geo.block_bytes) as u64);
    (block, at % geo.block_bytes)
}

fn read_table(c: &Check<'_>, copy: GroupNo) -> Result<Vec<u8>, CheckError> {
    let geo = c.geo();
    let mut table = vec![0; geo.desc_blocks() as usize * geo.block_bytes];
    if geo.overhead(copy) <= geo.group_blocks(copy) {
        c.view.read_run(geo.group_start(copy).plus(1), &mut table)?;
    }
    Ok(table)
}

fn same_places(a: &GroupDesc, b: &GroupDesc) -> bool {
    (a.block_bitmap, a.inode_bitmap, a.inode_table)
        == (b.block_bitmap, b.inode_bitmap, b.inode_table)
}

/// Where mkfs puts them: bitmaps and table at the group's start.
fn by_default(geo: &Geometry, g: GroupNo) -> GroupDesc {
    let at = geo.group_start(g).0 + u64::from(geo.overhead(g));
    GroupDesc {
        block_bitmap: at,
        inode_bitmap: at + 1,
        inode_table: at + 2,
        ..GroupDesc::default()
    }
}

/// The places a descriptor should have, if its own are wrong: impossible, or unlike both all copies
/// and the usual place while the copies agree with the latter.
fn better_places(
    geo: &Geometry,
    g: GroupNo,
    d: &GroupDesc,
    others: &[GroupDesc],
) -> Option<GroupDesc> {
    let usual = by_default(geo, g);
    if geo.check_desc(g, d).is_ok() {
        let outvoted = !others.is_empty()
            && !same_places(d, &usual)
            && others.iter().all(|o| same_places(o, &usual));
        return outvoted.then_some(usual);
    }
    let copy = others.iter().find(|o| geo.check_desc(g, o).is_ok());
    Some(*copy.unwrap_or(&usual))
}

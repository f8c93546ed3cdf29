//! The group descriptors: where each group's bitmaps and inode table are. A descriptor that cannot
//! be right is replaced by a copy's, or by the place that mkfs gives them; counts are left to the
//! last pass.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::pass1::what_of;
use crate::places::Part;
use crate::run::Check;
use crate::tables::Frame;
use format::ext::geometry::{BLOCK_UNINIT, INODE_UNINIT};
use format::ext::{Geometry, GroupDesc};
use format::{BlockNo, GroupNo};

/// Flags that say a bitmap or table was never written, which only volumes with checksums may say.
const UNINIT: u16 = INODE_UNINIT | BLOCK_UNINIT;
/// How many copies of the descriptors are asked.
const COPIES_ASKED: usize = 3;

/// A block of descriptors, in a copy: which of them it is, where it lies, and what it holds.
pub(crate) struct Copy {
    n: u32,
    block: BlockNo,
    bytes: Vec<u8>,
}

impl Check<'_> {
    /// Loads the descriptors, mending what cannot be.
    pub(crate) fn check_descs(&mut self) -> Result<(), CheckError> {
        let geo = self.geo();
        let copies = self.read_copies()?;
        let mut descs = Vec::with_capacity(geo.groups as usize);
        for g in (0..geo.groups).map(GroupNo) {
            let (block, at) = geo.desc_place(g);
            let raw = self.view.read(block)?[at..at + geo.desc_bytes].to_vec();
            let n = g.0 / geo.descs_per_block();
            let others: Vec<GroupDesc> = copies
                .iter()
                .filter(|c| c.n == n)
                .map(|c| &c.bytes[at..at + geo.desc_bytes])
                .filter(|raw| geo.sums.check_desc(g, raw).is_ok())
                .map(GroupDesc::decode)
                .collect();
            let (mut d, mended) = self.check_desc(g, &raw, &others);
            let placed = self.doubt_places(g, &mut d, (&raw, others.is_empty()))?;
            if mended || placed {
                self.put_desc(g, &d)?;
            }
            descs.push(d);
        }
        self.part_groups(&mut descs, &copies)?;
        self.frame = Frame::new(geo, descs);
        // What is nowhere yet is in no copy either.
        if self.nowhere.is_empty() { self.check_copies(&copies) } else { Ok(()) }
    }

    /// One descriptor, and whether it had to be mended.
    fn check_desc(&mut self, g: GroupNo, raw: &[u8], others: &[GroupDesc]) -> (GroupDesc, bool) {
        let geo = self.geo();
        let mut d = GroupDesc::decode(raw);
        let sum = geo.sums.check_desc(g, raw);
        let mut mended = false;
        if let Err(e) = &sum {
            let text = format!("{}; set, and nothing is taken for never written", what_of(e));
            self.found(Kind::Checksum, Place::Group(g), text);
            d.flags &= !UNINIT;
            d.unused_inodes = 0;
            mended = true;
        }
        if let Some(better) = better_places(&geo, g, &d, (others, sum.is_err())) {
            let text = match geo.check_desc(g, &d) {
                Err(e) => format!("{e}; set from a copy, or to where mkfs puts them"),
                Ok(()) => "its places differ from all copies; set from them".into(),
            };
            self.found(Kind::DescDamaged, Place::Group(g), text);
            d.block_bitmap = better.block_bitmap;
            d.inode_bitmap = better.inode_bitmap;
            d.inode_table = better.inode_table;
            mended = true;
        }
        let unused_most = d.free_inodes.min(geo.inodes_per_group);
        if !geo.sums.lazy() && (d.has(UNINIT) || d.unused_inodes != 0) {
            let text = "it says that parts were never written, without the feature; cleared";
            self.found(Kind::DescDamaged, Place::Group(g), text);
            d.flags &= !UNINIT;
            d.unused_inodes = 0;
            mended = true;
        } else if geo.sums.lazy() && d.unused_inodes > unused_most {
            let text = format!(
                "{} inodes are said to be unused, and only {} to be free; set to 0",
                d.unused_inodes, d.free_inodes
            );
            self.found(Kind::DescDamaged, Place::Group(g), text);
            d.unused_inodes = 0;
            mended = true;
        }
        if d.has(BLOCK_UNINIT) && g.0 + 1 == geo.groups {
            let text = "the last group has no block bitmap, which it must have; made";
            self.found(Kind::DescDamaged, Place::Group(g), text);
            d.flags &= !BLOCK_UNINIT;
            mended = true;
        }
        (d, mended)
    }

    /// Where bitmaps and inode tables may be anywhere, no two are in one place. A copy may say
    /// where they belong; what it does not say is beyond this repair.
    fn part_groups(&mut self, descs: &mut [GroupDesc], copies: &[Copy]) -> Result<(), CheckError> {
        let geo = self.geo();
        for g in groups_of(&overlapping(&geo, descs)) {
            let at = geo.desc_place(g).1;
            let of = |c: &&Copy| c.n == g.0 / geo.descs_per_block();
            let all = copies.iter().filter(of).map(|c| &c.bytes[at..at + geo.desc_bytes]);
            let mut sound = all.filter(|raw| geo.sums.check_desc(g, raw).is_ok());
            let other = sound.next().map(GroupDesc::decode);
            let d = &mut descs[g.0 as usize];
            let better = other.filter(|o| !same_places(o, d) && geo.check_desc(g, o).is_ok());
            let Some(o) = better else { continue };
            let text = "its places are others' too; set from a copy";
            d.block_bitmap = o.block_bitmap;
            d.inode_bitmap = o.inode_bitmap;
            d.inode_table = o.inode_table;
            let d = *d;
            self.found(Kind::DescDamaged, Place::Group(g), text);
            self.put_desc(g, &d)?;
        }
        for (g, part) in overlapping(&geo, descs) {
            self.displace(g, &mut descs[g.0 as usize], part);
        }
        for g in groups_of(&overlapping(&geo, descs)) {
            let text = "its inode table is in a place that has another use, and no copy says where \
                        it belongs; e2fsck may move it";
            self.found(Kind::DescDamaged, Place::Group(g), text);
        }
        Ok(())
    }

    /// Writes a descriptor to the primary table, with its checksum.
    pub(crate) fn put_desc(&mut self, g: GroupNo, d: &GroupDesc) -> Result<(), CheckError> {
        self.edit_desc(g, |raw| {
            d.encode(raw);
            assert!(same_places(&GroupDesc::decode(raw), d), "K8: group {g}'s places are lost");
        })
    }

    /// Changes a descriptor of the primary table; its checksum follows.
    pub(crate) fn edit_desc(
        &mut self,
        g: GroupNo,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), CheckError> {
        let geo = self.geo();
        let (block, at) = geo.desc_place(g);
        self.view.edit(block, |b| {
            let raw = &mut b[at..at + geo.desc_bytes];
            change(raw);
            geo.sums.seal_desc(g, raw);
            assert!(geo.sums.check_desc(g, raw).is_ok(), "K8: group {g} is sealed wrongly");
        })
    }

    /// Up to three copies of each block of descriptors.
    pub(crate) fn read_copies(&self) -> Result<Vec<Copy>, CheckError> {
        let geo = self.geo();
        let mut all = Vec::new();
        for n in 0..geo.desc_blocks() {
            for block in geo.desc_copies(n).into_iter().take(COPIES_ASKED) {
                all.push(Copy { n, block, bytes: self.view.read(block)? });
            }
        }
        Ok(all)
    }

    /// Compares the copies with the primary table, as to the places.
    pub(crate) fn check_copies(&mut self, copies: &[Copy]) -> Result<(), CheckError> {
        let (geo, descs) = (self.geo(), self.frame.descs.clone());
        for copy in copies {
            let first = copy.n * geo.descs_per_block();
            let groups = (first..geo.groups).take(geo.descs_per_block() as usize).map(GroupNo);
            let raw = |g: &GroupNo| &copy.bytes[geo.desc_place(*g).1..][..geo.desc_bytes];
            let differs =
                |g: &GroupNo| !same_places(&GroupDesc::decode(raw(g)), &descs[g.0 as usize]);
            let wrong: Vec<GroupNo> = groups.filter(differs).collect();
            if wrong.is_empty() {
                continue;
            }
            let text = format!("its copy of {} descriptors is wrong; written anew", wrong.len());
            self.found(Kind::BackupDamaged, Place::Group(geo.group_of(copy.block)), text);
            for g in wrong {
                let at = geo.desc_place(g).1;
                self.view.edit(copy.block, |b| {
                    let raw = &mut b[at..][..geo.desc_bytes];
                    descs[g.0 as usize].encode(raw);
                    geo.sums.seal_desc(g, raw);
                })?;
            }
        }
        Ok(())
    }
}

fn same_places(a: &GroupDesc, b: &GroupDesc) -> bool {
    (a.block_bitmap, a.inode_bitmap, a.inode_table)
        == (b.block_bitmap, b.inode_bitmap, b.inode_table)
}

/// The parts of groups that lie where one of a group before them does, or a superblock or
/// descriptors; both where two are in one place.
pub(crate) fn overlapping(geo: &Geometry, descs: &[GroupDesc]) -> Vec<(GroupNo, Part)> {
    let mut all = Vec::with_capacity(4 * descs.len());
    for (g, d) in (0..).map(GroupNo).zip(descs) {
        let (start, overhead) = (geo.group_start(g).0, u64::from(geo.overhead(g)));
        let table = d.inode_table + u64::from(geo.inode_table_blocks());
        all.push((start, start + overhead.min(u64::from(geo.group_blocks(g))), None));
        all.push((d.block_bitmap, d.block_bitmap + 1, Some((g, Part::Blocks))));
        all.push((d.inode_bitmap, d.inode_bitmap + 1, Some((g, Part::Inodes))));
        all.push((d.inode_table, table, Some((g, Part::Table))));
    }
    // Block 0 stands for a bitmap that is nowhere.
    all.retain(|r| r.0 < r.1 && (r.0 > 0 || r.2.is_none()));
    all.sort_unstable_by_key(|r| (r.0, r.2));
    let mut out: Vec<(GroupNo, Part)> = vec![];
    let mut before: (u64, u64, Option<(GroupNo, Part)>) = (0, 0, None);
    for r in all {
        if r.0 < before.1 {
            out.extend(r.2.into_iter().chain(before.2));
        }
        if r.1 > before.1 {
            before = r;
        }
    }
    out.sort_unstable();
    out.dedup();
    out
}

fn groups_of(parts: &[(GroupNo, Part)]) -> Vec<GroupNo> {
    let mut all: Vec<GroupNo> = parts.iter().map(|p| p.0).collect();
    all.dedup();
    all
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

/// The places a descriptor should have, if its own are wrong: impossible, or, where its checksum is
/// wrong, unlike a copy's, or unlike both all copies and the usual place while the copies agree
/// with the latter. Where places may be anywhere there is no usual one.
fn better_places(
    geo: &Geometry,
    g: GroupNo,
    d: &GroupDesc,
    (others, sum_is_wrong): (&[GroupDesc], bool),
) -> Option<GroupDesc> {
    let usual = by_default(geo, g);
    let copy = others.iter().find(|o| geo.check_desc(g, o).is_ok());
    if geo.check_desc(g, d).is_ok() {
        if sum_is_wrong || geo.flexible {
            let agreed = copy.filter(|c| others.iter().all(|o| same_places(o, c)));
            return agreed.filter(|c| !same_places(c, d)).copied();
        }
        let outvoted = !others.is_empty()
            && !same_places(d, &usual)
            && others.iter().all(|o| same_places(o, &usual));
        return outvoted.then_some(usual);
    }
    copy.or((!geo.flexible).then_some(&usual)).copied()
}

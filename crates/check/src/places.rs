//! Bitmaps and inode tables whose place the only descriptor has lost. A bitmap is counted anew by
//! every check, so that one that cannot be where it is said to be gets another place, once it is
//! known which blocks files have. An inode table cannot be made anew: that of the first group is
//! looked for by the root directory.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::inode::begins_as_directory;
use crate::run::Check;
use crate::tables::Frame;
use format::ext::bitmap::is_set;
use format::ext::csum::Sums;
use format::ext::geometry::{BLOCK_UNINIT, INODE_UNINIT};
use format::ext::{Geometry, GroupDesc, extents};
use format::ufs::inode::InodeRef;
use format::{BlockNo, FormatError, GroupNo, ROOT_INO};

/// What a group's descriptor has a place of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Part {
    /// The block bitmap.
    Blocks,
    /// The inode bitmap.
    Inodes,
    /// The inode table.
    Table,
}

impl Check<'_> {
    /// Doubts a descriptor's places: those that cannot be, and, where it is `alone`, without a copy
    /// to compare it with, those at which something else is. Says whether a table was found. Error:
    /// nothing says where its inode table is.
    pub(crate) fn doubt_places(
        &mut self,
        g: GroupNo,
        d: &mut GroupDesc,
        (raw, alone): (&[u8], bool),
    ) -> Result<bool, CheckError> {
        let geo = self.geo();
        let places = geo.places_of(g);
        let blocks = u64::from(geo.inode_table_blocks());
        let fits = |t: u64| places.contains(&t) && places.end - t >= blocks;
        let mut found = false;
        if !fits(d.inode_table) || alone && g.0 == 0 && !self.is_table(d.inode_table)? {
            match self.find_table(g)? {
                Some(table) => {
                    let text = "its inode table is not where it says; found by the root directory";
                    self.found(Kind::DescDamaged, Place::Group(g), text);
                    (d.inode_table, found) = (table, true);
                }
                None if fits(d.inode_table) => {}
                None => geo.check_desc(g, d)?,
            }
        }
        if !fits(d.inode_table) {
            return Err(FormatError::corrupt("its inode table is nowhere", format!("{g}")).into());
        }
        let table = d.inode_table..d.inode_table + blocks;
        let may = |b: u64| places.contains(&b) && !table.contains(&b);
        let is_map = |b: u64, part: Part, check: &Check<'_>| -> Result<bool, CheckError> {
            Ok(!alone || check.is_bitmap((g, part), (d.flags, raw), b)?)
        };
        let keep = (
            may(d.block_bitmap) && is_map(d.block_bitmap, Part::Blocks, self)?,
            may(d.inode_bitmap)
                && d.inode_bitmap != d.block_bitmap
                && is_map(d.inode_bitmap, Part::Inodes, self)?,
        );
        if !keep.0 {
            self.displace(g, d, Part::Blocks);
        }
        if !keep.1 {
            self.displace(g, d, Part::Inodes);
        }
        Ok(found && keep == (true, true))
    }

    /// Takes a bitmap away from where it is said to be. An inode table stays.
    pub(crate) fn displace(&mut self, g: GroupNo, d: &mut GroupDesc, part: Part) {
        let (at, what) = match part {
            Part::Blocks => (&mut d.block_bitmap, "block bitmap"),
            Part::Inodes => (&mut d.inode_bitmap, "inode bitmap"),
            Part::Table => return,
        };
        let text = format!("its {what} is said to be block {at}, and cannot be; moved");
        *at = 0;
        self.nowhere.push((g, part));
        self.found(Kind::DescDamaged, Place::Group(g), text);
    }

    /// Gives the bitmaps that are nowhere a place. All that files hold is claimed. The tables are
    /// out of date afterwards.
    pub(crate) fn place_bitmaps(&mut self) -> Result<(), CheckError> {
        let geo = self.geo();
        let mut descs = self.frame.descs.to_vec();
        for (g, part) in std::mem::take(&mut self.nowhere) {
            let start = geo.group_start(g).0;
            let near = start..start + u64::from(geo.group_blocks(g));
            let mut b = self.alloc_in(near);
            if b.is_none() && geo.flexible {
                b = self.alloc_block();
            }
            let Some(b) = b else {
                let what = "there is no free block for a bitmap that it has lost";
                return Err(FormatError::corrupt(what, format!("group {g}")).into());
            };
            let d = &mut descs[g.0 as usize];
            match part {
                Part::Blocks => d.block_bitmap = b.0,
                Part::Inodes => d.inode_bitmap = b.0,
                Part::Table => {}
            }
            let d = *d;
            self.put_desc(g, &d)?;
        }
        self.frame = Frame::new(geo, descs);
        let copies = self.read_copies()?;
        self.check_copies(&copies)
    }

    /// Can this be a group's bitmap? Its sum says so, or what is always in use, and what is behind
    /// the end.
    fn is_bitmap(
        &self,
        (g, part): (GroupNo, Part),
        (flags, raw): (u16, &[u8]),
        b: u64,
    ) -> Result<bool, CheckError> {
        let geo = self.geo();
        let bits = 8 * geo.block_bytes;
        let bytes = self.view.read(BlockNo(b))?;
        let (unwritten, used, len, sum) = match part {
            Part::Blocks => {
                let map = &bytes[..(geo.blocks_per_group as usize / 8).min(bytes.len())];
                let sum = geo.sums.check_block_map((g, raw), map);
                let len = geo.group_blocks(g);
                (flags & BLOCK_UNINIT, geo.overhead(g).min(len), len, sum)
            }
            _ => {
                let map = &bytes[..geo.inodes_per_group as usize / 8];
                let sum = geo.sums.check_inode_map((g, raw), map);
                let reserved = if g.0 == 0 { geo.first_ino - 1 } else { 0 };
                let len = geo.inodes_per_group;
                (flags & INODE_UNINIT, reserved.min(len), len, sum)
            }
        };
        let ends = (0..used as usize).chain(len as usize..bits).all(|bit| is_set(&bytes, bit));
        let has_sums = matches!(geo.sums, Sums::All(_));
        Ok(unwritten != 0 || has_sums && sum.is_ok() || ends)
    }

    /// Where the first group's inode table begins, by the root directory.
    fn find_table(&self, g: GroupNo) -> Result<Option<u64>, CheckError> {
        let geo = self.geo();
        if g.0 > 0 {
            return Ok(None);
        }
        let (start, len) = (geo.group_start(g).0 + u64::from(geo.overhead(g)), geo.group_blocks(g));
        let last = (geo.group_start(g).0 + u64::from(len))
            .saturating_sub(u64::from(geo.inode_table_blocks()));
        for table in start..=last {
            if self.is_table(table)? {
                return Ok(Some(table));
            }
        }
        Ok(None)
    }

    fn is_table(&self, table: u64) -> Result<bool, CheckError> {
        leads_to_root(&self.geo(), table, &|b| self.view.read(b))
    }
}

/// Would the root directory be where it is, if the first group's inode table began here?
pub(crate) fn leads_to_root(
    geo: &Geometry,
    table: u64,
    read: &dyn Fn(BlockNo) -> Result<Vec<u8>, CheckError>,
) -> Result<bool, CheckError> {
    let (n, at) = geo.ino_place(ROOT_INO);
    let bytes = read(BlockNo(table + u64::from(n)))?;
    let raw = &bytes[at..at + geo.inode_bytes];
    let i = InodeRef(raw);
    if !i.is_dir() || i.links() < 2 || i.dtime() != 0 {
        return Ok(false);
    }
    let sealed = || geo.sums.check_inode(ROOT_INO, raw).is_ok();
    if i.is_inline() {
        return Ok(sealed());
    }
    let map = i.map_bytes();
    let first = match (i.has_extents(), extents::head(&map, None)) {
        (true, Ok(h)) if h.depth == 0 && h.entries > 0 => extents::mapped(&map, 0).start,
        // Deeper trees are of roots that are large.
        (true, Ok(_)) => return Ok(sealed()),
        (true, Err(_)) => return Ok(false),
        (false, _) => BlockNo(u64::from(i.pointer(0))),
    };
    Ok(geo.has_block(first) && begins_as_directory(&read(first)?, ROOT_INO))
}

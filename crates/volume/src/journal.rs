//! Where a volume's journal lies: its inode's blocks in order, and its superblock. Reads only; what
//! a journal holds is the mechanisms' question.

use crate::VolumeError;
use check::ReadBlocks;
use format::ext::extents;
use format::ext::{Geometry, GroupDesc, Superblock};
use format::jbd2::device::{JournalDevice, has_user, users};
use format::jbd2::{JournalSuperblock, incompat, superblock as jsb};
use format::ufs::inode::InodeRef;
use format::ufs::map;
use format::{BlockNo, Extent, GroupNo, Ino};
use mechanisms::JournalReader;

/// No journal has more blocks; mke2fs makes none that has.
const BLOCKS_MAX: u64 = 10_240_000;
/// How many copies of a descriptor are asked.
const COPIES_ASKED: usize = 3;

/// A journal that was found.
#[derive(Clone, Debug)]
pub struct Journal {
    /// Its blocks in order.
    pub extents: Vec<Extent>,
    /// The blocks of its inode's map: indirect blocks, or nodes of a tree.
    pub nodes: Vec<BlockNo>,
    /// Is it on a device of its own?
    pub outside: bool,
    /// Which of its blocks is its superblock's.
    pub superblock_at: u32,
    /// That block.
    pub raw: Vec<u8>,
    /// What that says.
    pub superblock: JournalSuperblock,
}

fn bad(what: impl std::fmt::Display) -> VolumeError {
    VolumeError(format!("the journal cannot be used: {what}"))
}

impl Journal {
    /// Does it hold something?
    pub fn is_empty(&self) -> bool {
        self.superblock.start == 0
    }
    /// Does it stand for a log of byte ranges, in its blocks or elsewhere?
    pub fn is_redo(&self) -> bool {
        self.superblock.incompat & incompat::REDO != 0
    }
    /// May it hold fast commits, which only whoever wrote them replays?
    pub(crate) fn has_fast_commits(&self) -> bool {
        !self.is_empty() && self.superblock.incompat & incompat::FAST_COMMIT != 0
    }

    /// The volume's blocks that are its own and its map's, in no order: no other file's.
    pub(crate) fn blocks_inside(&self) -> Vec<Extent> {
        if self.outside {
            return Vec::new();
        }
        let nodes = self.nodes.iter().map(|b| Extent { start: *b, len: 1 });
        self.extents.iter().copied().chain(nodes).collect()
    }

    /// The place of a log of ours within it: everything behind its superblock.
    pub(crate) fn log_extents(&self) -> Vec<wal::LogExtent> {
        let bs = u64::from(self.superblock.block_bytes);
        let mut skip = 1;
        let mut all = Vec::new();
        for e in &self.extents {
            let n = e.len - skip;
            if n > 0 {
                all.push(wal::LogExtent { at: (e.start.0 + skip) * bs, len: n * bs });
            }
            skip = 0;
        }
        let said: u64 = all.iter().map(|e| e.len / bs).sum();
        let blocks: u64 = self.extents.iter().map(|e| e.len).sum();
        assert_eq!(said, blocks.saturating_sub(1), "G1: the log gets all blocks but the first");
        all
    }

    /// Its first block while a log of ours is in use: whoever does not know it keeps off.
    pub(crate) fn guard(&self) -> Vec<u8> {
        let mut raw = self.raw.clone();
        jsb::set_incompat(&mut raw, self.superblock.incompat | incompat::REDO);
        jsb::set_tail(&mut raw, self.superblock.first, self.superblock.sequence);
        let read = JournalSuperblock::decode(&raw).ok();
        let said = read.is_some_and(|s| s.incompat & incompat::REDO != 0);
        assert!(said, "G1: the guard of a log does not say that there is one");
        let holds = read.is_some_and(|s| s.start != 0);
        assert!(holds, "G1: the guard of a log says that there is nothing, which a check clears");
        raw
    }

    /// Its first block when that log is empty; `next`: the number of whoever's next transaction.
    /// Bytes that users chose lie in its blocks if the log was inside: then it is one that they
    /// cannot have known ([`format::jbd2::unforeseen`]).
    pub(crate) fn unguarded(&self, next: u32) -> Vec<u8> {
        let mut raw = self.raw.clone();
        jsb::set_tail(&mut raw, 0, next);
        jsb::set_incompat(&mut raw, self.superblock.incompat & !incompat::REDO);
        let is_empty = |s: JournalSuperblock| {
            s.start == 0 && s.sequence == next && s.incompat & incompat::REDO == 0
        };
        let said = JournalSuperblock::decode(&raw).is_ok_and(is_empty);
        assert!(said, "G3: a journal that is given up is not an empty one, with {next} to come");
        raw
    }

    /// Byte of the volume at which journal block `n` lies.
    pub fn byte_of(&self, n: u32) -> Option<u64> {
        let mut left = u64::from(n);
        for e in &self.extents {
            if left < e.len {
                return Some((e.start.0 + left) * u64::from(self.superblock.block_bytes));
            }
            left -= e.len;
        }
        None
    }

    /// What it holds, read.
    pub fn load(
        &self,
        device: &dyn ReadBlocks,
        volume_blocks: u64,
    ) -> Result<mechanisms::JournalReplay, VolumeError> {
        self.load_part(device, volume_blocks, (BlockNo(0), usize::MAX))
    }

    /// What it holds of the blocks from `from` on, as many as `memory_max` bytes are enough for.
    pub fn load_part(
        &self,
        device: &dyn ReadBlocks,
        volume_blocks: u64,
        (from, memory_max): (BlockNo, usize),
    ) -> Result<mechanisms::JournalReplay, VolumeError> {
        let read = |n: u32| {
            let lost =
                |what: String| format::FormatError::corrupt(what, format!("journal block {n}"));
            let at = self.byte_of(n).ok_or_else(|| lost("it lies outside".into()))?;
            let mut block = vec![0; self.superblock.block_bytes as usize];
            device.read_at(at, &mut block).map_err(|e| lost(e.to_string()))?;
            Ok(block)
        };
        let reader = JournalReader { superblock: self.superblock, volume_blocks, read: &read };
        mechanisms::JournalReplay::load_part(&reader, from, memory_max).map_err(|e| {
            VolumeError(format!(
                "the journal is damaged, nothing was replayed: {e}. e2fsck replays what is before \
                 the damage and repairs the rest; copy the volume first"
            ))
        })
    }
}

/// The volume's internal journal; None: it has none. Errors: one that cannot be used, and why.
pub(crate) fn find(
    device: &dyn ReadBlocks,
    sb: &Superblock,
) -> Result<Option<Journal>, VolumeError> {
    let Some(ino) = sb.journal_ino() else { return Ok(None) };
    let geo = Geometry::of(sb);
    let (block, offset) = inode_place(device, &geo, ino)?;
    let mut table = vec![0; geo.block_bytes];
    device.read_at(block.0 * geo.block_bytes as u64, &mut table)?;
    of_inode(device, &geo, &table[offset..offset + geo.inode_bytes]).map(Some)
}

/// The block that has the journal's inode, and where in it.
pub(crate) fn inode_place(
    device: &dyn ReadBlocks,
    geo: &Geometry,
    ino: Ino,
) -> Result<(BlockNo, usize), VolumeError> {
    if !geo.has_ino(ino) {
        return Err(bad(format!("its inode is said to be {ino}")));
    }
    let group = geo.group_of_ino(ino);
    let desc = group_desc(device, geo, group)?;
    // Only the table is asked for: what else is wrong of a descriptor a check mends afterwards.
    let (places, table) = (geo.places_of(group), desc.inode_table);
    let len = u64::from(geo.inode_table_blocks());
    if !places.contains(&table) || places.end - table < len {
        return Err(bad(format!("group {group}'s inode table is said to begin at block {table}")));
    }
    let (block, offset) = geo.ino_place(ino);
    Ok((BlockNo(desc.inode_table + u64::from(block)), offset))
}

/// The journal that this inode has. Errors: it cannot be used, and why.
pub(crate) fn of_inode(
    device: &dyn ReadBlocks,
    geo: &Geometry,
    raw: &[u8],
) -> Result<Journal, VolumeError> {
    let (inode, bs) = (InodeRef(raw), geo.block_bytes as u64);
    if !inode.is_file() {
        return Err(bad("its inode is not a file"));
    }
    let count = inode.size() / bs;
    let most = geo.blocks.min(BLOCKS_MAX);
    if count > most {
        return Err(bad(format!("its inode has {count} blocks, {most} are possible")));
    }
    let mut map = Map { device, geo, left: count, seen: 0, extents: Vec::new(), nodes: Vec::new() };
    if inode.has_extents() {
        map.walk_extents(&inode.map_bytes(), None)?;
    } else {
        for i in 0..15 {
            map.walk(BlockNo(u64::from(inode.pointer(i))), i.saturating_sub(11))?;
        }
    }
    if map.left > 0 {
        return Err(bad("its inode has holes"));
    }
    let Map { extents, nodes, .. } = map;
    let found: u64 = extents.iter().map(|e| e.len).sum();
    assert_eq!(found, count, "V2: a journal of {count} blocks lies in {found}");
    let beyond = extents.iter().find(|e| e.start.0 + e.len > geo.blocks);
    assert!(beyond.is_none(), "V2: {beyond:?} of the journal lies beyond {} blocks", geo.blocks);
    no_block_twice(&extents)?;
    no_block_of_the_volumes(device, geo, &extents)?;
    let first = extents.first().ok_or_else(|| bad("its inode is empty"))?.start;
    let mut raw = vec![0; geo.block_bytes];
    device.read_at(first.0 * bs, &mut raw)?;
    let superblock = JournalSuperblock::decode(&raw).map_err(bad)?;
    superblock.check(count, geo.block_bytes).map_err(bad)?;
    Ok(Journal { extents, nodes, outside: false, superblock_at: 0, raw, superblock })
}

/// A group's descriptor, or a copy of it where it cannot be right, as a check has it.
fn group_desc(
    device: &dyn ReadBlocks,
    geo: &Geometry,
    g: GroupNo,
) -> Result<GroupDesc, VolumeError> {
    let mut raw = vec![0; geo.desc_bytes];
    device.read_at(geo.desc_at(g), &mut raw)?;
    let own = GroupDesc::decode(&raw);
    if geo.check_desc(g, &own).is_ok() {
        return Ok(own);
    }
    let (n, offset) = (geo.desc_block_of(g), geo.desc_place(g).1 as u64);
    for block in geo.desc_copies(n).into_iter().take(COPIES_ASKED) {
        device.read_at(block.0 * geo.block_bytes as u64 + offset, &mut raw)?;
        let copy = GroupDesc::decode(&raw);
        if geo.sums.check_desc(g, &raw).is_ok() && geo.check_desc(g, &copy).is_ok() {
            return Ok(copy);
        }
    }
    Ok(own)
}

/// Is every block of the journal one of its own?
fn no_block_twice(extents: &[Extent]) -> Result<(), VolumeError> {
    let mut sorted: Vec<Extent> = extents.to_vec();
    sorted.sort_by_key(|e| e.start);
    match sorted.windows(2).find(|w| w[0].start.0 + w[0].len > w[1].start.0) {
        Some(w) => Err(bad(format!("its inode names block {} twice", w[1].start))),
        None => Ok(()),
    }
}

/// Are all of its blocks a file's? A journal that lies on a bitmap or an inode table would be
/// written over it.
fn no_block_of_the_volumes(
    device: &dyn ReadBlocks,
    geo: &Geometry,
    extents: &[Extent],
) -> Result<(), VolumeError> {
    for e in extents {
        let mut at = e.start;
        while at.0 < e.start.0 + e.len {
            let g = geo.group_of(at);
            let start = geo.group_start(g).0;
            let end = (e.start.0 + e.len).min(start + u64::from(geo.group_blocks(g)));
            let d = group_desc(device, geo, g)?;
            let table = u64::from(geo.inode_table_blocks());
            let own = [
                (start, u64::from(geo.overhead(g))),
                (d.block_bitmap, 1),
                (d.inode_bitmap, 1),
                (d.inode_table, table),
            ];
            // What a damaged descriptor says may be any number.
            if own.iter().any(|(b, n)| at.0 < b.saturating_add(*n) && *b < end) {
                return Err(bad(format!("it lies on the volume's own blocks in group {g}")));
            }
            at = BlockNo(end);
        }
    }
    Ok(())
}

/// The journal on a device of its own, of the volume with this superblock. Errors: there is no
/// journal there, or another volume's, or one that cannot be used.
pub(crate) fn find_outside(
    device: &dyn ReadBlocks,
    sb: &Superblock,
) -> Result<Journal, VolumeError> {
    let wrong = |what: String| VolumeError(format!("the journal's device cannot be used: {what}"));
    if device.size_bytes() < 4096 {
        return Err(wrong("it is too short for a journal".into()));
    }
    let mut start = [0; 4096];
    device.read_at(0, &mut start)?;
    let d = JournalDevice::decode(&start).map_err(|e| wrong(e.to_string()))?;
    let bs = sb.block_bytes();
    if d.block_bytes != bs {
        return Err(wrong(format!("blocks of {} bytes, the volume's have {bs}", d.block_bytes)));
    }
    if d.uuid != sb.journal_uuid() {
        let (has, wants) = (hex(&d.uuid), hex(&sb.journal_uuid()));
        return Err(wrong(format!("its UUID is {has}, the volume's journal has {wants}")));
    }
    let mut raw = vec![0; bs];
    device.read_at(d.superblock_at().0 * bs as u64, &mut raw)?;
    let superblock = JournalSuperblock::decode(&raw).map_err(bad)?;
    let blocks = u64::from(d.blocks).min(device.size_bytes() / bs as u64);
    superblock.check(blocks, bs).map_err(bad)?;
    if !has_user(&raw, &sb.uuid()) {
        return Err(wrong("it belongs to another volume".into()));
    }
    if users(&raw) > 1 {
        return Err(wrong("it is shared by several volumes, which is not supported".into()));
    }
    let superblock_at = d.superblock_at().0 as u32;
    if superblock.first <= superblock_at {
        return Err(bad(format!("its log begins at block {}", superblock.first)));
    }
    let extents = vec![Extent { start: BlockNo(0), len: u64::from(superblock.blocks) }];
    Ok(Journal { extents, nodes: Vec::new(), outside: true, superblock_at, raw, superblock })
}

fn hex(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|b| format!("{b:02x}")).collect()
}

/// A walk through an inode's map, in the order of the file.
struct Map<'a> {
    device: &'a dyn ReadBlocks,
    geo: &'a Geometry,
    /// Blocks still to come.
    left: u64,
    /// The file block that an extent tree comes to next.
    seen: u64,
    extents: Vec<Extent>,
    /// The blocks of the map itself.
    nodes: Vec<BlockNo>,
}

impl Map<'_> {
    fn walk(&mut self, b: BlockNo, level: usize) -> Result<(), VolumeError> {
        if self.left == 0 {
            return Ok(());
        }
        if b.0 == 0 || !self.geo.has_block(b) {
            return Err(bad(format!("its inode names block {b}")));
        }
        if level == 0 {
            self.left -= 1;
            match self.extents.last_mut() {
                Some(e) if e.start.0 + e.len == b.0 => e.len += 1,
                _ => self.extents.push(Extent { start: b, len: 1 }),
            }
            return Ok(());
        }
        self.nodes.push(b);
        let mut block = vec![0; self.geo.block_bytes];
        self.device.read_at(b.0 * self.geo.block_bytes as u64, &mut block)?;
        for below in map::pointers(&block) {
            self.walk(below, level - 1)?;
        }
        Ok(())
    }

    /// The same where the map is an extent tree; `depth`: of the node, if it is not the root.
    fn walk_extents(&mut self, node: &[u8], depth: Option<u16>) -> Result<(), VolumeError> {
        let h = extents::head(node, depth).map_err(bad)?;
        extents::check_entries(node, h).map_err(bad)?;
        if h.entries == 0 && depth.is_some() {
            return Err(bad("its inode has a node of extents without any"));
        }
        for i in 0..h.entries {
            if h.depth > 0 {
                let child = extents::child(node, i);
                if !self.geo.has_block(child) {
                    return Err(bad(format!("its inode names block {child}")));
                }
                self.nodes.push(child);
                let mut block = vec![0; self.geo.block_bytes];
                self.device.read_at(child.0 * self.geo.block_bytes as u64, &mut block)?;
                self.walk_extents(&block, Some(h.depth - 1))?;
                continue;
            }
            let m = extents::mapped(node, i);
            let len = u64::from(m.len).min(self.left);
            let last = m.start.0.saturating_add(u64::from(m.len) - 1);
            if !self.geo.has_block(m.start) || !self.geo.has_block(BlockNo(last)) {
                return Err(bad(format!("its inode names block {}", m.start)));
            }
            let gap = u64::from(m.first) != self.seen;
            if m.unwritten || gap {
                return Err(bad("its inode has holes"));
            }
            self.seen = m.end();
            self.left -= len;
            if len > 0 {
                self.extents.push(Extent { start: m.start, len });
            }
        }
        Ok(())
    }
}

//! Pass 1: every inode of every table. It claims the blocks that inodes map, remembers what each
//! inode is, and mends what can be judged by the inode alone; names are the next pass's.

use crate::CheckError;
use crate::extents;
use crate::finding::{Kind, Place};
use crate::inode::Verdict;
use crate::run::Check;
use crate::tables::{Dir, Info};
use crate::view::IMAGES;
use crate::walk::{Fault, Map, Then, walk};
use format::ext::features::incompat;
use format::ufs::dirent::kind_byte;
use format::ufs::inode::{CLASSIC_BYTES, FLAG_HUGE, FLAG_INDEX, FLAG_VALUE, InodeMut, InodeRef};
use format::ufs::map;
use format::{BlockNo, FileBlock, FormatError, GroupNo, Ino, JOURNAL_INO};

/// The inode of bad blocks.
pub(crate) const BAD_BLOCKS_INO: Ino = Ino(1);
/// The inode of a boot loader, which no kernel looks at.
pub(crate) const BOOT_LOADER_INO: Ino = Ino(5);
/// The inode of the blocks kept for the descriptors' growth.
pub(crate) const RESIZE_INO: Ino = Ino(7);
/// How much of an inode table is read at a time.
const RUN_BYTES: usize = 1 << 20;

/// A directory is no longer.
const DIR_BYTES_MOST: u64 = 1 << 31;
/// A directory is no longer where LARGE_DIR allows more.
const LARGE_DIR_BYTES_MOST: u64 = 1 << 32;
/// Blocks of a file that are listed: no journal, of which mke2fs makes none that is longer, and no
/// symbolic link needs more.
const LIST_MOST: usize = 10_240_000;

/// What is wrong, without its place.
pub(crate) fn what_of(e: &FormatError) -> String {
    match e {
        FormatError::Corrupt { what, .. } => what.clone(),
        e @ FormatError::Incompatible { .. } => e.to_string(),
    }
}

/// What a walk over an inode's map has found.
#[derive(Default)]
pub(crate) struct MapScan {
    /// Blocks held, indirect ones included.
    pub(crate) blocks: u64,
    /// One more than the last block of the file that is mapped.
    pub(crate) end: u64,
    illegal: u64,
    garbage: u64,
    beyond: u64,
    /// Of a directory: its blocks, by position, but for those that were claimed before.
    pub(crate) data: Vec<(u64, u64)>,
    /// Were some of them? All is looked at once more when each has one owner. So the lists of all
    /// directories together are no longer than the volume, whatever they share.
    pub(crate) shared: bool,
}

impl Check<'_> {
    /// Looks at every inode.
    pub(crate) fn check_inodes(&mut self) -> Result<(), CheckError> {
        let groups = u64::from(self.geo().groups);
        for some in self.parts_of_groups().chunks(self.parts_at_once()) {
            let mut learned = self.learn_inodes(some).into_iter();
            let mut all_taken = true;
            for part in some {
                let new = learned.next().flatten();
                // Behind something that was found all is looked at in order.
                all_taken = all_taken && new.is_some_and(|new| self.take_inodes(new));
                if !all_taken {
                    part.clone().try_for_each(|g| self.check_group(GroupNo(g)))?;
                }
                self.progress.step("inodes", u64::from(part.end), groups);
            }
        }
        self.check_features();
        Ok(())
    }

    /// Looks at a group's inodes.
    pub(crate) fn check_group(&mut self, g: GroupNo) -> Result<(), CheckError> {
        let geo = self.geo();
        let run = RUN_BYTES / geo.block_bytes;
        let per_block = geo.block_bytes / geo.inode_bytes;
        let table = BlockNo(self.frame.descs[g.0 as usize].inode_table);
        // What was never used need not be zero, and is nobody's.
        let used = self.frame.used_slots(g) as usize;
        let blocks = used.div_ceil(per_block);
        if self.view.known_zero(table, blocks as u64) {
            return Ok(());
        }
        let mut buf = std::mem::take(&mut self.run);
        buf.resize(RUN_BYTES, 0);
        for from in (0..blocks).step_by(run) {
            let count = run.min(blocks - from);
            let bytes = &mut buf[..count * geo.block_bytes];
            self.view.read_run(table.plus(from as u64), bytes)?;
            let first = from * geo.block_bytes / geo.inode_bytes;
            for (i, raw) in bytes.chunks_exact(geo.inode_bytes).enumerate() {
                let index = (first + i) as u32;
                if (index as usize) < used {
                    let ino = Ino(g.0 * geo.inodes_per_group + index + 1);
                    self.check_inode(ino, raw)?;
                }
            }
        }
        self.run = buf;
        Ok(())
    }

    /// One inode: judged, mended in the view, remembered.
    fn check_inode(&mut self, ino: Ino, old: &[u8]) -> Result<(), CheckError> {
        // A slot that was never used has none.
        let is_blank = old[..CLASSIC_BYTES].iter().all(|b| *b == 0);
        if !is_blank && let Err(e) = self.geo().sums.check_inode(ino, old) {
            self.found(Kind::Checksum, Place::Inode(ino), format!("{}; set", what_of(&e)));
            self.edit_inode(ino, |_| ())?;
        }
        if self.is_kept_empty(ino, old) {
            return self.check_kept_empty(ino, old);
        }
        // Most slots were never used.
        if InodeRef(old).links() == 0 && InodeRef(old).mode() == 0 && ino != BAD_BLOCKS_INO {
            return self.check_free_slot(ino, old);
        }
        let mut raw = old.to_vec();
        let in_use = self.chain.contains(&ino);
        if in_use {
            // As if it had its name still: where the chain goes on is no time of deletion.
            InodeMut(&mut raw).set_links(1);
            InodeMut(&mut raw).set_dtime(0);
        }
        match self.judge(ino, &mut raw)? {
            Verdict::Free => {}
            Verdict::Clear(why) => {
                self.found_losing(Kind::BadInode, Place::Inode(ino), format!("{why}; cleared"));
                self.clear_slot(ino, &mut raw);
            }
            Verdict::Used { mapped } => {
                let mut scan = MapScan::default();
                let is_inline = InodeRef(&raw).is_inline();
                let mapped = mapped && !is_inline;
                if mapped && InodeRef(&raw).has_extents() {
                    let limit = self.limit_of(ino, &raw);
                    match self.check_extents(ino, &mut raw, limit)? {
                        Some(found) => scan = found,
                        None => return self.clear_without_map(ino, &mut raw),
                    }
                } else if mapped {
                    scan = self.check_map(ino, &mut raw)?;
                }
                self.check_xattrs(ino, &mut raw, &mut scan)?;
                if is_inline {
                    self.check_inline(ino, &mut raw, &mut scan);
                }
                self.check_sizes(ino, &mut raw, &scan);
                self.check_journal_copy(ino, &raw);
                if !self.check_slow_symlink(ino, &mut raw, InodeRef(old).size())? {
                    self.release_blocks_of(ino, &raw)?;
                    self.clear_slot(ino, &mut raw);
                } else {
                    self.remember(ino, &raw, scan);
                }
            }
        }
        if in_use {
            InodeMut(&mut raw).set_links(0);
            InodeMut(&mut raw).set_dtime(InodeRef(old).dtime());
        }
        if raw != old {
            self.edit_inode(ino, |b| b.copy_from_slice(&raw))?;
        }
        Ok(())
    }

    /// An inode that says that it has an extent tree, and has none.
    fn clear_without_map(&mut self, ino: Ino, raw: &mut [u8]) -> Result<(), CheckError> {
        let text = "its extent tree has no root; cleared";
        self.found_losing(Kind::BadInode, Place::Inode(ino), text);
        self.clear_slot(ino, raw);
        self.edit_inode(ino, |b| b.copy_from_slice(raw))
    }

    /// The block of a file from which on what it has written is to go. What lies beyond the end of
    /// a file is, after a crash, the rest of a truncate or the start of a write; without a crash it
    /// is the size that is wrong. Of a directory it is kept, for names may be in it.
    pub(crate) fn limit_of(&self, ino: Ino, raw: &[u8]) -> u64 {
        let inode = InodeRef(raw);
        let cuts = self.crashed && inode.is_file() && !self.is_reserved(ino);
        if cuts { inode.size().div_ceil(self.geo().block_bytes as u64) } else { u64::MAX }
    }

    /// A reserved inode that nobody uses: all but its owner, times and generation must be zero.
    fn check_kept_empty(&mut self, ino: Ino, raw: &[u8]) -> Result<(), CheckError> {
        let fields = [0..2, 4..8, 20..24, 26..100, 104..120];
        if fields.into_iter().all(|f| raw[f].iter().all(|b| *b == 0)) {
            return Ok(());
        }
        let text = "a reserved inode of a feature that is off is in use; cleared";
        self.found(Kind::InodeField, Place::Inode(ino), text);
        self.edit_inode(ino, |b| b.fill(0))
    }

    /// A slot without links and mode: e2fsck wants no remains of a chain of orphans in it.
    fn check_free_slot(&mut self, ino: Ino, raw: &[u8]) -> Result<(), CheckError> {
        let dtime = InodeRef(raw).dtime();
        if dtime != 0 && dtime < self.geo().inodes() {
            self.found(
                Kind::DeletedInode,
                Place::Inode(ino),
                "an old link of the chain of orphans",
            );
            let now = self.options.now_secs;
            self.edit_inode(ino, |b| InodeMut(b).set_dtime(now))?;
        }
        Ok(())
    }

    /// Walks the map: clears what is illegal or beyond the end, claims the rest.
    pub(crate) fn check_map(&mut self, ino: Ino, raw: &mut [u8]) -> Result<MapScan, CheckError> {
        let geo = self.geo();
        let inode = InodeRef(raw);
        let is_dir = inode.is_dir();
        let limit = self.limit_of(ino, raw);
        let mut map: Map = std::array::from_fn(|i| inode.pointer(i));
        let before = map;
        let mut scan = MapScan::default();
        let most = self.dir_blocks_most();
        let (claims, twice) = (&mut self.claims, &mut self.twice);
        let bad_blocks = &mut self.bad_blocks;
        walk(&mut self.view, &self.frame, &mut map, &mut |p| {
            match p.fault {
                Some(Fault::Illegal) => scan.illegal += 1,
                Some(Fault::Garbage) => scan.garbage += 1,
                None if p.file_block.0 >= limit => scan.beyond += 1,
                // Filling so many holes would make a directory of nothing else.
                None if is_dir && p.file_block.0 > 2 * scan.blocks + 16 => scan.illegal += 1,
                // Nor can there be more; all would be listed.
                None if is_dir && (p.file_block.0 >= most || scan.blocks >= geo.blocks) => {
                    scan.illegal += 1;
                }
                None => {
                    scan.blocks += 1;
                    let shared = claims.claim(&geo, p.block);
                    if p.level == 0 {
                        scan.end = p.file_block.0 + 1;
                        if is_dir && !shared {
                            scan.data.push((p.file_block.0, p.block.0));
                        }
                    }
                    if ino == BAD_BLOCKS_INO {
                        bad_blocks.insert(p.block.0);
                    }
                    if shared {
                        scan.shared = true;
                        twice.claim(&geo, p.block);
                        // An indirect block met again may lead round in circles.
                        return if p.level > 0 { Then::Skip } else { Then::Follow };
                    }
                    return Then::Follow;
                }
            }
            Then::Clear
        })?;
        for (i, v) in map.iter().enumerate().filter(|(i, v)| before[*i] != **v) {
            InodeMut(raw).set_pointer(i, *v);
        }
        if scan.illegal + scan.garbage > 0 {
            let n = scan.illegal + scan.garbage;
            let text =
                format!("{n} pointers of its map lead where no file's block can be; cleared");
            self.found(Kind::BadPointer, Place::Inode(ino), text);
        }
        if scan.beyond > 0 {
            let text = format!("{} blocks are mapped beyond its end; freed", scan.beyond);
            self.found(Kind::BeyondEnd, Place::Inode(ino), text);
        }
        Ok(scan)
    }

    /// The most blocks that a directory may have.
    pub(crate) fn dir_blocks_most(&self) -> u64 {
        let large = self.sb.has_incompat(incompat::LARGE_DIR);
        let bytes = if large { LARGE_DIR_BYTES_MOST } else { DIR_BYTES_MOST };
        bytes / self.geo().block_bytes as u64
    }

    /// Size and i_blocks against what is mapped.
    fn check_sizes(&mut self, ino: Ino, raw: &mut [u8], scan: &MapScan) {
        let bs = self.geo().block_bytes as u64;
        let inode = InodeRef(raw);
        let (size, sectors, is_dir) = (inode.size(), self.sectors_of(raw), inode.is_dir());
        let most = self.most_bytes(inode.has_extents());
        if inode.is_inline() {
            // Its length has been looked at, or may be anything: the rest is zeros.
        } else if is_dir && size != scan.end * bs {
            let grown = scan.end * bs > size;
            let text = format!("the directory has {size} bytes, but {} blocks; set", scan.end);
            let kind = if grown { Kind::BeyondEnd } else { Kind::Size };
            self.found(kind, Place::Inode(ino), text);
            InodeMut(raw).set_size((scan.end * bs).min(u64::from(u32::MAX)));
        } else if inode.is_file() && scan.end > 0 && size < (scan.end - 1) * bs {
            let text = format!("{size} bytes, but {} blocks are mapped; set", scan.end);
            self.found(Kind::Size, Place::Inode(ino), text);
            InodeMut(raw).set_size(most.min(scan.end * bs));
        } else if inode.is_file() && size > most {
            let text = format!("{size} bytes are more than its map can hold; cut");
            self.found(Kind::Size, Place::Inode(ino), text);
            InodeMut(raw).set_size(most.min(scan.end * bs));
        }
        let held = scan.blocks * (bs / 512);
        if held != sectors {
            let text = format!("i_blocks is {sectors}, should be {held}; set");
            self.found(Kind::Sectors, Place::Inode(ino), text);
            self.set_sectors_of(raw, held);
        }
    }

    /// How long a file with a tree of extents, or without one, can be.
    pub(crate) fn most_bytes(&self, has_extents: bool) -> u64 {
        let bs = self.geo().block_bytes as u64;
        if has_extents { (bs << 32) - 1 } else { map::blocks_max(bs / 4) * bs - 1 }
    }

    /// `i_blocks` in units of 512 bytes.
    pub(crate) fn sectors_of(&self, raw: &[u8]) -> u64 {
        let inode = InodeRef(raw);
        match self.geo().huge_files {
            true => inode.sectors_wide(self.geo().block_bytes),
            false => u64::from(inode.sectors()),
        }
    }

    /// Sets it.
    pub(crate) fn set_sectors_of(&self, raw: &mut [u8], sectors: u64) {
        let geo = self.geo();
        if !geo.huge_files {
            InodeMut(raw).set_sectors(u32::try_from(sectors).unwrap_or(u32::MAX));
            return;
        }
        let counts_blocks = InodeRef(raw).flags() & FLAG_HUGE != 0;
        let unit = if counts_blocks { geo.block_bytes as u64 / 512 } else { 1 };
        InodeMut(raw).set_sectors_wide(sectors / unit);
        let again = self.sectors_of(raw);
        assert_eq!(again, sectors, "K8: the sectors of an inode are read as another number");
    }

    fn is_claimed(&self, b: BlockNo) -> bool {
        self.claims.is_claimed(&self.geo(), b)
    }

    fn remember(&mut self, ino: Ino, raw: &[u8], scan: MapScan) {
        let inode = InodeRef(raw);
        let kind = kind_byte(inode.mode());
        let empty = inode.is_file() && inode.size() == 0 && scan.blocks == 0;
        self.large_file |= inode.is_file() && inode.size() >= 1 << 31;
        if ino == BAD_BLOCKS_INO {
            return;
        }
        // The journal's, say, is nobody's value, whatever its flags.
        if inode.flags() & FLAG_VALUE != 0 && !self.is_reserved(ino) {
            self.values.holders.insert(ino);
        }
        *self.info_mut(ino) = Info { kind, empty, links: inode.links(), names: 0 };
        if !inode.is_dir() {
            return;
        }
        let first = self.dirs.blocks.len();
        // A look at each block of a directory.
        debug_assert!(
            scan.data.iter().all(|(_, b)| *b >= IMAGES || self.is_claimed(BlockNo(*b))),
            "K3: a block of directory {ino} is handed on, and nobody's"
        );
        for (at, block) in scan.data.into_iter().filter(|_| !scan.shared) {
            // Holes; the size has been set to what is mapped.
            while self.dirs.blocks.len() < first + at as usize {
                self.dirs.blocks.push(0);
            }
            let known = self.dirs.blocks.len() - first;
            assert_eq!(known as u64, at, "K4: of directory {ino} so many blocks are before {at}");
            self.dirs.blocks.push(block);
        }
        if self.dirs.blocks.len() == first {
            self.dirs.blocks.push(0);
        }
        let count = (self.dirs.blocks.len() - first) as u32;
        let indexed = inode.flags() & FLAG_INDEX != 0;
        let last = self.dirs.list.last().map(|d| d.ino);
        assert!(last < Some(ino.0), "K4: directory {ino} comes behind {last:?}");
        self.dirs.list.push(Dir { ino: ino.0, first, count, indexed, ..Dir::default() });
    }

    /// Is it the journal's inode of a volume that has one inside?
    pub(crate) fn is_journal(&self, ino: Ino) -> bool {
        ino == JOURNAL_INO && self.sb.journal_ino() == Some(ino)
    }

    /// The blocks of a file from the view, by position, as far as its map is sound.
    pub(crate) fn blocks_of(
        &mut self,
        ino: Ino,
        raw: &[u8],
    ) -> Result<Vec<(FileBlock, BlockNo)>, CheckError> {
        if InodeRef(raw).has_extents() {
            let tree = extents::read(&self.view, &self.frame, raw, ino)?;
            let each = tree.extents.iter().flat_map(|m| {
                (0..m.len).map(|n| (FileBlock(u64::from(m.first + n)), m.start.plus(u64::from(n))))
            });
            return Ok(each.take(LIST_MOST).collect());
        }
        let mut map: Map = std::array::from_fn(|i| InodeRef(raw).pointer(i));
        let mut all = Vec::new();
        walk(&mut self.view, &self.frame, &mut map, &mut |p| {
            if p.fault.is_some() {
                return Then::Skip;
            }
            if p.level == 0 {
                all.push((p.file_block, p.block));
            }
            // A map that leads in circles must end.
            if all.len() > LIST_MOST { Then::Skip } else { Then::Follow }
        })?;
        Ok(all)
    }
}

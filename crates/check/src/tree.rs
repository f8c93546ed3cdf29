//! Extent trees made by the repair: of a damaged one anew, of what lost+found or a directory grows
//! by, of a file with blocks that it shared. A new tree lies in new blocks, which are written
//! before the inode that leads to them.

use crate::CheckError;
use crate::extents::{self, Tree};
use crate::finding::{Kind, Place};
use crate::pass1::MapScan;
use crate::run::Check;
use format::ext::extents::{DEPTH_MAX, Head, Mapped, max_entries, set_head, set_index, set_mapped};
use format::ufs::inode::{BLOCK_AT, InodeRef};
use format::{BlockNo, FileBlock, Ino};

/// The root, and the entries in it.
const ROOT_BYTES: usize = 60;
const ROOT_ENTRIES: usize = 4;
/// Nodes that are made anew at most, for they are kept in memory: of inodes that share theirs there
/// may be any number.
const NODES_MOST: usize = 1 << 17;

impl Check<'_> {
    /// Reads an inode's extent tree, claims what it holds, and mends it: at once where what is left
    /// fits into the inode, else when all inodes have been seen and it is known what is free. None:
    /// there is no tree.
    pub(crate) fn check_extents(
        &mut self,
        ino: Ino,
        raw: &mut [u8],
        limit: u64,
    ) -> Result<Option<MapScan>, CheckError> {
        let mut tree = extents::read(&self.view, &self.frame, raw, ino)?;
        if tree.no_root {
            return Ok(None);
        }
        let is_dir = InodeRef(raw).is_dir();
        let beyond = tree.cut_written(limit);
        let sound = tree.is_sound();
        let mut changed = !sound || beyond > 0;
        if is_dir {
            let (unwritten, far) = self.mend_dir_extents(&mut tree);
            self.tell_dir_extents(ino, (unwritten, far));
            changed |= unwritten + far > 0;
        }
        if !sound {
            let text = format!(
                "its extent tree has {} entries that cannot be and {} nodes that are none, or is \
                 not in order; made anew of the others",
                tree.illegal, tree.garbage
            );
            self.found(Kind::BadPointer, Place::Inode(ino), text);
        }
        if beyond > 0 {
            let text = format!("{beyond} blocks are mapped beyond its end; freed");
            self.found(Kind::BeyondEnd, Place::Inode(ino), text);
        }
        for b in tree.sums.clone() {
            let text = format!("its extent block {b} has a wrong checksum; set");
            self.found(Kind::Checksum, Place::Inode(ino), text);
            self.seal_extents(ino, raw, b)?;
        }
        if changed {
            tree.nodes.clear();
            self.old_nodes.append(&mut tree.met);
            if !put_root(raw, &joined(&tree.extents)) {
                self.to_rebuild.insert(ino.0);
            }
        }
        Ok(Some(self.claim_tree(&tree, is_dir)))
    }

    /// A directory's blocks are all written, and not far apart: filling such holes would make a
    /// directory of nothing else. Nor are there more than there can be, which would all be listed.
    /// Returns how many were unwritten, and how many are gone.
    fn mend_dir_extents(&self, tree: &mut Tree) -> (usize, usize) {
        let unwritten = tree.extents.iter().filter(|m| m.unwritten).count();
        tree.extents.iter_mut().for_each(|m| m.unwritten = false);
        let (mut blocks, all) = (0u64, tree.extents.len());
        let (most, volume) = (self.dir_blocks_most(), self.geo().blocks);
        tree.extents.retain(|m| {
            let near = u64::from(m.first) <= 2 * blocks + 16
                && m.end() <= most
                && blocks + u64::from(m.len) <= volume;
            blocks += if near { u64::from(m.len) } else { 0 };
            near
        });
        (unwritten, all - tree.extents.len())
    }

    fn tell_dir_extents(&mut self, ino: Ino, (unwritten, far): (usize, usize)) {
        if unwritten > 0 {
            let text =
                format!("{unwritten} extents of the directory are unwritten; taken as written");
            self.found(Kind::BadPointer, Place::Inode(ino), text);
        }
        if far > 0 {
            let text = format!(
                "{far} extents of the directory lie far behind its others, or are too many; cleared"
            );
            self.found(Kind::BadPointer, Place::Inode(ino), text);
        }
    }

    fn claim_tree(&mut self, tree: &Tree, is_dir: bool) -> MapScan {
        let geo = self.geo();
        let mut scan = MapScan::default();
        scan.blocks = tree.blocks();
        for m in &tree.extents {
            if is_dir || !m.unwritten {
                scan.end = m.end();
            }
            for n in 0..m.len {
                let b = m.start.plus(u64::from(n));
                let shared = self.claims.claim(&geo, b);
                if shared {
                    self.twice.claim(&geo, b);
                    scan.shared = true;
                } else if is_dir {
                    scan.data.push((u64::from(m.first + n), b.0));
                }
            }
        }
        for b in &tree.nodes {
            if self.claims.claim(&geo, *b) {
                self.twice.claim(&geo, *b);
            }
        }
        scan
    }

    fn seal_extents(&mut self, ino: Ino, raw: &[u8], b: BlockNo) -> Result<(), CheckError> {
        let seed = self.geo().sums.of_inode(ino, InodeRef(raw).generation());
        let sealed = self.view.edit(b, |node| {
            seed.is_none_or(|s| {
                s.seal_extents(node);
                s.check_extents(b, node).is_ok()
            })
        })?;
        assert!(sealed, "K8: extent block {b} of inode {ino} is written unsealed");
        Ok(())
    }

    /// Makes the trees anew that could not be mended in their inodes. All that files hold is
    /// claimed.
    pub(crate) fn rebuild_trees(&mut self) -> Result<(), CheckError> {
        for n in std::mem::take(&mut self.to_rebuild) {
            // Read once more: what many inodes share would take the memory of all of them.
            let mut raw = self.raw_inode(Ino(n))?;
            let mut tree = extents::read(&self.view, &self.frame, &raw, Ino(n))?;
            tree.cut_written(self.limit_of(Ino(n), &raw));
            if InodeRef(&raw).is_dir() {
                self.mend_dir_extents(&mut tree);
            }
            if self.put_tree(Ino(n), &mut raw, &tree.extents).is_some() {
                self.edit_inode(Ino(n), |b| b.copy_from_slice(&raw))?;
            }
        }
        Ok(())
    }

    /// Gives the inode a tree of these extents, which are in order; returns how many blocks it took
    /// for nodes. None, and a finding: there is no room.
    pub(crate) fn put_tree(&mut self, ino: Ino, raw: &mut [u8], all: &[Mapped]) -> Option<u64> {
        let all = joined(all);
        if put_root(raw, &all) {
            return Some(0);
        }
        let bs = self.geo().block_bytes;
        let seed = self.geo().sums.of_inode(ino, InodeRef(raw).generation());
        let (mut nodes, mut depth) = (0, 0);
        let mut level: Vec<(u32, BlockNo)> = Vec::new();
        for some in all.chunks(max_entries(bs)) {
            let mut node = new_node(bs, some.len(), 0);
            some.iter().enumerate().for_each(|(i, m)| set_mapped(&mut node, i, m));
            level.push((some[0].first, self.put_node(node, seed)?));
            nodes += 1;
        }
        while level.len() > ROOT_ENTRIES {
            depth += 1;
            let mut above = Vec::new();
            for some in level.chunks(max_entries(bs)) {
                let mut node = new_node(bs, some.len(), depth);
                some.iter().enumerate().for_each(|(i, (f, b))| set_index(&mut node, i, *f, *b));
                above.push((some[0].0, self.put_node(node, seed)?));
                nodes += 1;
            }
            level = above;
        }
        let root = &mut raw[BLOCK_AT..BLOCK_AT + ROOT_BYTES];
        root.fill(0);
        let in_root = level.len();
        assert!((1..=ROOT_ENTRIES).contains(&in_root), "K6: {in_root} nodes below a root");
        assert!(depth < DEPTH_MAX, "K6: a tree of {} extents is {depth} deep", all.len());
        set_head(root, Head { entries: level.len(), max: ROOT_ENTRIES, depth: depth + 1 });
        level.iter().enumerate().for_each(|(i, (f, b))| set_index(root, i, *f, *b));
        debug_assert!(self.is_tree_of(ino, raw, &all), "K6: the new tree of inode {ino} differs");
        Some(nodes)
    }

    /// Is this what the inode's tree, read again, maps?
    fn is_tree_of(&self, ino: Ino, raw: &[u8], all: &[Mapped]) -> bool {
        let read = extents::read(&self.view, &self.frame, raw, ino);
        // What the device cannot read is no fault of the tree.
        read.map_or(true, |tree| tree.is_sound() && joined(&tree.extents) == all)
    }

    fn put_node(
        &mut self,
        mut node: Vec<u8>,
        seed: Option<format::ext::csum::InodeSeed>,
    ) -> Option<BlockNo> {
        if self.nodes_made == NODES_MOST {
            let text = "the repair would make more nodes of extent trees than it has memory for";
            self.found(Kind::NoRoom, Place::Volume, text);
        }
        self.nodes_made += 1;
        let b = (self.nodes_made <= NODES_MOST).then(|| self.alloc_block()).flatten()?;
        seed.iter().for_each(|s| s.seal_extents(&mut node));
        self.view.put_fresh(b, node);
        Some(b)
    }

    /// Maps one block more in an inode with an extent tree; returns by how many blocks it holds
    /// more than before. None: there is no room.
    pub(crate) fn map_in_tree(
        &mut self,
        ino: Ino,
        raw: &mut [u8],
        (at, block): (FileBlock, BlockNo),
    ) -> Result<Option<i64>, CheckError> {
        let mut tree = extents::read(&self.view, &self.frame, raw, ino)?;
        let place = tree.extents.partition_point(|m| u64::from(m.first) < at.0);
        let there = &tree.extents[place.saturating_sub(1)..(place + 1).min(tree.extents.len())];
        if there.iter().any(|m| (u64::from(m.first)..m.end()).contains(&at.0)) {
            return Ok(None); // it is mapped, and shared with others still
        }
        let one = Mapped { first: at.0 as u32, len: 1, start: block, unwritten: false };
        tree.extents.insert(place, one);
        let before = tree.nodes.len() as i64;
        let Some(nodes) = self.put_tree(ino, raw, &tree.extents) else { return Ok(None) };
        let geo = self.geo();
        tree.nodes.iter().for_each(|b| self.claims.release(&geo, *b));
        Ok(Some(1 + nodes as i64 - before))
    }
}

fn new_node(bytes: usize, entries: usize, depth: u16) -> Vec<u8> {
    let mut node = vec![0; bytes];
    set_head(&mut node, Head { entries, max: max_entries(bytes), depth });
    node
}

/// Puts these extents into the inode, if they fit.
pub(crate) fn put_root(raw: &mut [u8], all: &[Mapped]) -> bool {
    let in_order = all.windows(2).all(|w| w[0].end() <= u64::from(w[1].first));
    assert!(in_order, "K6: extents lie over one another, or are not in order");
    if all.len() > ROOT_ENTRIES {
        return false;
    }
    let root = &mut raw[BLOCK_AT..BLOCK_AT + ROOT_BYTES];
    root.fill(0);
    set_head(root, Head { entries: all.len(), max: ROOT_ENTRIES, depth: 0 });
    all.iter().enumerate().for_each(|(i, m)| set_mapped(root, i, m));
    true
}

/// The same with neighbours joined.
pub(crate) fn joined(all: &[Mapped]) -> Vec<Mapped> {
    let mut out: Vec<Mapped> = Vec::with_capacity(all.len());
    for m in all {
        match out.last_mut() {
            Some(last)
                if last.end() == u64::from(m.first)
                    && last.start.plus(u64::from(last.len)) == m.start
                    && last.unwritten == m.unwritten
                    && last.len + m.len <= m.len_max() =>
            {
                last.len += m.len;
            }
            _ => out.push(*m),
        }
    }
    let blocks = |all: &[Mapped]| all.iter().map(|m| u64::from(m.len)).sum::<u64>();
    let (has, had) = (blocks(&out), blocks(all));
    assert_eq!(has, had, "K6: neighbours that are joined map as many blocks as before");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined_and_others_are_not() {
        let m =
            |first, len, start, unwritten| Mapped { first, len, start: BlockNo(start), unwritten };
        let all = [m(0, 2, 50, false), m(2, 3, 52, false), m(5, 1, 55, true), m(9, 1, 59, true)];
        assert_eq!(joined(&all), [m(0, 5, 50, false), m(5, 1, 55, true), m(9, 1, 59, true)]);
        let long = [m(0, 32_000, 1, true), m(32_000, 1000, 32_001, true)];
        assert_eq!(joined(&long), long);
    }
}

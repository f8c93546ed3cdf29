//! Finding a file's blocks in an extent tree: from the root in the inode through index nodes to a
//! leaf. Nodes are checked once after they were read, what they map each time; nothing is changed.

use crate::Ext;
use cache::{Buf, BufKind, Role};
use format::ext::extents::{self, BLOCKS_MAX, Mapped};
use format::ufs::inode::InodeRef;
use format::{BlockNo, FileBlock, FormatError, Ino};
use std::ops::Range;
use ufs::InodeHandle;
use vfs::FsError;

/// What lies at a file block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spot {
    /// An extent, from that block on.
    Mapped(Mapped),
    /// Nothing, for so many blocks.
    Hole(u64),
}

/// A node as the one above has it.
#[derive(Clone)]
pub(crate) struct Below {
    pub(crate) block: BlockNo,
    pub(crate) depth: u16,
    /// The file blocks that may be mapped there, the first of which is.
    pub(crate) range: Range<u64>,
}

/// Where a look into a node leads.
enum Step {
    Here(Spot),
    Down(Below),
}

/// Looks for file block `at` in a node that has been checked; `bound`: the first file block that is
/// mapped elsewhere.
fn look(node: &[u8], at: u64, bound: u64) -> Result<Step, String> {
    let h = extents::head(node, None)?;
    let found = extents::find(node, h.entries, at);
    let next = found.map_or(0, |i| i + 1);
    let bound = match next < h.entries {
        true => bound.min(u64::from(extents::first_of(node, next))),
        false => bound,
    };
    let hole = Step::Here(Spot::Hole(bound.saturating_sub(at).max(1)));
    let Some(i) = found else { return Ok(hole) };
    if h.depth > 0 {
        let range = u64::from(extents::first_of(node, i))..bound;
        let (block, depth) = (extents::child(node, i), h.depth - 1);
        return Ok(Step::Down(Below { block, depth, range }));
    }
    let mut m = extents::mapped(node, i);
    if at >= m.end() {
        return Ok(hole);
    }
    let skip = (at - u64::from(m.first)) as u32;
    assert!(skip < m.len, "M6: nothing is left of {m:?} at {at}");
    m.first += skip;
    m.len -= skip;
    m.start = m.start.plus(u64::from(skip));
    Ok(Step::Here(Spot::Mapped(m)))
}

impl Ext {
    /// What the checksums of the inode's blocks begin with.
    pub(crate) fn seed_of(&self, h: &InodeHandle) -> Option<format::ext::csum::InodeSeed> {
        self.geo.sums.of_inode(h.ino, h.with(|raw| InodeRef(raw).generation()))
    }

    fn bad_tree(&self, ino: Ino, what: String) -> FsError {
        self.damage(&FormatError::corrupt(what, format!("inode {ino}")))
    }

    /// A node of the inode's tree that is a block, checked when it comes in.
    pub(crate) async fn extent_node(&self, h: &InodeHandle, below: &Below) -> Result<Buf, FsError> {
        self.check_pointer(h.ino, below.block, "a node of its extents")?;
        let read = self.cache.get(below.block, BufKind::Meta).await;
        let buf = read.map_err(|e| self.unreadable(&e))?;
        buf.set_owner(h.ino);
        self.mark(&buf, Role::Extents(self.generation(h)));
        self.check_node(h, &buf, below)?;
        Ok(buf)
    }

    fn check_node(&self, h: &InodeHandle, buf: &Buf, below: &Below) -> Result<(), FsError> {
        // Depth and range depend on who points at the node, so that they are compared each time.
        let bad = |what: String| self.bad_tree(h.ino, what);
        let head = extents::head(&buf.bytes(), Some(below.depth)).map_err(bad)?;
        if !buf.is_checked(0) {
            let checked = extents::check_entries(&buf.bytes(), head).and_then(|()| {
                self.seed_of(h).map_or(Ok(()), |s| s.check_extents(buf.block(), &buf.bytes()))
            });
            checked.map_err(|e| self.damage(&e))?;
            buf.set_checked(0);
        }
        extents::check_range(&buf.bytes(), head, &below.range).map_err(bad)
    }

    fn check_spot(&self, ino: Ino, spot: Spot) -> Result<Spot, FsError> {
        if let Spot::Mapped(m) = spot
            && self.meets_system(m.start, u64::from(m.len))
        {
            let what = format!("its block {} is said to be block {}", m.first, m.start);
            return Err(self.bad_tree(ino, format!("{what}, and {} more", m.len - 1)));
        }
        Ok(spot)
    }

    /// What lies at file block `at`.
    pub(crate) async fn spot(&self, h: &InodeHandle, at: FileBlock) -> Result<Spot, FsError> {
        let mut step = h.with(|raw| look(&InodeRef(raw).map_bytes(), at.0, BLOCKS_MAX));
        loop {
            match step.map_err(|what| self.bad_tree(h.ino, what))? {
                Step::Here(spot) => return self.check_spot(h.ino, spot),
                Step::Down(below) => {
                    let node = self.extent_node(h, &below).await?;
                    step = look(&node.bytes(), at.0, below.range.end);
                }
            }
        }
    }

    /// The same if every node is in memory.
    pub(crate) fn spot_cached(&self, h: &InodeHandle, at: FileBlock) -> Option<Spot> {
        let mut step = h.with(|raw| look(&InodeRef(raw).map_bytes(), at.0, BLOCKS_MAX)).ok()?;
        loop {
            match step {
                Step::Here(spot) => return self.check_spot(h.ino, spot).ok(),
                Step::Down(below) => {
                    if self.meets_system(below.block, 1) {
                        return None; // the slow way reports it
                    }
                    let node = self.cache.get_cached(below.block)?;
                    self.check_node(h, &node, &below).ok()?;
                    step = look(&node.bytes(), at.0, below.range.end).ok()?;
                }
            }
        }
    }
}

//! Reading all that files hold, to learn what cannot be read any more and whose it is. Checksums of
//! metadata are the passes' business; contents have none, but a device that has lost them says so
//! when they are read.

use crate::finding::Place;
use crate::io::{Progress, ReadBlocks};
use crate::locate::locate;
use crate::run::Check;
use crate::walk::{Map, Then, walk};
use crate::{CheckError, Options, dirblock, extents};
use format::ext::csum::entries_part;
use format::ufs::inode::InodeRef;
use format::{BlockNo, Extent, GroupNo, Ino, ROOT_INO, shown};
use std::collections::{BTreeMap, BTreeSet};

/// How much is read at a time.
const RUN_BYTES: usize = 1 << 20;
/// Directories above one another are no more than that.
const DEPTH_MAX: usize = 4096;

/// A file with blocks that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The inode.
    pub ino: Ino,
    /// Its names; none for what no directory names, as the journal.
    pub names: Vec<String>,
    /// How many of its blocks cannot be read.
    pub blocks: u64,
    /// Of those the first, as a byte of the volume; None: its map cannot be read.
    pub at: u64,
    /// What the device said.
    pub why: String,
}

/// What reading everything has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Inodes with blocks that were read.
    pub files: u64,
    /// Bytes that were read of them.
    pub bytes: u64,
    /// What could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// Reads every block that an inode of the volume has. Errors: it is no volume, or its group
/// descriptors or inode tables cannot be read.
pub fn read_contents<'a>(
    image: &'a dyn ReadBlocks,
    progress: &'a mut dyn Progress,
) -> Result<Contents, CheckError> {
    let located = locate(image)?;
    let options = Options { now_secs: 0, verify: false, mark_clean: false };
    let mut c = Check::new(image, &options, located, progress);
    c.check_descs()?;
    let mut out = Contents::default();
    let mut bad: BTreeMap<u32, Unreadable> = BTreeMap::new();
    let total = u64::from(c.geo().groups);
    for g in (0..c.geo().groups).map(GroupNo) {
        c.progress.step("contents", u64::from(g.0), total);
        for (ino, raw) in c.inodes_of(g)? {
            c.read_inode(ino, &raw, (&mut out, &mut bad));
        }
    }
    c.progress.step("contents", total, total);
    if !bad.is_empty() {
        c.name(&mut bad)?;
    }
    out.unreadable = bad.into_values().collect();
    Ok(out)
}

impl Check<'_> {
    /// The inodes in use of a group's table.
    fn inodes_of(&self, g: GroupNo) -> Result<Vec<(Ino, Vec<u8>)>, CheckError> {
        let geo = self.geo();
        let used = self.frame.used_slots(g) as usize;
        let table = BlockNo(self.frame.descs[g.0 as usize].inode_table);
        let blocks = (used * geo.inode_bytes).div_ceil(geo.block_bytes);
        if used == 0 || self.view.known_zero(table, blocks as u64) {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; blocks * geo.block_bytes];
        self.view.read_run(table, &mut bytes)?;
        let slots = bytes.chunks_exact(geo.inode_bytes).take(used).enumerate();
        let in_use =
            slots.filter(|(_, raw)| InodeRef(raw).mode() != 0 && InodeRef(raw).links() > 0);
        let number = |i: usize| Ino(g.0 * geo.inodes_per_group + i as u32 + 1);
        Ok(in_use.map(|(i, raw)| (number(i), raw.to_vec())).collect())
    }

    /// Reads what an inode holds.
    fn read_inode(
        &mut self,
        ino: Ino,
        raw: &[u8],
        (out, bad): (&mut Contents, &mut BTreeMap<u32, Unreadable>),
    ) {
        let bs = self.geo().block_bytes as u64;
        let mut note = |at: u64, why: String| {
            let new = || Unreadable { ino, names: Vec::new(), blocks: 0, at, why };
            bad.entry(ino.0).or_insert_with(new).blocks += 1;
        };
        let runs = match self.runs_of(ino, raw) {
            Ok(runs) => runs,
            Err(CheckError::Io(e)) => return note(e.at, e.what),
            Err(e) => return note(0, e.to_string()),
        };
        out.files += u64::from(!runs.is_empty());
        let mut buf = vec![0; RUN_BYTES];
        for run in runs {
            let (mut b, end) = (run.start.0, run.start.0 + run.len);
            while b < end {
                let n = (end - b).min(RUN_BYTES as u64 / bs);
                let into = &mut buf[..(n * bs) as usize];
                if self.view.read_run(BlockNo(b), into).is_err() {
                    // One by one: the others of them may be read.
                    for (b, into) in (b..b + n).zip(into.chunks_mut(bs as usize)) {
                        if let Err(CheckError::Io(e)) = self.view.read_run(BlockNo(b), into) {
                            note(b * bs, e.what);
                        }
                    }
                }
                out.bytes += n * bs;
                b += n;
            }
        }
    }

    /// The blocks of an inode, its map's included, in runs. What was never written is no content.
    fn runs_of(&mut self, ino: Ino, raw: &[u8]) -> Result<Vec<Extent>, CheckError> {
        let inode = InodeRef(raw);
        let mut runs: Vec<Extent> = Vec::new();
        let xattr = self.xattr_block_of(raw);
        if xattr.0 != 0 && self.frame.may_hold(xattr) {
            runs.push(Extent { start: xattr, len: 1 });
        }
        let slow = inode.is_symlink() && !crate::inode::is_fast(raw);
        if inode.is_inline() || !(inode.is_file() || inode.is_dir() || slow) {
            return Ok(runs);
        }
        if inode.has_extents() {
            let tree = extents::read(&self.view, &self.frame, raw, ino)?;
            let written = tree.extents.iter().filter(|m| !m.unwritten);
            runs.extend(written.map(|m| Extent { start: m.start, len: u64::from(m.len) }));
            return Ok(runs);
        }
        let mut map: Map = std::array::from_fn(|i| inode.pointer(i));
        // One that leads to itself would lead there without end.
        let mut indirect: BTreeSet<u64> = BTreeSet::new();
        walk(&mut self.view, &self.frame, &mut map, &mut |p| {
            match runs.last_mut() {
                _ if p.fault.is_some() => return Then::Skip,
                _ if p.level > 0 && !indirect.insert(p.block.0) => return Then::Skip,
                Some(last) if last.start.0 + last.len == p.block.0 => last.len += 1,
                _ => runs.push(Extent { start: p.block, len: 1 }),
            }
            Then::Follow
        })?;
        Ok(runs)
    }

    /// Finds the names of these inodes, by going through all directories.
    fn name(&mut self, bad: &mut BTreeMap<u32, Unreadable>) -> Result<(), CheckError> {
        let total = u64::from(self.geo().groups);
        // Of each directory the one it is in, and its name there; and the names that are asked for.
        let mut above: BTreeMap<u32, (u32, Vec<u8>)> = BTreeMap::new();
        let mut names: Vec<(u32, u32, Vec<u8>)> = Vec::new();
        for g in (0..self.geo().groups).map(GroupNo) {
            self.progress.step("names", u64::from(g.0), total);
            for (dir, raw) in self.inodes_of(g)? {
                if !InodeRef(&raw).is_dir() {
                    continue;
                }
                for (ino, is_dir, name) in self.entries_of(dir, &raw) {
                    if bad.contains_key(&ino) {
                        names.push((ino, dir.0, name.clone()));
                    }
                    if is_dir {
                        above.insert(ino, (dir.0, name));
                    }
                }
            }
        }
        self.progress.step("names", total, total);
        for (ino, dir, name) in names {
            let path = path_of(&above, dir, &name);
            bad.entry(ino).and_modify(|u| u.names.push(path));
        }
        for (ino, text) in [(ROOT_INO, "/"), (format::JOURNAL_INO, "the journal")] {
            bad.entry(ino.0).and_modify(|u| u.names.push(text.into()));
        }
        Ok(())
    }

    /// The entries of a directory that can be read: inode, whether it is said to be a directory,
    /// name.
    fn entries_of(&mut self, dir: Ino, raw: &[u8]) -> Vec<(u32, bool, Vec<u8>)> {
        let (bs, tail) = (self.geo().block_bytes, self.geo().sums.dir_tail());
        let mut all = Vec::new();
        let runs = self.runs_of(dir, raw).unwrap_or_default();
        let xattr = self.xattr_block_of(raw);
        let blocks = runs.into_iter().flat_map(|r| r.start.0..r.start.0 + r.len).map(BlockNo);
        let blocks = blocks.filter(|b| *b != xattr).filter_map(|b| self.view.read(b).ok());
        for block in blocks.chain(self.inline_image(dir, raw)) {
            let part = entries_part(&block[..bs], tail);
            // An indirect block is no chain of entries.
            for e in dirblock::chain(part).unwrap_or_default() {
                let name = e.name(part);
                if e.ino != 0 && name != b"." && name != b".." && !name.is_empty() {
                    all.push((e.ino, e.kind == 2 || e.kind == 0, name.to_vec()));
                }
            }
        }
        all
    }
}

/// The path to a name in a directory.
fn path_of(above: &BTreeMap<u32, (u32, Vec<u8>)>, dir: u32, name: &[u8]) -> String {
    let (mut parts, mut at) = (vec![shown(name)], dir);
    let mut seen = BTreeSet::new();
    while at != ROOT_INO.0 && parts.len() < DEPTH_MAX && seen.insert(at) {
        match above.get(&at) {
            Some((dir, name)) => {
                parts.push(shown(name));
                at = *dir;
            }
            None => {
                parts.push(Place::Inode(Ino(at)).to_string());
                break;
            }
        }
    }
    parts.reverse();
    format!("/{}", parts.join("/"))
}

//! Pass 3: does every directory hang below the root, by one name, and does its ".." lead to where
//! that name is? Directories without a name go to lost+found, empty ones are freed.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::run::Check;
use crate::tables::At;
use format::bytes::{le32, set32};
use format::{BlockNo, Ino, ROOT_INO};
use std::collections::BTreeSet;

/// Where ".." stands in a directory's first block.
const DOTDOT_AT: usize = 12;

impl Check<'_> {
    /// Connects every directory with the root.
    pub(crate) fn check_connections(&mut self) -> Result<(), CheckError> {
        self.check_root()?;
        self.settle_two_names()?;
        let tops = self.cut_circles()?;
        for top in tops {
            let i = self.dirs.find(top).expect("a directory of the list");
            if self.dirs.list[i].empty {
                let text = "an empty directory without a name; freed";
                self.found(Kind::Unconnected, Place::Inode(top), text);
                self.free_inode(top)?;
                self.dirs.list.remove(i);
                continue;
            }
            let text = "a directory without a name; moved to lost+found";
            self.found(Kind::Unconnected, Place::Inode(top), text);
            self.attach(top)?;
        }
        self.check_dotdots()?;
        // The way up from each.
        debug_assert!(self.hang_below_root(), "K4: a directory is inside itself");
        // Each name is read once more.
        debug_assert!(self.are_named(), "K4: a directory is not named where it is said to be");
        Ok(())
    }

    /// Is each directory named by the entry that is remembered of it? What the device cannot read
    /// is not asked.
    fn are_named(&self) -> bool {
        let named = self.dirs.list.iter().filter(|d| d.parent != 0 && d.ino != ROOT_INO.0);
        let mut all = named.map(|d| (d, self.view.read(BlockNo(d.name.block))));
        all.all(|(d, block)| block.map_or(true, |b| le32(&b, usize::from(d.name.byte)) == d.ino))
    }

    /// Does each directory that has a name hang below the root, or below one for whose name there
    /// was no room?
    fn hang_below_root(&self) -> bool {
        let above = |d: u32| self.dirs.find(Ino(d)).map(|i| self.dirs.list[i].parent);
        // Of the first ones: a chain of all of them takes its length for each.
        self.dirs.list.iter().take(1 << 10).all(|d| {
            let mut way = std::iter::successors(Some(d.ino), |d| above(*d).filter(|p| p != d));
            way.by_ref().take(self.dirs.list.len() + 1).any(|d| d == ROOT_INO.0 || d == 0)
        })
    }

    fn check_root(&mut self) -> Result<(), CheckError> {
        if self.dirs.find(ROOT_INO).is_some() {
            let d = self.dirs.get_mut(ROOT_INO).expect("found just now");
            d.parent = ROOT_INO.0;
            return Ok(());
        }
        self.found_losing(Kind::NoRoot, Place::Inode(ROOT_INO), "no root directory; made anew");
        if self.infos.get(ROOT_INO).kind != 0 {
            self.free_inode(ROOT_INO)?;
        }
        self.make_dir(ROOT_INO, ROOT_INO, 0o755)?;
        Ok(())
    }

    /// Leaves one name to each directory that has two.
    fn settle_two_names(&mut self) -> Result<(), CheckError> {
        if self.extra_names.is_empty() {
            return Ok(());
        }
        // Where a rename may have displaced an empty directory.
        let displaced: BTreeSet<u32> =
            self.dirs.list.iter().filter(|d| d.parent == 0 && d.empty).map(|d| d.dotdot).collect();
        for (dir, others) in std::mem::take(&mut self.extra_names) {
            let d = self.dirs.get_mut(Ino(dir)).expect("only directories have extra names");
            let mut all = vec![(Ino(d.parent), d.name)];
            all.extend(others);
            let keep = best_name(d.dotdot, &displaced, &all);
            (d.parent, d.name) = (all[keep].0.0, all[keep].1);
            self.info_mut(Ino(dir)).names = 1;
            let text = format!("the directory has {} names; one stays", all.len());
            self.found(Kind::TwoNames, Place::Inode(Ino(dir)), text);
            all.remove(keep);
            for (parent, at) in all {
                self.erase_name(Ino(dir), at)?;
                self.unindex(parent)?;
            }
        }
        Ok(())
    }

    /// The directories without a name, after every circle has been cut at one of its own.
    fn cut_circles(&mut self) -> Result<Vec<Ino>, CheckError> {
        let n = self.dirs.list.len();
        // 0: not seen; else the round in which it was seen first.
        let mut seen = vec![0usize; n];
        let mut tops = Vec::new();
        for start in 0..n {
            let round = start + 1;
            let mut i = start;
            while seen[i] == 0 {
                seen[i] = round;
                let d = self.dirs.list[i];
                if d.parent == 0 {
                    tops.push(Ino(d.ino));
                    break;
                }
                if d.ino == ROOT_INO.0 {
                    break;
                }
                i = self.dirs.find(Ino(d.parent)).expect("a parent is a directory");
                if seen[i] == round && self.dirs.list[i].ino != ROOT_INO.0 {
                    let d = self.dirs.list[i];
                    let text = "a directory inside itself; taken out";
                    self.found(Kind::Unconnected, Place::Inode(Ino(d.ino)), text);
                    self.remove_name(Ino(d.ino), d.name)?;
                    self.unindex(Ino(d.parent))?;
                    tops.push(Ino(d.ino));
                    break;
                }
            }
        }
        let top = |ino: &Ino| self.dirs.find(*ino).is_some_and(|i| self.dirs.list[i].parent == 0);
        assert!(tops.iter().all(top), "K4: a directory that was taken out has a name");
        Ok(tops)
    }

    fn check_dotdots(&mut self) -> Result<(), CheckError> {
        for i in 0..self.dirs.list.len() {
            let d = self.dirs.list[i];
            if d.dotdot == d.parent || d.parent == 0 {
                continue;
            }
            let text = format!("\"..\" is inode {}, should be {}; set", d.dotdot, d.parent);
            self.found(Kind::StaleDotDot, Place::Inode(Ino(d.ino)), text);
            self.set_dotdot(Ino(d.ino), Ino(d.parent))?;
        }
        Ok(())
    }

    /// Makes ".." of a directory lead to `parent`.
    pub(crate) fn set_dotdot(&mut self, dir: Ino, parent: Ino) -> Result<(), CheckError> {
        let i = self.dirs.find(dir).expect("a directory of the list");
        self.dirs.list[i].dotdot = parent.0;
        let block = self.dirs.blocks[self.dirs.list[i].first];
        if block != 0 {
            self.view.edit(BlockNo(block), |b| set32(b, DOTDOT_AT, parent.0))?;
        }
        Ok(())
    }
}

/// Which name stays: the new one of a rename that has displaced another directory, else the one
/// that ".." agrees with, else the first.
fn best_name(dotdot: u32, displaced: &BTreeSet<u32>, all: &[(Ino, At)]) -> usize {
    let new = all.iter().position(|(p, _)| displaced.contains(&p.0) && p.0 != dotdot);
    new.or_else(|| all.iter().position(|(p, _)| p.0 == dotdot)).unwrap_or(0)
}

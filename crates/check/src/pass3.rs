//! Pass 3: does every directory hang below the root, by one name, and does its ".." lead to where
//! that name is? Directories without a name go to lost+found, empty ones are freed.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::run::Check;
use crate::tables::At;
use format::bytes::set32;
use format::{BlockNo, Ino, ROOT_INO};

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
        self.check_dotdots()
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
        while let Some(x) = self.extra_names.first() {
            let dir = x.dir;
            let d = *self.dirs.get_mut(dir).expect("only directories have extra names");
            let mut all: Vec<(Ino, At)> = vec![(Ino(d.parent), d.name)];
            let extra = self.extra_names.iter().filter(|x| x.dir == dir);
            all.extend(extra.map(|x| (x.parent, x.at)));
            let keep = self.best_name(Ino(d.dotdot), &all);
            let text = format!("the directory has {} names; one stays", all.len());
            self.found(Kind::TwoNames, Place::Inode(dir), text);
            for (n, (_, at)) in all.iter().enumerate() {
                if n != keep {
                    self.remove_name(dir, *at)?;
                    self.drop_index_of_block(all[n].0)?;
                }
            }
        }
        Ok(())
    }

    /// Which name stays: the new one of a rename that has displaced another directory, else the one
    /// that ".." agrees with, else the first.
    fn best_name(&self, dotdot: Ino, all: &[(Ino, At)]) -> usize {
        let displaced = |parent: Ino| {
            let orphan = |d: &&crate::tables::Dir| d.parent == 0 && d.empty && d.dotdot == parent.0;
            self.dirs.list.iter().any(|d| orphan(&d))
        };
        let new = all.iter().position(|(p, _)| displaced(*p) && *p != dotdot);
        new.or_else(|| all.iter().position(|(p, _)| *p == dotdot)).unwrap_or(0)
    }

    fn drop_index_of_block(&mut self, parent: Ino) -> Result<(), CheckError> {
        match self.dirs.get_mut(parent).copied() {
            Some(d) if d.indexed => self.unindex(parent),
            _ => Ok(()),
        }
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
                    self.drop_index_of_block(Ino(d.parent))?;
                    tops.push(Ino(d.ino));
                    break;
                }
            }
        }
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
            let block = BlockNo(u64::from(block));
            self.view.edit(block, |b| set32(b, DOTDOT_AT, parent.0))?;
        }
        Ok(())
    }
}

//! The directories below one, for commands that take a whole tree. A volume may be damaged, or made
//! to do harm: a directory that stands in two places, or in itself, would be gone through for ever,
//! or lead out of the tree. So each has to name as its parent the one in which it was found, and is
//! found once; all are looked at before anything is done.
//!
//! Invariants:
//! * D1. A directory stands behind the one that it is in, one deeper, and behind none that is
//!   deeper.

use crate::Failure;
use crate::image::Image;
use format::shown;
use std::collections::BTreeSet;
use vfs::{Attr, DirEntry, Kind, Reply, Request};

/// A directory of the tree.
pub struct Dir {
    /// The number of the one it was found in (the first: its own).
    pub parent: usize,
    /// How many directories are above it in the tree.
    pub depth: usize,
    pub ino: u32,
    pub name: Vec<u8>,
}

/// A directory and all directories below it, no deeper one before one that is less deep.
pub struct Subtree {
    path: String,
    pub dirs: Vec<Dir>,
    /// How many other things there are.
    pub others: u64,
}

impl Subtree {
    /// Looks at the tree below `path`, which is the directory `top`. Errors: it is no tree.
    pub fn look(image: &Image, path: &str, top: &Attr) -> Result<Subtree, Failure> {
        let first = Dir { parent: 0, depth: 0, ino: top.ino, name: Vec::new() };
        let path = path.trim_end_matches('/').to_owned();
        let mut tree = Subtree { path, dirs: vec![first], others: 0 };
        let mut seen = BTreeSet::from([top.ino]);
        let mut at = 0;
        while at < tree.dirs.len() {
            let (below, others) = tree.entries(image, at)?;
            tree.others += others.len() as u64;
            for (name, attr) in below {
                let (parent, depth, ino) = (at, tree.dirs[at].depth + 1, attr.ino);
                let last = tree.dirs.last().map_or(0, |d| d.depth);
                assert!((last..=last + 1).contains(&depth), "D1: depth {depth} behind {last}");
                tree.dirs.push(Dir { parent, depth, ino, name });
                let found = tree.path(tree.dirs.len() - 1);
                is_child(image, &found, ino, tree.dirs[at].ino)?;
                if !seen.insert(ino) {
                    return Err(no_tree(image, &found, "it has a second name"));
                }
            }
            at += 1;
        }
        Ok(tree)
    }

    /// What is in a directory: directories, and other things.
    pub fn entries(&self, image: &Image, n: usize) -> Result<(Vec<Child>, Vec<Child>), Failure> {
        let path = self.path(n);
        let (mut dirs, mut others) = (Vec::new(), Vec::new());
        for DirEntry { name, ino, attr, .. } in image.list(&path, self.dirs[n].ino)? {
            let attr = attr.map_or_else(|| image.attr(ino), Ok)?;
            let kind = if attr.kind() == Kind::Dir { &mut dirs } else { &mut others };
            kind.push((name, attr));
        }
        Ok((dirs, others))
    }

    /// Its path, as it is shown.
    pub fn path(&self, n: usize) -> String {
        let names: Vec<String> = self.names(n).into_iter().map(shown).collect();
        match (names.is_empty(), self.path.is_empty()) {
            (true, true) => "/".to_owned(),
            (true, false) => self.path.clone(),
            _ => format!("{}/{}", self.path, names.join("/")),
        }
    }

    /// The names that lead to it from the first.
    pub fn names(&self, mut n: usize) -> Vec<&[u8]> {
        let mut names = Vec::with_capacity(self.dirs[n].depth);
        while n != 0 {
            names.push(self.dirs[n].name.as_slice());
            let parent = self.dirs[n].parent;
            assert!(parent < n, "D1: directory {n} is in {parent}, which stands behind it");
            n = parent;
        }
        names.reverse();
        names
    }
}

/// A name, and what it names.
pub type Child = (Vec<u8>, Attr);

/// Refuses a directory that is not `parent`'s.
pub fn is_child(image: &Image, path: &str, ino: u32, parent: u32) -> Result<(), Failure> {
    let up = Request::Lookup { dir: ino, name: b"..".to_vec() };
    match image.ask(path, up)? {
        Reply::Entry { attr, .. } if attr.ino == parent => Ok(()),
        _ => Err(no_tree(image, path, "its \"..\" is another directory")),
    }
}

fn no_tree(image: &Image, path: &str, why: &str) -> Failure {
    let why = format!("this directory is not where it says: {why}; cairn fsck --repair mends it");
    image.failed(path, &why)
}

//! `cairn rm`: names, and with -r trees, removed many at a time.
//!
//! Invariants:
//! * R1. A directory goes after all that is below it: never in one batch with that.

use crate::args::RmArgs;
use crate::image::Image;
use crate::progress::Bar;
use crate::subtree::{Subtree, is_child};
use crate::{Failure, Outcome};
use check::Progress;
use format::shown;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use vfs::{Attr, Kind, Request};

/// Names that are removed at once, and become durably so together.
const BATCH: usize = 256;

/// The command.
pub fn run(a: &RmArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.image, false, a.log.as_deref())?;
    let mut result = Ok(Outcome::Done);
    for path in &a.paths {
        if let Err(e) = remove(&image, path, a.recursive) {
            result = Err(e);
            break;
        }
    }
    image.close()?;
    result
}

/// Removes one name, and if it is a directory and `recursive`, all that is below it.
pub fn remove(image: &Image, path: &OsStr, recursive: bool) -> Result<(), Failure> {
    let (parent, name) = image.parent(path)?;
    let at = image.walk(path)?;
    let path = &shown(path.as_bytes());
    if name.is_empty() {
        return Err(Failure::Failed(format!("{path}: the root directory stays")));
    }
    if matches!(name.as_slice(), b"." | b"..") {
        let why = format!("{path}: . and .. are not removed; write the directory's own name");
        return Err(Failure::Failed(why));
    }
    if at.kind() != Kind::Dir {
        return image.ask(path, Request::Unlink { dir: parent.ino, name }).map(drop);
    }
    if !recursive {
        return Err(Failure::Failed(format!("{path}: is a directory: -r removes those")));
    }
    is_child(image, path, at.ino, parent.ino)?;
    remove_tree(image, path, &at)?;
    image.ask(path, Request::Rmdir { dir: parent.ino, name }).map(drop)
}

/// Removes all that is below a directory: first what is no directory, then the directories, the
/// deepest first.
fn remove_tree(image: &Image, path: &str, top: &Attr) -> Result<(), Failure> {
    let tree = Subtree::look(image, path, top)?;
    let total = tree.others + tree.dirs.len() as u64 - 1;
    let mut batch = Batch { image, waiting: Vec::new(), done: 0, total, bar: Bar::new() };
    for (n, dir) in tree.dirs.iter().enumerate() {
        let shown_dir = tree.path(n);
        for (name, _) in tree.entries(image, n)?.1 {
            let what = format!("{shown_dir}/{}", shown(&name));
            batch.add(what, Request::Unlink { dir: dir.ino, name })?;
        }
    }
    batch.finish()?;
    let mut depth = 0;
    for (n, dir) in tree.dirs.iter().enumerate().skip(1).rev() {
        // Those above are empty only when these are gone.
        if dir.depth != depth {
            assert!(depth == 0 || dir.depth < depth, "R1: from depth {depth} to {}", dir.depth);
            batch.finish()?;
            depth = dir.depth;
        }
        let request = Request::Rmdir { dir: tree.dirs[dir.parent].ino, name: dir.name.clone() };
        batch.add(tree.path(n), request)?;
    }
    batch.finish()?;
    match batch.done == total {
        true => Ok(()),
        // Two directories may share a block, on a damaged volume.
        false => Err(Failure::Failed(format!(
            "{path}: {} names have gone, and it had {total}: `cairn fsck` says what is damaged",
            batch.done
        ))),
    }
}

/// Removals that are asked for together.
struct Batch<'a> {
    image: &'a Image,
    waiting: Vec<(String, Request)>,
    done: u64,
    total: u64,
    bar: Bar,
}

impl Batch<'_> {
    fn add(&mut self, what: String, request: Request) -> Result<(), Failure> {
        self.waiting.push((what, request));
        if self.waiting.len() < BATCH { Ok(()) } else { self.finish() }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let (what, requests): (Vec<_>, Vec<_>) = self.waiting.drain(..).unzip();
        self.done += requests.len() as u64;
        self.image.ask_all(requests, |n| what[n].clone())?;
        self.bar.step("removing", self.done, self.total);
        Ok(())
    }
}

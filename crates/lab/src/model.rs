//! A model file system: what a volume holds after a list of operations, in a page of code. What it
//! says of an operation (done, or which error) and of the tree must be what the volume says.
//!
//! Invariants:
//! * M1. Each name leads to an object that there is, and each object but the root has a name.
//! * M2. A directory has one name, and lies below the root.
//! * M3. An operation that is refused has changed nothing.
//! * M4. Attributes and owners are of objects that there are.
//! * M5. What was made is found under its name, and what was taken away is not: a number is given
//!   once.

use crate::acts::{Act, payload, split};
use crate::contents::Contents;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use vfs::FsError;

/// An object of the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    /// Names, and the objects they name.
    Dir(BTreeMap<Vec<u8>, usize>),
    /// Contents.
    File(Contents),
    /// A link's text.
    Symlink(Vec<u8>),
    /// What a rename has left in the old place.
    Whiteout,
}

/// The model. Clones share what none of them has changed since: judging keeps one of each moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    nodes: BTreeMap<usize, Arc<Node>>,
    /// The attribute of those that have one: how many bytes of which value.
    attributes: BTreeMap<usize, (usize, u8)>,
    /// The number that owner, group and permissions stand for, of those that got one.
    owners: BTreeMap<usize, u8>,
    next: usize,
}

impl Default for Model {
    fn default() -> Model {
        let root = Arc::new(Node::Dir(BTreeMap::new()));
        let (attributes, owners) = (BTreeMap::new(), BTreeMap::new());
        Model { nodes: BTreeMap::from([(0, root)]), attributes, owners, next: 1 }
    }
}

type Result<T> = std::result::Result<T, FsError>;

impl Model {
    fn dir(&mut self, path: &str) -> Result<&mut BTreeMap<Vec<u8>, usize>> {
        let id = self.find(path)?;
        match self.nodes.get_mut(&id).map(Arc::make_mut) {
            Some(Node::Dir(names)) => Ok(names),
            _ => Err(FsError::NotDir),
        }
    }
    /// The object at a path.
    pub fn find(&self, path: &str) -> Result<usize> {
        let mut at = 0;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            let Node::Dir(names) = &*self.nodes[&at] else { return Err(FsError::NotDir) };
            at = *names.get(name.as_bytes()).ok_or(FsError::NotFound)?;
        }
        Ok(at)
    }
    /// The object's attribute: how many bytes of which value.
    pub fn attribute(&self, id: usize) -> Option<(usize, u8)> {
        self.attributes.get(&id).copied()
    }
    /// The number that its owner, group and permissions stand for, if it got one.
    pub fn owner(&self, id: usize) -> Option<u8> {
        self.owners.get(&id).copied()
    }
    /// The object.
    pub fn node(&self, id: usize) -> &Node {
        &self.nodes[&id]
    }
    fn is_named(&self, id: usize) -> bool {
        self.nodes.values().any(|n| match &**n {
            Node::Dir(names) => names.values().any(|named| *named == id),
            _ => false,
        })
    }
    fn add(&mut self, path: &str, node: Node) -> Result<()> {
        let (dir, name) = split(path);
        let id = self.next;
        let names = self.dir(dir)?;
        if names.contains_key(&name) {
            return Err(FsError::Exists);
        }
        names.insert(name, id);
        let before = self.nodes.insert(id, Arc::new(node));
        assert!(before.is_none(), "M5: {path} is given the number of another, {id}");
        self.next += 1;
        Ok(())
    }
    /// The object is gone, with all that is about it.
    fn remove(&mut self, id: usize) {
        let before = self.nodes.remove(&id);
        assert!(before.is_some() && id != 0, "M1: object {id} goes, and is not there");
        self.attributes.remove(&id);
        self.owners.remove(&id);
    }
    fn is_dir(&self, id: usize) -> bool {
        matches!(*self.nodes[&id], Node::Dir(_))
    }
    fn is_empty_dir(&self, id: usize) -> bool {
        matches!(&*self.nodes[&id], Node::Dir(n) if n.is_empty())
    }
    fn drop_if_unnamed(&mut self, id: usize) {
        if !self.is_named(id) {
            self.remove(id);
        }
    }
    fn file(&mut self, path: &str) -> Result<&mut Contents> {
        let id = self.find(path)?;
        match self.nodes.get_mut(&id).map(Arc::make_mut) {
            Some(Node::File(bytes)) => Ok(bytes),
            Some(Node::Dir(_)) => Err(FsError::IsDir),
            _ => Err(FsError::Invalid),
        }
    }

    /// The length of the file at a path, if there is one.
    pub(crate) fn file_bytes(&self, path: &str) -> Option<u64> {
        match self.node(self.find(path).ok()?) {
            Node::File(bytes) => Some(bytes.len()),
            _ => None,
        }
    }

    /// Zeros in the range; the file goes on to its end, if it is to.
    fn zero(&mut self, path: &str, range: Range<u64>, keep_size: bool) -> Result<()> {
        let bytes = self.file(path)?;
        let end = if keep_size { bytes.len() } else { bytes.len().max(range.end) };
        bytes.zero(range);
        bytes.resize(end);
        Ok(())
    }

    /// Does it.
    pub fn apply(&mut self, act: &Act) -> Result<()> {
        match act {
            Act::Create(p) => self.add(p, Node::File(Contents::default())),
            Act::Mkdir(p) => self.add(p, Node::Dir(BTreeMap::new())),
            Act::Symlink(p, to) => self.add(p, Node::Symlink(to.clone().into_bytes())),
            Act::Link(a, b) => self.link(a, b),
            Act::Unlink(p) => self.unlink(p),
            Act::Vanish(p, _) | Act::Linger(p, ..) => {
                self.file(p)?;
                self.unlink(p)
            }
            Act::Rmdir(p) => self.rmdir(p),
            Act::Rename(a, b) => self.rename(a, b),
            Act::Whiteout(a, b) => {
                let idle = self.find(a)? == self.find(b).unwrap_or(usize::MAX);
                self.rename(a, b)?;
                if idle { Ok(()) } else { self.add(a, Node::Whiteout) }
            }
            Act::Emerge(p, len, byte) => {
                self.add(p, Node::File(Contents::from(&payload(*byte, 0, *len)[..])))
            }
            Act::Truncate(p, size) => {
                self.file(p)?.resize(*size);
                Ok(())
            }
            Act::Write(p, offset, len, byte) | Act::WriteSync(p, offset, len, byte) => {
                self.file(p)?.write(*offset, &payload(*byte, *offset, *len));
                Ok(())
            }
            Act::Punch(p, offset, len) => {
                self.file(p)?.zero(*offset..offset + len);
                Ok(())
            }
            Act::Allocate(p, offset, len, keep_size) => {
                let bytes = self.file(p)?;
                let end = if *keep_size { 0 } else { offset + len };
                bytes.resize(bytes.len().max(end));
                Ok(())
            }
            Act::Zero(p, at, len, keep_size) => self.zero(p, *at..at + len, *keep_size),
            Act::Collapse(p, offset, len) => {
                let bytes = self.file(p)?;
                if offset + len >= bytes.len() {
                    return Err(FsError::Invalid);
                }
                bytes.collapse(*offset, *len);
                Ok(())
            }
            Act::Insert(p, offset, len) => {
                let bytes = self.file(p)?;
                if *offset >= bytes.len() {
                    return Err(FsError::Invalid);
                }
                bytes.insert(*offset, *len);
                Ok(())
            }
            Act::Attribute(p, len, value) => {
                let id = self.find(p)?;
                self.attributes.insert(id, (*len, *value));
                Ok(())
            }
            Act::Strip(p) => self.strip(p),
            Act::Own(p, n) => self.own(p, *n),
            Act::Exchange(a, b) => self.exchange(a, b),
            Act::Grant(p, _) => self.file(p).map(|_| ()),
            Act::Fsync(p) | Act::Fdatasync(p) | Act::Date(p, _) => self.find(p).map(|_| ()),
            Act::Read(p) => self.file(p).map(|_| ()),
            Act::Sync | Act::Trim | Act::Pause(_) | Act::Still(_) => Ok(()),
        }
    }

    fn link(&mut self, a: &str, b: &str) -> Result<()> {
        let id = self.find(a)?;
        let (dir, name) = split(b);
        self.dir(dir)?;
        if self.is_dir(id) {
            return Err(FsError::Perm);
        }
        let names = self.dir(dir)?;
        if names.contains_key(&name) {
            return Err(FsError::Exists);
        }
        names.insert(name, id);
        Ok(())
    }

    fn unlink(&mut self, p: &str) -> Result<()> {
        let (dir, name) = split(p);
        let id = *self.dir(dir)?.get(&name).ok_or(FsError::NotFound)?;
        if self.is_dir(id) {
            return Err(FsError::IsDir);
        }
        let gone = self.dir(dir)?.remove(&name);
        assert_eq!(gone, Some(id), "M5: {p} is another's name");
        self.drop_if_unnamed(id);
        Ok(())
    }

    fn rmdir(&mut self, p: &str) -> Result<()> {
        let (dir, name) = split(p);
        let id = *self.dir(dir)?.get(&name).ok_or(FsError::NotFound)?;
        if !self.is_dir(id) {
            return Err(FsError::NotDir);
        }
        if !self.is_empty_dir(id) {
            return Err(FsError::NotEmpty);
        }
        let gone = self.dir(dir)?.remove(&name);
        assert_eq!(gone, Some(id), "M5: {p} is another's name");
        self.remove(id);
        Ok(())
    }

    /// Is `id` at `under` or above it?
    fn is_above(&self, id: usize, under: usize) -> bool {
        let Node::Dir(names) = &*self.nodes[&id] else { return false };
        id == under || names.values().any(|c| self.is_above(*c, under))
    }

    fn rename(&mut self, a: &str, b: &str) -> Result<()> {
        let ((da, na), (db, nb)) = (split(a), split(b));
        let from_dir = self.find(da)?;
        self.dir(da)?;
        let to_dir = self.find(db)?;
        self.dir(db)?;
        let what = *self.dir(da)?.get(&na).ok_or(FsError::NotFound)?;
        let over = self.dir(db)?.get(&nb).copied();
        if self.is_dir(what) && from_dir != to_dir && self.is_above(what, to_dir) {
            return Err(FsError::Invalid);
        }
        if over == Some(what) {
            return Ok(());
        }
        if let Some(over) = over {
            match (self.is_dir(what), self.is_dir(over)) {
                (true, false) => return Err(FsError::NotDir),
                (false, true) => return Err(FsError::IsDir),
                (true, true) if !self.is_empty_dir(over) => return Err(FsError::NotEmpty),
                _ => (),
            }
        }
        let moved = self.dir(da)?.remove(&na);
        assert_eq!(moved, Some(what), "M1: {a} is another's name");
        let replaced = self.dir(db).map(|names| names.insert(nb, what));
        assert_eq!(replaced, Ok(over), "M3: {b} has gone with what was moved there");
        assert!(self.find(b) == Ok(what), "M5: {a} was moved, and {b} is another");
        if let Some(over) = over {
            self.drop_if_unnamed(over);
        }
        Ok(())
    }

    fn strip(&mut self, p: &str) -> Result<()> {
        let id = self.find(p)?;
        self.attributes.remove(&id).map(drop).ok_or(FsError::NoData)
    }

    fn own(&mut self, p: &str, n: u8) -> Result<()> {
        let id = self.find(p)?;
        self.owners.insert(id, n);
        Ok(())
    }

    fn exchange(&mut self, a: &str, b: &str) -> Result<()> {
        let ((da, na), (db, nb)) = (split(a), split(b));
        let (of_a, of_b) = (self.find(a)?, self.find(b)?);
        let (in_a, in_b) = (self.find(da)?, self.find(db)?);
        let loops = self.is_dir(of_a) && self.is_above(of_a, in_b)
            || self.is_dir(of_b) && self.is_above(of_b, in_a);
        if loops {
            return Err(FsError::Invalid);
        }
        let before = self.dir(da)?.insert(na, of_b);
        assert_eq!(before, Some(of_a), "M1: {a} is another's name");
        // What was there may have moved with the first.
        match self.nodes.get_mut(&in_b).map(Arc::make_mut) {
            Some(Node::Dir(names)) => {
                let before = names.insert(nb, of_a);
                assert_eq!(before, Some(of_b), "M1: {b} is another's name");
            }
            _ => panic!("M3: {a} was given {b}'s object, and {b} cannot be given its"),
        }
        Ok(())
    }

    /// Every path and what is there.
    pub fn tree(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        self.walk(0, "", &mut all);
        all
    }
    fn walk(&self, id: usize, path: &str, all: &mut BTreeMap<String, usize>) {
        let Node::Dir(names) = &*self.nodes[&id] else { return };
        for (name, child) in names {
            let path = format!("{path}/{}", String::from_utf8_lossy(name));
            all.insert(path.clone(), *child);
            self.walk(*child, &path, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::random_act;
    use env::Rng;
    use std::collections::BTreeSet;

    /// M1 and M2.
    fn check(m: &Model, what: &Act) {
        let mut named: BTreeMap<usize, usize> = BTreeMap::new();
        let dirs = m.nodes.values().filter_map(|n| match &**n {
            Node::Dir(names) => Some(names),
            _ => None,
        });
        dirs.flat_map(BTreeMap::values).for_each(|id| *named.entry(*id).or_default() += 1);
        let there: BTreeSet<usize> = m.nodes.keys().copied().collect();
        let all: BTreeSet<usize> = named.keys().copied().chain([0]).collect();
        assert_eq!(all, there, "M1 after {what:?}");
        let once = |(id, n): (&usize, &usize)| *n == 1 || !m.is_dir(*id);
        assert!(named.iter().all(once), "M2 after {what:?}: {named:?}");
        let reached: BTreeSet<usize> = m.tree().into_values().chain([0]).collect();
        assert_eq!(reached, there, "M2 after {what:?}: some are not below the root");
        let about = m.attributes.keys().chain(m.owners.keys());
        let gone: Vec<&usize> = about.filter(|id| !there.contains(id)).collect();
        assert!(gone.is_empty(), "M4 after {what:?}: {gone:?}");
    }

    #[test]
    fn whatever_is_done_it_is_a_tree() {
        for seed in 0..60 {
            let (mut rng, mut m) = (Rng::new(seed), Model::default());
            for _ in 0..250 {
                let act = match (random_act(&mut rng, &m), random_act(&mut rng, &m)) {
                    (Act::Rename(a, b), _) if rng.one_in(3) => Act::Exchange(a, b),
                    (Act::Rename(a, b), _) if rng.one_in(3) => Act::Whiteout(a, b),
                    (Act::Unlink(p), _) if rng.one_in(3) => Act::Vanish(p, 100),
                    (Act::Create(p), _) if rng.one_in(4) => Act::Emerge(p, 700, 3),
                    (Act::Mkdir(a), Act::Mkdir(b)) => Act::Exchange(a, b),
                    (Act::Fdatasync(p), _) if rng.one_in(2) => Act::Attribute(p, 40, 3),
                    (Act::Fdatasync(p), _) => Act::Own(p, 5),
                    (Act::Fsync(p), _) if rng.one_in(2) => Act::Strip(p),
                    (act, _) => act,
                };
                let before = m.clone();
                if m.apply(&act).is_err() {
                    assert_eq!(m, before, "M3: {act:?} is refused");
                }
                check(&m, &act);
            }
        }
    }
}

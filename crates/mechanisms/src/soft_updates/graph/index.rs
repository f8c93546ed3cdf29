//! The graph's indices by inode: an fsync asks which nodes concern a file, and which change names
//! in a directory. They know nothing of what a node does.

use super::NodeId;
use env::IdMap;
use format::Ino;
use std::collections::VecDeque;

/// Nodes by an inode, in order: few of most, and of a file that is appended to, or of a directory,
/// thousands, of which the first go first.
#[derive(Default)]
pub(super) struct ByInode(IdMap<Ino, VecDeque<NodeId>>);

impl ByInode {
    pub(super) fn of(&self, ino: Ino) -> impl Iterator<Item = NodeId> + '_ {
        self.0.get(&ino).into_iter().flatten().copied()
    }
    pub(super) fn has(&self, ino: Ino, id: NodeId) -> bool {
        self.0.get(&ino).is_some_and(|all| all.binary_search(&id).is_ok())
    }
    pub(super) fn any(&self) -> Option<Ino> {
        self.0.keys().min().copied()
    }
    pub(super) fn add(&mut self, ino: Ino, id: NodeId) {
        add_in_order(self.0.entry(ino).or_default(), id);
    }
    pub(super) fn forget(&mut self, ino: Ino, id: NodeId) {
        let Some(its) = self.0.get_mut(&ino) else { return };
        if let Ok(at) = its.binary_search(&id) {
            its.remove(at);
        }
        if its.is_empty() {
            self.0.remove(&ino);
        }
    }
}

/// Into a list in order, once. What is added is most often the newest: that is looked at first.
pub(in crate::soft_updates) fn add_in_order<T: Copy + Ord>(all: &mut VecDeque<T>, id: T) {
    match all.back() {
        Some(newest) if *newest == id => (),
        Some(newest) if *newest > id => {
            if let Err(at) = all.binary_search(&id) {
                all.insert(at, id);
            }
        }
        _ => all.push_back(id),
    }
}

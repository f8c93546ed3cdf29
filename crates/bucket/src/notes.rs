//! Notes: words that groups carry to whoever opens the store next, such as which request a change
//! was made for. A note is in the object that its group is in, so it is found exactly where the
//! change is. A checkpoint repeats those that came lately, for what lies before it is not read.
//! What they mean, and how long they are believed, is their readers' business.
//!
//! Invariants  W1 each note goes with one object: the next that is sealed behind it.
//!             W2 no more are known than a checkpoint has room for, and what is in no object yet
//!             is the newest of them.

use crate::object::{Head, Kind};
use std::collections::VecDeque;

/// So many are known, the newest; each is 16 bytes in a checkpoint.
const LATELY: usize = 8192;

/// The notes that a store knows.
#[derive(Clone, Default, Debug)]
pub(crate) struct Notes {
    /// The oldest first.
    lately: VecDeque<u128>,
    /// So many of them, the last ones, are in no object yet.
    open: usize,
}

impl Notes {
    /// A group is put that has this one.
    pub(crate) fn put(&mut self, note: u128) {
        self.add(note);
        self.open = (self.open + 1).min(self.lately.len());
        let (known, open) = (self.lately.len(), self.open);
        assert!(known <= LATELY && open <= known, "W2: {known} notes are known, {open} are open");
    }

    fn add(&mut self, note: u128) {
        if self.lately.len() == LATELY {
            self.lately.pop_front();
        }
        self.lately.push_back(note);
    }

    /// Those that have gathered go with the next object.
    pub(crate) fn seal(&mut self) -> Vec<u128> {
        let open = std::mem::take(&mut self.open);
        self.lately.range(self.lately.len() - open..).copied().collect()
    }

    /// All that are in objects.
    pub(crate) fn lately(&self) -> Vec<u128> {
        self.lately.range(..self.lately.len() - self.open).copied().collect()
    }

    /// The log goes on with this object.
    pub(crate) fn found(&mut self, head: &Head) {
        let open = self.open;
        assert_eq!(open, 0, "W1: of who follows the log {open} notes are in no object");
        if head.kind == Kind::Checkpoint {
            self.lately.clear();
        }
        head.notes.iter().for_each(|note| self.add(*note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_goes_with_one_object_and_the_newest_are_known() {
        let mut n = Notes::default();
        [1, 2].into_iter().for_each(|note| n.put(note));
        assert_eq!((n.seal(), n.lately()), (vec![1, 2], vec![1, 2]));
        n.put(3);
        assert_eq!(n.lately(), [1, 2], "as a checkpoint that is sealed before it says");
        assert_eq!((n.seal(), n.seal()), (vec![3], vec![]));
        (0..2 * LATELY as u128).for_each(|note| n.put(note));
        assert_eq!(n.seal().len(), LATELY, "the oldest of too many are forgotten");
        assert_eq!(n.lately().last(), Some(&(2 * LATELY as u128 - 1)));
    }
}

//! A list that has one item nearly always: that one lies in it, and needs no memory of its own. It
//! is a word longer than that item: there are hundreds of thousands of such lists at a time.
//!
//! Invariants:
//! * F1. There are others only where there is a first, and no memory for them where there are none.

use std::{iter, option, slice, vec};

/// Items in the order in which they came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Few<T> {
    first: Option<T>,
    /// The others, if there ever were any.
    #[expect(clippy::box_collection, reason = "a vector is three words, and hardly ever there")]
    more: Option<Box<Vec<T>>>,
}

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few::new()
    }
}

impl<T> Few<T> {
    /// Without items.
    pub const fn new() -> Few<T> {
        Few { first: None, more: None }
    }
    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others().len()
    }
    /// The first.
    pub fn first(&self) -> Option<&T> {
        self.first.as_ref()
    }
    /// The last.
    pub fn last_mut(&mut self) -> Option<&mut T> {
        self.more.as_mut().and_then(|m| m.last_mut()).or(self.first.as_mut())
    }
    /// All of them, in order.
    pub fn iter(&self) -> Iter<'_, T> {
        self.first.iter().chain(self.others())
    }
    /// The same, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(self.more.iter_mut().flat_map(|m| m.iter_mut()))
    }
    fn others(&self) -> &[T] {
        self.more.as_deref().map_or(&[], Vec::as_slice)
    }
    /// One more, behind the others.
    pub fn push(&mut self, item: T) {
        match self.first {
            None => {
                assert!(self.more.is_none(), "F1: a list without a first item has others");
                self.first = Some(item);
            }
            Some(_) => self.more.get_or_insert_default().push(item),
        }
    }
    /// Keeps those that `keep` is true of.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        if let Some(more) = &mut self.more {
            more.retain(&mut keep);
        }
        if self.first.as_ref().is_some_and(|i| !keep(i)) {
            let next = self.more.as_mut().filter(|m| !m.is_empty());
            self.first = next.map(|more| more.remove(0));
        }
        // Two lists that hold the same are equal, whatever they held before.
        if self.others().is_empty() {
            self.more = None;
        }
    }
}

impl<T: PartialEq> Few<T> {
    /// Is it among them?
    pub fn contains(&self, item: &T) -> bool {
        self.iter().any(|i| i == item)
    }
    /// One more, if it is not there.
    pub fn add(&mut self, item: T) {
        if !self.contains(&item) {
            self.push(item);
        }
    }
}

/// Goes through [`Few`].
pub type Iter<'a, T> = iter::Chain<option::Iter<'a, T>, slice::Iter<'a, T>>;

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = iter::Chain<option::IntoIter<T>, vec::IntoIter<T>>;
    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more.map(|m| *m).unwrap_or_default())
    }
}

impl<T> Extend<T> for Few<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        items.into_iter().for_each(|i| self.push(i));
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Few<T> {
        let mut all = Few::new();
        all.extend(items);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn it_is_a_list() {
        for seed in 0..300 {
            let (mut rng, mut few, mut twin) = (Rng::new(seed), Few::new(), Vec::new());
            for n in 0..12 {
                match rng.below(8) {
                    0..5 => {
                        few.push(n);
                        twin.push(n);
                    }
                    5 => {
                        few.add(n / 2);
                        if !twin.contains(&(n / 2)) {
                            twin.push(n / 2);
                        }
                    }
                    6 => {
                        let odd = rng.below(2);
                        few.retain(|i| i % 2 == odd);
                        twin.retain(|i| i % 2 == odd);
                    }
                    _ => assert_eq!(few.last_mut(), twin.last_mut(), "seed {seed}"),
                }
                assert!(few.iter().eq(&twin), "seed {seed}: {few:?} is {twin:?}");
                assert_eq!((few.len(), few.is_empty()), (twin.len(), twin.is_empty()));
                assert_eq!(few.first(), twin.first(), "seed {seed}");
                assert_eq!(few.contains(&n), twin.contains(&n), "seed {seed}");
                assert!(few.clone().into_iter().eq(twin.clone()), "seed {seed}");
            }
        }
    }
}

//! A map of serial numbers, which are given out in order. Those that follow each other lie side by
//! side, in pages: what is made and used together shares lines of the processor's cache, and there
//! are so few pages that their table is never moved at a price. It does not keep an order.
//!
//! Invariants:
//! * M1. A page counts the values that it has, the map those of all pages; no page is empty.

use crate::IdMap;
use std::marker::PhantomData;
use std::ops::Index;

/// Numbers that share a page: a power of two. A page stays until the last of them has gone.
const PAGE: usize = 32;

#[derive(Debug)]
struct Page<V> {
    used: usize,
    slots: [Option<V>; PAGE],
}

/// Values by their numbers, which are of a type of their own.
#[derive(Debug)]
pub struct SerialMap<K, V> {
    pages: IdMap<u64, Box<Page<V>>>,
    len: usize,
    keys: PhantomData<K>,
}

impl<K, V> Default for SerialMap<K, V> {
    fn default() -> SerialMap<K, V> {
        SerialMap { pages: IdMap::default(), len: 0, keys: PhantomData }
    }
}

fn place(key: impl Into<u64>) -> (u64, usize) {
    let key = key.into();
    (key / PAGE as u64, (key % PAGE as u64) as usize)
}

impl<K: Copy + Into<u64> + From<u64>, V> SerialMap<K, V> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The value of the number.
    pub fn get(&self, key: K) -> Option<&V> {
        let (page, slot) = place(key);
        self.pages.get(&page)?.slots[slot].as_ref()
    }
    /// The same, to change it.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let (page, slot) = place(key);
        self.pages.get_mut(&page)?.slots[slot].as_mut()
    }
    /// Has the number a value?
    pub fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }
    /// The number's value, made if it has none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let (page, slot) = place(key);
        let page = self.pages.entry(page).or_insert_with(new_page);
        if page.slots[slot].is_none() {
            page.used += 1;
            self.len += 1;
        }
        page.slots[slot].get_or_insert_with(make)
    }
    /// Gives the number this value; the one it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (page, slot) = place(key);
        let page = self.pages.entry(page).or_insert_with(new_page);
        let old = page.slots[slot].replace(value);
        if old.is_none() {
            page.used += 1;
            self.len += 1;
        }
        old
    }
    /// Takes the number's value out.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let (at, slot) = place(key);
        let page = self.pages.get_mut(&at)?;
        let old = page.slots[slot].take()?;
        let (used, len) = (page.used, self.len);
        assert!(0 < used && used <= len, "M1: a page counts {used} values, and the map {len}");
        page.used -= 1;
        self.len -= 1;
        if page.used == 0 {
            let emptied = self.pages.remove(&at);
            let left = emptied.is_some_and(|p| p.slots.iter().any(Option::is_some));
            assert!(!left, "M1: a page goes that has values");
        }
        let (len, pages) = (self.len, self.pages.len());
        assert!(pages <= len, "M1: {len} values are in {pages} pages");
        Some(old)
    }
    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.pages.iter().flat_map(|(page, p)| {
            let numbered = p.slots.iter().zip(page * PAGE as u64..);
            numbered.filter_map(|(v, key)| Some((key.into(), v.as_ref()?)))
        })
    }
    /// All values, to change them, in no order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.pages.values_mut().flat_map(|p| p.slots.iter_mut().flatten())
    }
}

fn new_page<V>() -> Box<Page<V>> {
    Box::new(Page { used: 0, slots: [const { None }; PAGE] })
}

/// The value of a number that has one.
impl<K: Copy + Into<u64> + From<u64>, V> Index<K> for SerialMap<K, V> {
    type Output = V;
    fn index(&self, key: K) -> &V {
        self.get(key).expect("who asks for it knows that it is there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use std::collections::BTreeMap;

    /// Against a map that keeps no pages: numbers given out in order, taken out in any.
    #[test]
    fn it_is_the_map_it_stands_for() {
        let (mut map, mut twin) = (SerialMap::<u64, u64>::default(), BTreeMap::new());
        let (mut rng, mut last) = (Rng::new(7), 0);
        for n in 0..100_000u64 {
            match rng.below(5) {
                0 | 1 => {
                    last += 1 + rng.below(2);
                    assert_eq!(map.insert(last, n), twin.insert(last, n));
                }
                2 => {
                    let key = last.saturating_sub(rng.below(200));
                    *map.get_or_insert_with(key, || n) += 1;
                    *twin.entry(key).or_insert(n) += 1;
                }
                _ => {
                    let old = twin.keys().nth(rng.below(1 + twin.len() as u64) as usize).copied();
                    let key = old.unwrap_or(last + 1);
                    assert_eq!(map.get(key), twin.get(&key));
                    assert_eq!(map.remove(key), twin.remove(&key));
                }
            }
            assert_eq!((map.len(), map.is_empty()), (twin.len(), twin.is_empty()));
            if n % 1000 == 0 {
                let mut all: Vec<(u64, u64)> = map.iter().map(|(k, v)| (k, *v)).collect();
                all.sort_unstable();
                assert!(all.iter().copied().eq(twin.iter().map(|(k, v)| (*k, *v))), "step {n}");
                let pages = map.pages.len();
                assert!(pages <= map.len(), "an empty page stays: {pages}");
            }
        }
    }
}

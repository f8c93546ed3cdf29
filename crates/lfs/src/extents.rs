//! New mappings in memory, as extents: what was mapped or freed since the last checkpoint. It knows
//! no disk; older mappings are in the runs.

use crate::geometry::{Place, Virt};
use std::collections::BTreeMap;

/// `n` virtual blocks from `v` on, and where the first lies; None: they are free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first.
    pub v: Virt,
    /// How many.
    pub n: u32,
    /// Where the first lies; the others lie behind it.
    pub place: Option<Place>,
}

impl Extent {
    /// The block behind its last.
    pub fn end(&self) -> u64 {
        self.v.0 + u64::from(self.n)
    }
    /// Where a block of it lies.
    pub fn at(&self, v: Virt) -> Option<Place> {
        self.place.map(|p| p.plus(v.0 - self.v.0))
    }
    /// The part from `from` up to `to`.
    pub fn cut(&self, from: u64, to: u64) -> Extent {
        let inside = self.v.0 <= from && from < to && to <= self.end();
        assert!(inside, "I8: blocks {from} to {to} are a part of {self:?}");
        Extent { v: Virt(from), n: (to - from) as u32, place: self.at(Virt(from)) }
    }
    /// Does `next` go on where this ends, here and there, so that they can be one?
    pub fn joins(&self, next: &Extent) -> bool {
        let places = match (self.place, next.place) {
            (Some(a), Some(b)) => a.plus(u64::from(self.n)) == b,
            (None, None) => true,
            _ => false,
        };
        places && self.end() == next.v.0 && self.n.checked_add(next.n).is_some()
    }
}

/// Extents by their first block, none overlapping.
#[derive(Clone, Default, Debug)]
pub struct Extents(BTreeMap<u64, (u32, Option<Place>)>);

impl Extents {
    /// How many extents.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Is nothing known at all?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Extent> {
        self.0.iter().map(|(v, (n, place))| Extent { v: Virt(*v), n: *n, place: *place })
    }
    /// The extent with this block; None: nothing is known of it here.
    pub fn get(&self, v: Virt) -> Option<Extent> {
        let (&start, &(n, place)) = self.0.range(..=v.0).next_back()?;
        let e = Extent { v: Virt(start), n, place };
        (v.0 < e.end()).then_some(e)
    }
    /// Where the first extent begins that begins behind this block.
    pub(crate) fn next(&self, v: Virt) -> Option<u64> {
        self.0.range(v.0 + 1..).next().map(|(v, _)| *v)
    }
    fn put(&mut self, e: Extent) {
        self.0.insert(e.v.0, (e.n, e.place));
    }

    /// What is known of blocks `from` up to `to`, in order, cut to them.
    pub fn range(&self, from: u64, to: u64) -> impl Iterator<Item = Extent> {
        let before = self.get(Virt(from)).filter(|e| e.v.0 < from);
        let first = before.map(|e| e.cut(from, e.end().min(to)));
        let rest = self.0.range(from..to).map(move |(v, (n, place))| {
            let e = Extent { v: Virt(*v), n: *n, place: *place };
            e.cut(*v, e.end().min(to))
        });
        first.into_iter().chain(rest)
    }

    /// From now on this is so, whatever was known before.
    pub fn set(&mut self, new: Extent) {
        assert!(new.n > 0, "I8: {new:?} is no block");
        self.forget(new.v.0, new.end());
        let before = new.v.0.checked_sub(1).and_then(|v| self.get(Virt(v)));
        match before.filter(|b| b.joins(&new)) {
            Some(b) => self.put(Extent { n: b.n + new.n, ..b }),
            None => self.put(new),
        }
        debug_assert_eq!(
            self.get(Virt(new.end() - 1)).and_then(|e| e.at(Virt(new.end() - 1))),
            new.at(Virt(new.end() - 1)),
            "I8: {new:?} was set, and something else is known"
        );
    }

    /// From now on nothing is known of blocks `from` up to `to`.
    pub fn forget(&mut self, from: u64, to: u64) {
        if let Some(e) = self.get(Virt(from)) {
            self.0.remove(&e.v.0);
            if e.v.0 < from {
                self.put(e.cut(e.v.0, from));
            }
            if e.end() > to {
                self.put(e.cut(to, e.end()));
            }
        }
        while let Some((&start, &(n, place))) = self.0.range(from..to).next() {
            let e = Extent { v: Virt(start), n, place };
            self.0.remove(&start);
            if e.end() > to {
                self.put(e.cut(to, e.end()));
            }
        }
        debug_assert!(
            self.range(from, to).next().is_none(),
            "I8: blocks {from} to {to} are forgotten, and something is known of them"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Rng;

    #[test]
    fn as_an_array_of_places() {
        let mut rng = Rng::new(3);
        let (mut extents, mut naive) = (Extents::default(), vec![None; 200]);
        for _ in 0..3000 {
            let n = rng.below(9) as u32 + 1;
            let v = rng.below(200 - u64::from(n));
            let place = (!rng.one_in(4)).then(|| Place(rng.below(50)));
            let e = Extent { v: Virt(v), n, place };
            if rng.one_in(5) {
                extents.forget(v, e.end());
                naive[v as usize..e.end() as usize].fill(None);
            } else {
                extents.set(e);
                (v..e.end()).for_each(|v| naive[v as usize] = Some(e.at(Virt(v))));
            }
            let to = e.end().max(150);
            let part: Vec<Extent> = extents.range(v, to).collect();
            assert!(part.iter().all(|e| e.v.0 >= v && e.end() <= to));
            for v in v..to {
                let found = part.iter().find(|e| e.v.0 <= v && v < e.end());
                assert_eq!(found.map(|e| e.at(Virt(v))), naive[v as usize]);
            }
            for v in 0..200 {
                assert_eq!(extents.get(Virt(v)).map(|e| e.at(Virt(v))), naive[v as usize]);
            }
            let all: Vec<Extent> = extents.iter().collect();
            assert!(all.windows(2).all(|w| w[0].end() <= w[1].v.0));
        }
    }
}

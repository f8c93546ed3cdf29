//! Sectors of a directory that names have left lately. In soft updates a name that moved goes only
//! after its new one is durable, and what is written over it waits for that. New names that always
//! take the place of the last that went therefore hang on one another, a wave of writes for each:
//! where such a chain is long, as the mechanism says, its end is kept from new names.

use env::IdMap;
use integrity::TxnId;
use std::collections::VecDeque;

/// A sector that a name has left, and by which operation.
type Place = (u32, TxnId);

/// The sectors, the one that was left first at the front.
#[derive(Default)]
pub(super) struct Vacated {
    /// By operations that may not have ended: what waits for them is not known yet.
    fresh: Vec<Place>,
    /// Those that are kept from new names.
    places: VecDeque<Place>,
    /// How many names have left each of these.
    held: IdMap<u32, u32>,
}

impl Vacated {
    /// A name has left this sector by this operation.
    pub(super) fn add(&mut self, sector: u32, by: TxnId) {
        self.fresh.push((sector, by));
    }

    /// Is the sector kept from new names?
    pub(super) fn has(&self, sector: u32) -> bool {
        !self.held.is_empty() && self.held.contains_key(&sector)
    }

    /// How many are.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// All operations have ended: where one `waits`, its sector is kept.
    pub(super) fn hold(&mut self, waits: impl Fn(TxnId) -> bool) {
        for place in self.fresh.drain(..).filter(|p| waits(p.1)) {
            *self.held.entry(place.0).or_default() += 1;
            self.places.push_back(place);
        }
    }

    /// Lets go of the first place if nothing `waits` there any more. Some: it was there; and its
    /// sector, if new names may take that again.
    pub(super) fn pop(&mut self, waits: impl Fn(TxnId) -> bool) -> Option<Option<u32>> {
        if self.places.front().is_none_or(|p| waits(p.1)) {
            return None;
        }
        let (sector, _) = self.places.pop_front()?;
        let n = self.held.get_mut(&sector).expect("U4: a sector that is held is counted");
        assert!(*n > 0, "U4: sector {sector} is held by nobody");
        *n -= 1;
        if *n > 0 {
            return Some(None);
        }
        self.held.remove(&sector);
        Some(Some(sector))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The twin is a list of all places that were left, with what became of each.
    #[test]
    fn what_is_left_is_held_until_nothing_waits_in_it() {
        for seed in 0..50 {
            let mut rng = env::Rng::new(seed);
            let (mut vacated, mut twin) = (Vacated::default(), VecDeque::<Place>::new());
            let mut durable = BTreeSet::new();
            for n in 1..400 {
                match rng.below(4) {
                    0 | 1 => {
                        let sector = rng.below(12) as u32;
                        vacated.add(sector, TxnId(n));
                        if rng.one_in(4) {
                            durable.insert(TxnId(n)); // it waits for nobody
                        } else {
                            twin.push_back((sector, TxnId(n)));
                        }
                        vacated.hold(|by| !durable.contains(&by));
                    }
                    2 => durable.extend((1..=n).filter(|_| rng.one_in(3)).map(TxnId)),
                    _ => {
                        let all = rng.one_in(8);
                        while vacated.pop(|by| !all && !durable.contains(&by)).is_some() {
                            twin.pop_front();
                        }
                        assert!(twin.front().is_none_or(|f| !durable.contains(&f.1)));
                    }
                }
                let held: BTreeSet<u32> = twin.iter().map(|t| t.0).collect();
                assert_eq!(vacated.len(), held.len(), "seed {seed}, step {n}");
                assert!((0..12).all(|s| vacated.has(s) == held.contains(&s)), "seed {seed}, {n}");
            }
        }
    }
}

//! How many mutations a test makes, and with which seeds: a few unless the environment asks for
//! others. It knows neither what is mutated nor who judges it.

use super::Chance;

/// A number that the environment gives.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

/// MUTATIONS: how many of each image and kind; FROM: the first of them; SEED: one of them alone.
pub struct Rounds {
    pub count: u64,
    pub only: Option<u64>,
    from: u64,
}

impl Rounds {
    /// What the environment asks for; `count` of each if it says nothing.
    pub fn asked(count: u64) -> Rounds {
        Rounds {
            count: number("MUTATIONS").unwrap_or(count),
            only: number("SEED"),
            from: number("FROM").unwrap_or(0),
        }
    }

    /// The seeds for a kind of mutation of an image, each with the chance that it begins.
    pub fn seeds(&self, image: usize, kind: usize) -> impl Iterator<Item = (u64, Chance)> {
        let of = (image as u64) << 48 | (kind as u64) << 40;
        let (only, rounds) = (self.only, self.from..self.from + self.count);
        rounds.map(move |n| of | (n + 1)).filter(move |s| only.is_none_or(|o| o == *s)).map(|s| {
            let mut c = Chance(s.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            c.next();
            (s, c)
        })
    }
}

//! The choice of the policy `adaptive` among three ways, by what each has cost: to clean, the old
//! segments and those in memory first; to clean the emptiest; to put what lives in the emptiest
//! into holes. It sees only passes that were planned.
//!
//! Each way leaves other segments behind: where holes are plugged, segments are full or are soon
//! victims, which are emptier then than if all were cleaned; where old ones are taken first, young
//! ones have time to empty by themselves. So what a pass would cost another way now, by which
//! matthews-1997 chooses, is not what that way costs when it is kept to.

use crate::policy::{Costs, Plan, Policy, Way};

/// A way to make free segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    /// Cleans, old segments and those in memory first.
    Weighed,
    /// Cleans the emptiest.
    Emptiest,
    /// Puts what lives in the emptiest into holes.
    Plug,
}

impl Method {
    const ALL: [Method; 3] = [Method::Weighed, Method::Emptiest, Method::Plug];
}

/// The share of victims that is dead, to this power, is the dead share once holes are plugged for
/// long: 0.62 to 0.66 for random updates between 70 and 95 % full. Other loads are tried.
const DEAD_POWER: f64 = 0.63;
/// Another way has to be cheaper by this.
const CHEAPER: f64 = 0.98;
/// What a way costs has changed by so much: what was known of the others is old.
const DRIFT: f64 = 0.1;
/// Where victims are so full beside those of random updates, age says too little.
const AS_AT_RANDOM: f64 = 0.9;

/// What each way has cost.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// Blocks of all segments: so many have to be freed before a way shows what it costs.
    blocks: f64,
    here: Method,
    /// Blocks freed since the way was changed.
    since: f64,
    /// What was done since it has settled.
    settled: Did,
    /// What a freed block has cost each way when it was last gone.
    known: [Option<f64>; Method::ALL.len()],
    /// What it cost the present way when that had settled.
    first: Option<f64>,
}

/// What some passes have done.
#[derive(Clone, Copy, Default, Debug)]
struct Did {
    nanos: f64,
    freed: f64,
    /// Victims' live blocks, of as many as they could hold.
    live: f64,
    blocks: f64,
}

impl Did {
    /// The victims' share of live blocks.
    fn utilisation(&self) -> f64 {
        self.live / self.blocks
    }
}

impl Choice {
    pub(crate) fn new(blocks: u64) -> Choice {
        Choice {
            blocks: blocks as f64,
            here: Method::Weighed,
            since: 0.0,
            settled: Did::default(),
            known: [None; Method::ALL.len()],
            first: None,
        }
    }

    /// The policy in whose order victims are taken now.
    pub(crate) fn order(&self) -> Policy {
        match self.here {
            Method::Weighed => Policy::Adaptive,
            Method::Emptiest => Policy::Greedy,
            Method::Plug => Policy::Plug,
        }
    }

    /// Are holes plugged now?
    pub(crate) fn plugs(&self) -> bool {
        self.here == Method::Plug
    }

    /// A pass is planned, of segments that are so full. The present way is left when it has shown
    /// what it costs and another is cheaper.
    pub(crate) fn note(&mut self, costs: &Costs, full: f64, plan: &Plan) {
        let plugged = plan.way == Way::Plug;
        if plugged != self.plugs() {
            return; // there were no holes this time
        }
        let victims = &plan.victims;
        let (nanos, freed) = if plugged { costs.plug(victims) } else { costs.clean(victims) };
        self.since += freed;
        if self.since <= self.blocks {
            return;
        }
        self.settled.nanos += nanos;
        self.settled.freed += freed;
        self.settled.live += victims.iter().map(|c| f64::from(c.live)).sum::<f64>();
        self.settled.blocks += victims.iter().map(|c| f64::from(c.blocks)).sum::<f64>();
        if self.settled.freed >= self.blocks / 4.0 {
            let whole = victims.first().map_or(1.0, |c| f64::from(c.blocks));
            let did = std::mem::take(&mut self.settled);
            self.choose(&Guess { costs, whole, full, did });
        }
    }

    fn choose(&mut self, guess: &Guess<'_>) {
        let cost = guess.did.nanos / guess.did.freed;
        let first = *self.first.get_or_insert(cost);
        if (cost / first - 1.0).abs() > DRIFT {
            (self.known, self.first) = ([None; Method::ALL.len()], Some(cost));
        }
        self.known[self.here as usize] = Some(cost);
        let of = |m: Method| self.known[m as usize].unwrap_or_else(|| guess.of(self.here, m));
        let others = Method::ALL.into_iter().filter(|m| *m != self.here);
        let best = others.min_by(|a, b| of(*a).total_cmp(&of(*b)));
        if let Some(best) = best.filter(|m| of(*m) < cost * CHEAPER) {
            (self.here, self.since, self.first) = (best, 0.0, None);
        }
    }
}

/// What a way costs of which nothing is known, by what another has done.
struct Guess<'a> {
    costs: &'a Costs,
    /// Blocks of a segment.
    whole: f64,
    /// All segments' share of live blocks.
    full: f64,
    did: Did,
}

impl Guess<'_> {
    /// Nanoseconds for each block that `other` frees, where `here` is gone.
    fn of(&self, here: Method, other: Method) -> f64 {
        match (here, other) {
            (Method::Plug, _) => self.cleaning(),
            (_, Method::Plug) => self.plugging(),
            (Method::Weighed, _)
                if self.did.utilisation() < AS_AT_RANDOM * at_random(self.full) =>
            {
                f64::MAX
            }
            // Nothing says what they cost beside one another: it is tried.
            _ => 0.0,
        }
    }

    fn dead(&self) -> f64 {
        (1.0 - self.did.utilisation()).max(1e-6)
    }

    /// Plugging, once it has been done for long, by victims of cleaning.
    fn plugging(&self) -> f64 {
        let live = 1.0 - self.dead().powf(DEAD_POWER);
        (self.costs.segment + live * self.whole * self.costs.block) / self.whole
    }

    /// The same of cleaning, by victims of plugging.
    fn cleaning(&self) -> f64 {
        let dead = self.dead().powf(1.0 / DEAD_POWER);
        self.costs.segment * (2.0 - dead) / (dead * self.whole)
    }
}

/// The share of the oldest segments that lives under random updates, where so much of all lives:
/// the u with full = (1 - u) / -ln u, by halving.
fn at_random(full: f64) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..40 {
        let u = f64::midpoint(low, high);
        if (1.0 - u) / -u.ln() < full {
            low = u;
        } else {
            high = u;
        }
    }
    low
}

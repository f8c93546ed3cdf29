//! The cleaner's policies: which segments are emptied, and whether their blocks go together into
//! new segments or into the holes of others. They see tables and costs only, so that the same code
//! works for a store on a disk and in simulations; they ask no disk.
//!
//! Two ways to make free segments (matthews-1997):
//!
//! ```text
//!  clean   N victims are read, what lives is written as whole segments   frees what was dead
//!  plug    M victims are read, each live block goes into a hole of the    frees M segments
//!          fullest segments
//! ```

use crate::choice::Choice;
use crate::geometry::SegNo;

/// Which segments are emptied, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// The emptiest are cleaned.
    Greedy,
    /// The most gain for the work, old segments first (rosenblum-1992).
    CostBenefit,
    /// The same, knowing what need not be read because it is in memory (matthews-1997).
    CostBenefitCached,
    /// The same with the root of the age: where blocks are written more or less often in all
    /// degrees, the age itself makes too much of what is merely old. What is in memory counts too,
    /// and all other reading half, which makes what is written less.
    #[default]
    Balanced,
    /// What is dead to what lives, times the age (wang-2022).
    SepBit,
    /// The emptiest are emptied into the holes of the fullest.
    Plug,
    /// Cleans or plugs, whichever is cheaper for the pass at hand (matthews-1997).
    Paper,
    /// Cleans, old segments and those in memory first or the emptiest, or plugs: whichever is
    /// cheaper once it has been done for long.
    Adaptive,
}

/// A segment that may be emptied, as policies see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Which.
    pub segment: SegNo,
    /// Live blocks in it, of
    pub live: u32,
    /// as many as it could hold.
    pub blocks: u32,
    /// Live blocks that are in memory.
    pub cached: u32,
    /// Holes that may be plugged.
    pub holes: u32,
    /// Blocks that users have written since its youngest block was.
    pub age: u64,
}

/// How long a disk takes, by its mean access and its bandwidth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// Nanoseconds to read or write a whole segment.
    pub segment: f64,
    /// Nanoseconds to read or write one block somewhere.
    pub block: f64,
}

impl Costs {
    /// For a disk with this mean access, in nanoseconds, and bandwidth, in bytes a second.
    /// `plugged_bytes`: what is written with each block that goes into a hole, itself included.
    pub fn new(access: f64, bandwidth: f64, segment_bytes: u64, plugged_bytes: u64) -> Costs {
        let transfer = |bytes: u64| access + bytes as f64 * 1e9 / bandwidth;
        Costs { segment: transfer(segment_bytes), block: transfer(plugged_bytes) }
    }

    /// Nanoseconds until what lives of a segment is in memory: all of it in one piece, or the
    /// blocks that are not there one by one, whichever is quicker.
    pub fn read(&self, c: &Candidate) -> f64 {
        (f64::from(c.live.saturating_sub(c.cached)) * self.block).min(self.segment)
    }

    /// The same as far as tables tell: where nothing is in memory it may not be known what lies
    /// where, and then all is read.
    pub(crate) fn read_of(&self, c: &Candidate) -> f64 {
        if c.cached == 0 { self.segment } else { self.read(c) }
    }

    /// Cleaning a segment of which nothing is in memory takes so many times as long.
    fn saved_by_memory(&self, c: &Candidate) -> f64 {
        let time = |read: f64| read / self.segment * f64::from(c.blocks) + f64::from(c.live);
        time(self.segment) / time(self.read_of(c)).max(1.0)
    }

    /// Nanoseconds of an access alone; a segment has so many blocks.
    pub(crate) fn access(&self, blocks: u32) -> f64 {
        (self.block - self.transfer(blocks)).max(0.0)
    }

    /// Nanoseconds of one block more in a request; a segment has so many.
    pub(crate) fn transfer(&self, blocks: u32) -> f64 {
        (self.segment - self.block).max(0.0) / f64::from(blocks.max(2) - 1)
    }

    /// Nanoseconds that cleaning these takes, and the blocks that it frees.
    pub fn clean(&self, victims: &[Candidate]) -> (f64, f64) {
        let Sum { reads, live, blocks, whole } = self.sum(victims);
        (reads + (live / whole).ceil() * self.segment, blocks - live)
    }

    /// Nanoseconds that emptying these into holes takes, and the blocks that it frees in whole
    /// segments.
    pub fn plug(&self, victims: &[Candidate]) -> (f64, f64) {
        let Sum { reads, live, blocks, .. } = self.sum(victims);
        (reads + live * self.block, blocks)
    }

    fn sum(&self, victims: &[Candidate]) -> Sum {
        let blocks = |f: fn(&Candidate) -> u32| victims.iter().map(|c| f64::from(f(c))).sum();
        Sum {
            reads: victims.iter().map(|c| self.read(c)).sum(),
            live: blocks(|c| c.live),
            blocks: blocks(|c| c.blocks),
            whole: victims.first().map_or(1.0, |c| f64::from(c.blocks)),
        }
    }
}

struct Sum {
    reads: f64,
    live: f64,
    blocks: f64,
    whole: f64,
}

/// Of two ways, the one a pass goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// What lives goes together into new segments.
    Clean,
    /// What lives goes into holes.
    Plug,
}

/// What a pass may do at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Segments that are emptied.
    pub victims: usize,
    /// Live blocks that go into new segments.
    pub moved: u64,
    /// Blocks that go into holes.
    pub plugged: u64,
    /// It need not free more blocks than these.
    pub freed: u64,
}

/// What a pass is to do.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// How.
    pub way: Way,
    /// These are emptied.
    pub victims: Vec<Candidate>,
    /// Into the holes of these, the fullest first; empty unless it plugs.
    pub targets: Vec<Candidate>,
}

impl Plan {
    /// It does no more than it may, and what it plugs has holes to go to.
    fn check(&self, limits: &Limits) {
        let sum = |all: &[Candidate], f: fn(&Candidate) -> u32| {
            all.iter().map(|c| u64::from(f(c))).sum::<u64>()
        };
        let (n, most) = (self.victims.len(), limits.victims);
        assert!(n <= most, "I10: {n} segments are emptied, and {most} may be");
        let live = sum(&self.victims, |c| c.live);
        let most = if self.way == Way::Plug { limits.plugged } else { limits.moved };
        assert!(live <= most, "I10: {live} blocks are moved, and {most} may be");
        let holes = sum(&self.targets, |c| c.holes);
        let fits = self.way == Way::Clean || live <= holes;
        assert!(fits, "I12: {live} blocks are to go into {holes} holes");
    }
}

/// What `balanced` counts of a victim's reading; what memory saves of it counts in full. All of it
/// would put off victims of which little lives, and where a few blocks get nearly all writes more
/// would be moved than by SepBIT.
const READ_WEIGHT: f64 = 0.5;

impl Policy {
    /// Every policy with its name.
    pub const ALL: [(&'static str, Policy); 8] = [
        ("greedy", Policy::Greedy),
        ("cost-benefit", Policy::CostBenefit),
        ("cached", Policy::CostBenefitCached),
        ("balanced", Policy::Balanced),
        ("sepbit", Policy::SepBit),
        ("plug", Policy::Plug),
        ("paper", Policy::Paper),
        ("adaptive", Policy::Adaptive),
    ];

    /// The policy of this name.
    pub fn named(name: &str) -> Option<Policy> {
        Policy::ALL.iter().find(|p| p.0 == name).map(|p| p.1)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let found = Policy::ALL.iter().find(|p| p.1 == self);
        found.expect("every policy has a name").0
    }

    /// May it plug?
    pub fn plugs(self) -> bool {
        matches!(self, Policy::Plug | Policy::Paper | Policy::Adaptive)
    }

    /// Sorts candidates, the best first.
    pub fn sort(self, all: &mut [Candidate], costs: &Costs) {
        // benefit / cost = (1 - u) age / (read + u), where all is read at a cost of 1
        let gain = |c: &Candidate, read: f64, age: f64| {
            let dead = f64::from(c.blocks - c.live) * age;
            dead / (f64::from(c.blocks) * read + f64::from(c.live)).max(1.0)
        };
        let by = |all: &mut [Candidate], value: &dyn Fn(&Candidate, f64) -> f64| {
            let value = |c: &Candidate| value(c, c.age as f64 + 1.0);
            all.sort_by(|a, b| value(b).total_cmp(&value(a)).then(a.segment.cmp(&b.segment)));
        };
        match self {
            Policy::CostBenefit => by(all, &|c, age| gain(c, 1.0, age)),
            Policy::CostBenefitCached => {
                by(all, &|c, age| gain(c, costs.read(c) / costs.segment, age));
            }
            Policy::Balanced => {
                by(all, &|c, age| gain(c, READ_WEIGHT, age.sqrt()) * costs.saved_by_memory(c))
            }
            Policy::Adaptive => {
                by(all, &|c, age| gain(c, costs.read_of(c) / costs.segment, age.sqrt()));
            }
            Policy::SepBit => by(all, &|c, age| gain(c, 0.0, age)),
            _ => all.sort_by_key(|c| (c.live, c.segment)),
        }
    }
}

/// Victims of a pass that cleans: the first of `sorted` within the limits.
fn cleaned(sorted: &[Candidate], limits: &Limits) -> Vec<Candidate> {
    let (mut live, mut dead, mut chosen) = (0, 0, Vec::new());
    for c in sorted.iter().take(limits.victims) {
        if dead >= limits.freed || live + u64::from(c.live) > limits.moved {
            break;
        }
        live += u64::from(c.live);
        dead += u64::from(c.blocks - c.live);
        chosen.push(*c);
    }
    chosen
}

/// Victims of a pass that plugs, and whose holes take their blocks: `by_live` is sorted, and the
/// fullest are behind; victims are taken from the front as long as the holes behind are enough.
/// None of them is both.
fn plugged(by_live: &[Candidate], limits: &Limits) -> (Vec<Candidate>, Vec<Candidate>) {
    let holes = |c: &Candidate| u64::from(c.holes);
    let (mut victims, mut live, mut freed) = (0, 0, 0);
    let (mut first, mut room) = (by_live.len(), 0);
    while victims < limits.victims.min(first) && freed < limits.freed {
        let c = &by_live[victims];
        let wanted = live + u64::from(c.live);
        while room < wanted && first > victims + 1 {
            first -= 1;
            room += holes(&by_live[first]);
        }
        if room < wanted || wanted > limits.plugged {
            break;
        }
        (victims, live, freed) = (victims + 1, wanted, freed + u64::from(c.blocks));
    }
    let targets = by_live[first..].iter().rev().filter(|c| holes(c) > 0);
    (by_live[..victims].to_vec(), targets.copied().collect())
}

/// A policy at work: it remembers what each way has cost.
#[derive(Clone, Debug)]
pub struct Planner {
    policy: Policy,
    costs: Costs,
    choice: Choice,
}

impl Planner {
    /// For a disk with these costs. `blocks`: of all segments together.
    pub fn new(policy: Policy, costs: Costs, blocks: u64) -> Planner {
        Planner { policy, costs, choice: Choice::new(blocks) }
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// What a disk's requests cost.
    pub fn costs(&self) -> Costs {
        self.costs
    }

    /// What the next pass is to do.
    pub fn plan(&mut self, mut victims: Vec<Candidate>, limits: &Limits) -> Plan {
        let adapts = self.policy == Policy::Adaptive;
        let policy = if adapts { self.choice.order() } else { self.policy };
        let of = |f: fn(&Candidate) -> u32| victims.iter().map(|c| f64::from(f(c))).sum::<f64>();
        let full = of(|c| c.live) / of(|c| c.blocks).max(1.0);
        policy.sort(&mut victims, &self.costs);
        let clean = cleaned(&victims, limits);
        let may_plug = if adapts { self.choice.plugs() } else { policy.plugs() };
        let plugged = may_plug.then(|| plugged(&victims, limits));
        let plan = match plugged.filter(|(plug, _)| self.plugs(&clean, plug)) {
            Some((victims, targets)) => Plan { way: Way::Plug, victims, targets },
            None => Plan { way: Way::Clean, victims: clean, targets: Vec::new() },
        };
        plan.check(limits);
        if adapts {
            self.choice.note(&self.costs, full, &plan);
        }
        plan
    }

    /// Does a pass plug, which may do either?
    fn plugs(&self, clean: &[Candidate], plug: &[Candidate]) -> bool {
        let per_block =
            |(time, freed): (f64, f64)| if freed > 0.0 { time / freed } else { f64::MAX };
        let is_cheaper = || per_block(self.costs.plug(plug)) < per_block(self.costs.clean(clean));
        !plug.is_empty() && (self.policy != Policy::Paper || is_cheaper())
    }
}

/// Classes of blocks by how long they live, each of which goes to a head of its own (SepBIT,
/// wang-2022): what users write by how long the block they replace has lived, what is moved by its
/// age. Times are in blocks that users have written.
#[derive(Clone, Debug, Default)]
pub struct Lifespans {
    /// How long segments of class 0 lasted: the sum of the last few, and how many those are.
    sum: (u64, u64),
    /// Their mean; None: not known yet.
    mean: Option<u64>,
}

/// So many segments make a mean.
const LIFESPANS: u64 = 16;

impl Lifespans {
    /// How many classes there are: two of users', the others of the cleaner's.
    pub const CLASSES: usize = 6;

    /// The class of a user's write. `lived`: how long the block that it replaces has.
    pub fn of_write(&self, lived: Option<u64>) -> u8 {
        let short = lived.is_some_and(|l| self.mean.is_none_or(|m| l < m));
        u8::from(!short)
    }

    /// The class of a block of this age that is moved out of a segment of class `from`.
    pub fn of_move(&self, from: u8, age: u64) -> u8 {
        let mean = self.mean.unwrap_or(u64::MAX);
        match from {
            0 => 2,
            _ if age < mean.saturating_mul(4) => 3,
            _ if age < mean.saturating_mul(16) => 4,
            _ => 5,
        }
    }

    /// A segment of this class is empty, so long after it was begun.
    pub fn ended(&mut self, class: u8, lasted: u64) {
        if class != 0 {
            return;
        }
        self.sum = (self.sum.0 + lasted, self.sum.1 + 1);
        if self.sum.1 == LIFESPANS {
            self.mean = Some(self.sum.0 / LIFESPANS);
            self.sum = (0, 0);
        }
    }
}

//! What is read behind what (matthews-1997, section 5): for each block that was read from
//! the disk, the few that were read next, how often, and what of that would be quicker if they lay
//! one behind the other. It reads and moves nothing, and where a block lies it is told.
//!
//! Rule        A read of B next after A adds to the edge from A to B. A block has [`NEIGHBOURS`]
//!             edges at most, and the graph a bounded number of blocks; what was read longest ago
//!             goes. A pause ends what was read one after the other.
//! Terms       *chain*: blocks in the order in which they are mostly read, no more than a segment
//!             holds. Edges from the heaviest on join the chain that ends with A and the one that
//!             begins with B (pettis-1990). *Break*: two blocks of a chain of which the
//!             second does not lie shortly behind the first.
//! Cost        A look-up for each block that is read from the disk, [`NODE_BYTES`] for each that is
//!             known.

use crate::geometry::{Place, Virt};
use crate::policy::Costs;
use env::{IdMap, Nanos};

/// Edges of a block at most.
pub(crate) const NEIGHBOURS: usize = 4;
/// Blocks known at most, in two halves: the younger, and what was the younger before.
const HALF: usize = 1 << 15;
/// Memory for one of them.
const NODE_BYTES: usize = size_of::<Node>() + 16;
/// What is read so long after the last read has nothing to do with it.
const PAUSE: Nanos = Nanos::from_millis(500);
/// An order of reads counts when it was seen so often.
const REPEATED: u32 = 2;
/// So many reads of what counts and lies elsewhere are worth a look at all that is known.
const NEWS: u32 = 32;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Edge {
    to: u64,
    weight: u32,
}

/// What is known of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Node {
    /// The one used last comes first; those with weight 0 are none.
    edges: [Edge; NEIGHBOURS],
    /// Where it lay when it was read.
    place: Place,
    /// The block that was laid behind it because it is read next.
    laid: Option<u64>,
}

impl Node {
    fn at(place: Place) -> Node {
        Node { edges: [Edge::default(); NEIGHBOURS], place, laid: None }
    }

    /// The weight of the edge to a block, which has just been used once more.
    fn used(&mut self, to: u64) -> u32 {
        let found = self.edges.iter().position(|e| e.weight > 0 && e.to == to);
        let at = found.unwrap_or(NEIGHBOURS - 1);
        let before = found.map_or(0, |i| self.edges[i].weight);
        self.edges[..=at].rotate_right(1);
        self.edges[0] = Edge { to, weight: before.saturating_add(1) };
        self.edges[0].weight
    }
}

/// Blocks in the order in which they are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chain {
    pub(crate) blocks: Vec<Virt>,
    /// The breaks in it, each with how often it was crossed.
    pub(crate) breaks: Vec<(usize, u32)>,
}

impl Chain {
    /// How often a break of it was crossed.
    pub(crate) fn crossed(&self) -> u64 {
        self.breaks.iter().map(|b| u64::from(b.1)).sum()
    }
}

/// The graph.
#[derive(Default)]
pub(crate) struct Graph {
    young: IdMap<u64, Node>,
    old: IdMap<u64, Node>,
    /// What was read last, where that lies, and when.
    last: Option<(u64, Place, Nanos)>,
    /// Reads along edges that count, from one place to another, since somebody looked.
    news: u32,
}

/// Does a disk that has read `a` come to `b` sooner by reading on than by an access?
fn is_near(a: Place, b: Place, (costs, of): (&Costs, u32)) -> bool {
    let each = costs.transfer(of);
    b > a && (b.0 - a.0 - 1) as f64 * each < (costs.block - each) / 2.0
}

impl Graph {
    /// A block was read from where it lies. `disk`: its costs, and the blocks of a segment. Was it
    /// quicker because of how it was laid?
    pub(crate) fn note(
        &mut self,
        (v, place): (Virt, Place),
        now: Nanos,
        disk: (&Costs, u32),
    ) -> bool {
        let last = self.last.replace((v.0, place, now));
        self.node(v.0, place).place = place;
        let Some((before, from, then)) = last.filter(|l| l.0 != v.0) else { return false };
        if now.since(then) > PAUSE {
            return false;
        }
        let near = is_near(from, place, disk);
        let node = self.node(before, from);
        let weight = node.used(v.0);
        let laid = node.laid == Some(v.0);
        self.news += u32::from(weight >= REPEATED && !near);
        laid && near
    }

    fn node(&mut self, v: u64, place: Place) -> &mut Node {
        if !self.young.contains_key(&v) {
            if self.young.len() >= HALF {
                self.old = std::mem::take(&mut self.young);
            }
            let node = self.old.remove(&v).unwrap_or(Node::at(place));
            self.young.insert(v, node);
            let known = self.young.len();
            assert!(known <= HALF, "{known} blocks are the younger half, of {HALF} at most");
        }
        self.young.get_mut(&v).expect("it is there now")
    }

    fn get(&self, v: u64) -> Option<&Node> {
        self.young.get(&v).or_else(|| self.old.get(&v))
    }

    /// Is there an order of reads that nobody has looked at?
    pub(crate) fn has_news(&self) -> bool {
        self.news >= NEWS
    }

    /// Whoever looked has not come to the end.
    pub(crate) fn look_again(&mut self) {
        self.news = NEWS;
    }

    /// Blocks that are known.
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.len() * NODE_BYTES
    }

    /// All chains with breaks, of `most` blocks at most; the one that was crossed most comes first.
    pub(crate) fn chains(&mut self, most: usize, disk: (&Costs, u32)) -> Vec<Chain> {
        self.news = 0;
        let mut edges: Vec<(u32, u64, u64)> = Vec::new();
        for (v, node) in self.young.iter().chain(&self.old) {
            let counts = node.edges.iter().filter(|e| e.weight >= REPEATED);
            edges.extend(counts.map(|e| (e.weight, *v, e.to)));
        }
        edges.sort_unstable_by(|a, b| b.0.cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let mut all = Joined::default();
        edges.iter().for_each(|(_, a, b)| all.join(*a, *b, most));
        let lists = all.lists.into_iter().filter(|l| l.len() > 1);
        let mut chains: Vec<Chain> = lists.map(|l| self.chain(l, disk)).collect();
        chains.retain(|c| !c.breaks.is_empty());
        let first = |c: &Chain| c.blocks[0];
        chains.sort_unstable_by_key(|c| (std::cmp::Reverse(c.crossed()), first(c)));
        chains
    }

    fn chain(&self, blocks: Vec<u64>, disk: (&Costs, u32)) -> Chain {
        let broken = |(i, pair): (usize, &[u64])| {
            let (a, b) = (self.get(pair[0])?, self.get(pair[1])?);
            let weight = a.edges.iter().find(|e| e.to == pair[1])?.weight;
            (!is_near(a.place, b.place, disk)).then_some((i, weight))
        };
        let breaks = blocks.windows(2).enumerate().filter_map(broken).collect();
        Chain { blocks: blocks.into_iter().map(Virt).collect(), breaks }
    }

    /// Where its blocks lay when they were read.
    pub(crate) fn places(&self, chain: &Chain) -> Vec<Place> {
        chain.blocks.iter().filter_map(|v| self.get(v.0)).map(|n| n.place).collect()
    }

    /// A chain was laid as it is: its first block at `places[0]`, and so on.
    pub(crate) fn laid(&mut self, chain: &Chain, places: &[Option<Place>]) {
        let (blocks, known) = (chain.blocks.len(), places.len());
        assert_eq!(blocks, known, "a chain was laid, and it is not known where all of it lies");
        for (v, place) in chain.blocks.iter().zip(places) {
            if let Some(place) = *place {
                self.node(v.0, place).place = place;
            }
        }
        for (i, _) in &chain.breaks {
            let (a, b) = (chain.blocks[*i].0, chain.blocks[i + 1].0);
            if let Some(place) = self.get(a).map(|n| n.place) {
                self.node(a, place).laid = Some(b);
            }
        }
    }
}

/// Chains that are being joined.
#[derive(Default)]
struct Joined {
    of: IdMap<u64, usize>,
    lists: Vec<Vec<u64>>,
}

impl Joined {
    fn list_of(&mut self, v: u64) -> usize {
        *self.of.entry(v).or_insert_with(|| {
            self.lists.push(vec![v]);
            self.lists.len() - 1
        })
    }

    /// B is to come right behind A, if A ends a chain, B begins another, and both are short enough.
    fn join(&mut self, a: u64, b: u64, most: usize) {
        let (to, from) = (self.list_of(a), self.list_of(b));
        let fits = self.lists[to].len() + self.lists[from].len() <= most;
        let ends = self.lists[to].last() == Some(&a) && self.lists[from].first() == Some(&b);
        if to == from || !fits || !ends {
            return;
        }
        let moved = std::mem::take(&mut self.lists[from]);
        self.of.extend(moved.iter().map(|v| (*v, to)));
        self.lists[to].extend(moved);
        let len = self.lists[to].len();
        assert!(len <= most, "a chain of {len} blocks, of which a segment holds {most}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block takes 0.04 ms beside an access of 1 ms.
    fn costs() -> Costs {
        Costs::new(1e6, 1e8, 256 << 12, 1 << 12)
    }

    /// Reads blocks one behind the other, each at a place of its own far from the others'.
    fn read(g: &mut Graph, from: u64, blocks: &[u64]) {
        for (i, v) in (0..).zip(blocks) {
            let now = Nanos::from_secs(from).plus(Nanos::from_millis(i));
            g.note((Virt(*v), Place(v * 1000)), now, (&costs(), 256));
        }
    }

    fn blocks(c: &Chain) -> Vec<u64> {
        c.blocks.iter().map(|v| v.0).collect()
    }

    #[test]
    fn what_is_read_again_in_the_same_order_is_a_chain() {
        let mut g = Graph::default();
        for n in 0..3 {
            read(&mut g, 10 * n, &[7, 3, 9, 5]);
            read(&mut g, 10 * n + 5, &[20 + n, 40 + n]);
        }
        let all = g.chains(256, (&costs(), 256));
        assert_eq!(all.iter().map(blocks).collect::<Vec<_>>(), [[7, 3, 9, 5]]);
        assert_eq!((all[0].crossed(), all[0].breaks.len()), (9, 3), "once is no order");
        g.laid(&all[0], &[100, 101, 102, 103].map(|p| Some(Place(p))));
        assert!(g.chains(256, (&costs(), 256)).is_empty(), "there is no break left");
        let at = |n: u64| (Nanos::from_secs(99), Place(n));
        let mut quicker = |v, (now, place)| g.note((Virt(v), place), now, (&costs(), 256));
        let gained = [quicker(7, at(100)), quicker(3, at(101)), quicker(9, at(500))];
        assert_eq!(gained, [false, true, false], "9 was written again since, elsewhere");
    }

    #[test]
    fn chains_are_no_longer_than_a_segment() {
        let mut g = Graph::default();
        let all: Vec<u64> = (1..=10).collect();
        (0..2).for_each(|n| read(&mut g, 10 * n, &all));
        let lengths: Vec<usize> =
            g.chains(4, (&costs(), 256)).iter().map(|c| c.blocks.len()).collect();
        assert!(lengths.iter().all(|n| *n <= 4) && lengths.iter().sum::<usize>() >= 8);
    }

    #[test]
    fn a_block_has_few_neighbours_and_the_graph_few_blocks() {
        let mut g = Graph::default();
        for n in 0..9 {
            read(&mut g, 10 * n, &[1, 100 + n]);
        }
        let kept: Vec<u64> = g.get(1).map(|n| n.edges.map(|e| e.to).to_vec()).unwrap_or_default();
        assert_eq!(kept, [108, 107, 106, 105], "the one used longest ago goes");
        for v in 0..5 * HALF as u64 {
            g.note((Virt(v), Place(v)), Nanos::default(), (&costs(), 256));
        }
        assert!(g.len() <= 2 * HALF && g.bytes() < 10 << 20, "{} bytes", g.bytes());
    }
}

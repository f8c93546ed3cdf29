//! Which nodes of a block a new edit lies over. A block of inodes, bits or counts has as many nodes
//! as there are operations in memory, and each new edit is held against all of them: so of a chain,
//! as appends to one file make, only the last is looked at. A name that goes is held against all,
//! too: names.rs asks whether it lies over the very node that has made it.

use super::graph::{Node, NodeId};
use super::render::Backward;
use env::SerialMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::ops::Range;

/// The entry of a directory's block whose head is written: by the byte at which it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Head {
    /// There is none.
    #[default]
    None,
    /// This one.
    At(u16),
    /// Several.
    Many,
}

impl Head {
    /// Of a node that has written this one, and now that one.
    fn and(self, later: Head) -> Head {
        match (self, later) {
            (head, Head::None) | (Head::None, head) => head,
            (a, b) if a == b => a,
            _ => Head::Many,
        }
    }

    /// May both have written the same?
    fn may_be(self, other: Head) -> bool {
        match (self, other) {
            (Head::None, _) | (_, Head::None) => false,
            (Head::At(a), Head::At(b)) => a == b,
            _ => true,
        }
    }
}

/// A node in a block, and within which bytes lies what it takes back.
#[derive(Clone, Debug)]
pub(super) struct Lying {
    pub(super) id: NodeId,
    pub(super) bytes: Range<usize>,
    /// It takes nothing back but counts, of which none lies under another.
    pub(super) is_counts: bool,
    /// It stands, by itself or through others, on every older node that meets its bytes.
    pub(super) all: bool,
    /// The name that it makes or takes away.
    pub(super) head: Head,
}

/// Nodes that a new edit lies over: of most there are few.
pub(super) type Under = SmallVec<[NodeId; 4]>;

/// The nodes of a block, in order: of contents one, of inodes and bits thousands.
pub(super) type LyingList = SmallVec<[Lying; 1]>;

/// Have two ranges of bytes some in common?
pub(super) fn meet(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// From the beginning of the first to the end of the last, if they are not empty.
fn hull(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    match (a.is_empty(), b.is_empty()) {
        (_, true) => a.clone(),
        (true, _) => b.clone(),
        _ => a.start.min(b.start)..a.end.max(b.end),
    }
}

impl Lying {
    /// Can what `later` does lie over it?
    fn may_be_under(&self, later: &Lying) -> bool {
        meet(&self.bytes, &later.bytes) && !(self.is_counts && later.is_counts)
    }

    /// Does it stand on every older node that meets these bytes?
    fn stands_on_all(&self, bytes: &Range<usize>) -> bool {
        self.all && self.bytes.start <= bytes.start && bytes.end <= self.bytes.end
    }
}

/// Where the node is in the list, if it is there. What is edited is most often the newest, and the
/// list of a block of bits is long: its end is looked at first.
fn place_of(list: &[Lying], id: NodeId) -> Option<usize> {
    let newest = list.last()?.id;
    if newest <= id {
        return (newest == id).then(|| list.len() - 1);
    }
    list.binary_search_by_key(&id, |l| l.id).ok()
}

/// A later edit of a node that is in the list. Newer nodes that meet what it spans now do not stand
/// on it, or need not.
pub(super) fn join(list: &mut [Lying], later: &Lying) {
    let at = place_of(list, later.id).expect("a node lies in its block");
    let mut newer = list[at..].iter_mut();
    let l = newer.next().expect("it is there");
    if !later.bytes.is_empty() {
        l.bytes = hull(&l.bytes, &later.bytes);
        l.all = later.all;
        newer.filter(|n| meet(&n.bytes, &l.bytes)).for_each(|n| n.all = false);
    }
    l.is_counts &= later.is_counts;
    l.head = l.head.and(later.head);
}

/// What is stood on already through the nodes that were looked at, the newest first.
#[derive(Default)]
struct Reached {
    /// One by one.
    nodes: BTreeSet<NodeId>,
    /// Everything that meets these bytes and is older than what has been looked at.
    bytes: SmallVec<[Range<usize>; 2]>,
}

impl Reached {
    fn has(&self, l: &Lying) -> bool {
        self.bytes.iter().any(|b| meet(b, &l.bytes)) || self.nodes.contains(&l.id)
    }

    /// It is stood on, and what that one stands on is.
    fn add(&mut self, l: &Lying, under: impl Iterator<Item = NodeId>) {
        if !l.all {
            self.nodes.extend(under.filter(|u| *u < l.id));
        } else if let Some(b) = self.bytes.iter_mut().find(|b| meet(b, &l.bytes)) {
            *b = hull(b, &l.bytes);
        } else {
            self.bytes.push(l.bytes.clone());
        }
    }
}

/// The nodes of a block (`list`, oldest first) that a new edit lies over; and does its node, with
/// them, stand on all older ones that meet its bytes? Where one stands on another, only the upper
/// one is named, for it stands in no image without the other; but who has written the head that is
/// sought is always named.
pub(super) fn under_of(
    list: &[Lying],
    nodes: &SerialMap<NodeId, Node>,
    (new, sought): (&Lying, Head),
    backward: &Backward,
) -> (Under, bool) {
    debug_assert!(list.iter().is_sorted_by_key(|l| l.id), "I1: a block's nodes are in no order");
    let same = place_of(list, new.id).map(|at| &list[at]);
    let whole = same.map_or(new.bytes.clone(), |l| hull(&l.bytes, &new.bytes));
    let below = |id: NodeId| nodes.get(id).into_iter().flat_map(|n| &n.under).copied();
    let lies = |l: &Lying| {
        l.may_be_under(new) && nodes.get(l.id).is_some_and(|n| n.backward.is_under(backward))
    };
    let mut reached = Reached::default();
    reached.nodes.extend(below(new.id));
    let (mut under, mut all, mut only_heads) = (Under::new(), true, false);
    for l in list.iter().rev().filter(|l| l.id != new.id) {
        if only_heads || reached.has(l) {
            if l.head.may_be(sought) && lies(l) {
                under.push(l.id);
            }
        } else if !meet(&l.bytes, &whole) {
            continue;
        } else if lies(l) {
            under.push(l.id);
        } else {
            all = false;
            continue;
        }
        if l.id > new.id {
            continue; // a node stands on a newer one without what that one stands on
        }
        if only_heads || l.stands_on_all(&whole) {
            if sought == Head::None {
                break; // the others are below it
            }
            only_heads = true;
        } else {
            reached.add(l, below(l.id));
        }
    }
    (under, all)
}

#[cfg(test)]
mod tests {
    use super::super::graph::Graph;
    use super::super::order::{Concerns, NAMES, UNNAMES};
    use super::*;
    use cache::FlushEpoch;
    use format::{BlockNo, Ino};
    use integrity::{Plant, TxnId};
    use std::collections::BTreeMap;

    fn lying(id: u64, bytes: Range<usize>, all: bool) -> Lying {
        Lying { id: NodeId(id), bytes, is_counts: false, all, head: Head::None }
    }

    /// Random edits of operations that overlap each other, ended and made durable in any order:
    /// each node stands, by itself or through others, on what a twin says that looks at all.
    #[test]
    fn whatever_is_left_out_is_reached_through_what_is_named() {
        let (mut left_out, mut named) = (0, 0);
        for seed in 0..200 {
            let mut rng = env::Rng::new(seed);
            let cache = crate::testing::cache();
            let bufs = [0, 1].map(|n| cache.get_new(BlockNo(n), cache::BufKind::Meta, Ino(0)));
            bufs.iter().for_each(cache::Buf::mark_dirty);
            let mut graph = Graph::new(Plant::default());
            let mut twin: BTreeMap<NodeId, (BlockNo, Backward, BTreeSet<NodeId>)> = BTreeMap::new();
            let (mut open, mut next, mut epoch) = (vec![TxnId(1)], TxnId(2), 1);
            for _ in 0..120 {
                match rng.below(12) {
                    0..8 => {
                        let txn = open[rng.below(open.len() as u64) as usize];
                        let step = [1, 2, NAMES][rng.below(3) as usize];
                        let (at, n) = (4 * rng.below(12) as usize, 4 * (1 + rng.below(3)) as usize);
                        let buf = &bufs[rng.below(2) as usize];
                        let edit = Backward::of_bytes(at, &vec![0; n], &vec![1; n]);
                        let id = graph.add((txn, step), buf, edit.clone(), Concerns::default());
                        twin.retain(|id, _| graph.has(*id));
                        let lies = |(o, (b, was, _)): (&NodeId, &(BlockNo, Backward, _))| {
                            (*o != id && *b == buf.block() && was.is_under(&edit)).then_some(*o)
                        };
                        let below: Vec<NodeId> = twin.iter().filter_map(lies).collect();
                        let new = || (buf.block(), Backward::default(), BTreeSet::new());
                        let its = twin.entry(id).or_insert_with(new);
                        its.1.join(edit);
                        its.2.extend(below);
                    }
                    8 => open.push(next),
                    9 if open.len() > 1 => {
                        let txn = open.swap_remove(rng.below(open.len() as u64) as usize);
                        graph.end(txn, false, false);
                    }
                    10 => {
                        let buf = &bufs[rng.below(2) as usize];
                        graph.capture(buf, true);
                        graph.written(buf.block(), rng.below(8) > 0, FlushEpoch(epoch));
                    }
                    11 => {
                        epoch += 1;
                        graph.flushed(FlushEpoch(epoch));
                    }
                    _ => (),
                }
                next = next.next();
                graph.check();
                for (id, (_, _, all)) in twin.iter().filter(|(id, _)| graph.has(**id)) {
                    let mut reached = BTreeSet::new();
                    let mut todo = vec![*id];
                    while let Some(n) = todo.pop() {
                        let Some(node) = graph.node(n) else { continue };
                        let older = |u: &&NodeId| n == *id || **u < n;
                        todo.extend(
                            node.under.iter().filter(older).filter(|u| reached.insert(**u)),
                        );
                    }
                    let alive = |u: &&NodeId| graph.has(**u) && *u < id;
                    let missed = all.iter().filter(alive).find(|u| !reached.contains(u));
                    assert_eq!(missed, None, "seed {seed}: of node {id}");
                    let told = &graph.node(*id).expect("it is there").under;
                    assert!(told.iter().all(|u| all.contains(u)), "seed {seed}: of node {id}");
                    left_out += all.iter().filter(alive).filter(|u| !told.contains(u)).count();
                    named += told.len();
                }
            }
        }
        assert!(left_out > 1000 && named > 1000, "{left_out} left out, {named} named");
    }

    /// A name is made, others are made and go beside it, whose entries take and give its space: its
    /// own going lies over the last of them, and over what has made it.
    #[test]
    fn who_takes_a_name_away_lies_over_who_has_made_it() {
        let buf = crate::testing::cache().get_new(BlockNo(0), cache::BufKind::Meta, Ino(0));
        buf.mark_dirty();
        let mut graph = Graph::new(Plant::default());
        let mut edit = |txn, step, at: usize, len: usize, head: u16| {
            let undo = Backward::of_bytes(at, &vec![0; len], &vec![1; len]);
            let concerns = Concerns { head: Head::At(head), ..Concerns::default() };
            let id = graph.add((txn, step), &buf, undo, concerns);
            graph.end(txn, false, false);
            (id, graph.node(id).expect("it is there").under.iter().copied().collect::<Vec<_>>())
        };
        let (made, _) = edit(TxnId(1), NAMES, 16, 16, 16);
        let (other, under) = edit(TxnId(2), NAMES, 16, 32, 32);
        assert_eq!(under, [made]);
        let (gone, under) = edit(TxnId(3), UNNAMES, 16, 24, 32);
        assert_eq!(under, [other], "its own, through which it stands on the first");
        let (_, under) = edit(TxnId(4), UNNAMES, 0, 24, 16);
        assert_eq!(under, [gone, made]);
    }

    #[test]
    fn a_later_edit_of_an_older_node_is_under_no_newer_one() {
        let all = [lying(1, 0..4, true), lying(2, 0..8, true), lying(3, 20..24, true)];
        let mut list = all;
        join(&mut list, &lying(1, 4..8, false));
        assert_eq!((list[0].bytes.clone(), list[0].all), (0..8, false));
        assert!(!list[1].stands_on_all(&(0..4)), "what it was no longer is all");
        assert!(list[2].stands_on_all(&(20..24)) && !list[2].stands_on_all(&(20..25)));
    }

    #[test]
    fn an_edit_without_bytes_changes_nothing() {
        let mut list = [lying(1, 0..4, true)];
        join(&mut list, &lying(1, 0..0, false));
        assert!(list[0].stands_on_all(&(0..4)));
    }
}

//! One pointer more in a directory's hash index: nodes that are full are split, and a full root
//! gets a level below it. Blocks are numbered here and written by whoever asks.

use crate::ufs::dirindex::Pointer;

/// A node on the way from the root to a leaf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Level {
    /// Its block of the directory; 0 is the root.
    pub block: u32,
    /// The place of the pointer that leads on.
    pub at: usize,
    /// All its pointers.
    pub pointers: Vec<Pointer>,
}

/// What may be done to an index.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Pointers in the root.
    pub root: usize,
    /// Pointers in another node.
    pub node: usize,
    /// Levels of nodes below the root.
    pub levels: usize,
}

/// Adds a pointer behind the one that the way, which begins with the root, leads through. New nodes
/// take the blocks from `next` on; returns all nodes that are new or other than before. None: the
/// index can have no more; then the way is of no further use.
pub fn add(
    way: &mut Vec<Level>,
    pointer: Pointer,
    bounds: Bounds,
    next: &mut u32,
) -> Option<Vec<Level>> {
    let mut take = || {
        *next += 1;
        *next - 1
    };
    let (mut changed, mut pointer) = (Vec::new(), pointer);
    let begins = way.first().map(|l| l.block);
    assert_eq!(begins, Some(0), "F3: the way to a leaf begins with the root");
    let mut depth = way.len() - 1;
    loop {
        let node = &mut way[depth];
        let (at, count) = (node.at, node.pointers.len());
        assert!(at < count, "F3: the way leads through pointer {at} of {count}");
        if node.pointers.len() < if depth == 0 { bounds.root } else { bounds.node } {
            node.pointers.insert(node.at + 1, pointer);
            changed.push(node.clone());
            let most = |l: &Level| if l.block == 0 { bounds.root } else { bounds.node };
            let other = changed.iter().find(|l| !(1..=most(l)).contains(&l.pointers.len()));
            assert!(other.is_none(), "F3: {other:?} has no room for its pointers: {bounds:?}");
            return Some(changed);
        }
        if depth == 0 {
            // Its pointers go to a node below, which has more room.
            if way.len() > bounds.levels {
                return None;
            }
            let block = take();
            let (at, root) = (way[0].at, &mut way[0]);
            let all = vec![Pointer { hash: 0, block }];
            let pointers = std::mem::replace(&mut root.pointers, all);
            root.at = 0;
            changed.push(root.clone());
            way.insert(1, Level { block, at, pointers });
            depth = 1;
            continue;
        }
        let half = node.pointers.len() / 2;
        let mut upper = node.pointers.split_off(half);
        let (low, hash) = (node.pointers.len(), upper[0].hash);
        assert!(low > 0, "F3: of a node of {} pointers none stay where they were", upper.len());
        match node.at.checked_sub(half) {
            Some(at) => upper.insert(at + 1, pointer),
            None => node.pointers.insert(node.at + 1, pointer),
        }
        changed.push(node.clone());
        let block = take();
        upper[0].hash = 0;
        changed.push(Level { block, at: 0, pointers: upper });
        pointer = Pointer { hash, block };
        depth -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The index as a map from blocks to pointers; its leaves in order, each with its first hash.
    fn leaves(nodes: &BTreeMap<u32, Vec<Pointer>>, at: u32, low: u32, out: &mut Vec<(u32, u32)>) {
        for (n, p) in nodes[&at].iter().enumerate() {
            let low = if n == 0 { low } else { p.hash };
            match nodes.get(&p.block) {
                Some(_) => leaves(nodes, p.block, low, out),
                None => out.push((low, p.block)),
            }
        }
    }

    fn way_to(nodes: &BTreeMap<u32, Vec<Pointer>>, hash: u32) -> Vec<Level> {
        let (mut way, mut block) = (Vec::new(), 0);
        while let Some(all) = nodes.get(&block) {
            let at = all.iter().skip(1).take_while(|p| p.hash <= hash).count();
            way.push(Level { block, at, pointers: all.clone() });
            block = all[at].block;
        }
        way
    }

    /// The twin is a map from first hashes to leaves.
    #[test]
    fn the_index_leads_to_every_leaf_in_order() {
        let bounds = Bounds { root: 3, node: 5, levels: 2 };
        let mut most = 0;
        for seed in 0..200u32 {
            let mut nodes = BTreeMap::from([(0, vec![Pointer { hash: 0, block: 1 }])]);
            let mut twin = BTreeMap::from([(0, 1)]);
            let (mut next, mut rng) = (2, seed);
            let full = loop {
                rng = rng.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let hash = (rng >> 3) & !1;
                if twin.contains_key(&hash) {
                    continue;
                }
                let mut way = way_to(&nodes, hash);
                let block = next;
                next += 1;
                let Some(changed) = add(&mut way, Pointer { hash, block }, bounds, &mut next)
                else {
                    break twin.len();
                };
                // A node may be there twice: what comes last holds.
                nodes.extend(changed.into_iter().map(|l| (l.block, l.pointers)));
                assert!(nodes.iter().all(|(b, p)| p.len() <= if *b == 0 { 3 } else { 5 }));
                twin.insert(hash, block);
                let mut all = Vec::new();
                leaves(&nodes, 0, 0, &mut all);
                assert_eq!(all, twin.iter().map(|(h, b)| (*h, *b)).collect::<Vec<_>>());
            };
            most = most.max(full);
            assert!(full > 3 * 3 * 3, "seed {seed}: full with {full} leaves");
        }
        assert!(most <= 3 * 5 * 5);
    }
}

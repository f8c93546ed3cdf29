//! Which volumes a server of a pool opens, and which one it lets go, from what all servers say. All
//! that see the same come to the same; who sees something else errs, and is put right by the
//! volumes' own fences. It asks no bucket and no clock.
//!
//! Rule        A volume that nobody has goes to the server that has the fewest. When everything
//!             rests and somebody has two more than another, the one with the most lets one go.

use std::collections::{BTreeMap, BTreeSet};

/// What is known of a server.
#[derive(Clone, Default, Debug)]
pub struct Member {
    /// Volumes that it opens, serves or closes.
    pub has: BTreeSet<String>,
    /// Does it serve all of these, with none on its way?
    pub rests: bool,
    /// Volumes that it could not open.
    pub refused: BTreeSet<String>,
}

/// What a server is to do.
#[derive(PartialEq, Eq, Debug)]
pub enum Step {
    /// Open these.
    Open(Vec<String>),
    /// Close this one, and let it go.
    LetGo(String),
    Stay,
}

/// What `me` is to do, where these are all servers that are alive, by their names, with itself.
pub fn step(me: &str, members: &BTreeMap<String, Member>, volumes: &BTreeSet<String>) -> Step {
    let mut counts: BTreeMap<&str, usize> =
        members.iter().map(|(id, m)| (id.as_str(), m.has.len())).collect();
    let mut mine = Vec::new();
    let mut given = false;
    for v in volumes.iter().filter(|v| !members.values().any(|m| m.has.contains(*v))) {
        let can = members.iter().filter(|(_, m)| !m.refused.contains(v));
        let Some((id, _)) = can.min_by_key(|(id, _)| (counts[id.as_str()], *id)) else { continue };
        *counts.entry(id.as_str()).or_default() += 1;
        given = true;
        if id == me {
            mine.push(v.clone());
        }
    }
    if !mine.is_empty() {
        return Step::Open(mine);
    }
    if given || !members.values().all(|m| m.rests) {
        return Step::Stay;
    }
    too_many(me, members).map_or(Step::Stay, Step::LetGo)
}

/// The volume that `me` lets go because it has the most, and another would take it.
fn too_many(me: &str, members: &BTreeMap<String, Member>) -> Option<String> {
    let (first, most) =
        members.iter().max_by_key(|(id, m)| (m.has.len(), std::cmp::Reverse(*id)))?;
    if first != me {
        return None;
    }
    let takes = |v: &String| {
        let room = |m: &Member| m.has.len() + 2 <= most.has.len() && !m.refused.contains(v);
        members.values().any(room)
    };
    most.has.iter().rev().find(|v| takes(v)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers in turn, each with what it saw of the others some rounds ago.
    struct World {
        volumes: BTreeSet<String>,
        /// Who really has a volume: the fence lets one in.
        owner: BTreeMap<String, String>,
        members: BTreeMap<String, Member>,
        /// What was to be seen, the newest last.
        seen: Vec<BTreeMap<String, Member>>,
        moved: usize,
        dice: u64,
    }

    impl World {
        fn new(volumes: usize, dice: u64) -> World {
            let volumes = (0..volumes).map(|n| format!("v{n}")).collect();
            let (owner, members, seen) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
            World { volumes, owner, members, seen, moved: 0, dice }
        }
        fn below(&mut self, n: u64) -> u64 {
            self.dice ^= self.dice << 13;
            self.dice ^= self.dice >> 7;
            self.dice ^= self.dice << 17;
            self.dice % n
        }
        fn join(&mut self, id: &str) {
            self.members.insert(id.into(), Member { rests: true, ..Member::default() });
        }
        fn die(&mut self, id: &str) {
            self.members.remove(id);
            self.owner.retain(|_, o| o != id);
        }
        /// Each server acts once, most on what it saw a round or two ago.
        fn round(&mut self) {
            self.seen.push(self.members.clone());
            for id in self.members.keys().cloned().collect::<Vec<_>>() {
                let back = self.below(3).min(self.seen.len() as u64 - 1) as usize;
                let mut view = self.seen[self.seen.len() - 1 - back].clone();
                view.retain(|other, _| self.members.contains_key(other));
                view.insert(id.clone(), self.members[&id].clone());
                match step(&id, &view, &self.volumes) {
                    Step::Open(some) => some.into_iter().take(2).for_each(|v| self.open(&id, v)),
                    Step::LetGo(v) => {
                        self.moved += 1;
                        self.owner.remove(&v);
                        self.members.get_mut(&id).expect("alive").has.remove(&v);
                    }
                    Step::Stay => self.members.get_mut(&id).expect("alive").refused.clear(),
                }
            }
        }
        fn open(&mut self, id: &str, v: String) {
            let member = self.members.get_mut(id).expect("alive");
            match self.owner.get(&v) {
                Some(_) => member.refused.insert(v),
                None => {
                    self.owner.insert(v.clone(), id.to_owned());
                    member.has.insert(v)
                }
            };
        }
        fn assert_spread(&self, when: &str) {
            assert_eq!(self.owner.len(), self.volumes.len(), "{when}: each has a server");
            let counts = self.members.values().map(|m| m.has.len());
            let (least, most) = (counts.clone().min(), counts.max());
            let even = most.unwrap_or(0) <= least.unwrap_or(0) + 1;
            assert!(even, "{when}: {:?}", self.members);
        }
    }

    #[test]
    fn volumes_are_spread_evenly_whoever_comes_and_goes() {
        for dice in 1..200 {
            let mut w = World::new(3 + dice as usize % 11, dice * 0x9e37_79b9);
            w.join("a");
            (0..40).for_each(|_| w.round());
            w.assert_spread("one server");
            w.join("b");
            w.join("c");
            (0..120).for_each(|_| w.round());
            w.assert_spread("three servers");
            let moved = w.moved;
            (0..40).for_each(|_| w.round());
            assert_eq!(w.moved, moved, "what is spread evenly stays where it is");
            w.die("b");
            (0..120).for_each(|_| w.round());
            w.assert_spread("one of three died");
        }
    }

    #[test]
    fn what_one_cannot_open_goes_to_another() {
        let mut a = Member { rests: true, ..Member::default() };
        a.refused.insert("v".into());
        let b = Member { has: ["w".into()].into(), rests: true, ..Member::default() };
        let members = [("a".into(), a), ("b".into(), b)].into();
        let volumes = ["v".into(), "w".into()].into();
        assert_eq!(step("a", &members, &volumes), Step::Stay);
        assert_eq!(step("b", &members, &volumes), Step::Open(vec!["v".into()]));
    }

    #[test]
    fn nobody_lets_go_while_something_is_on_its_way() {
        let has = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let busy = Member { has: has(&["u", "v", "w"]), ..Member::default() };
        let free = Member { rests: true, ..Member::default() };
        let volumes = has(&["u", "v", "w"]);
        let at = |rests| {
            let busy = Member { rests, ..busy.clone() };
            BTreeMap::from([("a".to_owned(), busy), ("b".to_owned(), free.clone())])
        };
        assert_eq!(step("a", &at(false), &volumes), Step::Stay);
        assert_eq!(step("a", &at(true), &volumes), Step::LetGo("w".into()));
        assert_eq!(step("b", &at(true), &volumes), Step::Stay);
    }
}

//! What was made durable is there, whatever was done to its names since: a file that was fsynced
//! keeps its bytes, its owner, its attribute and its times under a name that it had then or got
//! later; and a
//! directory that was fsynced has the names that it had, until an act changes one. Other judges
//! forget a file when one of its names changes, and look at nothing but its bytes.
//!
//! Invariants:
//! * E1. What is promised is promised of objects that there are, and a name of what it leads to.
//! * E2. What was just made durable is among what an object may show, until an act changes it.

use crate::acts::{Act, split};
use crate::contents::Contents;
use crate::judge::{Expected, Verdict, after, found_throughout};
use crate::model::{Model, Node};
use crate::seen::Paths;
use crate::soft::{Edge, Entry};
use crate::times::Times;
use std::collections::{BTreeMap, BTreeSet};
use vfs::Kind;

/// An attribute: how many bytes of which value.
type Attribute = Option<(usize, u8)>;

/// What an object must show; what is None may be anything.
#[derive(Default)]
struct Promise {
    bytes: Option<Contents>,
    owners: Option<BTreeSet<Option<u8>>>,
    attributes: Option<BTreeSet<Attribute>>,
    /// The acts before this one are seen in its times.
    timed: Option<usize>,
}

impl Promise {
    /// In what the entry differs, if it is of this object; None: in nothing.
    fn broken(&self, (_, s, _): &Entry<'_>, (id, times): (usize, &Times)) -> Option<&'static str> {
        if self.bytes.as_ref().is_some_and(|b| s.kind == Kind::File && s.bytes != *b) {
            return Some("other contents");
        }
        if self.owners.as_ref().is_some_and(|all| !all.contains(&s.owner)) {
            return Some("another owner, or other permissions");
        }
        let wrong = self.timed.and_then(|sure| times.wrong(id, (sure, usize::MAX), s));
        if wrong.is_some() {
            return wrong;
        }
        let told = self.attributes.as_ref().is_some_and(|all| !all.contains(&s.attribute));
        told.then_some("another attribute")
    }
}

/// All that was promised, and not changed since.
pub(crate) struct Kept {
    of: BTreeMap<usize, Promise>,
    names: BTreeMap<Edge, usize>,
    last: Model,
    times: Times,
}

impl Kept {
    /// Of these acts. `has_attributes`: is it known what attributes there are?
    pub(crate) fn of(e: &Expected<'_>, has_attributes: bool) -> Kept {
        let (of, names) = (BTreeMap::new(), BTreeMap::new());
        let mut k = Kept { of, names, last: Model::default(), times: Times::default() };
        for (n, act) in e.done.iter().chain(e.in_flight.iter().copied()).enumerate() {
            k.change(act, (n, e));
            if n >= e.done.len() {
                continue;
            }
            // An NFS client, alone, is told of each change that it is durable.
            if n >= e.setup && e.remote == 0 && e.callers == 1 {
                k.promise_change(act, (n + 1, has_attributes));
            }
            let all = n + 1 == e.setup || act.syncs_all() && e.callers == 1;
            let since = if matches!(act, Act::WriteSync(..)) { n } else { e.before(n) };
            let ids: Vec<usize> = match act.synced_file() {
                _ if all => k.last.tree().into_values().chain([0]).collect(),
                Some(p) => found_throughout(e.done, (since, n), p, &k.last).into_iter().collect(),
                None => continue,
            };
            let whole = all || matches!(act, Act::Fsync(_));
            // Of what others have changed meanwhile a part may be durable.
            let sure = if all { n + 1 } else { since };
            let then = (sure < n).then(|| after(&e.done[..sure]));
            let timed = whole.then_some(sure);
            ids.iter().for_each(|id| k.promise(*id, timed, (has_attributes, then.as_ref())));
            if whole && (all || e.callers == 1) {
                ids.iter().for_each(|id| k.promise_names(*id));
            } else if whole && ids.iter().any(|id| matches!(k.last.node(*id), Node::Dir(_))) {
                // What others do meanwhile may have come too late for it.
                let then = after(&e.done[..e.before(n)]);
                ids.iter().for_each(|id| k.promise_names_of(*id, &then));
            }
        }
        k.check();
        k
    }

    /// E1 and E2.
    fn check(&self) {
        let m = &self.last;
        let there: BTreeSet<usize> = m.tree().into_values().chain([0]).collect();
        for (id, promise) in &self.of {
            assert!(there.contains(id), "E1: object {id} is promised, and has gone");
            let owner = promise.owners.as_ref().is_none_or(|all| all.contains(&m.owner(*id)));
            let about = promise.attributes.as_ref();
            let about = about.is_none_or(|all| all.contains(&m.attribute(*id)));
            assert!(owner && about, "E2: object {id} may not show what was last given to it");
            let (Some(bytes), Node::File(now)) = (&promise.bytes, m.node(*id)) else { continue };
            // Compared byte by byte, for each state.
            debug_assert!(bytes == now, "E2: object {id} has other contents by now");
        }
        for ((dir, name), id) in &self.names {
            let leads = there.contains(dir)
                && matches!(m.node(*dir), Node::Dir(all) if all.get(name) == Some(id));
            assert!(leads, "E1: a name in {dir} is promised, and leads elsewhere than to {id}");
        }
    }

    /// An act changes what was promised.
    fn change(&mut self, act: &Act, (n, e): (usize, &Expected<'_>)) {
        let id = |p: &str, m: &Model| m.find(p).ok();
        let cut = act.changed_file().and_then(|p| id(p, &self.last));
        if let Some(p) = cut.and_then(|id| self.of.get_mut(&id)) {
            p.bytes = None;
        }
        let was = Times::touched(act, &self.last);
        let _ = self.last.apply(act);
        self.times.note(act, (&was, &self.last), (e.lasted(n), n < e.done.len()));
        let there: BTreeSet<usize> = self.last.tree().into_values().chain([0]).collect();
        self.of.retain(|id, _| there.contains(id));
        let m = &self.last;
        let names = |dir: usize, name: &[u8]| match there.contains(&dir).then(|| m.node(dir)) {
            Some(Node::Dir(all)) => all.get(name).copied(),
            _ => None,
        };
        self.names.retain(|(dir, name), id| names(*dir, name) == Some(*id));
        if let Act::Own(p, _) | Act::Attribute(p, ..) | Act::Strip(p) = act
            && let Some(id) = id(p, m)
            && let Some(promise) = self.of.get_mut(&id)
        {
            promise.owners.iter_mut().for_each(|all| all.extend([m.owner(id)]));
            promise.attributes.iter_mut().for_each(|all| all.extend([m.attribute(id)]));
        }
    }

    /// The object is durable; `timed`: with what else is about it, and its times as the acts before
    /// this one have set them. `then`: what there was before others have changed things meanwhile.
    fn promise(
        &mut self,
        id: usize,
        timed: Option<usize>,
        (has_attributes, then): (bool, Option<&Model>),
    ) {
        let m = &self.last;
        let new = self.of.entry(id).or_default();
        let same = then.is_none_or(|then| then.node(id) == m.node(id));
        if let Node::File(bytes) = m.node(id)
            && same
        {
            new.bytes = Some(bytes.clone());
        }
        if timed.is_some() {
            let both = || [Some(m), then].into_iter().flatten();
            new.owners = Some(both().map(|m| m.owner(id)).collect());
            new.timed = timed;
            let attributes = || both().map(|m| m.attribute(id)).collect();
            new.attributes = has_attributes.then(attributes);
        }
    }

    /// What the act has changed is durable.
    fn promise_change(&mut self, act: &Act, (sure, has_attributes): (usize, bool)) {
        let m = &self.last;
        match act {
            Act::Date(p, _) => {
                let Ok(id) = m.find(p) else { return };
                self.of.entry(id).or_default().timed = Some(sure);
            }
            Act::Own(p, _) | Act::Attribute(p, ..) | Act::Strip(p) => {
                let Ok(id) = m.find(p) else { return };
                let new = self.of.entry(id).or_default();
                if matches!(act, Act::Own(..)) {
                    new.owners = Some(BTreeSet::from([m.owner(id)]));
                } else if has_attributes {
                    new.attributes = Some(BTreeSet::from([m.attribute(id)]));
                }
            }
            Act::Create(_)
            | Act::Mkdir(_)
            | Act::Symlink(..)
            | Act::Link(..)
            | Act::Unlink(_)
            | Act::Rmdir(_)
            | Act::Linger(..)
            | Act::Rename(..)
            | Act::Exchange(..) => {
                let dirs = act.paths().into_iter().filter_map(|p| m.find(split(p).0).ok());
                let dirs: Vec<usize> = dirs.collect();
                dirs.into_iter().for_each(|dir| self.promise_names(dir));
            }
            _ => (),
        }
    }

    /// The names in a directory are durable.
    fn promise_names(&mut self, dir: usize) {
        if let Node::Dir(all) = self.last.node(dir) {
            self.names.extend(all.iter().map(|(name, id)| ((dir, name.clone()), *id)));
        }
    }

    /// The same of those that it had then, too.
    fn promise_names_of(&mut self, dir: usize, then: &Model) {
        let had = then.tree().into_values().chain([0]).any(|id| id == dir);
        if let Some(Node::Dir(old)) = had.then(|| then.node(dir))
            && let Node::Dir(all) = self.last.node(dir)
        {
            let kept = all.iter().filter(|(name, id)| old.get(*name) == Some(*id));
            self.names.extend(kept.map(|(name, id)| ((dir, name.clone()), *id)));
        }
    }

    /// Is it there? `who` says whom each path may be of.
    pub(crate) fn judge(&self, tree: &Paths, who: &[Entry<'_>], v: &mut Verdict) {
        for (id, promise) in self.of.iter().filter(|(id, _)| **id != 0) {
            let mut entries = who.iter().filter(|(_, _, all)| all.contains(id)).peekable();
            let Some((first, ..)) = entries.peek() else {
                v.wrong.push(format!("{} was durable, and has no name", self.path(*id)));
                continue;
            };
            let first = (*first).to_owned();
            let of = (*id, &self.times);
            let broken: Vec<Option<&str>> = entries.map(|e| promise.broken(e, of)).collect();
            if broken.iter().all(Option::is_some) {
                let how = broken[0].unwrap_or_default();
                v.wrong.push(format!("{first} was durable, and has {how}"));
            }
        }
        let mut paths: BTreeMap<usize, Vec<&str>> = BTreeMap::from([(0, vec![""])]);
        for (path, _, all) in who.iter().filter(|(_, _, all)| all.len() == 1) {
            all.iter().for_each(|id| paths.entry(*id).or_default().push(path));
        }
        let ids: BTreeMap<&str, &BTreeSet<usize>> =
            who.iter().map(|(p, _, all)| (*p, all)).collect();
        for ((dir, name), id) in &self.names {
            for at in paths.get(dir).into_iter().flatten() {
                let path = format!("{at}/{}", String::from_utf8_lossy(name));
                if !tree.contains_key(&path) {
                    v.wrong.push(format!("the name {path} was durable, and is missing"));
                } else if !ids.get(&*path).is_some_and(|all| all.contains(id)) {
                    v.wrong.push(format!("the name {path} was durable, and is another's"));
                }
            }
        }
    }

    fn path(&self, id: usize) -> String {
        let found = self.last.tree().into_iter().find(|(_, i)| *i == id);
        found.map_or_else(|| format!("object {id}"), |(path, _)| path)
    }
}

#[cfg(test)]
mod tests {
    use crate::crash::{CrashOptions, explore};
    use crate::subject::Setting;
    use integrity::Plant;
    use volume::Mode;

    /// The first thing that is wrong in so many states.
    fn wrong(setting: Setting, scenario: &str, plant: Plant, states: u64) -> Option<String> {
        let (scenario, first) = (Some(scenario.to_owned()), plant.is_any());
        let o = CrashOptions { setting, scenario, seed: 0, states, plant, first };
        let report = explore(&o).expect("it is explored");
        let mut all = report.runs.into_iter().flat_map(|r| r.violations);
        all.next().map(|v| format!("{}: {}", v.state, v.what))
    }

    #[test]
    fn names_that_change_places_lead_where_they_were_made_durable() {
        for mode in [Mode::SoftUpdates, Mode::Sync] {
            assert_eq!(wrong(Setting::plain(mode), "swaps", Plant::NONE, 200), None, "{mode}");
        }
    }

    #[test]
    fn owners_and_permissions_are_seen_together() {
        for mode in [Mode::SoftUpdates, Mode::Sync] {
            assert_eq!(wrong(Setting::plain(mode), "owners", Plant::NONE, 400), None, "{mode}");
        }
    }

    #[test]
    fn a_failing_disk_takes_nothing_that_was_told_durable() {
        for mode in [Mode::SoftUpdates, Mode::Sync, Mode::Async] {
            assert_eq!(wrong(Setting::plain(mode), "broken", Plant::NONE, 120), None, "{mode}");
        }
    }
}

//! The judgement of mode `soft-updates`: a state is a dependency-closed set of changes, not a
//! prefix. It is used as it is, with no recovery; then each name must be one that some operation
//! made, no object may have lost its last name unless an operation took it, no file may show bytes
//! that nobody wrote to it, and what is beyond repair by giving back must not be there.
//!
//! Invariants of what the acts may have shown:
//! * F1. Each object that a name may lead to is of a known kind; each link has a text, and each
//!   file a length.
//! * F2. What stays has a name that it may be found under.
//! * F3. A path is looked at after the directory that it is in.
//! * F4. What was written to a file lies within the longest that it ever was.

use crate::acts::{Act, LINGERS_AT, LINGERS_WITH, byte_at, is_same_everywhere};
use crate::contents::Contents;
use crate::inodes::wrong_inode;
use crate::judge::{Expected, Verdict, after, e2fsck, e2fsck_lines, synced};
use crate::kept::Kept;
use crate::model::{Model, Node};
use crate::setting::{JUDGED_SECS, recover};
use crate::subject::{Seen, Setting, SimDevice, Subject};
use check::{Options, check};
use integrity::Plant;
use sim::{Image, World};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vfs::Kind;
use volume::Ground;

/// Of so many distinct states one is given back what it has lost, and checked again.
const REPAIRED_OF: u64 = 8;
/// Of so many one is worked on while the checker gives back beside it; more where a bug is planted
/// in that, and none where one is planted elsewhere.
const BESIDE_OF: u64 = 6;
const BESIDE_OF_PLANTED: u64 = 2;

/// Lines of `e2fsck -fn` that tell of something harmless, by how they begin or what they contain;
/// and those that only tell more about the line before.
const HARMLESS: &[&str] = &[
    "Pass ",
    "e2fsck ",
    "Free blocks count wrong",
    "Free inodes count wrong",
    "Directories count wrong",
    "Deleted inode ",
    "Unattached inode ",
    "Unattached zero-length inode ",
    "Unconnected directory inode ",
    "is a link to directory ",
    "i_blocks is ",
    "Padding at end of ",
    "WARNING: Filesystem still has errors",
    "was not cleanly unmounted",
    "contains a file system with errors",
    "Warning: skipping journal recovery",
    "IGNORED",
];

/// What e2fsck asks at the end of a line, or on one of its own.
const QUESTIONS: &[&str] = &["Fix? no", "Clear? no", "Relocate? no", "Connect to /lost+found? no"];

/// What is wrong with e2fsck's report of a state: the first line that is of no harmless class.
/// Bitmaps may mark what is not in use, and never the other way; counts of links may be too high;
/// with `grows`, a directory's last block may lie beyond its end.
pub(crate) fn beyond_harmless(lines: &[String], grows: bool) -> Option<String> {
    let bad = |line: &&String| {
        let l = line.trim();
        let l = QUESTIONS.iter().fold(l, |l, q| l.strip_suffix(q).unwrap_or(l)).trim();
        if l.is_empty() || HARMLESS.iter().any(|h| l.contains(h)) {
            return false;
        }
        if l.contains(": **") || l.contains("files (") && l.contains("blocks") {
            return false; // the summary
        }
        if let Some((_, counts)) = l.split_once("has reference count ") {
            // "6, should be 4."
            let mut counts = counts.split(", should be ").map(|n| n.trim_end_matches('.').parse());
            let both: (Option<Result<u32, _>>, _) = (counts.next(), counts.next());
            return !matches!(both, (Some(Ok(says)), Some(Ok(has))) if says > has);
        }
        if let Some((_, bits)) = l.split_once("bitmap differences:") {
            return bits.contains('+');
        }
        if let Some((_, counts)) = l.split_once("ref count is ") {
            let mut numbers = counts.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
            let mut next = || numbers.next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            return next() < next();
        }
        if grows && l.starts_with("Inode ") && l.contains(", i_size is ") {
            return false;
        }
        // ".." of a directory on its way to another parent.
        !(l.starts_with("'..' in ") && l.contains("should be"))
    };
    lines.iter().find(bad).cloned()
}

/// Judges a state.
pub(crate) fn judge(images: &[Image], setting: Setting, e: &Expected<'_>, digest: u64) -> Verdict {
    let mut v = Verdict::default();
    let device = SimDevice(images[0].clone());
    let options = Options { now_secs: JUDGED_SECS, verify: false, mark_clean: false };
    let mut grows = false;
    match check(&device, &options, &mut ()) {
        Err(why) => v.wrong.push(format!("checking: {why}")),
        Ok(report) => {
            grows = report.findings.iter().any(|f| f.is_growing_directory());
            let told = |f: String| format!("as the crash has left it: {f}");
            v.wrong.extend(report.beyond_soft_updates().map(told));
        }
    }
    v.wrong.extend(wrong_inode(&images[0]).map(|w| format!("as the crash has left it: {w}")));
    if digest.is_multiple_of(crate::judge::E2FSCK_OF) {
        let told = match e2fsck_lines(images) {
            Ok(lines) => lines.and_then(|l| beyond_harmless(&l, grows)),
            Err(why) => Some(why),
        };
        let said = |line| format!("e2fsck of what the crash has left: {line}");
        v.wrong.extend(told.map(said));
    }
    v.wrong.extend(wait(&images[0], setting));
    match Subject::open(vec![device.0], setting, false, (Plant::NONE, 1)) {
        Err(why) => v.wrong.push(format!("opening at once: {why}")),
        Ok(mut s) => match tree_of(&mut s, e) {
            Err(why) => v.wrong.push(format!("reading at once: {why}")),
            Ok(tree) => {
                synced(&tree, e, false, &mut v);
                Histories::of(e).judge(&tree, e, &mut v);
                remote_names(&tree, e, &mut v);
            }
        },
    }
    if (digest >> 8).is_multiple_of(REPAIRED_OF) && v.wrong.is_empty() {
        given_back(images, setting, e, (digest, &mut v));
    }
    crate::intents::judge(images, setting, e, (digest, &mut v));
    let beside = match e.plant.0 {
        None => Some(BESIDE_OF),
        Some(p) => check::live::PLANTS.contains(&p).then_some(BESIDE_OF_PLANTED),
    };
    if beside.is_some_and(|of| (digest >> 11).is_multiple_of(of)) && v.wrong.is_empty() {
        crate::beside::judge(images, setting, e, (digest, &mut v));
    }
    v
}

/// What whoever opens the volume has to wait for, which should be nothing.
fn wait(disk: &Image, setting: Setting) -> Option<String> {
    let (bytes, mut world) = (disk.size(), World::new(disk.clone()));
    world.set_epoch(u64::from(JUDGED_SECS));
    let decided = sim::block_on(&mut world, move |env, _| async move {
        let ground = Ground::alone(env, bytes, None);
        let mut found = volume::look(&ground).await?;
        volume::decide(&mut found, &ground, &setting.open_options(1 << 20)).await
    });
    match decided {
        Ok(decision) if decision.is_nothing() => None,
        Ok(decision) => Some(format!("opening does not come at once: {decision}")),
        Err(why) => Some(format!("opening at once: {why}")),
    }
}

/// Has any of the acts to do with attributes?
pub(crate) fn sets_attributes(e: &Expected<'_>) -> bool {
    let sets = |a: &&Act| matches!(a, Act::Attribute(..) | Act::Grant(..));
    e.done.iter().chain(e.in_flight.iter().copied()).any(|a| sets(&a))
}

/// Has a file another attribute than one that was set, or none though it had one durably? And is
/// what was durable there otherwise?
pub(crate) fn attributes(
    s: &mut Subject,
    tree: &mut BTreeMap<String, Seen>,
    e: &Expected<'_>,
    v: &mut Verdict,
) {
    let (sets, histories) = (sets_attributes(e), Histories::of(e));
    if sets {
        if let Err(why) = crate::reopen::attributes(s, tree) {
            return v.wrong.push(format!("reading attributes: {why}"));
        }
        histories.judge_attributes(&histories.who(tree), v);
    }
    Kept::of(e, sets).judge(tree, &histories.who(tree), v);
    apart(tree, v);
}

/// Has anything owner, group, permissions and access list of several changes?
fn apart(tree: &BTreeMap<String, Seen>, v: &mut Verdict) {
    let of_several = tree.iter().filter(|(_, s)| s.owner == Some(0));
    v.wrong
        .extend(of_several.map(|(p, _)| format!("{p} has owner and permissions of two changes")));
}

/// What is there, with attributes where some were set.
fn tree_of(s: &mut Subject, e: &Expected<'_>) -> Result<BTreeMap<String, Seen>, vfs::FsError> {
    let mut tree = s.tree_of(true, true)?;
    if sets_attributes(e) {
        crate::reopen::attributes(s, &mut tree)?;
    }
    Ok(tree)
}

/// The own fsck gives back what was lost; then nothing is left to find, and what was promised is
/// where it was.
fn given_back(
    images: &[Image],
    setting: Setting,
    e: &Expected<'_>,
    (digest, v): (u64, &mut Verdict),
) {
    let mut disks = vec![images[0].clone()];
    if let Err(why) = recover(&mut disks, JUDGED_SECS) {
        v.wrong.push(format!("giving back: {why}"));
        return;
    }
    let options = Options { now_secs: JUDGED_SECS, verify: false, mark_clean: false };
    match check(&SimDevice(disks[0].clone()), &options, &mut ()) {
        Err(why) => v.wrong.push(format!("checking after giving back: {why}")),
        Ok(report) => {
            v.wrong.extend(report.findings.first().map(|f| format!("after giving back: {f}")));
        }
    }
    if (digest >> 16).is_multiple_of(crate::judge::E2FSCK_OF / REPAIRED_OF)
        && let Err(text) = e2fsck(&disks)
    {
        v.wrong.push(format!("e2fsck after giving back: {text}"));
    }
    if v.wrong.is_empty() {
        still_there("after giving back", disks, setting, e, v);
    }
}

/// What was promised is there when the checker has been at the disks.
pub(crate) fn still_there(
    when: &str,
    disks: Vec<Image>,
    setting: Setting,
    e: &Expected<'_>,
    v: &mut Verdict,
) {
    let tree = Subject::open(disks, setting, true, (Plant::NONE, 1))
        .and_then(|mut s| s.tree(true).map_err(|e| e.to_string()));
    let before = v.wrong.len();
    match tree {
        Err(why) => v.wrong.push(format!("reading {when}: {why}")),
        Ok(tree) => synced(&tree, e, false, v),
    }
    v.wrong[before..].iter_mut().for_each(|w| *w = format!("{when}: {w}"));
}

/// What has an attribute if some act gave it one.
pub(crate) const HAVE_ATTRIBUTES: [Kind; 2] = [Kind::File, Kind::Dir];

/// A name: the directory, what it is, and the object.
pub(crate) type Edge = (usize, Vec<u8>);

/// What is there: its path, and the objects that it may be.
pub(crate) type Entry<'t> = (&'t str, &'t Seen, BTreeSet<usize>);

/// Everything that the acts may have shown.
struct Histories {
    /// Objects that were there when all was durable and that no act takes away.
    stay: BTreeSet<usize>,
    /// Names there may be.
    edges: BTreeMap<Edge, BTreeSet<usize>>,
    kinds: BTreeMap<usize, Kind>,
    texts: BTreeMap<usize, Vec<u8>>,
    /// What was ever written to an object.
    writes: BTreeMap<usize, Vec<(u64, usize, u8)>>,
    /// What was in it when it was last durable as a whole; older writes do not count any more.
    bases: BTreeMap<usize, Contents>,
    sizes: BTreeMap<usize, u64>,
    /// Which attribute an object may have, or none: where some are set.
    attributes: BTreeMap<usize, BTreeSet<Option<(usize, u8)>>>,
}

impl Histories {
    fn of(e: &Expected<'_>) -> Histories {
        let mut h = Histories {
            stay: BTreeSet::new(),
            edges: BTreeMap::new(),
            kinds: BTreeMap::new(),
            texts: BTreeMap::new(),
            writes: BTreeMap::new(),
            bases: BTreeMap::new(),
            sizes: BTreeMap::new(),
            attributes: BTreeMap::new(),
        };
        let has_attributes = sets_attributes(e);
        let mut m = Model::default();
        for (n, act) in e.done.iter().chain(e.in_flight.iter().copied()).enumerate() {
            h.note_writes(&m, act);
            let _ = m.apply(act);
            let durable =
                n + 1 == e.setup || (act.syncs_all() && e.callers == 1 && n < e.done.len());
            if durable {
                // All is durable now: older names are gone for good.
                h.edges.clear();
                h.attributes.clear();
                h.stay = m.tree().values().copied().collect();
                let all: BTreeSet<usize> = m.tree().into_values().collect();
                all.into_iter().for_each(|id| h.note_durable(&m, id));
            }
            // Another caller's change may be answered by then, and not durable.
            if let Some(id) = act.synced_file().and_then(|p| m.find(p).ok())
                && e.callers == 1
                && n < e.done.len()
            {
                h.note_durable(&m, id);
            }
            h.note_tree(&m);
            if has_attributes {
                let all = m.tree().into_values().collect::<BTreeSet<usize>>();
                all.into_iter().for_each(|id| {
                    h.attributes.entry(id).or_default().insert(m.attribute(id));
                });
            }
        }
        // Each act under way may be done or not; what one of them takes away need not be there.
        let mut left: BTreeSet<usize> = after(e.done).tree().values().copied().collect();
        for act in e.in_flight {
            let mut one = after(e.done);
            let _ = one.apply(act);
            let there: BTreeSet<usize> = one.tree().values().copied().collect();
            left.retain(|id| there.contains(id));
        }
        let last: BTreeSet<usize> = m.tree().values().copied().collect();
        h.stay.retain(|id| left.contains(id) && last.contains(id));
        h.check();
        h
    }

    /// F1, F2 and F4.
    fn check(&self) {
        let named: BTreeSet<usize> = self.edges.values().flatten().copied().collect();
        for id in &named {
            let whole = match self.kinds.get(id) {
                Some(Kind::File) => self.sizes.contains_key(id),
                Some(Kind::Symlink) => self.texts.contains_key(id),
                kind => kind.is_some(),
            };
            assert!(whole, "F1: nothing is known of object {id}, {:?}", self.kinds.get(id));
        }
        let lost = self.stay.iter().find(|id| !named.contains(id));
        assert!(lost.is_none(), "F2: object {lost:?} stays, and no name leads to it");
        for (id, base) in &self.bases {
            let most = self.sizes.get(id).copied();
            let fits = !named.contains(id) || most.is_some_and(|most| base.len() <= most);
            assert!(fits, "F4: object {id} was {} bytes long, and at most {most:?}", base.len());
        }
    }

    /// All of the object is durable: what was there before does not come back. So of names in a
    /// directory.
    fn note_durable(&mut self, m: &Model, id: usize) {
        match m.node(id) {
            Node::Dir(_) => self.edges.retain(|(dir, _), _| *dir != id),
            Node::File(bytes) => {
                self.bases.insert(id, bytes.clone());
                self.writes.remove(&id);
                self.sizes.remove(&id);
            }
            _ => (),
        }
    }

    fn note_writes(&mut self, m: &Model, act: &Act) {
        if let Some((p, at, len, value)) = act.written()
            && let Ok(id) = m.find(p)
        {
            self.writes.entry(id).or_default().push((at, len, value));
        }
        // Its name may be there longer than it was: until its going is durable.
        if let Act::Linger(p, len, value) = act
            && let Ok(id) = m.find(p)
        {
            self.writes.entry(id).or_default().push((LINGERS_AT, *len, *value));
            let size = self.sizes.entry(id).or_default();
            *size = (*size).max(LINGERS_AT + *len as u64);
            let attribute = Some((LINGERS_WITH, *value));
            self.attributes.entry(id).or_default().insert(attribute);
        }
        // Made longer without a name, by zeros, where the mode refused what had made it longer.
        if let Act::Vanish(p, size) = act
            && let Ok(id) = m.find(p)
        {
            let known = self.sizes.entry(id).or_default();
            *known = (*known).max(*size);
        }
        if let Act::Emerge(p, len, value) = act {
            let mut then = m.clone();
            if then.apply(act).is_ok()
                && let Ok(id) = then.find(p)
            {
                self.writes.entry(id).or_default().push((0, *len, *value));
            }
        }
    }

    fn note_tree(&mut self, m: &Model) {
        let tree = m.tree();
        for (path, id) in &tree {
            let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
            let parent = if dir.is_empty() { 0 } else { tree[dir] };
            self.edges.entry((parent, name.as_bytes().to_vec())).or_default().insert(*id);
            let kind = match m.node(*id) {
                Node::Dir(_) => Kind::Dir,
                Node::File(bytes) => {
                    let size = self.sizes.entry(*id).or_default();
                    *size = (*size).max(bytes.len());
                    Kind::File
                }
                Node::Symlink(text) => {
                    self.texts.insert(*id, text.clone());
                    Kind::Symlink
                }
                Node::Whiteout => Kind::Char,
            };
            self.kinds.insert(*id, kind);
        }
    }

    fn judge(&self, tree: &BTreeMap<String, Seen>, e: &Expected<'_>, v: &mut Verdict) {
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        let who = self.who(tree);
        for (path, s, all) in &who {
            if all.is_empty() {
                v.wrong.push(format!("{path} was never made, or its removal is durable"));
            } else if !all.iter().any(|id| self.may_hold(*id, s)) {
                v.wrong.push(format!("{path} shows what nobody wrote to it"));
            }
            seen.extend(all);
        }
        self.judge_attributes(&who, v);
        Kept::of(e, sets_attributes(e)).judge(tree, &who, v);
        apart(tree, v);
        for id in self.stay.iter().filter(|id| !seen.contains(id)) {
            let m = after(e.done);
            let path = m.tree().into_iter().find(|(_, i)| i == id).map_or(String::new(), |p| p.0);
            v.wrong.push(format!("{path} has lost all its names"));
        }
    }

    /// Whom each entry may be of, from the root down.
    fn who<'t>(&self, tree: &'t BTreeMap<String, Seen>) -> Vec<Entry<'t>> {
        let mut who: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::from([("", BTreeSet::from([0]))]);
        let mut all = Vec::new();
        for (path, s) in tree {
            let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
            let Some(parents) = who.get(dir).cloned() else {
                panic!("F3: {path} is looked at, and the directory has not been");
            };
            let edges =
                parents.iter().filter_map(|p| self.edges.get(&(*p, name.as_bytes().to_vec())));
            let of: BTreeSet<usize> =
                edges.flatten().copied().filter(|id| self.kinds[id] == s.kind).collect();
            who.insert(path, of.clone());
            all.push((&**path, s, of));
        }
        all
    }

    fn judge_attributes(&self, who: &[Entry<'_>], v: &mut Verdict) {
        for (path, s, all) in who {
            if !all.is_empty() && !all.iter().any(|id| self.may_have(*id, s)) {
                v.wrong.push(format!("{path} has another attribute: {:?}", s.attribute));
            }
        }
    }

    /// May the object have this attribute, or none?
    fn may_have(&self, id: usize, s: &Seen) -> bool {
        let of = self.attributes.get(&id);
        !HAVE_ATTRIBUTES.contains(&s.kind) || of.is_none_or(|all| all.contains(&s.attribute))
    }

    /// May the object have these contents?
    fn may_hold(&self, id: usize, s: &Seen) -> bool {
        match s.kind {
            Kind::Symlink => self.texts.get(&id).is_some_and(|t| s.bytes == t[..]),
            Kind::File => {
                let writes = self.writes.get(&id).map(Vec::as_slice).unwrap_or_default();
                let covers = |w: &(u64, usize, u8), run: &Range<u64>| {
                    w.0 <= run.start && run.end <= w.0 + w.1 as u64
                };
                let base = self.bases.get(&id);
                let byte = |at: u64, b: u8| {
                    base.is_some_and(|base| base.byte(at) == b)
                        || writes.iter().any(|w| covers(w, &(at..at + 1)) && byte_at(w.2, at) == b)
                };
                // A run is mostly one write's, and need not be looked at byte by byte.
                let written = |(mut run, b): (Range<u64>, u8)| {
                    let of =
                        |w: &(u64, usize, u8)| w.2 == b && is_same_everywhere(b) && covers(w, &run);
                    writes.iter().any(of) || run.all(|at| byte(at, b))
                };
                let fits = s.size <= self.sizes.get(&id).copied().unwrap_or(0);
                fits && s.bytes.runs().all(written)
            }
            _ => true,
        }
    }
}

/// What NFS clients were answered is durable: names made are there, names taken are not.
fn remote_names(tree: &BTreeMap<String, Seen>, e: &Expected<'_>, v: &mut Verdict) {
    for lane in e.remote..e.callers {
        let mark = format!("/c{lane}n");
        let mine = |a: &&Act| {
            let paths = a.paths();
            !paths.is_empty() && paths.iter().all(|p| p.contains(&mark))
        };
        let done: Vec<Act> = {
            let setup = e.done.iter().take(e.setup);
            setup.chain(e.done.iter().skip(e.setup).filter(mine)).cloned().collect()
        };
        let old = after(&done);
        let mut new = old.clone();
        for a in e.in_flight.iter().filter(|a| mine(a)) {
            let _ = new.apply(a);
        }
        let (a, b) = (old.tree(), new.tree());
        for path in a.keys().filter(|p| p.contains(&mark) && b.contains_key(*p)) {
            if !tree.contains_key(path) {
                v.wrong.push(format!("{path} is missing, and a client was told that it is there"));
            }
        }
        for path in tree.keys().filter(|p| p.contains(&mark)) {
            if !a.contains_key(path) && !b.contains_key(path) {
                v.wrong.push(format!("{path} is there, and a client was told that it is gone"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::{CrashOptions, explore};
    use volume::Mode;

    fn broken(plant: Plant, scenario: Option<&str>, states: u64) -> Option<String> {
        let setting = Setting::plain(Mode::SoftUpdates);
        let first = plant != Plant::NONE;
        let scenario = scenario.map(str::to_owned);
        let o = CrashOptions { setting, scenario, seed: 0, states, plant, first };
        let runs = explore(&o).expect("every scenario can be run").runs;
        runs.into_iter()
            .flat_map(|r| r.violations)
            .next()
            .map(|v| format!("{}: {}", v.state, v.what))
    }

    #[test]
    fn no_promise_is_broken() {
        assert_eq!(broken(Plant::NONE, None, 60), None);
    }

    #[test]
    fn missing_edges_are_found() {
        for (plant, shows_in) in
            [("pointer-before-contents", "random"), ("pointer-before-bit", "fronts")]
        {
            let found = broken(Plant(Some(plant)), Some(shows_in), 400);
            assert!(found.is_some(), "{plant} is not found");
        }
    }

    fn lines(text: &str) -> Option<String> {
        beyond_harmless(&text.lines().map(str::to_owned).collect::<Vec<_>>(), false)
    }

    #[test]
    fn e2fsck_is_judged_by_its_messages() {
        let harmless = "Pass 5: Checking group summary information\n\
                        Block bitmap differences:  -(301--303) -310\nFix? no\n\
                        Inode 14 ref count is 2, should be 1.  Fix? no\n\
                        Free blocks count wrong (100, counted=96).\n\
                        Unattached inode 15\nConnect to /lost+found? no\n\
                        lab: ********** WARNING: Filesystem still has errors **********";
        assert_eq!(lines(harmless), None);
        for bad in [
            "Block bitmap differences:  -(301--303) +310",
            "Inode 14 ref count is 1, should be 2.  Fix? no",
            "Entry 'a' in /d (12) has deleted/unused inode 17.  Clear? no",
            "Inode 14, i_size is 0, should be 4096.  Fix? no",
            "Multiply-claimed block(s) in inode 12: 300",
            "Directory inode 12, block #0, offset 0: directory corrupted",
        ] {
            assert!(lines(bad).is_some(), "{bad}");
        }
    }
}

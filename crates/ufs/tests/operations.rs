//! The operations over a store in memory, beside a naive twin of what a user sees: a tree of names,
//! and files' bytes. Random calls, and after each of them all names, lengths, contents and link
//! counts are compared, and what the store has in use.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, unreachable_pub, missing_docs, reason = "the store is shared by test files")]

mod memory;

use env::{Engine, Nanos, Now, Rng, Rope};
use format::ROOT_INO;
use format::ufs::dirhash::IndexRules;
use memory::{BLOCK, Memory, links};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use ufs::Ufs;
use vfs::{Call, Cred, FsError, Kind, MakeKind, RenameMode, Reply, Request};
use vfs::{SetAttr, SpaceOp, Stability, Volume, VolumeInfo};

/// What a name leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Node {
    Dir(BTreeMap<Vec<u8>, u32>),
    File(Vec<u8>),
    Link(Vec<u8>),
}

struct World {
    engine: Engine,
    ufs: Rc<Ufs<Memory>>,
    rng: Rng,
    /// By their numbers, which the volume gives.
    nodes: BTreeMap<u32, Node>,
    /// Files that somebody has open.
    held: BTreeSet<u32>,
    now: Nanos,
    /// Are files without names freed by operations of their own, a while later?
    frees_behind: bool,
}

fn name(n: u64) -> Vec<u8> {
    vec![b'a' + n as u8; 1 + 100 * (n as usize % 3)] // a few fill a block
}

impl World {
    fn new(seed: u64) -> World {
        let (mut engine, mut made) = (Engine::new(seed), None);
        let now = Now { mono: Nanos(0), wall: Nanos(1 << 60) };
        let frees_behind = seed % 3 == 1;
        // Every other time, directories are indexed by hash; by each of the hashes.
        let (version, unsigned) = ((seed / 2 % 3) as u8, seed % 4 == 3);
        let rules = IndexRules { version, unsigned, seed: [seed as u32; 4], levels_max: 2 };
        let rules = (seed % 2 == 1).then_some(rules);
        engine.turn(now, &mut Vec::new(), |env| {
            let about = || -> VolumeInfo { unreachable!("nobody asks") };
            made = Some(Ufs::new(Memory::new(env.clone(), rules, frees_behind), &[7; 16], about));
        });
        let nodes = [(ROOT_INO.0, Node::Dir(BTreeMap::new()))].into();
        let (ufs, held) = (made.unwrap(), BTreeSet::new());
        World { engine, ufs, rng: Rng::new(seed), nodes, held, now: Nanos(0), frees_behind }
    }

    /// From now on by a server that has read nothing but the root.
    fn reopen(&mut self) {
        let (now, store, mut made) = (self.now(), self.ufs.store().clone(), None);
        self.engine.turn(now, &mut Vec::new(), |_| {
            let about = || -> VolumeInfo { unreachable!("nobody asks") };
            made = Some(Ufs::new(store, &[7; 16], about));
        });
        self.ufs = made.unwrap();
        self.call(Request::GetAttr { ino: ROOT_INO.0 }, false).unwrap();
    }

    fn now(&self) -> Now {
        Now { mono: self.now, wall: Nanos(1 << 60) }
    }

    /// Calls that begin one after the other, each while those before it may be under way; what the
    /// first one answered.
    fn together(&mut self, requests: Vec<Request>) -> Result<Reply, FsError> {
        let answers = Rc::new(RefCell::new(BTreeMap::new()));
        let (now, count) = (self.now(), requests.len());
        self.engine.turn(now, &mut Vec::new(), |env| {
            for (n, request) in requests.into_iter().enumerate() {
                let (ufs, answers, env) = (self.ufs.clone(), answers.clone(), env.clone());
                env.clone().spawn("call", async move {
                    for _ in 0..20 * n {
                        env.yield_now().await;
                    }
                    let call = Call { cred: Cred::root(), ..Call::local(request) };
                    let result = ufs.call(call).await.result;
                    answers.borrow_mut().insert(n, result);
                });
            }
        });
        assert_eq!(answers.borrow().len(), count, "all is in memory, so calls end in one turn");
        answers.take().remove(&0).unwrap()
    }

    /// All is in memory, so a call ends in one turn.
    fn call(&mut self, request: Request, hold: bool) -> Result<Reply, FsError> {
        let (ufs, out) = (self.ufs.clone(), Rc::new(RefCell::new(None)));
        let put = out.clone();
        let call = Call { cred: Cred::root(), hold, ..Call::local(request) };
        let now = Now { mono: self.now, wall: Nanos(1 << 60) };
        self.engine.turn(now, &mut Vec::new(), |env| {
            env.spawn("call", async move { *put.borrow_mut() = Some(ufs.call(call).await.result) });
        });
        assert_eq!(self.ufs.store().open(), 0, "a call has left an operation open");
        out.take().expect("a call that waits for nothing ends")
    }

    fn dir(&self, ino: u32) -> &BTreeMap<Vec<u8>, u32> {
        let Node::Dir(names) = &self.nodes[&ino] else { panic!("{ino} is no directory") };
        names
    }
    fn dir_mut(&mut self, ino: u32) -> &mut BTreeMap<Vec<u8>, u32> {
        let Some(Node::Dir(names)) = self.nodes.get_mut(&ino) else { panic!("{ino} is none") };
        names
    }
    fn is_dir(&self, ino: u32) -> bool {
        matches!(self.nodes[&ino], Node::Dir(_))
    }
    fn pick(&mut self, is: impl Fn(&Node) -> bool) -> Option<u32> {
        let all: Vec<u32> = self.nodes.iter().filter(|(_, n)| is(n)).map(|(i, _)| *i).collect();
        (!all.is_empty()).then(|| all[self.rng.below(all.len() as u64) as usize])
    }
    /// Does the directory lie in `top`, or is it that?
    fn is_under(&self, dir: u32, top: u32) -> bool {
        let inside = |i: &u32| self.is_dir(*i) && self.is_under(dir, *i);
        dir == top || self.is_dir(top) && self.dir(top).values().any(inside)
    }
    fn names_of(&self, ino: u32) -> usize {
        let dirs = self.nodes.values().filter_map(|n| match n {
            Node::Dir(names) => Some(names),
            _ => None,
        });
        dirs.flat_map(BTreeMap::values).filter(|i| **i == ino).count()
    }
    /// A name is gone; what has no name and no holder is too.
    fn dropped(&mut self, ino: u32) {
        if self.names_of(ino) == 0 && !self.held.contains(&ino) {
            self.nodes.remove(&ino);
        }
    }

    fn make(&mut self, dir: u32, name: Vec<u8>) {
        let (kind, node) = match self.rng.below(4) {
            0 => (MakeKind::Dir, Node::Dir(BTreeMap::new())),
            1 => {
                let text = vec![b't'; 1 + self.rng.below(200) as usize];
                (MakeKind::Symlink(text.clone()), Node::Link(text))
            }
            _ => (MakeKind::File { exclusive: None }, Node::File(Vec::new())),
        };
        let attr = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let new = name.clone();
        let request = Request::Make { dir, name, kind, attr, fail_if_exists: true, umask: 0 };
        let made = self.call(request, false);
        if self.dir(dir).contains_key(&new) {
            assert_eq!(made.err(), Some(FsError::Exists));
            return;
        }
        let Ok(Reply::Entry { attr, created: true }) = made else { panic!("{made:?}") };
        self.nodes.insert(attr.ino, node);
        self.dir_mut(dir).insert(new, attr.ino);
    }

    fn remove(&mut self, dir: u32, name: Vec<u8>) {
        let there = self.dir(dir).get(&name).copied();
        let as_dir = self.rng.one_in(2);
        let request = match as_dir {
            true => Request::Rmdir { dir, name: name.clone() },
            false => Request::Unlink { dir, name: name.clone() },
        };
        let done = self.call(request, false).err();
        let wanted = match there {
            None => Some(FsError::NotFound),
            Some(i) if !self.is_dir(i) => as_dir.then_some(FsError::NotDir),
            Some(_) if !as_dir => Some(FsError::IsDir),
            Some(i) => (!self.dir(i).is_empty()).then_some(FsError::NotEmpty),
        };
        assert_eq!(done, wanted, "as a directory: {as_dir}");
        if let (None, Some(ino)) = (wanted, there) {
            self.dir_mut(dir).remove(&name);
            self.dropped(ino);
        }
    }

    fn link(&mut self, dir: u32, name: Vec<u8>) {
        let Some(ino) = self.pick(|n| !matches!(n, Node::Dir(_))) else { return };
        if self.names_of(ino) == 0 {
            return;
        }
        let linked = self.call(Request::Link { ino, dir, name: name.clone() }, false).is_ok();
        let may = !self.dir(dir).contains_key(&name) && self.names_of(ino) < 12;
        assert_eq!(linked, may);
        if linked {
            self.dir_mut(dir).insert(name, ino);
        }
    }

    /// May `ino` come to `to_dir` in the place of `there`?
    fn may_move(&self, ino: u32, to_dir: u32, there: Option<u32>, mode: RenameMode) -> bool {
        let loops = |ino: u32, dir: u32| self.is_dir(ino) && self.is_under(dir, ino);
        match (mode, there) {
            (RenameMode::NoReplace, Some(_)) | (RenameMode::Exchange, None) => false,
            (_, Some(t)) if t == ino => true,
            _ if loops(ino, to_dir) => false,
            (RenameMode::Replace, Some(t)) if self.is_dir(t) => {
                self.is_dir(ino) && self.dir(t).is_empty()
            }
            (RenameMode::Replace, Some(_)) => !self.is_dir(ino),
            _ => true,
        }
    }

    fn rename(&mut self, dir: u32, name: Vec<u8>) {
        let to_dir = self.pick(|n| matches!(n, Node::Dir(_))).unwrap();
        let to_name = self::name(self.rng.below(8));
        let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
        let mode = modes[self.rng.below(3) as usize];
        let (from, to) = (name.clone(), to_name.clone());
        let done = self.call(Request::Rename { dir, name, to_dir, to_name, mode }, false);
        let source = self.dir(dir).get(&from).copied();
        let there = self.dir(to_dir).get(&to).copied();
        let back = |t: u32| mode == RenameMode::Exchange && self.is_dir(t) && self.is_under(dir, t);
        let may = source.is_some_and(|ino| {
            let swaps = there.is_none_or(|t| t == ino || !back(t));
            self.may_move(ino, to_dir, there, mode) && swaps
        });
        assert_eq!(done.is_ok(), may, "{mode:?} {dir}/{from:?} to {to_dir}/{to:?}: {done:?}");
        let (true, Some(ino)) = (may, source) else { return };
        if there == Some(ino) {
            return; // two names of one file: nothing happens
        }
        self.dir_mut(dir).remove(&from);
        self.dir_mut(to_dir).insert(to, ino);
        match there {
            Some(t) if mode == RenameMode::Exchange => self.dir_mut(dir).extend([(from, t)]),
            Some(t) => self.dropped(t),
            None => (),
        }
    }

    fn change(&mut self) {
        let Some(ino) = self.pick(|n| matches!(n, Node::File(_))) else { return };
        let offset = self.rng.below(5 * BLOCK as u64);
        let len = 1 + self.rng.below(5 * BLOCK as u64) as usize;
        match self.rng.below(4) {
            0 => {
                let set = SetAttr { size: Some(offset), ..SetAttr::default() };
                self.call(Request::SetAttr { ino, set }, false).unwrap();
                self.bytes(ino).resize(offset as usize, 0);
            }
            1 => {
                let op = SpaceOp::PunchHole;
                let len = len as u64;
                self.call(Request::Space { ino, op, offset, len }, false).unwrap();
                let bytes = self.bytes(ino);
                let to = bytes.len().min((offset + len) as usize);
                let from = to.min(offset as usize);
                bytes[from..to].fill(0);
            }
            _ => self.write(ino, offset, len),
        }
    }

    fn write(&mut self, ino: u32, offset: u64, len: usize) {
        let new: Vec<u8> = (0..len).map(|_| self.rng.below(255) as u8 + 1).collect();
        let data = Rope::cut(&new, offset as usize % BLOCK, BLOCK);
        let (stability, append, kill_suid) = (Stability::Unstable, self.rng.one_in(4), false);
        let request = Request::Write {
            ino,
            offset,
            data,
            stability,
            append,
            kill_suid,
            upto: vfs::WriteUpTo::OneOperation,
        };
        let done = self.call(request, false);
        let Ok(Reply::Written { len, .. }) = done else { panic!("{done:?}") };
        let bytes = self.bytes(ino);
        let from = if append { bytes.len() } else { offset as usize };
        let to = from + len as usize;
        bytes.resize(bytes.len().max(to), 0);
        bytes[from..to].copy_from_slice(&new[..len as usize]);
    }

    fn bytes(&mut self, ino: u32) -> &mut Vec<u8> {
        let Some(Node::File(bytes)) = self.nodes.get_mut(&ino) else { panic!("{ino} is none") };
        bytes
    }

    /// A file is opened, or closed again, perhaps after its last name is gone.
    fn open_or_close(&mut self, dir: u32, name: Vec<u8>) {
        if self.rng.one_in(2)
            && let Some(ino) = self.held.pop_first()
        {
            self.call(Request::Forget { ino, count: 1 }, false).unwrap();
            return self.dropped(ino);
        }
        let found = self.dir(dir).get(&name).copied();
        let Some(ino) = found.filter(|i| !self.is_dir(*i)) else { return };
        if self.held.insert(ino) {
            self.call(Request::Lookup { dir, name }, true).unwrap();
        }
    }

    fn step(&mut self) {
        let dir = self.pick(|n| matches!(n, Node::Dir(_))).unwrap();
        let name = name(self.rng.below(8));
        match self.rng.below(16) {
            0..=4 => self.make(dir, name),
            5 | 6 => self.remove(dir, name),
            7 => self.link(dir, name),
            8..=10 => self.rename(dir, name),
            11..=13 => self.change(),
            _ => self.open_or_close(dir, name),
        }
    }

    /// What the volume says of a directory: its names with their inodes.
    fn listed(&mut self, dir: u32) -> BTreeMap<Vec<u8>, u32> {
        let (mut all, mut cookie) = (BTreeMap::new(), 0);
        loop {
            let (max_bytes, entry_bytes) = (600, 24);
            let request = Request::ReadDir { dir, cookie, max_bytes, entry_bytes, attrs: false };
            let reply = self.call(request, false);
            let Ok(Reply::Dir { entries, eof, .. }) = reply else { panic!("{reply:?}") };
            for e in entries {
                cookie = e.cookie;
                if e.name != b"." && e.name != b".." {
                    let old = all.insert(e.name, e.ino);
                    assert!(old.is_none(), "a listing has a name twice");
                }
            }
            if eof {
                return all;
            }
        }
    }

    fn compare(&mut self, ino: u32, node: &Node) {
        let reply = self.call(Request::GetAttr { ino }, false);
        let Ok(Reply::Attr(attr)) = reply else { panic!("{reply:?}") };
        let (kind, names) = match node {
            Node::Dir(names) => {
                assert_eq!(&self.listed(ino), names, "directory {ino}");
                (Kind::Dir, 2 + names.values().filter(|i| self.is_dir(**i)).count())
            }
            Node::File(bytes) => {
                let request = Request::Read { ino, offset: 0, len: 1 << 20 };
                let reply = self.call(request, false);
                let Ok(Reply::Data { data, .. }) = reply else { panic!("{reply:?}") };
                assert!(data.to_vec() == *bytes && attr.size == bytes.len() as u64, "file {ino}");
                (Kind::File, self.names_of(ino))
            }
            Node::Link(text) => {
                let reply = self.call(Request::ReadLink { ino }, false);
                assert!(matches!(&reply, Ok(Reply::Bytes(b)) if b == text), "{reply:?}");
                (Kind::Symlink, self.names_of(ino))
            }
        };
        assert_eq!(
            (attr.kind(), links(self.ufs.store(), ino)),
            (kind, names as u16),
            "inode {ino}"
        );
    }

    /// Time passes, as long as somebody waits for a moment that comes within ten seconds.
    fn wait(&mut self) {
        let end = self.now.plus(Nanos::from_secs(10));
        while let Some(next) = self.engine.deadline().filter(|next| *next <= end) {
            self.now = next;
            let now = Now { mono: self.now, wall: Nanos(1 << 60) };
            self.engine.turn(now, &mut Vec::new(), |_| ());
        }
    }

    fn check(&mut self) {
        if self.frees_behind {
            self.wait();
        }
        for (ino, node) in self.nodes.clone() {
            self.compare(ino, &node);
        }
        let (in_use, orphans) = self.ufs.store().in_use();
        let nameless = |i: &u32| *i != ROOT_INO.0 && self.names_of(*i) == 0;
        let all: BTreeSet<u32> = self.nodes.keys().copied().collect();
        assert_eq!(in_use, all, "what the store has in use has a name or a holder");
        let open: BTreeSet<u32> = all.into_iter().filter(nameless).collect();
        assert_eq!(orphans, open, "what has no name is on the list of orphans");
    }
}

#[test]
fn a_user_sees_what_was_done() {
    for seed in 0..12 {
        let mut world = World::new(seed);
        for n in 0..250 {
            world.step();
            if n % 5 == 0 {
                world.check();
            }
        }
        world.check();
    }
}

/// A file without names that somebody has open is on the list of orphans, also after it was cut.
#[test]
fn a_file_without_names_stays_an_orphan_when_it_is_cut() {
    let mut world = World::new(0);
    let (dir, attr) = (ROOT_INO.0, SetAttr { mode: Some(0o644), ..SetAttr::default() });
    let (kind, name) = (MakeKind::File { exclusive: None }, name(0));
    let new = name.clone();
    let make = Request::Make { dir, name: new, kind, attr, fail_if_exists: true, umask: 0 };
    let Ok(Reply::Entry { attr, .. }) = world.call(make, true) else { panic!("it is made") };
    world.nodes.insert(attr.ino, Node::File(Vec::new()));
    world.held.insert(attr.ino);
    world.write(attr.ino, 0, 3 * BLOCK);
    assert!(world.call(Request::Unlink { dir, name }, false).is_ok());
    world.check();
    let set = SetAttr { size: Some(BLOCK as u64), ..SetAttr::default() };
    assert!(world.call(Request::SetAttr { ino: attr.ino, set }, false).is_ok());
    world.bytes(attr.ino).truncate(BLOCK);
    world.check();
}

/// What a directory that goes has is freed in several transactions. A crash between two of them is
/// to find its parent's links as the names say: the first has both.
#[test]
fn a_directory_goes_in_the_transaction_that_takes_its_name() {
    let mut world = World::new(0);
    let make = |world: &mut World, n: u64| {
        let attr = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        let (dir, kind, name) = (ROOT_INO.0, MakeKind::Dir, name(n));
        let make = Request::Make { dir, name, kind, attr, fail_if_exists: true, umask: 0 };
        assert!(world.call(make, false).is_ok());
        world.ufs.store().links_between();
    };
    make(&mut world, 0);
    let gone = world.call(Request::Rmdir { dir: ROOT_INO.0, name: name(0) }, false);
    assert!(gone.is_ok());
    assert_eq!(world.ufs.store().links_between(), [2]);
    make(&mut world, 0);
    make(&mut world, 1);
    let (dir, to_dir, mode) = (ROOT_INO.0, ROOT_INO.0, RenameMode::Replace);
    let moved = Request::Rename { dir, name: name(0), to_dir, to_name: name(1), mode };
    assert!(world.call(moved, false).is_ok());
    assert_eq!(world.ufs.store().links_between(), [3]);
}

/// A directory has more subdirectories than links can count only with an index: on Linux, one
/// without counts on from what says that they are not counted.
#[test]
fn only_with_an_index_are_subdirectories_too_many_to_count() {
    for (seed, has_index) in [(0, false), (1, true)] {
        let mut world = World::new(seed);
        let make = |world: &mut World, n: u32, kind: MakeKind| {
            let attr = SetAttr { mode: Some(0o755), ..SetAttr::default() };
            let (dir, name) = (ROOT_INO.0, format!("{n:0200}").into_bytes());
            let make = Request::Make { dir, name, kind, attr, fail_if_exists: true, umask: 0 };
            world.call(make, false).map(drop)
        };
        for n in 0..40 {
            make(&mut world, n, MakeKind::File { exclusive: None }).unwrap(); // enough for an index
        }
        for n in 40..50 {
            make(&mut world, n, MakeKind::Dir).unwrap();
        }
        let links = |world: &World| links(world.ufs.store(), ROOT_INO.0);
        assert_eq!(links(&world), 12, "as many as can be counted");
        let one_more = make(&mut world, 50, MakeKind::Dir);
        assert_eq!(one_more, if has_index { Ok(()) } else { Err(FsError::TooManyLinks) });
        assert_eq!(links(&world), if has_index { 1 } else { 12 });
        let name = format!("{:0200}", 49).into_bytes();
        world.call(Request::Rmdir { dir: ROOT_INO.0, name }, false).unwrap();
        assert_eq!(links(&world), if has_index { 1 } else { 11 });
    }
}

/// A file that was made without a name gets one while its holder lets it go: it has the name.
#[test]
fn a_file_that_gets_its_first_name_is_not_freed() {
    let mut world = World::new(0);
    let attr = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    let made = world.call(Request::MakeUnnamed { dir: ROOT_INO.0, attr, umask: 0 }, true);
    let Ok(Reply::Entry { attr, .. }) = made else { panic!("{made:?}") };
    world.ufs.store().pause_within();
    let name = name(0);
    let link = Request::Link { ino: attr.ino, dir: ROOT_INO.0, name: name.clone() };
    let forget = Request::Forget { ino: attr.ino, count: 1 };
    let now = Now { mono: Nanos(0), wall: Nanos(1 << 60) };
    let done = Rc::new(RefCell::new(Vec::new()));
    world.engine.turn(now, &mut Vec::new(), |env| {
        for request in [link, forget] {
            let (ufs, done) = (world.ufs.clone(), done.clone());
            env.spawn("call", async move {
                let call = Call { cred: Cred::root(), ..Call::local(request) };
                let result = ufs.call(call).await.result;
                done.borrow_mut().push(result.is_ok());
            });
        }
    });
    assert_eq!(*done.borrow(), [true, true]);
    world.nodes.insert(attr.ino, Node::File(Vec::new()));
    world.dir_mut(ROOT_INO.0).insert(name, attr.ino);
    world.check();
}

fn file_at(n: u64) -> Request {
    let attr = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    let (kind, dir) = (MakeKind::File { exclusive: None }, ROOT_INO.0);
    Request::Make { dir, name: name(n), kind, attr, fail_if_exists: true, umask: 0 }
}

/// Who looks a name up reads its inode, and waits for the disk: meanwhile the name may go, and the
/// number be another file's, which the caller has not asked for, and may not even be let see.
#[test]
fn a_name_that_goes_while_its_inode_is_read_leads_to_no_other_file() {
    let mut world = World::new(0);
    let Ok(Reply::Entry { attr, .. }) = world.call(file_at(0), false) else { panic!("it is made") };
    world.reopen();
    world.ufs.store().delay_inode(100);
    world.ufs.store().set_next_ino(attr.ino);
    let (dir, gone) = (ROOT_INO.0, name(0));
    let look = Request::Lookup { dir, name: gone.clone() };
    let found = world.together(vec![look, Request::Unlink { dir, name: gone }, file_at(1)]);
    assert_eq!(found.map(drop), Err(FsError::NotFound));
    let Ok(Reply::Entry { attr: now, .. }) = world.call(file_at(2), false) else { panic!("made") };
    assert_eq!(now.ino, attr.ino + 1, "the second file has got the first one's number");
}

/// A name that is replaced is there all the time.
#[test]
fn a_name_that_is_replaced_while_its_inode_is_read_is_found() {
    let mut world = World::new(0);
    for n in 0..2 {
        world.call(file_at(n), false).unwrap();
    }
    world.reopen();
    world.ufs.store().delay_inode(100);
    let (dir, to_dir, mode) = (ROOT_INO.0, ROOT_INO.0, RenameMode::Replace);
    let look = Request::Lookup { dir, name: name(0) };
    let replace = Request::Rename { dir, name: name(1), to_dir, to_name: name(0), mode };
    let found = world.together(vec![look, replace]);
    let Ok(Reply::Entry { attr, .. }) = found else { panic!("{found:?}") };
    assert_eq!(attr.ino, 12, "the second file, which has the name now");
}

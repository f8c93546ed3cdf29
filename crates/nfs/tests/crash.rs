//! What was acknowledged over NFS is there after a power cut: clients of another make and our
//! server in one virtual-time run, the power cut at any moment of it, the volume
//! recovered, and every acknowledgement held against what is there. NFS_CUTS=N for more of it.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod net;

use lab::{Seen, Setting, Subject, fresh};
use nfs::{Export, Served, Server};
use nfs3_client::Nfs3Client;
use nfs3_client::nfs3_types::nfs3::*;
use nfs3_client::nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use sim::{CrashImages, Event, Image, Pen, Trace, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use vfs::{Call, Kind, Reply, Request, Volume, VolumeInfo};
use volume::{Mode, OpenOptions};

/// What an acknowledgement says of a path.
#[derive(Clone, Debug)]
enum Fact {
    /// It is there, of this kind.
    There(String, Kind),
    /// It is not there.
    Gone(String),
    /// It is there with these bytes (a link's text too).
    Holds(String, Vec<u8>),
}

/// One request: what it puts in doubt while it is under way, and what its reply says. Marks in the
/// trace are twice its number, and one more.
#[derive(Default)]
struct Step {
    /// Paths whose names are in doubt.
    names: Vec<String>,
    /// Paths whose contents are in doubt.
    contents: Vec<String>,
    says: Vec<Fact>,
}

#[derive(Clone)]
struct Recorder {
    steps: Rc<RefCell<Vec<Step>>>,
    pen: Pen,
}

impl Recorder {
    fn begin(&self, names: &[&str], contents: &[&str]) -> usize {
        let own = |l: &[&str]| l.iter().map(|s| (*s).to_owned()).collect();
        let step = Step { names: own(names), contents: own(contents), says: Vec::new() };
        self.steps.borrow_mut().push(step);
        let n = self.steps.borrow().len() - 1;
        self.pen.mark(2 * n as u64);
        n
    }
    fn acknowledged(&self, n: usize, says: Vec<Fact>) {
        self.steps.borrow_mut()[n].says = says;
        self.pen.mark(2 * n as u64 + 1);
    }
}

struct File {
    fh: nfs_fh3,
    contents: Vec<u8>,
    /// Are there bytes that no COMMIT has covered, and under which verifier?
    unstable: Option<[u8; 8]>,
    /// Has it a second name?
    linked: bool,
}

/// One client with a directory of its own.
struct Client {
    nfs: Nfs3Client<net::Wire>,
    recorder: Recorder,
    at: String,
    dir: nfs_fh3,
    files: BTreeMap<String, File>,
    made: u32,
    rng: env::Rng,
}

fn name<'a>(dir: &nfs_fh3, n: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: filename3(Opaque::borrowed(n.as_bytes())) }
}

fn handle(of: post_op_fh3) -> nfs_fh3 {
    match of {
        Nfs3Option::Some(fh) => fh,
        Nfs3Option::None => panic!("a reply without a handle"),
    }
}

impl Client {
    async fn run(mut self, operations: u32) {
        for _ in 0..operations {
            let one =
                self.files.keys().nth(self.rng.below(self.files.len().max(1) as u64) as usize);
            match (self.rng.below(12), one.cloned()) {
                (0..=2, _) | (_, None) => self.create().await,
                (3 | 4, Some(f)) => self.write(&f, stable_how::FILE_SYNC).await,
                (5 | 6, Some(f)) => self.write(&f, stable_how::UNSTABLE).await,
                (7, Some(f)) => self.commit(&f).await,
                (8, Some(f)) => self.rename(f).await,
                (9, Some(f)) => self.remove(f).await,
                (10, Some(f)) => self.truncate(&f).await,
                (_, Some(f)) if self.rng.one_in(2) => self.link(&f).await,
                _ => self.folder_and_symlink().await,
            }
        }
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("f{}", self.made)
    }
    fn path(&self, n: &str) -> String {
        format!("{}/{n}", self.at)
    }

    async fn create(&mut self) {
        let n = self.new_name();
        let path = self.path(&n);
        let how = match self.rng.below(3) {
            0 => createhow3::UNCHECKED(sattr3::default()),
            1 => createhow3::GUARDED(sattr3::default()),
            _ => createhow3::EXCLUSIVE(createverf3([7; 8])),
        };
        let step = self.recorder.begin(&[&path], &[]);
        let args = CREATE3args { where_: name(&self.dir, &n), how };
        let ok = self.nfs.create(&args).await.unwrap().unwrap();
        let says = vec![Fact::There(path.clone(), Kind::File), Fact::Holds(path, Vec::new())];
        self.recorder.acknowledged(step, says);
        let fh = handle(ok.obj);
        self.files.insert(n, File { fh, contents: Vec::new(), unstable: None, linked: false });
    }

    async fn write(&mut self, n: &str, stable: stable_how) {
        let path = self.path(n);
        let file = self.files.get_mut(n).unwrap();
        if file.linked {
            return;
        }
        let bytes = vec![b'a' + (self.rng.below(26) as u8); 1 + self.rng.below(3000) as usize];
        // Over what is there, or after it.
        let at = self.rng.below(file.contents.len() as u64 + 1) as usize;
        let step = self.recorder.begin(&[], &[&path]);
        let data = Opaque::borrowed(&bytes);
        let (offset, count) = (at as u64, bytes.len() as u32);
        let args = WRITE3args { file: file.fh.clone(), offset, count, stable, data };
        let ok = self.nfs.write(&args).await.unwrap().unwrap();
        assert_eq!(ok.count, count);
        file.contents.resize(file.contents.len().max(at + bytes.len()), 0);
        file.contents[at..at + bytes.len()].copy_from_slice(&bytes);
        if stable == stable_how::UNSTABLE && ok.committed == stable_how::UNSTABLE {
            file.unstable = Some(ok.verf.0);
        }
        // A stable write says nothing of the unstable ones before it.
        let says = match file.unstable {
            None => vec![Fact::Holds(path, file.contents.clone())],
            Some(_) => Vec::new(),
        };
        self.recorder.acknowledged(step, says);
    }

    async fn commit(&mut self, n: &str) {
        let path = self.path(n);
        let file = self.files.get_mut(n).unwrap();
        let step = self.recorder.begin(&[], &[]);
        let args = COMMIT3args { file: file.fh.clone(), offset: 0, count: 0 };
        let ok = self.nfs.commit(&args).await.unwrap().unwrap();
        if let Some(verifier) = file.unstable.take() {
            assert_eq!(ok.verf.0, verifier, "nothing was lost, so the verifier is the same");
        }
        let says =
            if file.linked { vec![] } else { vec![Fact::Holds(path, file.contents.clone())] };
        self.recorder.acknowledged(step, says);
    }

    async fn rename(&mut self, n: String) {
        let to = self.new_name();
        let (a, b) = (self.path(&n), self.path(&to));
        let step = self.recorder.begin(&[&a, &b], &[]);
        let args = RENAME3args { from: name(&self.dir, &n), to: name(&self.dir, &to) };
        self.nfs.rename(&args).await.unwrap().unwrap();
        let file = self.files.remove(&n).unwrap();
        let mut says = vec![Fact::Gone(a), Fact::There(b.clone(), Kind::File)];
        if file.unstable.is_none() {
            says.push(Fact::Holds(b, file.contents.clone()));
        }
        self.recorder.acknowledged(step, says);
        self.files.insert(to, file);
    }

    async fn remove(&mut self, n: String) {
        let path = self.path(&n);
        let step = self.recorder.begin(&[&path], &[]);
        let args = REMOVE3args { object: name(&self.dir, &n) };
        self.nfs.remove(&args).await.unwrap().unwrap();
        self.recorder.acknowledged(step, vec![Fact::Gone(path)]);
        self.files.remove(&n);
    }

    async fn truncate(&mut self, n: &str) {
        let path = self.path(n);
        let file = self.files.get_mut(n).unwrap();
        if file.linked || file.unstable.is_some() {
            return;
        }
        let size = self.rng.below(file.contents.len() as u64 + 1);
        let step = self.recorder.begin(&[], &[&path]);
        let new_attributes = sattr3 { size: Nfs3Option::Some(size), ..sattr3::default() };
        let guard = sattrguard3::None;
        let args = SETATTR3args { object: file.fh.clone(), new_attributes, guard };
        self.nfs.setattr(&args).await.unwrap().unwrap();
        file.contents.truncate(size as usize);
        self.recorder.acknowledged(step, vec![Fact::Holds(path, file.contents.clone())]);
    }

    async fn link(&mut self, n: &str) {
        let to = self.new_name();
        let path = self.path(&to);
        let file = self.files.get_mut(n).unwrap();
        let step = self.recorder.begin(&[&path], &[]);
        let args = LINK3args { file: file.fh.clone(), link: name(&self.dir, &to) };
        self.nfs.link(&args).await.unwrap().unwrap();
        file.linked = true;
        self.recorder.acknowledged(step, vec![Fact::There(path, Kind::File)]);
    }

    async fn folder_and_symlink(&mut self) {
        let n = self.new_name();
        let path = self.path(&n);
        let step = self.recorder.begin(&[&path], &[]);
        if self.rng.one_in(2) {
            let args = MKDIR3args { where_: name(&self.dir, &n), attributes: sattr3::default() };
            self.nfs.mkdir(&args).await.unwrap().unwrap();
            self.recorder.acknowledged(step, vec![Fact::There(path, Kind::Dir)]);
            return;
        }
        let text = format!("to/{n}");
        let symlink = symlinkdata3 {
            symlink_attributes: sattr3::default(),
            symlink_data: nfspath3(Opaque::borrowed(text.as_bytes())),
        };
        let args = SYMLINK3args { where_: name(&self.dir, &n), symlink };
        self.nfs.symlink(&args).await.unwrap().unwrap();
        let there = Fact::There(path.clone(), Kind::Symlink);
        self.recorder.acknowledged(step, vec![there, Fact::Holds(path, text.into_bytes())]);
    }
}

/// A run: its trace, its steps, and the boot number that its write verifier came from.
struct Run {
    base: Image,
    trace: Trace,
    steps: Rc<RefCell<Vec<Step>>>,
    boot: u64,
}

/// Opens a fresh volume, serves it to `clients`, each with so many operations, all in one engine.
fn run(mode: Mode, seed: u64, (clients, operations): (u32, u32), hasty: bool) -> Run {
    let journal = mode.is_atomic();
    let base = fresh(6 << 20, journal);
    let options = OpenOptions::plain(mode, 4 << 20, [9; 16]);
    let opener = volume::opener(None, base.size(), options);
    let mut world = World::new(base.clone());
    let mut engine = env::Engine::new(seed);
    let recorder = Recorder { steps: Rc::default(), pen: world.pen() };
    let (left, boot) = (Rc::new(RefCell::new(clients)), Rc::new(RefCell::new(0)));
    let mut start = Some((opener, recorder.clone(), left.clone(), boot.clone()));
    world.run(
        &mut engine,
        |env| {
            let Some((opener, recorder, left, boot)) = start.take() else { return };
            let (opening, env2) = (opener(env.clone()), env.clone());
            env.spawn("start", async move {
                let volume = opening.await.unwrap();
                let info = about(&volume).await;
                *boot.borrow_mut() = info.boot;
                let served = vec![Served { name: "v".into(), info }];
                let server = Arc::new(Server::new(served, Export::loopback(), Arc::default()));
                for c in 0..clients {
                    let wire = net::connect(&env2, &volume, &server, hasty);
                    let (recorder, left) = (recorder.clone(), left.clone());
                    let rng = env::Rng::new(seed ^ u64::from(c) << 32);
                    env2.spawn("client", async move {
                        client(wire, recorder, c, rng).await.run(operations).await;
                        *left.borrow_mut() -= 1;
                    });
                }
            });
        },
        |_| *left.borrow() == 0,
    );
    engine.kill();
    let boot = *boot.borrow();
    Run { base, trace: world.trace, steps: recorder.steps, boot }
}

async fn about(volume: &Rc<dyn Volume>) -> VolumeInfo {
    match volume.clone().call(Call::local(Request::Info)).await.result {
        Ok(Reply::Info(info)) => *info,
        other => panic!("{other:?}"),
    }
}

/// Mounts and makes the client's directory.
async fn client(wire: net::Wire, recorder: Recorder, number: u32, rng: env::Rng) -> Client {
    let mut mount = nfs3_client::MountClient::new(wire.clone());
    let path = nfs3_client::nfs3_types::mount::dirpath(Opaque::borrowed(b"/v"));
    let root = mount.mnt(path).await.unwrap().fhandle.0;
    let root = nfs_fh3 { data: Opaque::owned(root.as_ref().to_vec()) };
    let auth = auth_unix { gids: vec![], ..auth_unix::default() };
    let mut nfs =
        Nfs3Client::new_with_auth(wire, opaque_auth::auth_unix(&auth), opaque_auth::default());
    let at = format!("/c{number}");
    let step = recorder.begin(&[&at], &[]);
    let args = MKDIR3args { where_: name(&root, &at[1..]), attributes: sattr3::default() };
    let dir = handle(nfs.mkdir(&args).await.unwrap().unwrap().obj);
    recorder.acknowledged(step, vec![Fact::There(at.clone(), Kind::Dir)]);
    Client { nfs, recorder, at, dir, files: BTreeMap::new(), made: 0, rng }
}

/// What is acknowledged, and not in doubt again, at a moment of the run.
#[derive(Default)]
struct Known {
    names: BTreeMap<String, Option<Kind>>,
    contents: BTreeMap<String, Vec<u8>>,
}

impl Known {
    fn mark(&mut self, mark: u64, steps: &[Step]) {
        let step = &steps[(mark / 2) as usize];
        if mark.is_multiple_of(2) {
            step.names.iter().for_each(|n| drop((self.names.remove(n), self.contents.remove(n))));
            step.contents.iter().for_each(|n| drop(self.contents.remove(n)));
            return;
        }
        for fact in &step.says {
            match fact.clone() {
                Fact::There(path, kind) => drop(self.names.insert(path, Some(kind))),
                Fact::Gone(path) => drop(self.names.insert(path, None)),
                Fact::Holds(path, bytes) => drop(self.contents.insert(path, bytes)),
            }
        }
    }

    /// What of it does not hold.
    fn missing(&self, tree: &BTreeMap<String, Seen>) -> Option<String> {
        for (path, kind) in &self.names {
            if tree.get(path).map(|s| s.kind) != *kind {
                return Some(format!("{path}: {kind:?} was acknowledged"));
            }
        }
        for (path, bytes) in &self.contents {
            if tree.get(path).is_some_and(|s| s.bytes != bytes[..]) {
                return Some(format!("{path}: other bytes than were acknowledged"));
            }
        }
        None
    }
}

/// Cuts the power at moments of the run spread over all of it, about `cuts` times. Returns how many
/// there were, and the first broken promise.
fn cut(run: &Run, mode: Mode, cuts: u64) -> (u64, Option<String>) {
    let steps = run.steps.borrow();
    let mut known = Known::default();
    let mut images = CrashImages::new(&run.trace, &run.base);
    let moments = run.trace.events.len() as u64;
    let mut rng = env::Rng::new(moments);
    let mut made = 0;
    while let Some(event) = images.step() {
        if let Event::Mark(m) = event {
            known.mark(*m, &steps);
        }
        for variant in [0, 1, 20 + rng.below(1 << 20)] {
            // Spread evenly by chance, so that every moment of a run has its turn in some seed.
            if rng.below(3 * moments) >= cuts {
                continue;
            }
            made += 1;
            if let Some(why) = after(images.image(variant), mode, &known, (run.boot, made)) {
                return (made, Some(format!("cut {made}, variant {variant}: {why}")));
            }
        }
    }
    (made, None)
}

/// The volume after the cut: what is wrong with it.
fn after(image: Image, mode: Mode, known: &Known, (boot, cut): (u64, u64)) -> Option<String> {
    let mut disks = vec![image];
    if let Err(why) = lab::recover(&mut disks, 1_700_000_100) {
        return Some(format!("recovery: {why}"));
    }
    let plant = integrity::Plant::NONE;
    // Some are opened for writing, as a server is that starts again.
    let writable = cut.is_multiple_of(8);
    let setting = Setting::plain(mode);
    let mut s = match Subject::open(disks, setting, !writable, (plant, 0)) {
        Ok(s) => s,
        Err(why) => return Some(format!("opening: {why}")),
    };
    // Before the first acknowledgement nobody knows the verifier.
    if writable
        && !known.names.is_empty()
        && let Ok(Reply::Info(info)) = s.ask(0, Request::Info)
        && info.boot == boot
    {
        return Some("the write verifier is the same after a crash".into());
    }
    match s.tree(true) {
        Ok(tree) => known.missing(&tree),
        Err(why) => Some(format!("reading: {why}")),
    }
}

fn cuts_wanted() -> u64 {
    std::env::var("NFS_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(2000)
}

fn explore(mode: &str) {
    let mode = Mode::by_name(mode).unwrap();
    let (mut made, mut seed) = (0, 1);
    while made < cuts_wanted() {
        let run = run(mode, seed, (3, 40), false);
        let (n, broken) = cut(&run, mode, 150);
        assert!(broken.is_none(), "mode {mode}, seed {seed}: {}", broken.unwrap_or_default());
        made += n;
        seed += 1;
    }
    println!("mode {mode}: {made} power cuts in {} runs", seed - 1);
}

#[test]
fn sync() {
    explore("sync");
}
#[test]
fn ordered() {
    explore("ordered");
}
#[test]
fn data() {
    explore("data");
}
#[test]
fn redo() {
    explore("redo");
}
#[test]
fn unified() {
    explore("unified");
}

/// A server that answers before anything is durable is found out.
#[test]
fn hasty_replies_are_caught() {
    // `redo` and `unified` make every returned call durable, asked or not.
    for mode in ["sync", "ordered", "data"] {
        let mode = Mode::by_name(mode).unwrap();
        let caught =
            (1..20).any(|seed| cut(&run(mode, seed, (3, 40), true), mode, 150).1.is_some());
        assert!(caught, "mode {mode}");
    }
}

//! The scenarios: what is set up, and what is done while the power may fail. In the manner of
//! CrashMonkey's ACE: each operation alone and every pair of operations over a few names, besides
//! scripted and random mixes.

use crate::acts::Act;
use crate::model::Model;
use crate::random::random_act;
use env::Rng;

mod attributes;
mod chains;
mod cleaning;
mod company;
mod crowd;
mod dates;
mod departures;
mod extents;
pub(crate) mod failing;
mod fleeting;
mod fragments;
mod full;
mod gaps;
pub(crate) mod groups;
mod held;
mod holes;
mod inline;
mod kernel;
mod layers;
mod lengths;
mod moved;
mod moves;
mod neighbours;
mod old;
mod owners;
mod pieces;
mod postmark;
mod scaled;
mod sharing;
mod shifts;
mod short_lives;
mod shuffle;
mod slots;
mod splits;
mod still;
mod swaps;
mod texts;
mod tight;
mod trims;
mod values;
mod wide;
mod wrap;
mod zeros;

pub use self::{groups::GROUPS, values::VALUES};
pub(crate) use {failing::Breaks, failing::JournalFault, scaled::script_on};

/// A scenario of one seed: set up (and made durable) first, then done.
pub(crate) struct Script {
    pub(crate) setup: Vec<Act>,
    /// Directories then rewritten as Linux makes them; true: with a hash index.
    pub(crate) kernel: Vec<(String, bool)>,
    pub(crate) acts: Vec<Act>,
    /// How many callers share the acts, each taking every so many of them.
    pub(crate) callers: usize,
    /// What happens before this act begins is looked at with another seed.
    pub(crate) from: usize,
    /// The callers from this one on ask as NFS clients do: what they are answered is durable.
    pub(crate) remote: usize,
    /// Bytes of its volume, a journal not counted.
    pub(crate) volume_bytes: u64,
    /// Its volume is larger than the log-structured store below it has room for.
    pub(crate) is_thin: bool,
    /// Its volume has many small groups, and is used in hardly any memory.
    pub(crate) has_small_groups: bool,
    /// Its volume has inodes of 128 bytes.
    pub(crate) has_small_inodes: bool,
    /// Writes that follow one another in the setup are done a block at a time, in turn: the files
    /// are in as many pieces as they have blocks.
    pub(crate) is_woven: bool,
    /// Files that have the first one's attributes, in one block, as Linux keeps what is equal.
    pub(crate) sharing: Vec<String>,
    /// The callers by a mount hold what they look up for a while, as the kernel does: a file is
    /// unlinked first and freed later, in a change of its own.
    pub(crate) is_holding: bool,
    /// The clock goes on between two acts, as it does between two calls of a program.
    pub(crate) ticks: bool,
    /// What fails while it is done.
    pub(crate) fault: Option<Breaks>,
}

/// Bytes of the volume of most scenarios.
const VOLUME_BYTES: u64 = 2 << 20;

impl Script {
    fn new(setup: Vec<Act>, acts: Vec<Act>) -> Script {
        let (kernel, remote) = (Vec::new(), usize::MAX);
        let (callers, from, volume_bytes) = (1, 0, VOLUME_BYTES);
        Script {
            setup,
            kernel,
            acts,
            callers,
            from,
            remote,
            volume_bytes,
            is_thin: false,
            has_small_groups: false,
            has_small_inodes: false,
            is_woven: false,
            sharing: Vec::new(),
            is_holding: false,
            ticks: false,
            fault: None,
        }
    }

    /// Are these two of the setup done in turn?
    pub(crate) fn is_woven_with(&self, a: &Act, b: &Act) -> bool {
        self.is_woven && a.written().is_some() && b.written().is_some()
    }
}

/// The scenarios for volumes of ext4 alone.
pub const EXTENTS: &str = "extents";
/// The second of them.
pub const SPLITS: &str = "splits";
/// The third.
pub const SHIFTS: &str = "shifts";
/// The fourth.
pub(crate) const ZEROS: &str = "zeros";
/// The scenario for volumes with `inline_data` alone.
pub const INLINE: &str = "inline";
/// The scenario whose files depend on how many blocks an indirect one maps.
const HOLES: &str = "holes";
/// The scenario in which the volume's disk fails.
const BROKEN: &str = "broken";
/// The scenario for volumes of larger blocks alone.
pub(crate) const WIDE: &str = "wide";
/// The scenario for volumes with a journal of intents alone.
pub(crate) const FAILING: &str = "failing";
/// The scenario for volumes in a log-structured store alone.
pub const CLEANING: &str = "cleaning";
/// The second of them.
pub const FULL: &str = "full";
/// The third.
pub const THIN: &str = "thin";
/// All of them, where bugs of a store are looked for.
pub const OF_STORES: [&str; 3] = [CLEANING, THIN, FULL];

/// Names and what they are.
pub fn scenarios() -> &'static [(&'static str, &'static str)] {
    ALL
}

const ALL: &[(&str, &str)] = &[
    ("seq-1", "each operation alone, over a few names"),
    ("seq-2", "every pair of operations"),
    ("seq-3", "every three operations"),
    ("fronts", "three callers in the same directories, one by a mount and two by NFS"),
    ("mix", "a scripted mix: growing directories, renames over, symlinks, truncates, fsyncs"),
    ("append", "small appends to several files, with fsync"),
    ("overwrite", "files written in place and fdatasynced, while others' fsyncs commit"),
    ("pause", "files written in place, time to write them back, their inodes changed, fsync"),
    (
        crate::lifecycle::NAME,
        "recovered, opened, closed: cut off at each write, then used in another mode",
    ),
    ("kernel", "changes in directories as Linux makes them, indexed and not"),
    ("reuse", "directories removed, and files that take their blocks, with fsync"),
    ("wrap", "so many fsyncs that a small journal goes round"),
    ("callers", "three callers at a time in the same directories"),
    ("company", "a caller whose files others make durable while he changes and moves them"),
    ("old", "inodes of 128 bytes: times in seconds, and no room for attributes"),
    ("texts", "symbolic links of all lengths, replaced by others and by files"),
    ("still", "a volume that stands still again and again while callers change it"),
    ("postmark", "a mail server's small files: created, read, appended to, removed"),
    ("fleeting", "files made and removed again at once, among names that stay and slots reused"),
    ("departures", "files made in one sector and removed together, among names that stay"),
    ("gaps", "files that come and go in the room of names that were moved away a moment ago"),
    ("chains", "most names of a directory change, each in the place of one that waits"),
    ("slots", "inodes given to new files while changes of the last file's wait to be written"),
    ("short-lives", "new contents freed again while they and others' are being written back"),
    ("tight", "hardly any room: files go, and others take at once what they held"),
    ("trims", "the disk is told what is free while files go and others take their places"),
    ("moves", "files moved to new directories, and out of ones that are then removed"),
    ("layers", "what overlayfs does above: renames that leave whiteouts, files without names"),
    ("fragments", "a file in more pieces than a small log has room for is removed, cut, punched"),
    ("sharing", "files whose attributes Linux keeps in one block: removed, and given others"),
    ("attributes", "attributes that outgrow their inodes, and others that fit into them again"),
    ("owners", "owners and attributes, set and taken; files written after their last name"),
    ("dates", "files of which hardly more than the times change, made durable one at a time"),
    ("swaps", "names that change places in a sector, or come again where another was"),
    ("held", "files taken away while a mount's kernel holds them, and freed later"),
    ("lengths", "files cut, lengthened and filled again, in blocks of a map that stay"),
    ("shuffle", "names between directories of many blocks, with links and attributes"),
    ("moved", "files made durable in a directory that was moved a moment ago"),
    (
        "neighbours",
        "files whose inodes lie side by side, and callers in the middle of changing each",
    ),
    ("pieces", "directories in many pieces, which grow while others' changes are made durable"),
    (HOLES, "holes in a file whose map is long, some of them longer than one transaction"),
    (
        "crowd",
        "more callers at once than a small log has room for, each in the middle of something",
    ),
    (EXTENTS, "ext4: files in many pieces: allocated and written, holes, cuts, reuse"),
    (GROUPS, "many small groups in hardly any memory, their descriptors read on demand"),
    (SPLITS, "ext4: directories indexed by hash, whose leaves and nodes are full and split"),
    (SHIFTS, "ext4: ranges taken out of files and put in, among writes, holes and cuts"),
    (ZEROS, "ext4: ranges zeroed, whose blocks are given back for others never written"),
    (INLINE, "inline_data: small files and directories in their inodes, and what outgrows them"),
    (VALUES, "ea_inode: attributes whose values lie in inodes of their own, set and freed"),
    (WIDE, "larger blocks: directories of long names that need another, or an indirect one"),
    (FAILING, "a journal of intents whose blocks fail while several callers wait together"),
    (BROKEN, "a write or a flush fails, or the disk does, while several callers wait together"),
    (FULL, "a full volume in such a store: written again, refused, deleted, and used again"),
    (THIN, "the same of a volume that is larger than its store, which is full before it"),
    (CLEANING, "in a store without free segments, whose cleaner works while callers write"),
    ("random", "random operations"),
];

/// How many seeds a scenario has; None: as many as wanted.
pub(crate) fn seeds(name: &str) -> Option<u64> {
    let n = operations().len() as u64;
    match name {
        "seq-1" => Some(n),
        "seq-2" => Some(n * n),
        "seq-3" => Some(n * n * n),
        "mix" => Some(1),
        crate::lifecycle::NAME => Some(crate::lifecycle::seeds()),
        _ => None,
    }
}

fn s(p: &str) -> String {
    p.to_owned()
}

/// Most of the space that is left has had contents afterwards.
fn used_before() -> [Act; 5] {
    let old = s("/old");
    let write = Act::Write(old.clone(), 0, 1 << 20, 0xee);
    [Act::Create(old.clone()), write, Act::Sync, Act::Unlink(old), Act::Sync]
}

fn base() -> Vec<Act> {
    vec![
        Act::Mkdir(s("/A")),
        Act::Mkdir(s("/B")),
        Act::Create(s("/A/f")),
        Act::Write(s("/A/f"), 0, 3000, 1),
        Act::Create(s("/B/f")),
        Act::Write(s("/B/f"), 0, 20_000, 2),
        Act::Create(s("/f")),
        Act::Mkdir(s("/A/d")),
        Act::Mkdir(s("/B/e")),
        Act::Sync,
    ]
}

/// The operations of the sequences; some fail after others, which is an answer too.
fn operations() -> Vec<Act> {
    vec![
        Act::Create(s("/A/new")),
        Act::Create(s("/new")),
        Act::Mkdir(s("/A/newdir")),
        Act::Symlink(s("/A/short"), s("target")),
        Act::Symlink(s("/B/long"), "x".repeat(300)),
        Act::Link(s("/A/f"), s("/B/hard")),
        Act::Link(s("/f"), s("/A/hard")),
        Act::Unlink(s("/A/f")),
        Act::Unlink(s("/B/f")),
        Act::Rmdir(s("/A/d")),
        Act::Rename(s("/A/f"), s("/A/g")),
        Act::Rename(s("/A/f"), s("/B/f")),
        Act::Rename(s("/B/f"), s("/new")),
        Act::Rename(s("/A/d"), s("/B/d")),
        Act::Rename(s("/A/d"), s("/B/e")),
        Act::Rename(s("/B"), s("/C")),
        Act::Truncate(s("/B/f"), 5000),
        Act::Truncate(s("/A/f"), 0),
        Act::Truncate(s("/f"), 30_000),
        // As long as the write below has made it.
        Act::Truncate(s("/A/f"), 32_500),
        Act::Write(s("/A/f"), 2500, 30_000, 3),
        Act::Write(s("/f"), 0, 100, 4),
        Act::WriteSync(s("/A/f"), 1000, 500, 5),
        Act::Punch(s("/B/f"), 1500, 9000),
        Act::Fsync(s("/A/f")),
        Act::Fsync(s("/f")),
        Act::Fdatasync(s("/A/f")),
        Act::Sync,
    ]
}

/// The script of a scenario and seed on the shortest blocks; None: no such scenario.
fn script(name: &str, seed: u64) -> Option<Script> {
    let all = operations();
    let n = all.len() as u64;
    Some(match name {
        "seq-1" => Script::new(base(), vec![all[(seed % n) as usize].clone()]),
        "seq-2" => {
            let (a, b) = (seed / n % n, seed % n);
            let acts = vec![all[a as usize].clone(), all[b as usize].clone()];
            Script { from: 1, ..Script::new(base(), acts) }
        }
        "seq-3" => {
            let x = seed % (n * n * n);
            let acts = [x / (n * n), x / n % n, x % n].map(|i| all[i as usize].clone());
            Script { from: 2, ..Script::new(base(), acts.to_vec()) }
        }
        "mix" => Script::new(vec![Act::Mkdir(s("/d")), Act::Sync], mix()),
        "append" => append(seed),
        "overwrite" => overwrite(seed),
        "pause" => pause(seed),
        "kernel" => kernel::script(seed),
        "reuse" => reuse(seed),
        "wrap" => wrap::script(seed),
        "callers" => callers(seed),
        "fronts" => fronts(seed),
        "postmark" => postmark::script(seed),
        "company" => company::script(seed),
        "crowd" => crowd::script(seed),
        "dates" => dates::script(seed),
        CLEANING => cleaning::script(seed),
        FULL => full::script(seed, false),
        THIN => full::script(seed, true),
        "moved" => moved::script(seed),
        EXTENTS => extents::script(seed),
        SPLITS => splits::script(seed),
        SHIFTS => shifts::script(seed),
        ZEROS => zeros::script(seed),
        GROUPS => groups::script(seed),
        INLINE => inline::script(seed),
        VALUES => values::script(seed),
        FAILING => failing::script(seed),
        BROKEN => failing::of_disk(seed),
        WIDE => wide::script(seed),
        "fragments" => fragments::script(seed),
        "held" => held::script_of(seed)?,
        "sharing" => sharing::script(seed),
        "attributes" => attributes::script(seed),
        "owners" => owners::script(seed),
        "swaps" => swaps::script(seed),
        "pieces" => pieces::script(seed),
        HOLES => holes::script(seed, 1),
        "fleeting" => fleeting::script(seed),
        "departures" => departures::script(seed),
        "gaps" => gaps::script(seed),
        "chains" => chains::script(seed),
        "slots" => slots::script(seed),
        "trims" => trims::script(seed),
        "short-lives" => short_lives::script(seed),
        "tight" => tight::script(seed),
        "layers" => layers::layers(seed),
        "moves" => moves::script(seed),
        "lengths" => lengths::script(seed),
        "shuffle" => shuffle::script(seed),
        "neighbours" => neighbours::script(seed),
        "old" => old::script(seed),
        "still" => still::script(seed),
        "texts" => texts::script(seed),
        "random" => random(seed),
        _ => return None,
    })
}

fn mix() -> Vec<Act> {
    let mut acts = Vec::new();
    let long = "a-name-long-enough-to-fill-a-block-with-few-of-them";
    for i in 0..30 {
        acts.push(Act::Create(format!("/d/{long}-{i}")));
    }
    acts.push(Act::Write(format!("/d/{long}-3"), 0, 15_000, 5));
    acts.push(Act::Fsync(format!("/d/{long}-3")));
    acts.push(Act::Rename(format!("/d/{long}-4"), format!("/d/{long}-3")));
    acts.push(Act::Mkdir(s("/e")));
    acts.push(Act::Mkdir(s("/d/sub")));
    acts.push(Act::Rename(s("/d/sub"), s("/e/sub")));
    acts.push(Act::Symlink(s("/e/long"), "y".repeat(500)));
    for i in 10..20 {
        acts.push(Act::Unlink(format!("/d/{long}-{i}")));
    }
    acts.push(Act::Link(format!("/d/{long}-5"), s("/e/hard")));
    acts.push(Act::Write(s("/e/hard"), 0, 40_000, 6));
    acts.push(Act::Fsync(s("/e/hard")));
    acts.push(Act::Truncate(s("/e/hard"), 13_000));
    acts.push(Act::Create(s("/e/after")));
    acts.push(Act::Write(s("/e/after"), 0, 20_000, 7));
    acts.push(Act::Fsync(s("/e/after")));
    acts.push(Act::Unlink(s("/e/after")));
    acts.push(Act::Rmdir(s("/e/sub")));
    acts
}

fn append(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let file = |i: u64| format!("/log{i}");
    let setup = (0..3).map(|i| Act::Create(file(i))).chain([Act::Sync]).collect();
    let mut ends = [0u64; 3];
    let mut acts = Vec::new();
    for _ in 0..25 {
        let i = rng.below(3);
        let len = 1 + rng.below(2500);
        let value = if rng.one_in(4) { 0xc0 } else { rng.next_u64() as u8 };
        acts.push(Act::Write(file(i), ends[i as usize], len as usize, value));
        ends[i as usize] += len;
        if rng.one_in(2) {
            acts.push(Act::Fsync(file(i)));
        }
    }
    Script::new(setup, acts)
}

/// Callers that overwrite a file of their own and make the contents durable, as databases do, and
/// one that creates and fsyncs, so that a commit is always on its way.
fn overwrite(seed: u64) -> Script {
    const CALLERS: u64 = 3;
    const BYTES: u64 = 6000;
    let mut rng = Rng::new(seed);
    let file = |lane: u64| format!("/c{lane}n");
    let setup = (0..CALLERS)
        .flat_map(|c| [Act::Create(file(c)), Act::Write(file(c), 0, BYTES as usize, 1 + c as u8)])
        .chain([Act::Sync])
        .collect();
    let mut acts = Vec::new();
    for round in 0..14 {
        let value = rng.next_u64() as u8;
        let long = if rng.one_in(3) { 2048 } else { 700 };
        let (at, len) = (rng.below(BYTES - long), 1 + rng.below(long) as usize);
        for caller in 0..CALLERS {
            let p = file(caller);
            acts.push(match (caller, round % 2) {
                (0, 0) => Act::Create(format!("/c0n{round}")),
                (0, _) => Act::Fsync(format!("/c0n{}", round - 1)),
                (1, 0) => Act::Write(p, at, len, value),
                (1, _) => Act::Fdatasync(p),
                (_, _) if rng.one_in(2) => Act::WriteSync(p, at, len, value),
                (_, 0) => Act::Write(p, at, len, value),
                _ if rng.one_in(4) => Act::Punch(p, at, len as u64),
                _ => Act::Fdatasync(p),
            });
        }
    }
    Script { callers: CALLERS as usize, ..Script::new(setup, acts) }
}

/// What was written was written back by itself before its fsync, so that the fsync finds nothing to
/// write: was it made durable? Reads and links change nothing but the inode.
fn pause(seed: u64) -> Script {
    const BYTES: u64 = 6000;
    let mut rng = Rng::new(seed);
    let file = |n: u64| format!("/p{n}");
    let setup = (0..2)
        .flat_map(|n| [Act::Create(file(n)), Act::Write(file(n), 0, BYTES as usize, 1)])
        .chain([Act::Sync])
        .collect();
    let mut acts = Vec::new();
    for round in 0..8 {
        let p = file(rng.below(2));
        let (at, len) = (rng.below(BYTES / 2), 1 + rng.below(BYTES / 2) as usize);
        acts.push(Act::Write(p.clone(), at, len, rng.next_u64() as u8));
        acts.push(Act::Pause(rng.below(13)));
        match rng.below(3) {
            0 => acts.push(Act::Read(p.clone())),
            1 => acts.push(Act::Link(p.clone(), format!("/link{round}"))),
            _ => (),
        }
        acts.push(if rng.one_in(2) { Act::Fsync(p) } else { Act::Fdatasync(p) });
        if rng.one_in(2) {
            acts.push(Act::Pause(rng.below(4)));
        }
    }
    Script::new(setup, acts)
}

/// Blocks that held directories, maps and other files' contents come back as contents. The files
/// have gaps within a block, where nothing of what was there before may show.
fn reuse(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let mut acts = Vec::new();
    let mut setup = vec![Act::Mkdir(s("/keep")), Act::Sync];
    for d in 0..3 {
        setup.push(Act::Mkdir(format!("/d{d}")));
        setup.push(Act::Create(format!("/d{d}/x")));
        setup.push(Act::Create(format!("/big{d}")));
        setup.push(Act::Write(format!("/big{d}"), 0, 14_000 + 1000 * d, 0xb0 + d as u8));
    }
    setup.push(Act::Sync);
    for d in 0..3 {
        if rng.one_in(2) {
            acts.push(Act::Create(format!("/d{d}/{}", "e".repeat(200))));
            acts.push(Act::Write(format!("/big{d}"), 13_000, 4000, 0xd0 + d as u8));
            acts.push(Act::Fsync(format!("/big{d}")));
            acts.push(Act::Unlink(format!("/d{d}/{}", "e".repeat(200))));
        }
        acts.push(Act::Unlink(format!("/d{d}/x")));
        acts.push(Act::Rmdir(format!("/d{d}")));
        acts.push(Act::Unlink(format!("/big{d}")));
        if rng.one_in(2) {
            acts.push(Act::Sync);
        }
        let new = format!("/keep/n{d}");
        acts.push(Act::Create(new.clone()));
        let value = if rng.one_in(3) { 0xc0 } else { 0x10 + d as u8 };
        if rng.one_in(4) {
            // Its length is another operation's than the inode, which a directory had.
            acts.push(Act::Truncate(new.clone(), 3000));
        }
        if rng.one_in(2) {
            acts.push(Act::Write(new.clone(), 0, 24_000, value));
        } else {
            for i in 0..6 {
                acts.push(Act::Write(new.clone(), i * 1024, 200, value));
                acts.push(Act::Write(new.clone(), i * 1024 + 700, 100, value));
            }
        }
        if rng.one_in(3) {
            acts.push(Act::Sync);
        }
        acts.push(Act::Fsync(new.clone()));
        acts.push(Act::Write(new.clone(), 2048, 3000, 0x60 + d as u8));
        acts.push(Act::Fsync(new));
    }
    Script::new(setup, acts)
}

/// The callers of that scenario, one by a mount and two by NFS. Now and then the first rests for a
/// second: by then what he has done is durable, though he has not waited for it.
fn fronts(seed: u64) -> Script {
    let all = callers(!seed);
    let rest = [Act::Pause(1), Act::Pause(0), Act::Pause(0)];
    let rows = all.acts.chunks(3 * all.callers);
    let acts = rows.flat_map(|r| r.iter().chain(&rest).cloned().collect::<Vec<_>>()).collect();
    Script { acts, remote: 1, ..all }
}

fn random(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let mut model = Model::default();
    let mut list = |n: u64, model: &mut Model| -> Vec<Act> {
        let mut acts = Vec::new();
        while (acts.len() as u64) < n {
            let act = random_act(&mut rng, model);
            if model.apply(&act).is_ok() {
                acts.push(act);
            }
        }
        acts
    };
    let mut setup = list(20, &mut model);
    setup.push(Act::Sync);
    let acts = list(25, &mut model);
    Script::new(setup, acts)
}

/// Callers with names of their own in directories that they share, so that what they do commutes
/// while the blocks they change are the same.
fn callers(seed: u64) -> Script {
    const CALLERS: u64 = 3;
    let mut rng = Rng::new(seed);
    let shared = || vec![Act::Mkdir(s("/A")), Act::Mkdir(s("/B"))];
    let mut models = Vec::new();
    for _ in 0..CALLERS {
        let mut m = Model::default();
        for act in shared() {
            m.apply(&act).expect("an empty tree has room");
        }
        models.push(m);
    }
    let mut next = |lane: u64| loop {
        let model = &mut models[lane as usize];
        let act = random_act(&mut rng, model);
        let touches_shared = act.paths().iter().any(|p| *p == "/A" || *p == "/B");
        if act != Act::Sync && !touches_shared && model.apply(&act).is_ok() {
            return act.renamed(|p| p.replace("/n", &format!("/c{lane}n")));
        }
    };
    let mut setup = shared();
    setup.extend((0..9).map(|i| next(i % CALLERS)));
    setup.push(Act::Sync);
    let acts = (0..45).map(|i| next(i % CALLERS)).collect();
    Script { callers: CALLERS as usize, ..Script::new(setup, acts) }
}

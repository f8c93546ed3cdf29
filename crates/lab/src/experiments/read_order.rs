//! Laying what is read together together (matthews-1997, section 5), by the store that volumes lie
//! in: trees of source files are copied, then again and again a file is edited and its directory
//! built, with nothing in memory. What a read of a block takes, time after time, with and without.

use super::report::{Findings, Table};
use super::verdict::Stated;
use super::{Scale, cores};
use env::{Block, Disk, DiskError, Env, IdSet, Nanos, Rng};
use lfs::{BLOCK_BYTES, Change, Cleaning, FormatOptions, Group, OpenOptions, Speed, Store, Virt};
use sim::timing::{Access, Kind, Timing, by_name};
use sim::{Image, World, block_on};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// The paper's disk for reads: nanoseconds of a mean access, bytes a second.
const DISK: Speed = Speed { access: 22_000_000, bandwidth: 2_200_000 };
/// What is read at once at most, in blocks: the paper's buffer.
const AT_ONCE: u64 = 16;
/// A read that takes no more beyond its transfer was served without an access.
const HIT: u64 = 4_000_000;

/// Reads that the disk served, and those that needed no access.
#[derive(Clone, Copy, Default)]
struct Served {
    blocks: u64,
    nanos: u64,
    requests: u64,
    hits: u64,
}

/// Counts how the disk serves reads.
struct Meter {
    disk: Box<dyn Timing>,
    served: Rc<Cell<Served>>,
}

impl Timing for Meter {
    fn ends_at(&mut self, now: Nanos, access: Access) -> Nanos {
        let end = self.disk.ends_at(now, access);
        if access.kind == Kind::Read {
            let (took, s) = (end.since(now).0, self.served.get());
            let transfer = access.len * 1_000_000_000 / DISK.bandwidth;
            self.served.set(Served {
                blocks: s.blocks + access.len / BLOCK_BYTES as u64,
                nanos: s.nanos + took,
                requests: s.requests + 1,
                hits: s.hits + u64::from(took < transfer + HIT),
            });
        }
        end
    }
}

/// One run.
#[derive(Clone, Copy)]
struct Job {
    disk_bytes: u64,
    trees: u64,
    rounds: u64,
    reorganise: bool,
}

const DIRECTORIES: u64 = 12;
const FILES: u64 = 16;
const HEADERS: u64 = 24;

/// Files, by their blocks.
type Files = Vec<Range<u64>>;

/// A tree: its headers, and each directory's sources and objects.
struct Tree {
    headers: Files,
    directories: Vec<(Files, Files)>,
}

/// Files of some blocks each, one behind the other from `at` on.
fn files(n: u64, most: u64, at: &mut u64, rng: &mut Rng) -> Files {
    let one = |_| {
        let from = *at;
        *at += 1 + rng.below(most);
        from..*at
    };
    (0..n).map(one).collect()
}

fn trees(job: &Job, rng: &mut Rng) -> Vec<Tree> {
    let mut at = 0;
    let mut tree = |_| Tree {
        headers: files(HEADERS, 3, &mut at, rng),
        directories: (0..DIRECTORIES)
            .map(|_| (files(FILES, 9, &mut at, rng), files(FILES, 6, &mut at, rng)))
            .collect(),
    };
    (0..job.trees).map(&mut tree).collect()
}

/// Who builds: what he has read is in memory until he drops it.
struct Builder {
    store: Store,
    memory: IdSet<u64>,
}

impl Builder {
    async fn write(&mut self, file: &Range<u64>) -> Result<(), DiskError> {
        let kept = self.store.reserve(file.end - file.start).await?;
        let whole = |v| Change::Whole(Virt(v), Block::zeroed(BLOCK_BYTES));
        let changes = file.clone().map(whole).collect();
        let number = self.store.put(&Group { changes }, kept).await?;
        self.memory.extend(file.clone());
        self.store.flush_to(number).await
    }

    async fn read(&mut self, file: &Range<u64>) -> Result<(), DiskError> {
        let mut at = file.start;
        while at < file.end {
            let missing = (at..file.end.min(at + AT_ONCE)).take_while(|v| !self.memory.contains(v));
            let n = missing.count() as u64;
            if n > 0 {
                let blocks = (0..n).map(|_| Block::zeroed(BLOCK_BYTES)).collect();
                self.store.read(at * BLOCK_BYTES as u64, blocks).await?;
                self.memory.extend(at..at + n);
            }
            at += n.max(1);
        }
        Ok(())
    }

    /// Each source with the headers it includes; what comes of it replaces what came before.
    async fn build(&mut self, tree: &Tree, directory: usize) -> Result<(), DiskError> {
        let (sources, objects) = &tree.directories[directory];
        for (n, (source, object)) in sources.iter().zip(objects).enumerate() {
            self.read(source).await?;
            // Which headers a file includes stays the same.
            for header in tree.headers.iter().skip(n % 5).step_by(5) {
                self.read(header).await?;
            }
            self.write(object).await?;
        }
        Ok(())
    }
}

/// Of each tenth of the rounds, how reads were served.
async fn rounds(
    env: Env,
    store: Store,
    served: Rc<Cell<Served>>,
    job: Job,
) -> Result<Vec<Served>, DiskError> {
    let mut rng = Rng::new(3);
    let trees = trees(&job, &mut rng);
    let mut b = Builder { store, memory: IdSet::default() };
    for tree in &trees {
        for header in &tree.headers {
            b.write(header).await?;
        }
        for (sources, objects) in &tree.directories {
            for file in sources.iter().chain(objects) {
                b.write(file).await?;
            }
        }
    }
    let mut tenths = Vec::new();
    for round in 0..job.rounds {
        if round % (job.rounds / 10) == 0 {
            tenths.push(Served::default());
        }
        let tree = &trees[rng.below(job.trees) as usize];
        let directory = rng.below(DIRECTORIES) as usize;
        let edited = &tree.directories[directory].0[rng.below(FILES) as usize];
        b.write(edited).await?;
        b.memory.clear();
        served.set(Served::default());
        b.build(tree, directory).await?;
        let (now, sum) = (served.get(), tenths.last_mut().expect("there is one"));
        *sum = Served {
            blocks: sum.blocks + now.blocks,
            nanos: sum.nanos + now.nanos,
            requests: sum.requests + now.requests,
            hits: sum.hits + now.hits,
        };
        b.memory.clear();
        env.sleep(Nanos::from_secs(60)).await;
    }
    Ok(tenths)
}

fn run(job: &Job) -> Result<(Vec<Served>, lfs::Stats), String> {
    let job = *job;
    let mut world = World::new(Image::new(job.disk_bytes));
    world.forget();
    let served = Rc::new(Cell::new(Served::default()));
    let disk = by_name("hp97560", job.disk_bytes).expect("it is one of sim's");
    world.set_timings(vec![Box::new(Meter { disk, served: served.clone() })]);
    block_on(&mut world, move |env, disk| async move {
        let segment_bytes = Some(256 << 10);
        let options = FormatOptions { uuid: [7; 16], segment_bytes, ..FormatOptions::default() };
        lfs::format(&disk, &options).await?;
        let options = OpenOptions {
            cleaning: Cleaning::Idle,
            disk: Some(DISK),
            reorganise: Some(job.reorganise),
            ..OpenOptions::default()
        };
        let store = Store::open(env.clone(), disk, options).await?;
        let all = rounds(env, store.clone(), served, job).await.map_err(|e| e.to_string())?;
        let report = store.verify(true).await.map_err(|e| e.to_string())?;
        match report.wrong.into_iter().next() {
            Some(wrong) => Err(wrong),
            None => Ok((all, store.stats())),
        }
    })
}

/// Milliseconds for each 8 KiB.
fn ms(s: &Served) -> f64 {
    s.nanos as f64 / 1e6 / s.blocks.max(1) as f64 * 2.0
}

fn hits(s: &Served) -> f64 {
    100.0 * s.hits as f64 / s.requests.max(1) as f64
}

/// The experiment.
pub(super) fn read_order(scale: Scale) -> Result<Findings, String> {
    let (disk_bytes, trees, rounds) = scale.pick((256 << 20, 8, 2000), (64 << 20, 1, 160));
    let jobs = [false, true].map(|reorganise| Job { disk_bytes, trees, rounds, reorganise });
    let did: Vec<_> = cores::each(&jobs, run).into_iter().collect::<Result<_, _>>()?;
    let mut f = Findings::default();
    let ((before, _), (after, stats)) = (&did[0], &did[1]);
    let title = "Directories built again and again, an HP 97560: ms for each 8 KiB read, and of \
                 100 requests those served without an access";
    let columns = ["tenth of the builds", "as written", "", "laid as read", ""];
    let mut t = Table::new(title, &columns);
    for (n, (a, b)) in (1..).zip(before.iter().zip(after)) {
        let cell = |s: &Served| [format!("{:.2}", ms(s)), format!("{:.1}", hits(s))];
        t.row([n.to_string()].into_iter().chain(cell(a)).chain(cell(b)).collect());
        f.note(a.nanos ^ b.nanos << 1);
    }
    f.tables.push(t);
    let title = "What laying has cost the disk in idle time, and saved reads, by the store's count";
    let mut t = Table::new(title, &["blocks", "s", "s saved"]);
    let secs = |nanos: u64| format!("{:.0}", nanos as f64 / 1e9);
    let (spent, saved) = (secs(stats.reorganise_spent), secs(stats.reorganise_saved));
    t.row(vec![stats.reorganised.to_string(), spent, saved]);
    f.tables.push(t);
    let last = |all: &[Served]| {
        all[all.len() - 3..]
            .iter()
            .fold((0.0, 0.0), |sum, s| (sum.0 + ms(s) / 3.0, sum.1 + hits(s) / 3.0))
    };
    let (before, after) = (last(before), last(after));
    let what = "a read where nothing is laid as it is read, beside where it is";
    let why = "not the paper's trees";
    f.claim(Stated::times(30, what, 12.0 / 6.5).proxy().because(why), before.0 / after.0);
    let what = "of 100 requests those served without an access, laid as they are read";
    f.claim(Stated::amount(30, what, (66.8, "")).proxy().because(why), after.1);
    let stated =
        Stated::between(0, "our own goal: a read, laid as it is read, beside not", (0.1, 0.9));
    f.claim(
        stated.because("files that were edited lie beside the others again"),
        after.0 / before.0,
    );
    Ok(f)
}

//! Hot and cold data kept apart by the store that volumes lie in, not by a model of it: what it
//! writes for each block that users write, without and with its summaries, table and checkpoints,
//! by policy, where some blocks are written more often than others.

use super::report::{Findings, Table};
use super::updates::{Chooser, Load};
use super::verdict::Stated;
use super::{Scale, cores};
use env::{Block, Nanos};
use lfs::{BLOCK_BYTES, Change, FormatOptions, Group, OpenOptions, Policy, Store, Virt};
use sim::{Image, World, block_on};

const POLICIES: [Policy; 4] =
    [Policy::Greedy, Policy::CostBenefit, Policy::SepBit, Policy::Balanced];
const SEPBIT: usize = 2;
const OURS: usize = 3;

const LOADS: [(&str, Load); 5] = [
    ("10 % get 90 %", Load::Hot(10)),
    ("the same, shifting", Load::Shifting(10)),
    ("Zipf 0.8", Load::Zipf(80)),
    ("Zipf 1.0", Load::Zipf(100)),
    ("Zipf 1.2", Load::Zipf(120)),
];

/// One run.
#[derive(Clone, Copy)]
struct Job {
    disk_bytes: u64,
    /// Of 100 of the volume's blocks, so many hold something.
    full: u64,
    load: Load,
    policy: Policy,
    rounds: u64,
}

/// Blocks written for each that users wrote: contents alone, and all.
#[derive(Clone, Copy)]
struct Did {
    contents: f64,
    all: f64,
}

async fn write(store: &Store, v: u64) -> Result<(), env::DiskError> {
    let kept = store.reserve(1).await?;
    let block = Block::zeroed(BLOCK_BYTES);
    store.put(&Group { changes: vec![Change::Whole(Virt(v), block)] }, kept).await.map(|_| ())
}

fn run(job: &Job) -> Result<Did, String> {
    let job = *job;
    let mut world = World::new(Image::new(job.disk_bytes));
    world.forget();
    block_on(&mut world, move |env, disk| async move {
        let (segment_bytes, virtual_bytes, heads) = (Some(64 << 10), None, None);
        let options =
            FormatOptions { uuid: [7; 16], segment_bytes, virtual_bytes, heads, disk: None };
        let shape = lfs::format(&disk, &options).await?;
        let options = OpenOptions { policy: job.policy, ..OpenOptions::default() };
        let store = Store::open(env.clone(), disk, options).await?;
        let text = |e: env::DiskError| e.to_string();
        let blocks = shape.virtual_blocks * job.full / 100;
        for v in 0..blocks {
            write(&store, v).await.map_err(text)?;
        }
        let mut chooser = Chooser::new(job.load, blocks as u32);
        let mut before = (store.stats(), store.totals());
        for n in 0..blocks * job.rounds {
            if n == blocks * job.rounds / 2 {
                before = (store.stats(), store.totals());
            }
            write(&store, chooser.next()).await.map_err(text)?;
        }
        let after = (store.stats(), store.totals());
        let users = (after.0.written - before.0.written) as f64;
        let moved = (after.0.moved - before.0.moved) as f64;
        let all = (after.1.written - before.1.written) as f64;
        // The cleaner comes to rest: what is compared must stand still.
        env.sleep(Nanos::from_secs(60)).await;
        if let Some(wrong) = store.verify(true).await.map_err(text)?.wrong.into_iter().next() {
            return Err(wrong);
        }
        Ok(Did { contents: 1.0 + moved / users, all: all / users })
    })
}

/// The experiment.
pub(super) fn apart(scale: Scale) -> Result<Findings, String> {
    let full = scale.pick(vec![70, 80, 90, 95], vec![95]);
    let (disk_bytes, rounds) = scale.pick((128 << 20, 8), (64 << 20, 3));
    let loads = scale.pick(LOADS.to_vec(), vec![LOADS[3]]);
    let mut jobs = Vec::new();
    for (_, load) in &loads {
        for &full in &full {
            let job = |policy| Job { disk_bytes, full, load: *load, policy, rounds };
            jobs.extend(POLICIES.map(job));
        }
    }
    let did: Vec<Did> = cores::each(&jobs, run).into_iter().collect::<Result<_, _>>()?;
    let mut f = Findings::default();
    let names = POLICIES.map(|p| p.name());
    let columns: Vec<&str> = ["load", "% full"].into_iter().chain(names).collect();
    let title = format!(
        "Blocks written for each that users write, by a store of {} MiB with segments of 64 KiB: \
         contents, and with summaries, table and checkpoints",
        disk_bytes >> 20
    );
    let mut t = Table::new(&title, &columns);
    let mut of = loads.iter().flat_map(|(name, _)| full.iter().map(move |full| (name, full)));
    let mut worst = 0.0_f64;
    for row in did.chunks(POLICIES.len()) {
        let (name, full) = of.next().expect("a row for each");
        let cells = row.iter().map(|d| format!("{:.2}, {:.2}", d.contents, d.all));
        t.row([(*name).to_owned(), full.to_string()].into_iter().chain(cells).collect());
        worst = worst.max(row[OURS].contents / row[SEPBIT].contents);
        row.iter().for_each(|d| f.note(d.all.to_bits()));
    }
    f.tables.push(t);
    let what = "our own goal: contents that our store writes with balanced beside sepbit, at its \
                worst";
    let why = "the same six open segments; the root of the age instead of the age";
    f.claim(Stated::between(0, what, (0.5, 1.02)).because(why), worst);
    Ok(f)
}

//! Synchronous writes by their size, in the modes that log contents and in `ordered`: is `unified`
//! anywhere far behind the best mode that promises the same? Several callers append to a file each;
//! the log is on the volume's disk or on one of its own.

use super::latency::{Latency, Op};
use super::report::{Findings, Table};
use super::rig::{Caller, Machine, Model, ROOT, Rig, secs};
use super::verdict::{Stated, Verdict};
use super::{Scale, cheetah_15k, cores, nvme};
use crate::subject::Setting;
use vfs::FsError;
use volume::Mode;

/// `unified` first, then those whose promise to a synchronous write is at least its own: it is
/// durable, and a small one is whole or not there. `ordered` promises less of small ones.
const MODES: [Mode; 5] =
    [Mode::Unified, Mode::Data, Mode::Wasteless, Mode::Selective, Mode::Ordered];
/// As many of them promise what `unified` does.
const PEERS: usize = 4;

const SIZES: [u64; 7] = [512, 2048, 4096, 16_384, 65_536, 131_072, 524_288];

/// Where it is measured.
#[derive(Clone, Copy)]
struct Place {
    name: &'static str,
    disk: Model,
    outside: bool,
    callers: u64,
}

const PLACES: [Place; 6] = [
    Place { name: "15,000 rpm, one caller", disk: cheetah_15k, outside: false, callers: 1 },
    Place { name: "15,000 rpm, 32 callers", disk: cheetah_15k, outside: false, callers: 32 },
    Place { name: "log on a second disk, one", disk: cheetah_15k, outside: true, callers: 1 },
    Place { name: "log on a second disk, 32", disk: cheetah_15k, outside: true, callers: 32 },
    Place { name: "NVMe, one caller", disk: nvme, outside: false, callers: 1 },
    Place { name: "NVMe, 32 callers", disk: nvme, outside: false, callers: 32 },
];

/// Writes a second, what one waited, and a number for the digest.
struct Did {
    per_sec: f64,
    wait: Latency,
    note: u64,
}

fn run(mode: Mode, place: Place, size: u64, bytes_max: u64) -> Result<Did, String> {
    let machine = Machine {
        disk: place.disk,
        log: place.disk,
        bytes: (8 << 30, 128 << 20),
        cache_bytes: 256 << 20,
        inodes: 16_384,
    };
    let setting = Setting { outside: place.outside, ..Setting::plain(mode) };
    let mut rig = Rig::new(&machine, setting)?;
    let create = |n: u64| {
        async move |c: Caller| -> Result<(), FsError> {
            c.create(ROOT, &format!("f{n}")).await.map(|_| ())?;
            c.sync_all().await
        }
    };
    rig.callers(false, (0..place.callers).map(create))?;
    rig.take_latencies();
    let writes = (bytes_max / size).min(1500) / place.callers;
    let append = |n: u64| {
        async move |c: Caller| -> Result<(), FsError> {
            let ino = c.lookup(ROOT, &format!("f{n}")).await?;
            for i in 0..writes {
                c.write(ino, (i * size, size), true).await?;
            }
            Ok(())
        }
    };
    let took = rig.callers(false, (0..place.callers).map(append))?;
    let per_sec = (writes * place.callers) as f64 / secs(took);
    Ok(Did { per_sec, wait: rig.take_latencies().of(&[Op::Write]), note: took.0 })
}

/// The experiment.
pub(super) fn write_sizes(scale: Scale) -> Result<Findings, String> {
    let bytes_max = scale.pick(64 << 20, 2 << 20);
    let sizes = scale.pick(&SIZES[..], &SIZES[2..6]);
    let places = scale.pick(&PLACES[..], &PLACES[1..2]);
    let mut jobs = Vec::new();
    for place in places {
        for mode in MODES {
            jobs.extend(sizes.iter().map(|size| (*place, mode, *size)));
        }
    }
    let did = cores::each(&jobs, |(place, mode, size)| run(*mode, *place, *size, bytes_max));
    let did: Vec<Did> = did.into_iter().collect::<Result<_, _>>()?;
    let mut f = Findings::default();
    did.iter().for_each(|d| f.note(d.note));
    let columns: Vec<String> = sizes.iter().map(|s| format!("{s} B")).collect();
    let columns: Vec<&str> = ["mode"].into_iter().chain(columns.iter().map(|c| &c[..])).collect();
    for (place, of_place) in places.iter().zip(did.chunks(MODES.len() * sizes.len())) {
        let by_mode: Vec<&[Did]> = of_place.chunks(sizes.len()).collect();
        let mut table = |title: String, cell: fn(&Did) -> String| {
            let mut t = Table::new(&title, &columns);
            for (mode, row) in MODES.iter().zip(&by_mode) {
                t.row([mode.to_string()].into_iter().chain(row.iter().map(cell)).collect());
            }
            f.tables.push(t);
        };
        table(format!("Writes a second: {}", place.name), |d| format!("{:.0}", d.per_sec));
        let title = format!("What a write waited, ms: mean / 99 of 100: {}", place.name);
        table(title, |d| d.wait.to_string());
        let beside = |n: usize| {
            let best = by_mode[1..PEERS].iter().map(|row| row[n].per_sec).fold(0.0, f64::max);
            by_mode[0][n].per_sec / best
        };
        let worst = (0..sizes.len()).map(beside).fold(f64::INFINITY, f64::min);
        let what = format!(
            "our own goal: unified beside the best of data, wasteless and selective, at the size \
             where it is worst; {}",
            place.name
        );
        let why = "one caller: a large write waits for its blocks in place and then for the log, \
                   where wasteless waits once; many: half of them are in the batch under way while \
                   the others wait, and the journal's modes take all into each commit";
        let stated = Stated::goal(what, (0.9, 100.0)).stands(Verdict::Contradicted).because(why);
        f.claim(stated, worst);
    }
    Ok(f)
}

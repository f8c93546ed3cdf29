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
    stands: Verdict,
}

const PLACES: [Place; 6] = [
    place("15,000 rpm, one caller", cheetah_15k, (false, 1), Verdict::Reproduced),
    place("15,000 rpm, 32 callers", cheetah_15k, (false, 32), Verdict::Contradicted),
    place("log on a second disk, one", cheetah_15k, (true, 1), Verdict::Reproduced),
    place("log on a second disk, 32", cheetah_15k, (true, 32), Verdict::Contradicted),
    place("NVMe, one caller", nvme, (false, 1), Verdict::Contradicted),
    place("NVMe, 32 callers", nvme, (false, 32), Verdict::Contradicted),
];

/// The last: is the log on a disk of its own, how many callers; what becomes of the claim.
const fn place(name: &'static str, disk: Model, how: (bool, u64), stands: Verdict) -> Place {
    Place { name, disk, outside: how.0, callers: how.1, stands }
}

/// Why it is behind where it is.
const WHY: &str = "up to a block, and for one caller of a disk that turns, it is level with the \
                   best; of 16 KiB and more both ways, in place and through the log, are tried at \
                   first and now and then, which a run of 1,500 writes notices, and the log is \
                   half full towards its end, so that contents go in place again; what is left \
                   beside wasteless is not explained";

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
        let stated = Stated::goal(what, (0.9, 100.0)).stands(place.stands).because(WHY);
        f.claim(stated, worst);
    }
    Ok(f)
}

//! Loads in the manner of seltzer-2000's macrobenchmarks (its tables 4 and 5 and figure 4): a build
//! (unpack, configure, compile), SDET's scripts beside one another, and a news server with little
//! memory. Neither the paper's packages nor its traces are here: the loads are made of what it says
//! of them, so that each claim is a proxy.

use super::report::{Findings, Table};
use super::rig::{Caller, ROOT, Rig, secs};
use super::seltzer::{ASYNC, ASYNC2, FFS, SOFT, SYNC1, SYNC2, machine, new_rig, ratio, systems};
use super::{Scale, cores};
use crate::subject::Setting;
use env::{Nanos, Rng};
use std::cell::RefCell;
use std::rc::Rc;
use vfs::FsError;

/// What the loads amount to.
#[derive(Clone, Copy)]
struct Sizes {
    /// Files of the package, and directories for them.
    package: (u64, u64),
    /// Small programs that the configuration tries, and files that are compiled.
    tries: u64,
    objects: u64,
    /// Commands of a script.
    commands: u64,
    /// Scripts beside one another.
    scripts: [u64; 3],
    /// Articles at first, new ones, and old ones that go.
    articles: (u64, u64, u64),
    /// Memory of the news server for blocks.
    news_bytes: u64,
}

/// Seconds of the build's phases; scripts an hour for each number of them; seconds of the news
/// server's two phases, and its writes.
struct Did {
    build: [f64; 3],
    scripts: [f64; 3],
    news: [f64; 2],
    news_writes: u64,
    note: u64,
}

/// A new file of so many bytes.
async fn file(c: &Caller, dir: u32, name: &str, bytes: u64) -> Result<u32, FsError> {
    let ino = c.create(dir, name).await?;
    if bytes > 0 {
        c.write(ino, (0, bytes), false).await?;
    }
    Ok(ino)
}

/// The files of a package: some KB each, a few of them large.
fn source_bytes(rng: &mut Rng) -> u64 {
    if rng.one_in(12) { 20_000 + rng.below(60_000) } else { 300 + rng.below(9000) }
}

/// What a small program costs the processor when it is compiled, and a file of the package.
const TRY: Nanos = Nanos::from_millis(60);
const COMPILE: Nanos = Nanos::from_millis(320);

fn build(setting: Setting, s: Sizes) -> Result<([f64; 3], u64), String> {
    let mut rig = new_rig(&machine(256 << 20), setting)?;
    let sources: Rc<RefCell<Vec<u32>>> = Rc::default();
    let (files, dirs) = s.package;
    let into = sources.clone();
    let unpack = async move |c: Caller| -> Result<(), FsError> {
        let mut rng = Rng::new(7);
        let mut dir = ROOT;
        for n in 0..files {
            if n % files.div_ceil(dirs) == 0 {
                dir = c.mkdir(ROOT, &format!("d{n}")).await?;
            }
            let ino = file(&c, dir, &format!("s{n}.c"), source_bytes(&mut rng)).await?;
            into.borrow_mut().push(ino);
        }
        Ok(())
    };
    let configure = async move |c: Caller| -> Result<(), FsError> {
        for n in 0..s.tries {
            file(&c, ROOT, "conftest.c", 400 + n).await?;
            c.compute(TRY).await;
            file(&c, ROOT, "conftest.o", 2500).await?;
            file(&c, ROOT, "conftest", 12_000).await?;
            for name in ["conftest.c", "conftest.o", "conftest"] {
                c.unlink(ROOT, name).await?;
            }
        }
        file(&c, ROOT, "Makefile", 30_000).await.map(|_| ())
    };
    let from = sources.clone();
    let compile = async move |c: Caller| -> Result<(), FsError> {
        let all = from.take();
        for n in 0..s.objects {
            for i in 0..4 {
                c.read(all[((n * 7 + i * 13) % all.len() as u64) as usize], 80_000).await?;
            }
            c.compute(COMPILE).await;
            file(&c, ROOT, "cc.s", 25_000).await?;
            file(&c, ROOT, &format!("o{n}.o"), 9000 + n * 50).await?;
            c.unlink(ROOT, "cc.s").await?;
        }
        file(&c, ROOT, "program", 900_000).await.map(|_| ())
    };
    let times = [
        secs(rig.callers(false, [unpack])?),
        secs(rig.callers(false, [configure])?),
        secs(rig.callers(false, [compile])?),
    ];
    Ok((times, rig.now().0))
}

/// What a command of a script costs the processor.
const COMMAND: Nanos = Nanos::from_millis(8);

/// One of SDET's scripts: commands in an order of its own, in directories of its own.
async fn script(c: Caller, n: u64, commands: u64) -> Result<(), FsError> {
    let mut rng = Rng::new(100 + n);
    let own = c.mkdir(ROOT, &format!("own{n}")).await?;
    let text = file(&c, own, "text", 8000).await?;
    for i in 0..commands {
        c.compute(COMMAND).await;
        let name = format!("x{i}");
        match rng.below(8) {
            // touch, cp, and the copy of a larger file
            0 => drop(c.create(own, &name).await?),
            1 => {
                c.read(text, 8000).await?;
                file(&c, own, &name, 8000).await?;
            }
            // cc: what lies between its passes is made and removed
            2 => {
                file(&c, own, "cc.s", 12_000).await?;
                c.compute(COMMAND).await;
                file(&c, own, &name, 6000).await?;
                c.unlink(own, "cc.s").await?;
            }
            // mkdir, a file in it, rm, rmdir
            3 => {
                let dir = c.mkdir(own, &name).await?;
                file(&c, dir, "f", 1000).await?;
                c.unlink(dir, "f").await?;
                c.rmdir(own, &name).await?;
            }
            // ed: a copy beside the text
            4 => {
                file(&c, own, "ed.tmp", 8000).await?;
                c.write(text, (0, 8000), false).await?;
                c.unlink(own, "ed.tmp").await?;
            }
            // ls, find, grep, nroff: they read
            _ => c.read(text, 8000).await?,
        }
    }
    Ok(())
}

fn scripts(setting: Setting, n: u64, commands: u64) -> Result<(f64, u64), String> {
    let mut rig = new_rig(&machine(256 << 20), setting)?;
    let all = (0..n).map(|i| async move |c: Caller| script(c, i, commands).await);
    let took = secs(rig.callers(false, all)?);
    Ok((n as f64 * 3600.0 / took, rig.now().0))
}

/// Directories of the news server, and files that they hold at first.
const GROUPS: u64 = 200;

fn news(setting: Setting, s: Sizes) -> Result<([f64; 2], u64, u64), String> {
    let machine = machine(s.news_bytes);
    let mut rig = new_rig(&machine, setting)?;
    let (old, new, gone) = s.articles;
    let groups: Rc<RefCell<Vec<u32>>> = Rc::default();
    let into = groups.clone();
    let article = |n: u64| ((n * 48_271 % GROUPS) as usize, format!("{n}"));
    rig.callers(
        false,
        [async move |c: Caller| -> Result<(), FsError> {
            for g in 0..GROUPS {
                let dir = c.mkdir(ROOT, &format!("g{g}")).await?;
                into.borrow_mut().push(dir);
            }
            let mut rng = Rng::new(3);
            for n in 0..old {
                let (group, name) = article(n);
                let dir = into.borrow()[group];
                file(&c, dir, &name, 500 + rng.below(7200)).await?;
            }
            c.sync_all().await
        }],
    )?;
    let mut rig: Rig = rig.reopened(&machine, setting)?;
    rig.take_traffic();
    let dirs = groups.clone();
    let unbatch = async move |c: Caller| -> Result<(), FsError> {
        let mut rng = Rng::new(4);
        for n in old..old + new {
            let (group, name) = article(n);
            let dir = dirs.borrow()[group];
            file(&c, dir, &name, 500 + rng.below(5900)).await?;
        }
        Ok(())
    };
    let dirs = groups.clone();
    let expire = async move |c: Caller| -> Result<(), FsError> {
        for n in 0..gone {
            let (group, name) = article(n * 3 % old);
            let dir = dirs.borrow()[group];
            c.unlink(dir, &name).await?;
        }
        c.sync_all().await
    };
    let times = [secs(rig.callers(false, [unbatch])?), secs(rig.callers(false, [expire])?)];
    let [volume, log] = rig.take_traffic();
    Ok((times, volume.writes + log.writes, rig.now().0))
}

fn run(setting: Setting, s: Sizes) -> Result<Did, String> {
    let (build, a) = build(setting, s)?;
    let mut rates = [0.0; 3];
    let mut note = a;
    for (rate, n) in rates.iter_mut().zip(s.scripts) {
        let (per_hour, end) = scripts(setting, n, s.commands)?;
        *rate = per_hour;
        note ^= end;
    }
    let (news, news_writes, b) = news(setting, s)?;
    Ok(Did { build, scripts: rates, news, news_writes, note: note ^ b })
}

/// The experiment.
pub(super) fn programs(scale: Scale) -> Result<Findings, String> {
    let sizes = scale.pick(
        Sizes {
            package: (400, 20),
            tries: 150,
            objects: 120,
            commands: 200,
            scripts: [1, 5, 20],
            articles: (20_000, 3000, 3500),
            news_bytes: 20 << 20,
        },
        Sizes {
            package: (60, 4),
            tries: 10,
            objects: 10,
            commands: 30,
            scripts: [1, 2, 4],
            articles: (800, 150, 150),
            news_bytes: 1 << 20,
        },
    );
    let systems = systems();
    let did = cores::each(&systems, |(_, setting)| run(*setting, sizes));
    let did: Vec<Did> = did.into_iter().collect::<Result<_, _>>()?;
    let mut f = Findings::default();
    did.iter().for_each(|d| f.note(d.note));
    let scripts = sizes.scripts.map(|n| format!("{n} scripts"));
    let columns = ["unpack", "configure", "compile", &scripts[0], &scripts[1], &scripts[2]];
    let columns: Vec<&str> = ["system"].into_iter().chain(columns).collect();
    let mut t = Table::new("Seconds of a build; SDET's scripts an hour", &columns);
    for ((name, _), d) in systems.iter().zip(&did) {
        let build = d.build.iter().map(|s| format!("{s:.2}"));
        let scripts = d.scripts.iter().map(|s| format!("{s:.0}"));
        t.row([(*name).to_owned()].into_iter().chain(build).chain(scripts).collect());
    }
    f.tables.push(t);
    let columns = ["system", "unbatch, s", "expire, s", "writes to the disks"];
    let mut t = Table::new("A news server with little memory", &columns);
    for ((name, _), d) in systems.iter().zip(&did) {
        let [a, b] = d.news.map(|s| format!("{s:.2}"));
        t.row(vec![(*name).to_owned(), a, b, d.news_writes.to_string()]);
    }
    f.tables.push(t);
    let of = |name: &str| {
        let at = systems.iter().position(|(n, _)| *n == name);
        &did[at.expect("it is one of the systems")]
    };
    claims(&of, &mut f);
    Ok(f)
}

/// How fast a system is beside the unordered one, in the paper and here; the number of the claim.
struct Told(u32, &'static str, What, f64, &'static str);

#[derive(Clone, Copy)]
enum What {
    /// A phase of the build, or all of it.
    Phase(usize),
    Build,
    /// So many scripts, by their place.
    Scripts(usize),
    News,
    /// Writes of the news server, beside ffs.
    NewsWrites,
}

fn claims<'a>(of: &impl Fn(&str) -> &'a Did, f: &mut Findings) {
    let sum = |all: &[f64]| all.iter().sum::<f64>();
    for Told(number, name, what, paper, why) in &TOLD {
        let (a, b) = (of(name), of(ASYNC));
        let (label, ours) = match *what {
            What::Phase(n) => (format!("build, phase {}", n + 1), b.build[n] / a.build[n]),
            What::Build => ("build".to_owned(), sum(&b.build) / sum(&a.build)),
            What::Scripts(n) => (format!("scripts, {n}"), a.scripts[n] / b.scripts[n]),
            What::News => ("news".to_owned(), sum(&b.news) / sum(&a.news)),
            What::NewsWrites => {
                let ffs = of(FFS).news_writes as f64;
                ("writes of news, beside ffs".to_owned(), a.news_writes as f64 / ffs)
            }
        };
        let beside = format!("{label}: {name} beside {ASYNC}");
        f.claim(ratio(*number, beside, *paper).proxy().because(*why), ours);
    }
}

const NAMES: &str = "each new name waits for the disk; nothing else does";
const FREE: &str = "nobody waits for the disk but who reads";
const TURNS: &str = "the log is written at each name; scripts share its writes";
const LITTLE: &str = "little memory: blocks are written back while they still wait for others";

const TOLD: [Told; 17] = [
    Told(7, FFS, What::Phase(0), 0.14, NAMES),
    Told(7, SOFT, What::Phase(0), 0.99, FREE),
    Told(7, SYNC2, What::Phase(0), 0.20, TURNS),
    Told(7, ASYNC2, What::Phase(0), 0.90, FREE),
    Told(7, FFS, What::Phase(1), 0.66, NAMES),
    Told(7, SOFT, What::Build, 1.01, FREE),
    Told(7, FFS, What::Build, 0.73, NAMES),
    Told(9, SOFT, What::Scripts(2), 0.987, FREE),
    Told(9, ASYNC2, What::Scripts(2), 0.916, FREE),
    Told(9, FFS, What::Scripts(0), 0.216, NAMES),
    Told(9, FFS, What::Scripts(2), 0.096, NAMES),
    Told(9, SYNC1, What::Scripts(2), 0.179, TURNS),
    Told(8, SOFT, What::News, 0.87, LITTLE),
    Told(8, ASYNC2, What::News, 0.96, LITTLE),
    Told(8, SYNC1, What::News, 0.59, TURNS),
    Told(8, FFS, What::News, 0.53, NAMES),
    Told(8, SOFT, What::NewsWrites, 1.13, LITTLE),
];

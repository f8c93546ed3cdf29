//! Directories and small files over NFS, with a log and in place (vahalia-1995, tables 1 and 2):
//! eight disks with a file system each, one client process a disk, and the log that all share.
//! What the client itself and its other requests take for each operation is counted: it is what the
//! paper's two tables leave of the run with the log.

use super::calaveras::{WORK, logging, machine};
use super::latency::{Latency, Op};
use super::report::{Findings, Table};
use super::rig::{Caller, ROOT, Rig, secs};
use super::verdict::{Stated, Verdict};
use super::{Scale, cores};
use crate::subject::Setting;
use env::Nanos;
use std::cell::RefCell;
use std::rc::Rc;
use vfs::FsError;
use volume::Mode;

/// Disks, and clients.
const VOLUMES: u16 = 8;

/// A test of the paper: its operation, its times in seconds and in ms at the server, each in place
/// and with the log.
struct Test {
    name: &'static str,
    op: Op,
    secs: (f64, f64),
    server: (&'static str, f64, f64),
    why: &'static str,
    stands: (Verdict, Verdict),
}

const MKDIR: &str = "our mode sync writes a new directory in a few ordered steps, several \
                     blocks at a time, in less than half of the 106 ms of the paper's \
                     server; with the log both take the same";
const RMDIR: &str = "as of mkdir: in place the paper's server takes half as long again as \
                     ours";
const SAME: &str = "a log write of one turn takes the place of two ordered ones with seeks";

const TESTS: [Test; 4] = [
    Test {
        name: "CD: make directories",
        op: Op::Mkdir,
        secs: (370.0, 123.0),
        server: ("mkdir", 106.4, 16.9),
        why: MKDIR,
        stands: (Verdict::Contradicted, Verdict::Contradicted),
    },
    Test {
        name: "RD: remove them",
        op: Op::Rmdir,
        secs: (151.0, 66.0),
        server: ("rmdir", 50.1, 17.3),
        why: RMDIR,
        stands: (Verdict::Contradicted, Verdict::Contradicted),
    },
    Test {
        name: "CF: copy files of 1 KB",
        op: Op::Create,
        secs: (339.0, 264.0),
        server: ("create", 30.4, 17.1),
        why: SAME,
        stands: (Verdict::Reproduced, Verdict::Reproduced),
    },
    Test {
        name: "RF: remove them",
        op: Op::Unlink,
        secs: (121.0, 89.0),
        server: ("remove", 36.5, 24.4),
        why: SAME,
        stands: (Verdict::Reproduced, Verdict::Reproduced),
    },
];

/// Operations of a test in the paper.
const PAPERS: f64 = 16_000.0;

impl Test {
    /// What of each operation is not the server's: eight went on at a time. A copy has a write too,
    /// which no table shows: a log write like the create's, and 16 ms for the data in place.
    fn clients_work(&self) -> Nanos {
        let each_ms = self.secs.1 * 1e3 * f64::from(VOLUMES) / PAPERS;
        let write_ms = if self.op == Op::Create { self.server.2 + 16.0 } else { 0.0 };
        Nanos(((each_ms - self.server.2 - write_ms) * 1e6) as u64)
    }

    async fn step(&self, c: &Caller, dir: u32, name: &str) -> Result<(), FsError> {
        match self.op {
            Op::Mkdir => c.mkdir(dir, name).await.map(|_| ()),
            Op::Rmdir => c.rmdir(dir, name).await,
            Op::Create => {
                let ino = c.create(dir, name).await?;
                c.write(ino, (0, 1024), true).await
            }
            _ => c.unlink(dir, name).await,
        }
    }
}

/// Seconds of each test, and what its operation took the server.
struct Did {
    tests: Vec<(f64, Latency)>,
    note: u64,
}

/// Runs the tests with so many subdirectories or files in each of a disk's 20 directories.
fn run(setting: Setting, each: u64) -> Result<Did, String> {
    let mut rig = Rig::new(&machine(), setting)?;
    rig.set_work(WORK);
    let dirs: Rc<RefCell<Vec<Vec<u32>>>> = Rc::new(RefCell::new(vec![Vec::new(); 8]));
    let prepare = |n: usize| {
        let into = dirs.clone();
        async move |c: Caller| -> Result<(), FsError> {
            for d in 0..20 {
                let dir = c.mkdir(ROOT, &format!("d{d}")).await?;
                into.borrow_mut()[n].push(dir);
            }
            Ok(())
        }
    };
    rig.callers(true, (0..usize::from(VOLUMES)).map(prepare))?;
    let mut tests = Vec::new();
    for test in &TESTS {
        rig.take_latencies();
        let worker = |n: usize| {
            let dirs = dirs.borrow()[n].clone();
            async move |c: Caller| -> Result<(), FsError> {
                for dir in dirs {
                    for n in 0..each {
                        c.env.sleep(test.clients_work()).await;
                        test.step(&c, dir, &format!("e{n}")).await?;
                    }
                }
                Ok(())
            }
        };
        let took = secs(rig.callers(true, (0..usize::from(VOLUMES)).map(worker))?);
        tests.push((took, rig.take_latencies().of(&[test.op])));
    }
    Ok(Did { tests, note: rig.now().0 })
}

/// Tables 1 and 2.
pub(super) fn small_files(scale: Scale) -> Result<Findings, String> {
    let each = scale.pick(100, 10);
    let mut f = Findings::default();
    let in_place = Setting { volumes: VOLUMES, ..Setting::plain(Mode::Sync) };
    let did = cores::each(&[in_place, logging(VOLUMES)], |s| run(*s, each));
    let did: Vec<Did> = did.into_iter().collect::<Result<_, _>>()?;
    did.iter().for_each(|d| f.note(d.note));
    let [in_place, log] = [&did[0].tests, &did[1].tests];
    let count = 160 * each;
    let title = format!("Seconds for {count} directories or files of 1 KB on eight disks");
    let mut t = Table::new(&title, &["", "in place", "log", "times", "paper"]);
    let title = "At the server, ms: mean / 99 of 100";
    let columns = ["", "in place", "log", "times", "paper", "paper's ms"];
    let mut server = Table::new(title, &columns);
    let cell = |n: f64| format!("{n:.2}");
    let mut sums = (0.0, 0.0);
    for (test, (a, b)) in TESTS.iter().zip(in_place.iter().zip(log)) {
        let paper = test.secs.0 / test.secs.1;
        let times = [cell(a.0), cell(b.0), cell(a.0 / b.0), cell(paper)];
        t.row([test.name.to_owned()].into_iter().chain(times).collect());
        let waited = a.1.mean_ms / b.1.mean_ms;
        let (what, x, y) = test.server;
        let [here, there] = [a, b].map(|did| did.1.to_string());
        let papers = format!("{x:.1} and {y:.1}");
        server.row(vec![what.into(), here, there, cell(waited), cell(x / y), papers]);
        let name = format!("{}: seconds in place beside the log", test.name);
        let stated = Stated::times(48, name, paper).stands(test.stands.0).because(test.why);
        f.claim(stated, a.0 / b.0);
        let name = format!("{what} at the server, ms in place beside the log");
        let stated = Stated::times(49, name, x / y).stands(test.stands.1).because(test.why);
        f.claim(stated, waited);
        sums = (sums.0 + a.0, sums.1 + b.0);
    }
    f.tables.extend([t, server]);
    let stated = Stated::times(48, "all four: seconds in place beside the log", 981.0 / 542.0);
    let stated = stated.stands(Verdict::Contradicted);
    f.claim(stated.because("directories weigh most; see mkdir and rmdir"), sums.0 / sums.1);
    Ok(f)
}

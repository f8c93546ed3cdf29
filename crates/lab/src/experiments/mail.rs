//! PostMark with synchronous writes: 500 files, 100 threads, 10,000 transactions
//! (hatzieleftheriou-2013, section 5.3). Threads share one pool and take their transactions from
//! it; a file is used by one of them at a time.

use super::report::{Findings, Table};
use super::rig::{Caller, Machine, ROOT, Rig, secs};
use super::{Scale, cheetah_15k};
use crate::postmark::{Parameters, PostMark, Step};
use crate::subject::Setting;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use vfs::FsError;
use volume::Mode;

/// The pool, and which files somebody is at.
pub(super) struct Pool {
    mail: PostMark,
    /// By name: the inode, once it is made.
    files: BTreeMap<u64, u32>,
    /// Steps that are not taken yet.
    left: Vec<Step>,
    pub(super) transactions: u64,
}

/// A pool that callers share.
pub(super) type Shared = Rc<RefCell<Pool>>;

/// How files are written.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// Bytes of a request.
    pub(super) request: u64,
    /// Is each durable when it returns?
    pub(super) sync: bool,
}

impl Pool {
    /// The files that are there at first are to be made; no transactions yet.
    pub(super) fn shared(told: Parameters) -> Shared {
        let mut mail = PostMark::new(told, 42);
        let mut left = mail.pool();
        left.reverse();
        Rc::new(RefCell::new(Pool { mail, files: BTreeMap::new(), left, transactions: 0 }))
    }

    /// The next steps, in the order in which they were drawn: what concerns one file stays in
    /// order as long as each is begun before the next is taken.
    fn next(&mut self) -> Option<Vec<Step>> {
        if let Some(step) = self.left.pop() {
            return Some(vec![step]);
        }
        self.transactions = self.transactions.checked_sub(1)?;
        Some(self.mail.transaction())
    }
}

fn name(f: u64) -> String {
    format!("{f}")
}

/// One step.
async fn take(c: &Caller, pool: &Shared, step: Step, way: Way) -> Result<(), FsError> {
    let write = async |ino: u32, from: u64, to: u64| -> Result<(), FsError> {
        let mut at = from;
        while at < to {
            let len = way.request.min(to - at);
            c.write(ino, (at, len), way.sync).await?;
            at += len;
        }
        Ok(())
    };
    let known = |f: u64| pool.borrow().files.get(&f).copied();
    match step {
        Step::Create(f, len) => {
            let ino = c.create(ROOT, &name(f)).await?;
            write(ino, 0, len).await?;
            pool.borrow_mut().files.insert(f, ino);
        }
        // Who finds a file that is still being made leaves it.
        Step::Read(f, len) => {
            if let Some(ino) = known(f) {
                c.read(ino, len).await?;
            }
        }
        Step::Append(f, at, len) => {
            if let Some(ino) = known(f) {
                write(ino, at, at + len).await?;
            }
        }
        Step::Delete(f) => {
            let there = pool.borrow_mut().files.remove(&f).is_some();
            if there {
                c.unlink(ROOT, &name(f)).await?;
            }
        }
    }
    Ok(())
}

/// Takes steps until none is left.
pub(super) async fn thread(c: Caller, pool: Shared, way: Way) -> Result<(), FsError> {
    loop {
        let steps = pool.borrow_mut().next();
        let Some(steps) = steps else { return Ok(()) };
        for step in steps {
            match take(&c, &pool, step, way).await {
                // Another thread has removed it meanwhile.
                Err(FsError::Stale | FsError::NotFound) => (),
                other => other?,
            }
        }
    }
}

/// Transactions a second.
fn rate(mode: Mode, request: u64, scale: Scale, f: &mut Findings) -> Result<f64, String> {
    let (files, transactions) = scale.pick((500, 10_000), (100, 400));
    let machine = Machine {
        disk: cheetah_15k,
        log: cheetah_15k,
        bytes: (8 << 30, 128 << 20),
        cache_bytes: 1 << 30,
        inodes: 65_536,
    };
    let setting = Setting { outside: true, ..Setting::plain(mode) };
    let mut rig = Rig::new(&machine, setting)?;
    let told = Parameters { files, bytes: (500, 100_000), reads: 5, creates: 9 };
    let pool = Pool::shared(told);
    let caller = |request: u64| {
        let pool = pool.clone();
        async move |c: Caller| thread(c, pool, Way { request, sync: true }).await
    };
    // The pool is made first, and is not counted.
    rig.callers(false, (0..100).map(|_| caller(1 << 20)))?;
    pool.borrow_mut().transactions = transactions;
    let took = rig.callers(false, (0..100).map(|_| caller(request)))?;
    f.note(rig.now().0);
    Ok(transactions as f64 / secs(took))
}

/// The experiment.
pub(super) fn postmark(scale: Scale) -> Result<Findings, String> {
    let modes = [Mode::Ordered, Mode::Data, Mode::Wasteless, Mode::Selective, Mode::Unified];
    let modes = scale.pick(&modes[..], &modes[..3]);
    let sizes: &[u64] = scale.pick(&[4096, 131_072], &[131_072]);
    let columns: Vec<String> = sizes.iter().map(|s| format!("{s} B")).collect();
    let columns: Vec<&str> = ["mode"].into_iter().chain(columns.iter().map(|c| &c[..])).collect();
    let title = "PostMark transactions a second, synchronous writes of so many bytes";
    let (mut f, mut t) = (Findings::default(), Table::new(title, &columns));
    let mut best = BTreeMap::new();
    for &mode in modes {
        let mut cells = vec![mode.to_string()];
        for &size in sizes {
            let r = rate(mode, size, scale, &mut f)?;
            cells.push(format!("{r:.0}"));
            let b = best.entry(mode.to_string()).or_insert(0.0);
            *b = r.max(*b);
        }
        t.row(cells);
    }
    f.tables.push(t);
    let times = best["wasteless"] / best["ordered"];
    let text = format!("{times:.2} times");
    f.claim(
        "the best of wasteless is at least 1.85 times the best of ordered",
        text,
        times >= 1.85,
    );
    let times = best["wasteless"] / best["data"];
    let text = format!("{times:.2} times");
    f.claim("wasteless is at least as fast as data", text, times >= 1.0);
    Ok(f)
}

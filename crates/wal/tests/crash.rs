//! Power cuts at every request of a log's life, recovery included: what was acknowledged is there,
//! what is there is a gap-free run of what was appended, and nothing that was trimmed or never
//! finished comes back. Each planted bug must be found by the same test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::world::{Medium, World, pattern};
use env::{Env, Rng};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wal::{Client, FormatOptions, Log, LogArea, LogError, Lsn, OpenOptions};

const BYTES: u64 = 8192 + 12 * 4096;
const CLIENTS: usize = 3;

/// What the log's user knows.
#[derive(Clone, Default)]
struct Model {
    /// What was appended and may be there: LSN, client, bytes, acknowledged?
    entries: BTreeMap<u64, (usize, Vec<u8>, bool)>,
    /// What each client has trimmed below.
    trimmed: [u64; CLIENTS],
}

type Shared = Rc<RefCell<Model>>;

fn client_id(i: usize) -> [u8; 16] {
    [i as u8 + 1; 16]
}

/// After recovery: checks what is there against the model, and makes that the model.
async fn check(log: &Log, clients: &[Client], model: &Shared) -> Result<(), String> {
    let mut found = BTreeMap::new();
    for (i, c) in clients.iter().enumerate() {
        for e in c.read_all().await.map_err(|e| format!("scan: {e}"))? {
            found.insert(e.lsn.0, (i, e.bytes));
        }
    }
    let m = model.borrow().clone();
    for (lsn, (client, bytes)) in &found {
        match m.entries.get(lsn) {
            Some((c, b, _)) if c == client && b == bytes => (),
            _ => return Err(format!("the entry at LSN {lsn} was never appended")),
        }
    }
    let last = found.keys().next_back().copied().unwrap_or(0);
    for (lsn, (client, bytes, acked)) in &m.entries {
        if *lsn < m.trimmed[*client] || found.contains_key(lsn) {
            continue;
        }
        if *acked {
            return Err(format!("the acknowledged entry at LSN {lsn} is gone"));
        }
        if *lsn < last {
            return Err(format!(
                "a gap: LSN {lsn} ({} bytes) is gone, {last} is there",
                bytes.len()
            ));
        }
    }
    let sample = found.iter().next().map(|(lsn, (i, bytes))| (*lsn, *i, bytes.clone()));
    if let Some((lsn, i, bytes)) = sample
        && clients[i].read(Lsn(lsn)).await != Ok(bytes)
    {
        return Err(format!("LSN {lsn} scans well and reads wrongly"));
    }
    let info = log.info();
    assert!(info.head <= info.durable || found.is_empty());
    let mut m = model.borrow_mut();
    m.entries.retain(|lsn, _| found.contains_key(lsn));
    m.entries.values_mut().for_each(|e| e.2 = true); // recovery has seen it, so it stays
    Ok(())
}

/// One client's life: appends of all sizes, flushes of some, trims of what is older than a few
/// entries.
async fn live(env: Env, c: Client, i: usize, model: Shared, mut rng: Rng, steps: u32) {
    let mut mine: Vec<u64> = Vec::new();
    for _ in 0..steps {
        let len = match rng.below(12) {
            0 => rng.below(5000),
            1 => 0,
            2..5 => rng.below(1500),
            _ => rng.below(200),
        } as usize;
        let bytes = pattern(&mut rng, len);
        let Ok(room) = c.reserve(len as u64).await else { return };
        let lsn = match c.append_reserved(room, &bytes) {
            Ok(l) => l,
            Err(_) => return,
        };
        let old = model.borrow_mut().entries.insert(lsn.0, (i, bytes, false));
        assert!(old.is_none(), "LSN {lsn} was given out twice");
        mine.push(lsn.0);
        let others = (model.clone(), c.clone());
        match rng.below(4) {
            0 => {
                let (m, c) = others;
                env.spawn("waiter", async move {
                    if c.flush(lsn).await.is_ok() {
                        acknowledge(&m, lsn);
                    }
                });
            }
            1 | 2 => {
                if c.flush(lsn).await.is_err() {
                    return;
                }
                acknowledge(&model, lsn);
            }
            _ => env.yield_now().await,
        }
        if mine.len() > 6 {
            mine.drain(..mine.len() - 3);
            let below = mine[0];
            if c.flush(Lsn(below)).await.is_err() {
                return;
            }
            model.borrow_mut().trimmed[i] = below;
            c.trim(Lsn(below));
        }
    }
    if rng.one_in(3) && c.flush(Lsn(mine[mine.len() - 1])).await.is_ok() {
        acknowledge(&model, Lsn(mine[mine.len() - 1]));
        let end = c.end();
        model.borrow_mut().trimmed[i] = end.0;
        c.trim(end);
        let _ = c.log().persist().await;
    }
}

fn acknowledge(model: &Shared, lsn: Lsn) {
    if let Some(e) = model.borrow_mut().entries.get_mut(&lsn.0) {
        e.2 = true;
    }
}

/// Opens, checks and lives on.
async fn session(
    env: Env,
    model: Shared,
    mut rng: Rng,
    steps: u32,
    plant: Option<&'static str>,
    wrong: Rc<RefCell<Option<String>>>,
) {
    let area = LogArea::whole(World::disk(&env, BYTES));
    let window = Some(1 + rng.below(6) as usize);
    let log = match Log::open(&env, area, OpenOptions { window, plant, alone: false }).await {
        Ok(l) => l,
        Err(e) => {
            *wrong.borrow_mut() = Some(format!("open: {e}"));
            return;
        }
    };
    let mut clients = vec![log.client(client_id(0), "test").unwrap()];
    // Others, that hold nothing, so that the table of clients lies in more than one sector.
    (0..12).for_each(|i| drop(log.client([100 + i; 16], "other").unwrap()));
    clients.extend((1..CLIENTS).map(|i| log.client(client_id(i), "test").unwrap()));
    if let Err(e) = check(&log, &clients, &model).await {
        *wrong.borrow_mut() = Some(e);
        return;
    }
    for (i, c) in clients.iter().enumerate() {
        // The next session's client may hold entries of this one: they are older than its own.
        // What it needs from beyond the tail on, it never had.
        let last = c.needs().map_or(0, |l| l.0.min(log.info().durable.0));
        let mut m = model.borrow_mut();
        m.trimmed[i] = m.trimmed[i].max(last);
        drop(m);
        env.spawn("client", live(env.clone(), c.clone(), i, model.clone(), rng.split(), steps));
    }
}

fn formatted() -> Medium {
    let mut w = World::new(1, BYTES, Medium::default());
    assert!(w.run(u64::MAX, |env| {
        let area = LogArea::whole(World::disk(env, BYTES));
        env.spawn("format", async move {
            let o = FormatOptions { uuid: [7; 16], segment_bytes: Some(4096), unit: None };
            Log::format(&area, &o).await.unwrap();
        });
    }));
    w.medium
}

/// Lives through `rounds` power cuts, each after some number of requests; the first after
/// `first_cut`.
fn history(
    seed: u64,
    first_cut: u64,
    rounds: u32,
    plant: Option<&'static str>,
) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut medium = formatted();
    let model: Shared = Rc::default();
    for round in 0..rounds {
        let wrong = Rc::new(RefCell::new(None));
        let mut w = World::new(rng.next_u64(), BYTES, medium);
        // Every third cut falls into the recovery or just behind it.
        let cut = match round {
            0 => first_cut,
            r if r % 3 == 1 => rng.below(12),
            _ => rng.below(150),
        };
        let before = model.borrow().clone();
        let opened = session_fits(&mut w, cut, &model, rng.split(), plant, &wrong);
        if let Some(e) = wrong.borrow_mut().take() {
            return Err(format!("seed {seed}, first cut {first_cut}, round {round}: {e}"));
        }
        if !opened {
            *model.borrow_mut() = before; // the check did not come to its end
        }
        medium = w.cut();
    }
    Ok(())
}

/// Runs a session up to the cut. False if it was cut before the check was done.
fn session_fits(
    w: &mut World,
    cut: u64,
    model: &Shared,
    rng: Rng,
    plant: Option<&'static str>,
    wrong: &Rc<RefCell<Option<String>>>,
) -> bool {
    let checked = Rc::new(RefCell::new(false));
    let (m, e, flag) = (model.clone(), wrong.clone(), checked.clone());
    w.run(cut, |env| {
        let env2 = env.clone();
        env.spawn("session", async move {
            session(env2, m, rng, 30, plant, e).await;
            *flag.borrow_mut() = true;
        });
    });
    *checked.borrow()
}

#[test]
fn power_cuts_at_every_request_then_at_many_more() {
    for seed in 0..3 {
        for cut in 0..220 {
            history(seed, cut, 2, None).unwrap();
        }
    }
    for seed in 100..400 {
        history(seed, 40 + seed % 90, 12, None).unwrap();
    }
}

#[test]
fn planted_bugs_are_found() {
    for plant in wal::PLANTS {
        let found = (0..4000).find_map(|seed| {
            let run = || history(seed, seed % 150, 10, Some(plant));
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
                Ok(Ok(())) => None,
                Ok(Err(e)) => Some(e),
                Err(_) => Some(format!("seed {seed}: an assertion")),
            }
        });
        assert!(found.is_some(), "{plant} is not found");
    }
}

#[test]
fn a_failed_write_is_for_ever() {
    let mut w = World::new(5, BYTES, formatted());
    w.fail_writes_from = Some(4);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let out = seen.clone();
    w.run(u64::MAX, |env| {
        let env2 = env.clone();
        env.spawn("client", async move {
            let area = LogArea::whole(World::disk(&env2, BYTES));
            let log = Log::open(&env2, area, OpenOptions::default()).await.unwrap();
            let c = log.client([1; 16], "x").unwrap();
            for i in 0..5u8 {
                let done = match c.append(&[i; 100]) {
                    Ok(lsn) => c.flush(lsn).await,
                    Err(e) => Err(e),
                };
                out.borrow_mut().push(done);
            }
        });
    });
    let seen = seen.borrow();
    assert_eq!(seen[0], Ok(()));
    assert!(seen[1..].iter().all(|r| matches!(r, Err(LogError::Disk(_)))), "{seen:?}");
}

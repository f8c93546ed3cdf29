//! Who waits: for room in a small log, for a commit, for a disk that has failed. Several callers at
//! once, and no clock that would help: whoever waits is woken by what he waits for, or not at all.

use crate::acts::Act;
use crate::perform::perform;
use crate::setting::{Setting, SimDevice, new_disks};
use crate::subject::{Subject, Task};
use env::{DiskId, Env, Nanos};
use format::mkfs::{MkfsOptions, Profile};
use sim::{Fault, Image};
use std::cell::Cell;
use std::rc::Rc;
use vfs::{AccessTimes, Call, FsError, Reply, Request, Volume};
use volume::{Commit, Mode, OpenOptions};

/// No clock of a volume ticks before this.
const NEVER: Nanos = Nanos::from_secs(7200);
/// Whoever has not ended by then waits for ever.
const LIMIT: Nanos = Nanos::from_secs(60);
const CALLERS: u64 = 6;
/// Bytes of the file that each caller finds.
const BIG: usize = 120_000;

fn opened(setting: Setting, disks: Vec<Image>, seed: u64) -> Subject {
    let options = OpenOptions { commit_interval: NEVER, ..setting.open_options(4 << 20) };
    Subject::open_with((disks, setting.volumes), options, seed).unwrap()
}

/// Disks with a file for each caller.
fn filled(setting: Setting, seed: u64) -> Vec<Image> {
    let mut v = opened(setting, new_disks(4 << 20, setting), seed);
    for of in 0..setting.volumes {
        v.turn_to(of);
        for p in (0..CALLERS).map(|n| format!("/big{n}")) {
            v.act(0, &Act::Create(p.clone())).unwrap();
            v.act(0, &Act::Write(p, 0, BIG, 3)).unwrap();
        }
    }
    v.close().unwrap()
}

async fn timed(
    env: &Env,
    volume: &Rc<dyn Volume>,
    act: Act,
    slowest: &Cell<Nanos>,
) -> Result<(), FsError> {
    let began = env.now();
    perform(volume, &act, false, &mut None).await?;
    slowest.set(slowest.get().max(env.now().since(began)));
    Ok(())
}

/// One caller: files made, written in pieces short and long, made durable and removed, until
/// something fails. `slowest` is the longest that one of his operations took.
fn caller(n: u64, rounds: u64, slowest: Rc<Cell<Nanos>>) -> Task {
    Box::new(move |env, volume| {
        Box::pin(async move {
            // The disk is read when the operation has begun and nothing is changed yet.
            timed(&env, &volume, Act::Write(format!("/big{n}"), 100, BIG - 200, 4), &slowest)
                .await?;
            for round in 0..rounds {
                let p = format!("/c{n}-{}", round % 5);
                let len = [700, 3000, 20_000, 60_000][((n + round) % 4) as usize];
                let acts = [
                    Act::Create(p.clone()),
                    Act::Write(p.clone(), 0, len, 1),
                    Act::Write(p.clone(), len as u64 / 2, 900, 2),
                    if (n + round).is_multiple_of(3) {
                        Act::Fsync(p.clone())
                    } else {
                        Act::Read(p.clone())
                    },
                    Act::Rename(p.clone(), format!("{p}r")),
                    Act::Unlink(format!("{p}r")),
                ];
                for act in acts {
                    timed(&env, &volume, act, &slowest).await?;
                }
            }
            Ok(())
        })
    })
}

fn callers(setting: Setting, rounds: u64, slowest: &Rc<Cell<Nanos>>) -> Vec<(u16, Task)> {
    let one = |n| ((n % u64::from(setting.volumes)) as u16, caller(n, rounds, slowest.clone()));
    (0..CALLERS).map(one).collect()
}

/// Every mode that has a log, with the log inside and outside, and soft updates.
fn settings() -> Vec<Setting> {
    let mut all = Vec::new();
    for mode in volume::MODES.iter().map(|m| m.mode) {
        for outside in [false, true] {
            let s = Setting { outside, ..Setting::plain(mode) };
            match mode {
                _ if mode.is_redo() => {
                    all.extend([Commit::Sync, Commit::Async].map(|commit| Setting { commit, ..s }));
                }
                _ if mode.is_journal() => all.push(s),
                _ => (),
            }
        }
    }
    let segments = Setting::plain(Mode::Lfs);
    all.extend([Commit::Sync, Commit::Async].map(|commit| Setting { commit, ..segments }));
    let soft = Setting::plain(Mode::SoftUpdates);
    all.extend([soft, Setting { intents: true, ..soft }]);
    let two = Setting { outside: true, volumes: 2, ..Setting::plain(Mode::Redo) };
    all.extend([Commit::Sync, Commit::Async].map(|commit| Setting { commit, ..two }));
    all
}

#[test]
fn no_operation_waits_for_a_clock() {
    for setting in settings() {
        for seed in 0..2 {
            let mut v = opened(setting, filled(setting, seed), seed);
            let slowest = Rc::new(Cell::new(Nanos(0)));
            let name = format!("{} {}, seed {seed}", setting.mode, setting.options());
            // Alone first: whoever comes later might wake those who wait.
            for rounds in [0, 30] {
                let all = v.together_within(callers(setting, rounds, &slowest), LIMIT);
                let all = all.unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(all.iter().all(Result::is_ok), "{name}: {all:?}");
            }
            let ms = slowest.get().0 / 1_000_000;
            assert!(ms < 1000, "{name}: an operation took {ms} ms");
        }
    }
}

/// A volume with blocks of 1 KiB and a journal of so many bytes.
fn with_journal(journal_bytes: u64, size_bytes: u64) -> Image {
    let mut device = SimDevice(Image::new(size_bytes));
    let options = MkfsOptions {
        block_bytes: 1024,
        journal_bytes: Some(journal_bytes),
        uuid: [7; 16],
        ..MkfsOptions::plain(size_bytes, Profile::Ext3)
    };
    volume::make(&mut device, &options, true).unwrap();
    device.0
}

/// A file made, written in pieces of 1 MiB and made durable.
fn writer(n: u64) -> Task {
    Box::new(move |_, volume| {
        Box::pin(async move {
            let p = format!("/w{n}");
            perform(&volume, &Act::Create(p.clone()), false, &mut None).await?;
            perform(&volume, &Act::Write(p.clone(), 0, 1 << 20, n as u8), false, &mut None).await?;
            perform(&volume, &Act::Fsync(p), false, &mut None).await.map(drop)
        })
    })
}

#[test]
fn large_writers_never_wait_for_each_others_room() {
    let few = sim::timing::MODELS.iter().map(|m| (*m, 8, 1 << 20));
    for (model, writers, journal_bytes) in few.chain([("nvme", 32, 4 << 20)]) {
        let size_bytes = (writers + 8) << 20;
        let disk = with_journal(journal_bytes, size_bytes);
        // One mode on each disk, and both on one: their room is the same.
        let both = [Mode::Unified, Mode::Redo];
        for mode in if model == "sata7200" { &both[..] } else { &both[..1] } {
            let mode = *mode;
            let setting = Setting { commit: Commit::Async, ..Setting::plain(mode) };
            let options = setting.open_options(16 << 20);
            let timing = sim::timing::by_name(model, size_bytes).unwrap();
            let mut v =
                Subject::open_several((vec![disk.clone()], 1), options, vec![timing], 1).unwrap();
            let all = v.together_within((0..writers).map(|n| (0, writer(n))).collect(), LIMIT);
            let all = all.unwrap_or_else(|e| panic!("{mode} on {model}: {e}"));
            assert!(all.iter().all(Result::is_ok), "{mode} on {model}: {all:?}");
        }
    }
}

/// Bytes of entries that have been appended and not been given to the log's disk.
async fn ahead(volume: &Rc<dyn Volume>) -> Result<u64, FsError> {
    let reply = volume.clone().call(Call::local(Request::Info)).await.result?;
    let Reply::Info(info) = reply else { return Err(FsError::Io) };
    let of = |name| info.counters.iter().find(|c| c.0 == name).map_or(0, |c| c.1);
    Ok(of("cairn_log_entry_bytes_total").saturating_sub(of("cairn_log_bytes_total")))
}

/// One block is changed again and again, by who waits for nothing: there is never much that is
/// dirty, and the log has room for all of it.
#[test]
fn who_waits_for_nothing_is_not_far_ahead_of_the_logs_disk() {
    const MOST: u64 = 4 << 20;
    let size_bytes = 128 << 20;
    let disk = with_journal(64 << 20, size_bytes);
    let setting = Setting { commit: Commit::Async, ..Setting::plain(Mode::Unified) };
    let options = setting.open_options(16 << 20);
    let timing = sim::timing::by_name("sata7200", size_bytes).unwrap();
    let mut v = Subject::open_several((vec![disk], 1), options, vec![timing], 1).unwrap();
    v.world.forget();
    let most = Rc::new(Cell::new(0));
    let seen = most.clone();
    let writer: Task = Box::new(move |_, volume| {
        Box::pin(async move {
            perform(&volume, &Act::Create("/a".into()), false, &mut None).await?;
            for n in 0..12_000 {
                let write = Act::Write("/a".into(), 0, 1000, n as u8);
                perform(&volume, &write, false, &mut None).await?;
                if n % 100 == 0 {
                    seen.set(ahead(&volume).await?.max(seen.get()));
                }
            }
            Ok(())
        })
    });
    let all = v.together_within(vec![(0, writer)], LIMIT).unwrap();
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let bytes = most.get();
    assert!(bytes < MOST + (1 << 20), "{bytes} bytes of entries are in memory");
}

/// Who writes more than the log has room for, all the time.
fn filler(n: u64) -> Task {
    Box::new(move |_, volume| {
        Box::pin(async move {
            let p = format!("/w{n}");
            perform(&volume, &Act::Create(p.clone()), false, &mut None).await?;
            for i in 0..120 {
                let other = format!("{p}-{i}");
                let acts = [
                    Act::Write(p.clone(), (i * 3000) % 90_000, 3000, i as u8),
                    Act::Create(other.clone()),
                    Act::Unlink(other),
                ];
                for act in acts {
                    perform(&volume, &act, false, &mut None).await?;
                }
            }
            Ok(())
        })
    })
}

/// Reads what is in memory again and again, and keeps the time of each: the longest that one took,
/// and how many times were kept.
fn reader(slowest: Rc<Cell<Nanos>>, kept: Rc<Cell<u32>>) -> Task {
    Box::new(move |env, volume| {
        Box::pin(async move {
            let always = Request::AccessTimes(AccessTimes::Always);
            volume.clone().call(Call::local(always)).await.result?;
            perform(&volume, &Act::Create("/read".into()), false, &mut None).await?;
            perform(&volume, &Act::Write("/read".into(), 0, 1000, 1), false, &mut None).await?;
            let mut last = None;
            for _ in 0..2000 {
                env.sleep(Nanos::from_millis(1)).await;
                timed(&env, &volume, Act::Read("/read".into()), &slowest).await?;
                let lookup = Request::Lookup { dir: 2, name: b"read".to_vec() };
                let Reply::Entry { attr, .. } =
                    volume.clone().call(Call::local(lookup)).await.result?
                else {
                    return Err(FsError::Io);
                };
                let changed = last.replace(attr.atime).is_some_and(|at| at != attr.atime);
                kept.set(kept.get() + u32::from(changed));
            }
            Ok(())
        })
    })
}

/// The log is small and its disk slow. A time of access is kept where that needs no waiting.
#[test]
fn a_reader_waits_for_no_room_in_the_log() {
    let size_bytes = 8 << 20;
    for mode in [Mode::Ordered, Mode::Unified, Mode::Lfs] {
        let setting = Setting { commit: Commit::Async, ..Setting::plain(mode) };
        let disk = match setting.in_segments() {
            true => new_disks(4 << 20, setting).remove(0),
            false => with_journal(1 << 20, size_bytes),
        };
        let timing = sim::timing::by_name("sata7200", disk.size()).unwrap();
        let options = setting.open_options(4 << 20);
        let mut v = Subject::open_several((vec![disk], 1), options, vec![timing], 1).unwrap();
        let (slowest, kept) = (Rc::new(Cell::new(Nanos(0))), Rc::new(Cell::new(0)));
        let mut all: Vec<(u16, Task)> = (0..CALLERS).map(|n| (0, filler(n))).collect();
        all.push((0, reader(slowest.clone(), kept.clone())));
        let all = v.together_within(all, LIMIT).unwrap_or_else(|e| panic!("{mode}: {e}"));
        assert!(all.iter().all(Result::is_ok), "{mode}: {all:?}");
        assert_eq!(slowest.get(), Nanos(0), "{mode}: a read of what is in memory waits");
        assert!(kept.get() > 10, "{mode}: {} times of access are kept", kept.get());
    }
}

#[test]
fn whoever_waits_when_a_disk_fails_hears_of_it() {
    for setting in settings() {
        let disks = filled(setting, 1);
        for disk in (0..disks.len() as u16).map(DiskId) {
            for n in [8, 31, 178] {
                let mut v = opened(setting, disks.clone(), n);
                let name = format!("{} {}, {disk:?}, {n}", setting.mode, setting.options());
                let asked = v.world.traffic().get(usize::from(disk.0)).copied().unwrap_or_default();
                v.world.set_fault(Fault::Gone(disk, asked.writes + asked.flushes + n));
                let slowest = Rc::new(Cell::new(Nanos(0)));
                let all = v.together_within(callers(setting, 60, &slowest), LIMIT);
                let all = all.unwrap_or_else(|e| panic!("{name}: {e}"));
                let wrong = |r: &&Result<(), FsError>| {
                    !matches!(r, Ok(()) | Err(FsError::Io | FsError::ReadOnly | FsError::NoSpace))
                };
                assert!(!all.iter().any(|r| wrong(&r)), "{name}: {all:?}");
                let close = |of| -> (u16, Task) {
                    (of, Box::new(|_, volume| Box::pin(async move { volume.close().await })))
                };
                let closed = v.together_within((0..setting.volumes).map(close).collect(), LIMIT);
                closed.unwrap_or_else(|e| panic!("{name}, closing: {e}"));
            }
        }
    }
}

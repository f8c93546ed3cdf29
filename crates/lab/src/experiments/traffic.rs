//! How much a journal is written: many writers with small synchronous writes, once a second each,
//! the journal on a disk of its own and counted there (hatzieleftheriou-2013, figures 1 and 7).

use super::report::{Findings, Table};
use super::rig::{Caller, Machine, ROOT, Rig};
use super::{Scale, cheetah_15k};
use crate::subject::Setting;
use env::Nanos;
use vfs::{FsError, Request};
use volume::Mode;

const MODES: [Mode; 5] =
    [Mode::Ordered, Mode::Writeback, Mode::Data, Mode::Wasteless, Mode::Selective];

/// Writers, what each writes, and how often.
#[derive(Clone, Copy)]
struct Streams {
    writers: u64,
    bytes: u64,
    writes: u64,
}

fn machine() -> Machine {
    Machine {
        disk: cheetah_15k,
        log: cheetah_15k,
        bytes: (2 << 30, 128 << 20),
        cache_bytes: 128 << 20,
        inodes: 16_384,
    }
}

/// One writer: a file of its own, a synchronous append each second. All begin each second together,
/// as threads do that one loop has started.
async fn stream(c: Caller, n: u64, s: Streams) -> Result<(), FsError> {
    let found = c.ask(Request::Lookup { dir: ROOT, name: name(n).into_bytes() }).await?;
    let ino = crate::acts::ino_of(&found).ok_or(FsError::Io)?;
    let begin = c.env.now();
    for i in 0..s.writes {
        let second = begin.plus(Nanos::from_secs(i + 1));
        c.env.sleep_until(second.plus(Nanos::from_micros(20 * n))).await;
        c.write(ino, (i * s.bytes, s.bytes), true).await?;
    }
    Ok(())
}

fn name(n: u64) -> String {
    format!("s{n}")
}

/// MiB written to the journal.
fn journal_mib(mode: Mode, s: Streams, f: &mut Findings) -> Result<f64, String> {
    let setting = Setting { outside: true, ..Setting::plain(mode) };
    let mut rig = Rig::new(&machine(), setting)?;
    let create = |n: u64| {
        async move |c: Caller| -> Result<(), FsError> {
            let ino = c.create(ROOT, &name(n)).await?;
            c.write(ino, (0, 1), true).await
        }
    };
    rig.callers(false, (0..s.writers).map(create))?;
    rig.take_traffic();
    rig.callers(false, (0..s.writers).map(|n| async move |c: Caller| stream(c, n, s).await))?;
    let [volume, log] = rig.take_traffic();
    f.note(rig.now().0 ^ volume.write_bytes ^ (log.write_bytes << 20));
    Ok(log.write_bytes as f64 / f64::from(1 << 20))
}

fn table(
    title: &str,
    sizes: &[(u64, u64)],
    (writers, f): (u64, &mut Findings),
) -> Result<Vec<Vec<f64>>, String> {
    let columns: Vec<String> = sizes.iter().map(|(bytes, _)| format!("{bytes} B")).collect();
    let columns: Vec<&str> = ["mode"].into_iter().chain(columns.iter().map(|c| &c[..])).collect();
    let mut t = Table::new(title, &columns);
    let mut all = Vec::new();
    for mode in MODES {
        let mut figures = Vec::new();
        for &(bytes, writes) in sizes {
            figures.push(journal_mib(mode, Streams { writers, bytes, writes }, f)?);
        }
        let cells = figures.iter().map(|m| format!("{m:.1}"));
        t.row([mode.to_string()].into_iter().chain(cells).collect());
        all.push(figures);
    }
    f.tables.push(t);
    Ok(all)
}

/// Figure 1: 100 writers, one synchronous write a second, by the size of the write.
pub(super) fn by_size(scale: Scale) -> Result<Findings, String> {
    let (writers, writes) = scale.pick((100, 300), (60, 12));
    let mut f = Findings::default();
    let sizes = [128, 256, 512, 1024, 2048, 4096].map(|b| (b, writes));
    let title =
        format!("MiB to the journal, {writers} writers, {writes} writes each, by their size");
    let all = table(&title, &sizes, (writers, &mut f))?;
    let falls = |i: usize| all[i][5] / all[i][0];
    let (data, wasteless) = (falls(2), falls(3));
    let text = format!("{data:.1} times");
    f.claim("data: falls only about 2 times from 4 KiB to 128 B", text, data < 3.0);
    // In proportion, but for what each commit and each inode costs.
    let text = format!("{wasteless:.1} times, data {data:.1} times");
    let met = wasteless > 4.0 * data;
    f.claim("wasteless: falls in proportion, at least 4 times as far as data", text, met);
    let middle = all[2][4] / all[3][4];
    let text = format!("{middle:.1} times less");
    f.claim("2 KiB: wasteless still writes less than data", text, middle > 1.2);
    Ok(f)
}

/// Figure 7: many streams of 1 kbit/s and of 1 Mbit/s.
pub(super) fn streams(scale: Scale) -> Result<Findings, String> {
    let (slow, fast, writes) = scale.pick((1000, 40, 30), (150, 24, 5));
    let mut f = Findings::default();
    let title = format!("MiB to the journal, {slow} streams of 125 B a second, {writes} s");
    let all = table(&title, &[(125, writes)], (slow, &mut f))?;
    let times = all[2][0] / all[3][0];
    let text = format!("{times:.1} times");
    f.claim("125 B: wasteless writes at least 6 times less than data", text, times >= 6.0);
    let title = format!("MiB to the journal, {fast} streams of 125,000 B a second, {writes} s");
    let all = table(&title, &[(125_000, writes)], (fast, &mut f))?;
    let share = all[3][0] / all[2][0];
    let text = format!("wasteless {:.1}, data {:.1} MiB", all[3][0], all[2][0]);
    f.claim("1 Mbit/s: wasteless as data, within 5 %", text, (0.95..1.05).contains(&share));
    let share = all[2][0] / all[4][0];
    let text = format!("{share:.0} times less than data");
    f.claim("1 Mbit/s: selective at least 10 times less than data", text, share >= 10.0);
    Ok(f)
}

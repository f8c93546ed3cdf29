//! How long the replay of a journal takes after a power cut: 100 threads with 100 synchronous
//! writes of 8 bytes each (hatzieleftheriou-2013, section 5.6). The replay is the one of
//! `cairn recover`; the disks under it are modelled, and nothing else takes time.

use super::report::{Findings, Table};
use super::rig::{Caller, Machine, Model, ROOT, Rig, secs};
use super::{Scale, cheetah_15k};
use crate::setting::recover_in_world;
use crate::subject::Setting;
use env::Nanos;
use sim::Image;
use sim::timing::{Access, Kind, Timing};
use std::cell::Cell;
use std::rc::Rc;
use vfs::FsError;
use volume::{Mode, Recovered};

/// A disk's model that notes when the first write began.
struct Noting {
    model: Box<dyn Timing>,
    wrote: Rc<Cell<Option<Nanos>>>,
}

impl Timing for Noting {
    fn ends_at(&mut self, now: Nanos, access: Access) -> Nanos {
        if matches!(access.kind, Kind::Write { .. }) && self.wrote.get().is_none() {
            self.wrote.set(Some(now));
        }
        self.model.ends_at(now, access)
    }
}

/// A recovery, and its time: until the first write, and in all.
struct Took {
    did: Recovered,
    scan: Nanos,
    all: Nanos,
}

fn recover(disks: &[Image], model: Model) -> Result<Took, String> {
    let wrote = Rc::new(Cell::new(None));
    let timing = |image: &Image| -> Box<dyn Timing> {
        Box::new(Noting { model: model(image.size()), wrote: wrote.clone() })
    };
    let timings = disks.iter().map(timing).collect();
    let (world, did) = recover_in_world(disks, 1_700_000_100, |world| {
        world.set_timings(timings);
        world.lent_reads_take_time();
    });
    let all = Nanos(world.now());
    Ok(Took { did: did?, scan: wrote.get().unwrap_or(all), all })
}

/// The experiment.
pub(super) fn small_writes(scale: Scale) -> Result<Findings, String> {
    let (threads, writes) = scale.pick((100, 100), (100, 12));
    let machine = Machine {
        disk: cheetah_15k,
        log: cheetah_15k,
        bytes: (8 << 30, 128 << 20),
        cache_bytes: 256 << 20,
        inodes: 16_384,
    };
    let mut f = Findings::default();
    let mut t = Table::new(
        &format!("Recovery after {threads} threads with {writes} synchronous writes of 8 B each"),
        &["mode", "journal blocks read", "blocks written back", "scan ms", "replay ms", "all ms"],
    );
    let mut figures = Vec::new();
    let modes = [Mode::Ordered, Mode::Writeback, Mode::Data, Mode::Wasteless, Mode::Selective];
    for mode in modes {
        let mut rig = Rig::new(&machine, Setting { outside: true, ..Setting::plain(mode) })?;
        let writer = |n: u64| {
            async move |c: Caller| -> Result<(), FsError> {
                let ino = c.create(ROOT, &format!("t{n}")).await?;
                for i in 0..writes {
                    c.write(ino, (8 * i, 8), true).await?;
                }
                Ok(())
            }
        };
        rig.callers(false, (0..threads).map(writer))?;
        f.note(rig.now().0);
        let took = recover(&rig.cut(), machine.disk)?;
        let ms = |t: Nanos| secs(t) * 1e3;
        t.row(vec![
            mode.to_string(),
            took.did.blocks_scanned.to_string(),
            took.did.blocks_written.to_string(),
            format!("{:.1}", ms(took.scan)),
            format!("{:.1}", ms(took.all.since(took.scan))),
            format!("{:.1}", ms(took.all)),
        ]);
        f.note(took.all.0);
        figures.push((took.did.blocks_scanned as f64, secs(took.all)));
    }
    f.tables.push(t);
    let data = figures[2];
    for (mode, i) in [(Mode::Wasteless, 3), (Mode::Selective, 4)] {
        let times = data.0 / figures[i].0;
        let text = format!("{times:.1} times less");
        f.claim(format!("{mode} reads 10 times less journal than data"), text, times >= 10.0);
        let share = figures[i].1 / data.1;
        let text = format!("{:.0} % less", 100.0 * (1.0 - share));
        f.claim(format!("{mode} recovers in 20 % less time than data"), text, share <= 0.8);
    }
    Ok(f)
}

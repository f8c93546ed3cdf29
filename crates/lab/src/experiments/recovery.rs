//! How long the replay of a journal takes after a power cut: 100 threads with 100 synchronous
//! writes of 8 bytes each (hatzieleftheriou-2013, section 5.6). The replay is the one of
//! `cairn recover`; the disks under it are modelled, and nothing else takes time.

use super::report::{Findings, Table};
use super::rig::{Caller, Machine, Model, ROOT, Rig, secs};
use super::{Scale, cheetah_15k};
use crate::subject::{Setting, SimDevice};
use check::{IoError, ReadBlocks, WriteBlocks};
use env::Nanos;
use sim::Image;
use sim::timing::{Access, Kind, Timing};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use vfs::FsError;
use volume::{Mode, Recovered};

/// A device whose requests take time, one after the other.
struct Timed {
    device: SimDevice,
    model: RefCell<Box<dyn Timing>>,
    /// Of all devices together.
    clock: Rc<Cell<Nanos>>,
    /// When the first write began.
    wrote: Rc<Cell<Option<Nanos>>>,
}

impl Timed {
    fn pass(&self, kind: Kind, at: u64, len: u64) {
        let now = self.clock.get();
        self.clock.set(self.model.borrow_mut().ends_at(now, Access { kind, at, len }));
    }
}

impl ReadBlocks for Timed {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.pass(Kind::Read, at, into.len() as u64);
        self.device.read_at(at, into)
    }
}

impl WriteBlocks for Timed {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
        if self.wrote.get().is_none() {
            self.wrote.set(Some(self.clock.get()));
        }
        self.pass(Kind::Write { fua: false }, at, bytes.len() as u64);
        self.device.write_at(at, bytes)
    }
    fn flush(&mut self) -> Result<(), IoError> {
        self.pass(Kind::Flush, 0, 0);
        self.device.flush()
    }
}

/// A recovery, and its time: until the first write, and in all.
struct Took {
    did: Recovered,
    scan: Nanos,
    all: Nanos,
}

fn recover(disks: Vec<Image>, model: Model) -> Result<Took, String> {
    let (clock, wrote) = (Rc::new(Cell::new(Nanos(0))), Rc::new(Cell::new(None)));
    let timed = |image: Image| {
        let model = RefCell::new(model(image.size()));
        Timed { device: SimDevice(image), model, clock: clock.clone(), wrote: wrote.clone() }
    };
    let mut devices: Vec<Timed> = disks.into_iter().map(timed).collect();
    let (first, others) = devices.split_first_mut().ok_or("no disk")?;
    let log = others.first_mut().map(|l| l as &mut dyn volume::Device);
    let did = volume::recover(first, log, 1_700_000_100, &mut ()).map_err(|e| e.to_string())?;
    let all = clock.get();
    Ok(Took { did, scan: wrote.get().unwrap_or(all), all })
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
        let took = recover(rig.cut(), machine.disk)?;
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

//! How long the replay of a journal takes after a power cut: 100 threads with 100 synchronous
//! writes of 8 bytes each (hatzieleftheriou-2013, section 5.6). The replay is the one of
//! `cairn recover`; the disks under it are modelled, and nothing else takes time.
//!
//! Invariants:
//! * V1. A scan ends before the replay does, and what is written in place was read.

use super::report::{Findings, Table};
use super::rig::{Caller, Machine, Model, ROOT, Rig, secs};
use super::verdict::{Stated, Verdict};
use super::{Scale, cheetah_15k, cores};
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

impl Took {
    fn replay(&self) -> Nanos {
        self.all.since(self.scan)
    }
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
    let (did, scan) = (did?, wrote.get().unwrap_or(all));
    assert!(scan <= all, "V1: the scan ends at {scan:?}, and all at {all:?}");
    let (read, written) = (did.blocks_scanned, did.blocks_written);
    assert!(read > 0 || written == 0, "V1: {written} blocks are written, and none was read");
    Ok(Took { did, scan, all })
}

const MODES: [Mode; 5] =
    [Mode::Ordered, Mode::Writeback, Mode::Data, Mode::Wasteless, Mode::Selective];

/// The writes in one mode, the power cut, and the recovery.
fn run(mode: Mode, (threads, writes): (u64, u64)) -> Result<(Took, u64), String> {
    let machine = Machine {
        disk: cheetah_15k,
        log: cheetah_15k,
        bytes: (8 << 30, 128 << 20),
        cache_bytes: 256 << 20,
        inodes: 16_384,
    };
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
    let note = rig.now().0;
    let took = recover(&rig.cut(), machine.disk)?;
    Ok((took, note))
}

/// The experiment.
pub(super) fn small_writes(scale: Scale) -> Result<Findings, String> {
    let (threads, writes) = scale.pick((100, 100), (100, 12));
    let did = cores::each(&MODES, |mode| run(*mode, (threads, writes)));
    let did: Vec<(Took, u64)> = did.into_iter().collect::<Result<_, _>>()?;
    let mut f = Findings::default();
    let mut t = Table::new(
        &format!("Recovery after {threads} threads with {writes} synchronous writes of 8 B each"),
        &["mode", "journal blocks read", "blocks in place", "scan ms", "replay ms", "all ms"],
    );
    let ms = |t: Nanos| secs(t) * 1e3;
    for (mode, (took, note)) in MODES.iter().zip(&did) {
        t.row(vec![
            mode.to_string(),
            took.did.blocks_scanned.to_string(),
            took.did.blocks_written.to_string(),
            format!("{:.1}", ms(took.scan)),
            format!("{:.1}", ms(took.replay())),
            format!("{:.1}", ms(took.all)),
        ]);
        f.note(*note);
        f.note(took.all.0);
    }
    f.tables.push(t);
    claims(&did, &mut f);
    Ok(f)
}

fn claims(did: &[(Took, u64)], f: &mut Findings) {
    let [ordered, _, data, wasteless, selective] = [0, 1, 2, 3, 4].map(|n: usize| &did[n].0);
    let times = |a: Nanos, b: Nanos| secs(a) / secs(b);
    for (mode, took) in [(Mode::Wasteless, wasteless), (Mode::Selective, selective)] {
        let blocks = |t: &Took| t.did.blocks_scanned as f64;
        let what = format!("journal read by data beside {mode}");
        let why = "eight bytes are logged instead of a block";
        let stated = Stated::times(41, what, 10.0).because(why);
        f.claim(stated, blocks(data) / blocks(took));
        let what = format!("scan of data beside {mode}, time");
        f.claim(Stated::times(41, what, 10.0).because(why), times(data.scan, took.scan));
        let what = format!("recovery of {mode} beside data, time");
        let why = "our replay reads the journal once and writes each block once; ext3's reads and \
                   writes a block for each time it was logged, so that its replay outweighs its \
                   scan, and the shorter scan saves a fifth there, nearly all here";
        f.claim(Stated::times(41, what, 0.79).because(why), times(took.all, data.all));
    }
    let why = "wasteless must read the blocks that it changes in part";
    let stated = Stated::times(41, "replay of wasteless beside ordered, time", 1.4);
    f.claim(stated.because(why), times(wasteless.replay(), ordered.replay()));
    let why = "both read a journal of the same length, and wasteless writes a hundred blocks more, \
               each once: nothing of ten times is left where replay is not repeated";
    let stated = Stated::times(41, "recovery of wasteless beside ordered, time", 10.0);
    let stated = stated.stands(Verdict::Contradicted).because(why);
    f.claim(stated, times(wasteless.all, ordered.all));
}

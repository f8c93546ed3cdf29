//! Running a scenario once, with everything the disk was asked written down: what the crash states
//! are made from. It sets up a volume, makes that durable, and does the rest with one caller or
//! several at a time; it judges nothing.

use crate::acts::Act;
use crate::kernel::make_kernel_like;
use crate::scenario::script;
use crate::subject::{Setting, SimDevice, Subject, new_disks};
use integrity::Plant;
use sim::{Event, Image, Trace};

/// A scenario's run, from the moment it was set up.
pub(crate) struct Recorded {
    /// The disks before the first event.
    pub(crate) base: Vec<Image>,
    pub(crate) trace: Trace,
    /// What was done before.
    pub(crate) setup: Vec<Act>,
    /// Acts by their number in the marks; those that were refused do nothing.
    pub(crate) acts: Vec<Act>,
    /// How many of them are done at a time.
    pub(crate) callers: u64,
    /// States before this act begins are those of another seed.
    pub(crate) from: usize,
}

/// Bytes of the volume that scenarios run on.
const VOLUME_BYTES: u64 = 2 << 20;
/// The mark of requests that are no act.
const NO_ACT: u64 = u64::MAX / 4;

/// Runs a scenario with a bug planted (not while it is set up). Errors: there is no such scenario,
/// or the volume cannot be opened.
pub(crate) fn record(
    setting: Setting,
    plant: Plant,
    name: &str,
    seed: u64,
) -> Result<Recorded, String> {
    let script = script(name, seed).ok_or_else(|| format!("no scenario {name}"))?;
    let journal = setting.has_journal();
    let bytes = if journal { VOLUME_BYTES + (1 << 20) } else { VOLUME_BYTES };
    let mut first = Subject::open(new_disks(bytes, setting), setting, false, (Plant::NONE, seed))?;
    let mut setup = Vec::new();
    for act in script.setup {
        if first.act(NO_ACT, &act).is_ok() {
            setup.push(act);
        }
    }
    let mut kernel = Vec::new();
    for (path, indexed) in &script.kernel {
        let ino = first.walk(path).map_err(|e| format!("{path}: {e:?}"))?;
        kernel.push((ino, *indexed));
    }
    let mut base = if journal {
        first.close().map_err(|e| format!("closing after the setup: {e:?}"))?
    } else {
        let mut device = SimDevice(first.world.disk.clone());
        drop(first);
        volume::recover(&mut device, None, 1_700_000_050, &mut ()).map_err(|e| e.to_string())?;
        vec![device.0]
    };
    for (ino, indexed) in kernel {
        make_kernel_like(&mut base[0], ino, indexed)?;
    }
    let mut v = Subject::open(base.clone(), setting, false, (plant, seed))?;
    let results = v.act_in_lanes(&script.acts, script.callers);
    let refused = || Act::Fsync("/".into()); // nothing is promised of it
    let acts = script.acts.into_iter().zip(&results);
    let acts = acts.map(|(a, r)| if r.is_ok() { a } else { refused() }).collect();
    v.pass(6_000_000_000);
    let (trace, callers) = (v.world.trace.clone(), script.callers as u64);
    Ok(Recorded { base, trace, setup, acts, callers, from: script.from })
}

/// What is known at a cut: the acts answered, in the order of their answers, and those under way.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    pub(crate) answered: Vec<usize>,
    pub(crate) in_flight: Vec<usize>,
    /// The highest act that has begun, and one.
    pub(crate) begun: usize,
}

impl Progress {
    /// Takes in an event.
    pub(crate) fn note(&mut self, event: &Event, acts: usize) {
        let Event::Mark(m) = event else { return };
        let n = (*m / 2) as usize;
        if n >= acts {
            return;
        }
        if m % 2 == 0 {
            self.in_flight.push(n);
            self.begun = self.begun.max(n + 1);
        } else {
            self.in_flight.retain(|i| *i != n);
            self.answered.push(n);
        }
    }
}

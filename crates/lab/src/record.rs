//! Running a scenario once, with everything the disk was asked written down: what the crash states
//! are made from. It sets up a volume, makes that durable, and does the rest with one caller or
//! several at a time; it judges nothing.

use crate::acts::Act;
use crate::kernel::make_kernel_like;
use crate::scenario::{Script, script};
use crate::subject::{Setting, SimDevice, Subject, new_disks};
use integrity::Plant;
use sim::{Event, Image, Trace};

/// A scenario's run, from the moment it was set up.
pub(crate) struct Recorded {
    /// The disks before the first event.
    pub(crate) base: Vec<Image>,
    pub(crate) trace: Trace,
    /// What was done before, by volume.
    pub(crate) setups: Vec<Vec<Act>>,
    /// Acts by their number in the marks; those that were refused do nothing. Of several volumes
    /// each act is for the next one.
    pub(crate) acts: Vec<Act>,
    /// How many are done at a time in each volume.
    pub(crate) callers: u64,
    /// States before this act begins are those of another seed.
    pub(crate) from: usize,
    /// The callers from this one on are NFS clients.
    pub(crate) remote: usize,
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
    let scripts = (0..u64::from(setting.volumes))
        .map(|v| script(name, seed.wrapping_add(v)).ok_or_else(|| format!("no scenario {name}")))
        .collect::<Result<Vec<Script>, String>>()?;
    let (callers, from) = (scripts[0].callers, scripts[0].from * scripts.len());
    let remote = scripts[0].remote;
    let (base, setups) = set_up(setting, &scripts, seed)?;
    let acts = interleaved(scripts.into_iter().map(|s| s.acts).collect());
    let mut v = Subject::open(base.clone(), setting, false, (plant, seed))?;
    let results = v.act_in_lanes(&acts, callers * setups.len(), remote);
    let acts = acts.into_iter().zip(&results);
    let acts = acts.map(|(a, r)| if r.is_ok() { a } else { nothing() }).collect();
    v.pass(6_000_000_000);
    let trace = std::mem::take(&mut v.world.trace);
    Ok(Recorded { base, trace, setups, acts, callers: callers as u64, from, remote })
}

/// An act of which nothing is promised.
pub(crate) fn nothing() -> Act {
    Act::Fsync("/".into())
}

/// The volumes' acts in turn; those with fewer do nothing at the end.
pub(crate) fn interleaved(mut of: Vec<Vec<Act>>) -> Vec<Act> {
    let longest = of.iter().map(Vec::len).max().unwrap_or(0);
    of.iter_mut().for_each(|acts| acts.resize_with(longest, nothing));
    (0..longest).flat_map(|n| of.iter().map(move |acts| acts[n].clone())).collect()
}

/// The disks after each volume was set up and all are durable, and what was done by volume.
pub(crate) fn set_up(
    setting: Setting,
    scripts: &[Script],
    seed: u64,
) -> Result<(Vec<Image>, Vec<Vec<Act>>), String> {
    let journal = setting.has_journal();
    let bytes = if journal { VOLUME_BYTES + (1 << 20) } else { VOLUME_BYTES };
    let mut first = Subject::open(new_disks(bytes, setting), setting, false, (Plant::NONE, seed))?;
    let (mut setups, mut kernel) = (Vec::new(), Vec::new());
    for (v, script) in (0..).zip(scripts) {
        first.turn_to(v);
        let mut done = Vec::new();
        for act in &script.setup {
            if first.act(NO_ACT, act).is_ok() {
                done.push(act.clone());
            }
        }
        setups.push(done);
        for (path, indexed) in &script.kernel {
            let ino = first.walk(path).map_err(|e| format!("{path}: {e:?}"))?;
            kernel.push((usize::from(v), ino, *indexed));
        }
    }
    let mut base = if journal {
        first.close().map_err(|e| format!("closing after the setup: {e:?}"))?
    } else {
        let mut device = SimDevice(first.world.disk.clone());
        drop(first);
        volume::recover(&mut device, None, 1_700_000_050, &mut ()).map_err(|e| e.to_string())?;
        vec![device.0]
    };
    for (v, ino, indexed) in kernel {
        make_kernel_like(&mut base[v], ino, indexed)?;
    }
    Ok((base, setups))
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

//! Scenarios that run somewhere else: in the real program, on a disk that notes what it is asked.
//! The volume is set up here and the states are judged here, as those of the simulator are; what
//! lies between is the caller's. The clocks differ: a real run's times lie years after the virtual
//! ones, so all judging happens later than both (setting.rs, `JUDGED_SECS`).

use crate::acts::Act;
use crate::crash::Known;
use crate::judge::{Expected, Verdict, judge};
use crate::record::{Progress, Recorded, did_nothing, interleaved, set_up};
use crate::scenario::{Script, script_on};
use crate::subject::Setting;
use env::Rng;
use integrity::Plant;
use sim::{CrashImages, Image, Trace};

/// A volume that is ready for a scenario, and what the scenario does.
pub struct Prepared {
    setting: Setting,
    base: Vec<Image>,
    setups: Vec<Vec<Act>>,
    acts: Vec<Act>,
    callers: usize,
}

/// What judging some states of a run has shown.
#[derive(Default, Debug)]
pub struct Judgement {
    /// States judged.
    pub states: u64,
    /// Broken promises, each with the event and the variant of its state.
    pub broken: Vec<String>,
}

/// Sets up the volume of a scenario (see [`crate::scenarios`]). Errors: there is no such scenario,
/// or it cannot be set up.
pub fn prepare(setting: Setting, name: &str, seed: u64) -> Result<Prepared, String> {
    let script: Script = script_on(name, seed, 1).ok_or_else(|| format!("no scenario {name}"))?;
    let scripts = [script];
    let (base, setups) = set_up(setting, &scripts, seed)?;
    let [script] = scripts;
    let callers = script.callers;
    let acts = interleaved(vec![script.acts]);
    Ok(Prepared { setting, base, setups, acts, callers })
}

impl Prepared {
    /// The volume's disk before the run.
    pub fn disk(&self) -> &Image {
        &self.base[0]
    }

    /// What is to be done, in order. The run's marks name the acts by their places here.
    pub fn acts(&self) -> &[Act] {
        &self.acts
    }

    /// Puts other acts in the place of those that cannot be asked for where the run happens.
    pub fn replace(&mut self, by: impl FnOnce(&[Act]) -> Vec<Act>) {
        let count = self.acts.len();
        self.acts = by(&self.acts);
        assert_eq!(self.acts.len(), count, "the marks name acts by their places");
    }

    /// How many callers share the acts; each takes every so many of them.
    pub fn callers(&self) -> usize {
        self.callers
    }

    /// Judges states of the run that this trace is of, for as long as `goes_on` says so, each cut
    /// at an event and in a way chosen by `rng`. `refused`: which acts failed, and so have done
    /// nothing.
    pub fn judge(
        self,
        trace: Trace,
        refused: &[bool],
        rng: &mut Rng,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Judgement {
        assert_eq!(self.acts.len(), refused.len(), "each act was refused or not");
        let in_flight = trace.two_in_one_place();
        let acts = self.acts.into_iter().zip(refused);
        let acts =
            acts.map(|(act, is_refused)| if *is_refused { did_nothing() } else { act }).collect();
        let (base, setups) = (self.base, self.setups);
        // All callers come by the mount there, and how soon a log goes out by itself is up to the
        // machine: no pause promises anything.
        let awake = |a| if matches!(a, Act::Pause(_)) { Act::Pause(0) } else { a };
        let acts: Vec<Act> = Vec::into_iter(acts).map(awake).collect();
        let (callers, remote) = (self.callers as u64, usize::MAX);
        let failed = std::collections::BTreeSet::new();
        let (set_up, from) = (None, 0);
        let run = Recorded { base, trace, setups, acts, failed, callers, set_up, from, remote };
        run.check();
        let mut judgement = Judgement::default();
        // The simulator's disk refuses that at once, and no image that is built here would show it.
        judgement.broken.extend(in_flight.map(|(a, b)| {
            let at = run.trace.writes[b].at;
            format!("event of write {b}: it is in flight beside write {a} of the same place, {at}")
        }));
        // A few states all along the run, again and again at other places.
        while goes_on() && judgement.broken.is_empty() {
            pass(&run, self.setting, rng, goes_on, &mut judgement);
        }
        judgement
    }
}

/// Of so many events one is a cut, in one pass over a run.
const CUT_OF: u64 = 24;
/// Seeded variants of each cut.
const RANDOM_VARIANTS: u64 = 12;

fn pass(
    run: &Recorded,
    setting: Setting,
    rng: &mut Rng,
    goes_on: &mut dyn FnMut() -> bool,
    into: &mut Judgement,
) {
    let mut images = CrashImages::of_disks(&run.trace, run.base.clone());
    let mut progress = Progress::default();
    let mut cut = 0u64;
    while let Some(event) = images.step() {
        progress.note(event, run.acts.len());
        cut += 1;
        if !rng.one_in(CUT_OF) {
            continue;
        }
        if !goes_on() {
            return;
        }
        let variant = rng.below(images.variants(RANDOM_VARIANTS));
        let verdict = judge_one(run, setting, &progress, &images.images(variant));
        into.states += 1 + verdict.again;
        let acts = around(run, &progress);
        let at = |what: String| format!("event {cut}, variant {variant}: {what}; {acts}");
        into.broken.extend(verdict.wrong.into_iter().map(at));
        if !into.broken.is_empty() {
            return;
        }
    }
}

/// The acts around a cut, for whoever reads of a broken promise.
fn around(run: &Recorded, progress: &Progress) -> String {
    let named =
        |numbers: &[usize]| -> Vec<&Act> { numbers.iter().map(|n| &run.acts[*n]).collect() };
    let last = progress.answered.len().saturating_sub(4);
    let (answered, in_flight) = (named(&progress.answered[last..]), named(&progress.in_flight));
    format!("answered last {answered:?}, under way {in_flight:?}")
}

fn judge_one(run: &Recorded, setting: Setting, progress: &Progress, disks: &[Image]) -> Verdict {
    // A real server's clock is its own.
    let known = Known::at((run, &vec![None; run.acts.len()]), progress, 0);
    let expected = Expected {
        done: &known.done,
        in_flight: &known.in_flight,
        began: &known.began,
        lasted: &known.lasted,
        setup: run.setups[0].len(),
        callers: run.callers,
        remote: run.remote as u64,
        plant: Plant::NONE,
    };
    let digests = disks.iter().map(Image::digest);
    let digest = digests.reduce(|all, d| all.rotate_left(9) ^ d).unwrap_or(0);
    judge(disks, setting, &[expected], digest)
}

//! What a second power cut leaves, in the middle of the replay of a journal: the replay's
//! writes and flushes are recorded, cut off at each write, and every image that can be left there
//! must recover as the first one did. It does not know what a journal holds.

use crate::judge::{Expected, Verdict};
use crate::prefix::How;
use crate::setting::JUDGED_SECS;
use crate::setting::recover_in_world;
use crate::subject::Setting;
use sim::{CrashImages, Event, Image, Trace};

/// Judges the states of a replay that is cut off. One whose only write is the last has none: what
/// is left then is judged anyway.
pub(crate) fn judge_again(images: &[Image], setting: Setting, e: &Expected<'_>, v: &mut Verdict) {
    cut_replay(images, setting, e, (true, v));
}

/// What a recovery asks of the disks, and the disks after it. Errors: it failed. `flushes`: they
/// are not forgotten.
pub(crate) fn recorded_recovery(
    images: &[Image],
    flushes: bool,
) -> Result<(Trace, Vec<Image>), String> {
    let (world, did) = recover_in_world(images, JUDGED_SECS, |_| ());
    did?;
    let mut trace = world.trace;
    if !flushes {
        let of_flush = |e: &Event| matches!(e, Event::FlushIssued(_) | Event::FlushEnded(_));
        trace.events.retain(|e| !of_flush(e));
        trace.writes.iter_mut().for_each(|w| w.fua = false);
    }
    let after = std::iter::once(world.disk).chain(world.logs).collect();
    Ok((trace, after))
}

fn cut_replay(
    images: &[Image],
    setting: Setting,
    e: &Expected<'_>,
    (flushes, v): (bool, &mut Verdict),
) {
    let Ok((trace, _)) = recorded_recovery(images, flushes) else {
        return; // it has been judged
    };
    let mut states = CrashImages::of_disks(&trace, images.to_vec());
    let mut writes = 0;
    while let Some(event) = states.step() {
        if !matches!(event, Event::WriteIssued(_)) {
            continue;
        }
        writes += 1;
        // All of it, and a mixture with torn sectors. Nothing of it is what the last flush left.
        for variant in [2, 3 + 2 * states.volatile.len() as u64] {
            let after = crate::prefix::judge(
                &states.images(variant),
                setting,
                std::slice::from_ref(e),
                How::default(),
            );
            v.again += 1;
            let told = |w: String| format!("cut again at write {writes} of the replay: {w}");
            v.wrong.extend(after.wrong.into_iter().map(told));
        }
        if !v.wrong.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Progress, record};
    use integrity::Plant;
    use volume::Mode;

    /// What is found in the replays of the scripted mix, cut off here and there.
    fn found(mode: Mode, flushes: bool) -> Vec<String> {
        let setting = Setting::plain(mode);
        let r = record(setting, Plant::NONE, "mix", 0).unwrap();
        let mut states = CrashImages::of_disks(&r.trace, r.base.clone());
        let (mut progress, mut v) = (Progress::default(), Verdict::default());
        let mut cut = 0;
        while let Some(event) = states.step() {
            progress.note(event, r.acts.len());
            cut += 1;
            if cut % 40 != 0 {
                continue;
            }
            let answered = progress.answered.iter().map(|i| r.acts[*i].clone());
            let done: Vec<_> = r.setups[0].iter().cloned().chain(answered).collect();
            let in_flight: Vec<_> = progress.in_flight.iter().map(|i| &r.acts[*i]).collect();
            let (setup, plant) = (r.setups[0].len(), Plant::NONE);
            let (callers, remote) = (r.callers, r.remote as u64);
            let (done, in_flight) = (&done[..], &in_flight[..]);
            let e = Expected {
                done,
                in_flight,
                began: &[],
                lasted: &[],
                setup,
                callers,
                remote,
                plant,
            };
            cut_replay(&states.images(0), setting, &e, (flushes, &mut v));
            if !v.wrong.is_empty() {
                break;
            }
        }
        v.wrong
    }

    #[test]
    fn a_replay_that_is_cut_off_can_be_done_again() {
        for mode in [Mode::Ordered, Mode::Data, Mode::Wasteless, Mode::Selective] {
            assert_eq!(found(mode, true), Vec::<String>::new(), "{mode}");
        }
    }

    #[test]
    fn a_replay_that_forgets_its_flushes_is_found() {
        for mode in [Mode::Data, Mode::Wasteless] {
            assert!(!found(mode, false).is_empty(), "{mode}");
        }
    }

    /// What opening the volume would do first, and whether anything was written.
    fn decided(disk: &Image) -> (volume::Decision, bool) {
        let (size, mut world) = (disk.size(), sim::World::new(disk.clone()));
        let decision = sim::block_on(&mut world, move |env, _| async move {
            let ground = volume::Ground::alone(env, size, None);
            let mut found = volume::look(&ground).await.unwrap();
            let options = volume::OpenOptions::plain(Mode::Sync, 1 << 20, [9; 16]);
            volume::decide(&mut found, &ground, &options).await.unwrap()
        });
        (decision, world.trace.writes.is_empty())
    }

    #[test]
    fn what_will_be_done_is_decided_before_anything_is_written() {
        for mode in volume::MODES.iter().map(|m| m.mode) {
            let r = record(Setting::plain(mode), Plant::NONE, "append", 1).unwrap();
            let (clean, kept) = decided(&r.base[0]);
            assert!(clean.is_nothing() && kept, "{mode}: {clean}");
            let mut states = CrashImages::of_disks(&r.trace, r.base.clone());
            while states.step().is_some() {}
            let cut = states.images(2);
            let (decision, kept) = decided(&cut[0]);
            let text = decision.to_string();
            assert!(!decision.is_nothing() && kept, "{mode}: {text}");
            if decision.refused.is_some() {
                assert!(recover_in_world(&cut, JUDGED_SECS, |_| ()).1.is_err(), "{mode}: {text}");
                continue;
            }
            assert!(text.contains("replayed") || text.contains("repaired"), "{mode}: {text}");
            let (world, did) = recover_in_world(&cut, JUDGED_SECS, |_| ());
            assert!(did.unwrap().mode.is_some(), "{mode}: {text}");
            assert!(decided(&world.disk).0.is_nothing(), "{mode}: done, and not done");
        }
    }
}

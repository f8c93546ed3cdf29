//! The judgement of a journal of intents: a state that a power cut has left is opened, and what the
//! intents name is mended before anybody uses it. Then nothing may be left to find, though nobody
//! has looked at the rest; a second cut in the middle of that leaves no more than the first; where
//! another system has written in between, the intents are not believed, and all is repaired; and
//! where the journal's blocks fail in the middle of it, nobody is told that all is well, and a
//! sound disk mends it.

use crate::acts::Act;
use crate::beside::whole;
use crate::judge::{Expected, Verdict};
use crate::record::of_journal;
use crate::scenario::JournalFault;
use crate::subject::{Setting, Subject};
use check::ReadBlocks;
use format::GroupNo;
use format::bytes::{le16, set16};
use format::ext::bitmap;
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use format::ext::{Geometry, GroupDesc, Superblock};
use integrity::Plant;
use sim::{CrashImages, Image, Trace};
use vfs::{FsError, Reply, Request};

/// The bugs that are in recovery.
pub(crate) const IN_RECOVERY: &[&str] = &["stale-intents-believed", "intents-expire-in-recovery"];
/// Of so many distinct states one is mended by its intents; all, where a bug is planted in them.
const MENDED_OF: u64 = 3;
/// Of so many that are, one was written to by another system before.
const FOREIGN_OF: u64 = 8;
/// Of so many, the journal fails while one is mended.
const FAILING_OF: u64 = 4;
/// Up to so many writes to the journal come before the one that fails.
const SOUND: u64 = 8;
/// Images judged of each second cut.
const CUTS: u64 = 3;
/// Virtual seconds in which a whole pass over a small volume has ended.
const SECS_MAX: u64 = 120;
/// `s_mnt_count` in the superblock.
const MOUNTS_AT: usize = 0x34;

/// Judges a state.
pub(crate) fn judge(
    images: &[Image],
    setting: Setting,
    e: &Expected<'_>,
    (digest, v): (u64, &mut Verdict),
) {
    let of = if e.plant.is_any() { 1 } else { MENDED_OF };
    if !setting.intents || !(digest >> 5).is_multiple_of(of) || !v.wrong.is_empty() {
        return;
    }
    let plant = Plant(e.plant.0.filter(|p| IN_RECOVERY.contains(p)));
    if (digest >> 29).is_multiple_of(FOREIGN_OF) && !is_clean(&images[0]) {
        return foreign(&images[0], setting, (plant, digest), v);
    }
    if (digest >> 37).is_multiple_of(FAILING_OF) && plant == Plant::NONE {
        failing(images, setting, digest, v);
    }
    let trace = match mend(images, setting, (plant, digest), true) {
        Ok((trace, end)) => {
            whole("by its intents", &end, digest, v);
            trace
        }
        Err(why) => return v.wrong.push(format!("by its intents: {why}")),
    };
    let cut_at = (digest >> 24) as usize % (trace.events.len() + 1);
    let mut states = CrashImages::of_disks(&trace, images.to_vec());
    for _ in 0..cut_at {
        states.step();
    }
    for n in 0..CUTS {
        if !v.wrong.is_empty() {
            return;
        }
        let variant = (digest >> 12).wrapping_add(n * 5) % states.variants(6);
        v.again += 1;
        let told = |w: String| format!("cut again at event {cut_at} of its mending: {w}");
        match mend(&states.images(variant), setting, (Plant::NONE, digest), true) {
            Ok((_, end)) => whole("by its intents after a second cut", &end, digest, v),
            Err(why) => v.wrong.push(told(why)),
        }
    }
}

fn superblock(disk: &Image) -> Option<Superblock> {
    let mut raw = [0; SUPERBLOCK_BYTES];
    crate::subject::SimDevice(disk.clone()).read_at(SUPERBLOCK_AT, &mut raw).ok()?;
    Superblock::decode(&raw).ok()
}

fn is_clean(disk: &Image) -> bool {
    superblock(disk).is_none_or(|sb| sb.is_clean())
}

/// Another system has mounted the volume as it was, and left a block marked that nothing uses.
fn foreign(disk: &Image, setting: Setting, (plant, seed): (Plant, u64), v: &mut Verdict) {
    let Some(changed) = written_elsewhere(disk) else { return };
    match mend(&[changed], setting, (plant, seed), false) {
        Ok((_, end)) => whole("after another system", &end, seed, v),
        Err(why) => v.wrong.push(format!("after another system: {why}")),
    }
}

fn written_elsewhere(disk: &Image) -> Option<Image> {
    let sb = superblock(disk)?;
    let geo = Geometry::of(&sb);
    let device = crate::subject::SimDevice(disk.clone());
    let read = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        device.read_at(at, &mut bytes).ok().map(|()| bytes)
    };
    let g = GroupNo(geo.groups - 1);
    let raw = read(geo.desc_at(g), geo.desc_bytes)?;
    let map_at = GroupDesc::decode(&raw).block_bitmap * geo.block_bytes as u64;
    let mut map = read(map_at, geo.block_bytes)?;
    let free = bitmap::next_zero(&map, 0, geo.group_blocks(g) as usize)?;
    bitmap::set(&mut map, free);
    let mut super_bytes = read(SUPERBLOCK_AT, SUPERBLOCK_BYTES)?;
    let mounts = le16(&super_bytes, MOUNTS_AT).wrapping_add(1);
    set16(&mut super_bytes, MOUNTS_AT, mounts);
    let mut new = disk.clone();
    new.write(map_at, &map);
    new.write(SUPERBLOCK_AT, &super_bytes);
    Some(new)
}

/// The journal's blocks fail while the volume is mended. What that leaves, then and after a cut at
/// any moment before, is mended on a sound disk: by intents, or by a look at everything.
fn failing(images: &[Image], setting: Setting, digest: u64, v: &mut Verdict) {
    let fault = JournalFault { after: (digest >> 41) % SOUND, once: digest >> 45 & 3 == 0 };
    let (trace, end) = match mend_failing(images, setting, fault, digest) {
        Ok(left) => left,
        Err(why) => return v.wrong.push(format!("mended with {fault:?}: {why}")),
    };
    let mut states = CrashImages::of_disks(&trace, images.to_vec());
    let cut_at = (digest >> 24) as usize % (trace.events.len() + 1);
    for _ in 0..cut_at {
        states.step();
    }
    let cuts = (0..CUTS).map(|n| (digest >> 12).wrapping_add(n * 5) % states.variants(6));
    let cuts: Vec<Vec<Image>> = cuts.map(|variant| states.images(variant)).collect();
    for (n, left) in [end].into_iter().chain(cuts).enumerate() {
        if !v.wrong.is_empty() {
            return;
        }
        v.again += 1;
        match mend(&left, setting, (Plant::NONE, digest), false) {
            Ok((_, end)) => whole("after its journal had failed", &end, digest, v),
            Err(why) => {
                let at = if n == 0 { "the end".into() } else { format!("event {cut_at}") };
                v.wrong.push(format!("mended with {fault:?}, cut off at {at}: {why}"));
            }
        }
    }
}

/// Opens the volume while its journal fails, and leaves it. Returns what its disk was asked, and
/// the disk.
fn mend_failing(
    images: &[Image],
    setting: Setting,
    fault: JournalFault,
    seed: u64,
) -> Result<(Trace, Vec<Image>), String> {
    let area = of_journal(&images[0], fault)?;
    let mut s = match Subject::open_failing(images, setting, area, seed) {
        Ok(s) => s,
        Err((world, why)) if !world.has_failed() => return Err(why),
        Err((world, _)) => return Ok((world.trace.clone(), vec![world.disk.clone()])),
    };
    let made = s.act(u64::MAX / 4, &Act::Create("/after".into()));
    let synced = s.act(u64::MAX / 4, &Act::Sync);
    s.pass(8_000_000_000);
    let Ok(Reply::Info(info)) = s.ask(u64::MAX / 4, Request::Info) else {
        return Err("the volume does not say how it is".into());
    };
    let left = (s.world.trace.clone(), s.disks());
    let has_failed = s.world.has_failed();
    s.leave();
    if has_failed && !info.read_only {
        return Err("its journal has failed, and the volume says that it is written".into());
    }
    let broken = |e: &FsError| matches!(e, FsError::Io | FsError::ReadOnly | FsError::Corrupt);
    let first = [made, synced].into_iter().filter_map(Result::err).find(broken);
    if let Some(e) = first.filter(|_| !has_failed) {
        return Err(format!("nothing has failed, and a change is answered: {e}"));
    }
    Ok(left)
}

/// Opens the volume and closes it when all is mended. `believed`: by the intents alone.
fn mend(
    images: &[Image],
    setting: Setting,
    (plant, seed): (Plant, u64),
    believed: bool,
) -> Result<(Trace, Vec<Image>), String> {
    let was_clean = is_clean(&images[0]);
    let mut s = Subject::open(images.to_vec(), setting, false, (plant, seed))?;
    for _ in 0..SECS_MAX {
        let Ok(Reply::Info(info)) = s.ask(u64::MAX / 4, Request::Info) else {
            return Err("the volume does not say how it is".into());
        };
        if info.read_only {
            return Err("the volume has turned read-only".into());
        }
        let of = |name: &str| info.counters.iter().find(|c| c.0 == name).map_or(0, |c| c.1);
        if of("cairn_scrub_running") == 0 {
            let by_intents = of("cairn_scrub_passes_total") == 0 && of("cairn_intents_on") == 1;
            if believed && !by_intents && !was_clean {
                return Err("the whole volume was looked at".into());
            }
            let trace = s.world.trace.clone(); // writes may be on their way
            let end = s.close().map_err(|e| format!("closing: {e}"))?;
            return Ok((trace, end));
        }
        if believed && !plant.is_any() {
            return Err("the whole volume is looked at".into());
        }
        s.pass(1_000_000_000);
    }
    s.leave();
    Err("the checker comes to no end".into())
}

#[cfg(test)]
mod tests {
    use crate::crash::{CrashOptions, explore};
    use crate::subject::Setting;
    use integrity::Plant;
    use volume::Mode;

    fn broken(plant: Plant, scenario: Option<&str>, states: u64) -> Option<String> {
        let setting = Setting { intents: true, ..Setting::plain(Mode::SoftUpdates) };
        let (first, scenario) = (plant != Plant::NONE, scenario.map(str::to_owned));
        let o = CrashOptions { setting, scenario, seed: 0, states, plant, first };
        let runs = explore(&o).expect("every scenario can be run").runs;
        let mut all = runs.into_iter().flat_map(|r| r.violations);
        all.next().map(|v| format!("{}: {}", v.state, v.what))
    }

    #[test]
    fn what_the_intents_name_is_all_that_is_to_be_mended() {
        assert_eq!(broken(Plant::NONE, None, 150), None);
        // Groups of which nothing else is named than their counts.
        assert_eq!(broken(Plant::NONE, Some("groups"), 230), None);
    }

    #[test]
    fn missing_intents_are_found() {
        for (plant, shows_in) in
            [("intent-skipped", "random"), ("stale-intents-believed", "fronts")]
        {
            let found = broken(Plant(Some(plant)), Some(shows_in), 600);
            assert!(found.is_some(), "{plant} is not found");
        }
    }

    #[test]
    fn whoever_waits_when_the_journal_fails_hears_of_it() {
        assert_eq!(broken(Plant::NONE, Some("failing"), 300), None);
        for plant in ["failed-intents-forgotten", "failed-wave-serves", "failed-wave-wakes-nobody"]
        {
            let found = broken(Plant(Some(plant)), Some("failing"), 2000);
            assert!(found.is_some(), "{plant} is not found");
        }
    }
}

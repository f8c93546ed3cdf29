//! `cairn crash`: the crash explorer, for users: what a mode keeps and what it may lose.

use crate::args::{CrashArgs, CrashProfile};
use crate::image::mode_of;
use crate::{Failure, Outcome};
use integrity::Plant;
use lab::crash::{CrashOptions, CrashReport, explore_ways, replay};
use lab::{Setting, VolumeKind, machines};
use volume::{
    AfterCrash, CHECKER_PLANTS, Commit, Contents, INTENT_PLANTS, Keeps, LAYOUT_PLANTS,
    LAYOUT_PLANTS_ANYWHERE, LAYOUT_PLANTS_EVERYWHERE, LAYOUT_PLANTS_IN_PLACE,
    LAYOUT_PLANTS_OF_CONTENTS, LAYOUT_PLANTS_UNORDERED, Mode, ModeOption,
};

/// The command.
pub fn run(a: &CrashArgs) -> Result<Outcome, Failure> {
    if a.in_bucket {
        return in_bucket(a);
    }
    if a.list {
        for (name, what) in lab::scenarios() {
            tell!("{name:10} {what}");
        }
        return Ok(Outcome::Done);
    }
    if a.list_modes {
        Mode::proven().for_each(|m| tell!("{}", m.name));
        return Ok(Outcome::Done);
    }
    let modes: Vec<Mode> = match &a.mode {
        Some(m) => vec![mode_of(m)?],
        None => Mode::proven().map(|m| m.mode).collect(),
    };
    if a.plant.as_deref() == Some("list") {
        modes.iter().flat_map(|m| plants_of(*m)).for_each(|name| tell!("{name}"));
        return Ok(Outcome::Done);
    }
    check_scenario(a, lab::scenarios())?;
    let mut all = CrashReport::default();
    for mode in modes {
        let o = CrashOptions {
            setting: setting_of(a, mode)?,
            scenario: a.scenario.clone(),
            seed: a.seed,
            states: a.states,
            plant: plant_of(a, mode)?,
            first: a.plant.is_some(),
        };
        let report = match &a.replay {
            Some(state) => replay(&o, state)?,
            None => explore_ways(&ways(o, a))?,
        };
        all.runs.extend(report.runs);
    }
    tell(a, &all)
}

/// Is the scenario that was asked for one of these? Errors: it is none, or only another kind of
/// volume has it.
fn check_scenario(a: &CrashArgs, known: &[(&str, &str)]) -> Result<(), Failure> {
    let Some(name) = &a.scenario else { return Ok(()) };
    let why = || format!("there is no scenario {name}: --list tells which there are");
    known.iter().any(|(k, _)| k == name).then_some(()).ok_or_else(|| Failure::Usage(why()))
}

fn tell(a: &CrashArgs, all: &CrashReport) -> Result<Outcome, Failure> {
    let broken = all.runs.iter().any(|r| !r.violations.is_empty());
    if a.json {
        tell!("{}", serde_json::to_string(all).map_err(|e| e.to_string())?);
    } else {
        print(all);
        tell!("{}", meaning(all, a.plant.is_some()));
    }
    Ok(if broken { Outcome::Broken } else { Outcome::Done })
}

/// Volumes in a bucket, which several machines write.
fn in_bucket(a: &CrashArgs) -> Result<Outcome, Failure> {
    let mode = mode_of(a.mode.as_deref().unwrap_or(Mode::Lfs.info().name))?;
    let other = a.log.is_some() || a.volumes.is_some() || a.profile.is_some();
    if other || a.commit.is_some() || mode.info().keeps != Keeps::Segments {
        let why = "--in-bucket: volumes are in mode lfs, and each commits as its seed says";
        return Err(Failure::Usage(why.into()));
    }
    if a.list {
        machines::scenarios().iter().for_each(|(name, what)| tell!("{name:10} {what}"));
        return Ok(Outcome::Done);
    }
    if a.plant.as_deref() == Some("list") {
        machines::plants().for_each(|name| tell!("{name}"));
        return Ok(Outcome::Done);
    }
    let plant = match &a.plant {
        None => Plant::NONE,
        Some(name) => {
            let found = machines::plants().find(|p| p == name);
            let why = || format!("in a bucket there is no mutation {name}: --plant list");
            Plant(Some(found.ok_or_else(|| Failure::Usage(why()))?))
        }
    };
    check_scenario(a, &machines::scenarios())?;
    let (scenario, seed, states) = (a.scenario.clone(), a.seed, a.states);
    let first = plant.is_any();
    let o = CrashOptions { setting: Setting::plain(mode), scenario, seed, states, plant, first };
    let report = match &a.replay {
        Some(state) => machines::replay(&o, state)?,
        None => machines::explore(&o)?,
    };
    tell(a, &report)
}

/// The ways in which a mode is explored: one with a log, if nobody has said when a call is done, in
/// both, each with half of the states, or with all of them in search of a planted bug; and, if
/// nobody has said on which volumes, one that writes ext4 on those too, with an eighth of the
/// states more on each kind.
fn ways(mut o: CrashOptions, a: &CrashArgs) -> Vec<CrashOptions> {
    let mode = o.setting.mode;
    let of_layout = o.plant.0.is_some_and(|p| is_of_layout(&p));
    if of_layout {
        // The scenario that is about what they break.
        let about = match o.plant.0 {
            Some("directory-split-in-two") => lab::SPLITS,
            Some("descriptor-left-behind") => lab::GROUPS,
            Some("range-shifted-in-two") => lab::SHIFTS,
            Some("value-in-two") => {
                o.setting = o.setting.with_values();
                lab::VALUES
            }
            Some("node-led-to-early") => "pieces",
            Some("inline-led-to-early") => {
                o.setting = o.setting.with_inline_data();
                "slots"
            }
            Some("inline-dropped-early") => {
                o.setting = o.setting.with_inline_data();
                lab::INLINE
            }
            _ => lab::EXTENTS,
        };
        o.scenario.get_or_insert(about.into());
    }
    let is_alone = !o.setting.outside && o.setting.volumes == 1;
    let shown = o.plant.0.filter(|_| is_alone).and_then(|p| lab::shown_in(mode.info().name, p));
    if let (Some((scenario, seed)), None) = (shown, &a.scenario) {
        o.scenario = Some(scenario.into());
        o.seed += seed;
    }
    if o.states < 2 {
        return vec![o];
    }
    let given = o.clone();
    let mut all = vec![o.clone()];
    if a.commit.is_none() && mode.is_logging() {
        let half = if o.first { o.states } else { o.states / 2 };
        let setting = Setting { commit: Commit::Async, ..o.setting };
        let states = if o.first { o.states } else { o.states - half };
        all = vec![
            CrashOptions { states, ..o.clone() },
            CrashOptions { setting, states: half, ..o.clone() },
        ];
    }
    if mode.takes(ModeOption::JournalIntents) && !a.journal_intents {
        let setting = Setting { intents: true, ..o.setting };
        let of_intents = o.plant.0.is_some_and(|p| INTENT_PLANTS.contains(&p));
        let states = if o.first { o.states } else { o.states / 4 };
        if of_intents {
            all.clear();
        }
        if of_intents || !o.plant.is_any() {
            all.push(CrashOptions { setting, states, ..o.clone() });
        }
    }
    if of_layout && a.profile.is_none() {
        all.clear(); // it is not there on others
    }
    let of_mechanism = o.plant.is_any() && !of_layout;
    if a.profile.is_none() && mode.writes_ext4() && !o.setting.outside && !of_mechanism {
        let states = if o.first { o.states } else { o.states / 8 };
        let of = |checksums| Setting { kind: VolumeKind::Ext4 { checksums }, ..o.setting };
        let inline = of(true).with_inline_data();
        // A planted bug shows wherever it is looked for.
        let more = if o.plant.is_any() { vec![] } else { vec![inline, of(true).with_values()] };
        // A checksum would tell the mechanism of the descriptor after all.
        let untold = o.plant.0 == Some("descriptor-left-behind");
        let usual = [of(true), of(false)].into_iter().skip(usize::from(untold));
        for setting in usual.chain(more) {
            all.push(CrashOptions { setting, states, ..o.clone() });
        }
    }
    if a.block_size.is_none() && !o.plant.is_any() && has_blocks_of_any_size(&o.setting) {
        all.extend(of_larger_blocks(&given, a));
    }
    all
}

/// The same on volumes of larger blocks, together an eighth of the states more: those of 4 KiB, as
/// most volumes are, the same with what the mode or the volume may have besides, and those between.
fn of_larger_blocks(o: &CrashOptions, a: &CrashArgs) -> Vec<CrashOptions> {
    let (mode, large) = (o.setting.mode, o.setting.with_blocks(4096));
    let mut all = vec![(large, 16)];
    if mode.takes(ModeOption::JournalIntents) && !a.journal_intents {
        all.push((Setting { intents: true, ..large }, 32));
    } else if mode.writes_ext4() && a.profile.is_none() {
        all.push((Setting { kind: VolumeKind::Ext4 { checksums: true }, ..large }, 32));
    }
    all.push((o.setting.with_blocks(2048), 32));
    let of = |(setting, of)| CrashOptions { setting, states: o.states / of, ..o.clone() };
    all.into_iter().map(of).filter(|o| o.states > 0).collect()
}

/// May its volumes have larger blocks in the lab?
fn has_blocks_of_any_size(s: &Setting) -> bool {
    !s.outside && s.volumes == 1 && s.mode.info().keeps != Keeps::Segments
}

/// The mode with the options that were given.
fn setting_of(a: &CrashArgs, mode: Mode) -> Result<Setting, Failure> {
    let outside = a.log.as_deref().is_some_and(|l| l != "internal");
    let given = [
        (ModeOption::Log, outside),
        (ModeOption::Commit, a.commit.is_some()),
        (ModeOption::Threshold, a.threshold.is_some()),
        (ModeOption::OrderedData, a.ordered_data),
        (ModeOption::JournalIntents, a.journal_intents),
    ];
    if let Some(option) = mode.refuses(&given) {
        let why = format!("{} has no meaning in mode {mode}", option.name());
        return Err(Failure::Usage(why));
    }
    let commit = match a.commit {
        Some(crate::args::Commit::Async) => Commit::Async,
        _ => Commit::Sync,
    };
    let (ordered_data, threshold) = (a.ordered_data, a.threshold);
    let volumes = volumes_of(a, mode, outside)?;
    let kind = kind_of(a, mode, outside)?;
    let intents = a.journal_intents;
    let with = with_of(a)?;
    let plain = Setting { mode, outside, commit, ordered_data, threshold, ..Setting::plain(mode) };
    let all = Setting { intents, volumes, kind, with, ..plain };
    match a.block_size {
        None => Ok(all),
        Some(1024 | 2048 | 4096) if !has_blocks_of_any_size(&all) => {
            let why = "--block-size: volumes with their log elsewhere, and in a log-structured \
                       store, have blocks of one size here";
            Err(Failure::Usage(why.into()))
        }
        Some(bytes @ (1024 | 2048 | 4096)) => Ok(all.with_blocks(bytes)),
        Some(_) => Err(Failure::Usage("--block-size: 1K, 2K or 4K".into())),
    }
}

/// The features that volumes have besides.
fn with_of(a: &CrashArgs) -> Result<u32, Failure> {
    let bit = |name: &String| {
        let found = lab::WITH.iter().find(|w| w.0 == name).map(|w| w.1);
        let names: Vec<&str> = lab::WITH.iter().map(|w| w.0).collect();
        let why = || Failure::Usage(format!("--with {name}: one of {}", names.join(", ")));
        found.ok_or_else(why)
    };
    a.with.iter().try_fold(0, |all, name| Ok(all | bit(name)?))
}

/// The kind of volume.
fn kind_of(a: &CrashArgs, mode: Mode, outside: bool) -> Result<VolumeKind, Failure> {
    let checksums = match a.profile {
        None | Some(CrashProfile::Ext3) => return Ok(VolumeKind::Ext3),
        Some(profile) => profile == CrashProfile::Ext4,
    };
    if !mode.writes_ext4() || outside {
        let why = "--profile: volumes of ext4 need mode async, or one with a journal or log inside";
        return Err(Failure::Usage(why.into()));
    }
    Ok(VolumeKind::Ext4 { checksums })
}

/// How many volumes share a log.
fn volumes_of(a: &CrashArgs, mode: Mode, outside: bool) -> Result<u16, Failure> {
    const MOST: u16 = 8;
    let volumes = u16::try_from(a.volumes.unwrap_or(1)).unwrap_or(u16::MAX);
    if !(1..=MOST).contains(&volumes) {
        return Err(Failure::Usage(format!("--volumes: 1 to {MOST}")));
    }
    if volumes > 1 && !(outside && mode.is_redo()) {
        let why = "--volumes: only a log of its own is shared: --mode redo or unified, --log PATH";
        return Err(Failure::Usage(why.into()));
    }
    Ok(volumes)
}

/// The bugs that can be planted: the mode's own, its store's, and the layout's.
fn plants_of(mode: Mode) -> impl Iterator<Item = &'static str> {
    let layout = match mode.is_atomic() {
        true => LAYOUT_PLANTS,
        false if mode.writes_ext4() => LAYOUT_PLANTS_UNORDERED,
        false => &[],
    };
    // Where all contents, or a block's, go into the journal or log, this one does no harm.
    let in_place = matches!(
        mode.info().contents,
        Contents::Ordered | Contents::OrderedIfAsked | Contents::Any | Contents::ExactPieces
    );
    let more = if mode.is_atomic() && in_place { LAYOUT_PLANTS_IN_PLACE } else { &[] };
    let gives_back = mode.info().after_crash == AfterCrash::GiveBack;
    let checker = if gives_back { CHECKER_PLANTS } else { &[] };
    let store = if mode.info().keeps == Keeps::Segments { lfs::PLANTS } else { &[] };
    // The store's own tests look for the others.
    let store = store.iter().filter(|p| !lfs::PLANTS_ALONE.contains(p));
    let plants = mode.info().plants.iter().chain(checker).chain(store);
    // Elsewhere contents are not promised, or what returned is durable before anything is freed.
    let promises = mode.is_atomic() && mode.info().contents != Contents::Any;
    let anywhere = if promises || gives_back { LAYOUT_PLANTS_ANYWHERE } else { &[] };
    let keeps = !matches!(mode.info().contents, Contents::Any | Contents::OrderedIfAsked);
    let moves = if mode.is_atomic() && keeps { LAYOUT_PLANTS_OF_CONTENTS } else { &[] };
    let all = LAYOUT_PLANTS_EVERYWHERE;
    plants.chain(layout).chain(more).chain(anywhere).chain(moves).chain(all).copied()
}

fn is_of_layout(plant: &&str) -> bool {
    [LAYOUT_PLANTS, LAYOUT_PLANTS_IN_PLACE, LAYOUT_PLANTS_OF_CONTENTS, LAYOUT_PLANTS_UNORDERED]
        .iter()
        .any(|plants| plants.contains(plant))
}

fn plant_of(a: &CrashArgs, mode: Mode) -> Result<Plant, Failure> {
    let Some(name) = &a.plant else { return Ok(Plant::NONE) };
    let found = plants_of(mode).find(|p| p == name);
    match found {
        Some(p) => Ok(Plant(Some(p))),
        None => Err(Failure::Usage(format!("mode {mode} has no mutation {name}: --plant list"))),
    }
}

fn print(all: &CrashReport) {
    tell!(
        "{:24} {:10} {:>9} {:>9} {:>7}  lost without a promise",
        "mode",
        "scenario",
        "states",
        "cut again",
        "broken"
    );
    for r in &all.runs {
        let losses: Vec<String> = r.losses.iter().map(|(k, n)| format!("{k} {n}")).collect();
        tell!(
            "{:24} {:10} {:>9} {:>9} {:>7}  {}",
            format!("{} {}", r.mode, r.options),
            r.scenario,
            r.states,
            r.cut_again,
            r.violations.len(),
            losses.join(", ")
        );
    }
    for v in all.runs.iter().flat_map(|r| &r.violations) {
        tell!("{}: {}\n    {}", v.state, v.what, v.replay);
    }
}

/// What it means, in a line.
fn meaning(all: &CrashReport, planted: bool) -> String {
    let states: u64 = all.runs.iter().map(|r| r.states).sum();
    let broken: usize = all.runs.iter().map(|r| r.violations.len()).sum();
    match (broken, planted) {
        (0, false) => format!("no promise is broken in any of {states} states after a power cut"),
        (0, true) => {
            format!("the planted bug does not show in {states} states: --states takes more")
        }
        (_, true) => "the planted bug is found: it breaks a promise, as it should".to_owned(),
        _ => format!(
            "a promise is broken in {broken} of {states} states: a bug; the line below each of \
             them shows it again"
        ),
    }
}

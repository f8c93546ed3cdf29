//! Disks that fail while several callers wait for durability together: some for names and inodes,
//! some for contents in place alone. A journal of intents whose blocks fail, or any write or flush.
//! Whoever is told that something is durable must be right; all others have to hear of the failure.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// Callers: two that write in place, two that make and move names, and an NFS client.
const CALLERS: u64 = 5;
/// The client.
const REMOTE: u64 = 4;
/// What each of them does.
const ROUNDS: u64 = 12;
/// Bytes of the files written in place.
const BYTES: u64 = 6000;
/// Up to so many writes to the journal come before the one that fails.
const SOUND: u64 = 34;

/// Writes to the journal's blocks fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JournalFault {
    /// So many of them do not.
    pub(crate) after: u64,
    /// Only one does: a disk that has found another place for what it could not write.
    pub(crate) once: bool,
}

/// What fails, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Breaks {
    /// Writes to the journal's blocks.
    Journal(JournalFault),
    /// One write, after so many.
    Write(u64),
    /// One flush, after so many.
    Flush(u64),
    /// The disk for good, after so many of both.
    Disk(u64),
}

/// The journal of intents fails.
pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0xfa11);
    let (setup, acts) = acts_of_all(&mut rng);
    let fault = JournalFault { after: rng.below(SOUND), once: rng.one_in(3) };
    broken(setup, acts, Breaks::Journal(fault))
}

/// Any write or flush fails.
pub(super) fn of_disk(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0xb0c4);
    let (setup, acts) = acts_of_all(&mut rng);
    let after = rng.below(SOUND * 4);
    let fault = match rng.below(4) {
        0 => Breaks::Flush(after / 4),
        1 => Breaks::Disk(after),
        _ => Breaks::Write(after),
    };
    broken(setup, acts, fault)
}

fn broken(setup: Vec<Act>, acts: Vec<Act>, fault: Breaks) -> Script {
    let new = Script::new(setup, acts);
    Script { callers: CALLERS as usize, remote: REMOTE as usize, fault: Some(fault), ..new }
}

/// What is set up, and what all callers do in turn.
fn acts_of_all(rng: &mut Rng) -> (Vec<Act>, Vec<Act>) {
    let mut setup = vec![Act::Mkdir(s("/A")), Act::Mkdir(s("/B"))];
    for lane in 0..2 {
        setup.push(Act::Create(in_place(lane)));
        setup.push(Act::Write(in_place(lane), 0, BYTES as usize, 1 + lane as u8));
    }
    setup.push(Act::Sync);
    let lanes: Vec<Vec<Act>> = (0..CALLERS).map(|lane| acts_of(rng, lane)).collect();
    let acts = (0..lanes[0].len()).flat_map(|i| lanes.iter().map(move |l| l[i].clone()));
    (setup, acts.collect())
}

fn in_place(lane: u64) -> String {
    format!("/c{lane}nf")
}

/// Two a round.
fn acts_of(rng: &mut Rng, lane: u64) -> Vec<Act> {
    let mut acts = Vec::new();
    for round in 0..ROUNDS {
        let dir = if rng.one_in(2) { "/A" } else { "/B" };
        let other = if dir == "/A" { "/B" } else { "/A" };
        let new = format!("{dir}/c{lane}n{round}");
        let value = rng.next_u64() as u8;
        let place = rng.below(BYTES - 900);
        acts.extend(match lane {
            0 | 1 => {
                let write = Act::Write(in_place(lane), place, 1 + rng.below(900) as usize, value);
                [write, Act::Fdatasync(in_place(lane))]
            }
            2 => match rng.below(4) {
                0 => [Act::Mkdir(new.clone()), Act::Fsync(dir.into())],
                1 => [Act::Symlink(new, "t".repeat(200)), Act::Fsync(dir.into())],
                _ => [Act::Create(new.clone()), Act::Fsync(new)],
            },
            3 => match rng.below(3) {
                0 => [Act::Create(new.clone()), Act::Unlink(new)],
                1 => [Act::Create(new.clone()), Act::Rename(new, format!("{other}/c3nr{round}"))],
                _ => {
                    let long = 1 + rng.below(20_000) as usize;
                    [Act::Create(new.clone()), Act::WriteSync(new, 0, long, value)]
                }
            },
            _ => match rng.below(3) {
                0 => [Act::Create(new.clone()), Act::Unlink(new)],
                1 => [Act::Mkdir(new.clone()), Act::Rmdir(new)],
                _ => [Act::Create(new.clone()), Act::Write(new, 0, 3000, value)],
            },
        });
    }
    acts
}

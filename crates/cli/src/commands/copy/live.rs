//! Copying a volume in use. All of it once, then what was changed meanwhile, again and again; at
//! last the server holds changes back while the little is copied that is left. What is copied then
//! is the volume of that moment, and nothing of it is in a log or a cache only.

use super::target::Target;
use super::{PIECE_BYTES, Source};
use crate::Failure;
use crate::progress::Bar;
use crate::status::{Begun, Changed, Server};
use check::Progress;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};

/// What may be left for the time in which changes are held back.
const LITTLE_BYTES: u64 = 8 << 20;
/// Rounds before that, at most.
const ROUNDS_MAX: u32 = 12;
/// How often it is tried to hold changes back.
const TRIES: u32 = 3;
/// Who is silent for too long is taken for dead.
const HEARD_EVERY: Duration = Duration::from_secs(10);

/// A copy under way, as the server knows it.
pub struct Live<'a> {
    server: &'a Server,
    volume: usize,
    /// The server's number of this copy.
    copy: u64,
    shown: String,
    /// How many bytes the source has.
    bytes: u64,
    heard: Instant,
    bar: Bar,
}

/// How it went.
pub struct Rounds {
    pub rounds: u32,
    /// For how long changes were held back.
    pub held: Duration,
}

impl<'a> Live<'a> {
    /// From now on the server notes what is written to the source. Errors: it writes another file,
    /// in whose place the source is by now.
    pub fn begin(server: &'a Server, volume: usize, source: &Source) -> Result<Live<'a>, Failure> {
        let Begun { copy, file } = ask(server, &format!("begin/{volume}"), &source.shown)?;
        let (shown, bytes) = (source.shown.clone(), source.bytes());
        let (heard, bar) = (Instant::now(), Bar::new());
        let live = Live { server, volume, copy, shown, bytes, heard, bar };
        let is_other = |file| source.file.number().is_ok_and(|n| n != file);
        if file.is_some_and(is_other) {
            let why = "the file there is not the one that is in use: that was removed or replaced";
            return Err(Failure::Failed(format!("{}: {why}", source.shown)));
        }
        Ok(live)
    }

    fn step(&self, step: &str) -> Result<(), Failure> {
        self.ask::<serde::de::IgnoredAny>(step).map(drop)
    }

    fn ask<T: DeserializeOwned>(&self, step: &str) -> Result<T, Failure> {
        ask(self.server, &format!("{step}/{}/{}", self.volume, self.copy), &self.shown)
    }

    fn changed(&mut self) -> Result<Changed, Failure> {
        self.heard = Instant::now();
        let changed: Changed = self.ask("changed")?;
        match is_within(&changed, self.bytes) {
            true => Ok(changed),
            false => Err(Failure::Failed(format!(
                "{}: the server tells of changes that cannot be",
                self.shown
            ))),
        }
    }

    /// Copies everything.
    pub fn run(
        &mut self,
        (source, target): (&Source, &mut Target),
        hold: Duration,
    ) -> Result<Rounds, Failure> {
        let mut left = Changed { ranges: vec![(0, source.bytes())], writing: 0 };
        let mut rounds = 0;
        for tried in 1..=TRIES {
            loop {
                let bytes = sum(&left);
                self.copy(&left, source, target)?;
                rounds += 1;
                left = self.changed()?;
                // What comes as fast as it is copied does not get less.
                let lessens = sum(&left) < bytes - bytes / 4;
                if sum(&left) <= LITTLE_BYTES || !lessens || rounds >= ROUNDS_MAX * tried {
                    break;
                }
            }
            match self.step(&format!("freeze/{}", hold.as_millis())) {
                Ok(()) => (),
                Err(why) if tried == TRIES => return Err(why),
                Err(_) => continue, // it does not come to rest: with less left, perhaps
            }
            // What there was to write was written before anybody had to wait: only now they do.
            let begun = Instant::now();
            let last = self.until_still(left, source, target, begun + hold);
            // Whatever went wrong: others wait.
            let thawed = self.step("thaw");
            let (more, is_still) = last?;
            left = more;
            let held = begun.elapsed();
            match thawed {
                Ok(_) if is_still => return Ok(Rounds { rounds, held }),
                Err(why) if tried == TRIES => return Err(why),
                _ => (),
            }
            left = Changed { ranges: [left.ranges, self.changed()?.ranges].concat(), writing: 0 };
        }
        Err(Failure::Failed(format!(
            "{}: changes come faster than they are copied: what is left takes longer than changes \
             may be held back; --hold SECONDS gives it more time",
            self.shown
        )))
    }

    /// Copies what is left, until there is nothing that was written meanwhile. Returns what was not
    /// copied in time, and whether the server has said since it holds changes back that there is
    /// nothing: what it wrote to come to rest, nobody has copied yet.
    fn until_still(
        &mut self,
        mut left: Changed,
        source: &Source,
        target: &mut Target,
        until: Instant,
    ) -> Result<(Changed, bool), Failure> {
        loop {
            self.copy(&left, source, target)?;
            left = self.changed()?;
            // A write that is under way now may have been read half.
            if left.ranges.is_empty() && left.writing == 0 {
                left = self.changed()?;
                if left.ranges.is_empty() {
                    return Ok((left, true));
                }
            }
            if Instant::now() >= until {
                return Ok((left, false));
            }
        }
    }

    fn copy(
        &mut self,
        what: &Changed,
        source: &Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        let (mut done, total) = (0, sum(what));
        for (at, len) in &what.ranges {
            for from in (*at..at + len).step_by(PIECE_BYTES) {
                let piece = (PIECE_BYTES as u64).min(at + len - from);
                source.copy(from, piece, target)?;
                done += piece;
                self.bar.step("copying", done, total);
                if self.heard.elapsed() > HEARD_EVERY {
                    self.heard = Instant::now();
                    self.step("alive")?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        let _ = self.step("end"); // it finds out by itself
    }
}

/// A step, and what was answered.
fn ask<T: DeserializeOwned>(server: &Server, step: &str, shown: &str) -> Result<T, Failure> {
    let fail = |e: &dyn std::fmt::Display| Failure::Failed(format!("{shown}: {e}"));
    let answer = server.copy(step).map_err(|e| fail(&e))?;
    serde_json::from_slice(&answer).map_err(|e| fail(&format_args!("the server: {e}")))
}

/// Are the ranges, which another process tells, in order, and bytes of a disk of so many?
fn is_within(what: &Changed, bytes: u64) -> bool {
    let mut before = 0;
    what.ranges.iter().all(|(at, len)| {
        let end = at.checked_add(*len).filter(|end| *at >= before && *end <= bytes);
        before = end.unwrap_or(bytes);
        end.is_some()
    })
}

fn sum(what: &Changed) -> u64 {
    what.ranges.iter().map(|r| r.1).sum()
}

#[cfg(test)]
#[test]
fn what_a_server_tells_is_compared_with_the_disk() {
    let of =
        |ranges: &[(u64, u64)]| is_within(&Changed { ranges: ranges.to_vec(), writing: 0 }, 99);
    assert!(of(&[]) && of(&[(0, 9), (9, 1), (50, 49)]));
    for wrong in [[(0, 100), (100, 0)], [(9, 1), (0, 9)], [(u64::MAX, 2), (3, 1)], [(0, 9), (8, 1)]]
    {
        assert!(!of(&wrong), "{wrong:?}");
    }
}

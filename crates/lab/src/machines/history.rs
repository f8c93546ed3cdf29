//! What each machine has found and done, and the judgement of it. It asks no volume.
//!
//! Invariants:
//! * Y1. Each machine opens the volume once, under a name of its own: by that it is found among the
//!   writers.
//! * Y2. A machine is told of acts that it has begun, and of each it is known whether it is noted.
//! * Y3. What a machine has left is what its acts make of what it had found.
//! * Y4. A machine answers after it has opened the volume, and time does not go back.
//! * Y5. Each act has a note of its own, whichever machine does it.

use crate::acts::Act;
use crate::model::Model;
use crate::random::differs;
use crate::seen::Paths;
use env::Nanos;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use vfs::FsError;

/// What one machine has found and done.
struct Writing {
    machine: String,
    found: Paths,
    /// The notes that came with it.
    notes: BTreeSet<u128>,
    base: Model,
    /// As it is after all that was begun.
    now: Model,
    acts: Vec<Act>,
    /// Of each, whether it is sure to be noted if it is found.
    noted: Vec<bool>,
    /// So many of them it was told are durable.
    acknowledged: usize,
    /// When the volume was open, and when it has answered last.
    opened: Nanos,
    answered: Nanos,
}

impl Writing {
    /// The volume before the first act, after the first, and so on.
    fn moments(&self) -> Vec<Model> {
        let mut all = vec![self.base.clone()];
        for act in &self.acts {
            let mut next = all[all.len() - 1].clone();
            let done = next.apply(act);
            let last = all[all.len() - 1].clone();
            all.push(if done.is_ok() { next } else { last });
        }
        all
    }
}

/// All machines that have opened the volume, in the order in which they had read it.
#[derive(Clone, Default)]
pub(crate) struct History(Rc<RefCell<Vec<Writing>>>);

impl History {
    /// A machine has opened the volume and found this, and these notes. Returns its number. Errors:
    /// nobody ever made that.
    pub(crate) fn open(
        &self,
        (machine, opened): (&str, Nanos),
        (found, notes): (Paths, BTreeSet<u128>),
    ) -> Result<usize, String> {
        let mut all = self.0.borrow_mut();
        let moments = all.iter().rev().flat_map(Writing::moments);
        let mut known = moments.chain([Model::default()]);
        let Some(base) = known.find(|m| differs(&found, m).is_ok()) else {
            return Err(format!("broken: {machine} has found what was there at no moment"));
        };
        drop(known);
        let known = all.iter().any(|w| w.machine == machine);
        assert!(!known, "Y1: {machine} has opened the volume before");
        let last = all.last().map(|w| w.opened);
        assert!(last <= Some(opened), "Y4: {machine} opens at {opened:?}, behind {last:?}");
        let (now, machine) = (base.clone(), machine.to_owned());
        let (acts, noted) = (Vec::new(), Vec::new());
        let answered = opened;
        all.push(Writing {
            machine,
            found,
            notes,
            base,
            now,
            acts,
            noted,
            acknowledged: 0,
            opened,
            answered,
        });
        Ok(all.len() - 1)
    }

    /// What an act is noted as: the `begun`th of the machine.
    pub(crate) fn note(n: usize, begun: usize) -> u128 {
        assert!(begun > 0, "Y5: machine {n} notes an act that it has not begun");
        (n as u128) << 64 | begun as u128
    }

    /// The volume as the machine left it.
    pub(crate) fn now(&self, n: usize) -> Model {
        self.0.borrow()[n].now.clone()
    }

    /// The machine begins this: what the answer has to be, and whether it changes anything.
    pub(crate) fn begin(&self, n: usize, act: &Act) -> (Result<(), FsError>, bool) {
        let mut all = self.0.borrow_mut();
        let w = &mut all[n];
        w.acts.push(act.clone());
        let mut next = w.now.clone();
        let want = next.apply(act);
        if want.is_err() {
            w.noted.push(false);
            return (want, false);
        }
        let changes = next != w.now;
        w.noted.push(changes && is_of_names(act));
        w.now = next;
        (want, changes)
    }

    /// So many of the machine's acts are begun.
    pub(crate) fn begun(&self, n: usize) -> usize {
        self.0.borrow()[n].acts.len()
    }

    /// The machine was told that so many of its acts are durable.
    pub(crate) fn acknowledge(&self, n: usize, acts: usize) {
        let w = &mut self.0.borrow_mut()[n];
        let begun = w.acts.len();
        assert!(acts <= begun, "Y2: {} is told of {acts} acts, and has begun {begun}", w.machine);
        w.acknowledged = w.acknowledged.max(acts);
    }

    /// The machine has answered something else than that it takes nothing any more.
    pub(crate) fn answered(&self, n: usize, at: Nanos) {
        let before = std::mem::replace(&mut self.0.borrow_mut()[n].answered, at);
        assert!(before <= at, "Y4: machine {n} answers at {at:?}, and at {before:?} before");
    }

    /// Prints what each machine has done, `*` behind what it was told is durable.
    pub(crate) fn tell(&self) {
        for w in self.0.borrow().iter() {
            eprintln!("{} has found {} names", w.machine, w.found.len());
            for (n, act) in w.acts.iter().enumerate() {
                eprintln!("  {act:?}{}", if n < w.acknowledged { " *" } else { "" });
            }
        }
    }

    /// What is wrong: each machine has found what was there after so many acts of the one before as
    /// that one was told are durable, or after more of them. `epochs`: the machines in the order in
    /// which the volume was theirs, as it was known at `seen`. And nobody has answered later than
    /// `late` after the next one had opened it.
    pub(crate) fn judge(
        &self,
        (epochs, seen): (&[String], Nanos),
        late: Nanos,
    ) -> Result<(), String> {
        let all = self.0.borrow();
        let of = |m: &String| all.iter().find(|w| w.machine == *m);
        for w in all.iter() {
            assert_eq!(w.noted.len(), w.acts.len(), "Y2: notes of {}", w.machine);
            let (told, begun) = (w.acknowledged, w.acts.len());
            assert!(told <= begun, "Y2: {told} of {begun} acts of {} are durable", w.machine);
            assert!(w.opened <= w.answered, "Y4: {} answers before it opens", w.machine);
            // All its acts are done once more.
            debug_assert!(w.moments().last() == Some(&w.now), "Y3: {} has left another", w.machine);
            // A standby may open it while the others are judged.
            if w.opened <= seen && !epochs.contains(&w.machine) {
                let name = &w.machine;
                return Err(format!("broken: {name} has opened the volume, which was never its"));
            }
        }
        let writings: Vec<&Writing> = epochs.iter().filter_map(of).collect();
        for pair in writings.windows(2) {
            let (before, next) = (pair[0], pair[1]);
            if before.answered > next.opened.plus(late) {
                let (name, long) =
                    (&before.machine, before.answered.since(next.opened).0 / 1_000_000);
                return Err(format!(
                    "broken: {name} has answered {long} ms after {} had opened it",
                    next.machine
                ));
            }
            let number = all.iter().position(|w| std::ptr::eq(w, before)).unwrap_or(0);
            let moments = &before.moments()[before.acknowledged..];
            let nearest: Vec<String> =
                moments.iter().filter_map(|m| differs(&next.found, m).err()).collect();
            if nearest.len() == moments.len() {
                return Err(format!(
                    "broken: {} has not found what {} was told is durable, {} of {} operations: {}",
                    next.machine,
                    before.machine,
                    before.acknowledged,
                    before.acts.len(),
                    nearest.first().map_or("", |w| w.as_str())
                ));
            }
            let at = |p: &usize| differs(&next.found, &moments[*p]).is_ok();
            let found: Vec<usize> = (0..moments.len()).filter(at).collect();
            let fits = |p: &usize| notes_fit((number, before), before.acknowledged + p, next);
            if !found.iter().any(fits) {
                let (next, before) = (&next.machine, &before.machine);
                return Err(format!("broken: the notes that {next} has found are not {before}'s"));
            }
        }
        Ok(())
    }
}

/// Are the notes those of the first `p` acts of the machine before?
fn notes_fit((number, before): (usize, &Writing), p: usize, next: &Writing) -> bool {
    (0..before.acts.len()).all(|i| {
        let is_there = next.notes.contains(&History::note(number, i + 1));
        if i < p { is_there || !before.noted[i] } else { !is_there }
    })
}

/// Does it change which names there are? Such a request must not be done twice.
fn is_of_names(act: &Act) -> bool {
    matches!(
        act,
        Act::Create(_)
            | Act::Mkdir(_)
            | Act::Symlink(..)
            | Act::Link(..)
            | Act::Unlink(_)
            | Act::Rmdir(_)
            | Act::Rename(..)
    )
}

//! Doing an act from inside the engine, as a command, an NFS client or a mount's kernel asks. A
//! kernel holds each inode that it has looked up or made for a while: what loses its last name
//! meanwhile is freed only when the hold is given back. How long is chosen by a seed, so that one
//! run is like the other.
//!
//! Invariants:
//! * H1. Each hold is given back once: those taken are those given back and those that are left.
//! * H2. None is kept for longer than it was to be.

use crate::acts::{Act, emerging, ino_of, lingering, split};
use env::{Env, Nanos, Rng};
use std::rc::Rc;
use vfs::{Call, FsError, Request, SetAttr, Volume};

/// After at most so many further acts a hold is given back.
const ACTS_MAX: u64 = 4;

/// The holds of one caller.
pub(crate) struct Holds {
    rng: Rng,
    /// Inodes, each with the act after which it is given back.
    all: Vec<(u32, u64)>,
    acts: u64,
    /// So many were taken, and given back.
    taken: usize,
    given: usize,
}

impl Holds {
    /// None yet.
    pub(crate) fn new(seed: u64) -> Holds {
        Holds { rng: Rng::new(seed), all: Vec::new(), acts: 0, taken: 0, given: 0 }
    }

    /// One more hold of this inode.
    pub(crate) fn take(&mut self, ino: u32) {
        let until = self.acts + self.rng.below(ACTS_MAX);
        self.all.push((ino, until));
        self.taken += 1;
    }

    /// H1 and H2.
    fn check(&self) {
        let (taken, given, left) = (self.taken, self.given, self.all.len());
        assert_eq!(taken, given + left, "H1: of {taken} holds {given} were given back");
        let late = self.all.iter().find(|(_, until)| *until < self.acts);
        assert!(late.is_none(), "H2: {late:?} is held after {} acts", self.acts);
    }

    /// An act has ended: what is given back now, an inode for each hold of it.
    pub(crate) fn due(&mut self) -> Vec<u32> {
        let acts = self.acts;
        self.acts += 1;
        let due = self.all.extract_if(.., |(_, until)| *until <= acts);
        let due: Vec<u32> = due.map(|(ino, _)| ino).collect();
        self.given += due.len();
        self.check();
        due
    }

    /// What is held still.
    pub(crate) fn rest(self) -> Vec<u32> {
        self.check();
        self.all.into_iter().map(|(ino, _)| ino).collect()
    }
}

/// Does an act; `durable`: as an NFS client asks. With `holds`, as a mount's kernel does: what is
/// looked up on the way is held. Returns what was done: of a write that was cut short, nobody asks
/// for the rest.
pub(crate) async fn perform(
    volume: &Rc<dyn Volume>,
    act: &Act,
    durable: bool,
    holds: &mut Option<Holds>,
) -> Result<Act, FsError> {
    if holds.is_some() {
        for path in act.takes() {
            let _ = walk_holding(volume, path, holds).await; // there may be nothing to take
        }
    }
    let mut inos = Vec::new();
    for path in act.needs() {
        inos.push(walk_holding(volume, path, holds).await?);
    }
    let call = |request| Call { durable, ..Call::local(request) };
    if let Act::Vanish(path, _) | Act::Linger(path, ..) = act {
        let open = Request::Lookup { dir: inos[0], name: split(path).1 };
        let reply = volume.clone().call(Call { hold: true, ..call(open) }).await.result?;
        let ino = ino_of(&reply).ok_or(FsError::Io)?;
        let mut steps = vec![act.request(&inos)];
        if let Act::Vanish(_, size) = act {
            let set = SetAttr { size: Some(*size), ..SetAttr::default() };
            steps.push(Request::SetAttr { ino, set });
        }
        steps.extend(lingering(act, ino));
        return in_turn(volume, act, steps, (ino, durable)).await;
    }
    let emerges = matches!(act, Act::Emerge(..));
    let hold = emerges || holds.is_some() && act.makes();
    let first = Call { hold, ..call(act.request(&inos)) };
    let reply = volume.clone().call(first).await.result?;
    match (ino_of(&reply), holds) {
        (Some(ino), _) if emerges => {
            return in_turn(volume, act, emerging(act, inos[0], ino), (ino, durable)).await;
        }
        (Some(ino), Some(holds)) if hold => holds.take(ino),
        _ => (),
    }
    Ok(act.clone().answered_by(&reply))
}

/// The volume stands still for so many seconds; whoever wants to change something waits.
pub(crate) async fn stand_still(
    volume: &Rc<dyn Volume>,
    env: &Env,
    secs: u64,
) -> Result<Act, FsError> {
    let act = Act::Still(secs);
    volume.clone().call(Call::local(act.request(&[]))).await.result?;
    env.sleep(Nanos::from_secs(secs)).await;
    volume.clone().call(Call::local(Request::Thaw)).await.result?;
    Ok(act)
}

/// The steps of an act on a file that is held; the first error is the act's. The hold is given back
/// in any case.
async fn in_turn(
    volume: &Rc<dyn Volume>,
    act: &Act,
    steps: Vec<Request>,
    (held, durable): (u32, bool),
) -> Result<Act, FsError> {
    let mut result = Ok(act.clone());
    for request in steps {
        if let Ok(done) = result {
            let call = Call { durable, ..Call::local(request) };
            result = volume.clone().call(call).await.result.map(|reply| done.answered_by(&reply));
        }
    }
    let close = Call::local(Request::Forget { ino: held, count: 1 });
    let closed = volume.clone().call(close).await.result;
    closed.and(result)
}

/// The inode at a path; with `holds` every step of the way is held.
async fn walk_holding(
    volume: &Rc<dyn Volume>,
    path: &str,
    holds: &mut Option<Holds>,
) -> Result<u32, FsError> {
    let mut at = 2;
    for name in path.split('/').filter(|n| !n.is_empty()) {
        let request = Request::Lookup { dir: at, name: name.as_bytes().to_vec() };
        let call = Call { hold: holds.is_some(), ..Call::local(request) };
        let reply = volume.clone().call(call).await.result?;
        at = ino_of(&reply).ok_or(FsError::Io)?;
        if let Some(holds) = holds {
            holds.take(at);
        }
    }
    Ok(at)
}

/// Gives holds back, one each.
pub(crate) async fn give_back(volume: &Rc<dyn Volume>, inos: Vec<u32>) {
    for ino in inos {
        let call = Call::local(Request::Forget { ino, count: 1 });
        // Nobody waits for the answer: a kernel does not either.
        let _ = volume.clone().call(call).await;
    }
}

#[cfg(test)]
mod tests {
    use crate::acts::Act;
    use crate::setting::{Setting, new_disks};
    use crate::subject::Subject;
    use integrity::Plant;
    use volume::Mode;

    /// A volume that is nearly full takes a part of a write: what is done is that part.
    #[test]
    fn what_is_cut_short_is_done_as_far_as_it_was_taken() {
        let setting = Setting::plain(Mode::Async);
        let disks = new_disks(1 << 20, setting);
        let mut v = Subject::open(disks, setting, false, (Plant::NONE, 1)).unwrap();
        let write = |path: &str, at, len| Act::Write(path.into(), at, len, 1);
        for path in ["/room", "/fill", "/old"] {
            v.act(0, &Act::Create(path.into())).unwrap();
        }
        v.act(0, &write("/room", 0, 5 << 10)).unwrap();
        let taken = (0..).take_while(|n| v.act(0, &write("/fill", n << 10, 1 << 10)).is_ok());
        assert!(taken.count() > 100);
        v.act(0, &Act::Truncate("/room".into(), 3 << 10)).unwrap();
        let emerge = Act::Emerge("/new".into(), 5000, 7);
        let done = v.act_in_lanes(&[emerge], 1, (1, false, false), 60);
        assert_eq!(done, [Some(Ok(Act::Emerge("/new".into(), 2 << 10, 7)))]);
        v.act(0, &Act::Truncate("/room".into(), 0)).unwrap();
        let done = v.act_as_done(0, &write("/old", 0, 5000)).unwrap();
        assert_eq!(done, write("/old", 0, 3 << 10));
        let tree = v.tree(false).unwrap();
        assert_eq!([tree["/new"].size, tree["/old"].size], [2 << 10, 3 << 10]);
    }
}

//! How many of a caller's acts are promised, in modes whose operations are atomic: what an answer,
//! an fsync or a sync says of those before it. It judges no state.

use crate::acts::Act;
use crate::judge::found_throughout;
use crate::model::{Model, Node};
use crate::prefix::Caller;
use std::collections::BTreeMap;

/// Does it change nothing but bytes that the file has, so that its length tells nothing of it?
fn overwrites(act: &Act, model: &Model) -> bool {
    let (p, at, len) = match act {
        Act::Punch(..) | Act::Allocate(.., true) | Act::Zero(.., true) => return true,
        Act::Allocate(p, at, len, false) | Act::Zero(p, at, len, false) => {
            (p.as_str(), *at, *len as usize)
        }
        _ => match act.written() {
            Some((p, at, len, _)) => (p, at, len),
            None => return false,
        },
    };
    let Ok(Node::File(bytes)) = model.find(p).map(|id| model.node(id)) else { return false };
    at + len as u64 <= bytes.len()
}

/// Does it change nothing that fdatasync promises?
fn is_of_attributes(act: &Act) -> bool {
    use Act::{Attribute, Date, Grant, Own, Strip};
    matches!(act, Attribute(..) | Date(..) | Grant(..) | Own(..) | Strip(_))
}

/// Does it do nothing at all, so that nothing is promised of it? A rename of one of two names of an
/// object to the other; a hole behind the end.
fn is_idle(act: &Act, model: &Model) -> bool {
    match act {
        Act::Rename(a, b) | Act::Whiteout(a, b) | Act::Exchange(a, b) => {
            model.find(a).is_ok() && model.find(a) == model.find(b)
        }
        Act::Punch(p, at, _) => match model.find(p).map(|id| model.node(id)) {
            Ok(Node::File(bytes)) => *at >= bytes.len(),
            _ => false,
        },
        _ => false,
    }
}

/// Is all that returned before durable when the act is answered? To an NFS client every answer but
/// that to an unstable write says so, and the logs of ours go out by themselves in far less time
/// than a pause of a second.
fn makes_durable(act: &Act, Caller { redo, remote, rests, .. }: Caller) -> bool {
    match act {
        Act::Pause(secs) => *secs > 0 && redo && rests,
        Act::Create(_) | Act::Mkdir(_) | Act::Symlink(..) | Act::Link(..) => remote,
        Act::Unlink(_) | Act::Rmdir(_) | Act::Rename(..) | Act::Truncate(..) => remote,
        Act::Vanish(..) | Act::Linger(..) | Act::Exchange(..) => remote,
        _ => false,
    }
}

/// Is it durable when an NFS client is answered, with all that returned before?
pub(crate) fn answered_durably(act: &Act) -> bool {
    let (lane, rests, alone, attributes) = (0, false, false, false);
    let client = Caller { lane, redo: true, remote: true, rests, alone, attributes };
    makes_durable(act, client)
}

/// By object: the acts that concern it, each by how many there are up to it.
type Concerns = BTreeMap<usize, Vec<usize>>;

/// The last of the first `before` acts that concerns the object, and one; 0: none.
fn last_of(all: &Concerns, id: Option<usize>, before: usize) -> usize {
    let of = id.and_then(|id| all.get(&id)).map_or(&[][..], Vec::as_slice);
    of[..of.partition_point(|n| *n <= before)].last().copied().unwrap_or(0)
}

/// How many of the answered acts are promised: those of the setup, those before the last sync, and
/// of each fsync the last that made the file what it is, or gave it a name, or of a directory
/// changed a name in it. In a directory that several share, another's name may come between an
/// fsync and its answer, and is not promised: `began` says how many had been answered before it.
pub(crate) fn promised(done: &[&Act], began: &[usize], setup: usize, caller: Caller) -> usize {
    assert_eq!(done.len(), began.len(), "P1: it is not known when each act began");
    let mut least = setup;
    let mut model = Model::default();
    let mut all = Concerns::new();
    // The same without those that change nothing but contents, times and who may do what: where
    // these are not of one version with the rest, fdatasync promises no prefix for their sake.
    let mut essential = Concerns::new();
    for (i, act) in done.iter().enumerate() {
        let dirs = act.dirs();
        let about = || act.paths().into_iter().chain(dirs.iter().copied());
        let before: Vec<usize> = about().filter_map(|p| model.find(p).ok()).collect();
        if is_idle(act, &model) {
            continue;
        }
        let in_place = overwrites(act, &model) || is_of_attributes(act);
        let _ = model.apply(act);
        if makes_durable(act, caller) {
            least = least.max(i + 1); // the setup may go on after it
        }
        if act.syncs_all() {
            // Another caller's: what was answered in its middle may have come too late for it.
            least = least.max(began[i]);
        }
        match act {
            Act::Sync | Act::Read(_) | Act::Trim | Act::Pause(_) | Act::Still(_) => (),
            Act::Fsync(p) | Act::Fdatasync(p) => {
                let of = if matches!(act, Act::Fsync(_)) { &all } else { &essential };
                let id = found_throughout(done, (began[i], i), p, &model);
                least = least.max(last_of(of, id, began[i]));
            }
            _ => {
                let after = about().filter_map(|p| model.find(p).ok());
                before.into_iter().chain(after).for_each(|id| {
                    all.entry(id).or_default().push(i + 1);
                    if !in_place {
                        essential.entry(id).or_default().push(i + 1);
                    }
                });
            }
        }
        if let Act::WriteSync(p, ..) = act {
            least = least.max(last_of(&essential, model.find(p).ok(), i + 1));
        }
    }
    least
}

//! A volume that is followed while another machine writes it (crates/volume/src/following.rs): each
//! answer comes from one moment (I1), none goes back behind an earlier one, none is older than the
//! bound (I2), and an inode that is held is no other one's (I3), whatever happens to the follower
//! and its network.

use super::run::{All, PACE, SILENT, ground};
use crate::acts::Act;
use crate::perform::perform;
use env::{DiskId, Nanos, Rng};
use integrity::Plant;
use sim::Machine;
use std::cell::RefCell;
use std::rc::Rc;
use vfs::{Call, FsError, Reply, Request, Volume};
use volume::{BucketOptions, Commit, Mode, OpenOptions, TakeOver};

/// No answer may be older.
const WITHIN: Nanos = Nanos::from_secs(2);
/// The file that is written over and over again: two blocks, always with one value.
const PATH: &str = "/one/file";
/// A file that is removed, and one that is made then.
const OLD: (&str, u8) = ("/one/old", 200);
const NEW: (&str, u8) = ("/one/new", 201);
const BYTES: usize = 2 * lfs::BLOCK_BYTES;
/// Values are bytes, and fewer than that.
const WRITES: u8 = 90;

/// When each value was durable, the n-th at the n-th place.
type Written = Rc<RefCell<Vec<Nanos>>>;

fn options(name: &str, plant: Plant, follow: Option<Nanos>) -> OpenOptions {
    let (take_over, writer) = (TakeOver::Insist, name.to_owned());
    let rest = BucketOptions::default();
    let bucket = BucketOptions { take_over, after: SILENT, writer, pace: PACE, follow, ..rest };
    let plain = OpenOptions::plain(Mode::Lfs, 1 << 20, [9; 16]);
    OpenOptions { commit: Commit::Sync, read_only: follow.is_some(), plant, bucket, ..plain }
}

async fn open(
    all: &All,
    id: u16,
    way: Rc<Machine>,
    options: OpenOptions,
) -> Result<Rc<dyn Volume>, String> {
    all.machines.attach(DiskId(id), way);
    volume::open_on(ground(all, id), options).await
}

/// Writes value after value.
async fn write(all: All, way: Rc<Machine>, written: Written) -> Result<(), String> {
    let volume = open(&all, 0, way, options("first", all.plant, None)).await?;
    let text = |e: FsError| format!("{e:?}");
    let mut rng = Rng::new(all.seed);
    let create = |path: &str| Act::Create(path.into());
    let fill = |(path, value): (&str, u8)| Act::Write(path.into(), 0, BYTES, value);
    let begin = [Act::Mkdir("/one".into()), create(OLD.0), fill(OLD), create(PATH)];
    let change = [Act::Unlink(OLD.0.into()), create(NEW.0), fill(NEW)];
    for act in begin {
        perform(&volume, &act, true, &mut None).await.map_err(text)?;
    }
    for value in 1..=WRITES {
        if value == WRITES / 3 {
            for act in &change {
                perform(&volume, act, true, &mut None).await.map_err(text)?;
            }
        }
        let act = Act::Write(PATH.into(), 0, BYTES, value);
        perform(&volume, &act, true, &mut None).await.map_err(text)?;
        written.borrow_mut().push(all.env.now());
        if rng.one_in(5) {
            all.env.sleep(Nanos::from_millis(rng.below(700))).await;
        }
    }
    Ok(())
}

/// The inode at a path, which is held from now on; None: it is not there yet, or the follower
/// cannot tell.
async fn held(volume: &Rc<dyn Volume>, path: &str) -> Option<u32> {
    let mut ino = 2;
    for name in path.split('/').skip(1) {
        let request = Request::Lookup { dir: ino, name: name.as_bytes().to_vec() };
        let call = Call { hold: true, ..Call::local(request) };
        ino = crate::acts::ino_of(&volume.clone().call(call).await.result.ok()?)?;
    }
    Some(ino)
}

/// All of a file.
async fn read(volume: &Rc<dyn Volume>, ino: u32) -> Option<Vec<u8>> {
    let call = Call::local(Request::Read { ino, offset: 0, len: BYTES as u32 });
    match volume.clone().call(call).await.result {
        Ok(Reply::Data { data, .. }) => Some(data.parts().flat_map(<[u8]>::to_vec).collect()),
        _ => None,
    }
}

/// The value that an answer shows: 0 before the first was written. Each is written as a whole, so
/// that no moment shows a part of one.
fn of_one_moment(bytes: &[u8]) -> Result<u8, String> {
    let value = bytes.first().copied().unwrap_or(0);
    let whole = bytes.is_empty() || bytes.len() == BYTES;
    match whole && bytes.iter().all(|b| *b == value) {
        true => Ok(value),
        false => Err("broken: an answer comes from two moments".into()),
    }
}

/// Reads until the writer has ended. Errors: what was broken.
async fn follow(all: All, way: Rc<Machine>, written: Written) -> Result<u64, String> {
    let opened = open(&all, 1, way, options("follower", all.plant, Some(WITHIN))).await;
    let Ok(volume) = opened else { return Ok(0) }; // its network
    let mut rng = Rng::new(all.seed.wrapping_add(1));
    let (mut last, mut answers, mut old) = (0, 0, None);
    let end = all.env.now().plus(Nanos::from_secs(40));
    while all.env.now() < end && last < WRITES {
        all.env.sleep(Nanos::from_millis(rng.below(300))).await;
        if old.is_none() {
            old = held(&volume, OLD.0).await;
        } else if let Some(ino) = old
            && let Some(bytes) = read(&volume, ino).await
            && bytes.iter().any(|b| *b != OLD.1)
        {
            return Err("broken: a file that is held shows another one's bytes".into());
        }
        let Some(ino) = held(&volume, PATH).await else { continue };
        let Some(bytes) = read(&volume, ino).await else { continue };
        answers += 1;
        let value = of_one_moment(&bytes)?;
        let begun = written.borrow().len() + 1;
        if usize::from(value) > begun {
            return Err(format!("broken: {value}, and {begun} were begun"));
        }
        if value < last {
            return Err(format!("broken: {value} after {last}"));
        }
        let too_late = all.env.now().0.saturating_sub(WITHIN.0);
        let due = written.borrow().iter().filter(|at| at.0 < too_late).count();
        if usize::from(value) < due {
            return Err(format!("broken: {value}, and {due} was written {WITHIN:?} ago"));
        }
        last = value;
    }
    Ok(answers)
}

/// A writer and a follower, which is cut. On a network that is `calm` one that lives answers.
pub(crate) async fn both(
    all: All,
    cut: Option<(u64, sim::Cut)>,
    calm: bool,
) -> Result<u64, String> {
    let written = Written::default();
    let (one, way) = (all.clone(), all.bucket.machine(None));
    let into = written.clone();
    all.env.spawn("writer", async move {
        let _ = write(one, way, into).await; // its network may fail for ever
    });
    all.env.sleep(Nanos::from_millis(300)).await;
    let way = all.bucket.machine(cut);
    let (answers, seen) = (Rc::new(RefCell::new(None)), all.clone());
    let into = answers.clone();
    let mine = way.clone();
    all.env.spawn("follower", async move {
        let end = follow(seen, mine, written).await;
        into.borrow_mut().replace(end);
    });
    all.env.sleep(Nanos::from_secs(90)).await;
    match answers.borrow_mut().take() {
        None if way.is_killed() => Ok(0), // it has said nothing
        None => Err("broken: the follower comes to no end".into()),
        Some(Ok(0)) if calm && !way.is_killed() => Err("broken: the follower never answers".into()),
        Some(end) => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_write_is_of_no_moment() {
        assert_eq!(of_one_moment(&[]), Ok(0));
        assert_eq!(of_one_moment(&[7; BYTES]), Ok(7));
        assert!(of_one_moment(&[7; BYTES / 2]).is_err());
        let mut two = [7; BYTES];
        two[BYTES / 2..].fill(8);
        assert!(of_one_moment(&two).is_err());
    }
}

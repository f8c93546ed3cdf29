//! Random operations against the model: every answer, then the whole tree, must be equal. One seed
//! gives one run, and a digest of it that a second run must repeat.

use crate::acts::Act;
use crate::model::{Model, Node};
use crate::seen::{Paths, same_objects};
#[cfg(test)]
use crate::subject::Subject;
use env::Rng;
use vfs::Kind;

/// The volume's tree against the model's.
#[cfg(test)]
pub(crate) fn compare(v: &mut Subject, model: &Model) -> Result<(), String> {
    let seen = v.tree(true).map_err(|e| format!("reading the tree: {e}"))?;
    differs(&seen, model)
}

/// Says in what a tree differs from the model's; Ok: in nothing.
pub(crate) fn differs(seen: &Paths, model: &Model) -> Result<(), String> {
    let tree = model.tree();
    if !seen.keys().eq(tree.keys()) {
        let missing: Vec<_> = tree.keys().filter(|k| !seen.contains_key(*k)).collect();
        let extra: Vec<_> = seen.keys().filter(|k| !tree.contains_key(*k)).collect();
        return Err(format!("names missing {missing:?}, names too many {extra:?}"));
    }
    for (path, id) in &tree {
        let s = &seen[path];
        let same = match model.node(*id) {
            Node::Dir(_) => s.kind == Kind::Dir,
            Node::File(bytes) => s.kind == Kind::File && s.bytes == *bytes,
            Node::Whiteout => s.kind == Kind::Char,
            Node::Symlink(text) => s.kind == Kind::Symlink && s.bytes == text[..],
        };
        if !same {
            return Err(format!("{path} differs ({:?}, {} bytes)", s.kind, s.size));
        }
    }
    same_objects(tree.iter().map(|(path, id)| (path.as_str(), seen[path].ino, *id)))
}

/// A path: one that is there, mostly, or one that may not be.
fn path(rng: &mut Rng, model: &Model) -> String {
    let tree: Vec<String> = model.tree().into_keys().collect();
    if !tree.is_empty() && !rng.one_in(4) {
        return tree[rng.below(tree.len() as u64) as usize].clone();
    }
    let mut dirs: Vec<String> = tree.into_iter().filter(|p| p.matches('/').count() < 4).collect();
    dirs.push(String::new());
    let dir = &dirs[rng.below(dirs.len() as u64) as usize];
    let long =
        if rng.one_in(3) { "-with-a-name-that-is-rather-long-so-that-blocks-fill" } else { "" };
    format!("{dir}/n{}{long}", rng.below(40))
}

pub(crate) fn random_act(rng: &mut Rng, model: &Model) -> Act {
    let p = path(rng, model);
    match rng.below(26) {
        0..=4 => Act::Create(p),
        5..=6 => Act::Mkdir(p),
        7 => {
            let len = if rng.one_in(2) { 20 } else { 200 };
            Act::Symlink(p, "t".repeat(len))
        }
        8 => Act::Link(p, path(rng, model)),
        9..=10 => Act::Unlink(p),
        11 => Act::Rmdir(p),
        12..=13 => Act::Rename(p, path(rng, model)),
        14 => Act::Truncate(p, rng.below(40_000)),
        15..=19 => {
            let most = if rng.one_in(5) { 30_000 } else { 3000 };
            let len = 1 + rng.below(most) as usize;
            Act::Write(p, rng.below(30_000), len, rng.next_u64() as u8)
        }
        20 => Act::Fsync(p),
        21..=22 => Act::Fdatasync(p),
        23 => Act::Punch(p, rng.below(30_000), 1 + rng.below(8000)),
        24 => {
            Act::WriteSync(p, rng.below(30_000), 1 + rng.below(3000) as usize, rng.next_u64() as u8)
        }
        _ => Act::Sync,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Setting, new_disks};
    use integrity::Plant;
    use volume::Mode;

    /// A number that stands for a run: its answers and everything the disk was asked.
    type Digest = u64;

    /// Runs `count` random operations of this seed. Err: the first difference.
    fn random_run(mode: Mode, seed: u64, count: u64) -> Result<Digest, String> {
        let mut rng = Rng::new(seed);
        let mut model = Model::default();
        let mut v = Subject::open(
            new_disks(8 << 20, Setting::plain(mode)),
            Setting::plain(mode),
            false,
            (Plant::NONE, seed),
        )?;
        let mut digest = 0u64;
        for n in 0..count {
            let act = random_act(&mut rng, &model);
            let (want, done) = (model.clone().apply(&act), v.act_as_done(n, &act));
            let got = done.clone().map(drop);
            if got == Err(vfs::FsError::NoSpace) {
                continue; // the model's disk is larger
            }
            if want != got {
                return Err(format!("seed {seed}, {n}: {act:?}: model {want:?}, volume {got:?}"));
            }
            let _ = model.apply(done.as_ref().unwrap_or(&act));
            digest = digest.rotate_left(5) ^ u64::from(got.is_ok());
        }
        compare(&mut v, &model).map_err(|e| format!("seed {seed}: {e}"))?;
        for w in &v.world.trace.writes {
            let sum =
                w.bytes.iter().fold(w.at, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
            digest = digest.rotate_left(7) ^ sum;
        }
        Ok(digest)
    }

    fn modes() -> impl Iterator<Item = Mode> + Clone {
        Mode::all().map(|m| m.mode)
    }

    #[test]
    fn random_operations_are_the_models() {
        for mode in modes() {
            for seed in 0..6 {
                random_run(mode, seed, 400).unwrap();
            }
        }
    }

    #[test]
    fn one_seed_is_one_run() {
        for mode in modes() {
            let digest = random_run(mode, 5, 300).unwrap();
            assert_eq!(random_run(mode, 5, 300), Ok(digest), "{mode}");
        }
    }

    /// A million operations: `cargo test --release -p cairn-lab -- --ignored`.
    #[test]
    #[ignore = "minutes long"]
    fn a_million_random_operations() {
        for (seed, mode) in (100..600).zip(modes().cycle()) {
            random_run(mode, seed, 2000).unwrap();
        }
    }
}

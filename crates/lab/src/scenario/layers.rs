//! The upper layer of an overlay: names move and leave whiteouts, files are filled before they have
//! a name, others are cut after they have lost theirs, whiteouts are replaced. Modes without atomic
//! operations refuse whiteouts. The scripts say nothing of what may be lost.

use super::{Script, s};
use crate::acts::Act;
use crate::model::Model;
use env::Rng;

/// A script of this seed.
pub(super) fn layers(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let mut setup = vec![Act::Mkdir(s("/A")), Act::Mkdir(s("/B")), Act::Mkdir(s("/A/d2"))];
    for n in 0..3 {
        let path = format!("/{}/f{n}", if n == 1 { "B" } else { "A" });
        setup.push(Act::Create(path.clone()));
        setup.push(Act::Write(path, 0, 2000 + 3000 * n, 1 + n as u8));
    }
    setup.push(Act::Sync);
    let mut model = Model::default();
    for act in &setup {
        let _ = model.apply(act);
    }
    let mut acts = Vec::new();
    while acts.len() < 16 {
        let name = |rng: &mut Rng| {
            let long = if rng.one_in(4) { "-that-is-long-enough-to-fill-a-block" } else { "" };
            format!("/{}/f{}{long}", ["A", "B"][rng.below(2) as usize], rng.below(6))
        };
        let (a, b) = (name(&mut rng), name(&mut rng));
        let act = match rng.below(10) {
            0..=3 => Act::Whiteout(a, b),
            4..=6 => Act::Emerge(a, 1 + rng.below(9000) as usize, rng.next_u64() as u8),
            7 => Act::Whiteout(s("/A/d2"), s("/B/d3")),
            8 if rng.one_in(2) => {
                let size = model.file_bytes(&a).unwrap_or(0);
                Act::Vanish(a, rng.below(size + 1))
            }
            8 => Act::Rename(a, b),
            _ => Act::Fsync(a),
        };
        // What is read and synced are files.
        let is_whiteout =
            |p: &str| model.find(p).is_ok_and(|i| *model.node(i) == crate::model::Node::Whiteout);
        let syncs_none = matches!(&act, Act::Fsync(p) if is_whiteout(p));
        if !syncs_none && model.apply(&act).is_ok() {
            acts.push(act);
        }
    }
    Script::new(setup, acts)
}

//! Images in which a field has a value that means something else: whatever the check says can be
//! repaired, e2fsck accepts afterwards. MUTATIONS: how many of each image and kind; FROM: the first
//! of them; SEED: one of them alone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::fields::{ALL, Fields};
use crate::common::rounds::Rounds;
use crate::common::{Scratch, check_both, e2fsck, indexed, made};
use check::{CheckError, Options};

const OPTIONS: Options = Options { now_secs: 1_900_000_000, verify: true, mark_clean: true };

fn images() -> Vec<(&'static str, Vec<u8>)> {
    let m = 1 << 20;
    let small = made(&["-t", "ext2", "-I", "128", "-g", "4096"], 1024, 9 * m);
    vec![
        ("ext3", made(&["-t", "ext3", "-I", "256", "-J", "size=1"], 1024, 11 * m)),
        ("large", made(&["-t", "ext3", "-I", "256", "-J", "size=4"], 4096, 24 * m)),
        ("indexed", indexed(&Scratch::new("fields"), &small)),
        (
            "no growth",
            made(&["-t", "ext3", "-I", "128", "-J", "size=4", "-O", "^resize_inode"], 4096, 20 * m),
        ),
    ]
}

#[test]
fn what_is_repaired_e2fsck_accepts() {
    let s = Scratch::new("mutated");
    let rounds = Rounds::asked(6);
    let (mut bad, mut judged) = (Vec::new(), 0u64);
    for (n, (name, image)) in images().into_iter().enumerate() {
        let fields = Fields::of(&image);
        for (k, of) in ALL.into_iter().enumerate() {
            for (seed, mut c) in rounds.seeds(n, k) {
                let mut broken = image.clone();
                let mut what = fields.mutate(&mut broken, of, &mut c);
                // One in three has a second fault elsewhere.
                if c.below(3) == 0 {
                    let other = c.pick(&ALL);
                    what += &format!("; {}", fields.mutate(&mut broken, other, &mut c));
                }
                let report = match check_both(&broken, &OPTIONS) {
                    Ok(r) => r,
                    // Refused, or to be replayed first: nothing is called repaired.
                    Err(
                        CheckError::Format(_)
                        | CheckError::NeedsRecovery
                        | CheckError::CutShort { .. },
                    ) => continue,
                    Err(e) => panic!("{name}: {what}: {e}"),
                };
                judged += 1;
                let found: Vec<String> =
                    report.findings.iter().take(8).map(ToString::to_string).collect();
                report.plan.apply(&mut broken, &mut ()).unwrap();
                let (code, text) = e2fsck(&s, &broken);
                if code != 0 || !report.left.is_empty() {
                    let left = report.left.first().map(ToString::to_string);
                    let place = format!("{name}, {of:?}, SEED={seed}: {what}");
                    let ours = format!("found {found:#?}\n  left {left:?}");
                    bad.push(format!("{place}\n  {ours}\n  e2fsck {text}"));
                }
            }
        }
    }
    assert!(rounds.only.is_some() || judged > rounds.count * 12, "only {judged} were judged");
    assert!(bad.is_empty(), "{} of {judged}\n{}", bad.len(), bad[..bad.len().min(40)].join("\n"));
}

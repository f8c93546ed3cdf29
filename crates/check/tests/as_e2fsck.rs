//! What e2fsck keeps of a damaged image a repair keeps, too: every file whose contents e2fsck
//! leaves whole, under its name or in lost+found, is whole after ours. Which fields are damaged is
//! `common::wide`'s.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::asked::{OPTIONS, files};
use crate::common::rounds::Rounds;
use crate::common::wide::{Layout, Of, made4};
use crate::common::{Scratch, check_both, e2fsck, tool};
use check::CheckError;
use std::collections::BTreeMap;
use std::path::Path;

const M: u64 = 1 << 20;

fn images() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("1K", made4(&["-J", "size=1"], 1024, 20 * M)),
        ("4K, ea_inode", made4(&["-J", "size=4", "-O", "ea_inode"], 4096, 40 * M)),
        ("1K, no sums", made4(&["-J", "size=1", "-O", "^metadata_csum"], 1024, 20 * M)),
        ("1K, maps", made4(&["-J", "size=1", "-O", "^extents,^64bit"], 1024, 20 * M)),
        ("1K, inline", made4(&["-J", "size=1", "-O", "inline_data"], 1024, 20 * M)),
        ("4K, orphans", made4(&["-J", "size=4", "-O", "orphan_file"], 4096, 40 * M)),
    ]
}

/// The image after `e2fsck -fy`; None: it could not repair it.
fn by_e2fsck(s: &Scratch, image: &[u8]) -> Option<Vec<u8>> {
    let img = s.path("theirs.img");
    std::fs::write(&img, image).unwrap();
    for _ in 0..2 {
        let run = ["20", "/usr/sbin/e2fsck", "-fy"];
        let out = tool("timeout").args(run).arg(&img).output().unwrap();
        if !matches!(out.status.code(), Some(0..=3)) {
            return None;
        }
    }
    Some(std::fs::read(&img).unwrap())
}

/// Files of these that are whole in an image: under their names, or under another one.
fn whole(of: &BTreeMap<String, Vec<u8>>, there: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let contents: std::collections::BTreeSet<&Vec<u8>> = there.values().collect();
    let kept = |(path, bytes): &(&String, &Vec<u8>)| {
        there.get(*path) == Some(bytes) || bytes.len() > 60 && contents.contains(bytes)
    };
    of.iter().filter(kept).map(|(path, _)| path.clone()).collect()
}

/// What is wrong with what ours keeps of a damaged image.
fn judge(s: &Scratch, sound: &BTreeMap<String, Vec<u8>>, broken: &Vec<u8>) -> Option<String> {
    let theirs = by_e2fsck(s, broken)?;
    let report = match check_both(broken, &OPTIONS) {
        Ok(r) => r,
        // Nothing is changed.
        Err(CheckError::Format(e)) => return Some(format!("refused: {e}")),
        Err(CheckError::NeedsRecovery | CheckError::CutShort { .. }) => return None,
        Err(e) => return Some(e.to_string()),
    };
    let found: Vec<String> = report.findings.iter().take(12).map(ToString::to_string).collect();
    if let Some(left) = report.left.first() {
        return Some(format!("{found:#?}\nleft: {left}"));
    }
    let mut ours = broken.clone();
    report.plan.apply(&mut ours, &mut ()).unwrap();
    let (code, text) = e2fsck(s, &ours);
    if code != 0 {
        return Some(format!("{found:#?}\ne2fsck: {text}"));
    }
    let theirs = whole(sound, &files(s, &theirs, "theirs"));
    let ours = whole(sound, &files(s, &ours, "ours"));
    let lost: Vec<&String> = theirs.iter().filter(|f| !ours.contains(f)).collect();
    (!lost.is_empty())
        .then(|| format!("{found:#?}\n{} lost: {:?}", lost.len(), &lost[..lost.len().min(5)]))
}

#[test]
fn what_e2fsck_keeps_is_kept() {
    let s = Scratch::new("as-e2fsck");
    let rounds = Rounds::asked(1);
    let (mut bad, mut judged) = (Vec::new(), 0);
    let kinds =
        [Of::Superblock, Of::Desc, Of::Inode, Of::Root, Of::Extents, Of::Entry, Of::Attributes];
    for (n, (name, image)) in images().into_iter().enumerate() {
        let (layout, sound) = (Layout::of(&image), files(&s, &image, "sound"));
        assert!(sound.len() > 200, "{name}: {} files", sound.len());
        for (k, of) in kinds.into_iter().enumerate() {
            for (seed, mut c) in rounds.seeds(n + 20, k) {
                let mut broken = image.clone();
                let what = layout.mutate(&mut broken, of, c.below(3) > 0, &mut c);
                judged += 1;
                if let Some(why) = judge(&s, &sound, &broken) {
                    bad.push(format!("{name}, {of:?}, SEED={seed}: {what}\n  {why}"));
                    if rounds.only.is_some() {
                        std::fs::write(Path::new("/dev/shm/d4-broken.img"), &broken).unwrap();
                    }
                }
            }
        }
    }
    assert!(bad.is_empty(), "{} of {judged}\n{}", bad.len(), bad[..bad.len().min(40)].join("\n"));
}

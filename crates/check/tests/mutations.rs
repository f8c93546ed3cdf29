//! Damaged images: our verdict against e2fsck's, and e2fsck's verdict on what we have repaired.
//! Every failure names the image, the seed and what was damaged, so that it can be run again alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{
    Chance, Metadata, Scratch, check_both, damage, e2fsck, indexed, made, metadata,
};
use check::{Options, Report};

const OPTIONS: Options = Options { now_secs: 1_900_000_000, verify: true, mark_clean: true };

fn run(image: &Vec<u8>) -> Result<Report, check::CheckError> {
    check_both(image, &OPTIONS)
}

fn repaired(image: &[u8], report: &Report) -> Vec<u8> {
    let mut out = image.to_vec();
    report.plan.apply(&mut out, &mut ()).unwrap();
    out
}

fn lines(findings: &[check::Finding]) -> String {
    let shown = findings.iter().take(20).map(|f| format!("    {f}\n"));
    shown
        .chain((findings.len() > 20).then(|| format!("    … {} in all\n", findings.len())))
        .collect()
}

fn images() -> Vec<(&'static str, Vec<u8>)> {
    let m = 1 << 20;
    let small = made(&["-t", "ext2", "-I", "128"], 1024, 10 * m);
    vec![
        ("indexed 1k/128", indexed(&Scratch::new("index"), &small)),
        ("ext3 1k/256", made(&["-t", "ext3", "-I", "256"], 1024, 24 * m)),
        ("ext2 1k/128", made(&["-t", "ext2", "-I", "128", "-g", "2048"], 1024, 10 * m)),
        ("ext2 4k/256", made(&["-t", "ext2", "-I", "256"], 4096, 24 * m)),
        (
            "ext2 2k/128 plain",
            made(&["-t", "ext2", "-I", "128", "-O", "^resize_inode"], 2048, 16 * m),
        ),
    ]
}

/// How many damages of each image: a few by default, thousands with MUTATIONS set.
fn rounds() -> u64 {
    crate::common::rounds::number("MUTATIONS").unwrap_or(60)
}

fn ranges(m: &Metadata, c: &mut Chance) -> (&'static str, Vec<(usize, usize)>) {
    let all: [(&str, &Vec<(usize, usize)>); 6] = [
        ("descs", &m.descs),
        ("bitmaps", &m.bitmaps),
        ("inodes", &m.inodes),
        ("dirs", &m.dirs),
        ("indirect", &m.indirect),
        ("xattrs", &m.xattrs),
    ];
    loop {
        let (name, of) = c.pick(&[0, 1, 2, 2, 2, 3, 3, 3, 4, 5].map(|i: usize| all[i]));
        if !of.is_empty() {
            return (name, of.clone());
        }
    }
}

#[test]
fn sound_images_are_sound() {
    let s = Scratch::new("sound");
    for (name, image) in images() {
        let report = run(&image).unwrap();
        assert!(report.is_sound(), "{name}: {:#?}", report.findings);
        assert!(report.plan.is_empty(), "{name}: the plan is not empty");
        assert_eq!(e2fsck(&s, &image).0, 0, "{name}");
    }
}

#[test]
fn what_we_repair_e2fsck_accepts() {
    let s = Scratch::new("repair");
    let only = crate::common::rounds::number("SEED");
    let (mut bad, mut missed) = (Vec::new(), Vec::new());
    let (mut judged, mut damaged) = (0, 0);
    for (name, image) in images() {
        let m = metadata(&image);
        let base = name.bytes().map(u64::from).sum::<u64>() << 32;
        for n in 0..rounds() {
            let seed = base + n;
            let image_only = std::env::var("IMAGE").ok();
            if only.is_some_and(|o| o != seed) || image_only.is_some_and(|i| !name.contains(&i)) {
                continue;
            }
            let mut c = Chance(seed * 2 + 1);
            c.next();
            let mut broken = image.clone();
            let mut what = String::new();
            for _ in 0..=c.below(3) {
                let (kind, ranges) = ranges(&m, &mut c);
                what += &format!("{kind}: {}; ", damage(&mut broken, &ranges, &m, &mut c));
            }
            let place = format!("{name}, seed {seed}: {what}");
            let report = match run(&broken) {
                Ok(r) => r,
                Err(e) => {
                    bad.push(format!("{place}\n  refused: {e}"));
                    continue;
                }
            };
            judged += 1;
            let before = e2fsck(&s, &broken);
            damaged += u64::from(before.0 != 0);
            if before.0 != 0 && report.is_sound() {
                missed.push(format!("{place}\n{}", before.1));
            }
            let after = repaired(&broken, &report);
            let verdict = e2fsck(&s, &after);
            if verdict.0 != 0 || !report.left.is_empty() {
                if only.is_some() {
                    std::fs::write("/tmp/broken.img", &broken).unwrap();
                    std::fs::write("/tmp/after.img", &after).unwrap();
                }
                bad.push(format!(
                    "{place}\n  found:\n{}  left:\n{}  e2fsck before: {}\n  e2fsck after: {}",
                    lines(&report.findings),
                    lines(&report.left),
                    before.1,
                    verdict.1
                ));
            }
        }
    }
    assert!(only.is_some() || damaged * 2 > judged, "only {damaged} of {judged} were damaged");
    let report = format!("{} bad, {} missed of {judged}", bad.len(), missed.len());
    assert!(bad.is_empty(), "{report}\n{}", bad[..bad.len().min(3)].join("\n"));
    assert!(missed.is_empty(), "{report}\n{}", missed[..missed.len().min(5)].join("\n"));
}

#[test]
fn new_volumes_of_ours_are_sound() {
    use format::mkfs::{MkfsOptions, Plan, Profile};
    for (mib, block, inode, profile) in [
        (6, 1024, 256, Profile::Ext3),
        (2, 1024, 128, Profile::Ext2),
        (140, 4096, 256, Profile::Ext3),
        (40, 2048, 128, Profile::Ext3),
    ] {
        let options = MkfsOptions {
            block_bytes: block,
            inode_bytes: inode,
            ..MkfsOptions::plain(mib << 20, profile)
        };
        let mut image = vec![0; (mib << 20) as usize];
        let plan = Plan::new(&options).unwrap();
        plan.each_block(|b, bytes| {
            image[b.0 as usize * block..][..block].copy_from_slice(bytes);
            Ok::<(), ()>(())
        })
        .unwrap();
        let report = run(&image).unwrap();
        assert!(report.is_sound(), "{mib} MiB: {}", lines(&report.findings));
        assert!(report.marked_clean && report.plan.is_empty());
    }
}

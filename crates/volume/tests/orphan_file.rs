//! A volume whose orphan file lists something, as Linux leaves every one with such a file after a
//! crash: it is finished before the volume is opened for writing, and by recovery alone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use format::bytes::{le32, set32};
use format::ext::Superblock;
use format::ext::features::ro_compat::ORPHAN_PRESENT;
use sim::{CrashImages, Image, World, block_on};
use std::path::PathBuf;
use std::process::Command;
use vfs::{Call, MakeKind, Request, SetAttr};
use volume::{Ground, Mode, OpenOptions};

const BYTES: u64 = 8 << 20;
const BS: usize = 1024;

fn run(name: &str, args: &[&str], img: &PathBuf) -> (bool, String) {
    let sbin = PathBuf::from("/usr/sbin").join(name);
    let program = if sbin.exists() { sbin } else { name.into() };
    let out = Command::new(program).args(args).arg(img).output().unwrap();
    (out.status.success(), String::from_utf8_lossy(&out.stdout).into_owned())
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("cairn-orphan-file-{name}-{}", std::process::id()))
}

/// A volume with a file that has lost its last name and is listed.
fn made() -> Image {
    let (img, text) = (scratch("made"), scratch("text"));
    std::fs::write(&text, vec![7; 100 * BS]).unwrap();
    std::fs::File::create(&img).unwrap().set_len(BYTES).unwrap();
    let block = BS.to_string();
    let features = "orphan_file,^metadata_csum";
    let args = ["-q", "-F", "-t", "ext4", "-b", &block, "-J", "size=1", "-O", features];
    assert!(run("mke2fs", &args, &img).0);
    assert!(run("debugfs", &["-w", "-R", &format!("write {} gone", text.display())], &img).0);
    let told = run("debugfs", &["-R", "stat gone"], &img).1;
    let gone: u32 = told.split_whitespace().nth(1).unwrap().parse().unwrap();
    run("debugfs", &["-w", "-R", "sif gone links_count 0"], &img);
    run("debugfs", &["-w", "-R", "unlink gone"], &img);
    let mut bytes = std::fs::read(&img).unwrap();
    let mut sb = Superblock::decode(&bytes[1024..2048]).unwrap();
    let bmap = format!("bmap <{}> 0", sb.orphan_file());
    let block: usize = run("debugfs", &["-R", &bmap], &img).1.trim().parse().unwrap();
    assert_eq!(le32(&bytes, block * BS), 0);
    set32(&mut bytes, block * BS, gone);
    sb.set_ro_compat(sb.ro_compat() | ORPHAN_PRESENT);
    bytes[1024..2048].copy_from_slice(sb.bytes());
    std::fs::write(&img, &bytes).unwrap();
    std::fs::remove_file(&img).unwrap();
    std::fs::remove_file(&text).unwrap();
    let mut image = Image::new(BYTES);
    image.write(0, &bytes);
    image
}

/// What is durable after a run on it, as e2fsck judges it.
fn judged(world: &World, base: &Image) -> (bool, String) {
    let mut images = CrashImages::new(&world.trace, base);
    while images.step().is_some() {}
    let (mut bytes, img) = (vec![0; BYTES as usize], scratch("judged"));
    images.image(0).read(0, &mut bytes);
    assert!(!Superblock::decode(&bytes[1024..2048]).unwrap().lists_orphans());
    std::fs::write(&img, bytes).unwrap();
    let judged = run("e2fsck", &["-fn"], &img);
    std::fs::remove_file(&img).unwrap();
    judged
}

#[test]
fn what_the_orphan_file_lists_is_finished_and_then_the_volume_is_written() {
    let base = made();
    for opens in [true, false] {
        let mut world = World::new(base.clone());
        block_on(&mut world, |env, _| async move {
            let ground = Ground::alone(env, BYTES, None);
            let options = OpenOptions::plain(Mode::Ordered, 4 << 20, [3; 16]);
            if !opens {
                assert!(volume::recover(&ground, &options).await.unwrap().repaired > 0);
                return;
            }
            let v = volume::open_on(ground, options).await.unwrap();
            let make = Request::Make {
                dir: 2,
                name: "new".into(),
                kind: MakeKind::File { exclusive: None },
                attr: SetAttr::default(),
                fail_if_exists: true,
                umask: 0,
            };
            v.clone().call(Call::local(make)).await.result.unwrap();
            v.close().await.unwrap();
        });
        let (sound, told) = judged(&world, &base);
        assert!(sound, "opens: {opens}\n{told}");
    }
}

/// A power cut while it is finished: whoever opens the volume next goes on with that.
#[test]
fn what_the_orphan_file_lists_is_finished_after_a_cut_in_the_middle_of_that() {
    let recovered = |world: &mut World| {
        block_on(world, |env, _| async move {
            let options = OpenOptions::plain(Mode::Ordered, 4 << 20, [3; 16]);
            volume::recover(&Ground::alone(env, BYTES, None), &options).await
        })
    };
    let base = made();
    let mut world = World::new(base.clone());
    recovered(&mut world).unwrap();
    let (mut images, mut states) = (CrashImages::new(&world.trace, &base), 0);
    loop {
        for n in 0..images.variants(1) {
            let left = images.image(n);
            let mut again = World::new(left.clone());
            let done = recovered(&mut again);
            assert!(done.is_ok(), "variant {n} behind {states} others: {done:?}");
            states += 1;
            if states % 8 == 1 {
                let (sound, told) = judged(&again, &left);
                assert!(sound, "variant {n} behind {states} others: {told}");
            }
        }
        if images.step().is_none() {
            break;
        }
    }
    assert!(states > 10, "only {states} states");
}

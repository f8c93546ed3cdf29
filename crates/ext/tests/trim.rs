//! Trimming: what was freed and cannot be told to the disk yet is told the next time, and no
//! minimum is longer than what a request discards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{ROOT, Vol, World, options};
use format::mkfs::Profile;
use mechanisms::Mode;
use ufs::store::Space;
use vfs::{Reply, Request};

fn trim(min_bytes: u64) -> Request {
    Request::Trim { from: 0, bytes: u64::MAX, min_bytes }
}

fn trimmed(w: &mut World, v: &Vol, min_bytes: u64) -> u64 {
    match w.call(v, trim(min_bytes)).unwrap() {
        Reply::Trimmed(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// A volume of eight groups, with a file in each of some directories, so in several groups.
fn with_files(w: &mut World) -> Vol {
    let v = w.open(Mode::SoftUpdates);
    for n in 0..8 {
        let d = w.dir(&v, ROOT, &format!("d{n}"));
        let f = w.file(&v, d, "f");
        w.write(&v, f, 0, &[n; 300_000]).unwrap();
    }
    w.sync(&v).unwrap();
    v
}

#[test]
fn what_was_freed_is_found_by_itself_when_it_may_be_used_again() {
    let mut w = World::mkfs(&options(64 << 20, 1024, 128, Profile::Ext2));
    let v = with_files(&mut w);
    let freed = |w: &mut World, v: &Vol| {
        let ext = v.ext.clone();
        w.run(|_| async move { ext.trim_freed(16, &|| false).await }).unwrap()
    };
    assert_eq!(freed(&mut w, &v), 0, "nothing was freed yet");
    let d = w.lookup(&v, ROOT, "d3");
    let f = w.lookup(&v, d, "f");
    w.resize(&v, f, 0).unwrap();
    let early = freed(&mut w, &v);
    w.sync(&v).unwrap();
    // Runs that long there are none: this does not take what shorter ones are told of.
    assert_eq!(trimmed(&mut w, &v, 60 << 20), 0);
    let late = freed(&mut w, &v);
    // What was free before is told again, with it.
    assert!(late >= early + 290, "{early} blocks early, {late} late");
    assert_eq!(freed(&mut w, &v), 0, "all of it is known");
    w.close_and_judge(v, "trimming");
}

#[test]
fn runs_longer_than_a_request_are_long_enough_for_any_minimum() {
    let mut w = World::mkfs(&options(256 << 20, 4096, 256, Profile::Ext2));
    let v = w.open(Mode::Sync);
    assert!(trimmed(&mut w, &v, 100 << 20) > 60 << 20);
    w.close_and_judge(v, "trimming");
}

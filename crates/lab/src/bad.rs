//! Bad disks and bad images: a device that fails, and volumes whose bytes are damaged at random.
//! Nothing may panic, and after a failed write nothing may pretend to be durable.

#[cfg(test)]
mod tests {
    use crate::acts::Act;
    use crate::model::Model;
    use crate::random::random_act;
    use crate::subject::{Setting, SimDevice, Subject, fresh};
    use env::Rng;
    use integrity::Plant;
    use sim::{Fault, Image};
    use vfs::{Call, FsError, Request};
    use volume::Mode;

    fn open(disk: Image, mode: Mode) -> Subject {
        Subject::open(vec![disk], Setting::plain(mode), false, (Plant::NONE, 3)).unwrap()
    }

    /// A volume with something in it, closed by time passing.
    fn populated(seed: u64) -> (Image, Model) {
        let mut rng = Rng::new(seed);
        let mut model = Model::default();
        let mut v = open(fresh(2 << 20, false), Mode::Sync);
        for n in 0..60 {
            let act = random_act(&mut rng, &model);
            if let Ok(done) = v.act_as_done(n, &act) {
                model.apply(&done).unwrap();
            }
        }
        v.act(99, &Act::Sync).unwrap();
        (v.world.disk.clone(), model)
    }

    /// Nothing begins after a failure, and nothing is acknowledged: I6 of
    /// crates/mechanisms/src/ffs/mod.rs, J9 of crates/mechanisms/src/jbd2/mod.rs, and I8 of
    /// crates/mechanisms/src/redo/mod.rs and crates/mechanisms/src/soft_updates/mod.rs.
    #[test]
    fn after_a_failed_write_or_flush_nothing_is_durable_and_reads_go_on() {
        let journals = [Mode::Ordered, Mode::Writeback, Mode::Data, Mode::Wasteless];
        let logs = [Mode::Selective, Mode::Redo, Mode::Unified];
        let in_place = [Mode::Sync, Mode::Async, Mode::SoftUpdates];
        for mode in in_place.into_iter().chain(journals).chain(logs) {
            for n in 0..12 {
                for fault in [Fault::Write(n), Fault::Flush(n)] {
                    let journal = mode.is_atomic();
                    let mut v = open(fresh(3 << 20, journal), mode);
                    v.act(0, &Act::Create("/before".into())).unwrap();
                    let past = v.world.counts;
                    v.world.set_fault(match fault {
                        Fault::Write(n) => Fault::Write(past[1] + n),
                        _ => Fault::Flush(past[2] + n),
                    });
                    let mut failed = false;
                    for i in 0..40 {
                        let path = format!("/f{i}");
                        let made = v.act(10, &Act::Create(path.clone()));
                        let wrote = v.act(11, &Act::Write(path.clone(), 0, 5000, 1));
                        let synced = v.act(12, &Act::Fsync(path));
                        let ok = made.is_ok() && wrote.is_ok() && synced.is_ok();
                        assert!(!(failed && synced.is_ok()), "{mode} {fault:?}: fsync after it");
                        failed |= !ok;
                    }
                    assert!(failed, "{mode} {fault:?} was not noticed");
                    assert!(v.walk("/before").is_ok(), "{mode} {fault:?}: reads stop");
                    let late = v.act(13, &Act::Create("/late".into()));
                    assert!(matches!(late, Err(FsError::ReadOnly | FsError::Io)), "{late:?}");
                }
            }
        }
    }

    /// What is freed may be used at once, as far as anybody can see.
    #[test]
    fn a_full_volume_has_room_for_what_was_just_removed() {
        for mode in volume::MODES.iter().map(|m| m.mode) {
            let mut v = open(fresh(3 << 20, mode.is_atomic()), mode);
            let mut files = 0;
            let full = loop {
                let path = format!("/f{files}");
                let made = v.act(10, &Act::Create(path.clone()));
                let wrote = made.and_then(|_| v.act(11, &Act::Write(path, 0, 50_000, 1)));
                files += 1;
                if let Err(e) = wrote {
                    break e;
                }
            };
            assert_eq!((full, files > 20), (FsError::NoSpace, true), "{mode}: {files} files");
            for round in 0..3 {
                for n in 0..10 {
                    v.act(12, &Act::Unlink(format!("/f{n}"))).unwrap();
                }
                for n in 0..10 {
                    let path = format!("/f{n}");
                    v.act(13, &Act::Create(path.clone())).unwrap();
                    let wrote = v.act(14, &Act::Write(path, 0, 40_000, 2));
                    assert_eq!(wrote.map(drop), Ok(()), "{mode}, round {round}, file {n}");
                }
            }
        }
    }

    /// The disk fails while transactions are written back: what was acknowledged is in the journal
    /// still.
    #[test]
    fn a_write_in_place_that_fails_loses_nothing_that_was_acknowledged() {
        let mut in_place = 0;
        for mode in [Mode::Ordered, Mode::Data, Mode::Wasteless, Mode::Redo, Mode::Unified] {
            for n in (0..24).map(|n| 100 + 61 * n) {
                let mut v = open(fresh(3 << 20, true), mode);
                v.world.set_fault(Fault::Write(v.world.counts[1] + n));
                let (mut acked, mut tried) = (Vec::new(), (String::new(), 0));
                for i in 0..400u32 {
                    let path = format!("/f{}", i % 7);
                    let byte = 1 + (i % 150) as u8;
                    let _ = v.act(10, &Act::Create(path.clone()));
                    tried = (path.clone(), byte);
                    let wrote = v.act(11, &Act::Write(path.clone(), 0, 3000, byte));
                    if wrote.is_err() || v.act(12, &Act::Fsync(path.clone())).is_err() {
                        break;
                    }
                    acked.retain(|(p, _)| *p != path);
                    acked.push((path, byte));
                }
                let broken = v.act(13, &Act::Fsync("/f0".into())).is_err();
                in_place += u32::from(broken && acked.len() == 7);
                let mut disks = [v.world.disk.clone()];
                crate::subject::recover(&mut disks, crate::setting::JUDGED_SECS).unwrap();
                let mut again = open(disks[0].clone(), mode);
                let tree = again.tree(true).unwrap();
                for (path, byte) in acked {
                    let seen = &tree[&path].bytes;
                    // The write that failed may have been over it.
                    let fits = |b: u8| b == byte || (b == tried.1 && path == tried.0);
                    let written: Vec<u8> = seen.written().map(|(_, b)| b).collect();
                    let whole = seen.len() == 3000 && written.len() == 3000;
                    assert!(whole && written.into_iter().all(fits), "{mode} {n}: {path}");
                }
            }
        }
        assert!(in_place > 20, "the disk failed too early or never: {in_place}");
    }

    fn assert_sound(disk: Image, (mode, seed): (Mode, u64)) {
        let options = check::Options { now_secs: 1_700_000_000, verify: false, mark_clean: false };
        let report = check::check(&SimDevice(disk), &options, &mut ()).unwrap();
        let first = report.findings.first();
        assert!(first.is_none(), "{mode}, seed {seed}: {}", first.unwrap());
    }

    #[test]
    fn a_file_whose_blocks_all_have_maps_of_their_own_can_be_punched_and_cut() {
        const PIECES: u64 = 1200;
        for mode in [Mode::Ordered, Mode::Data, Mode::Wasteless, Mode::Redo, Mode::Unified] {
            let whole = || Act::Truncate("/f".into(), 0);
            let punch = || Act::Punch("/f".into(), 0, (PIECES + 1) << 18);
            for last in [punch, whole] {
                let mut v = open(fresh(8 << 20, true), mode);
                v.act(0, &Act::Create("/f".into())).unwrap();
                for i in 1..=PIECES {
                    v.act(1, &Act::Write("/f".into(), i << 18, 1024, 7)).unwrap();
                }
                v.act(2, &Act::Sync).unwrap();
                v.act(3, &last()).unwrap();
                let synced = v.act(4, &Act::Sync);
                assert_eq!(synced, Ok(()), "{mode}: more in one transaction than the log holds");
                assert_sound(v.close().unwrap().swap_remove(0), (mode, 3));
            }
        }
    }

    /// A caller that waits for an inode's lock while the inode is freed, and its number given to a
    /// new file, has to hear that it is gone: what it writes must never be in the new file.
    #[test]
    fn what_is_asked_of_a_file_that_goes_meanwhile_never_reaches_another() {
        for mode in volume::MODES.iter().map(|m| m.mode) {
            for seed in 0..40 {
                let setting = Setting::plain(mode);
                let disks = crate::subject::new_disks(3 << 20, setting);
                let mut v = Subject::open(disks, setting, false, (Plant::NONE, seed)).unwrap();
                v.act(0, &Act::Create("/old".into())).unwrap();
                v.act(0, &Act::Write("/old".into(), 0, 9000, 1)).unwrap();
                v.act(0, &Act::Sync).unwrap();
                let old = v.walk("/old").unwrap();
                let requests = vec![
                    Act::Truncate("/old".into(), 5000).request(&[old]),
                    Act::Unlink("/old".into()).request(&[2]),
                    Act::Create("/new".into()).request(&[2]),
                    Act::Write("/old".into(), 0, 700, 9).request(&[old]),
                    Act::Punch("/old".into(), 0, 1).request(&[old]),
                    Act::Truncate("/old".into(), 3).request(&[old]),
                ];
                let task = |r: Request| -> crate::subject::Task {
                    Box::new(|_, volume| {
                        Box::pin(async move {
                            let _ = volume.call(Call::local(r)).await; // it may be gone
                            Ok(())
                        })
                    })
                };
                v.together(requests.into_iter().map(task).collect()).unwrap();
                let tree = v.tree(true).unwrap();
                let new = tree.get("/new").map_or(0, |s| s.bytes.len());
                assert_eq!(new, 0, "{mode}, seed {seed}: bytes of another file");
                assert_sound(v.close().unwrap().swap_remove(0), (mode, seed));
            }
        }
    }

    /// Whoever closes a volume waits for the calls under way, and then reclaims what they left
    /// without a name: marked clean, it has to be.
    #[test]
    fn closed_while_callers_are_busy_it_is_sound() {
        for (n, mode) in volume::MODES.iter().map(|m| m.mode).cycle().take(45).enumerate() {
            let seed = 2 * n as u64 + 1; // an odd one: writes take their time
            let setting = Setting::plain(mode);
            let disks = crate::subject::new_disks(3 << 20, setting);
            let mut v = Subject::open(disks, setting, false, (Plant::NONE, seed)).unwrap();
            let mut tasks: Vec<crate::subject::Task> = Vec::new();
            for caller in 0..6u64 {
                let path = format!("/f{caller}");
                v.act(0, &Act::Create(path.clone())).unwrap();
                let ino = v.walk(&path).unwrap();
                tasks.push(Box::new(move |_, volume| {
                    Box::pin(async move {
                        for n in 0..500u64 {
                            let fresh = format!("/g{caller}-{n}");
                            for r in [
                                Act::Write(path.clone(), n * 700, 3000, 7).request(&[ino]),
                                Act::Create(fresh.clone()).request(&[2]),
                                Act::Unlink(fresh).request(&[2]),
                                Act::Truncate(path.clone(), 100).request(&[ino]),
                                Act::Fsync(path.clone()).request(&[ino]),
                            ] {
                                // As the kernel does, it holds what it has looked up.
                                let call = Call { hold: true, ..Call::local(r) };
                                let answer = volume.clone().call(call).await;
                                if matches!(answer.result, Err(FsError::Stale)) {
                                    return Ok(());
                                }
                            }
                        }
                        Ok(())
                    })
                }));
            }
            tasks.push(Box::new(move |env, volume| {
                Box::pin(async move {
                    env.sleep(env::Nanos::from_micros(50 * seed)).await;
                    volume.close().await
                })
            }));
            v.together(tasks).unwrap();
            assert_sound(v.disks().swap_remove(0), (mode, seed));
        }
    }

    /// Opens it if it opens, reads everything, and tries to change it.
    fn use_anyhow(image: Image, seed: u64) {
        let opened =
            Subject::open(vec![image], Setting::plain(Mode::Sync), false, (Plant::NONE, seed));
        let Ok(mut v) = opened else { return };
        let _ = v.tree(true);
        let mut rng = Rng::new(seed);
        let model = Model::default();
        for n in 0..30 {
            let _ = v.act(n, &random_act(&mut rng, &model));
        }
    }

    #[test]
    fn damaged_images_never_panic() {
        let seeds = std::env::var("BAD_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
        for seed in 0..seeds {
            let (image, _) = populated(seed % 5);
            let mut rng = Rng::new(1000 + seed);
            let mut bad = image.clone();
            for _ in 0..1 + rng.below(20) {
                // Mostly where the metadata are: the first 300 KiB.
                let at = if rng.one_in(4) { rng.below(image.size()) } else { rng.below(300 << 10) };
                let mut b = [0];
                bad.read(at, &mut b);
                b[0] = if rng.one_in(2) { rng.next_u64() as u8 } else { b[0] ^ 1 << rng.below(8) };
                bad.write(at, &b);
            }
            // As it is, and marked clean so that it is opened for writing with its damage.
            use_anyhow(bad.clone(), seed);
            let mut state = [0; 2];
            bad.read(1024 + 0x3a, &mut state);
            bad.write(1024 + 0x3a, &[1, 0]);
            use_anyhow(bad.clone(), seed);
            let _ = crate::subject::recover(&mut [bad], 1_700_000_000);
        }
    }
}

//! Damaged journals: what is replayed of them, and what is said. A journal that cannot be trusted
//! is refused by place and nothing is written; what can be taken for its end is its end. Nothing
//! panics.

#[cfg(test)]
mod tests {
    use crate::acts::Act;
    use crate::judge::Expected;
    use crate::prefix::{How, judge};
    use crate::record::{Progress, Recorded, record};
    use crate::subject::{Setting, SimDevice, Subject, recover};
    use env::Rng;
    use format::jbd2::{Head, Kind, superblock as jsb};
    use integrity::Plant;
    use sim::{CrashImages, Image};
    use volume::{Journal, Mode};

    const JOURNALS: [Mode; 5] =
        [Mode::Ordered, Mode::Writeback, Mode::Data, Mode::Wasteless, Mode::Selective];

    /// A run that was cut off with all that was issued on its disks, and the acts it had done.
    struct Crashed {
        disks: Vec<Image>,
        done: Vec<Act>,
        in_flight: Vec<Act>,
        setting: Setting,
    }

    /// Cut at the last moment before the journal writes anything back: seeds divisible by three do
    /// so only after seconds.
    fn crashed(mode: Mode, outside: bool, seed: u64) -> Crashed {
        let setting = Setting { outside, ..Setting::plain(mode) };
        let r: Recorded = record(setting, Plant::NONE, "append", 3 * seed).unwrap();
        let mut images = CrashImages::of_disks(&r.trace, r.base.clone());
        let mut progress = Progress::default();
        while progress.answered.len() < r.acts.len() {
            let Some(event) = images.step() else { break };
            progress.note(event, r.acts.len());
        }
        let acts = |list: &[usize]| list.iter().map(|i| r.acts[*i].clone()).collect::<Vec<_>>();
        let done = r.setups[0].iter().cloned().chain(acts(&progress.answered)).collect();
        Crashed { disks: images.images(2), done, in_flight: acts(&progress.in_flight), setting }
    }

    fn journal_of(disks: &[Image]) -> Journal {
        let mut found = volume::probe(&SimDevice(disks[0].clone())).unwrap();
        if let Some(log) = disks.get(1) {
            found.attach(&SimDevice(log.clone())).unwrap();
        }
        found.journal.expect("the lab's volumes have one")
    }

    /// The blocks of the journal's own that are in use, in order: their journal block and kind.
    fn heads(disks: &[Image]) -> Vec<(u32, Kind)> {
        let j = journal_of(disks);
        let disk = &disks[usize::from(j.outside)];
        let (mut at, mut tid, mut all) = (j.superblock.start, j.superblock.sequence, Vec::new());
        while at < j.superblock.blocks {
            let mut block = vec![0; 1024];
            disk.read(j.byte_of(at).unwrap(), &mut block);
            if let Some(h) = Head::decode(&block).filter(|h| h.tid == tid) {
                all.push((at, h.kind));
                tid += u32::from(h.kind == Kind::Commit);
            }
            at += 1;
        }
        all
    }

    /// Changes the bytes at a place of journal block `n`.
    fn change(disks: &mut [Image], n: u32, at: u64, f: impl Fn(u8) -> u8) {
        let j = journal_of(disks);
        let place = j.byte_of(n).unwrap() + at;
        let mut b = [0];
        let disk = &mut disks[usize::from(j.outside)];
        disk.read(place, &mut b);
        disk.write(place, &[f(b[0])]);
    }

    fn digests(disks: &[Image]) -> Vec<u64> {
        disks.iter().map(Image::digest).collect()
    }

    /// Recovers; a refusal has written nothing, and what is there after a replay is the state after
    /// some of the operations.
    fn recovered(c: &Crashed, disks: Vec<Image>) -> Result<(), String> {
        let mut tried = disks.clone();
        if let Err(why) = recover(&mut tried, 1_700_000_100) {
            assert_eq!(digests(&tried), digests(&disks), "written, and then: {why}");
            return Err(why);
        }
        // What was durable may be what is damaged, so no fsync promises anything here.
        let is_promise = |a: &&Act| matches!(a, Act::Fsync(_) | Act::Fdatasync(_) | Act::Sync);
        let done: Vec<Act> = c.done.iter().filter(|a| !is_promise(a)).cloned().collect();
        let in_flight: Vec<&Act> = c.in_flight.iter().filter(|a| !is_promise(a)).collect();
        let e = Expected {
            done: &done,
            in_flight: &in_flight,
            began: &[],
            lasted: &[],
            setup: 0,
            callers: 1,
            remote: 1,
            plant: Plant::NONE,
        };
        let verdict = judge(&disks, c.setting, &[e], How::default());
        assert!(verdict.wrong.is_empty(), "{}: {:?}", c.setting.mode, verdict.wrong);
        Ok(())
    }

    #[test]
    fn a_damaged_block_in_the_middle_is_named_and_nothing_is_replayed() {
        for mode in JOURNALS {
            for outside in [false, true] {
                let c = crashed(mode, outside, 1);
                assert_eq!(recovered(&c, c.disks.clone()), Ok(()));
                let all = heads(&c.disks);
                let commits = all.iter().filter(|h| h.1 == Kind::Commit).count();
                assert!(commits > 3, "{mode}: {all:?}");
                for kind in [Kind::Descriptor, Kind::Commit] {
                    let (at, _) = *all.iter().find(|h| h.1 == kind).unwrap();
                    let mut disks = c.disks.clone();
                    change(&mut disks, at, 20, |b| b ^ 0x10);
                    let why = recovered(&c, disks).expect_err("it was damaged");
                    assert!(why.contains(&format!("journal block {at},")), "{mode}: {why}");
                    assert!(why.contains("nothing was replayed"), "{why}");
                }
                // Its head too: who does not know it for one must not take it for the end.
                for kind in [Kind::Descriptor, Kind::Commit] {
                    let (at, _) = *all.iter().find(|h| h.1 == kind).unwrap();
                    for byte in [0, 4, 8, 11] {
                        let mut disks = c.disks.clone();
                        change(&mut disks, at, byte, |b| b ^ 0x10);
                        let why = recovered(&c, disks).expect_err("its head was damaged");
                        assert!(why.contains(&format!("journal block {at},")), "{mode}: {why}");
                    }
                }
                // A copy that a committed transaction lists.
                let (at, _) = *all.iter().find(|h| h.1 == Kind::Descriptor).unwrap();
                let mut disks = c.disks.clone();
                change(&mut disks, at + 1, 100, |b| b ^ 1);
                let why = recovered(&c, disks).expect_err("it was damaged");
                assert!(why.contains("wrong checksum"), "{mode}: {why}");
            }
        }
    }

    #[test]
    fn a_damaged_journal_superblock_keeps_the_volume_from_being_changed() {
        for mode in JOURNALS {
            let c = crashed(mode, false, 2);
            for at in [0, 0x10, 0x18, 0x1c, 0x28, 0x40, 0xff] {
                let mut disks = c.disks.clone();
                change(&mut disks, 0, at, |b| b ^ 0x41);
                recovered(&c, disks.clone()).expect_err("its checksum is wrong");
                let opened = Subject::open(disks, c.setting, false, (Plant::NONE, 1));
                assert!(opened.is_err(), "{mode}, byte {at:#x}");
            }
        }
    }

    /// `BAD_SEEDS=N` for more than a few.
    #[test]
    fn random_damage_anywhere_in_a_journal_never_panics_and_never_half_replays() {
        let seeds = std::env::var("BAD_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(40);
        let (mut refused, mut taken) = (0, 0);
        for mode in JOURNALS {
            let c = crashed(mode, false, 1);
            let j = journal_of(&c.disks);
            let last = heads(&c.disks).last().expect("something was committed").0 + 3;
            for seed in 0..seeds {
                let mut rng = Rng::new(seed);
                let mut disks = c.disks.clone();
                for _ in 0..1 + rng.below(4) {
                    let n = if rng.one_in(5) {
                        0
                    } else {
                        j.superblock.start + rng.below(last.into()) as u32
                    };
                    let n = if n > last { 0 } else { n };
                    let (at, with) = (rng.below(1024), rng.next_u64() as u8);
                    let place = j.byte_of(n).unwrap() + at;
                    disks[0].write(place, &[with]);
                }
                match recovered(&c, disks) {
                    Ok(()) => taken += 1,
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 20 && taken > 2, "{refused} were refused, {taken} were not");
    }

    #[test]
    fn a_journal_of_another_volume_or_size_is_refused_by_name() {
        let c = crashed(Mode::Ordered, true, 1);
        let refused = |disks: &[Image]| {
            let why =
                recover(&mut disks.to_vec(), 1_700_000_100).expect_err("it is not this volume's");
            let opened = Subject::open(disks.to_vec(), c.setting, false, (Plant::NONE, 1));
            assert!(opened.is_err());
            why
        };
        let alone = recover(&mut [c.disks[0].clone()], 1_700_000_100)
            .expect_err("its journal is elsewhere");
        assert!(alone.contains("--log PATH"), "{alone}");
        let nothing = refused(&[c.disks[0].clone(), Image::new(1 << 20)]);
        assert!(nothing.contains("no journal on it"), "{nothing}");
        let short = refused(&[c.disks[0].clone(), Image::new(1024)]);
        assert!(short.contains("too short"), "{short}");
        let mut other = c.disks.clone();
        other[1].write(1024 + 0x68, &[1]); // the journal's own UUID
        let other = refused(&other);
        assert!(other.contains("UUID"), "{other}");
        let mut user = c.disks.clone();
        let mut raw = vec![0; 1024];
        user[1].read(2048, &mut raw);
        format::jbd2::device::set_user(&mut raw, b"some-other-volum");
        jsb::set_errno(&mut raw, 0); // and its checksum
        user[1].write(2048, &raw);
        let user = refused(&user);
        assert!(user.contains("another volume"), "{user}");
        let mut cut = c.disks.clone();
        let mut half = Image::new(512 << 10);
        let mut bytes = vec![0; 512 << 10];
        cut[1].read(0, &mut bytes);
        half.write(0, &bytes);
        cut[1] = half;
        let cut = refused(&cut);
        assert!(cut.contains("1024 blocks, its file has 512"), "{cut}");
    }

    #[test]
    fn a_journal_inode_with_holes_or_outside_the_volume_is_refused_by_name() {
        let c = crashed(Mode::Data, false, 1);
        let p = volume::probe(&SimDevice(c.disks[0].clone())).unwrap();
        let geo = format::ext::Geometry::of(&p.superblock);
        let (block, offset) = geo.ino_place(format::JOURNAL_INO);
        let mut raw = [0; 32];
        c.disks[0].read(geo.desc_block(0).0 * 1024, &mut raw);
        let table = format::ext::GroupDesc::decode(&raw).inode_table;
        let inode = (table + u64::from(block)) * 1024 + offset as u64;
        for (pointer, what) in [(0u32, "names block 0"), (900_000, "names block 900000")] {
            let mut disks = c.disks.clone();
            disks[0].write(inode + 40 + 4 * 3, &pointer.to_le_bytes());
            let why = recover(&mut disks, 1_700_000_100).expect_err("the journal cannot be read");
            assert!(why.contains(what), "{why}");
        }
        let mut disks = c.disks.clone();
        disks[0].write(inode + 4, &(100u32 * 1024).to_le_bytes()); // its size
        let why =
            recover(&mut disks, 1_700_000_100).expect_err("the journal is longer than its file");
        assert!(why.contains("its file has 100"), "{why}");
    }
}

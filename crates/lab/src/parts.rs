//! A journal that is replayed in parts says what it says as a whole: of each block the same, and of
//! none twice.

use crate::acts::Act;
use crate::model::Model;
use crate::random::random_act;
use crate::setting::{Setting, SimDevice, new_disks};
use crate::subject::Subject;
use env::Rng;
use format::BlockNo;
use integrity::Plant;

#[test]
fn a_journal_in_parts_is_the_whole_journal() {
    let mut parts_seen = 0;
    for mode in volume::MODES.iter().map(|m| m.mode).filter(|m| m.is_journal()) {
        for seed in 0..4 {
            let setting = Setting::plain(mode);
            let disks = new_disks(3 << 20, setting);
            let mut v = Subject::open(disks, setting, false, (Plant::NONE, seed)).unwrap();
            let (mut rng, mut model) = (Rng::new(seed), Model::default());
            for n in 0..120 {
                let act = random_act(&mut rng, &model);
                if let Ok(done) = v.act_as_done(n, &act) {
                    let _ = model.apply(&done);
                }
            }
            v.act(200, &Act::Sync).unwrap();
            let device = SimDevice(v.disks().swap_remove(0));
            let journal = volume::probe(&device).unwrap().journal.unwrap();
            let whole = journal.load(&device, 3 << 10).unwrap();
            for memory in [1, 3000, 20_000] {
                let (mut from, mut blocks) = (BlockNo(0), Vec::new());
                loop {
                    let part = journal.load_part(&device, 3 << 10, (from, memory)).unwrap();
                    assert_eq!(part.transactions, whole.transactions);
                    assert_eq!(part.next_tid, whole.next_tid);
                    for b in part.blocks() {
                        let (mut one, mut other) = ([7; 1024], [7; 1024]);
                        part.apply(b, &mut one);
                        whole.apply(b, &mut other);
                        assert!(one == other, "{mode}, seed {seed}, {memory}: block {b}");
                        assert_eq!(part.needs_current(b), whole.needs_current(b));
                        blocks.push(b);
                    }
                    parts_seen += 1;
                    match part.rest() {
                        Some(next) => from = next,
                        None => break,
                    }
                }
                assert!(blocks.iter().copied().eq(whole.blocks()), "{mode}, seed {seed}");
            }
        }
    }
    assert!(parts_seen > 500, "{parts_seen}");
}

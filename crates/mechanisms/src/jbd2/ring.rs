//! The journal's ring beside a naive twin: random transactions and trims, and after each step the
//! twin says which blocks are in use and what the superblock on disk must say.

use super::log::{JournalPlace, Log, first_tid};
use super::policy::Policy;
use super::transaction::Tid;
use crate::testing::{self, BLOCK};
use env::{Block, Disk, Rng};
use format::jbd2::JournalSuperblock;
use format::{BlockNo, Extent};
use std::collections::VecDeque;
use std::rc::Rc;

const BLOCKS: u32 = 40;
const BEGIN: u64 = 3;

/// A transaction, and the blocks of the journal that it has.
type Kept = (Tid, Vec<u32>);

async fn superblock(disk: &Rc<dyn Disk>) -> JournalSuperblock {
    let read = disk.read(BEGIN * BLOCK as u64, vec![Block::zeroed(BLOCK)]).await;
    JournalSuperblock::decode(read.expect("the disk is whole")[0].bytes()).expect("it was sealed")
}

/// Takes blocks for a transaction.
fn take(log: &Log, tid: Tid, count: u32) -> Vec<u32> {
    let wrap = |at: u32| if at >= BLOCKS { at - BLOCKS + 1 } else { at };
    let at = log.take(tid, count);
    (0..count).map(|i| wrap(at + i)).collect()
}

async fn life(env: env::Env, policy: Policy, seed: u64) {
    let (disk, mut rng) = (testing::memory(64 * BLOCK), Rng::new(seed));
    let (block_bytes, uuid) = (BLOCK as u32, [3; 16]);
    let (blocks, first, sequence, start, incompat) = (BLOCKS, 1, u32::MAX - 20, 0, 0);
    let old_sums = false;
    let sb =
        JournalSuperblock { block_bytes, blocks, first, sequence, start, incompat, old_sums, uuid };
    let extents = vec![Extent { start: BlockNo(BEGIN), len: u64::from(BLOCKS) }];
    let (internal, superblock_at, wide) = (true, 0, false);
    let raw = sb.encode_new();
    let place = JournalPlace {
        disk: disk.clone(),
        internal,
        extents,
        superblock_at,
        superblock: raw,
        wide,
    };
    let log = Log::new(env, place, policy).expect("the journal is empty");
    let (mut kept, mut next) = (VecDeque::<Kept>::new(), first_tid(&sb));
    for _ in 0..300 {
        if rng.one_in(3) {
            let done = rng.below(kept.len() as u64 + 1) as usize;
            let from = kept.get(done).map_or(next, |k| k.0);
            log.trim(from, next).await.expect("the disk is whole");
            kept.drain(..done);
        } else {
            let count = 1 + rng.below(8) as u32;
            if log.is_at_turn(count) && kept.is_empty() {
                log.turn();
            }
            if log.free() < count {
                continue;
            }
            log.start(next).await.expect("the disk is whole");
            assert!(log.covers(next), "J4: seed {seed}: {next} would not be found");
            // The commit's block is taken last, and what is older may be trimmed before.
            let last = u32::from(rng.one_in(2));
            let mut own = take(&log, next, count - last);
            if rng.one_in(4) {
                log.trim(next, next).await.expect("the disk is whole");
                kept.clear();
            }
            own.extend(take(&log, next, last));
            let twice = own.iter().find(|b| kept.iter().any(|k| k.1.contains(b)));
            assert_eq!(twice, None, "J4: seed {seed}: a block that is needed is used again");
            kept.push_back((next, own));
            next = next.next();
        }
        let used: usize = kept.iter().map(|k| k.1.len()).sum();
        assert_eq!(log.capacity() - log.free(), used as u32, "J4: seed {seed}");
        if let Some((tid, blocks)) = kept.front() {
            let said = superblock(&disk).await;
            let wanted = (blocks[0], tid.on_disk());
            assert_eq!((said.start, said.sequence), wanted, "J4: seed {seed}: recovery begins");
        }
    }
    log.finish(next).await.expect("the disk is whole");
    let said = superblock(&disk).await;
    assert_eq!((said.start, said.sequence), (0, next.on_disk()), "J7: seed {seed}");
}

#[test]
fn a_block_is_used_again_when_the_superblock_has_passed_it() {
    for policy in [Policy::Ordered, Policy::Data] {
        for seed in 0..40 {
            testing::run(|env| life(env, policy, seed));
        }
    }
}

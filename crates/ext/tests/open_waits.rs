//! Soft updates: who makes something durable that stands on what an operation has done which has
//! not ended, as where two files share a block of attributes, waits for that one's end, however
//! long it is in the middle of a slow read. Whoever makes room does not: he has one open himself.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::World;
use cache::{Buf, BufKind};
use env::Nanos;
use format::{BlockNo, Extent, Ino};
use integrity::{Change, Credits, Mechanism, Pressure, Scope, Txn};
use mechanisms::Mode;
use std::cell::Cell;
use std::rc::Rc;

/// A block that nobody uses.
const BLOCK: BlockNo = BlockNo(16_000);

async fn began(m: &Mechanism) -> Txn {
    m.begin(Credits::blocks(4)).await.unwrap()
}

fn count_down(txn: &mut Txn, buf: &Buf, to: u8) {
    txn.edit(buf, 4..8, Change::ShareDown(Ino(12)), |b| b.copy_from_slice(&[to, 0, 0, 0]));
}

/// One operation is open, and another one, which stands on it, has ended: `what` is begun with the
/// second's end. Returns whether it had ended a minute later, and whether it had soon after the
/// end of the first.
fn with_one_open(what: impl AsyncFnOnce(Mechanism, integrity::Ended) + 'static) -> (bool, bool) {
    let mut w = World::mke2fs(16 << 20, &["-t", "ext3", "-b", "1024", "-O", "^has_journal"]);
    let v = w.open(Mode::SoftUpdates);
    let (m, cache) = (v.ext.mechanism().clone(), v.ext.cache().clone());
    let seen = w.run(|env| async move {
        let buf = cache.get(BLOCK, BufKind::Meta).await.unwrap();
        let (mut first, mut second) = (began(&m).await, began(&m).await);
        count_down(&mut first, &buf, 9);
        count_down(&mut second, &buf, 8);
        let freed = Extent { start: BlockNo(15_000), len: 1 };
        second.edit(&buf, 100..100, Change::FreeBlocks(freed), |_| ());
        let ended = m.end(second).await.unwrap();
        let is_done = Rc::new(Cell::new(false));
        let (done, mechanism) = (is_done.clone(), m.clone());
        env.spawn("waits", async move {
            what(mechanism, ended).await;
            done.set(true);
        });
        env.sleep(Nanos::from_secs(60)).await;
        let before = is_done.get();
        m.end(first).await.unwrap();
        env.sleep(Nanos::from_secs(1)).await;
        (before, is_done.get())
    });
    w.close(v);
    seen
}

#[test]
fn who_makes_all_durable_waits_for_an_open_operation() {
    let seen = with_one_open(async |m, _| m.sync(Scope::All).await.unwrap());
    assert_eq!(seen, (false, true));
}

#[test]
fn who_makes_room_does_not() {
    let seen = with_one_open(async |m, _| m.press(Pressure::NoSpace).await.unwrap());
    assert_eq!(seen, (true, true));
}

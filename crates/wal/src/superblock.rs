//! Writing the superblock: to the two slots in turn, one write at a time, durable when it ends.
//! Trims and the clients' states become durable here, and only then is the space free (I3).

use crate::error::LogError;
use crate::layout::{IDLE, Lsn, SLOT_BYTES, Superblock};
use crate::state::{Inner, State};
use env::{Block, Durability};
use std::rc::Rc;

impl State {
    /// What nobody needs any more, as the clients' trims stand: below this LSN.
    pub(crate) fn trimmed(&self) -> Lsn {
        let needed = self.sb.clients.iter().map(|c| c.trim).min().unwrap_or(IDLE);
        if needed == IDLE { self.durable } else { needed }
    }
}

impl Inner {
    /// Makes the clients' states and the head durable.
    pub(crate) async fn write_superblock(self: &Rc<Self>) -> Result<(), LogError> {
        let _turn = self.sb_lock.lock().await;
        if let Some(e) = self.failure() {
            return Err(e);
        }
        self.check();
        let (next, activations) = {
            let mut s = self.state.borrow_mut();
            let head = s.trimmed().max(s.sb.head);
            let generation = s.sb.generation + 1;
            if self.planted("reuse-before-superblock") {
                s.sb.head = head;
            }
            let lost = s.sb.clients.iter().find(|c| c.trim < s.sb.head);
            assert!(lost.is_none(), "I3: {lost:?} needs what lies below {}", s.sb.head);
            (Superblock { generation, head, end: s.end(), ..s.sb.clone() }, s.activations)
        };
        let slot = if self.planted("one-slot") { 0 } else { next.generation % 2 };
        let at = slot * SLOT_BYTES as u64;
        let result = self.area.write(at, Block::copy_of(&next.encode()), Durability::Fua).await;
        if let Err(e) = result {
            let e = e.into();
            self.fail(&e);
            return Err(e);
        }
        {
            let mut s = self.state.borrow_mut();
            assert!(next.head >= s.sb.head, "I3: the head only moves forward");
            let end = s.position();
            assert!(next.head <= end, "I3: the head {} passes the end {end}", next.head);
            assert_eq!(next.generation, s.sb.generation + 1, "I3: superblocks go one by one");
            let active = s.activations_durable..=s.activations;
            assert!(active.contains(&activations), "I5: {activations} of {active:?} are durable");
            let needed = s.sb.clients.iter().map(|c| c.trim).min().unwrap_or(IDLE);
            let kept = needed >= next.head;
            assert!(
                kept,
                "I3: the head goes to {}, {needed} came to be needed meanwhile",
                next.head
            );
            assert!(s.sb.epoch == next.epoch, "I4: the epoch changes while the log is open");
            (s.sb.generation, s.sb.head) = (next.generation, next.head);
            s.activations_durable = activations;
            s.stats.superblocks += 1;
        }
        self.check();
        self.room.wake_all();
        Ok(())
    }
}

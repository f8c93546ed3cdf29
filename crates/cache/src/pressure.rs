//! When much of the memory is dirty: who writes waits, and a task writes blocks back until few are
//! left. Those go first that are clean after one write: to write a block with edits taken back
//! makes no room, and it has to be written once more.

use crate::{Buf, Cache};
use env::{DiskError, Nanos};
use std::rc::Rc;

/// Blocks written together before who waits is told.
const SHARE: usize = 4096;

impl Cache {
    /// More dirty blocks than this make a writer wait.
    fn dirty_limit(&self) -> usize {
        self.capacity() / 2
    }

    /// Would [`Cache::throttle`] wait now?
    pub fn throttles(&self) -> bool {
        self.dirty.borrow().len() > self.dirty_limit() && self.failed.borrow().is_none()
    }

    /// Waits while too much is dirty. Call it before an operation takes locks or log space.
    pub async fn throttle(&self) {
        while self.throttles() {
            self.kick.wake_all();
            self.progress.wait().await;
        }
        if self.dirty.borrow().len() > self.dirty_limit() / 2 {
            self.kick.wake_all();
        }
    }

    /// Writes the dirty blocks of this moment, a share at a time, until few are left.
    pub(crate) async fn relieve(self: &Rc<Self>) {
        let low = self.dirty_limit() / 4;
        while self.dirty.borrow().len() > low && !self.stopping.get() {
            self.prepare().await;
            let before = self.dirty.borrow().len();
            if self.relieve_once().await.is_err() {
                return;
            }
            if self.dirty.borrow().len() >= before {
                // The gate holds them back until something is durable.
                if self.flush_device().await.is_err() {
                    return;
                }
                if self.dirty.borrow().len() >= before {
                    self.env.sleep(Nanos::from_millis(10)).await;
                }
            }
            self.progress.wake_all();
        }
    }

    async fn relieve_once(self: &Rc<Self>) -> Result<(), DiskError> {
        let mut all = self.dirty_to_be_clean();
        if all.is_empty() {
            // What they wait for may have been written, and not be durable.
            self.flush_device().await?;
            all = self.dirty_to_be_clean();
        }
        if all.is_empty() {
            all = self.dirty_all();
        }
        for share in all.chunks(SHARE) {
            self.write(share.to_vec()).await?;
        }
        Ok(())
    }

    /// The dirty blocks that one write makes clean.
    fn dirty_to_be_clean(&self) -> Vec<Buf> {
        let gate = self.gate.borrow().clone();
        let mut all = self.dirty_all();
        all.retain(|b| gate.is_whole(b));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BYTES, Journal};
    use crate::{BufKind, CacheOptions, FlushEpoch, Image, WriteGate};
    use env::{Engine, Now};
    use format::{BlockNo, Ino};
    use std::cell::{Cell, RefCell};

    /// Even blocks wait for a flush that comes after a write of the block after them.
    #[derive(Default)]
    struct Pairs {
        written: RefCell<Vec<u64>>,
        due: RefCell<Vec<u64>>,
        taken_back: Cell<u64>,
    }
    impl WriteGate for Pairs {
        fn is_whole(&self, buf: &Buf) -> bool {
            let n = buf.block().0;
            n % 2 == 1 || self.due.borrow().contains(&n)
        }
        fn before_write(&self, buf: &Buf) -> Image {
            if self.is_whole(buf) {
                return Image::AsIs;
            }
            self.taken_back.set(self.taken_back.get() + 1);
            Image::Instead(buf.image())
        }
        fn after_write(&self, b: &Buf, _: &Image, _: Result<(), &DiskError>, _: FlushEpoch) {
            self.written.borrow_mut().push(b.block().0);
        }
        fn flushed(&self, _: FlushEpoch) {
            let written = self.written.borrow();
            self.due.borrow_mut().extend(written.iter().filter(|n| *n % 2 == 1).map(|n| n - 1));
        }
    }

    #[test]
    fn what_would_be_written_twice_goes_last() {
        let (mut engine, mut cache) = (Engine::new(1), None);
        let (disk, gate) = (Rc::new(Journal::default()), Rc::new(Pairs::default()));
        let mut turn = |f: &mut dyn FnMut(&env::Env)| {
            engine.turn(Now { mono: Nanos(0), wall: Nanos(0) }, &mut Vec::new(), |env| f(env));
        };
        turn(&mut |env| {
            let made = Cache::new(
                env.clone(),
                disk.clone(),
                CacheOptions {
                    block_bytes: BYTES,
                    cache_bytes: 256 * BYTES,
                    contents_bytes: usize::MAX,
                    interval: None,
                    transfer_bytes_max: 8 * BYTES,
                },
            );
            made.set_gate(gate.clone());
            (0..100).for_each(|n| {
                made.get_new(BlockNo(n), BufKind::Meta, Ino(0)).modify(|b| b[0] = 1);
            });
            cache = Some(made);
        });
        let cache = cache.expect("the turn made it");
        turn(&mut |env| {
            let cache = cache.clone();
            env.spawn("relieve", async move { cache.relieve().await });
        });
        assert!(cache.counts().1 <= 256 / 8, "{:?} are left", cache.counts());
        assert_eq!(
            gate.taken_back.get(),
            0,
            "with room to be made otherwise none is written twice"
        );
        let written = disk.written.borrow();
        assert!(written[..50].iter().all(|n| n % 2 == 1), "{written:?}");
    }
}

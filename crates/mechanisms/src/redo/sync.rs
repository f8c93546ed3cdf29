//! Waiting for durability: of an operation's entry, of contents that go home first, of a file's
//! contents. Whoever waits shares log writes and flushes with all who wait at the same time.

use super::queue::Waits;
use super::{Redo, add};
use cache::{Buf, BufKind};
use format::Ino;
use integrity::{FileScope, IntegrityError, Pressure, Scope};

/// Contents are sent home by themselves when so many blocks of them hold up entries.
pub(super) const DIRECT_BLOCKS_MAX: usize = 2048;

impl Redo {
    /// Waits until everything up to this serial is durable (I7).
    pub(super) async fn wait(&self, serial: u64) -> Result<(), IntegrityError> {
        loop {
            self.check()?;
            self.settle();
            let lsn = {
                let s = self.state.borrow();
                if s.serials.durable() >= serial {
                    return Ok(());
                }
                s.serials.lsn(serial)
            };
            match lsn {
                Some(lsn) => {
                    self.log.flush(lsn).await.map_err(|e| self.log_error(e))?;
                    if self.plant.is("ack-out-of-order") {
                        return Ok(());
                    }
                }
                None => self.push_out(serial).await?,
            }
        }
    }

    /// Brings the queue a step further.
    async fn push_out(&self, serial: u64) -> Result<(), IntegrityError> {
        struct Barrier<'a>(&'a Redo);
        impl Drop for Barrier<'_> {
            fn drop(&mut self) {
                self.0.barrier.set(self.0.barrier.get() - 1);
                if self.0.barrier.get() == 0 {
                    self.0.unbarred.wake_all();
                }
            }
        }
        self.pump()?;
        let waits = {
            let s = self.state.borrow();
            s.queue.waits(&s.open)
        };
        match waits {
            Waits::No => Ok(()),
            Waits::ForData => self.commit_data(serial).await,
            Waits::ForOpen => {
                // Nobody begins until those who are mixed with it have ended.
                self.barrier.set(self.barrier.get() + 1);
                let _barrier = Barrier(self);
                self.ended.wait().await;
                Ok(())
            }
        }
    }

    /// Makes contents durable at home that entries up to `serial` wait for, then sends these (I9).
    async fn commit_data(&self, serial: u64) -> Result<(), IntegrityError> {
        let _turn = self.committing.lock().await;
        let (bufs, upto) = {
            let s = self.state.borrow();
            let upto = serial.max(s.queue.first_serial().unwrap_or(0));
            (s.queue.direct_up_to(upto), upto)
        };
        if !bufs.is_empty() && !self.plant.is("entry-before-contents") {
            self.cache.write(bufs).await?;
            self.cache.flush_device().await?;
        }
        self.state.borrow_mut().queue.data_durable(upto);
        self.pump()
    }

    /// Makes everything that has ended durable, as a task of its own; one at a time.
    pub(super) fn flush_in_background(&self) {
        if self.flushing.replace(true) {
            return;
        }
        let redo = self.strong();
        self.cache.env().spawn("log flush", async move {
            let given = redo.state.borrow().serials.given();
            // A failure is sticky and known to the cache.
            let _ = redo.wait(given).await;
            redo.flushing.set(false);
        });
    }

    /// Starts to send contents home if they hold up too much.
    pub(super) fn push_data(&self) {
        if self.state.borrow().queue.direct_blocks() > DIRECT_BLOCKS_MAX {
            self.flush_in_background();
        }
    }

    pub(super) async fn sync_scope(&self, scope: Scope) -> Result<(), IntegrityError> {
        let given = self.state.borrow().serials.given();
        match scope {
            Scope::Txn(ended) => self.wait(ended.0).await,
            Scope::Files { files, .. } => {
                if self.data == super::Policy::Unordered {
                    self.sync_contents(&files, given).await?;
                }
                self.wait(given).await
            }
            Scope::All => {
                let all = self.cache.dirty_all().into_iter();
                let data: Vec<Buf> = all.filter(|b| b.kind() == BufKind::Data).collect();
                self.wait(given).await?;
                self.cache.write(data).await?;
                Ok(self.cache.flush_device().await?)
            }
        }
    }

    /// Writes the files' contents home and makes them durable, while the log is written beside.
    async fn sync_contents(&self, files: &[FileScope], given: u64) -> Result<(), IntegrityError> {
        let mut bufs: Vec<Buf> = files.iter().flat_map(|f| self.cache.dirty_of(f.ino)).collect();
        bufs.retain(|b| b.kind() == BufKind::Data);
        let flushed = |ino: Ino| self.state.borrow().data.is_flushed(ino);
        if bufs.is_empty() && files.iter().all(|f| flushed(f.ino)) {
            return Ok(());
        }
        if self.state.borrow().serials.durable() < given {
            self.flush_in_background();
        }
        self.cache.write(bufs).await?;
        if files.iter().any(|f| !flushed(f.ino)) {
            self.cache.flush_device().await?;
        }
        Ok(())
    }

    /// Forces what can be forced while an operation is open: it must not wait for open ones.
    pub(super) async fn relieve(&self, why: Pressure) -> Result<(), IntegrityError> {
        self.pump()?;
        let (waits, given) = {
            let s = self.state.borrow();
            (s.queue.waits(&s.open), s.serials.given())
        };
        if waits == Waits::ForData {
            self.commit_data(given).await?;
        }
        let appended = self.state.borrow().serials.newest_appended();
        self.wait(appended).await?;
        if why == Pressure::CacheFull {
            self.cache.write_all().await?;
        }
        add(&self.counters.presses, 1);
        Ok(())
    }
}

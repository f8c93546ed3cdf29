//! What is waited for: the commit of a transaction, contents that are not in it, and nothing more.

use super::Jbd2;
use super::policy::Policy;
use super::transaction::{Tid, Transaction};
use cache::{Buf, BufKind};
use integrity::{FileScope, IntegrityError, Pressure, Scope, invariant};

impl Jbd2 {
    pub(super) async fn sync_scope(&self, scope: Scope) -> Result<(), IntegrityError> {
        if self.plant.is("ack-before-commit") {
            return Ok(());
        }
        match scope {
            Scope::Txn(ended) => {
                self.wait_for(ended.into()).await?;
                self.check_committed(ended.into());
                Ok(())
            }
            Scope::Files { files, data_only } => self.sync_files(&files, data_only).await,
            Scope::All => {
                let mut all = self.cache.dirty_all();
                all.retain(|b| b.kind() == BufKind::Data && self.policy == Policy::Writeback);
                self.cache.write(all).await?;
                // Only now: what was freed meanwhile was not written, and what freed it may be in a
                // transaction that was not running before.
                let tid = self.state.borrow().running.tid;
                self.wait_for(tid).await?;
                Ok(self.cache.flush_device().await?)
            }
        }
    }

    /// Is something of the files that is to be durable in the running transaction, and in the
    /// committing one? (A running transaction without blocks is not committed, so it makes nothing
    /// durable: in `writeback` it may have noted contents that are written back by themselves.)
    fn concerned(&self, files: &[FileScope], data_only: bool) -> (Option<Tid>, Option<Tid>) {
        let s = self.state.borrow();
        let any = |t: &&Transaction| files.iter().any(|f| t.concerns(f.ino, data_only));
        let running = Some(&s.running).filter(|t| !t.is_empty()).filter(any);
        let committing = s.committing.as_ref().filter(any);
        (running.map(|t| t.tid), committing.map(|t| t.tid))
    }

    /// The caller is about to be told that everything of these files up to `tid` is durable.
    fn check_synced(&self, files: &[FileScope], data_only: bool, tid: Tid) {
        let (running, committing) = self.concerned(files, data_only);
        let left = running.into_iter().chain(committing).find(|t| *t <= tid);
        invariant!(self.plant, left.is_none(), "J8: {tid} is promised, {left:?} is under way");
    }

    /// The caller is about to be told that all up to this transaction is durable.
    fn check_committed(&self, tid: Tid) {
        let (upto, running) = (self.committed.get(), &self.state.borrow().running);
        let none = running.tid == tid && running.is_empty();
        invariant!(self.plant, upto >= tid || none, "J8: {tid} is promised, {upto} is durable");
    }

    async fn sync_files(&self, files: &[FileScope], data_only: bool) -> Result<(), IntegrityError> {
        if self.policy == Policy::Writeback {
            let left = self.leave_to_commit(files, data_only);
            let by_itself = left.clone().unwrap_or_else(|| self.contents_of(files));
            self.cache.write(by_itself).await?;
            if left.is_none() && !self.log.is_internal() {
                // The commit flushes another disk.
                self.cache.flush_device().await?;
            }
        }
        // A commit that has not begun yet makes durable whatever is in place by now.
        let (running, committing) = self.concerned(files, data_only);
        if let Some(tid) = running {
            self.wait_for(tid).await?;
            self.check_synced(files, data_only, tid);
            return Ok(());
        }
        // Contents that no commit has covered: of `writeback` always, of the others only what
        // fdatasync does not wait for the commit of.
        let (late, mut also) = self.concerned(files, false);
        let uncovered = data_only && (late.is_some() || also.is_some());
        let flush = self.policy == Policy::Writeback || uncovered;
        if uncovered {
            self.cache.write(self.contents_of(files)).await?;
            self.wait_for_cuts(files).await?;
        }
        if self.plant.is("fdatasync-overtakes-commit") {
            also = None;
        }
        // What is being committed may have contents of theirs being written back, as it froze them.
        if let Some(tid) = committing.or(also) {
            self.wait_for(tid).await?;
            self.check_synced(files, data_only, tid);
        }
        if flush {
            self.cache.flush_device().await?;
        }
        self.check()
    }

    /// Contents of the files were written back, but for those that somebody has cut meanwhile:
    /// either they are durable or that they are gone, and that is in a transaction.
    async fn wait_for_cuts(&self, files: &[FileScope]) -> Result<(), IntegrityError> {
        let (running, committing) = self.concerned(files, true);
        let Some(tid) = running.or(committing) else { return Ok(()) };
        self.wait_for(tid).await?;
        self.check_synced(files, true, tid);
        Ok(())
    }

    /// Has the running transaction to be committed for these files anyway? Then their contents are
    /// written back with its commit, as in `ordered`: those of all who wait at once, in few
    /// transfers. Returns what cannot be; None: it has not to be committed.
    fn leave_to_commit(&self, files: &[FileScope], data_only: bool) -> Option<Vec<Buf>> {
        // With the journal elsewhere the commit flushes this disk only if it writes to it, and what
        // is in place already may not be durable.
        let wanted = self.log.is_internal() && self.concerned(files, data_only).0.is_some();
        if !wanted {
            return None;
        }
        let contents = self.contents_of(files);
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        // On a damaged volume a block may be a file's and metadata at once: what the journal has of
        // it is then no reason to stop (J6).
        let copied = |b: &Buf| {
            let b = b.block().0;
            let committed = s.committing.as_ref().is_some_and(|c| c.blocks.contains_key(&b));
            committed || s.logged.contains_key(&b) || s.running.blocks.contains_key(&b)
        };
        let (alone, left): (Vec<Buf>, Vec<Buf>) = contents.into_iter().partition(copied);
        s.running.ordered.extend(left.into_iter().map(|b| (b.block().0, b)));
        Some(alone)
    }

    /// The files' contents that are written back by themselves.
    fn contents_of(&self, files: &[FileScope]) -> Vec<Buf> {
        let mut bufs: Vec<Buf> = files.iter().flat_map(|f| self.cache.dirty_of(f.ino)).collect();
        let s = self.state.borrow();
        let overtakes = self.plant.is("fdatasync-overtakes-commit");
        let by_itself = |b: &Buf| match overtakes {
            true => !s.heads.has(b.block()),
            false => !s.heads.is_journaled(b.block()),
        };
        bufs.retain(|b| b.kind() == BufKind::Data && by_itself(b));
        bufs
    }

    /// Called in the middle of an operation, which the running transaction waits for: so only the
    /// one before it can be waited for.
    pub(super) async fn relieve(&self, _: Pressure) -> Result<(), IntegrityError> {
        let committing = self.state.borrow().committing.as_ref().map(|t| t.tid);
        match committing {
            Some(tid) => self.wait_for(tid).await,
            None => Ok(()),
        }
    }
}

//! From a call to its operation: it compares the handles' generations, picks the operation, and
//! completes the attributes before and after.

use super::{Ctx, Done};
use crate::Ufs;
use crate::inode::Inode;
use crate::store::Store;
use env::{Local, Nanos, unless};
use std::rc::Rc;
use vfs::{Answer, Call, FsError, MakeKind, Reply, Request, Volume, Wcc, WriteUpTo};

impl<S: Store> Volume for Ufs<S> {
    fn call(self: Rc<Self>, call: Call) -> Local<'static, Answer> {
        Box::pin(async move {
            if self.closed.get() {
                return Answer::error(FsError::Stale);
            }
            let _running = Running::new(&self);
            let mut ctx = Ctx {
                cred: call.cred,
                durable: call.durable,
                hold: call.hold,
                wants_wcc: call.wcc,
                wcc: [Wcc::default(); 2],
                note: call.note,
            };
            let mut expected = Vec::new();
            for (ino, generation) in call.expect.into_iter().flatten() {
                match self.inode(ino).await {
                    Ok(i) if i.with(|r| r.generation()) == generation => expected.push(i),
                    Ok(_) => return Answer::error(FsError::Stale),
                    Err(e) => return Answer::error(e),
                }
            }
            let is_link = matches!(call.request, Request::Link { .. });
            self.bound_names().await;
            let result = self.run_with_room(&mut ctx, &expected, call.request).await;
            if !call.wcc {
                return Answer::from(result);
            }
            // What the operation has not told of, as after an early refusal: as it is now.
            for (n, inode) in expected.iter().enumerate() {
                let n = if is_link { 1 - n } else { n };
                if ctx.wcc[n].after.is_none() && !self.is_gone(inode) {
                    ctx.wcc[n] = self.wcc(&ctx, None, inode);
                }
            }
            Answer { result, wcc: ctx.wcc }
        })
    }

    fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>> {
        Box::pin(async move { self.shut().await })
    }
}

/// A call that is under way.
struct Running<'a, S: Store>(&'a Ufs<S>);

impl<'a, S: Store> Running<'a, S> {
    fn new(ufs: &'a Ufs<S>) -> Running<'a, S> {
        ufs.running.set(ufs.running.get() + 1);
        Running(ufs)
    }
}

impl<S: Store> Drop for Running<'_, S> {
    fn drop(&mut self) {
        let left = self.0.running.get().checked_sub(1).expect("calls that end have begun");
        self.0.running.set(left);
        if left == 0 {
            self.0.idle.wake_all();
        }
    }
}

/// How long an operation without room waits for files whose last name is gone to be let go: a
/// front end says so a moment after the unlink has returned.
const WAIT_MAX: Nanos = Nanos::from_millis(50);

impl<S: Store> Ufs<S> {
    /// What has been freed cannot be used until that is durable, and a removed file keeps its
    /// blocks until nobody holds it: an operation that finds no space meanwhile has done nothing,
    /// and is tried again.
    async fn run_with_room(&self, ctx: &mut Ctx, expected: &[Rc<Inode>], request: Request) -> Done {
        self.check_there(expected)?;
        if !self.store.has_busy_extents() && self.table.unlinked_open_count() == 0 {
            return self.run(ctx, request).await;
        }
        match self.run(ctx, request.clone()).await {
            Err(FsError::NoSpace) => {
                let gone = self.table.unlinked_open().into_iter();
                for file in gone.filter(|f| !self.table.is_held(f.ino())) {
                    self.reclaim(&file).await?; // if that is not under way
                }
                let end = self.store.env().now().plus(WAIT_MAX);
                while self.table.unlinked_open_count() > 0 {
                    let late = self.store.env().sleep_until(end);
                    if unless(self.table.let_go.wait(), late).await.is_none() {
                        break;
                    }
                }
                self.store.sync_all().await?;
                self.check_there(expected)?;
                self.run(ctx, request).await
            }
            done => done,
        }
    }

    /// Are those that a request names by their handles there still? While it waited one may have
    /// gone, and its number be another file's.
    fn check_there(&self, expected: &[Rc<Inode>]) -> Result<(), FsError> {
        if expected.iter().any(|i| self.is_gone(i)) { Err(FsError::Stale) } else { Ok(()) }
    }

    async fn run(&self, ctx: &mut Ctx, request: Request) -> Done {
        use Request as R;
        match request {
            R::Lookup { dir, name } => self.lookup(ctx, dir, &name).await,
            R::Walk { dir, path } => self.walk(ctx, dir, &path).await,
            R::ByNumber { ino } => self.by_number(ctx, ino).await,
            R::Forget { ino, count } => self.forget(ino, count).await,
            R::GetAttr { ino } => Ok(Reply::Attr(self.attr(&self.inode(ino).await?.h))),
            R::SetAttr { ino, set } => self.setattr(ctx, ino, &set).await,
            R::ReadLink { ino } => self.readlink(ino).await,
            R::GetFlags { ino } => self.flags(ino).await,
            R::SetFlags { ino, flags } => self.set_flags(ctx, ino, flags).await,
            R::Make { dir, name, kind, attr, umask, fail_if_exists } => {
                let inherited = Default::default();
                let new = super::make::New { kind, attr, umask, fail_if_exists, inherited };
                Box::pin(self.make(ctx, dir, &name, new)).await
            }
            R::MakeUnnamed { dir, attr, umask } => {
                let kind = MakeKind::File { exclusive: None };
                let inherited = Default::default();
                let new = super::make::New { kind, attr, umask, fail_if_exists: true, inherited };
                Box::pin(self.make_unnamed(ctx, dir, new)).await
            }
            R::Unlink { dir, name } => Box::pin(self.unlink(ctx, dir, &name)).await,
            R::Rmdir { dir, name } => Box::pin(self.rmdir(ctx, dir, &name)).await,
            R::Rename { dir, name, to_dir, to_name, mode } => {
                Box::pin(self.rename(ctx, (dir, &name), (to_dir, &to_name), mode)).await
            }
            R::Link { ino, dir, name } => self.link(ctx, ino, dir, &name).await,
            R::Read { ino, offset, len } => self.read(ctx, ino, offset, len).await,
            R::Write { ino, offset, data, stability, append, kill_suid, upto } => {
                let w = super::write::Write { offset, data, stability, append, kill_suid };
                match upto {
                    WriteUpTo::OneOperation => self.write(ctx, ino, w).await,
                    WriteUpTo::Space => self.write_parts(ctx, ino, w, (0, false)).await,
                    WriteUpTo::All => self.write_whole(ctx, ino, w).await,
                }
            }
            R::Fsync { ino, data_only } => self.fsync(ino, data_only).await,
            R::SyncAll => self.sync_all().await,
            R::ReadDir { dir, cookie, max_bytes, entry_bytes, attrs } => {
                let want = super::readdir::Want { cookie, max_bytes, entry_bytes, attrs };
                self.readdir(ctx, dir, want).await
            }
            R::StatFs => Ok(Reply::StatFs(self.store.statfs().await)),
            R::Label => self.label(),
            R::SetLabel { label } => self.set_label(ctx, &label).await,
            R::GetXattr { ino, name } => self.getxattr(ctx, ino, &name).await,
            R::SetXattr { ino, name, value, mode, kill_sgid } => {
                self.setxattr(ctx, ino, &name, Some((value, kill_sgid)), mode).await
            }
            R::ListXattr { ino } => self.listxattr(ctx, ino).await,
            R::RemoveXattr { ino, name } => {
                self.setxattr(ctx, ino, &name, None, vfs::XattrMode::Replace).await
            }
            R::Access { ino, mask } => self.access(ctx, ino, mask).await,
            R::Space { ino, op, offset, len } => self.space(ctx, ino, op, offset, len).await,
            R::Shift { ino, way, offset, len } => self.shift(ctx, ino, way, (offset, len)).await,
            R::Seek { ino, kind, offset } => self.seek(ino, kind, offset).await,
            R::MapBlock { ino, block } => self.map_block(ino, block).await,
            R::Trim { from, bytes, min_bytes } => self.trim(ctx, (from, bytes), min_bytes).await,
            R::AccessTimes(when) => {
                self.access_times.set(when);
                Ok(Reply::Done)
            }
            R::Quiesce => self.quiesce().await,
            // `volume` answers these itself; operations over a layout alone have none of it.
            R::Scrub | R::Freeze { .. } | R::Thaw | R::Snapshot(_) => Err(FsError::NotSupported),
            R::Info => Ok(self.info()),
        }
    }

    fn info(&self) -> Reply {
        let mut info = (self.about)();
        info.counters.extend(self.store.counters());
        info.counters.push(("cairn_damaged_indexes_total", self.broken_indexes.get()));
        // Also after damage or a failed write, which stop all writing.
        info.read_only |= self.store.writable().is_err();
        Reply::Info(Box::new(info))
    }
}

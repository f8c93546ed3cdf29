//! From a call to its operation. It decides nothing but which file answers.

use super::{Ctx, Done};
use crate::Ufs;
use crate::store::Store;
use env::Local;
use std::rc::Rc;
use vfs::{Answer, Call, FsError, Reply, Request, Volume, Wcc};

impl<S: Store> Volume for Ufs<S> {
    fn call(self: Rc<Self>, call: Call) -> Local<'static, Answer> {
        Box::pin(async move {
            if self.closed.get() {
                return Answer::error(FsError::Stale);
            }
            let mut ctx = Ctx {
                cred: call.cred,
                durable: call.durable,
                hold: call.hold,
                wcc: [Wcc::default(); 2],
            };
            for (ino, generation) in call.expect.into_iter().flatten() {
                match self.inode(ino).await {
                    Ok(i) if i.with(|r| r.generation()) == generation => (),
                    Ok(_) => return Answer::error(FsError::Stale),
                    Err(e) => return Answer::error(e),
                }
            }
            let wants_wcc = call.wcc;
            let result = self.run_with_room(&mut ctx, call.request).await;
            let wcc = if wants_wcc { ctx.wcc } else { [Wcc::default(); 2] };
            Answer { result, wcc }
        })
    }

    fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>> {
        Box::pin(async move { self.shut().await })
    }
}

impl<S: Store> Ufs<S> {
    /// What has been freed cannot be used until that is durable: an operation that finds no space
    /// meanwhile has done nothing, and is tried again when it is.
    async fn run_with_room(&self, ctx: &mut Ctx, request: Request) -> Done {
        if !self.store.holds_back() {
            return self.run(ctx, request).await;
        }
        match self.run(ctx, request.clone()).await {
            Err(FsError::NoSpace) => {
                self.store.sync_all().await?;
                self.run(ctx, request).await
            }
            done => done,
        }
    }

    async fn run(&self, ctx: &mut Ctx, request: Request) -> Done {
        use Request as R;
        match request {
            R::Lookup { dir, name } => self.lookup(ctx, dir, &name).await,
            R::Walk { dir, path } => self.walk(ctx, dir, &path).await,
            R::Forget { ino, count } => self.forget(ino, count).await,
            R::GetAttr { ino } => Ok(Reply::Attr(self.attr(&self.inode(ino).await?.h))),
            R::SetAttr { ino, set } => self.setattr(ctx, ino, &set).await,
            R::ReadLink { ino } => self.readlink(ino).await,
            R::Make { dir, name, kind, attr, umask, fail_if_exists } => {
                let inherited = Default::default();
                let new = super::make::New { kind, attr, umask, fail_if_exists, inherited };
                Box::pin(self.make(ctx, dir, &name, new)).await
            }
            R::Unlink { dir, name } => Box::pin(self.unlink(ctx, dir, &name)).await,
            R::Rmdir { dir, name } => Box::pin(self.rmdir(ctx, dir, &name)).await,
            R::Rename { dir, name, to_dir, to_name, mode } => {
                Box::pin(self.rename(ctx, (dir, &name), (to_dir, &to_name), mode)).await
            }
            R::Link { ino, dir, name } => self.link(ctx, ino, dir, &name).await,
            R::Read { ino, offset, len } => self.read(ctx, ino, offset, len).await,
            R::Write { ino, offset, data, stability, append, kill_suid } => {
                let w = super::write::Write { offset, data, stability, append, kill_suid };
                self.write(ctx, ino, w).await
            }
            R::Fsync { ino, data_only } => self.fsync(ino, data_only).await,
            R::SyncAll => self.sync_all().await,
            R::ReadDir { dir, cookie, max_bytes, entry_bytes, attrs } => {
                let want = super::readdir::Want { cookie, max_bytes, entry_bytes, attrs };
                self.readdir(ctx, dir, want).await
            }
            R::StatFs => Ok(Reply::StatFs(self.store.statfs())),
            R::GetXattr { ino, name } => self.getxattr(ctx, ino, &name).await,
            R::SetXattr { ino, name, value, mode } => {
                self.setxattr(ctx, ino, &name, Some(value), mode).await
            }
            R::ListXattr { ino } => self.listxattr(ctx, ino).await,
            R::RemoveXattr { ino, name } => {
                self.setxattr(ctx, ino, &name, None, vfs::XattrMode::Replace).await
            }
            R::Access { ino, mask } => self.access(ctx, ino, mask).await,
            R::Space { ino, op, offset, len } => self.space(ctx, ino, op, offset, len).await,
            R::Seek { ino, kind, offset } => self.seek(ino, kind, offset).await,
            R::Info => {
                let mut info = (self.about)();
                info.counters.extend(self.store.counters());
                // Also after damage or a failed write, which stop all writing.
                info.read_only |= self.store.writable().is_err();
                Ok(Reply::Info(Box::new(info)))
            }
        }
    }
}

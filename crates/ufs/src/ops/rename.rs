//! Moving a name: the new one first, the old one after it, so that at no moment there is none. A
//! directory that changes its parent takes its ".." and the parents' counts along.

use super::{Ctx, Done, check_name, is_dots};
use crate::Ufs;
use crate::inode::Inode;
use crate::store::Store;
use env::sync::LockGuard;
use format::Ino;
use format::ufs::dirent::{SECTOR, head_crosses_sector};
use format::ufs::inode::Which;
use integrity::{Change, Credits};
use std::rc::Rc;
use vfs::{FsError, Kind, RenameMode, Reply};

/// Everything a rename touches, locked.
struct Move {
    from: Rc<Inode>,
    to: Rc<Inode>,
    what: Rc<Inode>,
    over: Option<Rc<Inode>>,
    locks: Vec<LockGuard>,
}

impl Move {
    fn changes_parent(&self) -> bool {
        self.from.ino() != self.to.ino()
    }
}

/// Must a target that exists stay?
fn keeps_target(mode: RenameMode) -> bool {
    matches!(mode, RenameMode::NoReplace | RenameMode::Whiteout { replace: false })
}

impl<S: Store> Ufs<S> {
    pub(super) async fn rename(
        &self,
        ctx: &mut Ctx,
        (dir, name): (u32, &[u8]),
        (to_dir, to_name): (u32, &[u8]),
        mode: RenameMode,
    ) -> Done {
        let from = self.inode(dir).await?;
        let to = self.inode(to_dir).await?;
        if !from.is_dir() || !to.is_dir() {
            return Err(FsError::NotDir);
        }
        check_name(name)?;
        check_name(to_name)?;
        if is_dots(name) || is_dots(to_name) {
            return Err(FsError::Busy);
        }
        self.permit_search(ctx, &from).await?;
        self.permit_search(ctx, &to).await?;
        ctx.wcc = [self.wcc(ctx, None, &from), self.wcc(ctx, None, &to)];
        // Only one directory changes its parent at a time, so that the check for loops holds.
        let crossing = from.ino() != to.ino();
        let moving = if crossing { Some(self.renames.lock().await) } else { None };
        let mut m = self.lock_move(from, name, to, to_name).await?;
        m.locks.extend(moving); // given back with them: nobody else waits until this is durable
        let before = (self.pre(&m.from), self.pre(&m.to));
        ctx.wcc = [self.wcc(ctx, Some(before.0), &m.from), self.wcc(ctx, Some(before.1), &m.to)];
        self.check_move(ctx, &m, mode).await?;
        if m.over.as_ref().is_some_and(|o| o.ino() == m.what.ino()) {
            return Ok(Reply::Done); // two names of one file
        }
        // Two entries change at once, as an overlay relies on; Linux's ext2 does not do it either.
        if matches!(mode, RenameMode::Whiteout { .. }) && !self.store.guarantees().atomic {
            return Err(FsError::Invalid);
        }
        if mode == RenameMode::Exchange {
            self.check_exchange(&m, name, to_name).await?;
        }
        if m.over.is_none() {
            self.prepare_name(ctx, &m.to, to_name).await?;
        }
        if crossing {
            self.prepare_dots(&m.what).await?;
            if let Some(over) = m.over.as_ref().filter(|_| mode == RenameMode::Exchange) {
                self.prepare_dots(over).await?;
            }
        }
        let mut txn = self.begin(ctx, Credits::blocks(64)).await?;
        let moved = match mode {
            RenameMode::Exchange => self.exchange(&mut txn, &m, name, to_name).await,
            RenameMode::Whiteout { .. } => {
                self.move_from_whiteout(ctx, &mut txn, &m, name, to_name).await
            }
            _ => self.move_name(&mut txn, &m, (name, to_name), None).await,
        };
        if let Err(e) = moved {
            return self.abandon(txn, m.locks, e).await;
        }
        ctx.wcc = [self.wcc(ctx, Some(before.0), &m.from), self.wcc(ctx, Some(before.1), &m.to)];
        self.note_moved(&m.what, &m.to);
        // The other one has moved as well: what lies below it is asked for under its new name.
        if let Some(over) = m.over.as_ref().filter(|_| mode == RenameMode::Exchange) {
            self.note_moved(over, &m.from);
        }
        self.finish(ctx, txn, m.locks).await?;
        Ok(Reply::Done)
    }

    /// The inode has its name in another place now.
    fn note_moved(&self, inode: &Inode, dir: &Inode) {
        self.note_name(inode, dir);
        if inode.is_dir() {
            self.table.names.note_moved(inode.ino());
        }
    }

    async fn lock_move(
        &self,
        from: Rc<Inode>,
        name: &[u8],
        to: Rc<Inode>,
        to_name: &[u8],
    ) -> Result<Move, FsError> {
        loop {
            let what = self.child(&from, name).await?.ok_or(FsError::NotFound)?;
            let over = self.child(&to, to_name).await?;
            let mut all = vec![&from, &to, &what];
            all.extend(over.as_ref());
            let locks = match self.lock(&all).await {
                Ok(l) => l,
                Err(FsError::Stale) if !self.is_gone(&from) && !self.is_gone(&to) => continue,
                Err(e) => return Err(e),
            };
            let now = (self.find(&from, name).await?, self.find(&to, to_name).await?);
            let same = now.0.map(|f| f.ino) == Some(what.ino())
                && now.1.map(|f| f.ino) == over.as_ref().map(|o| o.ino());
            if same {
                let locked = all.iter().all(|i| i.lock.is_busy());
                assert!(locked, "U1: {} moves, and not all of it is locked", what.ino());
                return Ok(Move { from, to, what, over, locks });
            }
        }
    }

    async fn check_move(&self, ctx: &Ctx, m: &Move, mode: RenameMode) -> Result<(), FsError> {
        self.permit_names(ctx, &m.from).await?;
        self.permit_names(ctx, &m.to).await?;
        self.permit_sticky(ctx, &m.from, &m.what)?;
        if m.to.links() == 0 {
            return Err(FsError::NotFound);
        }
        // For a moment it has two names. (No volume in order counts so many.)
        if m.what.links() == u32::from(u16::MAX) {
            return Err(FsError::TooManyLinks);
        }
        if m.what.is_dir() && m.changes_parent() {
            let alone = self.renames.is_busy();
            assert!(alone, "U7: {} is to move, and others may as well", m.what.ino());
            self.permit(ctx, &m.what, vfs::access::WRITE).await?;
            self.check_no_loop(&m.what, &m.to, FsError::Invalid).await?;
            let replaces = mode != RenameMode::Exchange && m.over.is_some();
            let gains = !replaces && m.over.as_ref().is_none_or(|o| !o.is_dir());
            if gains && !self.may_link(&m.to) {
                return Err(FsError::TooManyLinks);
            }
        }
        let Some(over) = &m.over else {
            return if mode == RenameMode::Exchange { Err(FsError::NotFound) } else { Ok(()) };
        };
        if over.ino() == m.what.ino() {
            return if keeps_target(mode) { Err(FsError::Exists) } else { Ok(()) };
        }
        self.permit_sticky(ctx, &m.to, over)?;
        match mode {
            _ if keeps_target(mode) => Err(FsError::Exists),
            RenameMode::Exchange if over.is_dir() && m.changes_parent() => {
                if !m.what.is_dir() && !self.may_link(&m.from) {
                    return Err(FsError::TooManyLinks);
                }
                self.check_no_loop(over, &m.from, FsError::Invalid).await
            }
            RenameMode::Exchange => Ok(()),
            _ => match (m.what.is_dir(), over.is_dir()) {
                (true, false) => Err(FsError::NotDir),
                (false, true) => Err(FsError::IsDir),
                (true, true) => {
                    self.check_no_loop(over, &m.from, FsError::NotEmpty).await?;
                    self.check_empty(over).await
                }
                (false, false) => Ok(()),
            },
        }
    }

    /// `dir` must not be `under`, nor lie above it.
    async fn check_no_loop(
        &self,
        dir: &Rc<Inode>,
        under: &Rc<Inode>,
        else_: FsError,
    ) -> Result<(), FsError> {
        let mut at = under.clone();
        for _ in 0..1 << 16 {
            if at.ino() == dir.ino() {
                return Err(else_);
            }
            if at.ino() == format::ROOT_INO {
                return Ok(());
            }
            let up = self.parent_of(&at).await?.ino;
            if up == at.ino() {
                return Ok(());
            }
            at = self.inode(up.0).await?;
        }
        Err(FsError::Invalid)
    }

    /// Moves the name, and has the old one name a whiteout, so that at no moment there is none.
    async fn move_from_whiteout(
        &self,
        ctx: &Ctx,
        txn: &mut S::Txn,
        m: &Move,
        name: &[u8],
        to_name: &[u8],
    ) -> Result<(), FsError> {
        let whiteout = self.make_whiteout(ctx, txn, &m.from).await?;
        let moved = self.move_name(txn, m, (name, to_name), Some(whiteout.ino)).await;
        if moved.is_err() {
            let _ = self.unmake(txn, &whiteout).await; // the first error is the one to tell
        }
        moved
    }

    /// The old name goes, or names the whiteout.
    async fn move_name(
        &self,
        txn: &mut S::Txn,
        m: &Move,
        (name, to_name): (&[u8], &[u8]),
        whiteout: Option<Ino>,
    ) -> Result<(), FsError> {
        let (what, mode) = (m.what.ino(), m.what.with(|i| i.mode()));
        let moves_dir = m.what.is_dir() && m.changes_parent();
        assert!(!moves_dir || self.renames.is_busy(), "U7: {what} moves, and others may as well");
        // What can fail comes first: finding what will change, and room.
        let _goes = self.spot(&m.from, name, what).await?;
        let _dots = self.dots(&m.what, moves_dir).await?;
        match &m.over {
            Some(over) => {
                self.redirect_name(txn, &m.to, to_name, (over.ino(), what), mode).await?;
            }
            None => self.make_slack(txn, &m.to, to_name.len()).await?,
        }
        let links = m.what.links();
        // For a moment there are two names, and the count must not be lower than the names.
        self.set_links(txn, &m.what.h, links + 1, Change::LinkUp(what));
        // So with the names "..": that of a directory that is replaced goes later. (One whose
        // subdirectories are not counted says 1 throughout.)
        let twice = moves_dir && m.over.is_some() && m.to.links() > 1;
        if twice {
            self.set_links(txn, &m.to.h, m.to.links() + 1, Change::LinkUp(m.to.ino()));
        } else if moves_dir && m.over.is_none() {
            self.count_subdir(txn, &m.to, 1, Change::LinkUp(m.to.ino()));
        }
        if m.over.is_none() {
            assert!(
                m.what.links() > links,
                "U5: two names of {what} are to be, and are not counted"
            );
            self.add_name(txn, &m.to, to_name, what, mode).await?;
        }
        if moves_dir {
            self.redirect_parent(txn, &m.what, m.to.ino()).await?;
        }
        match whiteout {
            None => self.remove_name(txn, &m.from, name, what).await?,
            Some(w) => {
                let mode = Kind::Char.mode_bits() as u16;
                self.redirect_name(txn, &m.from, name, (what, w), mode).await?;
            }
        }
        let two = m.what.links() == links + 1;
        assert!(two, "U5: {what} has had two names, and counts {}", m.what.links());
        self.set_links(txn, &m.what.h, links, Change::LinkDown(what));
        self.touch(txn, &m.what.h, &[Which::Change]);
        if let Some(over) = &m.over {
            let again = over.is_dir() && self.is_named_again(&m.to, over.ino()).await?;
            if twice && !again {
                let down = m.to.links().saturating_sub(1);
                self.set_links(txn, &m.to.h, down, Change::ParentLinkDown(m.to.ino()));
            }
        }
        // The old parent has lost a "..": to the new parent, or with the directory that was
        // replaced.
        let left = match &m.over {
            _ if moves_dir => Some(what),
            over => over.as_ref().filter(|_| m.what.is_dir()).map(|o| o.ino()),
        };
        if let Some(left) = left
            && !self.is_named_again(&m.from, left).await?
        {
            self.count_subdir(txn, &m.from, -1, Change::ParentLinkDown(m.from.ino()));
        }
        self.touch_changed(txn, &m.from.h);
        self.touch_changed(txn, &m.to.h);
        // Last: what it frees may be more than one transaction, and all else is of the first.
        match &m.over {
            Some(over) => self.drop_target(txn, over).await,
            None => Ok(()),
        }
    }

    /// The block with the ".." of a directory that is to move, kept in memory.
    async fn dots(&self, dir: &Inode, moves: bool) -> Result<Option<cache::Buf>, FsError> {
        if !moves {
            return Ok(None);
        }
        let dots = self.parent_of(dir).await?;
        self.dir_at(dir, dots.at).await.map(|(buf, _)| Some(buf))
    }

    async fn drop_target(&self, txn: &mut S::Txn, over: &Rc<Inode>) -> Result<(), FsError> {
        if over.is_dir() {
            return self.drop_dir(txn, over).await;
        }
        self.drop_link(txn, over).await
    }

    /// Two names change their inodes: at once where a transaction is atomic, or where both entries
    /// lie in one sector and no ".." changes.
    async fn check_exchange(&self, m: &Move, name: &[u8], to_name: &[u8]) -> Result<(), FsError> {
        if self.store.guarantees().atomic {
            return Ok(());
        }
        let over = m.over.as_ref().expect("check_move has asked for it");
        let moves_dir = m.changes_parent() && (m.what.is_dir() || over.is_dir());
        let places = (self.find(&m.from, name).await?, self.find(&m.to, to_name).await?);
        let in_sector = |f: &crate::dir::Found| !head_crosses_sector(f.at as usize);
        let sector =
            |f: Option<crate::dir::Found>| f.filter(in_sector).map(|f| f.at / SECTOR as u64);
        let (a, b) = (sector(places.0), sector(places.1));
        let same_sector = !m.changes_parent() && a.is_some() && a == b;
        if moves_dir || !same_sector { Err(FsError::Invalid) } else { Ok(()) }
    }

    async fn exchange(
        &self,
        txn: &mut S::Txn,
        m: &Move,
        name: &[u8],
        to_name: &[u8],
    ) -> Result<(), FsError> {
        let over = m.over.as_ref().expect("check_move has asked for it");
        let (a, b) = (m.what.ino(), over.ino());
        let (mode_a, mode_b) = (m.what.with(|i| i.mode()), over.with(|i| i.mode()));
        let crossing = m.changes_parent();
        assert!(
            !crossing || self.renames.is_busy(),
            "U7: {a} and {b} move, and others may as well"
        );
        let gain = |i: &Inode| i64::from(crossing && i.is_dir());
        let shift = gain(&m.what) - gain(over);
        // As in `move_name`; what a mode that exchanges can do needs no room.
        let _spots = (self.spot(&m.from, name, a).await?, self.spot(&m.to, to_name, b).await?);
        let _dots = (
            self.dots(&m.what, crossing && m.what.is_dir()).await?,
            self.dots(over, crossing && over.is_dir()).await?,
        );
        // The checker beside service must not see a moment at which nothing names the second.
        self.tell(|c| c.named(m.from.ino(), b, over.is_dir()));
        let first = self.redirect_name(txn, &m.to, to_name, (b, a), mode_a).await;
        let both = match first {
            Ok(()) => self.redirect_name(txn, &m.from, name, (a, b), mode_b).await,
            Err(e) => Err(e),
        };
        self.tell(|c| c.unnamed(m.from.ino(), b));
        both?;
        if crossing && m.what.is_dir() {
            self.redirect_parent(txn, &m.what, m.to.ino()).await?;
        }
        if crossing && over.is_dir() {
            self.redirect_parent(txn, over, m.from.ino()).await?;
        }
        if shift != 0 {
            let (gains, loses) = if shift > 0 { (&m.to, &m.from) } else { (&m.from, &m.to) };
            self.count_subdir(txn, gains, 1, Change::LinkUp(gains.ino()));
            self.count_subdir(txn, loses, -1, Change::ParentLinkDown(loses.ino()));
        }
        for i in [&m.what, over] {
            self.touch(txn, &i.h, &[Which::Change]);
        }
        self.touch_changed(txn, &m.from.h);
        self.touch_changed(txn, &m.to.h);
        Ok(())
    }
}

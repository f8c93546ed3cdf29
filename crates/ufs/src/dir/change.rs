//! Changing a directory: adding, removing and redirecting names. The caller holds the directory's
//! lock and an open transaction. Only `make_slack` may need space, and in one rare case
//! `redirect_name`: whoever calls them does it before anything that would have to be undone.

use crate::Ufs;
use crate::inode::Inode;
use crate::store::{Store, Transaction};
use cache::Buf;
use format::ext::csum::entries_part;
use format::intent::{Intent, NameIntent};
use format::ufs::dirent::{self, Merge, SECTOR, sector_of};
use format::ufs::inline;
use format::ufs::inode::{FLAG_INDEX, InodeMut};
use format::ufs::{dirindex, dirleaf};
use format::{FileBlock, FormatError, Ino};
use integrity::{Change, Credits};
use vfs::FsError;

/// The kind in the mode of a directory.
const DIR_MODE: u16 = 0o040_000;

/// Has the block an entry there with that name, of that inode?
fn names(buf: &Buf, at: usize, (name, ino): (&[u8], Ino)) -> bool {
    dirent::entry_at(&buf.bytes(), at).is_ok_and(|e| e.ino == ino && e.name == name)
}

/// Is it the mode of a directory?
fn is_dir_mode(mode: u16) -> bool {
    vfs::Kind::from_mode(u32::from(mode)) == Some(vfs::Kind::Dir)
}

impl<S: Store> Ufs<S> {
    /// A number that stands for a name, for mechanisms, which know none.
    fn stands_for(&self, name: &[u8]) -> u32 {
        self.name_hasher.hash(name) as u32
    }

    /// Tells the checker beside service, if it is at work, what changes.
    pub(crate) fn tell(&self, what: impl FnOnce(&mut check::live::Census)) {
        if let Some(watch) = self.store.watch() {
            watch.tell(what);
        }
    }

    /// Is what an entry names a directory? As the entry says, or else the inode, which whoever
    /// takes names away has in memory.
    fn is_dir_at(&self, block: &[u8], at: usize, ino: Ino) -> bool {
        if self.store.limits().entry_kinds {
            return dirent::kind_at(block, at) == dirent::kind_byte(DIR_MODE);
        }
        self.table.get(ino).is_some_and(|i| i.is_dir())
    }

    /// Has the inode, which loses a name, another one? Whoever takes names away has it in memory.
    fn is_named_elsewhere(&self, ino: Ino) -> bool {
        self.table.get(ino).is_some_and(|i| i.links() > 1)
    }

    fn intend_named(&self, txn: &mut S::Txn, dir: &Inode, name: &[u8], (ino, is_dir): (Ino, bool)) {
        let dir = dir.ino();
        txn.intend(|| Intent::Named(NameIntent { dir, ino, is_dir, name: name.to_vec() }));
    }

    fn intend_unnamed(
        &self,
        txn: &mut S::Txn,
        dir: &Inode,
        name: &[u8],
        (ino, is_dir): (Ino, bool),
    ) {
        let dir = dir.ino();
        txn.intend(|| Intent::Unnamed(NameIntent { dir, ino, is_dir, name: name.to_vec() }));
    }

    /// Before a directory's first change: where no index is kept, that of a kernel is given up,
    /// since it would no longer match. Where its blocks carry checksums, a name that goes leaves
    /// the index right, and before one comes [`Ufs::unindex`] has been here.
    fn drop_hash_index(&self, txn: &mut S::Txn, dir: &Inode) {
        let flags = dir.with(|i| i.flags());
        let limits = self.store.limits();
        if flags & FLAG_INDEX != 0 && limits.dir_tail == 0 && limits.index_rules.is_none() {
            dir.h.edit(txn, Change::DropIndex(dir.ino()), |raw| {
                InodeMut(raw).set_flags(flags & !FLAG_INDEX);
            });
        }
    }

    /// Before a name comes into a directory whose blocks carry checksums, on a volume that says
    /// nothing of indexes: that of a kernel is given up as a whole, in a transaction of its own.
    /// Its nodes become blocks of entries, because as such they would have no place for their
    /// checksum.
    pub(crate) async fn unindex(&self, dir: &Inode) -> Result<(), FsError> {
        if !self.store.guarantees().atomic {
            self.cut_tail(dir).await?;
        }
        let (flags, limits) = (dir.with(|i| i.flags()), self.store.limits());
        if flags & FLAG_INDEX == 0 || limits.dir_tail == 0 {
            return Ok(());
        }
        self.store.writable()?;
        let blocks = dir.size() / limits.block_bytes as u64;
        let root = self.store.dir_block(&dir.h, FileBlock(0)).await?;
        let blocks_of = |n: dirindex::Node<'_>| n.pointers().into_iter().map(|p| p.block).collect();
        let (levels, mut next): (u8, Vec<u32>) = {
            let bytes = root.bytes();
            let top = dirindex::root(&bytes, limits.dir_tail);
            let (info, node) = top.map_err(|e| self.dir_damage(dir, &e))?;
            (info.levels, blocks_of(node))
        };
        let mut nodes = vec![root];
        for _ in 0..levels {
            let mut below = Vec::new();
            for n in next {
                if u64::from(n) >= blocks || nodes.len() as u64 > blocks {
                    let e = FormatError::corrupt("an index that leaves it", format!("block {n}"));
                    return Err(self.dir_damage(dir, &e));
                }
                let buf = self.store.dir_block(&dir.h, FileBlock(u64::from(n))).await?;
                let list: Vec<u32> = {
                    let bytes = buf.bytes();
                    let node = dirindex::node(&bytes, limits.dir_tail);
                    blocks_of(node.map_err(|e| self.dir_damage(dir, &e))?)
                };
                below.extend(list);
                nodes.push(buf);
            }
            next = below;
        }
        assert!(dir.lock.is_busy(), "U1: an index goes from {}, which is not locked", dir.ino());
        let need = Credits::to_free(nodes.len() as u64 + 8);
        let mut txn = self.store.begin(need).await?;
        dir.h.edit(&mut txn, Change::DropIndex(dir.ino()), |raw| {
            InodeMut(raw).set_flags(flags & !FLAG_INDEX);
        });
        let change = Change::DropIndex(dir.ino());
        for (n, buf) in nodes.iter().enumerate() {
            txn.edit(buf, 0..limits.block_bytes, change, |b| {
                dirindex::flatten(b, n == 0, limits.dir_tail);
            });
        }
        *dir.dir.borrow_mut() = None;
        self.store.end(txn).await.map(drop)
    }

    /// Blocks that a crash has left mapped beyond a directory's end go before it grows into them:
    /// what names they hold nobody has seen. The directory is locked. True if there were any.
    pub(crate) async fn cut_tail(&self, dir: &Inode) -> Result<bool, FsError> {
        assert!(dir.lock.is_busy(), "U1: the end of {} is cut, and it is not locked", dir.ino());
        let bs = self.store.limits().block_bytes as u64;
        let end = FileBlock(dir.dir_end(bs) / bs);
        if self.store.map(&dir.h, end, 1).await?.start.is_none() {
            return Ok(false);
        }
        let mut txn = self.store.begin(Credits::to_free(32)).await?;
        let cut = self.store.truncate(&mut txn, &dir.h, end).await;
        self.store.end(txn).await?;
        cut.map(|()| true)
    }

    /// Makes sure that a name of `name_len` bytes fits, growing the directory if need be;
    /// [`Ufs::prepare_name`] was called before the transaction.
    pub(crate) async fn make_slack(
        &self,
        txn: &mut S::Txn,
        dir: &Inode,
        name_len: usize,
    ) -> Result<(), FsError> {
        // By the flag: an index found damaged since this operation began still gets the name.
        if self.has_index_flag(dir) || dir.with(|i| i.is_inline()) {
            return Ok(()); // it was there already, before this transaction
        }
        self.index(dir).await?;
        self.drop_hash_index(txn, dir);
        let with_index = |f: &mut dyn FnMut(&mut super::DirIndex) -> bool| {
            dir.dir.borrow_mut().as_deref_mut().map(f).ok_or(FsError::Stale)
        };
        let has_slack = |x: &mut super::DirIndex| {
            x.recheck(|by| self.store.keeps_old_name(by));
            let found = x.find_slack(name_len);
            found.is_some() || !x.few_are_vacated() && x.take_vacated(name_len).is_some()
        };
        if with_index(&mut |x| has_slack(x))? {
            return Ok(());
        }
        let mut empty = vec![0; self.store.limits().block_bytes];
        dirent::init_empty_before(&mut empty, self.store.limits().dir_tail);
        match self.grow(txn, dir, &empty).await {
            Err(FsError::NoSpace) if with_index(&mut |x| x.take_vacated(name_len).is_some())? => {
                return Ok(());
            }
            grown => grown?,
        }
        let has_room = |x: &mut Box<super::DirIndex>| x.find_slack(name_len).is_some();
        let found = dir.dir.borrow_mut().as_mut().is_none_or(has_room);
        assert!(found, "U4: a new block of directory {} has no room for a name", dir.ino());
        Ok(())
    }

    /// Appends a block with these contents.
    async fn grow(&self, txn: &mut S::Txn, dir: &Inode, contents: &[u8]) -> Result<(), FsError> {
        assert!(dir.lock.is_busy(), "U1: directory {} grows, and is not locked", dir.ino());
        assert!(!self.is_indexed(dir), "U12: a block of {} that its index knows not", dir.ino());
        let bs = contents.len();
        let size = dir.size() + bs as u64;
        if size >= super::DIR_BYTES_MAX {
            return Err(FsError::NoSpace);
        }
        let n = size / bs as u64 - 1;
        self.store.dir_grow(txn, &dir.h, FileBlock(n), contents).await?;
        dir.h.edit(txn, Change::GrowDir(dir.ino()), |raw| InodeMut(raw).set_size(size));
        if let Some(index) = dir.dir.borrow_mut().as_mut() {
            let part = entries_part(contents, self.store.limits().dir_tail);
            index.add_block(part).expect("a block of our own making is well formed");
            let (known, has) = (index.blocks(), size / bs as u64);
            assert_eq!(known, has, "U4: blocks of directory {} that its index knows", dir.ino());
        }
        Ok(())
    }

    /// Adds a name to a directory that lies in its inode; false: it does not.
    fn add_inline(
        &self,
        txn: &mut S::Txn,
        dir: &Inode,
        name: &[u8],
        (ino, mode): (Ino, u16),
    ) -> Result<bool, FsError> {
        let kind = if self.store.limits().entry_kinds { dirent::kind_byte(mode) } else { 0 };
        let named = self.stands_for(name);
        let change = Change::AddEntry { dir: dir.ino(), ino, name: named, at: 0 };
        let added = self.edit_inline_dir(txn, dir, change, |b| {
            let at = inline::add(b, name, ino, kind)?;
            at.map(drop).ok_or_else(|| FormatError::corrupt("room that has gone", "its entries"))
        })?;
        if added {
            self.intend_named(txn, dir, name, (ino, is_dir_mode(mode)));
            self.tell(|c| c.named(dir.ino(), ino, is_dir_mode(mode)));
        }
        Ok(added)
    }

    /// The block with the slack that was made for a name, its number, and the entry there.
    async fn slack_for(&self, dir: &Inode, name: &[u8]) -> Result<(Buf, u64, usize), FsError> {
        let tail = self.store.limits().dir_tail;
        let (block, found, buf) = if self.has_index_flag(dir) {
            *dir.dir.borrow_mut() = None; // the index in memory is stale
            let (block, at) = self.room_of(dir, name).await?;
            let buf = self.entries_block(dir, block).await?;
            let has = dirent::has_slack(entries_part(&buf.bytes(), tail), at, name.len());
            (block, has.map(|has| has.then_some(at)), buf)
        } else {
            let slack = dir.dir.borrow_mut().as_mut().and_then(|x| x.find_slack(name.len()));
            let (block, sector) = slack.expect("make_slack has made it");
            let buf = self.store.dir_block(&dir.h, FileBlock(block)).await?;
            let from = sector * SECTOR;
            let found = dirent::find_slack_in(entries_part(&buf.bytes(), tail), from, name.len());
            (block, found.map(|at| at.filter(|a| a / SECTOR == sector)), buf)
        };
        match found.map_err(|e| self.dir_damage(dir, &e))? {
            Some(at) => Ok((buf, block, at)),
            None => {
                // Somebody else has written here: a block is used twice.
                let what = "the slack of a directory has changed by itself";
                let e = FormatError::corrupt(what, format!("its block {block}"));
                Err(self.dir_damage(dir, &e))
            }
        }
    }

    /// Adds a name; `make_slack` was called in this transaction.
    pub(crate) async fn add_name(
        &self,
        txn: &mut S::Txn,
        dir: &Inode,
        name: &[u8],
        ino: Ino,
        mode: u16,
    ) -> Result<(), FsError> {
        assert!(dir.lock.is_busy(), "U1: a name for {ino} in a directory that nobody has locked");
        if self.add_inline(txn, dir, name, (ino, mode))? {
            return Ok(());
        }
        let (buf, block, at) = self.slack_for(dir, name).await?;
        let (sector, tail) = (at / SECTOR, self.store.limits().dir_tail);
        let kind = if self.store.limits().entry_kinds { dirent::kind_byte(mode) } else { 0 };
        let place = dirent::place_of_new(&buf.bytes(), at) as u16;
        let change =
            Change::AddEntry { dir: dir.ino(), ino, name: self.stands_for(name), at: place };
        let entry = txn.edit(&buf, sector_of(at), change, |b| {
            sector * SECTOR + dirent::insert(b, at % SECTOR, ino, kind, name)
        });
        dir.names_change();
        self.intend_named(txn, dir, name, (ino, is_dir_mode(mode)));
        self.tell(|c| c.named(dir.ino(), ino, is_dir_mode(mode)));
        let written = names(&buf, entry, (name, ino));
        assert!(written, "U4: a name that is added to directory {} can be read", dir.ino());
        assert_eq!(entry / SECTOR, sector, "U4: a name lies in the sector that was found for it");
        let bs = self.store.limits().block_bytes as u64;
        if let Some(index) = dir.dir.borrow_mut().as_mut() {
            index.add(name, block * bs + entry as u64);
            let refreshed = index.refresh_sector(block, sector, entries_part(&buf.bytes(), tail));
            refreshed.map_err(|e| self.dir_damage(dir, &e))?;
        }
        Ok(())
    }

    /// Removes a name. It needs no space.
    pub(crate) async fn remove_name(
        &self,
        txn: &mut S::Txn,
        dir: &Inode,
        name: &[u8],
        ino: Ino,
    ) -> Result<(), FsError> {
        assert!(
            dir.lock.is_busy(),
            "U1: a name of {ino} goes, and nobody has locked its directory"
        );
        let Spot { buf, offset, at } = self.spot(dir, name, ino).await?;
        let limits = self.store.limits();
        let block = at / limits.block_bytes as u64;
        let is_indexed = self.is_indexed(dir);
        let may_cross = if is_indexed {
            *dir.dir.borrow_mut() = None; // as where one is added
            true
        } else {
            dir.dir.borrow().as_ref().is_some_and(|x| x.is_crossing(block))
        };
        let sector = sector_of(offset);
        let from = if may_cross { 0 } else { sector.start };
        let merge = dirent::merge_of(&buf.bytes(), from, offset);
        let merge = merge.map_err(|e| self.dir_damage(dir, &e))?;
        let merge = merge.map(|m| Merge { into: m.into % SECTOR, ..m });
        self.drop_hash_index(txn, dir);
        let change = Change::RemoveEntry {
            dir: dir.ino(),
            ino,
            name: self.stands_for(name),
            at: offset as u16,
        };
        let is_dir = self.is_dir_at(&buf.bytes(), offset, ino);
        dir.names_change();
        self.intend_unnamed(txn, dir, name, (ino, is_dir));
        let place = inline::place_of(offset).unwrap_or(0);
        if self.edit_inline_dir(txn, dir, change, |b| inline::remove(b, place))? {
            self.tell(|c| c.unnamed(dir.ino(), ino));
            return Ok(());
        }
        txn.edit(&buf, sector, change, |b| dirent::remove(b, offset % SECTOR, merge));
        let is_left = merge.is_none() && names(&buf, offset, (name, ino));
        assert!(!is_left, "U4: a name that was taken from directory {} is there still", dir.ino());
        self.tell(|c| c.unnamed(dir.ino(), ino));
        if let Some(index) = dir.dir.borrow_mut().as_mut() {
            index.remove(name, at);
            let bytes = buf.bytes();
            let part = entries_part(&bytes, limits.dir_tail);
            let refreshed = index.refresh_sector(block, offset / SECTOR, part);
            refreshed.map_err(|e| self.dir_damage(dir, &e))?;
            if !self.store.guarantees().atomic && self.is_named_elsewhere(ino) {
                index.recheck(|by| self.store.keeps_old_name(by));
                index.vacate(block, offset / SECTOR, txn.id());
            }
        }
        self.leave_gaps(txn, dir, &buf, is_indexed);
        Ok(())
    }

    /// After a removal: leaves the free space of a leaf, or of a directory's only block, of which
    /// Linux may make one, where Linux expects it. Not where a torn write could leave half of that.
    /// Damage is not reported here: the name has gone, and the operation goes on.
    fn leave_gaps(&self, txn: &mut S::Txn, dir: &Inode, block: &Buf, is_leaf: bool) {
        let limits = self.store.limits();
        let is_atomic = self.store.guarantees().atomic && limits.index_rules.is_some();
        let is_only = is_atomic && dir.size() == limits.block_bytes as u64;
        if !is_leaf && !is_only {
            return;
        }
        let image = {
            let (bytes, tail) = (block.bytes(), limits.dir_tail);
            let part = entries_part(&bytes, tail);
            if is_leaf { dirleaf::with_gaps(part, tail) } else { dirleaf::joined(part) }
        };
        if let Ok(Some(image)) = image {
            let change = Change::Reindex(dir.ino());
            txn.edit_words(block, 0..image.len(), change, |b| b.copy_from_slice(&image));
            *dir.dir.borrow_mut() = None; // the index in memory knows free space by sectors
        }
    }

    /// Makes a name that names `old` name `new`. Needs space only where the entry's head lies in
    /// two sectors, both of which change, and a torn write would leave the half: that block is
    /// swapped for a copy in which the name is changed already, and is told of once more.
    pub(crate) async fn redirect_name(
        &self,
        txn: &mut S::Txn,
        dir: &Inode,
        name: &[u8],
        (old, new): (Ino, Ino),
        mode: u16,
    ) -> Result<(), FsError> {
        assert!(dir.lock.is_busy(), "U1: a name of {old} changes in a directory not locked");
        let Spot { mut buf, offset, at } = self.spot(dir, name, old).await?;
        let limits = self.store.limits();
        let kind = if limits.entry_kinds { dirent::kind_byte(mode) } else { 0 };
        let change = Change::ChangeEntry { dir: dir.ino(), old, new, at: offset as u16 };
        self.drop_hash_index(txn, dir);
        let tell = || {
            self.tell(|c| {
                c.unnamed(dir.ino(), old);
                c.named(dir.ino(), new, is_dir_mode(mode));
            });
        };
        let was_dir = self.is_dir_at(&buf.bytes(), offset, old);
        dir.names_change();
        self.intend_unnamed(txn, dir, name, (old, was_dir));
        self.intend_named(txn, dir, name, (new, is_dir_mode(mode)));
        let place = inline::place_of(offset).unwrap_or(0);
        let inside = self.edit_inline_dir(txn, dir, change, |b| {
            dirent::set_ino(b, place, new);
            dirent::set_kind(b, place, kind);
            Ok(())
        })?;
        if inside {
            tell();
            return Ok(());
        }
        let same_kind = dirent::kind_at(&buf.bytes(), offset) == kind;
        if same_kind {
            let bytes = offset..offset + dirent::INO_BYTES;
            txn.edit(&buf, bytes, change, |b| dirent::set_ino(b, 0, new));
            assert!(names(&buf, offset, (name, new)), "U4: a name of {old} is to name {new}");
            tell();
            return Ok(());
        }
        let set = |b: &mut [u8], at: usize| {
            dirent::set_ino(b, at, new);
            dirent::set_kind(b, at, kind);
        };
        let guarantees = self.store.guarantees();
        let swaps = !guarantees.atomic && guarantees.new_blocks_first;
        if dirent::head_crosses_sector(offset) && swaps {
            let mut copy = buf.bytes().to_vec();
            set(&mut copy, offset);
            let n = FileBlock(at / limits.block_bytes as u64);
            buf = self.store.dir_swap(txn, &dir.h, n, &copy).await?;
            dir.forget_places();
            dir.names_change();
        }
        txn.edit(&buf, offset..offset + dirent::HEAD, change, |b| set(b, 0));
        assert!(names(&buf, offset, (name, new)), "U4: a name of {old} is to name {new}");
        let kept = dirent::kind_at(&buf.bytes(), offset) == kind;
        assert!(kept, "U4: the kind of {new}, which a name of {old} is to name");
        tell();
        Ok(())
    }

    /// Makes ".." of `dir` name `parent`. It needs no space.
    pub(crate) async fn redirect_parent(
        &self,
        txn: &mut S::Txn,
        dir: &Inode,
        parent: Ino,
    ) -> Result<(), FsError> {
        assert!(
            dir.lock.is_busy(),
            "U1: \"..\" of {} changes, and nobody has locked it",
            dir.ino()
        );
        self.drop_hash_index(txn, dir);
        let dots = self.parent_of(dir).await?;
        let (buf, offset) = self.dir_at(dir, dots.at).await?;
        self.check_names(dir, &buf, offset, (b"..", dots.ino))?;
        let change = Change::DotDot { dir: dir.ino(), parent };
        dir.names_change();
        let bytes = offset..offset + dirent::INO_BYTES;
        let inside = self.edit_inline_dir(txn, dir, change, |b| {
            dirent::set_ino(b, 0, parent);
            Ok(())
        })?;
        if !inside {
            txn.edit(&buf, bytes, change, |b| dirent::set_ino(b, 0, parent));
            assert!(names(&buf, offset, (b"..", parent)), "U4: \"..\" is to name {parent}");
        }
        self.tell(|c| c.moved(dir.ino(), parent));
        Ok(())
    }

    /// Where the entry of a name lies that names `ino`. As long as the spot is kept its block stays
    /// in memory, so that finding it again cannot fail.
    pub(crate) async fn spot(&self, dir: &Inode, name: &[u8], ino: Ino) -> Result<Spot, FsError> {
        let found = self.find(dir, name).await?.ok_or(FsError::NotFound)?;
        if found.ino != ino {
            return Err(FsError::Stale);
        }
        let (buf, offset) = self.dir_at(dir, found.at).await?;
        self.check_names(dir, &buf, offset, (name, ino))?;
        Ok(Spot { buf, offset, at: found.at })
    }

    /// An entry that was found by its name, in a directory that is locked, is there still, unless
    /// somebody else has written here: a block is used twice.
    fn check_names(
        &self,
        dir: &Inode,
        buf: &Buf,
        at: usize,
        (name, ino): (&[u8], Ino),
    ) -> Result<(), FsError> {
        if names(buf, at, (name, ino)) {
            return Ok(());
        }
        let place = format!("byte {at} of block {}", buf.block());
        let e = FormatError::corrupt("an entry of a directory has changed by itself", place);
        Err(self.dir_damage(dir, &e))
    }
}

/// An entry's place: its block, where it begins there, and where in the directory.
pub(crate) struct Spot {
    buf: Buf,
    offset: usize,
    at: u64,
}

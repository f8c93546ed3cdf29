//! lost+found: where what has lost its name gets a new one, "#" and its number. It is made if it is
//! missing, and grows if it is full.

use crate::CheckError;
use crate::dirblock;
use crate::finding::{Kind, Place};
use crate::pass2::is_node;
use crate::run::Check;
use crate::tables::{At, Dir, Info};
use format::ext::csum::entries_part;
use format::ext::features::incompat;
use format::ufs::dirent;
use format::ufs::dirindex;
use format::ufs::inode::{FLAG_EXTENTS, FLAG_INDEX, InodeMut, InodeRef, Which};
use format::{BlockNo, FileBlock, Ino, ROOT_INO};
use std::collections::BTreeSet;

const NAME: &[u8] = b"lost+found";

/// lost+found, with what keeps a hundred thousand attachments from reading it as often.
pub(crate) struct LostFound {
    ino: Ino,
    /// The names in it that a new one could meet.
    taken: BTreeSet<Vec<u8>>,
    /// Its blocks before this one are full.
    from: usize,
}

impl Check<'_> {
    /// Gives an inode a name in lost+found; a directory's ".." follows. Nothing but findings if
    /// there is no room.
    pub(crate) fn attach(&mut self, ino: Ino) -> Result<(), CheckError> {
        let Some(mut dir) = self.opened_lost_found()? else { return Ok(()) };
        let mut name = format!("#{ino}").into_bytes();
        let mut n = 1;
        while dir.taken.contains(&name) {
            // It ends after as many tries as there are names, so the name stays short.
            name = format!("#{ino}~{n}").into_bytes();
            n += 1;
        }
        let place = self.insert_name(dir.ino, &mut dir.from, ino, &name)?;
        let to = dir.ino;
        self.lost_found = Some(dir);
        let Some(at) = place else { return Ok(()) };
        self.info_mut(ino).names += 1;
        let Some(d) = self.dirs.get_mut(ino) else { return Ok(()) };
        (d.parent, d.name) = (to.0, at);
        self.add_link(to)?;
        self.set_dotdot(ino, to)
    }

    /// lost+found as it was left, or looked up for the first time. None: there is no room for it.
    fn opened_lost_found(&mut self) -> Result<Option<LostFound>, CheckError> {
        if let Some(dir) = self.lost_found.take() {
            return Ok(Some(dir));
        }
        let Some(ino) = self.lost_found()? else { return Ok(None) };
        let mut taken = BTreeSet::new();
        self.each_name(ino, &mut |name, _, _| {
            if name.starts_with(b"#") {
                taken.insert(name.to_vec());
            }
        })?;
        Ok(Some(LostFound { ino, taken, from: 0 }))
    }

    /// Counts a subdirectory that the repair itself puts there, so that it is no finding later.
    fn add_link(&mut self, dir: Ino) -> Result<(), CheckError> {
        let info = self.info_mut(dir);
        info.links = info.links.saturating_add(1);
        let links = info.links;
        self.edit_inode(dir, |raw| InodeMut(raw).set_links(links))
    }

    /// The directory lost+found, made if need be.
    fn lost_found(&mut self) -> Result<Option<Ino>, CheckError> {
        let mut found = None;
        self.each_name(ROOT_INO, &mut |name, ino, at| {
            if name == NAME {
                found = Some((ino, at));
            }
        })?;
        if let Some((ino, at)) = found {
            if self.dirs.find(ino).is_some() {
                return Ok(Some(ino));
            }
            let text = "lost+found is no directory; it loses the name";
            self.found_losing(Kind::NoLostFound, Place::Inode(ino), text);
            self.remove_name(ino, at)?;
        } else {
            self.found(Kind::NoLostFound, Place::Inode(ROOT_INO), "no lost+found; made anew");
        }
        let Some(ino) = self.find_free_inode() else { return Ok(None) };
        self.make_dir(ino, ROOT_INO, 0o700)?;
        let Some(at) = self.insert_name(ROOT_INO, &mut 0, ino, NAME)? else { return Ok(None) };
        self.info_mut(ino).names += 1;
        let d = self.dirs.get_mut(ino).expect("made just now");
        (d.parent, d.name, d.empty) = (ROOT_INO.0, at, false);
        self.add_link(ROOT_INO)?;
        Ok(Some(ino))
    }

    /// Makes `ino`, which is free, an empty directory.
    pub(crate) fn make_dir(&mut self, ino: Ino, parent: Ino, perm: u16) -> Result<(), CheckError> {
        let mut raw = vec![0; self.geo().inode_bytes];
        let now = (i64::from(self.options.now_secs), 0);
        let mut i = InodeMut(&mut raw);
        i.set_mode(0o040_000 | perm);
        i.set_links(2);
        i.set_extra_isize();
        if self.geo().extents {
            i.set_flags(FLAG_EXTENTS);
            i.set_empty_tree();
        }
        for w in [Which::Access, Which::Modify, Which::Change, Which::Create] {
            i.set_time(w, now);
        }
        self.edit_inode(ino, |b| b.copy_from_slice(&raw))?;
        let bytes = self.blank_dir_block(Some((ino, parent)));
        let block = self.map_new_block(ino, FileBlock(0), bytes)?;
        *self.info_mut(ino) = Info { kind: 2, empty: false, links: 2, names: 0 };
        let first = self.dirs.blocks.len();
        self.dirs.blocks.push(block.map_or(0, |b| b.0));
        let d = Dir {
            ino: ino.0,
            dotdot: parent.0,
            parent: if ino == ROOT_INO { ROOT_INO.0 } else { 0 },
            first,
            count: 1,
            ..Dir::default()
        };
        assert!(self.dirs.find(ino).is_none(), "K4: inode {ino} is a directory twice");
        let place = self.dirs.list.partition_point(|x| x.ino < ino.0);
        self.dirs.list.insert(place, d);
        Ok(())
    }

    /// Shows every name of a directory, with its inode and its place.
    fn each_name(
        &mut self,
        dir: Ino,
        show: &mut dyn FnMut(&[u8], Ino, At),
    ) -> Result<(), CheckError> {
        let Some(d) = self.dirs.get_mut(dir).copied() else { return Ok(()) };
        for n in d.first..d.first + d.count as usize {
            let block = self.dirs.blocks[n];
            if block == 0 {
                continue;
            }
            let bytes = self.view.read(BlockNo(block))?;
            let part = entries_part(&bytes, self.tail());
            for e in dirent::entries(part).filter_map(Result::ok).filter(|e| e.ino.0 != 0) {
                show(e.name, e.ino, At { block, byte: e.at as u16 });
            }
        }
        Ok(())
    }

    /// Puts a name into a directory, which grows if need be; its blocks before `from` are full, and
    /// are not looked at. The names that are there stay where they are.
    fn insert_name(
        &mut self,
        dir: Ino,
        from: &mut usize,
        ino: Ino,
        name: &[u8],
    ) -> Result<Option<At>, CheckError> {
        let kinds = self.sb.has_incompat(incompat::FILETYPE);
        let kind = if kinds { self.infos.get(ino).kind } else { 0 };
        let i = self.dirs.find(dir).expect("a directory of the list");
        self.unindex(dir)?;
        if !self.move_dir_out(dir)? {
            return Ok(None);
        }
        let d = self.dirs.list[i];
        for n in *from..d.count as usize {
            let block = self.dirs.blocks[d.first + n];
            *from = n;
            if block == 0 {
                continue;
            }
            let bytes = self.view.read(BlockNo(block))?;
            let part = bytes.len() - self.tail();
            let Some(mut front) = self.in_sectors(&d, n, bytes) else { continue };
            let end = front.split_off(part);
            if let Ok(Some(slack)) = dirent::find_slack(&front, name.len()) {
                let at = dirent::insert(&mut front, slack, ino, kind, name);
                assert!(is_there(&front, at, (ino, name)), "K5: inode {ino} has no name at {at}");
                let bytes = [front, end].concat();
                self.view.put(BlockNo(block), bytes);
                return Ok(Some(At { block, byte: at as u16 }));
            }
        }
        let mut bytes = self.blank_dir_block(None);
        let at = dirent::insert(&mut bytes, 0, ino, kind, name);
        assert!(is_there(&bytes, at, (ino, name)), "K5: inode {ino} has no name in a new block");
        let end = FileBlock(u64::from(d.count));
        let Some(block) = self.map_new_block(dir, end, bytes)? else { return Ok(None) };
        self.add_dir_block(i, block);
        Ok(Some(At { block: block.0, byte: at as u16 }))
    }

    /// Remembers one more block of a directory; its list moves to the end, where there is room.
    fn add_dir_block(&mut self, i: usize, block: BlockNo) {
        let d = self.dirs.list[i];
        let from = d.first..d.first + d.count as usize;
        if from.end != self.dirs.blocks.len() {
            self.dirs.list[i].first = self.dirs.blocks.len();
            self.dirs.blocks.extend_from_within(from);
        }
        self.dirs.blocks.push(block.0);
        self.dirs.list[i].count += 1;
        let (d, end) = (self.dirs.list[i], self.dirs.blocks.len());
        let its = d.first + d.count as usize;
        assert_eq!(its, end, "K4: the new block of directory {} is another one's", d.ino);
    }

    /// Takes a directory's index away, before its entries change.
    pub(crate) fn unindex(&mut self, dir: Ino) -> Result<(), CheckError> {
        if let Some(d) = self.dirs.get_mut(dir)
            && d.indexed
        {
            d.indexed = false;
            let d = *d;
            self.flatten_index(&d)?;
            self.edit_inode(dir, |raw| {
                let flags = InodeRef(raw).flags();
                InodeMut(raw).set_flags(flags & !FLAG_INDEX);
            })?;
        }
        Ok(())
    }
}

impl Check<'_> {
    /// A directory's block with no entry over a sector's end; None: see [`confined`].
    fn in_sectors(&self, d: &Dir, n: usize, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let tail = self.tail();
        if tail == 0 {
            return confined(bytes);
        }
        let part = &bytes[..bytes.len() - tail];
        if let Ok(false) = dirent::crosses_sector(part) {
            return Some(bytes);
        }
        if has_names(part) {
            return None;
        }
        let parent = if d.dotdot == 0 { ROOT_INO } else { Ino(d.dotdot) };
        Some(self.blank_dir_block((n == 0).then_some((Ino(d.ino), parent))))
    }

    /// Makes the nodes of an index blocks of entries, where blocks carry checksums: among entries
    /// they would have no place for theirs.
    fn flatten_index(&mut self, d: &Dir) -> Result<(), CheckError> {
        let tail = self.tail();
        for n in (0..d.count as usize).filter(|_| tail > 0) {
            let block = BlockNo(self.dirs.blocks[d.first + n]);
            if block.0 != 0 && is_node(&self.view.read(block)?, n == 0, tail) {
                self.view.edit(block, |b| dirindex::flatten(b, n == 0, tail))?;
            }
        }
        Ok(())
    }
}

/// The block with no entry over a line. None: it has names that would have to move for that, and a
/// write cut off in the middle could lose them.
fn confined(bytes: Vec<u8>) -> Option<Vec<u8>> {
    if let Ok(false) = dirent::crosses_sector(&bytes) {
        return Some(bytes);
    }
    if has_names(&bytes) {
        return None;
    }
    dirent::confine(&bytes).ok().map(|(new, _)| new)
}

/// Does the entry there name this inode so?
fn is_there(bytes: &[u8], at: usize, (ino, name): (Ino, &[u8])) -> bool {
    let found = dirblock::entry(bytes, at);
    found.is_some_and(|e| e.ino == ino.0 && e.name(bytes) == name)
}

/// Are there entries beside the two dots, or such as cannot be read?
fn has_names(bytes: &[u8]) -> bool {
    let named = |e: &dirent::Entry<'_>| e.ino.0 != 0 && !matches!(e.name, b"." | b"..");
    dirent::entries(bytes).any(|e| e.map_or(true, |e| named(&e)))
}

//! Pass 2: every directory's entries. It mends chains and dots, removes names that cannot stay, and
//! counts the rest; which directory hangs where is the next pass's question.

use crate::CheckError;
use crate::dirblock::{self, DotsFault, Raw};
use crate::finding::{Kind, Place};
use crate::run::Check;
use crate::tables::At;
use format::bytes::set32;
use format::ext::dirent::HEAD;
use format::ext::features::incompat;
use format::ext::inode::{FLAG_INDEX, InodeMut, InodeRef};
use format::{BlockNo, FileBlock, Ino, ROOT_INO, shown};
use std::collections::BTreeMap;

/// The block of a directory that is being looked at.
struct Here {
    dir: Ino,
    block: BlockNo,
    first: bool,
    changed: bool,
}

impl Check<'_> {
    /// Looks at every directory.
    pub(crate) fn check_dirs(&mut self) -> Result<(), CheckError> {
        let total = self.dirs.list.len();
        for i in 0..total {
            if i % 256 == 0 {
                self.progress.step("directories", i as u64, total as u64);
            }
            self.check_dir(i)?;
        }
        self.progress.step("directories", total as u64, total as u64);
        Ok(())
    }

    fn check_dir(&mut self, i: usize) -> Result<(), CheckError> {
        let d = self.dirs.list[i];
        let dir = Ino(d.ino);
        let mut changed = false;
        let mut names: Vec<(u64, At)> = Vec::new();
        self.dirs.list[i].empty = true;
        for n in 0..d.count {
            let mut block = BlockNo(u64::from(self.dirs.blocks[d.first + n as usize]));
            let mut here = Here { dir, block, first: n == 0, changed: false };
            if block.0 == 0 {
                let Some(b) = self.fill_hole(dir, FileBlock(u64::from(n)))? else { continue };
                self.dirs.blocks[d.first + n as usize] = b.0 as u32;
                (block, here.block, changed) = (b, b, true);
            }
            let old = self.view.read(block)?;
            let mut bytes = old.clone();
            self.check_chain(&mut bytes, &mut here);
            self.check_entries(&mut bytes, &mut here, &mut names);
            if here.changed {
                changed = true;
                self.view.put(block, bytes);
            }
        }
        changed |= self.check_names_twice(dir, names)?;
        if d.indexed && (changed || !self.index_is_sound(&d)?) {
            self.drop_index(dir, changed)?;
        }
        Ok(())
    }

    /// Chain and dots.
    fn check_chain(&mut self, bytes: &mut Vec<u8>, here: &mut Here) {
        let kinds = self.sb.has_incompat(incompat::FILETYPE);
        let entry = |at| Place::Entry(here.dir, here.block, at);
        if dirblock::chain(bytes).is_none() {
            let inodes = self.geo().inodes();
            let infos = &self.infos;
            let alive = |ino: u32| ino != 0 && ino <= inodes && infos.get(Ino(ino)).kind != 0;
            let lost = dirblock::salvage(bytes, &alive);
            let text = format!("the chain of entries is broken; mended, {lost} bytes given up");
            self.found_losing(Kind::DirTorn, entry(0), text);
            here.changed = true;
        }
        if !here.first {
            return;
        }
        match dirblock::check_dots(bytes, here.dir, kinds) {
            None => {}
            Some(DotsFault::Fields) => {
                self.found(Kind::Dots, entry(0), "\".\" or \"..\" is wrong; set");
                here.changed = true;
            }
            Some(DotsFault::Missing) => {
                let (new, lost) = dirblock::with_dots(bytes, here.dir, kinds);
                *bytes = new;
                let text = format!("\".\" or \"..\" is missing; made anew, {lost} names lost");
                if lost > 0 {
                    self.found_losing(Kind::Dots, entry(0), text);
                } else {
                    self.found(Kind::Dots, entry(0), text);
                }
                here.changed = true;
            }
        }
    }

    /// Every entry of a block whose chain is whole.
    fn check_entries(&mut self, bytes: &mut [u8], here: &mut Here, names: &mut Vec<(u64, At)>) {
        let all = dirblock::chain(bytes).expect("the chain has been made whole");
        let skip = if here.first { 2 } else { 0 };
        if here.first
            && let Some(d) = self.dirs.get_mut(here.dir)
        {
            d.dotdot = all[1].ino;
        }
        for e in all.into_iter().skip(skip).filter(|e| e.ino != 0) {
            if let Some((kind, why)) = self.unwanted(bytes, &e) {
                let place = Place::Entry(here.dir, here.block, e.at);
                let name = shown(e.name(bytes));
                let text = format!("\"{name}\" {why}; removed");
                self.found_losing(kind, place, text);
                set32(bytes, e.at, 0);
                here.changed = true;
                continue;
            }
            self.mend_name(bytes, here, &e);
            self.mend_kind(bytes, here, &e);
            let at = At { block: here.block.0 as u32, byte: e.at as u16 };
            names.push((hash(e.name(bytes)), at));
            self.count_name(here.dir, Ino(e.ino), at);
        }
    }

    /// Why an entry in use cannot stay.
    fn unwanted(&self, bytes: &[u8], e: &Raw) -> Option<(Kind, String)> {
        let ino = Ino(e.ino);
        if e.name_len == 0 {
            return Some((Kind::BadName, "is no name".into()));
        }
        if matches!(e.name(bytes), b"." | b"..") {
            return Some((Kind::Dots, "stands among the names".into()));
        }
        if !self.geo().has_ino(ino) || ino.0 < self.geo().first_ino {
            return Some((Kind::NameOfNone, format!("names inode {ino}, which no name may")));
        }
        if self.infos.get(ino).kind == 0 {
            return Some((Kind::NameOfFree, format!("names inode {ino}, which is free")));
        }
        None
    }

    fn mend_name(&mut self, bytes: &mut [u8], here: &mut Here, e: &Raw) {
        let name = &mut bytes[e.at + HEAD..e.at + HEAD + e.name_len];
        if name.iter().any(|c| matches!(c, 0 | b'/')) {
            name.iter_mut().filter(|c| matches!(c, 0 | b'/')).for_each(|c| *c = b'.');
            // A name made of nothing else would now be "." or "..".
            if matches!(&*name, b"." | b"..") {
                name.fill(b'_');
            }
            let place = Place::Entry(here.dir, here.block, e.at);
            self.found(Kind::BadName, place, "a name with a slash or a zero byte; renamed");
            here.changed = true;
        }
    }

    fn mend_kind(&mut self, bytes: &mut [u8], here: &mut Here, e: &Raw) {
        let kinds = self.sb.has_incompat(incompat::FILETYPE);
        let want = if kinds { self.infos.get(Ino(e.ino)).kind } else { 0 };
        if e.kind != want {
            let place = Place::Entry(here.dir, here.block, e.at);
            let text = format!("kind {} for inode {}, should be {want}; set", e.kind, e.ino);
            self.found(Kind::EntryKind, place, text);
            bytes[e.at + 7] = want;
            here.changed = true;
        }
    }

    fn count_name(&mut self, dir: Ino, ino: Ino, at: At) {
        self.infos.get_mut(ino).names += 1;
        if let Some(d) = self.dirs.get_mut(dir) {
            d.empty = false;
        }
        let Some(d) = self.dirs.get_mut(ino) else { return };
        if d.parent == 0 {
            (d.parent, d.name) = (dir.0, at);
        } else {
            self.extra_names.entry(ino.0).or_default().push((dir, at));
        }
    }

    /// Removes the second of two equal names in a directory.
    fn check_names_twice(
        &mut self,
        dir: Ino,
        mut names: Vec<(u64, At)>,
    ) -> Result<bool, CheckError> {
        names.sort_by_key(|(h, at)| (*h, at.block, at.byte));
        let mut changed = false;
        let mut from = 0;
        while from < names.len() {
            let mut to = from + 1;
            while to < names.len() && names[to].0 == names[from].0 {
                to += 1;
            }
            let mut seen: BTreeMap<Vec<u8>, (u32, u32)> = BTreeMap::new();
            for (_, at) in names[from..to].iter().filter(|_| to - from > 1) {
                let block = BlockNo(u64::from(at.block));
                let bytes = self.view.read(block)?;
                let e = dirblock::entry(&bytes, usize::from(at.byte)).expect("counted before");
                let name = e.name(&bytes).to_vec();
                if let Some((ino, at_block)) = seen.get(&name) {
                    let text = format!("\"{}\" a second time", shown(&name));
                    let place = Place::Entry(dir, block, e.at);
                    match (*at_block != at.block, *ino == e.ino) {
                        (true, true) => self.found(Kind::NameInTwoBlocks, place, text),
                        (true, false) => self.found_losing(Kind::NameInTwoBlocks, place, text),
                        _ => self.found_losing(Kind::NameTwice, place, text),
                    }
                    self.remove_name(Ino(e.ino), *at)?;
                    changed = true;
                } else {
                    seen.insert(name, (e.ino, at.block));
                }
            }
            from = to;
        }
        Ok(changed)
    }

    /// Takes a counted name away.
    pub(crate) fn remove_name(&mut self, ino: Ino, at: At) -> Result<(), CheckError> {
        let block = BlockNo(u64::from(at.block));
        self.view.edit(block, |b| set32(b, usize::from(at.byte), 0))?;
        let info = self.infos.get_mut(ino);
        info.names = info.names.saturating_sub(1);
        let Some(i) = self.dirs.find(ino) else { return Ok(()) };
        let mut others = self.extra_names.remove(&ino.0).unwrap_or_default();
        if self.dirs.list[i].name == at {
            // Another name takes its place, if there is one.
            let (parent, name) = others.pop().unwrap_or_default();
            (self.dirs.list[i].parent, self.dirs.list[i].name) = (parent.0, name);
        } else {
            others.retain(|(_, other)| *other != at);
        }
        if !others.is_empty() {
            self.extra_names.insert(ino.0, others);
        }
        Ok(())
    }

    /// Gives a directory the block it lacks: empty, or with dots if it is the first.
    fn fill_hole(&mut self, dir: Ino, at: FileBlock) -> Result<Option<BlockNo>, CheckError> {
        let kinds = self.sb.has_incompat(incompat::FILETYPE);
        let mut bytes = vec![0; self.geo().block_bytes];
        if at.0 == 0 {
            format::ext::dirent::init_dots(&mut bytes, dir, ROOT_INO, kinds);
        } else {
            format::ext::dirent::init_empty(&mut bytes);
        }
        self.found(
            Kind::DirHole,
            Place::Inode(dir),
            format!("its block {at} is missing; made anew"),
        );
        self.map_new_block(dir, at, bytes)
    }

    fn drop_index(&mut self, dir: Ino, changed: bool) -> Result<(), CheckError> {
        if !changed {
            self.found(Kind::Index, Place::Inode(dir), "its hash index is damaged; dropped");
        }
        if let Some(d) = self.dirs.get_mut(dir) {
            d.indexed = false;
        }
        self.edit_inode(dir, |raw| {
            let flags = InodeRef(raw).flags();
            InodeMut(raw).set_flags(flags & !FLAG_INDEX);
        })
    }
}

/// A hash of a name; equal names have equal hashes, and that is all it is for: names whose hashes
/// are equal are compared.
fn hash(name: &[u8]) -> u64 {
    let fold = |h: u64, c: &u8| (h ^ u64::from(*c)).wrapping_mul(0x0100_0000_01b3);
    let h = name.iter().fold(0xcbf2_9ce4_8422_2325, fold);
    h ^ h >> 29
}

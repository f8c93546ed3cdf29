//! Pass 2: every directory's entries. It mends chains and dots, removes names that cannot stay, and
//! counts the rest; which directory hangs where is the next pass's question.

use crate::CheckError;
use crate::dirblock::{self, DotsFault, Raw};
use crate::finding::{Kind, Place};
use crate::pass1::what_of;
use crate::run::Check;
use crate::tables::{At, Frame};
use crate::together::Name;
use format::bytes::{le32, set32};
use format::ext::csum::has_tail;
use format::ext::features::incompat;
use format::ext::geometry::INODE_UNINIT;
use format::ufs::dirent::{self, HEAD};
use format::ufs::dirindex;
use format::ufs::inode::InodeRef;
use format::{BlockNo, FileBlock, GroupNo, Ino, ROOT_INO, shown};
use std::collections::BTreeMap;

/// The block of a directory that is being looked at.
struct Here {
    dir: Ino,
    block: BlockNo,
    first: bool,
    /// A node of the index, which becomes a block without names when the index goes.
    is_node: bool,
    changed: bool,
}

impl Check<'_> {
    /// Looks at every directory.
    pub(crate) fn check_dirs(&mut self) -> Result<(), CheckError> {
        let total = self.dirs.list.len() as u64;
        for some in self.parts_of_dirs().chunks(self.parts_at_once()) {
            let mut learned = self.learn_entries(some).into_iter();
            let mut all_taken = true;
            for part in some {
                let new = learned.next().flatten().filter(|_| all_taken);
                all_taken = new.is_some();
                match new {
                    Some(new) => self.take_entries(part, new),
                    None => part.clone().try_for_each(|i| self.check_dir(i as usize))?,
                }
                self.progress.step("directories", u64::from(part.end), total);
            }
        }
        Ok(())
    }

    pub(crate) fn check_dir(&mut self, i: usize) -> Result<(), CheckError> {
        let d = self.dirs.list[i];
        let dir = Ino(d.ino);
        let mut changed = false;
        let mut names: Vec<(u64, At)> = Vec::new();
        let mut broken_node = false;
        for n in 0..d.count {
            let mut block = BlockNo(self.dirs.blocks[d.first + n as usize]);
            let mut here = Here { dir, block, first: n == 0, is_node: false, changed: false };
            if block.0 == 0 {
                let Some(b) = self.fill_hole(dir, FileBlock(u64::from(n)))? else { continue };
                self.dirs.blocks[d.first + n as usize] = b.0;
                (block, here.block, changed) = (b, b, true);
            }
            let mut bytes = self.view.read(block)?;
            here.is_node = d.indexed && is_node(&bytes, n == 0, self.tail());
            let (resealed, part) = self.check_tail(&mut bytes, &mut here)?;
            broken_node |= here.is_node && resealed;
            self.check_chain(&mut bytes[..part], &mut here);
            // One with a broken chain was no list before: what goes with the index is what is a
            // node now, and is asked of the same bytes then (`flatten_index`).
            here.is_node = d.indexed && is_node(&bytes, n == 0, self.tail());
            self.check_entries(&mut bytes[..part], &mut here, &mut names);
            changed |= here.changed;
            if here.changed || resealed {
                self.view.put(block, bytes);
            }
        }
        self.dirs.list[i].empty = names.is_empty();
        changed |= self.check_names_twice(dir, names)?;
        if d.indexed && (changed || broken_node || !self.index_is_sound(&d)?) {
            self.drop_index(dir, changed)?;
        }
        Ok(())
    }

    /// Bytes at the end of directory blocks that hold no entries.
    pub(crate) fn tail(&self) -> usize {
        self.geo().sums.dir_tail()
    }

    /// The block's checksum, and the place for it. Returns whether it has to be sealed, and how
    /// much of the block is entries.
    fn check_tail(
        &mut self,
        bytes: &mut [u8],
        here: &mut Here,
    ) -> Result<(bool, usize), CheckError> {
        let (len, tail, is_node) = (bytes.len(), self.tail(), here.is_node);
        if tail == 0 {
            return Ok((false, len));
        }
        if self.is_image(here.block) {
            return Ok((false, len - tail));
        }
        let place = Place::Entry(here.dir, here.block, 0);
        if !is_node && !has_tail(bytes) {
            let lost = dirblock::make_room_for_tail(bytes);
            assert!(has_tail(bytes), "K5: a block with room for a checksum has no place for it");
            let text = "it has no place for its checksum; made";
            if lost {
                self.found_losing(Kind::DirTorn, place, text);
            } else {
                self.found(Kind::Checksum, place, text);
            }
            here.changed = true;
            return Ok((true, len - tail));
        }
        let part = if is_node { len } else { len - tail };
        let generation = InodeRef(&self.raw_inode(here.dir)?).generation();
        let seed = self.geo().sums.of_inode(here.dir, generation);
        let Some(Err(e)) = seed.map(|s| s.check_dir(here.block, bytes)) else {
            return Ok((false, part));
        };
        let remedy = if is_node { "the index goes" } else { "set" };
        self.found(Kind::Checksum, place, format!("{}; {remedy}", what_of(&e)));
        Ok((true, part))
    }

    /// Chain and dots.
    fn check_chain(&mut self, bytes: &mut [u8], here: &mut Here) {
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
                bytes.copy_from_slice(&new);
                let whole = dirblock::check_dots(bytes, here.dir, kinds).is_none();
                assert!(whole, "K5: the dots of directory {} were made, and are wrong", here.dir);
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
        // What was made of one whose dots are damaged has no names either.
        let all = if here.is_node && self.tail() > 0 { Vec::new() } else { all };
        for e in all.into_iter().skip(skip).filter(|e| e.ino != 0) {
            if self.is_hidden(Ino(e.ino)) {
                continue; // all is looked at once more
            }
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
            let at = At { block: here.block.0, byte: e.at as u16 };
            names.push((hash(e.name(bytes)), at));
            self.count_name((here.dir, Ino(e.ino), at));
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
        let no_name = ino.0 < self.geo().first_ino || self.orphan_file() == Some(ino);
        if !self.geo().has_ino(ino) || no_name {
            return Some((Kind::NameOfNone, format!("names inode {ino}, which no name may")));
        }
        if self.infos.get(ino).kind == 0 {
            return Some((Kind::NameOfFree, format!("names inode {ino}, which is free")));
        }
        None
    }

    /// Is it an inode whose group says that it was never used? Then the group is wrong, and is
    /// noted.
    fn is_hidden(&mut self, ino: Ino) -> bool {
        let geo = self.geo();
        if !geo.has_ino(ino) || ino.0 < geo.first_ino {
            return false;
        }
        let g = geo.group_of_ino(ino);
        let beyond = geo.bit_of_ino(ino) as u32 >= self.frame.used_slots(g);
        if beyond {
            self.hidden.insert(g.0);
        }
        beyond
    }

    /// Makes the inodes visible that names lead to and groups have called unused.
    pub(crate) fn show_hidden(&mut self) -> Result<(), CheckError> {
        let mut descs = self.frame.descs.to_vec();
        for g in std::mem::take(&mut self.hidden) {
            let text =
                "names lead to inodes that it says were never used; all of them are looked at";
            self.found(Kind::NeverUsed, Place::Group(GroupNo(g)), text);
            let d = &mut descs[g as usize];
            d.flags &= !INODE_UNINIT;
            d.unused_inodes = 0;
            let d = *d;
            self.put_desc(GroupNo(g), &d)?;
        }
        self.frame = Frame::new(self.geo(), descs);
        Ok(())
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

    pub(crate) fn count_name(&mut self, (dir, ino, at): Name) {
        if let Some(met) = &mut self.names_met {
            met.push((dir, ino, at));
            return;
        }
        let info = self.info_mut(ino);
        assert!(info.kind != 0, "K4: a name of inode {ino}, which is free, is counted");
        info.names += 1;
        if info.kind != 2 {
            return;
        }
        let Some(d) = self.dirs.get_mut(ino) else {
            unreachable!("K4: directory {ino} has a name, and is in no list");
        };
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
            let mut seen: BTreeMap<Vec<u8>, (u32, u64)> = BTreeMap::new();
            for (_, at) in names[from..to].iter().filter(|_| to - from > 1) {
                let block = BlockNo(at.block);
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
        self.erase_name(ino, at)?;
        // A hand tells of names, and counts none.
        let counts = self.names_met.is_none();
        let info = self.info_mut(ino);
        assert!(info.names > 0 || !counts, "K4: a name of inode {ino} goes that was not counted");
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

    /// Takes the name of an inode away that is there.
    pub(crate) fn erase_name(&mut self, ino: Ino, at: At) -> Result<(), CheckError> {
        let byte = usize::from(at.byte);
        self.view.edit(BlockNo(at.block), |b| {
            let named = le32(b, byte);
            assert_eq!(named, ino.0, "K4: the name at byte {byte} of block {} goes", at.block);
            set32(b, byte, 0);
        })
    }

    /// Gives a directory the block it lacks: empty, or with dots if it is the first.
    fn fill_hole(&mut self, dir: Ino, at: FileBlock) -> Result<Option<BlockNo>, CheckError> {
        let bytes = self.blank_dir_block((at.0 == 0).then_some((dir, ROOT_INO)));
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
        self.unindex(dir)
    }

    /// A directory's block without names, or with the two dots of a directory and its parent.
    pub(crate) fn blank_dir_block(&self, dots: Option<(Ino, Ino)>) -> Vec<u8> {
        let kinds = self.sb.has_incompat(incompat::FILETYPE);
        let mut bytes = vec![0; self.geo().block_bytes];
        dirent::init_empty_before(&mut bytes, self.tail());
        if let Some((dir, parent)) = dots {
            dirent::put_dots(&mut bytes, dir, parent, kinds);
        }
        bytes
    }
}

/// Is the block of an indexed directory the root of the index or a node below it?
pub(crate) fn is_node(block: &[u8], is_first: bool, tail: usize) -> bool {
    match is_first {
        true => !dirindex::is_first_of_list(block, tail),
        false => dirindex::is_node_shaped(block, tail),
    }
}

/// A hash of a name; equal names have equal hashes, and that is all it is for: names whose hashes
/// are equal are compared.
fn hash(name: &[u8]) -> u64 {
    let fold = |h: u64, c: &u8| (h ^ u64::from(*c)).wrapping_mul(0x0100_0000_01b3);
    let h = name.iter().fold(0xcbf2_9ce4_8422_2325, fold);
    h ^ h >> 29
}

//! Contents that lie in inodes. A file's are as long as they are; a directory's are shown to the
//! passes as a block with a number beyond the volume's end, so that they know nothing of it, and
//! what they mend there is put back into the inode when they have ended. It gets a block of its own
//! when a name is added.

use crate::CheckError;
use crate::dirblock::{chain, salvage};
use crate::extents;
use crate::finding::{Kind, Place};
use crate::pass1::MapScan;
use crate::run::Check;
use crate::view::IMAGES;
use format::ext::features::incompat;
use format::ufs::dirent::{ENTRY_MIN, put_unused};
use format::ufs::inline::{self, MAP_BYTES, PARENT_BYTES};
use format::ufs::inode::{FLAG_EXTENTS, FLAG_INLINE, InodeMut, InodeRef};
use format::{BlockNo, FileBlock, Ino};

/// A directory that lies in its inode.
#[derive(Clone, Copy)]
pub(crate) struct InlineDir {
    /// The number under which its image is.
    pub(crate) block: BlockNo,
    /// How long the contents are.
    len: usize,
}

impl Check<'_> {
    /// May an inode with such a mode, in a slot of such a size, hold its contents?
    pub(crate) fn may_be_inline(&self, ino: Ino, raw: &[u8]) -> bool {
        let i = InodeRef(raw);
        let kind = i.is_file() || i.is_dir() || i.is_symlink();
        self.geo().inline_data && kind && !self.is_reserved(ino) && !i.xattr_space().is_empty()
    }

    /// Of contents in the inode and extents there can be one.
    pub(crate) fn mend_both_places(&mut self, ino: Ino, raw: &mut [u8]) {
        let flags = InodeRef(raw).flags();
        if !self.geo().inline_data || flags & FLAG_INLINE == 0 || flags & FLAG_EXTENTS == 0 {
            return;
        }
        let (drop, text) = match extents::is_root(raw) {
            true => (FLAG_INLINE, "said to be in it and in extents; the extents are there"),
            false => (FLAG_EXTENTS, "said to be in it and in extents; there are no extents"),
        };
        self.found(Kind::InodeField, Place::Inode(ino), format!("its contents are {text}"));
        InodeMut(raw).set_flags(flags & !drop);
    }

    /// An inode that says that its contents are in it, after its attributes have been looked at.
    pub(crate) fn check_inline(&mut self, ino: Ino, raw: &mut [u8], scan: &mut MapScan) {
        if inline::contents(raw).is_err() {
            let map = InodeRef(raw).map_bytes();
            let text = "the attribute system.data, with the rest of its contents, is missing; made";
            self.found_losing(Kind::Xattr, Place::Inode(ino), text);
            if !inline::store(raw, &map) {
                inline::clear(raw, self.geo().extents);
                InodeMut(raw).set_size(0);
                return;
            }
            let end = MAP_BYTES as u64;
            let size = InodeRef(raw).size();
            InodeMut(raw).set_size(size.min(end));
        }
        let Ok(Some(contents)) = inline::contents(raw) else { return };
        if InodeRef(raw).is_dir() {
            self.check_inline_dir(ino, raw, contents, scan);
            return;
        }
        // What is beyond the contents reads as zeros, to the length that a file without a tree has.
        let size = InodeRef(raw).size();
        if InodeRef(raw).is_file() && size > self.most_bytes(false) {
            let text = format!("{size} bytes, but {} lie in it; set", contents.len());
            self.found(Kind::Size, Place::Inode(ino), text);
            InodeMut(raw).set_size(contents.len() as u64);
        }
    }

    /// Is it a symbolic link whose text, of more than the map holds, is whole?
    pub(crate) fn is_inline_symlink(&self, raw: &[u8]) -> bool {
        let Ok(Some(text)) = inline::contents(raw) else { return false };
        InodeRef(raw).size() == text.len() as u64
    }

    fn check_inline_dir(
        &mut self,
        ino: Ino,
        raw: &mut [u8],
        mut contents: Vec<u8>,
        scan: &mut MapScan,
    ) {
        let before = contents.clone();
        let rest = contents.len() - MAP_BYTES;
        let whole = if rest < ENTRY_MIN { 0 } else { rest / 4 * 4 };
        contents.truncate(MAP_BYTES + whole);
        let mut lost = rest - whole;
        if InodeRef(raw).size() != contents.len() as u64 {
            let text = format!("the directory in it has {} bytes; set", contents.len());
            self.found(Kind::Size, Place::Inode(ino), text);
            InodeMut(raw).set_size(contents.len() as u64);
        }
        // All inodes are not known yet: any number may be one in use.
        let inodes = self.geo().inodes();
        let alive = |n: u32| n != 0 && n <= inodes;
        let (inside, behind) = contents.split_at_mut(MAP_BYTES);
        for part in [&mut inside[PARENT_BYTES..], behind] {
            if chain(part).is_none() {
                lost += salvage(part, &alive);
                if chain(part).is_none() {
                    lost += part.len();
                    put_unused(part);
                }
            }
        }
        if lost > 0 || contents != before {
            let text = format!("the chain of entries in it is broken; mended, {lost} bytes lost");
            self.found_losing(Kind::DirTorn, Place::Inode(ino), text);
            let stored = inline::store(raw, &contents);
            assert!(stored, "K5: the entries in inode {ino} are longer than they were");
        }
        let number = IMAGES + u64::from(ino.0);
        let block = BlockNo(number);
        self.inline.insert(ino.0, InlineDir { block, len: contents.len() });
        let kinds = self.sb.has_incompat(incompat::FILETYPE);
        let mut image = vec![0; self.geo().block_bytes];
        inline::dir_image(&contents, ino, &mut image, self.tail(), kinds);
        self.view.put(block, image);
        scan.data.push((0, number));
    }

    /// Is it the number of such a directory's image?
    pub(crate) fn is_image(&self, b: BlockNo) -> bool {
        b.0 >= IMAGES
    }

    /// Puts into the inodes what the passes have mended in the images.
    pub(crate) fn put_inline_dirs(&mut self) -> Result<(), CheckError> {
        // Those of no length have a block.
        let all = self.inline.iter().filter(|(_, d)| d.len > 0).map(|(n, d)| (*n, *d));
        let all: Vec<(u32, InlineDir)> = all.collect();
        for (n, d) in all {
            let ino = Ino(n);
            let raw = self.raw_inode(ino)?;
            let old = inline::contents(&raw).ok().flatten();
            let new = inline::contents_of_image(&self.view.read(d.block)?, d.len);
            if !InodeRef(&raw).is_dir() || old.as_ref().is_none_or(|o| *o == new) {
                continue; // it was freed, or is as it was
            }
            let stored = self.edit_inode(ino, |raw| inline::store(raw, &new))?;
            assert!(stored, "K5: the contents of inode {ino} are longer than they were");
        }
        Ok(())
    }

    /// The images are not part of the volume.
    pub(crate) fn forget_images(&mut self) {
        for d in std::mem::take(&mut self.inline).into_values() {
            self.view.forget(d.block);
        }
    }

    /// Before a name comes into a directory that lies in its inode: gives it a block. False: there
    /// is no room.
    pub(crate) fn move_dir_out(&mut self, dir: Ino) -> Result<bool, CheckError> {
        let Some(d) = self.inline.get(&dir.0).copied() else { return Ok(true) };
        let image = self.view.read(d.block)?;
        let (tree, old) = (self.geo().extents, self.raw_inode(dir)?);
        self.edit_inode(dir, |raw| {
            inline::clear(raw, tree);
            InodeMut(raw).set_size(0);
        })?;
        let Some(block) = self.map_new_block(dir, FileBlock(0), image)? else {
            self.edit_inode(dir, |raw| raw.copy_from_slice(&old))?;
            return Ok(false);
        };
        let (from, to) = (d.block.0, block.0);
        for b in self.dirs.blocks.iter_mut().filter(|b| **b == from) {
            *b = to;
        }
        for at in self.dirs.list.iter_mut().map(|d| &mut d.name).filter(|at| at.block == from) {
            at.block = to;
        }
        let others = self.extra_names.values_mut().flatten().map(|(_, at)| at);
        for at in others.filter(|at| at.block == from) {
            at.block = to;
        }
        let stays = self.dirs.list.iter().find(|d| d.name.block == from).map(|d| d.ino);
        assert!(stays.is_none(), "K4: the name of {stays:?} is said to be in inode {dir} still");
        self.inline.insert(dir.0, InlineDir { len: 0, ..d });
        Ok(true)
    }

    /// The entries of a directory that lies in its inode, as a block; None: it does not.
    pub(crate) fn inline_image(&self, ino: Ino, raw: &[u8]) -> Option<Vec<u8>> {
        let contents = inline::contents(raw).ok().flatten()?;
        inline::check_dir(&contents).ok()?;
        let kinds = self.sb.has_incompat(incompat::FILETYPE);
        let mut image = vec![0; self.geo().block_bytes];
        inline::dir_image(&contents, ino, &mut image, self.tail(), kinds);
        Some(image)
    }
}

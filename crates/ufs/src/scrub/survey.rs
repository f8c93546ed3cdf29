//! The first part of a pass: what each inode holds and names, read under its lock, so that no
//! operation is in the middle of changing it.

use super::{Halt, Scrub, Step};
use crate::inode::Inode;
use crate::store::{InodeHandle, Scrubbed};
use check::live::Names;
use format::ufs::dirent;
use format::ufs::inode::{FLAG_VALUE, InodeRef, in_use};
use format::{Extent, Ino};
use std::collections::BTreeSet;
use std::rc::Rc;
use vfs::FsError;

/// Has a file contents in blocks up to `mapped` that lie beyond its end? If it became longer again,
/// they would be seen.
pub(super) fn is_uncut(file: &Inode, mapped: u64, bs: u64) -> bool {
    file.with(|i| i.is_file()) && mapped > file.size().div_ceil(bs)
}

impl<S: Scrubbed> Scrub<'_, S> {
    /// The inode, if somebody may be changing it.
    async fn inode_of(&self, h: &InodeHandle) -> Step<Option<Rc<Inode>>> {
        let (store, table) = (&self.ufs.store, &self.ufs.table);
        let known = table.get(h.ino);
        if known.is_some() || !h.with(in_use) || store.is_own(h.ino) {
            return Ok(known);
        }
        // Also checks what the arithmetic of whoever reads it relies on.
        match store.inode(h.ino).await {
            Ok(h) => Ok(Some(table.add(Inode::new(h)))),
            // Nobody's; or held since, and then it has lost its name.
            Err(FsError::Stale | FsError::Access) => Ok(table.get(h.ino)),
            Err(e) => Err(e.into()),
        }
    }

    /// Reads an inode that is marked as used.
    pub(super) async fn survey(&self, ino: Ino) -> Step<()> {
        let store = &self.ufs.store;
        let h = store.raw_inode(ino).await?;
        let inode = self.inode_of(&h).await?;
        let _lock = match &inode {
            Some(i) => Some(i.lock.shared().await),
            None => None,
        };
        let gone = self.watch.census().is_none_or(|c| c.is_fresh(ino));
        if gone || !store.is_in_use(ino).await? {
            return Ok(());
        }
        let holding = store.holding(&h).await?;
        let (mode_dir, used) = h.with(|raw| (InodeRef(raw).is_dir(), in_use(raw)));
        let is_dir = mode_dir && used;
        let names = match &inode {
            Some(dir) if is_dir => {
                let wanted = self.wanted_names(ino);
                Some(self.names_in(dir, wanted.as_ref()).await?)
            }
            _ => None,
        };
        let twice = {
            let Some(mut c) = self.watch.census_mut() else { return Err(Halt::Stopped) };
            let mut twice = None;
            for e in &holding.runs {
                match store.is_own(ino) {
                    true => c.set_aside(*e),
                    false => twice = twice.or(c.claim(*e)),
                }
            }
            let shared = match holding.attributes {
                Some(b) if c.is_presumed_user(ino, b) => c.claim(Extent { start: b, len: 1 }),
                Some(b) => c.claim_attributes(b).then_some(b),
                None => None,
            };
            if !store.is_own(ino) && !h.with(is_value) {
                match c.candidates() {
                    Some(_) => c.read_candidate(ino, is_dir, h.with(links_of)),
                    None => c.read_inode(ino, is_dir),
                }
                if mode_dir && !used {
                    c.read_unlinked_dir(ino);
                }
            }
            if let Some(names) = names {
                c.read_dir(ino, names);
            }
            twice.or(shared)
        };
        if let Some(b) = twice {
            let what = format!("block {b} belongs to two files, or twice to one");
            return Err(self.damage(what, format!("inode {ino}")));
        }
        let bs = store.limits().block_bytes as u64;
        let grows = |i: &Rc<Inode>| is_dir && holding.end > i.dir_end(bs) / bs;
        if inode.as_ref().is_some_and(grows) {
            self.overlong.borrow_mut().push(ino);
            self.miscounted.borrow_mut().push(ino);
        } else if holding.uncounted != 0 && !store.is_own(ino) {
            self.miscounted.borrow_mut().push(ino);
        }
        let uncut = inode.as_ref().is_some_and(|i| is_uncut(i, holding.end, bs));
        if uncut && !store.is_own(ino) {
            self.uncut.borrow_mut().push(ino);
        }
        Ok(())
    }

    /// The names in a directory that are looked for; None: all of them are.
    fn wanted_names(&self, dir: Ino) -> Option<BTreeSet<Vec<u8>>> {
        let census = self.watch.census()?;
        census.candidates()?;
        Some(census.names_wanted(dir).unwrap_or_default())
    }

    /// The names in a directory, whose lock is held; of `wanted`, if only these are looked for.
    async fn names_in(&self, dir: &Rc<Inode>, wanted: Option<&BTreeSet<Vec<u8>>>) -> Step<Names> {
        let store = &self.ufs.store;
        let limits = store.limits();
        let bs = limits.block_bytes as u64;
        let mut names = Names::default();
        let mut unknown = Vec::new();
        let is_wanted = |name: &[u8]| wanted.is_none_or(|w| w.contains(name));
        // Who looks for no name looks for "..".
        let end = if wanted.is_some_and(BTreeSet::is_empty) { 1 } else { u64::MAX };
        for n in 0..(dir.dir_end(bs) / bs).min(end) {
            let buf = self.ufs.list_block(dir, n).await?;
            let bytes = buf.bytes();
            let part = self.ufs.listed(dir, &bytes, n);
            for e in dirent::entries(part) {
                let e = e.map_err(|e| Halt::Failed(store.corrupt(&e)))?;
                match e.name {
                    b"." => (),
                    b".." => names.parent = Some(e.ino),
                    _ if e.ino.0 == 0 || !is_wanted(e.name) => (),
                    _ if limits.entry_kinds => {
                        names.children.push((e.ino, e.kind == DIR_KIND));
                    }
                    _ => unknown.push(e.ino),
                }
            }
        }
        if names.parent.is_none() && self.ufs.has_index_flag(dir) {
            names.parent = Some(self.ufs.parent_of(dir).await?.ino); // of a root that is no list
        }
        for ino in unknown {
            let is_dir = match store.raw_inode(ino).await {
                Ok(h) => h.with(|raw| InodeRef(raw).is_dir()),
                Err(FsError::Stale) => false,
                Err(e) => return Err(e.into()),
            };
            names.children.push((ino, is_dir));
        }
        Ok(names)
    }
}

/// Is it the value of an attribute? Such have no names.
fn is_value(raw: &[u8]) -> bool {
    InodeRef(raw).flags() & FLAG_VALUE != 0
}

fn links_of(raw: &[u8]) -> u32 {
    u32::from(InodeRef(raw).links())
}

/// What an entry says of a directory.
const DIR_KIND: u8 = 2;

//! Listing a directory. In a list a cookie is the byte after an entry, from the directory's start:
//! entries never move, so a cookie stays good while the directory changes. Where they do move, a
//! cookie is a hash (crates/ufs/src/dir/listing.rs).

use super::{Ctx, Done};
use crate::Ufs;
use crate::dir::hash_of;
use crate::inode::Inode;
use crate::store::Store;
use format::ufs::dirent::{entries, mode_of_kind};
use format::ufs::dirhash::IndexRules;
use format::{FileBlock, Ino};
use std::rc::Rc;
use vfs::access::READ;
use vfs::{DirEntry, FsError, Kind, Reply};

/// How much of a listing is wanted.
pub(super) struct Want {
    pub(super) cookie: u64,
    pub(super) max_bytes: usize,
    pub(super) entry_bytes: usize,
    pub(super) attrs: bool,
}

impl Want {
    /// What an entry takes of the reply.
    fn bytes_of(&self, name: &[u8]) -> usize {
        self.entry_bytes + name.len().next_multiple_of(8)
    }
}

impl<S: Store> Ufs<S> {
    pub(super) async fn readdir(&self, ctx: &Ctx, dir: u32, want: Want) -> Done {
        let dir = self.inode(dir).await?;
        if !dir.is_dir() {
            return Err(FsError::NotDir);
        }
        self.permit(ctx, &dir, READ).await?;
        // A directory that is removed meanwhile would have holes where its blocks were.
        let shared = self.lock_shared(&dir).await?;
        let (mut list, full) = match self.lists_by_hash(&dir, want.cookie) {
            Some(rules) => self.list_by_hash(&dir, &rules, &want).await?,
            None => self.list(&dir, &want).await?,
        };
        drop(shared);
        if list.is_empty() && full {
            return Err(FsError::Invalid); // not even one entry fits
        }
        // What an entry names is looked up for that, which only who may search the directory may:
        // with attributes an NFS client gets a handle.
        if want.attrs && self.permit_search(ctx, &dir).await.is_ok() {
            self.fill_attrs(ctx, &dir, &mut list).await;
        }
        Ok(Reply::Dir { entries: list, eof: !full, attr: self.attr(&dir.h) })
    }

    /// The entries behind the cookie, and whether there are more than there is room for.
    async fn list(&self, dir: &Inode, want: &Want) -> Result<(Vec<DirEntry>, bool), FsError> {
        let bs = self.store.limits().block_bytes as u64;
        let end = dir.dir_end(bs);
        if want.cookie > end || !want.cookie.is_multiple_of(4) {
            return Err(FsError::BadCookie);
        }
        let mut list = Vec::new();
        let mut room = want.max_bytes;
        let mut at = want.cookie;
        let mut full = false;
        while at < end && !full {
            let block = at / bs;
            let buf = self.store.dir_block(&dir.h, FileBlock(block)).await?;
            if at == block * bs && block.is_multiple_of(16) {
                self.store.read_ahead(&dir.h, FileBlock(block + 1), 32.min(end / bs)).await;
            }
            let found = entries_from(&buf.bytes(), (at % bs) as usize);
            let found = found.map_err(|e| self.dir_damage(dir, &e))?;
            for (end, ino, kind, name) in found {
                let need = want.bytes_of(&name);
                if need > room {
                    full = true;
                    break;
                }
                room -= need;
                let cookie = block * bs + end as u64;
                assert!(cookie > at, "U13: {cookie} comes after {at} in directory {}", dir.ino());
                at = cookie;
                let kind = mode_of_kind(kind).and_then(Kind::from_mode);
                list.push(DirEntry { name, ino: ino.0, kind, cookie: at, attr: None });
            }
            if !full {
                at = (block + 1) * bs;
            }
        }
        Ok((list, full))
    }

    /// The same in the order of hashes. The first two cookies are those of the dots.
    async fn list_by_hash(
        &self,
        dir: &Inode,
        rules: &IndexRules,
        want: &Want,
    ) -> Result<(Vec<DirEntry>, bool), FsError> {
        if (3..1 << 32).contains(&want.cookie) || want.cookie >> 63 != 0 {
            return Err(FsError::BadCookie);
        }
        let (mut list, mut room) = (Vec::new(), want.max_bytes);
        if want.cookie < 2 {
            let parent = self.parent_of(dir).await?.ino;
            let dots = [(&b"."[..], dir.ino(), 1), (b"..", parent, 2)];
            for (name, ino, cookie) in dots.into_iter().filter(|d| d.2 > want.cookie) {
                let Some(left) = room.checked_sub(want.bytes_of(name)) else {
                    return Ok((list, true));
                };
                room = left;
                let (name, kind) = (name.to_vec(), Some(Kind::Dir));
                list.push(DirEntry { name, ino: ino.0, kind, cookie, attr: None });
            }
        }
        let mut hash = Some(hash_of(want.cookie));
        while let Some(from) = hash {
            let part = self.part(dir, rules, from).await?;
            let rest = part.names.iter().filter(|n| n.0 > want.cookie).collect::<Vec<_>>();
            for alike in rest.chunk_by(|a, b| a.0 == b.0) {
                let need = alike.iter().map(|n| want.bytes_of(&n.1.name)).sum();
                let Some(left) = room.checked_sub(need) else { return Ok((list, true)) };
                room = left;
                list.extend(alike.iter().map(|(cookie, n)| {
                    let kind = mode_of_kind(n.kind).and_then(Kind::from_mode);
                    let (name, ino) = (n.name.clone(), n.ino.0);
                    DirEntry { name, ino, kind, cookie: *cookie, attr: None }
                }));
            }
            let forward = part.next.is_none_or(|next| next > from);
            assert!(forward, "U13: a listing of {} comes back to {from:#x}", dir.ino());
            hash = part.next;
        }
        Ok((list, false))
    }

    async fn fill_attrs(&self, ctx: &Ctx, dir: &Rc<Inode>, list: &mut [DirEntry]) {
        let listed_at = dir.changes.get();
        for e in list {
            let dots = e.name == b"." || e.name == b"..";
            // Gone since it was listed: the entry goes out without attributes.
            let Ok(inode) = self.inode(e.ino).await else { continue };
            // Its number may be another file's by now.
            let is_sure = dots || dir.changes.get() == listed_at;
            if !is_sure && !matches!(self.find(dir, &e.name).await, Ok(Some(f)) if f.ino.0 == e.ino)
            {
                continue;
            }
            e.attr = Some(self.attr(&inode.h));
            if ctx.hold && !dots {
                self.table.hold(inode.ino(), 1);
            }
        }
    }
}

type Listed = (usize, Ino, u8, Vec<u8>);

/// The used entries of a block that begin at `from` or after it. `from` may lie inside free space
/// where an entry has been since the cookie was given.
fn entries_from(block: &[u8], from: usize) -> Result<Vec<Listed>, format::FormatError> {
    let mut list = Vec::new();
    for e in entries(block) {
        let e = e?;
        if e.at >= from && e.ino != Ino(0) {
            // The cookie is the end of the name, not of the entry, whose free space may take new
            // entries.
            let end = e.at + format::ufs::dirent::needed(e.name.len());
            list.push((end, e.ino, e.kind, e.name.to_vec()));
        }
    }
    Ok(list)
}

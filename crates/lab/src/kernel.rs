//! Directories as Linux makes them: entries that cross 512-byte sectors, and a hash index. The
//! crash explorer has no kernel to make one, so this rewrites a directory of ours in that style,
//! block for block, with the same names; only direct and singly indirect blocks, which is enough
//! for hundreds of names.

use format::bytes::{le32, set16, set32};
use format::ext::features::compat;
use format::ext::geometry::{GROUP_DESC_BYTES, Geometry, GroupDesc};
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES, Superblock};
use format::ufs::dirent::{HEAD, entries, needed};
use format::ufs::dirhash::NameHash;
use format::ufs::inode::{CLASSIC_BYTES, FLAG_INDEX, InodeMut, InodeRef};
use format::ufs::map::DIRECT;
use format::ufs::xattr::set_refcount;
use format::{BlockNo, FormatError, Ino};
use sim::Image;

/// Where an inode has its pointers.
const MAP_AT: u64 = 40;

/// A name that was found: hash, inode, kind, bytes.
type Name = (u32, u32, u8, Vec<u8>);

/// Rewrites the directory `ino` of a clean volume as Linux would have made it; `indexed`: with a
/// hash index of one level. Errors: a directory that is damaged, or too full for its blocks.
pub(crate) fn make_kernel_like(image: &mut Image, ino: u32, indexed: bool) -> Result<(), String> {
    let wrong = |e: FormatError| e.to_string();
    let mut raw = [0; SUPERBLOCK_BYTES];
    image.read(SUPERBLOCK_AT, &mut raw);
    let mut sb = Superblock::decode(&raw).map_err(wrong)?;
    sb.set_compat(sb.compat() | compat::DIR_INDEX);
    let hash = NameHash::new(1, false, sb.hash_seed()).ok_or("no such hash")?;
    let at = inode_at(image, &Geometry::of(&sb), Ino(ino));
    let mut inode = vec![0; CLASSIC_BYTES];
    image.read(at, &mut inode);
    let bs = sb.block_bytes();
    let blocks = blocks_of(image, &inode, bs);
    let (mut names, mut parent) = (Vec::new(), ino);
    for b in &blocks {
        let mut block = vec![0; bs];
        image.read(b * bs as u64, &mut block);
        for e in entries(&block) {
            let e = e.map_err(wrong)?;
            match e.name {
                b".." => parent = e.ino.0,
                b"." => (),
                _ if e.ino == Ino(0) => (),
                name => names.push((hash.of(name), e.ino.0, e.kind, name.to_vec())),
            }
        }
    }
    let new = if indexed {
        names.sort_by_key(|n| n.0);
        let flags = InodeRef(&inode).flags();
        InodeMut(&mut inode).set_flags(flags | FLAG_INDEX);
        index_of(&names, blocks.len(), bs, (ino, parent))?
    } else {
        let dots = vec![(0, ino, 2, b".".to_vec()), (0, parent, 2, b"..".to_vec())];
        pack(&[dots, names].concat(), blocks.len(), bs)?
    };
    for (b, bytes) in blocks.iter().zip(&new) {
        image.write(b * bs as u64, bytes);
    }
    image.write(at, &inode);
    image.write(SUPERBLOCK_AT, sb.bytes());
    Ok(())
}

/// The attributes of the first inode, which lie in a block, become those of all, in the same block,
/// as Linux keeps what is equal. Errors: it has none.
pub(crate) fn share_attributes(image: &mut Image, inos: &[u32]) -> Result<(), String> {
    let mut raw = [0; SUPERBLOCK_BYTES];
    image.read(SUPERBLOCK_AT, &mut raw);
    let sb = Superblock::decode(&raw).map_err(|e| e.to_string())?;
    let (geo, bs) = (Geometry::of(&sb), sb.block_bytes());
    let mut inodes = Vec::new();
    for ino in inos {
        let at = inode_at(image, &geo, Ino(*ino));
        let mut inode = vec![0; CLASSIC_BYTES];
        image.read(at, &mut inode);
        inodes.push((at, inode));
    }
    let block = inodes.first().map_or(BlockNo(0), |(_, i)| InodeRef(i).xattr_block());
    if block.0 == 0 {
        return Err("the first has no attributes in a block".into());
    }
    for (at, inode) in inodes.iter_mut().skip(1) {
        let sectors = InodeRef(inode).sectors() + (bs / 512) as u32;
        InodeMut(inode).set_xattr_block(block);
        InodeMut(inode).set_sectors(sectors);
        image.write(*at, inode);
    }
    let mut attributes = vec![0; bs];
    image.read(block.0 * bs as u64, &mut attributes);
    set_refcount(&mut attributes, inos.len() as u32);
    image.write(block.0 * bs as u64, &attributes);
    Ok(())
}

/// Damage: pointer `n` of inode `ino` becomes a copy of pointer `m` of inode `other`, so that a
/// block is there twice. Both are taken modulo what there is.
pub(crate) fn share_block(image: &mut Image, (ino, n): (u32, u8), (other, m): (u32, u8)) {
    let mut raw = [0; SUPERBLOCK_BYTES];
    image.read(SUPERBLOCK_AT, &mut raw);
    let Ok(sb) = Superblock::decode(&raw) else { return };
    let geo = Geometry::of(&sb);
    let at = |ino: u32| inode_at(image, &geo, Ino(1 + ino % geo.inodes()));
    let pointer = |n: u8| MAP_AT + u64::from(n) % (DIRECT + 3) * 4;
    let (from, to) = (at(other) + pointer(m), at(ino) + pointer(n));
    let mut copy = [0; 4];
    image.read(from, &mut copy);
    image.write(to, &copy);
}

/// The byte at which an inode lies.
pub(crate) fn inode_at(image: &Image, geo: &Geometry, ino: Ino) -> u64 {
    let bs = geo.block_bytes as u64;
    let group = geo.group_of_ino(ino).0 as usize;
    let mut desc = [0; GROUP_DESC_BYTES];
    image.read(geo.desc_block(0).0 * bs + (group * GROUP_DESC_BYTES) as u64, &mut desc);
    let (block, offset) = geo.ino_place(ino);
    (GroupDesc::decode(&desc).inode_table + u64::from(block)) * bs + offset as u64
}

fn blocks_of(image: &Image, inode: &[u8], bs: usize) -> Vec<u64> {
    let mut indirect = vec![0; bs];
    image.read(u64::from(InodeRef(inode).pointer(DIRECT as usize)) * bs as u64, &mut indirect);
    let count = InodeRef(inode).size() / bs as u64;
    let pointer = |n: u64| match n.checked_sub(DIRECT) {
        None => InodeRef(inode).pointer(n as usize),
        Some(i) => le32(&indirect, i as usize * 4),
    };
    (0..count).map(|n| u64::from(pointer(n))).collect()
}

/// Names one behind the other into `count` blocks, across lines; blocks left over are empty.
fn pack(names: &[Name], count: usize, bs: usize) -> Result<Vec<Vec<u8>>, String> {
    let mut all = Vec::new();
    let mut rest = names;
    while all.len() < count {
        let mut block = vec![0; bs];
        let (mut at, mut last) = (0, 0);
        while let Some((_, ino, kind, name)) = rest.first()
            && at + needed(name.len()) <= bs
        {
            put(&mut block, at, (*ino, *kind), name);
            (last, at) = (at, at + needed(name.len()));
            rest = &rest[1..];
        }
        set16(&mut block, last + 4, (bs - last) as u16);
        all.push(block);
    }
    if rest.is_empty() { Ok(all) } else { Err("the directory has too few blocks".into()) }
}

fn put(block: &mut [u8], at: usize, (ino, kind): (u32, u8), name: &[u8]) {
    set32(block, at, ino);
    set16(block, at + 4, needed(name.len()) as u16);
    (block[at + 6], block[at + 7]) = (name.len() as u8, kind);
    block[at + HEAD..at + HEAD + name.len()].copy_from_slice(name);
}

/// An index's root, and its leaves: the root looks like "." and a ".." as long as the block.
fn index_of(
    names: &[Name],
    count: usize,
    bs: usize,
    (ino, parent): (u32, u32),
) -> Result<Vec<Vec<u8>>, String> {
    if count < 2 {
        return Err("an index has a root and a leaf at least".into());
    }
    let leaves = pack(names, count - 1, bs)?;
    let mut root = vec![0; bs];
    put(&mut root, 0, (ino, 2), b".");
    put(&mut root, 12, (parent, 2), b"..");
    set16(&mut root, 16, (bs - 12) as u16);
    (root[28], root[29]) = (1, 8); // half MD4, and the length of this information
    set16(&mut root, 32, ((bs - 32) / 8) as u16);
    set16(&mut root, 34, leaves.len() as u16);
    let mut done = 0;
    for (n, leaf) in leaves.iter().enumerate() {
        let at = 32 + 8 * n;
        // An empty leaf at the end gets hashes above all names.
        let first = names.get(done).map_or(u32::MAX - 2 * (count - n) as u32 - 1, |x| x.0);
        if n > 0 {
            let goes_on = done > 0 && done < names.len() && names[done - 1].0 == first;
            set32(&mut root, at, first & !1 | u32::from(goes_on));
        }
        set32(&mut root, at + 4, n as u32 + 1);
        done += entries(leaf).flatten().filter(|e| e.ino != Ino(0)).count();
    }
    Ok(std::iter::once(root).chain(leaves).collect())
}

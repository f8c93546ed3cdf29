//! The first files: the root directory, lost+found, and the journal.

use super::build::Builder;
use super::{LOST_FOUND_INO, MkfsError, default_journal_blocks};
use crate::bytes::set32;
use crate::ext::csum::entries_part;
use crate::ext::extents::{self, Head, LEN_MAX, Mapped};
use crate::ext::features::incompat;
use crate::ext::mmp::{MMP_BYTES, Mmp, update_secs};
use crate::jbd2::JournalSuperblock;
use crate::jbd2::superblock::BLOCKS_MIN;
use crate::ufs::inode::{BLOCK_AT, FLAG_EXTENTS, InodeMut, Which};
use crate::ufs::{dirent, map};
use crate::{BlockNo, FileBlock, Ino, JOURNAL_INO, ROOT_INO};
use std::collections::BTreeMap;

/// lost+found's size: enough that fsck can attach files without allocating.
const LOST_FOUND_BYTES: usize = 16 * 1024;

pub(super) fn make(b: &mut Builder) -> Result<(), MkfsError> {
    let root = b.alloc()?;
    let mut block = vec![0; b.geometry.block_bytes];
    let tail = b.geometry.sums.dir_tail();
    dirent::init_empty_before(&mut block, tail);
    dirent::put_dots(&mut block, ROOT_INO, ROOT_INO, true);
    let slack = dirent::find_slack(entries_part(&block, tail), 10)
        .ok()
        .flatten()
        .expect("an empty directory has slack");
    dirent::insert(&mut block, slack, Ino(LOST_FOUND_INO), 2, b"lost+found");
    put_dir_block(b, ROOT_INO, root, block);
    let (uid, gid) = b.options.owner;
    dir_inode(b, ROOT_INO, 0o755, 3, (uid, gid), &[root]);
    lost_and_found(b)?;
    if b.options.profile.has_journal() {
        journal(b)?;
    }
    b.sb.set_incompat(b.sb.incompat() | b.options.incompat);
    if b.options.incompat & incompat::MMP != 0 {
        mmp(b)?;
    }
    Ok(())
}

fn mmp(b: &mut Builder) -> Result<(), MkfsError> {
    let at = b.alloc()?;
    let mut block = vec![0; b.geometry.block_bytes];
    block[..MMP_BYTES].copy_from_slice(Mmp::new(b.geometry.sums).bytes());
    b.put_block(at, block);
    b.geometry.mmp = Some(at);
    b.sb.set_mmp_interval(update_secs(0));
    b.sb.set_mmp_block(at);
    Ok(())
}

fn lost_and_found(b: &mut Builder) -> Result<(), MkfsError> {
    let count = (LOST_FOUND_BYTES / b.geometry.block_bytes).clamp(2, map::DIRECT as usize);
    let mut blocks = Vec::new();
    for i in 0..count {
        let at = b.alloc()?;
        let mut block = vec![0; b.geometry.block_bytes];
        dirent::init_empty_before(&mut block, b.geometry.sums.dir_tail());
        if i == 0 {
            dirent::put_dots(&mut block, Ino(LOST_FOUND_INO), ROOT_INO, true);
        }
        put_dir_block(b, Ino(LOST_FOUND_INO), at, block);
        blocks.push(at);
    }
    dir_inode(b, Ino(LOST_FOUND_INO), 0o700, 2, (0, 0), &blocks);
    Ok(())
}

fn put_dir_block(b: &mut Builder, dir: Ino, at: BlockNo, mut block: Vec<u8>) {
    if let Some(seed) = b.geometry.sums.of_inode(dir, 0) {
        seed.seal_dir(&mut block);
    }
    b.put_block(at, block);
}

fn new_inode(b: &Builder, mode: u16, links: u16) -> Vec<u8> {
    let mut raw = vec![0; b.geometry.inode_bytes];
    let mut i = InodeMut(&mut raw);
    i.set_mode(mode);
    i.set_links(links);
    i.set_extra_isize();
    let now = (i64::from(b.options.now_secs), 0);
    for w in [Which::Access, Which::Modify, Which::Change, Which::Create] {
        i.set_time(w, now);
    }
    raw
}

fn dir_inode(
    b: &mut Builder,
    ino: Ino,
    perm: u16,
    links: u16,
    owner: (u32, u32),
    blocks: &[BlockNo],
) {
    let mut raw = new_inode(b, 0o040_000 | perm, links);
    let size = blocks.len() * b.geometry.block_bytes;
    let mut i = InodeMut(&mut raw);
    i.set_uid(owner.0);
    i.set_gid(owner.1);
    i.set_size(size as u64);
    i.set_sectors((size / 512) as u32);
    if b.geometry.extents {
        set_tree(&mut raw, &runs(blocks), 0);
    } else {
        let mut i = InodeMut(&mut raw);
        for (n, at) in blocks.iter().enumerate() {
            i.set_pointer(n, at.0 as u32);
        }
    }
    b.put_inode(ino, raw);
}

/// Why no journal fits, whose least size is this many bytes, and what to do.
fn too_small(journal_bytes: u64) -> MkfsError {
    MkfsError(format!(
        "too small for a journal: choose --size {}M or more, or --profile ext2, which has none",
        (2 * journal_bytes).div_ceil(1 << 20)
    ))
}

fn journal(b: &mut Builder) -> Result<(), MkfsError> {
    if let Some(uuid) = b.options.journal_device {
        b.sb.set_journal_uuid(&uuid);
        return Ok(());
    }
    let block_bytes = b.geometry.block_bytes as u64;
    let blocks = match b.options.journal_bytes {
        Some(bytes) => bytes / block_bytes,
        None => default_journal_blocks(b.geometry.blocks),
    };
    let least = u64::from(BLOCKS_MIN);
    if blocks == 0 && b.options.journal_bytes.is_none() {
        return Err(too_small(least * block_bytes));
    }
    let most = b.geometry.blocks / 2;
    if most < least {
        return Err(too_small(least * block_bytes));
    }
    if blocks < least || blocks > most {
        let [asked, least, most] = [blocks, least, most].map(|n| n * block_bytes / 1024);
        let why = format!(
            "a journal of {asked} KiB: choose at least {least} KiB, and at most {most} KiB, which \
             is half of the volume"
        );
        return Err(MkfsError(why));
    }
    let mut raw = new_inode(b, 0o100_600, 1);
    let (total, first) = if b.geometry.extents {
        map_runs(b, JOURNAL_INO, &mut raw, blocks)?
    } else {
        let (pointers, total) = map_file(b, blocks)?;
        let mut i = InodeMut(&mut raw);
        for (n, at) in pointers.iter().enumerate() {
            i.set_pointer(n, *at);
        }
        (total, BlockNo(u64::from(pointers[0])))
    };
    let mut i = InodeMut(&mut raw);
    i.set_size(blocks * block_bytes);
    i.set_sectors((total * block_bytes / 512) as u32);
    let map_bytes = i.as_ref().map_bytes();
    b.put_inode(JOURNAL_INO, raw);
    let sb = JournalSuperblock {
        block_bytes: block_bytes as u32,
        blocks: blocks as u32,
        first: 1,
        sequence: 1,
        start: 0,
        incompat: 0,
        old_sums: false,
        uuid: b.options.uuid,
    };
    b.put_block(first, sb.encode_new());
    b.sb.set_journal_inum(JOURNAL_INO.0);
    b.sb.set_journal_backup(&map_bytes, blocks * block_bytes);
    Ok(())
}

/// These blocks of a file, one after the other, as extents.
fn runs(blocks: &[BlockNo]) -> Vec<Mapped> {
    let mut all: Vec<Mapped> = Vec::new();
    for (n, b) in (0..).zip(blocks) {
        match all.last_mut() {
            Some(m) if m.start.plus(u64::from(m.len)) == *b && m.len < LEN_MAX => m.len += 1,
            _ => all.push(Mapped { first: n, len: 1, start: *b, unwritten: false }),
        }
    }
    all
}

/// Makes the inode's map a tree whose root has these extents, or, below a root of `depth` 1, this
/// one child.
fn set_tree(raw: &mut [u8], list: &[Mapped], depth: u16) {
    let mut i = InodeMut(raw);
    i.set_flags(FLAG_EXTENTS);
    i.set_empty_tree();
    let root = &mut raw[BLOCK_AT..BLOCK_AT + 60];
    let max = extents::max_entries(root.len());
    extents::set_head(root, Head { entries: list.len(), max, depth });
    for (n, m) in list.iter().enumerate() {
        match depth {
            0 => extents::set_mapped(root, n, m),
            _ => extents::set_index(root, n, m.first, m.start),
        }
    }
}

/// Allocates a file of `blocks` and maps it by extents, in the inode or in one block below it; how
/// many blocks in all, and the first.
fn map_runs(
    b: &mut Builder,
    ino: Ino,
    raw: &mut [u8],
    blocks: u64,
) -> Result<(u64, BlockNo), MkfsError> {
    let all = (0..blocks).map(|_| b.alloc()).collect::<Result<Vec<_>, _>>()?;
    let list = runs(&all);
    if list.len() <= extents::max_entries(60) {
        set_tree(raw, &list, 0);
        return Ok((blocks, all[0]));
    }
    let tail = if b.geometry.sums.dir_tail() > 0 { 4 } else { 0 };
    let max = extents::max_entries(b.geometry.block_bytes - tail);
    if list.len() > max {
        return Err(MkfsError(format!("a journal in {} pieces: make it smaller", list.len())));
    }
    let at = b.alloc()?;
    let mut leaf = vec![0; b.geometry.block_bytes];
    extents::set_head(&mut leaf, Head { entries: list.len(), max, depth: 0 });
    list.iter().enumerate().for_each(|(n, m)| extents::set_mapped(&mut leaf, n, m));
    if let Some(seed) = b.geometry.sums.of_inode(ino, 0) {
        seed.seal_extents(&mut leaf);
    }
    b.put_block(at, leaf);
    set_tree(raw, &[Mapped { first: 0, len: 1, start: at, unwritten: false }], 1);
    Ok((blocks + 1, all[0]))
}

/// Allocates a file of `blocks` with its indirect blocks: the inode's pointers, and how many blocks
/// in all.
fn map_file(b: &mut Builder, blocks: u64) -> Result<([u32; map::POINTERS], u64), MkfsError> {
    let per_block = b.geometry.block_bytes as u64 / 4;
    let mut pointers = [0; map::POINTERS];
    let mut indirect: BTreeMap<BlockNo, Vec<u8>> = BTreeMap::new();
    let mut total = 0;
    for n in 0..blocks {
        let Some(path) = map::path(FileBlock(n), per_block) else {
            return Err(MkfsError("the journal is longer than a file can be".into()));
        };
        let mut at: Option<BlockNo> = None;
        for (depth, &index) in path.indexes[..path.depth].iter().enumerate() {
            let index = usize::from(index);
            let now = match at {
                None => pointers[index],
                Some(block) => crate::bytes::le32(&indirect[&block], 4 * index),
            };
            let next = if now != 0 { BlockNo(u64::from(now)) } else { b.alloc()? };
            if now == 0 {
                total += 1;
                match at {
                    None => pointers[index] = next.0 as u32,
                    Some(block) => {
                        let bytes = indirect.get_mut(&block).expect("made on the way here");
                        set32(bytes, 4 * index, next.0 as u32);
                    }
                }
                if depth + 1 < path.depth {
                    indirect.insert(next, vec![0; b.geometry.block_bytes]);
                }
            }
            at = Some(next);
        }
    }
    for (at, bytes) in indirect {
        b.put_block(at, bytes);
    }
    Ok((pointers, total))
}

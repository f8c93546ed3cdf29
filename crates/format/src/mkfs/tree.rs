//! The first files: the root directory, lost+found, and the journal.

use super::build::Builder;
use super::{LOST_FOUND_INO, MkfsError, Profile, default_journal_blocks};
use crate::bytes::set32;
use crate::ext::inode::{InodeMut, Which};
use crate::ext::{dirent, map};
use crate::jbd2::JournalSuperblock;
use crate::jbd2::superblock::BLOCKS_MIN;
use crate::{BlockNo, FileBlock, Ino, JOURNAL_INO, ROOT_INO};
use std::collections::BTreeMap;

/// lost+found's size: enough that fsck can attach files without allocating.
const LOST_FOUND_BYTES: usize = 16 * 1024;

pub(super) fn make(b: &mut Builder) -> Result<(), MkfsError> {
    let root = b.alloc()?;
    let mut block = vec![0; b.geometry.block_bytes];
    dirent::init_dots(&mut block, ROOT_INO, ROOT_INO, true);
    let slack =
        dirent::find_slack(&block, 10).ok().flatten().expect("an empty directory has slack");
    dirent::insert(&mut block, slack, Ino(LOST_FOUND_INO), 2, b"lost+found");
    b.put_block(root, block);
    let (uid, gid) = b.options.owner;
    dir_inode(b, ROOT_INO, 0o755, 3, (uid, gid), &[root]);
    lost_and_found(b)?;
    if b.options.profile == Profile::Ext3 {
        journal(b)?;
    }
    Ok(())
}

fn lost_and_found(b: &mut Builder) -> Result<(), MkfsError> {
    let count = (LOST_FOUND_BYTES / b.geometry.block_bytes).clamp(2, map::DIRECT as usize);
    let mut blocks = Vec::new();
    for i in 0..count {
        let at = b.alloc()?;
        let mut block = vec![0; b.geometry.block_bytes];
        if i == 0 {
            dirent::init_dots(&mut block, Ino(LOST_FOUND_INO), ROOT_INO, true);
        } else {
            dirent::init_empty(&mut block);
        }
        b.put_block(at, block);
        blocks.push(at);
    }
    dir_inode(b, Ino(LOST_FOUND_INO), 0o700, 2, (0, 0), &blocks);
    Ok(())
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
    for (n, at) in blocks.iter().enumerate() {
        i.set_pointer(n, at.0 as u32);
    }
    b.put_inode(ino, raw);
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
        let why = "the volume is too small for a journal: choose --profile ext2, or a larger size";
        return Err(MkfsError(why.into()));
    }
    if blocks < least || blocks > b.geometry.blocks / 2 {
        let why = format!(
            "a journal of {blocks} blocks: at least {least}, at most half of the volume's {}",
            b.geometry.blocks
        );
        return Err(MkfsError(why));
    }
    let mut raw = new_inode(b, 0o100_600, 1);
    let (pointers, total) = map_file(b, blocks)?;
    let mut i = InodeMut(&mut raw);
    i.set_size(blocks * block_bytes);
    i.set_sectors((total * block_bytes / 512) as u32);
    for (n, at) in pointers.iter().enumerate() {
        i.set_pointer(n, *at);
    }
    let map_bytes = i.as_ref().map_bytes();
    let first = BlockNo(u64::from(pointers[0]));
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

//! Extended attributes: are those in inodes and in blocks well formed, and do the blocks count
//! their users right? What an attribute means is nobody's concern here.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::pass1::{MapScan, what_of};
use crate::run::Check;
use crate::values::named_in;
use format::bytes::{le16, le32};
use format::ufs::inode::{CLASSIC_BYTES, InodeMut, InodeRef};
use format::ufs::xattr::{BLOCK_HEAD, INODE_HEAD, MAGIC, refcount, set_refcount};
use format::{BlockNo, Ino};

/// Bytes of an attribute's entry before its name.
const ENTRY_HEAD: usize = 16;

impl Check<'_> {
    /// Attributes of one inode; a sound block of attributes is claimed and counted.
    pub(crate) fn check_xattrs(
        &mut self,
        ino: Ino,
        raw: &mut [u8],
        scan: &mut MapScan,
    ) -> Result<(), CheckError> {
        let extra = InodeRef(raw).extra_isize().unwrap_or(0);
        let space = InodeRef(raw).xattr_space();
        if space.len() >= INODE_HEAD + 4 && le32(space, 0) == MAGIC {
            let named = named_in(space, INODE_HEAD);
            let blocks = match sound(space, INODE_HEAD, 4) {
                true => self.blocks_of_values(ino, &named)?,
                false => None,
            };
            if let Some(blocks) = blocks {
                scan.blocks += blocks;
                self.use_values(&named);
            } else {
                let text = "its own attributes are damaged; removed";
                self.found(Kind::Xattr, Place::Inode(ino), text);
                raw[CLASSIC_BYTES + extra..].fill(0);
            }
        }
        let block = self.xattr_block_of(raw);
        if block.0 == 0 {
            return Ok(());
        }
        if self.use_xattr_block(ino, block)? {
            scan.blocks += 1 + self.values.in_block.get(&block.0).copied().unwrap_or(0);
            return Ok(());
        }
        self.found(
            Kind::Xattr,
            Place::Inode(ino),
            format!("attribute block {block} is damaged; removed"),
        );
        match self.geo().wide {
            true => InodeMut(raw).set_xattr_block_wide(BlockNo(0)),
            false => InodeMut(raw).set_xattr_block(BlockNo(0)),
        }
        Ok(())
    }

    /// The inode's attribute block.
    pub(crate) fn xattr_block_of(&self, raw: &[u8]) -> BlockNo {
        let i = InodeRef(raw);
        if self.geo().wide { i.xattr_block_wide() } else { i.xattr_block() }
    }

    /// Counts one more user of an attribute block; false: it is none.
    fn use_xattr_block(&mut self, ino: Ino, b: BlockNo) -> Result<bool, CheckError> {
        let key = b.0;
        if !self.frame.may_hold(b) {
            return Ok(false);
        }
        let geo = self.geo();
        if !self.xattr_users.contains_key(&key) {
            let bytes = self.view.read(b)?;
            let head = le32(&bytes, 0) == MAGIC && le32(&bytes, 8) == 1;
            let good = head && sound(&bytes, BLOCK_HEAD, 0);
            let named = if good { named_in(&bytes, BLOCK_HEAD) } else { Vec::new() };
            let blocks = if good { self.blocks_of_values(ino, &named)? } else { None };
            if let Some(blocks) = blocks {
                if !named.is_empty() {
                    self.use_values(&named);
                    self.values.in_block.insert(key, blocks);
                }
                // What is in it proves whose it is; who had it as something else gets a copy.
                if self.claims.claim(&geo, b) {
                    self.twice.claim(&geo, b);
                }
                if let Err(e) = geo.sums.check_xattr(b, &bytes) {
                    let text = format!("{}, of block {b}; set", what_of(&e));
                    self.found(Kind::Checksum, Place::Volume, text);
                    self.view.put(b, bytes); // sealed with all that is mended
                }
            }
            self.xattr_users.insert(key, blocks.map(|_| 0));
        }
        match self.xattr_users.get_mut(&key) {
            Some(Some(users)) => {
                *users += 1;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Compares the blocks' counts of users with what was counted.
    pub(crate) fn check_xattr_counts(&mut self) -> Result<(), CheckError> {
        let used: Vec<(u64, u32)> =
            self.xattr_users.iter().filter_map(|(b, n)| n.map(|n| (*b, n))).collect();
        for (b, users) in used {
            let block = BlockNo(b);
            assert!(users > 0, "K3: attribute block {b} is claimed, and nobody has it");
            let says = refcount(&self.view.read(block)?);
            if says == users {
                continue;
            }
            let kind = if says > users { Kind::XattrHigh } else { Kind::XattrLow };
            let text = format!("attribute block {b} counts {says} users, has {users}; set");
            self.found(kind, Place::Volume, text);
            self.view.edit(block, |bytes| set_refcount(bytes, users))?;
        }
        Ok(())
    }
}

/// Are the entries from byte `first` on well formed: names and values inside, nothing over anything
/// else, hashes right? Value offsets count from byte `base`.
fn sound(space: &[u8], first: usize, base: usize) -> bool {
    let in_block = base == 0;
    let mut taken: Vec<(usize, usize)> = Vec::new();
    let mut at = first;
    loop {
        if at + 4 > space.len() {
            return false;
        }
        if le32(space, at) == 0 {
            taken.push((0, at + 4));
            break;
        }
        let name_len = usize::from(space[at]);
        let next = at + (ENTRY_HEAD + name_len).next_multiple_of(4);
        if next > space.len() || space[at + 1] == 0 {
            return false;
        }
        if le32(space, at + 4) != 0 {
            at = next;
            continue;
        }
        let len = le32(space, at + 8) as usize;
        let from = base + usize::from(le16(space, at + 2));
        let room = len.checked_next_multiple_of(4).and_then(|n| from.checked_add(n));
        match room {
            Some(end) if end <= space.len() => {
                if len > 0 {
                    taken.push((from, end));
                }
            }
            _ => return false,
        }
        let value = if len > 0 { &space[from..from + len] } else { &[] };
        let hash = le32(space, at + 12);
        let name = &space[at + ENTRY_HEAD..at + ENTRY_HEAD + name_len];
        // In inodes the kernel leaves the hash out.
        if (in_block || hash != 0) && !hash_fits(hash, name, value) {
            return false;
        }
        at = next;
    }
    taken.sort_unstable();
    taken.windows(2).all(|w| w[0].1 <= w[1].0)
}

/// Is it the kernel's hash of a name and a value? Old kernels took the name's bytes as signed.
pub(crate) fn hash_fits(hash: u32, name: &[u8], value: &[u8]) -> bool {
    let of = |byte: fn(u8) -> u32| {
        let h = name.iter().fold(0u32, |h, c| h.rotate_left(5) ^ byte(*c));
        value.chunks(4).fold(h, |h, word| {
            let mut w = [0; 4];
            w[..word.len()].copy_from_slice(word);
            h.rotate_left(16) ^ u32::from_le_bytes(w)
        })
    };
    hash == of(u32::from) || hash == of(|c| i32::from(c.cast_signed()).cast_unsigned())
}

//! Values of attributes that are other inodes' contents: does each entry that names one name an
//! inode that holds it, and does that count its entries right? What nothing names is freed.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::run::Check;
use crate::xattr::hash_fits;
use format::Ino;
use format::bytes::le32;
use format::ext::features::incompat;
use format::ufs::inode::{FLAG_VALUE, InodeMut, InodeRef, Which};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of an attribute's entry before its name.
const ENTRY_HEAD: usize = 16;

/// An entry whose value is another inode's contents.
pub(crate) struct Named {
    ino: Ino,
    len: u32,
    hash: u32,
    name: Vec<u8>,
}

/// What is known of values.
#[derive(Default)]
pub(crate) struct Values {
    /// The inodes that hold one.
    pub(crate) holders: BTreeSet<Ino>,
    /// How many entries name each.
    users: BTreeMap<Ino, u64>,
    /// By attribute block that names values, their blocks, as far as they count.
    pub(crate) in_block: BTreeMap<u64, u64>,
}

impl Values {
    /// Takes over what is known of others' attributes.
    pub(crate) fn append(&mut self, mut others: Values) {
        self.holders.append(&mut others.holders);
        self.in_block.append(&mut others.in_block);
        for (ino, users) in others.users {
            *self.users.entry(ino).or_default() += users;
        }
    }
}

/// The entries from byte `first` on, as far as they are well formed, that name inodes.
pub(crate) fn named_in(space: &[u8], first: usize) -> Vec<Named> {
    let (mut all, mut at) = (Vec::new(), first);
    while at + ENTRY_HEAD <= space.len() && le32(space, at) != 0 {
        let end = at + ENTRY_HEAD + usize::from(space[at]);
        let Some(name) = space.get(at + ENTRY_HEAD..end) else { break };
        let ino = Ino(le32(space, at + 4));
        if ino.0 != 0 {
            let (len, hash) = (le32(space, at + 8), le32(space, at + 12));
            all.push(Named { ino, len, hash, name: name.to_vec() });
        }
        at = end.next_multiple_of(4);
    }
    all
}

/// Has Lustre made it? Then it names the inode that it belongs to, and counts nothing.
fn is_lustres(value: InodeRef<'_>, (of, generation): (Ino, u32)) -> bool {
    value.time(Which::Modify).is_some_and(|t| t.0 as u32 == of.0)
        && value.generation() == generation
}

impl Check<'_> {
    /// May attributes have such values here?
    pub(crate) fn has_values(&self) -> bool {
        self.sb.has_incompat(incompat::EA_INODE)
    }

    /// If all of these entries of an inode name one that holds a value: how many blocks the values
    /// take that count as its own. Those that Lustre has made do not.
    pub(crate) fn blocks_of_values(
        &self,
        of: Ino,
        named: &[Named],
    ) -> Result<Option<u64>, CheckError> {
        if named.is_empty() {
            return Ok(Some(0));
        }
        let generation = InodeRef(&self.raw_inode(of)?).generation();
        let (bs, mut blocks) = (self.geo().block_bytes as u64, 0);
        for n in named {
            let inodes = self.geo().first_ino..=self.geo().inodes();
            if !self.has_values() || !inodes.contains(&n.ino.0) || n.ino == of {
                return Ok(None);
            }
            let raw = self.raw_inode(n.ino)?;
            let i = InodeRef(&raw);
            let holds = i.is_file() && i.links() > 0 && i.flags() & FLAG_VALUE != 0;
            let fits = hash_fits(n.hash, &n.name, &i.value().0.to_le_bytes());
            if !holds || i.size() != u64::from(n.len) || !(fits || is_lustres(i, (of, generation)))
            {
                return Ok(None);
            }
            blocks += if fits { u64::from(n.len).div_ceil(bs) } else { 0 };
        }
        Ok(Some(blocks))
    }

    /// Counts them.
    pub(crate) fn use_values(&mut self, named: &[Named]) {
        let users = &mut self.values.users;
        named.iter().for_each(|n| *users.entry(n.ino).or_default() += 1);
    }

    /// Values that nothing names go; of the others the counts are set.
    pub(crate) fn check_values(&mut self) -> Result<(), CheckError> {
        for ino in std::mem::take(&mut self.values.holders) {
            let users = self.values.users.get(&ino).copied().unwrap_or(0);
            let info = self.info_mut(ino);
            info.names += u32::from(users > 0);
            if info.names == 0 {
                self.free_inode(ino)?;
                let text = "the value of an attribute that is nowhere; freed";
                self.found(Kind::Unattached, Place::Inode(ino), text);
                continue;
            }
            let raw = self.raw_inode(ino)?;
            let i = InodeRef(&raw);
            let (hash, counts) = i.value();
            let uncounted = i.time(Which::Access) == i.time(Which::Change); // by Lustre
            if users == 0 || counts == users || uncounted {
                continue;
            }
            let kind = if counts > users { Kind::XattrHigh } else { Kind::XattrLow };
            let text = format!("it counts {counts} attributes as whose value it is, {users}; set");
            self.found(kind, Place::Inode(ino), text);
            self.edit_inode(ino, |raw| InodeMut(raw).set_value(hash, users))?;
        }
        Ok(())
    }
}

//! What is known of a directory with an index by hash from one call to the next: the root of the
//! index as it was decoded, and which blocks of the disk the directory's blocks are. A name is
//! looked for with each request, and the way to its leaf is the same most times.
//!
//! Nothing here is a copy of names. The root holds as long as the directory keeps its *shape*: each
//! change of an index counts that. Blocks of such a directory stay where they are as long as it
//! lives; where one is swapped for another all is forgotten.

use crate::inode::Inode;
use format::BlockNo;
use format::ufs::dirhash::NameHash;
use format::ufs::dirindex::{Pointer, RootInfo};

/// So many of a directory's first blocks are known by their places: of a huge one not all.
const PLACES_MAX: u32 = 1024;

/// What is known of one directory.
#[derive(Default)]
pub(crate) struct Known {
    root: Option<Root>,
    /// By the block's number in the directory; block 0, where no directory lies, is not known yet.
    places: Vec<BlockNo>,
}

/// The root of an index, decoded.
#[derive(Clone)]
pub(super) struct Root {
    /// The shape that the directory had then.
    pub(super) shape: u64,
    pub(super) info: RootInfo,
    pub(super) hash: NameHash,
    pub(super) pointers: Vec<Pointer>,
}

impl Root {
    /// The place of the pointer below which a name with this hash is found first.
    pub(super) fn find(&self, hash: u32) -> usize {
        self.pointers[1..].partition_point(|p| p.hash <= hash)
    }
}

impl Inode {
    /// Calls `f` with the root, if it is known and holds.
    pub(super) fn with_root<T>(&self, f: impl FnOnce(&Root) -> T) -> Option<T> {
        let known = self.known.borrow();
        let root = known.as_ref()?.root.as_ref().filter(|r| r.shape == self.shape.get())?;
        Some(f(root))
    }

    /// The root was read and decoded.
    pub(super) fn note_root(&self, root: Root) {
        assert!(!root.pointers.is_empty(), "U4: a root of directory {} to nowhere", self.ino());
        assert_eq!(root.shape, self.shape.get(), "U12: a root of {} from before", self.ino());
        self.known.borrow_mut().get_or_insert_default().root = Some(root);
    }

    /// Where the directory's block `n` lies, if that is known.
    pub(super) fn place_of(&self, n: u32) -> Option<BlockNo> {
        let known = self.known.borrow();
        let place = known.as_ref()?.places.get(n as usize).copied();
        place.filter(|b| *b != BlockNo(0))
    }

    /// Block `n` of the directory lies there.
    pub(super) fn note_place(&self, n: u32, block: BlockNo) {
        assert!(block != BlockNo(0), "U4: block {n} of directory {} lies nowhere", self.ino());
        if n >= PLACES_MAX {
            return;
        }
        let mut known = self.known.borrow_mut();
        let places = &mut known.get_or_insert_default().places;
        if places.len() <= n as usize {
            places.resize(n as usize + 1, BlockNo(0));
        }
        places[n as usize] = block;
    }

    /// A block of the directory is another one from now on.
    pub(super) fn forget_places(&self) {
        *self.known.borrow_mut() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InodeHandle;
    use crate::testing::with_a_block;
    use format::Ino;

    fn root(hashes: &[u32], shape: u64) -> Root {
        let rules = format::ufs::dirhash::IndexRules {
            version: 1,
            unsigned: false,
            seed: [0; 4],
            levels_max: 2,
        };
        let pointers = (1..).zip(hashes).map(|(block, &hash)| Pointer { hash, block }).collect();
        let hash = rules.hash(1).expect("half MD4");
        Root { shape, info: RootInfo { version: 1, levels: 0 }, hash, pointers }
    }

    /// The twin is the node in a block, which is asked where there is no root in memory.
    #[test]
    fn a_root_leads_where_its_block_does() {
        let mut rng = env::Rng::new(3);
        for n in 1..200usize {
            let mut hashes: Vec<u32> = (0..n).map(|_| rng.below(400) as u32 * 2).collect();
            hashes.sort_unstable();
            hashes[0] = 0;
            let known = root(&hashes, 0);
            let mut block = vec![0; 4096];
            format::ufs::dirindex::make_node(&mut block, &known.pointers, 12);
            let node = format::ufs::dirindex::node(&block, 12).expect("it was made one");
            for hash in 0..820 {
                assert_eq!(known.find(hash), node.find(hash), "{n} pointers, hash {hash}");
            }
        }
    }

    #[test]
    fn nothing_holds_after_a_change_of_shape() {
        with_a_block(|buf| {
            let dir = Inode::new(InodeHandle { ino: Ino(12), buf, offset: 0, len: 128 });
            assert!(dir.with_root(|_| ()).is_none() && dir.place_of(0).is_none());
            dir.note_root(root(&[0, 8], dir.shape.get()));
            dir.note_place(3, BlockNo(70));
            assert_eq!(dir.with_root(|r| r.find(9)), Some(1));
            dir.shape.set(dir.shape.get() + 1);
            assert!(dir.with_root(|_| ()).is_none());
            assert_eq!((dir.place_of(3), dir.place_of(2)), (Some(BlockNo(70)), None));
            dir.note_place(PLACES_MAX, BlockNo(71));
            assert_eq!((dir.place_of(PLACES_MAX), dir.place_of(4)), (None, None));
            dir.forget_places();
            assert_eq!(dir.place_of(3), None);
        });
    }
}

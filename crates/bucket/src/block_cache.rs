//! Blocks of a bucket in memory, which several stores may share. It knows places, and not what the
//! blocks mean.

use env::{Block, IdMap};
use lfs::Place;
use std::cell::RefCell;
use std::rc::Rc;

/// Blocks that were read or written lately, which several stores may share: a place never holds
/// anything else (I1).
#[derive(Clone)]
pub(crate) struct BlockCache(Rc<RefCell<Halves>>);

/// Two halves, of which the older goes as a whole.
struct Halves {
    young: IdMap<u64, Block>,
    old: IdMap<u64, Block>,
    half: usize,
}

impl BlockCache {
    pub(crate) fn new(blocks: usize) -> BlockCache {
        let (young, old) = (IdMap::default(), IdMap::default());
        BlockCache(Rc::new(RefCell::new(Halves { young, old, half: (blocks / 2).max(1) })))
    }
    pub(crate) fn get(&self, place: Place) -> Option<Block> {
        self.0.borrow_mut().get(place)
    }
    pub(crate) fn has(&self, place: Place) -> bool {
        let halves = self.0.borrow();
        halves.young.contains_key(&place.0) || halves.old.contains_key(&place.0)
    }
    pub(crate) fn put(&self, place: Place, block: Block) {
        self.0.borrow_mut().put(place, block);
    }
}

impl Halves {
    fn get(&mut self, place: Place) -> Option<Block> {
        if let Some(b) = self.young.get(&place.0) {
            return Some(b.clone());
        }
        let block = self.old.remove(&place.0)?;
        self.put(place, block.clone());
        Some(block)
    }
    fn put(&mut self, place: Place, block: Block) {
        if self.young.len() >= self.half {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(place.0, block);
    }
}

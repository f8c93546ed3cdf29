//! Which block goes when room is needed: the clock, with a hand for metadata and one for contents.
//! A hand passes over its blocks; one that was not used since its last pass, is clean and is held
//! by nobody, goes. Contents have a bound of their own, because the kernel below may hold them too:
//! a second copy of a long file would only push metadata out. Whether a block is needed it is told.

use crate::{Buf, BufKind};
use env::IdMap;
use std::collections::VecDeque;

/// The blocks of each kind, the next to be looked at first.
#[derive(Default)]
pub(crate) struct Clock {
    meta: VecDeque<u64>,
    contents: VecDeque<u64>,
}

/// How many blocks a hand passes at most for one that is wanted, when memory is full, and when
/// there are only more contents than their bound.
const STEPS_FULL: usize = 64;
const STEPS_OVER: usize = 8;

impl Clock {
    pub(crate) fn add(&mut self, block: u64, kind: BufKind) {
        match kind {
            BufKind::Meta => self.meta.push_back(block),
            BufKind::Data => self.contents.push_back(block),
        }
    }

    /// Lets one block of contents go if there are more than `bound`.
    pub(crate) fn bound_contents(&mut self, map: &mut IdMap<u64, Buf>, bound: usize) {
        if self.contents.len() >= bound {
            turn(&mut self.contents, map, STEPS_OVER);
        }
    }

    /// Lets blocks go until there are fewer than `capacity`; false: too many must stay. Contents
    /// go first while they have more than a quarter of the memory.
    pub(crate) fn make_room(&mut self, map: &mut IdMap<u64, Buf>, capacity: usize) -> bool {
        while map.len() >= capacity {
            let contents_first = self.contents.len() >= capacity / 4;
            let (first, second) = match contents_first {
                true => (&mut self.contents, &mut self.meta),
                false => (&mut self.meta, &mut self.contents),
            };
            if !turn(first, map, STEPS_FULL) && !turn(second, map, STEPS_FULL) {
                return false;
            }
        }
        true
    }
}

/// Moves a hand until a block has gone, or `steps` blocks have stayed.
fn turn(hand: &mut VecDeque<u64>, map: &mut IdMap<u64, Buf>, steps: usize) -> bool {
    for _ in 0..steps {
        let Some(block) = hand.pop_front() else { return false };
        let b = map.get(&block).expect("a block leaves memory by its hand alone");
        if !b.must_stay() && !b.0.touched.replace(false) {
            map.remove(&block);
            return true;
        }
        hand.push_back(block);
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::{BufKind, Cache, CacheOptions};
    use env::{Disk, DiskError, Durability, Engine, Local};
    use format::{BlockNo, Ino};
    use std::rc::Rc;

    struct Zeros;
    impl Disk for Zeros {
        fn size_bytes(&self) -> u64 {
            1 << 30
        }
        fn read(
            &self,
            _: u64,
            blocks: Vec<env::Block>,
        ) -> Local<'_, Result<Vec<env::Block>, DiskError>> {
            Box::pin(async { Ok(blocks) })
        }
        fn write(
            &self,
            _: u64,
            _: Vec<env::Block>,
            _: Durability,
        ) -> Local<'_, Result<(), DiskError>> {
            Box::pin(async { Ok(()) })
        }
        fn flush(&self) -> Local<'_, Result<(), DiskError>> {
            Box::pin(async { Ok(()) })
        }
        fn discard(&self, _: u64, _: u64) -> Local<'_, Result<(), DiskError>> {
            Box::pin(async { Ok(()) })
        }
    }
}

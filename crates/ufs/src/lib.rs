//! Which object is meant: names, directories, link counts, one operation a file, over the small
//! [`Store`] trait. It knows neither where blocks live (that is the store's) nor who asks (that is
//! the front ends').
//!
//! Invariants, each asserted where it could be broken:
//! * U1. A directory's names and links, and the links of what they name, change under the lock of
//!   that inode.
//! * U2. Locks are taken in the order of numbers, each once.
//! * U3. A file without names that somebody holds stays in memory, as the one inode of its number.
//! * U4. The index in memory has what the directory's blocks have: a name is added, found and taken
//!   away in both.
//! * U5. A file counts a name before it has it.
//! * U6. What is freed has no name; one that gets a name after all is freed no more.
//! * U7. One directory at a time changes its parent.
//! * U8. A block of names that is split or laid out anew keeps each name, on the side of its hash.
//! * U9. The store keeps to what it was asked for: no more blocks, at least one, steps that come to
//!   the end.
//! * U10. What was stored of attributes is what was to be stored.
//! * U11. A stamp of names is one that was given out.
//! * U12. An index by hash reads back as it was laid out, and a way through it has a step a level.
//! * U13. A listing goes on: each cookie is greater than the one before it.
//! * U14. Nobody gets a permission that was not asked for.
//! * U15. Contents, sizes and permissions change under the lock of their inode.

mod attr;
mod dir;
mod inline;
mod inode;
mod names;
mod ops;
mod scrub;
pub mod store;
mod table;
#[cfg(test)]
mod testing;
mod values;
mod xattrs;

use env::sync::{Lock, Notify};
use siphasher::sip::{SipHasher13, SipHasher24};
use std::cell::Cell;
use std::rc::{Rc, Weak};
use table::Table;
use vfs::{AccessTimes, VolumeInfo};

pub use scrub::{Pace, Pass};
pub use store::{InodeHandle, Limits, Store};

/// The operations over a store; an opened volume as the front ends see it.
pub struct Ufs<S: Store> {
    me: Weak<Ufs<S>>,
    store: Rc<S>,
    table: Table,
    /// Has the key of this opening, see [`dir`].
    name_hasher: SipHasher13,
    /// Held while a directory changes its parent, so that no two moves make a loop.
    renames: Lock,
    /// Somebody makes names durable because there are many.
    bounding: Cell<bool>,
    closed: Cell<bool>,
    /// Directories whose index was found to be damaged.
    broken_indexes: Cell<u64>,
    access_times: Cell<AccessTimes>,
    /// Calls under way; `idle`: there are none any more.
    running: Cell<usize>,
    idle: Notify,
    about: Box<dyn Fn() -> VolumeInfo>,
}

impl<S: Store> Ufs<S> {
    /// The volume in `store`; `about` tells what a front end needs to know of it. `entropy`:
    /// bytes that nobody outside can know, of which the directories' indices make their key.
    pub fn new(
        store: Rc<S>,
        entropy: &[u8; 16],
        about: impl Fn() -> VolumeInfo + 'static,
    ) -> Rc<Ufs<S>> {
        // Others use the same bytes as a key; neither may tell anything about the other.
        let part = SipHasher24::new_with_key(entropy);
        let key = |n: &[u8]| part.hash(&[b"directory index ", n].concat());
        Rc::new_cyclic(|me| Ufs {
            me: me.clone(),
            store,
            table: Table::default(),
            name_hasher: SipHasher13::new_with_keys(key(b"0"), key(b"1")),
            renames: Lock::new(),
            bounding: Cell::new(false),
            closed: Cell::new(false),
            broken_indexes: Cell::new(0),
            access_times: Cell::default(),
            running: Cell::new(0),
            idle: Notify::new(),
            about: Box::new(about),
        })
    }
    /// The store under it.
    pub fn store(&self) -> &Rc<S> {
        &self.store
    }
    /// From now on calls fail; those under way end by themselves.
    pub fn refuse_calls(&self) {
        self.closed.set(true);
    }
}

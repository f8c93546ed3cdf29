//! What a volume's blocks lie on: a *store* gives the layout a disk. The plain one is the device
//! itself; one that keeps blocks in segments, on an image or in a bucket, is one entry more in
//! [`STORES`]. The layout above it sees [`Disk`] and nothing else.
//!
//! A store is recovered before the layout looks at what it holds: its probe finds it by its magic
//! and reads only, its recovery finishes what a crash left, and loading it gives the disk.

use crate::VolumeError;
use crate::objects::Objects;
use crate::place::{Ground, Reader};
use crate::segments::Segments;
use cache::Cache;
use env::{Blocking, Disk, DiskError, Local, Nanos};
use mechanisms::GroupStore;
use std::fmt;
use std::rc::Rc;
use vfs::{FsError, Reply, SnapshotOp};

/// A kind of store.
pub trait StoreKind: Sync {
    /// Looks for one by its magic, reading only. None: there is none here. Errors: there is one,
    /// and it cannot be used; or the device failed.
    fn probe<'a>(
        &'a self,
        on: &'a Ground,
    ) -> Local<'a, Result<Option<Box<dyn FoundStore>>, VolumeError>>;
}

/// A store that was found; plain data, so that it can go to the engine that opens it.
pub trait FoundStore: Send + fmt::Debug {
    /// Its name, for a person.
    fn name(&self) -> &'static str;
    /// Are its blocks kept in segments, so that it takes atomic groups?
    fn is_segments(&self) -> bool {
        false
    }
    /// Has it a cleaner that follows one of several policies?
    fn takes_policy(&self) -> bool {
        false
    }
    /// Can it show snapshots of itself?
    fn has_snapshots(&self) -> bool {
        false
    }
    /// May another machine have changed it until it is loaded for writing? Then what was seen in it
    /// before is looked at again.
    fn is_shared(&self) -> bool {
        false
    }
    /// What its recovery will do, a line each; nothing after a clean end.
    fn steps(&self) -> Vec<String> {
        Vec::new()
    }
    /// Why it can only be read, if that is so: damage that an opening for writing would give up.
    fn damage(&self) -> Option<String> {
        None
    }
    /// Finishes what an unclean end left, each step of it durable before the next that needs it.
    /// Can be cut off and done again.
    fn recover<'a>(&'a mut self, on: &'a Ground) -> Local<'a, Result<(), VolumeError>>;
    /// Its disk. `read_only`: nothing may be written, and what recovery would do is done in memory.
    fn load<'a>(
        &'a self,
        on: &'a Ground,
        read_only: bool,
    ) -> Local<'a, Result<Rc<dyn Store>, VolumeError>>;
}

/// A loaded store.
pub trait Store {
    /// The disk that it gives the layout.
    fn disk(&self) -> Rc<dyn Disk>;
    /// The same for who reads without waiting, as it is now.
    fn reader<'a>(&'a self, on: &'a Ground) -> Local<'a, Result<Reader, DiskError>> {
        Box::pin(async move {
            let made = Blocking::made_of(&on.env, self.disk(), &[on.own]).await;
            Ok(Reader(made?))
        })
    }
    /// Itself as a store of atomic groups, if it is one.
    fn groups(&self) -> Option<Rc<dyn GroupStore>> {
        None
    }
    /// What this cache holds of it, which is empty, need not be read again by the store itself.
    fn remember(&self, _: &Rc<Cache>) {}
    /// Notes that came lately with groups, before it was opened; None: it keeps none.
    fn notes(&self) -> Option<Vec<u128>> {
        None
    }
    /// The store in a bucket that other machines may ask for something, if it is one.
    fn asked_of(&self) -> Option<&bucket::Store> {
        None
    }
    /// Does something about its snapshots; `now`: seconds since 1970. Errors: `NotSupported` if it
    /// has none.
    fn snapshot(&self, _: SnapshotOp, _now: u64) -> Local<'_, Result<Reply, FsError>> {
        Box::pin(async { Err(FsError::NotSupported) })
    }
    /// Nothing is done by itself before `until`, nor under way when this returns: somebody else
    /// reads the disk.
    fn be_still(&self, _until: Nanos) -> Local<'_, ()> {
        Box::pin(async {})
    }
    /// It is not used any more, and was not closed: whoever comes next need not wait for us.
    fn give_up(&self) -> Local<'_, ()> {
        Box::pin(async {})
    }
    /// Everything durable, and marked as ended cleanly: the last call, after the layout's close.
    fn close(&self) -> Local<'_, Result<(), DiskError>>;
}

/// Every kind of store, in the order in which they are looked for. The plain disk is last: it is
/// what is left.
pub(crate) const STORES: &[&dyn StoreKind] = &[&Objects, &Segments, &PlainDisk];

/// The device itself.
#[derive(Clone, Copy, Debug)]
struct PlainDisk;

impl StoreKind for PlainDisk {
    fn probe<'a>(
        &'a self,
        _: &'a Ground,
    ) -> Local<'a, Result<Option<Box<dyn FoundStore>>, VolumeError>> {
        Box::pin(async { Ok(Some(Box::new(PlainDisk) as Box<dyn FoundStore>)) })
    }
}

impl FoundStore for PlainDisk {
    fn name(&self) -> &'static str {
        "plain disk"
    }
    fn recover<'a>(&'a mut self, _: &'a Ground) -> Local<'a, Result<(), VolumeError>> {
        Box::pin(async { Ok(()) })
    }
    fn load<'a>(
        &'a self,
        on: &'a Ground,
        _: bool,
    ) -> Local<'a, Result<Rc<dyn Store>, VolumeError>> {
        Box::pin(async { Ok(Rc::new(Plain(on.disk())) as Rc<dyn Store>) })
    }
}

struct Plain(Rc<dyn Disk>);

impl Store for Plain {
    fn disk(&self) -> Rc<dyn Disk> {
        self.0.clone()
    }
    fn reader<'a>(&'a self, on: &'a Ground) -> Local<'a, Result<Reader, DiskError>> {
        Box::pin(async { Ok(Reader(Blocking::own(&on.env, on.own, on.own_bytes).await?)) })
    }
    fn close(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async { Ok(()) })
    }
}

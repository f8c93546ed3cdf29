//! A mechanism that protects nothing, and compares what a transaction changes with what it was
//! begun for. To the layout it is one whose transactions are atomic.

use super::{Vol, World};
use cache::{Buf, Cache, FlushEpoch, Image, WriteGate};
use env::{DiskError, Local};
use format::Ino;
use integrity::{Change, Credits, Edit, Ended, Freed, Integrity, IntegrityError, Pressure, Scope};
use integrity::{Mechanism, Txn, TxnId};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::{Rc, Weak};

/// One operation may need so many blocks; who needs more goes in steps.
const MOST: u64 = 200;

/// What a transaction has said that it may change, and what it has.
struct Open {
    need: Credits,
    blocks: BTreeSet<u64>,
}

/// No protection; it compares what is changed with what was said.
struct Strict {
    me: Weak<Strict>,
    cache: Rc<Cache>,
    open: RefCell<BTreeMap<TxnId, Open>>,
    last: Cell<TxnId>,
    /// Blocks that were changed beyond what was said, by one transaction at most.
    over: Rc<Cell<u64>>,
}

impl WriteGate for Strict {
    fn before_write(&self, _: &Buf) -> Image {
        Image::AsIs
    }
    fn after_write(&self, _: &Buf, _: &Image, _: Result<(), &DiskError>, _: FlushEpoch) {}
    fn flushed(&self, _: FlushEpoch) {}
}

impl Integrity for Strict {
    fn atomic(&self) -> bool {
        true
    }
    fn wants_before(&self, _: &Change) -> bool {
        false
    }
    fn fits(&self, need: &Credits) -> bool {
        need.blocks <= MOST
    }
    fn begin(&self, need: Credits) -> Local<'_, Result<Txn, IntegrityError>> {
        let id = self.last.get().next();
        self.last.set(id);
        self.open.borrow_mut().insert(id, Open { need, blocks: BTreeSet::new() });
        let me = self.me.upgrade().unwrap();
        Box::pin(async move { Ok(Txn::new(me, id, need.blocks)) })
    }
    fn change(&self, txn: &mut Txn, edit: Edit) {
        if !edit.range.is_empty() {
            let mut open = self.open.borrow_mut();
            open.get_mut(&txn.id).unwrap().blocks.insert(edit.buf.block().0);
        }
    }
    fn data(&self, _: &mut Txn, _: Ino, _: &Buf, _: Range<usize>) {}
    fn end(&self, txn: Txn) -> Local<'_, Result<Ended, IntegrityError>> {
        let Open { need, blocks } = self.open.borrow_mut().remove(&txn.id).unwrap();
        let over = (blocks.len() as u64).saturating_sub(need.blocks);
        self.over.set(self.over.get().max(over));
        Box::pin(async move { Ok(txn.id.into()) })
    }
    fn durable(&self, _: Ended) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async { Ok(()) })
    }
    fn sync(&self, _: Scope) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async { Ok(()) })
    }
    fn may_reuse(&self, _: Freed) -> bool {
        true
    }
    fn has_busy_extents(&self) -> bool {
        false
    }
    fn press(&self, _: Pressure) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async { Ok(()) })
    }
    fn close(&self) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async {
            self.cache.write_all().await?;
            self.cache.flush_device().await?;
            Ok(())
        })
    }
}

/// A volume that counts, and how far its worst transaction has gone beyond what it said.
pub fn counted(size: u64, args: &[&str]) -> (World, Vol, Rc<Cell<u64>>) {
    let mut w = World::mke2fs(size, args);
    let (v, over) = open_counted(&mut w);
    (w, v, over)
}

/// Opens a volume so.
pub fn open_counted(w: &mut World) -> (Vol, Rc<Cell<u64>>) {
    let over = Rc::new(Cell::new(0));
    let counts = over.clone();
    let strict = move |cache: &Rc<Cache>| -> Mechanism {
        let strict = Rc::new_cyclic(|me| Strict {
            me: me.clone(),
            cache: cache.clone(),
            open: RefCell::default(),
            last: Cell::default(),
            over: counts.clone(),
        });
        cache.set_gate(strict.clone());
        strict
    };
    let v = w.load(strict).unwrap();
    let ext = v.ext.clone();
    w.run(|_| async move { ext.mark_open(false, 1_700_000_000).await }).unwrap();
    (v, over)
}

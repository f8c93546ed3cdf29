//! A transaction: the edits of one operation. An edit changes the bytes *and* tells the mechanism,
//! in one call, so that neither can be forgotten (O1).

use crate::undo::{Undo, next_run};
use crate::{Before, Change, Ended, Grain, Inside, Integrity, IntegrityError, TxnId};
use cache::{Buf, Role};
use format::intent::Intent;
use format::{BlockNo, Ino};
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// One edit, as the mechanism sees it.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The block.
    pub buf: Buf,
    /// The bytes that were changed.
    pub range: Range<usize>,
    /// What they were before, if the mechanism wants that.
    pub before: Option<Before>,
    /// What the edit means.
    pub change: Change,
}

impl Edit {
    /// How it is taken back in a copy of the block; None where the mechanism has not wanted the
    /// bytes from before it. To be asked before the block changes again.
    pub fn undo(&self) -> Option<Undo> {
        let before = self.before.as_ref()?;
        let bytes = self.buf.bytes();
        let after = &bytes[self.range.clone()];
        Some(Undo::of(self.range.start, before, after, self.change.grain()))
    }
}

/// Blocks that a transaction has changed, and which of their bytes: the few that it has need no
/// memory of their own.
pub type TouchedBlocks = SmallVec<[(Buf, Range<usize>); 6]>;

/// The edits of one operation. It must be given to [`Integrity::end`]; dropping it with edits is a
/// bug, except when the volume is stopped in the middle.
pub struct Txn {
    integrity: Rc<dyn Integrity>,
    /// Names it.
    pub id: TxnId,
    /// What the mechanism has noted, if it keeps edits here.
    pub edits: Vec<Edit>,
    /// File contents announced with [`Txn::data`], if the mechanism keeps them here.
    pub data: Vec<(Ino, Buf, Range<usize>)>,
    /// What it may leave half done if it is cut off, for mechanisms that write that down.
    pub intents: Vec<Intent>,
    /// What is to be kept with its changes, for mechanisms whose store keeps that.
    pub note: Option<u128>,
    /// Blocks that it said it would change, for mechanisms with a log.
    pub credits: u64,
    /// Those that it has changed, each once, as long as they are not more than [`COUNTED`].
    changed: SmallVec<[BlockNo; 12]>,
    /// Was its work cut short, because more of it might have changed more than it said?
    pub spent: bool,
    /// May it take the blocks that a layout keeps for root? Yes, unless the operation says
    /// otherwise.
    pub reserve: bool,
    /// What the layout knows it by, if it counts those that are open.
    pub number: u64,
    /// Holds off who wants the volume to stand still, if the layout lets anybody.
    pub inside: Option<Inside>,
    /// Blocks with checksums that were changed, and where: see [`Txn::take_touched`].
    touched: TouchedBlocks,
    over: bool,
}

impl Txn {
    /// Called by a mechanism's `begin`.
    pub fn new(integrity: Rc<dyn Integrity>, id: TxnId, credits: u64) -> Txn {
        assert!(id > TxnId::NONE, "O1: a transaction without a number, which stands for none");
        // A file that is made or freed comes to a score; memory that grows step by step is copied
        // as often.
        let (edits, data) = (Vec::with_capacity(USUAL_EDITS), Vec::new());
        let touched = TouchedBlocks::new();
        Txn {
            integrity,
            id,
            edits,
            data,
            intents: Vec::new(),
            note: None,
            credits,
            changed: SmallVec::new(),
            spent: false,
            reserve: true,
            number: 0,
            inside: None,
            touched,
            over: false,
        }
    }

    /// Ends it where it stands, so that another can be put in its place: for work that is larger
    /// than one transaction. (A mechanism may wait for the old one's end before it begins a new
    /// one.)
    pub async fn end_early(&mut self) -> Result<Ended, IntegrityError> {
        assert!(!self.over, "a transaction ends once");
        let mut old = Txn::new(self.integrity.clone(), self.id, self.credits);
        old.edits = std::mem::take(&mut self.edits);
        old.data = std::mem::take(&mut self.data);
        old.intents = std::mem::take(&mut self.intents);
        self.over = true;
        self.integrity.end(old).await
    }

    /// Says what is about to change, if the mechanism writes that down.
    pub fn intend(&mut self, what: impl FnOnce() -> Intent) {
        if self.integrity.wants_intents() {
            self.intents.push(what());
        }
    }

    /// Are there credits for this many more blocks? Contents do not count. For work that can end
    /// before it is all done.
    pub fn may_change(&self, more: u64) -> bool {
        self.changed.len() as u64 + more <= self.credits.min(COUNTED as u64)
    }

    fn count(&mut self, buf: &Buf) {
        let block = buf.block();
        if self.changed.len() < COUNTED && !self.changed.iter().rev().any(|b| *b == block) {
            self.changed.push(block);
        }
    }

    fn touch(&mut self, buf: &Buf, range: &Range<usize>) {
        if buf.role() == Role::Plain {
            return;
        }
        let shared = matches!(buf.role(), Role::Inodes(_) | Role::Descriptors(_));
        let joins = |r: &Range<usize>| !shared || r.start <= range.end && range.start <= r.end;
        match self.touched.iter_mut().rev().find(|(b, r)| b.same(buf) && joins(r)) {
            Some((_, r)) => *r = r.start.min(range.start)..r.end.max(range.end),
            None => self.touched.push((buf.clone(), range.clone())),
        }
    }

    /// Takes out the blocks with checksums that were changed, each with its bytes from the first
    /// changed one to the last. One that holds several inodes or descriptors comes with each run of
    /// those that were changed: between two of them lies what another transaction may be in the
    /// middle of.
    pub fn take_touched(&mut self) -> TouchedBlocks {
        assert!(!self.over, "O1: checksums of a transaction that has ended are asked for");
        std::mem::take(&mut self.touched)
    }

    /// Has it ended already, by [`Txn::end_early`]? Then it is dropped, not ended.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Changes `range` of `buf`'s bytes with `f`, which gets just those bytes.
    pub fn edit<T>(
        &mut self,
        buf: &Buf,
        range: Range<usize>,
        change: Change,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        self.touch(buf, &range);
        self.edit_sealed(buf, range, change, f)
    }

    /// As [`Txn::edit`], and the block's checksum has no part in it: it is what is changed, or is
    /// right afterwards as it is.
    pub fn edit_sealed<T>(
        &mut self,
        buf: &Buf,
        range: Range<usize>,
        change: Change,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        self.check(buf, &range, &change);
        self.count(buf);
        let there = range.is_empty() || change.entry().is_none_or(|at| range.contains(&at));
        assert!(there, "O1: {change:?} is told of bytes {range:?}");
        let wants_before = self.integrity.wants_before(&change);
        let before = wants_before.then(|| Before::from(&buf.bytes()[range.clone()]));
        let is_map = change.grain() == Grain::Bits && !range.is_empty();
        let set = || buf.bytes()[range.clone()].iter().map(|b| b.count_ones()).sum();
        let bits = if is_map { set() } else { 0 };
        let result = buf.modify(|bytes| f(&mut bytes[range.clone()]));
        if is_map {
            change.check_bits(bits, set());
        }
        assert!(buf.is_dirty(), "O1: {change:?} of {buf:?}, which nobody would write");
        let integrity = self.integrity.clone();
        integrity.change(self, Edit { buf: buf.clone(), range, before, change });
        result
    }

    /// Changes `range` of `buf`'s bytes with `f`, and announces only the 4-byte words that differ
    /// afterwards. For structures with many fields, of which an operation changes a few: two
    /// operations that change different fields of one inode then never undo each other.
    pub fn edit_words<T>(
        &mut self,
        buf: &Buf,
        range: Range<usize>,
        change: Change,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        self.check(buf, &range, &change);
        self.count(buf);
        assert_eq!(change.grain(), Grain::Words, "O1: bits of {change:?} are told as words");
        self.touch(buf, &range);
        let mut small = [0; SMALL_BYTES];
        let mut large = Vec::new();
        let before: &mut [u8] = match small.get_mut(..range.len()) {
            Some(small) => small,
            None => {
                large.resize(range.len(), 0);
                &mut large
            }
        };
        before.copy_from_slice(&buf.bytes()[range.clone()]);
        let result = buf.modify(|bytes| f(&mut bytes[range.clone()]));
        assert!(buf.is_dirty(), "O1: {change:?} of {buf:?}, which nobody would write");
        let integrity = self.integrity.clone();
        let wants_before = integrity.wants_before(&change);
        let joins = integrity.joins_words(&change);
        let mut from = 0;
        loop {
            let next =
                |from: usize| next_run(range.start, before, &buf.bytes()[range.clone()], from);
            let Some(mut w) = next(from) else { break };
            while let Some(more) = joins.then(|| next(w.end)).flatten() {
                w.end = more.end;
            }
            // Once for each run of words of each edit.
            debug_assert!(from <= w.start && w.end <= range.len(), "O1: {w:?} is told twice");
            from = w.end;
            let old = wants_before.then(|| Before::from(&before[w.clone()]));
            let range = range.start + w.start..range.start + w.end;
            integrity.change(self, Edit { buf: buf.clone(), range, before: old, change });
        }
        result
    }

    /// File contents were written to `range` of `buf` (with `Buf::modify` or `Buf::replace`).
    pub fn data(&mut self, ino: Ino, buf: &Buf, range: Range<usize>) {
        assert!(!self.over, "O1: contents in a transaction that has ended");
        assert!(range.end <= buf.bytes().len(), "contents beyond the end of {buf:?}");
        assert!(buf.is_dirty(), "O1: contents of {buf:?} are announced and were not written");
        assert_eq!(buf.owner(), ino, "O3: contents that no fsync of their file would find");
        assert!(ino.0 != 0 && !range.is_empty(), "O1: contents of {ino}, of no bytes");
        let integrity = self.integrity.clone();
        integrity.data(self, ino, buf, range);
    }

    /// What holds of every edit, before it is made.
    fn check(&self, buf: &Buf, range: &Range<usize>, change: &Change) {
        assert!(!self.over, "O1: an edit of {buf:?} in a transaction that has ended");
        // One of no bytes says what is done, and changes nothing.
        let len = buf.bytes().len();
        assert!(range.end <= len, "O1: {change:?} beyond the end of {buf:?}");
        let is_count = matches!(change, Change::ShareDown(_));
        assert!(!is_count || range.len() == 4, "O1: {change:?} of a count of other than 32 bits");
        change.check(len);
    }

    /// The mechanism it belongs to.
    pub fn integrity(&self) -> &Rc<dyn Integrity> {
        &self.integrity
    }
}

/// An inode's bytes, which are edited word by word: no memory is asked for those before.
const SMALL_BYTES: usize = 256;
/// So many changed blocks are counted: what asks whether there are too many says fewer.
const COUNTED: usize = 64;
/// So many edits have most operations at most.
const USUAL_EDITS: usize = 24;

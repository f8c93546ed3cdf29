//! The operations' transactions: what is edited in one is, where the mode promises that, all or
//! nothing after a crash.

use super::StoreInfo;
use cache::Buf;
use format::Ino;
use format::intent::Intent;
use integrity::{Change, Credits, Ended, Txn, TxnId};
use std::ops::Range;
use vfs::FsError;

/// What the operations do with a transaction: each edit changes the bytes and says what it means.
pub trait Transaction {
    /// Names it, also when it has ended.
    fn id(&self) -> TxnId;
    /// Changes `range` of `buf`'s bytes with `f`, which gets just those bytes; all are announced.
    fn edit<T>(
        &mut self,
        buf: &Buf,
        range: Range<usize>,
        change: Change,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> T;
    /// The same, and only the words that differ afterwards are announced.
    fn edit_words<T>(
        &mut self,
        buf: &Buf,
        range: Range<usize>,
        change: Change,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> T;
    /// File contents were written to `range` of `buf` (with `Buf::modify` or `Buf::replace`).
    fn data(&mut self, ino: Ino, buf: &Buf, range: Range<usize>);
    /// Says what is about to change, if anybody writes that down.
    fn intend(&mut self, what: impl FnOnce() -> Intent);
    /// May it take the blocks that are kept for root?
    fn allow_reserve(&mut self, allowed: bool);
    /// What is to be kept with its changes, where that is kept.
    fn set_note(&mut self, note: Option<u128>);
    /// Was its work cut short, because more of it might have changed more than was said when it
    /// began?
    fn is_spent(&self) -> bool;
    /// Could it not be renewed? Then nothing more can be edited in it, nor undone.
    fn is_over(&self) -> bool;
}

/// The seam's own, which is every layout's as long as its mechanisms are those of the seam.
impl Transaction for Txn {
    fn id(&self) -> TxnId {
        self.id
    }
    fn edit<T>(
        &mut self,
        buf: &Buf,
        range: Range<usize>,
        change: Change,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        Txn::edit(self, buf, range, change, f)
    }
    fn edit_words<T>(
        &mut self,
        buf: &Buf,
        range: Range<usize>,
        change: Change,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        Txn::edit_words(self, buf, range, change, f)
    }
    fn data(&mut self, ino: Ino, buf: &Buf, range: Range<usize>) {
        Txn::data(self, ino, buf, range);
    }
    fn intend(&mut self, what: impl FnOnce() -> Intent) {
        Txn::intend(self, what);
    }
    fn allow_reserve(&mut self, allowed: bool) {
        self.reserve = allowed;
    }
    fn set_note(&mut self, note: Option<u128>) {
        self.note = note;
    }
    fn is_spent(&self) -> bool {
        self.spent
    }
    fn is_over(&self) -> bool {
        Txn::is_over(self)
    }
}

/// Transactions, one for each operation or for each of its steps.
#[expect(async_fn_in_trait, reason = "a volume is one thread's; its futures need not be Send")]
pub trait Transactions: StoreInfo {
    /// One of them. It is ended, never dropped with edits.
    type Txn: Transaction;

    /// Waits while too much is dirty, then begins an operation.
    async fn begin(&self, need: Credits) -> Result<Self::Txn, FsError>;
    /// Would [`Transactions::begin`] return at once? It waits for room, or while the volume stands
    /// still.
    fn begins_at_once(&self, need: &Credits) -> bool;
    /// Ends `txn` and begins another in its place: for an operation larger than one transaction,
    /// which the mechanism may then find half done after a crash. After an error there is nothing
    /// left to end, and [`Transactions::end`] says so by an error of its own.
    async fn renew(&self, txn: &mut Self::Txn, need: Credits) -> Result<(), FsError>;
    /// Ends it; then its locks may be released.
    async fn end(&self, txn: Self::Txn) -> Result<Ended, FsError>;
    /// Waits for what the mode promises of a returned call; with `durable`, until it is durable in
    /// any mode.
    async fn returned(&self, ended: Ended, durable: bool) -> Result<(), FsError>;
    /// Does a name that the operation took away go on the disk only much later, after many others
    /// that wait one for another? Names in its place would wait with it.
    fn keeps_old_name(&self, by: TxnId) -> bool;
    /// Between two halves of a change that is one transaction; a planted bug makes it two.
    async fn amid_split(&self, txn: &mut Self::Txn) -> Result<(), FsError>;
}

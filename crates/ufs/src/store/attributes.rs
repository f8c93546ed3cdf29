//! Extended attributes: the block for those that do not fit in the inode, and values that are other
//! inodes' contents, which most layouts do not have.

use super::{InodeHandle, Transactions};
use cache::Buf;
use format::ufs::xattr::Elsewhere;
use format::{BlockNo, FormatError};
use vfs::FsError;

/// The attribute block, and values elsewhere.
#[expect(async_fn_in_trait, reason = "a volume is one thread's; its futures need not be Send")]
pub trait Attributes: Transactions {
    /// Before an inode gets attributes, and outside of any transaction: the layout's header says
    /// that there are some.
    async fn announce_attributes(&self) -> Result<(), FsError> {
        Ok(())
    }
    /// An attribute's value that is another inode's contents. `Corrupt` if that is none for it.
    async fn value_elsewhere(
        &self,
        inode: &InodeHandle,
        at: Elsewhere,
    ) -> Result<Vec<u8>, FsError> {
        let what = format!("a value is said to be inode {}'s contents", at.ino);
        Err(self.corrupt(&FormatError::corrupt(what, format!("inode {}", inode.ino))))
    }
    /// Makes an inode whose contents are the value of an attribute of `inode` by this name, with
    /// one user. `NoSpace` before anything has changed.
    async fn make_value(
        &self,
        txn: &mut Self::Txn,
        inode: &InodeHandle,
        (name, value): (&[u8], &[u8]),
    ) -> Result<Elsewhere, FsError> {
        let _ = (txn, inode, name, value);
        Err(FsError::NoSpace)
    }
    /// One attribute more, or one fewer, has such a value; with the last one the value goes.
    async fn use_value(
        &self,
        txn: &mut Self::Txn,
        inode: &InodeHandle,
        at: Elsewhere,
        more: bool,
    ) -> Result<(), FsError> {
        let _ = (txn, more);
        self.value_elsewhere(inode, at).await.map(drop)
    }
    /// Frees values that were just made, and that nothing names.
    async fn unmake_values(
        &self,
        txn: &mut Self::Txn,
        inode: &InodeHandle,
        made: &[Elsewhere],
    ) -> Result<(), FsError> {
        let _ = (txn, inode);
        assert!(made.is_empty(), "values are made by who can free them");
        Ok(())
    }
    /// The values of an inode's attributes take so many blocks more, which it counts as its own.
    fn count_values(&self, txn: &mut Self::Txn, inode: &InodeHandle, blocks: i64) {
        let _ = (txn, inode, blocks);
    }
    /// The attribute block, if the inode has one.
    async fn xattr_block(&self, inode: &InodeHandle) -> Result<Option<Buf>, FsError>;
    /// Where the attribute block is; 0: the inode has none.
    fn xattr_pointer(&self, inode: &InodeHandle) -> BlockNo;
    /// Gives the inode an attribute block with `contents` (None: none at all). An old one of its
    /// own is changed where operations are atomic, else freed; one that others (made by the kernel)
    /// share loses a user, and keeps its entries: false.
    async fn set_xattr_block(
        &self,
        txn: &mut Self::Txn,
        inode: &InodeHandle,
        contents: Option<&[u8]>,
    ) -> Result<bool, FsError>;
    /// Leaves the attribute block to the others who have it; false: nobody else has.
    async fn leave_xattr_block(
        &self,
        txn: &mut Self::Txn,
        inode: &InodeHandle,
    ) -> Result<bool, FsError>;
}

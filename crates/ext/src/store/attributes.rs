//! Extended attributes: see crate::xattr and crate::values.

use crate::Ext;
use cache::Buf;
use format::BlockNo;
use format::ufs::inode::InodeRef;
use format::ufs::xattr::Elsewhere;
use integrity::Txn;
use ufs::InodeHandle;
use ufs::store::Attributes;
use vfs::FsError;

impl Attributes for Ext {
    async fn announce_attributes(&self) -> Result<(), FsError> {
        Ext::announce_attributes(self).await
    }
    async fn value_elsewhere(
        &self,
        inode: &InodeHandle,
        at: Elsewhere,
    ) -> Result<Vec<u8>, FsError> {
        self.value_of_inode(inode, at).await
    }
    async fn make_value(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        named: (&[u8], &[u8]),
    ) -> Result<Elsewhere, FsError> {
        self.new_value(txn, inode, named).await
    }
    async fn use_value(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: Elsewhere,
        more: bool,
    ) -> Result<(), FsError> {
        self.count_user(txn, inode, at, more).await
    }
    async fn unmake_values(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        made: &[Elsewhere],
    ) -> Result<(), FsError> {
        self.free_made(txn, inode, made).await
    }
    fn count_values(&self, txn: &mut Txn, inode: &InodeHandle, blocks: i64) {
        self.count_sectors(txn, inode, blocks);
    }
    async fn xattr_block(&self, inode: &InodeHandle) -> Result<Option<Buf>, FsError> {
        self.attributes(inode).await
    }
    fn xattr_pointer(&self, inode: &InodeHandle) -> BlockNo {
        inode.with(|raw| self.xattr_block_of(InodeRef(raw)))
    }
    async fn set_xattr_block(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        contents: Option<&[u8]>,
    ) -> Result<bool, FsError> {
        self.set_attributes(txn, inode, contents).await
    }
    async fn leave_xattr_block(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<bool, FsError> {
        self.leave_attributes(txn, inode).await
    }
}

//! The last operation: nobody holds anything any more.

use crate::Ufs;
use crate::store::Store;
use vfs::FsError;

impl<S: Store> Ufs<S> {
    /// Refuses further calls, waits for those under way, reclaims files without names, and makes
    /// everything durable.
    pub async fn shut(&self) -> Result<(), FsError> {
        self.refuse_calls();
        while self.running.get() > 0 {
            self.idle.wait().await;
        }
        if self.store.writable().is_err() {
            return Ok(());
        }
        self.table.behind.borrow_mut().clear(); // they are among these
        for inode in self.table.unlinked_open() {
            self.table.release(inode.ino(), u64::MAX);
            self.reclaim(&inode).await?;
        }
        let left = self.table.unlinked_open_count();
        assert_eq!(left, 0, "U6: files without names that are not freed at the end");
        self.store.sync_all().await
    }
}

//! Directories that a crash has left with two names. A rename that soft updates were cut off in
//! shows the old name and the new one; both may be in one directory, whose count of links has the
//! subdirectory once. Until the checker beside service has taken one of them, operations that take
//! a name look for the other.

use crate::Ufs;
use crate::inode::Inode;
use crate::store::Store;
use format::ext::csum::entries_part;
use format::ufs::dirent;
use format::{FileBlock, Ino};
use vfs::FsError;

impl<S: Store> Ufs<S> {
    /// Does the directory, which has just lost a name of its subdirectory `child`, have another
    /// one of it? Then its count of links stays.
    pub(crate) async fn is_named_again(&self, dir: &Inode, child: Ino) -> Result<bool, FsError> {
        let doubtful = self.store.watch().is_some_and(|w| w.is_doubtful());
        Ok(doubtful && self.last_name(dir, Some(child)).await?.is_some())
    }

    /// The last name in a directory, of `child` or of anything: the one that came later. Without
    /// "." and "..".
    pub(crate) async fn last_name(
        &self,
        dir: &Inode,
        child: Option<Ino>,
    ) -> Result<Option<(Vec<u8>, Ino)>, FsError> {
        let limits = self.store.limits();
        let bs = limits.block_bytes as u64;
        for n in (0..dir.dir_end(bs) / bs).rev() {
            let buf = self.store.dir_block(&dir.h, FileBlock(n)).await?;
            let bytes = buf.bytes();
            let all = dirent::entries(entries_part(&bytes, limits.dir_tail)).flatten();
            let named = all.filter(|e| e.ino.0 != 0 && e.name != b"." && e.name != b"..");
            let wanted = named.filter(|e| child.is_none_or(|c| c == e.ino)).last();
            if let Some(e) = wanted {
                return Ok(Some((e.name.to_vec(), e.ino)));
            }
        }
        Ok(None)
    }
}

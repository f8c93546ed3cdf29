//! The volume's label, as FS_IOC_GETFSLABEL and FS_IOC_SETFSLABEL show and change it: who may.
//! Where it is kept, the store knows.

use super::{Ctx, Done};
use crate::Ufs;
use crate::store::Store;
use vfs::{FsError, Reply};

impl<S: Store> Ufs<S> {
    pub(super) fn label(&self) -> Done {
        Ok(Reply::Bytes(self.store.label().into_bytes()))
    }

    /// Durably, as it is asked for seldom, and expected of it.
    pub(super) async fn set_label(&self, ctx: &Ctx, label: &str) -> Done {
        if ctx.cred.uid != 0 {
            return Err(FsError::Perm);
        }
        self.store.writable()?;
        self.store.set_label(label).await?;
        Ok(Reply::Done)
    }
}

//! Under which name a cache that outlives this process keeps what was read of an object. The
//! volume's name and the object's are not enough: where an older state of the bucket was put back,
//! or copied, and written on, objects of the same names hold something else. Whoever writes on puts
//! a fence first, with chance in it; so an object is told by the fence that its epoch began with.
//! It reads no contents.

use crate::chain::head_of;
use crate::object::Serial;
use crate::store::Inner;

impl Inner {
    /// What tells the object of this serial from all others that have had its name. None: nobody
    /// keeps anything, or that is not known, and the bucket is asked.
    pub(crate) async fn kept_as(&self, serial: Serial) -> Option<[u8; 16]> {
        if !self.options.kept {
            return None;
        }
        let fence = self.state.borrow().table.fences.range(..=serial).next_back().copied();
        let Some(fence) = fence else {
            return Some(self.shape.uuid); // what mkfs has put
        };
        let known = self.epochs.borrow().get(&fence).copied();
        if known.is_some() {
            return known;
        }
        let (head, sum, _) = head_of(&self.bucket, &self.shape, fence).await.ok()?;
        let mut name = self.shape.uuid;
        let chance = head.nonce.to_le_bytes().into_iter().chain(sum.to_le_bytes());
        name.iter_mut().zip(chance).for_each(|(n, c)| *n ^= c);
        self.epochs.borrow_mut().insert(fence, name);
        Some(name)
    }
}

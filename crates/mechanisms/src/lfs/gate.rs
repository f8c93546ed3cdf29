//! The cache's gate, as this mechanism keeps it: what belongs to operations goes into the store
//! with their groups and never by write-back; the rest, such as the superblock's state, goes as
//! it is.

use super::Lfs;
use cache::{Buf, FlushEpoch, Image, WriteGate};
use env::{DiskError, Local};

impl WriteGate for Lfs {
    fn prepare(&self) -> Local<'_, ()> {
        Box::pin(async move {
            // A failure is sticky and known to the cache.
            let _ = self.put_ready().await;
        })
    }
    fn allows_write_behind(&self) -> bool {
        false
    }
    fn before_write(&self, buf: &Buf) -> Image {
        let s = self.state.borrow();
        let block = buf.block();
        if s.open.touches(block) || s.waiting.contains_key(&block.0) {
            return Image::NotYet; // I3
        }
        Image::AsIs
    }
    fn after_write(&self, _: &Buf, _: &Image, _: Result<(), &DiskError>, _: FlushEpoch) {}
    fn flushed(&self, _: FlushEpoch) {}
    fn failed(&self, _: &DiskError) {
        self.changed.wake_all();
        self.unbarred.wake_all();
    }
}

//! The tail of the log, as who stands by for its writer follows it: what comes is read into memory,
//! so that a volume that is taken over is served from there at once. Nothing is concluded from it:
//! who takes over looks at the log anew.

use crate::BLOCK_BYTES;
use crate::all::{TOGETHER, all};
use crate::chain::{Chain, list};
use crate::object::{SLOT_BYTES, block_sum, name};
use crate::read::Cache;
use crate::state::{Info, place};
use crate::volume::Shape;
use env::{Block, Bucket, Local};
use std::rc::Rc;

/// Where the log is followed to.
pub(crate) struct Tail<'a> {
    pub(crate) bucket: &'a Rc<dyn Bucket>,
    pub(crate) shape: &'a Shape,
    pub(crate) cache: &'a Cache,
    /// A planted bug.
    pub(crate) plant: Option<&'static str>,
}

impl Tail<'_> {
    /// Goes on to the log's end, as far as that can be done. What was deleted meanwhile is not
    /// missed by anybody here.
    pub(crate) async fn follow(&self, chain: &mut Chain) {
        let first = chain.next;
        let Ok(behind) = list(self.bucket, first - 1).await else { return };
        chain.listed = behind;
        if chain.go_on(self.bucket, self.shape, self.plant).await.is_err() {
            // What comes next is gone: on from the newest checkpoint.
            if let Ok(newer) = Chain::load(self.bucket, self.shape, self.plant).await {
                *chain = newer;
            }
        }
        let new = chain.table.objects.range(first..).filter(|(_, info)| info.live > 0);
        let new: Vec<(u64, Info)> = new.map(|(serial, info)| (*serial, *info)).collect();
        for some in new.chunks(TOGETHER) {
            let one = |(serial, info): &(u64, Info)| -> Local<'_, ()> {
                Box::pin(self.remember(*serial, *info))
            };
            all(some.iter().map(one).collect()).await;
        }
    }

    /// Reads an object's blocks. One that cannot be read is read by who wants it.
    async fn remember(&self, serial: u64, info: Info) {
        let slots = u64::from(info.blocks) * SLOT_BYTES as u64;
        let range = (u64::from(info.head_bytes), slots);
        let Ok(raw) = self.bucket.get(&name(serial), Some(range)).await else { return };
        for (index, part) in (0..).zip(raw.chunks_exact(SLOT_BYTES)) {
            let (sum, bytes) = part.split_at(SLOT_BYTES - BLOCK_BYTES);
            if sum == block_sum(&self.shape.uuid, (serial, index), bytes).to_le_bytes() {
                self.cache.put(place(serial, index), Block::copy_of(bytes));
            }
        }
    }
}

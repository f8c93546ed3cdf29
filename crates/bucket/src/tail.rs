//! The tail of the log, as who stands by for its writer follows it: what comes is read into memory,
//! so that a volume that is taken over is served from there at once. Who takes over goes on where
//! it was followed to (`Chain::resume`). It asks for the next serials by name: a listing of a long
//! log takes longer than all else, at some stores.

use crate::BLOCK_BYTES;
use crate::all::{TOGETHER, all};
use crate::block_cache::BlockCache;
use crate::chain::{Chain, Found};
use crate::object::{SLOT_BYTES, Serial, block_sum, name};
use crate::possible;
use crate::state::{Info, place};
use crate::volume::Shape;
use env::{Block, Bucket, Local};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Where the log is followed to.
pub(crate) struct Tail<'a> {
    pub(crate) bucket: &'a Rc<dyn Bucket>,
    pub(crate) shape: &'a Shape,
    pub(crate) cache: &'a BlockCache,
    /// A planted bug.
    pub(crate) plant: Option<&'static str>,
}

/// So many bytes of an object are read at once: all of most that hold small changes.
const WANT_BYTES: u64 = 256 << 10;

impl Tail<'_> {
    /// Goes on to the log's end, as far as that can be done. `end`: so far the writer has said that
    /// it goes. What was deleted meanwhile is not missed by anybody here.
    pub(crate) async fn follow(&self, chain: &mut Chain, end: Serial) {
        let first = chain.next;
        // How many blocks of each object were read.
        let mut had = BTreeMap::new();
        let mut reader = |(head, _, bytes): &Found, raw: &[u8]| {
            had.insert(head.serial, self.keep((head.serial, 0), &raw[*bytes..]));
        };
        let of = (self.shape, self.plant);
        let went = chain.go_on_asking(self.bucket, of, (end, (WANT_BYTES, &mut reader))).await;
        if went.is_err() {
            // What comes next may be gone: on from the newest checkpoint.
            if let Ok(newer) = Chain::load(self.bucket, self.shape, self.plant).await {
                *chain = newer;
            }
        }
        let new = chain.table.objects.range(first..).filter(|(_, info)| info.live > 0);
        let new = new.map(|(serial, info)| (*serial, had.get(serial).copied().unwrap_or(0), *info));
        let new: Vec<(Serial, u64, Info)> =
            new.filter(|(_, have, info)| *have < u64::from(info.blocks)).collect();
        for some in new.chunks(TOGETHER) {
            let one = |(serial, have, info): &(Serial, u64, Info)| -> Local<'_, ()> {
                Box::pin(self.remember((*serial, *have), *info))
            };
            all(some.iter().map(one).collect()).await;
        }
    }

    /// Reads the rest of an object's blocks. One that cannot be read is read by who wants it.
    async fn remember(&self, (serial, have): (Serial, u64), info: Info) {
        let slot = SLOT_BYTES as u64;
        let range =
            (u64::from(info.head_bytes) + have * slot, (u64::from(info.blocks) - have) * slot);
        let Ok(raw) = self.bucket.get(&name(serial), Some(range)).await else { return };
        self.keep((serial, have), &raw);
    }

    /// Takes an object's blocks into memory, from this one on. Returns how many it has then.
    fn keep(&self, (serial, from): (Serial, u64), raw: &[u8]) -> u64 {
        let mut have = from;
        // No object has more blocks, whatever a store answers.
        let most = possible::BLOCKS_END.saturating_sub(from) as usize;
        for part in raw.chunks_exact(SLOT_BYTES).take(most) {
            let (sum, bytes) = part.split_at(SLOT_BYTES - BLOCK_BYTES);
            if sum == block_sum(&self.shape.uuid, (serial, have), bytes).to_le_bytes() {
                self.cache.put(place(serial, have), Block::copy_of(bytes));
            }
            have += 1;
        }
        have
    }
}

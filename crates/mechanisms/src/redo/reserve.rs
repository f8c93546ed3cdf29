//! Space in the log: all that an operation's entry may take is kept before it changes anything, so
//! that it never waits for room that only its own end could make. It decides how much that is.

use super::Redo;
use super::barrier::Barrier;
use super::entry::ITEM_HEADER;
use integrity::{Credits, IntegrityError, TxnId, invariant};
use wal::{LogError, Reservation};

/// What an entry has beside what its operation says: its header, the inode, the counts.
const SMALL_BYTES: u64 = 512;
/// What the map and a bitmap take for each block of contents, if none of them are neighbours.
const BLOCK_BYTES: u64 = 36;
/// What the freeing of a run takes, beside the bytes of its map and its bitmap: its revocation, and
/// the headers of its pointers and of its bits.
const RUN_BYTES: u64 = 3 * ITEM_HEADER as u64;
/// The metadata of a write takes as much as so many blocks, that of its contents' map not counted.
const WRITE_BLOCKS: u64 = 4;
/// Entries on their way to the disk are in memory beside the cache: as much as this part of it, but
/// at least so many bytes.
const UNSENT_PART: u64 = 4;
const UNSENT_LEAST: u64 = 4 << 20;
/// How often the log is emptied for one operation before it gives up.
const ROUNDS: usize = 8;

impl Redo {
    /// The most bytes that the entry of an operation may have; `logged`: of so many blocks the log
    /// may hold contents, which then go into it again (I9).
    fn entry_bytes(&self, need: &Credits, logged: u64) -> u64 {
        let block = self.cache.block_bytes() as u64;
        let blocks = need.data_bytes.div_ceil(block);
        let whole = (blocks + 2) * block;
        let contents = if self.data.is_small(need) { whole } else { whole.min(logged * block) };
        let map = blocks * BLOCK_BYTES + need.runs * RUN_BYTES;
        need.blocks * block + contents + map + SMALL_BYTES
    }

    /// What an operation that begins now may need.
    fn entry_bytes_now(&self, need: &Credits) -> u64 {
        let logged = self.state.borrow().data.logged_blocks() as u64;
        self.entry_bytes(need, logged)
    }

    /// Is there ever room for an operation that needs so much?
    pub(super) fn has_room_for(&self, need: &Credits) -> bool {
        self.entry_bytes(need, u64::MAX >> 32) <= self.log.log().entry_bytes_max()
    }

    /// Does a write of as many bytes as are logged fit in an entry? Errors: it does not; the most
    /// that does.
    pub(super) fn check_threshold(&self) -> Result<(), IntegrityError> {
        let block = self.cache.block_bytes() as u64;
        let beside = (2 + WRITE_BLOCKS) * block + SMALL_BYTES;
        let space = self.log.log().entry_bytes_max().saturating_sub(beside);
        let most = space / (block + BLOCK_BYTES) * block;
        let wanted = self.data.log_up_to.max(self.data.log_stable_up_to);
        if wanted <= most {
            return Ok(());
        }
        Err(IntegrityError::ThresholdTooLarge { wanted, most })
    }

    /// Waits where the log's disk is far behind: nobody else holds up who waits for nothing and
    /// changes the same blocks again and again, as long as the log has room.
    pub(super) async fn catch_up(&self) -> Result<(), IntegrityError> {
        self.log.catch_up(self.unsent_max()).await.map_err(|e| self.log_error(e))
    }

    /// Bytes of entries that may be on their way to the log's disk.
    fn unsent_max(&self) -> u64 {
        let cache = (self.cache.capacity() * self.cache.block_bytes()) as u64;
        (cache / UNSENT_PART).max(UNSENT_LEAST)
    }

    /// Would [`Redo::catch_up`] and [`Redo::reserve_for`] return at once?
    pub(super) fn has_room_now(&self, need: &Credits) -> bool {
        self.log.is_ready(self.unsent_max(), self.entry_bytes_now(need))
    }

    /// Waits for the room that an operation may need (I11). Nothing of it is open yet.
    pub(super) async fn reserve_for(&self, need: Credits) -> Result<Reservation, IntegrityError> {
        let max = self.log.log().entry_bytes_max();
        for _ in 0..ROUNDS {
            let _turn = match self.entry_bytes_now(&need) {
                bytes if bytes > max && self.holds_contents() => Some(self.forget_logged().await?),
                _ => None,
            };
            let bytes = self.entry_bytes_now(&need).min(max);
            let reservation = match self.log.reserve(bytes - self.kept_back(bytes)).await {
                Ok(reservation) => reservation,
                Err(e) => {
                    self.check()?; // the disk's failure, which the log only passes on
                    return Err(match e {
                        LogError::Held { by } => IntegrityError::LogHeld { by },
                        e => self.log_error(e),
                    });
                }
            };
            // While it waited, more contents may have been logged.
            let kept = reservation.len_bytes() >= bytes;
            invariant!(self.plant, kept, "I11: less than {bytes} bytes are kept");
            if self.entry_bytes_now(&need) <= bytes || !self.holds_contents() {
                return Ok(reservation);
            }
        }
        Err(self.too_small(self.entry_bytes_now(&need), max))
    }

    /// Planted bug: a part of the room is asked for when the operation is open.
    fn kept_back(&self, bytes: u64) -> u64 {
        if self.plant.is("room-while-open") { bytes / 8 } else { 0 }
    }

    /// That bug: the operation is to end, and waits for room.
    pub(super) async fn ask_while_open(&self, id: TxnId) -> Result<(), IntegrityError> {
        let have = match self.state.borrow_mut().open.get(id) {
            Some(t) => t.reservation.as_ref().map_or(0, Reservation::len_bytes),
            None => 0,
        };
        let more = self.log.reserve(have / 7).await.map_err(|e| self.log_error(e))?;
        if let Some(t) = self.state.borrow_mut().open.get(id)
            && let Some(reservation) = &mut t.reservation
        {
            reservation.join(more);
        }
        Ok(())
    }

    /// No room for so many bytes where so many are.
    fn too_small(&self, needed: u64, available: u64) -> IntegrityError {
        let block = self.cache.block_bytes() as u64;
        let (needed, available) = (needed.div_ceil(block), available / block);
        IntegrityError::LogTooSmall { needed, available }
    }

    fn holds_contents(&self) -> bool {
        self.state.borrow().data.logged_blocks() > 0
    }

    /// Everything is written back, so that the log holds nobody's contents; nobody begins
    /// meanwhile, nor until what this returns is dropped.
    async fn forget_logged(&self) -> Result<Barrier<'_>, IntegrityError> {
        let barrier = Barrier::new(self, true);
        while !self.state.borrow().open.is_empty() {
            self.check()?;
            self.ended.wait().await;
        }
        self.checkpoint().await?;
        let none = self.state.borrow().open.is_empty();
        assert!(none, "I11: an operation has begun behind a barrier that was shut");
        Ok(barrier)
    }

    /// The operation has ended with an entry of `len` bytes: what is left over is given back. It
    /// never waits. Errors: it has changed more than it said, and there is no room for that; a bug,
    /// and the volume stops, because what memory holds can neither be logged nor undone.
    pub(super) fn fit(
        &self,
        reservation: &mut Reservation,
        len: u64,
    ) -> Result<(), IntegrityError> {
        let have = reservation.len_bytes();
        if len <= have {
            reservation.shrink(len);
            let left = reservation.len_bytes();
            assert!(left >= len, "I11: {left} bytes are left of {have}, for an entry of {len}");
            return Ok(());
        }
        match self.log.try_reserve(len - have) {
            Ok(more) => {
                reservation.join(more);
                let have = reservation.len_bytes();
                assert!(have >= len, "I11: {have} bytes are kept for an entry of {len}");
            }
            Err(e) => {
                let _ = self.log_error(e);
                return Err(self.too_small(len, have));
            }
        }
        Ok(())
    }
}

//! The cache's gate, as redo keeps it: what may be written of a block, and what its write has made
//! durable (I1, I4). It decides nothing itself: `dirty_pages` and `data` know the blocks.

use super::Redo;
use cache::{Buf, FlushEpoch, Image, WriteGate};
use env::{DiskError, Local};
use integrity::invariant;
use wal::LogError;

impl WriteGate for Redo {
    fn prepare(&self) -> Local<'_, ()> {
        Box::pin(async move {
            // A failure is sticky and known to the cache.
            if self.append().is_ok() {
                let appended = self.state.borrow().serials.newest_appended();
                let _ = self.wait(appended).await;
            }
        })
    }

    fn before_write(&self, buf: &Buf) -> Image {
        self.retire();
        let image = {
            let mut state = self.state.borrow_mut();
            let s = &mut *state;
            let open = s.open.touches(buf.block());
            if self.plant.is("home-before-log") {
                s.dirty_pages.before_write_unchecked(buf)
            } else {
                let image = s.dirty_pages.before_write(buf, open, s.serials.durable());
                let whole = matches!(image, Image::AsIs);
                assert!(!whole || !open, "I1: {buf:?} has bytes of an open operation");
                image
            }
        };
        let waits = matches!(image, Image::NotYet);
        if waits {
            self.flush_in_background();
        }
        let s = self.state.borrow();
        let (sent, upto) = (s.dirty_pages.in_flight(buf.block()), s.serials.durable());
        let logged = sent.is_none_or(|n| n <= upto);
        invariant!(self.plant, logged, "I1: {sent:?} of {buf:?} goes, {upto:?} is durable");
        assert!(!waits || sent.is_none(), "I4: {sent:?} of {buf:?} is not written, and counts so");
        drop(s);
        image
    }

    fn after_write(&self, buf: &Buf, _: &Image, result: Result<(), &DiskError>, epoch: FlushEpoch) {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        let written = s.dirty_pages.in_flight(buf.block());
        let logged = written.is_none_or(|n| n <= s.serials.durable());
        invariant!(self.plant, logged, "I1: {buf:?} went before its entry, {written:?}");
        s.dirty_pages.after_write(buf.block(), result.is_ok(), epoch);
        s.data.after_write(buf, epoch);
        if self.plant.is("trim-before-flush") {
            let serials = &s.serials;
            s.dirty_pages.flushed(epoch.next(), |n| serials.after(n));
            drop(state);
            self.trim_at_once();
        }
    }

    fn flushed(&self, epoch: FlushEpoch) {
        {
            let mut state = self.state.borrow_mut();
            let s = &mut *state;
            let serials = &s.serials;
            let before = s.dirty_pages.oldest_rec_lsn();
            s.dirty_pages.flushed(epoch, |n| serials.after(n));
            let oldest = s.dirty_pages.oldest_rec_lsn();
            let rises = oldest.is_none_or(|o| before.is_some_and(|b| b <= o));
            assert!(rises, "I5: a flush makes {oldest:?} the oldest needed, and {before:?} was");
            s.data.flushed(epoch);
        }
        self.trim();
    }

    fn failed(&self, e: &DiskError) {
        self.ended.wake_all();
        self.unbarred.wake_all();
        // Nothing is written back any more, so nothing makes room.
        self.log.fail(LogError::Disk(e.clone()));
    }
}

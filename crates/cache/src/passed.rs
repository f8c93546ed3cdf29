//! Contents that a sequential reader has passed: the first to go. A long file read once would push
//! everything else out, and fresh memory costs more than memory used again; so only the last
//! [`PASSED_BYTES_MAX`] of such blocks stay (the sequential flooding that the 2Q policy, VLDB 1994,
//! is made against). A block used once more while it waits is an ordinary one again.

use crate::{Buf, Cache};
use std::cell::RefCell;
use std::collections::VecDeque;

/// What stays in memory of the contents passed.
const PASSED_BYTES_MAX: usize = 16 << 20;

/// The blocks passed, the oldest first.
#[derive(Default)]
pub(crate) struct Passed(RefCell<VecDeque<u64>>);

impl Cache {
    /// A sequential reader has passed these blocks and is not expected to come back.
    pub fn pass<'a>(&self, bufs: impl Iterator<Item = &'a Buf>) {
        let max = (PASSED_BYTES_MAX / self.options.block_bytes).min(self.capacity() / 4);
        let mut passed = self.passed.0.borrow_mut();
        for b in bufs {
            b.0.touched.set(false);
            passed.push_back(b.0.block.0);
            if passed.len() > max {
                let oldest = passed.pop_front().expect("there is more than none");
                self.evict_untouched(oldest);
            }
        }
    }
}

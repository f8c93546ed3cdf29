//! Which blocks the latest delayed transactions touched, for who wants one of them durable by
//! itself. Of older ones only that there were some is known: they mean everything.

use cache::Buf;
use std::collections::VecDeque;

/// How many transactions can be told apart.
const RECENT_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct Touched {
    /// In the order in which they ended.
    recent: VecDeque<(u64, Vec<Buf>)>,
    /// The newest transaction that was dropped from them.
    dropped: Option<u64>,
}

/// What is known of a transaction.
pub(super) enum Known {
    /// It touched these.
    Bufs(Vec<Buf>),
    /// It may have touched anything.
    Nothing,
    /// Nothing that was delayed.
    Clean,
}

impl Touched {
    pub(super) fn note(&mut self, txn: u64, bufs: Vec<Buf>) {
        self.recent.push_back((txn, bufs));
        if self.recent.len() > RECENT_MAX {
            let oldest = self.recent.pop_front().map(|t| t.0);
            self.dropped = self.dropped.max(oldest);
        }
    }

    pub(super) fn take(&mut self, txn: u64) -> Known {
        match self.recent.iter().rposition(|t| t.0 == txn) {
            Some(at) => Known::Bufs(self.recent.remove(at).map(|t| t.1).unwrap_or_default()),
            None if self.dropped >= Some(txn) => Known::Nothing,
            None => Known::Clean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_any_more_is_not_taken_for_durable() {
        let mut t = Touched::default();
        (0..RECENT_MAX as u64).for_each(|txn| t.note(2 * txn, Vec::new()));
        assert!(matches!(t.take(1), Known::Clean));
        assert!(matches!(t.take(2), Known::Bufs(_)));
        assert!(matches!(t.take(2), Known::Clean));
        (0..2).for_each(|n| t.note(1 << 40 | n, Vec::new()));
        assert!(matches!(t.take(0), Known::Nothing));
        assert!(matches!(t.take(4), Known::Bufs(_)));
    }
}

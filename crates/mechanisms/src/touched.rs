//! What the latest delayed transactions touched, for who wants one of them durable by itself. Of
//! older ones only that there were some is known: they mean everything.

use integrity::TxnId;
use std::collections::VecDeque;

/// How many transactions can be told apart.
const RECENT_MAX: usize = 1024;

pub(crate) struct Touched<T> {
    /// In the order in which they ended.
    recent: VecDeque<(TxnId, T)>,
    /// The newest transaction that was dropped from them.
    dropped: Option<TxnId>,
}

/// What is known of a transaction.
pub(crate) enum Known<T> {
    /// It touched this.
    All(T),
    /// It may have touched anything.
    Nothing,
    /// Nothing that was delayed.
    Clean,
}

impl<T> Default for Touched<T> {
    fn default() -> Touched<T> {
        Touched { recent: VecDeque::new(), dropped: None }
    }
}

impl<T> Touched<T> {
    pub(crate) fn note(&mut self, txn: TxnId, what: T) {
        let once = self.recent.back().is_none_or(|(newest, _)| *newest != txn);
        assert!(once, "transaction {txn} ends twice");
        self.recent.push_back((txn, what));
        if self.recent.len() > RECENT_MAX {
            let oldest = self.recent.pop_front().map(|t| t.0);
            self.dropped = self.dropped.max(oldest);
        }
    }

    pub(crate) fn take(&mut self, txn: TxnId) -> Known<T> {
        let at = self.recent.iter().rposition(|t| t.0 == txn);
        match at.and_then(|at| self.recent.remove(at)) {
            Some((_, what)) => Known::All(what),
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
        (0..RECENT_MAX as u64).for_each(|txn| t.note(TxnId(2 * txn), ()));
        assert!(matches!(t.take(TxnId(1)), Known::Clean));
        assert!(matches!(t.take(TxnId(2)), Known::All(())));
        assert!(matches!(t.take(TxnId(2)), Known::Clean));
        (0..2).for_each(|n| t.note(TxnId(1 << 40 | n), ()));
        assert!(matches!(t.take(TxnId(0)), Known::Nothing));
        assert!(matches!(t.take(TxnId(4)), Known::All(())));
    }
}

//! The last name that was looked for in a directory with an index by hash. Who makes a name or
//! takes one away looks for it several times, and a kernel has looked it up before that: after the
//! first time no leaf is searched. (A directory that is a list has all its names in memory.)

use super::Found;
use crate::inode::Inode;

/// What was found of one name. It holds until the directory's names change.
pub(crate) struct Memo {
    changes: u64,
    name: Vec<u8>,
    /// None: there is none.
    found: Option<Found>,
    /// Byte of the entry in whose slack it fits, from the directory's start.
    slack: Option<u64>,
}

impl Inode {
    /// The directory's names, or their places, change: nothing that was found of them holds.
    pub(crate) fn names_change(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    fn with_memo<T>(&self, name: &[u8], f: impl FnOnce(&mut Memo) -> T) -> Option<T> {
        let mut memo = self.memo.borrow_mut();
        let holds = |m: &&mut Memo| m.changes == self.changes.get() && m.name == name;
        memo.as_deref_mut().filter(holds).map(f)
    }

    /// What is known of the name: `Some(None)` is that there is none.
    pub(crate) fn known(&self, name: &[u8]) -> Option<Option<Found>> {
        self.with_memo(name, |m| m.found)
    }

    /// The name was looked for when the names had changed so often; it would fit at `slack`.
    pub(crate) fn note_found(
        &self,
        name: &[u8],
        changes: u64,
        found: Option<Found>,
        slack: Option<u64>,
    ) {
        if changes != self.changes.get() {
            return;
        }
        let mut memo = self.memo.borrow_mut();
        let empty = || Box::new(Memo { changes, name: Vec::new(), found: None, slack: None });
        let m = memo.get_or_insert_with(empty);
        (m.changes, m.found, m.slack) = (changes, found, slack);
        m.name.clear();
        m.name.extend_from_slice(name);
    }

    /// The entry in whose slack the name fits, if that is known.
    pub(crate) fn known_slack(&self, name: &[u8]) -> Option<u64> {
        self.with_memo(name, |m| m.slack).flatten()
    }

    /// The name, which was looked for, fits there.
    pub(crate) fn note_slack(&self, name: &[u8], at: u64) {
        self.with_memo(name, |m| m.slack = Some(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InodeHandle;
    use crate::testing::with_a_block;
    use format::Ino;

    #[test]
    fn nothing_holds_after_a_change() {
        with_a_block(|buf| {
            let dir = Inode::new(InodeHandle { ino: Ino(12), buf, offset: 0, len: 128 });
            let entry = Some(Found { at: 40, ino: Ino(13) });
            assert_eq!(dir.known(b"a"), None);
            let begun = dir.changes.get();
            dir.note_found(b"a", begun, None, None);
            dir.note_slack(b"b", 40);
            assert_eq!((dir.known(b"a"), dir.known_slack(b"a")), (Some(None), None));
            dir.note_slack(b"a", 40);
            assert_eq!((dir.known_slack(b"a"), dir.known_slack(b"b")), (Some(40), None));
            dir.names_change();
            assert_eq!((dir.known(b"a"), dir.known_slack(b"a")), (None, None));
            // A walk that began before the change comes to its end.
            dir.note_found(b"a", begun, None, Some(80));
            assert_eq!((dir.known(b"a"), dir.known_slack(b"a")), (None, None));
            dir.note_found(b"a", dir.changes.get(), entry, Some(80));
            assert_eq!((dir.known(b"a"), dir.known_slack(b"a")), (Some(entry), Some(80)));
            assert_eq!(dir.known(b"b"), None);
        });
    }
}

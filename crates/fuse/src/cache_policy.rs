//! How far the mount's kernel may go by what it was told: for how long it keeps names and
//! attributes, and whether an fsync has anything to do. It depends on who else changes the volume.

use vfs::Attr;

/// What the kernel may rely on without asking.
#[derive(Clone, Copy, Debug)]
pub struct CachePolicy {
    /// How long it may keep what it is told, in seconds: long, unless somebody else changes the
    /// volume too; 0: nothing, contents neither.
    pub secs: u64,
    /// Every call that has returned is durable as a whole, written contents too, and nobody else
    /// writes: FSYNC has nothing to do. The kernel is told so once and asks no more; before it
    /// counts an fsync as done it sends what it holds itself (mapped pages), and waits.
    pub returned_is_durable: bool,
    /// The kernel may hold back what is written until an fsync, a close, or later: nobody else
    /// looks at the volume, and its mode promises nothing of contents before.
    pub writeback: bool,
    /// The volume keeps times in whole seconds, and so does the kernel then.
    pub whole_seconds: bool,
}

impl CachePolicy {
    /// Short, because others change the volume too?
    pub(crate) fn is_shared(self) -> bool {
        self.secs <= 5
    }

    /// Another machine changes the volume, and each answer has to come from it?
    pub(crate) fn keeps_nothing(self) -> bool {
        self.secs == 0
    }

    /// Does the kernel drop a file's pages, and a directory's entries, whenever it is opened? Two
    /// changes within a second may not show in times of whole seconds, and it would keep them for
    /// ever.
    pub(crate) fn drops_at_open(self) -> bool {
        self.is_shared() && self.whole_seconds
    }

    /// For these attributes. A write takes set-id bits away without telling the kernel so.
    pub(crate) fn of(self, a: &Attr) -> u64 {
        if a.mode & 0o6000 != 0 { 0 } else { self.secs }
    }
}

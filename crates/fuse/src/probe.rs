//! Tells the kernel at once what it otherwise learns by its first open: that opens, closes and
//! flushes need no requests here. Until it has opened a file that was there already, it reports
//! the end of every file that it has created, a request for each file of a copied tree. So we open
//! one ourselves, a file that is no file of the volume: it has a name and a node for as long as
//! this takes, and nobody else ever sees it.

use crate::shared::Shared;
use crate::umount::ask_own_mount;
use crate::wire::Writer;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Its name in the mount's root.
const NAME: &str = ".cairn-first-open";
/// Its node: beyond every inode's number.
pub(crate) const NODE: u64 = 1 << 40;
const _: () = assert!(NODE > u32::MAX as u64);
/// A regular file that everybody may read.
const MODE: u32 = 0o100_444;

impl Shared {
    /// Is this a look-up of the file that is no file?
    pub(crate) fn is_probe(&self, dir_node: u64, name: &[u8]) -> bool {
        self.probing.load(Ordering::SeqCst) && dir_node == 1 && name.starts_with(NAME.as_bytes())
    }
}

/// The entry of the file that is no file: a name that the kernel forgets at once.
pub(crate) fn entry(out: &mut [u8]) -> usize {
    let mut w = Writer::new(out);
    for v in [NODE, 0, 0, 1] {
        w.u64(v); // node, generation, seconds that the name and the attributes are valid
    }
    w.u64(0);
    w.u64(NODE);
    w.zeros(5 * 8 + 3 * 4); // size, blocks, times
    w.u32(MODE);
    w.u32(1); // a link
    w.zeros(3 * 4); // owner, group, device
    w.u32(4096);
    w.u32(0);
    assert_eq!(w.len, 128, "F3: an entry of the file that is no file");
    w.len
}

/// Opens and closes a file and the root. What fails is not missed: the kernel then learns later.
pub(crate) fn open_once(dir: &Path, shared: &Shared) {
    let root = dir.to_owned();
    shared.probing.store(true, Ordering::SeqCst);
    let opened = ask_own_mount(move || {
        std::fs::File::open(root.join(NAME))?;
        std::fs::read_dir(&root).map(drop)
    });
    shared.probing.store(false, Ordering::SeqCst);
    if let Err(e) = opened {
        tracing::debug!("the kernel was not told about opens: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_policy::CachePolicy;

    #[test]
    fn the_file_that_is_no_file_is_there_only_while_it_is_opened() {
        let policy = CachePolicy {
            secs: 1,
            returned_is_durable: false,
            writeback: false,
            whole_seconds: false,
        };
        let shared = Shared::alone(policy);
        assert!(!shared.is_probe(1, NAME.as_bytes()));
        shared.probing.store(true, Ordering::SeqCst);
        assert!(shared.is_probe(1, b".cairn-first-open\0"));
        assert!(!shared.is_probe(12, NAME.as_bytes()) && !shared.is_probe(1, b"other\0"));
        let mut out = [0xee; 256];
        assert_eq!(entry(&mut out), 128);
    }
}

//! On which blocks of the volume a file lies, for who asks block by block (FIBMAP): none for holes,
//! for what lies in the inode and for what is not written yet, and then nothing of it is in memory
//! alone.

use crate::common::{ROOT, World, pattern};
use mechanisms::Mode;
use vfs::{FsError, Reply, Request, SpaceOp};

#[test]
fn a_file_is_found_where_it_lies() {
    let mut w = World::mke2fs(32 << 20, &["-t", "ext4", "-b", "4096", "-O", "inline_data"]);
    let v = w.open(Mode::Async);
    let (dir, f) = (w.dir(&v, ROOT, "d"), w.file(&v, ROOT, "f"));
    let small = w.file(&v, dir, "small");
    w.write(&v, small, 0, b"in the inode").unwrap();
    let text = pattern(7, 3 * 4096);
    w.write(&v, f, 0, &text).unwrap();
    w.write(&v, f, 9 * 4096, b"behind a hole").unwrap();
    let wanted = w.blocks(&v, f, 10);
    let ask = |ino, block| Request::MapBlock { ino, block };
    let at = |r| if let Ok(Reply::Offset(n)) = r { n } else { panic!("{r:?}") };
    let told: Vec<u64> = (0..10).map(|n| at(w.call(&v, ask(f, n)))).collect();
    assert_eq!(told, wanted);
    assert!(told[0] != 0 && told[5] == 0 && told[9] != 0, "{told:?}");
    assert_eq!(at(w.call(&v, ask(f, 10))), 0, "behind the end");
    assert_eq!(at(w.call(&v, ask(f, u64::MAX))), 0, "far behind it");
    assert_eq!(at(w.call(&v, ask(small, 0))), 0, "in the inode");
    assert_eq!(w.call(&v, ask(dir, 0)).unwrap_err(), FsError::Invalid);
    // Whoever knows the block may read it.
    for (n, block) in told[..3].iter().enumerate() {
        assert_eq!(w.bytes(block * 4096, 4096), text[n * 4096..][..4096]);
    }
    let (op, offset, len) = (SpaceOp::Allocate { keep_size: false }, 40 << 12, 8 << 12);
    if w.call(&v, Request::Space { ino: f, op, offset, len }).is_ok() {
        assert_eq!(at(w.call(&v, ask(f, 41))), 0, "nothing was written there");
    }
    w.close_and_judge(v, "asked where files lie");
}

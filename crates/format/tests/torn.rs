//! A superblock with a checksum whose two sectors are of two moments: a power cut has torn its
//! write. Whatever was set, it can be read.
#![allow(clippy::unwrap_used, reason = "tests")]

use format::ext::Superblock;
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use format::mkfs::{MkfsOptions, Plan, Profile};

/// What is set, and how.
type Edit = (&'static str, fn(&mut Superblock));

const ORPHAN_FILE_AT: usize = 0x280;
const GROUP_QUOTA_AT: usize = 0x244;

fn sound() -> Superblock {
    let options = MkfsOptions::plain(64 << 20, Profile::Ext4 { checksums: true });
    let mut found = None;
    let plan = Plan::new(&options).unwrap();
    let put = |b: format::BlockNo, bytes: &[u8]| -> Result<(), ()> {
        if b.0 == 0 {
            let mut raw = bytes[SUPERBLOCK_AT as usize..][..SUPERBLOCK_BYTES].to_vec();
            (raw[ORPHAN_FILE_AT], raw[GROUP_QUOTA_AT]) = (12, 4);
            Superblock::seal_bytes(&mut raw);
            found = Some(Superblock::decode(&raw).unwrap());
        }
        Ok(())
    };
    plan.each_block(put).unwrap();
    found.unwrap()
}

#[test]
fn both_halves_of_two_moments_are_a_superblock() {
    let edits: [Edit; 9] = [
        ("state", |s| s.set_state(0)),
        ("features", |s| s.set_incompat(s.incompat() | 4)),
        ("orphan", |s| s.set_last_orphan(12)),
        ("free", |s| s.set_free_blocks(77)),
        ("overhead", Superblock::forget_overhead),
        ("seed", Superblock::keep_seed),
        ("orphan file", Superblock::forget_orphan_file),
        ("copies", |s| s.set_backup_groups([5, 9])),
        ("quotas", |s| s.forget_quota_file(1)),
    ];
    let mut before = sound();
    assert_eq!((before.orphan_file(), before.quota_files()), (12, [0, 4, 0]));
    for (what, edit) in edits {
        let mut after = before.clone();
        edit(&mut after);
        for (head, tail) in [(&before, &after), (&after, &before)] {
            let torn = [&head.bytes()[..512], &tail.bytes()[512..SUPERBLOCK_BYTES]].concat();
            assert!(Superblock::decode(&torn).is_ok(), "{what}: torn, it is none");
        }
        before = after;
    }
    assert_eq!((before.orphan_file(), before.quota_files()), (0, [0; 3]));
    assert_eq!(before.backup_groups(), [5, 9]);
}

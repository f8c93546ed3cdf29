//! New volumes judged by the real e2fsck and dumpe2fs.

use format::mkfs::{MkfsOptions, Plan, Profile};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

fn options(size: u64, block: usize, inode: usize, profile: Profile) -> MkfsOptions {
    MkfsOptions {
        size_bytes: size,
        block_bytes: block,
        inode_bytes: inode,
        inodes: None,
        profile,
        journal_bytes: None,
        label: "test".into(),
        uuid: *b"0123456789abcdef",
        hash_seed: *b"fedcba9876543210",
        owner: (1000, 1000),
        now_secs: 1_700_000_000,
    }
}

#[test]
fn e2fsck_accepts_what_mkfs_plans() {
    let dir = std::env::temp_dir().join(format!("cairn-mkfs-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let mut judged = 0;
    for (size, profile) in [
        (1 << 20, Profile::Ext2),
        (8 << 20, Profile::Ext3),
        (100 << 20, Profile::Ext3),
        (129 << 20, Profile::Ext2),
        (10 << 30, Profile::Ext3),
        (200 << 30, Profile::Ext3),
    ] {
        for (block, inode) in [(1024, 128), (2048, 256), (4096, 256), (4096, 128)] {
            let o = options(size, block, inode, profile);
            if size >= 10 << 30 && (block < 4096 || inode < 256) {
                continue;
            }
            let plan = match Plan::new(&o) {
                Ok(p) => p,
                Err(e) => {
                    assert!(size < 16 << 20, "{size} {block}: {e}");
                    continue;
                }
            };
            let path = dir.join("v.img");
            let f = File::create(&path).unwrap();
            f.set_len(size).unwrap();
            plan.each_block(|b, bytes| f.write_all_at(bytes, b.0 * block as u64)).unwrap();
            for (tool, args) in [("e2fsck", &["-fn"][..]), ("dumpe2fs", &["-h"][..])] {
                let out = match Command::new(tool).args(args).arg(&path).output() {
                    Ok(o) => o,
                    Err(_) => Command::new(format!("/sbin/{tool}"))
                        .args(args)
                        .arg(&path)
                        .output()
                        .unwrap(),
                };
                let text = String::from_utf8_lossy(&out.stdout);
                assert!(out.status.success(), "{tool} of {size} bytes, {block}/{inode}: {text}");
            }
            judged += 1;
            std::fs::remove_file(&path).unwrap();
        }
    }
    assert!(judged >= 12, "only {judged} volumes were judged");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn too_small_is_a_clear_error() {
    let e = Plan::new(&options(32 * 1024, 1024, 128, Profile::Ext2)).err().unwrap();
    assert!(e.to_string().contains("too few"), "{e}");
    let e = Plan::new(&options(1 << 20, 1024, 128, Profile::Ext3)).err().unwrap();
    assert!(e.to_string().contains("journal"), "{e}");
}

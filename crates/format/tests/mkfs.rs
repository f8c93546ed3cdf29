//! New volumes judged by the real e2fsck and dumpe2fs, in sparse files of all sizes. What is
//! written into a volume later is not looked at here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use format::mkfs::{MkfsOptions, Plan, Profile};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

fn options(size: u64, block: usize, inode: usize, profile: Profile) -> MkfsOptions {
    MkfsOptions {
        block_bytes: block,
        inode_bytes: inode,
        label: "test".into(),
        owner: (1000, 1000),
        ..MkfsOptions::plain(size, profile)
    }
}

/// Makes the volume in a sparse file and asks e2fsck and dumpe2fs; what dumpe2fs says.
fn judged(o: &MkfsOptions, name: &str) -> Option<String> {
    let plan = match Plan::new(o) {
        Ok(p) => p,
        Err(e) => {
            // Only what has no room for its own metadata may be refused.
            assert!(o.size_bytes < 4 << 20, "{name}: {e}");
            return None;
        }
    };
    let path = std::env::temp_dir().join(format!("cairn-mkfs-{}-{name}", std::process::id()));
    let f = File::create(&path).unwrap();
    f.set_len(o.size_bytes).unwrap();
    plan.each_block(|b, bytes| f.write_all_at(bytes, b.0 * o.block_bytes as u64)).unwrap();
    let run = |tool: &str, arg: &str| {
        let place = format!("/usr/sbin/{tool}");
        let tool = if std::path::Path::new(&place).exists() { &place } else { tool };
        let out = Command::new(tool).arg(arg).arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{tool} {arg} of {name}: {text}");
        text
    };
    run("e2fsck", "-fn");
    let text = run("dumpe2fs", "-h");
    std::fs::remove_file(&path).unwrap();
    Some(text)
}

#[test]
fn e2fsck_accepts_what_mkfs_plans() {
    let mut count = 0;
    for (block, inode) in
        [(1024, 128), (1024, 256), (2048, 128), (2048, 256), (4096, 256), (4096, 128)]
    {
        let group = 8 * block as u64;
        // A few blocks, whole groups, and last groups of all lengths.
        let mut sizes = vec![300, 1000, 2000, group, 3 * group, 10 * group + 1];
        sizes.extend([1, 7, 20, 100, 400, 1000].map(|more| 2 * group + more));
        for blocks in sizes {
            for profile in [Profile::Ext2, Profile::Ext3] {
                if profile == Profile::Ext3 && blocks <= 2000 {
                    continue;
                }
                let o = options(blocks * block as u64, block, inode, profile);
                let name = format!("{block}-{inode}-{blocks}-{profile:?}");
                if let Some(text) = judged(&o, &name) {
                    count += 1;
                    assert!(text.contains("filetype sparse_super large_file"), "{name}: {text}");
                    let journal = profile == Profile::Ext3;
                    assert_eq!(text.contains("has_journal"), journal, "{name}: {text}");
                    assert_eq!(text.contains("Required extra isize:     32"), inode == 256);
                }
            }
        }
    }
    assert!(count > 100, "only {count} volumes were judged");
}

/// However few inodes are asked for, group 0's table has those of the volume itself.
#[test]
fn e2fsck_accepts_few_inodes_in_many_groups() {
    for (block, inode, asked) in [(1024, 128, 100), (1024, 256, 1), (2048, 256, 16)] {
        let few =
            MkfsOptions { inodes: Some(asked), ..options(200 << 20, block, inode, Profile::Ext3) };
        assert!(judged(&few, &format!("few-{block}-{inode}-{asked}")).is_some());
    }
}

#[test]
fn e2fsck_accepts_volumes_of_ext4() {
    for (block, inode) in [(1024, 128), (1024, 256), (2048, 256), (4096, 256)] {
        let group = 8 * block as u64;
        for blocks in [3000, group + 1000, 10 * group + 1] {
            for checksums in [true, false] {
                let profile = Profile::Ext4 { checksums };
                let mut o = options(blocks * block as u64, block, inode, profile);
                o.journal_bytes = Some(1100 * block as u64);
                let name = format!("{block}-{inode}-{blocks}-{checksums}");
                let text = judged(&o, &name).unwrap();
                assert!(text.contains("extent 64bit flex_bg"), "{name}: {text}");
                assert_eq!(text.contains("metadata_csum"), checksums, "{name}: {text}");
            }
        }
    }
    // A journal in more pieces than the inode has room for.
    let mut o = options(200 << 20, 1024, 256, Profile::Ext4 { checksums: true });
    o.journal_bytes = Some(80 << 20);
    judged(&o, "pieces").unwrap();
}

#[test]
fn large_volumes_are_accepted() {
    judged(&options(10 << 30, 4096, 256, Profile::Ext3), "10G").unwrap();
    // Fewer inodes, or e2fsck would read tables of zeros for minutes.
    let mut o = options(3 << 40, 4096, 256, Profile::Ext3);
    o.inodes = Some(300_000);
    let text = judged(&o, "3T").unwrap();
    assert!(text.contains("Total journal blocks:     262144"), "{text}");
    let mut o = options((16 << 40) - 4096, 4096, 256, Profile::Ext2);
    o.inodes = Some(1);
    let plan = Plan::new(&o).unwrap();
    assert_eq!(plan.geometry().blocks, (1 << 32) - 1);
    assert!(Plan::new(&options(16 << 40, 4096, 256, Profile::Ext2)).is_err());
}

#[test]
fn journals_have_the_size_asked_for() {
    for mib in [4, 16, 40] {
        let mut o = options(100 << 20, 1024, 256, Profile::Ext3);
        o.journal_bytes = Some(mib << 20);
        let text = judged(&o, &format!("journal-{mib}")).unwrap();
        assert!(text.contains(&format!("Total journal blocks:     {}", mib * 1024)), "{text}");
    }
}

#[test]
fn what_cannot_be_is_a_clear_error() {
    let says = |o: &MkfsOptions, what: &str| {
        let e = Plan::new(o).err().unwrap().to_string();
        assert!(e.contains(what), "{e}");
    };
    says(&options(32 * 1024, 1024, 128, Profile::Ext2), "too few");
    says(&options(1 << 20, 1024, 128, Profile::Ext3), "journal");
    says(&options(1 << 30, 512, 256, Profile::Ext3), "block size");
    says(&options(1 << 30, 4096, 512, Profile::Ext3), "inode size");
    let mut o = options(100 << 20, 4096, 256, Profile::Ext3);
    o.inodes = Some(10_000_000);
    says(&o, "more than the");
    o.inodes = None;
    o.journal_bytes = Some(60 << 20);
    says(&o, "half of the volume");
}

/// With small blocks the descriptors of a volume of terabytes are more than a group has blocks:
/// each copy of them would lie over the next group, and bitmaps nowhere.
#[test]
fn what_has_no_room_for_its_descriptors_is_refused() {
    const TIB: u64 = 1 << 40;
    for (size, profile, fits) in [
        (TIB / 2, Profile::Ext4 { checksums: true }, true),
        (TIB, Profile::Ext4 { checksums: true }, false),
        (TIB, Profile::Ext3, true),
        (2 * TIB, Profile::Ext3, false),
        (4 * TIB - 1024, Profile::Ext2, false),
    ] {
        let plan = Plan::new(&options(size, 1024, 256, profile));
        match plan.map(|p| *p.geometry()) {
            Ok(geo) => {
                assert!(fits, "{size} bytes");
                let last = format::GroupNo(geo.groups - 1);
                assert!(geo.overhead(last) <= geo.group_blocks(last));
            }
            Err(e) => assert!(!fits && e.0.contains("no room"), "{size} bytes: {e}"),
        }
    }
    let large = options(15 * TIB, 4096, 256, Profile::Ext4 { checksums: true });
    assert!(Plan::new(&large).is_ok());
}

//! Descriptors that say that bitmaps and inode tables lie at the end of all numbers: who looks at
//! the volume has an answer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use format::GroupNo;
use format::bytes::set32;
use format::ext::{Geometry, Superblock};
use format::mkfs::{MkfsOptions, Plan, Profile};
use volume::{layout, layout_of, probe};

/// A volume of one group, whose descriptor has no copy, with 64-bit numbers.
fn made() -> Vec<u8> {
    let options = MkfsOptions::plain(16 << 20, Profile::Ext4 { checksums: false });
    let mut image = vec![0; 16 << 20];
    let plan = Plan::new(&options).unwrap();
    plan.each_block(|b, bytes| {
        image[b.0 as usize * 4096..][..4096].copy_from_slice(bytes);
        Ok::<(), ()>(())
    })
    .unwrap();
    image
}

#[test]
fn places_at_the_end_of_all_numbers_have_an_answer() {
    let image = made();
    let geo = Geometry::of(&Superblock::decode(&image[1024..2048]).unwrap());
    assert!(geo.wide && geo.groups == 1);
    let desc = geo.desc_at(GroupNo(0)) as usize;
    assert!(probe(&image).unwrap().journal.is_some());
    for (low, high) in [(0x00, 0x20), (0x04, 0x24), (0x08, 0x28)] {
        let mut broken = image.clone();
        set32(&mut broken, desc + low, u32::MAX);
        set32(&mut broken, desc + high, u32::MAX);
        let found = probe(&broken).unwrap();
        assert_eq!(found.journal.is_none(), low == 0x08, "an inode table that is nowhere");
        let _ = layout(&broken, 100);
        assert!(layout_of(&broken, &[2, 11, 12]).is_err(), "{low:#x}");
    }
    assert!(layout_of(&image, &[0, 2, 11, u32::MAX]).is_ok());
}

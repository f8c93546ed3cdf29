//! Does the layout score tell a volume whose files lie in pieces from one whose files do not? The
//! file in pieces has one of the last inodes, behind many that are free again.

use integrity::Plant;
use lab::{Act, SimDevice, Subject, fresh};
use volume::{Mode, layout, layout_of};

#[test]
fn a_file_in_pieces_lowers_the_score() {
    let setting = lab::Setting::plain(Mode::Async);
    let open = |image| Subject::open(vec![image], setting, false, (Plant::NONE, 1)).unwrap();
    let laid = |image| layout(&SimDevice(image), 1000).unwrap();
    let empty = fresh(4 << 20, false);
    assert_eq!(laid(empty.clone()).score, None, "no file, no score");
    let mut v = open(empty);
    let mut files = 0;
    for n in 0..440 {
        let path = format!("/f{n}");
        v.act(1, &Act::Create(path.clone())).unwrap();
        if v.act(1, &Act::Write(path, 0, 8 << 10, 1)).is_err() {
            break;
        }
        files = n;
    }
    v.act(1, &Act::Create("/pieces".into())).unwrap();
    v.act(1, &Act::Create("/rest".into())).unwrap();
    for n in 0..4096 {
        if v.act(1, &Act::Write("/rest".into(), n << 10, 1 << 10, 1)).is_err() {
            break;
        }
    }
    let whole = v.close().unwrap().remove(0);
    let before = laid(whole.clone());
    assert!(before.score.unwrap() > 0.97 && before.extents_a_file.unwrap() < 1.1, "{before:?}");
    assert!(before.free_fragments < 10, "{before:?}");
    let mut v = open(whole);
    for n in (0..=files).step_by(2) {
        v.act(1, &Act::Unlink(format!("/f{n}"))).unwrap();
    }
    for n in 0..200 {
        v.act(1, &Act::Write("/pieces".into(), n << 13, 8 << 10, 1)).unwrap();
    }
    let pieces = v.close().unwrap().remove(0);
    let after = laid(pieces.clone());
    let all: Vec<u32> = (1..100_000).collect();
    let one_by_one = layout_of(&SimDevice(pieces.clone()), &all).unwrap();
    assert_eq!((one_by_one.score, one_by_one.extents_a_file), (after.score, after.extents_a_file));
    let none = layout_of(&SimDevice(pieces), &[]).unwrap();
    assert_eq!((none.score, none.extents_a_file), (None, None));
    let told = format!("{after:?} after {before:?}");
    assert!(after.score.unwrap() < before.score.unwrap() - 0.01, "{told}");
    assert!(after.extents_a_file.unwrap() > before.extents_a_file.unwrap() + 0.1, "{told}");
    assert!(after.free_fragments > before.free_fragments + 10, "{told}");
    assert!(after.free_fragment_bytes < 20 << 10, "{told}");
}

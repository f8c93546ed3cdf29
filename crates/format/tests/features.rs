//! The table of features in the docs says what the table in the code says. What a feature means is
//! not asked here.
#![allow(clippy::unwrap_used, reason = "tests")]

use format::ext::features::{FEATURES, Features, Support, Word};

#[test]
fn the_docs_have_the_same_table() {
    let docs = include_str!("../../../docs/ext4.md");
    let rows = docs.lines().filter(|l| l.ends_with(" |") && !l.starts_with("| feature"));
    assert_eq!(rows.count(), FEATURES.len());
    for (word, _, name, support) in FEATURES {
        let word = match word {
            Word::Compat => "compat",
            Word::Incompat => "incompat",
            Word::RoCompat => "ro_compat",
        };
        let support = match support {
            Support::Written => "written".to_owned(),
            Support::ReadOnly => "read only".to_owned(),
            Support::Refused(advice) => format!("refused: {advice}"),
        };
        let row = format!("| {name} | {word} | {support} |");
        assert!(docs.lines().any(|l| l == row), "missing: {row}");
    }
}

#[test]
fn what_nobody_knows() {
    let unknown = 1 << 30;
    let e = Features { incompat: unknown, ..Features::default() }.check().unwrap_err();
    assert!(e.to_string().contains("FEATURE_I30"), "{e}");
    let read = Features { ro_compat: unknown, ..Features::default() };
    assert_eq!(read.check(), Ok(()));
    assert_eq!(read.read_only_because(), ["FEATURE_R30"]);
    assert_eq!(read.written_after(), None);
    let quota = Features { ro_compat: 0x2100, ..Features::default() };
    assert_eq!(quota.written_after().as_deref(), Some("tune2fs -O ^quota,^project"));
    let ignored = Features { compat: unknown, ..Features::default() };
    assert_eq!(ignored.check(), Ok(()));
    assert!(ignored.read_only_because().is_empty());
    assert_eq!(ignored.not_checked_because(), ["FEATURE_C30"]);
}

//! Words that the project once had for things that have a name in the field. Whoever knows kernels
//! or databases must be able to read the code without a key, so the old words stay out; what an
//! ordinary word means in its ordinary sense is not looked at.

use super::words::{code_only, identifiers};
use super::{Complaint, File};

/// An old word, as a whole identifier of the code below one of the folders ("" is everywhere), and
/// the field's word for it.
const IDENTIFIERS: &[(&str, &[&str], &str)] = &[
    ("Room", &[""], "its own word: Shard, Quota, Reservation, slack"),
    ("room", &["crates/vfs/", "crates/nfs/src/", "crates/ufs/src/dir/"], "shard, quota, slack"),
    ("room", &["crates/mechanisms/src/"], "reservation, or space"),
    ("hold", &["crates/mechanisms/src/"], "rec_lsn, or needed_from"),
    ("holds", &["crates/mechanisms/src/"], "by_rec_lsn, or by_needed_from"),
    ("Homes", &[""], "JournalHeads"),
    ("homes", &[""], "places, or journal heads"),
    ("home", &[""], "in place"),
    ("write_home", &[""], "write_back"),
    ("direct", &["crates/mechanisms/"], "ordered"),
    ("undirect", &[""], "take_ordered_over"),
    ("gather", &[""], "build_record, or cork"),
    ("settle", &[""], "retire, or quiesce"),
    ("pump", &[""], "append"),
    ("LINE", &[""], "SECTOR"),
    ("Reuse", &[""], "BusyExtents"),
    ("Trust", &[""], "CachePolicy"),
    ("trust", &[""], "cache policy"),
    ("lets_behind", &[""], "allows_write_behind"),
    ("lets_go", &[""], "may_issue"),
];

/// Old words as a part of an identifier, too: `open_doors`, `OpenDoor`.
const PARTS: &[(&str, &str)] = &[
    ("door", "monitor"),
    ("doors", "monitors"),
    ("doom", "unlinked_open"),
    ("doomed", "unlinked_open"),
    ("desk", "inbox"),
    ("errand", "message"),
    ("bell", "wakeup"),
];

/// Old phrases of comments and documents, with the field's words.
const PHRASES: &[(&str, &str)] = &[
    ("go home", "is written back, in place"),
    ("goes home", "is written back, in place"),
    ("going home", "write-back"),
    ("written home", "written back"),
    ("writes home", "write-back"),
    ("durable at home", "durable in place"),
    ("direct contents", "ordered data"),
    ("the door", "the monitor"),
    ("doomed", "unlinked-open"),
];

pub(crate) fn check(file: &File, out: &mut Vec<Complaint>) {
    // Here the words have to stand; the history keeps those of its time.
    if file.path.starts_with("xtask/") || file.path == "CHANGELOG.md" {
        return;
    }
    if file.path.ends_with(".rs") {
        for (i, line) in code_only(&file.text).lines().enumerate() {
            for (_, name) in identifiers(line) {
                let old = IDENTIFIERS.iter().find(|(word, below, _)| {
                    *word == name && below.iter().any(|folder| file.path.starts_with(folder))
                });
                let old = old.map(|(word, _, instead)| (*word, *instead));
                if let Some((word, instead)) = old.or_else(|| old_part(name)) {
                    let what = format!("`{word}`: the field says {instead}");
                    out.push(Complaint::error(&file.path, i + 1, what));
                }
            }
        }
    }
    if file.path.ends_with(".rs") || file.path.ends_with(".md") {
        for (i, line) in file.text.lines().enumerate() {
            for (phrase, instead) in PHRASES.iter().filter(|(p, _)| has_phrase(line, p)) {
                let what = format!("\"{phrase}\": the field says {instead}");
                out.push(Complaint::error(&file.path, i + 1, what));
            }
        }
    }
}

/// An old word among those that an identifier is made of, with the field's word.
fn old_part(name: &str) -> Option<(&'static str, &'static str)> {
    let mut parts = String::new();
    for c in name.chars() {
        if c.is_uppercase() {
            parts.push('_');
        }
        parts.extend(c.to_lowercase());
    }
    PARTS.iter().find(|(word, _)| parts.split('_').any(|p| p == *word)).copied()
}

/// Is the phrase in the line, as whole words?
fn has_phrase(line: &str, phrase: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    line.match_indices(phrase).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + phrase.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        let mut out = Vec::new();
        check(&File { path: path.to_owned(), text: text.to_owned() }, &mut out);
        out.len()
    }

    #[test]
    fn an_old_word_is_found_as_an_identifier_and_as_a_phrase() {
        assert_eq!(complaints("crates/vfs/src/a.rs", "let door = 1;\n"), 1);
        assert_eq!(complaints("crates/vfs/src/a.rs", "open_doors(OpenDoor::new())\n"), 2);
        assert_eq!(complaints("crates/cache/src/a.rs", "// The block goes home.\n"), 1);
        assert_eq!(complaints("docs/a.md", "direct contents are durable\n"), 1);
    }

    #[test]
    fn ordinary_words_names_of_planted_bugs_and_the_history_are_left_alone() {
        assert_eq!(complaints("crates/a/src/b.rs", "// there is room next door\n"), 0);
        assert_eq!(complaints("crates/a/src/b.rs", "plant.is(\"home-before-log\");\n"), 0);
        assert_eq!(complaints("crates/nfs/src/b.rs", "let call = Call { hold: false };\n"), 0);
        assert_eq!(complaints("CHANGELOG.md", "blocks that go home\n"), 0);
    }
}

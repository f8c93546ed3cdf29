//! Is every numbered invariant of a header asserted in code or shown by a test? A promise that
//! nothing looks at is a wish. It finds numbers, and judges neither the promise nor the assertion.

use super::source::lines_before_tests;
use super::{Complaint, File};

/// A numbered invariant, with the line of the header that states it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stated {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) id: String,
    /// Does an assertion or a test name it?
    pub(crate) cited: bool,
}

pub(crate) fn check(files: &[File], out: &mut Vec<Complaint>) {
    for s in stated(files).iter().filter(|s| !s.cited) {
        let what = format!("{}: no assertion and no test names this invariant", s.id);
        out.push(Complaint::error(&s.path, s.line, what));
    }
}

/// The invariants of all headers.
pub(crate) fn stated(files: &[File]) -> Vec<Stated> {
    let mut all = Vec::new();
    for file in files.iter().filter(|f| f.path.starts_with("crates/") && f.path.ends_with(".rs")) {
        for (line, id) in ids(&file.text) {
            let cited = files.iter().any(|f| cites(f, &file.path, &id));
            all.push(Stated { path: file.path.clone(), line, id, cited });
        }
    }
    all
}

/// Numbers and lines of the invariants that the file's header states: in its paragraph
/// `Invariants`, or as items of a list (`* W1. ...`).
fn ids(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (i, line) in text.lines().enumerate() {
        let Some(line) = line.strip_prefix("//!") else { break };
        let line = line.strip_prefix(' ').unwrap_or(line);
        let begins = line.starts_with(char::is_alphabetic);
        inside = line.starts_with("Invariants ") || inside && !begins && !line.is_empty();
        let rest = line.strip_prefix("Invariants").unwrap_or(line).trim_start();
        let item = rest.strip_prefix("* ");
        if let Some(rest) = item.or(inside.then_some(rest)) {
            let word = rest.split_whitespace().next().unwrap_or_default();
            let id = word.trim_end_matches('.');
            if is_id(id) && (inside || word.ends_with('.')) {
                found.push((i + 1, id.to_owned()));
            }
        }
    }
    found
}

/// A capital letter and a number.
fn is_id(word: &str) -> bool {
    let digits = word.strip_prefix(|c: char| c.is_ascii_uppercase()).unwrap_or_default();
    !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
}

/// Does the file name the invariant `id` of the header in `header`: as the beginning of an
/// assertion's message in the same folder, or anywhere in a test of the same crate, or with the
/// header's path in the lab?
fn cites(file: &File, header: &str, id: &str) -> bool {
    if !file.path.ends_with(".rs") {
        return false;
    }
    let folder = header.rsplit_once('/').map_or("", |(f, _)| f);
    let krate: String = header.split('/').take(2).map(|p| format!("{p}/")).collect();
    let is_test = file.path.starts_with(&format!("{krate}tests/"));
    if is_test {
        return has_word(&file.text, id);
    }
    // The lab's tests and scenarios are for all, and say whose invariant they mean; its own are as
    // everybody's.
    if file.path.starts_with("crates/lab/") && !header.starts_with("crates/lab/") {
        return file.text.contains(header) && has_word(&file.text, id);
    }
    if !file.path.starts_with(&format!("{folder}/")) {
        return false;
    }
    let message = format!("\"{id}: ");
    let code = lines_before_tests(&file.text);
    let mut lines = file.text.lines().enumerate();
    lines.any(|(i, line)| line.contains(&message) || i > code && has_word(line, id))
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !part(before) && !part(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "//! A mechanism. It knows no names.\n\
        //!\n\
        //! Rule        Before A4, after B5.\n\
        //! Invariants  I1 an image holds nothing of\n\
        //!             I2 that. I3 is not the first word of a line\n\
        //!             I10 the last\n\
        //! On disk     X9 is none.\n";

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    fn uncited(files: &[File]) -> Vec<String> {
        stated(files).into_iter().filter(|s| !s.cited).map(|s| s.id).collect()
    }

    #[test]
    fn the_numbers_of_a_header_are_found() {
        let found: Vec<_> = ids(HEADER).into_iter().map(|(_, id)| id).collect();
        assert_eq!(found, ["I1", "I2", "I10"]);
        let list = "//! A file.\n//! * W1. A block\n//!   W2. no item\n//! * W3 without a dot\n";
        assert_eq!(ids(list), [(2, "W1".to_owned())]);
    }

    #[test]
    fn an_assertion_of_the_folder_or_a_test_of_the_crate_counts_and_nothing_else() {
        let header = file("crates/a/src/m/mod.rs", HEADER);
        let code = file("crates/a/src/m/x.rs", "assert!(ok, \"I1: {x} is old\");\n");
        let test = file("crates/a/tests/t.rs", "/// I2 holds after a crash.\n");
        let comment = file("crates/a/src/m/y.rs", "// I10 is kept here\n");
        let elsewhere = file("crates/a/src/n/z.rs", "assert!(ok, \"I10: no\");\n");
        let all = [header, code, test, comment, elsewhere];
        assert_eq!(uncited(&all), ["I10"]);
    }

    #[test]
    fn the_lab_names_others_by_their_file_and_its_own_as_all_do() {
        let own =
            file("crates/lab/src/judge.rs", "//! A judge.\n//! * P1. So.\n//! * P2. And so.\n");
        let other = file("crates/a/src/x.rs", "//! A file.\n//! * W1. So.\n//! * W2. And so.\n");
        let shown = file("crates/lab/src/y.rs", "//! Shows W1 of crates/a/src/x.rs.\n");
        let code = file("crates/lab/src/z.rs", "assert!(ok, \"P1: {x}\");\nlet p2 = \"P2, W2\";\n");
        assert_eq!(uncited(&[own, other, shown, code]), ["P2", "W2"]);
    }
}

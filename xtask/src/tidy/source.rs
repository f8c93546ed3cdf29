//! Rules for one Rust file: how wide, how long, and that its header says what it is for.
//! Lines are counted up to the trailing test module: tests may be as long as they need to be.

use super::{Complaint, File};

const COLUMNS_MAX: usize = 100;
const LINES_WARN: usize = 400;
const LINES_MAX: usize = 600;

pub(crate) fn check(file: &File, out: &mut Vec<Complaint>) {
    check_width(file, out);
    check_length(file, out);
    check_header(file, out);
}

fn check_width(file: &File, out: &mut Vec<Complaint>) {
    for (i, line) in file.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            let what = format!("{columns} columns, {COLUMNS_MAX} are allowed");
            out.push(Complaint::error(&file.path, i + 1, what));
        }
    }
}

fn check_length(file: &File, out: &mut Vec<Complaint>) {
    if is_test_file(&file.path) {
        return;
    }
    let lines = lines_before_tests(&file.text);
    let what = format!("{lines} lines without tests: split it (aim at 100 to 250)");
    if lines > LINES_MAX {
        out.push(Complaint::error(&file.path, 0, what));
    } else if lines > LINES_WARN {
        out.push(Complaint::warning(&file.path, 0, what));
    }
}

fn check_header(file: &File, out: &mut Vec<Complaint>) {
    // A binary or a fuzz target may open with an inner attribute or a shebang.
    let mut lines = file.text.lines().skip_while(|l| l.starts_with("#!") || l.is_empty());
    let header: Vec<&str> = lines.by_ref().map_while(|l| l.strip_prefix("//!")).collect();
    if header.is_empty() {
        let what = "no `//!` header: say what question the file answers and what it does not know";
        out.push(Complaint::error(&file.path, 1, what));
    } else if sentences(&header.join(" ")) < 2 {
        let what = "the `//!` header has one sentence: say also what the file does not know";
        out.push(Complaint::error(&file.path, 1, what));
    }
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/benches/")
}

pub(crate) fn lines_before_tests(text: &str) -> usize {
    let mut lines = text.lines().enumerate().peekable();
    while let Some((i, line)) = lines.next() {
        let is_inline_module = |l: &str| l.starts_with("mod ") && l.ends_with('{');
        if line == "#[cfg(test)]" && lines.peek().is_some_and(|(_, l)| is_inline_module(l)) {
            return i;
        }
    }
    text.lines().count()
}

/// Ends of sentences: a mark followed by white space or by the end. A colon or semicolon that
/// carries on counts as well: "It does this; it does not know that" says the two things.
fn sentences(text: &str) -> usize {
    let text = text.trim_end();
    let marks = text.char_indices().filter(|(i, c)| {
        let rest = &text[i + c.len_utf8()..];
        let ends = rest.is_empty() || rest.starts_with(char::is_whitespace);
        matches!(c, '.' | '?' | '!' | ':' | ';') && ends
    });
    marks.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "//! What is it? It knows nothing of that.\n";

    fn complaints(path: &str, text: String) -> Vec<Complaint> {
        let mut out = Vec::new();
        check(&File { path: path.to_owned(), text }, &mut out);
        out
    }

    #[test]
    fn a_tidy_file_passes() {
        assert_eq!(complaints("crates/a/src/b.rs", format!("{HEADER}fn f() {{}}\n")), []);
    }

    #[test]
    fn a_line_of_101_columns_fails_and_one_of_100_passes() {
        let line = |n: usize| format!("{HEADER}// {}\n", "ä".repeat(n - 3));
        assert_eq!(complaints("a.rs", line(100)), []);
        let found = complaints("a.rs", line(101));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn length_warns_at_401_and_fails_at_601_lines() {
        let body = |n: usize| format!("{HEADER}{}", "fn f() {}\n".repeat(n - 1));
        assert_eq!(complaints("a.rs", body(400)), []);
        assert!(complaints("a.rs", body(401))[0].warning);
        assert!(complaints("a.rs", body(600))[0].warning);
        assert!(!complaints("a.rs", body(601))[0].warning);
    }

    #[test]
    fn tests_do_not_count_towards_the_length() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    // x\n".repeat(700));
        assert_eq!(complaints("a.rs", format!("{HEADER}fn f() {{}}\n{tests}")), []);
        let long = format!("{HEADER}{}", "// x\n".repeat(700));
        assert_eq!(complaints("crates/a/src/b/tests.rs", long.clone()), []);
        // A test module in another file does not hide what stands below its declaration.
        assert_eq!(
            complaints("a.rs", format!("{HEADER}#[cfg(test)]\nmod tests;\n{long}")).len(),
            1
        );
    }

    #[test]
    fn a_header_is_wanted_with_two_sentences() {
        assert_eq!(complaints("a.rs", "fn f() {}\n".to_owned()).len(), 1);
        assert_eq!(complaints("a.rs", "//! One sentence only.\n".to_owned()).len(), 1);
        let attribute = "#![no_main]\n//! One.\n//! Two.\n".to_owned();
        assert_eq!(complaints("a.rs", attribute), []);
    }

    #[test]
    fn a_dot_inside_a_word_ends_no_sentence() {
        assert_eq!(sentences("Version 1.47.0 of a.b is meant."), 1);
        assert_eq!(sentences("One. Two"), 1);
        assert_eq!(sentences("One. Two. "), 2);
    }
}

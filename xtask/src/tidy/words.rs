//! Words that may not stand in a file: leftovers, paths of one machine, names of mechanisms below
//! the seam. It looks at code with comments and strings blanked, where a word there is harmless.

use super::{Complaint, File};

/// Split, so that this file does not contain what it looks for.
const LEFTOVERS: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), "finish it, or file it as an issue"),
    (concat!("db", "g!("), "a debugging aid"),
    (concat!("to", "do!("), "finish it"),
];
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Crates below the seam: which mechanism is active must make no difference to them.
const BELOW_THE_SEAM: &[&str] = &["ufs", "ext", "cache"];

/// Names of mechanisms that cannot be mistaken for a word of the layout. `sync` and `async` are
/// not among them: fsync is everybody's business.
const MECHANISMS: &[&str] = &[
    "mechanisms",
    "async_mode",
    "soft_updates",
    "redo",
    "jbd2",
    "wasteless",
    "selective",
    "unified",
];

pub(crate) fn check(file: &File, out: &mut Vec<Complaint>) {
    for (i, line) in file.text.lines().enumerate() {
        if file.path.ends_with(".rs") {
            for (word, advice) in LEFTOVERS.iter().filter(|(word, _)| line.contains(word)) {
                out.push(Complaint::error(&file.path, i + 1, format!("`{word}`: {advice}")));
            }
        }
        for path in MACHINE_PATHS.iter().filter(|p| starts_a_path(line, p)) {
            let what = format!("`{path}` is a path of one machine");
            out.push(Complaint::error(&file.path, i + 1, what));
        }
    }
}

/// Is `path` in `line` as the start of an absolute path, not in the middle of a longer one?
fn starts_a_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "$}_-.".contains(c))
    })
}

/// A name of a mechanism is an identifier nowhere below the seam. Names of on-disk features, which
/// `format` defines, are exempt where they are written as its path (`format::jbd2`).
pub(crate) fn check_mechanism_names(files: &[File], out: &mut Vec<Complaint>) {
    for file in files {
        let krate = file.path.strip_prefix("crates/").and_then(|p| p.split_once("/src/"));
        let Some((krate, _)) = krate else { continue };
        if !BELOW_THE_SEAM.contains(&krate) || !file.path.ends_with(".rs") {
            continue;
        }
        for (i, line) in code_only(&file.text).lines().enumerate() {
            for name in identifiers(line).filter(|(at, name)| {
                MECHANISMS.contains(name) && !line[..*at].ends_with("format::")
            }) {
                let what = format!("`{}`: no mechanism is named below the seam", name.1);
                out.push(Complaint::error(&file.path, i + 1, what));
            }
        }
    }
}

/// Crates that ask a mode's row, and tell no mode from another themselves.
const ASK_THE_ROW: &[&str] = &["volume", "cli", "lab"];

/// What a mode can and promises stands in its row: no pattern and no comparison names one, outside
/// tests.
pub(crate) fn check_modes(files: &[File], out: &mut Vec<Complaint>) {
    for file in files {
        let krate = file.path.strip_prefix("crates/").and_then(|p| p.split_once("/src/"));
        let asks = krate.is_some_and(|(krate, _)| ASK_THE_ROW.contains(&krate));
        if !asks || !file.path.ends_with(".rs") {
            continue;
        }
        let code = code_only(&file.text);
        let shipped = code.split("#[cfg(test)]\n").next().unwrap_or_default();
        for (i, line) in shipped.lines().enumerate().filter(|(_, l)| names_a_mode(l)) {
            let what = format!("`{}`: ask the mode's row (ModeInfo)", line.trim());
            out.push(Complaint::error(&file.path, i + 1, what));
        }
    }
}

/// Is a mode a pattern in this line, or compared with?
fn names_a_mode(line: &str) -> bool {
    let named = |(at, _): (usize, &str)| {
        let whole = !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = &line[at + "Mode::".len()..];
        let variant =
            rest.starts_with(char::is_uppercase) && rest[1..].starts_with(char::is_lowercase);
        let before = line[..at].trim_end();
        let pattern = rest.contains("=>") || line.contains("matches!(");
        whole && variant && (pattern || before.ends_with("==") || before.ends_with("!="))
    };
    line.match_indices("Mode::").any(named)
}

pub(crate) fn identifiers(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.split(move |c| !is_part(c)).filter(|w| !w.is_empty()).map(move |w| {
        // Both slices belong to one allocation, so the difference is the place in the line.
        (w.as_ptr() as usize - line.as_ptr() as usize, w)
    })
}

/// The text with line comments, block comments and strings replaced by blanks, line by line.
pub(crate) fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('/', Some('/')) => {
                while chars.peek().is_some_and(|&c| c != '\n') {
                    chars.next();
                }
            }
            ('/', Some('*')) => skip_to(&mut chars, &mut out, |a, b| a == '*' && b == '/'),
            ('"', _) => skip_string(&mut chars, &mut out),
            ('\'', Some('"')) => out.push(' '), // the character '"', written '\"' or '"'
            _ => out.push(c),
        }
    }
    out
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_to(chars: &mut Chars<'_>, out: &mut String, end: impl Fn(char, char) -> bool) {
    let mut last = ' ';
    for c in chars.by_ref() {
        if c == '\n' {
            out.push('\n');
        }
        if end(last, c) {
            return;
        }
        last = c;
    }
}

fn skip_string(chars: &mut Chars<'_>, out: &mut String) {
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '"' => return,
            '\n' => out.push('\n'),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    fn leftovers(path: &str, text: &str) -> usize {
        let mut out = Vec::new();
        check(&file(path, text), &mut out);
        out.len()
    }

    fn named(path: &str, text: &str) -> usize {
        let mut out = Vec::new();
        check_mechanism_names(&[file(path, text)], &mut out);
        out.len()
    }

    #[test]
    fn leftovers_are_found_in_rust_only() {
        let text = concat!("// FIX", "ME later\n");
        assert_eq!(leftovers("crates/a/src/b.rs", text), 1);
        assert_eq!(leftovers("docs/a.md", text), 0);
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_a_relative_one_is_not() {
        assert_eq!(leftovers("docs/a.md", concat!("see /wo", "rk/main")), 1);
        assert_eq!(leftovers("docs/a.md", concat!("`/ho", "me/me/x`")), 1);
        assert_eq!(leftovers("scripts/a.sh", concat!("mkdir $R/ro", "ot/x")), 0);
        assert_eq!(leftovers("scripts/a.sh", concat!("mkdir rt/ro", "ot/x")), 0);
    }

    #[test]
    fn a_mechanism_named_below_the_seam_is_found() {
        assert_eq!(named("crates/ext/src/a.rs", "use mechanisms::ffs;\n"), 1);
        assert_eq!(named("crates/ufs/src/a.rs", "if mode == soft_updates {}\n"), 1);
        assert_eq!(named("crates/volume/src/a.rs", "use mechanisms::ffs;\n"), 0);
    }

    #[test]
    fn ordinary_words_comments_and_feature_names_are_not_mechanisms() {
        assert_eq!(named("crates/ext/src/a.rs", "store.sync(scope); // redo\n"), 0);
        assert_eq!(named("crates/ext/src/a.rs", "let s = \"a \\\" redo\"; /* jbd2\n jbd2 */\n"), 0);
        assert_eq!(named("crates/ext/src/a.rs", "use format::jbd2::Superblock;\n"), 0);
        assert_eq!(named("crates/ext/src/a.rs", "let redone = 1;\n"), 0);
    }

    #[test]
    fn blanking_keeps_the_numbers_of_lines() {
        assert_eq!(code_only("a /* x\n y */ b // c\nd \"e\nf\" g\n"), "a \n b \nd \n g\n");
    }

    #[test]
    fn a_mode_is_told_from_another_in_its_row_only() {
        for bad in [
            "        Mode::Data | Mode::Wasteless => Contents::Exact,",
            "    if mode == Mode::Async && report.loses_names() {",
            "    let small = matches!(mode, Mode::Unified | Mode::Selective);",
        ] {
            assert!(names_a_mode(bad), "{bad}");
        }
        for good in [
            "        (_, true) => Mode::DEFAULT,",
            "        0 => Mode::Async,",
            "    let setting = Setting::plain(Mode::Sync);",
            "        ModeOption::Log => 1,",
        ] {
            assert!(!names_a_mode(good), "{good}");
        }
    }
}

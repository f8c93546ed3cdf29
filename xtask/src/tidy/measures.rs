//! The measures of the code: how long files are, how many functions and assertions there are in
//! each crate, and what is public and used by nobody else. It prints them and compares them with
//! limits; what a number is worth it does not know.

use super::source::lines_before_tests;
use super::words::{code_only, identifiers};
use super::{Complaint, File, invariants};
use std::collections::{BTreeMap, BTreeSet};

/// At most so many lines of code, without comments and empty ones, for each assertion: in crates
/// where one mistake loses data, and over all.
const LINES_AN_ASSERTION: &[(&str, usize)] =
    &[("mechanisms", 25), ("cache", 22), ("wal", 20), ("integrity", 24), ("", 105)];

/// At most so many public items of a crate that no other crate and no test of it names.
const UNUSED_MAX: usize = 0;

/// Crates that nobody can depend on.
const PROGRAMS: &[&str] = &["cli", "powercut"];

#[derive(Default)]
struct Crate {
    files: usize,
    lines: usize,
    functions: usize,
    assertions: usize,
}

/// Prints the measures, and complains of what is beyond its limit.
pub(crate) fn report(files: &[File], out: &mut Vec<Complaint>) {
    let (crates, lengths) = count(files);
    println!(
        "{:12} {:>6} {:>8} {:>10} {:>11}",
        "crate", "files", "lines", "functions", "assertions"
    );
    let mut all = Crate::default();
    for (name, c) in &crates {
        println!("{name:12} {:6} {:8} {:10} {:11}", c.files, c.lines, c.functions, c.assertions);
        all.files += c.files;
        all.lines += c.lines;
        all.functions += c.functions;
        all.assertions += c.assertions;
        check(name, c, out);
    }
    let (median, longest) = (lengths.get(lengths.len() / 2), lengths.last());
    let (median, longest) = (median.unwrap_or(&0), longest.unwrap_or(&0));
    println!(
        "{:12} {:6} {:8} {:10} {:11}",
        "all", all.files, all.lines, all.functions, all.assertions
    );
    println!("lines of a file: {median} in the median, {longest} at most");
    println!("lines for each assertion: {}", all.lines / all.assertions.max(1));
    check("", &all, out);
    let stated = invariants::stated(files);
    let cited = stated.iter().filter(|s| s.cited).count();
    println!("invariants that an assertion or a test names: {cited} of {}", stated.len());
    let unused = unused(files);
    println!("public items that no other crate names: {}", unused.len());
    if unused.len() > UNUSED_MAX {
        for (path, name) in &unused {
            out.push(Complaint::error(
                path,
                0,
                format!("`{name}` is public, and used nowhere else"),
            ));
        }
    }
}

fn check(name: &str, c: &Crate, out: &mut Vec<Complaint>) {
    let limit = LINES_AN_ASSERTION.iter().find(|(n, _)| *n == name).map(|(_, most)| *most);
    let Some(most) = limit else { return };
    if c.lines > most * c.assertions {
        let what = format!(
            "{} assertions in {} lines: at least one in {most} is wanted",
            c.assertions, c.lines
        );
        out.push(Complaint::error(&format!("crates/{name}"), 0, what));
    }
}

/// The crates, and the lengths of all their files in order.
fn count(files: &[File]) -> (BTreeMap<&str, Crate>, Vec<usize>) {
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    let mut lengths = Vec::new();
    let tests = tests_alone(files);
    let is_source = |f: &&File| f.path.ends_with(".rs") && !tests.contains(&f.path);
    for file in files.iter().filter(is_source) {
        let Some((name, _)) = source_of(&file.path) else { continue };
        let lines = lines_before_tests(&file.text);
        let own: Vec<&str> = file.text.lines().take(lines).collect();
        let code = code_only(&own.join("\n"));
        let words: Vec<&str> = identifiers(&code).map(|(_, w)| w).collect();
        let c = crates.entry(name).or_default();
        c.files += 1;
        c.lines += code.lines().filter(|l| !l.trim().is_empty()).count();
        c.functions += words.iter().filter(|w| **w == "fn").count();
        c.assertions += words.iter().filter(|w| is_assertion(w)).count();
        lengths.push(lines);
    }
    lengths.sort_unstable();
    (crates, lengths)
}

/// The files that are compiled for tests alone.
fn tests_alone(files: &[File]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for file in files.iter().filter(|f| f.path.ends_with(".rs")) {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let inside = match name {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
            _ => file.path.trim_end_matches(".rs").to_owned(),
        };
        let lines: Vec<&str> = file.text.lines().collect();
        for pair in lines.windows(2).filter(|p| p[0].trim() == "#[cfg(test)]") {
            if let Some(name) = pair[1].strip_prefix("mod ").and_then(|m| m.strip_suffix(';')) {
                all.insert(format!("{inside}/{name}.rs"));
            }
        }
    }
    all
}

fn is_assertion(word: &str) -> bool {
    let word = word.strip_prefix("debug_").unwrap_or(word);
    matches!(word, "assert" | "assert_eq" | "assert_ne" | "invariant" | "unreachable")
}

/// The crate of a source file, and the rest of the path.
fn source_of(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("crates/")?.split_once("/src/")
}

/// Public items that are named in no other crate, nor in tests, examples and fuzz targets.
fn unused(files: &[File]) -> Vec<(String, String)> {
    let rust = || files.iter().filter(|f| f.path.ends_with(".rs"));
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let code: Vec<(&str, String)> = rust().map(|f| (f.path.as_str(), code_only(&f.text))).collect();
    for (path, text) in &code {
        let from = source_of(path).map_or(*path, |(name, _)| name);
        for (_, word) in identifiers(text) {
            named.entry(word).or_default().insert(from);
        }
    }
    let mut out = Vec::new();
    for (path, text) in &code {
        let Some((own, _)) = source_of(path).filter(|(own, _)| !PROGRAMS.contains(own)) else {
            continue;
        };
        for line in text.lines() {
            let Some(name) = public_item(line) else { continue };
            let elsewhere = named.get(name).is_some_and(|by| by.iter().any(|n| *n != own));
            if !elsewhere {
                out.push(((*path).to_owned(), name.to_owned()));
            }
        }
    }
    out
}

/// The name that a line makes public, if it does.
fn public_item(line: &str) -> Option<&str> {
    let mut words = line.trim_start().strip_prefix("pub ")?.split_whitespace();
    let mut kind = words.next()?;
    while matches!(kind, "async" | "unsafe") || kind == "const" && line.contains(" fn ") {
        kind = words.next()?;
    }
    // Types are used where they are not named, and constants are what a format has.
    let is_item = kind == "fn";
    let name = is_item.then(|| words.next()).flatten()?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn assertions_of_the_code_are_counted_and_those_of_its_tests_are_not() {
        let text = "fn f() {\n    assert!(x); // assert!\n\
            \x20   invariant!(p, x, \"I1: assert!\");\n}\n\
            #[cfg(test)]\nmod tests {\n    fn g() { assert!(y); }\n}\n";
        let files = [file("crates/a/src/lib.rs", text), file("crates/a/tests/t.rs", text)];
        let (crates, lengths) = count(&files);
        let a = &crates["a"];
        assert_eq!((a.files, a.lines, a.functions, a.assertions), (1, 4, 1, 2));
        assert_eq!(lengths, [4]);
        let declared = "#[cfg(test)]\nmod model;\nmod code;\n";
        let files = [file("crates/a/src/lib.rs", declared), file("crates/a/src/model.rs", text)];
        assert_eq!(count(&files).0["a"].assertions, 0);
    }

    #[test]
    fn too_few_assertions_are_an_error() {
        let mut out = Vec::new();
        check("wal", &Crate { lines: 1000, assertions: 2, ..Crate::default() }, &mut out);
        assert_eq!(out.len(), 1);
        check("wal", &Crate { lines: 100, assertions: 9, ..Crate::default() }, &mut out);
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn a_public_item_is_used_by_another_crate_or_a_test() {
        let a = file(
            "crates/a/src/lib.rs",
            "pub fn one() {}\npub fn two() {}\npub const fn three() {}\n\
             pub(crate) fn four() {}\n",
        );
        let b = file("crates/b/src/lib.rs", "fn f() { a::one(); }\n");
        let t = file("crates/a/tests/t.rs", "fn t() { two() }\n");
        let names: Vec<_> = unused(&[a, b, t]).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["three"]);
    }
}

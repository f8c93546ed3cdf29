//! Do the documents name files that are there? A reader who follows a path must arrive.
//! It checks paths of Rust files, with the symbol behind `::` if there is one; it judges no prose.

use super::{Complaint, File};

pub(crate) fn check(files: &[File], out: &mut Vec<Complaint>) {
    check_crates(files, out);
    for file in files.iter().filter(|f| is_document(&f.path)) {
        for (i, line) in file.text.lines().enumerate() {
            for mention in mentions(line) {
                if let Some(what) = problem(files, mention) {
                    out.push(Complaint::error(&file.path, i + 1, what));
                }
            }
        }
    }
}

/// Every crate has its place in the architecture.
fn check_crates(files: &[File], out: &mut Vec<Complaint>) {
    let Some(all) = files.iter().find(|f| f.path == "ARCHITECTURE.md") else { return };
    let crates = files.iter().filter_map(|f| f.path.strip_prefix("crates/"));
    for name in crates.filter_map(|f| f.strip_suffix("/Cargo.toml")) {
        if !all.text.contains(&format!("`{name}`")) {
            let what = format!("the crate `{name}` has no place in it");
            out.push(Complaint::error("ARCHITECTURE.md", 0, what));
        }
    }
}

pub(super) fn is_document(path: &str) -> bool {
    path.ends_with(".md") && (!path.contains('/') || path.starts_with("docs/"))
        // The history of changes names files that later changes moved.
        && path != "CHANGELOG.md"
}

/// Words of `line` that are a path of a Rust file, with `::symbol` if it follows.
fn mentions(line: &str) -> impl Iterator<Item = &str> {
    let part = |c: char| c.is_alphanumeric() || "_./-:".contains(c);
    line.split(move |c| !part(c)).map(|w| w.trim_end_matches(['.', ':'])).filter(|w| {
        let path = w.split("::").next().unwrap_or_default();
        path.len() > ".rs".len() && path.ends_with(".rs")
    })
}

fn problem(files: &[File], mention: &str) -> Option<String> {
    let (path, symbol) = mention.split_once("::").unwrap_or((mention, ""));
    let found: Vec<&File> = files.iter().filter(|f| is_meant(&f.path, path)).collect();
    if found.is_empty() {
        return Some(format!("`{path}` is not there"));
    }
    let symbol = symbol.trim_end_matches("()").rsplit("::").next().unwrap_or_default();
    let there = symbol.is_empty() || found.iter().any(|f| defines(&f.text, symbol));
    (!there).then(|| format!("`{path}` has no `{symbol}`"))
}

/// Is it the name of an item there? A word of a comment, or a call, is none.
fn defines(text: &str, symbol: &str) -> bool {
    const KINDS: [&str; 9] =
        ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!"];
    let words: Vec<&str> = text.split([' ', '\n', '(', '<', ':', ';', '{']).collect();
    words.windows(2).any(|w| KINDS.contains(&w[0]) && w[1] == symbol)
}

/// `file` may be named from the root, from `crates/`, or as `crate/inner.rs` without the `src`
/// between; a bare name means any file of that name.
fn is_meant(file: &str, path: &str) -> bool {
    let inner = file.strip_prefix("crates/").unwrap_or(file);
    let short = inner.replacen("/src/", "/", 1);
    let bare = !path.contains('/') && file.rsplit('/').next() == Some(path);
    file == path || inner == path || short == path || bare
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(document: &str, line: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(document, line),
            file("crates/ufs/src/ops/write.rs", "pub fn write() {}\n"),
            file("xtask/src/main.rs", ""),
        ];
        let mut out = Vec::new();
        check(&files, &mut out);
        out.into_iter().map(|c| c.what).collect()
    }

    #[test]
    fn every_way_to_name_a_file_that_is_there_passes() {
        for line in [
            "`crates/ufs/src/ops/write.rs`",
            "see ufs/src/ops/write.rs.",
            "3 ufs/ops/write.rs   lock inode",
            "(write.rs)",
            "ufs/ops/write.rs::write()",
            "xtask/src/main.rs",
        ] {
            assert!(complaints("ARCHITECTURE.md", line).is_empty(), "{line}");
        }
    }

    #[test]
    fn a_file_or_symbol_that_is_gone_is_found() {
        assert_eq!(complaints("ARCHITECTURE.md", "`ufs/ops/wrote.rs`").len(), 1);
        assert_eq!(complaints("docs/a.md", "ext/ops/write.rs").len(), 1);
        assert_eq!(complaints("README.md", "ufs/ops/write.rs::wrote").len(), 1);
        assert_eq!(complaints("README.md", "ufs/ops/write.rs::writ").len(), 1);
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file("ARCHITECTURE.md", "`ufs`: names"),
            file("crates/ufs/Cargo.toml", ""),
            file("crates/new/Cargo.toml", ""),
        ];
        let mut out = Vec::new();
        check(&files, &mut out);
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn other_files_and_other_words_are_left_alone() {
        assert!(complaints("CHANGELOG.md", "`ufs/ops/wrote.rs`").is_empty());
        assert!(complaints("docs/a.md", "https://docs.rs/x and .rs files").is_empty());
    }
}

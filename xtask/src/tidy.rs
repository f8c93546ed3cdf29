//! Checks that no compiler makes: sizes, headers, layering, and documents that name real files.
//! Each rule is a function from text to complaints, so that its tests need no workspace.

mod dialect;
mod documents;
mod edges;
mod invariants;
mod links;
mod measures;
mod programs;
mod source;
mod sources;
mod words;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One breach of a rule, printed as `path:line: what`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    path: String,
    /// Counted from 1; 0 where the whole file is meant.
    line: usize,
    what: String,
    /// Warnings are shown and do not fail the run.
    warning: bool,
}

impl Complaint {
    pub(crate) fn error(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), warning: false }
    }

    pub(crate) fn warning(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { warning: true, ..Self::error(path, line, what) }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning" } else { "error" };
        write!(f, "{}:{}: {kind}: {}", self.path, self.line, self.what)
    }
}

/// A text file of the project: its path from the root, with `/` between folders, and what is in it.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

pub(crate) fn run(root: &Path) -> ExitCode {
    let files = match collect(root) {
        Ok(files) => files,
        Err(e) => {
            eprintln!("tidy: cannot read the project: {e}");
            return ExitCode::FAILURE;
        }
    };
    let complaints = check(&files);
    for c in &complaints {
        println!("{c}");
    }
    let errors = complaints.iter().filter(|c| !c.warning).count();
    // A script that looks for errors in what is said finds none where there are none.
    match errors {
        0 => println!("tidy: {} files, nothing wrong", files.len()),
        n => println!("tidy: {} files, {n} errors", files.len()),
    }
    if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check(files: &[File]) -> Vec<Complaint> {
    let mut out = Vec::new();
    for file in files {
        words::check(file, &mut out);
        dialect::check(file, &mut out);
        if file.path.ends_with(".rs") {
            source::check(file, &mut out);
        }
        if is_manifest_of_a_crate(&file.path) {
            edges::check(file, &mut out);
        }
    }
    words::check_mechanism_names(files, &mut out);
    words::check_modes(files, &mut out);
    documents::check(files, &mut out);
    links::check(files, &mut out);
    invariants::check(files, &mut out);
    programs::check(files, &mut out);
    sources::check(files, &mut out);
    measures::report(files, &mut out);
    out
}

fn is_manifest_of_a_crate(path: &str) -> bool {
    path.ends_with("/Cargo.toml") && (path.starts_with("crates/") || path.starts_with("xtask/"))
}

/// Every text file below `root`, sorted by path; build results and hidden folders but `.ci` aside.
fn collect(root: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut todo: Vec<PathBuf> = vec![root.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && !is_skipped_folder(&name) {
                todo.push(entry.path());
            } else if kind.is_file() && is_text(&name) {
                let path = entry.path();
                let inside = path.strip_prefix(root).expect("found below the root");
                let path = inside.to_string_lossy().replace('\\', "/");
                files.push(File { path, text: fs::read_to_string(entry.path())? });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn is_skipped_folder(name: &str) -> bool {
    matches!(name, "target" | "corpus" | "artifacts") || (name.starts_with('.') && name != ".ci")
}

fn is_text(name: &str) -> bool {
    match name.rsplit_once('.') {
        Some((_, ending)) => {
            matches!(ending, "rs" | "toml" | "md" | "sh" | "c" | "h" | "txt" | "svg")
        }
        None => true,
    }
}

//! Do links between documents lead somewhere, and is each document a chapter of the book? It looks
//! at no address of another host, and at no heading within a document.

use super::documents::is_document;
use super::{Complaint, File};

/// The book's table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

pub(crate) fn check(files: &[File], out: &mut Vec<Complaint>) {
    for file in files.iter().filter(|f| is_document(&f.path)) {
        for (i, line) in file.text.lines().enumerate() {
            for to in targets(line).filter(|to| !leads(files, &file.path, to)) {
                out.push(Complaint::error(&file.path, i + 1, format!("the link `{to}` is broken")));
            }
        }
    }
    let Some(summary) = files.iter().find(|f| f.path == SUMMARY) else { return };
    let chapters = files.iter().filter_map(|f| Some((f, f.path.strip_prefix("docs/")?)));
    for (file, name) in chapters.filter(|(f, _)| f.path.ends_with(".md") && f.path != SUMMARY) {
        if !summary.text.contains(&format!("({name})")) {
            out.push(Complaint::error(&file.path, 0, format!("it is no chapter of {SUMMARY}")));
        }
    }
}

/// Where the links of a line in Markdown lead, without what stands behind `#`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let inside = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let file = inside.map(|to| to.split('#').next().unwrap_or_default());
    file.filter(|to| !to.is_empty() && !to.contains("://"))
}

fn leads(files: &[File], from: &str, to: &str) -> bool {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in to.split('/') {
        match part {
            ".." if parts.pop().is_none() => return false,
            ".." | "." => (),
            name => parts.push(name),
        }
    }
    let path = parts.join("/");
    files.iter().any(|f| f.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [file(path, text), file("docs/a.md", ""), file("docs/pictures/a.svg", "")];
        let mut out = Vec::new();
        check(&files, &mut out);
        out.len()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text =
            "[a](docs/a.md#part) ![a](docs/pictures/a.svg) [x](https://x.org/y.md) [here](#x)";
        assert_eq!(complaints("README.md", text), 0);
        assert_eq!(complaints("docs/b.md", "[a](a.md), [a](pictures/a.svg), [r](../docs/a.md)"), 0);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(complaints("README.md", "[a](a.md) and [b](docs/b.md)"), 2);
        assert_eq!(complaints("docs/b.md", "[up](../../a.md)"), 1);
    }

    #[test]
    fn a_document_that_is_no_chapter_is_found() {
        assert_eq!(complaints(SUMMARY, "- [A](a.md)"), 0);
        assert_eq!(complaints(SUMMARY, "nothing"), 1);
    }
}

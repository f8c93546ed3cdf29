//! Does every file of tests run? Where a crate's tests are one program, a file that its `main.rs`
//! does not name is compiled by nobody, and nothing else would say so.

use super::{Complaint, File};

const MAIN: &str = "/tests/main.rs";

pub(crate) fn check(files: &[File], out: &mut Vec<Complaint>) {
    for main in files.iter().filter(|f| f.path.ends_with(MAIN)) {
        let folder = main.path.strip_suffix("main.rs").expect("it ends so");
        for file in files {
            let Some(name) = file.path.strip_prefix(folder).filter(|n| *n != "main.rs") else {
                continue;
            };
            let Some(name) = name.strip_suffix(".rs").filter(|n| !n.contains('/')) else {
                continue;
            };
            if !main.text.lines().any(|l| l == format!("mod {name};")) {
                let what = format!("{} does not name it, so it does not run", main.path);
                out.push(Complaint::error(&file.path, 0, what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_main_does_not_name_is_seen() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file("crates/a/tests/main.rs", "mod one;\n"),
            file("crates/a/tests/one.rs", ""),
            file("crates/a/tests/two.rs", ""),
            file("crates/a/tests/common/three.rs", ""),
            file("crates/b/tests/four.rs", ""),
        ];
        let mut out = Vec::new();
        check(&files, &mut out);
        let named: Vec<&str> = out.iter().map(|c| c.path.as_str()).collect();
        assert_eq!(named, ["crates/a/tests/two.rs"]);
    }
}

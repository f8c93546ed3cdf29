//! Has every paper and every RFC that is cited an entry in the bibliography? It knows the form of a
//! citation (`seltzer-2000`, `RFC 1813`), and nothing of what is in the source.

use super::{Complaint, File};

const BIBLIOGRAPHY: &str = "docs/bibliography.md";

pub(crate) fn check(files: &[File], out: &mut Vec<Complaint>) {
    let Some(known) = files.iter().find(|f| f.path == BIBLIOGRAPHY) else {
        out.push(Complaint::error(BIBLIOGRAPHY, 0, "there is no bibliography"));
        return;
    };
    let is_prose = |f: &&File| f.path.starts_with("crates/") || f.path.ends_with(".md");
    for file in files.iter().filter(is_prose).filter(|f| f.path != "CHANGELOG.md") {
        for (i, line) in file.text.lines().enumerate() {
            let comment = line.trim_start().starts_with("//") || file.path.ends_with(".md");
            if comment && let Some(authors) = spelled_out(line) {
                let what = format!("{authors}: cite it by its short name in {BIBLIOGRAPHY}");
                out.push(Complaint::error(&file.path, i + 1, what));
            }
            for name in citations(line).into_iter().filter(|_| comment) {
                if !known.text.contains(&name) {
                    let what = format!("{name} is cited and has no entry in {BIBLIOGRAPHY}");
                    out.push(Complaint::error(&file.path, i + 1, what));
                }
            }
        }
    }
}

/// The papers and RFCs that a line cites.
fn citations(line: &str) -> Vec<String> {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '-');
    let mut all: Vec<String> = words.filter(|w| is_paper(w)).map(str::to_owned).collect();
    for (at, _) in line.match_indices("RFC ") {
        let number: String = line[at + 4..].chars().take_while(char::is_ascii_digit).collect();
        if number.len() >= 3 {
            all.push(format!("RFC {number}"));
        }
    }
    all
}

/// A paper that is cited by its authors and its year, which nobody can look for: `Smith et al.
/// 1997`, `Smith and Jones 1990`, `Smith, Jones, USENIX 1990`.
fn spelled_out(line: &str) -> Option<String> {
    let words: Vec<&str> =
        line.split_whitespace().map(|w| w.trim_matches(|c: char| !c.is_alphanumeric())).collect();
    let is_name = |w: &str| {
        w.len() >= 4
            && w.starts_with(char::is_uppercase)
            && !w.chars().skip(1).all(char::is_uppercase)
    };
    let years = words.iter().enumerate().filter(|(_, w)| is_year(w));
    years.map(|(at, _)| &words[at.saturating_sub(4)..=at]).find_map(|before| {
        let others = before.windows(2).any(|w| w == ["et", "al"]);
        let pair = before.windows(3).any(|w| w[1] == "and" && is_name(w[0]) && is_name(w[2]));
        (others || pair).then(|| before.join(" "))
    })
}

fn is_year(word: &str) -> bool {
    let digits = word.len() == 4 && word.chars().all(|c| c.is_ascii_digit());
    digits && (word.starts_with("19") || word.starts_with("20"))
}

/// An author's name and a year.
fn is_paper(word: &str) -> bool {
    let Some((name, year)) = word.split_once('-') else { return false };
    let named = name.len() >= 4 && name.chars().all(|c| c.is_ascii_lowercase());
    named && is_year(year)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(line: &str) -> usize {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let known = file(BIBLIOGRAPHY, "| mohan-1992 | RFC 1813 |\n");
        let mut out = Vec::new();
        check(&[known, file("crates/a/src/b.rs", line)], &mut out);
        out.len()
    }

    #[test]
    fn a_source_without_an_entry_is_found() {
        assert_eq!(complaints("//! As in mohan-1992, section 3, and in RFC 1813.\n"), 0);
        assert_eq!(complaints("//! As in nobody-1993.\n"), 1);
        assert_eq!(complaints("/// (RFC 9999, and RFC 1813)\n"), 1);
    }

    #[test]
    fn authors_and_a_year_are_no_name_to_look_for() {
        assert_eq!(complaints("//! (Nobody et al. 1997, section 5)\n"), 1);
        assert_eq!(complaints("/// As in Nobody and Somebody, USENIX 1990.\n"), 1);
        assert_eq!(
            complaints("// Linux and Debian have it since about 20 years, ext4 since 2008.\n"),
            0
        );
    }

    #[test]
    fn code_dates_and_numbers_are_no_citations() {
        assert_eq!(complaints("let x = \"nobody-1993\";\n"), 0);
        assert_eq!(complaints("// on 2024-1999, or a utf-8 name\n"), 0);
    }
}

//! `cairn lab report`: what the experiments found as one page that needs no network. It knows no
//! experiment.

use lab::experiments::{Experiment, Findings, Table};

const STYLE: &str = "\
:root { color-scheme: light dark }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .15rem .6rem; border-bottom: 1px solid #8884 }
th:first-child, td:first-child { text-align: left }
div { overflow-x: auto; margin-bottom: 1rem }
";

/// The page: of each experiment its tables, and each claim with the paper's value, ours and the
/// verdict; `meaning` says in a line what it comes to.
pub(super) fn page(all: &[(&Experiment, Findings)], meaning: &str) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>cairn \
         lab</title>\n<style>{STYLE}</style></head>\n<body>\n<h1>cairn lab</h1>\n<p>{}</p>\n",
        escaped(meaning)
    );
    for (e, found) in all {
        text.push_str(&format!("<h2>{}</h2>\n<p>{}</p>\n", escaped(e.name), escaped(e.what)));
        found.tables.iter().for_each(|t| text.push_str(&table(t)));
        text.push_str(&table(&found.claims_table()));
        text.push_str(&format!("<p>digest {:016x}</p>\n", found.digest));
    }
    text + "</body>\n</html>\n"
}

fn table(t: &Table) -> String {
    let row = |tag: &str, cells: &[String]| {
        let cell = |c: &String| format!("<{tag}>{}</{tag}>", escaped(c));
        format!("<tr>{}</tr>\n", cells.iter().map(cell).collect::<String>())
    };
    let rows: String = t.rows.iter().map(|r| row("td", r)).collect();
    format!(
        "<h3>{}</h3>\n<div><table>\n{}{rows}</table></div>\n",
        escaped(&t.title),
        row("th", &t.columns)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

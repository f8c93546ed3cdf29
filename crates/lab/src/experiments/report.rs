//! What an experiment says: tables of figures, and claims of the papers with what was measured
//! beside them. It knows no experiment.
//!
//! Invariants:
//! * E1. A row of a table has a cell for each column, and a cell is within its line.
//! * E2. Each claim that is told is one row of the table of claims.

use super::verdict::{Claim, Stated};
use serde::Serialize;

/// Figures in rows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Table {
    /// What they are.
    pub title: String,
    /// What each column is.
    pub columns: Vec<String>,
    /// As many cells a row as there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(title: &str, columns: &[&str]) -> Table {
        let columns = columns.iter().map(|c| (*c).to_owned()).collect();
        Table { title: title.to_owned(), columns, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "E1: a cell for each column of {}", self.title);
        let broken = cells.iter().find(|c| c.contains(['|', '\n']));
        assert!(broken.is_none(), "E1: {broken:?} is more than a cell of {}", self.title);
        self.rows.push(cells);
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = vec!["---:".to_owned(); self.columns.len().saturating_sub(1)];
        let rule = [vec!["---".to_owned()], rule].concat();
        let rows: String = self.rows.iter().map(|r| line(r)).collect();
        format!("{}\n\n{}{}{rows}", self.title, line(&self.columns), line(&rule))
    }
}

/// An experiment's result.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Findings {
    /// Its figures.
    pub tables: Vec<Table>,
    /// What they are to show.
    pub claims: Vec<Claim>,
    /// Stands for everything the modelled disks were asked and when: the same each time.
    pub digest: u64,
}

impl Findings {
    /// A claim and what was measured of it.
    pub(crate) fn claim(&mut self, stated: Stated, ours: f64) {
        self.claims.push(stated.measured(ours));
    }

    /// Takes a number into the digest.
    pub(crate) fn note(&mut self, n: u64) {
        self.digest = (self.digest ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }

    /// The claims as a table: number, paper, here, tolerance, verdict, reason.
    pub fn claims_table(&self) -> Table {
        use super::verdict::short;
        let columns = ["claim", "no.", "paper", "here", "tolerance", "verdict", "why"];
        let mut t = Table::new("Claims", &columns);
        for c in &self.claims {
            let (low, high) = c.tolerance;
            t.row(vec![
                c.what.clone(),
                c.number.to_string(),
                format!("{} {}", short(c.paper), c.unit).trim().to_owned(),
                c.measured.clone(),
                format!("{} to {}", short(low), short(high)),
                c.verdict.word().to_owned(),
                c.reason.clone(),
            ]);
        }
        assert_eq!(t.rows.len(), self.claims.len(), "E2: a row for each claim");
        t
    }
}

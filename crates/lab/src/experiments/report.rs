//! What an experiment says: tables of figures, and claims of the papers with what was measured
//! beside them. It knows no experiment.

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
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column of {}", self.title);
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

/// Something that is to be seen in the figures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Claim {
    /// What.
    pub what: String,
    /// What was measured of it.
    pub measured: String,
    /// Is it so?
    pub met: bool,
}

/// An experiment's result.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Findings {
    /// Its figures.
    pub tables: Vec<Table>,
    /// What they are to show.
    pub claims: Vec<Claim>,
    /// Stands for everything the modelled disks were asked and when: the same each time.
    pub digest: u64,
}

impl Findings {
    pub(crate) fn claim(
        &mut self,
        what: impl Into<String>,
        measured: impl Into<String>,
        met: bool,
    ) {
        self.claims.push(Claim { what: what.into(), measured: measured.into(), met });
    }

    /// Takes a number into the digest.
    pub(crate) fn note(&mut self, n: u64) {
        self.digest = (self.digest ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }
}

//! `cairn lab`: the papers' experiments in virtual time. It prints what each measures, and of each
//! claim the paper's value, ours, and the verdict; it knows none of them.

use crate::args::{LabArgs, LabCommand};
use crate::{Failure, Outcome};
use lab::experiments::{Claim, EXPERIMENTS, Experiment, Findings, Scale, Table};
use std::collections::BTreeMap;
use std::path::Path;

/// The command.
pub fn run(a: &LabArgs) -> Result<Outcome, Failure> {
    match &a.command {
        LabCommand::List => {
            EXPERIMENTS.iter().for_each(|e| tell!("{:18} {}", e.name, e.what));
            Ok(Outcome::Done)
        }
        LabCommand::Run { names, small, markdown, json } => {
            let scale = if *small { Scale::Small } else { Scale::Paper };
            let mut all = BTreeMap::new();
            for e in chosen(names)? {
                let found = e.run(scale)?;
                if !json {
                    print(e, &found, *markdown);
                }
                all.insert(e.name, found);
            }
            if *json {
                tell!("{}", serde_json::to_string(&all).map_err(|e| e.to_string())?);
            }
            if !json && !markdown {
                tell!("{}", meaning(all.values().flat_map(|f| &f.claims)));
            }
            let surprise = all.values().flat_map(|f| &f.claims).any(|c| c.is_surprise());
            Ok(if surprise { Outcome::Broken } else { Outcome::Done })
        }
        LabCommand::Report { names, small, out } => report(names, *small, out),
    }
}

fn report(names: &[String], small: bool, out: &Path) -> Result<Outcome, Failure> {
    let scale = if small { Scale::Small } else { Scale::Paper };
    let mut all = Vec::new();
    for e in chosen(names)? {
        all.push((e, e.run(scale)?));
    }
    let claims = || all.iter().flat_map(|(_, f)| &f.claims);
    let told = meaning(claims());
    let written = std::fs::write(out, super::lab_report::page(&all, &told));
    written.map_err(|e| format!("{}: {e}", out.display()))?;
    tell!("{}: {told}", out.display());
    Ok(if claims().any(Claim::is_surprise) { Outcome::Broken } else { Outcome::Done })
}

fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>, Failure> {
    if names.is_empty() {
        return Ok(EXPERIMENTS.iter().collect());
    }
    let find = |name: &String| {
        let none = || Failure::Usage(format!("no experiment {name}: cairn lab list"));
        EXPERIMENTS.iter().find(|e| e.name == name).ok_or_else(none)
    };
    names.iter().map(find).collect()
}

fn print(e: &Experiment, found: &Findings, markdown: bool) {
    tell!("{}{}: {}\n", if markdown { "### " } else { "" }, e.name, e.what);
    for table in &found.tables {
        if markdown { tell!("{}", table.markdown()) } else { columns(table) }
    }
    if markdown {
        tell!("{}", found.claims_table().markdown());
    } else {
        found.claims.iter().for_each(claim);
    }
    tell!("{}digest {:016x}\n", if markdown { "- " } else { "" }, found.digest);
}

fn claim(c: &Claim) {
    let number = if c.number == 0 { String::new() } else { format!(" (claim {})", c.number) };
    let (low, high) = c.tolerance;
    tell!("{}: {}{number}: {}", c.verdict.word(), c.what, c.measured);
    tell!("    paper {:.2}, tolerance {low:.2} to {high:.2}. {}", c.paper, c.reason);
    if c.is_surprise() {
        tell!("    docs/lab.md states: {}", c.stated.word());
    }
}

/// What it means, in a line.
fn meaning<'a>(claims: impl Iterator<Item = &'a Claim>) -> String {
    let (mut verdicts, mut all, mut surprises) = (BTreeMap::<&str, usize>::new(), 0, 0);
    for c in claims {
        *verdicts.entry(c.verdict.word()).or_default() += 1;
        (all, surprises) = (all + 1, surprises + usize::from(c.is_surprise()));
    }
    let judged: usize = verdicts.values().sum();
    assert_eq!(judged, all, "each claim has one verdict");
    let verdicts: Vec<String> = verdicts.iter().map(|(word, n)| format!("{n} {word}")).collect();
    let stated = match surprises {
        0 => "each as docs/lab.md states it".to_owned(),
        n => format!("{n} worse than docs/lab.md states: see there"),
    };
    match all {
        0 => "figures alone: no claim of a paper is judged by them".to_owned(),
        _ => format!("{all} claims of the papers: {}; {stated}", verdicts.join(", ")),
    }
}

fn columns(t: &Table) {
    tell!("{}", t.title);
    let all: Vec<&Vec<String>> = std::iter::once(&t.columns).chain(&t.rows).collect();
    let width = |n: usize| all.iter().map(|r| r[n].chars().count()).max().unwrap_or(0);
    for row in &all {
        let cells = row.iter().enumerate().map(|(n, cell)| match n {
            0 => format!("  {cell:<0$}", width(n)),
            _ => format!("  {cell:>0$}", width(n)),
        });
        tell!("{}", cells.collect::<String>());
    }
    tell!("");
}

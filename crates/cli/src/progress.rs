//! A progress bar on a terminal, and nothing in a pipe. What is being done it does not know.

use crate::say;
use check::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use volume::{Recovered, Watch};

/// Shows how far long work has come.
pub struct Bar {
    bar: Option<ProgressBar>,
    phase: &'static str,
}

impl Bar {
    /// A bar, if somebody looks.
    pub fn new() -> Bar {
        Bar { bar: std::io::stderr().is_terminal().then(ProgressBar::hidden), phase: "" }
    }
}

impl Progress for Bar {
    fn step(&mut self, phase: &'static str, done: u64, total: u64) {
        let Some(bar) = &mut self.bar else { return };
        if self.phase != phase {
            bar.finish_and_clear();
            self.phase = phase;
            *bar = ProgressBar::new(total);
            let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent}% {eta}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(phase);
        }
        bar.set_position(done);
        if done >= total {
            bar.finish_and_clear();
        }
    }
}

/// Counts what is done of work whose end nobody knows before.
pub struct Counter(Option<ProgressBar>);

impl Counter {
    /// A count of `what`, if somebody looks.
    pub fn new(what: &'static str) -> Counter {
        Counter(std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {human_pos} {msg}, {elapsed}");
            let bar = ProgressBar::new_spinner().with_message(what);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        }))
    }
    /// So many more are done.
    pub fn add(&self, n: u64) {
        self.0.iter().for_each(|bar| bar.inc(n));
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// The same for the recovery of a volume while it is opened; says what was done.
pub struct RecoveryBar {
    bar: Mutex<Option<Bar>>,
    /// The volume's name, if what was done is to be told.
    shown: Option<String>,
    /// What was done.
    told: Mutex<Option<String>>,
}

impl RecoveryBar {
    /// Of the volume with this name, if what was done is to be told.
    pub fn new(shown: Option<String>) -> RecoveryBar {
        RecoveryBar { bar: Mutex::default(), shown, told: Mutex::default() }
    }
}

impl RecoveryBar {
    /// What was recovered, once it was.
    pub fn told(&self) -> Option<String> {
        self.told.lock().expect("nobody panics while holding it").clone()
    }
}

impl std::fmt::Debug for RecoveryBar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecoveryBar")
    }
}

impl Watch for RecoveryBar {
    fn step(&self, phase: &'static str, done: u64, total: u64) {
        let mut bar = self.bar.lock().expect("nobody panics while holding it");
        bar.get_or_insert_with(Bar::new).step(phase, done, total);
        crate::notify::replaying(done, total);
    }
    fn done(&self, did: &Recovered) {
        let what = sentence(did);
        if let Some(shown) = &self.shown {
            say::err(&format!("{shown}: was not closed cleanly{what}"));
        }
        let what = what.trim_start_matches([';', ' ']).to_owned();
        *self.told.lock().expect("nobody panics while holding it") = Some(what);
    }
}

/// What was done, after "was not closed cleanly".
fn sentence(did: &Recovered) -> String {
    let Recovered { transactions, blocks_written, repaired, .. } = did;
    if did.log {
        return format!(
            "; its log was replayed, {transactions} entries, {blocks_written} blocks written"
        );
    }
    let mode = did.mode.as_deref().unwrap_or("unknown");
    format!(
        " in mode {mode}; {repaired} things repaired, {transactions} transactions replayed, \
         {blocks_written} blocks written"
    )
}

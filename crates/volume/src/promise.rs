//! What an opening promises, as one short line that holds for the options in force. The long form,
//! with what depends on options, is the mode's ([`crate::ModeInfo::promise`]).

use crate::{Commit, Mode, OpenOptions};

impl OpenOptions {
    /// What a crash leaves of a volume that is opened like this, in a line.
    pub fn promise_line(&self) -> String {
        if self.read_only {
            return "read-only: nothing is changed".into();
        }
        let secs = self.commit_interval.0 as f64 / 1e9;
        let fsynced = "durable after fsync";
        let behind = format!("at most {secs} s are lost, {fsynced}");
        let clean = if self.ordered_data { ", no file shows blocks of another" } else { "" };
        match (self.mode, self.commit) {
            (Mode::Sync, _) => "returned changes of names and sizes survive a crash; contents \
                                after fsync"
                .into(),
            (Mode::Async, _) => "a crash may take anything but fsynced files, which cairn fsck \
                                 --repair brings back"
                .into(),
            (Mode::Ordered, _) => format!("{behind}; no file shows blocks of another"),
            (Mode::Writeback, _) => format!("{behind}; new files may show old blocks"),
            (Mode::Data | Mode::Wasteless, _) => {
                format!("{behind}; metadata and contents of one moment")
            }
            (Mode::Selective, _) => {
                format!("{behind}; metadata and small writes of one moment")
            }
            (Mode::Redo, Commit::Sync) => {
                format!("what has returned survives a crash, contents after fsync{clean}")
            }
            (Mode::Unified, Commit::Sync) => "what has returned survives a crash".into(),
            (Mode::Redo, Commit::Async) => format!("in order after a crash, {behind}{clean}"),
            (Mode::Unified, Commit::Async) => format!("in order after a crash, {behind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MODES;
    use env::Nanos;

    #[test]
    fn the_line_is_short_and_says_what_the_options_make_of_it() {
        for mode in MODES {
            for commit in [Commit::Sync, Commit::Async] {
                let plain = OpenOptions::plain(mode.mode, 1 << 20, [0; 16]);
                let o = OpenOptions { commit, commit_interval: Nanos::from_millis(2500), ..plain };
                let line = o.promise_line();
                assert!(line.len() <= 100, "{line}");
                let bounded =
                    mode.mode.is_journal() || mode.mode.is_redo() && commit == Commit::Async;
                assert_eq!(line.contains("2.5 s"), bounded, "{line}");
                let returned = mode.mode.is_redo() && commit == Commit::Sync;
                assert_eq!(line.contains("what has returned"), returned, "{line}");
                let o = OpenOptions { read_only: true, ..o };
                assert!(o.promise_line().contains("read-only"));
            }
        }
    }
}
